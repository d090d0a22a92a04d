/* ready.h: the queue of what runs next.
 *
 * A `struct call` is embedded in whatever wants to run: a task's next step, a task's done-callback, a timer
 * that fired. Calls run first in, first out, in whole snapshots: a call that is queued while a snapshot runs
 * belongs to the next one.  A call is in the queue at most once; its owner keeps it alive until it has run.
 * Nothing is ever taken out of the queue: what was cancelled meanwhile runs and does nothing.
 *
 * Threads: a queue belongs to the thread that drives its runtime.  Nothing here allocates or fails. */
#ifndef COREFAN_WORKER_RUNTIME_READY_H
#define COREFAN_WORKER_RUNTIME_READY_H

#include <stdbool.h>
#include <stddef.h>

struct runtime;

struct call {
    struct call *next;
    void (*run)(struct runtime *, struct call *);
};

struct ready {
    struct call *head;
    struct call *
        *tail; /* where the next call is linked in; what it points at ends the list only once it is taken */
};

static inline void ready_init(struct ready *ready)
{
    ready->head = NULL;
    ready->tail = &ready->head;
}

static inline void ready_push(struct ready *ready, struct call *call)
{
    *ready->tail = call;
    ready->tail = &call->next;
}

static inline bool ready_is_empty(const struct ready *ready)
{
    return ready->tail == &ready->head;
}

/* The whole queue as a list; the queue is empty afterwards.  Read call->next before the call runs: it may be
 * queued again from there. */
static inline struct call *ready_take(struct ready *ready)
{
    *ready->tail = NULL;
    struct call *snapshot = ready->head;
    ready_init(ready);
    return snapshot;
}

#endif
