"""OpenVINO GenAI: its wheels in a virtual environment, its own reader of GGUF, its continuous
batching. One process a model and setting lives through all rounds, since reading a model and a
long prompt takes it minutes; between its turns it waits for a line and computes nothing."""

import json
import pathlib
import queue
import subprocess
import threading

import fetch
import run
from figures import TOKENS

PACKAGES = ["openvino==2026.4.1", "openvino-genai==2026.4.1.0", "openvino-tokenizers==2026.4.1.0",
            "numpy==2.4.6"]
START = 60.0   # seconds to read a model
DEEP = 420.0   # seconds for a prompt of 16384 tokens, once a process
SCHEDULER = {"cache_size": 1, "max_num_batched_tokens": 2048, "enable_prefix_caching": True}


class Process:
    def __init__(self, python, request):
        here = pathlib.Path(__file__).resolve().parent
        self.child = subprocess.Popen([str(python), "-B", str(here / "vino_bench.py"),
                                       json.dumps(request)], stdin=subprocess.PIPE, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.last = "nothing"
        self.filled = set()  # long prompts whose KV it holds
        self.answer(START)

    def read(self):
        for line in self.child.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def answer(self, deadline):
        """The next line of JSON; None if the deadline passes before."""
        while True:
            try:
                line = self.lines.get(timeout=deadline)
            except queue.Empty:
                return None
            if line is None:
                raise fetch.Unable(f"openvino-genai ended: {self.last[:run.SAID_MAX]}")
            if line.startswith("{"):
                return json.loads(line)
            self.last = line.strip() or self.last

    def ask(self, request, deadline):
        try:
            self.child.stdin.write(json.dumps(request) + "\n")
            self.child.stdin.flush()
        except OSError as error:
            raise fetch.Unable(f"openvino-genai ended: {self.last[:run.SAID_MAX]}") from error
        return self.answer(deadline)

    def close(self):
        self.child.kill()
        self.child.wait()


class OpenVino:
    name = "OpenVINO GenAI"
    version = "2026.4.1"
    settings = {"f32": {"INFERENCE_PRECISION_HINT": "f32"},
                "bf16": {"INFERENCE_PRECISION_HINT": "bf16"}}

    def __init__(self):
        self.folder = fetch.HOME / "openvino"
        self.notes = []
        self.running = {}

    def build(self, _):
        fetch.environment(self.folder, PACKAGES)

    def unready(self):
        if not (self.folder / "bin" / "python").exists():
            return "it is not installed: tests/bench/peers build openvino"
        return None

    def description(self):
        return ("PyPI's wheels, its own reader of GGUF (4-bit weights stay packed), "
                "ContinuousBatchingPipeline, AMX as it likes (bf16 uses it), KV in u8 as is its "
                "default, prefix cache on; inference precision f32 and bf16 tried")

    def process(self, setting, model, threads):
        at = setting, str(model)
        if at not in self.running:
            self.running[at] = Process(self.folder / "bin" / "python", {
                "model": str(model), "threads": threads, "properties": self.settings[setting],
                "scheduler": SCHEDULER})
        return self.running[at]

    def measure(self, setting, model, work, threads):
        """Tokens per second; 0 for what took too long."""
        child = self.process(setting, model, threads)
        request = {"batch": work.batch, "prompt": work.length, "tokens": TOKENS, "same": work.deep}
        if work.deep and work.length not in child.filled:
            if child.ask({**request, "tokens": 2}, DEEP) is None:
                self.drop(setting, model)
                raise fetch.Unable(f"a prompt of {work.length} tokens took over {DEEP:.0f} s")
            child.filled.add(work.length)
        row = child.ask(request, run.DEADLINE)
        if row is None:  # it would still compute in the turns of others
            self.drop(setting, model)
            return 0.0
        return row[f"{work.kind}_tokens_per_second"]

    def drop(self, setting, model):
        self.running.pop((setting, str(model))).close()

    def close(self):
        for child in self.running.values():
            child.close()
        self.running = {}
