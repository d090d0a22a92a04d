#include "worker/queue.h"

#include <stddef.h>

void queue_init(struct queue *queue, void (*ring)(void *), void *context)
{
    *queue = (struct queue){.ring = ring, .context = context};
    (void)pthread_mutex_init(&queue->lock, NULL);
}

void queue_release(struct queue *queue, void (*dispose)(struct queue_item *))
{
    for (struct queue_item *item = queue_pop(queue); item; item = queue_pop(queue))
        if (dispose)
            dispose(item);
    (void)pthread_mutex_destroy(&queue->lock);
}

void queue_push(struct queue *queue, struct queue_item *item)
{
    item->next = NULL;
    (void)pthread_mutex_lock(&queue->lock);
    if (queue->last)
        queue->last->next = item;
    else
        queue->first = item;
    queue->last = item;
    if (queue->ring)
        queue->ring(queue->context);
    (void)pthread_mutex_unlock(&queue->lock);
}

struct queue_item *queue_pop(struct queue *queue)
{
    (void)pthread_mutex_lock(&queue->lock);
    struct queue_item *item = queue->first;
    if (item)
        queue->first = item->next;
    if (!queue->first)
        queue->last = NULL;
    (void)pthread_mutex_unlock(&queue->lock);
    return item;
}
