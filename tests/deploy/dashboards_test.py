#!/usr/bin/env python3
"""dashboards_test.py BINARY: the rules of deploy/prometheus pass promtool's checks and unit tests,
and every metric in rules and dashboard is one that `headrace metrics list` knows."""

import json
import pathlib
import re
import subprocess
import sys
import unittest

BINARY = sys.argv.pop(1)
DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "headrace.rules.yml"
DASHBOARD = DEPLOY / "grafana" / "headrace.json"
NAME = re.compile(r"(?<![\w:$\"/])((?:headrace|process)[_:][a-z0-9_:]+)")
RECORD = re.compile(r"^\s*- record: (\S+)$", re.M)


def metrics():
    """All names that a scrape can have, histograms with their suffixes."""
    out = subprocess.run([BINARY, "metrics", "list", "--json"], check=True, capture_output=True)
    names = set()
    for row in json.loads(out.stdout)["metrics"]:
        assert row["help"] and row["unit"], row
        suffixes = ("_bucket", "_sum", "_count") if row["type"] == "histogram" else ("",)
        names.update(row["name"] + suffix for suffix in suffixes)
    return names


def expressions(panels):
    for panel in panels:
        yield from (target["expr"] for target in panel.get("targets", ()))
        yield from expressions(panel.get("panels", ()))


def unknown(text, known):
    return {name for name in NAME.findall(text)} - known


class Dashboards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.known = metrics()
        cls.rules = RULES.read_text()
        cls.recorded = set(RECORD.findall(cls.rules))
        fetch = subprocess.run([str(DEPLOY / "prometheus" / "fetch")], check=True,
                               capture_output=True, text=True)
        cls.promtool = pathlib.Path(fetch.stdout.strip()) / "promtool"

    def run_promtool(self, *words):
        done = subprocess.run([str(self.promtool), *words], cwd=DEPLOY / "prometheus",
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_promtool_accepts_rules_and_configuration(self):
        self.run_promtool("check", "rules", "headrace.rules.yml")
        self.run_promtool("check", "config", "prometheus.yml")

    def test_unit_tests_of_the_rules(self):
        self.run_promtool("test", "rules", "headrace.rules.test.yml")

    def test_rules_use_metrics_that_exist(self):
        code = "\n".join(line.split("#")[0] for line in self.rules.splitlines()
                         if "summary:" not in line)
        used = set(NAME.findall(code))
        self.assertGreater(len(used), 20)
        self.assertEqual(used - self.known - self.recorded, set())

    def test_dashboard_uses_metrics_that_exist(self):
        text = "\n".join(expressions(json.loads(DASHBOARD.read_text())["panels"]))
        used = set(NAME.findall(text))
        self.assertGreater(len(used), 40)
        self.assertEqual(used - self.known - self.recorded, set())

    def test_a_metric_that_is_none_would_be_found(self):
        self.assertEqual(unknown("rate(headrace_dram_byte_total[1m])", self.known),
                         {"headrace_dram_byte_total"})

    def test_panels_have_queries_and_places_of_their_own(self):
        panels = json.loads(DASHBOARD.read_text())["panels"]
        self.assertEqual(len({p["id"] for p in panels}), len(panels))
        taken = set()
        for panel in panels:
            if panel["type"] != "row":
                self.assertTrue(panel["targets"], panel["title"])
            grid = panel["gridPos"]
            cells = {(x, y) for x in range(grid["x"], grid["x"] + grid["w"])
                     for y in range(grid["y"], grid["y"] + grid["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(grid["x"] + grid["w"], 24)
            taken |= cells


if __name__ == "__main__":
    unittest.main()
