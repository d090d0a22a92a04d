#!/usr/bin/python3
"""Man pages: they render without a warning, and say neither more nor less than the programs.

Options against each command's --help, exit codes against base/error.h, keys and words of sweeps against `corefan
schema`, tables and keys of a run against a run.  COREFAN_BIN: directory of the programs.
"""
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("COREFAN_BIN", ROOT / "build" / "dev" / "bin")).resolve()
MAN = ROOT / "docs" / "man"
# argp and argparse give these to every command; corefan(1) tells them once
COMMON = {"help", "usage", "version"}


def output(*words):
    return subprocess.run([str(BIN / words[0]), *words[1:]], capture_output=True, text=True, check=True).stdout


def options_of_help(text):
    return set(re.findall(r"^ +(?:-\S(?: \S+)?, )?--([a-z0-9-]+)", text, re.M))


def options_of_page(text):
    return set(re.findall(r"^\.It .*?Fl Fl ([a-z0-9-]+)", text, re.M))


def commands():
    listed = output("corefan", "--help").split("Commands:\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in listed.splitlines()]


def sections(page, macro):
    """Title -> text, of .Sh or .Ss."""
    parts = re.split(rf"^\.{macro} (.*)$", page, flags=re.M)[1:]
    return {title: re.split(r"^\.Sh ", text, flags=re.M)[0] for title, text in zip(parts[::2], parts[1::2])}


def items(text):
    return re.findall(r"^\.It (?:Cm )?(\S+)$", text, re.M)


def words_of(node):
    if isinstance(node, dict):
        yield from (word for word in node.get("enum", []) if isinstance(word, str))
        for name, child in node.items():
            if name != "not":
                yield from words_of(child)
    elif isinstance(node, list):
        for child in node:
            yield from words_of(child)


def keys_of(node):
    """Keys of the map that a key's value may be."""
    keys = list(node.get("properties", {}))
    for child in node.get("anyOf", []) + ([node["items"]] if "items" in node else []):
        keys += [key for key in keys_of(child) if key not in keys]
    return keys


class Pages(unittest.TestCase):
    def test_they_render_without_warnings(self):
        pages = sorted(MAN.iterdir())
        self.assertEqual(len(pages), 5)
        for page in pages:
            done = subprocess.run(["man", "--warnings=all", "-l", "-Tutf8", str(page)], capture_output=True, text=True,
                                  env=dict(os.environ, MANWIDTH="80", LC_ALL="C.UTF-8", MANPAGER="cat"))  # fmt: skip
            self.assertEqual((done.returncode, done.stderr), (0, ""), page.name)
            self.assertIn("NAME", re.sub(".\\x08", "", done.stdout))

    def test_every_command_has_its_options(self):
        page = (MAN / "corefan.1").read_text()
        parts = {title.split()[1]: text for title, text in sections(page, "Ss").items()}
        self.assertEqual(sorted(parts), sorted(commands()))
        for name, text in parts.items():
            told = options_of_page(text)
            self.assertEqual(told, options_of_help(output("corefan", name, "--help")) - COMMON, name)
        for word in COMMON:
            self.assertIn(f".Fl Fl {word}", page)

    def test_workers_have_their_options(self):
        for name in ("corefan-worker", "corefan-worker-asyncio"):
            page = (MAN / f"{name}.1").read_text()
            self.assertEqual(options_of_page(page), options_of_help(output(name, "--help")), name)

    def test_exit_codes(self):
        known = set(re.findall(r"^ +X\([A-Z]+, (\d+)\)", (ROOT / "base/error.h").read_text(), re.M))
        told = set(items(sections((MAN / "corefan.1").read_text(), "Sh")["EXIT STATUS"]))
        self.assertEqual(told, known)
        for name in commands():
            line = re.search(r"Exit codes: ((?:.|\n)*?\.)$", output("corefan", name, "--help"), re.M)
            self.assertTrue(line, f"{name} --help names no exit codes")
            self.assertLessEqual(set(re.findall(r"\b\d+\b", line[1])), known, name)
        for name in ("corefan-worker", "corefan-worker-asyncio"):
            told = items(sections((MAN / f"{name}.1").read_text(), "Sh")["EXIT STATUS"])
            self.assertLessEqual(set(told), known, name)

    def test_the_environment(self):
        told = re.findall(r"^\.It Ev (\S+)$", (MAN / "corefan.1").read_text(), re.M)
        read = set()
        for path in (ROOT / "coordinator").rglob("*.c"):
            read.update(re.findall(r'"(COREFAN_[A-Z_]+)"', path.read_text()))
        self.assertEqual(sorted(told), sorted(read))

    def test_keys_of_sweeps(self):
        page = (MAN / "corefan-sweep.5").read_text()
        schema = json.loads(output("corefan", "schema"))
        told, parts = sections(page, "Sh"), sections(page, "Ss")
        first = {title: text.split("\n.Ss ")[0] for title, text in told.items()}
        self.assertEqual(sorted(items(first["KEYS OF CELLS"])), sorted(schema["$defs"]))
        own = [key for key, node in schema["properties"].items() if "$ref" not in node]
        self.assertEqual(sorted(items(first["KEYS OF THE TOP"])), sorted(own))
        maps = {key: keys_of(node) for key, node in {**schema["properties"], **schema["$defs"]}.items() if key != "matrix"}
        maps = {f"Keys of {key}": keys for key, keys in maps.items() if keys}
        self.assertEqual(sorted(parts), sorted(maps))
        for title, keys in maps.items():
            self.assertEqual(sorted(items(parts[title])), sorted(keys), title)
        said = set(re.findall(r"[A-Za-z_][A-Za-z0-9_.-]*", re.sub(r"\s[.,;:]", " ", page)))
        self.assertLessEqual(set(words_of(schema)), said | {word.rstrip(".") for word in said})

    def test_keys_and_tables_of_a_run(self):
        page = sections((MAN / "corefan-run.5").read_text(), "Sh")
        with tempfile.TemporaryDirectory() as scratch:
            output("make_run", f"{scratch}/run", "published")
            with sqlite3.connect(f"{scratch}/run/run.db") as store:
                tables = [name for (name,) in store.execute(
                    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'")]  # fmt: skip
            store.close()
            summary = json.loads(output("corefan", "report", f"{scratch}/run", "--format", "json"))
        self.assertEqual(sorted(items(page["TABLES OF RUN.DB"])), sorted(tables))
        self.assertEqual(sorted(items(page["SUMMARY.JSON"])), sorted(summary))


class Help(unittest.TestCase):
    def test_it_fits_a_screen_and_shows_how(self):
        for words in [("corefan",), *(("corefan", name) for name in commands()), ("corefan-worker",), ("corefan-worker-asyncio",)]:
            text = output(*words, "--help")
            lines = text.splitlines()
            self.assertLessEqual(len(lines), 40, words)
            self.assertLessEqual(max(map(len, lines)), 80, words)
            self.assertRegex(text, r"Examples?:\n", words)


if __name__ == "__main__":
    unittest.main()
