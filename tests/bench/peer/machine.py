"""What machine this is, and whether it is quiet enough to be measured."""

import os
import time

# Processors busy with others' work above which a measurement means nothing.
LOAD_MAX = 0.35


def _cpuinfo(field):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(field):
                return line.split(":", 1)[1].strip()
    return ""


def flags():
    return set(_cpuinfo("flags").split())


def processor():
    """Its name, and what decides how fast integers are multiplied."""
    name = " ".join(_cpuinfo("model name").split()) or "unknown processor"
    have = flags()
    known = [("avx512_vnni", "AVX-512 VNNI"), ("avx_vnni", "AVX VNNI"), ("avx2", "AVX2")]
    best = next((text for flag, text in known if flag in have), "no AVX2")
    return f"{name} ({os.cpu_count()} processors, {best}{', AMX' if 'amx_int8' in have else ''})"


def _busy():
    with open("/proc/stat", encoding="utf-8") as file:
        values = [int(v) for v in file.readline().split()[1:9]]
    return sum(values) - values[3] - values[4]


def other_load(seconds=2.0):
    """Processors busy while we do nothing."""
    before = _busy()
    time.sleep(seconds)
    return (_busy() - before) / os.sysconf("SC_CLK_TCK") / seconds
