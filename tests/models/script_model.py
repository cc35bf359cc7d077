"""The script model: a Llama whose every logit is known by hand.

Embeddings are one-hot and all layer weights are zero, so the hidden state after the last norm
depends on the last token alone, and the output matrix is a table "what follows this token":

  A..Z, then the end          a..z and round again        0 for ever
  newline and <|endoftext|> give A                        ! a four-byte emoji, '.', the end
  ? a three-byte character, '.', end                      @ two bytes of a character, then the end
  # a byte that no UTF-8 text has, ',', the end           $ the control token <|im_start|>, '~', end
  [ the single token END, ']', the end                    ( 1, 2, 3, 4 with p = .5 .3 .15 .05
  1 2 3 4 give (                                          % u and v alike (the lower id wins)
  * B                                                     ^ row 270 in variant padded, else B
  anything else gives '.', and '.' the end

Variants: padded has rows beyond the tokenizer; nan one output weight NaN; inf one so large that the
logit after * overflows; big embeddings beyond f16's range; bos asks for a leading token.
"""
import math

from gguf_writer import (END, F32, Tensor, floats, llama_metadata, single, tokenizer_metadata, whole)

VARIANTS = ["base", "padded", "nan", "inf", "big", "bos"]
DIM, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS, CONTEXT, EPS = 288, 9, 3, 32, 32, 1, 512, 1e-5
KNOWN = 261  # tokens of the tokenizer
WEIGHT = 0.5
CHOICES = {"1": .5, "2": .3, "3": .15, "4": .05}
EMOJI, SHI = "\U0001F999", "\u4e16"


def successors(variant):
    """For each token: {successor: output weight}."""
    follow = {t: {ord("."): WEIGHT} for t in range(KNOWN)}

    def story(*tokens):
        for here, there in zip(tokens, tokens[1:]):
            follow[here] = {there: WEIGHT}

    story(*range(ord("A"), ord("Z") + 1), END)
    story(*range(ord("a"), ord("z") + 1), ord("a"))
    story(ord("0"), ord("0"))
    story(10, ord("A"))
    story(256, ord("A"))
    story(ord("!"), *EMOJI.encode(), ord("."), END)
    story(ord("?"), *SHI.encode(), ord("."))
    story(ord("@"), 0xE2, 0x82, END)
    story(ord("#"), 0xFF, ord(","), END)
    story(ord("$"), 257, ord("~"), END)
    story(ord("["), 260, ord("]"), END)
    for c in CHOICES:
        story(ord(c), ord("("))
    story(ord("*"), ord("B"))
    story(ord("^"), 270 if variant == "padded" else ord("B"))
    follow[ord("%")] = {ord("u"): WEIGHT, ord("v"): WEIGHT}
    unit = math.sqrt(1 / DIM + EPS)  # undoes the norm's gain on a one-hot row
    follow[ord("(")] = {ord(c): (math.log(p) + 3) * unit for c, p in CHOICES.items()}
    return follow


def output_matrix(variant, rows):
    head = [[0.0] * DIM for _ in range(rows)]
    for row in head:
        row[ord("(")] = -20 * math.sqrt(1 / DIM + EPS)
    for token, nexts in successors(variant).items():
        for row, weight in nexts.items():
            head[row][token] = weight
    if variant == "nan":
        head[ord("A")][ord("*")] = math.nan
    if variant == "inf":
        head[ord("A")][ord("*")] = 3e38
    return head


def matrix(name, rows):
    flat = [x for row in rows for x in row]
    return Tensor(name, (len(rows[0]), len(rows)), F32, floats(flat))


def zeros(name, rows, cols):
    return Tensor(name, (cols, rows), F32, bytes(4 * rows * cols))


def ones(name):
    return Tensor(name, (DIM,), F32, floats([1.0] * DIM))


def tensors(variant, rows):
    hot = 100000.0 if variant == "big" else 1.0
    embedding = [[hot if c == r and r < KNOWN else 0.0 for c in range(DIM)] for r in range(rows)]
    out = [matrix("token_embd.weight", embedding), ones("output_norm.weight"),
           matrix("output.weight", output_matrix(variant, rows))]
    for layer in range(LAYERS):
        at = "blk.%d." % layer
        out += [zeros(at + "attn_q.weight", HEADS * HEAD_DIM, DIM),
                zeros(at + "attn_k.weight", KV_HEADS * HEAD_DIM, DIM),
                zeros(at + "attn_v.weight", KV_HEADS * HEAD_DIM, DIM),
                zeros(at + "attn_output.weight", DIM, HEADS * HEAD_DIM),
                zeros(at + "ffn_gate.weight", FFN, DIM), zeros(at + "ffn_up.weight", FFN, DIM),
                zeros(at + "ffn_down.weight", DIM, FFN), ones(at + "attn_norm.weight"),
                ones(at + "ffn_norm.weight")]
    return out


def expected(variant, rows):
    """Right values, worked out from the table alone."""
    hot = 1e5 if variant == "big" else 1.0
    logit = single(WEIGHT) * hot / math.sqrt(hot * hot / DIM + EPS)
    logprob = logit - math.log(math.exp(logit) + KNOWN - 1)
    return {
        "variant": variant, "vocab_rows": rows, "known_tokens": KNOWN, "eos_id": END,
        "scripted_logit": round(logit, 6), "other_logits": 0.0, "scripted_logprob": round(logprob, 6),
        "greedy": {"A": "BCDEFGHIJKLMNOPQRSTUVWXYZ", "!": EMOJI + ".", "@": "\ufffd", "#": "\ufffd,",
                   "$": "~", "[": "END]"},
        "greedy_ids": {"A": list(range(66, 91)) + [END], "!": [*EMOJI.encode(), 46, END],
                       "?": [*SHI.encode(), 46, END], "@": [0xE2, 0x82, END], "#": [0xFF, 44, END],
                       "$": [257, 126, END], "[": [260, 93, END], "%": [117], "&": [46, END],
                       "(": [49, 40, 49, 40], "Y": [90, END], "z": [97, 98], "0": [48, 48, 48]},
        "after_open_bracket": CHOICES,
        "prompt_tokens": {"raw hi": 3 if variant == "bos" else 2,
                          "chat hi": 22 if variant == "bos" else 21},
    }


def build(variant):
    rows = 288 if variant == "padded" else KNOWN
    metadata = llama_metadata("script", LAYERS, CONTEXT, DIM, FFN, HEADS, KV_HEADS, HEAD_DIM,
                              10000.0, EPS, rows)
    metadata += tokenizer_metadata(rows, ["EN", "END"], ["E N", "EN D"], variant == "bos")
    return whole(metadata, tensors(variant, rows)), expected(variant, rows)
