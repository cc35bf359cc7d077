"""A cluster whose processes the test starts one by one: killed ones come back when the test says
so, and every link of a worker may run through a proxy."""

import signal
import time

import cluster
from cluster import HANG, Process, free_ports, headrace, model
from proxy import Proxy


def kv_advertise():
    """Whether a worker can tell its peers another KV address than its own."""
    return "--kv-advertise" in headrace("worker", "--help").out


class Worker:
    """One worker process at a time, its mesh link and KV port behind proxies."""

    def __init__(self, path, mesh_port, role, name, options):
        self.role, self.name = role, name
        self.mesh = Proxy(("127.0.0.1", mesh_port))
        self.words = ["worker", path, "--role", role, "--name", name, "--join",
                      f"127.0.0.1:{self.mesh.port}", *options]
        self.kv = None
        if role != "prefill" and kv_advertise():
            port = free_ports()
            self.kv = Proxy(("127.0.0.1", port))
            self.words += ["--kv", f"127.0.0.1:{port}", "--kv-advertise",
                           f"127.0.0.1:{self.kv.port}"]
        self.process = None
        self.start()

    def start(self):
        self.process = Process(*self.words)

    def kill(self):
        self.process.end(signal.SIGKILL)

    def heal(self):
        """Whatever was done to it is undone."""
        for link in (self.mesh, self.kv):
            if link:
                link.heal()
        if self.process.process.poll() is not None:
            self.process.wait()
            self.start()
        else:
            self.process.process.send_signal(signal.SIGCONT)

    def end(self):
        self.process.process.send_signal(signal.SIGCONT)
        status = self.process.end()
        for link in (self.mesh, self.kv):
            if link:
                link.close()
        return status


class Parts(cluster.Cluster):
    """Coordinator and workers; used like Cluster."""

    def __init__(self, name, prefill=2, decode=2, options=(), pd="always"):
        path = model(name)
        self.port = free_ports()
        self.address = f"127.0.0.1:{self.port}"
        self.workers = []
        self.coordinator = self.supervisor = Process(
            "coordinator", "--listen", self.address, "--mesh", f"127.0.0.1:{self.port + 1}",
            "--pd", pd)
        roles = [("prefill", i) for i in range(prefill)]
        roles += [("decode" if prefill else "both", i) for i in range(decode)]
        self.size = len(roles)
        try:
            for role, i in roles:
                self.workers.append(Worker(path, self.port + 1, role, f"{role}-{i}", options))
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for worker in self.workers:
            worker.end()
        self.coordinator.end()

    def named(self, name):
        return next(w for w in self.workers if w.name == name)

    def wait_workers(self, names):
        end = time.monotonic() + HANG
        while time.monotonic() < end:
            ready = {w["name"] for w in self.status()["workers"] if w.get("state") == "ready"}
            if ready >= set(names):
                return
            time.sleep(0.05)
        raise AssertionError(f"not all of {names} came back: {self.status()}")
