/* The loop: snapshots, timers, sleeps, timeouts; in virtual and in real time. */
#include "base/clock.h"
#include "worker/runtime/repeat.h"
#include "worker/runtime/sleep.h"
#include "worker/runtime/timeout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <uv.h>

#include <cmocka.h>

/* Calls that write their letters down. */
struct letter {
    struct timer timer;
    char name;
    char *trace;
    struct letter *also; /* queued from within, or NULL */
    struct letter *cancels;
};

static void write_letter(struct runtime *runtime, struct call *call)
{
    struct letter *letter = (struct letter *)(void *)call;
    letter->trace[strlen(letter->trace)] = letter->name;
    if (letter->also)
        runtime_call_soon(runtime, &letter->also->timer.call);
}

static void write_letter_fired(struct runtime *runtime, struct call *call)
{
    struct letter *letter = (struct letter *)(void *)call;
    if (!runtime_timer_fired(&letter->timer))
        return;
    write_letter(runtime, call);
    if (letter->cancels)
        runtime_timer_cancel(runtime, &letter->cancels->timer);
}

static void make_letters(struct letter *letters, size_t count, char *trace,
                         void (*run)(struct runtime *, struct call *))
{
    for (size_t i = 0; i < count; i++)
        letters[i] = (struct letter){.timer.call.run = run, .name = (char)('a' + i), .trace = trace};
}

static void test_calls_run_in_whole_snapshots(void **state)
{
    (void)state;
    struct runtime runtime;
    struct letter letters[4];
    char trace[16] = "";
    runtime_init_virtual(&runtime);
    make_letters(letters, 4, trace, write_letter);
    letters[0].also = &letters[3];
    for (int i = 0; i < 3; i++)
        runtime_call_soon(&runtime, &letters[i].timer.call);
    assert_int_equal(runtime_turn(&runtime, true, NULL), 1);
    assert_string_equal(trace, "abc"); /* d was queued during this snapshot: it belongs to the next one */
    assert_int_equal(runtime_turn(&runtime, false, NULL), 1);
    assert_string_equal(trace, "abcd");
    assert_int_equal(runtime_turn(&runtime, false, NULL), 0);
    assert_int_equal(runtime.turns, 2);
}

static void test_timers_fire_in_order_of_deadline_then_of_setting(void **state)
{
    (void)state;
    struct runtime runtime;
    struct letter letters[4];
    char trace[16] = "";
    runtime_init_virtual(&runtime);
    make_letters(letters, 4, trace, write_letter_fired);
    runtime_timer_start(&runtime, &letters[0].timer, 20);
    runtime_timer_start(&runtime, &letters[1].timer, 10);
    runtime_timer_start_at(&runtime, &letters[2].timer, 20);
    runtime_timer_start(&runtime, &letters[3].timer, 10);
    assert_int_equal(runtime_turn(&runtime, true, NULL), 1);
    assert_string_equal(trace, "bd");
    assert_int_equal(runtime_now(&runtime), 10);
    assert_int_equal(runtime_turn(&runtime, true, NULL), 1);
    assert_string_equal(trace, "bdac");
    assert_int_equal(runtime_now(&runtime), 20);
}

static void test_a_timer_can_be_cancelled_at_every_stage(void **state)
{
    (void)state;
    struct runtime runtime;
    struct letter letters[5];
    char trace[16] = "";
    runtime_init_virtual(&runtime);
    make_letters(letters, 5, trace, write_letter_fired);
    for (int i = 0; i < 4; i++)
        runtime_timer_start(&runtime, &letters[i].timer, 10);
    runtime_timer_cancel(&runtime, &letters[1].timer); /* without a date */
    (void)runtime_now(&runtime);
    runtime_timer_cancel(&runtime, &letters[2].timer); /* listed */
    letters[0].cancels = &letters[3];                  /* queued, in the same snapshot */
    runtime_timer_cancel(&runtime, &letters[4].timer); /* idle */
    assert_int_equal(runtime_turn(&runtime, true, NULL), 1);
    assert_string_equal(trace, "a");
    assert_int_equal(runtime_turn(&runtime, true, NULL), -1); /* nothing is left */
}

static void test_a_cancelled_timer_can_be_set_again_at_once(void **state)
{
    (void)state;
    struct runtime runtime;
    struct letter letters[1];
    char trace[16] = "";
    runtime_init_virtual(&runtime);
    make_letters(letters, 1, trace, write_letter_fired);
    runtime_timer_start_soon(&runtime, &letters[0].timer);
    runtime_timer_cancel(&runtime, &letters[0].timer);
    runtime_timer_start_soon(&runtime, &letters[0].timer); /* its call is still queued, once */
    assert_int_equal(runtime_turn(&runtime, false, NULL), 1);
    assert_string_equal(trace, "a");
    runtime_timer_start_soon(&runtime, &letters[0].timer);
    runtime_timer_cancel(&runtime, &letters[0].timer);
    runtime_timer_start(&runtime, &letters[0].timer, 5);
    while (runtime_turn(&runtime, true, NULL) > 0)
        ;
    assert_string_equal(trace, "aa");
    assert_int_equal(runtime_now(&runtime), 5);
}

static void test_waits_that_share_a_clock_read_keep_their_order(void **state)
{
    (void)state;
    enum { count = 26 * 3 };
    struct runtime runtime;
    struct letter letters[count];
    char trace[count + 1] = "", want[count + 1] = "";
    runtime_init_virtual(&runtime);
    make_letters(letters, count, trace, write_letter_fired);
    for (int i = 0; i < count; i++) {
        letters[i].name = want[i] = (char)('a' + i % 26);
        runtime_timer_start(&runtime, &letters[i].timer, 7);
    }
    assert_int_equal(runtime_turn(&runtime, true, NULL), 1);
    assert_string_equal(trace, want);
}

static void test_nothing_left_to_wait_for_is_an_error(void **state)
{
    (void)state;
    struct runtime runtime;
    struct task task = {0};
    struct error err;
    runtime_init_virtual(&runtime);
    assert_int_equal(runtime_run_task(&runtime, &task, &err), -1);
    assert_string_equal(err.text, "nothing left to wait for");
}

/* A coroutine that sleeps, and tells how it was woken. */
struct sleeper {
    struct coro coro;
    struct sleep sleep;
    int64_t delay_ns, start_ns, end_ns;
    enum wake woken;
};

static enum step sleeper_resume(struct coro *coro, struct activation *activation)
{
    struct sleeper *sleeper = (struct sleeper *)(void *)coro;
    if (activation->wake == WAKE_START) {
        sleeper->start_ns = clock_monotonic_ns();
        return sleep_start(&sleeper->sleep, activation, sleeper->delay_ns);
    }
    sleeper->end_ns = clock_monotonic_ns();
    sleeper->woken = activation->wake;
    return coro_return(activation, activation->wake == WAKE_CANCEL ? OUTCOME_CANCELLED : OUTCOME_OK, 0);
}

static void make_sleeper(struct sleeper *sleeper, int64_t delay_ns, uv_timer_t *uv_timer)
{
    *sleeper = (struct sleeper){.coro.resume = sleeper_resume, .delay_ns = delay_ns};
    sleep_init(&sleeper->sleep, uv_timer);
}

static void test_a_sleep_is_cancelled_once(void **state)
{
    (void)state;
    struct runtime runtime;
    struct sleeper sleeper;
    struct task task = {0};
    runtime_init_virtual(&runtime);
    make_sleeper(&sleeper, 10, NULL);
    assert_false(task_cancel(&runtime, &task)); /* idle */
    task_start(&runtime, &task, &sleeper.coro, &runtime.roots, NULL);
    assert_int_equal(runtime_turn(&runtime, false, NULL), 1);
    assert_true(task_cancel(&runtime, &task));
    assert_false(task.must_cancel); /* the sleep took it */
    assert_true(task_cancel(&runtime, &task));
    assert_true(task.must_cancel); /* the sleep is over; the next step throws, once */
    assert_int_equal(runtime_run_task(&runtime, &task, NULL), 0);
    assert_int_equal(sleeper.woken, WAKE_CANCEL);
    assert_int_equal(task_outcome(&task).kind, OUTCOME_CANCELLED);
    assert_int_equal(task.cancels, 2);
    assert_int_equal(runtime.waits.count, 0); /* it did not end by its timer */
    assert_false(task_cancel(&runtime, &task));
}

static void test_a_task_cancelled_before_its_first_step_never_runs(void **state)
{
    (void)state;
    struct runtime runtime;
    struct sleeper sleeper;
    struct task task = {0};
    runtime_init_virtual(&runtime);
    make_sleeper(&sleeper, 10, NULL);
    task_start(&runtime, &task, &sleeper.coro, &runtime.roots, NULL);
    assert_true(task_cancel(&runtime, &task));
    assert_int_equal(runtime_run_task(&runtime, &task, NULL), 0);
    assert_int_equal(sleeper.start_ns, 0);
    assert_int_equal(task_outcome(&task).kind, OUTCOME_CANCELLED);
}

static void test_uncancel_at_zero_forgets_the_request(void **state)
{
    (void)state;
    struct runtime runtime;
    struct sleeper sleeper;
    struct task task = {0};
    runtime_init_virtual(&runtime);
    make_sleeper(&sleeper, 10, NULL);
    task_start(&runtime, &task, &sleeper.coro, &runtime.roots, NULL);
    (void)task_cancel(&runtime, &task);
    assert_int_equal(task_uncancel(&task), 0);
    assert_int_equal(task_uncancel(&task), 0);
    assert_int_equal(runtime_run_task(&runtime, &task, NULL), 0);
    assert_int_equal(task_outcome(&task).kind, OUTCOME_OK);
}

static void run_in_timeout(struct runtime *runtime, struct sleeper *sleeper, int64_t timeout_ns,
                           struct task *task)
{
    struct timeout timeout;
    *task = (struct task){0};
    timeout_init(&timeout, &sleeper->coro, timeout_ns);
    task_start(runtime, task, &timeout.coro, &runtime->roots, NULL);
    assert_int_equal(runtime_run_task(runtime, task, NULL), 0);
}

static void test_a_timeout_cuts_and_does_not_linger(void **state)
{
    (void)state;
    struct runtime runtime;
    struct sleeper sleeper;
    struct task task;
    runtime_init_virtual(&runtime);
    make_sleeper(&sleeper, 10, NULL);
    run_in_timeout(&runtime, &sleeper, 4, &task);
    assert_int_equal(task_outcome(&task).kind, OUTCOME_TIMEOUT);
    assert_int_equal(runtime_now(&runtime), 4);
    assert_int_equal(task.cancels, 0);
    run_in_timeout(&runtime, &sleeper, 100, &task);
    assert_int_equal(task_outcome(&task).kind, OUTCOME_OK);
    assert_null(timer_queue_first(&runtime.timers));
}

/* Real time */

struct real {
    uv_loop_t loop;
    struct runtime runtime;
};

static void real_open(struct real *real)
{
    struct error err;
    assert_int_equal(uv_loop_init(&real->loop), 0);
    assert_int_equal(runtime_init(&real->runtime, &real->loop, &err), 0);
}

static void real_close(struct real *real)
{
    runtime_release(&real->runtime);
    runtime_release(&real->runtime);
    (void)uv_run(&real->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&real->loop), 0);
}

static void test_waits_are_counted_on_both_sides_of_their_deadline(void **state)
{
    (void)state;
    struct runtime runtime;
    int64_t log[3];
    runtime_init_virtual(&runtime);
    runtime.waits.log = log;
    runtime.waits.log_capacity = 3;
    runtime_waits_clear(&runtime);
    runtime_waits_note(&runtime, 100, 99);
    runtime_waits_note(&runtime, 100, 100);
    runtime_waits_note(&runtime, 100, 102);
    assert_int_equal(runtime.waits.early, 1);
    assert_int_equal(runtime.waits.count, 3);
    assert_int_equal(runtime.waits.overshoot_min_ns, -1);
    assert_int_equal(runtime.waits.overshoot_max_ns, 2);
    assert_true(log[0] == -1 && log[1] == 0 && log[2] == 2);
    runtime_waits_clear(&runtime);
    assert_int_equal(runtime.waits.early, 0);
    runtime_release(&runtime);
}

static void test_no_real_wait_is_early_by_its_own_clock(void **state)
{
    (void)state;
    enum { count = 2000 };
    static struct sleeper sleepers[count];
    static struct task tasks[count];
    static int64_t log[count];
    struct real real;
    real_open(&real);
    real.runtime.waits.log = log;
    real.runtime.waits.log_capacity = count;
    for (int i = 0; i < count; i++) {
        make_sleeper(&sleepers[i], 1000 + (int64_t)(i * 7919 % 3000000), NULL);
        task_start(&real.runtime, &tasks[i], &sleepers[i].coro, &real.runtime.roots, NULL);
    }
    for (int i = 0; i < count; i++)
        assert_int_equal(runtime_run_task(&real.runtime, &tasks[i], NULL), 0);
    for (int i = 0; i < count; i++) {
        assert_true(sleepers[i].end_ns - sleepers[i].start_ns >= sleepers[i].delay_ns);
        assert_true(log[i] >= real.runtime.waits.overshoot_min_ns &&
                    log[i] <= real.runtime.waits.overshoot_max_ns);
    }
    assert_int_equal(real.runtime.waits.count, count);
    assert_int_equal(real.runtime.waits.early, 0);
    assert_true(real.runtime.wakeups >= 1);
    real_close(&real);
}

static void test_uv_timers_wait_and_are_counted(void **state)
{
    (void)state;
    enum { count = 20 };
    struct sleeper sleepers[count];
    struct task tasks[count] = {0};
    uv_timer_t uv_timers[count];
    struct real real;
    real_open(&real);
    for (int i = 0; i < count; i++) {
        assert_int_equal(uv_timer_init(&real.loop, &uv_timers[i]), 0);
        make_sleeper(&sleepers[i], (1 + i % 3) * NS_PER_MS, &uv_timers[i]);
        task_start(&real.runtime, &tasks[i], &sleepers[i].coro, &real.runtime.roots, NULL);
    }
    assert_int_equal(runtime_turn(&real.runtime, false, NULL), 1);
    assert_true(task_cancel(&real.runtime, &tasks[0]));
    for (int i = 0; i < count; i++)
        assert_int_equal(runtime_run_task(&real.runtime, &tasks[i], NULL), 0);
    assert_int_equal(sleepers[0].woken, WAKE_CANCEL);
    assert_int_equal(sleepers[1].woken, WAKE_READY);
    assert_int_equal(real.runtime.waits.count, count - 1);
    assert_int_equal(real.runtime.events, 0);
    for (int i = 0; i < count; i++)
        uv_close((uv_handle_t *)&uv_timers[i], NULL);
    real_close(&real);
}

/* What ends at once. */
static enum step instant_resume(struct coro *coro, struct activation *activation)
{
    (void)coro;
    return coro_return(activation, OUTCOME_OK, 1);
}

static enum step failing_resume(struct coro *coro, struct activation *activation)
{
    (void)coro;
    return coro_return(activation, OUTCOME_FAIL, 7);
}

static void test_repeat_counts_and_stops_at_an_error(void **state)
{
    (void)state;
    struct coro instant = {.resume = instant_resume}, failing = {.resume = failing_resume};
    struct repeat repeat;
    struct outcome outcome;
    struct real real;
    real_open(&real);
    repeat_init(&repeat, &instant, 1000000);
    assert_int_equal(repeat_run(&real.runtime, &repeat, &outcome, NULL), 0);
    assert_int_equal(repeat.done, 1000000);
    assert_int_equal(outcome.kind, OUTCOME_OK);
    assert_int_equal(real.runtime.turns, 1); /* awaited inline: no turn between them, no deeper stack */
    repeat_init(&repeat, &failing, 1000000);
    assert_int_equal(repeat_run(&real.runtime, &repeat, &outcome, NULL), 0);
    assert_int_equal(repeat.done, 0);
    assert_int_equal(outcome.kind, OUTCOME_FAIL);
    assert_int_equal(outcome.value, 7);
    assert_int_equal(real.runtime.wakeups, 0); /* nothing waited: libuv was never asked to block */
    real_close(&real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_run_in_whole_snapshots),
        cmocka_unit_test(test_timers_fire_in_order_of_deadline_then_of_setting),
        cmocka_unit_test(test_a_timer_can_be_cancelled_at_every_stage),
        cmocka_unit_test(test_a_cancelled_timer_can_be_set_again_at_once),
        cmocka_unit_test(test_waits_that_share_a_clock_read_keep_their_order),
        cmocka_unit_test(test_nothing_left_to_wait_for_is_an_error),
        cmocka_unit_test(test_a_sleep_is_cancelled_once),
        cmocka_unit_test(test_a_task_cancelled_before_its_first_step_never_runs),
        cmocka_unit_test(test_uncancel_at_zero_forgets_the_request),
        cmocka_unit_test(test_a_timeout_cuts_and_does_not_linger),
        cmocka_unit_test(test_waits_are_counted_on_both_sides_of_their_deadline),
        cmocka_unit_test(test_no_real_wait_is_early_by_its_own_clock),
        cmocka_unit_test(test_uv_timers_wait_and_are_counted),
        cmocka_unit_test(test_repeat_counts_and_stops_at_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
