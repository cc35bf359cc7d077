"""The shorter soak (`soak`): kills, freezes, cut and held links under load lose no token."""

import pathlib
import subprocess
import sys
import unittest

from cluster import BINARY, MODELS, sanitized

# A freeze costs seconds until it is noticed: the faults are few here, the long run is by hand.
FAULTS, REQUESTS = (6, 20) if sanitized() else (14, 150)


class Soak(unittest.TestCase):
    def test_short(self):
        program = pathlib.Path(__file__).resolve().parent / "soak"
        done = subprocess.run([sys.executable, "-B", str(program), str(BINARY), str(MODELS),
                               "--faults", str(FAULTS), "--requests", str(REQUESTS)],
                              timeout=800, capture_output=True, text=True)
        print(done.stdout, done.stderr, flush=True)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
