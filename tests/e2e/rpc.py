"""A coordinator's RPC from Python, for tests that need streams and their times: pycapnp on asyncio.

Programs that import this run under tests/e2e/python, which has pycapnp; inside of
`async with capnp.kj_loop()`.
"""

import asyncio
import pathlib
import random
import time

import capnp

capnp.remove_import_hook()
SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "protocol" / "api.capnp"
IMPORTS = [str(pathlib.Path(capnp.__file__).parent), "/usr/include"]
api = capnp.load(str(SCHEMA), imports=IMPORTS)


class Failed(Exception):
    """What the coordinator, or the connection, said instead of an answer."""

    def __init__(self, code, message, field=""):
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.field = code, message, field


class Stream(api.TokenSink.Server):
    """An answer as it comes: ids and text, and when each chunk came. Doubled or missing positions
    are kept in `faults`."""

    def __init__(self, on_chunk=None):
        self.ids, self.texts, self.times, self.faults, self.logprobs = [], [], [], [], []
        self.begun = time.monotonic()
        self.answer = None
        self.on_chunk = on_chunk

    async def write(self, chunk, **_):
        if chunk.position != len(self.ids):
            self.faults.append(f"position {chunk.position} after {len(self.ids)} tokens")
        self.times.append((time.monotonic(), len(chunk.ids)))
        self.ids += list(chunk.ids)
        self.texts.append(chunk.text)
        self.logprobs += [(entry.chosen, [(t.id, t.logprob) for t in entry.top])
                          for entry in chunk.logprobs]
        if self.on_chunk:
            await self.on_chunk(self)

    @property
    def text(self):
        return "".join(self.texts)


def fill_prompt(prompt, what):
    if isinstance(what, str):
        prompt.text = what
    elif what and isinstance(what[0], tuple):
        messages = prompt.init("chat").init("messages", len(what))
        for message, (role, content) in zip(messages, what):
            message.role, message.content = role, content
    else:
        prompt.init("tokens").ids = what


def fill_request(request, prompt, max_tokens=None, sampling=None, **fields):
    fill_prompt(request.prompt, prompt)
    if max_tokens is not None:
        request.maxTokens, request.hasMaxTokens = max_tokens, True
    for name, value in (sampling or {}).items():
        if name == "seed":
            request.sampling.hasSeed = True
        if name == "logitBias":
            biases = request.sampling.init("logitBias", len(value))
            for bias, (token, by) in zip(biases, value):
                bias.id, bias.bias = token, by
        else:
            setattr(request.sampling, name, value)
    if "requestId" in fields:
        request.requestId.hi, request.requestId.lo = fields.pop("requestId")
    for name, value in fields.items():
        setattr(request, name, value)


class Client:
    """One connection."""

    @staticmethod
    async def connect(port, host="127.0.0.1"):
        self = Client()
        self.stream = await capnp.AsyncIoStream.create_connection(host=host, port=port)
        self.rpc = capnp.TwoPartyClient(self.stream)
        self.server = self.rpc.bootstrap().cast_as(api.Headrace)
        return self

    def close(self):
        self.stream.close()

    def start(self, prompt, stream=None, **words):
        """(promise of the call, the stream it fills)"""
        stream = stream or Stream()
        call = self.server.generate_request()
        fill_request(call.request, prompt, **words)
        call.sink = stream
        return call.send(), stream

    @staticmethod
    async def finish(promise, stream):
        try:
            result = (await promise).result
        except capnp.KjException as e:
            raise Failed("rpc", str(e).splitlines()[0]) from None
        if result.which() != "ok":
            raise Failed(str(result.error.code), result.error.message, result.error.field)
        stream.answer = result.ok
        stream.finish = str(result.ok.finish)
        stream.texts.append(result.ok.text)
        return stream

    async def generate(self, prompt, **words):
        promise, stream = self.start(prompt, **words)
        return await self.finish(promise, stream)

    async def cancel(self, request):
        call = self.server.cancel_request()
        call.request.hi, call.request.lo = request
        return (await call.send()).found

    async def status(self):
        return (await self.server.status()).status


def random_id():
    return random.getrandbits(64), random.getrandbits(64)


def run(main):
    """asyncio.run inside of Cap'n Proto's loop."""

    async def inside():
        async with capnp.kj_loop():
            return await main

    return asyncio.run(inside())
