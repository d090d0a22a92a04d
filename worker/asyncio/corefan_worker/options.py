"""The command line."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import sys
from dataclasses import dataclass
from typing import NoReturn

from . import PROTOCOL, __version__
from .frames import holds_control
from .loops import KINDS
from .machine import parse_cpu_list

PROGRAM = "corefan-worker-asyncio"


class BadUsage(Exception):
    """The text is one line for the user."""


@dataclass(frozen=True)
class Housekeeping:
    """Where everything but the measured loop lives."""

    cpus: frozenset[int]
    apart: bool  # set aside for this, and not measured on: heartbeats may go out while a slice is measured


@dataclass(frozen=True)
class Keys:
    """CURVE keys, each of 40 characters of Z85."""

    public: bytes
    secret: bytes
    coordinator: bytes


@dataclass(frozen=True)
class Options:
    connect: str
    cpu: int | None
    slot: int | None
    label: str
    housekeeping: Housekeeping
    loop: str
    eager: bool
    jobs: dict[str, str]
    path: str | None
    python: str
    keys: Keys | None
    patience_ns: int
    log_level: int  # 0: errors only, 1: warnings, 2: what a user wants to see, 3: all


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadUsage(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="One worker of corefan on Python's event loops: asyncio or uvloop.",
        usage="%(prog)s --connect ENDPOINT [--loop LOOP] [OPTION...]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example:\n  corefan-worker-asyncio --connect tcp://127.0.0.1:5555 --loop uvloop --cpu 1\n"
        "Exit codes: 0 done, 1 the coordinator or the loop was lost,\n2 bad command line, or refused by the coordinator.",
    )
    parser.add_argument("-c", "--connect", metavar="ENDPOINT", required=True,
                        help="where the coordinator listens: tcp://127.0.0.1:5555 or ipc:///tmp/corefan")  # fmt: skip
    parser.add_argument("--loop", choices=KINDS, default="asyncio", help="the loop to measure (default: asyncio)")
    parser.add_argument("--eager", action="store_true", help="eager tasks (Python 3.12 and later)")
    parser.add_argument("-p", "--cpu", metavar="N", help="pin the measured process to this CPU")
    parser.add_argument("--housekeeping", metavar="LIST", default="auto",
                        help="CPUs of the session (0,2-5), auto (any but the measured one) or none (the measured one). "
                        "With a list apart from the measured CPU heartbeats go out while it measures, "
                        "else between rounds")  # fmt: skip
    parser.add_argument("--label", metavar="L", help="what sweeps and reports call it (default: the loop)")
    parser.add_argument("--slot", metavar="N",
                        help="number of the place that a launcher gave it; it then ends with its parent")  # fmt: skip
    parser.add_argument("--job", metavar="NAME=MODULE:FUNCTION", action="append", default=[],
                        help="offer your own coroutine as a job: an async callable (index) -> value")  # fmt: skip
    parser.add_argument("--path", metavar="DIR",
                        help="where --job's modules are, looked at before the current directory")  # fmt: skip
    parser.add_argument("--python", metavar="PATH", default=sys.executable,
                        help="interpreter of the measured process; it needs no package, or uvloop")  # fmt: skip
    parser.add_argument("--key", metavar="FILE", help="our key pair (corefan keygen), for a coordinator that asks for one")
    parser.add_argument("--coordinator-key", metavar="FILE", help="the coordinator's public key")
    parser.add_argument("--patience", metavar="DURATION", default="60s",
                        help="how long to wait for a lost coordinator (default: 60s)")  # fmt: skip
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__} (protocol {PROTOCOL[0]}.{PROTOCOL[1]})")
    return parser


def _number(option: str, text: str | None, most: int) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) > most:
        raise BadUsage(f"{option}: '{text}' is not a number in 0..{most}")
    return int(text)


def _check_cpu(option: str, cpu: int, allowed: frozenset[int]) -> None:
    if cpu not in allowed:
        exists = os.path.exists(f"/sys/devices/system/cpu/cpu{cpu}")
        raise BadUsage(f"{option}: cpu {cpu} {'is not allowed for this process' if exists else 'does not exist'}")


_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def parse_duration(option: str, text: str) -> int:
    """"250ms" -> ns."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ns|us|ms|s|m|h)", text)
    if match is None:
        raise BadUsage(f"{option}: '{text}' is not a duration like 60s or 250ms")
    return round(float(match[1]) * _UNITS_NS[match[2]])


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


MOST_KEY_BYTES = 4096


def read_key(option: str, path: str, word: str) -> bytes:
    """The key behind a word of a file of corefan keygen; a secret one is refused where others can read it."""
    try:
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            if word == "secret" and about.st_mode & 0o077:
                raise BadUsage(f"{option}: others can read '{path}': chmod 600 it, or make a new one")
            lines = file.read(MOST_KEY_BYTES).decode("ascii", "replace").splitlines()
    except OSError as error:
        raise BadUsage(f"{option}: cannot read key file '{path}': {error.strerror}") from error
    for line in lines:
        words = line.split()
        if len(words) == 2 and words[0] == word and re.fullmatch(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}", words[1]):
            return words[1].encode()
    raise BadUsage(f"{option}: '{path}' holds no '{word}' key (corefan keygen makes one)")


def read_keys(own: str | None, coordinator: str | None) -> Keys | None:
    if own is None and coordinator is None:
        return None
    if own is None or coordinator is None:
        raise BadUsage("--key and --coordinator-key belong together: say both, or none")
    return Keys(
        public=read_key("--key", own, "public"),
        secret=read_key("--key", own, "secret"),
        coordinator=read_key("--coordinator-key", coordinator, "public"),
    )


def check_endpoint(endpoint: str, has_keys: bool = False) -> str:
    """Without keys loopback and ipc only: nothing on the wire is encrypted then."""
    if re.fullmatch(r"ipc://.+", endpoint):
        return endpoint
    match = re.fullmatch(r"tcp://(?:\[([^\[\]]+)\]|([^:\[\]]+)):([0-9]{1,5})", endpoint)
    if match is None or int(match[3]) > 65535:
        raise BadUsage(f"'{endpoint}' is no endpoint (examples: tcp://127.0.0.1:5555, ipc:///tmp/corefan)")
    if not has_keys and not _is_loopback(match[1] or match[2]):
        raise BadUsage(
            f"'{endpoint}' lies beyond loopback, where only keys protect the connection: give --key and "
            "--coordinator-key (corefan keygen)"
        )
    return endpoint


def _log_level(words: argparse.Namespace) -> int:
    if words.quiet:
        return 0
    if words.verbose:
        return 3
    return 1 if words.slot is not None else 2


def choose_housekeeping(wanted: str, measured: int | None, allowed: frozenset[int]) -> Housekeeping:
    """auto: every allowed CPU but the measured one, but not apart, since others may be measured there; none: the
    measured CPU itself; a list: those, apart unless the measured one is among them."""
    if wanted == "none":
        return Housekeeping(allowed if measured is None else frozenset({measured}), False)
    if wanted == "auto":
        return Housekeeping(frozenset(cpu for cpu in allowed if cpu != measured) or allowed, False)
    try:
        cpus = parse_cpu_list(wanted)
    except ValueError:
        raise BadUsage(f"--housekeeping: '{wanted}' is not auto, none or a list like 0,2-5") from None
    for cpu in sorted(cpus):
        _check_cpu("--housekeeping", cpu, allowed)
    return Housekeeping(cpus, measured not in cpus)


def _jobs(words: list[str]) -> dict[str, str]:
    jobs: dict[str, str] = {}
    for word in words:
        name, equals, target = word.partition("=")
        if not equals or not name or ":" not in target or holds_control(name) or len(name.encode()) > 128:
            raise BadUsage(f"--job: '{word}' is not NAME=MODULE:FUNCTION")
        if name in jobs:
            raise BadUsage(f"--job: '{name}' is given twice")
        jobs[name] = target
    return jobs


def _label(text: str) -> str:
    if not 1 <= len(text.encode("utf-8", "replace")) <= 128 or holds_control(text):
        raise BadUsage("--label: not a name of 1..128 bytes without control characters")
    return text


def parse(argv: list[str]) -> Options:
    """Raises BadUsage; --help and --version print and end the process, as argparse does."""
    words = _parser().parse_args(argv)
    allowed = frozenset(os.sched_getaffinity(0))
    cpu = _number("--cpu", words.cpu, (1 << 20) - 1)
    if cpu is not None:
        _check_cpu("--cpu", cpu, allowed)
    if words.path is not None and not os.path.isdir(words.path):
        raise BadUsage(f"--path: '{words.path}' is not a directory")
    return Options(
        connect=check_endpoint(words.connect, words.key is not None),
        cpu=cpu,
        slot=_number("--slot", words.slot, 65535),
        label=_label(words.label if words.label is not None else words.loop),
        housekeeping=choose_housekeeping(words.housekeeping, cpu, allowed),
        loop=words.loop,
        eager=words.eager,
        jobs=_jobs(words.job),
        path=words.path,
        python=words.python,
        keys=read_keys(words.key, words.coordinator_key),
        patience_ns=parse_duration("--patience", words.patience),
        log_level=_log_level(words),
    )
