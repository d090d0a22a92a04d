/* calibrate: the two rules, against costs that are made up. */
#include "base/clock.h"
#include "worker/calibrate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A fan-out that costs `unit_ns`, and more from `bend` loops on; every call is counted. */
struct fake {
    double unit_ns, bent_ns;
    int64_t bend;
    int64_t calls, stop_after;
    int64_t largest;
    const int64_t *noise_ns; /* added to the calls after the doubling, one after another */
    int64_t noise_count, noisy_from, noisy_calls;
};

static int64_t fake_cost(void *context, int64_t loops)
{
    struct fake *fake = context;
    if (fake->stop_after > 0 && fake->calls == fake->stop_after)
        return -1;
    fake->calls++;
    if (loops > fake->largest)
        fake->largest = loops;
    double ns = fake->unit_ns * (double)loops;
    if (fake->bend > 0 && loops > fake->bend)
        ns += (fake->bent_ns - fake->unit_ns) * (double)(loops - fake->bend);
    int64_t noise_ns = 0;
    if (fake->noisy_from > 0 && loops >= fake->noisy_from && fake->noisy_calls++ > 0)
        noise_ns = fake->noise_ns[(fake->noisy_calls - 2) % fake->noise_count];
    return (int64_t)ns + noise_ns;
}

static void loops_double_until_the_threshold(void **state)
{
    (void)state;
    struct fake fake = {.unit_ns = 40};
    struct calibration found;
    assert_int_equal(calibrate(fake_cost, &fake, 10 * NS_PER_MS, &found), 0);
    assert_int_equal(found.loops, 262144); /* 131,072 x 40 ns = 5.2 ms; twice that is over 10 ms */
    assert_true(found.stable);
    assert_int_equal(fake.largest, 2 * found.loops);
    assert_int_equal(fake.calls, 19 + 6);
}

static void what_is_long_enough_is_not_looped(void **state)
{
    (void)state;
    struct fake fake = {.unit_ns = 12e6};
    struct calibration found;
    assert_int_equal(calibrate(fake_cost, &fake, 10 * NS_PER_MS, &found), 0);
    assert_int_equal(found.loops, 1);
    assert_true(found.stable);
}

static void one_outlier_of_three_does_no_harm(void **state)
{
    (void)state;
    static const int64_t noise_ns[] = {0, 9000000, 0};
    struct fake fake = {.unit_ns = 40, .noisy_from = 262144, .noise_ns = noise_ns, .noise_count = 3};
    struct calibration found;
    assert_int_equal(calibrate(fake_cost, &fake, 10 * NS_PER_MS, &found), 0);
    assert_true(found.stable);
    assert_int_equal(found.loops, 262144);
}

static void a_cost_that_settles_gets_a_second_try(void **state)
{
    (void)state;
    static const int64_t noise_ns[] = {900000, 900000, 900000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    struct fake fake = {.unit_ns = 40, .noisy_from = 262144, .noise_ns = noise_ns, .noise_count = 18};
    struct calibration found;
    assert_int_equal(calibrate(fake_cost, &fake, 10 * NS_PER_MS, &found), 0);
    assert_true(found.stable);
    assert_int_equal(found.loops, 524288);
}

static void a_cost_that_depends_on_the_loops_is_flagged(void **state)
{
    (void)state;
    struct fake fake = {.unit_ns = 40, .bend = 100000, .bent_ns = 80};
    struct calibration found;
    assert_int_equal(calibrate(fake_cost, &fake, 10 * NS_PER_MS, &found), 0);
    assert_false(found.stable);
}

static void two_per_cent_is_the_border(void **state)
{
    (void)state;
    struct calibration found;
    /* L = 262144, all at 40 ns; the other 262144 at 40 x (1 + 2 x tolerance) */
    struct fake within = {.unit_ns = 40, .bend = 262144, .bent_ns = 40 * 1.038};
    assert_int_equal(calibrate(fake_cost, &within, 10 * NS_PER_MS, &found), 0);
    assert_true(found.stable);
    assert_int_equal(found.loops, 262144);
    struct fake beyond = {.unit_ns = 40, .bend = 262144, .bent_ns = 40 * 1.042};
    assert_int_equal(calibrate(fake_cost, &beyond, 10 * NS_PER_MS, &found), 0);
    assert_int_equal(found.loops, 524288); /* not at the first try */
}

static void a_stop_ends_it(void **state)
{
    (void)state;
    for (int64_t stop = 1; stop < 25; stop++) {
        struct fake fake = {.unit_ns = 40, .stop_after = stop};
        struct calibration found = {.loops = -7};
        assert_int_equal(calibrate(fake_cost, &fake, 10 * NS_PER_MS, &found), -1);
        assert_int_equal(fake.calls, stop);
        assert_int_equal(found.loops, -7);
    }
}

static void a_cost_of_nothing_ends_too(void **state)
{
    (void)state;
    struct fake fake = {.unit_ns = 0};
    struct calibration found;
    assert_int_equal(calibrate(fake_cost, &fake, 10 * NS_PER_MS, &found), 0);
    assert_true(found.loops >= INT64_C(1) << 30);
}

static void the_threshold_covers_the_clock(void **state)
{
    (void)state;
    assert_int_equal(calibrate_threshold_ns(660 * 1000), 10 * NS_PER_MS);
    assert_int_equal(calibrate_threshold_ns(25 * 1000 * 1000), 25 * NS_PER_MS); /* 25 us a read */
}

static enum warmup_verdict feed(struct warmup *warmup, int64_t value_ns, int64_t faults, int64_t at_least)
{
    warmup_add(warmup, value_ns, value_ns, faults);
    return warmup_judge(warmup, at_least);
}

static void warmup_takes_at_least_what_was_asked_for(void **state)
{
    (void)state;
    struct warmup warmup = {0};
    for (int i = 0; i < 8; i++)
        assert_int_equal(feed(&warmup, NS_PER_S / 100, 0, 9), WARMUP_MORE);
    assert_int_equal(feed(&warmup, NS_PER_S / 100, 0, 9), WARMUP_DONE);
}

static void cheap_rounds_fill_the_window(void **state)
{
    (void)state;
    struct warmup warmup = {0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(feed(&warmup, 1000, 0, 0), WARMUP_MORE);
    assert_int_equal(feed(&warmup, 1000, 0, 0), WARMUP_DONE);
}

static void slow_rounds_do_not(void **state)
{
    (void)state;
    struct warmup warmup = {0};
    assert_int_equal(feed(&warmup, NS_PER_S, 0, 2), WARMUP_MORE);
    assert_int_equal(feed(&warmup, NS_PER_S, 0, 2), WARMUP_DONE);
}

static void faults_ask_for_more(void **state)
{
    (void)state;
    struct warmup warmup = {0};
    for (int i = 0; i < 7; i++)
        assert_int_equal(feed(&warmup, 1000, 1, 0), WARMUP_MORE);
    assert_int_equal(feed(&warmup, 1000, 0, 0), WARMUP_DONE);
}

static void a_first_value_that_sticks_out_asks_for_more(void **state)
{
    (void)state;
    struct warmup warmup = {0};
    assert_int_equal(feed(&warmup, 5000, 0, 0), WARMUP_MORE);
    for (int i = 0; i < 3; i++)
        assert_int_equal(feed(&warmup, 1000 + i, 0, 0), WARMUP_MORE);
    assert_int_equal(feed(&warmup, 1003, 0, 0), WARMUP_MORE); /* 5000 is the first of the five */
    assert_int_equal(feed(&warmup, 1001, 0, 0), WARMUP_DONE); /* and has left */
}

static void a_first_value_below_the_rest_is_fine(void **state)
{
    (void)state;
    struct warmup warmup = {0};
    assert_int_equal(feed(&warmup, 10, 0, 0), WARMUP_MORE);
    for (int i = 0; i < 3; i++)
        (void)feed(&warmup, 1000 + i, 0, 0);
    assert_int_equal(feed(&warmup, 1003, 0, 0), WARMUP_DONE);
}

static void what_never_settles_ends_unconverged(void **state)
{
    (void)state;
    struct warmup cheap = {0}, dear = {0};
    for (int i = 0; i < warmup_cap - 1; i++)
        assert_int_equal(feed(&cheap, 1000, 1, 0), WARMUP_MORE);
    assert_int_equal(feed(&cheap, 1000, 1, 0), WARMUP_UNCONVERGED);
    assert_int_equal(feed(&dear, 1500 * NS_PER_MS, 1, 1), WARMUP_MORE);
    assert_int_equal(feed(&dear, 1500 * NS_PER_MS, 1, 1), WARMUP_UNCONVERGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_double_until_the_threshold),
        cmocka_unit_test(what_is_long_enough_is_not_looped),
        cmocka_unit_test(one_outlier_of_three_does_no_harm),
        cmocka_unit_test(a_cost_that_settles_gets_a_second_try),
        cmocka_unit_test(a_cost_that_depends_on_the_loops_is_flagged),
        cmocka_unit_test(two_per_cent_is_the_border),
        cmocka_unit_test(a_stop_ends_it),
        cmocka_unit_test(a_cost_of_nothing_ends_too),
        cmocka_unit_test(the_threshold_covers_the_clock),
        cmocka_unit_test(warmup_takes_at_least_what_was_asked_for),
        cmocka_unit_test(cheap_rounds_fill_the_window),
        cmocka_unit_test(slow_rounds_do_not),
        cmocka_unit_test(faults_ask_for_more),
        cmocka_unit_test(a_first_value_that_sticks_out_asks_for_more),
        cmocka_unit_test(a_first_value_below_the_rest_is_fine),
        cmocka_unit_test(what_never_settles_ends_unconverged),
    };
    return cmocka_run_group_tests_name("calibrate", tests, NULL, NULL);
}
