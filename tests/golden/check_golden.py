#!/usr/bin/python3
"""Reports of stores with fixed values: byte for byte what lies here, and true to the contract.

check_golden.py MAKE_RUN SHOW_RUN [--update]
"""
import csv
import io
import json
import math
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import pyperf_grammar

HERE = pathlib.Path(__file__).resolve().parent
SCENARIOS = ("lab", "troubled", "one_block", "two_blocks", "five_blocks", "many_blocks", "two_runtimes", "gated", "failure",
             "disturbed", "published")
KEPT = {"lab": ("text", "json", "csv"), "troubled": ("text", "json"), "one_block": ("text", "json"),
        "two_runtimes": ("text", "csv", "pyperf", "rounds"), "gated": ("text", "json", "junit"), "failure": ("text", "json"),
        "disturbed": ("text",), "published": ("text", "json")}
SUFFIX = {"text": "txt", "json": "json", "csv": "csv", "junit": "xml", "pyperf": "pyperf.json", "rounds": "rounds.csv"}
MISTAKES = []


def expect(condition, text):
    if not condition:
        MISTAKES.append(text)


def no_constant(name):
    raise ValueError(f"{name} in JSON")


def close(a, b, tolerance=1e-6):
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=0.0011)


def check_nulls(node, where):
    """Every null has its reason, every reason its null."""
    if isinstance(node, dict):
        for key, value in node.items():
            if value is None:
                expect(isinstance(node.get(key + "_null_reason"), str), f"{where}.{key}: null without a reason")
            if key.endswith("_null_reason"):
                expect(node.get(key.removesuffix("_null_reason"), 0) is None, f"{where}.{key}: reason without a null")
            check_nulls(value, f"{where}.{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            check_nulls(value, f"{where}[{index}]")


def check_estimate(estimate, where):
    if estimate is None or estimate["ci_lo"] is None:
        return
    expect(set(estimate) >= {"value", "n", "ci_lo", "ci_hi", "ci_level", "ci_method"}, f"{where}: keys")
    expect(estimate["ci_lo"] <= estimate["value"] <= estimate["ci_hi"], f"{where}: value outside its interval")
    expect(0 < estimate["ci_level"] <= 1, f"{where}: level")


def check_distribution(spread, rounds, where):
    """Against a computation of its own from the raw rounds of run.db."""
    values = [value for value, _ in rounds]
    clean = [value for value, flagged in rounds if not flagged]
    expect(close(spread["p50"]["value"], statistics.median(values)), f"{where}: p50")
    if clean:
        expect(close(spread["clean_p50"]["value"], statistics.median(clean)), f"{where}: clean_p50")
    expect(close(spread["mean"], statistics.fmean(values)), f"{where}: mean")
    expect(close(spread["min"], min(values)) and close(spread["max"], max(values)), f"{where}: min, max")
    if len(values) > 1:
        expect(close(spread["stddev"], statistics.stdev(values), 1e-4), f"{where}: stddev")
    expect(spread["p50"]["n"] == len(values), f"{where}: n")
    order = [spread["min"], spread["p50"]["value"], spread.get("p90"), spread.get("p99"), spread["max"]]
    order = [value for value in order if value is not None]
    expect(order == sorted(order), f"{where}: percentiles out of order {order}")
    if "p99" in spread:
        expect((spread["p99"] is None) == (len(values) < 368), f"{where}: p99 with {len(values)} values")
    check_estimate(spread["p50"], f"{where}.p50")


def raw_rounds(db, cell_id):
    """(wall, cpu, flagged) per fan-out of the rounds that count."""
    away = ("case when job = 'sleep' then overshoot_max_ns - max(2000000, wall_ns / 100)"
            " else wall_ns - max(20000, wall_ns / 100) end - rounds.cpu_ns - max(runq_ns, throttled_ns)")
    rows = db.execute(
        "select 1.0 * wall_ns / fanouts, 1.0 * rounds.cpu_ns / fanouts,"
        " runq_ns - throttled_ns > max(20000, wall_ns / 100) or cpu_start <> cpu_end or cpu_start <> workers.cpu"
        " or faults_minor > 0 or faults_major > 0 or throttles > 0 or steal_ticks > 0"
        f" or abs(frequency_end_khz - frequency_start_khz) * 50 > frequency_start_khz or {away} > 0"
        " from counted_rounds rounds join cells on cells.number = cell join workers on workers.number = worker"
        " where id = ? and error is null and not harness",
        (cell_id,))
    return rows.fetchall()


def check_cell(cell, db):
    where = cell["id"]
    rounds = raw_rounds(db, cell["id"])
    expect(cell["rounds"] == len(rounds), f"{where}: rounds")
    expect(cell["rounds_flagged"] == sum(1 for row in rounds if row[2]), f"{where}: flagged")
    whole = cell["rounds"] + cell["rounds_broken"] == cell["rounds_planned"]
    expect(("incomplete" in cell["flags"]) != whole, f"{where}: incomplete")
    for name in ("speedup_x", "speedup_block_x", "cpu_net_ns", "cpu_over_sequential_x", "ceiling_per_s_core"):
        check_estimate(cell[name], f"{where}.{name}")
    if not rounds:
        expect(cell["wall_ns"] is None and cell["cpu_ns"] is None and cell["verdict"] == "invalid", f"{where}: empty")
        return
    check_distribution(cell["wall_ns"], [(row[0], row[2]) for row in rounds], f"{where}.wall_ns")
    check_distribution(cell["cpu_ns"], [(row[1], row[2]) for row in rounds], f"{where}.cpu_ns")
    expect(sum(worker["n"] for worker in cell["workers"]) == cell["rounds"], f"{where}: rounds of workers")
    parts = sum(worker["throughput_per_s"] for worker in cell["workers"])
    expect(close(cell["throughput_per_s"], parts), f"{where}: throughput is not the sum of its parts")
    expect(close(cell["throughput_per_s"], cell["throughput_per_s_core"] * cell["cores"]), f"{where}: per core")
    if cell["ideal_wall_ns"]:
        expect(close(cell["over_ideal_x"], cell["wall_ns"]["p50"]["value"] / cell["ideal_wall_ns"]), f"{where}: ideal")


def check_speedups(cells):
    for cell in cells:
        slow = [other for other in cells if other["arm"] == "sequential" and other["wall_ns"] and all(
            other[key] == cell[key] for key in ("runtime", "job", "fanout", "delay_ns", "cores"))]
        if not slow:
            expect(cell["speedup_x"] is None, f"{cell['id']}: speedup without a sequential arm")
        elif cell["wall_ns"]:
            wanted = slow[0]["wall_ns"]["p50"]["value"] / cell["wall_ns"]["p50"]["value"]
            expect(close(cell["speedup_x"]["value"], wanted, 1e-5), f"{cell['id']}: speedup")


RAISED = {  # what each injected mishap must raise in the gather cell of that fan-out, and nothing else may
    4: ("noisy", {"faults", "warmup_unconverged", "cpu_resolution", "speedup_beyond_fanout"}),
    5: ("invalid", {"cpu_resolution"}),
    6: ("drift", {"drift_wall"}),
    7: ("invalid", {"incomplete"}),
    8: ("invalid", {"incomplete"}),
    9: ("ok", set()),
    10: ("ok", {"migration"}),
    11: ("ok", {"workers_disagree"}),
    2: ("ok", set()),
}
RAISED_ALONE = {  # one round of 20 each, so the verdict stays
    20: ("ok", set()),
    21: ("ok", {"runq_delay"}),
    22: ("ok", {"throttled"}),  # and no run-queue delay, which is the same time in other books
    23: ("ok", {"steal"}),
    24: ("ok", {"frequency"}),
    25: ("ok", {"gap"}),
    26: ("ok", {"migration"}),
    27: ("ok", {"early_timers"}),
    19: ("ok", {"serial"}),
    5: ("ok", {"gap"}),
    2: ("ok", {"calibration_unstable"}),
}


def check_mishaps(summary, raised):
    gathers = {cell["fanout"] for cell in summary["cells"] if cell["arm"] == "gather"}
    expect(gathers == set(raised), f"mishaps that are made: {gathers}")
    for cell in summary["cells"]:
        if cell["arm"] == "gather":
            got = cell["verdict"], set(cell["flags"])
            expect(got == raised[cell["fanout"]], f"{cell['id']}: raised {got}")
        elif cell["verdict"] != "below_floor" and cell["rounds"] == cell["rounds_planned"]:
            unasked = set(cell["flags"]) - {"steal"}  # which is of the whole block
            expect((cell["verdict"], unasked) == ("ok", set()), f"{cell['id']}: raised {unasked} unasked")


def check_json(text, db):
    summary = json.loads(text, parse_constant=no_constant)
    check_nulls(summary, "summary")
    for cell in summary["cells"]:
        check_cell(cell, db)
    check_speedups([cell for cell in summary["cells"] if "time_to_error_ns" not in cell])
    run = summary["run"]
    for total in ("rounds", "rounds_flagged", "rounds_broken"):
        expect(run[total] == sum(cell[total] for cell in summary["cells"]), f"run.{total} is not the sum of its parts")
    return summary


def check_text(text):
    for line in text.splitlines():
        expect(len(line) <= 100, f"over 100 columns: {line}")
    expect(text.isascii() and text.isprintable() or all(c == "\n" or " " <= c <= "~" for c in text), "not plain ASCII")
    expect("nan" not in text.lower() and "inf " not in text.lower(), "nan or inf in the text")
    heading = min((text.index(line) for line in text.splitlines() if line.strip().startswith("p50 wall")), default=None)
    expect(heading is None or text.index("Measured on") < heading, "a table before the words")


def check_csv(text, summary):
    rows = list(csv.DictReader(io.StringIO(text)))
    expect(len(rows) == len(summary["cells"]) == text.count("\n") - 1, "csv: one row per cell, on one line")
    for row, cell in zip(rows, summary["cells"]):
        clean = "".join("?" if c < " " or c == "\x7f" else c for c in cell["id"])
        expect(row["id"] == clean and None not in row and None not in row.values(), f"csv: {cell['id']}")
        wall = cell["wall_ns"]["p50"]["value"] if cell["wall_ns"] else ""
        expect(row["wall_p50_ns"] == "" if wall == "" else close(float(row["wall_p50_ns"]), wall), f"csv wall: {row['id']}")


def figure_of(cell, metric):
    """(value, lo, hi) of a threshold's metric, or None."""
    name, _, part = metric.partition(".")
    figure = cell[name]
    if figure is None:
        return None
    if metric == "over_ideal_x":
        p50, ideal = cell["wall_ns"]["p50"], cell["ideal_wall_ns"]
        return figure, p50["ci_lo"] / ideal, p50["ci_hi"] / ideal
    if name in ("wall_ns", "cpu_ns"):
        figure = figure[part or "p50"]
    return (figure["value"], figure["ci_lo"], figure["ci_hi"]) if isinstance(figure, dict) else (figure, figure, figure)


def check_thresholds(summary):
    """Each one judged again from its cell; what the undecided ones say."""
    cells = {cell["id"]: cell for cell in summary["cells"]}
    for row in summary["thresholds"]:
        where = f"threshold {row['threshold']} of {row['id']}"
        cell = cells[row["id"]]
        found = figure_of(cell, row["metric"])
        if cell["verdict"] == "invalid" or found is None:
            expect(row["passed"] is None, f"{where}: decided")
            continue
        value, lo, hi = found
        least = -math.inf if row["min"] is None else row["min"]
        most = math.inf if row["max"] is None else row["max"]
        wanted = True if least <= lo and hi <= most else False if hi < least or lo > most else None
        expect(row["passed"] is wanted, f"{where}: {row['passed']}, not {wanted}")
        expect(close(row["estimate"]["value"], value), f"{where}: value")


def check_junit(text, summary):
    """Well formed, a case per cell, and what a gate reads off it."""
    root = xml.etree.ElementTree.fromstring(text)
    suite = root.find("testsuite")
    cases = suite.findall("testcase")
    expect(root.tag == "testsuites" and len(cases) == len(summary["cells"]), "junit: cases")
    counts = {"failure": 0, "skipped": 0, "error": 0}
    for case, cell in zip(cases, summary["cells"]):
        rows = [row["passed"] for row in summary["thresholds"] if row["id"] == cell["id"]]
        wanted = ("error" if cell["verdict"] == "invalid" or "incomplete" in cell["flags"] else
                  "failure" if False in rows else "skipped" if None in rows else None)
        got = [child.tag for child in case if child.tag != "system-out"]
        expect(got == ([wanted] if wanted else []), f"junit: {cell['id']}: {got}, not {wanted}")
        expect(len(case.get("name")) == len(cell["id"]), f"junit: name {case.get('name')}")
        for tag in got:
            counts[tag] += 1
            expect(case.find(tag).get("message"), f"junit: {cell['id']}: no message")
    told = {"failure": suite.get("failures"), "skipped": suite.get("skipped"), "error": suite.get("errors")}
    expect(told == {tag: str(count) for tag, count in counts.items()}, f"junit: counts {told}, not {counts}")
    expect(suite.get("tests") == str(len(cases)), "junit: tests")


def check_pyperf(text, db):
    """What pyperf would load, and the same values as in the store."""
    suite = json.loads(text, parse_constant=no_constant)
    for mistake in pyperf_grammar.check_suite(suite):
        expect(False, f"pyperf: {mistake}")
    found = {benchmark["metadata"]["name"]: benchmark["runs"] for benchmark in suite["benchmarks"]}
    ids = [row[0] for row in db.execute("select id from cells where not harness")]
    for cell_id in ids:
        rows = db.execute(
            "select worker, wall_ns, cpu_ns, fanouts from counted_rounds join cells on cells.number = cell"
            " where id = ? and error is null and not harness order by worker, block", (cell_id,)).fetchall()
        name = "".join("?" if c < " " or c == "\x7f" else c for c in cell_id)
        for benchmark, column in ((name, 1), (name + " cpu", 2)):
            runs = found.pop(benchmark, [])
            workers = [run["metadata"]["corefan_worker"] for run in runs]
            expect(workers == sorted({row[0] for row in rows}), f"pyperf: {benchmark}: a run per worker")
            values = [value for run in runs for value in run["values"]]
            wanted = [row[column] / row[3] / 1e9 for row in rows]
            expect(len(values) == len(wanted) and all(map(math.isclose, values, wanted)), f"pyperf: {benchmark}: values")
            expect(all(run["metadata"]["loops"] == rows[0][3] for run in runs), f"pyperf: {benchmark}: loops")
            total = math.fsum(run["metadata"]["duration"] for run in runs)
            expect(math.isclose(total, sum(row[1] for row in rows) / 1e9), f"pyperf: {benchmark}: duration")
            warmups = [loops * value for run in runs for loops, value in run.get("warmups", ())]
            expect(all(math.isclose(spent, 1e-3) for spent in warmups) and len(warmups) == len(runs) * (column == 1),
                   f"pyperf: {benchmark}: warm-ups {warmups}")
    expect(not found, f"pyperf: benchmarks of no cell: {list(found)}")


def check_rounds(text, db):
    """Each round that counts on a line of its own, every column of the store that the protocol has."""
    rows = list(csv.DictReader(io.StringIO(text)))
    found = db.execute("select cells.id as id, counted_rounds.*, cells.runtime, cells.arm, cells.job, cells.fanout, cells.delay_ns,"
                       " cells.clients, cells.cores from counted_rounds join cells on cells.number = cell"
                       " order by cells.number, worker, block")
    names = [column[0] for column in found.description]
    stored = [dict(zip(names, row)) for row in found]
    expect(len(rows) == len(stored) == text.count("\n") - 1, f"rounds: {len(rows)} rows for {len(stored)} rounds")
    for row, wanted in zip(rows, stored):
        expect(None not in row and None not in row.values(), f"rounds: ragged line {row}")
        for name, value in row.items():
            text_of = "" if wanted[name] is None else "".join("?" if c < " " or c == "\x7f" else c for c in str(wanted[name]))
            expect(value == text_of, f"rounds: {name} is {value!r}, not {wanted[name]!r}")


def check_lab(summary):
    """The ratio of each row, and verdicts where every figure of an experiment is there."""
    cells = {cell["id"]: cell for cell in summary["cells"]}
    for row in summary["lab"]:
        figure = cells[row["cell"]][row["metric"]]
        value = (figure if row["metric"] == "speedup_x" else figure["p50"])["value"]
        expect(close(row["measured"], value), f"lab: {row['cell']}: measured")
        expect(close(row["ratio_x"], value / ((row["published_lo"] + row["published_hi"]) / 2)), f"lab: {row['cell']}: ratio")
    judged = {row["runtime"] for row in summary["lab_verdicts"]}
    expect(judged <= {"asyncio", "uvloop"}, f"lab: judged {judged}")


def check_published(summary):
    """The first runtime was made to reproduce both experiments, the second neither."""
    told = {(row["runtime"], row["experiment"][0]): row["reproduces"] for row in summary["lab_verdicts"]}
    expect(told == {("uvloop", "1"): True, ("uvloop", "2"): True, ("asyncio", "1"): False, ("asyncio", "2"): False},
           f"lab: verdicts {told}")
    figures = [(row["published"], row["metric"], row["published_lo"], row["published_hi"]) for row in summary["lab"]
               if row["runtime"] == "uvloop"]
    expect(figures == [("0.415 s", "wall_ns", 415e6, 415e6), ("0.0109 s", "wall_ns", 10.9e6, 10.9e6),
                       ("38.15x", "speedup_x", 38.15, 38.15), ("0.0110 s", "wall_ns", 11e6, 11e6),
                       ("37.87x", "speedup_x", 37.87, 37.87), ("79.3x..83.63x", "speedup_x", 79.3, 83.63),
                       ("79.3x..83.63x", "speedup_x", 79.3, 83.63), ("478 ns +- 16", "cpu_ns", 462, 494),
                       ("8.87 us +- 0.20", "cpu_ns", 8670, 9070), ("20.7 us +- 0.5", "cpu_ns", 20200, 21200)],
           f"lab: published {figures}")


def show(program, run, form):
    return subprocess.run([program, run, form], capture_output=True, text=True, check=True).stdout


def compare(scenario, form, text, update):
    path = HERE / f"{scenario}.{SUFFIX[form]}"
    if update:
        path.write_text(text)
    expect(path.read_text() == text, f"{path.name}: other bytes than before (--update after you looked at them)")


def main():
    make, program, update = sys.argv[1], sys.argv[2], "--update" in sys.argv
    with tempfile.TemporaryDirectory(prefix="corefan-golden-") as scratch:
        for scenario in SCENARIOS:
            run = f"{scratch}/{scenario}"
            subprocess.run([make, run, scenario], check=True)
            texts = {form: show(program, run, form) for form in SUFFIX}
            for form in SUFFIX:
                expect(show(program, run, form) == texts[form], f"{scenario}: {form} differs the second time")
            with sqlite3.connect(f"file:{run}/run.db?mode=ro", uri=True) as db:
                summary = check_json(texts["json"], db)
                check_pyperf(texts["pyperf"], db)
                check_rounds(texts["rounds"], db)
            check_lab(summary)
            if scenario == "published":
                check_published(summary)
            if scenario == "troubled":
                check_mishaps(summary, RAISED)
            if scenario == "disturbed":
                check_mishaps(summary, RAISED_ALONE)
            check_thresholds(summary)
            check_junit(texts["junit"], summary)
            check_text(texts["text"])
            check_csv(texts["csv"], summary)
            for form in KEPT.get(scenario, ()):
                compare(scenario, form, texts[form], update)
    print("\n".join(MISTAKES) if MISTAKES else "reports are as they were, and true to the contract")
    return 1 if MISTAKES else 0


if __name__ == "__main__":
    sys.exit(main())
