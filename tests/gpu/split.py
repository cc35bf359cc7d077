"""Prefill and decode in two processes on one GPU, over tcp, through the program itself."""

import contextlib
import json
import random
import re
import socket
import subprocess
import time
import urllib.request

from process import Failed, end_group, run

FIELDS = ("ids", "text", "finish", "kv_digest")


def free_port():
    """Such that the next one is free, too."""
    for _ in range(1000):
        port = random.randrange(20000, 32000)
        with socket.socket() as a, socket.socket() as b:
            with contextlib.suppress(OSError):
                a.bind(("127.0.0.1", port))
                b.bind(("127.0.0.1", port + 1))
                return port
    raise Failed("no free ports")


def prompt(count):
    return ",".join(str(7 * i % 251) for i in range(count))


class Split:
    """`headrace serve` with a prefill and a decode worker on one device."""

    def __init__(self, run_of, device, model, options, end):
        self.of, self.end, self.device = run_of, end, device
        self.address = f"127.0.0.1:{free_port()}"
        self.words = ["serve", model, "--listen", self.address, "--device", device, "--prefill", "1",
                      "--decode", "1", "--pd", "always", *options]

    def __enter__(self):
        self.log = open(self.of.work / "serve.log", "wb")
        self.process = subprocess.Popen([str(self.of.program("headrace")), *map(str, self.words)],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env=self.of.environment, start_new_session=True)
        try:
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        end_group(self.process)
        self.log.close()

    def left(self):
        return self.end - time.monotonic()

    def last_words(self):
        lines = (self.of.work / "serve.log").read_text(errors="replace").splitlines()
        return " / ".join(lines[-2:])

    def status(self):
        done = run([self.of.program("headrace"), "status", "--connect", self.address, "--json"],
                   min(10, self.left()), self.of.environment)
        return json.loads("".join(done.lines)) if done.status == 0 else None

    def wait_ready(self):
        while self.left() > 0:
            if self.process.poll() is not None:
                raise Failed("serve ended: " + self.last_words())
            status = self.status()
            if status and status["ready"] and len(status["workers"]) == 2:
                return
            time.sleep(0.1)
        raise Failed("not ready in time: " + self.last_words())

    def ask(self, words):
        return answer(self.of, ["run", "--connect", self.address, *words], self.left())

    def handed_over(self):
        """Bytes and seconds of all hand-offs, as the decode worker counted them."""
        found = [w for w in self.status()["workers"] if w["role"] == "decode"]
        with urllib.request.urlopen(f"http://{found[0]['metrics']}/metrics", timeout=10) as page:
            text = page.read().decode()
        def total(name):
            lines = re.findall(rf"^{name}(?:{{[^}}]*}})? ([0-9.eE+-]+)$", text, re.MULTILINE)
            return sum(map(float, lines))
        return total("headrace_kv_handoff_bytes_total"), total("headrace_kv_handoff_seconds_sum")


def answer(of, words, limit):
    done = run([of.program("headrace"), *words], limit, of.environment)
    if done.why():
        raise Failed(f"{words[0]}: {done.why()}")
    return json.loads("".join(done.lines))


def measure(of, device, model, options, sizes, end, on_row):
    """Each prompt alone, then split; the answers and the KV behind them have to be the same."""
    asks = [["--prompt-ids", prompt(n), "--max-tokens", str(tokens), "--json", "--kv-digest"]
            for n, tokens in sizes]
    alone = [answer(of, ["run", model, "--device", device, *options, *ask],
                    end - time.monotonic()) for ask in asks]
    wrong = []
    with Split(of, device, model, options, end) as split:
        before = (0, 0)
        for (tokens, _), ask, one in zip(sizes, asks, alone):
            two = split.ask(ask)
            after = split.handed_over()
            moved, seconds = (b - a for a, b in zip(before, after))
            before = after
            same = all(one[f] == two[f] for f in FIELDS) and two["remote_prefill"]
            on_row({"prompt": tokens, "same": same,
                    "first_token": two["timing"]["first_token"],
                    "first_token_alone": one["timing"]["first_token"],
                    "tokens_per_second": two["timing"]["tokens_per_second"],
                    "bytes": moved, "seconds": seconds})
            if not same:
                wrong.append(str(tokens))
    if wrong:
        raise Failed("another answer than one process gives, of prompts of " + ", ".join(wrong))
