"""What nvidia-smi says of a GPU: once of what it is, and of its clocks while something runs."""

import contextlib
import subprocess

from process import end_group

IS = ("name", "driver_version", "clocks.max.sm", "clocks.max.mem", "power.limit", "persistence_mode")
RUNS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
EACH_MS = 500


def words(device, query, *more):
    return ["nvidia-smi", f"--id={device}", "--format=csv,noheader,nounits",
            f"--query-gpu={','.join(query)}", *more]


def described(device):
    """By name; empty where there is no nvidia-smi."""
    try:
        done = subprocess.run(words(device, IS), capture_output=True, timeout=10, text=True)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [v.strip() for v in done.stdout.strip().split(",")]
    return dict(zip(IS, values)) if done.returncode == 0 and len(values) == len(IS) else {}


def ranges(lines):
    """Least and most of each; what is not a number is left out."""
    rows = [line.split(",") for line in lines]
    found = {}
    for i, name in enumerate(RUNS):
        values = []
        for row in rows:
            with contextlib.suppress(ValueError, IndexError):
                values.append(float(row[i]))
        if values:
            found[name] = [min(values), max(values)]
    return found


class Watch:
    """Looks twice a second until it is left; `seen` then has the ranges."""

    def __init__(self, device):
        self.words = words(device, RUNS, f"--loop-ms={EACH_MS}")
        self.seen = {}

    def __enter__(self):
        try:
            self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                            start_new_session=True)
        except OSError:
            self.process = None
        return self

    def __exit__(self, *_):
        if not self.process:
            return
        end_group(self.process)
        # Some hundred lines at most, which a pipe holds.
        self.seen = ranges(self.process.stdout.read().decode(errors="replace").splitlines())
        self.process.stdout.close()
