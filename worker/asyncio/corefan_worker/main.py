"""corefan-worker-asyncio: options, the loop's process, the session; the only place that prints and ends."""

from __future__ import annotations

import importlib
import os
import signal
import sys

from . import machine
from .frames import one_line
from .loop_process import LoopOptions, LoopProcess, Refusal
from .options import PROGRAM, BadUsage, Options, parse

# module -> package of Debian, package of PyPI
NEEDED = {"zmq": ("python3-zmq", "pyzmq"), "msgpack": ("python3-msgpack", "msgpack")}


def missing_modules() -> str | None:
    """One line that says what to install, or None."""
    for module, (debian, pypi) in NEEDED.items():
        try:
            importlib.import_module(module)
        except ImportError:
            return (
                f"{sys.executable} has no module '{module}': "
                f"install {debian} (Debian) or `{sys.executable} -m pip install {pypi}`"
            )
    return None


def fail(text: str, code: int) -> int:
    print(f"{PROGRAM}: {one_line(text)}", file=sys.stderr)
    return code


def loop_options(options: Options, allowed: frozenset[int]) -> LoopOptions:
    return LoopOptions(
        loop=options.loop,
        eager=options.eager,
        cpus=allowed if options.cpu is None else frozenset({options.cpu}),
        jobs=options.jobs,
        path=None if options.path is None else os.path.abspath(options.path),
        python=options.python,
    )


def work(options: Options) -> int:
    from .session import Session, Unreachable  # needs the modules that were looked for before

    allowed = frozenset(os.sched_getaffinity(0))
    if options.slot is not None:
        machine.die_with_parent(signal.SIGTERM, os.getppid())
    os.sched_setaffinity(0, options.housekeeping.cpus)  # ZeroMQ's threads inherit it
    try:
        loop = LoopProcess(loop_options(options, allowed))
    except Refusal as refusal:
        return fail(str(refusal), 2)
    try:
        session = Session(options, loop)
    except Unreachable as error:
        loop.kill()
        return fail(str(error), 2)
    end = session.run()
    session.close()
    return fail(end.reason, end.code) if end.code and end.reason else end.code


def main() -> int:
    try:
        options = parse(sys.argv[1:])
    except BadUsage as error:
        return fail(f"{error}; see --help", 2)
    missing = missing_modules()
    return fail(missing, 2) if missing else work(options)
