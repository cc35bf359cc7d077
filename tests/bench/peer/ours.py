"""Headrace's own figures: `headrace bench decode` and `headrace bench prefill`."""

import json

import fetch
import run
from figures import TOKENS


def answer(arguments):
    """What bench says as JSON."""
    said = run.output(arguments)
    if said is None:
        raise fetch.Unable(f"{arguments[0]} took too long")
    try:
        return json.loads(said[said.index("{"):])
    except ValueError as error:
        raise fetch.Unable(f"{arguments[0]} bench gave no JSON: {error}") from error


def row_of(report, field, value):
    for row in report.get("rows", []):
        if row.get(field) == value:
            return row
    raise fetch.Unable(f"headrace bench gave no row with {field} {value}")


def rate_of(row, field):
    if not row.get(field):
        raise fetch.Unable(f"headrace bench gave no {field}")
    return row[field]


class Ours:
    def __init__(self, binary, device):
        self.binary, self.device = binary, device
        self.computed_by = set()  # devices as bench names them
        self.shares = {}          # work -> shares of the read limit of the same run

    def bench(self, what, model, threads, *options):
        report = answer([self.binary, "bench", what, model, "--threads", threads, "--device",
                         self.device, "--json", *options])
        self.computed_by.add(report.get("device", "a device without a name"))
        return report

    def measure(self, model, work, threads):
        """Tokens per second."""
        if work.kind == "prefill":
            report = self.bench("prefill", model, threads, "--prompt", work.length)
            return rate_of(row_of(report, "prompt", work.length), "prefill_tokens_per_second")
        report = self.bench("decode", model, threads, "--batch", work.batch, "--tokens", TOKENS,
                            "--context" if work.deep else "--prompt", work.length)
        row = row_of(report, "batch", work.batch)
        if row.get("saturation"):
            self.shares.setdefault(work, []).append(row["saturation"])
        return rate_of(row, "decode_tokens_per_second")
