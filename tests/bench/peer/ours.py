"""Headrace's own figures: `headrace bench decode` and `headrace bench prefill`."""

import json

import fetch
import run
from figures import TOKENS


def answer(arguments):
    said = run.output(arguments)
    if said is None:
        raise fetch.Unable(f"{arguments[0]} took too long")
    try:
        return json.loads(said[said.index("{"):])["rows"]
    except (ValueError, KeyError) as error:
        raise fetch.Unable(f"{arguments[0]} bench gave no rows: {error}") from error


class Ours:
    def __init__(self, binary):
        self.binary = binary
        self.shares = {}  # work -> shares of the read limit of the same run

    def bench(self, what, model, threads, *options):
        return answer([self.binary, "bench", what, model, "--threads", threads, "--json", *options])

    def measure(self, model, works, threads):
        rates = {}
        for work in works:
            if work.kind == "prefill":
                rows = self.bench("prefill", model, threads, "--prompt", work.length)
                rates[work] = rows[0]["tokens_per_second"]
        shallow = [w for w in works if w.kind == "decode" and not w.deep]
        for length in sorted({w.length for w in shallow}):
            self.decode(model, threads, [w for w in shallow if w.length == length],
                        ["--prompt", length], rates)
        for work in works:
            if work.deep:
                self.decode(model, threads, [work], ["--context", work.length], rates)
        return rates

    def decode(self, model, threads, works, options, rates):
        batches = ",".join(str(w.batch) for w in works)
        rows = self.bench("decode", model, threads, "--batch", batches, "--tokens", TOKENS, *options)
        by_batch = {row["batch"]: row for row in rows}
        for work in works:
            if work.batch not in by_batch:
                raise fetch.Unable(f"headrace bench decode gave no row of batch {work.batch}")
            row = by_batch[work.batch]
            rates[work] = row["decode_tokens_per_second"]
            if row.get("saturation"):
                self.shares.setdefault(work, []).append(row["saturation"])
