/* The lab: two published experiments, and whether they come out here as they did there.
 *
 * 1  gather, TaskGroup or a plain loop?  CPython 3.13.5, asyncio, Linux, one box, 5 rounds, p50 of wall time.
 *    40 x 10 ms: sequential 0.415 s; gather 0.0109 s (38.15x); TaskGroup 0.0110 s (37.87x).
 *    100 x 5 ms: between 79.3x and 83.63x; which arm had which is not said.
 * 2  Wall time is not CPU time.  CPython 3.10, uvloop, pyperf with a tuned system, two jobs that return at once:
 *    in sequence 478 ns +- 16; tasks made by hand 8.87 us +- 0.20; gather 20.7 us +- 0.5.
 *
 * Judged are runtimes of Python, cells of one core; others are shown.  Experiment 1 reproduces when both concurrent arms
 * beat the sequence and each speedup lies within SPEEDUP_WITHIN of the published one.  Experiment 2 when sequential <
 * tasks < gather, and both ratios to sequential lie within a factor RATIO_WITHIN of the published ones, about 18 and 43:
 * absolute times are those of other machines and other Pythons.  A cell with a round that is no number is left out.
 * Its jobs do not wait, so its wall times are CPU times, and CPU is what is compared. */
#include "base/memory.h"
#include "coordinator/summary/summary_internal.h"

#include <string.h>

#define SPEEDUP_WITHIN 0.10
#define RATIO_WITHIN   2.0

#define WAITS    "1: waits at once"
#define NO_WAITS "2: no waits"

static const struct published {
    const char *experiment, *job, *arm;
    int64_t fanout, delay_ns;
    const char *metric, *text;
    double lo, hi;
} published[] = {
    {WAITS, "sleep", "sequential", 40, 10000000, "wall_ns", "0.415 s", 0.415e9, 0.415e9},
    {WAITS, "sleep", "gather", 40, 10000000, "wall_ns", "0.0109 s", 0.0109e9, 0.0109e9},
    {WAITS, "sleep", "gather", 40, 10000000, "speedup_x", "38.15x", 38.15, 38.15},
    {WAITS, "sleep", "taskgroup", 40, 10000000, "wall_ns", "0.0110 s", 0.0110e9, 0.0110e9},
    {WAITS, "sleep", "taskgroup", 40, 10000000, "speedup_x", "37.87x", 37.87, 37.87},
    {WAITS, "sleep", "gather", 100, 5000000, "speedup_x", "79.3x..83.63x", 79.3, 83.63},
    {WAITS, "sleep", "taskgroup", 100, 5000000, "speedup_x", "79.3x..83.63x", 79.3, 83.63},
    {NO_WAITS, "noop", "sequential", 2, 0, "cpu_ns", "478 ns +- 16", 462, 494},
    {NO_WAITS, "noop", "tasks", 2, 0, "cpu_ns", "8.87 us +- 0.20", 8670, 9070},
    {NO_WAITS, "noop", "gather", 2, 0, "cpu_ns", "20.7 us +- 0.5", 20200, 21200},
};
#define PUBLISHED (sizeof published / sizeof published[0])

static const char *kind_of(const struct summary *summary, const char *label)
{
    for (size_t i = 0; i < summary->worker_count; i++)
        if (strcmp(summary->workers[i].label, label) == 0)
            return summary->workers[i].runtime;
    return "";
}

static bool is_python(const struct summary *summary, const char *label)
{
    const char *kind = kind_of(summary, label);
    return strcmp(kind, "asyncio") == 0 || strcmp(kind, "uvloop") == 0;
}

/* The plain cell: nothing but the arm, the fan-out and the wait. */
static bool is_plain(const struct summary_cell *cell)
{
    return cell->cores == 1 && cell->clients == 1 && !cell->may_fail && !cell->stalls &&
           cell->duration_ns == 0 && cell->wall_ns.p50.known && cell->verdict != SUMMARY_INVALID &&
           (!cell->wait || strcmp(cell->wait, "uv_timer") != 0);
}

static bool measures(const struct summary_cell *cell, const struct published *row)
{
    return is_plain(cell) && cell->fanout == row->fanout && cell->delay_ns == row->delay_ns &&
           strcmp(cell->arm, row->arm) == 0 && strcmp(cell->job, row->job) == 0;
}

static bool value_of(const struct summary_cell *cell, const char *metric, double *ret)
{
    struct stats_estimate estimate;
    if (!summary_find_metric(cell, metric, &estimate) || !estimate.known)
        return false;
    *ret = estimate.value;
    return true;
}

static void add_rows(struct summary *summary, const struct published *row)
{
    for (size_t i = 0; i < summary->cell_count; i++) {
        double measured;
        if (!measures(&summary->cells[i], row) || !value_of(&summary->cells[i], row->metric, &measured))
            continue;
        summary->lab[summary->lab_count++] =
            (struct summary_lab_row){.cell = i,
                                     .experiment = row->experiment,
                                     .metric = row->metric,
                                     .published = row->text,
                                     .published_lo = row->lo,
                                     .published_hi = row->hi,
                                     .measured = measured,
                                     .ratio_x = measured / ((row->lo + row->hi) / 2)};
    }
}

static const struct summary_lab_row *find_row(const struct summary *summary, const char *runtime,
                                              const char *arm, int64_t fanout, const char *metric)
{
    for (size_t i = 0; i < summary->lab_count; i++) {
        const struct summary_lab_row *row = &summary->lab[i];
        const struct summary_cell *cell = &summary->cells[row->cell];
        if (cell->fanout == fanout && strcmp(cell->runtime, runtime) == 0 && strcmp(cell->arm, arm) == 0 &&
            strcmp(row->metric, metric) == 0)
            return row;
    }
    return NULL;
}

static void add_verdict(struct summary *summary, const char *experiment, const char *runtime, bool reproduces,
                        char *reason)
{
    size_t count = summary->lab_verdict_count++;
    summary->lab_verdicts =
        memory_resized(summary->lab_verdicts, summary->lab_verdict_count, sizeof *summary->lab_verdicts);
    summary->lab_verdicts[count] = (struct summary_lab_verdict){experiment, runtime, reproduces, reason};
}

/* Appends to a list of clauses. */
static void add_clause(char **clauses, char *clause)
{
    char *longer = memory_format("%s%s%s", *clauses, **clauses ? "; " : "", clause);
    free(*clauses);
    free(clause);
    *clauses = longer;
}

static void judge_waits(struct summary *summary, const char *runtime)
{
    static const int64_t fanouts[] = {40, 100};
    static const char *const arms[] = {"gather", "taskgroup"};
    char *clauses = memory_text("");
    bool reproduces = true;
    for (size_t i = 0; i < 4; i++) {
        const struct summary_lab_row *row =
            find_row(summary, runtime, arms[i % 2], fanouts[i / 2], "speedup_x");
        if (!row)
            continue;
        bool near = row->measured >= row->published_lo * (1 - SPEEDUP_WITHIN) &&
                    row->measured <= row->published_hi * (1 + SPEEDUP_WITHIN);
        reproduces = reproduces && near && row->measured > 1;
        add_clause(&clauses,
                   memory_format("%s of %lld %.1fx, %s %.0f %% of %s", arms[i % 2], (long long)fanouts[i / 2],
                                 row->measured, near ? "within" : "not within", 100 * SPEEDUP_WITHIN,
                                 row->published));
    }
    if (*clauses)
        add_verdict(summary, WAITS, runtime, reproduces, clauses);
    else
        free(clauses);
}

static double middle(const struct summary_lab_row *row)
{
    return (row->published_lo + row->published_hi) / 2;
}

/* An arm over the sequence, here and as published. */
struct times {
    double here, published;
    bool near;
};

static struct times times_sequential(const struct summary_lab_row *arm,
                                     const struct summary_lab_row *sequential)
{
    struct times times = {arm->measured / sequential->measured, middle(arm) / middle(sequential), false};
    times.near = times.here >= times.published / RATIO_WITHIN && times.here <= times.published * RATIO_WITHIN;
    return times;
}

static void judge_no_waits(struct summary *summary, const char *runtime)
{
    const struct summary_lab_row *sequential = find_row(summary, runtime, "sequential", 2, "cpu_ns");
    const struct summary_lab_row *tasks = find_row(summary, runtime, "tasks", 2, "cpu_ns");
    const struct summary_lab_row *gather = find_row(summary, runtime, "gather", 2, "cpu_ns");
    if (!sequential || !tasks || !gather || sequential->measured <= 0)
        return;
    struct times by_tasks = times_sequential(tasks, sequential),
                 by_gather = times_sequential(gather, sequential);
    bool order = by_tasks.here > 1 && by_gather.here > by_tasks.here;
    const char *nearness = by_tasks.near && by_gather.near ? "both"
                           : by_tasks.near                 ? "tasks alone"
                           : by_gather.near                ? "gather alone"
                                                           : "neither";
    add_verdict(
        summary, NO_WAITS, runtime, order && by_tasks.near && by_gather.near,
        memory_format("sequential : tasks : gather = 1 : %.1f : %.1f where 1 : %.1f : %.1f was published, "
                      "in %s order, %s within a factor %.1f",
                      by_tasks.here, by_gather.here, by_tasks.published, by_gather.published,
                      order ? "the same" : "another", nearness, RATIO_WITHIN));
}

void summary_fill_lab(struct summary *summary)
{
    summary->lab = memory_zeroed(PUBLISHED * (summary->cell_count + 1), sizeof *summary->lab);
    for (size_t i = 0; i < PUBLISHED; i++)
        add_rows(summary, &published[i]);
    for (size_t i = 0; i < summary->cell_count; i++) {
        const char *runtime = summary->cells[i].runtime;
        bool seen = !is_python(summary, runtime);
        for (size_t before = 0; before < i && !seen; before++)
            seen = strcmp(summary->cells[before].runtime, runtime) == 0;
        if (seen)
            continue;
        judge_waits(summary, runtime);
        judge_no_waits(summary, runtime);
    }
}
