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


def found(rows, field, value):
    for row in rows:
        if row.get(field) == value:
            return row
    raise fetch.Unable(f"headrace bench gave no row with {field} {value}")


class Ours:
    def __init__(self, binary):
        self.binary = binary
        self.shares = {}  # work -> shares of the read limit of the same run

    def bench(self, what, model, threads, *options):
        return answer([self.binary, "bench", what, model, "--threads", threads, "--json", *options])

    def measure(self, model, work, threads):
        """Tokens per second."""
        if work.kind == "prefill":
            rows = self.bench("prefill", model, threads, "--prompt", work.length)
            return found(rows, "prompt", work.length)["tokens_per_second"]
        row = found(self.bench("decode", model, threads, "--batch", work.batch, "--tokens", TOKENS,
                               "--context" if work.deep else "--prompt", work.length),
                    "batch", work.batch)
        if row.get("saturation"):
            self.shares.setdefault(work, []).append(row["saturation"])
        return row["decode_tokens_per_second"]
