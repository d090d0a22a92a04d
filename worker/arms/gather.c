/* gather: asyncio.gather(*children), with return_exceptions=False and True.
 *
 * The parent waits on one future, `outer`.  Whichever child's callback runs first with an error or a cancellation settles it;
 * the others run on, and what they end with later is looked at and dropped.  With return_exceptions everything is kept in the
 * result slots and outer settles when the last callback has run. */
#include "worker/arms/arms.h"

static void settle(struct runtime *runtime, struct fanout *fanout, struct outcome outcome)
{
    fanout->outer = outcome;
    fanout->outer_done = true;
    task_wake(runtime, fanout->parent, WAKE_READY);
}

static void settle_all_done(struct runtime *runtime, struct fanout *fanout)
{
    if (fanout->cancel_requested)
        settle(runtime, fanout, (struct outcome){OUTCOME_CANCELLED, 0});
    else
        settle(runtime, fanout, (struct outcome){OUTCOME_OK, (int64_t)(intptr_t)fanout});
}

static void child_kept(struct runtime *runtime, struct call *call)
{
    struct task *child = (struct task *)(void *)call;
    struct fanout *fanout = fanout_of_child(child);
    child->retrieved = true;
    if (++fanout->finished == fanout->count)
        settle_all_done(runtime, fanout);
}

static void child_done(struct runtime *runtime, struct call *call)
{
    struct task *child = (struct task *)(void *)call;
    struct fanout *fanout = fanout_of_child(child);
    child->retrieved = true;
    fanout->finished++;
    if (fanout->outer_done)
        return;
    if (child->kind != OUTCOME_OK)
        settle(runtime, fanout, task_outcome(child));
    else if (fanout->finished == fanout->count)
        settle_all_done(runtime, fanout);
}

/* _GatheringFuture.cancel: every child gets the request; the parent is not woken before one of them ends. */
static bool cancel_children(struct runtime *runtime, struct waitable *waitable)
{
    struct fanout *fanout = fanout_of_waitable(waitable);
    if (fanout->outer_done)
        return false;
    bool any = false;
    for (uint32_t i = 0; i < fanout->count; i++)
        any |= task_cancel(runtime, &fanout->tasks[i]);
    fanout->cancel_requested |= any;
    return any;
}

static enum step launch(struct fanout *fanout, struct activation *activation,
                        void (*on_done)(struct runtime *, struct call *))
{
    fanout->parent = activation->task;
    fanout->waitable.cancel = cancel_children;
    fanout->finished = 0;
    fanout->outer_done = false;
    fanout->cancel_requested = false;
    if (fanout->count == 0) {
        fanout->outer_done = true;
        return coro_return(activation, OUTCOME_OK, (int64_t)(intptr_t)fanout);
    }
    fanout_start_children(activation->runtime, fanout, on_done);
    return coro_suspend(activation, &fanout->waitable);
}

static enum step finish(struct fanout *fanout, struct activation *activation)
{
    if (activation->wake == WAKE_CANCEL)
        return coro_return(activation, OUTCOME_CANCELLED, 0);
    activation->outcome = fanout->outer;
    return STEP_DONE;
}

enum step gather_resume(struct coro *coro, struct activation *activation)
{
    struct fanout *fanout = fanout_of_coro(coro);
    return activation->wake == WAKE_START ? launch(fanout, activation, child_done)
                                          : finish(fanout, activation);
}

enum step gather_return_exceptions_resume(struct coro *coro, struct activation *activation)
{
    struct fanout *fanout = fanout_of_coro(coro);
    return activation->wake == WAKE_START ? launch(fanout, activation, child_kept)
                                          : finish(fanout, activation);
}
