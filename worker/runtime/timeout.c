#include "worker/runtime/timeout.h"

static struct timeout *timeout_of_coro(struct coro *coro)
{
    return (struct timeout *)(void *)coro;
}

static void timeout_expire(struct runtime *runtime, struct call *call)
{
    struct timer *timer = (struct timer *)(void *)call;
    struct timeout *timeout = (struct timeout *)(void *)((char *)timer - offsetof(struct timeout, timer));
    if (!runtime_timer_fired(timer))
        return;
    (void)task_cancel(runtime, timeout->task);
    timeout->expired = true;
}

static void timeout_enter(struct timeout *timeout, struct activation *activation)
{
    timeout->task = activation->task;
    timeout->cancels_at_entry = activation->task->cancels;
    timeout->expired = false;
    if (timeout->delay_ns > 0)
        runtime_timer_start(activation->runtime, &timeout->timer, timeout->delay_ns);
    else
        runtime_timer_start_soon(activation->runtime, &timeout->timer);
}

static enum step timeout_resume(struct coro *coro, struct activation *activation)
{
    struct timeout *timeout = timeout_of_coro(coro);
    if (activation->wake == WAKE_START) {
        timeout_enter(timeout, activation);
        return coro_await(activation, timeout->inner);
    }
    runtime_timer_cancel(activation->runtime, &timeout->timer);
    if (timeout->expired && task_uncancel(timeout->task) <= timeout->cancels_at_entry &&
        activation->outcome.kind == OUTCOME_CANCELLED)
        return coro_return(activation, OUTCOME_TIMEOUT, 0);
    return STEP_DONE;
}

void timeout_init(struct timeout *timeout, struct coro *inner, int64_t delay_ns)
{
    *timeout = (struct timeout){.coro.resume = timeout_resume,
                                .inner = inner,
                                .timer.call.run = timeout_expire,
                                .delay_ns = delay_ns};
}
