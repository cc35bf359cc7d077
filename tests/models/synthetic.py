"""Makes one large model of random weights: python3 synthetic.py FILE.gguf [--layers N] [--vocab N] [--context N]

A Llama of 1.1 billion 4-bit weights (Q4_0, 620 MB), too large for any cache, so that decoding waits
for memory. Its answers are sane numbers and senseless text. Not one of the test models: it is made
where it is wanted, in some seconds, and left alone when it is there. Standard library only; the same
bytes everywhere.
"""
import argparse
import itertools
import math
import os
import random
import string
import struct

from gguf_writer import (F32, Q4_0, SPECIALS, UINT32, Info, assemble, entry, floats, llama_metadata,
                         tokenizer_metadata)

VOCAB, DIM, FFN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, CONTEXT = 32000, 2048, 8192, 32, 8, 64, 16, 4096
GROUP, BLOCK = 32, 18  # values and bytes of a block: a scale of 16 bits, then 32 nibbles
CHUNK = 1 << 17        # blocks made at a time
# Nibbles stand for -8 to 7; -8 becomes 0, so that the mean is zero. Else all sums of a row would share
# an offset that grows from layer to layer until every answer is the same token.
LEVELS = bytes((b & 15 or 8) | (b >> 4 or 8) << 4 for b in range(256))
SPREAD = math.sqrt(sum(v * v for v in range(-7, 8)) / 16)  # root mean square


def words():
    """Pieces that read like words; the first character stands for a space."""
    for letters in itertools.product(string.ascii_lowercase, repeat=4):
        yield "\u0120" + "".join(letters)


def matrices(layers, vocab=VOCAB):
    """Name, rows, columns, root mean square of the sums that a row makes of unit inputs."""
    yield "token_embd.weight", vocab, DIM, math.sqrt(DIM)
    for layer in range(layers):
        at = "blk.%d." % layer
        yield at + "attn_q.weight", HEADS * HEAD_DIM, DIM, 1
        yield at + "attn_k.weight", KV_HEADS * HEAD_DIM, DIM, 1
        yield at + "attn_v.weight", KV_HEADS * HEAD_DIM, DIM, 1
        yield at + "attn_output.weight", DIM, HEADS * HEAD_DIM, 1
        yield at + "ffn_gate.weight", FFN, DIM, 1
        yield at + "ffn_up.weight", FFN, DIM, 1
        yield at + "ffn_down.weight", DIM, FFN, 1
    yield "output.weight", vocab, DIM, 2.5


def gains(layers):
    yield "output_norm.weight"
    for layer in range(layers):
        yield "blk.%d.attn_norm.weight" % layer
        yield "blk.%d.ffn_norm.weight" % layer


def quantized(name, rows, cols, sums):
    """Blocks of uniform nibbles under one scale, in pieces."""
    low, high = struct.pack("<e", sums / math.sqrt(cols) / SPREAD)
    noise, left = random.Random(name), rows * cols // GROUP
    while left:
        n = min(left, CHUNK)
        blocks = bytearray(noise.randbytes(n * BLOCK).translate(LEVELS))
        blocks[0::BLOCK] = bytes([low]) * n
        blocks[1::BLOCK] = bytes([high]) * n
        yield blocks
        left -= n


def head(layers, vocab=VOCAB, context=CONTEXT):
    """Everything before the data, and the size of the data."""
    infos, at = [], 0
    for name, rows, cols, _ in matrices(layers, vocab):
        infos.append(Info(name, (cols, rows), Q4_0, at))
        at += rows * cols // GROUP * BLOCK  # a multiple of the alignment
    for name in gains(layers):
        infos.append(Info(name, (DIM,), F32, at))
        at += DIM * 4
    pieces = list(itertools.islice(words(), vocab - 256 - len(SPECIALS)))
    metadata = llama_metadata("synthetic-%dx%d-q4_0" % (layers, DIM), layers, context, DIM, FFN,
                              HEADS, KV_HEADS, HEAD_DIM, 10000.0, 1e-5, vocab)
    metadata += tokenizer_metadata(vocab, pieces)
    # Some readers insist: 2 is "mostly Q4_0", and the layout of its blocks is the second one.
    metadata += [("general.file_type", UINT32, 2), ("general.quantization_version", UINT32, 2)]
    return assemble([entry(*m) for m in metadata], infos, b""), at


def is_there(path, header, size):
    if not os.path.exists(path) or os.path.getsize(path) != len(header) + size:
        return False
    with open(path, "rb") as f:
        return f.read(len(header)) == header


def make(path, layers=LAYERS, vocab=VOCAB, context=CONTEXT):
    header, size = head(layers, vocab, context)
    if is_there(path, header, size):
        return
    part = "%s.%d.part" % (path, os.getpid())
    with open(part, "wb") as f:
        f.write(header)
        for matrix in matrices(layers, vocab):
            for blocks in quantized(*matrix):
                f.write(blocks)
        for _ in gains(layers):
            f.write(floats([1.0] * DIM))
    os.replace(part, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Makes one large model of random weights.")
    parser.add_argument("file")
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--vocab", type=int, default=VOCAB)
    parser.add_argument("--context", type=int, default=CONTEXT)
    arguments = parser.parse_args()
    make(arguments.file, arguments.layers, arguments.vocab, arguments.context)
    print(arguments.file, os.path.getsize(arguments.file) >> 20, "MiB")
