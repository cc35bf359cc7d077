"""Strangers on the mesh and KV ports of a live cluster: silence, noise, floods, and what was really
said by a worker said again. The cluster serves on, and its answers stay right."""

import json
import os
import pathlib
import random
import socket
import struct
import threading
import time
import unittest

from cluster import MODELS, sanitized
from parts import Parts, kv_advertise

RIGHT = json.loads((MODELS / "tiny" / "base.json").read_text())
ASK = ["--json", "--max-tokens", "16", "--prompt-ids", ",".join(map(str, RIGHT["prompt_ids"]))]
FLOOD = 1000
HELLO_WITHIN = 1.0 * (8 if sanitized() else 1)  # of a fresh connection
SLACK = 4


def frame(body):
    return struct.pack("<I", len(body)) + body


def connect(port):
    s = socket.socket()
    s.settimeout(60)
    s.connect(("127.0.0.1", port))
    return s


def read_to_end(s):
    """What the other side says until it closes."""
    said = b""
    try:
        while piece := s.recv(65536):
            said += piece
    except OSError:
        pass
    s.close()
    return said


def first_frame(heard):
    size = struct.unpack("<I", heard[:4])[0]
    return bytes(heard[:4 + size])


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_mb(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


class Strangers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Parts("tiny/base.gguf", 1, 1, ["--threads", "1", "--kv-block-tokens", "16"])
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.mesh_port = cls.cluster.port + 1
        cls.chance = random.Random(5)
        cls.answer(cls)

    def answer(self):
        outcome = self.cluster.run(*ASK)
        assert outcome.status == 0, outcome.err
        assert outcome.json()["ids"] == RIGHT["greedy_ids"], outcome.out

    def tearDown(self):
        self.cluster.wait_ready()
        self.answer()
        self.cluster.wait_idle()

    def ports(self):
        """(port, pid) of the coordinator's mesh and of a worker's KV channel."""
        kv = next(w["kv"] for w in self.cluster.status()["workers"] if w["name"] == "decode-0")
        decode = self.cluster.named("decode-0")
        port = decode.kv.target[1] if decode.kv else int(kv.rsplit(":", 1)[1])
        return [(self.mesh_port, self.cluster.coordinator.pid), (port, decode.process.pid)]

    def test_silence_is_put_out(self):
        for port, _ in self.ports():
            begun = time.monotonic()
            read_to_end(connect(port))
            self.assertLess(time.monotonic() - begun, (HELLO_WITHIN + 1) * SLACK)

    def test_a_flood_of_silent_connections(self):
        for port, pid in self.ports():
            before, memory = open_files(pid), resident_mb(pid)
            flood = [connect(port) for _ in range(FLOOD)]
            self.answer()  # others are served meanwhile
            for s in flood:
                s.close()
            end = time.monotonic() + 20
            while open_files(pid) > before + 4 and time.monotonic() < end:
                time.sleep(0.1)
            self.assertLessEqual(open_files(pid), before + 4)
            self.assertLess(resident_mb(pid) - memory, 64 * (4 if sanitized() else 1))

    def test_announcements_take_no_memory(self):
        for port, pid in self.ports():
            memory = resident_mb(pid)
            strangers = [connect(port) for _ in range(100)]
            for s in strangers:
                try:
                    s.sendall(struct.pack("<I", self.chance.choice([8 << 20, 250_000, 1 << 31])))
                except OSError:
                    pass
            time.sleep(0.3)
            self.assertLess(resident_mb(pid) - memory, 40 * (4 if sanitized() else 1))
            for s in strangers:
                read_to_end(s)

    def test_noise(self):
        for port, _ in self.ports():
            for _ in range(60):
                s = connect(port)
                body = self.chance.randbytes(self.chance.randint(0, 300))
                try:
                    s.sendall(self.chance.choice([frame(body), body, frame(body) * 20]))
                    s.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                read_to_end(s)

    def test_a_register_said_again(self):
        """By a stranger, and twice on one link: whoever comes last under one name is the worker, and
        a worker that was put out comes back by itself."""
        worker = self.cluster.named("prefill-0")
        worker.mesh.tap = True
        worker.mesh.cut()
        worker.mesh.heal()
        self.cluster.wait_workers(["prefill-0", "decode-0"])
        worker.mesh.tap = False
        said = first_frame(worker.mesh.heard[-1])
        for again in (said, said + said):
            s = connect(self.mesh_port)
            s.sendall(again)
            time.sleep(0.3)
            s.close()
            self.cluster.wait_workers(["prefill-0", "decode-0"])
            self.answer()

    def test_a_hello_said_again(self):
        """Of a hand-off that is over, of one that runs, and with one bit changed."""
        decode = self.cluster.named("decode-0")
        if not kv_advertise():
            self.skipTest("needs --kv-advertise")
        decode.kv.tap = True
        # A pair whose hand-off failed (the flood) is left alone for a while: until it is tried again.
        end, salt = time.monotonic() + 60, 0
        while not decode.kv.heard and time.monotonic() < end:
            self.cluster.run(*ASK, "--cache-salt", f"tapped {salt}")
            salt += 1
            time.sleep(0.2)
        said = first_frame(decode.kv.heard[-1])
        port = decode.kv.target[1]
        for bit in (None, len(said) - 1, 20):
            hello = bytearray(said)
            if bit is not None:
                hello[bit] ^= 1
            s = connect(port)
            s.sendall(hello)
            self.assertNotIn(b"\x02", read_to_end(s)[4:5])  # no HelloAck
        # Under way: the hand-over is slow, and a second hello comes meanwhile.
        decode.kv.delay = 0.3
        outcome = []
        asking = threading.Thread(target=lambda: outcome.append(
            self.cluster.run(*ASK, "--cache-salt", "second")))
        count = len(decode.kv.heard)
        asking.start()
        end = time.monotonic() + 30
        while time.monotonic() < end and not (len(decode.kv.heard) > count and
                                              len(decode.kv.heard[-1]) > 4):
            time.sleep(0.01)
        s = connect(port)
        s.sendall(first_frame(decode.kv.heard[-1]))
        read_to_end(s)
        asking.join()
        decode.kv.delay, decode.kv.tap = 0.0, False
        self.assertEqual(outcome[0].status, 0, outcome[0].err)
        self.assertEqual(outcome[0].json()["ids"], RIGHT["greedy_ids"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
