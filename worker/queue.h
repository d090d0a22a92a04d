/* queue.h: where the two threads of a worker meet.
 *
 * A first-in first-out list of items under a mutex, and a bell that the receiver sleeps on: uv_async_send
 * towards the measured thread, an eventfd towards the session thread.  An item is embedded as the first
 * member of what it carries.  Ownership goes with the item: to the queue on push, to the receiver on pop.
 *
 * Threads: one or more may push, one pops.  Neither call blocks beyond the mutex, and neither allocates. */
#ifndef COREFAN_WORKER_QUEUE_H
#define COREFAN_WORKER_QUEUE_H

#include <pthread.h>

struct queue_item {
    struct queue_item *next;
};

struct queue {
    pthread_mutex_t lock;
    struct queue_item *first, *last;
    void (*ring)(void *context); /* called within each push, so never after the item was popped */
    void *context;
};

void queue_init(struct queue *queue, void (*ring)(void *), void *context);

/* Items that are left go through `dispose` (NULL: they are forgotten).  No thread may use the queue any
 * more. */
void queue_release(struct queue *queue, void (*dispose)(struct queue_item *));

void queue_push(struct queue *queue, struct queue_item *item);

/* The oldest item, or NULL. */
struct queue_item *queue_pop(struct queue *queue);

#endif
