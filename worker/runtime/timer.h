/* timer.h: an ordered queue of deadlines in ns, the earliest first, equal ones in the order in which they
 * were set.
 *
 * Most deadlines of a fan-out grow with the time at which they are set: they are appended to a sorted list,
 * in O(1). One that belongs further back than a few places goes into a pairing heap beside it (Fredman,
 * Sedgewick, Sleator, Tarjan: "The pairing heap", Algorithmica 1986; two-pass merge).  A timer leaves the
 * list in O(1) and the heap in amortised O(log n).
 *
 * This is a data structure: it reads no clock.  The runtime (runtime.h) gives timers their deadlines and runs
 * them. Memory: timers are embedded in their owners, who keep them alive while they are set.  Nothing
 * allocates or fails. */
#ifndef COREFAN_WORKER_RUNTIME_TIMER_H
#define COREFAN_WORKER_RUNTIME_TIMER_H

#include "worker/runtime/ready.h"

#include <stdbool.h>
#include <stdint.h>

enum timer_place {
    TIMER_IDLE,    /* not set, or has run */
    TIMER_UNDATED, /* set, its deadline is given at the next clock read; deadline_ns holds the delay until
                      then */
    TIMER_LISTED,
    TIMER_HEAPED,
    TIMER_FOREIGN, /* dated, and kept by somebody else (a uv_timer_t) */
    TIMER_QUEUED,  /* fired: its call is in the ready queue */
};

struct timer {
    struct call call; /* run when it fires; its owner sets call.run once */
    int64_t deadline_ns;
    uint64_t order;
    struct timer *previous, *next; /* in the list, among the undated, or among siblings in the heap */
    union {
        struct timer *child; /* in the heap */
        int64_t fired_ns;    /* once fired: the clock read that found it due */
    };
    uint8_t place; /* enum timer_place */
    bool linked;   /* its call is in the ready queue, wanted or not */
    bool foreign;  /* it is only dated here, and fires elsewhere */
};

struct timer_queue {
    struct timer *head, *tail; /* the sorted list */
    struct timer *heap;
    uint64_t next_order;
};

void timer_queue_init(struct timer_queue *queue);

/* Sets timer to deadline_ns.  It must not be in this queue. */
void timer_queue_insert(struct timer_queue *queue, struct timer *timer, int64_t deadline_ns);

/* Takes a listed or heaped timer out; it is idle then. */
void timer_queue_remove(struct timer_queue *queue, struct timer *timer);

/* The earliest one, or NULL. */
static inline struct timer *timer_queue_first(const struct timer_queue *queue)
{
    struct timer *listed = queue->head, *heaped = queue->heap;
    if (!heaped || !listed)
        return heaped ? heaped : listed;
    if (listed->deadline_ns != heaped->deadline_ns)
        return listed->deadline_ns < heaped->deadline_ns ? listed : heaped;
    return listed->order < heaped->order ? listed : heaped;
}

#endif
