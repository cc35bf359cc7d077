"""Prefill and decode on two emulated GPUs over NCCL, and what goes wrong there: a peer killed,
frozen, silently gone, of another version, calls of the library that do not end.

The binary is headrace_emulated (tests/simt/engine). Each answer is compared with one GPU's alone.
"""

import contextlib
import os
import signal
import time
import unittest

import cluster
from cluster import ENVIRONMENT, HANG, Process, free_ports, headrace
from emulated_test import ASKS, FEW, MODEL, emulated
from gpu_links_test import nccl_does

FIELDS = ("ids", "text", "finish", "kv_digest")


class Workers(cluster.Cluster):
    """A coordinator, and workers one by one, each with what its NCCL does."""

    def __init__(self):
        self.port, self.mesh = free_ports(), f"127.0.0.1:{free_ports()}"
        self.address = f"127.0.0.1:{self.port}"
        self.workers = {}
        self.supervisor = Process("coordinator", "--listen", self.address, "--mesh", self.mesh,
                                  "--pd", "always")

    def start(self, name, role, nccl=""):
        with nccl_does(nccl) if nccl else contextlib.nullcontext():
            self.workers[name] = Process(
                "worker", MODEL, "--role", role, "--name", name, "--join", self.mesh, "--device",
                "cuda:0", *FEW)
        end = time.monotonic() + HANG
        while not any(w["name"] == name for w in self.status()["workers"]):
            if time.monotonic() > end:
                raise AssertionError(f"{name} did not join: {self.workers[name].err}")
            time.sleep(0.05)
        self.size = len(self.workers)
        return self.workers[name]

    def __exit__(self, *_):
        for worker in self.workers.values():
            worker.end(signal.SIGKILL)
        self.supervisor.end()


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.alone = [headrace("run", MODEL, "--device", "cuda:0", *FEW, "--json", "--kv-digest",
                              *ask).json() for ask in ASKS]

    @contextlib.contextmanager
    def workers(self):
        with emulated(1), Workers() as workers:
            yield workers

    def check(self, workers, turns=1):
        """All answers are right, and then nothing is held."""
        for ask, here in list(zip(ASKS, self.alone)) * turns:
            there = workers.run("--json", "--kv-digest", *ask)
            self.assertEqual(there.status, 0, there.err)
            for field in FIELDS:
                self.assertEqual(there.json()[field], here[field], field)
        workers.wait_idle()

    def asked(self, workers):
        """A request under way, to be ended by what follows."""
        return Process("run", "--connect", workers.address, "--json", "--kv-digest", *ASKS[0])

    def ended_well(self, request):
        self.assertEqual(request.wait(), 0, request.err)
        self.assertIn(str(self.alone[0]["ids"]).replace(" ", ""),
                      request.out[0].replace(" ", ""))

    def wait_sending(self, workers):
        """Until a decode worker holds blocks for what a prefill worker sends."""
        end = time.monotonic() + HANG
        while time.monotonic() < end:
            if any(w["blocks"]["incoming"] for w in workers.status()["workers"]):
                return
            time.sleep(0.02)
        self.fail("no hand-off began")

    def test_another_version(self):
        with self.workers() as workers:
            workers.start("p", "prefill", "version=22700")
            workers.start("d", "decode")
            self.check(workers)
            self.assertEqual(workers.status()["totals"]["attempts_failed"], 0)

    def test_it_dies_while_it_sends(self):
        for silent in ("", " silent"):
            with self.subTest(silent), self.workers() as workers:
                dying = workers.start("p", "prefill", "die_after=5000" + silent)
                workers.start("d", "decode", silent.strip())
                request = self.asked(workers)
                self.assertNotEqual(dying.wait(), 0)
                del workers.workers["p"]
                workers.start("q", "prefill")
                self.ended_well(request)
                self.check(workers)

    def test_killed_in_mid_send(self):
        for victim, role in (("p", "prefill"), ("d", "decode")):
            with self.subTest(victim), self.workers() as workers:
                workers.start("p", "prefill", "stall_send")
                workers.start("d", "decode")
                request = self.asked(workers)
                self.wait_sending(workers)
                workers.workers.pop(victim).end(signal.SIGKILL)
                workers.start("n", role)
                self.ended_well(request)
                self.check(workers)

    def test_frozen_in_mid_send(self):
        with self.workers() as workers:
            frozen = workers.start("p", "prefill", "stall_send")
            workers.start("d", "decode")
            request = self.asked(workers)
            self.wait_sending(workers)
            os.kill(frozen.pid, signal.SIGSTOP)
            try:
                workers.workers.pop("p")
                workers.start("n", "prefill")
                self.ended_well(request)
                self.check(workers)
            finally:
                os.kill(frozen.pid, signal.SIGCONT)
                frozen.end(signal.SIGKILL)

    def test_calls_that_do_not_end(self):
        for what in ("stall_init", "stall_send", "stall_send stall_abort"):
            with self.subTest(what), self.workers() as workers:
                workers.start("p", "prefill", what)
                workers.start("q", "prefill")
                workers.start("d", "decode")
                self.check(workers, turns=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
