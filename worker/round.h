/* round.h: one timed value of one cell.
 *
 *     counters | wall0 cpu0 | L fan-outs | cpu1 wall1 | counters | accounts, proof
 *
 * What lies between the clock reads is the fan-out, and nothing is allocated there.  Where children may fail
 * or a timeout cuts in, what is left of the fan-out when its arm returns is driven to its end afterwards, and
 * its CPU is booked as wasted.  Threads: the measured one. */
#ifndef COREFAN_WORKER_ROUND_H
#define COREFAN_WORKER_ROUND_H

#include "base/error.h"
#include "base/rng.h"
#include "proto/wire.h"
#include "worker/arms/arm.h"
#include "worker/counters.h"
#include "worker/runtime/repeat.h"
#include "worker/runtime/timeout.h"
#include "worker/slab.h"

#include <stdint.h>

/* A cell that is ready to be timed. */
struct round_bench {
    struct runtime *runtime;
    const struct counters *counters;
    const struct wire_cell *cell;
    const struct arm *arm;
    struct slab *slab;      /* may be shared with other cells */
    struct repeat repeat;   /* awaits what stands below, L times */
    struct timeout timeout; /* between the two, where the cell has one */
    int64_t loops;          /* L */
};

/* In place: the coroutines point into *bench, which must not be moved. */
void round_bench_init(struct round_bench *bench, struct runtime *runtime, const struct counters *counters,
                      const struct wire_cell *cell, const struct arm *arm, struct slab *slab);

/* Fills everything of *ret but cell, block, position and intended start.  ret->error is memory of its own.
 * chance draws which children fail, where the cell wants that.  0, or -1 when the loop cannot go on. */
int round_run(struct round_bench *bench, struct rng *chance, struct wire_round *ret, struct error *err);

/* Only the CPU ns of `loops` fan-outs, for calibration; negative when the loop cannot go on. */
int64_t round_cpu_ns(struct round_bench *bench, int64_t loops, struct error *err);

#endif
