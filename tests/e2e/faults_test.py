"""Any process killed at any time: the others go on, or the request ends with a stated error."""

import contextlib
import os
import random
import signal
import time
import unittest

from cluster import Cluster, Process, headrace, real_model, sanitized

# Seconds from a death to the end of a request that cannot go on, on a machine with other work. Left
# to itself it would wait for 30.
STATED = 20
ASK = ["--json", "--max-tokens", "60" if sanitized() else "160", "--prompt-ids",
       ",".join(str(i) for i in range(300, 364))]


class Kills(unittest.TestCase):
    def kill_during_request(self, cluster, name, delay, right):
        """Kills the named child `delay` seconds into a request."""
        request = Process("run", "--connect", cluster.address, *ASK)
        time.sleep(delay)
        os.kill(cluster.children()[name], signal.SIGKILL)
        killed = time.monotonic()
        status = request.wait()
        took = time.monotonic() - killed
        what = f"{name} killed after {delay:.2f} s: "
        if status == 0:
            self.assertIn(f'"ids":{right}', request.out[0].replace(" ", ""), what)
            print(what + f"went on, {took:.2f} s later done", flush=True)
        else:
            self.assertEqual(status, 1, what)
            self.assertEqual(len(request.err), 1, what + str(request.err))
            self.assertTrue(request.err[0].startswith("headrace: "))
            self.assertLess(took, STATED, what)
            print(what + f"{request.err[0]} after {took:.2f} s", flush=True)
        return status

    def heal(self, cluster, right):
        """All are back, nothing is held, the next answer is right."""
        cluster.wait_ready()
        answer = cluster.run(*ASK)
        self.assertEqual(answer.status, 0, answer.err)
        self.assertEqual(str(answer.json()["ids"]).replace(" ", ""), right)
        cluster.wait_idle()

    def test_two_of_each(self):
        chance = random.Random(os.environ.get("HEADRACE_TEST_SEED", "7"))
        right = str(headrace("run", real_model(), *ASK).json()["ids"]).replace(" ", "")
        rounds = 1 if sanitized() else 3
        with Cluster(real_model(), "--pd", "always", prefill=2, decode=2) as cluster:
            begun = time.monotonic()
            self.assertEqual(cluster.run(*ASK).status, 0)
            span = time.monotonic() - begun
            for name in ["prefill-0", "decode-0", "prefill-1", "decode-1", "coordinator"] * rounds:
                status = self.kill_during_request(cluster, name, chance.uniform(0, span), right)
                if name != "coordinator":
                    # Another of its kind is there.
                    self.assertEqual(status, 0, f"{name} was not replaced")
                self.heal(cluster, right)
            said = [line for line in cluster.supervisor.err if "killed by signal 9" in line]
            self.assertEqual(len(said), 5 * rounds, cluster.supervisor.err)

    def test_the_only_decode_worker(self):
        with Cluster(real_model(), prefill=1, decode=1) as cluster:
            right = str(cluster.run(*ASK).json()["ids"]).replace(" ", "")
            self.kill_during_request(cluster, "decode-0", 0.4, right)
            self.heal(cluster, right)

    def test_a_stopped_process_is_no_stopped_cluster(self):
        """Frozen, not dead: nothing is closed, only silence tells."""
        with Cluster(real_model(), "--pd", "always", prefill=1, decode=2) as cluster:
            right = str(cluster.run(*ASK).json()["ids"]).replace(" ", "")
            for name in ["decode-0", "decode-1", "prefill-0"]:
                frozen = cluster.children()[name]
                os.kill(frozen, signal.SIGSTOP)
                try:
                    answer = cluster.run(*ASK)
                    self.assertEqual(answer.status, 0, answer.err)
                    self.assertEqual(str(answer.json()["ids"]).replace(" ", ""), right)
                finally:
                    # Where the answer took its time, the supervisor has put another in its place.
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(frozen, signal.SIGCONT)
                cluster.wait_ready()


if __name__ == "__main__":
    unittest.main(verbosity=2)
