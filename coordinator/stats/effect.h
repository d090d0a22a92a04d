/* effect.h: what changed between two runs of one cell: the ratio of their medians, and how sure it is.
 *
 * Nothing pairs the two: they were measured at different times, by different processes.  Two ways to the interval:
 *
 * - from the values of both: a bootstrap that draws units (workers, processes) and then values within each drawn unit,
 *   for each run on its own.  Percentiles of few values are too narrow, so the interval is the wider one, on either
 *   side, of the percentiles and of ratio * exp(+-t * s), s the deviation of the drawn logarithms, t of Student.
 * - from two medians with their intervals: on logarithms, by MOVER (Zou, Donner: Statistics in Medicine 27, 2008):
 *   d - sqrt((a - a_lo)^2 + (b_hi - b)^2) for d = a - b, and likewise above.  An interval below the level is
 *   widened to it first, as Student's t of n - 1 widens.
 *
 * The probabilities are those of Student's t that fit the interval: p < 0.025 for "above X" says that ci_lo > X, or
 * more where the percentiles are the wider ones.
 *
 * Pure, seeded, any thread. */
#ifndef COREFAN_COORDINATOR_EFFECT_H
#define COREFAN_COORDINATOR_EFFECT_H

#include "coordinator/stats/stats.h"

struct effect_value {
    int64_t unit; /* equal ones stand together */
    double value; /* >= 0 */
};

struct effect_sample {
    const struct effect_value *values;
    size_t n;
    bool by_unit; /* units were drawn afresh (processes > 1): their number says how sure it is, else n does */
};

struct effect {
    struct stats_estimate ratio; /* changed / base; ci_method bootstrap_t or combined_intervals */
    double degrees;              /* of Student's t; holds when bounded */
};

struct effect effect_of_values(struct effect_sample base, struct effect_sample changed, uint64_t seed);

struct effect effect_of_estimates(const struct stats_estimate *base, const struct stats_estimate *changed);

/* How likely such data is although the ratio is no more than (no less than) the bound; ratio.bounded must hold.
 * bound > 0. */
double effect_p_above(const struct effect *effect, double bound);
double effect_p_below(const struct effect *effect, double bound);

#endif
