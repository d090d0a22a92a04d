/* Throughput against cores: the Universal Scalability Law. */
#include "coordinator/capacity/capacity_internal.h"

#include "base/memory.h"

#include <math.h>

enum figure { PER_CORE, CONTENTION, COHERENCY, PEAK, FIGURES };

struct drawn {
    double cores, throughput_per_s;
};

/* Least squares of relative errors of n / X on the columns 1, n - 1, n (n - 1) of the mask; -1: no coefficients >= 0. */
static double fit_mask(const struct drawn *at, size_t count, unsigned mask, double *ret_coefficients)
{
    scoped_free double *design = memory_zeroed(CAPACITY_TERMS * count, sizeof *design);
    scoped_free double *ones = memory_zeroed(count, sizeof *ones);
    size_t cell = 0, used = 0;
    for (size_t i = 0; i < count; i++) {
        double cores = at[i].cores, scale = at[i].throughput_per_s / cores;
        const double columns[CAPACITY_TERMS] = {1, cores - 1, cores * (cores - 1)};
        for (unsigned term = 0; term < CAPACITY_TERMS; term++)
            if (mask & 1u << term)
                design[cell++] = columns[term] * scale;
        ones[i] = 1;
    }
    struct stats_fit fit;
    if (stats_least_squares(design, ones, count, (size_t)__builtin_popcount(mask), &fit, NULL) < 0)
        return -1;
    for (size_t i = 0; i < fit.terms; i++)
        if (fit.coefficient[i] < 0)
            return -1;
    for (unsigned term = 0; term < CAPACITY_TERMS; term++)
        ret_coefficients[term] = mask & 1u << term ? fit.coefficient[used++] : 0;
    return fit.residual_stddev * fit.residual_stddev * fit.degrees;
}

/* All NAN when nothing fits; PEAK NAN or infinite when there is none. */
static void fit_law(const struct drawn *at, size_t count, double *figures)
{
    double best[CAPACITY_TERMS] = {0}, least = -1;
    for (unsigned mask = 1; mask < 1u << CAPACITY_TERMS; mask += 2) { /* always with the first term */
        double coefficients[CAPACITY_TERMS] = {0};
        double error = fit_mask(at, count, mask, coefficients);
        if (error < 0 || (least >= 0 && error >= least))
            continue;
        least = error;
        for (size_t i = 0; i < CAPACITY_TERMS; i++)
            best[i] = coefficients[i];
    }
    bool fits = least >= 0 && best[0] > 0;
    figures[PER_CORE] = fits ? 1 / best[0] : NAN;
    figures[CONTENTION] = fits ? best[1] / best[0] : NAN;
    figures[COHERENCY] = fits ? best[2] / best[0] : NAN;
    figures[PEAK] = fits ? sqrt((1 - figures[CONTENTION]) / figures[COHERENCY]) : NAN;
}

static double median_of(const struct capacity_scale_point *point, struct rng *rng)
{
    scoped_free double *values = memory_zeroed(point->count, sizeof *values);
    for (size_t i = 0; i < point->count; i++)
        values[i] = point->throughput_per_s[rng ? rng_below(rng, point->count) : i];
    return stats_median_in_place(values, point->count);
}

static void draw_points(const struct capacity_scale_point *points, size_t count, struct rng *rng,
                        struct drawn *ret)
{
    for (size_t i = 0; i < count; i++)
        ret[i] = (struct drawn){(double)points[i].cores, median_of(&points[i], rng)};
}

/* What the law misses at each point, relative, scaled for its terms. */
static void fill_residuals(const struct drawn *at, size_t count, const double *figures, double *ret)
{
    double scale = sqrt((double)count / (double)(count - CAPACITY_TERMS));
    for (size_t i = 0; i < count; i++) {
        double cores = at[i].cores;
        double law = figures[PER_CORE] * cores /
                     (1 + figures[CONTENTION] * (cores - 1) + figures[COHERENCY] * cores * (cores - 1));
        ret[i] = scale * (at[i].throughput_per_s / law - 1);
    }
}

static size_t distinct_cores(const struct capacity_scale_point *points, size_t count)
{
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
        bool seen = false;
        for (size_t j = 0; j < i; j++)
            seen |= points[j].cores == points[i].cores;
        distinct += !seen && points[i].count > 0;
    }
    return distinct;
}

static void bound_all(const struct capacity_scale_point *points, size_t count, const double *figures,
                      uint64_t seed, struct stats_estimate *const *estimates)
{
    scoped_free double *draws = memory_zeroed((size_t)FIGURES * CAPACITY_DRAWS, sizeof *draws);
    scoped_free double *residuals = memory_zeroed(count, sizeof *residuals);
    scoped_free struct drawn *at = memory_zeroed(count, sizeof *at);
    draw_points(points, count, NULL, at);
    fill_residuals(at, count, figures, residuals);
    struct rng rng = rng_seeded(seed);
    for (size_t draw = 0; draw < CAPACITY_DRAWS; draw++) {
        double drawn[FIGURES];
        draw_points(points, count, &rng, at);
        for (size_t i = 0; i < count; i++)
            at[i].throughput_per_s *= fmax(1e-3, 1 + residuals[rng_below(&rng, count)]);
        fit_law(at, count, drawn);
        for (size_t i = 0; i < FIGURES; i++)
            draws[i * CAPACITY_DRAWS + draw] = drawn[i];
    }
    for (size_t i = 0; i < FIGURES; i++)
        if (estimates[i]->known)
            capacity_bound(estimates[i], draws + i * CAPACITY_DRAWS, CAPACITY_DRAWS, "fit_uncertain");
}

void capacity_scale(const struct capacity_scale_point *points, size_t count, uint64_t seed,
                    struct capacity_scalability *ret)
{
    struct capacity_scalability law;
    struct stats_estimate *const estimates[FIGURES] = {&law.per_core_per_s, &law.contention_x,
                                                       &law.coherency_x, &law.peak_cores};
    bool enough = distinct_cores(points, count) >= CAPACITY_SCALE_LEAST;
    double figures[FIGURES] = {NAN, NAN, NAN, NAN};
    scoped_free struct drawn *at = memory_zeroed(count + 1, sizeof *at);
    int64_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += (int64_t)points[i].count;
    if (enough) {
        draw_points(points, count, NULL, at);
        fit_law(at, count, figures);
    }
    for (size_t i = 0; i < FIGURES; i++)
        *estimates[i] = isfinite(figures[i])
                            ? (struct stats_estimate){.known = true, .value = figures[i], .n = n}
                            : stats_unknown(enough ? "collinear" : "too_few_core_counts");
    if (isfinite(figures[PER_CORE]))
        bound_all(points, count, figures, seed, estimates);
    if (enough && !(law.peak_cores.known && law.coherency_x.bounded && law.coherency_x.ci_lo > 0))
        law.peak_cores = stats_unknown("no_peak");
    *ret = law;
}
