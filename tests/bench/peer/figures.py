"""What is compared, and what the rounds of a comparison come to. No processes, no clocks.

A figure is tokens per second. Rounds interleave all sides, so a ratio is always of one round: what
slows the machine then slows both of its sides. A figure under COLLAPSED is no measurement of an
engine but of threads that wait for each other; it is counted, and left out of medians and ratios.
"""

import dataclasses
import statistics

COLLAPSED = 1.0  # tokens per second
TOKENS = 16      # decoded by every sequence of a run
OURS = "Headrace"


@dataclasses.dataclass(frozen=True)
class Work:
    """One line of the comparison: `length` tokens of prompt, or of context before the decoding."""
    model: str  # "synthetic" or "smollm2"
    kind: str   # "prefill" or "decode"
    batch: int
    length: int

    @property
    def deep(self):
        """The context is filled in without computing it."""
        return self.kind == "decode" and self.length >= 1024

    @property
    def key(self):
        return f"{self.model}.{self.kind}.{self.batch}.{self.length}"

    @property
    def label(self):
        if self.kind == "prefill":
            return f"prefill of {self.length}"
        return f"decode, batch {self.batch}, context {self.length}"


WORKS = [Work("synthetic", "prefill", 1, 128), Work("synthetic", "prefill", 1, 512),
         Work("synthetic", "decode", 1, 128), Work("synthetic", "decode", 8, 128),
         Work("synthetic", "decode", 1, 4096), Work("synthetic", "decode", 1, 16384),
         Work("smollm2", "prefill", 1, 128), Work("smollm2", "prefill", 1, 512),
         Work("smollm2", "decode", 1, 128), Work("smollm2", "decode", 8, 128),
         Work("smollm2", "decode", 16, 128)]


@dataclasses.dataclass(frozen=True)
class Figure:
    """What one side reached in one round under one of its settings."""
    round: int
    side: str
    setting: str
    work: Work
    rate: float


def best_of_round(figures):
    """(side, work) -> {round: Figure}: of a side's settings the fastest that did not collapse."""
    best = {}
    for figure in figures:
        if figure.rate < COLLAPSED:
            continue
        rounds = best.setdefault((figure.side, figure.work), {})
        known = rounds.get(figure.round)
        if known is None or figure.rate > known.rate:
            rounds[figure.round] = figure
    return best


def collapses(figures):
    """(side, work) -> how many runs collapsed."""
    counts = {}
    for figure in figures:
        if figure.rate < COLLAPSED:
            at = figure.side, figure.work
            counts[at] = counts.get(at, 0) + 1
    return counts


def spread(values):
    """Median, least and greatest; None without values."""
    values = list(values)
    if not values:
        return None
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def ratios(ours, theirs):
    """Ours over theirs in the rounds that have both."""
    return [ours[n].rate / theirs[n].rate for n in sorted(ours.keys() & theirs.keys())]


def usual(rounds):
    """The setting that was the fastest most often; the earlier name of equals."""
    names = [figure.setting for figure in rounds.values()]
    return max(sorted(set(names)), key=names.count) if names else None


def summary(figures, peers, works):
    """One row a work: our spread, and for each peer its spread, the ratios and what collapsed."""
    best, fallen = best_of_round(figures), collapses(figures)
    rows = []
    for work in works:
        ours = best.get((OURS, work), {})
        row = {"model": work.model, "work": work.label, "key": work.key,
               "ours": spread(f.rate for f in ours.values()),
               "ours_collapsed": fallen.get((OURS, work), 0), "peers": {}}
        for peer in peers:
            theirs = best.get((peer, work), {})
            row["peers"][peer] = {"rate": spread(f.rate for f in theirs.values()),
                                  "ratio": spread(ratios(ours, theirs)),
                                  "setting": usual(theirs),
                                  "collapsed": fallen.get((peer, work), 0)}
        rows.append(row)
    return rows
