#include "worker/runtime/sleep.h"

#include "base/clock.h"

#include <uv.h>

static struct sleep *sleep_of_waitable(struct waitable *waitable)
{
    return (struct sleep *)(void *)((char *)waitable - offsetof(struct sleep, waitable));
}

static void uv_timer_over(struct runtime *runtime, struct sleep *sleep)
{
    (void)uv_timer_stop(sleep->uv_timer);
    runtime_event_close(runtime);
}

static bool sleep_cancel(struct runtime *runtime, struct waitable *waitable)
{
    struct sleep *sleep = sleep_of_waitable(waitable);
    if (sleep->timer.place == TIMER_IDLE)
        return false;
    runtime->waits.waiting--;
    if (sleep->uv_timer && sleep->timer.place != TIMER_QUEUED)
        uv_timer_over(runtime, sleep);
    runtime_timer_cancel(runtime, &sleep->timer);
    task_wake(runtime, sleep->task, WAKE_CANCEL);
    return true;
}

static void sleep_over(struct runtime *runtime, struct call *call)
{
    struct sleep *sleep = (struct sleep *)(void *)call;
    if (!runtime_timer_fired(&sleep->timer))
        return;
    runtime->waits.waiting--;
    runtime_waits_note(runtime, sleep->timer.deadline_ns, sleep->timer.fired_ns);
    task_wake(runtime, sleep->task, WAKE_READY);
}

void sleep_init(struct sleep *sleep, struct uv_timer_s *uv_timer)
{
    *sleep =
        (struct sleep){.timer.call.run = sleep_over, .waitable.cancel = sleep_cancel, .uv_timer = uv_timer};
}

static void uv_timer_fired(uv_timer_t *handle)
{
    struct sleep *sleep = handle->data;
    runtime_event_close(sleep->runtime);
    runtime_timer_foreign_fired(sleep->runtime, &sleep->timer);
}

/* uv_timer knows whole milliseconds: rounded up, and still early by libuv's cached clock. */
static void uv_timer_begin(struct sleep *sleep, int64_t delay_ns)
{
    sleep->timer.foreign = true;
    sleep->uv_timer->data = sleep;
    runtime_event_open(sleep->runtime);
    (void)uv_timer_start(sleep->uv_timer, uv_timer_fired, (uint64_t)((delay_ns + NS_PER_MS - 1) / NS_PER_MS),
                         0);
    runtime_timer_date(sleep->runtime, &sleep->timer, delay_ns);
}

enum step sleep_start(struct sleep *sleep, struct activation *activation, int64_t delay_ns)
{
    sleep->runtime = activation->runtime;
    sleep->task = activation->task;
    struct wait_statistics *waits = &sleep->runtime->waits;
    waits->waiting++;
    waits->most_waiting = waits->waiting > waits->most_waiting ? waits->waiting : waits->most_waiting;
    if (sleep->uv_timer)
        uv_timer_begin(sleep, delay_ns);
    else
        runtime_timer_start(sleep->runtime, &sleep->timer, delay_ns);
    return coro_suspend(activation, &sleep->waitable);
}
