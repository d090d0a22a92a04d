/* thresholds: inside, outside, undecided; every metric that a sweep may name; from a sweep to the exit code, by the
 * store alone. */
#include "coordinator/plan/plan.h"
#include "coordinator/store/store.h"
#include "coordinator/summary/summary.h"
#include "coordinator/sweep/sweep.h"

#include "base/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- one figure against one threshold ---- */

#define WITHIN(lo, hi)                                                                                       \
    {                                                                                                        \
        true, true, ((lo) + (hi)) / 2, 9, lo, hi, 0.96, "order_statistic", NULL                              \
    }
#define BARE(value)                                                                                          \
    {                                                                                                        \
        true, false, value, 9, 0, 0, 0, NULL, NULL                                                           \
    }
#define UP_TO(most)                                                                                          \
    {                                                                                                        \
        false, true, 0, most                                                                                 \
    }
#define FROM(least)                                                                                          \
    {                                                                                                        \
        true, false, least, 0                                                                                \
    }
#define BETWEEN(least, most)                                                                                 \
    {                                                                                                        \
        true, true, least, most                                                                              \
    }

static void test_judge(void **state)
{
    static const struct {
        struct threshold threshold;
        struct stats_estimate figure;
        enum threshold_outcome outcome;
        const char *why;
    } table[] = {
        {UP_TO(10), WITHIN(8, 9), THRESHOLD_PASSED, NULL},
        {UP_TO(10), WITHIN(8, 10), THRESHOLD_PASSED, NULL}, /* a bound itself passes */
        {UP_TO(10), WITHIN(8, 10.1), THRESHOLD_UNDECIDED, "interval_spans_the_bound"},
        {UP_TO(10), WITHIN(10, 12), THRESHOLD_UNDECIDED, "interval_spans_the_bound"},
        {UP_TO(10), WITHIN(10.1, 12), THRESHOLD_FAILED, NULL},
        {FROM(10), WITHIN(10, 12), THRESHOLD_PASSED, NULL},
        {FROM(10), WITHIN(9.9, 12), THRESHOLD_UNDECIDED, "interval_spans_the_bound"},
        {FROM(10), WITHIN(8, 9.9), THRESHOLD_FAILED, NULL},
        {FROM(-1), WITHIN(-0.5, 3), THRESHOLD_PASSED, NULL},
        {BETWEEN(8, 10), WITHIN(8, 10), THRESHOLD_PASSED, NULL},
        {BETWEEN(8, 10), WITHIN(7, 12), THRESHOLD_UNDECIDED, "interval_spans_the_bound"},
        {BETWEEN(8, 10), WITHIN(5, 7.9), THRESHOLD_FAILED, NULL},
        {BETWEEN(8, 10), WITHIN(10.1, 11), THRESHOLD_FAILED, NULL},
        {UP_TO(10), BARE(10), THRESHOLD_PASSED, NULL},
        {UP_TO(10), BARE(10.1), THRESHOLD_FAILED, NULL},
        {FROM(10), BARE(9), THRESHOLD_FAILED, NULL},
        {UP_TO(10), {true, false, 1, 1, 0, 0, 0, NULL, "one_value"}, THRESHOLD_UNDECIDED, "one_value"},
        {UP_TO(10), {.why = "no_wait"}, THRESHOLD_UNDECIDED, "no_wait"},
        {UP_TO(10), {.known = false}, THRESHOLD_UNDECIDED, "not_known"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct threshold_result result = threshold_judge(&table[i].threshold, &table[i].figure);
        if (result.outcome != table[i].outcome)
            fail_msg("row %zu: outcome %d", i, result.outcome);
        if (table[i].why)
            assert_string_equal(result.why, table[i].why);
        else
            assert_null(result.why);
    }
}

static void test_every_metric_of_a_sweep_is_known(void **state)
{
    const struct sweep_word *words = sweep_expect_type.keys[SWEEP_EXPECT_METRIC].words;
    const struct summary_cell cell = {.rounds = 9};
    struct stats_estimate figure;
    (void)state;
    assert_non_null(words);
    for (; words->name; words++)
        if (!words->later && !summary_find_metric(&cell, words->name, &figure))
            fail_msg("%s", words->name);
    assert_false(summary_find_metric(&cell, "wall_us", &figure));
}

static void test_over_ideal_is_as_sure_as_its_p50(void **state)
{
    struct summary_cell cell = {.rounds = 9};
    struct stats_estimate figure;
    (void)state;
    cell.wall_ns.p50 = (struct stats_estimate){true, true, 105, 9, 102, 110, 0.96, "order_statistic", NULL};
    cell.ideal_wall_ns = (struct summary_figure){true, 100, NULL};
    cell.over_ideal_x = (struct summary_figure){true, 1.05, NULL};
    assert_true(summary_find_metric(&cell, "over_ideal_x", &figure));
    assert_true(figure.bounded);
    assert_true(fabs(figure.value - 1.05) < 1e-12 && fabs(figure.ci_lo - 1.02) < 1e-12 &&
                fabs(figure.ci_hi - 1.1) < 1e-12);
    cell.over_ideal_x = (struct summary_figure){.why = "no_wait"};
    assert_true(summary_find_metric(&cell, "over_ideal_x", &figure));
    assert_false(figure.known);
    assert_string_equal(figure.why, "no_wait");
}

/* ---- a run with known values ---- */

#define BLOCKS 9

/* Wall of block b: 1 ms + b us, so that the interval of nine is 1.001 to 1.007 ms and the median 1.004 ms. */
static struct wire_round make_round(const struct plan *plan, int64_t cell, int64_t block)
{
    struct wire_round round;
    wire_round_init(&round);
    round.cell = cell;
    round.block = block;
    round.start_ns = 1000000 * (block + 1);
    round.wall_ns = 1000000 + 1000 * ((block * 4) % BLOCKS); /* no drift */
    round.cpu_ns = plan->cells[cell].harness ? 1000 : 60000 + 10 * ((block * 4) % BLOCKS);
    round.fanouts = 1;
    round.wakeups = 4;
    round.max_in_flight = 4;
    return round;
}

static void put_rounds(struct store *store, const struct plan *plan, int64_t group)
{
    struct error err = {0};
    struct wire_round rounds[128];
    struct wire_result result = {.group = group, .attempt = 1, .last = true, .rounds = rounds};
    for (int64_t i = 0; i < plan->groups[group].cell_count; i++)
        for (int64_t block = 0; block < BLOCKS; block++)
            rounds[result.round_count++] = make_round(plan, plan->groups[group].cells[i], block);
    bool fresh;
    for (int64_t worker = 0; worker < plan->groups[group].cores; worker++)
        if (store_put_result(store, worker, &result, &fresh, &err) < 0)
            fail_msg("%s", err.text);
    assert_int_equal(store_finish_group(store, group, 1, &err), 0);
}

static void put_workers(struct store *store)
{
    static char word[] = "libuv";
    struct error err = {0};
    for (int64_t worker = 0; worker < 2; worker++) {
        const struct wire_hello hello = {
            .instance = word, .runtime = word, .label = word, .host = word, .slot = worker, .cpu = worker};
        if (store_put_worker(store, worker, &hello, &err) < 0)
            fail_msg("%s", err.text);
    }
}

/* groups: how many of them are measured. */
static void fill(struct store *store, const char *text, const char *status, int64_t groups)
{
    struct error err = {0};
    struct sweep *sweep = NULL;
    struct plan *plan = NULL;
    struct sweep_mistakes mistakes = {0};
    if (sweep_parse("s.yaml", text, strlen(text), (struct sweep_settings){0}, &sweep, &mistakes) < 0)
        fail_msg("%s", sweep_mistakes_text(&mistakes));
    if (plan_make(sweep, 2, &plan, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(store_put_plan(store, plan, &err), 0);
    assert_int_equal(store_put_fact(store, "sweep", sweep->canonical, &err), 0);
    assert_int_equal(store_put_fact(store, "elapsed_ns", "252400000000", &err), 0);
    assert_int_equal(store_put_fact(store, "status", status, &err), 0);
    put_workers(store);
    for (int64_t group = 0; group < plan->group_count && group < groups; group++)
        put_rounds(store, plan, group);
    sweep_mistakes_release(&mistakes);
    plan_free(plan);
    sweep_free(sweep);
}

static struct summary *run_of(const char *text, const char *status, int64_t groups)
{
    struct error err = {0};
    struct store *store;
    struct summary *summary = NULL;
    char root[] = "/tmp/corefan-threshold-XXXXXX";
    assert_non_null(mkdtemp(root));
    scoped_free char *dir = memory_format("%s/run", root), *remove = memory_format("rm -rf '%s'", root);
    if (store_create(dir, &store, &err) < 0)
        fail_msg("%s", err.text);
    fill(store, text, status, groups);
    store_close(store);
    if (store_open(dir, STORE_READ, &store, &err) < 0 || summary_build(store, &summary, &err) < 0)
        fail_msg("%s", err.text);
    store_close(store);
    assert_int_equal(system(remove), 0);
    return summary;
}

#define MATRIX                                                                                               \
    "name: t\nrounds: 9\narms: [sequential, gather]\nmatrix:\n- {job: sleep, fanout: 4, delay: 1ms, cores: " \
    "[1, "                                                                                                   \
    "all]}\n"

static void check_exit(const char *expect, enum error_kind kind, size_t rows)
{
    scoped_free char *text = memory_format(MATRIX "%s", expect);
    struct summary *summary = run_of(text, "complete", 2);
    if (summary_exit_kind(summary) != kind || summary->threshold_count != rows)
        fail_msg("%s: kind %d, %zu rows", expect, summary_exit_kind(summary), summary->threshold_count);
    summary_free(summary);
}

static void test_from_sweep_to_exit_code(void **state)
{
    (void)state;
    check_exit("", ERROR_NONE, 0);
    check_exit("expect: [{arm: gather, metric: over_ideal_x, max: 1.05}]\n", ERROR_NONE, 2);
    check_exit("expect: [{arm: gather, cores: all, metric: over_ideal_x, max: 1.05}]\n", ERROR_NONE, 1);
    check_exit("expect: [{arm: gather, cores: 1, metric: wall_ns, max: 1005us}]\n", ERROR_INCONCLUSIVE, 1);
    check_exit("expect: [{arm: gather, cores: 1, metric: wall_ns, min: 1001us, max: 1007us}]\n", ERROR_NONE,
               1);
    check_exit("expect: [{arm: gather, cores: 1, metric: wall_ns, max: 1ms}]\n", ERROR_FAILED, 1);
    check_exit("expect: [{metric: max_in_flight, max: 4}]\n", ERROR_NONE, 4);
    check_exit("expect: [{metric: wall_ns.max, max: 1007us}]\n", ERROR_FAILED, 4);
    check_exit("expect: [{metric: ceiling_per_s_core, min: 1}]\n", ERROR_INCONCLUSIVE, 4); /* it waits */
    /* one that fails weighs more than one that is open */
    check_exit("expect: [{metric: wall_ns, max: 1005us}, {metric: cpu_ns, max: 1us}]\n", ERROR_FAILED, 8);
    check_exit("expect: [{metric: cpu_ns, max: 61us}, {metric: wall_ns, max: 1005us}]\n", ERROR_INCONCLUSIVE,
               8);
}

static void test_conditions_as_written(void **state)
{
    (void)state;
    struct summary *summary = run_of(MATRIX "expect:\n- {arm: [gather, sequential], cores: all, delay: "
                                            "1000us, metric: cpu_ns, min: 1us, max: 20us}\n"
                                            "- {metric: speedup_x, min: 0.5}\n",
                                     "complete", 2);
    assert_int_equal(summary->condition_count, 2);
    assert_string_equal(summary->conditions[0].text, "delay: 1ms, arm: [gather, sequential], cores: all, "
                                                     "metric: cpu_ns, min: 1000, max: 20000");
    assert_string_equal(summary->conditions[1].text, "metric: speedup_x, min: 0.5");
    assert_int_equal(summary->conditions_failed, 1);
    assert_int_equal(summary->conditions_undecided, 0);
    assert_int_equal(summary->conditions[0].outcomes[THRESHOLD_FAILED], 2);
    assert_int_equal(summary->conditions[1].outcomes[THRESHOLD_PASSED], 4);
    assert_true(summary->elapsed_ns.known && summary->elapsed_ns.value > 2.5e11);
    summary_free(summary);
}

static void test_what_weighs_most(void **state)
{
    static const char fails[] = MATRIX "expect: [{metric: cpu_ns, max: 1us}]\n";
    (void)state;
    struct summary *summary = run_of(fails, "complete", 1); /* the second group was not measured */
    assert_int_equal(summary_exit_kind(summary), ERROR_INCOMPLETE);
    assert_int_equal(summary->conditions_failed, 1);
    size_t open = 0;
    for (size_t i = 0; i < summary->threshold_count; i++)
        if (summary->thresholds[i].outcome == THRESHOLD_UNDECIDED) {
            assert_string_equal(summary->thresholds[i].why, "cell_incomplete");
            open++;
        }
    assert_int_equal(open, 2);
    summary_free(summary);
    summary = run_of(fails, "interrupted", 1);
    assert_int_equal(summary_exit_kind(summary), ERROR_INTERRUPTED);
    summary_free(summary);
}

static void test_a_stored_sweep_that_cannot_be_read(void **state)
{
    struct error err = {0};
    struct store *store;
    struct summary *summary;
    char root[] = "/tmp/corefan-threshold-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(root));
    scoped_free char *dir = memory_format("%s/run", root), *remove = memory_format("rm -rf '%s'", root);
    assert_int_equal(store_create(dir, &store, &err), 0);
    assert_int_equal(store_put_fact(store, "sweep", "{\"expect\": 7, \"nonsense\": []}", &err), 0);
    assert_int_equal(summary_build(store, &summary, &err), -1);
    assert_non_null(strstr(err.text, "cannot read the sweep that the run keeps: "));
    assert_null(strchr(err.text, '\n'));
    store_close(store);
    assert_int_equal(system(remove), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_judge),
        cmocka_unit_test(test_every_metric_of_a_sweep_is_known),
        cmocka_unit_test(test_over_ideal_is_as_sure_as_its_p50),
        cmocka_unit_test(test_from_sweep_to_exit_code),
        cmocka_unit_test(test_conditions_as_written),
        cmocka_unit_test(test_what_weighs_most),
        cmocka_unit_test(test_a_stored_sweep_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
