"""The binary starts on processors that lack what its fast paths use, and gives the same bits.

Needs qemu-user. Nehalem has SSE4.2 and no AVX, Haswell has AVX2 and no AVX-512.
"""

import json
import shutil
import subprocess
import unittest

from cluster import BINARY, ENVIRONMENT, headrace, model

PROCESSORS = {"Nehalem": "portable", "Haswell": "avx2"}
# The emulator's own time; only a hang runs into it.
HANG = 600


class OldProcessors(unittest.TestCase):
    def emulated(self, processor, *words):
        emulator = shutil.which("qemu-x86_64")
        self.assertIsNotNone(emulator, "qemu-user is missing: deploy/setup --tests")
        # Its warnings of features that it does not emulate go to stderr.
        return subprocess.run([emulator, "-cpu", processor, str(BINARY), *words],
                              capture_output=True, text=True, env=ENVIRONMENT, timeout=HANG)

    def test_start(self):
        for processor, path in PROCESSORS.items():
            with self.subTest(processor):
                version = self.emulated(processor, "version")
                self.assertEqual(version.returncode, 0, version.stderr)
                self.assertEqual(version.stdout, headrace("version").out)
                doctor = self.emulated(processor, "doctor", "--json", "--threads", "1")
                self.assertEqual(doctor.returncode, 0, doctor.stderr)
                self.assertEqual(json.loads(doctor.stdout)["limits"]["path"], path)

    def test_same_bits(self):
        ask = ["--json", "--kv-digest", "--threads", "1", "--max-tokens", "16", "--prompt-ids",
               "3,1,4,1,5,9,2,6,5,3,5"]
        for name in ["tiny/base.gguf", "script/base.gguf"]:
            here = headrace("run", model(name), *ask).json()
            for processor, path in PROCESSORS.items():
                with self.subTest(model=name, processor=processor):
                    there = self.emulated(processor, "run", model(name), *ask)
                    self.assertEqual(there.returncode, 0, there.stderr)
                    there = json.loads(there.stdout)
                    self.assertEqual(there["ids"], here["ids"])
                    self.assertEqual(there["kv_digest"], here["kv_digest"])

    def test_a_path_it_lacks_is_refused(self):
        refused = self.emulated("Nehalem", "run", model("script/base.gguf"), "--device",
                                "cpu:avx512vnni", "A")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("headrace: this processor cannot run cpu:avx512vnni", refused.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
