#!/usr/bin/python3
"""stats.c against independent computations: exact fractions, numpy and scipy.  check_stats.py STATS_CLI"""
import math
import random
import subprocess
import sys
from fractions import Fraction

import numpy
import scipy.optimize
import scipy.stats

FAILED = []


def ask(cli, lines):
    text = "".join(" ".join([verb, *(repr(float(x)) for x in numbers)]) + "\n" for verb, *numbers in lines)
    out = subprocess.run([cli], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(out) == len(lines), f"{len(lines)} questions, {len(out)} answers"
    return [[float(word) if word != "collinear" else word for word in line.split()] for line in out]


def expect(what, got, wanted, relative=1e-9, absolute=1e-12):
    fine = len(got) == len(wanted) and all(
        math.isclose(g, w, rel_tol=relative, abs_tol=absolute) for g, w in zip(got, wanted))
    if not fine:
        FAILED.append(f"{what}: got {got}, expected {wanted}")


def exact_ranks(n, q):
    """(known, lo, hi, level) from whole fractions: tails <= 1/40 each."""
    q = Fraction(q)
    mass = [math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)]
    tail = Fraction(1, 40)
    lo, below = 0, Fraction(0)
    while lo <= n and below + mass[lo] <= tail:
        below += mass[lo]
        lo += 1
    hi, above = n + 1, Fraction(0)
    while hi > 0 and above + mass[hi - 1] <= tail:
        above += mass[hi - 1]
        hi -= 1
    if lo < 1 or hi > n:
        if q != Fraction(1, 2):
            return [0, 0, 0, 0]
        lo, hi, below, above = 1, n, mass[0], mass[n]
    return [1, lo, hi, float(1 - below - above)]


def check_ranks(cli):
    sizes = range(2, 401)
    for n, got in zip(sizes, ask(cli, [("ranks", n, 0.5) for n in sizes])):
        expect(f"ranks of the median, n={n}", got, exact_ranks(n, "1/2"))
    for q in ("9/10", "99/100"):
        some = range(5, 401)
        for n, got in zip(some, ask(cli, [("ranks", n, float(Fraction(q))) for n in some])):
            expect(f"ranks of {q}, n={n}", got, exact_ranks(n, q))


def check_values(cli, draw):
    for n in (1, 2, 3, 5, 9, 40, 501):
        values = [draw.lognormvariate(10, 1) for _ in range(n)]
        for q in (0.5, 0.9, 0.99):
            (got,) = ask(cli, [("quantile", q, *values)])
            expect(f"quantile {q} of {n}", got, [numpy.quantile(values, q)])
        (got,) = ask(cli, [("moments", *values)])
        expect(f"moments of {n}", got,
               [min(values), max(values), numpy.mean(values), numpy.std(values, ddof=1) if n > 1 else 0])
        (got,) = ask(cli, [("median", *values)])
        if n > 1:
            _, lo, hi, level = exact_ranks(n, "1/2")
            ordered = sorted(values)
            expect(f"median of {n}", got, [numpy.median(values), 1, ordered[lo - 1], ordered[hi - 1], level])


def check_trends(cli, draw):
    for n in (3, 8, 9, 30, 200):
        x = list(range(n))
        y = [draw.gauss(0, 1) + 0.05 * i for i in x]
        tied = [round(value) for value in y]
        for what, values in (("plain", y), ("tied", tied)):
            if len(set(values)) < 2:
                continue
            (got,) = ask(cli, [("spearman", *x, *values)])
            rho, p = scipy.stats.spearmanr(x, values)
            expect(f"spearman {what} n={n}", got, [1, rho, p], relative=1e-8)


def check_student(cli):
    questions = [(t, degrees, p) for t in (-3, 0, 0.5, 2, 40) for degrees in (1, 7, 30, 1000) for p in (0.4, 0.025, 1e-4)]
    for (t, degrees, p), got in zip(questions, ask(cli, [("student", *q) for q in questions])):
        expect(f"student {t} {degrees} {p}", got, [scipy.stats.t.sf(t, degrees), scipy.stats.t.isf(p, degrees)],
               relative=1e-8)


def check_holm(cli, draw):
    for n in (1, 2, 5, 44):
        p = [draw.random() ** 3 for _ in range(n)]
        order = sorted(range(n), key=lambda i: p[i])
        wanted, least = [0.0] * n, 0.0
        for position, i in enumerate(order):
            least = max(least, min(1.0, p[i] * (n - position)))
            wanted[i] = least
        (got,) = ask(cli, [("holm", *p)])
        expect(f"holm of {n}", got, wanted)


def closed_testing(p):
    """What Holm's procedure is a short cut of: every intersection of hypotheses, each with Bonferroni's bound."""
    subsets = [[i for i in range(len(p)) if bits >> i & 1] for bits in range(1, 1 << len(p))]
    bounds = [(subset, min(1.0, len(subset) * min(p[i] for i in subset))) for subset in subsets]
    return [max(bound for subset, bound in bounds if i in subset) for i in range(len(p))]


def check_holm_by_its_closure(cli, draw):
    for n in (1, 2, 3, 7, 10):
        p = [draw.random() ** 2 for _ in range(n)]
        p[-1] = p[0]  # a tie
        (got,) = ask(cli, [("holm", *p)])
        expect(f"holm of {n} against closed testing", got, closed_testing(p))


def check_fits(cli, draw):
    for rows, terms in ((3, 3), (8, 2), (40, 3), (200, 5)):
        design = [[1.0] + [draw.uniform(0, 1000) for _ in range(terms - 1)] for _ in range(rows)]
        y = [sum(x * (i + 1) for i, x in enumerate(row)) + draw.gauss(0, 5) for row in design]
        flat = [x for row, value in zip(design, y) for x in (*row, value)]
        (got,) = ask(cli, [("fit", terms, *flat)])
        matrix = numpy.array(design)
        coefficients = numpy.linalg.lstsq(matrix, numpy.array(y), rcond=None)[0]
        rest = numpy.array(y) - matrix @ coefficients
        spread = math.sqrt(rest @ rest / (rows - terms)) if rows > terms else 0.0
        errors = spread * numpy.sqrt(numpy.diag(numpy.linalg.inv(matrix.T @ matrix)))
        wanted = [x for pair in zip(coefficients, errors) for x in pair] + [spread]
        expect(f"fit {rows}x{terms}", got, wanted, relative=1e-6, absolute=1e-6)
    assert ask(cli, [("fit", 2, 1, 2, 1, 2, 4, 2, 3, 6, 3)]) == [["collinear"]]


def check_bootstrap(cli, draw):
    """The interval of a ratio of medians against numpy's, drawn independently: close, since both have 10,000 draws."""
    generator = numpy.random.default_rng(5)
    a = [draw.lognormvariate(6, 0.05) for _ in range(60)]
    b = [draw.lognormvariate(2, 0.05) for _ in range(60)]
    flat = [x for i in range(60) for x in (0, a[i], b[i])]
    (got,) = ask(cli, [("ratio", 9, *flat)])
    index = generator.integers(0, 60, (10000, 60))
    draws = numpy.median(numpy.array(a)[index], axis=1) / numpy.median(numpy.array(b)[index], axis=1)
    expect("bootstrap value", got[:1], [numpy.median(a) / numpy.median(b)])
    expect("bootstrap bounds", got[2:4], list(numpy.quantile(draws, [0.025, 0.975])), relative=5e-3)


def nonnegative(columns, y):
    """Least squares of relative errors with coefficients >= 0."""
    matrix = numpy.array(columns).T / numpy.array(y)[:, None]
    scale = numpy.linalg.norm(matrix, axis=0)
    return scipy.optimize.nnls(matrix / scale, numpy.ones(len(y)))[0] / scale


def curve_of(work, wakeup, growth, start, draw, noise):
    """Loads of doubling clients, lowest first, and what scipy makes of those that may enter a fit."""
    latency = 10e6 + work + wakeup
    rows = []
    for clients in (2.0**k for k in range(11)):
        wakeups = 1.3 / clients
        busy = work + growth * max(0.0, math.log2(clients / start))
        cpu = (busy + wakeup * wakeups) * math.exp(draw.gauss(0, noise))
        throughput = min(clients / latency * 1e9, 1e9 / cpu)
        rows.append((clients, cpu, wakeups, throughput * cpu / 1e9, throughput, max(latency, clients * cpu)))
    fitting = [row for row in rows if row[3] <= 0.5]
    return rows, fitting, latency


def check_curves(cli, draw):
    for work, wakeup, growth, start, noise in ((250, 72e3, 0, 1, 0.0), (30e3, 250e3, 6e3, 2, 0.0),
                                               (20e3, 60e3, 3e3, 8, 0.0), (310e3, 200e3, 0, 1, 0.03),
                                               (5e3, 0.1, 0, 1, 0.01), (20e3, 90e3, 6e3, 4, 0.01)):
        rows, fitting, latency = curve_of(work, wakeup, growth, start, draw, noise)
        (got,) = ask(cli, [("curve", 1, *(x for row in rows for x in row))])
        chosen = got[3]
        columns = [[1.0] * len(fitting), [row[2] for row in fitting]]
        if chosen > 0:
            columns.append([max(0.0, math.log2(row[0] / chosen)) for row in fitting])
        solved = [*nonnegative(columns, [row[1] for row in fitting]), 0.0][:3]
        what = f"curve of {work}, {wakeup}, {growth} from {start}"
        expect(what, got[:3], solved, relative=1e-5, absolute=1e-3)
        if noise == 0:
            expect(f"{what}: what it was made of", got[:4], [work, wakeup, growth, start if growth else 0],
                   relative=1e-6, absolute=1e-3)

        def busy(clients):
            return solved[0] + (solved[2] * max(0.0, math.log2(clients / chosen)) if chosen > 0 else 0.0)

        knee = scipy.optimize.brentq(lambda clients: clients * busy(clients) - fitting[0][5], 1, 1e9, xtol=1e-9)
        expect(f"{what}: knee and ceiling", got[4:], [knee, 1e9 / busy(knee)], relative=1e-5)


def check_laws(cli, draw):
    for per_core, contention, coherency, noise in ((1000, 0.05, 0.001, 0.0), (9.0, 0.0, 0.0, 0.0), (2e6, 0.02, 0, 0.01),
                                                   (500, 0, 0.0005, 0.02)):
        cores = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
        reached = [per_core * n / (1 + contention * (n - 1) + coherency * n * (n - 1)) * math.exp(draw.gauss(0, noise))
                   for n in cores]
        (got,) = ask(cli, [("law", *(x for pair in zip(cores, reached) for x in pair))])
        columns = [[1.0] * 7, [n - 1 for n in cores], [n * (n - 1) for n in cores]]
        first, second, third = nonnegative(columns, [n / x for n, x in zip(cores, reached)])
        expect(f"law of {per_core}, {contention}, {coherency}", got, [1 / first, second / first, third / first],
               relative=1e-5, absolute=1e-9)


def main():
    cli = sys.argv[1]
    draw = random.Random(20240607)
    check_ranks(cli)
    check_values(cli, draw)
    check_trends(cli, draw)
    check_student(cli)
    check_holm(cli, draw)
    check_holm_by_its_closure(cli, draw)
    check_fits(cli, draw)
    check_bootstrap(cli, draw)
    check_curves(cli, draw)
    check_laws(cli, draw)
    print("\n".join(FAILED) if FAILED else "stats agree with fractions, numpy and scipy")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
