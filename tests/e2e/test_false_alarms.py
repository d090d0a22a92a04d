"""The same binary against itself, again and again, by fresh processes: no run may be told to be slower than another.

COREFAN_PAIRS: how many pairs (20; the slow test takes 150).  COREFAN_PROCESSES: on each side (3; 6).  Says how many of the
cells of quiet runs were `noisy`.
"""
import os
import unittest

import series

PAIRS = int(os.environ.get("COREFAN_PAIRS", "20"))
PROCESSES = int(os.environ.get("COREFAN_PROCESSES", "3"))
SWEEP = f"""\
name: same
rounds: 3
warmup: 1
processes: {PROCESSES}
arms: [sequential, gather]
matrix: [{{job: sleep, fanout: 4, delay: 1ms}}]
"""


SHARE = 0.02  # of the cells of quiet runs, at most
DOUBT = 0.001


def most_noisy(cells):
    """The count beyond which a share of 2 % is refuted: binomial, one in a thousand.  80 cells may well have 3, by chance alone."""
    likely, beyond = (1 - SHARE) ** cells, 1.0
    for count in range(cells + 1):
        beyond -= likely
        if beyond < DOUBT:
            return count
        likely *= (cells - count) / (count + 1) * SHARE / (1 - SHARE)
    return cells


class FalseAlarms(series.Series):
    def test_the_bound_is_that_of_the_binomial(self):
        self.assertEqual([most_noisy(cells) for cells in (0, 80, 600)], [0, 7, 24])

    def test_the_same_binary_is_never_slower_than_itself(self):
        verdicts, outcomes, alarms = [], {0: 0, 98: 0, 99: 0}, []
        for pair in range(PAIRS):
            for side in ("base", "changed"):
                cells = self.measure(side, SWEEP, "--seed", str(2 * pair + (side == "changed") + 1))["cells"]
                verdicts += [cell["verdict"] for cell in cells] if self.is_quiet(side) else []
            code, text = self.compare("base", "changed")
            outcomes[code] += 1
            alarms += [f"pair {pair}, used by others {self.foreign_x}:\n{text}"] if code == 99 else []
        noisy = verdicts.count("noisy")
        print(f"{PAIRS} pairs: {outcomes[0]} pass, {outcomes[98]} undecided, {outcomes[99]} regressions; "
              f"{noisy} of {len(verdicts)} cells of quiet runs noisy")
        self.assertFalse(alarms, "\n".join(alarms))
        self.assertLessEqual(noisy, most_noisy(len(verdicts)))


if __name__ == "__main__":
    unittest.main()
