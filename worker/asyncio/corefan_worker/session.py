"""The session with the coordinator: SPEC.md's state machine of a worker.

It sleeps in a poll over the socket, the socket's monitor, the loop's process and signals.  While a slice is prepared or
measured it stays asleep, unless it has a CPU of its own; else heartbeats go out between two rounds, when the loop's
process stands still for them.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from time import monotonic_ns
from typing import Any

import zmq
import zmq.utils.monitor

from . import __version__, machine, wire
from .frames import MAX_FRAME_BYTES, Refused, one_line
from .loop_process import Died, LoopProcess, Refusal
from .options import PROGRAM, Options

PATIENCE_NS = 60_000_000_000
"""How long a worker lives without a coordinator."""
LINGER_MS = 500
LOOK_NS = 1_000_000_000
"""How often a launched worker looks whether its launcher lives, where it is not told."""


class Unreachable(Exception):
    """The endpoint cannot be used; the text is for the user."""


class Ended(Exception):
    """The session is over."""

    def __init__(self, code: int, reason: str | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Link:
    """The DEALER socket: whole frames out and in, and whether anyone is at the other end."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, LINGER_MS)
        self.socket.setsockopt(zmq.IMMEDIATE, 1)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 100)
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        self.socket.setsockopt(zmq.MAXMSGSIZE, 2 * MAX_FRAME_BYTES)  # beyond it ZeroMQ drops the connection
        self.monitor = self.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        try:
            self.socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise Unreachable(f"cannot connect to '{endpoint}': {error}") from error

    def events(self) -> list[bool]:
        """What happened to the transport, in order: True when it came up, False when it was lost."""
        seen = []
        while self.monitor.poll(0):
            event = zmq.utils.monitor.recv_monitor_message(self.monitor)
            seen.append(event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED)
        return seen

    def send(self, frame: bytes) -> None:
        """Nobody there: the frame is dropped, as it is when the transport is lost a moment later."""
        try:
            self.socket.send(frame, zmq.DONTWAIT)
        except zmq.Again:
            pass

    def receive(self) -> list[bytes] | None:
        try:
            frames: list[bytes] = self.socket.recv_multipart(zmq.DONTWAIT)
            return frames
        except zmq.Again:
            return None

    def close(self) -> None:
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close()
        self._context.term()


def hello_fields(options: Options, loop: dict[str, Any]) -> dict[str, Any]:
    """What a hello says; the same for the whole life of the process."""
    place = machine.cpu_place(options.cpu) if options.cpu is not None else {}
    instance = os.urandom(16).hex()
    versions = {
        "corefan": __version__,
        "kernel": os.uname().release,
        "zmq": zmq.zmq_version(),
        "pyzmq": zmq.__version__,
        **loop["versions"],
    }
    return {
        "instance": instance,
        "runtime": options.loop,
        "label": options.label,
        "host": socket.gethostname() or "unknown",
        "boot_id": machine.boot_id() or instance,
        "pid": os.getpid(),
        "slot": options.slot,
        "cpu": options.cpu,
        **place,
        "versions": versions,
        "arms": loop["arms"],
        "jobs": loop["jobs"],
        **loop["noise"],
        "busy_heartbeats": options.housekeeping.apart,
    }


class Session:
    def __init__(self, options: Options, loop: LoopProcess) -> None:
        self._options = options
        self._loop = loop
        self._hello = hello_fields(options, loop.hello)
        self._signals, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self._launcher = os.getppid()
        self._link = Link(options.connect)
        self._state = "idle"
        self._slice: dict[str, Any] | None = None
        self._go: dict[str, Any] | None = None
        self._rounds_done = 0
        self._connected = False
        self._welcomed = False
        self._alone_since = monotonic_ns()
        self._heartbeat_ns = 0
        self._next_heartbeat_ns = 0
        self._unacknowledged: dict[tuple[int, int, int, int], bytes] = {}
        self._handlers = {
            "welcome": self._on_welcome,
            "reject": self._on_reject,
            "assign": self._on_assign,
            "go": self._on_go,
            "ack": self._on_ack,
            "abort": self._on_abort,
            "bye": self._on_bye,
        }

    def run(self) -> Ended:
        """Until the session is over; why, and the exit code."""
        try:
            while True:
                self._wait()
                self._look_at_signals()
                self._look_at_transport()
                self._look_at_frames()
                self._look_at_loop()
                self._look_at_time()
        except Ended as end:
            return end
        except Refusal as refusal:
            self._send("bye", reason=str(refusal))
            return Ended(1, str(refusal))

    def close(self) -> None:
        self._loop.kill()
        self._link.close()

    def _log(self, text: str) -> None:
        if self._options.verbose:
            print(f"{PROGRAM}: {one_line(text)}", file=sys.stderr, flush=True)

    def _send(self, kind: str, **content: Any) -> None:
        self._link.send(wire.encode(kind, **content))

    # Waiting

    def _quiet(self) -> bool:
        """Nothing of ours may run now unless somebody calls."""
        return not self._options.housekeeping.apart and self._state in ("preparing", "measuring")

    def _due_ns(self) -> list[int]:
        due = [at for at in (self._loop.due_ns(),) if at is not None]
        if not self._welcomed:
            due.append(self._alone_since + PATIENCE_NS)
        if self._quiet():
            return due
        if self._welcomed:
            due.append(self._next_heartbeat_ns)
        if self._options.slot is not None:
            due.append(monotonic_ns() + LOOK_NS)
        return due

    def _wait(self) -> None:
        poller = zmq.Poller()
        for source in (self._link.socket, self._link.monitor, self._loop.descriptor(), self._signals):
            poller.register(source, zmq.POLLIN)
        due = self._due_ns()
        poller.poll(max(0, (min(due) - monotonic_ns()) // 1_000_000 + 1) if due else None)

    def _look_at_signals(self) -> None:
        try:
            os.read(self._signals, 512)
        except BlockingIOError:
            return
        self._send("bye", reason="told to end by a signal")
        raise Ended(0, "told to end by a signal")

    def _look_at_transport(self) -> None:
        for up in self._link.events():
            self._connected = up
            if up:
                self._log("connected")
                self._send("hello", **self._hello)
            else:
                self._log("the transport is lost")
            if self._welcomed:
                self._welcomed, self._alone_since = False, monotonic_ns()

    def _look_at_time(self) -> None:
        now = monotonic_ns()
        if self._options.slot is not None and os.getppid() != self._launcher:
            raise Ended(1, "the launcher is gone")
        if not self._welcomed and now >= self._alone_since + PATIENCE_NS:
            what = "did not answer" if self._connected else "was not there"
            raise Ended(1, f"the coordinator at {self._options.connect} {what} for {PATIENCE_NS // 10**9} s")
        if self._welcomed and not self._quiet() and now >= self._next_heartbeat_ns:
            self._heartbeat()

    def _heartbeat(self) -> None:
        self._next_heartbeat_ns = monotonic_ns() + self._heartbeat_ns
        held = self._slice or {}
        self._send(
            "heartbeat",
            group=held.get("group"),
            attempt=held.get("attempt"),
            rounds_done=self._rounds_done,
            state=self._state,
        )

    # Frames of the coordinator

    def _look_at_frames(self) -> None:
        while (frames := self._link.receive()) is not None:
            try:
                if len(frames) != 1:
                    raise Refused("size", f"a message of {len(frames)} frames")
                message = wire.decode(frames[0])
                handler = self._handlers.get(message["type"])
                if handler is None:
                    raise Refused("type", f"a worker takes no {message['type']}")
            except Refused as refused:
                self._log(f"refused a frame: {refused}")
                self._send("reject", reason=str(refused))
                continue
            handler(message)

    def _on_welcome(self, message: dict[str, Any]) -> None:
        self._welcomed = True
        self._heartbeat_ns = message["heartbeat_ns"]
        self._log(f"worker {message['worker']} of run {message['run']}")
        for frame in self._unacknowledged.values():
            self._link.send(frame)
        self._loop.pace(self._heartbeat_ns, hold=not self._options.housekeeping.apart)
        self._heartbeat()

    def _on_reject(self, message: dict[str, Any]) -> None:
        if not self._welcomed:
            raise Ended(2, f"refused by the coordinator: {message['reason']}")
        self._log(f"rejected: {message['reason']}")

    def _on_assign(self, message: dict[str, Any]) -> None:
        if self._state in ("preparing", "measuring"):
            self._loop.cancel()
        self._go, self._rounds_done = None, 0
        self._slice, self._state = message, "preparing"
        self._log(f"group {message['group']} attempt {message['attempt']}: {len(message['cells'])} cells")
        self._loop.prepare({name: message[name] for name in ("seed", "blocks", "cells")})

    def _holds(self, message: dict[str, Any]) -> bool:
        held = self._slice
        return held is not None and all(held[name] == message[name] for name in ("group", "attempt"))

    def _objection(self, go: dict[str, Any]) -> str | None:
        """Why a go cannot be followed."""
        held = self._slice
        if held is None or not self._holds(go) or self._state != "ready":
            return f"group {go['group']} attempt {go['attempt']} is not prepared here"
        if go["first_block"] + go["blocks"] > held["blocks"]:
            return f"blocks from {go['first_block']} on: {go['blocks']} are not in the slice"
        if go["cell"] is not None and all(cell["cell"] != go["cell"] for cell in held["cells"]):
            return f"cell {go['cell']} is not in the slice"
        if go["start_at_ns"] is not None and go["start_at_ns"] - monotonic_ns() > held["lease_ns"]:
            return "start_at_ns is further ahead than the lease"
        return None

    def _on_go(self, message: dict[str, Any]) -> None:
        objection = self._objection(message)
        if objection is not None:
            self._deliver(message, [], objection)
            return
        self._go, self._state, self._rounds_done = message, "measuring", 0
        self._loop.go({name: message[name] for name in ("first_block", "blocks", "cell", "start_at_ns")})

    def _deliver(self, go: dict[str, Any], rounds: list[dict[str, Any]], error: str | None) -> None:
        content = {name: go[name] for name in ("group", "attempt", "go")}
        for part, frame in enumerate(wire.encode_result(content, rounds, error)):
            self._unacknowledged[content["group"], content["attempt"], content["go"], part] = frame
            if self._welcomed:
                self._link.send(frame)

    def _on_ack(self, message: dict[str, Any]) -> None:
        self._unacknowledged.pop((message["group"], message["attempt"], message["go"], message["part"]), None)

    def _on_abort(self, message: dict[str, Any]) -> None:
        if not self._holds(message):
            return
        self._log(f"aborted: {message['reason']}")
        if self._state in ("preparing", "measuring"):
            self._loop.cancel()
        self._forget_slice()
        self._heartbeat()

    def _forget_slice(self) -> None:
        self._slice, self._go, self._state, self._rounds_done = None, None, "idle", 0

    def _on_bye(self, message: dict[str, Any]) -> None:
        raise Ended(0, f"the coordinator said bye: {message['reason'] or 'no reason given'}")

    # Answers of the loop's process

    def _look_at_loop(self) -> None:
        try:
            while (answer := self._loop.take()) is not None:
                self._take_answer(answer)
        except Died as death:
            self._log(str(death))
            self._report_death(str(death))

    def _take_answer(self, answer: dict[str, Any]) -> None:
        if answer["kind"] == "beat":
            self._rounds_done = answer["rounds_done"]
            if not self._options.housekeeping.apart:
                if self._welcomed:
                    self._heartbeat()
                self._loop.go_on()
        elif answer["kind"] == "prepared" and self._state == "preparing":
            self._answer_ready(answer["cells"], answer["error"])
        elif answer["kind"] == "rounds" and self._go is not None:
            go, self._go, self._state = self._go, None, "ready"
            self._rounds_done = len(answer["rounds"])
            self._deliver(go, answer["rounds"], answer["error"])
            self._next_heartbeat_ns = monotonic_ns() + self._heartbeat_ns

    def _answer_ready(self, cells: list[dict[str, Any]], error: str | None) -> None:
        assert self._slice is not None
        held = self._slice
        if error is None:
            self._state = "ready"
        else:
            self._forget_slice()
        self._send("ready", group=held["group"], attempt=held["attempt"], cells=cells, error=error)
        self._next_heartbeat_ns = monotonic_ns() + self._heartbeat_ns

    def _report_death(self, reason: str) -> None:
        if self._state == "preparing":
            self._answer_ready([], reason)
            return
        if self._go is not None:
            self._deliver(self._go, [], reason)
        self._forget_slice()
