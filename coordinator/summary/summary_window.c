/* Windows: latencies of all fan-outs from histograms, what a core did in each window, what a generator offered. */
#include "coordinator/summary/summary_internal.h"

#include "base/clock.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

#define TICK_NS (10.0 * NS_PER_MS) /* of busy_ticks */

/* ---- taking the histograms ---- */

const char *rounds_take_window(struct cell_rounds *rounds, const struct wire_round *raw, double *ret_wall_ns)
{
    struct latency own = {.count = 0};
    double p50_ns;
    if (rounds->plan->harness && !raw->latency.present)
        return NULL;
    if (!raw->latency.present || latency_add(&own, &raw->latency) < 0)
        return "its latencies are missing";
    bool known = latency_quantile(&own, 0.5, &p50_ns);
    latency_release(&own);
    if (!known)
        return "its latencies are beyond its histogram";
    if (latency_add(&rounds->latency, &raw->latency) < 0 ||
        (raw->latency_intended.present && latency_add(&rounds->intended, &raw->latency_intended) < 0))
        return "its histogram is of another make than those before";
    *ret_wall_ns = p50_ns;
    return NULL;
}

/* ---- distributions over all fan-outs ---- */

static struct summary_figure quantile(const struct latency *latency, double q)
{
    double ns;
    return latency_quantile(latency, q, &ns) ? figure(ns) : no_figure("beyond_histogram");
}

static struct summary_figure p99(const struct latency *latency)
{
    return latency->total < STATS_P99_MIN_N ? no_figure("fewer_than_368_values") : quantile(latency, 0.99);
}

/* The p50 of all fan-outs with the interval of the windows' own p50s, which must hold it. */
static void put_p50(const struct latency *latency, struct stats_estimate *p50)
{
    const struct summary_figure value = quantile(latency, 0.5);
    if (!p50->known || !value.known) {
        *p50 = stats_unknown(p50->known ? value.why : p50->why);
        return;
    }
    p50->value = value.value;
    if (!p50->bounded)
        return;
    p50->ci_lo = value.value < p50->ci_lo ? value.value : p50->ci_lo;
    p50->ci_hi = value.value > p50->ci_hi ? value.value : p50->ci_hi;
    if (strncmp(p50->ci_method, "order_statistic", strlen("order_statistic")) == 0)
        p50->ci_method = "order_statistic_of_windows";
}

static void put_spread(const struct latency *latency, struct summary_distribution *ret)
{
    struct latency_moments moments;
    bool known = latency_moments(latency, &moments);
    const struct summary_figure unknown = no_figure("beyond_histogram");
    ret->min = known ? figure(moments.min_ns) : unknown;
    ret->max = known ? figure(moments.max_ns) : unknown;
    ret->mean = known ? figure(moments.mean_ns) : unknown;
    ret->stddev = known ? figure(moments.stddev_ns) : unknown;
    ret->p90 = quantile(latency, 0.9);
    ret->p99 = p99(latency);
}

/* Latencies of the windows without a flag. */
static void put_clean(const struct cell_rounds *own, const struct summary_cell *cell,
                      struct summary_distribution *ret)
{
    struct latency clean = {.count = 0};
    if (cell->rounds_flagged == 0) {
        ret->clean_p50 = ret->p50;
        return;
    }
    for (size_t i = 0; i < own->count; i++)
        if (own->values[i].flags == 0)
            (void)latency_add(&clean, &own->values[i].raw->latency); /* all were added once: they fit */
    put_p50(&clean, &ret->clean_p50);
    latency_release(&clean);
}

void summary_fill_latency(const struct cell_context *context, struct summary_cell *cell)
{
    const struct cell_rounds *own = context->own;
    if (!cell->is_window)
        return;
    put_p50(&own->latency, &cell->wall_ns.p50);
    put_clean(own, cell, &cell->wall_ns);
    put_spread(&own->latency, &cell->wall_ns);
}

/* ---- each window ---- */

static struct summary_window describe(const struct round_value *value)
{
    const struct wire_round *raw = value->raw;
    double length_ns = (double)raw->wall_ns, fanouts = (double)raw->fanouts;
    struct latency own = {.count = 0};
    (void)latency_add(&own, &raw->latency);
    struct summary_window window = {
        .worker = value->worker,
        .block = value->block,
        .length_ns = length_ns,
        .fanouts = fanouts,
        .cpu_ns = value->cpu_ns,
        .wakeups =
            raw->wakeups == WIRE_NULL ? no_figure("not_counted") : figure((double)raw->wakeups / fanouts),
        .throughput_per_s = fanouts / length_ns * (double)NS_PER_S,
        .thread_utilization = (double)raw->cpu_ns / length_ns,
        .core_utilization = no_figure("not_pinned"),
        .latency_p50_ns = value->wall_ns,
        .latency_p99_ns = p99(&own),
        .clean = value->flags == 0,
    };
    if (raw->busy_ticks != WIRE_NULL)
        window.core_utilization = figure((double)raw->busy_ticks * TICK_NS / length_ns);
    window.utilization = fmax(window.thread_utilization, window.core_utilization.value);
    latency_release(&own);
    return window;
}

static void add_windows(const struct cell_rounds *own, struct summary_cell *cell)
{
    cell->windows = memory_zeroed(own->count + 1, sizeof *cell->windows);
    for (size_t i = 0; i < own->count; i++)
        if (own->values[i].raw->wall_ns > 0)
            cell->windows[cell->window_count++] = describe(&own->values[i]);
}

/* ---- the cell ---- */

static void fill_intended(const struct cell_context *context, struct summary_cell *cell)
{
    const struct latency *intended = &context->own->intended;
    const char *why = cell->rate_per_s > 0 ? "not_recorded" : "closed_loop";
    cell->intended_ns.p50 = cell->intended_ns.clean_p50 = stats_unknown(why);
    if (!(cell->rate_per_s > 0) || intended->total == 0)
        return;
    const struct summary_figure p50 = quantile(intended, 0.5);
    cell->intended_ns.p50 = p50.known ? (struct stats_estimate){.known = true,
                                                                .value = p50.value,
                                                                .n = intended->total,
                                                                .why = "one_histogram"}
                                      : stats_unknown(p50.why);
    put_spread(intended, &cell->intended_ns);
}

/* ---- what the generator offered ---- */

static double sum_of(const struct cell_rounds *own, enum raw_field field)
{
    return rounds_sum(own, field, "").value;
}

/* Of those that were under way at the close, as many are right as start within the shortest latency, give or take three
 * deviations of a Poisson count. */
static double achieved(const struct cell_rounds *own, double offered, double length_ns)
{
    struct latency_moments moments;
    double ended = 0;
    for (size_t i = 0; i < own->count; i++)
        ended += (double)own->values[i].raw->fanouts;
    double under_way = offered - ended - sum_of(own, RAW_skipped) - sum_of(own, RAW_unfinished);
    double least_ns = latency_moments(&own->latency, &moments) ? moments.min_ns * (double)own->count : 0;
    double expected = offered * least_ns / length_ns;
    return (ended + fmax(0, fmin(under_way, expected + 3 * sqrt(expected)))) / offered;
}

/* The schedule runs for the length that was planned, however late the window closed. */
static void fill_generator(const struct cell_rounds *own, struct summary_cell *cell, const char *why)
{
    double length_ns = (double)cell->duration_ns * (double)own->count;
    struct summary_figure offered = rounds_sum(own, RAW_offered, why);
    bool known = offered.known && offered.value > 0 && length_ns > 0;
    cell->offered_per_s_core = known ? figure(offered.value / length_ns * (double)NS_PER_S) : no_figure(why);
    cell->achieved_x = known ? figure(achieved(own, offered.value, length_ns)) : no_figure(why);
    cell->skipped = rounds_sum(own, RAW_skipped, why);
    cell->unfinished = rounds_sum(own, RAW_unfinished, why);
    cell->lag_p50_ns = rounds_reduce(own, RAW_lag_p50_ns, MIDDLE, why);
    cell->lag_max_ns = rounds_reduce(own, RAW_lag_max_ns, MOST, why);
}

static void fill_core(const struct cell_rounds *own, struct summary_cell *cell)
{
    double busy_ns = 0, length_ns = 0;
    for (size_t i = 0; i < own->count; i++) {
        const struct wire_round *raw = own->values[i].raw;
        busy_ns += raw->busy_ticks == WIRE_NULL ? 0 : (double)raw->busy_ticks * TICK_NS;
        length_ns += raw->busy_ticks == WIRE_NULL ? 0 : (double)raw->wall_ns;
    }
    cell->core_utilization = length_ns > 0 ? figure(busy_ns / length_ns) : no_figure("not_pinned");
    double busy = fmax(cell->utilization.value, cell->core_utilization.value);
    cell->busy_x = cell->utilization.known ? figure(busy) : cell->utilization;
    cell->saturated =
        cell->busy_x.known && busy >= SUMMARY_SATURATED && cell->utilization.value >= SUMMARY_OWN_SHARE;
}

void summary_fill_windows(const struct cell_context *context, struct summary_cell *cell)
{
    const char *why = !cell->is_window                                ? "no_window"
                      : context->own->count == 0                      ? "not_measured"
                      : cell->rate_per_s > 0 || cell->rate_factor > 0 ? "not_counted"
                                                                      : "closed_loop";
    cell->core_utilization = cell->busy_x = no_figure(why);
    cell->intended_ns.p50 = cell->intended_ns.clean_p50 = stats_unknown(why);
    fill_generator(context->own, cell, why);
    if (!cell->is_window || context->own->count == 0)
        return;
    add_windows(context->own, cell);
    fill_intended(context, cell);
    fill_core(context->own, cell);
}

/* ---- parts of ceilings ---- */

static bool is_rung_for(const struct summary_cell *rung, const struct summary_cell *part)
{
    return rung->is_window && rung->arrivals == NULL && rung->fanout == part->fanout &&
           rung->delay_ns == part->delay_ns && strcmp(rung->arm, part->arm) == 0 &&
           strcmp(rung->runtime, part->runtime) == 0 && strcmp(rung->job, part->job) == 0;
}

void summary_flag_ceilings(struct summary *summary)
{
    for (size_t i = 0; i < summary->cell_count; i++) {
        struct summary_cell *part = &summary->cells[i];
        bool reached = !(part->rate_factor > 0);
        for (size_t j = 0; j < summary->cell_count && !reached; j++)
            reached = summary->cells[j].saturated && is_rung_for(&summary->cells[j], part);
        part->flags |= reached ? 0 : 1u << SUMMARY_FLAG_CEILING_NOT_REACHED;
    }
}
