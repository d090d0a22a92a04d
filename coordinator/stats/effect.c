#include "coordinator/stats/effect.h"

#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

#define TAIL         ((1 - STATS_LEVEL) / 2)
#define VALUE_BUDGET 4000000 /* values drawn in all */
#define LEAST_DRAWS  1000

static struct effect unknown(const char *why)
{
    return (struct effect){.ratio = stats_unknown(why)};
}

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

/* ---- from values ---- */

struct span {
    size_t first, count;
};

/* A sample, its units and room for one draw of it. */
struct drawer {
    const struct effect_value *values;
    struct span *units;
    size_t unit_count, room;
    double *drawn;
};

static struct drawer make_drawer(const struct effect_sample *sample)
{
    struct drawer drawer = {.values = sample->values,
                            .units = memory_zeroed(sample->n, sizeof *drawer.units)};
    size_t largest = 0;
    for (size_t i = 0; i < sample->n; i++) {
        if (i == 0 || sample->values[i].unit != sample->values[i - 1].unit)
            drawer.units[drawer.unit_count++] = (struct span){i, 0};
        struct span *unit = &drawer.units[drawer.unit_count - 1];
        unit->count++;
        largest = unit->count > largest ? unit->count : largest;
    }
    drawer.room = largest * drawer.unit_count;
    drawer.drawn = memory_zeroed(drawer.room, sizeof *drawer.drawn);
    return drawer;
}

static void release_drawer(struct drawer *drawer)
{
    free(drawer->units);
    free(drawer->drawn);
}

/* Units with replacement, then values within each. */
static double draw_median(struct drawer *drawer, struct rng *rng)
{
    size_t used = 0;
    for (size_t u = 0; u < drawer->unit_count; u++) {
        const struct span *unit = &drawer->units[rng_below(rng, drawer->unit_count)];
        for (size_t i = 0; i < unit->count; i++)
            drawer->drawn[used++] = drawer->values[unit->first + rng_below(rng, unit->count)].value;
    }
    return stats_median_in_place(drawer->drawn, used);
}

static double median_of(const struct effect_sample *sample)
{
    scoped_free double *values = memory_zeroed(sample->n, sizeof *values);
    for (size_t i = 0; i < sample->n; i++)
        values[i] = sample->values[i].value;
    return stats_median_in_place(values, sample->n);
}

/* More than a million changes nothing. */
static double bearable_degrees(double count)
{
    return lesser(count - 1, 1e6);
}

static double degrees_of(const struct effect_sample *sample)
{
    struct drawer drawer = make_drawer(sample);
    double count = sample->by_unit ? (double)drawer.unit_count : (double)sample->n;
    release_drawer(&drawer);
    return bearable_degrees(count);
}

static void set_interval(struct effect *effect, double *ratios, size_t count)
{
    struct stats_estimate *ratio = &effect->ratio;
    scoped_free double *sorted = stats_sorted(ratios, count);
    for (size_t i = 0; i < count; i++)
        ratios[i] = log(ratios[i]);
    double reach = stats_t_critical(TAIL, effect->degrees) * stats_moments(ratios, count).stddev;
    ratio->ci_lo = lesser(stats_quantile(sorted, count, TAIL), ratio->value * exp(-reach));
    ratio->ci_hi = fmax(stats_quantile(sorted, count, 1 - TAIL), ratio->value * exp(reach));
    ratio->bounded = isfinite(ratio->ci_hi);
    ratio->ci_level = STATS_LEVEL;
    ratio->ci_method = "bootstrap_t";
    ratio->why = ratio->bounded ? NULL : "too_uncertain";
}

static size_t draws_for(size_t values)
{
    size_t draws = VALUE_BUDGET / values;
    return draws > STATS_DRAWS ? STATS_DRAWS : draws < LEAST_DRAWS ? LEAST_DRAWS : draws;
}

struct effect effect_of_values(struct effect_sample base, struct effect_sample changed, uint64_t seed)
{
    if (base.n == 0 || changed.n == 0)
        return unknown("not_measured");
    double below = median_of(&base), above = median_of(&changed);
    if (!(below > 0) || !(above > 0))
        return unknown("no_time_seen");
    if (!isfinite(above / below) || !(above / below > 0))
        return unknown("too_far_apart");
    struct effect effect = {.ratio = {.known = true,
                                      .value = above / below,
                                      .n = (int64_t)lesser((double)base.n, (double)changed.n)},
                            .degrees = lesser(degrees_of(&base), degrees_of(&changed))};
    if (effect.degrees < 1) {
        effect.ratio.why = base.by_unit || changed.by_unit ? "one_process" : "one_value";
        return effect;
    }
    struct drawer drawers[2] = {make_drawer(&base), make_drawer(&changed)};
    size_t draws = draws_for(drawers[0].room + drawers[1].room), kept = 0;
    scoped_free double *ratios = memory_zeroed(draws, sizeof *ratios);
    struct rng rng = rng_seeded(seed);
    for (size_t draw = 0; draw < draws; draw++) {
        double drawn_below = draw_median(&drawers[0], &rng), drawn_above = draw_median(&drawers[1], &rng);
        if (drawn_below > 0 && drawn_above > 0)
            ratios[kept++] = drawn_above / drawn_below;
    }
    if (kept == draws)
        set_interval(&effect, ratios, kept);
    else
        effect.ratio.why = "reaches_zero";
    release_drawer(&drawers[0]);
    release_drawer(&drawers[1]);
    return effect;
}

/* ---- from estimates ---- */

/* How much wider an interval below the level would be at it. */
static double widening(const struct stats_estimate *estimate)
{
    if (estimate->ci_level >= STATS_LEVEL)
        return 1;
    double degrees = bearable_degrees((double)estimate->n);
    return stats_t_critical(TAIL, degrees) / stats_t_critical((1 - estimate->ci_level) / 2, degrees);
}

static const char *not_usable(const struct stats_estimate *estimate)
{
    if (!estimate->known)
        return estimate->why ? estimate->why : "not_measured";
    if (!(estimate->value > 0))
        return "no_time_seen";
    if (!estimate->bounded || estimate->n < 2)
        return "one_value";
    return estimate->ci_lo > 0 ? NULL : "reaches_zero";
}

struct effect effect_of_estimates(const struct stats_estimate *base, const struct stats_estimate *changed)
{
    const char *why = not_usable(base) ? not_usable(base) : not_usable(changed);
    if (!base->known || !changed->known || !(base->value > 0) || !(changed->value > 0))
        return unknown(why);
    if (!isfinite(changed->value / base->value) || !(changed->value / base->value > 0))
        return unknown("too_far_apart");
    struct effect effect = {.ratio = {.known = true,
                                      .value = changed->value / base->value,
                                      .n = base->n < changed->n ? base->n : changed->n,
                                      .why = why}};
    if (why)
        return effect;
    double below_wide = widening(base), above_wide = widening(changed);
    double down =
        hypot(above_wide * log(changed->value / changed->ci_lo), below_wide * log(base->ci_hi / base->value));
    double up =
        hypot(above_wide * log(changed->ci_hi / changed->value), below_wide * log(base->value / base->ci_lo));
    effect.degrees = bearable_degrees((double)effect.ratio.n);
    effect.ratio.ci_lo = effect.ratio.value * exp(-down);
    effect.ratio.ci_hi = effect.ratio.value * exp(up);
    effect.ratio.ci_level = STATS_LEVEL;
    effect.ratio.ci_method = "combined_intervals";
    effect.ratio.bounded = isfinite(effect.ratio.ci_hi) && effect.ratio.ci_lo > 0;
    effect.ratio.why = effect.ratio.bounded ? NULL : "too_uncertain";
    return effect;
}

/* ---- probabilities ---- */

/* distance: from the bound to the ratio, reach: from the end of the interval to it; both logarithms. */
static double tail_beyond(double distance, double reach, double degrees)
{
    if (!(reach > 0))
        return distance > 0 ? 0 : 1;
    return stats_t_tail(distance / reach * stats_t_critical(TAIL, degrees), degrees);
}

double effect_p_above(const struct effect *effect, double bound)
{
    const struct stats_estimate *ratio = &effect->ratio;
    return tail_beyond(log(ratio->value / bound), log(ratio->value / ratio->ci_lo), effect->degrees);
}

double effect_p_below(const struct effect *effect, double bound)
{
    const struct stats_estimate *ratio = &effect->ratio;
    return tail_beyond(log(bound / ratio->value), log(ratio->ci_hi / ratio->value), effect->degrees);
}
