/* stats: known answers.  check_stats.py compares the rest with scipy and exact fractions. */
#include "coordinator/stats/stats.h"

#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_close(double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("got %.17g, expected %.17g", got, expected);
}

static void ranks_of_the_median(void **state)
{
    (void)state;
    static const struct {
        int64_t n, lo, hi;
        double level;
    } cases[] = {{2, 1, 2, 0.5},           {3, 1, 3, 0.75},      {5, 1, 5, 0.9375},     {6, 1, 6, 0.96875},
                 {9, 2, 9 - 1, 0.9609375}, {20, 6, 15, 0.95861}, {100, 40, 61, 0.96480}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stats_ranks ranks = {0};
        assert_true(stats_median_ranks(cases[i].n, &ranks));
        assert_int_equal(ranks.lo, cases[i].lo);
        assert_int_equal(ranks.hi, cases[i].hi);
        assert_close(ranks.level, cases[i].level, 1e-5);
    }
    struct stats_ranks untouched = {7, 7, 7};
    assert_false(stats_median_ranks(1, &untouched));
    assert_false(stats_median_ranks(0, &untouched));
    assert_int_equal(untouched.lo, 7);
}

static void p99_needs_368_values(void **state)
{
    (void)state;
    struct stats_ranks ranks = {0};
    assert_false(stats_quantile_ranks(STATS_P99_MIN_N - 1, 0.99, &ranks));
    assert_true(stats_quantile_ranks(STATS_P99_MIN_N, 0.99, &ranks));
    assert_int_equal(ranks.hi, STATS_P99_MIN_N);
    assert_true(ranks.level >= 0.95);
}

static void ranks_of_many_values_end(void **state)
{
    (void)state;
    struct stats_ranks ranks = {0};
    assert_true(stats_median_ranks(10000000, &ranks));
    assert_int_equal(ranks.lo + ranks.hi, 10000001);
    /* the normal approximation is good to a rank or two here */
    assert_true(llabs(ranks.lo - (int64_t)(5e6 - 1.959964 * sqrt(1e7) / 2)) <= 2);
    assert_true(ranks.level >= 0.95 && ranks.level < 0.951);
}

static void medians_of_few_values(void **state)
{
    (void)state;
    struct stats_estimate none = stats_median(NULL, 0);
    assert_false(none.known);
    assert_non_null(none.why);
    const double one[] = {42};
    struct stats_estimate single = stats_median(one, 1);
    assert_true(single.known && !single.bounded);
    assert_non_null(single.why);
    assert_close(single.value, 42, 0);
    const double five[] = {5, 1, 4, 2, 3};
    struct stats_estimate whole = stats_median(five, 5);
    assert_close(whole.value, 3, 0);
    assert_close(whole.ci_lo, 1, 0);
    assert_close(whole.ci_hi, 5, 0);
    assert_close(whole.ci_level, 0.9375, 1e-15);
    assert_null(whole.why);
    const double four[] = {4, 1, 3, 2};
    assert_close(stats_median(four, 4).value, 2.5, 0);
}

static void percentiles_stay_within_min_and_max(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(7);
    for (size_t n = 1; n <= 50; n++) {
        double values[50];
        for (size_t i = 0; i < n; i++)
            values[i] = rng_unit(&rng) * 1e9 + 0.1;
        scoped_free double *sorted = stats_sorted(values, n);
        double before = sorted[0];
        for (int step = 0; step <= 1000; step++) {
            double value = stats_quantile(sorted, n, step / 1000.0);
            assert_true(value >= before && value <= sorted[n - 1]);
            before = value;
        }
    }
}

static void moments(void **state)
{
    (void)state;
    /* a naive sum of squares loses all of this one's variance */
    const double values[] = {1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16};
    struct stats_moments some = stats_moments(values, 4);
    assert_close(some.mean, 1e9 + 10, 0);
    assert_close(some.stddev, sqrt(30), 1e-9);
    assert_close(some.min, 1e9 + 4, 0);
    assert_close(some.max, 1e9 + 16, 0);
    assert_close(stats_moments(values, 1).stddev, 0, 0);
    const double tenth[] = {0.1, 0.1, 0.1};
    struct stats_moments same = stats_moments(tenth, 3);
    assert_true(same.mean >= same.min && same.mean <= same.max);
}

static void a_bootstrap_repeats_itself(void **state)
{
    (void)state;
    struct stats_pair pairs[24];
    struct rng rng = rng_seeded(3);
    for (int i = 0; i < 24; i++)
        pairs[i] = (struct stats_pair){i / 12, 400 + rng_unit(&rng), 10 + rng_unit(&rng) / 10};
    struct stats_estimate first = stats_bootstrap_ratio(pairs, 24, 11);
    struct stats_estimate again = stats_bootstrap_ratio(pairs, 24, 11);
    struct stats_estimate other = stats_bootstrap_ratio(pairs, 24, 12);
    assert_memory_equal(&first.ci_lo, &again.ci_lo, sizeof first.ci_lo);
    assert_memory_equal(&first.ci_hi, &again.ci_hi, sizeof first.ci_hi);
    assert_true(fabs(first.ci_lo - other.ci_lo) > 0 || fabs(first.ci_hi - other.ci_hi) > 0);
    assert_true(first.ci_lo <= first.value && first.value <= first.ci_hi);
    assert_close(first.value, 400.5 / 10.05, 0.2);
}

/* Two workers that differ by half: the interval must hold both, since another draw of workers could be all one. */
static void a_bootstrap_resamples_workers_first(void **state)
{
    (void)state;
    struct stats_pair pairs[20];
    for (int i = 0; i < 20; i++)
        pairs[i] = (struct stats_pair){i / 10, i < 10 ? 10 : 15, 1};
    struct stats_estimate ratio = stats_bootstrap_ratio(pairs, 20, 1);
    assert_close(ratio.ci_lo, 10, 0);
    assert_close(ratio.ci_hi, 15, 0);
}

static void ratios_without_ground_are_unknown(void **state)
{
    (void)state;
    const struct stats_pair zero[] = {{0, 1, 0}, {0, 2, 0}};
    assert_false(stats_bootstrap_ratio(zero, 2, 1).known);
    assert_false(stats_paired_ratio(zero, 2).known);
    assert_false(stats_bootstrap_ratio(zero, 0, 1).known);
    assert_false(stats_bootstrap_ratio(&(struct stats_pair){0, 3, 2}, 1, 1).bounded);
    const struct stats_pair sometimes[] = {{0, 1, 0}, {0, 2, 1}, {0, 2, 1}};
    struct stats_estimate shaky = stats_bootstrap_ratio(sometimes, 3, 1);
    assert_true(shaky.known && !shaky.bounded);
}

static void differences_keep_their_sign(void **state)
{
    (void)state;
    const struct stats_pair pairs[] = {{0, 1, 3}, {0, 2, 3}, {0, 9, 3}, {0, 0, 3}, {0, 1, 3}, {0, 2, 3}};
    struct stats_estimate below = stats_paired_difference(pairs, 6);
    assert_close(below.value, -1.5, 0);
    assert_close(below.ci_lo, -3, 0);
    assert_close(below.ci_hi, 6, 0);
}

/* Values of K processes, R each: a level of its own for each process, noise within. */
static struct stats_pair *processes(struct rng *rng, int count, int rounds, double between, double within)
{
    struct stats_pair *pairs = memory_zeroed((size_t)(count * rounds), sizeof *pairs);
    for (int k = 0; k < count; k++) {
        double level = 100;
        for (int i = 0; i < 12; i++) /* Irwin-Hall: a normal deviate with deviation 1 */
            level += between * (rng_unit(rng) - 0.5);
        for (int i = 0; i < rounds; i++)
            pairs[k * rounds + i] = (struct stats_pair){k, level + within * (rng_unit(rng) - 0.5), 50};
    }
    return pairs;
}

static void few_processes_say_their_level(void **state)
{
    (void)state;
    static const struct {
        int count;
        double level;
    } cases[] = {{2, 0.5}, {3, 0.75}, {4, 0.875}, {5, 0.9375}};
    struct rng rng = rng_seeded(3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scoped_free struct stats_pair *pairs = processes(&rng, cases[i].count, 9, 1, 0);
        struct stats_estimate p50 = stats_by_process(STATS_MEDIAN_OF_A, pairs, (size_t)cases[i].count * 9, 1);
        double lo = INFINITY, hi = -INFINITY;
        for (int k = 0; k < cases[i].count; k++) {
            lo = fmin(lo, pairs[k * 9].a);
            hi = fmax(hi, pairs[k * 9].a);
        }
        assert_string_equal(p50.ci_method, "process_range");
        assert_close(p50.ci_level, cases[i].level, 1e-12);
        assert_close(p50.ci_lo, lo, 0);
        assert_close(p50.ci_hi, hi, 0);
        struct stats_estimate ratio =
            stats_by_process(STATS_RATIO_OF_MEDIANS, pairs, (size_t)cases[i].count * 9, 1);
        assert_close(ratio.ci_lo, lo / 50, 1e-12);
        assert_close(ratio.value, p50.value / 50, 1e-12);
    }
    scoped_free struct stats_pair *one = processes(&rng, 1, 9, 1, 1);
    struct stats_estimate alone = stats_by_process(STATS_MEDIAN_OF_A, one, 9, 1);
    assert_true(alone.known && !alone.bounded);
    assert_string_equal(alone.why, "one_process");
}

/* The level of a process is what counts: more rounds in each make nothing surer. */
static void processes_cover_what_they_say(void **state)
{
    (void)state;
    static const int counts[] = {6, 20};
    struct rng rng = rng_seeded(11);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int covered = 0, ratios_covered = 0;
        const int trials = 100;
        for (int trial = 0; trial < trials; trial++) {
            size_t n = (size_t)counts[i] * 5;
            scoped_free struct stats_pair *pairs = processes(&rng, counts[i], 5, 1, 0.5);
            struct stats_estimate p50 = stats_by_process(STATS_MEDIAN_OF_A, pairs, n, (uint64_t)trial);
            assert_string_equal(p50.ci_method, "hierarchical_bootstrap");
            covered += p50.ci_lo <= 100 && p50.ci_hi >= 100;
            struct stats_estimate ratio = stats_by_process(STATS_RATIO_OF_MEDIANS, pairs, n, (uint64_t)trial);
            ratios_covered += ratio.ci_lo <= 2 && ratio.ci_hi >= 2;
        }
        /* 95, less three deviations */
        assert_in_range(covered, 88, trials);
        assert_in_range(ratios_covered, 88, trials);
    }
}

/* Percentiles of six stay among them; Student's t knows better. */
static void few_processes_reach_beyond_themselves(void **state)
{
    (void)state;
    struct stats_pair pairs[6];
    for (int i = 0; i < 6; i++)
        pairs[i] = (struct stats_pair){i, i < 3 ? 100 : 110, 50};
    struct stats_estimate p50 = stats_by_process(STATS_MEDIAN_OF_A, pairs, 6, 1);
    assert_close(p50.value, 105, 0);
    assert_true(p50.ci_lo < 100 && p50.ci_lo > 80);
    assert_true(p50.ci_hi > 110 && p50.ci_hi < 130);
    struct stats_estimate ratio = stats_by_process(STATS_RATIO_OF_MEDIANS, pairs, 6, 1);
    assert_true(ratio.ci_lo < 2 && ratio.ci_hi > 2.2);
}

static void processes_without_ground_are_unknown(void **state)
{
    (void)state;
    struct stats_pair pairs[12];
    for (int i = 0; i < 12; i++)
        pairs[i] = (struct stats_pair){i / 2, 1, i < 2 ? 1 : 0};
    assert_string_equal(stats_by_process(STATS_RATIO_OF_MEDIANS, pairs, 12, 1).why,
                        "denominator_not_positive");
    assert_string_equal(stats_by_process(STATS_RATIO_OF_MEDIANS, pairs, 0, 1).why, "no_pairs");
    assert_string_equal(stats_by_process(STATS_MEDIAN_OF_A, pairs, 0, 1).why, "no_values");
    for (int i = 2; i < 12; i++)
        pairs[i].b = i < 4 ? 0 : 1; /* one process of six has none */
    struct stats_estimate ratio = stats_by_process(STATS_RATIO_OF_MEDIANS, pairs, 12, 1);
    assert_true(ratio.known && !ratio.bounded);
    assert_string_equal(ratio.why, "denominator_reaches_zero");
}

static void trends(void **state)
{
    (void)state;
    double x[12], up[12], flat[12], rho = 0, p = 1;
    for (int i = 0; i < 12; i++) {
        x[i] = i;
        up[i] = i * i;
        flat[i] = 5;
    }
    assert_true(stats_spearman(x, up, 12, &rho, &p));
    assert_close(rho, 1, 0);
    assert_close(p, 0, 0);
    assert_false(stats_spearman(x, flat, 12, &rho, &p));
    assert_false(stats_spearman(x, up, 2, &rho, &p));
}

static void holm_adjusts_the_whole_family(void **state)
{
    (void)state;
    double p[] = {0.01, 0.04, 0.03, 0.005};
    const double expected[] = {0.03, 0.06, 0.06, 0.02};
    stats_holm(p, 4, p);
    for (int i = 0; i < 4; i++)
        assert_close(p[i], expected[i], 1e-15);
}

static void a_line_is_fitted(void **state)
{
    (void)state;
    const double design[] = {1, 1, 1, 2, 1, 3, 1, 4}, y[] = {6, 5, 7, 10};
    struct stats_fit fit;
    struct error err = {0};
    assert_int_equal(stats_least_squares(design, y, 4, 2, &fit, &err), 0);
    assert_close(fit.coefficient[0], 3.5, 1e-12);
    assert_close(fit.coefficient[1], 1.4, 1e-12);
    assert_close(fit.residual_stddev, sqrt(4.2 / 2), 1e-12);
    assert_close(fit.standard_error[1], sqrt(2.1 / 5), 1e-12);
}

static void a_fit_without_ground_is_refused(void **state)
{
    (void)state;
    const double same[] = {1, 2, 2, 4, 3, 6}, y[] = {1, 2, 3};
    struct stats_fit fit;
    struct error err = {0};
    assert_int_equal(stats_least_squares(same, y, 3, 2, &fit, &err), -1);
    assert_string_equal(err.text, "the terms of the fit are collinear");
    assert_int_equal(stats_least_squares(same, y, 1, 2, &fit, &err), -1);
    assert_int_equal(stats_least_squares(same, y, 3, STATS_MAX_TERMS + 1, &fit, &err), -1);
}

/* ---- coverage, by simulation ---- */

static double draw_uniform(struct rng *rng)
{
    return rng_unit(rng);
}

static double draw_exponential(struct rng *rng)
{
    return -log1p(-rng_unit(rng));
}

/* Cauchy: tails so heavy that it has no mean. */
static double draw_cauchy(struct rng *rng)
{
    return tan((rng_unit(rng) - 0.5) * 3.14159265358979323846);
}

static const struct distribution {
    const char *name;
    double (*draw)(struct rng *rng);
    double median;
} distributions[] = {{"uniform", draw_uniform, 0.5},
                     {"exponential", draw_exponential, 0.69314718055994531},
                     {"cauchy", draw_cauchy, 0}};
#define DISTRIBUTIONS (sizeof distributions / sizeof *distributions)

static double covered_x(const struct distribution *from, size_t n, int trials, double *ret_level)
{
    struct rng rng = rng_stream(41, n * DISTRIBUTIONS + (size_t)(from - distributions));
    double values[100];
    int covered = 0;
    for (int trial = 0; trial < trials; trial++) {
        for (size_t i = 0; i < n; i++)
            values[i] = from->draw(&rng);
        struct stats_estimate p50 = stats_median(values, n);
        covered += p50.ci_lo <= from->median && from->median <= p50.ci_hi;
        *ret_level = p50.ci_level;
    }
    return covered / (double)trials;
}

/* Within 0.6 %, four deviations of 20,000 draws: as often as the interval says; and where its ranks can have 95 %,
 * 95 % +- 1. */
static void medians_are_covered_as_often_as_they_say(void **state)
{
    (void)state;
    static const size_t sizes[] = {5, 9, 25};
    for (size_t i = 0; i < DISTRIBUTIONS; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            double level = 0, covered = covered_x(&distributions[i], sizes[j], 20000, &level);
            print_message("%s, n %zu: %.2f %% of %.2f %%\n", distributions[i].name, sizes[j], covered * 100,
                          level * 100);
            assert_close(covered, level, 0.006);
            if (sizes[j] >= 25)
                assert_close(covered, 0.95, 0.01);
        }
}

/* Percentiles of draws are no exact interval, and of a median a bit wide (97 % here): near 95 %, and never all. */
static void bootstrapped_ratios_are_covered(void **state)
{
    (void)state;
    enum { n = 40, trials = 300 };
    for (size_t i = 0; i < 2; i++) { /* a ratio needs a denominator above 0 */
        struct rng rng = rng_stream(43, i);
        int covered = 0;
        for (int trial = 0; trial < trials; trial++) {
            struct stats_pair pairs[n];
            for (int k = 0; k < n; k++)
                pairs[k] = (struct stats_pair){0, 20 + distributions[i].draw(&rng),
                                               10 + distributions[i].draw(&rng)};
            struct stats_estimate ratio = stats_bootstrap_ratio(pairs, n, (uint64_t)trial);
            double truth = (20 + distributions[i].median) / (10 + distributions[i].median);
            covered += ratio.ci_lo <= truth && truth <= ratio.ci_hi;
        }
        print_message("%s: %d of %d\n", distributions[i].name, covered, trials);
        assert_in_range(covered, trials * 0.92, trials * 0.993);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_the_median),
        cmocka_unit_test(p99_needs_368_values),
        cmocka_unit_test(ranks_of_many_values_end),
        cmocka_unit_test(medians_of_few_values),
        cmocka_unit_test(percentiles_stay_within_min_and_max),
        cmocka_unit_test(moments),
        cmocka_unit_test(a_bootstrap_repeats_itself),
        cmocka_unit_test(a_bootstrap_resamples_workers_first),
        cmocka_unit_test(ratios_without_ground_are_unknown),
        cmocka_unit_test(differences_keep_their_sign),
        cmocka_unit_test(few_processes_say_their_level),
        cmocka_unit_test(processes_cover_what_they_say),
        cmocka_unit_test(few_processes_reach_beyond_themselves),
        cmocka_unit_test(processes_without_ground_are_unknown),
        cmocka_unit_test(trends),
        cmocka_unit_test(holm_adjusts_the_whole_family),
        cmocka_unit_test(a_line_is_fitted),
        cmocka_unit_test(a_fit_without_ground_is_refused),
        cmocka_unit_test(medians_are_covered_as_often_as_they_say),
        cmocka_unit_test(bootstrapped_ratios_are_covered),
    };
    return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
