"""Drives the real binary for the end-to-end tests. Python's standard library only.

Every test file is a program: PROGRAM BINARY MODELS, with MODELS the folder of the test models.
"""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time

# Waits that only end a test that hangs. Sanitizer builds are slow.
HANG = 120
SMOL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def arguments():
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} BINARY MODELS")
    binary, models = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    del sys.argv[1:3]  # the rest is unittest's
    return binary, models


BINARY, MODELS = arguments()
STATE = BINARY.parent / "state"
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
ENVIRONMENT["XDG_STATE_HOME"] = str(STATE)


def sanitized():
    """True for builds that are several times slower."""
    return BINARY.parent.name not in ("release", "cuda") and "rel" not in BINARY.parent.name


def model(name):
    return str(MODELS / name)


def real_model():
    path = os.environ.get("HEADRACE_TEST_MODEL", model(SMOL))
    if not os.path.exists(path):
        raise AssertionError(f"{path} is missing: deploy/fetch-model fetches it")
    return path


class Outcome:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def json(self):
        return json.loads(self.out)

    def one_error(self):
        """The single line of stderr without its prefix; fails if it is anything else."""
        lines = self.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("headrace: "), self.err
        return lines[0][len("headrace: "):]


def headrace(*words, text=None, timeout=HANG, prefix=()):
    done = subprocess.run([*prefix, str(BINARY), *words], capture_output=True, env=ENVIRONMENT,
                          input=None if text is None else text.encode(), timeout=timeout,
                          stdin=subprocess.DEVNULL if text is None else None)
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def free_ports():
    """A port such that it and the next one are free."""
    for _ in range(1000):
        port = random.randrange(20000, 32000)
        with socket.socket() as a, socket.socket() as b:
            try:
                for s, p in ((a, port), (b, port + 1)):
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    s.bind(("127.0.0.1", p))
                return port
            except OSError:
                continue
    raise AssertionError("no free ports")


class Process:
    """The binary in the background, through the command `prefix`; stderr is collected."""

    def __init__(self, *words, prefix=()):
        self.begun = time.monotonic()
        self.process = subprocess.Popen([*prefix, str(BINARY), *words], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=ENVIRONMENT, text=True)
        self.out, self.err = [], []
        self.readers = [threading.Thread(target=self._read, args=pair, daemon=True) for pair in
                        ((self.process.stdout, self.out), (self.process.stderr, self.err))]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def _read(stream, lines):
        for line in stream:
            lines.append(line.rstrip("\n"))

    @property
    def pid(self):
        return self.process.pid

    def wait(self, timeout=HANG):
        status = self.process.wait(timeout)
        for reader in self.readers:
            reader.join(timeout)
        self.process.stdout.close()
        self.process.stderr.close()
        return status

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.wait()


class Cluster:
    """`headrace serve` until ready; a context manager that stops it."""

    prefix = ()  # of the commands that ask it

    def __init__(self, path, *options, prefill=1, decode=1):
        self.port = free_ports()
        self.address = f"127.0.0.1:{self.port}"
        self.size = prefill + decode
        self.supervisor = Process("serve", path, "--listen", self.address, "--prefill",
                                  str(prefill), "--decode", str(decode), *options)
        try:
            self.wait_ready()
        except BaseException:
            self.supervisor.end(signal.SIGKILL)
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.supervisor.end()

    def status(self):
        answer = headrace("status", "--connect", self.address, "--json",
                          prefix=self.prefix)
        return answer.json() if answer.status == 0 else {"ready": False, "workers": []}

    def wait_ready(self, workers=None):
        end = time.monotonic() + HANG
        while time.monotonic() < end:
            if self.supervisor.process.poll() is not None:
                raise AssertionError("serve ended: " + "\n".join(self.supervisor.err))
            status = self.status()
            if status["ready"] and len(status["workers"]) >= (workers or self.size):
                return status
            time.sleep(0.05)
        raise AssertionError(f"not ready after {HANG} s: " + "\n".join(self.supervisor.err))

    def wait_idle(self):
        """Nothing runs, waits or holds a block."""
        end = time.monotonic() + HANG
        while time.monotonic() < end:
            s = self.status()
            held = [w for w in s["workers"]
                    if w["blocks"]["free"] + w["blocks"]["cached"] != w["blocks"]["total"]]
            if s["ready"] and not s["running"] + s["waiting"] and not held:
                return
            time.sleep(0.1)
        raise AssertionError(f"something is still held: {json.dumps(s)}")

    def run(self, *words, text=None):
        return headrace("run", "--connect", self.address, *words, text=text, prefix=self.prefix)

    def children(self):
        """Process ids by name: coordinator, prefill-0, ..."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except (OSError, IndexError, ValueError):
                continue
            if parent == self.supervisor.pid and len(words) > 1:
                name = words[1].decode()
                if b"--name" in words:
                    name = words[words.index(b"--name") + 1].decode()
                found[name] = int(entry.name)
        return found


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state != "Z"
    except OSError:
        return False
