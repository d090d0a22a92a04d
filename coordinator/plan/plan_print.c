/* A plan for people and for programs. */
#include "coordinator/plan/plan.h"

#include "base/memory.h"
#include "base/units.h"
#include "coordinator/stats/precision.h"
#include "coordinator/stats/stats.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define WIDTH 100

/* "1 min 2 s": times that people wait for. */
static char *format_wait(char *buf, size_t size, int64_t ns)
{
    int64_t seconds = ns / 1000000000 + (ns % 1000000000 >= 500000000);
    if (seconds < 60)
        return units_format_duration(buf, size, (double)ns);
    if (seconds < 3600)
        (void)snprintf(buf, size, "%lld min %lld s", (long long)(seconds / 60), (long long)(seconds % 60));
    else if (seconds < 100 * 3600)
        (void)snprintf(buf, size, "%lld h %lld min", (long long)(seconds / 3600),
                       (long long)(seconds / 60 % 60));
    else
        (void)snprintf(buf, size, "%lld days", (long long)(seconds / 86400));
    return buf;
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static int64_t values_of(const struct plan_group *group)
{
    return group->blocks * group->cores * group->processes;
}

/* Which values will bound the p50: what the rounds can buy. */
static char *format_precision(char *buf, size_t size, const struct plan_group *group)
{
    struct stats_ranks ranks;
    char values[32];
    int64_t n = values_of(group), k = group->processes;
    (void)units_format_count(values, sizeof values, n);
    if (group->precision > 0)
        (void)snprintf(buf, size, "p50 within %.3g %%, %lld to %lld rounds%s", group->precision * 100,
                       (long long)plan_expected_blocks(group), (long long)group->blocks,
                       k > 1 ? " each" : "");
    else if (k > 1 && k < STATS_PROCESSES_LEAST)
        (void)snprintf(buf, size, "p50 within the range of %lld processes, %.1f %%", (long long)k,
                       (1 - 2 * pow(0.5, (double)k)) * 100);
    else if (k > 1)
        (void)snprintf(buf, size, "p50 of %s values in %lld processes, %.1f %%", values, (long long)k,
                       STATS_LEVEL * 100);
    else if (stats_median_ranks(n, &ranks))
        (void)snprintf(buf, size, "p50 within values %lld..%lld of %s, %.1f %%", (long long)ranks.lo,
                       (long long)ranks.hi, values, ranks.level * 100);
    else
        (void)snprintf(buf, size, "p50 of %s value%s has no interval", values, plural(n));
    return buf;
}

/* "libuv: sequential gather taskgroup", broken where a line is full. */
static void print_runtime(FILE *out, const struct plan *plan, const struct plan_group *group,
                          const char *runtime)
{
    int column = fprintf(out, "       %s:", runtime);
    for (int64_t i = 0; i < group->cell_count; i++) {
        const struct plan_cell *cell = &plan->cells[group->cells[i]];
        if (cell->harness || strcmp(cell->runtime, runtime) != 0)
            continue;
        int length = (int)strlen(cell->spec.arm);
        if (column + 1 + length > WIDTH)
            column = fprintf(out, "\n        ") - 1;
        column += fprintf(out, " %s", cell->spec.arm);
    }
    (void)fputc('\n', out);
}

static void print_group(FILE *out, const struct plan *plan, const struct plan_group *group)
{
    char precision[96];
    char wait[32];
    (void)format_precision(precision, sizeof precision, group);
    (void)format_wait(wait, sizeof wait, group->expected_ns);
    int column = fprintf(out, "%5lld  %-34s", (long long)group->number + 1, group->title);
    if (column > 41) /* a long title has a line of its own */
        (void)fprintf(out, "\n%41s", "");
    (void)fprintf(out, " %-46s %11s\n", precision, wait);
    for (int64_t i = 0; i < group->runtime_count; i++)
        print_runtime(out, plan, group, group->runtimes[i]);
}

/* Times known beforehand, in the order of the plan; how many groups are left out, whose leave_out is true then. */
static int64_t apply_budget(const struct plan *plan, int64_t budget_ns, bool *leave_out)
{
    int64_t left_ns = budget_ns, count = 0;
    for (int64_t i = 0; budget_ns > 0 && i < plan->group_count; i++) {
        leave_out[i] = plan->groups[i].expected_ns > left_ns;
        count += leave_out[i];
        left_ns -= leave_out[i] ? 0 : plan->groups[i].expected_ns;
    }
    return count;
}

static void print_budget(FILE *out, const struct plan *plan, int64_t budget_ns)
{
    char wait[32];
    scoped_free bool *leave_out = memory_zeroed((size_t)plan->group_count + 1, sizeof *leave_out);
    if (budget_ns <= 0)
        return;
    (void)format_wait(wait, sizeof wait, budget_ns);
    if (apply_budget(plan, budget_ns, leave_out) == 0)
        (void)fprintf(out, "All groups fit into the budget of %s.\n", wait);
    for (int64_t i = 0; i < plan->group_count; i++)
        if (leave_out[i])
            (void)fprintf(out, "The budget of %s leaves out group %lld: %s\n", wait, (long long)i + 1,
                          plan->groups[i].title);
}

static bool has_ladder(const struct plan *plan)
{
    for (int64_t i = 0; i < plan->group_count; i++)
        if (plan->groups[i].is_rung)
            return true;
    return false;
}

static bool goes_on(const struct plan *plan)
{
    for (int64_t i = 0; i < plan->group_count; i++)
        if (plan->groups[i].precision > 0)
            return true;
    return false;
}

/* What the figures above cannot know: how far a ladder goes, and when parts of its ceiling are numbers. */
static void print_ladders(FILE *out, const struct plan *plan)
{
    bool parts = false;
    for (int64_t i = 0; i < plan->cell_count; i++)
        parts |= plan->cells[i].rate_factor > 0;
    if (has_ladder(plan))
        (void)fprintf(out, "An arm leaves its ladder once it was saturated on %d rungs.\n",
                      PLAN_SATURATED_RUNGS);
    if (parts)
        (void)fputs("Rates like 0.5x wait for the ladder that finds their ceiling.\n", out);
}

int plan_print_text(const struct plan *plan, int64_t budget_ns, FILE *out)
{
    char wait[32];
    char cells[32];
    char groups[32];
    (void)fprintf(out, "%s: %s cell%s in %s group%s, seed %llu, %lld worker%s per runtime, %s %s\n\n",
                  plan->name, units_format_count(cells, sizeof cells, plan->reported_count),
                  plural(plan->reported_count), units_format_count(groups, sizeof groups, plan->group_count),
                  plural(plan->group_count), (unsigned long long)plan->seed, (long long)plan->all_cores,
                  plural(plan->all_cores),
                  goes_on(plan)      ? "at least"
                  : has_ladder(plan) ? "at most about"
                                     : "about",
                  format_wait(wait, sizeof wait, plan->expected_ns));
    for (int64_t i = 0; i < plan->group_count; i++)
        print_group(out, plan, &plan->groups[i]);
    (void)fprintf(out, "\nGroups run in this order; within a group, each round runs every arm once, shuffled "
                       "by the seed.\n");
    print_ladders(out, plan);
    print_budget(out, plan, budget_ns);
    return ferror(out) ? -1 : 0;
}

/* ---- JSON ---- */

static json_t *real_or_null(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static json_t *cell_json(const struct plan_cell *cell)
{
    return json_pack(
        "{s:I, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I}", "cell",
        (json_int_t)cell->spec.cell, "id", cell->id, "runtime", cell->runtime, "arm", cell->spec.arm, "job",
        cell->spec.job, "fanout", (json_int_t)cell->spec.fanout, "delay_ns", (json_int_t)cell->spec.delay_ns,
        "clients", (json_int_t)cell->spec.clients, "cores", (json_int_t)cell->cores, "rate_per_s",
        real_or_null(cell->spec.rate_per_s), "rate_factor_x", real_or_null(cell->rate_factor), "duration_ns",
        cell->spec.duration_ns > 0 ? json_integer((json_int_t)cell->spec.duration_ns) : json_null(),
        "expected_round_ns", (json_int_t)cell->expected_ns);
}

static json_t *interval_json(const struct plan_group *group)
{
    struct stats_ranks ranks;
    if (group->processes > 1 || group->precision > 0 || !stats_median_ranks(values_of(group), &ranks))
        return json_null();
    return json_pack("{s:I, s:I, s:f}", "rank_lo", (json_int_t)ranks.lo, "rank_hi", (json_int_t)ranks.hi,
                     "ci_level", ranks.level);
}

static json_t *group_json(const struct plan *plan, const struct plan_group *group)
{
    json_t *cells = json_array();
    for (int64_t i = 0; i < group->cell_count; i++)
        if (!plan->cells[group->cells[i]].harness)
            (void)json_array_append_new(cells, cell_json(&plan->cells[group->cells[i]]));
    return json_pack("{s:I, s:s, s:I, s:I, s:I, s:o, s:I, s:I, s:o, s:I, s:o}", "group",
                     (json_int_t)group->number, "title", group->title, "cores", (json_int_t)group->cores,
                     "rounds", (json_int_t)group->blocks, "processes", (json_int_t)group->processes,
                     "precision", group->precision > 0 ? json_real(group->precision) : json_null(), "seed",
                     (json_int_t)group->seed, "values_per_cell", (json_int_t)values_of(group), "p50_interval",
                     interval_json(group), "expected_ns", (json_int_t)group->expected_ns, "cells", cells);
}

static void put_budget(json_t *root, json_t *groups, const struct plan *plan, int64_t budget_ns)
{
    scoped_free bool *leave_out = memory_zeroed((size_t)plan->group_count + 1, sizeof *leave_out);
    if (budget_ns <= 0)
        return;
    (void)apply_budget(plan, budget_ns, leave_out);
    (void)json_object_set_new(root, "budget_ns", json_integer((json_int_t)budget_ns));
    for (int64_t i = 0; i < plan->group_count; i++)
        (void)json_object_set_new(json_array_get(groups, (size_t)i), "left_out", json_boolean(leave_out[i]));
}

int plan_print_json(const struct plan *plan, int64_t budget_ns, FILE *out)
{
    json_t *groups = json_array();
    for (int64_t i = 0; i < plan->group_count; i++)
        (void)json_array_append_new(groups, group_json(plan, &plan->groups[i]));
    json_t *root =
        json_pack("{s:i, s:s, s:I, s:s, s:I, s:I, s:I, s:o}", "schema_version", 1, "name", plan->name, "seed",
                  (json_int_t)plan->seed, "sweep_sha256", plan->sweep_sha256, "workers_per_runtime",
                  (json_int_t)plan->all_cores, "cell_count", (json_int_t)plan->reported_count, "expected_ns",
                  (json_int_t)plan->expected_ns, "groups", groups);
    if (root)
        put_budget(root, groups, plan, budget_ns);
    int rc = root ? json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : -1;
    json_decref(root);
    if (rc == 0)
        (void)fputc('\n', out);
    return rc != 0 || ferror(out) ? -1 : 0;
}
