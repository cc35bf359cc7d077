"""The program with CUDA, its GPUs emulated: real processes, each with a GPU or a share of one.

The binary is headrace_emulated (tests/simt/engine).
"""

import unittest

from cluster import ENVIRONMENT, Cluster, headrace, model

ENVIRONMENT["HEADRACE_SIMT_DEVICES"] = "2"

MODEL = model("tiny/q4_1.gguf")
# A GPU's KV is all that is free; of an emulated one that would be a machine's memory.
FEW = ("--kv-blocks", "24")


def ids(count):
    return ",".join(str(7 * i % 251) for i in range(count))


ASKS = [
    ["--prompt-ids", ids(45), "--max-tokens", "6"],
    ["--prompt-ids", ids(12), "--max-tokens", "5", "--temperature", "0.9", "--seed", "3"],
]


def alone():
    """What one process answers on one GPU."""
    out = []
    for ask in ASKS:
        answer = headrace("run", MODEL, "--device", "cuda:0", *FEW, "--json", "--kv-digest", *ask)
        assert answer.status == 0, answer.err
        out.append(answer.json())
    return out


class EmulatedGpus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.alone = alone()

    def check_answers(self, cluster, remote):
        for ask, here in zip(ASKS, self.alone):
            there = cluster.run("--json", "--kv-digest", *ask)
            self.assertEqual(there.status, 0, there.err)
            there = there.json()
            for field in ("ids", "text", "finish", "kv_digest", "usage"):
                self.assertEqual(there[field], here[field], field)
            self.assertTrue(there["kv_digest"])
            self.assertEqual(there["remote_prefill"], remote)

    def test_serve_streams_what_one_process_answers(self):
        with Cluster(MODEL, "--device", "cuda:0", *FEW, prefill=0) as cluster:
            self.check_answers(cluster, remote=False)
            streamed = cluster.run(*ASKS[0])
            self.assertEqual(streamed.out, self.alone[0]["text"] + "\n")
            devices = [w["device"] for w in cluster.status()["workers"]]
            self.assertEqual([d.split(" ")[0] for d in devices], ["cuda:0"], devices)

    def test_prefill_and_decode_on_two_gpus(self):
        with Cluster(MODEL, *FEW, "--pd", "always") as cluster:
            self.check_answers(cluster, remote=True)
            cluster.wait_idle()


if __name__ == "__main__":
    unittest.main()
