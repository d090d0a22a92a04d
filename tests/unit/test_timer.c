/* The timer queue against a plain array that is searched from end to end. */
#include "base/rng.h"
#include "worker/runtime/timer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TIMERS 300

struct world {
    struct timer_queue queue;
    struct timer timers[TIMERS];
    bool set[TIMERS];
    int64_t deadline_ns[TIMERS];
    uint64_t order[TIMERS];
    uint64_t next_order;
    size_t heaped; /* how often the heap was used at all */
};

static bool earlier(const struct world *world, size_t a, size_t b)
{
    if (world->deadline_ns[a] != world->deadline_ns[b])
        return world->deadline_ns[a] < world->deadline_ns[b];
    return world->order[a] < world->order[b];
}

static struct timer *reference_first(struct world *world)
{
    size_t first = TIMERS;
    for (size_t i = 0; i < TIMERS; i++) {
        if (world->set[i] && (first == TIMERS || earlier(world, i, first)))
            first = i;
    }
    return first == TIMERS ? NULL : &world->timers[first];
}

static void insert(struct world *world, size_t i, int64_t deadline_ns)
{
    timer_queue_insert(&world->queue, &world->timers[i], deadline_ns);
    world->set[i] = true;
    world->deadline_ns[i] = deadline_ns;
    world->order[i] = world->next_order++;
    world->heaped += world->timers[i].place == TIMER_HEAPED;
}

static void take(struct world *world, size_t i)
{
    timer_queue_remove(&world->queue, &world->timers[i]);
    world->set[i] = false;
    assert_int_equal(world->timers[i].place, TIMER_IDLE);
}

/* Random insertions, cancellations and expiries; `spread` sets how far deadlines lie apart. */
static size_t run_world(uint64_t seed, uint64_t spread)
{
    static struct world world;
    world = (struct world){0};
    timer_queue_init(&world.queue);
    struct rng rng = rng_seeded(seed);
    int64_t now_ns = 0;
    for (int step = 0; step < 4000; step++) {
        size_t i = rng_below(&rng, TIMERS);
        if (rng_below(&rng, 10) == 0) {
            struct timer *first = timer_queue_first(&world.queue);
            if (first) {
                now_ns = first->deadline_ns;
                take(&world, (size_t)(first - world.timers));
            }
        } else if (world.set[i]) {
            take(&world, i);
        } else {
            insert(&world, i, now_ns + (int64_t)rng_below(&rng, spread));
        }
        assert_ptr_equal(timer_queue_first(&world.queue), reference_first(&world));
    }
    for (struct timer *first; (first = timer_queue_first(&world.queue));) {
        assert_ptr_equal(first, reference_first(&world));
        take(&world, (size_t)(first - world.timers));
    }
    assert_null(reference_first(&world));
    return world.heaped;
}

static void test_agrees_with_a_plain_search(void **state)
{
    (void)state;
    size_t heaped = 0;
    for (uint64_t seed = 1; seed <= 30; seed++)
        heaped += run_world(seed, seed % 3 == 0 ? 4 : 1000000);
    assert_true(heaped > 1000); /* or the heap was not tested */
}

static void test_growing_deadlines_stay_in_the_list(void **state)
{
    (void)state;
    static struct timer timers[1000];
    struct timer_queue queue;
    timer_queue_init(&queue);
    for (size_t i = 0; i < 1000; i++) {
        timer_queue_insert(&queue, &timers[i], (int64_t)(i / 10));
        assert_int_equal(timers[i].place, TIMER_LISTED);
    }
    for (size_t i = 0; i < 1000; i++) {
        assert_ptr_equal(timer_queue_first(&queue), &timers[i]);
        timer_queue_remove(&queue, &timers[i]);
    }
}

static void test_removing_an_idle_timer_is_fine(void **state)
{
    (void)state;
    struct timer_queue queue;
    struct timer timer = {.deadline_ns = 5};
    timer_queue_init(&queue);
    timer_queue_remove(&queue, &timer);
    timer_queue_insert(&queue, &timer, 1);
    timer_queue_remove(&queue, &timer);
    timer_queue_remove(&queue, &timer);
    assert_null(timer_queue_first(&queue));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_a_plain_search),
        cmocka_unit_test(test_growing_deadlines_stay_in_the_list),
        cmocka_unit_test(test_removing_an_idle_timer_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
