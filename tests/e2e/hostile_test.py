"""Hostile connections take no memory and change no answer: the shorter run of `hostile`."""

import pathlib
import subprocess
import sys
import unittest

from cluster import BINARY, MODELS, sanitized

CONNECTIONS = "400" if sanitized() else "1200"


class Hostile(unittest.TestCase):
    def test_short(self):
        program = pathlib.Path(__file__).resolve().parent / "hostile"
        done = subprocess.run([sys.executable, "-B", str(program), str(BINARY), str(MODELS),
                               "--connections", CONNECTIONS, "--rounds", "2"],
                              timeout=600, capture_output=True, text=True)
        print(done.stdout, done.stderr, flush=True)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
