#include "coordinator/summary/summary_internal.h"

#include "base/memory.h"

#include <string.h>

/* ---- verdict ---- */

#define DRIFT_P         0.001
#define DRIFT_LEAST_N   8
#define CPU_RESOLVED_NS 50000

static double round_order(const struct round_value *value)
{
    return (double)value->block;
}

/* Processes differ, which is no drift: each one's values count from their own median. */
static void centre_on_processes(const struct cell_context *context, double *values)
{
    const struct cell_rounds *own = context->own;
    scoped_free double *same = memory_zeroed(own->count + 1, sizeof *same);
    for (size_t first = 0, after = 0; summary_by_process(context->group) && first < own->count;
         first = after) {
        int64_t process = summary_process_of(context->group, own->values[first].block);
        while (after < own->count && summary_process_of(context->group, own->values[after].block) == process)
            after++;
        memcpy(same, values + first, (after - first) * sizeof *same);
        double median = stats_median_in_place(same, after - first);
        for (size_t i = first; i < after; i++)
            values[i] -= median;
    }
}

static bool drifts(const struct cell_context *context, round_column *of)
{
    const struct cell_rounds *own = context->own;
    double rho, p;
    scoped_free double *order = rounds_gather(own->values, own->count, round_order);
    scoped_free double *values = rounds_gather(own->values, own->count, of);
    centre_on_processes(context, values);
    for (size_t i = 0; summary_by_process(context->group) && i < own->count; i++)
        order[i] = (double)(own->values[i].block % context->group->blocks);
    return own->count >= DRIFT_LEAST_N && stats_spearman(order, values, own->count, &rho, &p) && p < DRIFT_P;
}

/* Two workers whose own intervals have nothing in common; intervals of fewer than five values say too little. */
static bool workers_disagree(const struct cell_rounds *own, round_column *of)
{
    double highest_lo = 0, lowest_hi = 0;
    bool any = false;
    for (size_t first = 0, count; first < own->count; first += count) {
        count = rounds_of_worker(own, first);
        scoped_free double *values = rounds_gather(own->values + first, count, of);
        struct stats_estimate p50 = stats_median(values, count);
        if (!p50.bounded || p50.ci_level < 0.9)
            continue;
        highest_lo = !any || p50.ci_lo > highest_lo ? p50.ci_lo : highest_lo;
        lowest_hi = !any || p50.ci_hi < lowest_hi ? p50.ci_hi : lowest_hi;
        any = true;
    }
    return any && highest_lo > lowest_hi;
}

static void flag_if(struct summary_cell *cell, bool condition, enum summary_flag flag)
{
    if (condition)
        cell->flags |= 1u << flag;
}

static void flag_words(struct summary_cell *cell, const struct wire_texts *words)
{
    for (size_t i = 0; i < words->count; i++)
        for (int flag = 0; flag < SUMMARY_FLAG_COUNT; flag++)
            flag_if(cell, strcmp(words->at[i], summary_flag_name((enum summary_flag)flag)) == 0,
                    (enum summary_flag)flag);
}

/* What the workers said of this cell when they prepared it; sorted by cell. */
static void flag_prepared(const struct store_run *run, struct summary_cell *cell)
{
    size_t lo = 0, hi = run->prepared_count;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (run->prepared[middle].said.cell < cell->number)
            lo = middle + 1;
        else
            hi = middle;
    }
    for (; lo < run->prepared_count && run->prepared[lo].said.cell == cell->number; lo++)
        flag_words(cell, &run->prepared[lo].said.flags);
}

#define SERIAL_SPEEDUP_X   1.1
#define SERIAL_UTILIZATION 0.5 /* a thread that computes for longer than that has reason not to gain */

/* Nothing gained by a concurrent arm, and not because the thread had to compute: children block, or wait for each
 * other.  Workers prove it of waits that they make themselves; a user's own coroutine is known by this alone. */
static bool is_serial(const struct summary_cell *cell)
{
    bool concurrent = strcmp(cell->arm, "sequential") != 0 && cell->fanout > 1;
    bool whole = !cell->may_fail && !cell->stalls;
    return concurrent && whole && cell->job_waits && cell->speedup_x.known && cell->utilization.known &&
           cell->speedup_x.value < SERIAL_SPEEDUP_X && cell->utilization.value < SERIAL_UTILIZATION;
}

static bool outside(const struct stats_estimate *clean, const struct stats_estimate *all)
{
    return clean->known && all->bounded && (clean->value < all->ci_lo || clean->value > all->ci_hi);
}

static bool is_noisy(const struct summary_cell *cell)
{
    return (cell->rounds_flagged >= 2 && cell->rounds_flagged * 10 > cell->rounds) ||
           outside(&cell->wall_ns.clean_p50, &cell->wall_ns.p50) ||
           outside(&cell->cpu_ns.clean_p50, &cell->cpu_ns.p50);
}

static double median_round_cpu_ns(const struct cell_rounds *own)
{
    return rounds_reduce(own, RAW_cpu_ns, MIDDLE, "").value;
}

/* Takes the verdict when it is worse than what stands there.  reason: free()d by the cell. */
static void worsen(struct summary_cell *cell, bool condition, enum summary_verdict verdict, char *reason)
{
    if (!condition || verdict <= cell->verdict) {
        free(reason);
        return;
    }
    free(cell->verdict_reason);
    cell->verdict = verdict;
    cell->verdict_reason = reason;
}

static char *noisy_reason(const struct summary_cell *cell)
{
    char *text = memory_format("%lld of %lld rounds flagged", (long long)cell->rounds_flagged,
                               (long long)cell->rounds);
    for (int flag = 0; flag < SUMMARY_ROUND_FLAGS; flag++)
        if (cell->flagged_by[flag]) {
            char *longer = memory_format("%s, %s %lld", text, summary_flag_name((enum summary_flag)flag),
                                         (long long)cell->flagged_by[flag]);
            free(text);
            text = longer;
        }
    return text;
}

static char *missing_reason(const struct cell_context *context, const struct summary_cell *cell)
{
    const char *story = context->group->status == STORE_GROUP_DONE ? NULL : context->group->reason;
    return memory_format("%lld of %lld rounds%s%s", (long long)cell->rounds + cell->rounds_broken,
                         (long long)cell->rounds_planned, story ? ": " : "", story ? story : "");
}

static const struct wire_hello *hello_of(const struct store_run *run, int64_t worker)
{
    for (size_t i = 0; i < run->worker_count; i++)
        if (run->workers[i].number == worker)
            return &run->workers[i].hello;
    return NULL;
}

/* Two workers of the cell on one CPU: they measure each other. */
static bool is_oversubscribed(const struct store_run *run, const struct cell_rounds *own)
{
    for (size_t i = 0; i < own->count; i += rounds_of_worker(own, i)) {
        const struct wire_hello *one = hello_of(run, own->values[i].worker);
        for (size_t j = i + rounds_of_worker(own, i); j < own->count; j += rounds_of_worker(own, j)) {
            const struct wire_hello *other = hello_of(run, own->values[j].worker);
            if (one && other && one->cpu != WIRE_NULL && one->cpu == other->cpu && one->boot_id &&
                other->boot_id && strcmp(one->boot_id, other->boot_id) == 0)
                return true;
        }
    }
    return false;
}

void summary_judge_cell(const struct cell_context *context, struct summary_cell *cell)
{
    const struct cell_rounds *own = context->own;
    bool missing = cell->rounds + cell->rounds_broken < cell->rounds_planned;
    flag_if(cell, missing, SUMMARY_FLAG_INCOMPLETE);
    flag_prepared(context->run, cell);
    worsen(cell, own->count == 0 && own->broken == 0, SUMMARY_INVALID, missing_reason(context, cell));
    worsen(cell, own->broken > 0, SUMMARY_INVALID,
           memory_format("%lld of %lld rounds are no numbers: %s", (long long)own->broken,
                         (long long)cell->rounds + own->broken, own->first_error ? own->first_error : ""));
    if (own->count == 0)
        return;
    flag_if(cell, drifts(context, round_wall_ns), SUMMARY_FLAG_DRIFT_WALL);
    flag_if(cell, drifts(context, round_cpu_ns), SUMMARY_FLAG_DRIFT_CPU);
    bool pooled = !summary_by_process(context->group); /* else the intervals hold how processes differ */
    flag_if(cell, pooled && (workers_disagree(own, round_wall_ns) || workers_disagree(own, round_cpu_ns)),
            SUMMARY_FLAG_WORKERS_DISAGREE);
    flag_if(cell, cell->cores > 1 && is_oversubscribed(context->run, own), SUMMARY_FLAG_OVERSUBSCRIBED);
    flag_if(cell, cell->job_waits && median_round_cpu_ns(own) < CPU_RESOLVED_NS, SUMMARY_FLAG_CPU_RESOLUTION);
    flag_if(cell, cell->early_waits.known && cell->early_waits.value > 0, SUMMARY_FLAG_EARLY_TIMERS);
    flag_if(cell, is_serial(cell), SUMMARY_FLAG_SERIAL);
    flag_if(cell, cell->speedup_x.known && cell->speedup_x.value > (double)cell->fanout && !cell->may_fail,
            SUMMARY_FLAG_SPEEDUP_BEYOND_FANOUT);
    flag_if(cell, cell->saturated, SUMMARY_FLAG_SATURATED);
    flag_if(cell, cell->achieved_x.known && cell->achieved_x.value < SUMMARY_GENERATOR_LIMITED,
            SUMMARY_FLAG_GENERATOR_LIMITED);
    bool wall_drifts = cell->flags >> SUMMARY_FLAG_DRIFT_WALL & 1,
         cpu_drifts = cell->flags >> SUMMARY_FLAG_DRIFT_CPU & 1;
    worsen(cell, is_noisy(cell), SUMMARY_NOISY, noisy_reason(cell));
    worsen(cell, wall_drifts || cpu_drifts, SUMMARY_DRIFT,
           memory_format("%s the order of the rounds", wall_drifts && cpu_drifts ? "wall and CPU follow"
                                                       : wall_drifts             ? "wall follows"
                                                                                 : "CPU follows"));
    worsen(cell, cell->cpu_net_ns.known && cell->cpu_net_ns.value <= 0, SUMMARY_BELOW_FLOOR,
           memory_text("no more CPU than the harness alone"));
}

/* ---- gangs ---- */

static int by_block(const void *a, const void *b)
{
    const struct round_value *x = a, *y = b;
    int order = (x->block > y->block) - (x->block < y->block);
    return order ? order : (x->worker > y->worker) - (x->worker < y->worker);
}

/* A window opens when everybody is at work; it was started before. */
static int64_t launch_of(const struct wire_round *round)
{
    return round->launch_ns != WIRE_NULL ? round->launch_ns : round->start_ns;
}

/* One turn: the rounds of one block, one per worker. */
static void judge_turn(const struct round_value *turn, size_t count, double *ret_skew_ns,
                       double *ret_overlap_x)
{
    int64_t first_start = turn[0].raw->start_ns, last_start = first_start;
    int64_t first_end = first_start + turn[0].raw->wall_ns, last_end = first_end;
    int64_t first_launch = launch_of(turn[0].raw), last_launch = first_launch;
    for (size_t i = 1; i < count; i++) {
        int64_t start = turn[i].raw->start_ns, end = start + turn[i].raw->wall_ns,
                launch = launch_of(turn[i].raw);
        first_start = start < first_start ? start : first_start;
        last_start = start > last_start ? start : last_start;
        first_end = end < first_end ? end : first_end;
        last_end = end > last_end ? end : last_end;
        first_launch = launch < first_launch ? launch : first_launch;
        last_launch = launch > last_launch ? launch : last_launch;
    }
    *ret_skew_ns = (double)(last_launch - first_launch);
    double together = (double)(first_end - last_start), whole = (double)(last_end - first_start);
    *ret_overlap_x = together > 0 && whole > 0 ? together / whole : 0;
}

static struct summary_figure frequency_of(const struct cell_rounds *own)
{
    scoped_free double *khz = memory_zeroed(own->count + 1, sizeof *khz);
    size_t known = 0;
    for (size_t i = 0; i < own->count; i++)
        if (own->values[i].raw->frequency_end_khz != WIRE_NULL)
            khz[known++] = (double)own->values[i].raw->frequency_end_khz;
    return known > 0 ? figure(stats_median(khz, known).value) : no_figure("no_cpufreq");
}

static bool share_a_clock(const struct store_run *run, const struct cell_rounds *own)
{
    const struct wire_hello *first = hello_of(run, own->values[0].worker);
    for (size_t i = 0; i < own->count; i += rounds_of_worker(own, i)) {
        const struct wire_hello *hello = hello_of(run, own->values[i].worker);
        if (!first || !hello || !first->boot_id || !hello->boot_id ||
            strcmp(first->boot_id, hello->boot_id) != 0)
            return false;
    }
    return true;
}

void summary_fill_gang(const struct cell_context *context, struct summary_scaling *row)
{
    const struct cell_rounds *own = context->own;
    row->frequency_khz = own->count == 0 ? no_figure("not_measured") : frequency_of(own);
    const char *why = own->count == 0                    ? "not_measured"
                      : share_a_clock(context->run, own) ? NULL
                                                         : "different_clocks";
    row->start_skew_ns = row->overlap_x = no_figure(why ? why : "no_turn_of_the_whole_gang");
    row->start_skew_p99_ns = row->start_skew_max_ns = row->overlap_x;
    if (why)
        return;
    scoped_free struct round_value *turns = memory_zeroed(own->count, sizeof *turns);
    scoped_free double *skews = memory_zeroed(own->count, sizeof *skews);
    scoped_free double *overlaps = memory_zeroed(own->count, sizeof *overlaps);
    memcpy(turns, own->values, own->count * sizeof *turns);
    qsort(turns, own->count, sizeof *turns, by_block);
    size_t whole = 0;
    for (size_t first = 0, after; first < own->count; first = after) {
        for (after = first + 1; after < own->count && turns[after].block == turns[first].block;)
            after++;
        if ((int64_t)(after - first) == own->plan->cores) {
            judge_turn(turns + first, after - first, &skews[whole], &overlaps[whole]);
            whole++;
        }
    }
    if (whole == 0)
        return;
    row->start_skew_ns = figure(stats_median(skews, whole).value);
    row->overlap_x = figure(stats_median(overlaps, whole).value);
    scoped_free double *sorted = stats_sorted(skews, whole);
    row->start_skew_max_ns = figure(sorted[whole - 1]);
    row->start_skew_p99_ns = whole >= STATS_P99_MIN_N ? figure(stats_quantile(sorted, whole, 0.99))
                                                      : no_figure("fewer_than_368_values");
}
