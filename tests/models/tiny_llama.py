"""A tiny random Llama and its right values, computed here in double precision.

Variants base, tied (the embedding is the output matrix), linear and llama3 (RoPE scaling), and odd
(heads of an odd width, whose last dim does not rotate) hold 32-bit floats. The others hold the base
model's matrices as f16, bf16, q8_0, q4_0, or q4_1 with a tied q8_0 embedding, and right values of
the weights as stored. They and odd have a context of 1,024.
"""
import math

from gguf_writer import (F32, FLOAT32, STRING, UINT32, Tensor, floats, llama_metadata, single,
                         tokenizer_metadata, whole)
from quantize import NAMES, pack_row

VARIANTS = ["base", "tied", "linear", "llama3", "odd", "f16", "bf16", "q8_0", "q4_0", "q4_1"]
VOCAB, DIM, HEADS, KV_HEADS, ROTATED, FFN, LAYERS = 259, 64, 4, 2, 16, 96, 2
EPS, BASE, SEED, PAIRS = 1e-5, 10000.0, 6, ROTATED // 2
PROMPT = "The quick brown fox jumps over the lazy dog 12345"[:48]
ANSWER = 16  # greedy tokens
LINEAR = 4.0
LLAMA3 = {"factor": 8.0, "low": 1.0, "high": 4.0, "context": 32}


class Noise:
    """xorshift64*, so that every Python makes the same weights."""

    MASK = (1 << 64) - 1

    def __init__(self, seed):
        self.state = (2 * seed + 1) & self.MASK

    def uniform(self):
        x = self.state
        x ^= x >> 12
        x = (x ^ x << 25) & self.MASK
        x ^= x >> 27
        self.state = x
        return (x * 0x2545F4914F6CDD1D & self.MASK) / 2.0**64

    def normal(self):
        return sum(self.uniform() for _ in range(12)) - 6.0


def head_dim(variant):
    return ROTATED + (variant == "odd")


def draw(variant):
    """All weights, rows of q and k in the half-split order of the original model."""
    noise, width, tied = Noise(SEED), head_dim(variant), variant in ("tied", "q4_1")

    def rand(rows, cols, scale):
        return [[single(noise.normal() * scale) for _ in range(cols)] for _ in range(rows)]

    def gain():
        return [single(1 + .1 * noise.normal()) for _ in range(DIM)]

    s, wide, narrow = 1 / math.sqrt(DIM), HEADS * width, KV_HEADS * width
    w = {"token_embd": rand(VOCAB, DIM, 0.35 if tied else 1.0)}
    if not tied:
        w["output"] = rand(VOCAB, DIM, 2.5 * s)
    w["output_norm"] = gain()
    for layer in range(LAYERS):
        at = "blk.%d." % layer
        w[at + "attn_q"] = rand(wide, DIM, 2 * s)
        w[at + "attn_k"] = rand(narrow, DIM, 2 * s)
        w[at + "attn_v"] = rand(narrow, DIM, s)
        w[at + "attn_output"] = rand(DIM, wide, 1 / math.sqrt(wide))
        w[at + "ffn_gate"] = rand(FFN, DIM, s)
        w[at + "ffn_up"] = rand(FFN, DIM, s)
        w[at + "ffn_down"] = rand(DIM, FFN, 1 / math.sqrt(FFN))
        w[at + "attn_norm"], w[at + "ffn_norm"] = gain(), gain()
    for name in w:
        if name.endswith(("attn_q", "attn_k")):
            w[name] = neighbours(w[name], width)
    return w


def neighbours(rows, width):
    """Half-split pairs (i, i + half) of each head become neighbours, as GGUF's llama rotates."""
    out = []
    for head in range(0, len(rows), width):
        for i in range(PAIRS):
            out += [rows[head + i], rows[head + PAIRS + i]]
        out += rows[head + ROTATED:head + width]
    return out


def divisors(variant):
    """What each pair's frequency is divided by."""
    if variant == "linear":
        return [LINEAR] * PAIRS
    if variant != "llama3":
        return [1.0] * PAIRS
    out = []
    for i in range(PAIRS):
        turns = LLAMA3["context"] * BASE**(-2.0 * i / ROTATED) / (2 * math.pi)
        if turns > LLAMA3["high"]:
            out.append(1.0)
        elif turns < LLAMA3["low"]:
            out.append(LLAMA3["factor"])
        else:
            t = (turns - LLAMA3["low"]) / (LLAMA3["high"] - LLAMA3["low"])
            out.append(1 / ((1 - t) / LLAMA3["factor"] + t))
    return out


class Run:
    """The forward pass, a token at a time."""

    def __init__(self, weights, variant):
        self.w = weights
        self.head = weights.get("output", weights["token_embd"])
        self.head_dim = head_dim(variant)
        self.freq = [BASE**(-2.0 * i / ROTATED) / d for i, d in enumerate(divisors(variant))]
        self.keys = [[] for _ in range(LAYERS)]
        self.values = [[] for _ in range(LAYERS)]

    def rotate(self, x, position):
        out = list(x)
        for head in range(0, len(x), self.head_dim):
            for i, freq in enumerate(self.freq):
                at, angle = head + 2 * i, position * freq
                c, s = math.cos(angle), math.sin(angle)
                out[at], out[at + 1] = x[at] * c - x[at + 1] * s, x[at] * s + x[at + 1] * c
        return out

    def attend(self, layer, q):
        out, width = [], self.head_dim
        for head in range(HEADS):
            mine = q[head * width:(head + 1) * width]
            first = head // (HEADS // KV_HEADS) * width
            part = slice(first, first + width)
            scores = [dot(mine, k[part]) / math.sqrt(width) for k in self.keys[layer]]
            top = max(scores)
            share = [math.exp(s - top) for s in scores]
            total = sum(share)
            lanes = zip(*(v[part] for v in self.values[layer]))
            out += [dot(share, lane) / total for lane in lanes]
        return out

    def token(self, token):
        """Logits after `token`, which is appended to the context."""
        w, position = self.w, len(self.keys[0])
        x = list(w["token_embd"][token])
        for layer in range(LAYERS):
            at = "blk.%d." % layer
            h = norm(x, w[at + "attn_norm"])
            self.keys[layer].append(self.rotate(times(w[at + "attn_k"], h), position))
            self.values[layer].append(times(w[at + "attn_v"], h))
            y = self.attend(layer, self.rotate(times(w[at + "attn_q"], h), position))
            x = plus(x, times(w[at + "attn_output"], y))
            h = norm(x, w[at + "ffn_norm"])
            gate, up = times(w[at + "ffn_gate"], h), times(w[at + "ffn_up"], h)
            mixed = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]
            x = plus(x, times(w[at + "ffn_down"], mixed))
        return times(self.head, norm(x, w["output_norm"]))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def times(rows, x):
    return [dot(row, x) for row in rows]


def plus(a, b):
    return [x + y for x, y in zip(a, b)]


def norm(x, gain):
    s = 1 / math.sqrt(dot(x, x) / len(x) + EPS)
    return [a * s * g for a, g in zip(x, gain)]


def expected(weights, variant):
    run, prompt = Run(weights, variant), list(PROMPT.encode())
    for t in prompt:
        logits = run.token(t)
    last, ids, margins = logits, [], []
    for _ in range(ANSWER):
        order = sorted(range(VOCAB), key=lambda t: (-logits[t], t))
        ids.append(order[0])
        margins.append(logits[order[0]] - logits[order[1]])
        if len(ids) < ANSWER:
            logits = run.token(order[0])
    return {"variant": variant, "prompt": PROMPT, "prompt_ids": prompt,
            "last_logits": [round(x, 5) for x in last], "greedy_ids": ids,
            "smallest_margin": round(min(margins), 4), "inv_freq": [round(f, 9) for f in run.freq]}


def stored(name, variant):
    """Type number in which a matrix is written."""
    if variant == "q4_1" and name == "token_embd":
        return NAMES["q8_0"]
    return NAMES.get(variant, F32)


ORDER = ["token_embd", "output_norm", "output"] + [
    "blk.%d.%s" % (layer, part) for layer in range(LAYERS)
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
                 "attn_norm", "ffn_norm")]


def tensors(weights, variant):
    """Tensors in the file's order; matrices in `weights` become what a reader gets back."""
    out = []
    for name in ORDER:
        rows = weights.get(name)
        if name.endswith("norm"):
            out.append(Tensor(name + ".weight", (DIM,), F32, floats(rows)))
        elif rows:
            kind = stored(name, variant)
            packed = [pack_row(kind, row) for row in rows]
            weights[name] = [p[1] for p in packed]
            out.append(Tensor(name + ".weight", (len(rows[0]), len(rows)), kind,
                              b"".join(p[0] for p in packed)))
        if name == "output" and variant == "llama3":
            out.append(Tensor("rope_freqs.weight", (PAIRS,), F32, floats(divisors(variant))))
    return out


def build(variant):
    weights = draw(variant)
    written = tensors(weights, variant)
    context = 1024 if variant in NAMES or variant == "odd" else 256
    metadata = llama_metadata("tiny", LAYERS, context, DIM, FFN, HEADS, KV_HEADS, ROTATED, BASE,
                              EPS, VOCAB)
    if variant == "linear":
        metadata += [("llama.rope.scaling.type", STRING, "linear"),
                     ("llama.rope.scaling.factor", FLOAT32, LINEAR)]
    if variant == "odd":
        metadata += [("llama.attention.key_length", UINT32, head_dim(variant)),
                     ("llama.attention.value_length", UINT32, head_dim(variant))]
    metadata += tokenizer_metadata(VOCAB)
    return whole(metadata, written), expected(weights, variant)
