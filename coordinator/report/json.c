#include "coordinator/report/report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DUMP (JSON_REAL_PRECISION(15) | JSON_ENCODE_ANY)

enum decimals { NS = 3, RATE = 3, RATIO = 6, COUNT = 3 };

/* ---- values ---- */

/* Whole numbers are written as such. */
static json_t *number(double value, int decimals)
{
    double scale = pow(10, decimals), rounded = round(value * scale) / scale;
    if (!isfinite(rounded)) /* beyond what the scale can hold */
        rounded = value;
    if (fabs(rounded) < 9e15 && rounded >= floor(rounded) && rounded <= floor(rounded))
        return json_integer((json_int_t)rounded);
    return json_real(rounded);
}

/* Text that is no UTF-8 cannot stand in JSON. */
static json_t *text(const char *value)
{
    json_t *string = json_string(value);
    return string ? string : json_string("?");
}

static void put_null(json_t *object, const char *name, const char *why)
{
    char reason[96];
    (void)snprintf(reason, sizeof reason, "%s_null_reason", name);
    (void)json_object_set_new(object, name, json_null());
    (void)json_object_set_new(object, reason, text(why ? why : "not_known"));
}

static void put_integer(json_t *object, const char *name, int64_t value)
{
    (void)json_object_set_new(object, name, json_integer((json_int_t)value));
}

static void put_text(json_t *object, const char *name, const char *value, const char *why)
{
    if (value && *value)
        (void)json_object_set_new(object, name, text(value));
    else
        put_null(object, name, why);
}

static void put_figure(json_t *object, const char *name, const struct summary_figure *figure, int decimals)
{
    if (figure->known)
        (void)json_object_set_new(object, name, number(figure->value, decimals));
    else
        put_null(object, name, figure->why);
}

static void put_estimate(json_t *object, const char *name, const struct stats_estimate *estimate,
                         int decimals)
{
    static const char *const bounds[] = {"ci_lo", "ci_hi", "ci_level", "ci_method"};
    if (!estimate->known) {
        put_null(object, name, estimate->why);
        return;
    }
    json_t *entry = json_object();
    (void)json_object_set_new(entry, "value", number(estimate->value, decimals));
    put_integer(entry, "n", estimate->n);
    if (estimate->bounded) {
        (void)json_object_set_new(entry, "ci_lo", number(estimate->ci_lo, decimals));
        (void)json_object_set_new(entry, "ci_hi", number(estimate->ci_hi, decimals));
        (void)json_object_set_new(entry, "ci_level", number(estimate->ci_level, RATIO));
        (void)json_object_set_new(entry, "ci_method", text(estimate->ci_method));
    } else {
        for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
            put_null(entry, bounds[i], estimate->why);
    }
    (void)json_object_set_new(object, name, entry);
}

/* ---- fields by table ---- */

enum field_kind { FIGURE, ESTIMATE };

struct field {
    const char *name;
    enum field_kind kind;
    size_t offset;
    int decimals;
};

static void put_fields(json_t *object, const void *from, const struct field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const void *at = (const char *)from + fields[i].offset;
        if (fields[i].kind == FIGURE)
            put_figure(object, fields[i].name, at, fields[i].decimals);
        else
            put_estimate(object, fields[i].name, at, fields[i].decimals);
    }
}
#define PUT(object, from, table) put_fields((object), (from), (table), sizeof(table) / sizeof *(table))

#define CELL(name, kind, decimals)                                                                           \
    {                                                                                                        \
#name, kind, offsetof(struct summary_cell, name), decimals                                           \
    }
static const struct field cell_fields[] = {
    CELL(harness_ns, FIGURE, NS),
    CELL(cpu_net_ns, ESTIMATE, NS),
    CELL(ideal_wall_ns, FIGURE, NS),
    CELL(over_ideal_x, FIGURE, RATIO),
    CELL(speedup_x, ESTIMATE, RATIO),
    CELL(speedup_block_x, ESTIMATE, RATIO),
    CELL(overshoot_adjusted_x, FIGURE, RATIO),
    CELL(cpu_over_sequential_x, ESTIMATE, RATIO),
    CELL(max_in_flight, FIGURE, COUNT),
    CELL(wakeups_per_fanout, FIGURE, COUNT),
    CELL(fanouts_per_round, FIGURE, COUNT),
    CELL(throughput_per_s, FIGURE, RATE),
    CELL(throughput_per_s_core, FIGURE, RATE),
    CELL(utilization, FIGURE, RATIO),
    CELL(ceiling_per_s_core, ESTIMATE, RATE),
    CELL(overshoot_min_ns, FIGURE, NS),
    CELL(overshoot_p50_ns, FIGURE, NS),
    CELL(overshoot_max_ns, FIGURE, NS),
    CELL(early_waits, FIGURE, COUNT),
};
static const struct field failure_fields[] = {
    CELL(time_to_error_ns, FIGURE, NS), CELL(wasted_cpu_ns, FIGURE, NS),  CELL(drain_ns, FIGURE, NS),
    CELL(orphans, FIGURE, COUNT),       CELL(errors_seen, FIGURE, COUNT), CELL(errors_lost, FIGURE, COUNT),
};
static const struct field window_fields[] = {
    CELL(core_utilization, FIGURE, RATIO),  CELL(busy_x, FIGURE, RATIO),
    CELL(offered_per_s_core, FIGURE, RATE), CELL(achieved_x, FIGURE, RATIO),
    CELL(skipped, FIGURE, COUNT),           CELL(unfinished, FIGURE, COUNT),
    CELL(lag_p50_ns, FIGURE, NS),           CELL(lag_max_ns, FIGURE, NS),
};
static const struct field stall_fields[] = {CELL(stall_overshoot_p50_ns, FIGURE, NS)};
#undef CELL

#define SPREAD(name, kind)                                                                                   \
    {                                                                                                        \
#name, kind, offsetof(struct summary_distribution, name), NS                                         \
    }
/* CPU has the first six. */
static const struct field distribution_fields[] = {
    SPREAD(p50, ESTIMATE), SPREAD(clean_p50, ESTIMATE), SPREAD(min, FIGURE), SPREAD(max, FIGURE),
    SPREAD(mean, FIGURE),  SPREAD(stddev, FIGURE),      SPREAD(p90, FIGURE), SPREAD(p99, FIGURE),
};
#undef SPREAD
#define CPU_DISTRIBUTION_FIELDS 6

#define WORKER(name, decimals)                                                                               \
    {                                                                                                        \
#name, FIGURE, offsetof(struct summary_worker, name), decimals                                       \
    }
static const struct field noise_fields[] = {
    WORKER(wall_clock_cost_ns, NS),     WORKER(cpu_clock_cost_ns, NS), WORKER(timer_overshoot_p50_ns, NS),
    WORKER(timer_overshoot_max_ns, NS), WORKER(spin_gap_max_ns, NS),
};
static const struct field place_fields[] = {WORKER(cpu, 0), WORKER(core, 0), WORKER(package, 0),
                                            WORKER(numa, 0)};
#undef WORKER

#define CAPACITY(name, member, kind, decimals)                                                               \
    {                                                                                                        \
#name, kind, offsetof(struct summary_capacity, member), decimals                                     \
    }
static const struct field capacity_fields[] = {
    CAPACITY(work_ns, curve.work_ns, ESTIMATE, NS),
    CAPACITY(wakeup_ns, curve.wakeup_ns, ESTIMATE, NS),
    CAPACITY(working_set_ns, curve.working_set_ns, ESTIMATE, NS),
    CAPACITY(predicted_per_s_core, curve.predicted_per_s_core, ESTIMATE, RATE),
    CAPACITY(measured_per_s_core, curve.measured_per_s_core, ESTIMATE, RATE),
    CAPACITY(error_x, curve.error_x, ESTIMATE, RATIO),
    CAPACITY(clients_at_knee, curve.clients_at_knee, ESTIMATE, COUNT),
    CAPACITY(clients_in_time, curve.clients_in_time, ESTIMATE, COUNT),
    CAPACITY(crossover_clients, crossover_clients, ESTIMATE, COUNT),
    CAPACITY(predicted_crossover_clients, predicted_crossover_clients, ESTIMATE, COUNT),
    CAPACITY(crossover_error_x, crossover_error_x, FIGURE, RATIO),
    CAPACITY(cpu_ns_per_saved_ms, cpu_ns_per_saved_ms, FIGURE, NS),
    CAPACITY(idle_cpu_ns, idle_cpu_ns, FIGURE, NS),
    CAPACITY(idle_wall_ns, idle_wall_ns, FIGURE, NS),
    CAPACITY(busy_cpu_ns, busy_cpu_ns, FIGURE, NS),
    CAPACITY(predicted_busy_cpu_ns, predicted_busy_cpu_ns, FIGURE, NS),
};
#undef CAPACITY

static const struct field scaling_fields[] = {
    {"efficiency_x", FIGURE, offsetof(struct summary_scaling, efficiency_x), RATIO},
    {"start_skew_ns", FIGURE, offsetof(struct summary_scaling, start_skew_ns), NS},
    {"overlap_x", FIGURE, offsetof(struct summary_scaling, overlap_x), RATIO},
    {"start_skew_p99_ns", FIGURE, offsetof(struct summary_scaling, start_skew_p99_ns), NS},
    {"start_skew_max_ns", FIGURE, offsetof(struct summary_scaling, start_skew_max_ns), NS},
    {"core_spread_x", FIGURE, offsetof(struct summary_scaling, core_spread_x), RATIO},
    {"frequency_khz", FIGURE, offsetof(struct summary_scaling, frequency_khz), COUNT},
};

/* ---- objects ---- */

static void put_distribution(json_t *object, const char *name, const struct summary_distribution *from,
                             size_t fields)
{
    if (!from->p50.known) {
        put_null(object, name, from->p50.why);
        return;
    }
    json_t *entry = json_object();
    put_fields(entry, from, distribution_fields, fields);
    (void)json_object_set_new(object, name, entry);
}

static json_t *flag_names(unsigned flags)
{
    json_t *names = json_array();
    for (int flag = 0; flag < SUMMARY_FLAG_COUNT; flag++)
        if (flags >> flag & 1)
            (void)json_array_append_new(names, json_string(summary_flag_name((enum summary_flag)flag)));
    return names;
}

/* What a cell and its row of scaling share. */
static void put_identity(json_t *object, const struct summary_cell *cell)
{
    (void)json_object_set_new(object, "id", text(cell->id));
    (void)json_object_set_new(object, "runtime", text(cell->runtime));
    (void)json_object_set_new(object, "arm", text(cell->arm));
    (void)json_object_set_new(object, "job", text(cell->job));
    put_integer(object, "fanout", cell->fanout);
    put_integer(object, "delay_ns", cell->delay_ns);
    put_integer(object, "clients", cell->clients);
    put_text(object, "phase", cell->phase, "not_set");
    put_integer(object, "cores", cell->cores);
    const struct summary_figure rate = {cell->rate_per_s > 0, cell->rate_per_s, "closed_loop"};
    const struct summary_figure duration = {cell->duration_ns > 0, (double)cell->duration_ns, "no_window"};
    put_figure(object, "rate_per_s", &rate, RATE);
    put_figure(object, "duration_ns", &duration, NS);
}

static json_t *cell_workers(const struct summary_cell *cell)
{
    json_t *list = json_array();
    for (size_t i = 0; i < cell->worker_count; i++) {
        const struct summary_cell_worker *from = &cell->workers[i];
        json_t *worker = json_object();
        put_integer(worker, "worker", from->worker);
        (void)json_object_set_new(worker, "wall_p50_ns", number(from->wall_p50_ns, NS));
        (void)json_object_set_new(worker, "cpu_p50_ns", number(from->cpu_p50_ns, NS));
        put_integer(worker, "n", from->n);
        (void)json_object_set_new(worker, "throughput_per_s", number(from->throughput_per_s, RATE));
        (void)json_array_append_new(list, worker);
    }
    return list;
}

static json_t *cell_windows(const struct summary_cell *cell)
{
    json_t *list = json_array();
    for (size_t i = 0; i < cell->window_count; i++) {
        const struct summary_window *from = &cell->windows[i];
        json_t *window = json_object();
        put_integer(window, "worker", from->worker);
        put_integer(window, "block", from->block);
        (void)json_object_set_new(window, "length_ns", number(from->length_ns, NS));
        (void)json_object_set_new(window, "fanouts", number(from->fanouts, COUNT));
        (void)json_object_set_new(window, "cpu_ns", number(from->cpu_ns, NS));
        put_figure(window, "wakeups_per_fanout", &from->wakeups, COUNT);
        (void)json_object_set_new(window, "utilization", number(from->thread_utilization, RATIO));
        put_figure(window, "core_utilization", &from->core_utilization, RATIO);
        (void)json_object_set_new(window, "throughput_per_s", number(from->throughput_per_s, RATE));
        (void)json_object_set_new(window, "wall_p50_ns", number(from->latency_p50_ns, NS));
        put_figure(window, "wall_p99_ns", &from->latency_p99_ns, NS);
        (void)json_object_set_new(window, "clean", json_boolean(from->clean));
        (void)json_array_append_new(list, window);
    }
    return list;
}

static void put_windows(json_t *object, const struct summary_cell *cell)
{
    const struct summary_figure factor = {cell->rate_factor > 0, cell->rate_factor,
                                          "not_a_part_of_a_ceiling"};
    if (!cell->is_window)
        return;
    put_text(object, "arrivals", cell->arrivals, "closed_loop");
    put_figure(object, "rate_factor_x", &factor, RATIO);
    (void)json_object_set_new(object, "saturated", json_boolean(cell->saturated));
    PUT(object, cell, window_fields);
    put_distribution(object, "intended_wall_ns", &cell->intended_ns,
                     sizeof distribution_fields / sizeof *distribution_fields);
    (void)json_object_set_new(object, "windows", cell_windows(cell));
}

static json_t *cell_object(const struct summary *summary, size_t index)
{
    const struct summary_cell *cell = &summary->cells[index];
    json_t *object = json_object();
    put_identity(object, cell);
    put_integer(object, "rounds", cell->rounds);
    put_integer(object, "rounds_planned", cell->rounds_planned);
    put_integer(object, "rounds_flagged", cell->rounds_flagged);
    put_integer(object, "rounds_broken", cell->rounds_broken);
    put_integer(object, "attempts", cell->attempts);
    put_integer(object, "processes", cell->processes);
    (void)json_object_set_new(object, "verdict", json_string(summary_verdict_name(cell->verdict)));
    if (cell->verdict_reason)
        (void)json_object_set_new(object, "verdict_reason", text(cell->verdict_reason));
    (void)json_object_set_new(object, "flags", flag_names(cell->flags));
    put_distribution(object, "wall_ns", &cell->wall_ns,
                     sizeof distribution_fields / sizeof *distribution_fields);
    put_distribution(object, "cpu_ns", &cell->cpu_ns, CPU_DISTRIBUTION_FIELDS);
    PUT(object, cell, cell_fields);
    if (cell->may_fail)
        PUT(object, cell, failure_fields);
    if (cell->stalls)
        PUT(object, cell, stall_fields);
    put_windows(object, cell);
    (void)json_object_set_new(object, "workers", cell_workers(cell));
    return object;
}

static json_t *worker_object(const struct summary *summary, size_t index)
{
    const struct summary_worker *from = &summary->workers[index];
    json_t *object = json_object(), *versions = json_object(), *noise = json_object();
    put_integer(object, "id", from->number);
    (void)json_object_set_new(object, "runtime", text(from->label));
    (void)json_object_set_new(object, "kind", text(from->runtime));
    (void)json_object_set_new(object, "host", text(from->host));
    PUT(object, from, place_fields);
    for (size_t i = 0; i < from->version_count; i++)
        (void)json_object_set_new(versions, from->version_names[i], text(from->version_values[i]));
    PUT(noise, from, noise_fields);
    (void)json_object_set_new(object, "versions", versions);
    (void)json_object_set_new(object, "noise", noise);
    return object;
}

static json_t *capacity_object(const struct summary *summary, size_t index)
{
    const struct summary_capacity *row = &summary->capacity[index];
    const struct summary_cell *cell = &summary->cells[row->cell];
    const struct capacity_curve *curve = &row->curve;
    const struct summary_figure busiest = {curve->busiest_clients > 0, curve->busiest_utilization,
                                           "no_windows"};
    const struct summary_figure at_busiest = {busiest.known, (double)curve->busiest_clients, "no_windows"};
    const struct summary_figure at_ceiling = {curve->ceiling_clients > 0, (double)curve->ceiling_clients,
                                              curve->measured_per_s_core.why};
    json_t *object = json_object();
    (void)json_object_set_new(object, "runtime", text(cell->runtime));
    (void)json_object_set_new(object, "arm", text(cell->arm));
    (void)json_object_set_new(object, "job", text(cell->job));
    put_integer(object, "fanout", cell->fanout);
    put_integer(object, "delay_ns", cell->delay_ns);
    (void)json_object_set_new(object, "title", text(row->title));
    put_integer(object, "cores", cell->cores);
    PUT(object, row, capacity_fields);
    (void)json_object_set_new(object, "cheaper_below", json_boolean(row->cheaper_below));
    put_integer(object, "loads_fitted", (int64_t)curve->loads_fitted);
    (void)json_object_set_new(object, "residual_x", number(curve->residual_x, RATIO));
    put_figure(object, "clients_at_ceiling", &at_ceiling, COUNT);
    put_figure(object, "clients_busiest", &at_busiest, COUNT);
    put_figure(object, "utilization_busiest", &busiest, RATIO);
    return object;
}

static json_t *scaling_object(const struct summary *summary, size_t index)
{
    const struct summary_scaling *row = &summary->scaling[index];
    const struct summary_cell *cell = &summary->cells[row->cell];
    json_t *object = json_object();
    put_identity(object, cell);
    put_figure(object, "throughput_per_s", &cell->throughput_per_s, RATE);
    PUT(object, row, scaling_fields);
    put_integer(object, "siblings", row->siblings);
    return object;
}

static json_t *scalability_object(const struct summary *summary, size_t index)
{
    static const struct field fields[] = {
        {"per_core_per_s", ESTIMATE, offsetof(struct summary_scalability, law.per_core_per_s), RATE},
        {"contention_x", ESTIMATE, offsetof(struct summary_scalability, law.contention_x), RATIO},
        {"coherency_x", ESTIMATE, offsetof(struct summary_scalability, law.coherency_x), RATIO},
        {"peak_cores", ESTIMATE, offsetof(struct summary_scalability, law.peak_cores), COUNT},
    };
    const struct summary_scalability *row = &summary->scalability[index];
    json_t *object = json_object();
    put_identity(object, &summary->cells[row->cell]);
    PUT(object, row, fields);
    return object;
}

/* A group with rounds: auto. */
static json_t *precision_object(const struct summary *summary, size_t index)
{
    const struct summary_precision *row = &summary->precisions[index];
    json_t *object = json_object();
    put_integer(object, "group", (int64_t)row->group);
    (void)json_object_set_new(object, "title", text(summary->groups[row->group].title));
    (void)json_object_set_new(object, "target_x", number(row->target_x, RATIO));
    put_figure(object, "achieved_x", &row->achieved_x, RATIO);
    (void)json_object_set_new(object, "reached", json_boolean(row->reached));
    (void)json_object_set_new(object, "widest_id", text(summary->cells[row->cell].id));
    (void)json_object_set_new(object, "widest_metric", text(row->is_cpu ? "cpu_ns" : "wall_ns"));
    put_integer(object, "rounds", row->rounds);
    put_integer(object, "rounds_most", row->most);
    put_integer(object, "processes", row->processes);
    put_figure(object, "missing_ns", &row->missing_ns, NS);
    return object;
}

static json_t *left_out_row(const struct summary_group *group, const char *id, const char *reason)
{
    json_t *object = json_object();
    put_integer(object, "group", group->number);
    (void)json_object_set_new(object, "title", text(group->title));
    put_text(object, "id", id, "whole_rung");
    put_text(object, "reason", reason, "not_stored");
    return object;
}

/* A rung of a ladder, or an arm of one, that was not measured since the core was saturated below it. */
static json_t *left_out_object(const struct summary *summary, size_t index)
{
    if (index < summary->left_out_count) {
        const struct summary_left_out *cell = &summary->left_out[index];
        return left_out_row(&summary->groups[cell->group], cell->id, cell->reason);
    }
    const struct summary_group *group = &summary->groups[index - summary->left_out_count];
    return group->left_out ? left_out_row(group, NULL, group->reason) : NULL;
}

static void put_bound(json_t *object, const char *name, bool set, double value)
{
    const struct summary_figure bound = {set, value, "not_set"};
    put_figure(object, name, &bound, RATIO);
}

static json_t *threshold_object(const struct summary *summary, size_t index)
{
    const struct summary_threshold *row = &summary->thresholds[index];
    json_t *object = json_object();
    put_integer(object, "threshold", (int64_t)row->condition + 1);
    (void)json_object_set_new(object, "condition", text(summary->conditions[row->condition].text));
    (void)json_object_set_new(object, "id", text(summary->cells[row->cell].id));
    (void)json_object_set_new(object, "metric", text(row->metric));
    put_bound(object, "min", row->bounds.has_min, row->bounds.min);
    put_bound(object, "max", row->bounds.has_max, row->bounds.max);
    struct stats_estimate figure = row->figure;
    if (figure.known && !figure.bounded && !figure.why)
        figure.why = "never_has_an_interval";
    put_estimate(object, "estimate", &figure, RATIO);
    if (row->outcome == THRESHOLD_UNDECIDED)
        put_null(object, "passed", row->why);
    else
        (void)json_object_set_new(object, "passed", json_boolean(row->outcome == THRESHOLD_PASSED));
    return object;
}

static json_t *run_object(const struct summary *summary)
{
    json_t *object = json_object();
    put_text(object, "id", summary->run_id, "not_stored");
    put_text(object, "name", summary->name, "not_named");
    (void)json_object_set_new(object, "status", json_string(summary->status));
    put_integer(object, "seed", strtoll(summary->seed, NULL, 10));
    put_text(object, "started_at", summary->started_at, "not_stored");
    put_text(object, "finished_at", summary->finished_at, "not_finished");
    put_text(object, "sweep_sha256", summary->sweep_sha256, "not_stored");
    json_t *argv = summary->argv_json ? json_loads(summary->argv_json, 0, NULL) : NULL;
    if (argv)
        (void)json_object_set_new(object, "argv", argv);
    else
        put_null(object, "argv", "not_stored");
    put_integer(object, "rounds", summary->rounds);
    put_integer(object, "rounds_flagged", summary->rounds_flagged);
    put_integer(object, "rounds_broken", summary->rounds_broken);
    put_integer(object, "cells_incomplete", summary->cells_incomplete);
    put_integer(object, "cores_measured", summary->cores_measured);
    put_figure(object, "budget_ns", &summary->budget_ns, NS);
    (void)json_object_set_new(object, "fill_idle", json_boolean(summary->fill_idle));
    if (summary->reserved_cpus)
        (void)json_object_set_new(object, "reserved_cpus", text(summary->reserved_cpus));
    else
        put_null(object, "reserved_cpus", "not_stored");
    return object;
}

static json_t *lab_object(const struct summary *summary, size_t index)
{
    const struct summary_lab_row *row = &summary->lab[index];
    const struct summary_cell *cell = &summary->cells[row->cell];
    json_t *object = json_object();
    put_text(object, "experiment", row->experiment, "not_stored");
    put_text(object, "cell", cell->id, "not_stored");
    put_text(object, "runtime", cell->runtime, "not_stored");
    put_text(object, "metric", row->metric, "not_stored");
    put_text(object, "published", row->published, "not_stored");
    put_bound(object, "published_lo", true, row->published_lo);
    put_bound(object, "published_hi", true, row->published_hi);
    put_bound(object, "measured", true, row->measured);
    put_bound(object, "ratio_x", true, row->ratio_x);
    return object;
}

static json_t *lab_verdict_object(const struct summary *summary, size_t index)
{
    const struct summary_lab_verdict *verdict = &summary->lab_verdicts[index];
    json_t *object = json_object();
    put_text(object, "experiment", verdict->experiment, "not_stored");
    put_text(object, "runtime", verdict->runtime, "not_stored");
    (void)json_object_set_new(object, "reproduces", json_boolean(verdict->reproduces));
    put_text(object, "reason", verdict->reason, "not_stored");
    return object;
}

/* ---- the stream: an entry of a list is one line, so that a large run needs no large tree ---- */

static void dump(json_t *value, FILE *out)
{
    (void)json_dumpf(value, out, DUMP);
    json_decref(value);
}

static void dump_member(const char *name, json_t *value, FILE *out)
{
    (void)fprintf(out, "\"%s\": ", name);
    dump(value, out);
    (void)fputs(",\n", out);
}

static void dump_list(const char *name, const struct summary *summary, size_t count,
                      json_t *(*make)(const struct summary *summary, size_t index), FILE *out)
{
    size_t made = 0;
    (void)fprintf(out, "\"%s\": [", name);
    for (size_t i = 0; i < count; i++) {
        json_t *entry = make(summary, i);
        if (!entry) /* not one of them */
            continue;
        (void)fputs(made++ ? ",\n  " : "\n  ", out);
        dump(entry, out);
    }
    (void)fputs(made ? "\n]" : "]", out);
}

static json_t *environment(const struct summary *summary)
{
    json_t *list = summary->environment_json ? json_loads(summary->environment_json, 0, NULL) : NULL;
    return list ? list : json_array();
}

int report_json(const struct summary *summary, FILE *out)
{
    (void)fprintf(out, "{\n\"schema_version\": %d,\n", SUMMARY_SCHEMA_VERSION);
    dump_member("tool", json_pack("{s:s, s:s}", "name", "corefan", "version", summary->tool_version), out);
    dump_member("run", run_object(summary), out);
    dump_member("environment", environment(summary), out);
    dump_list("workers", summary, summary->worker_count, worker_object, out);
    (void)fputs(",\n", out);
    dump_list("cells", summary, summary->cell_count, cell_object, out);
    (void)fputs(",\n", out);
    dump_list("capacity", summary, summary->capacity_count, capacity_object, out);
    (void)fputs(",\n", out);
    dump_list("scaling", summary, summary->scaling_count, scaling_object, out);
    (void)fputs(",\n", out);
    dump_list("scalability", summary, summary->scalability_count, scalability_object, out);
    (void)fputs(",\n", out);
    dump_list("left_out", summary, summary->left_out_count + summary->group_count, left_out_object, out);
    (void)fputs(",\n", out);
    dump_list("precision", summary, summary->precision_count, precision_object, out);
    (void)fputs(",\n", out);
    dump_list("thresholds", summary, summary->threshold_count, threshold_object, out);
    (void)fputs(",\n", out);
    dump_list("lab", summary, summary->lab_count, lab_object, out);
    (void)fputs(",\n", out);
    dump_list("lab_verdicts", summary, summary->lab_verdict_count, lab_verdict_object, out);
    (void)fputs("\n}\n", out);
    return ferror(out) ? -1 : 0;
}
