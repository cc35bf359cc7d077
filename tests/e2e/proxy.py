"""A TCP proxy for tests: in front of any link it cuts, holds one direction or both, and delays."""

import asyncio
import threading


class Proxy:
    """Forwards 127.0.0.1:port to `target` (HOST, PORT), from a thread of its own.

    cut()    closes what is open and takes no new connection until heal()
    hold(d)  lets nothing through in direction d ("up": towards the target, "down", "both") until
             heal(); nothing is lost, so whoever waits sees silence, not an end
    delay    seconds that every piece waits
    heard    what each connection said towards the target, its first bytes, while `tap` is set
    """

    HEARD_MAX = 1 << 20

    loop = None

    def __init__(self, target, port=0):
        self.target, self.delay = target, 0.0
        self.tap, self.heard = False, []
        self._cut = False
        self._open = set()
        self._gates = {}
        self._call(self._start(port))

    @classmethod
    def _call(cls, work):
        if cls.loop is None:
            cls.loop = asyncio.new_event_loop()
            threading.Thread(target=cls.loop.run_forever, daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, cls.loop).result(30)

    async def _start(self, port):
        for direction in ("up", "down"):
            self._gates[direction] = asyncio.Event()
            self._gates[direction].set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader, writer):
        if self._cut:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, back)
        self._open.add(pair)
        pumps = [asyncio.ensure_future(self._pump(reader, back, "up")),
                 asyncio.ensure_future(self._pump(there, writer, "down"))]
        await asyncio.wait(pumps)
        self._open.discard(pair)
        for end in pair:
            end.transport.abort()

    async def _pump(self, reader, writer, direction):
        heard = bytearray()
        if self.tap and direction == "up":
            self.heard.append(heard)
        try:
            while True:
                piece = await reader.read(1 << 16)
                if self.tap and len(heard) < self.HEARD_MAX:
                    heard += piece
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self._gates[direction].wait()
                if not piece:
                    writer.write_eof()
                    return
                writer.write(piece)
                await writer.drain()
        except OSError:
            writer.transport.abort()

    async def _do_cut(self):
        self._cut = True
        for pair in self._open:
            for end in pair:
                end.transport.abort()

    async def _do_hold(self, direction):
        for name, gate in self._gates.items():
            if direction in (name, "both"):
                gate.clear()

    async def _do_heal(self):
        self._cut = False
        for gate in self._gates.values():
            gate.set()

    async def _do_close(self):
        await self._do_cut()
        await self._do_heal()
        self._server.close()

    def cut(self):
        self._call(self._do_cut())

    def hold(self, direction):
        self._call(self._do_hold(direction))

    def heal(self):
        self._call(self._do_heal())

    def close(self):
        self._call(self._do_close())
