"""Runs a measuring program to its end or its deadline."""

import os
import re
import subprocess

from fetch import HOME, Unable

# Seconds. No run takes a third of it, unless its threads wait for each other.
DEADLINE = 120.0
SAID_MAX = 200


def reason(said):
    """The line of a program's last words that tells most."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it said nothing"]
    telling = [line for line in lines if re.search(r"assert|error|fail|fatal", line, re.I)]
    line = (telling or lines)[-1]
    return re.sub(r"(/[^/\s:]+)+/", "", line)[:SAID_MAX]


def output(arguments, deadline=DEADLINE):
    """Standard output and errors of a run; None if the deadline passed, Unable if it failed.

    It runs in the peers' folder, since some leave a log where they stand."""
    HOME.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run([str(a) for a in arguments], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=deadline,
                              errors="replace", check=False, cwd=HOME)
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        raise Unable(str(error)) from error
    if done.returncode != 0:
        name = os.path.basename(str(arguments[0]))
        raise Unable(f"{name} ended with {done.returncode}: {reason(done.stdout)}")
    return done.stdout
