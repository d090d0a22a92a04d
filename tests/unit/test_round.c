/* round: arms and jobs that are not what they claim to be, on real time and in virtual time. */
#include "base/clock.h"
#include "base/memory.h"
#include "worker/round.h"
#include "worker/runtime/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

enum { children = 6 };

static char *constant(const char *text)
{
    return (char *)(uintptr_t)text;
}

static struct wire_cell cell_of(const char *arm, const char *job, int64_t delay_ns)
{
    return (struct wire_cell){.arm = constant(arm),
                              .job = constant(job),
                              .fanout = children,
                              .delay_ns = delay_ns,
                              .wait = constant("timerfd"),
                              .clients = 1,
                              .phase = constant("together")};
}

/* What the cell says, and who really does it: the arm and the cell that the children are made from. */
struct fraud {
    struct wire_cell said;
    const char *arm;
    struct wire_cell done;
    const char *error; /* NULL: it is honest */
};

static void run(struct runtime *runtime, const struct fraud *fraud)
{
    struct counters counters;
    struct slab slab;
    struct round_bench bench;
    struct wire_round round;
    struct error err;
    struct rng chance = rng_stream(1, 1);
    counters_open(&counters);
    assert_int_equal(slab_open(runtime, &fraud->done, &slab, &err), 0);
    round_bench_init(&bench, runtime, &counters, &fraud->said, arm_find(fraud->arm), &slab);
    assert_int_equal(round_run(&bench, &chance, &round, &err), 0);
    print_message("%s by %s: %s\n", fraud->said.arm, fraud->arm, round.error ? round.error : "fine");
    if (fraud->error) {
        assert_non_null(round.error);
        assert_non_null(strstr(round.error, fraud->error));
    } else {
        assert_null(round.error);
    }
    assert_true(round.wall_ns > 0 && round.cpu_ns > 0); /* the figures are kept */
    free(round.error);
    slab_close(&slab);
    counters_close(&counters);
}

static void run_all(struct runtime *runtime)
{
    const int64_t delay_ns = 3 * NS_PER_MS;
    const struct wire_cell gather = cell_of("gather", "sleep", delay_ns);
    const struct wire_cell sequential = cell_of("sequential", "sleep", delay_ns);
    const struct wire_cell taskgroup = cell_of("taskgroup", "noop", 0);
    const struct wire_cell empty = cell_of("empty", "sleep", delay_ns);
    const struct wire_cell longer =
        cell_of("gather", "sleep", 1000 * delay_ns); /* as it says, on a busy host too */
    const struct wire_cell longer_row = cell_of("sequential", "sleep", 1000 * delay_ns);
    const struct fraud frauds[] = {
        {gather, "gather", gather, NULL},
        {sequential, "sequential", sequential, NULL},
        {taskgroup, "taskgroup", taskgroup, NULL},
        {empty, "empty", gather, NULL},
        {gather, "sequential", gather, "gather had 1 of 6 children in flight, not 6"}, /* secretly serial */
        {taskgroup, "sequential", taskgroup, "taskgroup had 1 of 6 children in flight, not 6"},
        {gather, "empty", gather, "gather had 0 of 6 children in flight, not 6"},
        {sequential, "gather", sequential, "sequential had 6 of 6 children in flight, not 1"},
        {empty, "tasks", gather, "empty had 6 of 6 children in flight, not 0"},
        {longer, "gather", gather, ", less than its waits of 3000000000 ns"}, /* children that end early */
        {longer_row, "sequential", gather, ", less than its waits of 18000000000 ns"},
    };
    for (size_t i = 0; i < sizeof frauds / sizeof frauds[0]; i++)
        run(runtime, &frauds[i]);
}

static void frauds_are_found_in_virtual_time(void **state)
{
    (void)state;
    struct runtime runtime;
    runtime_init_virtual(&runtime);
    run_all(&runtime);
    runtime_release(&runtime);
}

static void frauds_are_found_in_real_time(void **state)
{
    (void)state;
    struct runtime runtime;
    struct error err;
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(runtime_init(&runtime, &loop, &err), 0);
    run_all(&runtime);
    runtime_release(&runtime);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* A child that holds the loop and then waits by uv_timer, which counts from libuv's clock as it was before: its wait
 * ends as much too early as it held the loop. */
static void run_early(struct runtime *runtime, const char *said_wait, const char *error)
{
    struct counters counters;
    struct slab slab;
    struct round_bench bench;
    struct wire_round round;
    struct error err;
    struct rng chance = rng_stream(1, 1);
    struct wire_cell done = cell_of("gather", "sleep", 20 * NS_PER_MS);
    done.wait = constant("uv_timer");
    done.stall = (struct wire_stall){.present = true, .children = 1, .cpu_ns = 5 * NS_PER_MS};
    struct wire_cell said = done;
    said.wait = constant(said_wait);
    counters_open(&counters);
    assert_int_equal(slab_open(runtime, &done, &slab, &err), 0);
    round_bench_init(&bench, runtime, &counters, &said, arm_find("gather"), &slab);
    assert_int_equal(round_run(&bench, &chance, &round, &err), 0);
    for (int more = 50; round.early == 0 && more > 0;
         more--) { /* a busy host made up for all that was too early */
        free(round.error);
        assert_int_equal(round_run(&bench, &chance, &round, &err), 0);
    }
    assert_in_range(round.early, 1, children);
    assert_true(round.overshoot_min_ns < 0);
    if (error)
        assert_non_null(round.error);
    assert_true(error ? strstr(round.error, error) != NULL : round.error == NULL);
    free(round.error);
    slab_close(&slab);
    counters_close(&counters);
}

static void early_waits_are_counted_and_judged(void **state)
{
    (void)state;
    struct runtime runtime;
    struct error err;
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(runtime_init(&runtime, &loop, &err), 0);
    run_early(&runtime, "uv_timer", NULL);
    run_early(&runtime, "timerfd", "of 6 waits ended before their deadline");
    runtime_release(&runtime);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* Children that do not wait at all, though their job is one that does. */
static void children_that_do_not_wait_are_found(void **state)
{
    (void)state;
    struct runtime runtime;
    struct counters counters;
    struct slab slab;
    struct round_bench bench;
    struct wire_round round;
    struct error err;
    struct rng chance = rng_stream(1, 1);
    const struct wire_cell said = cell_of("gather", "sleep", NS_PER_MS), done = cell_of("gather", "noop", 0);
    runtime_init_virtual(&runtime);
    counters_open(&counters);
    assert_int_equal(slab_open(&runtime, &done, &slab, &err), 0);
    slab.job = job_find("sleep");
    round_bench_init(&bench, &runtime, &counters, &said, arm_find("gather"), &slab);
    assert_int_equal(round_run(&bench, &chance, &round, &err), 0);
    assert_non_null(round.error);
    assert_string_equal(round.error, "0 of 6 children waited");
    free(round.error);
    slab_close(&slab);
    counters_close(&counters);
    runtime_release(&runtime);
}

/* A child that first lets the one before it finish, as behind a lock: all are in flight, one waits. */
struct turn {
    struct coro coro;
    struct waitable waitable;
    struct coro *body;
    struct turn *before, *after;
    struct task *task; /* suspended until the one before is done */
    bool done;
};

static bool no_cancel(struct runtime *runtime, struct waitable *waitable)
{
    (void)runtime;
    (void)waitable;
    return false;
}

static enum step take_turn(struct coro *coro, struct activation *activation)
{
    struct turn *turn = (struct turn *)(void *)coro;
    if (activation->wake == WAKE_RETURN) {
        turn->done = true;
        if (turn->after && turn->after->task)
            task_wake(activation->runtime, turn->after->task, WAKE_READY);
        return STEP_DONE;
    }
    if (!turn->before || turn->before->done)
        return coro_await(activation, turn->body);
    turn->task = activation->task;
    return coro_suspend(activation, &turn->waitable);
}

static void run_serial(struct runtime *runtime, const char *arm, const char *error)
{
    struct turn turns[children] = {0};
    struct counters counters;
    struct slab slab;
    struct round_bench bench;
    struct wire_round round;
    struct error err;
    struct rng chance = rng_stream(1, 1);
    const struct wire_cell cell = cell_of(arm, "sleep", 3 * NS_PER_MS);
    counters_open(&counters);
    assert_int_equal(slab_open(runtime, &cell, &slab, &err), 0);
    for (int i = 0; i < children; i++) {
        turns[i] = (struct turn){.coro.resume = take_turn,
                                 .waitable.cancel = no_cancel,
                                 .body = slab.fanout->bodies[i],
                                 .before = i > 0 ? &turns[i - 1] : NULL,
                                 .after = i + 1 < children ? &turns[i + 1] : NULL};
        slab.fanout->bodies[i] = &turns[i].coro;
    }
    round_bench_init(&bench, runtime, &counters, &cell, arm_find(arm), &slab);
    assert_int_equal(round_run(&bench, &chance, &round, &err), 0);
    if (error) {
        assert_non_null(round.error);
        assert_string_equal(round.error, error);
    } else {
        assert_null(round.error);
    }
    free(round.error);
    slab_close(&slab);
    counters_close(&counters);
}

static void a_secretly_serial_job_is_found(void **state)
{
    (void)state;
    struct runtime runtime;
    runtime_init_virtual(&runtime);
    run_serial(&runtime, "gather", "1 of 6 children waited at the same time, not 6");
    run_serial(&runtime, "taskgroup", "1 of 6 children waited at the same time, not 6");
    run_serial(&runtime, "sequential", NULL);
    runtime_release(&runtime);
}

/* Pages of a range that nobody has touched. */
static size_t pages_missing(const void *from, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), missing = 0;
    uintptr_t first = (uintptr_t)from / page * page, end = (uintptr_t)from + bytes;
    for (uintptr_t at = first; at < end; at += page) {
        unsigned char present = 0;
        assert_int_equal(mincore((void *)at, 1, &present), 0);
        missing += !(present & 1);
    }
    return missing;
}

/* Who opens a slab touches all of it: it lies in the memory of the measured core, and no round meets a page for the first time. */
static void a_slab_is_touched_when_it_is_opened(void **state)
{
    (void)state;
    struct runtime runtime;
    struct slab slab;
    struct error err;
    struct wire_cell cell = cell_of("gather", "sleep", NS_PER_MS);
    cell.fanout = 65536;
    runtime_init_virtual(&runtime);
    assert_int_equal(slab_open(&runtime, &cell, &slab, &err), 0);
    const struct fanout *fanout = slab.fanout;
    size_t bytes = (size_t)((const char *)&fanout->errors[fanout->count + 1] - (const char *)fanout->tasks);
    assert_true(bytes > 4096 * 1024);
    assert_int_equal(pages_missing(fanout->tasks, bytes), 0);
    for (uint32_t i = 0; i < fanout->count; i++)
        assert_int_equal(pages_missing(fanout->bodies[i], 1), 0);
    assert_int_equal(pages_missing(slab.overshoots_ns, fanout->count * sizeof *slab.overshoots_ns), 0);
    slab_close(&slab);
    runtime_release(&runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frauds_are_found_in_virtual_time),
        cmocka_unit_test(frauds_are_found_in_real_time),
        cmocka_unit_test(early_waits_are_counted_and_judged),
        cmocka_unit_test(children_that_do_not_wait_are_found),
        cmocka_unit_test(a_secretly_serial_job_is_found),
        cmocka_unit_test(a_slab_is_touched_when_it_is_opened),
    };
    return cmocka_run_group_tests_name("round", tests, NULL, NULL);
}
