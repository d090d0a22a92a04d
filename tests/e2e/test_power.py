"""Is a change found that is there?  Twenty fresh processes on each side, against known costs: children that burn more CPU,
waits that take longer, as the sweep says (`delay`), so that nothing but the cost differs.

COREFAN_TRIALS: how many times (20).  Wanted of 20: +10 % CPU per child and +10 % wall each time, +3 % CPU (at a threshold
of 1 %) 19 times; +1 % at 1 % is at the threshold itself, which nothing can decide.
"""
import os
import unittest

import series

TRIALS = int(os.environ.get("COREFAN_TRIALS", "20"))
SWEEP = """\
name: power
rounds: 3
warmup: 1
processes: 20
arms: [gather]
"""


def burning(us):
    return SWEEP + f"matrix: [{{job: cpu, fanout: 10, delay: {us}us}}]\n"


def waiting(us):
    return SWEEP + f"matrix: [{{job: sleep, fanout: 10, delay: {us}us}}]\n"


class Power(series.Series):
    CASES = {  # name: (base, changed, options of compare, exit code, misses allowed in 20)
        "+10 % CPU": (burning(200), burning(220), ("--metric", "cpu"), 99, 0),
        "+10 % wall": (waiting(4000), waiting(4400), ("--metric", "wall"), 99, 0),
        "+3 % CPU at 1 %": (burning(200), burning(206), ("--metric", "cpu", "--threshold", "1%"), 99, 1),
        "+1 % CPU at 1 %": (burning(200), burning(202), ("--metric", "cpu", "--threshold", "1%"), 98, 2),
    }

    def test_changes_are_found(self):
        sweeps = sorted({sweep for case in self.CASES.values() for sweep in case[:2]})
        hits = dict.fromkeys(self.CASES, 0)
        for trial in range(TRIALS):
            for number, sweep in enumerate(sweeps):
                self.measure(str(number), sweep, "--seed", str(trial * len(sweeps) + number + 1))
            for name, (base, changed, options, wanted, _) in self.CASES.items():
                code, text = self.compare(str(sweeps.index(base)), str(sweeps.index(changed)), "--ignore", "delay", *options)
                hits[name] += code == wanted
                if code != wanted:
                    print(f"trial {trial}, {name}: {text.splitlines()[-1]}")
        print(", ".join(f"{name}: {count} of {TRIALS}" for name, count in hits.items()))
        for name, (_, _, _, _, misses) in self.CASES.items():
            self.assertGreaterEqual(hits[name] * 20, (20 - misses) * TRIALS, name)


if __name__ == "__main__":
    unittest.main()
