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


def one_of(tries, outcome):
    """NCCL's waits are short, as between real GPUs: a busy machine may outrun one, and gets tcp."""
    return any(outcome() for _ in range(tries))


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

    def served(self, *options):
        """Failed attempts, and whether each prompt came from the prefill worker."""
        remote = True
        with emulated(2), Served(*FEW, "--pd", "always", *options, size=2) as served:
            for ask, here in zip(ASKS, self.alone):
                there = served.run("--json", "--kv-digest", *ask).json()
                for field in ("ids", "text", "kv_digest"):
                    self.assertEqual(there[field], here[field], field)
                remote = remote and there["remote_prefill"]
            served.wait_idle()
            return served.status()["totals"]["attempts_failed"], remote

    def test_over_nccl(self):
        self.assertTrue(one_of(3, lambda: self.served("--handoff", "nccl") == (0, True)))

    def test_what_stalls_is_tried_again(self):
        for what in ("stall_send", "stall_init"):
            with self.subTest(what), nccl_does(what):
                self.assertGreater(self.served()[0], 0)
        # It knows nothing of NCCL.
        with nccl_does("stall_send"):
            self.assertEqual(self.served("--handoff", "tcp"), (0, True))


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


class Doctor(unittest.TestCase):
    SMALL = ("--link-mib", "2")

    def pairs(self):
        with emulated(3):
            found = headrace("doctor", "--threads", "1", *self.SMALL, "--json")
        self.assertEqual(found.status, 0, found.err)
        pairs = found.json()["pairs"]
        self.assertEqual([(p["from"], p["to"]) for p in pairs],
                         [("cuda:0", "cuda:1"), ("cuda:0", "cuda:2"), ("cuda:1", "cuda:2")])
        for pair in pairs:
            self.assertGreater(pair["tcp_bytes_per_second"], 0, pair)
            self.assertGreater(pair["host_copies_bytes_per_second"], 0, pair)
        return pairs

    def test_each_pair_of_gpus(self):
        self.assertTrue(one_of(3, lambda: all(pair.get("nccl_bytes_per_second", 0) > 0
                                              for pair in self.pairs())))

    def test_what_stalls_is_told(self):
        with nccl_does("stall_send"):
            for pair in self.pairs():
                self.assertNotIn("nccl_bytes_per_second", pair)
                self.assertIn("NCCL", pair["why"])

    def test_without_the_library_it_says_so_and_tests_no_pair(self):
        with emulated(2):
            found = headrace("doctor", "--threads", "1", "--nccl-library", NO_LIBRARY,
                             "--json").json()
        self.assertEqual(found["pairs"], [])
        told = [f for f in found["findings"] if f["what"] == "nccl"]
        self.assertEqual([f["level"] for f in told], ["warning"])
        self.assertIn(NO_LIBRARY, told[0]["text"])

    def test_the_link_to_a_peer(self):
        gpu = ("--device", "cuda:0", *self.SMALL)
        peer = Process("doctor", "--answer", "127.0.0.1:0", *gpu)
        try:
            while not any("--peer" in line for line in peer.err):
                self.assertIsNone(peer.process.poll(), peer.err)
            at = peer.err[-1].split("--peer ")[1].split(" ")[0]
            self.assertTrue(one_of(3, lambda: headrace(
                "doctor", "--peer", at, *gpu, "--json").json().get("nccl_bytes_per_second", 0) > 0))
            over_tcp = headrace("doctor", "--peer", at, *gpu, "--handoff", "tcp")
            self.assertIn("no NCCL", over_tcp.out)
            self.assertEqual(over_tcp.status, 0)
        finally:
            self.assertEqual(peer.end(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
