/* taskgroup: asyncio.TaskGroup of CPython 3.13.
 *
 * The first child that fails cancels its siblings and the parent's own block, all are awaited, and all errors are raised together.
 * The parent waits on a future, `completed`, that the last child's callback settles; a cancel of the parent settles it too,
 * and the parent then waits on a new one. */
#include "worker/arms/arms.h"

enum stage { STAGE_BODY, STAGE_WAITING };

enum completed { COMPLETED_NONE, COMPLETED_PENDING, COMPLETED_SETTLED };

static void abort_children(struct runtime *runtime, struct fanout *fanout)
{
    fanout->aborting = true;
    for (uint32_t i = 0; i < fanout->count; i++) {
        if (fanout->tasks[i].state != TASK_DONE)
            (void)task_cancel(runtime, &fanout->tasks[i]);
    }
}

static bool settle(struct runtime *runtime, struct fanout *fanout, enum wake wake)
{
    if (fanout->completed != COMPLETED_PENDING)
        return false;
    fanout->completed = COMPLETED_SETTLED;
    task_wake(runtime, fanout->parent, wake);
    return true;
}

static bool cancel_wait(struct runtime *runtime, struct waitable *waitable)
{
    return settle(runtime, fanout_of_waitable(waitable), WAKE_CANCEL);
}

static void child_failed(struct runtime *runtime, struct fanout *fanout, struct task *child)
{
    child->retrieved = true;
    fanout->errors[fanout->error_count++] = task_outcome(child);
    if (fanout->aborting || fanout->cancel_requested)
        return;
    abort_children(runtime, fanout);
    fanout->cancel_requested = true;
    (void)task_cancel(runtime, fanout->parent);
}

static void child_done(struct runtime *runtime, struct call *call)
{
    struct task *child = (struct task *)(void *)call;
    struct fanout *fanout = fanout_of_child(child);
    if (++fanout->finished == fanout->count)
        (void)settle(runtime, fanout, WAKE_READY);
    if (child->kind != OUTCOME_OK && child->kind != OUTCOME_CANCELLED)
        child_failed(runtime, fanout, child);
}

/* All children are done: what does the group end with? */
static enum step leave(struct fanout *fanout, struct activation *activation)
{
    struct task *parent = fanout->parent;
    /* the request that the group itself made is taken back; if it was the only one, there is nothing to pass on */
    if (fanout->cancel_requested && task_uncancel(parent) == 0)
        fanout->propagate_cancel = false;
    if (fanout->propagate_cancel && fanout->error_count == 0)
        return coro_return(activation, OUTCOME_CANCELLED, 0);
    if (fanout->outer.kind != OUTCOME_OK && fanout->outer.kind != OUTCOME_CANCELLED)
        fanout->errors[fanout->error_count++] = fanout->outer;
    if (fanout->error_count == 0)
        return coro_return(activation, OUTCOME_OK, (int64_t)(intptr_t)fanout);
    if (parent->cancels > 0) {
        /* cancelled from outside as well: the errors go first, the cancel is thrown at the parent's next wait */
        (void)task_uncancel(parent);
        (void)task_cancel(activation->runtime, parent);
    }
    return coro_return(activation, OUTCOME_GROUP, (int64_t)(intptr_t)fanout);
}

static enum step wait_for_children(struct fanout *fanout, struct activation *activation)
{
    fanout->stage = STAGE_WAITING;
    if (fanout->finished == fanout->count) {
        fanout->completed = COMPLETED_NONE;
        return leave(fanout, activation);
    }
    fanout->completed = COMPLETED_PENDING;
    return coro_suspend(activation, &fanout->waitable);
}

/* The group's own block is over, with fanout->outer. */
static enum step leave_body(struct fanout *fanout, struct activation *activation)
{
    fanout->propagate_cancel = fanout->outer.kind == OUTCOME_CANCELLED;
    if (fanout->outer.kind != OUTCOME_OK && !fanout->aborting)
        abort_children(activation->runtime, fanout);
    return wait_for_children(fanout, activation);
}

static enum step enter(struct fanout *fanout, struct activation *activation)
{
    fanout->parent = activation->task;
    fanout->waitable.cancel = cancel_wait;
    fanout->finished = 0;
    fanout->error_count = 0;
    fanout->outer = (struct outcome){OUTCOME_OK, 0};
    fanout->completed = COMPLETED_NONE;
    fanout->aborting = false;
    fanout->cancel_requested = false;
    fanout->propagate_cancel = false;
    fanout_start_children(activation->runtime, fanout, child_done);
    if (!fanout->body)
        return wait_for_children(fanout, activation);
    fanout->stage = STAGE_BODY;
    return coro_await(activation, fanout->body);
}

enum step taskgroup_resume(struct coro *coro, struct activation *activation)
{
    struct fanout *fanout = fanout_of_coro(coro);
    if (activation->wake == WAKE_START)
        return enter(fanout, activation);
    if (fanout->stage == STAGE_BODY) {
        fanout->outer = activation->outcome;
        return leave_body(fanout, activation);
    }
    if (activation->wake == WAKE_CANCEL && !fanout->aborting) {
        fanout->propagate_cancel = true;
        abort_children(activation->runtime, fanout);
    }
    return wait_for_children(fanout, activation);
}
