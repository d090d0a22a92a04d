#include "coordinator/summary/summary_internal.h"

#include "base/memory.h"

#include <math.h>

/* ---- the unit of intervals: values where one process measured them, else processes ---- */

bool summary_by_process(const struct store_group *group)
{
    return group->processes > 1;
}

int64_t summary_process_of(const struct store_group *group, int64_t block)
{
    return group->blocks > 0 ? block / group->blocks : 0;
}

struct stats_estimate summary_paired(const struct cell_context *context, enum stats_figure of,
                                     const struct stats_pair *pairs, size_t count)
{
    return stats_by_process(of, pairs, count, context->seed + (uint64_t)context->own->plan->number);
}

/* As numbers that stand for pairs: a is what to take the median of. */
static struct stats_estimate median_of_pairs(const struct cell_context *context,
                                             const struct stats_pair *pairs, size_t count,
                                             double (*of)(const struct stats_pair *pair))
{
    scoped_free struct stats_pair *values = memory_zeroed(count + 1, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = (struct stats_pair){.unit = pairs[i].unit, .a = of(&pairs[i])};
    return summary_paired(context, STATS_MEDIAN_OF_A, values, count);
}

static double difference(const struct stats_pair *pair)
{
    return pair->a - pair->b;
}

static double quotient(const struct stats_pair *pair)
{
    return pair->a / pair->b;
}

static void name_pooled(struct stats_estimate *estimate, size_t worker_count)
{
    if (estimate->bounded && worker_count > 1)
        estimate->ci_method = "order_statistic_pooled";
}

struct stats_estimate summary_paired_difference(const struct cell_context *context,
                                                const struct stats_pair *pairs, size_t count,
                                                size_t worker_count)
{
    if (summary_by_process(context->group))
        return median_of_pairs(context, pairs, count, difference);
    struct stats_estimate estimate = stats_paired_difference(pairs, count);
    name_pooled(&estimate, worker_count);
    return estimate;
}

struct stats_estimate summary_paired_ratio(const struct cell_context *context, const struct stats_pair *pairs,
                                           size_t count)
{
    if (!summary_by_process(context->group))
        return stats_paired_ratio(pairs, count);
    for (size_t i = 0; i < count; i++)
        if (!(pairs[i].b > 0))
            return stats_unknown("denominator_not_positive");
    return median_of_pairs(context, pairs, count, quotient);
}

struct stats_estimate summary_median(const struct cell_context *context, round_column *of, bool clean_alone,
                                     size_t worker_count)
{
    const struct cell_rounds *own = context->own;
    scoped_free struct stats_pair *pairs = memory_zeroed(own->count + 1, sizeof *pairs);
    scoped_free double *values = memory_zeroed(own->count + 1, sizeof *values);
    size_t count = 0;
    for (size_t i = 0; i < own->count; i++) {
        if (clean_alone && own->values[i].flags)
            continue;
        values[count] = of(&own->values[i]);
        pairs[count++] = (struct stats_pair){.unit = summary_process_of(context->group, own->values[i].block),
                                             .a = of(&own->values[i])};
    }
    if (summary_by_process(context->group))
        return summary_paired(context, STATS_MEDIAN_OF_A, pairs, count);
    struct stats_estimate estimate = stats_median(values, count);
    name_pooled(&estimate, worker_count);
    return estimate;
}

/* ---- how many rounds a cell should have ---- */

int64_t summary_rounds_planned(const struct cell_context *context)
{
    const struct store_group *group = context->group;
    const struct store_rounds *loaded = context->own->loaded;
    int64_t fixed = context->own->plan->rounds * context->own->plan->cores * group->processes;
    int64_t count = (int64_t)loaded->count, processes = 0, last = -1;
    if (!(group->precision > 0))
        return fixed;
    for (size_t i = 0; i < loaded->count; i++) {
        int64_t process = summary_process_of(group, loaded->at[i].raw.block);
        processes += process > last;
        last = process > last ? process : last;
    }
    if (processes == 0)
        return PRECISION_FIRST_BLOCKS * context->own->plan->cores * group->processes;
    return count / processes * group->processes + count % processes;
}

/* ---- rounds: auto ---- */

/* Time of one block: each cell's mean round, one after another. */
static double block_ns(const struct cell_rounds *cells, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double own = 0;
        for (size_t j = 0; j < cells[i].count; j++)
            own += (double)cells[i].values[j].raw->wall_ns;
        sum += cells[i].count > 0 ? own / (double)cells[i].count : 0;
    }
    return sum;
}

static int64_t blocks_per_process(const struct cell_rounds *cell, const struct store_group *group)
{
    int64_t most = 0;
    for (size_t i = 0; i < cell->count; i++) {
        int64_t blocks = cell->values[i].block % group->blocks + 1;
        most = blocks > most ? blocks : most;
    }
    return most;
}

static int64_t processes_seen(const struct cell_rounds *cell, const struct store_group *group)
{
    int64_t last = -1;
    for (size_t i = 0; i < cell->count; i++) {
        int64_t process = summary_process_of(group, cell->values[i].block);
        last = process > last ? process : last;
    }
    return last + 1;
}

/* The widest interval of the group; worst cell, wall or CPU. */
static double widest_of(const struct summary *summary, const struct summary_group *group,
                        struct summary_precision *ret)
{
    double widest = -1;
    for (size_t i = 0; i < group->cell_count; i++) {
        const struct summary_cell *cell = &summary->cells[group->cells[i]];
        double wall = precision_of(&cell->wall_ns.p50), cpu = precision_of(&cell->cpu_ns.p50);
        double worse = fmax(wall, cpu);
        if (!(worse > widest))
            continue;
        widest = worse;
        ret->cell = group->cells[i];
        ret->is_cpu = cpu > wall;
    }
    return widest;
}

/* More processes where they are the unit, else more blocks of the one. */
static struct summary_figure missing_ns(const struct summary_precision *row, double widest,
                                        double one_block_ns)
{
    bool by_process = row->processes > 1;
    int64_t have = by_process ? row->processes : row->rounds;
    int64_t needed = precision_needed(have, widest, row->target_x);
    if (needed == INT64_MAX)
        return no_figure("no_interval");
    double each_ns = by_process ? one_block_ns * (double)row->rounds : one_block_ns;
    return figure((double)(needed - have) * each_ns);
}

void summary_fill_precision(struct summary *summary, const struct store_group *from,
                            const struct cell_rounds *cells, size_t count)
{
    struct summary_group *group = &summary->groups[summary->group_count - 1];
    if (!(from->precision > 0))
        return;
    struct summary_precision row = {
        .group = summary->group_count - 1, .target_x = from->precision, .most = from->blocks};
    for (size_t i = 0; i < count; i++) {
        int64_t rounds = blocks_per_process(&cells[i], from), processes = processes_seen(&cells[i], from);
        row.rounds = rounds > row.rounds ? rounds : row.rounds;
        row.processes = processes > row.processes ? processes : row.processes;
    }
    group->rounds = row.rounds;
    double widest = widest_of(summary, group, &row);
    row.reached = group->measured && widest <= row.target_x;
    row.achieved_x =
        isfinite(widest) ? figure(widest) : no_figure(group->measured ? "no_interval" : "not_measured");
    if (row.reached)
        row.missing_ns = figure(0);
    else if (group->measured)
        row.missing_ns = missing_ns(&row, widest, block_ns(cells, count));
    else
        row.missing_ns = no_figure("not_measured");
    summary->precisions =
        memory_resized(summary->precisions, summary->precision_count + 1, sizeof *summary->precisions);
    summary->precisions[summary->precision_count++] = row;
    summary->imprecise += !row.reached;
    if (row.missing_ns.known)
        summary->missing_ns += row.missing_ns.value;
}
