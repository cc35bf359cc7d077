"""Programs under a limit of time: rows of JSON as they come, and an end that leaves nothing behind."""

import collections
import contextlib
import json
import os
import selectors
import signal
import subprocess
import time

LAST_LINES = 8  # of what a program says that is kept
GRACE = 5       # seconds from SIGTERM to SIGKILL
LOOK = 0.2


class Ended(Exception):
    """The script was told to end."""


class Failed(Exception):
    """A part did not do what it was for; the words are for the table."""


class Missing(Exception):
    """A part cannot run here; the words are for the table."""


class Finished:
    def __init__(self, status, timed_out, lines, errors):
        self.status, self.timed_out, self.lines, self.errors = status, timed_out, lines, errors

    def why(self):
        """In one line; empty if all went well."""
        said = " / ".join(self.errors[-2:])
        if self.timed_out:
            return "ran into its limit of time" + (": " + said if said else "")
        if self.status == 0:
            return ""
        return f"status {self.status}" + (": " + said if said else "")


def end_group(process):
    """The program and all it started."""
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            break
    with contextlib.suppress(ProcessLookupError):  # what a program left when it ended
        os.killpg(process.pid, signal.SIGKILL)


def lines_of(process, end):
    """(is an error, line) of both streams until they are closed or the time is over."""
    with selectors.DefaultSelector() as selector:
        left = {}
        for stream, error in ((process.stdout, False), (process.stderr, True)):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, error)
            left[stream] = b""
        while left and time.monotonic() < end:
            for key, _ in selector.select(LOOK):
                got = key.fileobj.read(1 << 20)
                if got is None:
                    continue
                *whole, rest = (left[key.fileobj] + got).split(b"\n")
                for line in whole + ([rest] if not got and rest else []):
                    yield key.data, line.decode(errors="replace")
                left[key.fileobj] = rest
                if not got:
                    selector.unregister(key.fileobj)
                    del left[key.fileobj]


def run(words, limit, environment, on_line=None):
    """Runs a program to its end, or to its limit; on_line gets each line of stdout at once."""
    if limit <= 0:
        return Finished(None, True, [], [])
    lines, errors = [], collections.deque(maxlen=LAST_LINES)
    end = time.monotonic() + limit
    try:
        process = subprocess.Popen([str(w) for w in words], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=environment, start_new_session=True)
    except OSError as error:
        raise Missing(f"{words[0]} cannot be started: {error.strerror}") from error
    try:
        for is_error, line in lines_of(process, end):
            if is_error:
                errors.append(line.strip())
                continue
            lines.append(line)
            if on_line:
                on_line(line)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, end - time.monotonic()))
        timed_out = process.poll() is None
    finally:
        end_group(process)
        process.stdout.close()
        process.stderr.close()
    return Finished(process.returncode, timed_out, lines, list(errors))


def run_rows(words, limit, environment, on_row):
    """Of a program that prints a row of JSON a line. Failed tells why it was not the whole way."""
    def on_line(line):
        try:
            row = json.loads(line)
        except ValueError:
            return
        if isinstance(row, dict):
            on_row(row)
    done = run(words, limit, environment, on_line)
    if done.why():
        raise Failed(done.why())
