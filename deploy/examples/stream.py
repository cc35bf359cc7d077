"""Streams one answer with pycapnp, and goes on with it when the connection is lost.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python stream.py HOST:PORT PROMPT [--chat] [--max-tokens N] [--cancel-after N]

The text on stdout is the same whether the connection was lost in between or not. Exit status:
0 the answer is complete, 3 it was cancelled as asked for, 1 an error, 2 wrong usage.
"""

import argparse
import asyncio
import pathlib
import secrets
import sys
import time

import capnp

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "protocol" / "api.capnp"
PYTHON_CAPNP = pathlib.Path(capnp.__file__).resolve().parents[1]  # has capnp/c++.capnp
api = capnp.load(str(SCHEMA), imports=[str(PYTHON_CAPNP)])

RESUME_WITHIN = 30  # seconds, as long as a coordinator keeps a request whose client is lost
SILENCE = 5         # seconds without an answer to `hello`: the connection is lost


class NoCoordinator(Exception):
    """Nobody who speaks this protocol answers at the address."""


class Sink(api.TokenSink.Server):
    """Takes the chunks. Returning from `write` is the credit for more."""

    def __init__(self, answer):
        self.answer = answer

    async def write(self, chunk, **_):
        if self.answer:
            self.answer.take(chunk)

    def close(self):
        """What a lost connection still had comes again over the next one."""
        self.answer = None


class Answer:
    """What has come so far: `next` is the position that comes now."""

    def __init__(self):
        self.next = 0
        self.cancel_after = 0
        self.enough = asyncio.Event()

    def take(self, chunk):
        if chunk.position < self.next:
            return  # had it before the connection was lost
        assert chunk.position == self.next, "a gap in the stream"
        self.next += len(chunk.ids)
        sys.stdout.write(chunk.text)
        sys.stdout.flush()
        if self.cancel_after and self.next >= self.cancel_after:
            self.enough.set()


def request_of(options, request_id):
    request = api.GenerateRequest.new_message()
    if options.chat:
        message = request.prompt.init("chat").init("messages", 1)[0]
        message.role, message.content = "user", options.prompt
    else:
        request.prompt.text = options.prompt
    if options.max_tokens is not None:
        request.maxTokens, request.hasMaxTokens = options.max_tokens, True
    request.requestId.hi, request.requestId.lo = request_id
    request.resumable = True  # a lost client is no cancel
    return request


async def watch(headrace):
    """Ends when the coordinator gives no sign of life: a connection may die without a word."""
    while True:
        await asyncio.sleep(SILENCE / 5)
        await asyncio.wait_for(headrace.hello(client="stream.py"), SILENCE)


async def greet(headrace):
    """Other ports, of the mesh or of metrics, take a connection too and then say nothing of use."""
    try:
        await asyncio.wait_for(headrace.hello(client="stream.py"), SILENCE)
    except (capnp.KjException, asyncio.TimeoutError):
        raise NoCoordinator("no answer of a coordinator: is that its port for clients, not the one "
                            "of mesh or metrics?") from None


async def follow(options, answer, request_id, begun):
    """One connection: the end of the answer, or an exception when the connection is lost."""
    host, port = options.address
    stream = await asyncio.wait_for(
        capnp.AsyncIoStream.create_connection(host=host, port=port), SILENCE)
    client = capnp.TwoPartyClient(stream)
    headrace = client.bootstrap().cast_as(api.Headrace)
    try:
        if not begun.is_set():
            await greet(headrace)
        return await follow_over(headrace, options, answer, request_id, begun)
    finally:
        client.close()
        stream.close()


async def follow_over(headrace, options, answer, request_id, begun):
    sink = Sink(answer)
    if begun.is_set():
        call = headrace.resume(request={"hi": request_id[0], "lo": request_id[1]},
                               next=answer.next, sink=sink)
    else:
        call = headrace.generate(request=request_of(options, request_id), sink=sink)
        begun.set()

    async def ended():
        return (await call).result.as_builder()

    tasks = [asyncio.ensure_future(ended()), asyncio.ensure_future(watch(headrace)),
             asyncio.ensure_future(answer.enough.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return tasks[0].result()
        if answer.enough.is_set():
            await headrace.cancel(request={"hi": request_id[0], "lo": request_id[1]})
            return None
        return tasks[1].result()  # raises why
    finally:
        sink.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def stream_answer(options):
    answer = Answer()
    answer.cancel_after = options.cancel_after
    request_id = (secrets.randbits(64), secrets.randbits(64) | 1)
    begun = asyncio.Event()
    lost, seen, pause = None, 0, 0.05
    while True:
        try:
            return answer, await follow(options, answer, request_id, begun)
        except (capnp.KjException, OSError, asyncio.TimeoutError) as problem:
            if not begun.is_set():
                raise  # nobody there: nothing to go on with
            if lost is None or answer.next > seen:
                lost, seen, pause = time.monotonic(), answer.next, 0.05
            if time.monotonic() - lost > RESUME_WITHIN:
                raise problem
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1)


def report(answer, end):
    if end is None:
        print(f"stream.py: cancelled after {answer.next} tokens", file=sys.stderr)
        return 3
    if end.which() == "error":
        print(f"stream.py: {end.error.code}: {end.error.message}", file=sys.stderr)
        return 1
    print(end.ok.text)  # what was held back
    print(f"stream.py: {end.ok.usage.completionTokens} tokens, finish {end.ok.finish}",
          file=sys.stderr)
    return 0


def address(text):
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"takes HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


def tokens(text):
    if not text.isdecimal() or not 0 < int(text) < 1 << 32:
        raise argparse.ArgumentTypeError(f"takes a number of tokens, not {text!r}")
    return int(text)


async def main():
    parser = argparse.ArgumentParser(description="Stream one answer of a Headrace cluster.")
    parser.add_argument("address", metavar="HOST:PORT", type=address)
    parser.add_argument("prompt")
    parser.add_argument("--chat", action="store_true")
    parser.add_argument("--max-tokens", type=tokens, metavar="N")
    parser.add_argument("--cancel-after", type=tokens, default=0, metavar="N")
    options = parser.parse_args()
    try:
        answer, end = await stream_answer(options)
    except (NoCoordinator, capnp.KjException, OSError, ValueError, asyncio.TimeoutError) as problem:
        print(f"stream.py: {':'.join(map(str, options.address))}: "
              f"{str(problem) or 'no answer in time'}", file=sys.stderr)
        return 1
    return report(answer, end)


if __name__ == "__main__":
    sys.exit(asyncio.run(capnp.run(main())))
