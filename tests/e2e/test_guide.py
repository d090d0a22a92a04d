"""Every command in README.md and the guide is run as it stands there.

Fenced `console` blocks whose first line starts with `$ corefan`, `$ for` or `$ printf` are taken; the blocks of one page run in order in a
scratch directory of their own that has the examples.  A command may name its exit code: `$ corefan ... # exit 99`.
What a page quotes of the output goes stale too: headings of tables must still be printed to the letter.
"""
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import BIN, ROOT

PAGES = sorted(path for path in [ROOT / "README.md", *ROOT.glob("docs/guide/*.md")] if path.exists())
BLOCK = re.compile(r"^```console\n(\$ (?:corefan|for|printf) .*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"#\s*exit (\d+)\s*$")
HEADING = re.compile(r"^( {20,}[A-Za-z].*|when .*:)$")
LONGEST_S = 240


def steps(block):
    """(command, lines quoted of its output); a backslash at the end of a line continues a command."""
    found = []
    lines = iter(block.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            found[-1][1].append(line)
            continue
        while line.endswith("\\"):
            line = line[:-1] + next(lines).removeprefix(">").strip()
        found.append((line[2:], []))
    return found


class Steps(unittest.TestCase):
    def test_blocks_are_found_and_cut(self):
        page = ("```console\n$ ls\n```\n```yaml\n$ corefan no\n```\n"
                "```console\n$ corefan a \\\n    b  # exit 99\nsaid\n$ corefan c\n```\n")
        blocks = BLOCK.findall(page)
        self.assertEqual(len(blocks), 1)
        self.assertEqual(steps(blocks[0]), [("corefan a b  # exit 99", ["said"]), ("corefan c", [])])
        self.assertEqual(EXIT.search("corefan a b  # exit 99")[1], "99")

    def test_the_guide_has_commands(self):
        for name in ("first-run.md", "numbers.md", "sweeps.md", "comparing.md", "many-shells.md", "failure.md", "pitfalls.md",
                     "capacity.md"):
            self.assertTrue(BLOCK.findall((ROOT / "docs/guide" / name).read_text()), name)

    def test_every_example_named_is_there(self):
        for page in PAGES:
            for name in re.findall(r"examples/[\w./-]*\.yaml", page.read_text()):
                self.assertTrue((ROOT / name).exists(), f"{page.name}: {name}")


class Guide(unittest.TestCase):
    def run_step(self, page, command, scratch):
        done = subprocess.run(["bash", "-c", command], cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=LONGEST_S, env=dict(os.environ, PATH=f"{BIN}:{os.environ['PATH']}"))
        wanted = EXIT.search(command)
        self.assertEqual(done.returncode, int(wanted[1]) if wanted else 0, f"{page.name}: $ {command}\n{done.stderr}")
        return done.stdout

    def test_every_command_runs(self):
        for page in PAGES:
            with self.subTest(page.name), tempfile.TemporaryDirectory(prefix="corefan-guide-") as scratch:
                (Path(scratch) / "examples").symlink_to(ROOT / "examples")
                for command, quoted in [step for block in BLOCK.findall(page.read_text()) for step in steps(block)]:
                    printed = self.run_step(page, command, scratch).splitlines()
                    for line in filter(HEADING.match, quoted):
                        self.assertIn(line, printed, f"{page.name}: $ {command}")


if __name__ == "__main__":
    unittest.main()
