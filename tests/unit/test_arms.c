/* Arms and jobs as the measuring side uses them; what each arm means is held by tests/conformance. */
#include "base/clock.h"
#include "worker/arms/arm.h"
#include "worker/jobs/job.h"
#include "worker/runtime/repeat.h"
#include "worker/runtime/timeout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <uv.h>

#include <cmocka.h>

struct cell {
    struct runtime runtime;
    struct fanout *fanout;
    struct job_children *children;
    const struct arm *arm;
};

static void cell_open(struct cell *cell, const char *arm, const char *job, uint32_t count,
                      const struct job_config *config)
{
    struct error err;
    runtime_init_virtual(&cell->runtime);
    cell->arm = arm_find(arm);
    assert_non_null(cell->arm);
    assert_int_equal(fanout_new(count, &cell->fanout, &err), 0);
    fanout_bind(cell->fanout, cell->arm->resume);
    assert_int_equal(job_open(job_find(job), &cell->runtime, cell->fanout, config, &cell->children, &err), 0);
}

static void cell_close(struct cell *cell)
{
    job_close(cell->children);
    fanout_free(cell->fanout);
}

static struct outcome launch(struct cell *cell, uint64_t times)
{
    struct repeat repeat;
    struct outcome outcome = {OUTCOME_FAIL, -1};
    repeat_init(&repeat, &cell->fanout->coro, times);
    assert_int_equal(repeat_run(&cell->runtime, &repeat, &outcome, NULL), 0);
    return outcome;
}

static void test_tables_are_sound(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(arm_check(&err), 0);
    assert_int_equal(job_check(&err), 0);
    assert_null(arm_find("gathers"));
    assert_null(job_find(""));
    assert_null(arm_at(arm_count()));
    assert_null(job_at(job_count()));
}

static void test_in_flight_is_what_the_arm_claims(void **state)
{
    (void)state;
    struct job_config config = {.delay_ns = NS_PER_MS};
    for (size_t a = 0; a < arm_count(); a++) {
        struct cell cell;
        cell_open(&cell, arm_at(a)->name, "sleep", 25, &config);
        assert_int_equal(launch(&cell, 3).kind, OUTCOME_OK);
        uint64_t want = cell.arm->harness ? 0 : cell.arm->concurrent ? 25 : 1;
        assert_int_equal(cell.fanout->siblings.max_in_flight, want);
        assert_int_equal(fanout_in_flight(cell.fanout), 0);
        assert_int_equal(cell.runtime.waits.count, cell.arm->harness ? 0 : 75);
        assert_int_equal(runtime_now(&cell.runtime), want == 0   ? 0
                                                     : want == 1 ? 75 * NS_PER_MS
                                                                 : 3 * NS_PER_MS);
        cell_close(&cell);
    }
}

static void test_a_million_children_in_a_row(void **state)
{
    (void)state;
    struct cell cell;
    struct job_config config = {0};
    cell_open(&cell, "sequential", "noop", 1000000, &config);
    assert_int_equal(launch(&cell, 1).kind, OUTCOME_OK);
    assert_int_equal(cell.runtime.turns, 1);
    cell_close(&cell);
}

struct policy {
    const char *arm;
    enum outcome_kind kind;
    uint64_t orphans, seen, lost;
    int64_t return_ms, drain_ms;
};

enum { ARMS = 5 };

/* 4 children of 10 ms.  What the caller is told and when, what still runs then, and until when. */
struct scenario {
    const char *name;
    struct job_failure failure;
    int64_t timeout_ms; /* 0: none */
    struct policy policies[ARMS];
};

#define FAILING(failing, ending, reaction)                                                                   \
    {                                                                                                        \
        .children = (failing), .at_ns = 2 * NS_PER_MS, .end = (ending), .on_cancel = (reaction),             \
        .cleanup_ns = 3 * NS_PER_MS                                                                          \
    }

static const struct scenario scenarios[] = {
    {"the first two fail after 2 ms",
     FAILING(2, LEAF_FAIL, LEAF_PROPAGATE),
     0,
     {{"sequential", OUTCOME_FAIL, 0, 1, 0, 2, 2},
      {"tasks", OUTCOME_FAIL, 2, 1, 1, 2, 10},
      {"gather", OUTCOME_FAIL, 2, 1, 1, 2, 10},
      {"gather-return-exceptions", OUTCOME_OK, 0, 2, 0, 10, 10},
      {"taskgroup", OUTCOME_GROUP, 0, 2, 0, 2, 2}}},
    {"the first cancels itself after 2 ms",
     FAILING(1, LEAF_CANCEL_SELF, LEAF_PROPAGATE),
     0,
     {{"sequential", OUTCOME_CANCELLED, 0, 0, 0, 2, 2},
      {"tasks", OUTCOME_CANCELLED, 3, 0, 0, 2, 10},
      {"gather", OUTCOME_CANCELLED, 3, 0, 0, 2, 10},
      {"gather-return-exceptions", OUTCOME_OK, 0, 0, 0, 10, 10},
      {"taskgroup", OUTCOME_OK, 0, 0, 0, 10, 10}}},
    {"the others swallow a cancel",
     FAILING(1, LEAF_FAIL, LEAF_SUPPRESS),
     0,
     {{"sequential", OUTCOME_FAIL, 0, 1, 0, 2, 2},
      {"tasks", OUTCOME_FAIL, 3, 1, 0, 2, 10},
      {"gather", OUTCOME_FAIL, 3, 1, 0, 2, 10},
      {"gather-return-exceptions", OUTCOME_OK, 0, 1, 0, 10, 10},
      {"taskgroup", OUTCOME_GROUP, 0, 1, 0, 2, 2}}},
    {"the others clean up for 3 ms when they are cancelled",
     FAILING(1, LEAF_FAIL, LEAF_CLEANUP),
     0,
     {{"sequential", OUTCOME_FAIL, 0, 1, 0, 2, 2},
      {"tasks", OUTCOME_FAIL, 3, 1, 0, 2, 10},
      {"gather", OUTCOME_FAIL, 3, 1, 0, 2, 10},
      {"gather-return-exceptions", OUTCOME_OK, 0, 1, 0, 10, 10},
      {"taskgroup", OUTCOME_GROUP, 0, 1, 0, 5, 5}}},
    {"the caller has 5 ms",
     FAILING(0, LEAF_OK, LEAF_PROPAGATE),
     5,
     {{"sequential", OUTCOME_TIMEOUT, 0, 0, 0, 5, 5},
      {"tasks", OUTCOME_TIMEOUT, 3, 0, 0, 5, 10},
      {"gather", OUTCOME_TIMEOUT, 0, 0, 0, 5, 5},
      {"gather-return-exceptions", OUTCOME_TIMEOUT, 0, 0, 0, 5, 5},
      {"taskgroup", OUTCOME_TIMEOUT, 0, 0, 0, 5, 5}}},
    {"the caller has 5 ms, and two have failed by then",
     FAILING(2, LEAF_FAIL, LEAF_PROPAGATE),
     5,
     {{"sequential", OUTCOME_FAIL, 0, 1, 0, 2, 2},
      {"tasks", OUTCOME_FAIL, 2, 1, 1, 2, 10},
      {"gather", OUTCOME_FAIL, 2, 1, 1, 2, 10},
      {"gather-return-exceptions", OUTCOME_TIMEOUT, 0, 0, 2, 5, 5},
      {"taskgroup", OUTCOME_GROUP, 0, 2, 0, 2, 2}}},
    {"the caller has 5 ms, and children that swallow the cancel: those who await one child lose the timeout",
     FAILING(0, LEAF_OK, LEAF_SUPPRESS),
     5,
     {{"sequential", OUTCOME_OK, 0, 0, 0, 35, 35},
      {"tasks", OUTCOME_OK, 0, 0, 0, 10, 10},
      {"gather", OUTCOME_TIMEOUT, 0, 0, 0, 5, 5},
      {"gather-return-exceptions", OUTCOME_TIMEOUT, 0, 0, 0, 5, 5},
      {"taskgroup", OUTCOME_TIMEOUT, 0, 0, 0, 5, 5}}},
    {"the caller has 5 ms, and children that clean up for 3 ms",
     FAILING(0, LEAF_OK, LEAF_CLEANUP),
     5,
     {{"sequential", OUTCOME_TIMEOUT, 0, 0, 0, 8, 8},
      {"tasks", OUTCOME_TIMEOUT, 3, 0, 0, 8, 10},
      {"gather", OUTCOME_TIMEOUT, 0, 0, 0, 8, 8},
      {"gather-return-exceptions", OUTCOME_TIMEOUT, 0, 0, 0, 8, 8},
      {"taskgroup", OUTCOME_TIMEOUT, 0, 0, 0, 8, 8}}},
};

static void expect_policy(struct cell *cell, struct coro *outermost, const struct policy *policy)
{
    struct repeat repeat;
    struct outcome outcome;
    int64_t start_ns = runtime_now(&cell->runtime);
    repeat_init(&repeat, outermost, 1);
    assert_int_equal(repeat_run(&cell->runtime, &repeat, &outcome, NULL), 0);
    assert_int_equal(outcome.kind, policy->kind);
    assert_int_equal(runtime_now(&cell->runtime) - start_ns, policy->return_ms * NS_PER_MS);
    assert_int_equal(fanout_in_flight(cell->fanout), policy->orphans);
    assert_int_equal(fanout_drain(&cell->runtime, cell->fanout, NULL), 0);
    assert_int_equal(runtime_now(&cell->runtime) - start_ns, policy->drain_ms * NS_PER_MS);
    if (outcome.kind == OUTCOME_TIMEOUT) /* what the arm inside it ended with */
        outcome.kind = OUTCOME_CANCELLED;
    struct fanout_errors errors = fanout_errors(cell->fanout, outcome, cell->arm->keeps_errors);
    assert_int_equal(errors.seen, policy->seen);
    assert_int_equal(errors.lost, policy->lost);
    assert_int_equal(errors.failed, policy->seen + policy->lost);
}

static void test_what_failure_costs_by_policy(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]) * ARMS; i++) {
        const struct scenario *scenario = &scenarios[i / ARMS];
        const struct policy *policy = &scenario->policies[i % ARMS];
        struct job_config config = {.delay_ns = 10 * NS_PER_MS, .failure = scenario->failure};
        struct cell cell;
        struct timeout timeout;
        print_message("%s: %s\n", scenario->name, policy->arm);
        cell_open(&cell, policy->arm, "sleep", 4, &config);
        timeout_init(&timeout, &cell.fanout->coro, scenario->timeout_ms * NS_PER_MS);
        struct coro *outermost = scenario->timeout_ms ? &timeout.coro : &cell.fanout->coro;
        for (int round = 0; round < 2; round++) /* the second finds everything as the first one did */
            expect_policy(&cell, outermost, policy);
        cell_close(&cell);
    }
}

static void test_failing_children_can_be_chosen_anew(void **state)
{
    (void)state;
    struct cell cell;
    struct job_config config = {.delay_ns = NS_PER_MS, .failure = {.end = LEAF_FAIL}};
    static const uint8_t third[4] = {0, 0, 1, 0}, none[4] = {0};
    cell_open(&cell, "gather-return-exceptions", "sleep", 4, &config);
    assert_int_equal(launch(&cell, 1).kind, OUTCOME_OK);
    assert_int_equal(task_outcome(&cell.fanout->tasks[2]).kind, OUTCOME_OK);
    job_choose_failing(cell.children, third);
    (void)launch(&cell, 1);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(task_outcome(&cell.fanout->tasks[i]).kind, i == 2 ? OUTCOME_FAIL : OUTCOME_OK);
    job_choose_failing(cell.children, none);
    (void)launch(&cell, 1);
    assert_int_equal(task_outcome(&cell.fanout->tasks[2]).kind, OUTCOME_OK);
    cell_close(&cell);
}

static void test_a_timeout_cancels_a_fan_out(void **state)
{
    (void)state;
    struct cell cell;
    struct timeout timeout;
    struct task task = {0};
    struct job_config config = {.delay_ns = 10 * NS_PER_MS,
                                .failure = {.on_cancel = LEAF_CLEANUP, .cleanup_ns = 3 * NS_PER_MS}};
    cell_open(&cell, "taskgroup", "sleep", 5, &config);
    timeout_init(&timeout, &cell.fanout->coro, 4 * NS_PER_MS);
    task_start(&cell.runtime, &task, &timeout.coro, &cell.runtime.roots, NULL);
    assert_int_equal(runtime_run_task(&cell.runtime, &task, NULL), 0);
    assert_int_equal(task_outcome(&task).kind, OUTCOME_TIMEOUT);
    assert_int_equal(runtime_now(&cell.runtime), 7 * NS_PER_MS); /* soft: the clean-up is waited for */
    assert_int_equal(fanout_in_flight(cell.fanout), 0);
    struct fanout_errors errors = fanout_errors(cell.fanout, task_outcome(&task), false);
    assert_int_equal(errors.failed + errors.seen + errors.lost, 0);
    cell_close(&cell);
}

static void test_cpu_burns_what_it_says(void **state)
{
    (void)state;
    struct cell cell;
    struct job_config config = {.delay_ns = 2 * NS_PER_MS};
    cell_open(&cell, "gather", "cpu", 3, &config);
    int64_t cpu_ns = clock_thread_cpu_ns();
    (void)launch(&cell, 1);
    assert_true(clock_thread_cpu_ns() - cpu_ns >= 6 * NS_PER_MS);
    assert_int_equal(cell.runtime.waits.count, 0);
    cell_close(&cell);
}

/* A child that burns beside sleepers makes them late by its burn, and not a later date. */
static void test_a_stall_shows_as_overshoot_of_the_others(void **state)
{
    (void)state;
    struct cell cell;
    struct error err;
    uv_loop_t loop;
    struct job_config config = {.delay_ns = NS_PER_MS, .stall = {.children = 1, .cpu_ns = 20 * NS_PER_MS}};
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(runtime_init(&cell.runtime, &loop, &err), 0);
    assert_int_equal(fanout_new(3, &cell.fanout, &err), 0);
    fanout_bind(cell.fanout, arm_find("gather")->resume);
    assert_int_equal(job_open(job_find("sleep"), &cell.runtime, cell.fanout, &config, &cell.children, &err),
                     0);
    /* the stalling child comes last, so that the others wait already */
    struct coro *first = cell.fanout->bodies[0];
    cell.fanout->bodies[0] = cell.fanout->bodies[2];
    cell.fanout->bodies[2] = first;
    (void)launch(&cell, 1);
    assert_true(job_is_stalling(cell.children, 0));
    assert_false(job_is_stalling(cell.children, 1));
    assert_true(job_overshoot_ns(cell.children, 1) >= 19 * NS_PER_MS);
    assert_true(job_overshoot_ns(cell.children, 2) >= 19 * NS_PER_MS);
    assert_int_equal(cell.runtime.waits.early, 0);
    cell_close(&cell);
    runtime_release(&cell.runtime);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* In input order the stalling child comes first: the others start late, and are on time against that. */
static void test_a_stall_delays_those_that_have_not_begun(void **state)
{
    (void)state;
    struct cell cell;
    struct error err;
    uv_loop_t loop;
    struct job_config config = {.delay_ns = NS_PER_MS, .stall = {.children = 1, .cpu_ns = 5 * NS_PER_MS}};
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(runtime_init(&cell.runtime, &loop, &err), 0);
    assert_int_equal(fanout_new(3, &cell.fanout, &err), 0);
    fanout_bind(cell.fanout, arm_find("gather")->resume);
    assert_int_equal(job_open(job_find("sleep"), &cell.runtime, cell.fanout, &config, &cell.children, &err),
                     0);
    assert_int_equal(job_late_ns(cell.children, 1, 0), LEAF_NOT_WAITED);
    int64_t start_ns = runtime_now(&cell.runtime);
    (void)launch(&cell, 1);
    assert_true(job_late_ns(cell.children, 1, start_ns) >= 5 * NS_PER_MS);
    assert_true(job_late_ns(cell.children, 2, start_ns) - job_overshoot_ns(cell.children, 2) >=
                5 * NS_PER_MS);
    cell_close(&cell);
    runtime_release(&cell.runtime);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_senseless_jobs_are_refused(void **state)
{
    (void)state;
    struct runtime runtime;
    struct fanout *fanout;
    struct job_children *children = NULL;
    struct job_parameter parameter = {"target", "x"};
    struct error err;
    runtime_init_virtual(&runtime);
    assert_int_equal(fanout_new(2, &fanout, &err), 0);
    struct job_config no_delay = {0}, uv = {.delay_ns = 1, .source = SLEEP_UV_TIMER},
                      stranger = {.parameters = &parameter, .parameter_count = 1};
    assert_int_equal(job_open(job_find("sleep"), &runtime, fanout, &no_delay, &children, &err), -1);
    assert_string_equal(err.text, "job 'sleep' needs a delay above 0");
    assert_int_equal(job_open(job_find("sleep"), &runtime, fanout, &uv, &children, &err), -1);
    assert_int_equal(job_open(job_find("noop"), &runtime, fanout, &stranger, &children, &err), -1);
    assert_string_equal(err.text, "job 'noop' has no key 'target'");
    assert_null(children);
    assert_null(fanout->bodies[0]);
    job_close(NULL);
    fanout_free(fanout);
    fanout_free(NULL);
    assert_int_equal(fanout_new(UINT32_MAX, &fanout, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_are_sound),
        cmocka_unit_test(test_in_flight_is_what_the_arm_claims),
        cmocka_unit_test(test_a_million_children_in_a_row),
        cmocka_unit_test(test_what_failure_costs_by_policy),
        cmocka_unit_test(test_failing_children_can_be_chosen_anew),
        cmocka_unit_test(test_a_timeout_cancels_a_fan_out),
        cmocka_unit_test(test_cpu_burns_what_it_says),
        cmocka_unit_test(test_a_stall_shows_as_overshoot_of_the_others),
        cmocka_unit_test(test_a_stall_delays_those_that_have_not_begun),
        cmocka_unit_test(test_senseless_jobs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
