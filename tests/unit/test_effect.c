/* effect: intervals that cover as often as they say, from values and from estimates; probabilities that fit them. */
#include "coordinator/stats/effect.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MOST 200

static void assert_close(double got, double wanted, double tolerance)
{
    if (!(fabs(got - wanted) <= tolerance))
        fail_msg("%.12g is not %.12g", got, wanted);
}

/* Standard normal (Box and Muller). */
static double normal(struct rng *rng)
{
    return sqrt(-2 * log(1 - rng_unit(rng))) * cos(2 * 3.141592653589793 * rng_unit(rng));
}

/* Values around `median`, `spread` wide on the logarithm; `units` of them have an offset of their own, `between` wide. */
static struct effect_sample draw(struct rng *rng, struct effect_value *values, size_t units, size_t n,
                                 double median, double spread, double between)
{
    for (size_t u = 0; u < units; u++) {
        double offset = between * normal(rng);
        for (size_t i = 0; i < n; i++)
            values[u * n + i] =
                (struct effect_value){(int64_t)u, median * exp(offset + spread * normal(rng))};
    }
    return (struct effect_sample){.values = values, .n = units * n, .by_unit = between > 0};
}

static bool covers(const struct effect *effect, double truth)
{
    assert_true(effect->ratio.known && effect->ratio.bounded);
    assert_true(effect->ratio.ci_lo <= effect->ratio.value && effect->ratio.value <= effect->ratio.ci_hi);
    return effect->ratio.ci_lo <= truth && truth <= effect->ratio.ci_hi;
}

static struct stats_estimate median_of(struct effect_sample sample)
{
    double plain[MOST];
    for (size_t i = 0; i < sample.n; i++)
        plain[i] = sample.values[i].value;
    return stats_median(plain, sample.n);
}

/* ---- coverage ---- */

#define REPEATS 120

/* Of 95 % intervals, no fewer hold the truth than chance allows, and they are not wider than they need to be. */
static void check_coverage(size_t units, size_t n, double spread, double between, bool by_estimates,
                           double widest)
{
    struct rng rng = rng_seeded(units * 1000 + n);
    struct effect_value base[MOST], changed[MOST];
    int held = 0;
    double width = 0;
    for (int i = 0; i < REPEATS; i++) {
        struct effect_sample before = draw(&rng, base, units, n, 100, spread, between);
        struct effect_sample after = draw(&rng, changed, units, n, 110, spread, between);
        struct stats_estimate medians[2] = {median_of(before), median_of(after)};
        struct effect effect = by_estimates ? effect_of_estimates(&medians[0], &medians[1])
                                            : effect_of_values(before, after, (uint64_t)i);
        held += covers(&effect, 1.1);
        width += effect.ratio.ci_hi - effect.ratio.ci_lo;
    }
    assert_in_range(held, REPEATS * 90 / 100, REPEATS);
    assert_true(width / REPEATS < widest);
}

static void test_values_cover(void **state)
{
    (void)state;
    check_coverage(1, 5, 0.02, 0, false, 0.12);
    check_coverage(1, 9, 0.02, 0, false, 0.08);
    check_coverage(1, 40, 0.02, 0, false, 0.04);
}

static void test_processes_cover(void **state)
{
    (void)state;
    check_coverage(12, 3, 0.01, 0.02, false, 0.06);
    check_coverage(6, 5, 0.01, 0.02, false, 0.12);
}

/* Rounds of one process are no independent evidence: taken as such, the intervals would hold the truth too rarely. */
static void test_rounds_do_not_stand_for_processes(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(5);
    struct effect_value base[MOST], changed[MOST];
    int held = 0;
    for (int i = 0; i < REPEATS; i++) {
        struct effect_sample before = draw(&rng, base, 5, 10, 100, 0.005, 0.02);
        struct effect_sample after = draw(&rng, changed, 5, 10, 110, 0.005, 0.02);
        for (size_t j = 0; j < 50; j++)
            base[j].unit = changed[j].unit = 0;
        before.by_unit = after.by_unit = false;
        struct effect effect = effect_of_values(before, after, (uint64_t)i);
        held += covers(&effect, 1.1);
    }
    assert_true(held < REPEATS * 85 / 100);
}

static void test_estimates_cover(void **state)
{
    (void)state;
    check_coverage(1, 5, 0.02, 0, true, 0.14);
    check_coverage(1, 9, 0.02, 0, true, 0.10);
    check_coverage(1, 60, 0.02, 0, true, 0.04);
}

/* ---- arithmetic ---- */

static void test_mover_by_hand(void **state)
{
    (void)state;
    const struct stats_estimate base = {true, true, 100, 9, 98, 103, 0.96, "order_statistic", NULL},
                                changed = {true, true, 120, 11, 117, 125, 0.97, "order_statistic", NULL};
    struct effect effect = effect_of_estimates(&base, &changed);
    double lo = log(1.2) - sqrt(pow(log(120.0 / 117), 2) + pow(log(103.0 / 100), 2));
    double hi = log(1.2) + sqrt(pow(log(125.0 / 120), 2) + pow(log(100.0 / 98), 2));
    assert_close(effect.ratio.value, 1.2, 1e-12);
    assert_close(effect.ratio.ci_lo, exp(lo), 1e-12);
    assert_close(effect.ratio.ci_hi, exp(hi), 1e-12);
    assert_close(effect.degrees, 8, 1e-12);
    assert_int_equal(effect.ratio.n, 9);
    assert_string_equal(effect.ratio.ci_method, "combined_intervals");
}

/* Five values reach 93.75 %: Student's t of 4 makes 2.7764 of 2.5392. */
static void test_low_levels_are_widened(void **state)
{
    (void)state;
    const struct stats_estimate sure = {true, true, 100, 5, 99, 101, 0.95, "order_statistic", NULL},
                                less = {true, true, 100, 5, 99, 101, 0.9375, "order_statistic", NULL};
    struct effect narrow = effect_of_estimates(&sure, &sure), wide = effect_of_estimates(&less, &less);
    double times = stats_t_critical(0.025, 4) / stats_t_critical(0.03125, 4);
    assert_true(times > 1.08 && times < 1.12);
    assert_close(log(wide.ratio.ci_hi) / log(narrow.ratio.ci_hi), times, 1e-9);
    assert_close(log(wide.ratio.ci_lo) / log(narrow.ratio.ci_lo), times, 1e-9);
}

static void test_p_fits_the_interval(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(11);
    struct effect_value base[MOST], changed[MOST];
    for (int i = 0; i < 20; i++) {
        struct effect_sample before = draw(&rng, base, 1, 9, 100, 0.03, 0);
        struct effect_sample after = draw(&rng, changed, 1, 9, 108, 0.03, 0);
        struct stats_estimate medians[2] = {median_of(before), median_of(after)};
        struct effect effects[2] = {effect_of_estimates(&medians[0], &medians[1]),
                                    effect_of_values(before, after, 1)};
        for (int j = 0; j < 2; j++) {
            const struct stats_estimate *ratio = &effects[j].ratio;
            assert_close(effect_p_above(&effects[j], ratio->ci_lo), 0.025, 1e-6);
            assert_close(effect_p_below(&effects[j], ratio->ci_hi), 0.025, 1e-6);
            assert_close(effect_p_above(&effects[j], ratio->value), 0.5, 1e-6);
            assert_true(effect_p_above(&effects[j], ratio->ci_hi) > 0.5);
            assert_true(effect_p_above(&effects[j], ratio->ci_lo / 1.5) < 1e-4);
        }
    }
}

static void test_same_seed_same_bytes(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(3);
    struct effect_value base[MOST], changed[MOST];
    struct effect_sample before = draw(&rng, base, 2, 9, 100, 0.03, 0),
                         after = draw(&rng, changed, 2, 9, 100, 0.03, 0);
    struct effect first = effect_of_values(before, after, 7), second = effect_of_values(before, after, 7),
                  other = effect_of_values(before, after, 8);
    assert_memory_equal(&first.ratio.ci_lo, &second.ratio.ci_lo, sizeof(double));
    assert_memory_equal(&first.ratio.ci_hi, &second.ratio.ci_hi, sizeof(double));
    assert_true(fabs(first.ratio.ci_lo - other.ratio.ci_lo) > 0);
}

static void test_constant_values(void **state)
{
    (void)state;
    const struct effect_value same[] = {{0, 5}, {0, 5}, {0, 5}}, more[] = {{0, 6}, {0, 6}, {0, 6}};
    struct effect none = effect_of_values((struct effect_sample){same, 3, false},
                                          (struct effect_sample){same, 3, false}, 1),
                  slower = effect_of_values((struct effect_sample){same, 3, false},
                                            (struct effect_sample){more, 3, false}, 1);
    assert_true(covers(&none, 1) && none.ratio.ci_lo >= 1 && none.ratio.ci_hi <= 1);
    assert_true(effect_p_above(&none, 1.05) >= 1);
    assert_true(effect_p_above(&slower, 1.05) <= 0);
}

/* ---- what is not known ---- */

static void check_unknown(struct effect effect, bool has_value, const char *why)
{
    assert_int_equal(effect.ratio.known, has_value);
    assert_false(effect.ratio.bounded);
    assert_string_equal(effect.ratio.why, why);
}

static void test_unknown_says_why(void **state)
{
    (void)state;
    const struct effect_value two[] = {{0, 5}, {0, 6}}, one[] = {{0, 5}}, zero[] = {{0, 0}, {0, 0}, {0, 3}},
                              touches[] = {{0, 0}, {0, 3}, {0, 3}}, huge[] = {{0, 1e308}, {0, 1e308}},
                              tiny[] = {{0, 1e-300}, {0, 1e-300}};
    const struct effect_sample good = {two, 2, false};
    check_unknown(effect_of_values(good, (struct effect_sample){NULL, 0, false}, 1), false, "not_measured");
    check_unknown(effect_of_values((struct effect_sample){one, 1, false}, good, 1), true, "one_value");
    check_unknown(effect_of_values((struct effect_sample){two, 2, true}, good, 1), true, "one_process");
    check_unknown(effect_of_values((struct effect_sample){zero, 3, false}, good, 1), false, "no_time_seen");
    check_unknown(effect_of_values((struct effect_sample){touches, 3, false}, good, 1), true, "reaches_zero");
    check_unknown(
        effect_of_values((struct effect_sample){tiny, 2, false}, (struct effect_sample){huge, 2, false}, 1),
        false, "too_far_apart");
    const struct stats_estimate fine = {true, true, 100, 9, 98, 103, 0.96, "order_statistic", NULL},
                                single = {true, false, 100, 1, 0, 0, 0, NULL, "one_value"},
                                from_zero = {true, true, 100, 9, 0, 103, 0.96, "order_statistic", NULL},
                                nothing = stats_unknown("every_round_flagged"),
                                no_level = {true, true, 100, 9, 99, 101, 1e-12, "order_statistic", NULL};
    check_unknown(effect_of_estimates(&fine, &nothing), false, "every_round_flagged");
    check_unknown(effect_of_estimates(&single, &fine), true, "one_value");
    check_unknown(effect_of_estimates(&from_zero, &fine), true, "reaches_zero");
    check_unknown(effect_of_estimates(&no_level, &fine), true, "too_uncertain");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_cover),
        cmocka_unit_test(test_processes_cover),
        cmocka_unit_test(test_rounds_do_not_stand_for_processes),
        cmocka_unit_test(test_estimates_cover),
        cmocka_unit_test(test_mover_by_hand),
        cmocka_unit_test(test_low_levels_are_widened),
        cmocka_unit_test(test_p_fits_the_interval),
        cmocka_unit_test(test_same_seed_same_bytes),
        cmocka_unit_test(test_constant_values),
        cmocka_unit_test(test_unknown_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
