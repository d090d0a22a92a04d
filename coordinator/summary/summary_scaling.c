/* Gangs as a whole: how alike their cores are, and the law that throughput follows as they grow. */
#include "coordinator/summary/summary_internal.h"

#include "base/map.h"
#include "base/memory.h"
#include "base/rng.h"

#include <string.h>

#define NS_PER_S 1e9

static const struct wire_hello *hello_of(const struct store_run *run, int64_t worker)
{
    for (size_t i = 0; i < run->worker_count; i++)
        if (run->workers[i].number == worker)
            return &run->workers[i].hello;
    return NULL;
}

static bool share_a_core(const struct wire_hello *a, const struct wire_hello *b)
{
    return a && b && a->core != WIRE_NULL && a->core == b->core && a->package == b->package && a->boot_id &&
           b->boot_id && strcmp(a->boot_id, b->boot_id) == 0;
}

static int64_t count_siblings(const struct store_run *run, const struct summary_cell *cell)
{
    int64_t siblings = 0;
    for (size_t i = 0; i < cell->worker_count; i++) {
        const struct wire_hello *own = hello_of(run, cell->workers[i].worker);
        bool shares = false;
        for (size_t j = 0; j < cell->worker_count; j++)
            shares |= j != i && share_a_core(own, hello_of(run, cell->workers[j].worker));
        siblings += shares;
    }
    return siblings;
}

void summary_fill_spread(const struct store_run *run, const struct summary_cell *cell,
                         struct summary_scaling *row)
{
    double least = 0, most = 0, sum = 0;
    for (size_t i = 0; i < cell->worker_count; i++) {
        double per_s = cell->workers[i].throughput_per_s;
        least = i == 0 || per_s < least ? per_s : least;
        most = per_s > most ? per_s : most;
        sum += per_s;
    }
    row->core_spread_x =
        sum > 0 ? figure((most - least) * (double)cell->worker_count / sum) : no_figure("not_measured");
    row->siblings = count_siblings(run, cell);
}

/* ---- the law ---- */

struct series {
    size_t first; /* cell */
    struct capacity_scale_point *points;
    size_t count;
};

/* Throughput of all cores together, in each block that the whole gang measured; free() it. */
static double *throughput_of(const struct summary_cell *cell, size_t *ret_count)
{
    double *sums = memory_zeroed(cell->value_count + 1, sizeof *sums);
    size_t count = 0;
    for (size_t i = 0; i < cell->value_count; i++) {
        double sum = 0;
        int64_t cores = 0;
        bool first = true;
        for (size_t j = 0; j < cell->value_count; j++) {
            if (cell->values[j].block != cell->values[i].block || !(cell->values[j].wall_ns > 0))
                continue;
            first &= j >= i;
            cores++;
            sum += cell->is_window ? cell->windows[j].throughput_per_s : NS_PER_S / cell->values[j].wall_ns;
        }
        if (first && cores == cell->cores)
            sums[count++] = sum;
    }
    *ret_count = count;
    return sums;
}

/* Gangs that share physical cores, or even CPUs, are no part of the series of whole cores. */
static const char *kind_of(const struct summary *summary, size_t index)
{
    if (summary->cells[index].flags >> SUMMARY_FLAG_OVERSUBSCRIBED & 1)
        return ", oversubscribed";
    for (size_t i = 0; i < summary->scaling_count; i++)
        if (summary->scaling[i].cell == index)
            return summary->scaling[i].siblings > 0 ? ", siblings" : "";
    return "";
}

static void add_to_series(struct summary *summary, size_t index, struct series *list, size_t *count,
                          struct map *by_key)
{
    const struct summary_cell *cell = &summary->cells[index];
    bool whole = !cell->is_window || cell->window_count == cell->value_count;
    if (cell->value_count == 0 || cell->rate_per_s > 0 || cell->may_fail || !whole)
        return;
    scoped_free char *without = summary_key_without_cores(&summary->source->cells[cell->number]);
    scoped_free char *key = memory_format("%s%s", without, kind_of(summary, index));
    uintptr_t number = (uintptr_t)map_get(by_key, key, strlen(key));
    if (number == 0) {
        number = ++*count;
        list[number - 1].first = index;
        map_put(by_key, key, strlen(key), (void *)number); // NOLINT
    }
    struct series *series = &list[number - 1];
    struct capacity_scale_point point = {.cores = cell->cores};
    point.throughput_per_s = throughput_of(cell, &point.count);
    series->points = memory_resized(series->points, series->count + 1, sizeof *series->points);
    series->points[series->count++] = point;
}

static void release_series(struct series *series)
{
    for (size_t i = 0; i < series->count; i++)
        free((void *)(uintptr_t)series->points[i].throughput_per_s);
    free(series->points);
}

static void keep_measured(struct series *series)
{
    size_t kept = 0;
    for (size_t i = 0; i < series->count; i++)
        if (series->points[i].count > 0)
            series->points[kept++] = series->points[i];
        else
            free((void *)(uintptr_t)series->points[i].throughput_per_s);
    series->count = kept;
}

void summary_fill_scalability(struct summary *summary)
{
    summary->scalability = memory_zeroed(summary->cell_count + 1, sizeof *summary->scalability);
    if (summary->scaling_count < CAPACITY_SCALE_LEAST - 1)
        return;
    scoped_free struct series *list = memory_zeroed(summary->cell_count + 1, sizeof *list);
    struct map by_key;
    size_t count = 0;
    map_init(&by_key, 1);
    for (size_t i = 0; i < summary->cell_count; i++)
        add_to_series(summary, i, list, &count, &by_key);
    for (size_t i = 0; i < count; i++) {
        keep_measured(&list[i]);
        struct summary_scalability *row = &summary->scalability[summary->scalability_count];
        struct rng rng = rng_stream(strtoull(summary->seed, NULL, 10), (1ULL << 41) + i);
        row->cell = list[i].first;
        capacity_scale(list[i].points, list[i].count, rng_next(&rng), &row->law);
        summary->scalability_count += row->law.per_core_per_s.known;
        release_series(&list[i]);
    }
    map_release(&by_key);
}
