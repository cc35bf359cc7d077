"""What `plan` says of a model file is what its head says: files of 8 and 70 billion weights that are
nothing but heads and holes, against arithmetic done here and against published floors."""

import pathlib
import sys
import tempfile
import unittest

from cluster import headrace

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "models"))
import synthetic
from gguf_writer import BF16, F32, Q4_0, Q8_0, Info, assemble, entry, llama_metadata

BYTES = {BF16: 2, Q4_0: 18 / 32, Q8_0: 34 / 32}  # a weight
READ, FLOPS = 4.3e12, 790e12  # of an H200, as measured
WITHIN = 0.03


class Shape:
    def __init__(self, name, layers, dim, ffn, heads, head_dim, kv_heads=8, vocab=128256):
        self.name, self.layers, self.dim, self.ffn, self.vocab = name, layers, dim, ffn, vocab
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim

    def matrices(self):
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "token_embd.weight", self.vocab, self.dim
        yield "output.weight", self.vocab, self.dim
        for i in range(self.layers):
            for name, rows, cols in [("attn_q", q, self.dim), ("attn_k", kv, self.dim),
                                     ("attn_v", kv, self.dim), ("attn_output", self.dim, q),
                                     ("ffn_gate", self.ffn, self.dim),
                                     ("ffn_up", self.ffn, self.dim),
                                     ("ffn_down", self.dim, self.ffn)]:
                yield "blk.%d.%s.weight" % (i, name), rows, cols

    def norms(self):
        yield "output_norm.weight"
        for i in range(self.layers):
            yield "blk.%d.attn_norm.weight" % i
            yield "blk.%d.ffn_norm.weight" % i

    def read(self):
        """Weights that a step reads: all but the embedding."""
        return sum(rows * cols for name, rows, cols in self.matrices()
                   if name != "token_embd.weight")

    def kv_token(self, element):
        return 2 * self.layers * self.kv_heads * element

    def save(self, folder, kind):
        """The head of a file and a hole for its data."""
        infos, at = [], 0
        for name, rows, cols in self.matrices():
            infos.append(Info(name, (cols, rows), kind, at))
            at += int(rows * cols * BYTES[kind])
        for name in self.norms():
            infos.append(Info(name, (self.dim,), F32, at))
            at += 4 * self.dim
        metadata = llama_metadata(self.name, self.layers, 131072, self.dim, self.ffn, self.heads,
                                  self.kv_heads, self.head_dim, 500000.0, 1e-5, self.vocab)
        head = assemble([entry(*m) for m in metadata], infos, b"")
        return sparse(folder, self.name + ".gguf", head, at)


EIGHT = Shape("eight", 32, 4096, 14336, 32, 128)
SEVENTY = Shape("seventy", 80, 8192, 28672, 64, 128)


def sparse(folder, name, head, data):
    path = pathlib.Path(folder) / name
    with open(path, "wb") as f:
        f.write(head)
        f.truncate(len(head) + data)
    return str(path)


def plan(*words):
    outcome = headrace("plan", *words, "--json")
    assert outcome.status == 0, outcome.err
    return outcome.json()


def row(json, weights, kv, batch, context):
    return next(r for r in json["rows"] if (r["weights"], r["kv"], r["batch"], r["context"]) ==
                (weights, kv, batch, context))


class Plan(unittest.TestCase):
    def near(self, value, wanted, within=WITHIN):
        self.assertLessEqual(abs(value / wanted - 1), within, (value, wanted))

    def test_published_floors_from_the_head_of_a_file(self):
        # H200 at 4.3 TB/s, Llama 3.1 8B; four and eight bits with 16 bits of scale to each 128.
        published = [("bf16", "bf16", 1, 512, 3.49e-3, 287), ("w8", "bf16", 1, 512, 1.77e-3, 566),
                     ("w4", "bf16", 1, 512, 0.90e-3, 1110),
                     ("w4", "bf16", 32, 2048, 2.9e-3, 11000),
                     ("w4", "fp8", 32, 2048, 1.9e-3, 16800),
                     ("w4", "fp8", 128, 2048, 4.9e-3, 26000)]
        with tempfile.TemporaryDirectory() as folder:
            path = EIGHT.save(folder, BF16)
            json = plan(path, "--gpu", "h200", "--group", "128")
            mixed = plan(path, "--gpu", "h200", "--group", "128", "--output-weights", "w8")
            large = plan(SEVENTY.save(folder, Q4_0), "--gpu", "h200", "--group", "128")
        for weights, kv, batch, context, seconds, per_second in published:
            with self.subTest(weights=weights, kv=kv, batch=batch):
                found = row(json, weights, kv, batch, context)
                self.near(found["floor_seconds"], seconds)
                self.near(found["tokens_per_second"], per_second)
        self.near(row(mixed, "w4", "bf16", 1, 512)["floor_seconds"], 0.96e-3)
        self.near(row(mixed, "w4", "bf16", 1, 512)["tokens_per_second"], 1040)
        for weights in ("w4", "file"):
            self.near(row(large, weights, "bf16", 1, 512)["floor_seconds"], 8.5e-3)
            self.near(row(large, weights, "bf16", 1, 512)["tokens_per_second"], 118)

    def test_every_row_against_arithmetic(self):
        element = {"f16": 256, "bf16": 256, "fp8": 130, "int8": 130}  # bytes of a head's K or V
        weight = {"w4": BYTES[Q4_0], "w8": BYTES[Q8_0], "bf16": 2, "file": BYTES[Q8_0]}
        with tempfile.TemporaryDirectory() as folder:
            json = plan(EIGHT.save(folder, Q8_0), "--gpu", "h200")
        self.assertEqual(len(json["rows"]), 4 * 4 * 8 * 4)
        for r in json["rows"]:
            batch, context = r["batch"], r["context"]
            bytes_ = (EIGHT.read() * weight[r["weights"]] +
                      batch * context * EIGHT.kv_token(element[r["kv"]]))
            flops = batch * (2 * EIGHT.read() + 4 * 4096 * 32 * context)
            self.near(r["step_bytes"], bytes_)
            self.near(r["floor_seconds"], max(bytes_ / READ, flops / FLOPS))
            self.near(r["tokens_per_second"] * r["floor_seconds"], batch, 1e-9)
            self.assertIn(r["wall"], ("dram", "compute") if r["fits"] else ("kv_capacity",))

    def test_a_file_with_a_tokenizer_and_a_hole(self):
        head, size = synthetic.head(synthetic.LAYERS)
        with tempfile.TemporaryDirectory() as folder:
            json = plan(sparse(folder, "one.gguf", head, size), "--gpu", "a100")
        self.assertEqual(json["base"]["weights"], "file")
        self.assertEqual({r["context"] for r in json["rows"]}, {512, 2048})  # it knows 4,096
        read = sum(rows * cols for name, rows, cols, _ in synthetic.matrices(synthetic.LAYERS)
                   if name != "token_embd.weight")
        kv = 512 * 2 * 2 * synthetic.LAYERS * synthetic.KV_HEADS * synthetic.HEAD_DIM
        self.near(row(json, "file", "f16", 1, 512)["step_bytes"], read * BYTES[Q4_0] + kv, 0.001)

    def test_time_on_the_wire_against_prefill(self):
        for shape, gib in (("8b", 16), ("70b", 40)):
            json = plan("--shape", shape, "--gpu", "h200", "--weights", "w4")
            links = {(h["prompt"], h["link"]): h for h in json["hand_off"]}
            self.assertEqual(len(links), 16)
            full = links[131072, "NVLink"]
            self.assertEqual(full["kv_bytes"], gib << 30)
            for h in links.values():
                rate = 0.8 * h["link_bytes_per_second"]
                self.near(h["wire_seconds"], h["kv_bytes"] / rate, 1e-9)
                self.assertGreaterEqual(h["first_token_seconds"], h["prefill_seconds"])
                self.assertFalse(h["loses"] and h["link"] != "10 Gb/s", h)
        self.assertTrue(all(plan("--shape", "8b", "--gpu", "h200")["hand_off"][i]["loses"]
                            for i in (3, 7, 11, 15)))


if __name__ == "__main__":
    unittest.main()
