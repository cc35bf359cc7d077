"""GGUF files with one fault each, in an otherwise good tiny model; and a few that must load."""
import struct

import tiny_llama
from gguf_writer import UINT32, assemble, entry, fill, llama_metadata, string, table, tokenizer_metadata

TOKENS = "tokenizer.ggml.tokens"


class Base:
    """The good model in parts."""

    def __init__(self):
        t = tiny_llama
        self.metadata = llama_metadata("tiny", t.LAYERS, 256, t.DIM, t.FFN, t.HEADS, t.KV_HEADS,
                                       t.ROTATED, t.BASE, t.EPS, t.VOCAB) + tokenizer_metadata(t.VOCAB)
        self.tensors = t.tensors(t.draw("base"), "base")

    def entries(self):
        return [entry(*m) for m in self.metadata]

    def file(self, change=None, extra=(), alignment=32, **lies):
        """The file after `change` has spoilt its tensor table or its data."""
        infos, data = table(self.tensors, alignment)
        if change:
            data = change(infos, data) or data
        return assemble(self.entries() + list(extra), infos, data, alignment, **lies)

    def replaced(self, key, raw):
        """The file with the metadata entry of `key` written as `raw`."""
        infos, data = table(self.tensors)
        encoded = [raw if m[0] == key else entry(*m) for m in self.metadata]
        return assemble(encoded, infos, data)


def spoil(index, **fields):
    """A change that sets fields of one line of the tensor table."""

    def change(infos, _):
        for name, content in fields.items():
            setattr(infos[index], name, content)

    return change


def shift(index, by):
    def change(infos, _):
        infos[index].offset += by

    return change


def same_name(infos, _):
    infos[4].name = infos[3].name


def overlap(infos, _):
    infos[4].offset = infos[3].offset


def announce(key, kind, content):
    return string(key) + struct.pack("<I", kind) + content


def alignment_entry(n):
    return entry("general.alignment", UINT32, n)


def files():
    """(name, right verdict, fault, content)"""
    b = Base()
    good = b.file()
    long_key = struct.pack("<Q", 1 << 63) + b"general.architecture"
    long_list = announce(TOKENS, 9, struct.pack("<IQ", 8, 1 << 62))
    nested = announce("general.tags", 9, struct.pack("<IQIQ", 9, 1, 4, 0))
    yield "ok_v2", "load", "version 2 is laid out like version 3", b.file(version=2)
    yield "ok_align64", "load", "alignment 64", b.file(alignment=64, extra=[alignment_entry(64)])
    yield "cut_data", "refuse", "ends inside the last tensor", good[:-1000]
    yield "cut_header", "refuse", "ends inside the metadata", good[:300]
    yield "many_entries", "refuse", "2^60 metadata entries", b.file(entry_count=1 << 60)
    yield "many_tensors", "refuse", "2^61 tensors", b.file(tensor_count=1 << 61)
    yield "long_string", "refuse", "a key of 2^63 bytes", b.replaced("general.architecture", long_key)
    yield "long_array", "refuse", "a list of 2^62 strings", b.replaced(TOKENS, long_list)
    yield ("size_wraps", "refuse", "259 + 2^56 rows: the byte count wraps to the honest one",
           b.file(spoil(0, dims=[64, 259 + (1 << 56)])))
    yield "negative_dim", "refuse", "a dimension of -1", b.file(spoil(0, dims=[64, -1]))
    yield "zero_dim", "refuse", "a dimension of 0", b.file(spoil(0, dims=[64, 0]))
    yield "five_dims", "refuse", "five dimensions", b.file(spoil(0, dims=[64, 259, 1, 1, 1]))
    yield "no_dims", "refuse", "no dimension", b.file(spoil(0, dims=[]))
    yield "alignment_0", "refuse", "alignment 0", b.file(extra=[alignment_entry(0)])
    yield "alignment_48", "refuse", "alignment 48", b.file(extra=[alignment_entry(48)])
    yield "same_name", "refuse", "two tensors of one name", b.file(same_name)
    yield "same_key", "refuse", "two entries of one key", b.file(extra=[entry("llama.block_count", UINT32, 2)])
    yield "overlap", "refuse", "two tensors in one place", b.file(overlap)
    yield "offset_beyond", "refuse", "a tensor 2^40 bytes on", b.file(spoil(2, offset=1 << 40))
    yield "offset_odd", "refuse", "an offset off the alignment", b.file(shift(2, 4))
    yield "offset_wraps", "refuse", "offset + size wraps", b.file(spoil(2, offset=(1 << 64) - 32))
    yield "magic", "refuse", "wrong first bytes", b.file(magic=b"GGML")
    yield "version_9", "refuse", "version 9", b.file(version=9)
    yield "type_999", "refuse", "tensor type 999", b.file(spoil(0, kind=999))
    yield "type_q4_k", "refuse", "a known type that is not supported", b.file(spoil(0, kind=12))
    yield "nested_array", "refuse", "an array of arrays", b.file(extra=[nested])
    yield "value_type", "refuse", "metadata type 99", b.file(extra=[announce("a.b", 99, b"")])
    yield "trailing", "refuse", "bytes after the last tensor", good + fill(b"more", 4096)
    yield "empty", "refuse", "no bytes at all", b""
    yield "text", "refuse", "a text file", b"This is no model.\n" * 100
    yield "safetensors", "refuse", "a safetensors file", struct.pack("<Q", 64) + b'{"a":' + bytes(59)
    yield "zip", "refuse", "a zip archive", b"PK\x03\x04" + bytes(500)
