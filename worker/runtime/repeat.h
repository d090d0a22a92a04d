/* repeat.h: a coroutine that awaits another one a number of times; for fan-outs that are too short to time
 * alone.
 *
 * It stops at the first outcome that is not OUTCOME_OK and ends with it (done then tells how many were OK).
 */
#ifndef COREFAN_WORKER_RUNTIME_REPEAT_H
#define COREFAN_WORKER_RUNTIME_REPEAT_H

#include "worker/runtime/task.h"

struct repeat {
    struct coro coro; /* await this, or start a task with it */
    struct coro *inner;
    uint64_t times; /* may be changed between uses */
    uint64_t done;
};

void repeat_init(struct repeat *repeat, struct coro *inner, uint64_t times);

/* Runs the repeat in a task of its own until it is done, and returns its outcome.  0, or -1 as
 * runtime_run_task. */
int repeat_run(struct runtime *runtime, struct repeat *repeat, struct outcome *ret, struct error *err);

#endif
