#!/usr/bin/python3
"""Checks of the checks: what generate.py and conformance must notice, they notice.  Usage: test_generate.py PROGRAM"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import asyncio_oracle
import generate

PROGRAM = None
CASES = pathlib.Path(__file__).with_name("cases.json")

GROUP = {"id": "g", "arm": "taskgroup", "children": [{"delay_ms": 5, "value": "a"}, {"delay_ms": 3, "value": "b"}]}


def run(arguments, text=None):
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        if text is not None:
            file.write(text)
            file.flush()
            arguments = [*arguments, file.name]
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


class Invariants(unittest.TestCase):
    """Each is broken once, by hand, in an answer that was sound."""

    def answer(self):
        return generate.play(PROGRAM, [GROUP])[0]

    def assert_broken(self, change, word):
        answer = self.answer()
        self.assertEqual(list(generate.broken_invariants(GROUP, answer)), [])
        change(answer)
        told = list(generate.broken_invariants(GROUP, answer))
        self.assertTrue(any(word in line for line in told), told)

    def test_a_child_without_account(self):
        self.assert_broken(lambda answer: answer["children"].pop("1"), "no account")

    def test_a_child_that_ends_twice(self):
        self.assert_broken(lambda answer: answer["finish_order"].append("0"), "twice")

    def test_a_child_that_never_ends(self):
        self.assert_broken(lambda answer: answer["children"]["0"].update(end_ms=None), "ended: False")

    def test_an_early_wait(self):
        self.assert_broken(lambda answer: answer["children"]["0"].update(end_ms=4), "waited 4 ms")

    def test_an_orphan_of_a_group(self):
        self.assert_broken(lambda answer: answer["orphans"].append("0"), "orphan of the top group")

    def test_a_child_that_outlives_its_group(self):
        self.assert_broken(lambda answer: answer.update(t_ms=4), "outlived")

    def test_results_out_of_order(self):
        self.assert_broken(lambda answer: answer["outcome"]["value"].reverse(), "input order")


class Differences(unittest.TestCase):
    def test_every_field_counts(self):
        wanted = asyncio_oracle.observe(GROUP)
        got = generate.play(PROGRAM, [GROUP])[0]
        self.assertEqual(list(generate.differences(wanted, got)), [])
        for key in set(got) - generate.LEFT_OUT - {"children"}:
            changed = {**got, key: ["other"]}
            self.assertEqual(len(list(generate.differences(wanted, changed))), 1, key)
        for key in got["children"]["0"]:
            changed = copy.deepcopy(got)
            changed["children"]["0"][key] = "other"
            self.assertEqual(len(list(generate.differences(wanted, changed))), 1, key)

    def test_a_case_shrinks_to_its_core(self):
        case = {"id": "s", "arm": "gather", "timeout_ms": 50, "events": [{"at_ms": 1, "action": "cancel_child", "child": 9}],
                "children": [{"delay_ms": 3}, {"arm": "tasks", "children": [{"delay_ms": 2}, {"outcome": "fail"}]}, {}]}
        kept = generate.still_differs
        try:
            generate.still_differs = lambda _program, smaller: '"fail"' in json.dumps(smaller)
            small = generate.shrink(PROGRAM, case)
        finally:
            generate.still_differs = kept
        self.assertEqual(small, {"id": "s", "arm": "gather", "children": [{"outcome": "fail"}]})


class Program(unittest.TestCase):
    def test_lines_and_exit_codes(self):
        cases = [case for case in json.loads(CASES.read_text(encoding="utf-8")) if case["id"] in ("G03", "G05")]
        done = run([], json.dumps(cases))
        self.assertEqual((done.returncode, done.stdout), (0, "G03 ok\nG05 ok\n2 passed, 0 failed\n"))
        cases[0]["expect"]["t_ms"] = 40
        cases[1]["expect"]["children"]["0"]["state_final"] = "ok"
        done = run([], json.dumps(cases))
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, 'G03 t_ms expected 40 got 20\n'
                                      'G05 children.0.state_final expected "ok" got "fail"\n0 passed, 2 failed\n')

    def test_the_order_of_lost_errors_is_free(self):
        case = {"id": "x", "arm": "tasks", "children": [{"outcome": "fail"}] * 3}
        answer = generate.play(PROGRAM, [case])[0]
        self.assertEqual(len(answer["unretrieved_logged"]), 2)
        answer["unretrieved_logged"].reverse()
        self.assertEqual(run([], json.dumps([{**case, "expect": answer}])).returncode, 0)
        answer["unretrieved_logged"].pop()
        self.assertEqual(run([], json.dumps([{**case, "expect": answer}])).returncode, 1)

    def test_a_change_anywhere_in_the_cases_is_noticed(self):
        for case in json.loads(CASES.read_text(encoding="utf-8")):
            changed = copy.deepcopy(case)
            changed["expect"]["drain_ms"] += 1
            with self.subTest(case["id"]):
                self.assertEqual(run([], json.dumps([changed])).returncode, 1)

    def test_files_that_cannot_be_read(self):
        good = {"id": "x", "arm": "gather", "children": [{}]}
        bad = ["", "{", "[" * 100000, "{}", "[7]", "[{}]", '[{"id": "\\n"}]', "\0\1\2", "[1e999]", '[{"id": "x"}]']
        broken = [{"arm": "gathers"}, {"arm": "empty"}, {"arm": 3}, {"children": 3}, {"children": [3]},
                  {"children": [{"delay_ms": "5"}]}, {"children": [{"delay_ms": 1.5}]}, {"children": [{"delay_ms": 10**18}]},
                  {"children": [{"outcome": "kbd"}]}, {"children": [{"on_cancel": "spawn"}]},
                  {"children": [{"on_cancel": "cleanup"}]}, {"children": [{"outcome": "fail", "value": []}]},
                  {"children": [{"kind": "future"}]}, {"body": 3}, {"events": 1}, {"events": [1]},
                  {"events": [{"at_ms": 1}]}, {"events": [{"action": "cancel_parent"}]},
                  {"events": [{"at_ms": 1, "action": "cancel_child"}]}, {"events": [{"at_turn": 10**9, "action": "cancel_parent"}]},
                  {"events": [{"at_turn": 0, "action": "cancel_gather"}]}, {"timeout_ms": None}, {"parent_cancel_at_ms": "1"}]
        bad += [json.dumps([{**good, **change, "expect": {"children": {}}}]) for change in broken]
        bad.append(json.dumps([good]))
        deep = {"arm": "gather", "children": []}
        for _ in range(200):
            deep = {"arm": "gather", "children": [deep]}
        bad.append(json.dumps([{"id": "deep", **deep, "expect": {"children": {}}}]))
        for text in bad:
            done = run([], text)
            with self.subTest(text[:100]):
                self.assertEqual(done.returncode, 2)
                self.assertEqual(done.stdout, "")
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for path in ("/", "/nonexistent", "/dev/null"):
            self.assertEqual(run([path]).returncode, 2)

    def test_the_wrapper_finds_the_program(self):
        wrapper = pathlib.Path(__file__).with_name("run")
        for build in (pathlib.Path(PROGRAM).parent.parent, pathlib.Path(PROGRAM).parent):
            done = subprocess.run([wrapper, CASES], capture_output=True, text=True, check=False,
                                  env={"COREFAN_BUILD": str(build), "PATH": "/usr/bin:/bin"})
            self.assertEqual(done.stdout.splitlines()[-1], "88 passed, 0 failed")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
