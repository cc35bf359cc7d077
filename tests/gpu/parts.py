"""The parts of tests/gpu/run: each measures one thing, gives its rows as it has them, and raises
Failed or Missing with the words for the table."""

import os
import pathlib
import re
import shutil
import sys
import time

import compare
import model
import split
from process import Failed, Missing, run, run_rows

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
SMOL = "SmolLM2-135M-Instruct.Q4_1.gguf"
TOY = "tiny/q4_1.gguf"
# What compute-sanitizer goes through: each kind of memory and barrier once, in little time.
SANITIZED = ["kernel_copy", "kernel_embed", "kernel_rms_norm", "kernel_rope_append_kv",
             "kernel_zero_blocks", "kernel_block_copy"]
FEW_TESTS = ["kernel_copy", "kernel_roofs"]  # where the emulator's own suite has run them all
NO_GPU = 77  # status of simt_gpu_tests
SPARE_BYTES = 1 << 30  # that a disk keeps


class Run:
    """Where programs and files are, and how long there is."""

    def __init__(self, build, work, device, emulated, models):
        self.build, self.work, self.emulated = build, work, emulated
        self.models = models
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith("HEADRACE_") or k in ("HEADRACE_NCCL_LIBRARY",
                                                                      "HEADRACE_CUBLASLT")}
        self.environment["XDG_STATE_HOME"] = str(work / "state")
        # All programs see this one GPU and no other, as cuda:0; numbered as nvidia-smi does it.
        seen = self.environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
        self.visible = seen[device] if seen[0] and device < len(seen) else str(device)
        self.environment |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                             "CUDA_VISIBLE_DEVICES": self.visible}
        if emulated:
            self.environment |= {"HEADRACE_SIMT_STREAMS": "threaded",
                                 "HEADRACE_SIMT_MEMORY": str(1280 << 20),
                                 "EMULATED_GPUS": "1", "EMULATED_GPU_BYTES": str(2120 << 20)}

    PROGRAMS = {  # on a GPU, on the emulator
        "measure": ("tests/gpu/real/gpu_measure", "tests/gpu/gpu_measure_emulated"),
        "nccl": ("tests/gpu/real/gpu_nccl", "tests/gpu/gpu_nccl_emulated"),
        "tests": ("tests/simt/gates/simt_gpu_tests", "tests/simt/simt_tests"),
        "headrace": ("headrace", "headrace_emulated"),
    }

    def program(self, name):
        path = self.build / self.PROGRAMS[name][self.emulated]
        if not path.exists():
            raise Missing(f"{path.name} is not built")
        return path

    def measure(self, part, *words):
        tiny = ["--tiny", "--each", "0"] if self.emulated else []
        return [self.program("measure"), part, *tiny, *words]

    def reference(self):
        """What does the wrappers on the emulator: of this build, or of the one for tests."""
        name = self.PROGRAMS["measure"][True]
        for build in (self.build, TREE / "build" / "release"):
            if (build / name).exists():
                return build / name
        raise Missing(f"{pathlib.Path(name).name} is not built")

    def setting(self, name):
        """Of the build's configuration."""
        try:
            text = (self.build / "CMakeCache.txt").read_text()
        except OSError:
            return None
        found = re.search(rf"^{name}:\w+=(.+)$", text, re.MULTILINE)
        return found[1] if found and not found[1].endswith("-NOTFOUND") else None


def device(of, limit):
    """What the GPU is, or Failed with why there is none."""
    rows = []
    run_rows(of.measure("device"), limit, of.environment, rows.append)
    return rows[0]


def limits(of, left, on_row):
    seconds = 0.3 if of.emulated else 12
    run_rows(of.measure("limits", "--seconds", seconds), left(), of.environment, on_row)


def wrappers(of, left, on_row):
    """Each wrapper of the facade on the device, and by its emulated body."""
    reference, real, emulated = of.reference(), {}, []
    failure = None
    try:
        run_rows(of.measure("wrappers"), left(), of.environment,
                 lambda row: real.__setitem__(row["wrapper"], row))
    except Failed as error:
        failure = error
    run_rows([reference, "wrappers"], left(),
             of.environment | {"HEADRACE_SIMT_STREAMS": "threaded"}, emulated.append)
    rows = [compare.compare(real.get(row["wrapper"]), row) for row in emulated]
    for row in rows:
        on_row(row)
    if failure:
        raise failure
    wrong = [row["wrapper"] for row in rows if not row["ok"]]
    if wrong:
        raise Failed("differ from the emulated body: " + "; ".join(wrong))


def test_files(of):
    if of.emulated:
        return FEW_TESTS
    found = sorted(p.name[:-len("_test.cc")] for p in TREE.glob("tests/simt/kernel_*_test.cc"))
    return ["cudart_host", *found]


def kernel_tests(of, left, on_row):
    """The kernels' own tests, a process for each file: a fault ends all that follows in one."""
    program, wrong = of.program("tests"), []
    for name in test_files(of):
        begun = time.monotonic()
        done = run([program, f"--source-file=*{name}_test.cc", "--no-colors=true"], left(),
                   of.environment)
        text = "\n".join(done.lines)
        cases = re.search(r"test cases: *(\d+) \| *(\d+) passed", text)
        row = {"file": name, "passed": int(cases[2]) if cases else 0,
               "cases": int(cases[1]) if cases else 0, "seconds": time.monotonic() - begun}
        why = "there is no GPU" if done.status == NO_GPU else done.why()
        if not why and not row["cases"]:
            why = "no case ran"
        if why:
            named = re.findall(r"^TEST CASE: +(.+)$", text, re.MULTILINE)
            row["why"] = "; ".join(dict.fromkeys(named)) or why
            wrong.append(name)
        on_row(row)
        if done.timed_out and left() <= 0:
            raise Failed("ran into its limit of time at " + name)
    if wrong:
        raise Failed("do not pass: " + ", ".join(wrong))


def sanitizer(of, left, on_row):
    cuda = of.setting("CMAKE_CUDA_COMPILER")
    folders = [os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    folders += [str(pathlib.Path(cuda).parent)] if cuda else []
    tool = shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    if not tool:
        raise Missing("there is no compute-sanitizer")
    program, wrong = of.program("tests"), []
    for name in SANITIZED[:1] if of.emulated else SANITIZED:
        for check in ("memcheck", "racecheck"):
            begun = time.monotonic()
            done = run([tool, "--tool", check, "--error-exitcode", "9", program,
                        f"--source-file=*{name}_test.cc"], left(), of.environment)
            summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", "\n".join(done.lines))
            row = {"tool": check, "file": name, "said": summary[-1] if summary else done.why(),
                   "ok": done.status == 0 and bool(summary), "seconds": time.monotonic() - begun}
            on_row(row)
            if not row["ok"]:
                wrong.append(f"{check} of {name}")
            if done.timed_out:
                raise Failed("ran into its limit of time at " + name)
    if wrong:
        raise Failed(", ".join(wrong))


def grid(part):
    def measure(of, left, on_row):
        run_rows(of.measure(part), left(), of.environment, on_row)
    measure.__doc__ = f"The {part} of the grid."
    return measure


def steps(of, left, on_row):
    """Whole steps of a model of 8 billion 4-bit weights, which is made first."""
    device(of, left())  # before gigabytes are written for nothing
    path, shape = of.work / "steps.gguf", model.TINY if of.emulated else model.EIGHT_BILLION
    room = shutil.disk_usage(of.work).free - SPARE_BYTES
    if model.size(shape) > room:
        raise Missing(f"the model takes {model.size(shape) >> 20} MiB, {of.work} has "
                      f"{max(room, 0) >> 20} (--work)")
    try:
        done = run([sys.executable, "-B", HERE / "model.py", path,
                    *(["--tiny"] if of.emulated else [])], left(), of.environment)
        if done.why():
            raise Failed("its model: " + done.why())
        run_rows(of.measure("steps", "--model", path, *([] if of.emulated else ["--each", 0.2])),
                 left(), of.environment, on_row)
    finally:
        path.unlink(missing_ok=True)


def nccl(of, left, on_row):
    """The library's send to itself, then a hand-off's lane between two ranks."""
    program, environment = of.program("nccl"), dict(of.environment)
    mib, failures = (16 if of.emulated else 1024), []
    found = of.setting("HEADRACE_NCCL_REAL") or of.setting("HEADRACE_NCCL")
    if found and os.path.isabs(found):
        environment.setdefault("HEADRACE_NCCL_LIBRARY", found)
    for what in ("self", "pair"):
        if of.emulated:
            environment["HEADRACE_NCCL_LIBRARY"] = str(of.build / (
                "tests/gpu/libgpu_one_rank.so" if what == "self"
                else "tests/worker/nccl/libnccl_stand_in.so"))
            environment["HEADRACE_SIMT_NCCL"] = "version=23000"
        try:
            run_rows([program, what, "--devices", "0,0", "--mib", mib,
                      *(["--patient"] if of.emulated else [])],
                     min(60, left()), environment, on_row)
        except Failed as error:
            failures.append(f"{what}: {error}")
    if failures:
        raise Failed("; ".join(failures))


def prefill_decode(of, left, on_row):
    """Two processes that share the GPU; KV goes from one to the other over tcp."""
    names = [TOY] if of.emulated else [SMOL, TOY]
    found = [of.models / name for name in names if (of.models / name).exists()]
    if not found:
        raise Missing(f"no {' or '.join(names)} in {of.models}")
    of.program("headrace")
    options = [] if of.emulated else ["--kv-blocks", "1024"]
    small = found[0].name != SMOL
    sizes = [(45, 6)] if small else [(64, 32), (1000, 32), (4000, 32)]
    split.measure(of, "cuda:0", found[0], options, sizes, time.monotonic() + left(),
                  lambda row: on_row({"model": found[0].name} | row))


# Name, seconds it may take at most, and what it does; what matters most comes first.
PARTS = [
    ("limits", 45, limits),
    ("wrappers", 30, wrappers),
    ("kernel tests", 120, kernel_tests),
    ("products", 60, grid("products")),
    ("attention", 60, grid("attention")),
    ("rows", 45, grid("rows")),
    ("steps", 150, steps),
    ("prefill and decode", 90, prefill_decode),
    ("nccl", 60, nccl),
    ("sanitizer", 90, sanitizer),
]
