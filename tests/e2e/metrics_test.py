"""Metrics and health of a live cluster: pages, readiness, gauges that go back, and a real Prometheus
that reads saturation and walls under load."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

import cluster
import prometheus
from cluster import BINARY, ENVIRONMENT, HANG, Process, free_ports, headrace, model, real_model
from parts import Parts
from prometheus import Page, Prometheus, get

BIG = "synthetic-1b.gguf"
SMALL = "script/base.gguf"
STATE = cluster.STATE / "metrics"  # limits of this machine, measured with patience
AGREES = 0.05


def setUpModule():
    measured = headrace("doctor", "--measure", "--json", "--state-dir", str(STATE))
    if not (STATE / "host-limits.json").exists():
        raise AssertionError(measured.err)


def metrics_of(parts, name=None):
    """Address of a worker's metrics, or of the coordinator's."""
    status = parts.status()
    if name is None:
        return status["metrics"]
    return next(w["metrics"] for w in status["workers"] if w["name"] == name)


def make_big():
    tools = pathlib.Path(__file__).resolve().parents[1] / "models"
    subprocess.run([sys.executable, str(tools / "synthetic.py"), model(BIG)], check=True,
                   stdout=subprocess.DEVNULL)
    return BIG


def prompt(tokens, start=300):
    return ",".join(str(start + i % 700) for i in range(tokens))


class Load:
    """One answer, read as it comes: when each piece of text was there."""

    def __init__(self, parts, prompt_tokens, tokens):
        self.arrivals, self.text = [], ""
        self.process = subprocess.Popen(
            [str(BINARY), "run", "--connect", parts.address, "--prompt-ids", prompt(prompt_tokens),
             "--max-tokens", str(tokens), "--ignore-eos"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)

    def read(self):
        while piece := os.read(self.process.stdout.fileno(), 1 << 16):
            self.arrivals.append((time.monotonic(), piece.count(b" ")))
        self.process.stdout.close()
        said = self.process.stderr.read().decode()
        self.process.stderr.close()
        assert self.process.wait(HANG) == 0, said

    def watch(self, page, every=0.25):
        """Reads the answer; meanwhile asks `page` again and again: [(when, gauge)]."""
        seen = []
        over = threading.Event()

        def look():
            while not over.wait(every):
                seen.append((time.monotonic(), page()))
        looker = threading.Thread(target=look)
        looker.start()
        try:
            self.read()
        finally:
            over.set()
            looker.join()
        return seen

    def rate_between(self, begin, end):
        """Words a second from `begin` to `end`."""
        window = [(at, n) for at, n in self.arrivals if begin <= at <= end]
        return sum(n for _, n in window[1:]) / (window[-1][0] - window[0][0])

    def middle(self, begin, end):
        """Words before the middle of that time."""
        return sum(n for at, n in self.arrivals if at <= (begin + end) / 2)

    def rate(self, seconds):
        """Words a second over the last `seconds` (words of the model of random weights: tokens)."""
        last = self.arrivals[-1][0]
        window = [(at, n) for at, n in self.arrivals if at >= last - seconds]
        return sum(n for _, n in window[1:]) / (last - window[0][0])


# The wall that each worker named most often of late in each phase that ran.
WALLS = ('topk by (worker, phase) (1, sum_over_time(headrace_wall{wall!="none",worker=~".+"}[2m]) > 0)')


def walls(found):
    return {(m["worker"], m["phase"]): m["wall"] for m, _ in found}


def floors(page):
    """Seconds that all that was moved, and all that was computed, takes at the measured limits."""
    peak, flops = "headrace_peak_flops_per_second", "headrace_flops_total"
    products = sum(page.total(flops, op=op) for op in ("matmul", "matmul_rope", "matmul_swiglu"))
    return (page.total("headrace_dram_bytes_total") /
            page.value("headrace_read_limit_bytes_per_second"),
            products / page.value(peak, dtype="int8") +
            (page.total(flops) - products) / page.value(peak, dtype="f32"))


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.parts = Parts(SMALL, prefill=1, decode=1).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.parts.__exit__()

    def addresses(self):
        status = self.parts.status()
        self.assertEqual(len(status["workers"]), 2)
        return [status["metrics"]] + [w["metrics"] for w in status["workers"]]

    def test_every_process_shows_itself(self):
        for address in self.addresses():
            for path in ("/live", "/ready", "/health", "/version", "/metrics"):
                with self.subTest(address=address, path=path):
                    status, _, text = get(address, path)
                    self.assertEqual(status, 200, text)

    def test_promtool_finds_nothing_to_say(self):
        promtool = str(prometheus.folder() / "promtool")
        for address in self.addresses():
            done = subprocess.run([promtool, "check", "metrics"], input=Page(address).text,
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_the_list_is_complete(self):
        listed = {m["name"]: m["type"] for m in headrace("metrics", "list", "--json").json()["metrics"]}
        shown = {}
        for address in self.addresses():
            for line in Page(address).text.splitlines():
                if line.startswith("# TYPE "):
                    _, _, name, kind = line.split()
                    shown[name] = kind
        self.assertEqual(shown, listed)

    def test_requests_are_counted_and_gauges_go_back(self):
        coordinator = metrics_of(self.parts)
        workers = [metrics_of(self.parts, n) for n in ("prefill-0", "decode-0")]
        states = ("active", "incoming", "pinned", "quarantined")
        before = Page(coordinator)
        for i in range(5):
            done = self.parts.run("--prompt-ids", prompt(100, 3 + i), "--max-tokens", "20")
            self.assertEqual(done.status, 0, done.err)
        self.parts.wait_idle()
        end = time.monotonic() + HANG
        while True:  # gauges follow within a sweep
            page = Page(coordinator)
            pages = [Page(w) for w in workers]
            held = sum(p.value("headrace_kv_blocks", state=s) for p in pages for s in states)
            held += sum(p.total(n) for p in pages for n in
                        ("headrace_sequences_running", "headrace_sequences_waiting",
                         "headrace_kv_handoff_inflight", "headrace_kv_slack_tokens"))
            held += page.value("headrace_requests_running") + page.value("headrace_requests_waiting")
            if held == 0 or time.monotonic() > end:
                break
            time.sleep(0.1)
        self.assertEqual(held, 0)
        gone = page.total("headrace_requests_total") - before.total("headrace_requests_total")
        self.assertEqual(gone, 5)
        name = "headrace_time_to_first_token_seconds_count"
        self.assertEqual(page.value(name) - before.value(name), 5)
        self.assertGreater(pages[0].value("headrace_kv_handoff_bytes_total", side="send"), 0)
        self.assertEqual(pages[0].value("headrace_kv_handoff_bytes_total", side="send"),
                         pages[1].value("headrace_kv_handoff_bytes_total", side="receive"))
        self.assertGreater(pages[1].total("headrace_dram_bytes_total", op="matmul"), 0)
        self.assertGreater(pages[0].value("headrace_step_tokens_total", phase="prefill"), 400)


class Readiness(unittest.TestCase):
    def test_a_loading_worker_lives_and_is_not_ready(self):
        port = free_ports()
        coordinator = Process("coordinator", "--listen", f"127.0.0.1:{port}", "--mesh",
                              f"127.0.0.1:{port + 1}", "--metrics", "127.0.0.1:0", "--json")
        shown = free_ports()
        worker = Process("worker", model(SMALL), "--role", "both", "--join",
                         f"127.0.0.1:{port + 1}", "--metrics", f"127.0.0.1:{shown}",
                         "--test-load-delay-ms", "3000")
        try:
            address = f"127.0.0.1:{shown}"
            end = time.monotonic() + HANG
            while time.monotonic() < end:
                try:
                    live = get(address, "/live")[0]
                    break
                except OSError:
                    time.sleep(0.05)
            self.assertEqual(live, 200)
            status, headers, text = get(address, "/ready")
            self.assertEqual(status, 503)
            self.assertIn("Retry-After", headers)
            self.assertIn("loaded", text)
            early = headrace("run", "--connect", f"127.0.0.1:{port}", "--prompt-ids", "3,4",
                             "--max-tokens", "2")  # nobody could answer: it does not wait
            self.assertEqual(early.status, 1, early.out)
            self.assertIn("no worker has joined", early.err)
            self.assertEqual(get(address, "/ready")[0], 503)  # all that while
            while get(address, "/ready")[0] != 200 and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(get(address, "/ready")[0], 200)
            whole = headrace("status", "--connect", f"127.0.0.1:{port}", "--json").json()["metrics"]
            while get(whole, "/ready")[0] != 200 and time.monotonic() < end:
                time.sleep(0.05)
            done = headrace("run", "--connect", f"127.0.0.1:{port}", "--prompt-ids", "3,4",
                            "--max-tokens", "2")
            self.assertEqual(done.status, 0, done.err)
            worker.end(signal.SIGKILL)
            while get(whole, "/ready")[0] != 503 and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(get(whole, "/ready")[0], 503)
            self.assertEqual(get(whole, "/live")[0], 200)
        finally:
            worker.end(signal.SIGKILL)
            coordinator.end()

    def test_a_draining_cluster_is_not_ready(self):
        with Parts(SMALL, prefill=0, decode=1, pd="auto") as parts:
            address = metrics_of(parts)
            load = subprocess.Popen([str(BINARY), "run", "--connect", parts.address, "--prompt-ids",
                                     "3,4,5", "--max-tokens", "100000", "--ignore-eos"],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                    env=ENVIRONMENT)
            os.read(load.stdout.fileno(), 1)  # it runs, and stands still from here on
            parts.named("both-0").process.process.send_signal(signal.SIGSTOP)
            parts.coordinator.process.send_signal(signal.SIGTERM)
            seen, end = 0, time.monotonic() + HANG
            while time.monotonic() < end:
                try:
                    seen, headers, text = get(address, "/ready")
                except OSError:
                    break  # it was quicker
                if seen == 503:
                    self.assertIn("Retry-After", headers)
                    self.assertIn('"draining":true', text)
                    break
                time.sleep(0.01)
            parts.named("both-0").process.process.send_signal(signal.SIGCONT)
            load.kill()
            load.wait()
            load.stdout.close()
            self.assertEqual(seen, 503)

    def test_none_turns_it_off(self):
        with cluster.Cluster(model(SMALL), "--metrics", "none") as c:
            status = c.status()
            self.assertEqual(status["metrics"], "")
            self.assertEqual([w["metrics"] for w in status["workers"]], ["", ""])


class Losses(unittest.TestCase):
    def targets(self, parts):
        """Name and address of each."""
        found = json.loads(get(metrics_of(parts), "/sd/prometheus")[2])
        return [(t["labels"]["worker"], t["targets"][0]) for t in found]

    def test_a_lost_worker_is_seen_to_be_down_and_a_drained_one_is_gone(self):
        with Parts(SMALL, prefill=1, decode=1) as parts, Prometheus(metrics_of(parts)) as prom:
            prom.wait("up == 1", lambda found: len(found) == 3)
            parts.wait_workers(["prefill-0", "decode-0"])
            before = self.targets(parts)
            self.assertEqual(sorted(name for name, _ in before),
                             ["coordinator", "decode-0", "prefill-0"])
            parts.named("decode-0").kill()
            down = prom.wait("up == 0", lambda found: found)
            self.assertEqual(down[0][0]["worker"], "decode-0")
            alert = prom.wait('ALERTS{alertname="HeadraceWorkerLost",alertstate="firing"}',
                              lambda found: found)
            self.assertEqual([a["reason"] for a, _ in alert], ["disconnected"])
            self.assertEqual(sorted(self.targets(parts)), sorted(before))
            parts.named("decode-0").heal()
            parts.wait_workers(["prefill-0", "decode-0"])
            prom.wait("up == 1", lambda found: len(found) == 3)  # the new one, in its place
            self.assertEqual(len(self.targets(parts)), 3)
            parts.named("prefill-0").process.end()
            end = time.monotonic() + HANG
            while len(self.targets(parts)) > 2 and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual({name for name, _ in self.targets(parts)}, {"coordinator", "decode-0"})
            page = Page(metrics_of(parts))
            self.assertEqual(page.value("headrace_workers_lost_total", reason="drained"), 1)
            self.assertEqual(page.value("headrace_workers_lost_total", reason="disconnected"), 1)


class Advertised(unittest.TestCase):
    def shown(self, *options):
        with cluster.Cluster(model(SMALL), *options) as c:
            status = c.status()
            shown = [status["metrics"]] + [w["metrics"] for w in status["workers"]]
            for address in shown:
                self.assertEqual(get(address, "/live")[0], 200)
            listed = json.loads(get(shown[0], "/sd/prometheus")[2])
            self.assertEqual(sorted(t["targets"][0] for t in listed), sorted(shown))
            return shown

    def test_a_wildcard_is_no_address(self):
        for address in self.shown("--metrics", "0.0.0.0:0", "--insecure-mesh"):
            self.assertNotIn("0.0.0.0", address)

    def test_what_is_told_is_advertised(self):
        for address in self.shown("--metrics", "127.0.0.1:0", "--metrics-advertise", "localhost"):
            self.assertTrue(address.startswith("localhost:"), address)

    def test_nothing_listens_behind_none(self):
        done = headrace("serve", model(SMALL), "--metrics", "none", "--metrics-advertise", "node7")
        self.assertEqual(done.status, 2)
        self.assertIn("--metrics-advertise", done.err)


class Walls(unittest.TestCase):
    options = ("--state-dir", str(STATE))

    def test_memory_saturation_agrees_with_bytes_over_time(self):
        about = headrace("inspect", model(make_big()), "--json", "--state-dir", str(STATE)).json()
        with Parts(BIG, prefill=0, decode=1, pd="auto", options=self.options) as parts, \
                Prometheus(metrics_of(parts)) as prom:
            trial = Load(parts, 64, 24)
            trial.read()
            port = metrics_of(parts, "both-0")
            asked, tokens, within = 24, int(trial.rate(60) * 9), []
            while len(within) <= 8:  # the machine may be faster now than it was in the trial
                # Long enough here: each gauge is of the three seconds before it, so that the edges
                # of a shorter answer would count.
                tokens = min(tokens, 3500)
                load = Load(parts, 64, tokens)
                asked += tokens
                seen_gauges = load.watch(lambda: Page(port).value(
                    "headrace_bandwidth_saturation_ratio", phase="decode"))
                begin, end = load.arrivals[0][0] + 4, load.arrivals[-1][0]
                within = [g for at, g in seen_gauges if begin <= at <= end]
                self.assertTrue(len(within) > 8 or tokens < 3500, seen_gauges)
                tokens *= 2
            gauge = sum(within) / len(within)
            page = Page(port)
            limit = page.value("headrace_read_limit_bytes_per_second")
            window = (begin - 1.5, end - 1.5)
            bytes_a_token = (about["weight_bytes_a_token"] +
                             (64 + load.middle(*window)) * about["kv_bytes_a_token"])
            outside = load.rate_between(*window) * bytes_a_token / limit
            print(f"1B: gauge {gauge:.3f}, outside {outside:.3f}, {load.rate(3):.1f} tok/s, limit "
                  f"{limit / 1e9:.1f} GB/s at {page.value('headrace_working_set_bytes') / 1e6:.0f} "
                  f"MB, raised {page.value('headrace_limit_raised_total', ):.0f} times")
            self.assertLess(abs(gauge - outside) / outside, AGREES)
            last = page.value("headrace_bandwidth_saturation_ratio", phase="decode")
            seen = prom.wait('headrace_bandwidth_saturation_ratio{worker="both-0",phase="decode"}',
                             lambda found: found and abs(found[0][1] - last) < 0.02)
            self.assertEqual(seen[0][0]["role"], "both")
            highest = prom.query("max(max_over_time(headrace_bandwidth_saturation_ratio[1h]))")
            self.assertLessEqual(highest[0][1], 1.05)
            named = walls(prom.query(WALLS))
            self.assertEqual(named["both-0", "decode"], "dram")
            # Each token is a step, the first of an answer the prompt's.
            least = 0.98 * asked * about["weight_bytes_a_token"]
            prom.wait('sum(headrace_dram_bytes_total{worker="both-0",kind="weights"})',
                      lambda found: found and found[0][1] > least)

    def test_a_small_model_is_where_its_limit_says_and_a_long_prompt_at_the_arithmetic(self):
        with Parts(os.path.relpath(real_model(), cluster.MODELS), prefill=1, decode=1,
                   options=self.options) as parts, Prometheus(metrics_of(parts)) as prom:
            for start in range(4):
                done = parts.run("--prompt-ids", prompt(1500, 300 + start), "--max-tokens", "150",
                                 "--ignore-eos")
                self.assertEqual(done.status, 0, done.err)
            found = prom.wait(WALLS, lambda f: len(walls(f)) >= 2)
            named = walls(found)
            print("135M:", named, prom.query("headrace_bandwidth_saturation_ratio > 0"),
                  prom.query("headrace_compute_saturation_ratio > 0"))
            # Where neighbours leave a small model little of a shared cache, its limit says so.
            far = json.loads((STATE / "host-limits.json").read_text())["entries"][-1]["read"][-1][1]
            limit = Page(metrics_of(parts, "decode-0")).value("headrace_read_limit_bytes_per_second")
            expected = {"dram"} if limit < 1.65 * far else set()
            expected |= {"cache"} if limit > 1.35 * far else set()
            self.assertIn(named["decode-0", "decode"], expected, f"limit {limit}, far {far}")
            # On a machine that others use a peak may have been measured when it was free, the read
            # limit when it was not: where both take as long, either may be named.
            read, compute = floors(Page(metrics_of(parts, "prefill-0")))
            expected = {"compute"} if compute > read / 1.5 else set()
            expected |= {"dram", "cache"} if read > compute / 1.5 else set()
            self.assertIn(named["prefill-0", "prefill"], expected, (read, compute))

    def test_a_slow_link_is_named(self):
        with Parts(os.path.relpath(real_model(), cluster.MODELS), prefill=1, decode=1,
                   options=self.options) as parts, Prometheus(metrics_of(parts)) as prom:
            parts.named("decode-0").kv.delay = 0.03  # of each piece: some MB a second
            for start in range(3):
                done = parts.run("--prompt-ids", prompt(600, 300 + start), "--max-tokens", "4")
                self.assertEqual(done.status, 0, done.err)
            both = {("prefill-0", "prefill"), ("decode-0", "decode")}
            named = walls(prom.wait(WALLS, lambda f: both <= set(walls(f))))
            self.assertEqual(named["prefill-0", "prefill"], "link")
            self.assertEqual(named["decode-0", "decode"], "link")  # it starves for KV
            # And then nothing: who is idle is at no wall.
            prom.wait('headrace_wall{wall="none"} == 1', lambda found: len(found) == 4)
            self.assertEqual(prom.query('headrace_wall{wall!="none"} == 1'), [])
            status = parts.status()
            for worker in status["workers"]:
                for phase in ("prefill", "decode"):
                    self.assertEqual(worker[phase], {"bandwidth": 0, "compute": 0, "wall": "none"})
            said = headrace("status", "--connect", parts.address).out
            self.assertRegex(said, r"worker +prefill-0.*; prefill idle\n")
            self.assertRegex(said, r"worker +decode-0.*; decode idle\n")

    def test_a_link_at_its_limit_is_told_with_the_limit(self):
        with Parts(os.path.relpath(real_model(), cluster.MODELS), prefill=1, decode=1,
                   options=self.options) as parts, Prometheus(metrics_of(parts)) as prom:
            parts.named("decode-0").kv.delay = 0.01  # of each piece: some more MB a second
            address, tcp = metrics_of(parts, "decode-0"), {"transport": "tcp"}
            share, limit = ("headrace_kv_link_saturation_ratio",
                            "headrace_kv_link_limit_bytes_per_second")
            self.assertEqual((Page(address).value(share, **tcp), Page(address).value(limit, **tcp)),
                             (0, 0))  # not measured yet
            for start in range(3):
                done = parts.run("--prompt-ids", prompt(600, 300 + start), "--max-tokens", "4")
                self.assertEqual(done.status, 0, done.err)
            page = Page(address)
            self.assertEqual(page.value("headrace_kv_handoffs_total", side="receive", **tcp), 3)
            # All came at one pace, which is therefore the limit, give or take a scheduler.
            pace = (page.value("headrace_kv_handoff_bytes_total", side="receive", **tcp) /
                    page.value("headrace_kv_handoff_seconds_sum", side="receive", phase="wire", **tcp))
            seen = page.value(limit, **tcp)
            print(f"slow link: {pace / 1e6:.1f} MB/s, limit {seen / 1e6:.1f} MB/s, share "
                  f"{page.value(share, **tcp):.2f}")
            self.assertTrue(0.8 * pace < seen < 2 * pace, (pace, seen))
            highest = prom.wait(f'max_over_time({share}{{worker="decode-0"}}[2m])',
                                lambda found: found and found[0][1] > 0.4)
            self.assertLessEqual(highest[0][1], 1)
            # And then nothing comes; what the link could do is remembered.
            prom.wait(share + '{worker="decode-0"} == 0', len)
            self.assertEqual(Page(address).value(limit, **tcp), seen)


if __name__ == "__main__":
    unittest.main()
