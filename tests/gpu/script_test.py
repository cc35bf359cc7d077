"""tests/gpu/run on the emulator: script_test.py BUILD MODELS

The whole script once; then with programs that fail, are missing, lie or hang.
"""

import contextlib
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import compare  # noqa: E402
import model  # noqa: E402
import process  # noqa: E402
import report  # noqa: E402

BUILD, MODELS = map(pathlib.Path, sys.argv[1:3])
del sys.argv[1:3]
HANG = 300  # seconds; only ends what hangs
PROGRAMS = ("tests/gpu/gpu_measure_emulated", "tests/gpu/gpu_nccl_emulated",
            "tests/gpu/libgpu_one_rank.so", "tests/worker/nccl/libnccl_stand_in.so",
            "tests/simt/simt_tests", "headrace_emulated")
MEASURE = PROGRAMS[0]
SANITIZER = """#!/bin/sh
[ "$1 $3 $4" = "--tool --error-exitcode 9" ] || exit 8
shift 4
"$@" || exit $?
echo "========= ERROR SUMMARY: 0 errors"
"""
SMI = """#!/bin/sh
case "$*" in
*--loop-ms*) echo "1980, 2619, 40, 300.5"; echo "1755, 2619, [N/A], 690"; exec sleep 600 ;;
*) echo "A GPU, 580.1, 1980, 2619, 700, Enabled" ;;
esac
"""
# What each part's rows have; of those that are left out, less.
KEYS = {
    "limits": {"limit", "value"}, "wrappers": {"wrapper", "words", "differ", "ok"},
    "kernel tests": {"file", "passed", "cases", "seconds"},
    "products": {"op", "shape", "rows", "seconds", "p90", "memory_share", "compute_share", "wall"},
    "steps": {"batch", "context", "seconds", "tokens_per_second", "memory_share"},
    "prefill and decode": {"model", "prompt", "same", "first_token", "bytes", "seconds"},
    "nccl": {"nccl", "ranks", "what", "bytes", "seconds"},
    "sanitizer": {"tool", "file", "said", "ok"},
}
KEYS["attention"] = KEYS["rows"] = KEYS["products"]


def alive(group):
    """Processes of a group that have not ended; whether somebody has waited for them or not."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of = stat.read_text().rsplit(")", 1)[1].split()[:3]
            if int(of) == group and state != "Z":
                found.append(stat.parent.name)
    return found


class Script:
    """A run of the script in a folder of its own, over programs that a test may replace."""

    def __init__(self, folder, replaced=None, missing=()):
        self.out = folder / "out"
        self.build = folder / "build"
        tools = folder / "tools"
        tools.mkdir()
        self.write(tools / "compute-sanitizer", SANITIZER)
        self.write(tools / "nvidia-smi", SMI)
        self.environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
        for name in PROGRAMS:
            to = self.build / name
            to.parent.mkdir(parents=True, exist_ok=True)
            if name in (replaced or {}):
                self.write(to, "#!/bin/sh\n" + replaced[name].replace("REAL", str(BUILD / name)))
            elif name not in missing:
                to.symlink_to(BUILD / name)

    @staticmethod
    def write(path, text):
        path.write_text(text)
        path.chmod(0o755)

    def start(self, *words):
        return subprocess.Popen([sys.executable, "-B", HERE / "run", "--emulated", "--build",
                                 self.build, "--out", self.out, "--models", MODELS, *words],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.environment, text=True)

    def result(self):
        return json.loads((self.out / "table.json").read_text())

    def run(self, *words):
        """Its status, the parts by name, what it printed."""
        running = self.start(*words)
        out, err = running.communicate(timeout=HANG)
        assert (self.out / "table.json").exists(), err
        self.said = err
        return running.returncode, {p["name"]: p for p in self.result()["parts"]}, out


class Whole(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_each_part_reports(self):
        s = Script(self.folder)
        status, parts, markdown = s.run()
        self.assertEqual(status, 0, s.said)
        self.assertEqual(list(parts), ["limits", "wrappers", "kernel tests", "products",
                                       "attention", "rows", "steps", "prefill and decode", "nccl",
                                       "sanitizer"])
        for name, part in parts.items():
            self.assertEqual(part["state"], "ok", part)
            whole = [r for r in part["rows"] if KEYS[name] <= r.keys()]
            self.assertTrue(whole, name)
            for row in whole:
                for key in ("seconds", "memory_share", "compute_share", "value"):
                    if key in row:
                        self.assertTrue(math.isfinite(row[key]) and row[key] >= 0, row)
            self.assertIn(f"\n## {name}\n", markdown)
            self.assertIn(f"| {name} | ok |", markdown)
        result = s.result()
        self.assertTrue(result["emulated"])
        self.assertIn("Emulated device", result["gpu"]["gpu"])
        self.assertTrue(result["headrace"].startswith("headrace"), result["headrace"])
        self.assertEqual(result["machine"]["nvidia_smi"]["driver_version"], "580.1")
        self.check_contents(parts)
        self.assertEqual(markdown.strip(), (s.out / "table.md").read_text().strip())
        self.assertFalse((s.out / "steps.gguf").exists())

    def check_contents(self, parts):
        limits = {r["limit"] for r in parts["limits"]["rows"] if "limit" in r}
        self.assertEqual(limits, {"read", "bf16", "to_device", "to_host", "launch", "graph", "int8"})
        self.assertGreaterEqual(len(parts["wrappers"]["rows"]), 35)
        ops = {r["op"] for part in ("products", "attention", "rows") for r in parts[part]["rows"]}
        self.assertLessEqual({"matmul", "matmul_swiglu", "attention", "rope_append_kv", "rms_norm",
                              "swiglu", "embed", "gather_rows", "adjust_logits", "log_probs",
                              "sample", "copy", "zero_blocks", "block_copy, in", "block_copy, out",
                              "dequantize"}, ops)
        self.assertTrue(any("left_out" in r for r in parts["steps"]["rows"]))
        self.assertEqual(parts["rows"]["clocks"], {"clocks.sm": [1755, 1980], "clocks.mem": [2619, 2619],
                                                   "temperature.gpu": [40, 40],
                                                   "power.draw": [300.5, 690]})
        self.assertEqual([r["ranks"] for r in parts["nccl"]["rows"]], [1, 2])
        for row in parts["prefill and decode"]["rows"]:
            self.assertTrue(row["same"] and row["bytes"] > 0 and row["seconds"] > 0, row)

    def test_parts_that_fail_are_said_and_the_rest_goes_on(self):
        s = Script(self.folder, {
            # A wrapper that lies the first time, on the device; a part that stops half way.
            MEASURE: """case "$*" in
wrappers*) mkdir "$0.lied" 2>/dev/null || exec "REAL" "$@"; "REAL" "$@" | sed 's/"words":\\[[0-9]*,/"words":[1,/' ;;
products*) "REAL" "$@" | head -2; echo broken >&2; exit 3 ;;
*) exec "REAL" "$@" ;;
esac
""",
            "tests/simt/simt_tests": "kill -SEGV $$\n",
            "headrace_emulated": 'echo "{}"\n',
        }, missing=("tests/gpu/gpu_nccl_emulated",))
        status, parts, markdown = s.run(
            "--only", "limits,wrappers,kernel tests,products,rows,prefill and decode,nccl,sanitizer")
        self.assertEqual(status, 1, s.said)
        states = {name: part["state"] for name, part in parts.items()}
        self.assertEqual(states, {"limits": "ok", "wrappers": "failed", "kernel tests": "failed",
                                  "products": "failed", "rows": "ok",
                                  "prefill and decode": "failed", "nccl": "missing",
                                  "sanitizer": "failed"})
        self.assertIn("ld16", parts["wrappers"]["why"])
        self.assertIn("is 00000001, on the emulator", parts["wrappers"]["rows"][0]["why"])
        self.assertEqual(len(parts["products"]["rows"]), 2)
        self.assertIn("memory_share", parts["products"]["rows"][0])
        self.assertIn("status 3: broken", parts["products"]["why"])
        self.assertIn("kernel_copy", parts["kernel tests"]["why"])
        self.assertIn("not built", parts["nccl"]["why"])
        for name, state in states.items():
            self.assertIn(f"| {name} | {state} |", markdown)

    def test_a_signal_leaves_what_was_measured(self):
        pid = self.folder / "pid"
        s = Script(self.folder, {MEASURE: f"""case "$*" in
rows*) "REAL" "$@" | head -1; echo $$ > {pid}; sleep 600 & sleep 600 ;;
*) exec "REAL" "$@" ;;
esac
"""})
        running = s.start("--only", "limits,rows,nccl")
        end = time.monotonic() + HANG
        while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < end:
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=HANG)
        self.assertEqual(running.returncode, 143, err)
        parts = {p["name"]: p for p in s.result()["parts"]}
        self.assertEqual([p["state"] for p in parts.values()], ["ok", "ended", "not begun"])
        self.assertEqual(len(parts["rows"]["rows"]), 1)
        self.assertIn("| rows | ended |", out)
        while alive(int(pid.read_text())) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(alive(int(pid.read_text())), [])

    def test_time_that_is_up(self):
        s = Script(self.folder)
        status, parts, _ = s.run("--minutes", "0.05", "--only", "limits")
        self.assertEqual(status, 143)
        self.assertEqual(parts["limits"]["state"], "not begun")

    def test_options_that_are_wrong(self):
        for words in (["--only", "nothing"], ["--minutes", "0"]):
            running = Script(pathlib.Path(tempfile.mkdtemp(dir=self.folder))).start(*words)
            _, err = running.communicate(timeout=HANG)
            self.assertEqual(running.returncode, 2, err)


class Parts(unittest.TestCase):
    def test_a_program_is_ended_at_its_limit_with_what_it_started(self):
        begun, lines = time.monotonic(), []
        self.addCleanup(setattr, process, "GRACE", process.GRACE)
        process.GRACE = 0.2
        done = process.run(["/bin/sh", "-c", "echo here; trap '' TERM; sleep 600 & wait; sleep 600"],
                           0.5, os.environ, lines.append)
        self.assertTrue(done.timed_out)
        self.assertIn("limit of time", done.why())
        self.assertEqual(lines, ["here"])
        self.assertLess(time.monotonic() - begun, HANG)

    def test_lines_are_whole_however_they_come(self):
        words = ["/bin/sh", "-c", "printf 'a'; sleep 0.1; printf 'b\\nc'; printf 'x\\ny' >&2; exit 4"]
        done = process.run(words, HANG, os.environ)
        self.assertEqual((done.lines, done.errors, done.status), (["ab", "c"], ["x", "y"], 4))
        self.assertEqual(done.why(), "status 4: x / y")
        with self.assertRaises(process.Missing):
            process.run(["/no/such/program"], 1, os.environ)

    def test_distances_of_words(self):
        one = 0x3f800000
        for a, b, kind, apart in (
                (1, 2, "bits", math.inf), (one, one + 3, "f32", 3), (0, 1 << 31, "f32", 0),
                (1, (1 << 31) + 1, "f32", 2), (0x7fc00000, 0x7f800001, "f32", 0),
                (0x7fc00000, 0x7f800000, "f32", math.inf),
                (0x3c003c01, 0x3c003c00, "f16", 1), (0x7c003c00, 0x7c013c00, "f16", math.inf),
                (0x7fff0000, 0x7e000000, "f16", 0), (0x3f803f80, 0x3f823f80, "bf16", 2),
                (0x7f00, 0xff00, "e4m3", 0), (0x7e00, 0x7f00, "e4m3", math.inf)):
            self.assertEqual(compare.distance(a, b, kind), apart, (a, b, kind))

    def test_a_wrapper_that_differs_is_named_with_its_first_word(self):
        row = {"wrapper": "w", "compare": "f32", "ulps": 1, "words": [8, 9, 10]}
        good = compare.compare(row | {"words": [8, 10, 10]}, row)
        self.assertEqual((good["ok"], good["differ"], good["most_steps"]), (True, 0, 1))
        bad = compare.compare(row | {"words": [8, 12, 10]}, row)
        self.assertEqual((bad["ok"], bad["differ"]), (False, 1))
        self.assertIn("word 1 is 0000000c", bad["why"])
        self.assertFalse(compare.compare(None, row)["ok"])
        self.assertFalse(compare.compare(row | {"words": [8]}, row)["ok"])
        self.assertTrue(compare.compare({"left_out": "sm_90"}, row)["ok"])

    def test_shares_are_of_the_limit_at_the_working_set(self):
        limits = report.Limits([{"limit": "read", "working_set": 1 << 20, "value": 400.0},
                                {"limit": "read", "working_set": 1 << 22, "value": 200.0},
                                {"limit": "bf16", "value": 1000.0}])
        for working_set, value in ((1, 400), (1 << 21, 300), (1 << 30, 200)):
            self.assertAlmostEqual(limits.read_at(working_set), value)
        row = {"seconds": 2.0, "bytes": 100, "flops": 1500, "working_set": 1 << 30}
        limits.shares(row)
        self.assertEqual((row["memory_share"], row["compute_share"], row["wall"]),
                         (0.25, 0.75, "products"))
        nothing = {"seconds": 2.0, "bytes": 100, "flops": 1500}
        report.Limits([]).shares(nothing)
        self.assertIsNone(nothing["memory_share"])

    def test_the_model_has_the_size_that_it_says(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            model.make(path, model.TINY)
            self.assertEqual(path.stat().st_size, model.size(model.TINY))
            self.assertEqual(len(list(pathlib.Path(folder).iterdir())), 1)
        self.assertAlmostEqual(model.size(model.EIGHT_BILLION) / 1e9, 4.52, places=2)


if __name__ == "__main__":
    unittest.main()
