"""Makes the model that whole steps are measured with: model.py FILE.gguf [--tiny]

Llama 3.1 8B's shape in 4 bits (Q4_0, 4.5 GB): random weights of which a piece repeats, so that it is
written as fast as the disk takes it. Standard library only.
"""

import argparse
import itertools
import math
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))
from gguf_writer import (F32, Q4_0, SPECIALS, Info, assemble, entry, floats,  # noqa: E402
                         llama_metadata, tokenizer_metadata)
from synthetic import BLOCK, GROUP, quantized, words  # noqa: E402

PIECE = 1 << 17  # blocks that repeat


class Shape:
    def __init__(self, vocab, dim, ffn, heads, kv_heads, head_dim, layers, context):
        self.vocab, self.dim, self.ffn, self.heads = vocab, dim, ffn, heads
        self.kv_heads, self.head_dim, self.layers, self.context = kv_heads, head_dim, layers, context

    def matrices(self):
        """Name, rows, columns, root mean square of the sums that a row makes of unit inputs."""
        yield "token_embd.weight", self.vocab, self.dim, math.sqrt(self.dim)
        for layer in range(self.layers):
            at = f"blk.{layer}."
            yield at + "attn_q.weight", self.heads * self.head_dim, self.dim, 1
            yield at + "attn_k.weight", self.kv_heads * self.head_dim, self.dim, 1
            yield at + "attn_v.weight", self.kv_heads * self.head_dim, self.dim, 1
            yield at + "attn_output.weight", self.dim, self.heads * self.head_dim, 1
            yield at + "ffn_gate.weight", self.ffn, self.dim, 1
            yield at + "ffn_up.weight", self.ffn, self.dim, 1
            yield at + "ffn_down.weight", self.dim, self.ffn, 1
        yield "output.weight", self.vocab, self.dim, 2.5

    def gains(self):
        yield "output_norm.weight"
        for layer in range(self.layers):
            yield f"blk.{layer}.attn_norm.weight"
            yield f"blk.{layer}.ffn_norm.weight"


EIGHT_BILLION = Shape(128256, 4096, 14336, 32, 8, 128, 32, 131072)
TINY = Shape(320, 64, 128, 2, 1, 32, 2, 512)


def head(shape):
    """Everything before the data, and the size of the data."""
    infos, at = [], 0
    for name, rows, cols, _ in shape.matrices():
        infos.append(Info(name, (cols, rows), Q4_0, at))
        at += (rows * cols // GROUP * BLOCK + 31) // 32 * 32
    for name in shape.gains():
        infos.append(Info(name, (shape.dim,), F32, at))
        at += shape.dim * 4
    pieces = list(itertools.islice(words(), shape.vocab - 256 - len(SPECIALS)))
    metadata = llama_metadata(f"gpu-{shape.layers}x{shape.dim}-q4_0", shape.layers, shape.context,
                              shape.dim, shape.ffn, shape.heads, shape.kv_heads, shape.head_dim,
                              500000.0, 1e-5, shape.vocab)
    metadata += tokenizer_metadata(shape.vocab, pieces)
    return assemble([entry(*m) for m in metadata], infos, b""), at


def write_matrix(file, noise, rows, cols, sums):
    """As many blocks as it has, from the piece's beginning, under this matrix's scale."""
    blocks = rows * cols // GROUP
    low_high = next(quantized("scale", 1, GROUP, sums / math.sqrt(cols / GROUP)))[:2]
    noise[0::BLOCK] = low_high[:1] * PIECE
    noise[1::BLOCK] = low_high[1:2] * PIECE
    view = memoryview(noise)
    for left in range(blocks, 0, -PIECE):
        file.write(view[:min(left, PIECE) * BLOCK])
    view.release()
    file.write(bytes(-blocks * BLOCK % 32))


def size(shape):
    header, data = head(shape)
    return len(header) + data


def make(path, shape):
    header, _ = head(shape)
    noise = bytearray()
    for piece in quantized("noise", PIECE, GROUP, 1):
        noise += piece
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            file.write(header)
            for _, rows, cols, sums in shape.matrices():
                write_matrix(file, noise, rows, cols, sums)
            for _ in shape.gains():
                file.write(floats([1.0] * shape.dim))
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Makes the model of tests/gpu/run.")
    parser.add_argument("file")
    parser.add_argument("--tiny", action="store_true", help="one that an emulator can run")
    arguments = parser.parse_args()
    make(arguments.file, TINY if arguments.tiny else EIGHT_BILLION)
