/* stats.h: the arithmetic of estimates: medians with exact intervals, ratios, differences, trends, fits.
 *
 * Pure: no I/O, no clocks, no knowledge of cells or rounds; random draws come from a seed that the caller names,
 * so equal input gives equal output, bit for bit.  Any thread; inputs are only read; nothing is kept.
 *
 * Values carry whatever unit they came with.  Input must be finite.  "Unknown" is a flag with a reason, never 0
 * and never NaN. */
#ifndef COREFAN_COORDINATOR_STATS_H
#define COREFAN_COORDINATOR_STATS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATS_LEVEL     0.95
#define STATS_DRAWS     10000 /* of a bootstrap */
#define STATS_P99_MIN_N 368   /* the fewest values whose p99 has an interval with equal tails */
#define STATS_MAX_TERMS 6     /* of a linear fit */

/* A figure and how sure it is. */
struct stats_estimate {
    bool known;   /* value holds */
    bool bounded; /* ci_* hold too */
    double value;
    int64_t n; /* values, or pairs, that it stands on */
    double ci_lo, ci_hi, ci_level;
    const char *ci_method; /* constant word; set when bounded */
    const char *why;       /* constant word: why not known, or else why not bounded; NULL when both hold */
};

struct stats_estimate stats_unknown(const char *why);

/* ---- Order statistics ---- */

/* Ranks (from 1) of the order statistics that bound a quantile. */
struct stats_ranks {
    int64_t lo, hi;
    double level; /* coverage that they have, exactly: P(lo <= B < hi), B binomial(n, q) */
};

/* The narrowest ranks whose tails are each <= (1 - STATS_LEVEL) / 2.  false when n cannot have them, *ret
 * untouched.  Source: Hahn, Meeker: Statistical Intervals, 5.2. */
bool stats_quantile_ranks(int64_t n, double q, struct stats_ranks *ret);

/* Of the median: (l, n+1-l) as above; for n = 2 .. 5, which cannot reach the level, (1, n) with the level that it
 * has (n = 5: 0.9375).  false for n < 2. */
bool stats_median_ranks(int64_t n, struct stats_ranks *ret);

/* Ascending copy; free() it. */
double *stats_sorted(const double *values, size_t n);

/* Linear between neighbours of (n-1)q (type 7 of Hyndman and Fan): always within min..max.  n >= 1. */
double stats_quantile(const double *sorted, size_t n, double q);

/* The median alone, without sorting; reorders.  n >= 1. */
double stats_median_in_place(double *values, size_t n);

/* p50 with its order-statistic interval; ci_method `order_statistic`. */
struct stats_estimate stats_median(const double *values, size_t n);

/* Any quantile, bounded only where n can have equal tails (p99: n >= 368). */
struct stats_estimate stats_quantile_estimate(const double *values, size_t n, double q);

/* ---- Moments ---- */

struct stats_moments {
    int64_t n;
    double min, max, mean; /* hold for n >= 1; min <= mean <= max */
    double stddev;         /* of a sample (n - 1); holds for n >= 2, else 0 */
};

struct stats_moments stats_moments(const double *values, size_t n); /* Welford's recurrence */

/* ---- Two cells that were measured in the same blocks ---- */

struct stats_pair {
    int64_t unit; /* worker, or process: resampled first */
    double a, b;
};

/* median(a) / median(b), interval by bootstrap: units with replacement, then pairs within each drawn unit, ratio of
 * the pooled medians; 2.5 % and 97.5 % of STATS_DRAWS draws.  Pairs of one unit stand together.  Fewer draws, never
 * under 1,000, when there are more than 20,000 pairs.  ci_method `bootstrap`. */
struct stats_estimate stats_bootstrap_ratio(const struct stats_pair *pairs, size_t n, uint64_t seed);

/* ---- Processes that were started afresh: they are the unit, not their values ---- */

#define STATS_PROCESSES_LEAST 6    /* fewer cannot have an interval at STATS_LEVEL */
#define STATS_MEDIAN_DRAWS    2000 /* of a median; STATS_DRAWS of a ratio */

enum stats_figure { STATS_MEDIAN_OF_A, STATS_RATIO_OF_MEDIANS /* median(a) / median(b) */ };

/* A figure of the pooled pairs, whose unit is the process; pairs of one process stand together.  One process alone
 * bounds nothing (`one_process`); 2 to 5 do by their least and largest own figure, at the level that this has, 1 -
 * 2^(1 - K): 50 % for 2, 75 % for 3, 93.75 % for 5 (ci_method `process_range`); more by a bootstrap that draws
 * processes, then pairs within each (`hierarchical_bootstrap`).  Percentiles of few processes are too narrow, so its
 * bounds are the wider ones, on either side, of the percentiles and of Student's t of K - 1 degrees. */
struct stats_estimate stats_by_process(enum stats_figure of, const struct stats_pair *pairs, size_t n,
                                       uint64_t seed);

/* Median of a / b within pairs, and of a - b; intervals by order statistics. */
struct stats_estimate stats_paired_ratio(const struct stats_pair *pairs, size_t n);
struct stats_estimate stats_paired_difference(const struct stats_pair *pairs, size_t n);

/* ---- Trend, families of tests, fits ---- */

/* Spearman's rank correlation with average ranks for ties; p two-sided from Student's t with n - 2 degrees of
 * freedom.  false when n < 3 or one side is constant. */
bool stats_spearman(const double *x, const double *y, size_t n, double *ret_rho, double *ret_p);

/* Holm's step-down adjustment (Scandinavian Journal of Statistics 6, 1979): ret[i] <= alpha rejects i with the error
 * rate alpha over the whole family.  ret may be p itself. */
void stats_holm(const double *p, size_t n, double *ret);

/* P(T > t) for Student's t, and the t with P(T > t) = p, 0 < p <= 0.5. */
double stats_t_tail(double t, double degrees);
double stats_t_critical(double p, double degrees);

struct stats_fit {
    size_t terms;
    double degrees; /* rows - terms */
    double coefficient[STATS_MAX_TERMS];
    double standard_error[STATS_MAX_TERMS]; /* 0 when degrees is 0 */
    double residual_stddev;
};

/* Least squares of y on the columns of design (row by row, rows x terms) by Householder QR.  -1 with err: fewer rows
 * than terms, or columns that are collinear to working precision. */
int stats_least_squares(const double *design, const double *y, size_t rows, size_t terms,
                        struct stats_fit *ret, struct error *err);

#endif
