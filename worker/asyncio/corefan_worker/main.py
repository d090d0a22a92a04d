"""corefan-worker-asyncio: options, the loop's process, the session; the only place that prints and ends."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from . import machine
from .frames import one_line
from .loop_process import LoopOptions, LoopProcess, Refusal
from .options import PROGRAM, BadUsage, Options, parse

SYSTEM_PYTHON = "/usr/bin/python3"
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


def lend_system_python(argv: list[str]) -> None:
    """An interpreter without those modules can still be measured: the session then runs on the system's python3, and
    this one is its --python.  Returns only where that cannot be done."""
    own = os.path.realpath(sys.executable)
    if not os.access(SYSTEM_PYTHON, os.X_OK) or own == os.path.realpath(SYSTEM_PYTHON):
        return
    probe = [SYSTEM_PYTHON, "-c", f"import {', '.join(NEEDED)}"]
    if subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0:
        package = str(Path(__file__).resolve().parent.parent)
        search = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        words = [SYSTEM_PYTHON, "-m", "corefan_worker", "--python", sys.executable, *argv]
        os.execve(SYSTEM_PYTHON, words, {**os.environ, "PYTHONPATH": search})


def fail(text: str, code: int) -> int:
    print(f"{PROGRAM}: {one_line(text)}", file=sys.stderr)
    return code


def lost_output(why: str) -> int:
    """One line, and nothing more when the interpreter tries again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return fail(f"cannot write to stdout: {why}", 1)


def fill_closed_stdout() -> None:
    """With a file that cannot be written: argparse would turn to stderr, and say nothing of it."""
    if sys.stdout is None:
        file = os.open(os.devnull, os.O_RDONLY)
        if file != 1:
            os.dup2(file, 1)
        sys.stdout = os.fdopen(1, "w")


def flush_output() -> int:
    try:
        sys.stdout.flush()
    except OSError as error:
        return lost_output(str(error.strerror))
    return 0


def loop_options(options: Options, allowed: frozenset[int]) -> LoopOptions:
    return LoopOptions(
        loop=options.loop,
        eager=options.eager,
        cpus=allowed if options.cpu is None else frozenset({options.cpu}),
        jobs=options.jobs,
        path=None if options.path is None else os.path.abspath(options.path),
        python=options.python,
    )


def work(options: Options, parent: int) -> int:
    from .session import Session, Unreachable  # needs the modules that were looked for before

    allowed = frozenset(os.sched_getaffinity(0))
    if options.slot is not None and not machine.die_with_parent(signal.SIGKILL, parent):
        return fail("the launcher is gone", 1)
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
    parent = os.getppid()
    fill_closed_stdout()
    try:
        options = parse(sys.argv[1:])
    except BadUsage as error:
        return fail(f"{error}; see --help", 2)
    except OSError as error:
        return lost_output(str(error.strerror))
    except SystemExit as end:  # --help or --version was printed
        return end.code if isinstance(end.code, int) and end.code else flush_output()
    missing = missing_modules()
    if missing is None:
        return work(options, parent)
    lend_system_python(sys.argv[1:])
    return fail(missing, 2)
