#!/usr/bin/python3
"""What asyncio does with a conformance case (README.md here says what a case is).

`observe(case)` runs one case on the asyncio of the interpreter that runs this file, in virtual time, and returns the
object that case files keep under "expect".  As a program: asyncio_oracle.py FILE prints it for each case.

The cases hold the behaviour of CPython 3.13.  Older interpreters differ, see `unlike()`.
"""
import asyncio
import gc
import heapq
import json
import selectors
import sys


class Failure(Exception):
    """What a leaf raises; written "E:value"."""


class JumpingSelector(selectors.SelectSelector):
    """Never waits: the loop's clock jumps over the wait instead."""

    loop = None

    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("nothing is ready and no timer is set")
        self.loop.now_ms += max(0, timeout)
        return []


class FirstInFirstOut(asyncio.TimerHandle):
    """Equal deadlines fire in the order in which they were set; a plain heap leaves that open."""

    __slots__ = ("order",)

    def __lt__(self, other):
        return (self._when, self.order) < (other._when, other.order)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time in whole ms from 0; counts its turns and remembers which task runs which coroutine."""

    def __init__(self):
        self.now_ms = 0
        self.turn = 0
        self.timers_set = 0
        self.tasks = []  # (coroutine, task)
        selector = JumpingSelector()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = 1e-9

    def time(self):
        return self.now_ms

    def _run_once(self):
        self.turn += 1
        super()._run_once()

    def call_at(self, when, callback, *args, context=None):
        handle = FirstInFirstOut(when, callback, args, self, context)
        handle.order = self.timers_set = self.timers_set + 1
        heapq.heappush(self._scheduled, handle)
        handle._scheduled = True
        return handle

    def create_task(self, coro, **named):
        task = super().create_task(coro, **named)
        self.tasks.append((coro, task))
        return task


class InOrderOfCreation(dict):
    """Stands in for the set of a task group, which would cancel its members in the order of their addresses."""

    def add(self, member):
        self[member] = True

    def discard(self, member):
        self.pop(member, None)


def name_of(error):
    """How case files name an exception."""
    if isinstance(error, BaseExceptionGroup):
        kind = "ExceptionGroup" if isinstance(error, ExceptionGroup) else "BaseExceptionGroup"
        return {"group": kind, "members": [name_of(member) for member in error.exceptions]}
    if isinstance(error, asyncio.CancelledError):
        return "Cancelled"
    if isinstance(error, TimeoutError):
        return "Timeout"
    return f"E:{error.args[0]}" if isinstance(error, Failure) else repr(error)


def state_of(task):
    if not task.done():
        return "pending"
    if task.cancelled():
        return "cancelled"
    return "ok" if task._exception is None else "fail"  # task.exception() would count as looking at it


class Record:
    def __init__(self):
        self.start_ms = self.start_turn = self.end_ms = self.end = self.at_return = None
        self.cancels = 0


def walk(node, prefix=""):
    """Paths of all children, parents first, bodies' children last; bodies themselves only count once they start."""
    for index, child in enumerate(node["children"]):
        yield f"{prefix}{index}"
        if "arm" in child:
            yield from walk(child, f"{prefix}{index}.")
    if node.get("body") and "arm" in node["body"]:
        yield from walk(node["body"], prefix + "body.")


class Play:
    """One case on its way through a loop."""

    def __init__(self, case):
        self.case = case
        self.loop = VirtualLoop()
        self.unretrieved = []
        self.loop.set_exception_handler(self.complain)
        self.records = {path: Record() for path in walk(case)}
        self.path_of = {}  # coroutine -> path
        self.order = []
        self.notes = []
        self.top_gather = None
        self.first_turn = 0
        self.seen = {}

    def turn(self):
        return self.loop.turn - self.first_turn

    def task_at(self, path):
        for coro, task in self.loop.tasks:
            if self.path_of.get(coro) == path:
                return task
        return None

    # children

    def start(self, node, path):
        coro = self.recorded(node, path)
        self.path_of[coro] = path
        return coro

    async def recorded(self, node, path):
        record = self.records[path]
        record.start_ms, record.start_turn = self.loop.now_ms, self.turn()
        is_arm = "arm" in node
        try:
            value = await (self.arm(node, path + ".") if is_arm else self.leaf(node, path, record))
            record.end = "ok"
            return value
        except asyncio.CancelledError:
            record.end = "cancelled"
            raise
        except BaseException as error:
            record.end = "fail" if is_arm else f"fail:{name_of(error)}"
            raise
        finally:
            record.end_ms = self.loop.now_ms
            self.order.append(path)

    @staticmethod
    async def pause(ms):
        if ms >= 0:
            await asyncio.sleep(ms)

    async def leaf(self, node, path, record):
        wait_ms = node.get("delay_ms", -1)
        deadline_ms = self.loop.now_ms + wait_ms
        reaction = node.get("on_cancel", "propagate")
        while True:
            try:
                await self.pause(wait_ms)
                break
            except asyncio.CancelledError:
                record.cancels += 1
                if reaction == "ignore":
                    wait_ms = max(0, deadline_ms - self.loop.now_ms)
                    continue
                if reaction == "suppress":
                    return node.get("cancel_value", path)
                if reaction == "fail":
                    raise Failure(node.get("cancel_value", path))
                if reaction.startswith("cleanup"):
                    await self.clean_up(node, record)
                    if reaction == "cleanup_fail":
                        raise Failure(node.get("cancel_value", path))
                raise
        outcome = node.get("outcome", "ok")
        if outcome == "fail":
            raise Failure(node.get("value", path))
        if outcome == "cancel_self":
            raise asyncio.CancelledError
        return node.get("value", path)

    async def clean_up(self, node, record):
        try:
            await self.pause(node["cleanup_ms"])
        except asyncio.CancelledError:
            record.cancels += 1
            raise

    # arms

    def children(self, node, prefix):
        return [self.start(child, f"{prefix}{index}") for index, child in enumerate(node["children"])]

    async def arm(self, node, prefix):
        return await getattr(self, "arm_" + node["arm"].replace("-", "_"))(node, prefix)

    async def arm_sequential(self, node, prefix):
        return [await self.start(child, f"{prefix}{index}") for index, child in enumerate(node["children"])]

    async def arm_gather(self, node, prefix, keep=False):
        future = asyncio.gather(*self.children(node, prefix), return_exceptions=keep)
        if not prefix:
            self.top_gather = future
        return [{"exc": name_of(x)} if isinstance(x, BaseException) else x for x in await future]

    async def arm_gather_return_exceptions(self, node, prefix):
        return await self.arm_gather(node, prefix, keep=True)

    async def arm_tasks(self, node, prefix):
        tasks = [self.loop.create_task(child) for child in self.children(node, prefix)]
        return [await task for task in tasks]

    async def arm_taskgroup(self, node, prefix):
        group = asyncio.TaskGroup()
        group._tasks = InOrderOfCreation()
        async with group:
            tasks = [group.create_task(child) for child in self.children(node, prefix)]
            if node.get("body") is not None:
                self.records[prefix + "body"] = Record()
                await self.start(node["body"], prefix + "body")
        return [{"exc": "Cancelled"} if task.cancelled() else task.result() for task in tasks]

    # events

    def act(self, event):
        action = event["action"]
        if action == "cancel_parent":
            answer = self.parent.cancel()
        elif action == "cancel_gather":
            answer = self.top_gather.cancel()
        else:
            task = self.task_at(str(event["child"]))
            answer = task.cancel() if task else None
        self.notes.append(f"{action}{event.get('child', '')}@{self.loop.now_ms} -> {answer}")

    def after_turns(self, turns, event):
        if turns <= 0:
            self.act(event)
        else:
            self.loop.call_soon(self.after_turns, turns - 1, event)

    def register_events(self):
        events = list(self.case.get("events", []))
        if "parent_cancel_at_ms" in self.case:
            events.insert(0, {"at_ms": self.case["parent_cancel_at_ms"], "action": "cancel_parent"})
        for event in events:
            if "at_turn" in event:
                self.after_turns(event["at_turn"], event)
            else:
                self.loop.call_at(event["at_ms"], self.after_turns, event.get("after_turns", 0), event)

    # the parent, and the one who waits for everybody

    async def timed_arm(self):
        if "timeout_ms" not in self.case:
            return await self.arm(self.case, "")
        async with asyncio.timeout(self.case["timeout_ms"]):
            return await self.arm(self.case, "")

    async def run_parent(self):
        self.first_turn = self.loop.turn
        self.register_events()
        try:
            outcome = {"kind": "ok", "value": await self.timed_arm()}
        except asyncio.CancelledError:
            outcome = {"kind": "cancelled"}
        except TimeoutError:
            outcome = {"kind": "timeout"}
        except BaseExceptionGroup as error:
            outcome = {"kind": "group", **name_of(error)}
        except Failure as error:
            outcome = {"kind": "fail", "exc": name_of(error)}
        self.seen.update(outcome=outcome, t_ms=self.loop.now_ms, turns=self.turn(),
                         parent_cancelling=self.parent.cancelling())
        for path, record in self.records.items():
            record.at_return = self.state(path, record, "running")
        try:
            await asyncio.sleep(0)
            self.seen["next_await"] = "ok"
        except asyncio.CancelledError:
            self.seen["next_await"] = "cancelled"

    def state(self, path, record, unfinished):
        task = self.task_at(path)
        if task is not None:
            return state_of(task)
        return "not_started" if record.start_ms is None else record.end or unfinished

    async def supervise(self):
        self.parent = self.loop.create_task(self.run_parent())
        while others := [task for task in asyncio.all_tasks(self.loop) if task is not asyncio.current_task()]:
            await asyncio.wait(others)

    def child_json(self, path, record):
        return {"state_at_return": record.at_return,
                "state_final": self.state(path, record, "not_started").split(":")[0],
                "start_ms": record.start_ms, "start_turn": record.start_turn, "end_ms": record.end_ms,
                "cancels_delivered": record.cancels}

    def run(self):
        self.loop.run_until_complete(self.loop.create_task(self.supervise()))
        seen = self.seen
        seen["drain_ms"] = self.loop.now_ms
        seen["finish_order"] = self.order
        seen["children"] = {path: self.child_json(path, record) for path, record in self.records.items()}
        seen["orphans"] = [path for path, child in seen["children"].items()
                           if child["state_at_return"] in ("pending", "running")]
        if self.notes:
            seen["notes"] = self.notes
        return seen

    def forget_tasks(self):
        """Tasks complain about errors that nobody looked at when they are freed."""
        self.loop.tasks.clear()
        self.path_of.clear()
        self.parent = self.top_gather = None
        gc.collect()

    def complain(self, _loop, what):
        # names only: to keep the exception would keep its frames, and the tasks that they know of
        if "never retrieved" in what["message"]:
            self.unretrieved.append(name_of(what["exception"]))


def observe(case):
    play = Play(case)
    try:
        seen = play.run()
        play.forget_tasks()
        seen["unretrieved_logged"] = play.unretrieved
        return seen
    finally:
        play.loop.close()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        for case in json.load(file):
            print(json.dumps(observe(case)))


if __name__ == "__main__":
    main()
