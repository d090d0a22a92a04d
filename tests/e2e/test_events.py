"""--events: every line as docs/events.md has it, in an order that makes sense, also when things go wrong."""
import json
import os
import re
import signal
import sqlite3
import unittest

from harness import ROOT, SLOW_SWEEP, SMALL_SWEEP, EndToEnd, children_of

# event -> its keys, as the page has them
KEYS = {event: set(re.findall(r"`(\w+)`", keys)) for event, keys in re.findall(
    r"^\| `(\w+)` \| .* \| (.*) \|$", (ROOT / "docs/events.md").read_text(), re.M)}  # fmt: skip
OPTIONAL = {"error"}


class Events(EndToEnd):
    def read(self, text):
        events = [json.loads(line) for line in text.splitlines()]
        for event in events:
            keys = set(event) - {"v", "event", "at_ns"}
            self.assertEqual(event["v"], 1)
            self.assertLessEqual(keys, KEYS[event["event"]], event)
            self.assertLessEqual(KEYS[event["event"]] - OPTIONAL, keys, event)
        self.assertEqual([e["at_ns"] for e in events], sorted(e["at_ns"] for e in events))
        self.assertEqual(events[-1]["event"], "finished")
        self.assertEqual([event["event"] for event in events].count("finished"), 1)
        return events

    def words(self, events):
        return [event["event"] for event in events]

    def test_a_run_to_a_file(self):
        path = self.scratch / "events"
        done = self.run_sweep(SMALL_SWEEP, "--workers", "1", "--events", str(path))
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(done.out, (self.scratch / "run/summary.txt").read_text())
        events = self.read(path.read_text())
        self.assertEqual(self.words(events), ["started", "planned", "worker"] + ["group_started", "group_finished"] * 2 + ["finished"])
        self.assertEqual((events[0]["name"], events[0]["directory"]), ("small", str(self.scratch / "run")))
        self.assertEqual(events[0]["run"], self.summary()["run"]["id"])
        self.assertEqual((events[1]["groups"], events[1]["cells"]), (2, len(self.summary()["cells"])))
        self.assertEqual(sorted(e["group"] for e in events if e["event"] == "group_finished"), [0, 1])
        self.assertEqual(events[-1]["exit_code"], 0)

    def test_stdout_has_events_alone(self):
        done = self.run_sweep(SMALL_SWEEP, "--workers", "1", "--quiet", "--events", "-")
        self.assertEqual((done.code, done.err), (0, ""))
        self.assertEqual(self.words(self.read(done.out))[-1], "finished")
        self.assertTrue((self.scratch / "run/summary.txt").exists())

    def test_a_lost_worker(self):
        path = self.scratch / "events"
        process = self.start_sweep(SLOW_SWEEP, "--workers", "1", "--events", str(path))
        self.wait_for(lambda: path.exists() and "group_started" in path.read_text(), "a group that started")
        os.kill(children_of(process.pid)[0], signal.SIGKILL)
        self.assertEqual(self.finish(process).code, 0)
        events = self.read(path.read_text())
        words = self.words(events)
        self.assertEqual([word for word in words if word.startswith("group")],
                         ["group_started", "group_void", "group_started", "group_finished"])  # fmt: skip
        self.assertEqual([event["worker"] for event in events if event["event"] == "worker"], [0, 1])
        self.assertEqual([event["attempt"] for event in events if event["event"] == "group_started"], [1, 2])
        void = next(event for event in events if event["event"] == "group_void")
        with sqlite3.connect(self.scratch / "run/run.db") as store:
            self.assertEqual(store.execute("SELECT reason FROM attempts WHERE state = 'void'").fetchall(), [(void["reason"],)])
            stored = [row for row in store.execute("SELECT kind, text FROM events ORDER BY rowid")]
        store.close()
        told = [(event["kind"], event["text"]) for event in events if event["event"] == "warning"]
        self.assertEqual(told, stored)

    def test_an_interrupt(self):
        path = self.scratch / "events"
        process = self.start_sweep(SLOW_SWEEP, "--workers", "1", "--events", str(path))
        self.wait_for(lambda: path.exists() and "group_started" in path.read_text(), "a group that started")
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process).code, 130)
        self.assertEqual(self.read(path.read_text())[-1]["exit_code"], 130)

    def test_a_reader_that_goes_away_costs_no_run(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        done = self.run_sweep(SMALL_SWEEP, "--workers", "1", "--events", "/dev/full")
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(done.err.count("cannot write events"), 1)

    def test_a_place_that_cannot_be_written(self):
        done = self.run_sweep(SMALL_SWEEP, "--events", str(self.scratch / "no/where"))
        self.assert_one_line(done, 2, "cannot write --events", "no/where")
        self.assertFalse((self.scratch / "run").exists())

    def test_nobody_came(self):
        path = self.scratch / "events"
        done = self.run_sweep(SMALL_SWEEP, "--workers", "0", "--expect", "1", "--expect-timeout", "200ms", "--listen",
                              f"ipc://{self.scratch}/socket", "--events", str(path))  # fmt: skip
        events = self.read(path.read_text())
        self.assertEqual(self.words(events), ["started", "finished"])
        self.assertEqual(events[-1]["exit_code"], done.code)
        self.assertIn(events[-1]["error"], done.err)


if __name__ == "__main__":
    unittest.main()
