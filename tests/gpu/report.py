"""The one table: what was measured, beside the limits that were measured in the same run."""

import datetime
import json
import math
import os
import platform
import re
import subprocess

import clocks

KERNELS = ("products", "attention", "rows")


class Limits:
    """Of the limits' rows; shares are None where there is no such limit."""

    def __init__(self, rows):
        self.values = {r["limit"]: r["value"] for r in rows
                       if r.get("limit") not in (None, "read") and "value" in r}
        self.read = sorted((r["working_set"], r["value"]) for r in rows
                           if r.get("limit") == "read")

    def read_at(self, working_set):
        """Bytes a second: measured points, over the logarithm of the set, flat beyond the ends."""
        if not self.read:
            return None
        points = self.read
        if working_set <= points[0][0]:
            return points[0][1]
        for (a, x), (b, y) in zip(points, points[1:]):
            if working_set <= b:
                return x + (y - x) * math.log(working_set / a) / math.log(b / a)
        return points[-1][1]

    def shares(self, row):
        """Adds what a row reached of memory's and of the products' limit, and which is nearer."""
        seconds, read = row["seconds"], self.read_at(row.get("working_set", row["bytes"]))
        peak = self.values.get("bf16")
        memory = row["bytes"] / seconds / read if read else None
        compute = row["flops"] / seconds / peak if peak else None
        row["memory_share"], row["compute_share"] = memory, compute
        if memory is not None and compute is not None:
            row["wall"] = "memory" if memory >= compute else "products"


def with_shares(parts):
    limits = Limits(next((p["rows"] for p in parts if p["name"] == "limits"), []))
    for part in parts:
        for row in part["rows"]:
            if {"seconds", "bytes", "flops"} <= row.keys():
                limits.shares(row)
    return parts


def said_by(*words):
    try:
        done = subprocess.run(words, capture_output=True, timeout=10, text=True)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine(device):
    """What is known of it without a GPU's memory: none of it is needed."""
    found = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
             "processors": os.cpu_count(), "system": platform.platform()}
    found["nvidia_smi"] = clocks.described(device)
    try:
        with open("/proc/driver/nvidia/version") as file:
            match = re.search(r"\d+\.\d+(\.\d+)?", file.readline())
            found["driver"] = match[0] if match else None
    except OSError:
        pass
    return found


def number(value, digits=1):
    return "–" if value is None else f"{value:.{digits}f}"


def percent(share):
    return "–" if share is None else f"{100 * share:.0f} %"


def size(count):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:g} {name}"
    return f"{count} B"


def table(head, lines):
    if not lines:
        return []
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(str(c) for c in line) + " |" for line in lines), ""]


def limit_lines(rows):
    units = {"read": (1e-9, "GB/s"), "bf16": (1e-12, "TFLOP/s"), "to_device": (1e-9, "GB/s"),
             "to_host": (1e-9, "GB/s"), "launch": (1e6, "µs"), "graph": (1e6, "µs")}
    for row in rows:
        if "limit" not in row:
            continue
        at = size(row["working_set"]) if "working_set" in row else ""
        if "left_out" in row:
            yield row["limit"], at, row["left_out"]
        else:
            factor, unit = units[row["limit"]]
            yield row["limit"], at, f"{row['value'] * factor:.2f} {unit}"


def rates(row):
    share = max((s for s in (row["memory_share"], row["compute_share"]) if s is not None),
                default=None)
    return (number(row["bytes"] / row["seconds"] / 1e9),
            number(row["flops"] / row["seconds"] / 1e12, 2), row.get("wall", "–"), percent(share))


def kernel_lines(rows):
    for row in rows:
        if "left_out" in row:
            yield row["op"], row["shape"], "", row["left_out"], "", "", "", "", ""
            continue
        yield (row["op"], row["shape"], row["rows"], number(1e6 * row["seconds"], 2),
               number(1e6 * row["p90"], 2), *rates(row))


def step_lines(rows):
    for row in rows:
        if "batch" not in row:
            continue
        head = row["batch"], row["context"], row["tokens"]
        if "left_out" in row:
            yield *head, row["left_out"], "", "", "", "", "", ""
            continue
        yield (*head, number(1e3 * row["seconds"], 3), number(1e3 * row["p90"], 3),
               number(row["tokens_per_second"], 0), *rates(row))


def moved_lines(rows):
    for row in rows:
        if "left_out" in row:
            yield row["nccl"], row["ranks"], row["what"], "", row["left_out"]
        else:
            yield (row["nccl"], row["ranks"], row["what"], size(row["bytes"]),
                   f"{row['bytes'] / row['seconds'] / 1e9:.2f} GB/s")


def split_lines(rows):
    for row in rows:
        rate = row["bytes"] / row["seconds"] / 1e9 if row["seconds"] else None
        yield (row["model"], row["prompt"], "yes" if row["same"] else "NO",
               number(1e3 * row["first_token"]), number(1e3 * row["first_token_alone"]),
               number(row["tokens_per_second"], 0), size(int(row["bytes"])), number(rate, 2))


def span(part, name):
    """Of what was seen while a part ran."""
    seen = part.get("clocks", {}).get(name)
    return f"{seen[0]:.0f} to {seen[1]:.0f}" if seen else ""


def part_table(name, rows):
    if name in KERNELS:
        return table(("operation", "shape", "rows", "µs", "p90", "GB/s", "TFLOP/s", "wall",
                      "share"), list(kernel_lines(rows)))
    if name == "limits":
        return table(("limit", "at", ""), list(limit_lines(rows)))
    if name == "steps":
        return table(("batch", "context", "tokens", "ms", "p90", "tokens/s", "GB/s", "TFLOP/s",
                      "wall", "share"), list(step_lines(rows)))
    if name == "nccl":
        return table(("NCCL", "ranks", "", "bytes", ""), list(moved_lines(rows)))
    if name == "prefill and decode":
        return table(("model", "prompt", "same answer", "first token, ms", "alone, ms", "tokens/s",
                      "KV", "GB/s"), list(split_lines(rows)))
    if name == "wrappers":
        return table(("wrapper", "words", "differ", ""),
                     [(r["wrapper"], r.get("words", ""), r.get("differ", ""),
                       r.get("why") or r.get("left_out") or "") for r in rows])
    if name == "kernel tests":
        return table(("tests", "passed", "of", "s", ""),
                     [(r["file"], r["passed"], r["cases"], number(r["seconds"]),
                       r.get("why", "")) for r in rows])
    return table(("tool", "tests", "s", ""),
                 [(r["tool"], r["file"], number(r["seconds"]), r["said"]) for r in rows])


def markdown(result):
    gpu = result["gpu"].get("gpu", "no GPU")
    smi = result["machine"]["nvidia_smi"]
    out = [f"# {gpu}, {result['machine']['date'][:10]}" + (", emulated" if result["emulated"] else ""),
           ""]
    facts = [("GPU", gpu), ("memory", size(result["gpu"].get("memory", 0))),
             ("sm", result["gpu"].get("capability", "–")),
             ("driver", result["machine"].get("driver") or smi.get("driver_version", "–")),
             ("CUDA runtime", result["gpu"].get("runtime", "–")),
             ("headrace", result["headrace"]), ("system", result["machine"]["system"]),
             *((k, v) for k, v in smi.items() if k not in ("name", "driver_version"))]
    out += table(("", ""), facts)
    out += table(("part", "", "s", "SM clock, MHz", "W", ""),
                 [(p["name"], p["state"], number(p["seconds"]), span(p, "clocks.sm"),
                   span(p, "power.draw"), p.get("why", "")) for p in result["parts"]])
    for part in result["parts"]:
        lines = part_table(part["name"], part["rows"])
        if lines:
            out += [f"## {part['name']}", "", *lines]
    return "\n".join(out)


def write(folder, result):
    """Both files, each whole or as it was."""
    for name, text in (("table.json", json.dumps(result, indent=1) + "\n"),
                       ("table.md", markdown(result))):
        part = folder / (name + ".part")
        part.write_text(text)
        part.replace(folder / name)
