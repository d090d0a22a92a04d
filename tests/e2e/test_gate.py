"""Gates: thresholds, their exit codes and verdict lines, junit, and corefan compare, as CI meets them."""
import copy
import json
import os
import re
import shutil
import unittest
import xml.etree.ElementTree

from harness import BIN, ROOT, EndToEnd, wait_for_cpus

GATE = (ROOT / "examples/gate.yaml").read_text()
QUICK = "name: quick\nrounds: 6\nwarmup: 1\narms: [sequential, gather]\nmatrix: [{job: sleep, fanout: 4, delay: 1ms}]\n"


class Thresholds(EndToEnd):
    def gate(self, expect, out):
        done = self.run_sweep(QUICK + f"expect: [{expect}]\n", "--workers", "1", out=out)
        return done.code, done.out.splitlines()[-1]

    def test_the_example_passes_and_fails(self):
        done = self.run_sweep(GATE)
        self.assertEqual(done.code, 0, done.out)
        self.assertRegex(done.out.splitlines()[-1], r"^PASS 4 cells, 4 thresholds, \d+s$")
        failing = self.run_sweep(GATE, "--set", "expect={job: noop, arm: gather, metric: cpu_ns, max: 1ns}", out="slow")
        self.assertEqual(failing.code, 99, failing.out)
        self.assertRegex(failing.out.splitlines()[-1], r"^FAIL 4 cells, 1 threshold, 1 failed, \d+s$")

    def test_exit_codes(self):
        code, line = self.gate("{arm: gather, metric: max_in_flight, min: 4}", "pass")
        self.assertEqual((code, line[:26]), (0, "PASS 2 cells, 1 threshold,"))
        code, line = self.gate("{arm: gather, metric: max_in_flight, max: 3}", "fail")
        self.assertEqual((code, line[:36]), (99, "FAIL 2 cells, 1 threshold, 1 failed,"))
        code, line = self.gate("{arm: gather, metric: ceiling_per_s_core, min: 1}", "open")
        self.assertEqual((code, line[:47]), (98, "INCONCLUSIVE 2 cells, 1 threshold, 1 undecided,"))

    def test_loads_are_selected_by_what_the_sweep_says_of_them(self):
        done = self.run_sweep(
            "name: loads\nrounds: 1\nwarmup: 0\narms: [gather]\njob: sleep\nfanout: 2\ndelay: 1ms\nduration: 100ms\n"
            "matrix: [{clients: {ladder: 2}}, {rate: [50/s, 0.25x]}]\nexpect:\n"
            "- {rate: 50/s, duration: 0.1s, metric: max_in_flight, min: 1}\n"
            "- {rate: 0.25x, metric: max_in_flight, min: 1}\n- {clients: 2, metric: max_in_flight, min: 1}\n", "--workers", "1")
        self.assertEqual(done.code, 0, done.out + done.err)
        head = "libuv/gather/sleep/n=2/delay=1ms/cores=1"
        self.assertEqual([row["id"] for row in self.summary()["thresholds"]],
                         [f"{head}/rate=50%2fs/duration=100ms", f"{head}/rate=0.25x/duration=100ms",
                          f"{head}/clients=2/duration=100ms"])
        refused = self.run_sweep(QUICK + "expect: [{rate: 1k/s, duration: 1s, metric: wall_ns.p99, max: 1ms}]\n", out="none")
        self.assert_one_line(refused, 2, "no cell matches this threshold")

    def test_a_threshold_of_no_cell_is_refused_before_anything_runs(self):
        done = self.run_sweep(QUICK + "expect: [{arm: tasks, metric: cpu_ns, max: 1ms}]\n")
        self.assertEqual(done.code, 2)
        self.assertIn("no cell matches this threshold", done.err)
        self.assertFalse((self.scratch / "run").exists())

    def test_results_come_from_the_store_alone(self):
        self.gate("{arm: gather, metric: max_in_flight, max: 3}", "run")
        for name, form in (("summary.json", "json"), ("summary.txt", "text")):
            again = self.run_corefan("report", str(self.scratch / "run"), "--format", form)
            self.assertEqual(again.code, 0)  # it shows, it does not judge
            self.assertEqual(again.out, (self.scratch / "run" / name).read_text())
        rows = self.summary()["thresholds"]
        self.assertEqual([(row["passed"], row["metric"], row["max"]) for row in rows], [(False, "max_in_flight", 3)])

    def test_junit(self):
        self.gate("{arm: gather, metric: max_in_flight, max: 3}", "run")
        done = self.run_corefan("report", str(self.scratch / "run"), "--format", "junit")
        self.assertEqual(done.code, 0, done.err)
        suite = xml.etree.ElementTree.fromstring(done.out).find("testsuite")
        self.assertEqual((suite.get("tests"), suite.get("failures")), ("2", "1"))


class InCi(EndToEnd):
    """The script of README.md, word for word."""

    def setUp(self):
        super().setUp()
        self.script, = re.findall(r"^## In CI\n```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
        (self.scratch / "examples").mkdir()
        (self.scratch / "examples/gate.yaml").write_text(GATE)

    def run_script(self):
        for _ in range(60):
            shutil.rmtree(self.scratch / "now", ignore_errors=True)
            wait_for_cpus()
            done = self.finish(self.start("sh", "-c", self.script, env={"PATH": f"{BIN}:{os.environ['PATH']}"}))
            if "--co-run" not in done.err:  # else somebody else was quicker
                break
        suite = xml.etree.ElementTree.parse(self.scratch / "corefan.xml").getroot().find("testsuite")
        return done.code, suite.get("failures"), done.out.splitlines()[-1]

    def test_thresholds(self):
        code, failures, line = self.run_script()
        self.assertEqual((code, failures, line[:5]), (0, "0", "PASS "))
        (self.scratch / "examples/gate.yaml").write_text(QUICK + "expect: [{arm: gather, metric: max_in_flight, max: 3}]\n")
        code, failures, line = self.run_script()
        self.assertEqual((code, failures, line[:5]), (99, "1", "FAIL "))

    def test_a_baseline(self):
        (self.scratch / "examples/gate.yaml").write_text(QUICK + "expect: [{arm: gather, metric: max_in_flight, min: 4}]\n")
        self.assertEqual(self.run_script()[0], 0)
        kept = self.summary("now")
        for cell in kept["cells"]:
            Compare.quiet(cell, 0.01)
        (self.scratch / "baseline").mkdir()
        (self.scratch / "baseline/summary.json").write_text(json.dumps(kept))
        code, failures, line = self.run_script()
        self.assertEqual((code, failures, line[:13]), (99, "0", "FAIL 2 cells,"))


class Compare(EndToEnd):
    def setUp(self):
        super().setUp()
        done = self.run_sweep(QUICK, "--workers", "1")
        self.assertEqual(done.code, 0, done.err)
        self.run_dir = str(self.scratch / "run")

    def doctored(self, name, change):
        summary = copy.deepcopy(self.summary())
        for cell in summary["cells"]:
            change(cell)
        return self.write(name, json.dumps(summary))

    def compare(self, *argv):
        return self.run_corefan("compare", *argv)

    @staticmethod
    def quiet(cell, times=1.0):
        cell.update(verdict="ok", flags=[], rounds_flagged=0)
        for metric, value in (("wall_ns", 1e6), ("cpu_ns", 5e4 * times)):
            p50 = {"value": value, "n": 9, "ci_lo": value * 0.999, "ci_hi": value * 1.001, "ci_level": 0.96,
                   "ci_method": "order_statistic"}
            cell[metric].update(p50=p50, clean_p50=p50, min=value * 0.998, max=value * 1.002)

    def test_codes_and_verdict_lines(self):
        base = self.doctored("base.json", self.quiet)
        slow = self.doctored("slow.json", lambda cell: self.quiet(cell, 1.2 if cell["arm"] == "gather" else 1))
        middle = self.doctored("middle.json", lambda cell: self.quiet(cell, 1.05))
        other = self.doctored("other.json", lambda cell: cell.update(id=cell["id"].replace("libuv", "uvloop")))
        for changed, code, line in ((base, 0, "PASS 2 cells, 0 regressions"), (slow, 99, "FAIL 2 cells, 1 regression"),
                                    (middle, 98, "INCONCLUSIVE 2 cells, 0 regressions, 2 undecided")):
            done = self.compare(base, changed)
            self.assertEqual((done.code, done.out.splitlines()[-1], done.err), (code, line, ""))
        self.assertEqual(self.compare(slow, base).out.splitlines()[-1], "PASS 2 cells, 0 regressions, 1 improvement")
        self.assertEqual(self.compare(base, slow, "--metric", "wall").code, 0)
        self.assertEqual(self.compare(base, slow, "--threshold", "25%").code, 0)
        self.assert_one_line(self.compare(base, other), 2, "no cell in common")
        self.assertNotEqual(self.compare(base, other, "--ignore", "runtime").code, 2)

    def test_runs_and_summaries_serve(self):
        for changed in (self.run_dir, f"{self.run_dir}/summary.json"):
            done = self.compare(self.run_dir, changed, "--format", "json")
            self.assertIn(done.code, (0, 98), done.err)  # the same values: never a regression
            rows = json.loads(done.out)["rows"]
            self.assertEqual(len(rows), 4)
            for row in rows:
                self.assertAlmostEqual(row["effect_x"]["value"], 1, places=6)
        self.assertEqual(self.compare(self.run_dir, self.run_dir).out, self.compare(self.run_dir, self.run_dir).out)

    def test_mistakes_are_one_line(self):
        self.assert_one_line(self.compare(self.run_dir), 2, "two runs")
        self.assert_one_line(self.compare(self.run_dir, "nowhere"), 2, "cannot open 'nowhere'", "No such file")
        self.assert_one_line(self.compare(self.run_dir, self.run_dir, "third"), 2, "third")
        self.assert_one_line(self.compare(self.run_dir, self.write("x.json", "{")), 2, "x.json")
        self.assert_one_line(self.compare(self.run_dir, self.write("v.json", '{"schema_version": 9, "cells": []}')), 2,
                             "schema version 9")
        self.assert_one_line(self.compare(self.run_dir, self.run_dir, "--threshold", "much"), 2, "much")
        self.assert_one_line(self.compare(self.run_dir, self.run_dir, "--metric", "memory"), 2, "memory", "cpu, wall")
        self.assert_one_line(self.compare(self.run_dir, self.run_dir, "--ignore", "core"), 2, "did you mean 'cores'")
        self.assert_one_line(self.compare(self.run_dir, self.run_dir, "--format", "junit"), 2, "text, json")


if __name__ == "__main__":
    unittest.main()
