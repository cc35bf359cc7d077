"""The comparison as markdown, ready for a README."""

TITLES = {"synthetic": "synthetic 1B, Q4_0", "smollm2": "SmolLM2-135M-Instruct, Q4_1"}


def number(value):
    """Three digits that say something."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(spread):
    if spread is None:
        return "-"
    return f"{number(spread['median'])} [{number(spread['low'])}-{number(spread['high'])}]"


def lines(rows, peers):
    """A header and one line a work; a peer has its figure and the ratio of ours to it."""
    head = ["tok/s", "Headrace"]
    for peer in peers:
        head += [peer, "ratio"]
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        cells = [f"{TITLES[row['model']]}: {row['work']}", cell(row["ours"])]
        for peer in peers:
            of = row["peers"][peer]
            cells += [cell(of["rate"]), cell(of["ratio"])]
        yield "| " + " | ".join(cells) + " |"


def settings(rows, peer):
    """Which setting was the best where: 'flash attention off: prefill of 128, ...'."""
    found = {}
    for row in rows:
        name = row["peers"][peer]["setting"]
        if name:
            found.setdefault(name, []).append(f"{row['model']} {row['work']}")
    return "; ".join(f"{name}: {', '.join(works)}" for name, works in sorted(found.items()))


def fallen(rows, peers):
    """Sentences about runs that collapsed."""
    for row in rows:
        counts = [("Headrace", row["ours_collapsed"])]
        counts += [(peer, row["peers"][peer]["collapsed"]) for peer in peers]
        for name, count in counts:
            if count:
                yield (f"- {name}, {row['model']} {row['work']}: {count} runs under 1 tok/s or "
                       "too slow to wait for, left out")


def share(rows):
    """What decode left of the memory, where bench says it."""
    known = [f"{row['model']} {row['work']} {row['share_of_read_limit']['median'] * 100:.0f} %"
             for row in rows if row.get("share_of_read_limit")]
    return f" Of the read limit of the same run: {'; '.join(known)}." if known else ""


def markdown(answer):
    """The whole answer of a comparison as text."""
    peers = [p["name"] for p in answer["peers"] if not p["left_out"]]
    rows = answer["rows"]
    out = [f"{answer['date']}, {answer['processor']}, {answer['threads']} threads, "
           f"{answer['rounds']} rounds in turns; median and range of tok/s, ratios of the same "
           f"round. Busy with other work before it began: {answer['load']:.2f} processors.", ""]
    out += lines(rows, peers)
    out.append("")
    if answer["device"]:
        out.append(f"- Headrace: {answer['device']}, KV in f16.{share(rows)}")
    for peer in answer["peers"]:
        if peer["left_out"]:
            out.append(f"- {peer['name']} {peer['version']}: left out, {peer['left_out']}")
            continue
        out.append(f"- {peer['name']} {peer['version']}: {peer['description']}")
        best = settings(rows, peer["name"])
        if best:
            out.append(f"  Best: {best}.")
        out += [f"  {note}" for note in peer["notes"]]
    out += fallen(rows, peers)
    return "\n".join(out) + "\n"
