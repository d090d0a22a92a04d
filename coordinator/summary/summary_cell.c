#include "coordinator/summary/summary_internal.h"

#include "base/memory.h"
#include "base/rng.h"

#include <string.h>

/* ---- rounds ---- */

/* Why a round is no number; NULL when it is one.  Early waits are the worker's to judge: some timers are early by
 * design (SPEC.md, 5.5). */
static const char *round_error(const struct wire_round *raw)
{
    if (raw->error)
        return raw->error;
    if (raw->start_ns == WIRE_NULL || raw->wall_ns == WIRE_NULL || raw->cpu_ns == WIRE_NULL ||
        raw->fanouts == WIRE_NULL || raw->fanouts < 1 || raw->wall_ns < 0 || raw->cpu_ns < 0)
        return "its start, wall, CPU or number of fan-outs is missing";
    return NULL;
}

static int64_t pinned_cpu(const struct store_run *run, int64_t worker)
{
    for (size_t i = 0; i < run->worker_count; i++)
        if (run->workers[i].number == worker)
            return run->workers[i].hello.cpu;
    return WIRE_NULL;
}

int cell_rounds_load(struct store *store, const struct store_run *run, const struct store_cell *plan,
                     struct cell_rounds *ret, struct error *err)
{
    struct cell_rounds rounds = {.plan = plan};
    if (store_load_rounds(store, plan->number, &rounds.loaded, err) < 0)
        return -1;
    rounds.values = memory_zeroed(rounds.loaded->count + 1, sizeof *rounds.values);
    for (size_t i = 0; i < rounds.loaded->count; i++) {
        const struct store_round *from = &rounds.loaded->at[i];
        const char *error = round_error(&from->raw);
        double wall_ns = error ? 0 : (double)from->raw.wall_ns / (double)from->raw.fanouts;
        if (!error && is_window(plan))
            error = rounds_take_window(&rounds, &from->raw, &wall_ns);
        if (error) {
            rounds.first_error = rounds.first_error ? rounds.first_error : error;
            rounds.broken++;
            continue;
        }
        rounds.values[rounds.count++] =
            (struct round_value){.worker = from->worker,
                                 .block = from->raw.block,
                                 .wall_ns = wall_ns,
                                 .cpu_ns = (double)from->raw.cpu_ns / (double)from->raw.fanouts,
                                 .flags = summary_disturbed(&from->raw, plan, pinned_cpu(run, from->worker)),
                                 .raw = &from->raw};
    }
    *ret = rounds;
    return 0;
}

void cell_rounds_release(struct cell_rounds *rounds)
{
    latency_release(&rounds->latency);
    latency_release(&rounds->intended);
    store_rounds_free(rounds->loaded);
    free(rounds->values);
    *rounds = (struct cell_rounds){0};
}

int summary_load_rounds(struct store *store, const struct summary *summary, int64_t cell_number,
                        struct summary_round **ret, size_t *ret_count, struct error *err)
{
    struct cell_rounds rounds;
    if (cell_rounds_load(store, summary->source, &summary->source->cells[cell_number], &rounds, err) < 0)
        return -1;
    struct summary_round *list = memory_zeroed(rounds.count + 1, sizeof *list);
    for (size_t i = 0; i < rounds.count; i++) {
        const struct round_value *from = &rounds.values[i];
        list[i] =
            (struct summary_round){from->worker, from->block, from->wall_ns, from->cpu_ns, from->flags == 0};
    }
    *ret = list;
    *ret_count = rounds.count;
    cell_rounds_release(&rounds);
    return 0;
}

/* ---- columns of values ---- */

double round_wall_ns(const struct round_value *value)
{
    return value->wall_ns;
}

double round_cpu_ns(const struct round_value *value)
{
    return value->cpu_ns;
}

double *rounds_gather(const struct round_value *values, size_t count, round_column *of)
{
    double *gathered = memory_zeroed(count + 1, sizeof *gathered);
    for (size_t i = 0; i < count; i++)
        gathered[i] = of(&values[i]);
    return gathered;
}

size_t rounds_of_worker(const struct cell_rounds *rounds, size_t first)
{
    size_t after = first;
    while (after < rounds->count && rounds->values[after].worker == rounds->values[first].worker)
        after++;
    return after - first;
}

/* ---- distributions ---- */

static struct stats_estimate clean_median(const struct cell_context *context, round_column *of,
                                          const struct summary_cell *cell)
{
    if (cell->rounds_flagged == (int64_t)context->own->count)
        return stats_unknown("every_round_flagged");
    return summary_median(context, of, true, cell->worker_count);
}

static void fill_distribution(const struct cell_context *context, round_column *of,
                              const struct summary_cell *cell, struct summary_distribution *ret)
{
    const struct cell_rounds *rounds = context->own;
    size_t n = rounds->count;
    scoped_free double *values = rounds_gather(rounds->values, n, of);
    scoped_free double *sorted = stats_sorted(values, n);
    struct stats_moments moments = stats_moments(values, n);
    ret->p50 = summary_median(context, of, false, cell->worker_count);
    ret->clean_p50 = cell->rounds_flagged == 0 ? ret->p50 : clean_median(context, of, cell);
    ret->min = figure(moments.min);
    ret->max = figure(moments.max);
    ret->mean = figure(moments.mean);
    ret->stddev = n > 1 ? figure(moments.stddev) : no_figure("one_value");
    ret->p90 = figure(stats_quantile(sorted, n, 0.9));
    ret->p99 =
        n >= STATS_P99_MIN_N ? figure(stats_quantile(sorted, n, 0.99)) : no_figure("fewer_than_368_values");
}

/* ---- pairs of two cells that were measured in the same blocks ---- */

static struct stats_pair *pair_up(const struct cell_context *context, const struct cell_rounds *a,
                                  const struct cell_rounds *b, round_column *of, size_t *ret_count)
{
    bool by_process = summary_by_process(context->group);

    struct stats_pair *pairs = memory_zeroed(a->count + 1, sizeof *pairs);
    size_t count = 0;
    for (size_t i = 0, j = 0; i < a->count && j < b->count;) {
        const struct round_value *x = &a->values[i], *y = &b->values[j];
        int order = x->worker != y->worker ? (x->worker > y->worker) - (x->worker < y->worker)
                                           : (x->block > y->block) - (x->block < y->block);
        int64_t unit = by_process ? summary_process_of(context->group, x->block) : x->worker;
        if (order == 0)
            pairs[count++] = (struct stats_pair){unit, of(x), of(y)};
        i += order <= 0;
        j += order >= 0;
    }
    *ret_count = count;
    return pairs;
}

static uint64_t bootstrap_seed(const struct cell_context *context)
{
    struct rng rng = rng_stream(context->seed, (uint64_t)context->own->plan->number + 1);
    return rng_next(&rng);
}

/* A cell against itself. */
static struct stats_estimate exactly_one(int64_t n)
{
    return (struct stats_estimate){.known = true,
                                   .bounded = true,
                                   .value = 1,
                                   .n = n,
                                   .ci_lo = 1,
                                   .ci_hi = 1,
                                   .ci_level = 1,
                                   .ci_method = "exact"};
}

/* The ratio of the two headline p50s: its bounds come from pairs, its value from every round of both. */
static struct stats_estimate ratio_of_p50s(const struct cell_context *context, const struct cell_rounds *a,
                                           const struct cell_rounds *b, round_column *of)
{
    size_t count;
    scoped_free struct stats_pair *pairs = pair_up(context, a, b, of, &count);
    scoped_free double *above = rounds_gather(a->values, a->count, of);
    scoped_free double *below = rounds_gather(b->values, b->count, of);
    struct stats_estimate ratio = summary_by_process(context->group)
                                      ? summary_paired(context, STATS_RATIO_OF_MEDIANS, pairs, count)
                                      : stats_bootstrap_ratio(pairs, count, bootstrap_seed(context));
    double divisor = stats_median(below, b->count).value;
    if (!ratio.known || !(divisor > 0))
        return ratio.known ? stats_unknown("denominator_not_positive") : ratio;
    double latency_a, latency_b;
    ratio.value = stats_median(above, a->count).value / divisor;
    if (of == round_wall_ns && latency_quantile(&a->latency, 0.5, &latency_a) &&
        latency_quantile(&b->latency, 0.5, &latency_b) && latency_b > 0)
        ratio.value = latency_a / latency_b; /* windows: the headline p50s are those of all fan-outs */
    ratio.ci_lo = ratio.value < ratio.ci_lo ? ratio.value : ratio.ci_lo;
    ratio.ci_hi = ratio.value > ratio.ci_hi ? ratio.value : ratio.ci_hi;
    return ratio;
}

static void fill_against_sequential(const struct cell_context *context, struct summary_cell *cell)
{
    const struct cell_rounds *sequential = context->sequential;
    const char *why = !sequential          ? "no_sequential_arm"
                      : !sequential->count ? "sequential_not_measured"
                                           : NULL;
    if (why || sequential == context->own) {
        struct stats_estimate same = why ? stats_unknown(why) : exactly_one(cell->rounds);
        cell->speedup_x = cell->speedup_block_x = cell->cpu_over_sequential_x = same;
        return;
    }
    size_t count;
    scoped_free struct stats_pair *walls = pair_up(context, sequential, context->own, round_wall_ns, &count);
    cell->speedup_block_x = summary_paired_ratio(context, walls, count);
    cell->speedup_x = ratio_of_p50s(context, sequential, context->own, round_wall_ns);
    cell->cpu_over_sequential_x = ratio_of_p50s(context, context->own, sequential, round_cpu_ns);
}

static void fill_against_harness(const struct cell_context *context, struct summary_cell *cell)
{
    if (!context->harness || !context->harness->count) {
        cell->harness_ns = no_figure("no_empty_arm");
        cell->cpu_net_ns = stats_unknown("no_empty_arm");
        return;
    }
    scoped_free double *empty =
        rounds_gather(context->harness->values, context->harness->count, round_cpu_ns);
    cell->harness_ns = figure(stats_median(empty, context->harness->count).value);
    size_t count;
    scoped_free struct stats_pair *pairs =
        pair_up(context, context->own, context->harness, round_cpu_ns, &count);
    cell->cpu_net_ns = summary_paired_difference(context, pairs, count, cell->worker_count);
}

/* ---- raw counters over the rounds ---- */

static int64_t raw_value(const struct wire_round *raw, enum raw_field field)
{
    static const size_t offsets[] = {
#define X(name) [RAW_##name] = offsetof(struct wire_round, name),
        WIRE_ROUND_INTEGERS(X)
#undef X
    };
    return *(const int64_t *)(const void *)((const char *)raw + offsets[field]);
}

/* The values of one counter that are known; free() it. */
static double *known_raw(const struct cell_rounds *rounds, enum raw_field field, size_t *ret_count)
{
    double *known = memory_zeroed(rounds->count + 1, sizeof *known);
    *ret_count = 0;
    for (size_t i = 0; i < rounds->count; i++) {
        int64_t value = raw_value(rounds->values[i].raw, field);
        if (value != WIRE_NULL)
            known[(*ret_count)++] = (double)value;
    }
    return known;
}

struct summary_figure rounds_reduce(const struct cell_rounds *rounds, enum raw_field field,
                                    enum raw_reduction reduction, const char *why)
{
    size_t count;
    scoped_free double *known = known_raw(rounds, field, &count);
    if (count == 0)
        return no_figure(why);
    struct stats_moments moments = stats_moments(known, count);
    if (reduction == MIDDLE)
        return figure(stats_median(known, count).value);
    return figure(reduction == LEAST ? moments.min : moments.max);
}

struct summary_figure rounds_sum(const struct cell_rounds *rounds, enum raw_field field, const char *why)
{
    size_t count;
    double sum = 0;
    scoped_free double *known = known_raw(rounds, field, &count);
    for (size_t i = 0; i < count; i++)
        sum += known[i];
    return count ? figure(sum) : no_figure(why);
}

/* Some timers are early by design; nobody should have to guess how often. */
static void fill_early(const struct cell_rounds *own, const char *why, struct summary_cell *cell)
{
    cell->early_waits = cell->job_waits ? rounds_sum(own, RAW_early, why) : no_figure(why);
}

static void fill_counters(const struct cell_rounds *own, struct summary_cell *cell)
{
    double wakeups = 0, fanouts = 0;
    bool known = true;
    for (size_t i = 0; i < own->count; i++) {
        known = known && own->values[i].raw->wakeups != WIRE_NULL;
        wakeups += (double)own->values[i].raw->wakeups;
        fanouts += (double)own->values[i].raw->fanouts;
    }
    cell->wakeups_per_fanout = known ? figure(wakeups / fanouts) : no_figure("not_counted");
    cell->fanouts_per_round = figure(fanouts / (double)own->count);
    const char *no_waits = cell->job_waits ? "not_counted" : "no_wait";
    const char *no_error = "no_error_reached_the_caller", *not_run = "not_counted";
    cell->max_in_flight = rounds_reduce(own, RAW_max_in_flight, MOST, "not_counted");
    cell->overshoot_min_ns = rounds_reduce(own, RAW_overshoot_min_ns, LEAST, no_waits);
    cell->overshoot_p50_ns = rounds_reduce(own, RAW_overshoot_p50_ns, MIDDLE, no_waits);
    cell->overshoot_max_ns = rounds_reduce(own, RAW_overshoot_max_ns, MOST, no_waits);
    fill_early(own, no_waits, cell);
    cell->time_to_error_ns = rounds_reduce(own, RAW_time_to_error_ns, MIDDLE, no_error);
    cell->wasted_cpu_ns = rounds_reduce(own, RAW_wasted_cpu_ns, MIDDLE, not_run);
    cell->drain_ns = rounds_reduce(own, RAW_drain_ns, MIDDLE, not_run);
    cell->orphans = rounds_reduce(own, RAW_orphans, MIDDLE, not_run);
    cell->errors_seen = rounds_reduce(own, RAW_errors_seen, MIDDLE, not_run);
    cell->errors_lost = rounds_reduce(own, RAW_errors_lost, MIDDLE, not_run);
    cell->stall_overshoot_p50_ns =
        rounds_reduce(own, RAW_stall_overshoot_p50_ns, MIDDLE, "nothing_slept_beside");
}

/* ---- what a fan-out could ideally take ---- */

static bool is_sequential(const struct summary_cell *cell)
{
    return strcmp(cell->arm, "sequential") == 0;
}

static struct summary_figure ideal_wall(const struct summary_cell *cell)
{
    if (cell->may_fail)
        return no_figure("children_fail");
    if (cell->stalls)
        return no_figure("children_stall");
    if (strcmp(cell->job, "noop") == 0)
        return no_figure("no_wait");
    double all = (double)cell->delay_ns * (double)cell->fanout;
    if (strcmp(cell->job, "cpu") == 0)
        return figure(all); /* one core does one burn after another */
    if (strcmp(cell->job, "sleep") == 0)
        return figure(is_sequential(cell) ? all : (double)cell->delay_ns);
    return no_figure("not_known_for_this_job");
}

static void fill_ideal(struct summary_cell *cell)
{
    cell->ideal_wall_ns = ideal_wall(cell);
    if (cell->ideal_wall_ns.known && cell->ideal_wall_ns.value > 0)
        cell->over_ideal_x = figure(cell->wall_ns.p50.value / cell->ideal_wall_ns.value);
    else
        cell->over_ideal_x = no_figure(cell->ideal_wall_ns.known ? "no_wait" : cell->ideal_wall_ns.why);
}

/* Sequential loses its lateness N times over, a concurrent arm once: how much of the speedup is that? */
static void fill_overshoot_adjusted(const struct cell_context *context, struct summary_cell *cell)
{
    const struct cell_rounds *sequential = context->sequential;
    cell->overshoot_adjusted_x = no_figure("no_overshoot_of_both_arms");
    if (!cell->speedup_x.known || is_sequential(cell) || cell->may_fail || !cell->overshoot_p50_ns.known)
        return;
    struct summary_figure late = rounds_reduce(sequential, RAW_overshoot_p50_ns, MIDDLE, "no_wait");
    scoped_free double *walls = rounds_gather(sequential->values, sequential->count, round_wall_ns);
    double below = cell->wall_ns.p50.value - cell->overshoot_p50_ns.value;
    if (late.known && below > 0)
        cell->overshoot_adjusted_x = figure(
            (stats_median(walls, sequential->count).value - (double)cell->fanout * late.value) / below);
}

/* ---- workers, throughput ---- */

static struct summary_cell_worker describe_worker(const struct round_value *values, size_t count)
{
    scoped_free double *walls = rounds_gather(values, count, round_wall_ns);
    scoped_free double *cpus = rounds_gather(values, count, round_cpu_ns);
    double fanouts = 0, wall_ns = 0;
    for (size_t i = 0; i < count; i++) {
        fanouts += (double)values[i].raw->fanouts;
        wall_ns += (double)values[i].raw->wall_ns;
    }
    return (struct summary_cell_worker){.worker = values[0].worker,
                                        .n = (int64_t)count,
                                        .wall_p50_ns = stats_median(walls, count).value,
                                        .cpu_p50_ns = stats_median(cpus, count).value,
                                        .throughput_per_s = wall_ns > 0 ? fanouts / wall_ns * 1e9 : 0};
}

static void fill_workers(const struct cell_rounds *own, struct summary_cell *cell)
{
    cell->workers = memory_zeroed(own->count + 1, sizeof *cell->workers);
    for (size_t first = 0, count; first < own->count; first += count) {
        count = rounds_of_worker(own, first);
        cell->workers[cell->worker_count++] = describe_worker(own->values + first, count);
    }
}

static void fill_throughput(const struct cell_rounds *own, struct summary_cell *cell)
{
    double per_s = 0, cpu_ns = 0, wall_ns = 0;
    for (size_t i = 0; i < cell->worker_count; i++)
        per_s += cell->workers[i].throughput_per_s;
    for (size_t i = 0; i < own->count; i++) {
        cpu_ns += (double)own->values[i].raw->cpu_ns;
        wall_ns += (double)own->values[i].raw->wall_ns;
    }
    bool known = wall_ns > 0;
    const char *why = "no_time_passed";
    double per_core = per_s / (double)cell->worker_count; /* processes of one core took turns */
    bool took_turns = (int64_t)cell->worker_count > cell->cores;
    cell->throughput_per_s =
        known ? figure(took_turns ? per_core * (double)cell->cores : per_s) : no_figure(why);
    cell->throughput_per_s_core = known ? figure(per_core) : no_figure(why);
    cell->utilization = known ? figure(cpu_ns / wall_ns) : no_figure(why);
}

/* 1 / CPU per fan-out; a waiting job has no ceiling before the cost curve is fitted. */
static struct stats_estimate ceiling(const struct summary_cell *cell)
{
    struct stats_estimate cpu = cell->cpu_ns.p50;
    if (cell->job_waits)
        return stats_unknown("needs_capacity_fit");
    if (!(cpu.value > 0) || (cpu.bounded && !(cpu.ci_lo > 0)))
        return stats_unknown("no_cpu_time_seen");
    double lo = cpu.ci_lo;
    cpu.value = 1e9 / cpu.value;
    if (cpu.bounded) {
        cpu.ci_lo = 1e9 / cpu.ci_hi;
        cpu.ci_hi = 1e9 / lo;
    }
    return cpu;
}

/* ---- one cell ---- */

static void copy_plan(const struct cell_context *context, struct summary_cell *cell)
{
    static const char *const jobs_without_waits[] = {"noop", "cpu"};
    const struct store_cell *plan = context->own->plan;
    const struct wire_cell *spec = &plan->spec;
    *cell = (struct summary_cell){
        .number = plan->number,
        .group = plan->group,
        .id = plan->id,
        .runtime = plan->runtime,
        .arm = spec->arm,
        .job = spec->job,
        .phase = spec->phase,
        .wait = spec->wait,
        .fanout = spec->fanout,
        .delay_ns = spec->delay_ns,
        .clients = spec->clients,
        .cores = plan->cores,
        .processes = plan->processes,
        .attempts = context->group->attempts,
        .duration_ns = spec->duration_ns,
        .is_window = is_window(plan),
        .timeout_ns = spec->timeout_ns,
        .rate_per_s = spec->rate_per_s,
        .rate_factor = plan->rate_factor,
        .arrivals =
            is_window(plan) && (spec->rate_per_s > 0 || plan->rate_factor > 0) ? spec->arrivals : NULL,
        .job_waits = true,
        .may_fail = spec->fail.present || spec->timeout_ns > 0,
        .fails = spec->fail.present,
        .stalls = spec->stall.present,
        .rounds_planned = summary_rounds_planned(context),
        .rounds = (int64_t)context->own->count,
        .rounds_broken = context->own->broken};
    for (size_t i = 0; i < sizeof jobs_without_waits / sizeof *jobs_without_waits; i++)
        if (strcmp(spec->job, jobs_without_waits[i]) == 0)
            cell->job_waits = false;
}

static void fill_nothing(struct summary_cell *cell)
{
    static const char why[] = "not_measured";
    struct summary_figure *figures[] = {&cell->harness_ns,
                                        &cell->over_ideal_x,
                                        &cell->overshoot_adjusted_x,
                                        &cell->max_in_flight,
                                        &cell->wakeups_per_fanout,
                                        &cell->fanouts_per_round,
                                        &cell->throughput_per_s,
                                        &cell->throughput_per_s_core,
                                        &cell->utilization,
                                        &cell->overshoot_min_ns,
                                        &cell->overshoot_p50_ns,
                                        &cell->overshoot_max_ns,
                                        &cell->early_waits,
                                        &cell->time_to_error_ns,
                                        &cell->wasted_cpu_ns,
                                        &cell->drain_ns,
                                        &cell->orphans,
                                        &cell->errors_seen,
                                        &cell->errors_lost,
                                        &cell->stall_overshoot_p50_ns};
    struct stats_estimate *estimates[] = {
        &cell->wall_ns.p50,       &cell->cpu_ns.p50, &cell->wall_ns.clean_p50, &cell->cpu_ns.clean_p50,
        &cell->cpu_net_ns,        &cell->speedup_x,  &cell->speedup_block_x,   &cell->cpu_over_sequential_x,
        &cell->ceiling_per_s_core};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        *figures[i] = no_figure(why);
    for (size_t i = 0; i < sizeof estimates / sizeof *estimates; i++)
        *estimates[i] = stats_unknown(why);
    cell->ideal_wall_ns = ideal_wall(cell);
}

static void count_flags(const struct cell_rounds *own, struct summary_cell *cell)
{
    for (size_t i = 0; i < own->count; i++) {
        unsigned flags = own->values[i].flags;
        cell->flags |= flags;
        cell->rounds_flagged += flags != 0;
        for (int flag = 0; flag < SUMMARY_ROUND_FLAGS; flag++)
            cell->flagged_by[flag] += flags >> flag & 1;
    }
}

void summary_fill_cell(const struct cell_context *context, struct summary_cell *cell)
{
    const struct cell_rounds *own = context->own;
    copy_plan(context, cell);
    count_flags(own, cell);
    if (own->count == 0) {
        fill_nothing(cell);
        summary_fill_windows(context, cell);
        return;
    }
    fill_workers(own, cell);
    fill_distribution(context, round_wall_ns, cell, &cell->wall_ns);
    summary_fill_latency(context, cell);
    fill_distribution(context, round_cpu_ns, cell, &cell->cpu_ns);
    fill_counters(own, cell);
    fill_ideal(cell);
    fill_against_sequential(context, cell);
    fill_against_harness(context, cell);
    fill_overshoot_adjusted(context, cell);
    fill_throughput(own, cell);
    summary_fill_windows(context, cell);
    cell->ceiling_per_s_core = ceiling(cell);
}
