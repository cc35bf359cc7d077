"""Saved sessions for llama.cpp and ik_llama.cpp: a long context that nobody had to compute.

Both programs can save the KV of a prompt and go on from it. Such a file is written here with random
keys and values, since decoding takes as long whatever they are, and a prefill of 16384 tokens takes
them many minutes. Layouts: version 10 (llama.cpp) and 9 (ik_llama.cpp) of their session files, as
llama_state_save_file writes them in the pinned releases; another version refuses the file. Without
flash attention the values lie transposed.
"""

import os
import random
import struct

MAGIC = 0x6767736e  # "ggsn"
F16 = 1             # the number of the type in ggml
TOKEN = ord("a")    # the synthetic vocabulary begins with the bytes
TILE = 1 << 20


def halves():
    """A MiB of 16-bit floats of either sign between 1/8 and 1."""
    raw = bytearray(random.Random(3).randbytes(TILE))
    raw[1::2] = raw[1::2].translate(bytes((b & 0x80) | (0x30 + b % 12) for b in range(256)))
    return bytes(raw)


class Writer:
    def __init__(self, file):
        self.file, self.tile = file, halves()

    def put(self, form, *values):
        self.file.write(struct.pack("<" + form, *values))

    def text(self, text):
        self.put("I", len(text))
        self.file.write(text.encode())

    def noise(self, size):
        for at in range(0, size, TILE):
            self.file.write(self.tile[:min(TILE, size - at)])


def cells(out, count):
    for position in range(count):
        out.put("iIi", position, 1, 0)  # its place, one sequence, the first


def layers(out, count, shape, transposed):
    """Keys of all layers, then values of all layers."""
    depth, width = shape
    out.put("II", transposed, depth)
    for _ in range(depth):
        out.put("iQ", F16, width * 2)
        out.noise(count * width * 2)
    for _ in range(depth):
        if transposed:
            out.put("iII", F16, 2, width)
        else:
            out.put("iQ", F16, width * 2)
        out.noise(count * width * 2)


def state_of_ik(out):
    """What ik_llama.cpp keeps before the KV: its generator of random numbers, and no outputs."""
    out.text(" ".join(["1"] * 624 + ["624"]))
    out.put("IQQ", 0, 0, 0)


def tokens(engine, count):
    """llama.cpp computes the last token of a session again, and wants no KV of it."""
    return count + 1 if engine == "llama.cpp" else count


def write(path, engine, count, shape, flash):
    """`shape`: layers, and KV heads times their size. A file that is there is kept."""
    if os.path.exists(path):
        return
    part = f"{path}.part"
    with open(part, "wb") as file:
        out = Writer(file)
        head = tokens(engine, count)
        out.put("III", MAGIC, 10 if engine == "llama.cpp" else 9, head)
        out.put(f"{head}i", *[TOKEN] * head)
        out.text("llama")
        if engine == "llama.cpp":
            out.put("I", 1)  # streams
        else:
            state_of_ik(out)
        out.put("I", count)
        cells(out, count)
        layers(out, count, shape, 0 if flash else 1)
        if engine != "llama.cpp":
            out.put("I", 0)  # no states of recurrent layers
    os.replace(part, path)
