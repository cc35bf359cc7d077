"""A real Prometheus for the end-to-end tests, and a reader of /metrics pages."""

import http.client
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.parse

from cluster import HANG, free_ports

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
SERIES = re.compile(r"^([a-z_:0-9]+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def folder():
    """Where the server and promtool are; fetched at first use."""
    done = subprocess.run([str(DEPLOY / "fetch")], check=True, capture_output=True, text=True)
    return pathlib.Path(done.stdout.strip())


def get(address, path, headers=None):
    """Status, headers and text of one request."""
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=HANG)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


class Page(dict):
    """One scrape: (name, sorted labels) -> value."""

    def __init__(self, address):
        status, _, self.text = get(address, "/metrics")
        assert status == 200, status
        for line in self.text.splitlines():
            if line and not line.startswith("#"):
                found = SERIES.match(line)
                assert found, line
                labels = LABEL.findall(found.group(2) or "")
                self[found.group(1), tuple(sorted(labels))] = float(found.group(3))

    def value(self, name, **labels):
        """The one series with these labels among others."""
        wanted = set(labels.items())
        found = [v for (n, l), v in self.items() if n == name and wanted <= set(l)]
        assert len(found) == 1, (name, labels, len(found))
        return found[0]

    def total(self, name, **labels):
        wanted = set(labels.items())
        return sum(v for (n, l), v in self.items() if n == name and wanted <= set(l))


class Prometheus:
    """The server, told by a coordinator whom to scrape; a context manager."""

    def __init__(self, coordinator_metrics):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="headrace-prometheus-"))
        shutil.copy(DEPLOY / "headrace.rules.yml", self.home)
        text = (DEPLOY / "prometheus.yml").read_text()
        text = text.replace("127.0.0.1:8081", coordinator_metrics)
        text = re.sub(r"(_interval): 5s", r"\1: 250ms", text)
        (self.home / "prometheus.yml").write_text(text)
        self.address = f"127.0.0.1:{free_ports()}"
        self.log = open(self.home / "log", "w")
        self.process = subprocess.Popen(
            [str(folder() / "prometheus"), f"--config.file={self.home}/prometheus.yml",
             f"--storage.tsdb.path={self.home}/data", f"--web.listen-address={self.address}"],
            stdout=self.log, stderr=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(HANG)
        self.log.close()
        shutil.rmtree(self.home)

    def query(self, expression):
        """[(labels, value)] now."""
        try:
            status, _, text = get(self.address,
                                  "/api/v1/query?query=" + urllib.parse.quote(expression))
        except OSError:
            return []
        if status != 200:
            return []
        return [(r["metric"], float(r["value"][1])) for r in json.loads(text)["data"]["result"]]

    def wait(self, expression, accept):
        """Asks until `accept` takes the answer."""
        end = time.monotonic() + HANG
        while time.monotonic() < end:
            found = self.query(expression)
            if accept(found):
                return found
            assert self.process.poll() is None, (self.home / "log").read_text()[-2000:]
            time.sleep(0.2)
        raise AssertionError(f"{expression}: {found}; log: " +
                             (self.home / "log").read_text()[-2000:])
