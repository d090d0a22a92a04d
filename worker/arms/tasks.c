/* tasks: make every task, then `[await task for task in tasks]`.
 *
 * Each failure is seen only when its turn comes; where the parent leaves early, the tasks behind run on as orphans and
 * their errors are never retrieved.  Being cancelled hits the awaited child alone. */
#include "worker/arms/arms.h"

/* The child's done-callback is the parent's wake-up itself: no turn between them. */
static void wake_parent(struct runtime *runtime, struct call *call)
{
    struct task *child = (struct task *)(void *)call;
    task_step_now(runtime, fanout_of_child(child)->parent, WAKE_READY);
}

static bool cancel_awaited(struct runtime *runtime, struct waitable *waitable)
{
    struct fanout *fanout = fanout_of_waitable(waitable);
    return task_cancel(runtime, &fanout->tasks[fanout->next]);
}

static void launch(struct fanout *fanout, struct activation *activation)
{
    fanout->parent = activation->task;
    fanout->waitable.cancel = cancel_awaited;
    fanout->next = 0;
    fanout_start_children(activation->runtime, fanout, NULL);
}

static enum step await_rest(struct fanout *fanout, struct activation *activation)
{
    for (; fanout->next < fanout->count; fanout->next++) {
        struct task *child = &fanout->tasks[fanout->next];
        if (child->state != TASK_DONE) {
            child->on_done = wake_parent;
            return coro_suspend(activation, &fanout->waitable);
        }
        child->retrieved = true;
        if (child->kind != OUTCOME_OK) {
            activation->outcome = task_outcome(child);
            return STEP_DONE;
        }
    }
    return coro_return(activation, OUTCOME_OK, (int64_t)(intptr_t)fanout);
}

enum step tasks_resume(struct coro *coro, struct activation *activation)
{
    struct fanout *fanout = fanout_of_coro(coro);
    if (activation->wake == WAKE_START) {
        launch(fanout, activation);
    } else if (activation->wake == WAKE_CANCEL) {
        fanout->tasks[fanout->next].retrieved = true; /* the wake-up looked at it before it threw */
        return coro_return(activation, OUTCOME_CANCELLED, 0);
    }
    return await_rest(fanout, activation);
}
