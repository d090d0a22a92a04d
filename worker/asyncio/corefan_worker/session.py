"""The session with the coordinator: SPEC.md's state machine of a worker.

It sleeps in a poll over the socket, the socket's monitor, the loop's process and signals.  While a slice is prepared or
measured it stays asleep, unless it has a CPU of its own; else heartbeats go out between two rounds, when the loop's
process stands still for them.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

import zmq
import zmq.utils.monitor

from . import PROTOCOL, __version__, machine, wire
from .frames import Refused, one_line
from .loop_process import Died, LoopProcess, Refusal
from .options import PROGRAM, Keys, Options

LINGER_MS = 300
MAX_MESSAGE_BYTES = 16 << 20
"""Longer ones ZeroMQ answers by dropping the connection; those in between are refused in words."""
ERROR, WARNING, INFO, DEBUG = range(4)
INTERRUPTED = 130


class Unreachable(Exception):
    """The endpoint cannot be used; the text is for the user."""


class NotLetIn(Exception):
    """The coordinator does not know our key."""


class Ended(Exception):
    """The session is over."""

    def __init__(self, code: int, reason: str | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Link:
    """The DEALER socket: whole frames out and in, and whether anyone is at the other end."""

    def __init__(self, endpoint: str, keys: Keys | None) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        if keys is not None:
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, keys.coordinator)
        self.socket.setsockopt(zmq.LINGER, LINGER_MS)
        self.socket.setsockopt(zmq.IMMEDIATE, 1)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 100)
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self.socket.setsockopt(zmq.IPV6, 1)
        self.monitor = self.socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_DISCONNECTED
        )
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
            if event["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                raise NotLetIn
            seen.append(event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED)
        return seen

    def send(self, frame: bytes) -> bool:
        """False: nobody there, the frame is dropped."""
        try:
            self.socket.send(frame, zmq.DONTWAIT)
        except zmq.Again:
            return False
        return True

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


def launcher_lifeline() -> int | None:
    """stdin, where it is a pipe of the launcher: it becomes readable when the launcher is gone, even behind a wrapper
    that keeps the kernel from telling us."""
    try:
        return 0 if stat.S_ISFIFO(os.fstat(0).st_mode) else None
    except OSError:
        return None


class Session:
    def __init__(self, options: Options, loop: LoopProcess) -> None:
        self._options = options
        self._loop = loop
        self._hello = hello_fields(options, loop.hello)
        self._signals, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup wants none of it
                signal.signal(number, lambda *_: None)
        self._lifeline = launcher_lifeline() if options.slot is not None else None
        self._link = Link(options.connect, options.keys)
        self._state = "idle"
        self._slice: dict[str, Any] | None = None
        self._go: dict[str, Any] | None = None
        self._winding_up = False
        self._rounds_done = 0
        self._hello_due = False
        self._welcomed = False
        self._met = False
        self._run: str | None = None
        self._ready: bytes | None = None  # kept until the first go, sent again after a reconnection
        self._refused_frames = 0
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
        self._before_welcome = frozenset({"welcome", "reject", "ack", "abort", "bye"})

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
        if self._refused_frames > 1:
            self._log(WARNING, f"refused {self._refused_frames} frames in all")
        self._loop.kill()
        self._link.close()

    def _log(self, level: int, text: str) -> None:
        if self._options.log_level >= level:
            print(f"{PROGRAM}: {one_line(text)}", file=sys.stderr, flush=True)

    def _send(self, kind: str, **content: Any) -> bool:
        return self._link.send(wire.encode(kind, **content))

    # Waiting

    def _quiet(self) -> bool:
        """Nothing of ours may run now unless somebody calls."""
        return not self._options.housekeeping.apart and self._state in ("preparing", "measuring")

    def _due_ns(self) -> list[int]:
        due = [at for at in (self._loop.due_ns(),) if at is not None]
        if self._hello_due:
            due.append(monotonic_ns() + 10_000_000)
        if not self._welcomed:
            due.append(self._alone_since + self._options.patience_ns)
        elif not self._quiet():
            due.append(self._next_heartbeat_ns)
        return due

    def _wait(self) -> None:
        poller = zmq.Poller()
        for source in (self._link.socket, self._link.monitor, self._loop.descriptor(), self._signals, self._lifeline):
            if source is not None:
                poller.register(source, zmq.POLLIN)
        due = self._due_ns()
        ready = dict(poller.poll(max(0, (min(due) - monotonic_ns()) // 1_000_000 + 1) if due else None))
        if self._lifeline in ready:
            raise Ended(1, "the launcher is gone")

    def _look_at_signals(self) -> None:
        try:
            numbers = os.read(self._signals, 512)
        except BlockingIOError:
            return
        reason = f"stopped by {signal.Signals(numbers[-1]).name}"
        self._send("bye", reason=reason)
        raise Ended(INTERRUPTED if signal.SIGINT in numbers else 0, reason)

    def _look_at_transport(self) -> None:
        try:
            events = self._link.events()
        except NotLetIn:
            where = self._options.connect
            raise Ended(
                2, f"the coordinator at '{where}' does not let this key in: it wants our *.pub among its --authorized-keys"
            ) from None
        for up in events:
            if self._welcomed:
                self._alone_since = monotonic_ns()
                if not up:
                    self._log(WARNING, f"lost the coordinator at '{self._options.connect}', waits for it to come back")
            self._hello_due, self._welcomed = up, False
        if self._hello_due:
            self._hello_due = not self._send("hello", **self._hello)

    def _look_at_time(self) -> None:
        now = monotonic_ns()
        if self._welcomed:
            if not self._quiet() and now >= self._next_heartbeat_ns:
                self._heartbeat()
        elif now >= self._alone_since + self._options.patience_ns:
            what = "lost" if self._met else "waited in vain for"
            seconds = self._options.patience_ns / 1e9
            raise Ended(1, f"{what} the coordinator at '{self._options.connect}' for {seconds:.3g} s, gives up")

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
                self._handler(message["type"])(message)
            except Refused as refused:
                self._refuse(frames[0], refused)

    def _handler(self, kind: str) -> Callable[[dict[str, Any]], None]:
        if kind not in self._handlers:
            raise Refused("type", f"a worker takes no '{kind}'")
        if not self._welcomed and kind not in self._before_welcome:
            raise Refused("type", f"'{kind}' before welcome")
        return self._handlers[kind]

    def _refuse(self, frame: bytes, refused: Refused) -> None:
        kind, version = wire.peek(frame)
        if kind != "reject":  # a reject is never answered
            self._send("reject", reason=str(refused))
        if refused.rule == "version" and wire.is_version(version) and not self._welcomed:
            raise Ended(
                2,
                f"the coordinator at '{self._options.connect}' speaks protocol {version[0]}.{version[1]}, "
                f"this worker {PROTOCOL[0]}.{PROTOCOL[1]}: use the same version",
            )
        self._refused_frames += 1
        if self._refused_frames == 1:
            self._log(WARNING, f"refused a frame of the coordinator: {refused} (further ones are counted)")

    def _on_welcome(self, message: dict[str, Any]) -> None:
        if self._run not in (None, message["run"]):
            self._drop_slice()  # another run knows nothing of the last one
            self._unacknowledged.clear()
        self._run, self._welcomed, self._met = message["run"], True, True
        self._heartbeat_ns = message["heartbeat_ns"]
        self._log(INFO, f"worker {message['worker']} of run '{message['run']}'")
        if self._ready is not None:
            self._link.send(self._ready)
        for frame in self._unacknowledged.values():
            self._link.send(frame)
        self._loop.pace(self._heartbeat_ns, hold=not self._options.housekeeping.apart)
        self._heartbeat()

    def _on_reject(self, message: dict[str, Any]) -> None:
        if not self._welcomed:
            where = self._options.connect
            raise Ended(2, f"the coordinator at '{where}' refused this worker: {message['reason']}")
        self._log(WARNING, f"the coordinator refused a frame: {message['reason']}")

    def _on_assign(self, message: dict[str, Any]) -> None:
        self._drop_slice()
        self._slice, self._state = message, "preparing"
        self._log(DEBUG, f"prepares group {message['group']}, attempt {message['attempt']}")
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
        self._ready = None
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
        ended = (message["group"], message["attempt"])
        if not message["keep"]:
            for part in [part for part in self._unacknowledged if part[:2] == ended]:
                del self._unacknowledged[part]
        if not self._holds(message):
            return
        how = "over" if message["keep"] else "void"
        self._log(DEBUG, f"group {ended[0]}, attempt {ended[1]} is {how}: {message['reason']}")
        if message["keep"] and self._go is not None:
            self._winding_up = True
            self._loop.wind_up()
            return
        self._drop_slice()
        self._heartbeat()

    def _drop_slice(self) -> None:
        if self._state in ("preparing", "measuring"):
            self._loop.cancel()
        self._forget_slice()

    def _forget_slice(self) -> None:
        self._slice, self._go, self._state, self._rounds_done, self._ready = None, None, "idle", 0, None
        self._winding_up = False  # its result is the last thing of the slice

    def _on_bye(self, message: dict[str, Any]) -> None:
        self._log(DEBUG, f"the coordinator says bye: {message['reason'] or '-'}")
        self._send("bye", reason="as told")  # the coordinator keeps its socket until then
        raise Ended(0)

    # Answers of the loop's process

    def _look_at_loop(self) -> None:
        try:
            while (answer := self._loop.take()) is not None:
                self._take_answer(answer)
        except Died as death:
            self._log(WARNING, str(death))
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
            if self._winding_up:
                self._forget_slice()
                self._heartbeat()

    def _answer_ready(self, cells: list[dict[str, Any]], error: str | None) -> None:
        assert self._slice is not None
        held = self._slice
        if error is None:
            self._state = "ready"
        else:
            self._log(WARNING, f"cannot run group {held['group']}: {error}")
            self._forget_slice()
        self._ready = wire.encode("ready", group=held["group"], attempt=held["attempt"], cells=cells, error=error)
        self._link.send(self._ready)
        self._next_heartbeat_ns = monotonic_ns() + self._heartbeat_ns

    def _report_death(self, reason: str) -> None:
        if self._state == "preparing":
            self._answer_ready([], reason)
            return
        if self._go is not None:
            self._deliver(self._go, [], reason)
        self._forget_slice()
