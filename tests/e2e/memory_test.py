"""A worker has its weights in memory once, the KV that was written, and little else."""

import signal
import unittest

import resident
from cluster import real_model
from parts import Parts

BLOCKS, BLOCK = 64, 32
# Program, tokenizer, rotations, activations of a step, logits. Less than the weights, so that no
# second copy of them could hide, neither packed nor as pages of the file.
BESIDE = 80e6
GROWTH = 8e6  # of the heap, once everything has been used


class Memory(unittest.TestCase):
    def test_weights_are_there_once_and_prompts_leave_only_kv(self):
        weights, kv_token = resident.stated(real_model())
        self.assertGreater(weights, BESIDE)
        with Parts(real_model(), prefill=0, decode=1, pd="never",
                   options=["--kv-blocks", str(BLOCKS), "--threads", "2"]) as parts:
            pid = parts.workers[0].process.pid
            loaded = resident.resident(pid)
            self.assertGreater(loaded["now"], weights)
            self.assertLess(loaded["now"], weights + BESIDE)

            resident.fill(parts, BLOCKS * BLOCK, batch=4, length=256)
            written, total = resident.written(parts, parts.workers[0].name)
            self.assertEqual(total, BLOCKS)
            kv = written * BLOCK * kv_token
            self.assertGreater(written, BLOCKS * 3 // 4)
            full = resident.resident(pid)
            self.assertGreater(full["now"], weights + kv)
            self.assertLess(full["now"], weights + kv + BESIDE)

            resident.fill(parts, 4 * BLOCKS * BLOCK, batch=4, length=256)
            self.assertLess(resident.resident(pid)["now"], full["now"] + GROWTH)
            self.assertEqual(parts.workers[0].process.end(signal.SIGTERM), 0)


if __name__ == "__main__":
    unittest.main()
