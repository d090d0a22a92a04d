#!/usr/bin/python3
"""Command lines: what the environment adds to them, and what is said of a word that is not there.

COREFAN_BIN: directory of the programs.  Nothing is measured.
"""
import json
import os
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("COREFAN_BIN", ROOT / "build" / "dev" / "bin"))
CPU = min(os.sched_getaffinity(0))
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("COREFAN_")}


class Words(unittest.TestCase):
    def corefan(self, *words, **env):
        return subprocess.run([BIN / "corefan", *words], capture_output=True, text=True, env=CLEAN | env, timeout=30)

    def refused(self, done, line):
        self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", line + "\n"))

    def workers(self, *words, **env):
        done = self.corefan("plan", "--format", "json", *words, **env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["workers_per_runtime"]

    def test_the_environment_counts_and_the_command_line_wins(self):
        self.assertEqual(self.workers(COREFAN_CPUS=str(CPU)), 1)
        self.assertEqual(self.workers(COREFAN_CPUS=""), self.workers())
        self.assertEqual(self.workers("--cpus", str(CPU), COREFAN_CPUS="4095"), 1)
        self.assertEqual(self.workers(f"--cpus={CPU}", COREFAN_CPUS="4095"), 1)
        self.assertEqual(self.workers("--workers", "1", COREFAN_WORKERS="many"), 1)

    def test_an_option_that_the_command_lacks_is_left_alone(self):
        self.assertEqual(self.workers(COREFAN_OUT="here", COREFAN_KEY="nothing", COREFAN_PROGRESS="odd"), self.workers())

    def test_a_bad_value_is_told_with_where_it_stands(self):
        self.refused(self.corefan("plan", COREFAN_WORKERS="many"), "corefan: COREFAN_WORKERS: --workers 'many': not a whole number")
        self.refused(self.corefan("run", COREFAN_PROGRESS="odd"),
                     "corefan: COREFAN_PROGRESS: --progress 'odd': must be auto, bar, plain or none")  # fmt: skip
        self.refused(self.corefan("plan", "--budget", "0s", COREFAN_WORKERS="1"), "corefan: --budget '0s': it must be above 0")

    def test_out_gives_way_to_resume(self):
        done = self.corefan("run", "--resume", "nowhere", COREFAN_OUT="here")
        self.assertEqual(done.returncode, 2)
        self.assertNotIn("--out", done.stderr)

    def test_mistyped_words(self):
        for word, meant in (("rnu", "run"), ("reportt", "report"), ("plann", "plan"), ("comparee", "compare")):
            self.refused(self.corefan(word), f"corefan: unknown command '{word}', did you mean '{meant}'?")
        self.refused(self.corefan("run", "--seedd", "4"), "corefan: unknown option '--seedd', did you mean '--seed'?")


if __name__ == "__main__":
    unittest.main()
