#!/usr/bin/python3
"""Histograms against section 7 of SPEC.md, the golden vectors and a sorted list."""
import json
import math
import random
import re
import unittest

import paths
from corefan_worker import wire
from corefan_worker.histogram import HIGHEST_NS, Histogram, Unlike, begin_of, bits_of, index_of

SPEC = (paths.ROOT / "proto" / "SPEC.md").read_text(encoding="utf-8")


def row(name):
    """The numbers of a row in section 7."""
    line = re.search(rf"^\| {name} \|(.*)\|$", SPEC[SPEC.index("## 7. Histograms"):], re.MULTILINE)[1]
    return [int(eval(word.replace("^", "**"))) for word in line.split("|")]


class Buckets(unittest.TestCase):
    def test_table_of_the_specification(self):
        for digits, bits in zip(row("d"), row("b")):
            self.assertEqual(bits_of(digits), bits)
        values, indexes, begins = row("ns"), row("index"), row("bucket begins at")
        self.assertGreaterEqual(len(values), 10)
        for value, index, begin in zip(values, indexes, begins):
            with self.subTest(value):
                self.assertEqual((index_of(value), begin_of(index)), (index, begin))

    def test_each_value_lies_in_its_bucket(self):
        chance = random.Random(7)
        for digits in range(1, 6):
            for lowest in (1, 1000):
                for _ in range(500):
                    value = int(10 ** chance.uniform(0, 17))
                    index = index_of(value, digits, lowest)
                    begin, end = begin_of(index, digits, lowest), begin_of(index + 1, digits, lowest)
                    self.assertTrue(begin <= value < end, (digits, lowest, value))
                    self.assertLessEqual(end - begin, max(lowest, value / 10**digits))

    def test_indexes_have_no_gaps(self):
        begins = [begin_of(index) for index in range(60_000)]
        self.assertEqual(begins, sorted(set(begins)))
        self.assertTrue(all(index_of(begin) == index for index, begin in enumerate(begins)))


class Histograms(unittest.TestCase):
    def filled(self, values, **configuration):
        histogram = Histogram(**configuration)
        for value in values:
            histogram.record(value)
        return histogram

    def test_records_what_index_of_says(self):
        chance = random.Random(1)
        values = [int(10 ** chance.uniform(0, 11)) for _ in range(5000)] + [0, -5, 1023, 1024, HIGHEST_NS]
        expected = {}
        for value in values:
            expected[index_of(value)] = expected.get(index_of(value), 0) + 1
        got = self.filled(values).to_map()
        self.assertEqual(dict(zip(got["counts"][::2], got["counts"][1::2])), expected)

    def test_what_is_too_long_is_counted(self):
        histogram = self.filled([HIGHEST_NS, HIGHEST_NS + 1, 10**15])
        self.assertEqual((histogram.overflow, histogram.total), (2, 3))
        self.assertGreater(histogram.quantile(1.0), HIGHEST_NS)
        self.assertGreater(histogram.largest, HIGHEST_NS)

    def test_quantiles_of_a_sorted_list(self):
        chance = random.Random(2)
        for size in (1, 2, 9, 100, 1000):
            values = sorted(int(chance.lognormvariate(16, 1)) for _ in range(size))
            histogram = self.filled(values)
            for fraction in (0.0, 0.25, 0.5, 0.99, 1.0):
                exact = values[max(1, math.ceil(fraction * size)) - 1]
                self.assertEqual(histogram.quantile(fraction), begin_of(index_of(exact)), (size, fraction))
            self.assertEqual(histogram.largest, begin_of(index_of(values[-1])))

    def test_nothing(self):
        histogram = Histogram()
        self.assertEqual((histogram.quantile(0.5), histogram.total, histogram.largest), (None, 0, 0))
        self.assertEqual(histogram.to_map()["counts"], [])

    def test_merged_as_if_recorded_in_one(self):
        first, second = [5, 10**6, 10**12], [5, 7, 10**9]
        merged = self.filled(first)
        merged.merge(self.filled(second))
        self.assertEqual(merged.to_map(), self.filled(first + second).to_map())

    def test_what_is_unlike_is_not_merged(self):
        for other in (Histogram(significant_digits=2), Histogram(lowest_ns=10), Histogram(highest_ns=10**9)):
            with self.assertRaises(Unlike):
                Histogram().merge(other)

    def test_reset_keeps_the_list(self):
        histogram = self.filled([1, 10**12])
        counts = histogram.counts
        histogram.reset()
        self.assertIs(histogram.counts, counts)
        self.assertEqual(histogram.total, 0)

    def test_the_wire_takes_it(self):
        chance = random.Random(3)
        fields = self.filled(int(10 ** chance.uniform(0, 12)) for _ in range(1000)).to_map()
        self.assertEqual(wire.read_table("histogram", fields, "latency"), fields)

    def test_golden_vectors(self):
        """Recording the begin of each bucket of a vector as often as it says gives the vector's histogram."""
        seen = 0
        for path in (paths.ROOT / "proto" / "vectors" / "valid").glob("result-*.json"):
            for one in json.loads(path.read_text(encoding="utf-8"))["frame"]["rounds"]:
                for golden in filter(None, (one.get("latency"), one.get("latency_intended"))):
                    shape = (golden["significant_digits"], golden["lowest_ns"])
                    histogram = Histogram(*shape, golden["highest_ns"])
                    pairs = list(zip(golden["counts"][::2], golden["counts"][1::2]))
                    if sum(count for _, count in pairs) > 10**6:
                        continue
                    for index, count in pairs:
                        for _ in range(count):
                            histogram.record(begin_of(index, *shape))
                    for _ in range(golden["overflow"] if golden["overflow"] < 10**6 else 0):
                        histogram.record(golden["highest_ns"] + 1)
                    seen += 1
                    self.assertEqual(histogram.to_map()["counts"], golden["counts"])
        self.assertGreaterEqual(seen, 3)


if __name__ == "__main__":
    unittest.main()
