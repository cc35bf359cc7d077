"""How KV goes between GPUs: options, what a start says, what doctor finds. GPUs and NCCL emulated.

The binary is headrace_emulated (tests/simt/engine).
"""

import contextlib
import unittest

from cluster import ENVIRONMENT, Process, free_ports, headrace
from emulated_test import ASKS, FEW, MODEL, Served, emulated

NCCL = "hand-offs go over NCCL 2."
NO_LIBRARY = "/no/such/libnccl.so"


def said_by_a_worker(*options):
    """What it says before it looks for its coordinator, which is not there."""
    worker = Process("worker", MODEL, "--join", f"127.0.0.1:{free_ports()}", *FEW, *options)
    try:
        while not any("no coordinator" in line for line in worker.err):
            if worker.process.poll() is not None:
                break
    finally:
        worker.end()
    return "\n".join(worker.err)


@contextlib.contextmanager
def nccl_does(what):
    """What processes find that are started meanwhile (tests/simt/nccl/control.h)."""
    ENVIRONMENT["EMULATED_NCCL_DOES"] = what
    try:
        yield
    finally:
        del ENVIRONMENT["EMULATED_NCCL_DOES"]


class Serving(unittest.TestCase):
    """Prefill on one GPU, decode on another: the same as one GPU answers alone."""

    @classmethod
    def setUpClass(cls):
        cls.alone = [headrace("run", MODEL, "--device", "cuda:0", *FEW, "--json", "--kv-digest",
                              *ask).json() for ask in ASKS]

    def failed_attempts(self, *options, remote=True):
        with emulated(2), Served(*FEW, "--pd", "always", *options, size=2) as served:
            for ask, here in zip(ASKS, self.alone):
                there = served.run("--json", "--kv-digest", *ask).json()
                for field in ("ids", "text", "kv_digest"):
                    self.assertEqual(there[field], here[field], field)
                if remote:
                    self.assertTrue(there["remote_prefill"])
            served.wait_idle()
            return served.status()["totals"]["attempts_failed"]

    def test_over_nccl(self):
        self.assertEqual(self.failed_attempts("--handoff", "nccl"), 0)

    def test_what_stalls_is_tried_again(self):
        for what in ("stall_send", "stall_init"):
            with self.subTest(what), nccl_does(what):
                self.assertGreater(self.failed_attempts(remote=False), 0)
        # It knows nothing of NCCL.
        with nccl_does("stall_send"):
            self.assertEqual(self.failed_attempts("--handoff", "tcp"), 0)


class Options(unittest.TestCase):
    def test_a_start_says_how_hand_offs_go(self):
        gpu = ("--device", "cuda:0")
        near = said_by_a_worker(*gpu)
        self.assertIn(NCCL, near)
        self.assertIn("to workers of this host, over tcp to others", near)
        far = said_by_a_worker(*gpu, "--trust-links", "--handoff", "nccl")
        self.assertIn("to other hosts, too: links are declared trusted", far)
        self.assertNotIn("hand-offs", said_by_a_worker(*gpu, "--handoff", "tcp",
                                                       "--nccl-library", ""))
        without = said_by_a_worker(*gpu, "--nccl-library", NO_LIBRARY)
        self.assertIn("hand-offs go over tcp: no NCCL: " + NO_LIBRARY, without)

    def test_what_cannot_be_is_refused_by_its_option(self):
        for command in (("serve", MODEL), ("worker", MODEL, "--join", "127.0.0.1:9")):
            refused = headrace(*command, "--device", "cuda:0", "--handoff", "nccl",
                               "--nccl-library", NO_LIBRARY)
            self.assertEqual(refused.status, 1)
            self.assertIn(f"--handoff nccl --nccl-library {NO_LIBRARY}: no NCCL",
                          refused.one_error())
        for words in (("--device", "cuda:7"), ("--device", "cpu", "--gpu-share", "0.5")):
            refused = headrace("worker", MODEL, "--join", "127.0.0.1:9", "--nccl-library", "",
                               *words)
            self.assertEqual(refused.status, 1)
            self.assertIn(words[-2], refused.err.splitlines()[-1])

    def test_serve_passes_them_on(self):
        with emulated(2), Served(*FEW, "--pd", "always", "--trust-links", size=2) as served:
            said = "\n".join(served.supervisor.err)
            self.assertEqual(said.count("hand-offs go over"), 1, said)
            self.assertIn("links are declared trusted", said)
            for worker in served.status()["workers"]:
                with open(f"/proc/{worker['pid']}/cmdline", encoding="utf-8") as file:
                    words = file.read().split("\0")
                self.assertIn("--trust-links", words)
                library = words[words.index("--nccl-library") + 1]
                self.assertTrue(library.endswith(".so"), library)
                with open(f"/proc/{worker['pid']}/maps", encoding="utf-8") as file:
                    self.assertIn(library, file.read())

    def test_products_of_prompts_by_the_library(self):
        said = headrace("run", MODEL, "--device", "cuda:0", *FEW, "--prefill-gemm", "library",
                        *ASKS[0])
        self.assertEqual(said.status, 0, said.err)
        ENVIRONMENT["EMULATED_CUBLASLT"] = "/no/such/libcublasLt.so"
        try:
            said = headrace("run", MODEL, "--device", "cuda:0", *FEW, "--prefill-gemm", "library",
                            *ASKS[0])
        finally:
            del ENVIRONMENT["EMULATED_CUBLASLT"]
        self.assertEqual(said.status, 1)
        self.assertIn("--prefill-gemm library, --device cuda:0: cuBLASLt: /no/such/libcublasLt.so",
                      said.err.splitlines()[-1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
