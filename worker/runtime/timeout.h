/* timeout.h: a coroutine that awaits another one for a limited time: asyncio.timeout.
 *
 * When the time is up it cancels the task that it runs in.  If the awaited coroutine then ends as cancelled,
 * and nobody else cancelled the task meanwhile, the outcome is OUTCOME_TIMEOUT; in any other case it is what
 * the coroutine ended with. A timeout is soft: children that clean up after the cancel are waited for. */
#ifndef COREFAN_WORKER_RUNTIME_TIMEOUT_H
#define COREFAN_WORKER_RUNTIME_TIMEOUT_H

#include "worker/runtime/task.h"

struct timeout {
    struct coro coro; /* await this, as often as you like */
    struct coro *inner;
    struct timer timer;
    struct task *task;
    int64_t delay_ns;
    uint32_t cancels_at_entry;
    bool expired;
};

/* delay_ns <= 0 expires in the next snapshot. */
void timeout_init(struct timeout *timeout, struct coro *inner, int64_t delay_ns);

#endif
