"""Whether two bodies of the facade did the same: words against words, as a row's `compare` says."""

import math

FLOATS = {  # bits of one, of the exponent, of the fraction; how many in a word
    "f32": (32, 8, 23, 1),
    "f16": (16, 5, 10, 2),
    "bf16": (16, 8, 7, 2),
    "e4m3": (8, 4, 3, 2),
}


def is_nan(bits, kind):
    width, exponent, fraction, _ = FLOATS[kind]
    size = bits & ((1 << (width - 1)) - 1)
    if kind == "e4m3":  # it has no infinities: one pattern of each sign is no number
        return size == 0x7f
    return size > ((1 << exponent) - 1) << fraction


def steps(bits, kind):
    """A float's place among all of its kind; both zeros have one."""
    sign = 1 << (FLOATS[kind][0] - 1)
    return -(bits & (sign - 1)) if bits & sign else bits


def parts(word, kind):
    width, _, _, count = FLOATS[kind]
    return [word >> (width * i) & ((1 << width) - 1) for i in range(count)]


def distance(one, other, kind):
    """In steps of the kind; numbers and not-a-numbers are infinitely far from each other."""
    if kind == "bits":
        return 0 if one == other else math.inf
    most = 0
    for a, b in zip(parts(one, kind), parts(other, kind)):
        if is_nan(a, kind) or is_nan(b, kind):
            most = max(most, 0 if is_nan(a, kind) and is_nan(b, kind) else math.inf)
        else:
            most = max(most, abs(steps(a, kind) - steps(b, kind)))
    return most


def compare(real, emulated):
    """The result of one wrapper, as a row of the table."""
    row = {"wrapper": emulated["wrapper"], "ok": False}
    if real is None:
        return row | {"why": "not run"}
    if "left_out" in real:
        return row | {"ok": True, "left_out": real["left_out"]}
    a, b = real["words"], emulated["words"]
    if len(a) != len(b):
        return row | {"why": f"{len(a)} words, {len(b)} on the emulator"}
    kind, most, wrong = emulated["compare"], 0, []
    for i, (one, other) in enumerate(zip(a, b)):
        if one == other:
            continue
        apart = distance(one, other, kind)
        most = max(most, apart)
        if apart > emulated["ulps"]:
            wrong.append(i)
    row |= {"words": len(a), "differ": len(wrong), "ok": not wrong}
    if kind != "bits":
        row["most_steps"] = most if math.isfinite(most) else None
    if wrong:
        i = wrong[0]
        row["why"] = f"word {i} is {a[i]:08x}, on the emulator {b[i]:08x}"
    return row
