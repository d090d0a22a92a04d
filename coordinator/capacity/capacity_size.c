/* Cores for a rate at a latency. */
#include "coordinator/capacity/capacity_internal.h"

#include "base/memory.h"

#include <math.h>

/* A load in one picture: medians, or those of a draw. */
struct rung {
    double throughput_per_s, p99_ns, cpu_ns, clients;
    const struct capacity_offer *offer;
};

enum column { THROUGHPUT, P99, CPU, UTILIZATION };

static double column_of(const struct capacity_window *window, enum column column)
{
    const double columns[] = {window->throughput_per_s, window->latency_p99_ns, window->cpu_ns,
                              window->utilization};
    return columns[column];
}

static double median_of(const struct capacity_load *load, enum column column, const size_t *drawn)
{
    scoped_free double *values = memory_zeroed(load->count, sizeof *values);
    for (size_t i = 0; i < load->count; i++)
        values[i] = column_of(&load->windows[drawn ? drawn[i] : i], column);
    return stats_median_in_place(values, load->count);
}

/* The p99 of all windows moves in a draw as the median of the windows' own does. */
static struct rung rung_of(const struct capacity_offer *offer, struct rng *rng)
{
    const struct capacity_load *load = &offer->load;
    scoped_free size_t *drawn = memory_zeroed(load->count, sizeof *drawn);
    for (size_t i = 0; i < load->count; i++)
        drawn[i] = rng ? rng_below(rng, load->count) : i;
    double p99_of_windows = median_of(load, P99, NULL);
    double moved = p99_of_windows > 0 ? median_of(load, P99, drawn) / p99_of_windows : 1;
    return (struct rung){.throughput_per_s = median_of(load, THROUGHPUT, drawn),
                         .p99_ns = offer->p99_ns * (moved > 0 ? moved : 1),
                         .cpu_ns = median_of(load, CPU, drawn),
                         .clients = (double)load->clients,
                         .offer = offer};
}

static int compare_rungs(const void *a, const void *b)
{
    const struct rung *x = a, *y = b;
    return (x->throughput_per_s > y->throughput_per_s) - (x->throughput_per_s < y->throughput_per_s);
}

struct choice {
    const struct rung *hardest; /* in time; NULL: none is */
    const struct rung *late;    /* the next harder one; NULL: none */
    double per_s_core;
};

/* rungs by throughput */
static struct choice choose(const struct rung *rungs, size_t count, double p99_ns)
{
    struct choice choice = {0};
    for (size_t i = 0; i < count; i++)
        if (rungs[i].p99_ns > 0 && rungs[i].p99_ns <= p99_ns) {
            choice.hardest = &rungs[i];
            choice.late = NULL;
        } else if (rungs[i].p99_ns > 0 && !choice.late) {
            choice.late = &rungs[i];
        }
    if (!choice.hardest)
        return choice;
    choice.per_s_core = choice.hardest->throughput_per_s;
    if (choice.late && choice.late->p99_ns > choice.hardest->p99_ns) {
        double part =
            log(p99_ns / choice.hardest->p99_ns) / log(choice.late->p99_ns / choice.hardest->p99_ns);
        choice.per_s_core += part * (choice.late->throughput_per_s - choice.hardest->throughput_per_s);
    }
    return choice;
}

static double per_core_in_time(const struct capacity_offer *offers, size_t count, double p99_ns,
                               struct rng *rng)
{
    scoped_free struct rung *rungs = memory_zeroed(count, sizeof *rungs);
    for (size_t i = 0; i < count; i++)
        rungs[i] = rung_of(&offers[i], rng);
    qsort(rungs, count, sizeof *rungs, compare_rungs);
    struct choice choice = choose(rungs, count, p99_ns);
    return choice.hardest ? choice.per_s_core : NAN;
}

static void note_least(const struct capacity_offer *offers, size_t count, struct capacity_size *size)
{
    for (size_t i = 0; i < count; i++) {
        double p99_ns = offers[i].p99_ns;
        if (!(p99_ns > 0) || (size->least_p99_ns > 0 && p99_ns >= size->least_p99_ns))
            continue;
        size->least_p99_ns = p99_ns;
        size->least_clients = offers[i].load.clients;
    }
}

static void bound_rate(const struct capacity_offer *offers, size_t count,
                       const struct capacity_demand *demand, uint64_t seed, struct capacity_size *size)
{
    scoped_free double *draws = memory_zeroed(CAPACITY_DRAWS, sizeof *draws);
    struct rng rng = rng_seeded(seed);
    for (size_t i = 0; i < CAPACITY_DRAWS; i++)
        draws[i] = per_core_in_time(offers, count, demand->p99_ns, &rng);
    capacity_bound(&size->per_s_core, draws, CAPACITY_DRAWS, "not_always_in_time");
}

/* Cores are whole, so the interval of their number is that of the rate, each end rounded up. */
static void set_cores(const struct capacity_demand *demand, struct capacity_size *size)
{
    struct stats_estimate cores = size->per_s_core;
    cores.value = ceil(demand->rate_per_s / cores.value);
    if (cores.bounded) {
        cores.ci_lo = ceil(demand->rate_per_s / size->per_s_core.ci_hi);
        cores.ci_hi = ceil(demand->rate_per_s / size->per_s_core.ci_lo);
    }
    size->cores = cores;
}

static bool repeated(const struct capacity_offer *offers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (offers[i].load.count > 1)
            return true;
    return false;
}

void capacity_size_for(const struct capacity_offer *offers, size_t count,
                       const struct capacity_demand *demand, uint64_t seed, struct capacity_size *ret)
{
    struct capacity_size size = {0};
    scoped_free struct rung *rungs = memory_zeroed(count + 1, sizeof *rungs);
    int64_t windows = 0;
    for (size_t i = 0; i < count; i++) {
        rungs[i] = rung_of(&offers[i], NULL);
        windows += (int64_t)offers[i].load.count;
    }
    qsort(rungs, count, sizeof *rungs, compare_rungs);
    struct choice choice = choose(rungs, count, demand->p99_ns);
    note_least(offers, count, &size);
    size.cores = size.per_s_core = stats_unknown(size.least_p99_ns > 0 ? "p99_out_of_reach" : "no_p99");
    if (choice.hardest) {
        size.per_s_core = (struct stats_estimate){
            .known = true, .value = choice.per_s_core, .n = windows, .why = "one_window"};
        if (repeated(offers, count))
            bound_rate(offers, count, demand, seed, &size);
        set_cores(demand, &size);
        size.cpu_ns = choice.hardest->cpu_ns;
        size.p99_ns = choice.hardest->p99_ns;
        size.clients = choice.hardest->offer->load.clients;
        size.utilization = demand->rate_per_s / size.cores.value * size.cpu_ns / 1e9;
        size.more_is_possible =
            !choice.late && median_of(&choice.hardest->offer->load, UTILIZATION, NULL) < CAPACITY_SATURATED;
    }
    *ret = size;
}
