"""What doctor says about a host, and that a run on it says the same above its tables."""
import ctypes
import json
import os
import subprocess
import unittest

from harness import COREFAN, EndToEnd

PR_SET_TIMERSLACK = 29
QUICK = "name: quick\nrounds: 2\nwarmup: 1\narms: [gather]\nmatrix: [{job: sleep, fanout: 4, delay: 1ms}]\n"
CPUS = sorted(os.sched_getaffinity(0))


def slack_1_ms():
    """Inherited by all that starts from here."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1_000_000, 0, 0, 0)


class Doctor(EndToEnd):
    def doctor(self, *argv, prepare=None):
        done = subprocess.run([COREFAN, "doctor", "--format", "json", *argv], capture_output=True, text=True, check=False,
                              preexec_fn=prepare)
        self.assertIn(done.returncode, (0, 99), done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(found["disturbed"], done.returncode == 99)
        return {finding["id"]: finding for finding in found["findings"]}

    def test_what_was_done_to_it_is_found_with_its_remedy(self):
        self.assertNotIn("timer_slack", self.doctor())
        finding = self.doctor(prepare=slack_1_ms)["timer_slack"]
        self.assertEqual((finding["severity"], finding["what"]), ("warning", "timer slack is 1.00 ms, not 50 us"))
        self.assertTrue(finding["why"] and finding["remedy"])
        text = subprocess.run([COREFAN, "doctor"], capture_output=True, text=True, check=False, preexec_fn=slack_1_ms)
        self.assertEqual(text.returncode, 99)
        self.assertRegex(text.stdout, r"warning  timer slack is 1.00 ms, not 50 us\n  why .*\n(         .*\n)?  remedy ")

    def test_it_judges_the_cpus_that_it_is_told(self):
        if len(CPUS) < 2:
            self.skipTest("two CPUs are needed: one to measure on and one to leave")
        everything = ",".join(map(str, CPUS))
        self.assertIn("no_housekeeping", self.doctor("--cpus", everything))
        self.assertNotIn("no_housekeeping", self.doctor("--cpus", str(CPUS[-1])))
        self.assertIn("no_housekeeping", self.doctor("--cpus", str(CPUS[-1]), "--housekeeping", "none"))
        self.assertIn("affinity", self.doctor("--cpus", str(CPUS[0]), prepare=lambda: os.sched_setaffinity(0, {CPUS[0]})))
        self.assert_one_line(self.run_corefan("doctor", "--cpus", "1048000"), 2, "1048000")
        self.assert_one_line(self.run_corefan("doctor", "--cpus", "0-"), 2, "--cpus")

    def test_findings_stand_above_the_tables(self):
        path = self.write("sweep.yaml", QUICK)
        done = subprocess.run([COREFAN, "run", path, "--out", str(self.scratch / "run"), "--workers", "1", "--quiet"],
                              capture_output=True, text=True, check=False, preexec_fn=slack_1_ms)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = done.stdout.replace("\n  ", " ")
        host, = self.summary()["environment"]
        findings = host["findings"]
        self.assertIn("timer_slack", {finding["id"] for finding in findings})
        above = text[:text.index("p50 wall")]
        serious = [finding for finding in findings if finding["severity"] != "note"]
        for finding in findings:
            whole = finding in serious and len(serious) <= 3
            self.assertIn(f"{finding['what']}. Remedy: {finding['remedy']}." if whole else finding["id"], above)
        self.assertEqual(self.run_corefan("report", str(self.scratch / "run")).out, done.stdout)


if __name__ == "__main__":
    unittest.main()
