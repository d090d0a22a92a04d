#!/usr/bin/python3
"""`corefan schema` against the parser: what one accepts the other accepts.

Thousands of sweeps are made from the schema itself: every key that it knows, in every place where it may stand, with
every value of a pool.  Where the two differ, the parser's message must be one of EXCEPTIONS: rules that no schema can
state.  The other way round there is no exception: what the parser takes, the schema takes.

COREFAN_BIN: directory of the programs.
"""
import itertools
import json
import os
import pathlib
import re
import subprocess
import unittest

import jsonschema
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("COREFAN_BIN", ROOT / "build" / "dev" / "bin"))

# what only the parser can know: message -> why
EXCEPTIONS = {
    r"must be .+ to .+, not '": "limits of a value written with a unit, or in quotes",
    r"not a whole number": "a decimal with a unit that comes to no whole number",
    r"must be a whole number.*, not '[0-9.]+[kM]?'": "the same, of a count",
    r"must be (0\.001/s to 10M/s|0\.01x to 10x), not|must be above 0 and at most 1, not '[0-9]": "the same, of a rate or a fraction",
    r"must be a number, not '[0-9.]+[num]s'": "a part of a nanosecond",
    r"not YAML: ": "another reader of YAML forgives what libyaml does not",
    r"does not fit": "which keys fit which jobs: jobs stand in another key, or at the top",
    r"is of no use without": "a key that another one makes useful, in this map or at the top",
    r"no 'delay': job": "needed by some jobs alone",
    r"unknown job '|has no job '": "own jobs are named in another map",
    r"an entry has one of them|does not go with windows": "keys that exclude each other, in this map or at the top",
    r"'children' is .+, more than a 'fanout'": "numbers compared",
    r"after a 'delay' of": "durations compared",
    r"'min' is above 'max'": "numbers compared",
    r"less than one fan-out in a window": "a rate and a duration multiplied",
    r"'clients' x 'fanout' is|'rounds' x 'processes'": "numbers multiplied",
    r"cells up to here": "how many cells an entry comes to",
    r"needs a runtime with a collector|is for libuv alone": "what runtimes can do, which stand in another key",
    r"two different runtimes are called": "labels are unique in the whole sweep",
}

POOL = [
    None, True, False, 0, 1, 2, 4, 7, 100, -1, 0.5, 1.5, 10**6, 10**6 + 1, 10**19,
    "", "0", "1", "40", "10k", "1.5k", "2M", "x", "-x", ".x", "a b", "a/b", "ü", "name-1.2_+", "n" * 64, "n" * 65,
    "5ms", "0ms", "0.5us", "0.0001ns", "1h", "2h", "5", "5 ms", "-5ms", "1.ms", "10%", "0%", "100%", "101%", "0.25", ".5", "-0.5",
    "1000/s", "50k/s", "0/s", "0.5x", "0x", "11x", "100M/s", "true", "false", "yes", "null",
    [], [1], [1, 2], ["5ms", "6ms"], [[1]], ["sequential"], ["gather", "tasks"], ["gather", "nothing"], [None],
    {}, {"a": 1}, {"kind": "sleep"}, {"kind": "tcp"}, {"kind": "own"}, {"ladder": 64}, {"ladder": 1}, {"ladder": "8", "x": 1},
    {"children": 1}, {"children": 1, "fraction": 0.5}, {"fraction": "50%"}, {"children": 1, "at": "2ms", "outcome": "cancel"},
    {"children": 1, "on_cancel": "cleanup"}, {"children": 1, "on_cancel": "cleanup", "cleanup": "1ms"},
    {"children": 1, "cleanup": "1ms"}, {"children": 1, "cpu": "3ms"}, {"children": 1, "cpu": "0ms"},
    {"metric": "wall_ns", "max": 5}, {"metric": "wall_ns"}, {"metric": "wall_ns", "min": "1ms", "arm": ["gather"]},
    {"metric": "nothing", "max": 1}, {"job": "sleep"}, {"job": "sleep", "fanout": 2, "delay": "1ms"},
    [{"job": "sleep", "fanout": 2, "delay": "1ms"}, {"job": "noop", "fanout": 2}], {"name": "x"},
    [{"metric": "cpu_ns", "max": "1ms"}, {"metric": "cpu_ns", "max": 1, "job": "sleep", "cores": "all"}],
]  # fmt: skip
RUNTIMES = [
    "libuv", "nodejs", "asyncio", {"kind": "asyncio"}, {"kind": "asyncio", "eager": True}, {"kind": "libuv", "eager": True},
    {"kind": "uvloop", "label": "fast", "python": "/usr/bin/python3"}, {"kind": "libuv", "label": "a b"},
    {"kind": "asyncio", "jobs": {"shop": "m:f"}, "path": "."}, {"kind": "asyncio", "path": "."}, {"eager": True},
    {"kind": "asyncio", "jobs": {"sleep": "m:f"}}, {"kind": "asyncio", "jobs": {}}, {"kind": "asyncio", "jobs": {"a b": "m:f"}},
    {"kind": "asyncio", "jobs": {"shop": ""}}, {"kind": "asyncio", "jobs": {"shop": None}},
]  # fmt: skip
CELL = {"job": "sleep", "fanout": 4, "delay": "5ms"}


class Core(yaml.SafeLoader):
    """Scalars as YAML 1.2 reads them: `on` is a word."""


Core.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in pairs if tag != "tag:yaml.org,2002:bool"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Core.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


def schema():
    done = subprocess.run([BIN / "corefan", "schema"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def judge(texts):
    """What the parser says of each text: None, or its mistakes."""
    data = b"".join(b"%d\n%s" % (len(text), text) for text in texts)
    done = subprocess.run([BIN / "judge_sweeps"], input=data, capture_output=True, check=True)
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    assert len(lines) == len(texts), (len(lines), len(texts))
    return [None if line == "good" else line.removeprefix("bad: ") for line in lines]


def words_of(node):
    """All words of all enums, and all names of keys."""
    if isinstance(node, dict):
        yield from (word for word in node.get("enum", []) if isinstance(word, str))
        yield from node.get("properties", {})
        for child in node.values():
            yield from words_of(child)
    elif isinstance(node, list):
        for child in node:
            yield from words_of(child)


def maps_of(schema_of_key):
    """The maps that a key's value may be, with the names of their keys."""
    for choice in [schema_of_key, *schema_of_key.get("anyOf", [])]:
        if "properties" in choice:
            yield list(choice["properties"])
        if choice is not schema_of_key:
            yield from maps_of(choice)
        if "items" in choice:
            yield from maps_of(choice["items"])


SEEDS = {"fail": {"children": 1}, "stall": {"children": 1, "cpu": "1ms"}, "runtimes": {"kind": "asyncio"},
         "expect": {"metric": "cpu_ns", "max": 1}, "clients": {"ladder": 4}, "job": {"kind": "sleep"}, "matrix": CELL}


def made_sweeps(root):
    pool = POOL + RUNTIMES + [[value] for value in RUNTIMES] + sorted(set(words_of(root)))
    keys = list(root["properties"]) + ["fanouts", "Rounds", ""]
    for key, value in itertools.product(keys, pool):
        yield CELL | {key: value}
        yield {"matrix": [CELL | {key: value}]}
    for key in root["properties"]:
        inner = root["properties"][key]
        inner = root["$defs"][key] if "$ref" in inner else inner
        for names in maps_of(inner):
            if key != "matrix":
                for name, value in itertools.product([*names, "nothing"], pool):
                    yield CELL | {key: SEEDS[key] | {name: value}}
    for missing in ("job", "fanout"):
        rest = {key: value for key, value in CELL.items() if key != missing}
        yield from (rest, {"matrix": rest}, {"matrix": [CELL, rest]}, {"matrix": [rest], missing: CELL[missing]})


class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schema = schema()
        jsonschema.Draft202012Validator.check_schema(cls.schema)
        cls.validator = jsonschema.Draft202012Validator(cls.schema)

    def compare(self, sweeps, texts):
        used, accepted = set(), 0
        for sweep, text, mistakes in zip(sweeps, texts, judge(texts)):
            takes = self.validator.is_valid(sweep)
            accepted += mistakes is None
            if mistakes is None:
                self.assertTrue(takes, f"the parser takes it, the schema does not: {text}")
            elif takes:
                excused = [reason for reason in EXCEPTIONS if re.search(reason, mistakes)]
                self.assertTrue(excused, f"the schema takes it, the parser does not: {text}\n{mistakes}")
                used.update(excused)
        return accepted, used

    def test_made_sweeps(self):
        sweeps = list(made_sweeps(self.schema))
        accepted, used = self.compare(sweeps, [json.dumps(sweep).encode() for sweep in sweeps])
        self.assertGreater(accepted, 300)
        self.assertGreater(len(sweeps) - accepted, 3000)
        self.assertGreater(len(used), 8)

    def test_sweeps_of_the_tree(self):
        paths = [*ROOT.glob("examples/**/*.yaml"), *ROOT.glob("tests/fuzz/corpus/sweep/*")]
        self.assertGreater(len(paths), 6)
        sweeps, texts = [], []
        for path in paths:
            try:
                sweep = yaml.load(path.read_text(), Core)
            except (yaml.YAMLError, ValueError, RecursionError):
                continue
            if isinstance(sweep, dict):
                sweeps.append(sweep)
                texts.append(path.read_bytes())
        self.assertGreater(self.compare(sweeps, texts)[0], 5)

    def test_it_is_strict(self):
        """Guards the comparison itself: a schema that takes everything would need an exception for these."""
        for sweep in ({"job": "sleep", "fanouts": 4}, CELL | {"arms": "gathr"}, CELL | {"rounds": 0}, CELL | {"seed": "x"}):
            self.assertFalse(self.validator.is_valid(sweep), sweep)
            self.assertIsNotNone(judge([json.dumps(sweep).encode()])[0])

    def test_every_key_tells_what_it_is(self):
        for name, node in self.schema["$defs"].items():
            self.assertTrue(node.get("description"), name)


if __name__ == "__main__":
    unittest.main()
