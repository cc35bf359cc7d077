"""The program with CUDA, its GPUs emulated: real processes, each with a GPU or a share of one.

The binary is headrace_emulated (tests/simt/engine).
"""

import contextlib
import math
import unittest

import cluster
from cluster import ENVIRONMENT, Process, free_ports, headrace, model
from prometheus import Page

MODEL = model("tiny/q4_1.gguf")
# A GPU's KV is all that is free; of an emulated one that would be a machine's memory.
FEW = ("--kv-blocks", "24")
# Halves of this hold the reserve, what a step takes, and some KV.
SHARED_BYTES = 2120 << 20


def ids(count):
    return ",".join(str(7 * i % 251) for i in range(count))


ASKS = [
    ["--prompt-ids", ids(45), "--max-tokens", "6"],
    ["--prompt-ids", ids(12), "--max-tokens", "5", "--temperature", "0.9", "--seed", "3"],
]


@contextlib.contextmanager
def emulated(gpus, memory=None):
    """What processes find that are started meanwhile."""
    ENVIRONMENT["EMULATED_GPUS"] = str(gpus)
    if memory:
        ENVIRONMENT["EMULATED_GPU_BYTES"] = str(memory)
    try:
        yield
    finally:
        del ENVIRONMENT["EMULATED_GPUS"]
        ENVIRONMENT.pop("EMULATED_GPU_BYTES", None)


class Served(cluster.Cluster):
    """`headrace serve` with these options alone; ready with so many workers."""

    def __init__(self, *options, size):
        self.port = free_ports()
        self.address = f"127.0.0.1:{self.port}"
        self.size = size
        self.supervisor = Process("serve", MODEL, "--listen", self.address, *options)
        try:
            self.wait_ready()
        except BaseException:
            self.supervisor.end()
            raise

    def devices(self):
        """Worker to GPU, as `status` shows them."""
        return {w["name"]: w["device"].split(" ")[0] for w in self.status()["workers"]}


class EmulatedGpus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """What one process answers on one GPU."""
        cls.alone = []
        for ask in ASKS:
            answer = headrace("run", MODEL, "--device", "cuda:0", *FEW, "--json", "--kv-digest",
                              *ask)
            assert answer.status == 0, answer.err
            cls.alone.append(answer.json())

    def check_answers(self, served, remote):
        for ask, here in zip(ASKS, self.alone):
            there = served.run("--json", "--kv-digest", *ask)
            self.assertEqual(there.status, 0, there.err)
            there = there.json()
            for field in ("ids", "text", "finish", "kv_digest", "usage"):
                self.assertEqual(there[field], here[field], field)
            self.assertTrue(there["kv_digest"])
            self.assertEqual(there["remote_prefill"], remote)

    def test_one_gpu_does_both(self):
        with emulated(1), Served(*FEW, size=1) as served:
            self.assertEqual(served.devices(), {"worker-0": "cuda:0"})
            self.check_answers(served, remote=False)
            streamed = served.run(*ASKS[0])
            self.assertEqual(streamed.out, self.alone[0]["text"] + "\n")

    def test_each_gpu_has_a_worker(self):
        with emulated(3), Served(*FEW, "--pd", "always", size=3) as served:
            self.assertEqual(served.devices(), {"prefill-0": "cuda:0", "decode-0": "cuda:1",
                                                "decode-1": "cuda:2"})
            self.check_answers(served, remote=True)
            said = "\n".join(served.supervisor.err)
            self.assertIn("decode-1 cuda:2", said)
            self.check_gauges(served)
            served.wait_idle()

    def check_gauges(self, served):
        """Of a worker that has decoded: shares of what its GPU was measured to do."""
        pages = [Page(w["metrics"]) for w in served.status()["workers"] if w["role"] == "decode"]
        page = max(pages, key=lambda p: p.total("headrace_steps_total"))
        for gauge in ("headrace_bandwidth_saturation_ratio", "headrace_compute_saturation_ratio"):
            share = page.value(gauge, phase="decode")
            self.assertTrue(math.isfinite(share) and 0 < share <= 1, (gauge, share))
        self.assertGreater(page.value("headrace_peak_flops_per_second", dtype="bf16"), 0)
        self.assertGreater(page.value("headrace_read_limit_bytes_per_second"), 0)
        # On a busy machine it may be far from each: then it says so.
        self.assertEqual(page.total("headrace_wall", phase="decode"), 1)

    def test_two_workers_share_a_gpu_that_is_named_for_them(self):
        with emulated(1, SHARED_BYTES):
            with Served("--device", "cuda:0", "--prefill", "1", "--decode", "1", "--pd", "always",
                        size=2) as served:
                self.assertEqual(served.devices(), {"prefill-0": "cuda:0", "decode-0": "cuda:0"})
                blocks = [w["blocks"]["total"] for w in served.status()["workers"]]
                self.assertEqual(blocks[0], blocks[1])
                self.assertGreater(blocks[0], 24)
                self.check_answers(served, remote=True)

    def test_one_type_of_kv_in_a_cluster(self):
        with emulated(3):
            words = (*FEW, "--kv-type", "fp8")
            alone = headrace("run", MODEL, "--device", "cuda:0", *words, "--json", "--kv-digest",
                             *ASKS[0]).json()
            with Served(*words, "--device", "cuda:0,cuda:1", "--prefill", "1", "--decode", "1",
                        "--pd", "always", size=2) as served:
                there = served.run("--json", "--kv-digest", *ASKS[0]).json()
                self.assertTrue(there["remote_prefill"])
                self.assertEqual((there["ids"], there["kv_digest"]),
                                 (alone["ids"], alone["kv_digest"]))
                self.assertNotEqual(there["kv_digest"], self.alone[0]["kv_digest"])  # f16's
                told = served.status()["models"][0]
                self.assertTrue(told["kv_layout"].startswith("fp8 block"), told)
                self.assertIn("KV fp8", told["numerics"])
                other = headrace("worker", MODEL, "--join", f"127.0.0.1:{served.port + 1}",
                                 "--device", "cuda:2", *FEW, "--kv-type", "f16")
                self.assertEqual(other.status, 1)
                self.assertIn("KV layout 'f16 block", other.err)
                self.assertIn("KV layout 'fp8 block", other.err)
                self.assertIn("--kv-type and --device decide it", other.err)
                shown = headrace("status", "--connect", served.address).out
                self.assertEqual(shown.count("KV fp8"), 1, shown)
                self.assertEqual(len(served.devices()), 2)

    def test_more_workers_than_gpus_are_refused(self):
        with emulated(2):
            refused = headrace("serve", MODEL, "--prefill", "2", "--decode", "1")
            self.assertEqual(refused.status, 2)
            self.assertIn("3 workers for 2 GPUs", refused.one_error())
            refused = headrace("serve", MODEL, "--device", "cuda:2")
            self.assertEqual(refused.status, 1)
            self.assertIn("there are 2 GPUs", refused.one_error())

    def test_the_processor_where_there_is_no_gpu(self):
        with emulated(2), Served("--device", "cpu", size=2) as served:
            devices = served.devices()
            self.assertEqual(set(devices.values()), {"cpu"})

    def test_doctor_measures_each_gpu(self):
        quick = ("--link-mib", "0")  # links: gpu_links_test.py
        with emulated(2):
            found = headrace("doctor", *quick, "--json").json()["gpus"]
            self.assertEqual([g["device"] for g in found], ["cuda:0", "cuda:1"])
            for gpu in found:
                limits = dict(gpu["limits"])
                rates = [p["bytes_per_second"] for p in limits.pop("read")]
                self.assertTrue(rates)
                for number in rates + list(limits.values()):
                    self.assertTrue(math.isfinite(number) and number > 0, limits)
            # What was measured is kept: the second time it is the same to the bit.
            self.assertEqual(headrace("doctor", *quick, "--json").json()["gpus"], found)
            self.assertIn("Emulated device 1", headrace("doctor", *quick).out)


if __name__ == "__main__":
    unittest.main()
