/* The floor: a bare queue of tasks without any semantics: no cancellation, no callbacks, no results that somebody waits
 * for.  Usage: floor [--json] [CHILDREN] */
#include "bench/floor.h"

#include "base/memory.h"

#include <stdint.h>
#include <string.h>

struct bare_task {
    struct bare_task *next;
    void (*run)(struct bare_task *);
    int64_t result;
    void *state[5];
};

struct floor {
    size_t children;
    struct bare_task *head, **tail;
    struct bare_task *tasks;
};

_Static_assert(sizeof(struct bare_task) == 64, "one cache line");

/* Not inlined: a job is somebody else's code. */
static __attribute__((noinline)) void bare_job(struct bare_task *task)
{
    task->result = 1;
}

struct floor *floor_new(size_t children)
{
    struct floor *floor = memory_zeroed(1, sizeof(*floor));
    floor->children = children;
    size_t bytes = (children ? children : 1) * sizeof(*floor->tasks);
    floor->tasks = aligned_alloc(sizeof(*floor->tasks), bytes);
    if (!floor->tasks)
        abort();
    memset(floor->tasks, 0, bytes);
    return floor;
}

void floor_free(struct floor *floor)
{
    if (floor)
        free(floor->tasks);
    free(floor);
}

void floor_run(struct floor *floor)
{
    floor->head = NULL;
    floor->tail = &floor->head;
    for (size_t i = 0; i < floor->children; i++) {
        struct bare_task *task = &floor->tasks[i];
        *task = (struct bare_task){.run = bare_job};
        *floor->tail = task;
        floor->tail = &task->next;
    }
    for (struct bare_task *task = floor->head; task; task = task->next)
        task->run(task);
}
