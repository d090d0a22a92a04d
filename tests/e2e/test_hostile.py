"""Command lines, files and streams that nobody would wish for."""
import os
import pathlib
import signal
import subprocess
import unittest

from harness import COREFAN, SLOW_SWEEP, SMALL_SWEEP, WORKER, EndToEnd
from test_two_shells import free_endpoint

ASYNCIO_WORKER = str(pathlib.Path(WORKER).with_name("corefan-worker-asyncio"))
QUIETLY = ("--progress", "none", "--co-run")


class Streams(EndToEnd):
    def shell(self, words, redirection):
        return subprocess.run(["sh", "-c", f'"$@" {redirection}', "sh", *words], capture_output=True, text=True, cwd=self.scratch,
                              timeout=60, check=False)

    def test_output_that_is_lost_is_told(self):
        sweep = self.write("sweep.yaml", SMALL_SWEEP)
        for words in ((COREFAN, "--help"), (COREFAN, "--version"), (COREFAN, "run", "--help"), (COREFAN, "plan", sweep),
                      (COREFAN, "doctor"), (COREFAN, "schema"), (WORKER, "--help"), (WORKER, "--version"),
                      (ASYNCIO_WORKER, "--help"), (ASYNCIO_WORKER, "--version")):
            for redirection in (">/dev/full", ">&-"):
                with self.subTest(words[0].rsplit("/", 1)[1], words=words[1:], redirection=redirection):
                    done = self.shell(words, redirection)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
                    self.assertIn("cannot write", done.stderr)

    def test_a_run_without_stdout_keeps_its_results(self):
        sweep = self.write("sweep.yaml", SMALL_SWEEP)
        done = self.shell((COREFAN, "run", sweep, "--out", "run", *QUIETLY), ">&-")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot write", done.stderr)
        self.assertEqual(self.summary()["run"]["status"], "complete")
        self.assertEqual(self.run_corefan("report", "run").out, (self.scratch / "run/summary.txt").read_text())


class Files(EndToEnd):
    def test_a_byte_order_mark_is_no_mistake(self):
        path = self.write("sweep.yaml", b"\xef\xbb\xbf" + SMALL_SWEEP.encode())
        self.assertEqual(self.run_corefan("plan", path).code, 0)
        path = self.write("wrong.yaml", b"\xef\xbb\xbfruonds: 3\n" + SMALL_SWEEP.encode())
        self.assertIn("wrong.yaml:1:1:", self.run_corefan("plan", path).err)

    def test_what_is_no_store(self):
        for name in ("directory", "pipe"):
            (self.scratch / name).mkdir()
        (self.scratch / "directory/run.db").mkdir()
        os.mkfifo(self.scratch / "pipe/run.db")
        for name in ("directory", "pipe"):
            for words in (("report", name), ("compare", name, name), ("run", "--resume", name)):
                self.assert_one_line(self.run_corefan(*words, timeout=20), 2, "run.db")

    def test_a_damaged_store_is_bad_input(self):
        self.assertEqual(self.run_sweep(SMALL_SWEEP, *QUIETLY).code, 0)
        whole = (self.scratch / "run/run.db").read_bytes()
        (self.scratch / "bad").mkdir()
        for at in range(0, len(whole), max(1, len(whole) // 40)):
            damaged = bytearray(whole)
            damaged[at:at + 3] = b"\xca\x1b\x00"
            (self.scratch / "bad/run.db").write_bytes(damaged)
            done = self.run_corefan("report", "bad")
            with self.subTest(at=at):
                self.assertIn(done.code, (0, 2), done.err)
                if done.code == 2:
                    self.assertEqual(len(done.err.strip().splitlines()), 1, done.err)
                    self.assertTrue(done.err.strip().isprintable(), done.err)

    def test_a_report_that_cannot_be_written(self):
        """It is there whole or not at all, and what was measured is said all the same."""
        process = self.start_sweep(SLOW_SWEEP, *QUIETLY)
        self.wait_for((self.scratch / "run/run.db").exists, "the store")
        (self.scratch / "run/summary.json").mkdir()
        done = self.finish(process)
        self.assertEqual(done.code, 1, done.err)
        self.assertIn("summary.json", done.err)
        self.assertIn("10 x 10ms sleep", done.out)
        self.assertEqual([path.name for path in (self.scratch / "run").glob("*.new")], [])
        self.assertEqual(self.run_corefan("report", "run").out, done.out)

    def test_two_runs_in_one_second_have_two_directories(self):
        path = self.write("sweep.yaml", "name: twice\nrounds: 1\nwarmup: 0\narms: gather\nmatrix: [{job: noop, fanout: 2}]\n")
        for _ in range(3):
            done = self.run_corefan("run", path, "--workers", "1", *QUIETLY)
            self.assertIn(done.code, (0, 3), done.err)
        self.assertEqual(len(list((self.scratch / "runs").iterdir())), 3)


class CommandLines(EndToEnd):
    def test_a_worker_that_could_not_say_its_name(self):
        for worker in (WORKER, ASYNCIO_WORKER):
            for label in ("a\nb", "", "x" * 200):
                done = self.finish(self.start(worker, "--connect", free_endpoint(), "--cpu", "0", "--label", label))
                self.assert_one_line(done, 2, "--label")

    def test_a_worker_with_a_port_that_cannot_be(self):
        for worker in (WORKER, ASYNCIO_WORKER):
            for port in ("99999", "65536", "1x", ""):
                self.assert_one_line(self.finish(self.start(worker, "--connect", f"tcp://127.0.0.1:{port}", "--cpu", "0")), 2,
                                     "endpoint")

    def test_options_that_are_none(self):
        for words in ((ASYNCIO_WORKER, "--connect", "ipc:///x", "--bogus"), (COREFAN, "run", "--bogus")):
            self.assert_one_line(self.finish(self.start(*words)), 2, "--bogus")

    def test_the_terminal_goes(self):
        process = self.start_sweep(SLOW_SWEEP, *QUIETLY)
        self.wait_until_it_measures()
        process.send_signal(signal.SIGHUP)
        self.assertEqual(self.finish(process).code, 130)
        self.assertEqual(self.summary()["run"]["status"], "interrupted")

    def test_a_run_that_is_to_outlive_its_terminal(self):
        sweep = self.write("sweep.yaml", SMALL_SWEEP)
        process = self.start("nohup", COREFAN, "run", sweep, "--out", "run", *QUIETLY)
        self.wait_for((self.scratch / "run/run.db").exists, "the store")
        os.killpg(process.pid, signal.SIGHUP)
        self.assertEqual(self.finish(process).code, 0)
        self.assertEqual(self.summary()["run"]["status"], "complete")


if __name__ == "__main__":
    unittest.main()
