"""Writes GGUF files for tests: whole ones, and ones that are wrong in a chosen place.

Standard library only. The layout is the one of the GGUF specification, versions 2 and 3: little
endian, 64-bit counts, metadata, tensor table, then tensor data at multiples of the alignment.
"""
import json
import os
import struct

# Metadata value types by their number in the file.
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
SCALARS = {UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<B"}

# Tensor types by their number in the file.
F32, F16, Q4_0, Q4_1, Q8_0, BF16 = 0, 1, 2, 3, 8, 30


def single(x):
    """x as the nearest 32-bit float."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def floats(values):
    values = list(values)
    return struct.pack("<%df" % len(values), *values)


def string(text):
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value(kind, content):
    if kind == STRING:
        return string(content)
    if kind == ARRAY:
        element, items = content
        head = struct.pack("<IQ", element, len(items))
        return head + b"".join(value(element, item) for item in items)
    return struct.pack(SCALARS[kind], content)


def entry(key, kind, content):
    """One metadata entry."""
    return string(key) + struct.pack("<I", kind) + value(kind, content)


def fill(raw, alignment):
    return raw + bytes(-len(raw) % alignment)


class Tensor:
    """Name, dimensions (fastest first), type number, data."""

    def __init__(self, name, dims, kind, data):
        self.name, self.dims, self.kind, self.data = name, tuple(dims), kind, data


class Info:
    """A line of the tensor table; its fields may be made wrong before it is written."""

    def __init__(self, name, dims, kind, offset):
        self.name, self.dims, self.kind, self.offset = name, list(dims), kind, offset

    def encode(self):
        dims = b"".join(struct.pack("<Q", d % (1 << 64)) for d in self.dims)
        return (string(self.name) + struct.pack("<I", len(self.dims)) + dims +
                struct.pack("<IQ", self.kind, self.offset))


def table(tensors, alignment=32):
    """The tensor table and the data it describes."""
    infos, data = [], bytearray()
    for t in tensors:
        infos.append(Info(t.name, t.dims, t.kind, len(data)))
        data += fill(t.data, alignment)
    return infos, bytes(data)


def assemble(entries, infos, data, alignment=32, version=3, magic=b"GGUF", entry_count=None,
             tensor_count=None):
    """A file of encoded metadata entries, tensor lines and data; counts may lie."""
    counts = (len(infos) if tensor_count is None else tensor_count,
              len(entries) if entry_count is None else entry_count)
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(entries)
    return fill(head + b"".join(i.encode() for i in infos), alignment) + data


def whole(metadata, tensors, alignment=32):
    infos, data = table(tensors, alignment)
    return assemble([entry(*m) for m in metadata], infos, data, alignment)


def save(path, content):
    """Writes a file so that a reader sees the old one or the new one, never half of it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not isinstance(content, bytes):
        content = (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
    part = "%s.%d.part" % (path, os.getpid())
    with open(part, "wb") as f:
        f.write(content)
    os.replace(part, path)


# ---- tokenizer metadata that all test models share

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
END = 258  # <|im_end|>
CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}")


def byte_tokens():
    """Byte-level BPE's character for each byte: itself where printable, else from U+0100 on."""
    spare = iter(range(256, 512))
    shown = lambda b: 33 <= b <= 126 or 161 <= b <= 172 or b >= 174
    return [chr(b if shown(b) else next(spare)) for b in range(256)]


def tokenizer_metadata(rows, pieces=(), merges=(), bos=False):
    """Ids 0..255 are bytes, then the specials, then `pieces`; rows left over are unused tokens."""
    tokens = byte_tokens() + SPECIALS + list(pieces)
    kinds = [1] * 256 + [3] * len(SPECIALS) + [1] * len(pieces)
    for i in range(len(tokens), rows):
        tokens.append("<|pad_%d|>" % i)
        kinds.append(5)
    template = ("{{ bos_token }}" if bos else "") + CHAT_TEMPLATE
    return [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "gpt-2"),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
            ("tokenizer.ggml.token_type", ARRAY, (INT32, kinds)),
            ("tokenizer.ggml.merges", ARRAY, (STRING, list(merges))),
            ("tokenizer.ggml.bos_token_id", UINT32, 256),
            ("tokenizer.ggml.eos_token_id", UINT32, END),
            ("tokenizer.ggml.add_bos_token", BOOL, bos),
            ("tokenizer.chat_template", STRING, template)]


def llama_metadata(name, layers, context, dim, ffn, heads, kv_heads, head_dim, base, eps, rows):
    return [("general.architecture", STRING, "llama"), ("general.name", STRING, name),
            ("llama.block_count", UINT32, layers), ("llama.context_length", UINT32, context),
            ("llama.embedding_length", UINT32, dim), ("llama.feed_forward_length", UINT32, ffn),
            ("llama.attention.head_count", UINT32, heads),
            ("llama.attention.head_count_kv", UINT32, kv_heads),
            ("llama.rope.dimension_count", UINT32, head_dim),
            ("llama.rope.freq_base", FLOAT32, base),
            ("llama.attention.layer_norm_rms_epsilon", FLOAT32, eps),
            ("llama.vocab_size", UINT32, rows)]
