#include "worker/runtime/fanout.h"

#include <stdlib.h>
#include <string.h>

#define CACHE_LINE_BYTES 64u
#define MAX_CHILDREN     (1u << 24)

_Static_assert(offsetof(struct fanout, siblings) == 0, "a child finds its fan-out by its siblings");

static size_t whole_lines(size_t bytes)
{
    return (bytes + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES;
}

int fanout_new(uint32_t count, struct fanout **ret, struct error *err)
{
    if (count > MAX_CHILDREN)
        return error_set(err, ERROR_USAGE, "a fan-out of %u children is beyond %u", count, MAX_CHILDREN);
    size_t head = whole_lines(sizeof(struct fanout));
    size_t tasks = whole_lines(count * sizeof(struct task));
    size_t bodies = whole_lines(count * sizeof(struct coro *));
    size_t errors = whole_lines((count + 1) * sizeof(struct outcome));
    char *slab = aligned_alloc(CACHE_LINE_BYTES, head + tasks + bodies + errors);
    if (!slab)
        return error_set(err, ERROR_INTERNAL, "no memory for a fan-out of %u children", count);
    memset(slab, 0, head + tasks + bodies + errors); /* and every page of it is there from now on */
    struct fanout *fanout = (struct fanout *)(void *)slab;
    fanout->count = count;
    fanout->tasks = (struct task *)(void *)(slab + head);
    fanout->bodies = (struct coro **)(void *)(slab + head + tasks);
    fanout->errors = (struct outcome *)(void *)(slab + head + tasks + bodies);
    for (uint32_t i = 0; i < count; i++)
        fanout->tasks[i].siblings = &fanout->siblings;
    *ret = fanout;
    return 0;
}

void fanout_free(struct fanout *fanout)
{
    free(fanout);
}

static bool nothing_in_flight(const void *context)
{
    return fanout_in_flight(context) == 0;
}

int fanout_drain(struct runtime *runtime, struct fanout *fanout, struct error *err)
{
    if (runtime_run_until(runtime, nothing_in_flight, fanout, err) != 0)
        return -1;
    if (!ready_is_empty(&runtime->ready) &&
        runtime_turn(runtime, false, err) < 0) /* the last done-callbacks */
        return -1;
    return 0;
}

static bool is_error(enum outcome_kind kind)
{
    return kind == OUTCOME_FAIL || kind == OUTCOME_GROUP || kind == OUTCOME_TIMEOUT;
}

static uint64_t errors_in(const struct fanout *fanout, struct outcome outcome)
{
    if (outcome.kind == OUTCOME_GROUP && outcome.value == (int64_t)(intptr_t)fanout)
        return fanout->error_count;
    return is_error(outcome.kind) ? 1 : 0;
}

struct fanout_errors fanout_errors(const struct fanout *fanout, struct outcome outcome, bool keeps_errors)
{
    struct fanout_errors errors = {0};
    for (uint32_t i = 0; i < fanout->count; i++) {
        const struct task *child = &fanout->tasks[i];
        errors.failed += child->state == TASK_DONE && is_error((enum outcome_kind)child->kind);
    }
    bool all_kept = keeps_errors && outcome.kind == OUTCOME_OK;
    errors.seen = all_kept ? errors.failed : errors_in(fanout, outcome);
    if (errors.seen > errors.failed)
        errors.seen = errors.failed; /* the error of a timeout or of the group's own block is no child's */
    errors.lost = errors.failed - errors.seen;
    return errors;
}
