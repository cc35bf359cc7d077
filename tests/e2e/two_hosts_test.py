"""Two hosts: network namespaces joined by a veth pair. Coordinator and prefill worker on one, decode
worker on the other; the link between them is shaped, cut, cut one way, and healed."""

import os
import subprocess
import time
import unittest

from cluster import Cluster, Process, headrace, real_model

HERE, THERE = "10.77.41.1", "10.77.41.2"
ASK = ["--json", "--max-tokens", "24", "--prompt-ids", ",".join(str(i) for i in range(300, 364))]
KNOWN = 1.5         # seconds until a silent worker counts as dead
SLACK = 8  # times that: sanitizers, and a machine with other work; TCP alone would take minutes


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts:
    """Two namespaces and the link between them."""

    def __init__(self):
        mark = os.getpid() % 100_000
        self.names = [f"headrace-{mark}-{i}" for i in (1, 2)]
        self.ends = [f"hr{mark}v{i}" for i in (1, 2)]
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1])
        for name, end, address in zip(self.names, self.ends, (HERE, THERE)):
            ip("link", "set", end, "netns", name)
            self.on(name, "ip", "addr", "add", f"{address}/24", "dev", end)
            self.on(name, "ip", "link", "set", end, "up")
            self.on(name, "ip", "link", "set", "lo", "up")

    @staticmethod
    def on(name, *words):
        subprocess.run(["ip", "netns", "exec", name, *words], check=True, capture_output=True)

    def prefix(self, host):
        return "ip", "netns", "exec", self.names[host]

    def shape(self, rate):
        for name, end in zip(self.names, self.ends):
            self.on(name, "tc", "qdisc", "replace", "dev", end, "root", "tbf", "rate", rate,
                    "burst", "32kbit", "latency", "400ms")

    def unshape(self):
        for name, end in zip(self.names, self.ends):
            self.on(name, "tc", "qdisc", "del", "dev", end, "root")

    def link(self, state):
        self.on(self.names[1], "ip", "link", "set", self.ends[1], state)

    def deaf(self, host, begin):
        """Whatever `host` says is lost on the way; what it is told arrives."""
        other = (THERE, HERE)[host]
        self.on(self.names[host], "ip", "route", "add" if begin else "del", "blackhole",
                f"{other}/32")

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def permitted():
    try:
        Hosts().close()
        return None
    except (OSError, subprocess.CalledProcessError) as e:
        return f"network namespaces are not permitted here: {getattr(e, 'stderr', '') or e}"


class TwoHosts(Cluster):
    def __init__(self, hosts):
        self.prefix = hosts.prefix(0)
        self.address, self.size = f"{HERE}:7400", 2
        mesh = f"{HERE}:7401"
        self.parts = [
            Process("coordinator", "--listen", self.address, "--mesh", mesh, "--pd", "always",
                    "--insecure-mesh", prefix=hosts.prefix(0)),
            Process("worker", real_model(), "--role", "prefill", "--name", "prefill-0", "--join",
                    mesh, "--kv", f"{HERE}:7402", "--insecure-mesh", "--kv-blocks", "64",
                    prefix=hosts.prefix(0)),
            Process("worker", real_model(), "--role", "decode", "--name", "decode-0", "--join",
                    mesh, "--kv", f"{THERE}:7402", "--insecure-mesh", "--kv-blocks", "64",
                    prefix=hosts.prefix(1))]
        self.supervisor = self.parts[0]
        try:
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for part in reversed(self.parts):
            part.end()

    def gone_after(self):
        """Seconds until the decode worker counts as gone."""
        begun = time.monotonic()
        while time.monotonic() - begun < 60:
            if not any(w["name"] == "decode-0" and w["state"] == "ready"
                       for w in self.status()["workers"]):
                return time.monotonic() - begun
        raise AssertionError("the cut was never noticed")


class Test(unittest.TestCase):
    def setUp(self):
        self.hosts = Hosts()
        self.addCleanup(self.hosts.close)
        self.right = headrace("run", real_model(), *ASK).json()["ids"]

    def answers(self, cluster):
        answer = cluster.run(*ASK)
        self.assertEqual(answer.status, 0, answer.err)
        self.assertEqual(answer.json()["ids"], self.right)
        self.assertTrue(answer.json().get("remote_prefill", True))

    def cut_and_heal(self, cluster, what, cut, heal):
        """During the cut a request waits or ends with a stated error; then all is as before."""
        request = Process("run", "--connect", cluster.address, *ASK, prefix=cluster.prefix)
        time.sleep(0.2)
        cut()
        known = cluster.gone_after()
        print(f"{what}: known after {known:.2f} s", flush=True)
        self.assertLess(known, KNOWN * SLACK)
        prefill = [w for w in cluster.status()["workers"] if w["name"] == "prefill-0"]
        heal()
        status = request.wait()
        if status == 0:
            self.assertIn(f'"ids":{self.right}'.replace(" ", ""), request.out[0].replace(" ", ""))
        else:
            self.assertEqual((status, len(request.err)), (1, 1), request.err)
        print(f"{what}: the request then {request.err or 'ended well'}", flush=True)
        self.assertEqual(len(prefill), 1, f"{what}: the prefill worker was lost too")
        cluster.wait_ready()
        self.answers(cluster)
        cluster.wait_idle()

    def test_shaped_cut_and_healed(self):
        with TwoHosts(self.hosts) as cluster:
            self.answers(cluster)
            self.hosts.shape("20mbit")
            self.answers(cluster)
            self.hosts.unshape()
            self.answers(cluster)
            hosts = self.hosts
            self.cut_and_heal(cluster, "both ways", lambda: hosts.link("down"),
                              lambda: hosts.link("up"))
            self.cut_and_heal(cluster, "from the decode host", lambda: hosts.deaf(1, True),
                              lambda: hosts.deaf(1, False))
            # Its beats still arrive, what it is told does not: seen by what they do not answer.
            self.cut_and_heal(cluster, "to the decode host", lambda: hosts.deaf(0, True),
                              lambda: hosts.deaf(0, False))


if __name__ == "__main__":
    refused = permitted()
    if refused:
        print(f"two_hosts: SKIPPED: {refused}")
    else:
        unittest.main(verbosity=2)
