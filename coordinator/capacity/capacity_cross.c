/* Two arms against each other: where they cost the same, and what latency costs. */
#include "coordinator/capacity/capacity_internal.h"

#include "base/memory.h"

#include <math.h>

#define NS_PER_MS 1e6

/* ---- What was measured ---- */

/* CPU per fan-out between loads in phase, a straight line in logarithms; NAN outside. */
static double cpu_between(const struct capacity_point *at, size_t count, double clients)
{
    const struct capacity_point *before = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!at[i].in_phase)
            continue;
        if (at[i].clients >= clients) {
            if (at[i].clients <= clients)
                return at[i].cpu_ns;
            if (!before)
                return NAN;
            double part = log(clients / before->clients) / log(at[i].clients / before->clients);
            return before->cpu_ns * pow(at[i].cpu_ns / before->cpu_ns, part);
        }
        before = &at[i];
    }
    return NAN;
}

struct both {
    const struct capacity_point *first, *second;
    size_t first_count, second_count;
};

/* log(first / second); NAN where not both are measured. */
static double measured_gap(const struct both *both, double clients)
{
    return log(cpu_between(both->first, both->first_count, clients) /
               cpu_between(both->second, both->second_count, clients));
}

/* Every number of clients at which either was measured, ascending; free() it. */
static double *all_clients(const struct both *both, size_t *ret_count)
{
    size_t count = 0;
    scoped_free double *clients = memory_zeroed(both->first_count + both->second_count + 1, sizeof *clients);
    for (size_t i = 0; i < both->first_count; i++)
        clients[count++] = both->first[i].clients;
    for (size_t i = 0; i < both->second_count; i++)
        clients[count++] = both->second[i].clients;
    *ret_count = count;
    return stats_sorted(clients, count);
}

struct crossing {
    double clients; /* NAN: none */
    double gap; /* of the first place that both know: its sign says which is cheaper below; NAN: nowhere */
    size_t measured; /* places that both know */
};

static double gap_crosses_at(double x, double gap_x, double y, double gap_y)
{
    return x * pow(y / x, gap_x / (gap_x - gap_y)); /* gaps are straight lines in the logarithm of clients */
}

static struct crossing cross_measured(const struct both *both)
{
    size_t count;
    scoped_free double *clients = all_clients(both, &count);
    struct crossing crossing = {.clients = NAN, .gap = NAN};
    double before = 0, gap_before = NAN;
    for (size_t i = 0; i < count; i++) {
        double gap = measured_gap(both, clients[i]);
        if (!isfinite(gap) || clients[i] <= before)
            continue;
        crossing.measured++;
        if (crossing.measured == 1)
            crossing.gap = gap;
        else if (isnan(crossing.clients) && gap_before * gap < 0)
            crossing.clients = gap_crosses_at(before, gap_before, clients[i], gap);
        before = clients[i];
        gap_before = gap;
    }
    return crossing;
}

/* ---- What the models say ---- */

static struct crossing cross_models(const struct capacity_model *first, const struct capacity_model *second)
{
    const int steps_per_doubling = 16;
    const int steps = steps_per_doubling * (int)log2(CAPACITY_MOST_CLIENTS);
    struct crossing crossing = {.clients = NAN, .measured = 2};
    double before = 1, gap_before = log(capacity_cost_ns(first, 1) / capacity_cost_ns(second, 1));
    crossing.gap = gap_before;
    for (int step = 1; step <= steps; step++) {
        double clients = exp2((double)step / steps_per_doubling);
        double gap = log(capacity_cost_ns(first, clients) / capacity_cost_ns(second, clients));
        if (gap_before * gap < 0) {
            crossing.clients = gap_crosses_at(before, gap_before, clients, gap);
            return crossing;
        }
        before = clients;
        gap_before = gap;
    }
    return crossing;
}

/* ---- Both, with intervals ---- */

struct arm {
    struct capacity_points points;
    struct capacity_model model;
    bool fitted;
    struct capacity_point *drawn;
    double *residuals;
    size_t residual_count;
};

static struct arm arm_of(const struct capacity_loads *loads)
{
    struct arm arm = {.points = capacity_points_of(loads)};
    size_t count = arm.points.count;
    struct capacity_shape shape = capacity_shape_choose(arm.points.at, count);
    arm.fitted = arm.points.fitting >= 2 && capacity_model_fit(arm.points.at, count, shape, &arm.model) &&
                 arm.model.work_ns > 0;
    arm.drawn = memory_zeroed(count + 1, sizeof *arm.drawn);
    arm.residuals = memory_zeroed(count + 1, sizeof *arm.residuals);
    if (arm.fitted)
        arm.residual_count = capacity_residuals(&arm.model, arm.points.at, count, arm.residuals);
    return arm;
}

static void arm_release(struct arm *arm)
{
    capacity_points_release(&arm->points);
    free(arm->drawn);
    free(arm->residuals);
}

/* Draws the arm's windows into arm->drawn, then a model from them, moved by what the fit misses. */
static bool draw_arm(struct arm *arm, struct rng *rng, struct capacity_model *ret)
{
    size_t count = arm->points.count;
    capacity_points_draw(&arm->points, rng, arm->drawn);
    scoped_free struct capacity_point *moved = memory_zeroed(count + 1, sizeof *moved);
    for (size_t i = 0; i < count; i++) {
        moved[i] = arm->drawn[i];
        if (moved[i].fits && arm->residual_count > 0)
            moved[i].cpu_ns *= fmax(1e-3, 1 + arm->residuals[rng_below(rng, arm->residual_count)]);
    }
    return arm->fitted && capacity_model_fit(moved, count, capacity_shape_of(&arm->model), ret);
}

static struct stats_estimate estimate_of(struct crossing crossing, int64_t n)
{
    if (isfinite(crossing.clients))
        return (struct stats_estimate){.known = true, .value = crossing.clients, .n = n, .why = "one_window"};
    if (crossing.measured < 2)
        return stats_unknown("too_few_loads");
    return stats_unknown(crossing.gap < 0 ? "first_always_cheaper" : "second_always_cheaper");
}

static bool repeated(const struct arm *arm)
{
    return arm->points.windows > (int64_t)arm->points.count;
}

static void bound_crossover(struct arm *first, struct arm *second, uint64_t seed,
                            struct capacity_crossover *cross)
{
    scoped_free double *measured = memory_zeroed(CAPACITY_DRAWS, sizeof *measured);
    scoped_free double *predicted = memory_zeroed(CAPACITY_DRAWS, sizeof *predicted);
    struct rng rng = rng_seeded(seed);
    const struct both both = {first->drawn, second->drawn, first->points.count, second->points.count};
    for (size_t i = 0; i < CAPACITY_DRAWS; i++) {
        struct capacity_model a, b;
        bool fitted_first = draw_arm(first, &rng, &a), fitted_second = draw_arm(second, &rng, &b);
        measured[i] = cross_measured(&both).clients;
        predicted[i] = fitted_first && fitted_second ? cross_models(&a, &b).clients : NAN;
    }
    if (cross->measured.known && (repeated(first) || repeated(second)))
        capacity_bound(&cross->measured, measured, CAPACITY_DRAWS, "crossing_uncertain");
    if (cross->predicted.known)
        capacity_bound(&cross->predicted, predicted, CAPACITY_DRAWS, "crossing_uncertain");
}

void capacity_cross(const struct capacity_loads *first_loads, const struct capacity_loads *second_loads,
                    uint64_t seed, struct capacity_crossover *ret)
{
    struct arm first = arm_of(first_loads), second = arm_of(second_loads);
    const struct both both = {first.points.at, second.points.at, first.points.count, second.points.count};
    int64_t n = first.points.windows + second.points.windows;
    struct crossing measured = cross_measured(&both), predicted = {.clients = NAN, .gap = NAN};
    struct capacity_crossover cross = {.predicted = stats_unknown("not_fitted")};
    cross.measured = estimate_of(measured, n);
    if (first.fitted && second.fitted) {
        predicted = cross_models(&first.model, &second.model);
        cross.predicted = estimate_of(predicted, n);
    }
    cross.first_cheaper_below =
        (cross.measured.known || !cross.predicted.known ? measured : predicted).gap < 0;
    if (cross.measured.known || cross.predicted.known)
        bound_crossover(&first, &second, seed, &cross);
    arm_release(&first);
    arm_release(&second);
    *ret = cross;
}

/* ---- CPU for latency ---- */

static double least_latency(const struct capacity_loads *loads)
{
    struct capacity_points points = capacity_points_of(loads);
    double latency = points.count > 0 ? points.at[0].latency_p50_ns : NAN;
    capacity_points_release(&points);
    return latency;
}

struct stats_estimate capacity_cost_per_saved_ms(const struct capacity_loads *first,
                                                 const struct capacity_curve *first_curve,
                                                 const struct capacity_loads *second,
                                                 const struct capacity_curve *second_curve)
{
    const struct stats_estimate *a = &first_curve->predicted_per_s_core;
    const struct stats_estimate *b = &second_curve->predicted_per_s_core;
    if (!a->known || !b->known)
        return stats_unknown("not_fitted");
    double saved_ms = (least_latency(second) - least_latency(first)) / NS_PER_MS;
    if (!(saved_ms > 0))
        return stats_unknown("saves_no_latency");
    double extra_ns = 1e9 / a->value - 1e9 / b->value;
    return (struct stats_estimate){
        .known = true, .value = extra_ns / saved_ms, .n = a->n + b->n, .why = "not_estimated"};
}
