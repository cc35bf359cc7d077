"""The two example clients against a live cluster: stream, cancel, lose the connection, go on."""

import concurrent.futures
import os
import pathlib
import select
import socket
import subprocess
import sys
import threading
import time
import unittest

from cluster import BINARY, ENVIRONMENT, HANG, Cluster, headrace, model

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "examples"
LONG = 400  # tokens of the long answer


def python_client():
    """Under the Python that runs this: tests/e2e/python has what the example needs."""
    return [sys.executable, "-B", str(EXAMPLES / "stream.py")]


def cpp_client():
    return [str(BINARY.parent / "examples" / "stream")]


class Proxy:
    """TCP on loopback; closes a connection once so many bytes of answers went through it."""

    def __init__(self, port, cut_after):
        self.port_to, self.cut_after, self.cuts, self.over = port, list(cut_after), 0, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def close(self):
        self.over = True
        self.thread.join(HANG)
        self.listener.close()

    def _accept(self):
        while not self.over:
            if not select.select([self.listener], [], [], 0.05)[0]:
                continue
            client = self.listener.accept()[0]
            limit = self.cut_after.pop(0) if self.cut_after else None
            threading.Thread(target=self._serve, args=(client, limit), daemon=True).start()

    def _serve(self, client, limit):
        server = socket.create_connection(("127.0.0.1", self.port_to))
        passed = 0
        with client, server:
            while not self.over:
                for ready in select.select([client, server], [], [], 0.05)[0]:
                    try:
                        data = ready.recv(1024)
                        if not data:
                            return
                        (server if ready is client else client).sendall(data)
                    except OSError:
                        return
                    passed += len(data) if ready is server else 0
                    if limit is not None and passed >= limit:
                        self.cuts += 1
                        return


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(model("script/base.gguf"))
        cls.clients = {"c++": cpp_client(), "python": python_client()}
        cls.long = headrace("run", "--connect", cls.cluster.address, "a", "--max-tokens",
                            str(LONG)).out

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__()

    def tearDown(self):
        self.cluster.wait_idle()

    def taken(self):
        """Requests that the coordinator has."""
        status = self.cluster.status()
        return status.get("running", 0) + status.get("waiting", 0)

    def each(self, *words, address=None):
        for name, command in self.clients.items():
            with self.subTest(client=name):
                done = subprocess.run([*command, address or self.cluster.address, *words],
                                      capture_output=True, text=True, timeout=HANG)
                yield name, done

    def test_stream(self):
        for _, done in self.each("A"):
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, "BCDEFGHIJKLMNOPQRSTUVWXYZ\n")
            self.assertIn("25 tokens", done.stderr)

    def test_cut_in_mid_stream(self):
        self.assertEqual(len(self.long.strip()), LONG)
        for name, command in self.clients.items():
            with self.subTest(client=name):
                proxy = Proxy(self.cluster.port, [900, 700, 700])
                try:
                    done = subprocess.run([*command, proxy.address, "a", "--max-tokens",
                                           str(LONG)], capture_output=True, text=True,
                                          timeout=HANG)
                finally:
                    proxy.close()
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout, self.long)
                self.assertGreaterEqual(proxy.cuts, 2)  # how much goes in one chunk varies

    def test_cancel(self):
        for _, done in self.each("a", "--max-tokens", str(LONG), "--cancel-after", "5"):
            self.assertIn(done.returncode, (0, 3), done.stderr)  # 0: it was faster than we
            self.assertTrue(self.long.startswith(done.stdout.strip()))
            self.cluster.wait_idle()

    def test_errors_are_words(self):
        for _, done in self.each("a" * 600):
            self.assertEqual(done.returncode, 1)
            self.assertIn("512", done.stderr)
        for _, done in self.each("A", address="127.0.0.1:9"):
            self.assertEqual(done.returncode, 1)
            self.assertIn("127.0.0.1:9", done.stderr)

    def test_wrong_ports(self):
        """Of the mesh, of metrics, and of one that never says a word: a hint within seconds."""
        def ask(command):
            begun = time.monotonic()
            done = subprocess.run(command, capture_output=True, text=True, timeout=HANG,
                                  env=ENVIRONMENT, stdin=subprocess.DEVNULL)
            return command, done, time.monotonic() - begun

        metrics = self.cluster.status()["metrics"]
        with socket.create_server(("127.0.0.1", 0)) as silent:
            addresses = (f"127.0.0.1:{self.cluster.port + 1}", metrics,
                         "127.0.0.1:%d" % silent.getsockname()[1])
            commands = [[*client, address, "A"] for address in addresses
                        for client in self.clients.values()]
            commands += [[str(BINARY), *words, "--connect", address] for address in addresses
                         for words in (["run", "A"], ["status"])]
            # All at once: they wait for seconds, each for itself.
            with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
                for command, done, took in pool.map(ask, commands):
                    with self.subTest(command=command):
                        self.assertEqual(done.returncode, 1, done.stderr)
                        self.assertIn("port for clients", done.stderr)
                        self.assertEqual(len(done.stderr.splitlines()), 1)
                        self.assertLess(took, 28)  # one would go on with its request for 30 s

    def test_bad_hosts(self):
        for address, status in (("no.such.host.invalid:1", 1), ("x" * 80 + ":1", 1),
                                ("127.0.0.1:x", 2), ("127.0.0.1", 2)):
            done = subprocess.run([*python_client(), address, "A"], capture_output=True, text=True,
                                  timeout=HANG)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_resume_by_another_process(self):
        """Killed in the middle, taken up by id with `run --resume`."""
        name = "00000000000000000000000000c0ffee"
        with Stopped(self.cluster):
            asker = subprocess.Popen([str(BINARY), "run", "--connect", self.cluster.address, "A",
                                      "--request-id", name], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
            end = time.monotonic() + HANG
            while not self.taken() and time.monotonic() < end:
                time.sleep(0.02)
            asker.kill()
            asker.wait()
        taken = headrace("run", "--connect", self.cluster.address, "--resume", name, "--from", "3",
                         "--json")
        self.assertEqual(taken.status, 0, taken.err)
        self.assertEqual(taken.json()["text"], "EFGHIJKLMNOPQRSTUVWXYZ")
        self.assertEqual(taken.json()["request_id"], name)
        unknown = headrace("run", "--connect", self.cluster.address, "--resume", "1" * 32)
        self.assertEqual(unknown.status, 1)


class Stopped:
    """The decode worker stands still for a moment."""

    def __init__(self, cluster):
        self.pid = cluster.children()["decode-0"]

    def __enter__(self):
        os.kill(self.pid, 19)

    def __exit__(self, *_):
        os.kill(self.pid, 18)


class OversizedMessages(unittest.TestCase):
    """70 MiB through a client that is not ours: an error, and nothing spoiled for others."""

    SCRIPT = """
import asyncio, pathlib, sys
sys.argv = ["x"]
import importlib.util, capnp
spec = importlib.util.spec_from_file_location("stream", %(stream)r)
stream = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stream)
api = stream.api

async def connect():
    s = await capnp.AsyncIoStream.create_connection(host="127.0.0.1", port=%(port)d)
    c = capnp.TwoPartyClient(s)
    return s, c, c.bootstrap().cast_as(api.Headrace)

async def refused(make):
    s, c, h = await connect()
    await h.hello(client="big")
    try:
        await asyncio.wait_for(make(h), 60)
    except capnp.KjException as e:
        print("refused")
    else:
        print("taken")

async def main():
    s, c, good = await connect()
    await refused(lambda h: h.tokenize(prompt={"text": "a" * (70 << 20)}))
    await refused(lambda h: h.detokenize(ids=[65] * (18 << 20)))
    await good.hello(client="good")
    s2, c2, fresh = await connect()
    print(list((await fresh.tokenize(prompt={"text": "A"})).result.ok.ids))
    r = (await fresh.detokenize(ids=[999999])).result
    print(r.which())
    print(list((await good.tokenize(prompt={"text": "A"})).result.ok.ids))

asyncio.run(capnp.run(main()))
"""

    def test_foreign_client(self):
        command = python_client()
        with Cluster(model("script/base.gguf")) as cluster:
            script = self.SCRIPT % {"stream": command[-1], "port": cluster.port}
            done = subprocess.run([command[0], "-B", "-c", script], capture_output=True, text=True,
                                  timeout=HANG)
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])
            lines = done.stdout.split("\n")
            self.assertEqual(lines[:2], ["refused", "refused"])
            self.assertEqual(lines[3], "error")
            self.assertEqual(lines[2], lines[4])
            self.assertEqual(cluster.run("A").out, "BCDEFGHIJKLMNOPQRSTUVWXYZ\n")
            cluster.wait_idle()
            big = cluster.run(text="a" * (15 << 20))
            self.assertEqual(big.status, 1)
            self.assertIn("1048576", big.one_error())


if __name__ == "__main__":
    unittest.main()
