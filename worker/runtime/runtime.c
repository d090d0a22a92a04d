#include "worker/runtime/runtime.h"

#include "base/clock.h"
#include "base/memory.h"
#include "worker/runtime/task.h"

#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <uv.h>

/* Waits that may share one clock read. */
#define MAX_UNDATED 32
/* Snapshots between two looks at libuv while there is always something ready: with open event sources, and without.
 * Powers of two. */
#define TURNS_PER_POLL      64
#define TURNS_PER_IDLE_POLL 4096

#define DISARMED INT64_MIN

struct runtime_poll {
    int timerfd;
    int64_t armed_ns; /* what the timerfd is set to; DISARMED after it fired */
    uv_poll_t handle;
};

/* Real time */

static int64_t real_now(struct runtime *runtime)
{
    (void)runtime;
    return clock_monotonic_ns();
}

/* Arming it anew clears a readiness that nobody reads. */
static int timerfd_arm(struct runtime_poll *poll, int64_t deadline_ns, struct error *err)
{
    struct itimerspec when = {0};
    if (deadline_ns != RUNTIME_FOREVER) {
        when.it_value.tv_sec = (time_t)(deadline_ns / NS_PER_S);
        when.it_value.tv_nsec = (long)(deadline_ns % NS_PER_S);
        if (deadline_ns <= 0)
            when.it_value = (struct timespec){.tv_nsec = 1};
    }
    if (timerfd_settime(poll->timerfd, TFD_TIMER_ABSTIME, &when, NULL) != 0)
        return error_set(err, ERROR_INTERNAL, "cannot arm a timerfd: %s", strerror(errno));
    poll->armed_ns = deadline_ns;
    return 0;
}

static void timerfd_readable(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    struct runtime_poll *poll = handle->data;
    poll->armed_ns = DISARMED;
}

static int real_wait(struct runtime *runtime, int64_t deadline_ns, bool may_block, struct error *err)
{
    struct runtime_poll *poll = runtime->poll;
    if (!may_block) {
        (void)uv_run(runtime->loop, UV_RUN_NOWAIT);
        return 0;
    }
    if (poll->armed_ns != deadline_ns && timerfd_arm(poll, deadline_ns, err) != 0)
        return -1;
    (void)uv_run(runtime->loop, UV_RUN_ONCE);
    runtime->wakeups++;
    return 0;
}

static const struct runtime_clock real_clock = {real_now, real_wait};

/* Virtual time */

static int64_t virtual_now(struct runtime *runtime)
{
    return runtime->virtual_ns;
}

static int virtual_wait(struct runtime *runtime, int64_t deadline_ns, bool may_block, struct error *err)
{
    if (!may_block)
        return 0;
    if (deadline_ns == RUNTIME_FOREVER)
        return error_set(err, ERROR_INTERNAL, "nothing happens by itself in virtual time");
    if (deadline_ns > runtime->virtual_ns)
        runtime->virtual_ns = deadline_ns;
    runtime->wakeups++;
    return 0;
}

static const struct runtime_clock virtual_clock = {virtual_now, virtual_wait};

/* Life */

static void runtime_clear(struct runtime *runtime, const struct runtime_clock *clock)
{
    *runtime = (struct runtime){.clock = clock};
    ready_init(&runtime->ready);
    timer_queue_init(&runtime->timers);
    runtime_waits_clear(runtime);
}

void runtime_init_virtual(struct runtime *runtime)
{
    runtime_clear(runtime, &virtual_clock);
}

static int poll_open(struct runtime_poll *poll, uv_loop_t *loop, struct error *err)
{
    poll->armed_ns = DISARMED;
    poll->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (poll->timerfd < 0)
        return error_set(err, ERROR_INTERNAL, "cannot make a timerfd: %s", strerror(errno));
    int code = uv_poll_init(loop, &poll->handle, poll->timerfd);
    if (code != 0) {
        close(poll->timerfd);
        return error_set(err, ERROR_INTERNAL, "cannot poll a timerfd: %s", uv_strerror(code));
    }
    poll->handle.data = poll;
    (void)uv_poll_start(&poll->handle, UV_READABLE, timerfd_readable);
    return 0;
}

int runtime_init(struct runtime *runtime, struct uv_loop_s *loop, struct error *err)
{
    struct runtime_poll *poll = memory_zeroed(1, sizeof(*poll));
    if (poll_open(poll, loop, err) != 0) {
        free(poll);
        return -1;
    }
    runtime_clear(runtime, &real_clock);
    runtime->loop = loop;
    runtime->poll = poll;
    return 0;
}

static void poll_closed(uv_handle_t *handle)
{
    struct runtime_poll *poll = handle->data;
    close(poll->timerfd);
    free(poll);
}

void runtime_release(struct runtime *runtime)
{
    if (runtime->poll)
        uv_close((uv_handle_t *)&runtime->poll->handle, poll_closed);
    runtime->poll = NULL;
    runtime->loop = NULL;
}

/* Waits */

void runtime_waits_clear(struct runtime *runtime)
{
    struct wait_statistics *waits = &runtime->waits;
    *waits = (struct wait_statistics){.overshoot_min_ns = INT64_MAX,
                                      .overshoot_max_ns = INT64_MIN,
                                      .waiting = waits->waiting,
                                      .most_waiting = waits->waiting,
                                      .log = waits->log,
                                      .log_capacity = waits->log_capacity};
}

void runtime_waits_note(struct runtime *runtime, int64_t deadline_ns, int64_t now_ns)
{
    struct wait_statistics *waits = &runtime->waits;
    int64_t overshoot_ns = now_ns - deadline_ns;
    if (waits->count < waits->log_capacity)
        waits->log[waits->count] = overshoot_ns;
    waits->count++;
    waits->early += overshoot_ns < 0;
    if (overshoot_ns < waits->overshoot_min_ns)
        waits->overshoot_min_ns = overshoot_ns;
    if (overshoot_ns > waits->overshoot_max_ns)
        waits->overshoot_max_ns = overshoot_ns;
}

/* Timers */

static void date_all(struct runtime *runtime, int64_t now_ns)
{
    struct timer *timer = runtime->undated_head;
    runtime->undated_head = runtime->undated_tail = NULL;
    runtime->undated_count = 0;
    while (timer) {
        struct timer *next = timer->next;
        int64_t delay_ns = timer->deadline_ns;
        int64_t deadline_ns = delay_ns < RUNTIME_FOREVER - now_ns ? now_ns + delay_ns : RUNTIME_FOREVER - 1;
        if (timer->foreign) {
            timer->deadline_ns = deadline_ns;
            timer->place = TIMER_FOREIGN;
        } else {
            timer_queue_insert(&runtime->timers, timer, deadline_ns);
        }
        timer = next;
    }
}

int64_t runtime_now(struct runtime *runtime)
{
    int64_t now_ns = runtime->clock->now(runtime);
    if (runtime->undated_head)
        date_all(runtime, now_ns);
    return now_ns;
}

void runtime_timer_date(struct runtime *runtime, struct timer *timer, int64_t delay_ns)
{
    timer->deadline_ns = delay_ns;
    timer->place = TIMER_UNDATED;
    timer->next = NULL;
    timer->previous = runtime->undated_tail;
    *(runtime->undated_tail ? &runtime->undated_tail->next : &runtime->undated_head) = timer;
    runtime->undated_tail = timer;
    if (++runtime->undated_count >= MAX_UNDATED)
        (void)runtime_now(runtime);
}

void runtime_timer_start(struct runtime *runtime, struct timer *timer, int64_t delay_ns)
{
    timer->foreign = false;
    runtime_timer_date(runtime, timer, delay_ns);
}

void runtime_timer_start_at(struct runtime *runtime, struct timer *timer, int64_t deadline_ns)
{
    if (runtime->undated_head)
        (void)runtime_now(runtime); /* keeps the order of equal deadlines */
    timer_queue_insert(&runtime->timers, timer, deadline_ns);
}

static void queue_fired(struct runtime *runtime, struct timer *timer, int64_t now_ns)
{
    timer->fired_ns = now_ns;
    timer->place = TIMER_QUEUED;
    if (timer->linked)
        return;
    timer->linked = true;
    ready_push(&runtime->ready, &timer->call);
}

void runtime_timer_start_soon(struct runtime *runtime, struct timer *timer)
{
    int64_t now_ns = runtime_now(runtime);
    timer->deadline_ns = now_ns;
    queue_fired(runtime, timer, now_ns);
}

void runtime_timer_foreign_fired(struct runtime *runtime, struct timer *timer)
{
    queue_fired(runtime, timer, runtime_now(runtime));
    /* uv_run calls timers before it polls: without this the poll after them would block although calls are queued */
    uv_stop(runtime->loop);
}

static void undated_remove(struct runtime *runtime, struct timer *timer)
{
    *(timer->previous ? &timer->previous->next : &runtime->undated_head) = timer->next;
    *(timer->next ? &timer->next->previous : &runtime->undated_tail) = timer->previous;
    runtime->undated_count--;
}

void runtime_timer_cancel(struct runtime *runtime, struct timer *timer)
{
    if (timer->place == TIMER_UNDATED)
        undated_remove(runtime, timer);
    timer_queue_remove(&runtime->timers, timer);
}

static void queue_due(struct runtime *runtime, int64_t now_ns)
{
    for (;;) {
        struct timer *timer = timer_queue_first(&runtime->timers);
        if (!timer || timer->deadline_ns > now_ns)
            return;
        timer_queue_remove(&runtime->timers, timer);
        queue_fired(runtime, timer, now_ns);
    }
}

/* Turns */

static void look_at_clock(struct runtime *runtime)
{
    if (runtime->undated_head || timer_queue_first(&runtime->timers))
        queue_due(runtime, runtime_now(runtime));
}

static bool poll_is_due(const struct runtime *runtime)
{
    uint64_t every = runtime->events ? TURNS_PER_POLL : TURNS_PER_IDLE_POLL;
    return (runtime->turns & (every - 1)) == 0;
}

/* Passes time until something is ready, or one wake-up, whichever comes first. */
static int wait_for_something(struct runtime *runtime, bool may_block, struct error *err)
{
    const struct timer *first = timer_queue_first(&runtime->timers);
    int64_t deadline_ns = first ? first->deadline_ns : RUNTIME_FOREVER;
    if (may_block && !first && runtime->events == 0)
        return error_set(err, ERROR_INTERNAL, "nothing left to wait for");
    if (runtime->clock->wait(runtime, deadline_ns, may_block, err) != 0)
        return -1;
    look_at_clock(runtime);
    return 0;
}

static void run_snapshot(struct runtime *runtime)
{
    runtime->turns++;
    task_run_snapshot(runtime, ready_take(&runtime->ready));
}

int runtime_turn(struct runtime *runtime, bool may_block, struct error *err)
{
    look_at_clock(runtime);
    if (ready_is_empty(&runtime->ready)) {
        if (wait_for_something(runtime, may_block, err) != 0)
            return -1;
    } else if (poll_is_due(runtime)) {
        if (runtime->clock->wait(runtime, RUNTIME_FOREVER, false, err) != 0)
            return -1;
    }
    if (ready_is_empty(&runtime->ready))
        return 0;
    run_snapshot(runtime);
    return 1;
}

int runtime_run_until(struct runtime *runtime, bool (*done)(const void *context), const void *context,
                      struct error *err)
{
    if (runtime->loop)
        uv_update_time(runtime->loop); /* libuv's cached clock is as old as its last turn */
    while (!done(context)) {
        if (runtime_turn(runtime, true, err) < 0)
            return -1;
    }
    return 0;
}

static bool task_is_done(const void *context)
{
    return ((const struct task *)context)->state == TASK_DONE;
}

int runtime_run_task(struct runtime *runtime, const struct task *task, struct error *err)
{
    return runtime_run_until(runtime, task_is_done, task, err);
}
