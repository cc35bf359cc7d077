"""Runs a measuring program to its end or its deadline."""

import subprocess

from fetch import Unable

# Seconds. No run takes a third of it, unless its threads wait for each other.
DEADLINE = 120.0
SAID_MAX = 200


def output(arguments, deadline=DEADLINE):
    """Standard output and errors of a run; None if the deadline passed, Unable if it failed."""
    try:
        done = subprocess.run([str(a) for a in arguments], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=deadline,
                              errors="replace", check=False)
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        raise Unable(str(error)) from error
    if done.returncode != 0:
        said = done.stdout.strip().splitlines() or ["nothing"]
        raise Unable(f"{arguments[0]} ended with {done.returncode}: {said[-1][:SAID_MAX]}")
    return done.stdout
