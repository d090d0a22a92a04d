"""What one core carries, on a real loop: rows, their fit and their arithmetic.  Nothing here depends on a quiet core."""
import json
import math
import unittest

from harness import EndToEnd

SWEEP = """\
name: capacity
seed: 4
rounds: 3
warmup: 1
arms: [sequential, gather]
matrix:
  - {job: sleep, fanout: 4, delay: 2ms, clients: [1, 2, 4, 8, 16], duration: 100ms}
  - {job: noop, fanout: 4, clients: [1, 2, 4, 16], duration: 50ms}
"""


class Capacity(EndToEnd):
    def test_a_run_of_windows_tells_what_a_core_carries(self):
        done = self.run_sweep(SWEEP, "--workers", "1")
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("What one core carries: 4 x 2ms sleep on libuv", done.out)
        summary = self.summary()
        cells = {(cell["job"], cell["arm"], cell["clients"]): cell for cell in summary["cells"]}
        rows = {(row["job"], row["arm"]): row for row in summary["capacity"]}
        self.assertEqual(set(rows), {(job, arm) for job in ("sleep", "noop") for arm in ("sequential", "gather")})
        for (job, arm), row in rows.items():
            with self.subTest(job=job, arm=arm):
                loads = [cell for (of, by, _), cell in cells.items() if (of, by) == (job, arm)]
                self.check_row(job, row, loads)
        self.check_size()

    def check_row(self, job, row, loads):
        if job == "noop":
            self.assertIn(row["loads_fitted"], (0, 3))  # 0: clients share nothing, so the least load tells it all
        else:
            quiet = [cell for cell in loads if cell["utilization"] <= 0.4]
            self.assertGreaterEqual(row["loads_fitted"], len(quiet))
        foretold = row["predicted_per_s_core"]
        if foretold is None:
            self.assertIn(row["predicted_per_s_core_null_reason"], ("work_not_separable", "too_few_loads"))
        elif job == "sleep":
            more = row["working_set_ns"]
            busy = row["work_ns"]["value"] + (more["value"] if more else 0)
            self.assertTrue(math.isclose(foretold["value"], 1e9 / busy, rel_tol=1e-4))
        measured = row["measured_per_s_core"]
        if measured is None:
            self.assertIn(row["measured_per_s_core_null_reason"], ("never_saturated", "core_shared", "no_harder_load"))
        elif foretold is not None:
            self.assertTrue(math.isclose(row["error_x"]["value"], measured["value"] / foretold["value"], rel_tol=1e-4))

    def check_size(self):
        done = self.run_corefan("size", "run", "--rate", "100/s", "--p99", "10s", "--format", "json")
        self.assertEqual(done.code, 0, done.err)
        for row in json.loads(done.out)["rows"]:
            if row["cores"] is not None:
                self.assertEqual(row["cores"]["value"], math.ceil(100 / row["per_s_core"]["value"]))


if __name__ == "__main__":
    unittest.main()
