"""Start, ready, stop: nothing is left behind."""

import os
import pathlib
import signal
import time
import unittest

from cluster import HANG, Cluster, Process, alive, headrace, model, real_model


def catches(pid, number):
    """True once the process has a handler of its own for that signal."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


class Life(unittest.TestCase):
    def check_stop(self, number):
        # Short, so that a slow build is in the midst of the answer when its time is over.
        cluster = Cluster(real_model(), "--drain-timeout", "3")
        pids = list(cluster.children().values())
        self.assertEqual(len(pids), 3)
        request = Process("run", "--connect", cluster.address, "--max-tokens", "2000", "Once")
        while not request.err and request.process.poll() is None and not cluster.status()["running"]:
            time.sleep(0.02)
        begun = time.monotonic()
        self.assertEqual(cluster.supervisor.end(number), 0, cluster.supervisor.err)
        print(f"stopped in {time.monotonic() - begun:.2f} s", flush=True)
        self.assertIn(request.wait(), [0, 1])
        self.assertFalse([pid for pid in pids if alive(pid)])
        self.assertEqual(cluster.supervisor.err[-1], "headrace: stopped")

    def test_terminate(self):
        self.check_stop(signal.SIGTERM)

    def test_interrupt(self):
        self.check_stop(signal.SIGINT)

    def test_killed_supervisor_leaves_nobody(self):
        cluster = Cluster(model("script/base.gguf"), prefill=2, decode=2)
        pids = list(cluster.children().values())
        self.assertEqual(len(pids), 5)
        cluster.supervisor.end(signal.SIGKILL)
        end = time.monotonic() + HANG
        while any(alive(pid) for pid in pids) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertFalse([pid for pid in pids if alive(pid)])

    def test_ready_is_ready(self):
        """The first request after `ready` is answered; before the workers it is not ready."""
        cluster = Cluster(real_model())
        took = time.monotonic() - cluster.supervisor.begun
        with cluster:
            answer = cluster.run("--json", "--max-tokens", "1", "Hello")
            self.assertEqual(answer.status, 0, answer.err)
            print(f"serve ready after {took:.2f} s", flush=True)
            workers = [w["name"] for w in cluster.status()["workers"]]
            self.assertEqual(sorted(workers), ["decode-0", "prefill-0"])

    def test_not_ready_without_a_decode_worker(self):
        with Cluster(model("script/base.gguf"), prefill=1, decode=1) as cluster:
            decode = cluster.children()["decode-0"]
            # The supervisor stands still meanwhile, so that no other is in its place before we look.
            cluster.supervisor.process.send_signal(signal.SIGSTOP)
            try:
                os.kill(decode, signal.SIGKILL)
                end = time.monotonic() + HANG
                while cluster.status()["ready"] and time.monotonic() < end:
                    time.sleep(0.02)
                self.assertFalse(cluster.status()["ready"])
            finally:
                cluster.supervisor.process.send_signal(signal.SIGCONT)
            cluster.wait_ready()

    def test_interrupted_run_is_cancelled(self):
        with Cluster(real_model()) as cluster:
            request = Process("run", "--connect", cluster.address, "--max-tokens", "4000", "Once")
            while not cluster.status()["running"] and request.process.poll() is None:
                time.sleep(0.02)
            self.assertEqual(request.end(signal.SIGINT), 1)
            self.assertEqual(request.err, ["headrace: cancelled"])
            cluster.wait_idle()
        here = Process("run", real_model(), "--max-tokens", "4000", "Once")
        end = time.monotonic() + HANG
        while not catches(here.pid, signal.SIGINT) and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.5)  # some tokens
        self.assertEqual(here.end(signal.SIGINT), 1)
        self.assertEqual(here.err[-1], "headrace: cancelled")

    def test_state_is_measured_once(self):
        first = headrace("inspect", real_model(), "--json").json()
        again = headrace("inspect", real_model(), "--json").json()
        self.assertEqual(first, again)


if __name__ == "__main__":
    unittest.main(verbosity=2)
