#include "coordinator/stats/stats.h"

#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

struct stats_estimate stats_unknown(const char *why)
{
    return (struct stats_estimate){.why = why};
}

/* ---- Order statistics ---- */

static double log_gamma(double x)
{
    int sign;
    return lgamma_r(x, &sign); /* lgamma writes a global */
}

static double binomial_mass(int64_t k, int64_t n, double q)
{
    double N = (double)n, K = (double)k;
    return exp(log_gamma(N + 1) - log_gamma(K + 1) - log_gamma(N - K + 1) + K * log(q) + (N - K) * log1p(-q));
}

/* P(B <= k), summed away from the mean, so that terms shrink and the sum can stop. */
static double binomial_at_most(int64_t k, int64_t n, double q)
{
    if (k < 0)
        return 0;
    if (k >= n)
        return 1;
    bool low = (double)k < (double)n * q;
    double odds = q / (1 - q), sum = 0;
    int64_t at = low ? k : k + 1;
    double term = binomial_mass(at, n, q);
    while (at >= 0 && at <= n && term > 1e-17 * sum) {
        sum += term;
        term *= low ? (double)at / ((double)(n - at + 1) * odds) : (double)(n - at) * odds / (double)(at + 1);
        at += low ? -1 : 1;
    }
    return low ? sum : 1 - sum;
}

/* The largest k in -1 .. n-1 with P(B <= k) <= tail. */
static int64_t largest_within(int64_t n, double q, double tail)
{
    int64_t lo = -1, hi = n;
    while (hi - lo > 1) {
        int64_t middle = lo + (hi - lo) / 2;
        if (binomial_at_most(middle, n, q) <= tail)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

bool stats_quantile_ranks(int64_t n, double q, struct stats_ranks *ret)
{
    const double tail = (1 - STATS_LEVEL) / 2;
    int64_t below = largest_within(n, q, tail);     /* P(B <= l - 1) <= tail */
    int64_t above = largest_within(n, 1 - q, tail); /* P(n - B <= n - u) <= tail, the same by symmetry */
    int64_t lo = below + 1, hi = n - above;
    if (lo < 1 || hi > n)
        return false;
    *ret = (struct stats_ranks){lo, hi, binomial_at_most(hi - 1, n, q) - binomial_at_most(lo - 1, n, q)};
    return true;
}

bool stats_median_ranks(int64_t n, struct stats_ranks *ret)
{
    if (n < 2)
        return false;
    if (!stats_quantile_ranks(n, 0.5, ret))
        *ret = (struct stats_ranks){1, n, 1 - 2 * pow(0.5, (double)n)};
    return true;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double *stats_sorted(const double *values, size_t n)
{
    double *sorted = memory_zeroed(n + 1, sizeof *sorted);
    if (n > 0)
        memcpy(sorted, values, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_doubles);
    return sorted;
}

double stats_quantile(const double *sorted, size_t n, double q)
{
    double at = (double)(n - 1) * q;
    size_t lower = (size_t)at;
    if (lower + 1 >= n)
        return sorted[n - 1];
    double low = sorted[lower], high = sorted[lower + 1];
    double value = low + (at - (double)lower) * (high - low);
    return fmin(fmax(value, low), high);
}

static struct stats_estimate bounded_by_ranks(const double *sorted, size_t n, double q, bool bounded,
                                              struct stats_ranks ranks)
{
    struct stats_estimate estimate = {.known = true, .value = stats_quantile(sorted, n, q), .n = (int64_t)n};
    estimate.bounded = bounded;
    if (!bounded) {
        estimate.why = n == 1 ? "one_value" : "too_few_values";
        return estimate;
    }
    estimate.ci_lo = sorted[ranks.lo - 1];
    estimate.ci_hi = sorted[ranks.hi - 1];
    estimate.ci_level = ranks.level;
    estimate.ci_method = "order_statistic";
    return estimate;
}

struct stats_estimate stats_median(const double *values, size_t n)
{
    if (n == 0)
        return stats_unknown("no_values");
    struct stats_ranks ranks = {0};
    scoped_free double *sorted = stats_sorted(values, n);
    bool bounded = stats_median_ranks((int64_t)n, &ranks);
    return bounded_by_ranks(sorted, n, 0.5, bounded, ranks);
}

struct stats_estimate stats_quantile_estimate(const double *values, size_t n, double q)
{
    if (n == 0)
        return stats_unknown("no_values");
    struct stats_ranks ranks = {0};
    scoped_free double *sorted = stats_sorted(values, n);
    bool bounded = stats_quantile_ranks((int64_t)n, q, &ranks);
    return bounded_by_ranks(sorted, n, q, bounded, ranks);
}

/* ---- Moments ---- */

struct stats_moments stats_moments(const double *values, size_t n)
{
    struct stats_moments moments = {.n = (int64_t)n};
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        double x = values[i], off = x - moments.mean;
        moments.mean += off / (double)(i + 1);
        squares += off * (x - moments.mean);
        moments.min = i == 0 ? x : fmin(moments.min, x);
        moments.max = i == 0 ? x : fmax(moments.max, x);
    }
    moments.mean = fmin(fmax(moments.mean, moments.min), moments.max);
    moments.stddev = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    return moments;
}

/* ---- Pairs ---- */

/* The k-th smallest, from 0; reorders (Hoare's selection, median of three). */
static double nth(double *x, size_t n, size_t k)
{
    size_t lo = 0, hi = n - 1;
    while (lo < hi) {
        double first = x[lo], middle = x[lo + (hi - lo) / 2], last = x[hi];
        double pivot = fmax(fmin(first, middle), fmin(fmax(first, middle), last));
        size_t i = lo, j = hi;
        for (;;) {
            while (x[i] < pivot)
                i++;
            while (x[j] > pivot)
                j--;
            if (i >= j)
                break;
            double swap = x[i];
            x[i++] = x[j];
            x[j--] = swap;
        }
        /* j may equal i (both on a pivot): that element is in its place */
        size_t split = i > j ? j : (j > lo ? j - 1 : lo);
        if (k <= split)
            hi = split;
        else
            lo = split + 1;
    }
    return x[k];
}

double stats_median_in_place(double *values, size_t n)
{
    double upper = nth(values, n, n / 2);
    if (n % 2)
        return upper;
    double lower = values[0];
    for (size_t i = 1; i < n / 2; i++)
        lower = fmax(lower, values[i]);
    return lower + (upper - lower) / 2;
}

struct unit_span {
    size_t first, count;
};

static size_t find_units(const struct stats_pair *pairs, size_t n, struct unit_span *units)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || pairs[i].unit != pairs[i - 1].unit)
            units[count++] = (struct unit_span){i, 0};
        units[count - 1].count++;
    }
    return count;
}

/* One resample of everything: returns how many pairs it holds, at most 2n (units may differ in size). */
static size_t resample(struct rng *rng, const struct stats_pair *pairs, const struct unit_span *units,
                       size_t unit_count, size_t room, double *a, double *b)
{
    size_t used = 0;
    for (size_t u = 0; u < unit_count; u++) {
        const struct unit_span *unit = &units[unit_count > 1 ? rng_below(rng, unit_count) : 0];
        for (size_t i = 0; i < unit->count && used < room; i++, used++) {
            const struct stats_pair *pair = &pairs[unit->first + rng_below(rng, unit->count)];
            a[used] = pair->a;
            b[used] = pair->b;
        }
    }
    return used;
}

static size_t draws_for(enum stats_figure of, size_t n)
{
    const size_t most = of == STATS_MEDIAN_OF_A ? STATS_MEDIAN_DRAWS : STATS_DRAWS, budget = most * 20000;
    size_t draws = n * most <= budget ? most : budget / n;
    return draws < 1000 ? 1000 : draws;
}

/* The figure of n drawn pairs, whose columns may be reordered; false when it is not defined. */
static bool figure_of(enum stats_figure of, double *a, double *b, size_t n, double *ret)
{
    if (of == STATS_MEDIAN_OF_A) {
        *ret = stats_median_in_place(a, n);
        return true;
    }
    double below = stats_median_in_place(b, n);
    if (!(below > 0))
        return false;
    *ret = stats_median_in_place(a, n) / below;
    return true;
}

/* The figure of the pairs as they are. */
static bool figure_of_pairs(enum stats_figure of, const struct stats_pair *pairs, size_t n, double *ret)
{
    scoped_free double *a = memory_zeroed(n, sizeof *a);
    scoped_free double *b = memory_zeroed(n, sizeof *b);
    for (size_t i = 0; i < n; i++) {
        a[i] = pairs[i].a;
        b[i] = pairs[i].b;
    }
    return figure_of(of, a, b, n, ret);
}

/* Figures of draws_for(of, n) resamples, ascending; free() them.  NULL when one is not defined. */
static double *bootstrap(enum stats_figure of, const struct stats_pair *pairs, size_t n,
                         const struct unit_span *units, size_t unit_count, uint64_t seed)
{
    size_t largest = 0, draws = draws_for(of, n), kept = 0;
    for (size_t u = 0; u < unit_count; u++)
        largest = units[u].count > largest ? units[u].count : largest;
    size_t room = largest * unit_count;
    scoped_free double *a = memory_zeroed(room, sizeof *a);
    scoped_free double *b = memory_zeroed(room, sizeof *b);
    double *figures = memory_zeroed(draws, sizeof *figures);
    struct rng rng = rng_seeded(seed);
    for (size_t draw = 0; draw < draws; draw++) {
        size_t used = resample(&rng, pairs, units, unit_count, room, a, b);
        kept += figure_of(of, a, b, used, &figures[kept]);
    }
    if (kept < draws) {
        free(figures);
        return NULL;
    }
    qsort(figures, kept, sizeof *figures, compare_doubles);
    return figures;
}

/* The bounds of estimate, which holds the value already. */
static void bound_by_bootstrap(const struct stats_pair *pairs, size_t n, uint64_t seed,
                               struct stats_estimate *estimate)
{
    scoped_free struct unit_span *units = memory_zeroed(n, sizeof *units);
    size_t unit_count = find_units(pairs, n, units), draws = draws_for(STATS_RATIO_OF_MEDIANS, n);
    scoped_free double *ratios = bootstrap(STATS_RATIO_OF_MEDIANS, pairs, n, units, unit_count, seed);
    if (!ratios) {
        estimate->why = "denominator_reaches_zero";
        return;
    }
    estimate->bounded = true;
    estimate->ci_lo = fmin(stats_quantile(ratios, draws, (1 - STATS_LEVEL) / 2), estimate->value);
    estimate->ci_hi = fmax(stats_quantile(ratios, draws, (1 + STATS_LEVEL) / 2), estimate->value);
    estimate->ci_level = STATS_LEVEL;
    estimate->ci_method = "bootstrap";
}

struct stats_estimate stats_bootstrap_ratio(const struct stats_pair *pairs, size_t n, uint64_t seed)
{
    double value;
    if (n == 0)
        return stats_unknown("no_pairs");
    if (!figure_of_pairs(STATS_RATIO_OF_MEDIANS, pairs, n, &value))
        return stats_unknown("denominator_not_positive");
    struct stats_estimate estimate = {.known = true, .value = value, .n = (int64_t)n};
    if (n < 2)
        estimate.why = "one_pair";
    else
        bound_by_bootstrap(pairs, n, seed, &estimate);
    return estimate;
}

/* ---- Processes ---- */

/* The middle of all processes there could be lies between least and largest of K with 1 - 2 / 2^K. */
static void bound_by_range(enum stats_figure of, const struct stats_pair *pairs,
                           const struct unit_span *units, size_t unit_count, struct stats_estimate *estimate)
{
    double own, lo = estimate->value, hi = lo;
    for (size_t u = 0; u < unit_count; u++) {
        if (!figure_of_pairs(of, pairs + units[u].first, units[u].count, &own)) {
            estimate->why = "denominator_reaches_zero";
            return;
        }
        lo = fmin(lo, own);
        hi = fmax(hi, own);
    }
    estimate->bounded = true;
    estimate->ci_lo = lo;
    estimate->ci_hi = hi;
    estimate->ci_level = 1 - 2 * pow(0.5, (double)unit_count);
    estimate->ci_method = "process_range";
}

/* How far Student's t of K - 1 degrees reaches from the middle of such draws, whose spread is that of K units with
 * divisor K. */
static double reach_of_t(const double *draws, size_t count, size_t unit_count, bool logarithmic)
{
    scoped_free double *scaled = memory_zeroed(count, sizeof *scaled);
    for (size_t i = 0; i < count; i++)
        scaled[i] = logarithmic ? log(draws[i]) : draws[i];
    double units = (double)unit_count;
    return stats_t_critical((1 - STATS_LEVEL) / 2, units - 1) * stats_moments(scaled, count).stddev *
           sqrt(units / (units - 1));
}

static void bound_by_processes(enum stats_figure of, const struct stats_pair *pairs, size_t n, uint64_t seed,
                               struct stats_estimate *estimate)
{
    scoped_free struct unit_span *units = memory_zeroed(n, sizeof *units);
    size_t unit_count = find_units(pairs, n, units), draws = draws_for(of, n);
    if (unit_count < 2) {
        estimate->why = "one_process";
        return;
    }
    if (unit_count < STATS_PROCESSES_LEAST) {
        bound_by_range(of, pairs, units, unit_count, estimate);
        return;
    }
    scoped_free double *drawn = bootstrap(of, pairs, n, units, unit_count, seed);
    bool logarithmic = of == STATS_RATIO_OF_MEDIANS;
    if (!drawn || (logarithmic && !(drawn[0] > 0))) {
        estimate->why = "denominator_reaches_zero";
        return;
    }
    double reach = reach_of_t(drawn, draws, unit_count, logarithmic), value = estimate->value;
    estimate->bounded = true;
    estimate->ci_lo = fmin(stats_quantile(drawn, draws, (1 - STATS_LEVEL) / 2),
                           logarithmic ? value * exp(-reach) : value - reach);
    estimate->ci_hi = fmax(stats_quantile(drawn, draws, (1 + STATS_LEVEL) / 2),
                           logarithmic ? value * exp(reach) : value + reach);
    estimate->ci_level = STATS_LEVEL;
    estimate->ci_method = "hierarchical_bootstrap";
}

struct stats_estimate stats_by_process(enum stats_figure of, const struct stats_pair *pairs, size_t n,
                                       uint64_t seed)
{
    double value;
    if (n == 0)
        return stats_unknown(of == STATS_MEDIAN_OF_A ? "no_values" : "no_pairs");
    if (!figure_of_pairs(of, pairs, n, &value))
        return stats_unknown("denominator_not_positive");
    struct stats_estimate estimate = {.known = true, .value = value, .n = (int64_t)n};
    bound_by_processes(of, pairs, n, seed, &estimate);
    return estimate;
}

struct stats_estimate stats_paired_ratio(const struct stats_pair *pairs, size_t n)
{
    scoped_free double *ratios = memory_zeroed(n + 1, sizeof *ratios);
    for (size_t i = 0; i < n; i++) {
        if (!(pairs[i].b > 0))
            return stats_unknown("denominator_not_positive");
        ratios[i] = pairs[i].a / pairs[i].b;
    }
    return stats_median(ratios, n);
}

struct stats_estimate stats_paired_difference(const struct stats_pair *pairs, size_t n)
{
    scoped_free double *differences = memory_zeroed(n + 1, sizeof *differences);
    for (size_t i = 0; i < n; i++)
        differences[i] = pairs[i].a - pairs[i].b;
    return stats_median(differences, n);
}

/* ---- Student's t ---- */

/* Continued fraction of the incomplete beta function by Lentz's method (Numerical Recipes, 6.4). */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double h = d;
    for (int m = 1; m < 1000; m++) {
        double m2 = 2.0 * m;
        double steps[2] = {m * (b - m) * x / ((a + m2 - 1) * (a + m2)),
                           -(a + m) * (a + b + m) * x / ((a + m2) * (a + m2 + 1))};
        double change = 1;
        for (int i = 0; i < 2; i++) {
            d = 1 + steps[i] * d;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = 1 + steps[i] / c;
            c = fabs(c) < tiny ? tiny : c;
            change = c * d;
            h *= change;
        }
        if (fabs(change - 1) < 1e-16)
            break;
    }
    return h;
}

/* Regularised incomplete beta function I_x(a, b). */
static double incomplete_beta(double a, double b, double x)
{
    if (x <= 0 || x >= 1)
        return x <= 0 ? 0 : 1;
    double front = exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * log(x) + b * log1p(-x));
    if (x < (a + 1) / (a + b + 2))
        return front * beta_fraction(a, b, x) / a;
    return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double stats_t_tail(double t, double degrees)
{
    double both = incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
    return t >= 0 ? both / 2 : 1 - both / 2;
}

double stats_t_critical(double p, double degrees)
{
    double lo = 0, hi = 1;
    while (stats_t_tail(hi, degrees) > p && hi < 1e300)
        hi *= 2;
    for (int i = 0; i < 200 && lo < hi; i++) {
        double middle = lo + (hi - lo) / 2;
        if (stats_t_tail(middle, degrees) > p)
            lo = middle;
        else
            hi = middle;
    }
    return lo + (hi - lo) / 2;
}

/* ---- Spearman ---- */

struct ranked {
    double value;
    size_t index;
};

static int compare_ranked(const void *a, const void *b)
{
    return compare_doubles(&((const struct ranked *)a)->value, &((const struct ranked *)b)->value);
}

/* Ranks from 1; equal values share the mean of theirs. */
static void average_ranks(const double *values, size_t n, double *ret_ranks)
{
    scoped_free struct ranked *order = memory_zeroed(n, sizeof *order);
    for (size_t i = 0; i < n; i++)
        order[i] = (struct ranked){values[i], i};
    qsort(order, n, sizeof *order, compare_ranked);
    for (size_t first = 0, after; first < n; first = after) {
        for (after = first + 1; after < n && order[after].value <= order[first].value;)
            after++;
        for (size_t i = first; i < after; i++)
            ret_ranks[order[i].index] = (double)(first + after + 1) / 2;
    }
}

bool stats_spearman(const double *x, const double *y, size_t n, double *ret_rho, double *ret_p)
{
    if (n < 3)
        return false;
    scoped_free double *rank_x = memory_zeroed(n, sizeof *rank_x);
    scoped_free double *rank_y = memory_zeroed(n, sizeof *rank_y);
    average_ranks(x, n, rank_x);
    average_ranks(y, n, rank_y);
    double middle = (double)(n + 1) / 2, xx = 0, yy = 0, xy = 0;
    for (size_t i = 0; i < n; i++) {
        double off_x = rank_x[i] - middle, off_y = rank_y[i] - middle;
        xx += off_x * off_x;
        yy += off_y * off_y;
        xy += off_x * off_y;
    }
    if (!(xx > 0) || !(yy > 0))
        return false;
    double rho = fmin(fmax(xy / sqrt(xx * yy), -1), 1);
    double degrees = (double)(n - 2), rest = (1 - rho) * (1 + rho);
    *ret_rho = rho;
    *ret_p = rest > 0 ? 2 * stats_t_tail(fabs(rho) * sqrt(degrees / rest), degrees) : 0;
    return true;
}

/* ---- Holm ---- */

void stats_holm(const double *p, size_t n, double *ret)
{
    scoped_free struct ranked *order = memory_zeroed(n + 1, sizeof *order);
    for (size_t i = 0; i < n; i++)
        order[i] = (struct ranked){p[i], i};
    qsort(order, n, sizeof *order, compare_ranked);
    double least = 0;
    for (size_t i = 0; i < n; i++) {
        least = fmin(1, fmax(least, order[i].value * (double)(n - i)));
        ret[order[i].index] = least;
    }
}

/* ---- Least squares ---- */

/* Turns column k of q (rows x terms) and y by the Householder reflection that zeroes q below (k, k).  Returns false
 * when nothing is left of the column. */
static bool reflect(double *q, double *y, size_t rows, size_t terms, size_t k, double scale)
{
    double norm = 0;
    for (size_t i = k; i < rows; i++)
        norm = hypot(norm, q[i * terms + k]);
    if (!(norm > 1e-12 * scale))
        return false;
    double head = q[k * terms + k], alpha = head > 0 ? -norm : norm;
    q[k * terms + k] = head - alpha; /* the vector v of the reflection, in place */
    double half = norm * (norm + fabs(head));
    for (size_t column = k + 1; column <= terms; column++) {
        double dot = 0;
        for (size_t i = k; i < rows; i++)
            dot += q[i * terms + k] * (column < terms ? q[i * terms + column] : y[i]);
        for (size_t i = k; i < rows; i++)
            *(column < terms ? &q[i * terms + column] : &y[i]) -= q[i * terms + k] * dot / half;
    }
    q[k * terms + k] = alpha;
    return true;
}

/* Solves the upper triangle r for the coefficients, and its inverse's rows for the standard errors. */
static void back_substitute(const double *r, const double *y, struct stats_fit *fit)
{
    double inverse[STATS_MAX_TERMS][STATS_MAX_TERMS] = {{0}};
    size_t terms = fit->terms;
    for (size_t i = terms; i-- > 0;) {
        double value = y[i];
        for (size_t j = i + 1; j < terms; j++)
            value -= r[i * terms + j] * fit->coefficient[j];
        fit->coefficient[i] = value / r[i * terms + i];
        for (size_t column = i; column < terms; column++) {
            double sum = column == i ? 1 : 0;
            for (size_t j = i + 1; j <= column; j++)
                sum -= r[i * terms + j] * inverse[j][column];
            inverse[i][column] = sum / r[i * terms + i];
        }
    }
    for (size_t i = 0; i < terms; i++) {
        double norm = 0;
        for (size_t column = i; column < terms; column++)
            norm = hypot(norm, inverse[i][column]);
        fit->standard_error[i] = norm * fit->residual_stddev;
    }
}

static double column_norm(const double *design, size_t rows, size_t terms, size_t k)
{
    double norm = 0;
    for (size_t i = 0; i < rows; i++)
        norm = hypot(norm, design[i * terms + k]);
    return norm;
}

int stats_least_squares(const double *design, const double *y, size_t rows, size_t terms,
                        struct stats_fit *ret, struct error *err)
{
    if (terms == 0 || terms > STATS_MAX_TERMS || rows < terms)
        return error_set(err, ERROR_INCONCLUSIVE, "%zu rows cannot fit %zu terms", rows, terms);
    scoped_free double *q = memory_zeroed(rows * terms, sizeof *q);
    scoped_free double *turned = memory_zeroed(rows, sizeof *turned);
    memcpy(q, design, rows * terms * sizeof *q);
    memcpy(turned, y, rows * sizeof *turned);
    for (size_t k = 0; k < terms; k++)
        if (!reflect(q, turned, rows, terms, k, column_norm(design, rows, terms, k)))
            return error_set(err, ERROR_INCONCLUSIVE, "the terms of the fit are collinear");
    struct stats_fit fit = {.terms = terms, .degrees = (double)(rows - terms)};
    double rest = 0;
    for (size_t i = terms; i < rows; i++)
        rest += turned[i] * turned[i];
    fit.residual_stddev = rows > terms ? sqrt(rest / fit.degrees) : 0;
    back_substitute(q, turned, &fit);
    *ret = fit;
    return 0;
}
