"""GGUF's block formats, written and read back value by value; standard library only."""
import struct

from gguf_writer import BF16, F16, F32, Q4_0, Q4_1, Q8_0, floats, single

GROUP = 32
NAMES = {"f32": F32, "f16": F16, "bf16": BF16, "q8_0": Q8_0, "q4_0": Q4_0, "q4_1": Q4_1}


def half(x):
    """x as the nearest 16-bit float."""
    return struct.unpack("<e", struct.pack("<e", x))[0]


def brain_bits(x):
    """Upper half of the 32-bit pattern, rounded to nearest even."""
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def nibbles(q):
    """Value i in the low half of byte i, value i + 16 in the high one."""
    return bytes(q[i] | q[i + 16] << 4 for i in range(16))


def level(x, top):
    return max(0, min(top, int(x + 0.5)))


def pack_q8_0(group):
    scale = half(max(map(abs, group)) / 127)
    q = [max(-127, min(127, round(x / scale))) if scale else 0 for x in group]
    return struct.pack("<e32b", scale, *q), [scale * v for v in q]


def pack_q4_0(group):
    scale = half(max(group, key=abs) / -8)
    q = [level(x / scale + 8, 15) if scale else 8 for x in group]
    return struct.pack("<e", scale) + nibbles(q), [scale * (v - 8) for v in q]


def pack_q4_1(group):
    low = half(min(group))
    scale = half((max(group) - min(group)) / 15)
    q = [level((x - low) / scale, 15) if scale else 0 for x in group]
    return struct.pack("<ee", scale, low) + nibbles(q), [scale * v + low for v in q]


def pack_row(kind, row):
    """Bytes of one row, and the values that a reader gets back."""
    if kind == F32:
        return floats(row), [single(x) for x in row]
    if kind == F16:
        return struct.pack("<%de" % len(row), *row), [half(x) for x in row]
    if kind == BF16:
        bits = [brain_bits(x) for x in row]
        back = struct.unpack("<%df" % len(row), struct.pack("<%dI" % len(row), *(b << 16 for b in bits)))
        return struct.pack("<%dH" % len(row), *bits), list(back)
    pack = {Q8_0: pack_q8_0, Q4_0: pack_q4_0, Q4_1: pack_q4_1}[kind]
    parts = [pack(row[i:i + GROUP]) for i in range(0, len(row), GROUP)]
    return b"".join(p[0] for p in parts), [x for p in parts for x in p[1]]
