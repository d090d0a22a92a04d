#!/usr/bin/python3
"""Completion: what the real functions of bash and zsh offer, against what the programs themselves say.

COREFAN_BIN: directory of the programs.
"""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from test_man import COMMON, commands, keys_of, options_of_help, output, words_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("COREFAN_BIN", ROOT / "build" / "dev" / "bin")).resolve()
BASH = ROOT / "deploy" / "completion" / "corefan.bash"
ZSH = ROOT / "deploy" / "completion" / "_corefan"

IN_BASH = """source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _corefan
printf '%s\\n' "${COMPREPLY[@]}" """
# compadd and compset only work inside a widget: here they print what they were given
IN_ZSH = """words=("$@"); CURRENT=$#
compset() { }
compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -rl -- "$@" }
source $COREFAN_COMPLETION_ZSH"""


class Completion(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def ask(self, *argv):
        env = dict(os.environ, PATH=f"{BIN}:{os.environ['PATH']}", COREFAN_COMPLETION=str(BASH), COREFAN_COMPLETION_ZSH=str(ZSH))
        done = subprocess.run(argv, capture_output=True, text=True, cwd=self.scratch.name, env=env, timeout=30)
        self.assertEqual(done.stderr, "")
        return [line for line in done.stdout.splitlines() if line]

    def bash(self, *words):
        return self.ask("bash", "--norc", "-c", IN_BASH, "bash", str(BASH), *words)

    def zsh(self, *words):
        return self.ask("zsh", "-fc", IN_ZSH, "zsh", *words)

    def test_commands(self):
        for shell in (self.bash, self.zsh):
            self.assertEqual(sorted(shell("corefan", "")), sorted([*commands(), "--help", "--version"]))
            self.assertEqual(shell("corefan", "rep"), ["report"])

    def test_options_are_those_of_help(self):
        for name in commands():
            told = options_of_help(output("corefan", name, "--help"))
            self.assertEqual({word[2:] for word in self.bash("corefan", name, "--")}, told, name)
            self.assertGreaterEqual(told, COMMON)
        for name in ("corefan-worker", "corefan-worker-asyncio"):
            told = options_of_help(output(name, "--help"))
            self.assertEqual({word[2:] for word in self.bash(name, "--")}, told, name)
        self.assertEqual(self.zsh("corefan", "size", "--p"), ["--p99"])

    def test_keys_and_words_are_those_of_the_schema(self):
        schema = json.loads(output("corefan", "schema"))
        keys = self.bash("corefan", "run", "--set", "")
        self.assertEqual(sorted(keys), sorted(f"{key}=" for key in schema["properties"]))
        for key, node in schema["$defs"].items():
            values = [choice for choice in [node, *node.get("anyOf", [])] if "properties" not in choice]
            words = set(words_of([choice for choice in values if choice is not node] or node))
            inner = set(words_of([child for choice in [node] for child in maps_within(choice)])) | set(keys_of(node))
            offered = set(self.bash("corefan", "run", "--set", key, "=", ""))
            self.assertLessEqual(offered, words | inner, key)
            self.assertLessEqual(words - inner - {"true", "false"}, offered, key)
        self.assertEqual(self.bash("corefan", "plan", "--set", "arms", "=", "gather-"), ["gather-return-exceptions"])
        self.assertEqual(self.bash("corefan", "plan", "--set", "phase", "="), ["together", "staggered"])
        self.assertEqual(self.zsh("corefan", "plan", "--set", "arms=se"), ["sequential"])

    def test_values_of_options(self):
        for name in ("run", "report"):
            for word in self.bash("corefan", name, "--format", ""):
                done = subprocess.run([BIN / "corefan", "report", "nowhere", "--format", word], capture_output=True, text=True)
                self.assertNotIn("unknown format", done.stderr, word)
        self.assertEqual(self.bash("corefan", "plan", "--format", ""), ["text", "json"])
        self.assertEqual(self.bash("corefan", "compare", "a", "b", "--metric", "c"), ["cpu", "cpu,wall"])
        self.assertEqual(self.bash("corefan-worker-asyncio", "--loop", "u"), ["uvloop"])
        self.assertEqual(self.bash("corefan", "run", "--budget", ""), [])

    def test_runs_and_sweeps(self):
        output("make_run", f"{self.scratch.name}/runs/lab-1", "one_block")
        pathlib.Path(self.scratch.name, "mine.yaml").touch()
        pathlib.Path(self.scratch.name, "notes.txt").touch()
        self.assertIn("runs/lab-1", self.bash("corefan", "report", ""))
        self.assertIn("runs/lab-1", self.bash("corefan", "compare", "runs/lab-1", "runs/l"))
        self.assertEqual(self.bash("corefan", "report", "lab"), ["runs/lab-1"])
        self.assertEqual(self.bash("corefan", "run", "m"), ["mine.yaml"])
        self.assertEqual(self.bash("corefan", "run", "n"), [])
        self.assertEqual(self.zsh("corefan", "report", "runs/l"), ["runs/lab-1"])

    def test_the_files_stand_alone(self):
        done = subprocess.run(["bash", "-uc", f"source {BASH}; complete -p corefan-worker"], capture_output=True, text=True)
        self.assertEqual(done.stdout, "complete -F _corefan corefan-worker\n")
        self.assertEqual(subprocess.run(["zsh", "-n", ZSH]).returncode, 0)
        self.assertEqual(subprocess.run(["shellcheck", BASH]).returncode, 0)


def maps_within(node):
    for child in node.get("anyOf", []) + ([node["items"]] if "items" in node else []):
        if "properties" in child:
            yield child
        yield from maps_within(child)


if __name__ == "__main__":
    unittest.main()
