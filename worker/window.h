/* window.h: one timed value of a cell with clients or a rate: many fan-outs, measured as one.  (SPEC.md 5.5, 6.4)
 *
 *     launch ... | counters | wall0 cpu0 | fan-outs, one end after another | cpu1 wall1 | counters | what is left is given up
 *
 * Closed loop: every client starts its next fan-out when its last one returned.  The window opens when as many have ended as
 * there are clients, and closes when it is long enough and their number is a multiple of the clients.
 * Open loop: fan-outs start by a schedule that does not wait for anybody.
 * Between the clock reads nothing is allocated and no system call is made for measuring.
 *
 * Threads: the measured one. */
#ifndef COREFAN_WORKER_WINDOW_H
#define COREFAN_WORKER_WINDOW_H

#include "base/error.h"
#include "base/rng.h"
#include "proto/wire.h"
#include "worker/arms/arm.h"
#include "worker/counters.h"
#include "worker/crowd.h"
#include "worker/histogram.h"

#include <stdint.h>

#define WINDOW_CHILDREN   (1 << 24) /* in memory at once, at most: some GiB */
#define WINDOW_RATE       100000000 /* per second: merely to draw its starts takes longer than they are apart */
#define WINDOW_HARNESS_NS (100 * NS_PER_MS) /* length of a window of `empty`, at most */
#define WINDOW_DRAIN_NS   NS_PER_S          /* how long an open loop awaits what it started */
#define WINDOW_LOG        65536             /* waits whose overshoot is kept for the median */

/* What windows of a slice share, since only one is open at a time. */
struct window_room {
    struct histogram latency, intended, lag;
    int64_t *overshoots_ns; /* WINDOW_LOG */
};

int window_room_open(struct window_room *room, struct error *err);
void window_room_close(struct window_room *room); /* fine on a zeroed one and twice */

/* A cell that is ready to be measured. */
struct window_bench {
    struct runtime *runtime;
    const struct counters *counters;
    const struct wire_cell *cell;
    const struct arm *arm;
    struct crowd *crowd; /* may be shared with other cells */
    struct window_room *room;
};

/* Whether the cell is one. */
bool window_is(const struct wire_cell *cell);

/* ERROR_USAGE: such a window is not measured here. */
int window_check(const struct wire_cell *cell, struct error *err);

/* Every client runs one fan-out: all memory is touched. */
int window_warm_up(struct window_bench *bench, struct error *err);

/* Fills everything of *ret but cell, block, position and intended start.  ret->error and the counts of its histograms are
 * memory of their own.  arrivals draws the starts of an open loop.  0, or -1 when the loop cannot go on. */
int window_run(struct window_bench *bench, struct rng arrivals, struct wire_round *ret, struct error *err);

#endif
