/* base: errors, units, random numbers. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void errors_carry_text_and_exit_code(void **state)
{
    (void)state;
    struct error err = {0};
    assert_int_equal(error_set(&err, ERROR_USAGE, "unknown key '%s'", "fanouts"), -1);
    assert_int_equal(error_prefix(&err, "lab.yaml:%d:%d", 7, 3), -1);
    assert_string_equal(err.text, "lab.yaml:7:3: unknown key 'fanouts'");
    assert_int_equal(error_exit_code(err.kind), 2);
    assert_int_equal(error_exit_code(ERROR_NONE), 0);
    assert_int_equal(error_exit_code(ERROR_INTERNAL), 1);
    assert_int_equal(error_exit_code(ERROR_INCOMPLETE), 3);
    assert_int_equal(error_exit_code(ERROR_INCONCLUSIVE), 98);
    assert_int_equal(error_exit_code(ERROR_FAILED), 99);
    assert_int_equal(error_exit_code(ERROR_INTERRUPTED), 130);
    assert_int_equal(error_exit_code((enum error_kind)77), 1);
    assert_int_equal(error_set(NULL, ERROR_USAGE, "x"), -1);
}

static void error_text_is_cut_not_overrun(void **state)
{
    (void)state;
    struct error err = {0};
    char long_text[4000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    error_set(&err, ERROR_USAGE, "%s", long_text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    error_prefix(&err, "where");
    assert_int_equal(strncmp(err.text, "where: xxx", 10), 0);
    assert_true(strlen(err.text) < sizeof err.text);
}

static void durations_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
    } good[] = {{"5ms", 5000000},
                {"0ns", 0},
                {"1.5s", 1500000000},
                {"250us", 250000},
                {"2m", 120 * NS_PER_S},
                {"1h", 3600 * NS_PER_S},
                {"0.000000001s", 1},
                {"292y", -1},
                {"5", -1},
                {"", -1},
                {"ms", -1},
                {"-5ms", -1},
                {"+5ms", -1},
                {"5 ms", -1},
                {"1e3ms", -1},
                {"nan", -1},
                {"infs", -1},
                {"0.5ns", -1},
                {".5ms", -1},
                {"5.ms", -1},
                {"9223372036854775807ns", INT64_MAX},
                {"9223372037s", -1},
                {"99999999999999999999ns", -1},
                {"1.0000000000001s", -1}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t ns = -77;
        const char *why = NULL;
        int rc = units_parse_duration(good[i].text, &ns, &why);
        if (good[i].ns >= 0) {
            assert_int_equal(rc, 0);
            assert_int_equal(ns, good[i].ns);
        } else {
            assert_int_equal(rc, -1);
            assert_int_equal(ns, -77);
            assert_non_null(why);
        }
    }
}

static void rates_and_counts_are_read(void **state)
{
    (void)state;
    double rate = 0;
    int64_t count = 0;
    assert_int_equal(units_parse_rate("50k/s", &rate, NULL), 0);
    assert_true(rate == 50000);
    assert_int_equal(units_parse_rate("2.5M/s", &rate, NULL), 0);
    assert_true(rate == 2.5e6);
    assert_int_equal(units_parse_rate("0/s", &rate, NULL), -1);
    assert_int_equal(units_parse_rate("5", &rate, NULL), -1);
    assert_int_equal(units_parse_rate("nan/s", &rate, NULL), -1);
    assert_int_equal(units_parse_count("10k", &count, NULL), 0);
    assert_int_equal(count, 10000);
    assert_int_equal(units_parse_count("1.5", &count, NULL), -1);
    assert_int_equal(units_parse_count("1.5k", &count, NULL), 0);
    assert_int_equal(count, 1500);
}

static void durations_are_written(void **state)
{
    (void)state;
    char buf[32];
    assert_string_equal(units_format_duration(buf, sizeof buf, 415e6), "415 ms");
    assert_string_equal(units_format_duration(buf, sizeof buf, 8870), "8.87 us");
    assert_string_equal(units_format_duration(buf, sizeof buf, 20700), "20.7 us");
    assert_string_equal(units_format_duration(buf, sizeof buf, 0.31), "0.31 ns");
    assert_string_equal(units_format_duration(buf, sizeof buf, 999.7), "1.00 us");
    assert_string_equal(units_format_duration(buf, sizeof buf, 99.97), "100 ns");
    assert_string_equal(units_format_duration(buf, sizeof buf, -2.4e9), "-2.40 s");
    assert_string_equal(units_format_duration(buf, sizeof buf, 0), "0 ns");
    assert_string_equal(units_exact_duration(buf, sizeof buf, 1500000), "1500us");
    assert_string_equal(units_exact_duration(buf, sizeof buf, 5000000), "5ms");
    assert_string_equal(units_exact_duration(buf, sizeof buf, 0), "0ns");
    assert_string_equal(units_format_count(buf, sizeof buf, 1234567), "1,234,567");
    assert_string_equal(units_format_count(buf, sizeof buf, -123456), "-123,456");
    assert_string_equal(units_format_count(buf, sizeof buf, 999), "999");
}

static void exact_durations_read_back(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(3);
    for (int i = 0; i < 10000; i++) {
        char buf[48];
        int64_t ns = (int64_t)(rng_next(&rng) >> (1 + rng_below(&rng, 62)));
        int64_t back = -1;
        units_exact_duration(buf, sizeof buf, ns);
        assert_int_equal(units_parse_duration(buf, &back, NULL), 0);
        assert_int_equal(back, ns);
    }
}

static void random_numbers_are_those_of_splitmix64(void **state)
{
    (void)state;
    /* first outputs for seed 1234567, as printed by the reference implementation of the paper */
    static const uint64_t expected[] = {6457827717110365317ULL, 3203168211198807973ULL,
                                        9817491932198370423ULL};
    struct rng rng = rng_seeded(1234567);
    for (size_t i = 0; i < 3; i++)
        assert_true(rng_next(&rng) == expected[i]);
}

static void shuffles_are_permutations_and_even(void **state)
{
    (void)state;
    enum { n = 4, draws = 24000 };
    int at_front[n] = {0};
    struct rng rng = rng_stream(9, 1);
    for (int d = 0; d < draws; d++) {
        uint32_t items[n] = {0, 1, 2, 3};
        unsigned seen = 0;
        rng_shuffle(&rng, items, n);
        for (int i = 0; i < n; i++)
            seen |= 1u << items[i];
        assert_int_equal(seen, 15);
        at_front[items[0]]++;
    }
    for (int i = 0; i < n; i++) /* 6,000 expected, standard deviation 67 */
        assert_in_range(at_front[i], 5600, 6400);
}

static void memory_keeps_text(void **state)
{
    (void)state;
    scoped_free char *text = memory_format("%s-%d", "a", 7);
    scoped_free char *copy = memory_text(text);
    assert_string_equal(copy, "a-7");
    assert_null(memory_text(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_carry_text_and_exit_code),
        cmocka_unit_test(error_text_is_cut_not_overrun),
        cmocka_unit_test(durations_are_read),
        cmocka_unit_test(rates_and_counts_are_read),
        cmocka_unit_test(durations_are_written),
        cmocka_unit_test(exact_durations_read_back),
        cmocka_unit_test(random_numbers_are_those_of_splitmix64),
        cmocka_unit_test(shuffles_are_permutations_and_even),
        cmocka_unit_test(memory_keeps_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
