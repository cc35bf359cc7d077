"""serve as a supervisor: a worker that stands still is replaced; how a cluster ends in order."""

import json
import os
import signal
import subprocess
import threading
import time
import unittest

from cluster import BINARY, HANG, Cluster, Process, alive, free_ports, headrace, model

LONG = 400


class Replaced(unittest.TestCase):
    def test_stopped_worker(self):
        with Cluster(model("script/base.gguf"), decode=2) as cluster:
            stuck = cluster.children()["decode-1"]
            os.kill(stuck, signal.SIGSTOP)
            end = time.monotonic() + HANG
            while alive(stuck) and time.monotonic() < end:
                self.assertEqual(cluster.run("A").out, "BCDEFGHIJKLMNOPQRSTUVWXYZ\n")
                time.sleep(0.3)
            self.assertFalse(alive(stuck))
            said = "\n".join(cluster.supervisor.err)
            self.assertRegex(said, "decode-1 lives, but the coordinator has lost it .*; it is killed")
            self.assertNotIn("joined again", said.split("it is killed")[0])
            cluster.wait_ready()
            self.assertNotEqual(cluster.children()["decode-1"], stuck)
            while not any("decode-1 has joined again" in line for line in cluster.supervisor.err):
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)

    def test_stopped_only_worker(self):
        """A request waits until another is in its place, instead of being refused."""
        with Cluster(model("script/base.gguf")) as cluster:
            os.kill(cluster.children()["decode-0"], signal.SIGSTOP)
            answer = cluster.run("A")
            self.assertEqual(answer.out, "BCDEFGHIJKLMNOPQRSTUVWXYZ\n", answer.err)

    def test_first_join_is_not_again(self):
        with Cluster(model("script/base.gguf"), decode=2) as cluster:
            cluster.run("A")
            self.assertNotIn("again", "\n".join(cluster.supervisor.err))


class Leaves(unittest.TestCase):
    def slow(self, cluster, seconds):
        """An answer that runs while the cluster is told to end: its worker stands still."""
        decode = cluster.children()["decode-0"]
        os.kill(decode, signal.SIGSTOP)
        asker = subprocess.Popen([str(BINARY), "run", "--connect", cluster.address, "a",
                                  "--max-tokens", str(LONG), "--json"], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + HANG
        while not cluster.status().get("running") and time.monotonic() < end:
            time.sleep(0.02)
        threading.Timer(seconds, os.kill, (decode, signal.SIGCONT)).start()
        return asker

    def test_running_answers_end(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number.name):
                cluster = Cluster(model("script/base.gguf"))
                asker = self.slow(cluster, 0.5)
                cluster.supervisor.process.send_signal(number)
                out, err = asker.communicate(timeout=HANG)
                self.assertEqual(asker.returncode, 0, err)
                self.assertEqual(len(json.loads(out)["ids"]), LONG)
                self.assertEqual(cluster.supervisor.wait(), 0)

    def test_a_second_signal_ends_streams_with_an_error(self):
        cluster = Cluster(model("script/base.gguf"))
        os.kill(cluster.children()["decode-0"], signal.SIGSTOP)
        asker = subprocess.Popen([str(BINARY), "run", "--connect", cluster.address, "a",
                                  "--max-tokens", str(LONG)], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + HANG
        while not cluster.status().get("running") and time.monotonic() < end:
            time.sleep(0.02)
        begun = time.monotonic()
        for _ in range(2):
            cluster.supervisor.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        _, err = asker.communicate(timeout=HANG)
        self.assertEqual(asker.returncode, 1)
        self.assertTrue(err.startswith("headrace: "), err)
        self.assertEqual(cluster.supervisor.wait(), 0)
        self.assertLess(time.monotonic() - begun, 30)  # the grace alone would be that long

    def test_new_requests_are_refused_meanwhile(self):
        cluster = Cluster(model("script/base.gguf"))
        asker = self.slow(cluster, 1.5)
        coordinator = cluster.children()["coordinator"]
        os.kill(coordinator, signal.SIGTERM)
        end = time.monotonic() + HANG
        refused = cluster.run("A")
        while "shutting down" not in refused.err and time.monotonic() < end and alive(coordinator):
            refused = cluster.run("A")
        self.assertEqual(refused.status, 1)
        self.assertIn("shutting down", refused.err)
        asker.communicate(timeout=HANG)
        self.assertEqual(asker.returncode, 0)
        cluster.supervisor.end()


class Words(unittest.TestCase):
    def test_a_wildcard_is_told_as_an_address(self):
        with Cluster(model("script/base.gguf"), prefill=0) as cluster:
            worker = Process("worker", model("script/base.gguf"), "--join",
                             f"127.0.0.1:{cluster.port + 1}", "--kv", "0.0.0.0:0",
                             "--insecure-mesh", "--name", "wild")
            try:
                status = cluster.wait_ready(workers=2)
                kv = next(w["kv"] for w in status["workers"] if w["name"] == "wild")
                host, port = kv.rsplit(":", 1)
                self.assertNotIn(host, ("0.0.0.0", "[::]"))
                self.assertGreater(int(port), 0)
            finally:
                self.assertEqual(worker.end(), 0)

    def test_the_client_port_is_not_the_mesh(self):
        port = free_ports()
        coordinator = Process("coordinator", "--listen", f"127.0.0.1:{port}", "--mesh",
                              f"127.0.0.1:{port + 1}")
        worker = None
        try:
            end = time.monotonic() + HANG
            while headrace("status", "--connect", f"127.0.0.1:{port}").status != 0:
                self.assertLess(time.monotonic(), end)
            worker = Process("worker", model("script/base.gguf"), "--join", f"127.0.0.1:{port}")
            while not any("port for clients" in line for line in worker.err):
                self.assertLess(time.monotonic(), end, worker.err)
                time.sleep(0.1)
        finally:
            if worker:
                self.assertEqual(worker.end(), 0)
            self.assertEqual(coordinator.end(), 0)


if __name__ == "__main__":
    unittest.main()
