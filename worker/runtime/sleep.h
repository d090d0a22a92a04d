/* sleep.h: a wait for a time that can be cancelled; what a leaf embeds.
 *
 * Two sources:
 *   SLEEP_TIMERFD   the runtime's own timers, ns, never early
 *   SLEEP_UV_TIMER  one uv_timer_t per sleep: whole ms over libuv's cached clock, so it can end early; it is
 * counted when it does (runtime.waits.early).  It exists to be compared with. Each wait that ends by its
 * timer is counted in runtime.waits, and its overshoot kept here.
 *
 * Ownership: embedded in its owner; with SLEEP_UV_TIMER the caller gives the uv_timer_t, initialised on the
 * runtime's loop, and closes it. */
#ifndef COREFAN_WORKER_RUNTIME_SLEEP_H
#define COREFAN_WORKER_RUNTIME_SLEEP_H

#include "worker/runtime/task.h"

struct uv_timer_s;

enum sleep_source { SLEEP_TIMERFD, SLEEP_UV_TIMER };

struct sleep {
    struct timer timer;
    struct waitable waitable;
    struct runtime *runtime;
    struct task *task;
    struct uv_timer_s *uv_timer; /* NULL: SLEEP_TIMERFD */
};

/* uv_timer NULL for SLEEP_TIMERFD.  Once, before use. */
void sleep_init(struct sleep *sleep, struct uv_timer_s *uv_timer);

/* Ends a step: `return sleep_start(&self->sleep, activation, delay_ns)`.  delay_ns > 0.  The coroutine is
 * resumed with WAKE_READY, or WAKE_CANCEL. */
enum step sleep_start(struct sleep *sleep, struct activation *activation, int64_t delay_ns);

/* Of the last wait that ended by its timer. */
static inline int64_t sleep_overshoot_ns(const struct sleep *sleep)
{
    return sleep->timer.fired_ns - sleep->timer.deadline_ns;
}

#endif
