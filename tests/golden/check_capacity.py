#!/usr/bin/python3
"""What one core carries, from a run made of a known rule (make_capacity.c): figures against the rule, texts byte for byte.

check_capacity.py MAKE_CAPACITY MAKE_RUN SHOW_RUN COREFAN [--update]
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import check_golden

HERE = pathlib.Path(__file__).resolve().parent
KEYS = ("runtime", "arm", "job", "fanout", "delay_ns", "work_ns", "wakeup_ns", "predicted_per_s_core", "measured_per_s_core",
        "error_x", "clients_at_knee", "crossover_clients", "cpu_ns_per_saved_ms")
RULE = {"sequential": (200e3, 150e3), "gather": (310e3, 200e3), "taskgroup": (347e3, 224e3)}  # work, wake-up
expect = check_golden.expect


def near(estimate, wanted, relative, where):
    value = estimate["value"] if isinstance(estimate, dict) else estimate
    expect(value is not None and math.isclose(value, wanted, rel_tol=relative), f"{where}: {value}, not {wanted}")


def check_row(row, where):
    for key in KEYS:
        expect(key in row, f"{where}: no {key}")
    for value in row.values():
        if isinstance(value, dict):
            check_golden.check_estimate(value, where)


def check_sleep(row):
    where = f"sleep {row['arm']}"
    work, wakeup = RULE[row["arm"]]
    near(row["work_ns"], work, 0.02, f"{where}: work")
    near(row["wakeup_ns"], wakeup, 0.05, f"{where}: wake-up")
    near(row["predicted_per_s_core"], 1e9 / work, 0.02, f"{where}: predicted")
    if row["arm"] == "sequential":
        expect(row["measured_per_s_core"] is None, f"{where}: measured")
        expect(row["measured_per_s_core_null_reason"] == "never_saturated", f"{where}: why it is not measured")
        expect(row["clients_busiest"] == 1024 and 0.5 < row["utilization_busiest"] < 0.55, f"{where}: busiest")
        near(row["clients_at_knee"], 403e6 / work, 0.02, f"{where}: knee")
        expect(row["crossover_clients_null_reason"] == "is_sequential", f"{where}: crossover")
        return
    # 32 clients keep the core busy and their working set is larger than what the fit has seen: less than was foretold
    expect(row["clients_at_ceiling"] == 32, f"{where}: ceiling at {row['clients_at_ceiling']}")
    expect(row["error_x"]["ci_hi"] < 0.95, f"{where}: error {row['error_x']}")
    near(row["clients_at_knee"], 10.2e6 / work, 0.02, f"{where}: knee")
    expect(row["cheaper_below"] is True, f"{where}: who is cheaper below")


def check_borrowed(row):
    """20 x 10 ms has no load beyond 15 clients of its own; the knee is beyond 16, where 100 ms tells what a client more costs."""
    if row["arm"] != "gather" or row["delay_ns"] != 10_000_000:
        return
    knee, cost = 30.0, 0.0
    for _ in range(60):
        cost = 310e3 + 25e3 * math.log2(knee / 16)
        knee = 10.2e6 / cost
    near(row["predicted_per_s_core"], 1e9 / cost, 0.02, "20 children: predicted")
    near(row["clients_at_knee"], knee, 0.03, "20 children: knee")
    expect(row["measured_per_s_core_null_reason"] == "never_saturated" and row["clients_busiest"] == 15, "20 children: what is its own")


def check_crossover(row):
    """Where 200 + 6000 / K meets 310 + 200 / K + 25 log2(K / 16)."""
    if row["arm"] != "gather":
        return
    low, high = 16.0, 256.0
    for _ in range(60):
        middle = (low + high) / 2
        dear = 310 + 200 / middle + 25 * math.log2(middle / 16) - 200 - 6000 / middle
        low, high = (low, middle) if dear > 0 else (middle, high)
    near(row["crossover_clients"], low, 0.1, "gather: crossover")
    expect(row["crossover_clients"]["ci_lo"] < row["crossover_clients"]["ci_hi"], "gather: crossover without interval")
    near(row["crossover_error_x"], row["crossover_clients"]["value"] / row["predicted_crossover_clients"]["value"], 1e-3,
         "gather: crossover measured / predicted")
    near(row["cpu_ns_per_saved_ms"], (310e3 - 200e3) / (403 - 10.2), 0.05, "gather: CPU per ms saved")


def ask_size(corefan, run, rate, p99, *more, code=0):
    done = subprocess.run([corefan, "size", run, "--rate", rate, "--p99", p99, *more], capture_output=True, text=True, check=False)
    expect(done.returncode == code, f"size {rate} {p99}: exit {done.returncode}, not {code}: {done.stderr}")
    return done.stdout


def title(cell):
    delay = f"{cell['delay_ns'] // 10**6}ms " if cell["delay_ns"] else ""
    return f"{cell['fanout']} x {delay}{cell['job']}"


def check_cores(corefan, run, cells, bounds_ms):
    """Cores from the cells of the run: the hardest load in time, and between it and the next the logarithm of p99."""
    for p99_ms in bounds_ms:
        answer = json.loads(ask_size(corefan, run, "20000/s", f"{p99_ms}ms", "--format", "json"))
        check_golden.check_nulls(answer, f"size {p99_ms}ms")
        for row in answer["rows"]:
            where = f"size {row['job']} {row['arm']} {p99_ms}ms"
            latency = "intended_wall_ns" if row["loop"] == "open" else "wall_ns"
            loads = sorted((cell["throughput_per_s_core"], cell[latency]["p99"]) for cell in cells
                           if row["job"] == title(cell) and cell["arm"] == row["arm"] and cell["cores"] == 1
                           and cell[latency] is not None and cell[latency]["p99"] is not None)
            reached = [load for load in loads if load[1] <= p99_ms * 1e6]
            if not reached:
                why = "p99_out_of_reach" if loads else "no_p99"
                expect(row["cores"] is None and row["cores_null_reason"] == why, f"{where}: {row['cores']}")
                continue
            rate, p99 = reached[-1]
            late = [load for load in loads if load > reached[-1] and load[1] > p99]
            if late:
                rate += (late[0][0] - rate) * math.log(p99_ms * 1e6 / p99) / math.log(late[0][1] / p99)
            near(row["per_s_core"], rate, 0.02, where)
            expect(row["cores"]["value"] == math.ceil(20000 / row["per_s_core"]["value"]), f"{where}: cores {row['cores']}")
            expect(row["cores"]["ci_lo"] <= row["cores"]["value"] <= row["cores"]["ci_hi"], f"{where}: interval")
            near(row["utilization"], 20000 / row["cores"]["value"] * row["cpu_ns"] / 1e9, 1e-6, f"{where}: used")


def check_size(corefan, run, cells, update):
    check_golden.SUFFIX["size"] = "size.txt"
    check_golden.compare("capacity", "size", ask_size(corefan, run, "50k/s", "25ms"), update)
    check_cores(corefan, run, cells, (25, 500, 700, 2000))
    for rate, p99, complaint in (("0/s", "1ms", "--rate '0/s': a rate is above 0"), ("5/s", "0s", "--p99 '0s': it must be above 0"),
                                 ("1e12/s", "1ms", "--rate '1e12/s'"), ("5/s", "7", "--p99 '7': missing unit")):
        done = subprocess.run([corefan, "size", run, "--rate", rate, "--p99", p99], capture_output=True, text=True, check=False)
        expect(done.returncode == 2 and done.stderr.startswith(f"corefan: {complaint}") and done.stderr.count("\n") == 1,
               f"size {rate} {p99}: exit {done.returncode}: {done.stderr}")


def check_open_loop(make, show, corefan, scratch, update):
    """Where there are rates, they decide, from the intended start: 16 clients, who wait for nobody, are in time for more."""
    run = f"{scratch}/open"
    subprocess.run([make, run, "open"], check=True)
    cells = json.loads(check_golden.show(show, run, "json"), parse_constant=check_golden.no_constant)["cells"]
    check_golden.compare("capacity_open", "size", ask_size(corefan, run, "20k/s", "16ms"), update)
    check_golden.compare("capacity_open_more", "size", ask_size(corefan, run, "20k/s", "700ms"), update)
    check_cores(corefan, run, cells, (16, 17, 20, 700))
    closed = {cell["arm"]: cell for cell in cells if not cell["arrivals"] and cell["job"] == "sleep"}
    words = " ".join(check_golden.show(show, run, "text").split())
    expect("gather: work 21.0 us with the fewest clients; no harder load than that of 4 clients" in words, "one load: words")
    for row in json.loads(ask_size(corefan, run, "20k/s", "16ms", "--format", "json"))["rows"]:
        expect(row["loop"] == ("closed" if row["job"] == "2 x noop" else "open"), f"open loop: {row}")
        if row["loop"] == "open" and row["arm"] != "sequential":
            in_time, per_s = closed[row["arm"]]["wall_ns"]["p99"] < 16e6, closed[row["arm"]]["throughput_per_s_core"]
            expect(in_time and row["per_s_core"]["value"] < 0.8 * per_s, f"open loop: {row}")


def check_scaling(summary):
    """X(n) = n X(1) / (1 + 0.02 (n - 1)); the last 16 of 32 workers are siblings of the first, and cost half as much again: no
    part of the law of whole cores."""
    rows = {(row["arm"], row["cores"]): row for row in summary["scaling"]}
    for (arm, cores), row in rows.items():
        near(row["efficiency_x"], 1 / (1 + 0.02 * (cores - 1)) / (1.5 if cores == 32 else 1), 0.02, f"scaling: {arm} on {cores}")
        expect(row["siblings"] == (32 if cores == 32 else 0), f"scaling: {arm} on {cores}: {row['siblings']} siblings")
        expect(0 <= row["core_spread_x"] < 0.05, f"scaling: {arm} on {cores}: spread {row['core_spread_x']}")
        expect(row["frequency_khz_null_reason"] == "no_cpufreq", f"scaling: {arm} on {cores}: frequency")
        expect(row["start_skew_max_ns"] == 5000 * (cores - 1), f"scaling: {arm} on {cores}: skew")
    expect([row["arm"] for row in summary["scalability"]] == list(RULE), "scalability: rows")
    for row in summary["scalability"]:
        near(row["contention_x"], 0.02, 0.2, f"scalability: {row['arm']}: contention")
        expect(row["contention_x"]["ci_lo"] <= 0.021 and row["contention_x"]["ci_hi"] >= 0.019, "scalability: interval")
        expect(row["peak_cores"] is None and row["peak_cores_null_reason"] == "no_peak", f"scalability: {row['arm']}: peak")


def check_without_windows(make_run, corefan, scratch):
    subprocess.run([make_run, f"{scratch}/plain", "one_block"], check=True)
    done = subprocess.run([corefan, "size", f"{scratch}/plain", "--rate", "1/s", "--p99", "1s"], capture_output=True, text=True,
                          check=False)
    expect(done.returncode == 2 and "has no windows to size from" in done.stderr and done.stderr.count("\n") == 1,
           f"size of a run without windows: exit {done.returncode}: {done.stderr}")


def main():
    (make, make_run, show, corefan), update = sys.argv[1:5], "--update" in sys.argv
    with tempfile.TemporaryDirectory(prefix="corefan-capacity-") as scratch:
        run = f"{scratch}/run"
        subprocess.run([make, run], check=True)
        texts = {form: check_golden.show(show, run, form) for form in ("text", "json")}
        for form, text in texts.items():
            expect(check_golden.show(show, run, form) == text, f"{form} differs the second time")
            check_golden.compare("capacity", form, text, update)
        summary = json.loads(texts["json"], parse_constant=check_golden.no_constant)
        check_size(corefan, run, summary["cells"], update)
        check_open_loop(make, show, corefan, scratch, update)
        check_without_windows(make_run, corefan, scratch)
    check_golden.check_nulls(summary["capacity"], "capacity")
    check_golden.check_text(texts["text"])
    expect([(row["job"], row["fanout"], row["delay_ns"], row["arm"]) for row in summary["capacity"]] ==
           [(*job, arm) for job in (("sleep", 40, 10**7), ("noop", 2, 0), ("sleep", 20, 10**7), ("sleep", 20, 10**8))
            for arm in RULE], "capacity: rows")
    check_scaling(summary)
    left_out = "asyncio/taskgroup/sleep/n=40/delay=10ms/cores=1/clients=256/duration=2s"
    expect([(row["id"], row["reason"]) for row in summary["left_out"]] == [(left_out, "saturated at K=32")], "left out")
    expect(left_out not in [cell["id"] for cell in summary["cells"]], "left out and yet a cell")
    for row in summary["capacity"]:
        check_row(row, f"{row['job']} {row['arm']}")
        if row["fanout"] == 40:
            check_sleep(row)
            check_crossover(row)
        elif row["fanout"] == 20:
            check_borrowed(row)
        else:
            expect(row["wakeup_ns_null_reason"] == "does_not_wait", "noop: wake-ups")
            near(row["error_x"], 1, 0.03, f"noop {row['arm']}: error")
    print("\n".join(check_golden.MISTAKES) if check_golden.MISTAKES else "capacity is as the rule has it")
    return 1 if check_golden.MISTAKES else 0


if __name__ == "__main__":
    sys.exit(main())
