#include "worker/runtime/timer.h"

/* Places that an insertion looks back in the list before it takes the heap. */
#define MAX_STEPS_BACK 8

void timer_queue_init(struct timer_queue *queue)
{
    *queue = (struct timer_queue){0};
}

static void link_after(struct timer_queue *queue, struct timer *timer, struct timer *before)
{
    struct timer *after = before ? before->next : queue->head;
    timer->previous = before;
    timer->next = after;
    *(before ? &before->next : &queue->head) = timer;
    *(after ? &after->previous : &queue->tail) = timer;
    timer->place = TIMER_LISTED;
}

static void unlink_listed(struct timer_queue *queue, struct timer *timer)
{
    *(timer->previous ? &timer->previous->next : &queue->head) = timer->next;
    *(timer->next ? &timer->next->previous : &queue->tail) = timer->previous;
}

static bool is_before(const struct timer *a, const struct timer *b)
{
    return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns : a->order < b->order;
}

/* Both are roots, without siblings. */
static struct timer *heap_merge(struct timer *a, struct timer *b)
{
    if (!a || !b)
        return a ? a : b;
    if (is_before(b, a)) {
        struct timer *swap = a;
        a = b;
        b = swap;
    }
    b->previous = a;
    b->next = a->child;
    if (a->child)
        a->child->previous = b;
    a->child = b;
    return a;
}

/* Two passes: pairs from left to right, then all of them from right to left. */
static struct timer *heap_merge_siblings(struct timer *first)
{
    struct timer *pairs = NULL; /* linked by next, the last pair first */
    while (first) {
        struct timer *a = first, *b = first->next;
        first = b ? b->next : NULL;
        a->next = NULL;
        if (b)
            b->next = NULL;
        a = heap_merge(a, b);
        a->next = pairs;
        pairs = a;
    }
    struct timer *root = NULL;
    while (pairs) {
        struct timer *pair = pairs;
        pairs = pair->next;
        pair->next = NULL;
        root = heap_merge(root, pair);
    }
    if (root)
        root->previous = NULL;
    return root;
}

static void heap_remove(struct timer_queue *queue, struct timer *timer)
{
    struct timer *orphans = heap_merge_siblings(timer->child);
    if (timer == queue->heap) {
        queue->heap = orphans;
        return;
    }
    if (timer->previous->child == timer)
        timer->previous->child = timer->next;
    else
        timer->previous->next = timer->next;
    if (timer->next)
        timer->next->previous = timer->previous;
    queue->heap = heap_merge(queue->heap, orphans);
}

void timer_queue_insert(struct timer_queue *queue, struct timer *timer, int64_t deadline_ns)
{
    timer->deadline_ns = deadline_ns;
    timer->order = queue->next_order++;
    struct timer *before = queue->tail;
    for (int steps = 0; before && before->deadline_ns > deadline_ns; before = before->previous) {
        if (++steps > MAX_STEPS_BACK) {
            timer->previous = timer->next = timer->child = NULL;
            timer->place = TIMER_HEAPED;
            queue->heap = heap_merge(queue->heap, timer);
            return;
        }
    }
    link_after(queue, timer, before);
}

void timer_queue_remove(struct timer_queue *queue, struct timer *timer)
{
    if (timer->place == TIMER_LISTED)
        unlink_listed(queue, timer);
    else if (timer->place == TIMER_HEAPED)
        heap_remove(queue, timer);
    timer->place = TIMER_IDLE;
}
