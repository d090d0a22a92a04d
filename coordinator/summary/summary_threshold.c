/* The thresholds of the sweep against the cells: from the sweep as the store keeps it, and the finished figures. */
#include "coordinator/summary/summary_internal.h"
#include "coordinator/sweep/sweep.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* ---- figures by the names that a threshold may use ---- */

enum metric_kind { ESTIMATE, FIGURE };

#define AT(member) offsetof(struct summary_cell, member)
static const struct metric {
    const char *name;
    enum metric_kind kind;
    size_t offset;
} metrics[] = {
    {"wall_ns", ESTIMATE, AT(wall_ns.p50)},
    {"wall_ns.p90", FIGURE, AT(wall_ns.p90)},
    {"wall_ns.p99", FIGURE, AT(wall_ns.p99)},
    {"wall_ns.max", FIGURE, AT(wall_ns.max)},
    {"cpu_ns", ESTIMATE, AT(cpu_ns.p50)},
    {"cpu_ns.max", FIGURE, AT(cpu_ns.max)},
    {"cpu_net_ns", ESTIMATE, AT(cpu_net_ns)},
    {"harness_ns", FIGURE, AT(harness_ns)},
    {"over_ideal_x", FIGURE, AT(over_ideal_x)},
    {"speedup_x", ESTIMATE, AT(speedup_x)},
    {"speedup_block_x", ESTIMATE, AT(speedup_block_x)},
    {"max_in_flight", FIGURE, AT(max_in_flight)},
    {"wakeups_per_fanout", FIGURE, AT(wakeups_per_fanout)},
    {"throughput_per_s", FIGURE, AT(throughput_per_s)},
    {"throughput_per_s_core", FIGURE, AT(throughput_per_s_core)},
    {"utilization", FIGURE, AT(utilization)},
    {"ceiling_per_s_core", ESTIMATE, AT(ceiling_per_s_core)},
    {"core_utilization", FIGURE, AT(core_utilization)},
    {"achieved_x", FIGURE, AT(achieved_x)},
    {"lag_max_ns", FIGURE, AT(lag_max_ns)},
    {"intended_wall_ns.p99", FIGURE, AT(intended_ns.p99)},
    {"intended_wall_ns.max", FIGURE, AT(intended_ns.max)},
};
#undef AT

static struct stats_estimate from_figure(const struct summary_cell *cell, const struct summary_figure *figure)
{
    if (!figure->known)
        return stats_unknown(figure->why ? figure->why : "not_measured");
    return (struct stats_estimate){.known = true, .value = figure->value, .n = cell->rounds};
}

/* p50 wall / ideal is as sure as p50 wall. */
static struct stats_estimate over_ideal(const struct summary_cell *cell)
{
    struct stats_estimate p50 = cell->wall_ns.p50;
    if (!cell->over_ideal_x.known)
        return from_figure(cell, &cell->over_ideal_x);
    p50.value = cell->over_ideal_x.value;
    p50.ci_lo /= cell->ideal_wall_ns.value;
    p50.ci_hi /= cell->ideal_wall_ns.value;
    return p50;
}

bool summary_find_metric(const struct summary_cell *cell, const char *name, struct stats_estimate *ret)
{
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        if (strcmp(metrics[i].name, name) != 0)
            continue;
        const void *at = (const char *)cell + metrics[i].offset;
        if (at == &cell->over_ideal_x)
            *ret = over_ideal(cell);
        else if (metrics[i].kind == ESTIMATE)
            *ret = *(const struct stats_estimate *)at;
        else
            *ret = from_figure(cell, at);
        return true;
    }
    return false;
}

/* ---- what the sweep expects ---- */

static void append(char **text, char *more)
{
    char *longer = memory_format("%s%s", *text, more);
    free(*text);
    free(more);
    *text = longer;
}

/* As a sweep says it; in ids some characters are written %2f.  free() it. */
static char *value_said(const struct sweep_key *key, const struct sweep_value *value)
{
    char *text = sweep_value_text(key, value), *to = text;
    for (const char *from = text; *from; from++) {
        unsigned byte = (unsigned char)*from;
        if (byte == '%' && sscanf(from + 1, "%2x", &byte) == 1)
            from += 2;
        *to++ = (char)byte;
    }
    *to = '\0';
    return text;
}

/* "arm: gather, metric: over_ideal_x, max: 1.05", as a sweep would say it.  free() it. */
static char *condition_text(const struct sweep_map *map)
{
    char *text = memory_text("");
    for (size_t i = 0; i < map->type->count; i++) {
        const struct sweep_values *values = &map->keys[i];
        if (values->count == 0)
            continue;
        append(&text, memory_format("%s%s: %s", *text ? ", " : "", map->type->keys[i].name,
                                    values->count > 1 ? "[" : ""));
        for (size_t j = 0; j < values->count; j++) {
            scoped_free char *value = value_said(&map->type->keys[i], &values->at[j]);
            append(&text, memory_format("%s%s", j ? ", " : "", value));
        }
        append(&text, memory_text(values->count > 1 ? "]" : ""));
    }
    return text;
}

static struct threshold bounds_of(const struct sweep_map *map)
{
    const struct sweep_value *least = sweep_get(map, SWEEP_EXPECT_MIN),
                             *most = sweep_get(map, SWEEP_EXPECT_MAX);
    return (struct threshold){.has_min = least != NULL,
                              .has_max = most != NULL,
                              .min = least ? least->number : 0,
                              .max = most ? most->number : 0};
}

static bool matches(const struct summary *summary, size_t cell, const struct plan *plan,
                    const struct sweep_map *map)
{
    const struct store_cell *from = &summary->source->cells[summary->cells[cell].number];
    const struct plan_cell as_planned = {.spec = from->spec,
                                         .runtime = from->runtime,
                                         .cores = from->cores,
                                         .harness = from->harness,
                                         .rate_factor = from->rate_factor};
    return plan_cell_matches(plan, &as_planned, map);
}

/* A cell that is not whole decides nothing, whatever its figures say. */
static struct threshold_result judge(const struct summary_cell *cell, const struct threshold *bounds,
                                     const struct stats_estimate *figure)
{
    if (cell->flags >> SUMMARY_FLAG_INCOMPLETE & 1)
        return (struct threshold_result){THRESHOLD_UNDECIDED, "cell_incomplete"};
    if (cell->verdict == SUMMARY_INVALID)
        return (struct threshold_result){THRESHOLD_UNDECIDED, "cell_invalid"};
    return threshold_judge(bounds, figure);
}

static void add_threshold(struct summary *summary, size_t condition, size_t cell, const struct sweep_map *map)
{
    struct summary_condition *of = &summary->conditions[condition];
    struct summary_threshold row = {
        .condition = condition, .cell = cell, .metric = of->metric, .bounds = bounds_of(map)};
    if (!summary_find_metric(&summary->cells[cell], row.metric, &row.figure))
        row.figure = stats_unknown("unknown_metric");
    struct threshold_result result = judge(&summary->cells[cell], &row.bounds, &row.figure);
    row.outcome = result.outcome;
    row.why = result.why;
    of->outcomes[row.outcome]++;
    size_t count = summary->threshold_count;
    if ((count & (count - 1)) == 0) /* room doubles at every power of two */
        summary->thresholds =
            memory_resized(summary->thresholds, count ? 2 * count : 1, sizeof *summary->thresholds);
    summary->thresholds[summary->threshold_count++] = row;
}

static void note_condition(struct summary *summary, const struct summary_condition *condition)
{
    if (condition->outcomes[THRESHOLD_FAILED] > 0)
        summary->conditions_failed++;
    else if (condition->outcomes[THRESHOLD_UNDECIDED] > 0 || condition->outcomes[THRESHOLD_PASSED] == 0)
        summary->conditions_undecided++;
}

static void judge_conditions(struct summary *summary, const struct sweep_values *expected, int64_t all_cores)
{
    const struct plan plan = {.all_cores = all_cores};
    summary->conditions = memory_zeroed(expected->count + 1, sizeof *summary->conditions);
    for (size_t i = 0; i < expected->count; i++) {
        const struct sweep_map *map = expected->at[i].map;
        struct summary_condition *condition = &summary->conditions[summary->condition_count++];
        condition->text = condition_text(map);
        condition->metric = memory_text(sweep_get(map, SWEEP_EXPECT_METRIC)->text);
        for (size_t cell = 0; cell < summary->cell_count; cell++)
            if (matches(summary, cell, &plan, map))
                add_threshold(summary, i, cell, map);
        note_condition(summary, condition);
    }
}

/* ---- from the store ---- */

static int refuse_stored(struct sweep_mistakes *mistakes, struct error *err)
{
    scoped_free char *text = sweep_mistakes_text(mistakes);
    text[strcspn(text, "\n")] = '\0';
    sweep_mistakes_release(mistakes);
    return error_set(err, ERROR_INTERNAL, "cannot read the sweep that the run keeps: %s", text);
}

int summary_judge_thresholds(struct store *store, struct summary *summary, struct error *err)
{
    scoped_free char *text = NULL, *all_cores = NULL;
    if (store_get_fact(store, "sweep", &text, err) < 0 ||
        store_get_fact(store, "all_cores", &all_cores, err) < 0)
        return -1;
    if (!text)
        return 0;
    struct sweep *sweep = NULL;
    struct sweep_mistakes mistakes = {0};
    const struct sweep_settings as_kept = {.any_job = true};
    if (sweep_parse("sweep", text, strlen(text), as_kept, &sweep, &mistakes) < 0)
        return refuse_stored(&mistakes, err);
    judge_conditions(summary, sweep->thresholds, all_cores ? strtoll(all_cores, NULL, 10) : 0);
    sweep_mistakes_release(&mistakes);
    sweep_free(sweep);
    return 0;
}

/* ---- what it comes to ---- */

enum error_kind summary_exit_kind(const struct summary *summary)
{
    if (strcmp(summary->status, "interrupted") == 0)
        return ERROR_INTERRUPTED;
    if (summary->cells_incomplete > 0 || summary->rounds_broken > 0)
        return ERROR_INCOMPLETE;
    if (summary->conditions_failed > 0)
        return ERROR_FAILED;
    return summary->conditions_undecided > 0 || summary->imprecise > 0 ? ERROR_INCONCLUSIVE : ERROR_NONE;
}
