#include "worker/runtime/task.h"

_Static_assert(sizeof(struct task) == 64, "a task is one cache line");

static void task_finish(struct runtime *runtime, struct task *task, struct outcome outcome)
{
    if (task->must_cancel) {
        task->must_cancel = false;
        if (outcome.kind == OUTCOME_OK)
            outcome = (struct outcome){OUTCOME_CANCELLED, 0};
    }
    task->kind = (uint8_t)outcome.kind;
    task->value = outcome.value;
    task->state = TASK_DONE;
    siblings_leave(task->siblings);
    if (task->on_done) {
        task->ready.run = task->on_done;
        ready_push(&runtime->ready, &task->ready);
    }
}

/* A request that came while the task ran goes to what it waits on now. */
static void suspend(struct runtime *runtime, struct task *task, struct coro *frame)
{
    task->innermost = frame;
    if (task->must_cancel && task->waiting && task->waiting->cancel(runtime, task->waiting))
        task->must_cancel = false;
}

/* The loop that runs frames: down with STEP_AWAIT, up with STEP_DONE, out with STEP_SUSPEND. */
static inline void run_frames(struct activation *activation, struct coro *frame)
{
    for (;;) {
        enum step step = frame->resume(frame, activation);
        if (step == STEP_DONE) {
            struct coro *caller = frame->caller;
            if (!caller) {
                task_finish(activation->runtime, activation->task, activation->outcome);
                return;
            }
            frame->caller = NULL;
            frame = caller;
            activation->wake = WAKE_RETURN;
        } else if (step == STEP_AWAIT) {
            activation->callee->caller = frame;
            frame = activation->callee;
            activation->wake = WAKE_START;
        } else {
            suspend(activation->runtime, activation->task, frame);
            return;
        }
    }
}

static inline void task_step(struct runtime *runtime, struct task *task)
{
    struct activation activation; /* outcome and callee are set where they mean something */
    activation.runtime = runtime;
    activation.task = task;
    activation.wake = (enum wake)task->wake;
    if (task->waiting)
        task->waiting = NULL;
    if (task->must_cancel) {
        task->must_cancel = false;
        if (activation.wake == WAKE_START) {
            task_finish(runtime, task, (struct outcome){OUTCOME_CANCELLED, 0});
            return;
        }
        activation.wake = WAKE_CANCEL;
    }
    run_frames(&activation, task->innermost);
}

void task_run(struct runtime *runtime, struct call *call)
{
    task_step(runtime, (struct task *)(void *)call);
}

void task_run_snapshot(struct runtime *runtime, struct call *call)
{
    while (call) {
        struct call *next = call->next;
        if (call->run == task_run)
            task_step(runtime, (struct task *)(void *)call);
        else
            call->run(runtime, call);
        call = next;
    }
}

void task_step_now(struct runtime *runtime, struct task *task, enum wake wake)
{
    task->wake = (uint8_t)wake;
    task_step(runtime, task);
}

bool task_cancel(struct runtime *runtime, struct task *task)
{
    if (task->state != TASK_ACTIVE) {
        task->retrieved = true; /* asyncio takes it that whoever cancels a failed task knows of it */
        return false;
    }
    if (task->cancels < UINT16_MAX)
        task->cancels++;
    if (!task->waiting || !task->waiting->cancel(runtime, task->waiting))
        task->must_cancel = true;
    return true;
}

uint32_t task_uncancel(struct task *task)
{
    if (task->cancels > 0 && --task->cancels == 0)
        task->must_cancel = false;
    return task->cancels;
}
