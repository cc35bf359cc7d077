"""Faults that others' servers had, over RPC and the command line: what each request must give, and
after each the same server answers `A` and holds nothing. Names H03, ... are those of the cases."""

import asyncio
import math
import unittest

import rpc
from cluster import Cluster, model, sanitized

SCRIPT = "script/base.gguf"
REST = "BCDEFGHIJKLMNOPQRSTUVWXYZ"
DRAWS, TOLERANCE = (120, 0.1) if sanitized() else (400, 0.05)
MANY, CLOSE = (400, 0.06) if sanitized() else (4000, 0.025)


def digits(stream):
    """What followed each `(`."""
    return [chr(i) for i in stream.ids if chr(i) in "1234"]


class Case(unittest.TestCase):
    options = ["--pd", "always", "--threads", "1"]

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(model(SCRIPT), *cls.options)
        cls.addClassCleanup(cls.cluster.__exit__)

    def tearDown(self):
        self.assertEqual(self.cluster.run("A").out, REST + "\n")
        self.cluster.wait_idle()

    def rpc(self, work):
        """Runs work(client) on a connection of its own."""

        async def main():
            client = await rpc.Client.connect(self.cluster.port)
            try:
                return await work(client)
            finally:
                client.close()

        return rpc.run(main())

    async def refused(self, client, prompt, code="invalid", part="", **words):
        with self.assertRaises(rpc.Failed) as caught:
            await client.generate(prompt, **words)
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertIn(part, caught.exception.message)

    def cli(self, *words, status=0):
        outcome = self.cluster.run("--json", *words)
        self.assertEqual(outcome.status, status, outcome.err + outcome.out)
        return outcome.json() if status == 0 else outcome.one_error()


async def draws(client, count, first_seed=0, **sampling):
    """Shares of 1, 2, 3, 4 as the first token after `(`, a request each, some at a time."""
    room = asyncio.Semaphore(32)

    async def one(seed):
        async with room:
            stream = await client.generate("(", max_tokens=1, sampling={
                "temperature": 1.0, "seed": seed, **sampling})
            return stream.text

    got = await asyncio.gather(*(one(first_seed + i) for i in range(count)))
    return {c: got.count(c) / count for c in "1234"}


class Words(Case):
    def test_h03_stop_texts(self):
        async def work(client):
            a = await client.generate("A", stop=["GHI"])
            self.assertEqual((a.text, a.finish), ("BCDEF", "stop"))
            self.assertFalse([t for t in a.texts if "G" in t])
            b = await client.generate("A", stop=["GHX"])
            self.assertEqual((b.text, b.finish), (REST, "stop"))
            c = await client.generate("A", stop=["GHI"], max_tokens=6)
            self.assertEqual((c.text, c.finish), ("BCDEFG", "length"))
            d = await client.generate("[", stop=["N"])
            self.assertEqual((d.text, d.finish), ("E", "stop"))
            e = await client.generate("A", stop=["GHI"], includeStop=True)
            self.assertEqual((e.text, e.finish), ("BCDEFGHI", "stop"))
            await self.refused(client, "A", stop=[""])
            await self.refused(client, "A", stop=["x"] * 17)
            await self.refused(client, "A", stop=["x" * 257])

        self.rpc(work)
        for words, text, finish in [(["--stop", "GHI"], "BCDEF", "stop"),
                                    (["--stop", "GHX"], REST, "stop"),
                                    (["--stop", "GHI", "--max-tokens", "6"], "BCDEFG", "length"),
                                    (["--stop", "GHI", "--include-stop"], "BCDEFGHI", "stop")]:
            answer = self.cli(*words, "A")
            self.assertEqual((answer["text"], answer["finish"]), (text, finish))
        self.assertEqual(self.cli("--stop", "N", "[")["text"], "E")

    def test_h05_no_tokens(self):
        async def work(client):
            try:
                stream = await client.generate("AB", max_tokens=0)
                self.assertEqual((stream.text, stream.ids, stream.finish), ("", [], "length"))
            except rpc.Failed as e:
                self.assertEqual(e.code, "invalid")

        self.rpc(work)
        outcome = self.cluster.run("--json", "--max-tokens", "0", "AB")
        if outcome.status == 0:
            self.assertEqual(outcome.json()["usage"]["completion_tokens"], 0)

    def test_h08_temperatures(self):
        async def work(client):
            for t in [0.0, 1e-38, 1e-6, 1e-4]:
                stream = await client.generate("(", max_tokens=5,
                                               sampling={"temperature": t, "logprobs": 2})
                self.assertEqual(stream.text, "1(1(1", t)
                for chosen, top in stream.logprobs:
                    self.assertTrue(math.isfinite(chosen) and all(math.isfinite(p) for _, p in top))
            for t in [-1.0, 1e9, math.inf, math.nan]:
                await self.refused(client, "(", sampling={"temperature": t}, part="temperature")

        self.rpc(work)
        self.assertEqual(self.cli("--max-tokens", "1", "(")["text"], "1")
        for t in ["-1", "1e9", "abc", "1e400", "nan"]:
            outcome = self.cluster.run(f"--temperature={t}", "(")
            self.assertIn(outcome.status, (1, 2), t)
            self.assertIn("temperature", outcome.one_error())

    def test_h09_ranges_of_sampling(self):
        async def work(client):
            for k in [9999999, 0, -1]:
                self.assertTrue(all((await draws(client, DRAWS, topK=k)).values()), k)
            self.assertEqual((await draws(client, DRAWS, topK=1))["1"], 1)
            two = await draws(client, DRAWS, topK=2)
            self.assertEqual((two["3"], two["4"]), (0, 0))
            self.assertEqual((await draws(client, DRAWS, topP=0.49))["1"], 1)
            part = await draws(client, DRAWS, topP=0.79)
            self.assertEqual((part["3"], part["4"]), (0, 0))
            self.assertAlmostEqual(part["1"], 5 / 8, delta=TOLERANCE)
            await self.refused(client, "(", sampling={"topP": 0.0}, part="top_p")
            await self.refused(client, "(", sampling={"topP": 1.5}, part="top_p")
            await self.refused(client, "(", sampling={"logprobs": 1000}, part="logprobs")
            # Both in one batch are as each alone.
            each = [{"temperature": 1.0, "seed": 3, "topK": 64}, {"temperature": 0.0}]
            alone = [(await client.generate("(", max_tokens=60, sampling=s)).ids for s in each]
            both = await asyncio.gather(*(client.generate("(", max_tokens=60, sampling=s)
                                          for s in each))
            self.assertEqual([s.ids for s in both], alone)

        self.rpc(work)
        for words in [["--top-p", "1.5"], ["--top-p", "0", "--temperature", "1"],
                      ["--logprobs", "1000"]]:
            self.assertIn(self.cluster.run("--json", *words, "(").status, (1, 2))

    def test_h10_bias_and_stop_tokens(self):
        async def work(client):
            for bias in [(261, 5.0), (-1, 5.0), (49, 101.0), (49, math.nan)]:
                await self.refused(client, "(", sampling={"logitBias": [bias]})
            await self.refused(client, "(", sampling={"logitBias": [(49, 1.0)] * 2})
            await self.refused(client, "(", stopTokens=[4000000])
            for bias, text in [((49, -100.0), "2"), ((52, 100.0), "4")]:
                stream = await client.generate("(", max_tokens=1, sampling={
                    "logitBias": [bias], "logprobs": 1})
                self.assertEqual(stream.text, text)
                # The probability reported is that after the bias.
                right = math.log(0.3 / 0.5) if text == "2" else 0.0
                self.assertAlmostEqual(stream.logprobs[0][0], right, delta=0.05)
            early = await client.generate("A", stopTokens=[ord("F")])
            self.assertEqual((early.text, early.finish), ("BCDE", "stop"))

        self.rpc(work)
        for bias in ["261=5", "-1=5", "x=5", "49=101"]:
            self.assertIn(self.cluster.run("--json", f"--logit-bias={bias}", "(").status, (1, 2))
        self.assertEqual(self.cli("--logit-bias=49=-100", "--max-tokens", "1", "(")["text"], "2")

    def test_h12_one_id_twice(self):
        async def work(client):
            same = rpc.random_id()
            running = asyncio.Event()

            async def started(_):
                running.set()

            first, stream = client.start("a", stream=rpc.Stream(started), max_tokens=200,
                                         requestId=same)
            done = asyncio.ensure_future(client.finish(first, stream))
            await running.wait()
            second = asyncio.ensure_future(client.generate("A", requestId=same))
            outcome = (await asyncio.gather(second, return_exceptions=True))[0]
            if isinstance(outcome, rpc.Failed):
                self.assertEqual(outcome.code, "invalid")
            else:
                self.assertEqual(outcome.text, REST)
            await done
            self.assertEqual(stream.ids, [97 + (1 + i) % 26 for i in range(200)])
            # Free again after a cancel, at once.
            call, gone = client.start("a", max_tokens=400, requestId=same)
            call.cancel()
            other = await client.generate("A", requestId=rpc.random_id())
            self.assertEqual(other.text, REST)

        self.rpc(work)
        self.assertIn(self.cluster.run("--request-id", "1" * 100_000, "A").status, (1, 2))

    def test_h12_cancelling_the_second_leaves_the_first_alone(self):
        async def work(client):
            # The first answer is held open by its reader until the second one is over.
            running, go_on = asyncio.Event(), asyncio.Event()

            async def hold(_):
                running.set()
                await go_on.wait()

            same, other = rpc.random_id(), rpc.random_id()
            first, stream = client.start("a", stream=rpc.Stream(hold), max_tokens=200,
                                         requestId=same)
            done = asyncio.ensure_future(client.finish(first, stream))
            await running.wait()
            # Of the same id: it is refused, or given up before that is known.
            for wait in (0, 0.3):
                second, _ = client.start("A", requestId=same)
                await asyncio.sleep(wait)
                second.cancel()
            # Of another id, under way, ended by that id.
            begun = asyncio.Event()

            async def hold_second(_):
                begun.set()
                await go_on.wait()

            second, taken = client.start("a", stream=rpc.Stream(hold_second), max_tokens=200,
                                         requestId=other)
            ended = asyncio.ensure_future(client.finish(second, taken))
            await begun.wait()
            self.assertTrue(await client.cancel(other))
            self.assertFalse(await client.cancel(other))
            self.assertFalse(done.done())
            go_on.set()
            with self.assertRaises(rpc.Failed) as failed:
                await ended
            self.assertEqual(failed.exception.code, "cancelled")
            await done
            self.assertEqual(stream.ids, [97 + (1 + i) % 26 for i in range(200)])
            self.assertEqual(stream.faults, [])
            # Its id is free again.
            self.assertEqual((await client.generate("A", requestId=same)).text, REST)

        self.rpc(work)

    def test_h22_penalties(self):
        cases = {(): "111111", ("presencePenalty", 2.0): "123111",
                 ("frequencyPenalty", 1.0): "121321", ("repetitionPenalty", 1.5): "211111"}

        async def work(client):
            for penalty, right in cases.items():
                sampling = {penalty[0]: penalty[1]} if penalty else {}
                # A bracket follows whatever digit came: only the digits are of interest.
                sampling["logitBias"] = []
                stream = await client.generate("1(1(1(", max_tokens=11, sampling=sampling)
                self.assertEqual("".join(digits(stream)), right, penalty)

        self.rpc(work)
        told = self.cli("--presence-penalty", "2", "--max-tokens", "11", "1(1(1(")["text"]
        self.assertEqual("".join(c for c in told if c in "1234"), "123111")


class Lives(Case):
    def test_h11_a_seed_is_a_seed(self):
        async def ask(client, seed=None):
            sampling = {"temperature": 1.0} | ({} if seed is None else {"seed": seed})
            return (await client.generate("(", max_tokens=60, sampling=sampling)).ids

        async def work(client):
            alone = await ask(client, 42)
            crowd = await asyncio.gather(ask(client, 42), *(ask(client) for _ in range(7)))
            last = await asyncio.gather(*(ask(client) for _ in range(7)), ask(client, 42))
            twice = await asyncio.gather(ask(client, 42), ask(client, 42))
            for ids in (crowd[0], last[-1], *twice):
                self.assertEqual(ids, alone)
            self.assertNotEqual(await ask(client, 43), alone)
            self.assertNotEqual(await ask(client), await ask(client))
            got = await draws(client, MANY, first_seed=1000)
            for digit, share in zip("1234", (0.5, 0.3, 0.15, 0.05)):
                self.assertAlmostEqual(got[digit], share, delta=CLOSE)

        self.rpc(work)

    def test_h14_fifty_hang_up(self):
        before = self.cluster.status()["totals"]["cancelled"]

        async def one():
            client = await rpc.Client.connect(self.cluster.port)
            enough = asyncio.Event()

            async def count(stream):
                if len(stream.times) >= 3:
                    enough.set()
                    await asyncio.sleep(3600)  # no more credit: it cannot end by itself

            promise, _ = client.start("a", stream=rpc.Stream(count), max_tokens=500)
            ending = asyncio.ensure_future(rpc.Client.finish(promise, _))
            await asyncio.wait([asyncio.ensure_future(enough.wait()), ending],
                               return_when=asyncio.FIRST_COMPLETED)
            client.close()
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)

        async def main():
            await asyncio.gather(*(one() for _ in range(50)))

        rpc.run(main())
        self.cluster.wait_idle()
        self.assertEqual(self.cluster.status()["totals"]["cancelled"] - before, 50)

    def test_h23_seventy_megabytes(self):
        async def work(client):
            other = await rpc.Client.connect(self.cluster.port)
            with self.assertRaises(rpc.Failed) as caught:
                await client.generate("a" * (70 << 20))
            self.assertTrue(caught.exception.message)
            self.assertEqual((await other.generate("A")).text, REST)
            fresh = await rpc.Client.connect(self.cluster.port)
            self.assertEqual((await fresh.generate("A")).text, REST)
            await self.refused(fresh, [1] * 200_000, code="contextExceeded")
            self.assertEqual((await fresh.generate("A")).text, REST)
            for one in (fresh, other):
                one.close()

        self.rpc(work)


class LocalWords(Words):
    """The same where the decode worker computes the prompt."""

    options = ["--pd", "never", "--threads", "1"]


if __name__ == "__main__":
    unittest.main(verbosity=2)
