"""One OpenVINO GenAI pipeline: python vino_bench.py SETUP

SETUP is JSON: {"model", "threads", "properties": {...}, "scheduler": {...}}. Runs under the virtual
environment that has openvino-genai. Each line of standard input asks for a run: {"batch", "prompt",
"tokens", "same"}; "same" takes the same prompt every time, so that GenAI's prefix cache has it. The
answer is a line of JSON with tokens per second of prefill and decode; the first line says that the
model is read. GenAI's continuous batching computes every step; only the clock around is ours.
"""

import json
import random
import sys
import time

import numpy
import openvino
import openvino_genai as genai

STEPS_MAX = 100000  # a pipeline that never ends a request is not waited for


def prompt(count, noise):
    """Any ids but the specials, which are the first few or among the first few hundred."""
    return [noise.randrange(1000, 30000) for _ in range(count)]


def pipeline(request):
    scheduler = genai.SchedulerConfig()
    for name, value in request["scheduler"].items():
        setattr(scheduler, name, value)
    properties = dict(request["properties"])
    properties["INFERENCE_NUM_THREADS"] = request["threads"]
    return genai.ContinuousBatchingPipeline(request["model"], scheduler, "CPU", properties)


def settings(tokens):
    config = genai.GenerationConfig()
    config.max_new_tokens = tokens
    config.ignore_eos = True
    config.do_sample = False
    return config


def measure(pipe, run, noise):
    """The first token of every request ends prefill; all steps after it are decode."""
    batch = run["batch"]
    handles = []
    begun = time.perf_counter()
    for number in range(batch):
        ids = openvino.Tensor(numpy.array([prompt(run["prompt"], noise)], dtype=numpy.int64))
        handles.append(pipe.add_request(number, ids, settings(run["tokens"] + 1)))
    waiting, given, filled, steps = set(range(batch)), 0, None, []
    for _ in range(STEPS_MAX):
        if not pipe.has_non_finished_requests():
            break
        at = time.perf_counter()
        pipe.step()
        now = time.perf_counter()
        if filled is not None:
            steps.append(now - at)
        for number, handle in enumerate(handles):
            while handle.can_read():
                given += sum(len(out.generated_ids) for out in handle.read().values())
                waiting.discard(number)
        if filled is None and not waiting:
            filled, at_filled = now - begun, given
    decoded = given - at_filled
    if decoded < batch * run["tokens"] // 2:
        raise RuntimeError("%d tokens instead of %d" % (decoded, batch * run["tokens"]))
    return {**run, "prefill_tokens_per_second": batch * run["prompt"] / filled,
            "decode_tokens_per_second": decoded / sum(steps)}


def main():
    pipe = pipeline(json.loads(sys.argv[1]))
    noise = random.Random(1)
    measure(pipe, {"batch": 1, "prompt": 16, "tokens": 2}, noise)  # warms up
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        run = json.loads(line)
        mine = random.Random(run["prompt"]) if run["same"] else noise
        print(json.dumps(measure(pipe, run, mine)), flush=True)


if __name__ == "__main__":
    main()
