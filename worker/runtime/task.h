/* task.h: coroutines, and the tasks that run them.  The rules are those of CPython 3.13's asyncio.
 *
 * A coroutine (`struct coro`) is a function that can stop half-way.  It is embedded in a struct that holds
 * its state, and resumed with a reason (`enum wake`).  It answers in one of three ways: STEP_AWAIT    run
 * another coroutine inside this task, resume me with WAKE_RETURN and its outcome when it is done STEP_SUSPEND
 * the task has something to wait for (coro_suspend) or lets others run first (coro_yield) STEP_DONE finished
 * with an outcome Awaiting is a loop in the task's step, not a call: a million awaits in a row do not deepen
 * the stack.
 *
 * A task runs one outermost coroutine.  Each of its steps is an entry in the ready queue; so is its
 * done-callback. These are asyncio's rules, to the turn:
 *   - task_start queues the first step; it runs in the next snapshot.
 *   - a finished task queues its one done-callback and never runs it inline.
 *   - task_cancel counts one request and passes it to what the task waits on.  Where nothing can take it (not
 * started, yielding, or the awaited thing is done already), the next step throws it instead.
 *   - a coroutine is told of a cancellation with WAKE_CANCEL and may do with it what it likes.  A task that
 * was cancelled before its first step never runs.  One that returns while a request is still undelivered is
 * cancelled.
 *
 * Ownership: the caller owns tasks and coroutines; they must outlive their last callback.  Values are int64_t
 * that the runtime never looks at: a number, or a pointer that its maker owns.  Threads: the one that drives
 * the runtime. Nothing here allocates or fails. */
#ifndef COREFAN_WORKER_RUNTIME_TASK_H
#define COREFAN_WORKER_RUNTIME_TASK_H

#include "worker/runtime/runtime.h"

#include <stdbool.h>
#include <stdint.h>

struct task;
struct coro;

enum outcome_kind {
    OUTCOME_OK,
    OUTCOME_FAIL, /* value: the error */
    OUTCOME_CANCELLED,
    OUTCOME_TIMEOUT,
    OUTCOME_GROUP, /* several errors; value: the struct fanout * that holds them (fanout.h) */
};

struct outcome {
    enum outcome_kind kind;
    int64_t value;
};

enum wake {
    WAKE_START,  /* from the beginning */
    WAKE_READY,  /* what it waited for is there */
    WAKE_CANCEL, /* Cancelled is thrown where it stands */
    WAKE_RETURN, /* the coroutine it awaited is done: see activation.outcome */
};

enum step { STEP_AWAIT, STEP_SUSPEND, STEP_DONE };

/* What a resume function gets and gives. */
struct activation {
    struct runtime *runtime;
    struct task *task;
    enum wake wake;
    struct outcome outcome; /* in: with WAKE_RETURN; out: with STEP_DONE */
    struct coro *callee;    /* out: with STEP_AWAIT */
};

struct coro {
    enum step (*resume)(struct coro *self, struct activation *activation);
    struct coro *caller; /* who awaits it in this task; NULL while nobody does */
};

/* Something that a task can wait on.  cancel gives it up and wakes the task with WAKE_CANCEL, now or later;
 * false: too late, it is done already (the wake-up is on its way). */
struct waitable {
    bool (*cancel)(struct runtime *runtime, struct waitable *self);
};

enum task_state { TASK_IDLE, TASK_ACTIVE, TASK_DONE };

struct task {
    struct call ready;        /* its next step; once it is done, its done-callback */
    struct coro *innermost;   /* the frame that its next step resumes */
    struct waitable *waiting; /* what it was last suspended on; NULL from its next step on */
    void (*on_done)(struct runtime *, struct call *); /* gets &task->ready; NULL: nobody waits for it */
    struct siblings *siblings;                        /* never NULL */
    int64_t value;                                    /* of its outcome */
    union {
        struct {
            uint16_t cancels; /* requests not yet uncancelled: asyncio's cancelling() */
            uint8_t kind;     /* enum outcome_kind, once done */
            uint8_t state;    /* enum task_state */
            uint8_t wake;     /* enum wake of the next step */
            bool must_cancel; /* the next step throws Cancelled */
            bool retrieved; /* somebody looked at its outcome (asyncio logs failed tasks where nobody did) */
        };
        uint64_t status; /* all of these, to set them at once */
    };
};

/* For the loop: runs all calls of a snapshot.  Most are steps of tasks, which it runs without the detour of an indirect call. */
void task_run_snapshot(struct runtime *runtime, struct call *call);

/* The call.run of a task's step; for task_start only. */
void task_run(struct runtime *runtime, struct call *call);

static const struct task task_started = {.kind = OUTCOME_OK, .state = TASK_ACTIVE, .wake = WAKE_START};

/* For many at once (fanout.h): makes the task ready to be queued.  The caller queues it, counts it, and has set its
 * siblings. */
static inline void task_prepare(struct task *task, struct coro *body,
                                void (*on_done)(struct runtime *, struct call *))
{
    task->ready.run = task_run;
    task->innermost = body;
    task->on_done = on_done;
    task->status = task_started.status;
}

/* Makes the task (a TASK_IDLE or TASK_DONE one, whose callbacks have all run) run body from its start, in the next
 * snapshot. */
static inline void task_start(struct runtime *runtime, struct task *task, struct coro *body,
                              struct siblings *siblings, void (*on_done)(struct runtime *, struct call *))
{
    task->siblings = siblings;
    task_prepare(task, body, on_done);
    siblings_enter(siblings, 1);
    ready_push(&runtime->ready, &task->ready);
}

/* asyncio's Task.cancel(): false when it is done already. */
bool task_cancel(struct runtime *runtime, struct task *task);

/* asyncio's Task.uncancel(): takes one request back and returns how many are left; at 0 an undelivered one is
 * forgotten. */
uint32_t task_uncancel(struct task *task);

/* Queues the next step of a suspended task.  For waitables: call it once, when the wait is over. */
static inline void task_wake(struct runtime *runtime, struct task *task, enum wake wake)
{
    task->wake = (uint8_t)wake;
    ready_push(&runtime->ready, &task->ready);
}

/* Runs the next step of a suspended task at once.  Only for a done-callback that is itself the wake-up. */
void task_step_now(struct runtime *runtime, struct task *task, enum wake wake);

static inline struct outcome task_outcome(const struct task *task)
{
    return (struct outcome){(enum outcome_kind)task->kind, task->value};
}

static inline enum step coro_return(struct activation *activation, enum outcome_kind kind, int64_t value)
{
    activation->outcome = (struct outcome){kind, value};
    return STEP_DONE;
}

static inline enum step coro_await(struct activation *activation, struct coro *callee)
{
    activation->callee = callee;
    return STEP_AWAIT;
}

/* Waits for `waitable`, whose maker wakes the task. */
static inline enum step coro_suspend(struct activation *activation, struct waitable *waitable)
{
    activation->task->waiting = waitable;
    return STEP_SUSPEND;
}

/* Lets everything run that is queued: asyncio.sleep(0). */
static inline enum step coro_yield(struct activation *activation)
{
    task_wake(activation->runtime, activation->task, WAKE_READY);
    return STEP_SUSPEND;
}

#endif
