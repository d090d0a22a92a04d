/* precision: the rule of rounds: auto, look by look. */
#include "coordinator/stats/precision.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_close(double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("got %.17g, expected %.17g", got, expected);
}

static void test_precision_is_half_the_interval_over_the_p50(void **state)
{
    (void)state;
    struct stats_estimate p50 = {.known = true, .bounded = true, .value = 200, .ci_lo = 190, .ci_hi = 220};
    assert_close(precision_of(&p50), 0.075, 1e-12);
    p50.bounded = false;
    assert_true(isinf(precision_of(&p50)));
    p50 = (struct stats_estimate){.known = true, .bounded = true, .value = 0, .ci_lo = -1, .ci_hi = 1};
    assert_true(isinf(precision_of(&p50)));
    p50 = stats_unknown("no_values");
    assert_true(isinf(precision_of(&p50)));
}

static void test_needs_grow_with_the_square(void **state)
{
    (void)state;
    assert_int_equal(precision_needed(10, 0.06, 0.02), 90);
    assert_int_equal(precision_needed(100, 0.021, 0.02), 111); /* 110.25 */
    assert_int_equal(precision_needed(10, 0.01, 0.02), 10);
    assert_int_equal(precision_needed(10, INFINITY, 0.02), INT64_MAX);
    assert_int_equal(precision_needed(1000, 1e9, 1e-9), INT64_MAX);
}

static int64_t next(int64_t blocks, double achieved, int64_t block_ns, int64_t left_ns)
{
    const struct precision_state state = {blocks, 1000, achieved, 0.02, block_ns, left_ns};
    return precision_next(&state);
}

static void test_batches(void **state)
{
    (void)state;
    static const struct {
        int64_t blocks;
        double achieved;
        int64_t block_ns, left_ns, next;
    } cases[] = {
        {10, 0.02, 1, INT64_MAX, 10},       /* precise enough: at the bound, too */
        {10, 0.0200001, 1, INT64_MAX, 12},  /* a quarter at least */
        {100, 0.023, 1, INT64_MAX, 133},    /* what it needs: 132.25 */
        {100, 0.2, 1, INT64_MAX, 200},      /* at most twice as many */
        {100, INFINITY, 1, INT64_MAX, 200}, /* a p50 of 0 is never precise */
        {700, 0.2, 1, INT64_MAX, 1000},     /* up to the most */
        {1000, 0.2, 1, INT64_MAX, 1000},    /* and no further */
        {100, 0.2, 10, 305, 130},           /* as many as the time allows */
        {100, 0.2, 10, 9, 100},             /* not one more fits */
        {100, 0.2, 10, -50, 100},           /* the time is over */
        {100, 0.2, 0, INT64_MAX, 200},      /* a clock that stood still */
        {2, 0.2, 1, INT64_MAX, 4},          /* fewer than four still grow */
        {1, 0.2, 1, INT64_MAX, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(next(cases[i].blocks, cases[i].achieved, cases[i].block_ns, cases[i].left_ns),
                         cases[i].next);
}

static void test_every_series_ends(void **state)
{
    (void)state;
    int looks = 0;
    for (int64_t blocks = 10, after; (after = next(blocks, 0.5, 1, INT64_MAX)) != blocks; blocks = after) {
        assert_true(after > blocks && after <= 1000);
        looks++;
    }
    assert_int_equal(looks, 7); /* 10, 20, 40, ... 640, 1000 */
}

static void test_the_first_batch(void **state)
{
    (void)state;
    assert_int_equal(precision_first(1000, 5, INT64_MAX), 10);
    assert_int_equal(precision_first(1000, 5, 40), 8);
    assert_int_equal(precision_first(1000, 5, 20), 6); /* fewer have no interval at 95 % */
    assert_int_equal(precision_first(1000, 5, -20), 6);
    assert_int_equal(precision_first(4, 5, INT64_MAX), 4);
    struct stats_ranks ranks;
    assert_true(stats_quantile_ranks(PRECISION_LEAST_BLOCKS, 0.5, &ranks));
    assert_false(stats_quantile_ranks(PRECISION_LEAST_BLOCKS - 1, 0.5, &ranks));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_precision_is_half_the_interval_over_the_p50),
        cmocka_unit_test(test_needs_grow_with_the_square),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_every_series_ends),
        cmocka_unit_test(test_the_first_batch),
    };
    return cmocka_run_group_tests_name("precision", tests, NULL, NULL);
}
