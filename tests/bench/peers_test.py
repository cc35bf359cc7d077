"""The parts of tests/bench/peers that run nothing: python3 peers_test.py"""

import io
import pathlib
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peer"))
import figures  # noqa: E402
import ggml  # noqa: E402
import session  # noqa: E402
import table  # noqa: E402
from figures import OURS, Figure, Work  # noqa: E402

ONE = Work("synthetic", "decode", 1, 128)
EIGHT = Work("synthetic", "decode", 8, 128)
# As llama-batched-bench prints it, other lines around.
BATCHED = """
main: n_kv_max = 1152, flash_attn = 0

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   128 |     16 |    1 |    144 |    1.132 |   113.03 |    1.074 |    14.89 |    2.207 |    65.25 |
|   128 |     16 |    8 |   1152 |    8.773 |   116.72 |    2.239 |    57.17 |   11.012 |   104.62 |
"""
ENDED = """perf: prompt eval time =   9.00 ms /  1 tokens (  9.00 ms per token,  111.11 tokens per second)
perf:        eval time =  2024.60 ms /    16 runs   (  126.54 ms per token,     7.90 tokens per second)
"""


def rounds(side, rates, setting="", work=ONE):
    return [Figure(n, side, setting, work, rate) for n, rate in enumerate(rates)]


class Ratios(unittest.TestCase):
    def row(self, found, peers=("p",), works=(ONE,)):
        return figures.summary(found, peers, works)[0]

    def test_are_of_one_round(self):
        # The machine halves its speed in the second round, for both sides.
        row = self.row(rounds(OURS, [40, 20, 44]) + rounds("p", [20, 10, 20]))
        self.assertEqual(row["peers"]["p"]["ratio"], {"median": 2.0, "low": 2.0, "high": 2.2})
        self.assertEqual(row["ours"], {"median": 40, "low": 20, "high": 44})

    def test_take_the_best_setting_of_each_round(self):
        row = self.row(rounds(OURS, [40, 40, 40]) + rounds("p", [20, 10, 20], "off") +
                       rounds("p", [10, 40, 16], "on"))
        self.assertEqual(row["peers"]["p"]["ratio"], {"median": 2.0, "low": 1.0, "high": 2.0})
        self.assertEqual(row["peers"]["p"]["setting"], "off")

    def test_leave_out_collapsed_runs(self):
        row = self.row(rounds(OURS, [40, 40, 40]) + rounds("p", [20, 0.8, 16]))
        self.assertEqual(row["peers"]["p"]["ratio"], {"median": 2.25, "low": 2.0, "high": 2.5})
        self.assertEqual(row["peers"]["p"]["rate"], {"median": 18, "low": 16, "high": 20})
        self.assertEqual(row["peers"]["p"]["collapsed"], 1)

    def test_a_round_counts_if_one_of_its_settings_did_not_collapse(self):
        row = self.row(rounds(OURS, [40]) + rounds("p", [0.0], "on") + rounds("p", [10], "off"))
        self.assertEqual(row["peers"]["p"]["ratio"]["median"], 4.0)
        self.assertEqual(row["peers"]["p"]["collapsed"], 1)

    def test_leave_out_our_own_collapses_too(self):
        row = self.row(rounds(OURS, [0.5, 40]) + rounds("p", [10, 20]))
        self.assertEqual(row["peers"]["p"]["ratio"], {"median": 2.0, "low": 2.0, "high": 2.0})
        self.assertEqual(row["ours_collapsed"], 1)

    def test_need_both_sides(self):
        row = self.row(rounds(OURS, [40]) + rounds("p", [0.1]))
        self.assertIsNone(row["peers"]["p"]["ratio"])
        self.assertIsNone(row["peers"]["p"]["rate"])
        self.assertIsNone(row["peers"]["p"]["setting"])

    def test_keep_works_apart(self):
        found = rounds(OURS, [40]) + rounds("p", [20]) + rounds(OURS, [90], work=EIGHT)
        one, eight = figures.summary(found, ["p"], [ONE, EIGHT])
        self.assertEqual(one["peers"]["p"]["ratio"]["median"], 2.0)
        self.assertIsNone(eight["peers"]["p"]["ratio"])

    def test_works_have_keys_of_their_own(self):
        self.assertEqual(len({w.key for w in figures.WORKS}), len(figures.WORKS))
        self.assertEqual([w.length for w in figures.WORKS if w.deep], [4096, 16384])


class Table(unittest.TestCase):
    def answer(self, found):
        return {"date": "2026-01-02", "processor": "A processor", "threads": 2, "rounds": 3,
                "load": 0.01, "device": "cpu portable", "rows": figures.summary(found, ["p"], [ONE, EIGHT]),
                "peers": [{"name": "p", "version": "1.2", "description": "built here",
                           "left_out": None, "notes": ["synthetic, left out: on: it aborts"]},
                          {"name": "q", "version": "3", "description": "", "notes": [],
                           "left_out": "it is not built"}]}

    def test_has_one_line_a_work_and_every_reason(self):
        found = (rounds(OURS, [40, 20, 44]) + rounds("p", [20, 10, 0.5], "off") +
                 rounds(OURS, [200], work=EIGHT))
        answer = self.answer(found)
        answer["rows"][0]["share_of_read_limit"] = figures.spread([0.9, 0.87, 0.95])
        text = table.markdown(answer)
        lines = text.splitlines()
        self.assertIn("| tok/s | Headrace | p | ratio |", lines)
        self.assertIn("| synthetic 1B, Q4_0: decode, batch 1, context 128 | 40.0 [20.0-44.0] | "
                      "15.0 [10.0-20.0] | 2.00 [2.00-2.00] |", lines)
        self.assertIn("| synthetic 1B, Q4_0: decode, batch 8, context 128 | 200 [200-200] | "
                      "- | - |", lines)
        self.assertIn("- Headrace: cpu portable, KV in f16. Of the read limit of the same run: "
                      "synthetic decode, batch 1, context 128 90 %.", lines)
        self.assertIn("- p 1.2: built here", lines)
        self.assertIn("  Best: off: synthetic decode, batch 1, context 128.", lines)
        self.assertIn("  synthetic, left out: on: it aborts", lines)
        self.assertIn("- q 3: left out, it is not built", lines)
        self.assertTrue(any(line.startswith("- p, synthetic decode, batch 1, context 128: 1 runs")
                            for line in lines))
        widths = {line.count("|") for line in lines if line.startswith("|")}
        self.assertEqual(widths, {5})


class Ggml(unittest.TestCase):
    def test_reads_the_table_of_batched_bench(self):
        self.assertEqual(ggml.table_rows(BATCHED), {(128, 1): (113.03, 14.89),
                                                    (128, 8): (116.72, 57.17)})
        self.assertEqual(ggml.table_rows("nothing | of it"), {})

    def test_reads_the_time_of_decode_not_of_the_prompt(self):
        self.assertEqual(ggml.eval_rate(ENDED), 7.90)
        self.assertIsNone(ggml.eval_rate(ENDED.splitlines()[0]))

    def test_amx_is_off_for_llama_cpp(self):
        options = ggml.LlamaCpp().options()
        for name in ("TILE", "INT8", "BF16"):
            self.assertIn(f"-DGGML_AMX_{name}=OFF", options)
        self.assertIn("-DGGML_NATIVE=OFF", options)


class Session(unittest.TestCase):
    def written(self, engine, flash):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "saved")
            session.write(path, engine, 10, (3, 64), flash)
            return path.read_bytes()

    def test_holds_keys_and_values_of_every_layer(self):
        kv = 2 * 3 * 10 * 64 * 2
        cells = 10 * 12
        tokens = 12 + 11 * 4
        head = 4 + len("llama") + 4 + 4 + cells + 8
        self.assertEqual(len(self.written("llama.cpp", True)), tokens + head + 3 * 24 + kv)
        self.assertEqual(len(self.written("llama.cpp", False)), tokens + head + 3 * 24 + kv)

    def test_says_its_version_and_tokens(self):
        for engine, version, count in (("llama.cpp", 10, 11), ("ik_llama.cpp", 9, 10)):
            magic, said, tokens = struct.unpack_from("<III", self.written(engine, True))
            self.assertEqual((magic, said, tokens), (session.MAGIC, version, count))
            self.assertEqual(session.tokens(engine, 10), count)

    def test_values_are_finite_and_of_both_signs(self):
        values = [v for (v,) in struct.iter_unpack("<e", session.halves()[:4096])]
        self.assertTrue(all(0.125 <= abs(v) < 1 for v in values))
        self.assertTrue(min(values) < 0 < max(values))

    def test_noise_has_any_size(self):
        file = io.BytesIO()
        session.Writer(file).noise(session.TILE + 5)
        self.assertEqual(len(file.getvalue()), session.TILE + 5)


if __name__ == "__main__":
    unittest.main()
