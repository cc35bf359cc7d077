"""Wrong input gives one clear line, and the cluster that got it serves on."""

import json
import pathlib
import socket
import unittest

from cluster import Cluster, MODELS, Process, free_ports, headrace, model

SCRIPT = "script/base.gguf"
REST = "BCDEFGHIJKLMNOPQRSTUVWXYZ\n"


class Models(unittest.TestCase):
    def test_files_that_are_no_model(self):
        manifest = json.loads((MODELS / "bad" / "manifest.json").read_text())
        paths = [model("no-such-file.gguf"), str(MODELS), "/dev/null"]
        paths += [model(f"bad/{name}.gguf") for name, about in manifest.items()
                  if about["right"] != "load"]
        self.assertGreater(len(paths), 10)
        for path in paths:
            for command in ["run", "serve", "inspect"]:
                with self.subTest(path=pathlib.Path(path).name, command=command):
                    words = ["--listen", f"127.0.0.1:{free_ports()}"] if command == "serve" else []
                    outcome = headrace(command, path, *words, text="A", timeout=60)
                    self.assertEqual(outcome.status, 1, outcome.err)
                    self.assertIn(path, outcome.one_error())
                    self.assertEqual(outcome.out, "")

    def test_worker_with_another_model(self):
        with Cluster(model(SCRIPT), prefill=0, decode=1) as cluster:
            mesh = f"127.0.0.1:{cluster.port + 1}"
            for path, options, part in [
                    ("tiny/base.gguf", [], "this cluster serves"),
                    (SCRIPT, ["--kv-block-tokens", "64"], "; --kv-block-tokens decides it"),
                    (SCRIPT, ["--device", "reference"], "; --kv-type and --device decide it")]:
                with self.subTest(path=path, options=options):
                    worker = Process("worker", model(path), "--join", mesh, *options)
                    self.assertEqual(worker.wait(), 1)
                    self.assertEqual(len(worker.err), 1, worker.err)
                    self.assertIn(part, worker.err[0])
            self.assertEqual(cluster.run("A").out, REST)

    def test_worker_without_coordinator_waits_for_it(self):
        port = free_ports()
        worker = Process("worker", model(SCRIPT), "--join", f"127.0.0.1:{port + 1}")
        try:
            while not worker.err:
                self.assertIsNone(worker.process.poll())
            coordinator = Process("coordinator", "--listen", f"127.0.0.1:{port}", "--mesh",
                                  f"127.0.0.1:{port + 1}")
            try:
                answer = None
                for _ in range(100):
                    answer = headrace("run", "--connect", f"127.0.0.1:{port}", "A")
                    if answer.status == 0:
                        break
                self.assertEqual(answer.out, REST, answer.err)
            finally:
                self.assertEqual(coordinator.end(), 0)
        finally:
            self.assertEqual(worker.end(), 0)


class Ports(unittest.TestCase):
    def test_in_use(self):
        port = free_ports()
        for taken in [port, port + 1]:
            with socket.socket() as other:
                other.bind(("127.0.0.1", taken))
                other.listen()
                for command in [["serve", model(SCRIPT)],
                                ["coordinator", "--mesh", f"127.0.0.1:{port + 1}"]]:
                    outcome = headrace(*command, "--listen", f"127.0.0.1:{port}")
                    self.assertEqual(outcome.status, 1)
                    self.assertIn(f"127.0.0.1:{taken}", outcome.one_error())

    def test_of_a_worker(self):
        with socket.socket() as other, Cluster(model(SCRIPT), prefill=0) as cluster:
            other.bind(("127.0.0.1", 0))
            other.listen()
            kv = f"127.0.0.1:{other.getsockname()[1]}"
            outcome = headrace("worker", model(SCRIPT), "--role", "decode", "--join",
                               f"127.0.0.1:{cluster.port + 1}", "--kv", kv)
            self.assertEqual(outcome.status, 1)
            self.assertIn(kv, outcome.one_error())


class Requests(unittest.TestCase):
    """H06 and H07 over RPC; the CLI in one process has them in tests/deploy."""

    def test_verdicts(self):
        with Cluster(model(SCRIPT), "--pd", "always") as cluster:
            for words, part in [([""], "empty"), (["--json", "a" * 600], "600"),
                                (["--json", "a" * 600], "512"), (["--prompt-ids", "4000000"], "")]:
                with self.subTest(words=[w[:20] for w in words]):
                    outcome = cluster.run(*words)
                    self.assertEqual(outcome.status, 1, outcome.out)
                    self.assertIn(part, outcome.one_error())
                    self.assertEqual(outcome.out, "")
            usage = cluster.run("--top-p", "0", "--temperature", "1", "A")
            self.assertEqual(usage.status, 2, usage.out)
            self.assertIn("top-p", usage.one_error())
            outcome = cluster.run(text="")
            self.assertEqual(outcome.status, 1)
            clamped = cluster.run("--json", "--max-tokens", "100", "a" * 500).json()
            self.assertEqual(clamped["usage"]["completion_tokens"], 12)
            self.assertEqual(clamped["finish"], "length")
            self.assertEqual(cluster.run("A").out, REST)
            cluster.wait_idle()


if __name__ == "__main__":
    unittest.main(verbosity=2)
