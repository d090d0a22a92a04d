/* runtime.h: the loop.  It runs what is ready, fires timers that are due, and waits when there is nothing to
 * do.
 *
 * One turn = append the timers that are due to the ready queue, then run one snapshot of it.  The clock is
 * looked at before each snapshot while timers are set.  When nothing is ready the runtime waits for the
 * earliest deadline.  How it tells and passes time is a table of functions: runtime_init          real time:
 * CLOCK_MONOTONIC, one timerfd (absolute, ns) polled by a libuv loop.  Several turns run per turn of the
 * libuv loop; a fan-out that never waits does not reach libuv at all. runtime_init_virtual  virtual time from
 * 0: waiting jumps to the next deadline.  No libuv, no system call.
 *
 * A deadline is a clock read at or after the wait call plus its delay, and nothing fires before its deadline.
 * Reading the clock costs as much as starting a few waits, so waits that start in one snapshot share a read
 * (every 32, or at the end of the snapshot, or when anyone calls runtime_now).  Code that is going to burn
 * CPU calls runtime_now first, so that it does not delay the waits that were started before.
 *
 * Ownership: the caller owns the struct runtime and must not move it; release it when nothing is set or
 * queued any more. Threads: init, use and release on one thread.  After init nothing allocates. */
#ifndef COREFAN_WORKER_RUNTIME_RUNTIME_H
#define COREFAN_WORKER_RUNTIME_RUNTIME_H

#include "base/error.h"
#include "worker/runtime/ready.h"
#include "worker/runtime/siblings.h"
#include "worker/runtime/timer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUNTIME_FOREVER INT64_MAX

struct task;
struct uv_loop_s;
struct runtime_poll; /* timerfd and libuv handle of real time: private to runtime.c */

struct runtime_clock {
    int64_t (*now)(struct runtime *runtime); /* ns */
    /* Waits until deadline_ns (RUNTIME_FOREVER: until an event) and lets events queue calls; with may_block
     * false it only looks. 0, or -1: nothing can ever happen any more, or the system failed. */
    int (*wait)(struct runtime *runtime, int64_t deadline_ns, bool may_block, struct error *err);
};

/* Waits that ended by their timer since the caller last cleared these.  Set log to a buffer to keep every
 * value. */
struct wait_statistics {
    uint64_t count;
    uint64_t early;           /* ended before their deadline: an error with timerfd, expected with uv_timer */
    int64_t overshoot_min_ns; /* signed: clock read that found it due - deadline; INT64_MAX without waits */
    int64_t overshoot_max_ns; /* INT64_MIN without waits */
    uint64_t waiting, most_waiting; /* sleeps under way now, and the most at one time */
    int64_t *log;                   /* the first log_capacity overshoots in order of firing; the caller's */
    size_t log_capacity;
};

struct runtime {
    struct ready ready;
    struct timer_queue timers;
    struct timer *undated_head, *undated_tail; /* waits whose deadline comes with the next clock read */
    uint32_t undated_count;
    uint32_t events;  /* sources beyond timers that may still queue calls (sockets, uv_timers): see
                         runtime_event_* */
    uint64_t turns;   /* snapshots run */
    uint64_t wakeups; /* returns from a poll that could block */
    struct wait_statistics waits;
    struct siblings roots; /* for tasks that belong to no fan-out */
    const struct runtime_clock *clock;
    struct uv_loop_s *loop; /* NULL in virtual time */
    struct runtime_poll *poll;
    int64_t virtual_ns;
};

/* Real time on a libuv loop, which the caller owns and closes after runtime_release (run it once more to let
 * closed handles go).  0 or -1. */
int runtime_init(struct runtime *runtime, struct uv_loop_s *loop, struct error *err);

void runtime_init_virtual(struct runtime *runtime);

/* Fine on a zeroed runtime and twice. */
void runtime_release(struct runtime *runtime);

/* The clock, in ns.  Dates the waits that were started before this call. */
int64_t runtime_now(struct runtime *runtime);

/* Queues a call (one that is not queued) for the next snapshot. */
static inline void runtime_call_soon(struct runtime *runtime, struct call *call)
{
    ready_push(&runtime->ready, call);
}

/* Turns until done(context) is true, looked at before each turn.  0, or -1: nothing is ready, set or open any
 * more
 * ("nothing left to wait for"), or the system failed. */
int runtime_run_until(struct runtime *runtime, bool (*done)(const void *context), const void *context,
                      struct error *err);

/* The same until the task is done.  Its done-callback, if any, is still queued then. */
int runtime_run_task(struct runtime *runtime, const struct task *task, struct error *err);

/* One turn.  With may_block false it passes no time: 0 when there was nothing to run, 1 when a snapshot ran,
 * -1 as above. */
int runtime_turn(struct runtime *runtime, bool may_block, struct error *err);

/* Timers.  timer->call.run is called in a turn of its own, one before whatever it wakes.
 * The deadline of runtime_timer_start is a clock read at or after this call plus delay_ns (> 0). */
void runtime_timer_start(struct runtime *runtime, struct timer *timer, int64_t delay_ns);
void runtime_timer_start_at(struct runtime *runtime, struct timer *timer, int64_t deadline_ns);

/* As if it had fired now: queues its call. */
void runtime_timer_start_soon(struct runtime *runtime, struct timer *timer);

/* For a timer that somebody else keeps (timer->foreign): dates it like runtime_timer_start, and that is all. */
void runtime_timer_date(struct runtime *runtime, struct timer *timer, int64_t delay_ns);

/* For the keeper of a foreign timer: it has fired.  Queues its call. */
void runtime_timer_foreign_fired(struct runtime *runtime, struct timer *timer);

/* Idle ones are fine. */
void runtime_timer_cancel(struct runtime *runtime, struct timer *timer);

/* First thing in a timer's call.run: false when it was cancelled after it had been queued. */
static inline bool runtime_timer_fired(struct timer *timer)
{
    timer->linked = false;
    if (timer->place != TIMER_QUEUED)
        return false;
    timer->place = TIMER_IDLE;
    return true;
}

/* Tell the runtime that something outside its timers will queue a call later, or no longer.  A libuv callback that queues
 * calls before the loop polls (a uv_timer, a prepare handle) must also uv_stop the loop, or the poll may block. */
static inline void runtime_event_open(struct runtime *runtime)
{
    runtime->events++;
}

static inline void runtime_event_close(struct runtime *runtime)
{
    runtime->events--;
}

/* Forgets the counts; keeps log and log_capacity. */
void runtime_waits_clear(struct runtime *runtime);

/* Counts one wait that ended at now_ns against its deadline; timers of the runtime do it themselves. */
void runtime_waits_note(struct runtime *runtime, int64_t deadline_ns, int64_t now_ns);

#endif
