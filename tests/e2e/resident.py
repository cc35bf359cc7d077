"""What a worker's process has in memory, beside the weights and the KV that it is there for."""

import concurrent.futures
import pathlib

from cluster import headrace

ANSWER = 8      # tokens
PATIENCE = 600  # seconds; only ends what hangs


def status_bytes(text):
    """The sizes of a /proc/PID/status, in bytes."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB":
            found[name] = int(words[0]) << 10
    return found


def resident(pid):
    """Resident bytes now, their peak so far, and what of them are files."""
    found = status_bytes(pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    return {"now": found["VmRSS"], "peak": found["VmHWM"], "files": found["RssFile"]}


def stated(path):
    """Bytes of the weights and of the KV of one token, as `inspect` says them."""
    said = headrace("inspect", "--json", str(path))
    if said.status != 0:
        raise AssertionError(said.err)
    model = said.json()
    return sum(model["tensor_bytes"].values()), model["kv_bytes_a_token"]


def prompt(tokens, salt):
    """Token ids that no prompt of another salt begins with."""
    return ",".join(str(300 + (salt * 7919 + i * 104729) % 19997) for i in range(tokens))


def fill(parts, tokens, batch, length):
    """Prompts, `batch` at a time, until they and their answers have had room for `tokens` tokens.

    Each takes `length` tokens with its answer. With the prefix cache on and a pool of `tokens`, every
    KV block has then been written."""
    def ask(salt):
        return headrace("run", "--connect", parts.address, "--prompt-ids",
                        prompt(length - ANSWER, salt), "--max-tokens", str(ANSWER), "--ignore-eos",
                        timeout=PATIENCE)
    with concurrent.futures.ThreadPoolExecutor(batch) as pool:
        for said in pool.map(ask, range(-(-tokens // length) + batch)):
            if said.status != 0:
                raise AssertionError(said.err)


def written(parts, name):
    """KV blocks of a worker that hold something, and all of them."""
    blocks = next(w for w in parts.status()["workers"] if w["name"] == name)["blocks"]
    return blocks["total"] - blocks["free"], blocks["total"]


def over(got, wanted):
    """The share by which more is resident than weights and KV take."""
    return got / wanted - 1
