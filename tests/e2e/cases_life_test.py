"""More faults that others' servers had (cases_test.py): the prefix cache on block boundaries, a
hand-over given up under way, ready too early, SIGTERM in mid-sentence."""

import asyncio
import json
import signal
import time
import unittest

import rpc
from cluster import MODELS, Process, free_ports, headrace, model, sanitized
from parts import Parts, kv_advertise

SCRIPT, TINY = "script/base.gguf", "tiny/base.gguf"
REST = "BCDEFGHIJKLMNOPQRSTUVWXYZ"
BLOCKS = ["--threads", "1", "--kv-block-tokens", "16"]
RIGHT = json.loads((MODELS / "tiny" / "base.json").read_text())
SLOW = 6 if sanitized() else 1


def alphabet(count):
    return [97 + (1 + i) % 26 for i in range(count)]


class Prefixes(unittest.TestCase):
    def test_h13_a_prompt_wholly_in_the_cache(self):
        async def main(port):
            client = await rpc.Client.connect(port)
            for length, low, high in [(48, 32, 47), (47, 32, 46), (32, 16, 31), (16, 0, 15),
                                      (1, 0, 0)]:
                prompt = RIGHT["prompt_ids"][:length]
                for time_of in (1, 2):
                    stream = await client.generate(prompt, max_tokens=16)
                    if length == 48:
                        self.assertEqual(stream.ids, RIGHT["greedy_ids"])
                    elif time_of == 1:
                        first = stream.ids
                    else:
                        self.assertEqual(stream.ids, first, length)
                    cached = stream.answer.usage.cachedTokens
                    if time_of == 2:
                        self.assertTrue(low <= cached <= high, (length, cached))
            client.close()

        for pd in ("never", "always"):
            with self.subTest(pd=pd), Parts(TINY, 1, 1, BLOCKS, pd=pd) as cluster:
                rpc.run(main(cluster.port))
                cluster.wait_idle()


class HandOver(unittest.TestCase):
    def test_h15_given_up_under_way(self):
        if not kv_advertise():
            self.skipTest("needs --kv-advertise")
        prompt = RIGHT["prompt_ids"]

        async def main(cluster):
            client = await rpc.Client.connect(cluster.port)
            self.assertEqual((await client.generate(prompt, max_tokens=16)).ids, RIGHT["greedy_ids"])
            cluster.named("decode-0").kv.delay = 0.5
            for _ in range(3):
                # Other letters, so that nothing of it is cached: its hand-over is under way.
                call, given_up = client.start([i % 100 + 1 for i in prompt], max_tokens=16,
                                              cacheSalt=str(rpc.random_id()))
                ending = asyncio.ensure_future(client.finish(call, given_up))
                await asyncio.sleep(0.1)
                call.cancel()
                ending.cancel()
                second = await client.generate(prompt, max_tokens=16, cacheSalt="other")
                self.assertEqual(second.ids, RIGHT["greedy_ids"])
                await asyncio.gather(ending, return_exceptions=True)
            cluster.named("decode-0").kv.delay = 0.0
            await asyncio.to_thread(cluster.wait_idle)
            client.close()

        with Parts(TINY, 1, 1, BLOCKS) as cluster:
            rpc.run(main(cluster))
            for worker in cluster.workers:
                self.assertIsNone(worker.process.process.poll(), "a worker died")


class Ready(unittest.TestCase):
    def test_h20_not_before_a_token_can_be_made(self):
        port = free_ports()
        connect = ["--connect", f"127.0.0.1:{port}"]
        parts = [Process("coordinator", "--listen", f"127.0.0.1:{port}", "--mesh",
                         f"127.0.0.1:{port + 1}", "--pd", "always")]
        worker = lambda role, *more: Process("worker", model(SCRIPT), "--role", role, "--join",
                                             f"127.0.0.1:{port + 1}", "--threads", "1", *more)

        def status():
            outcome = headrace("status", *connect, "--json")
            return outcome.json() if outcome.status == 0 or outcome.out else None

        def wait(ready, workers):
            end = time.monotonic() + 60
            while time.monotonic() < end:
                now = status()
                if now and now["ready"] == ready and len(now["workers"]) == workers:
                    return now
                time.sleep(0.1)
            raise AssertionError(f"still {now}")

        def refused_at_once():
            outcome = headrace("run", *connect, "--json", "A")
            self.assertEqual(outcome.status, 1, outcome.out)
            self.assertIn("no worker", outcome.err)

        try:
            self.assertTrue(wait(False, 0)["why"])
            refused_at_once()
            parts.append(worker("prefill"))
            self.assertTrue(wait(False, 1)["why"])
            begun = time.monotonic()
            slow = "--test-load-delay-ms" in headrace("worker", "--help-all").out
            parts.append(worker("decode", *(["--test-load-delay-ms", "3000"] if slow else [])))
            wait(True, 2)
            if slow:
                self.assertGreater(time.monotonic() - begun, 3)
            self.assertEqual(headrace("run", *connect, "A").out, REST + "\n")
            self.assertTrue(status()["ready"])
            parts[1].end(signal.SIGKILL)
            wait(False, 1)
        finally:
            for part in reversed(parts):
                part.end()


class Leaving(unittest.TestCase):
    """H21: a stream of 400 tokens, slowed by its client, outlives the SIGTERM of any process."""

    async def one_stream(self, cluster, process, kill_twice=False):
        client = await rpc.Client.connect(cluster.port)
        told = asyncio.Event()

        async def slow(stream):
            if len(stream.ids) >= 20 and not told.is_set():
                told.set()
                process.process.send_signal(signal.SIGTERM)
                if kill_twice:
                    await asyncio.sleep(0.3)
                    process.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.01 * stream.times[-1][1])  # a client that takes 100 tokens a second

        promise, stream = client.start("a", stream=rpc.Stream(slow), max_tokens=400)
        try:
            await client.finish(promise, stream)
        finally:
            client.close()
        return stream

    def check(self, name):
        with Parts(SCRIPT, 2, 2, ["--threads", "1"]) as cluster:
            processes = ([cluster.coordinator] if name == "coordinator" else
                         [w.process for w in cluster.workers if w.role == name][:1])
            for process in processes:
                stream = rpc.run(self.one_stream(cluster, process))
                self.assertEqual(stream.ids, alphabet(400))
                self.assertEqual((stream.finish, stream.faults), ("length", []))
                self.assertEqual(process.wait(60 * SLOW), 0)
            if name != "coordinator":
                self.assertEqual(cluster.run("A").out, REST + "\n")

    def test_h21_coordinator(self):
        self.check("coordinator")

    def test_h21_prefill_worker(self):
        self.check("prefill")

    def test_h21_decode_worker(self):
        self.check("decode")

    def test_h21_new_requests_are_refused_at_once(self):
        with Parts(SCRIPT, 1, 1, ["--threads", "1"]) as cluster:
            async def main():
                work = asyncio.ensure_future(self.one_stream(cluster, cluster.coordinator))
                while cluster.coordinator.process.poll() is None and not work.done():
                    outcome = await asyncio.to_thread(cluster.run, "--json", "A")
                    if outcome.status != 0:
                        break
                self.assertFalse(work.done(), "nothing was refused while it drained")
                print(outcome.one_error(), flush=True)
                return await work

            self.assertEqual(rpc.run(main()).ids, alphabet(400))
            self.assertEqual(cluster.coordinator.wait(60 * SLOW), 0)

    def test_h21_a_second_sigterm_ends_streams_by_name(self):
        with Parts(SCRIPT, 1, 1, ["--threads", "1"]) as cluster:
            with self.assertRaises(rpc.Failed) as caught:
                rpc.run(self.one_stream(cluster, cluster.coordinator, kill_twice=True))
            print(caught.exception, flush=True)
            cluster.coordinator.wait(60 * SLOW)


if __name__ == "__main__":
    unittest.main(verbosity=2)
