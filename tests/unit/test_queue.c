/* queue and outbox: order, ownership, two threads. */
#include "base/memory.h"
#include "worker/outbox.h"
#include "worker/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct numbered {
    struct queue_item item;
    int sender, number;
};

static void count_ring(void *context)
{
    ++*(int *)context;
}

static struct numbered *numbered_new(int sender, int number)
{
    struct numbered *numbered = memory_zeroed(1, sizeof *numbered);
    numbered->sender = sender;
    numbered->number = number;
    return numbered;
}

static void free_item(struct queue_item *item)
{
    free(item);
}

static void first_in_is_first_out(void **state)
{
    (void)state;
    struct queue queue;
    int rings = 0;
    queue_init(&queue, count_ring, &rings);
    assert_null(queue_pop(&queue));
    for (int i = 0; i < 3; i++)
        queue_push(&queue, &numbered_new(0, i)->item);
    assert_int_equal(rings, 3);
    for (int i = 0; i < 3; i++) {
        struct numbered *got = (struct numbered *)queue_pop(&queue);
        assert_int_equal(got->number, i);
        free(got);
    }
    assert_null(queue_pop(&queue));
    queue_push(&queue, &numbered_new(0, 9)->item); /* works again after it ran empty */
    queue_release(&queue, free_item); /* and what is left is disposed of: the leak checker knows */
}

enum { senders = 2, items = 20000 };

struct sender {
    struct queue *queue;
    int number;
};

static void *send_all(void *argument)
{
    const struct sender *sender = argument;
    for (int i = 0; i < items; i++)
        queue_push(sender->queue, &numbered_new(sender->number, i)->item);
    return NULL;
}

static void nothing_is_lost_between_threads(void **state)
{
    (void)state;
    struct queue queue;
    struct sender from[senders];
    pthread_t threads[senders];
    int next[senders] = {0};
    queue_init(&queue, NULL, NULL);
    for (int i = 0; i < senders; i++) {
        from[i] = (struct sender){&queue, i};
        assert_int_equal(pthread_create(&threads[i], NULL, send_all, &from[i]), 0);
    }
    for (int got = 0; got < senders * items;) {
        struct numbered *item = (struct numbered *)queue_pop(&queue);
        if (!item) {
            (void)sched_yield();
            continue;
        }
        assert_int_equal(item->number, next[item->sender]++);
        free(item);
        got++;
    }
    for (int i = 0; i < senders; i++)
        (void)pthread_join(threads[i], NULL);
    assert_null(queue_pop(&queue));
    queue_release(&queue, NULL);
}

static void add_part(struct outbox *outbox, int64_t group, int64_t attempt, int64_t part)
{
    struct wire_ack key = {group, attempt, 0, part};
    outbox_add(outbox, &key, (struct wire_bytes){memory_text("frame"), 5});
}

static void parts_stay_until_their_ack(void **state)
{
    (void)state;
    struct outbox outbox = {0};
    for (int64_t part = 0; part < 3; part++)
        add_part(&outbox, 1, 0, part);
    struct wire_ack middle = {1, 0, 0, 1}, other = {1, 1, 0, 1};
    assert_false(outbox_acknowledge(&outbox, &other));
    assert_int_equal(outbox.count, 3);
    assert_true(outbox_acknowledge(&outbox, &middle));
    assert_false(outbox_acknowledge(&outbox, &middle));
    assert_int_equal(outbox.count, 2);
    assert_int_equal(outbox.first->key.part, 0);
    assert_int_equal(outbox.first->next->key.part, 2);
    assert_null(outbox.first->next->next);
    add_part(&outbox, 1, 1, 0);
    outbox_drop(&outbox, 1, 0);
    assert_int_equal(outbox.count, 1);
    assert_int_equal(outbox.first->key.attempt, 1);
    outbox_clear(&outbox);
    assert_int_equal(outbox.count, 0);
    assert_null(outbox.first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_in_is_first_out),
        cmocka_unit_test(nothing_is_lost_between_threads),
        cmocka_unit_test(parts_stay_until_their_ack),
    };
    return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
