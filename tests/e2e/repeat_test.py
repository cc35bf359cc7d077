"""One 48-token greedy request again and again, between cancelled ones, others of any length, a cache
too small for all, and workers that are killed: the same bytes each time, and all blocks back.

HEADRACE_REPEATS sets how often (2000 by hand, some minutes)."""

import asyncio
import os
import random
import unittest

import rpc
from cluster import sanitized
from parts import Parts

REPEATS = int(os.environ.get("HEADRACE_REPEATS", "60" if sanitized() else "200"))
SEED = int(os.environ.get("HEADRACE_TEST_SEED", "11"))
TOKENS = 48
RESTARTS = 2 + REPEATS // 100
# Few blocks of 16 tokens: some three full contexts of the tiny model.
OPTIONS = ["--threads", "1", "--kv-block-tokens", "16", "--kv-blocks", "48"]


class Noise:
    """Requests around the one that counts: any length, many of them given up."""

    def __init__(self, port, chance):
        self.port, self.chance = port, chance
        self.over, self.cancelled, self.ended = False, 0, 0

    async def run(self):
        client = await rpc.Client.connect(self.port)
        while not self.over:
            prompt = [self.chance.randrange(1, 250) for _ in range(self.chance.choice([3, 30, 90]))]
            sampling = {"temperature": self.chance.choice([0.0, 1.0])}
            promise, stream = client.start(prompt, max_tokens=self.chance.randint(1, 80),
                                           sampling=sampling)
            task = asyncio.ensure_future(client.finish(promise, stream))
            await asyncio.wait([task], timeout=self.chance.uniform(0, 0.05)
                               if self.chance.random() < 0.5 else 30)
            if not task.done():
                self.cancelled += 1
                promise.cancel()
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.ended += 1
        client.close()


class Repeat(unittest.TestCase):
    async def ask(self, client):
        stream = await client.generate(self.prompt, max_tokens=TOKENS)
        self.assertEqual(stream.faults, [])
        self.assertEqual(len(stream.ids), TOKENS)
        return stream.ids, stream.text

    async def main(self, cluster):
        chance = random.Random(SEED)
        self.prompt = [chance.randrange(1, 250) for _ in range(48)]
        client = await rpc.Client.connect(cluster.port)
        right = await self.ask(client)
        noise = [Noise(cluster.port, random.Random(SEED + i)) for i in range(3)]
        tasks = [asyncio.create_task(n.run()) for n in noise]
        restart_at = set(chance.sample(range(REPEATS), RESTARTS))
        for i in range(REPEATS):
            if i in restart_at:
                worker = chance.choice(cluster.workers)
                worker.process.process.kill()
            self.assertEqual(await self.ask(client), right, f"repeat {i}, seed {SEED}")
            if i in restart_at:
                await asyncio.to_thread(worker.heal)
                await asyncio.to_thread(cluster.wait_workers, [w.name for w in cluster.workers])
        for n in noise:
            n.over = True
        await asyncio.gather(*tasks)
        totals = (await client.status()).totals
        print(f"{REPEATS} repeats, {sum(n.ended for n in noise)} others, "
              f"{sum(n.cancelled for n in noise)} of them cancelled, {RESTARTS} workers killed, "
              f"{totals.attempts} attempts, {totals.attemptsFailed} failed", flush=True)
        client.close()

    def test_same_bytes(self):
        with Parts("tiny/base.gguf", options=OPTIONS) as cluster:
            rpc.run(self.main(cluster))
            cluster.wait_ready()
            cluster.wait_idle()


if __name__ == "__main__":
    unittest.main(verbosity=2)
