/* counters.h: what the kernel counts for the measured thread, read before and after a round.
 *
 * Context switches and faults from getrusage(RUSAGE_THREAD), run-queue delay from this thread's schedstat,
 * cycles and instructions from perf_event_open where there is a PMU.  Reading costs some microseconds and
 * some switches into the kernel: always outside the clock reads of a round, never between them.
 *
 * A struct counters belongs to the thread that opened it.  Values only grow; a round's figure is the
 * difference of two samples.  WIRE_NULL: cannot be read here. */
#ifndef COREFAN_WORKER_COUNTERS_H
#define COREFAN_WORKER_COUNTERS_H

#include "proto/wire.h"

#include <stdint.h>

struct counters {
    int schedstat;    /* file of this thread, -1 when the kernel has none */
    int cycles;       /* leader of a perf group, -1 without a PMU */
    int instructions; /* its member */
};

struct counters_sample {
    int64_t switches_voluntary, switches_involuntary;
    int64_t faults_minor, faults_major;
    int64_t runq_ns;
    int64_t cycles, instructions;
    int64_t cpu; /* logical CPU at this moment */
};

/* For the calling thread.  Never fails: what is missing reads as WIRE_NULL. */
void counters_open(struct counters *ret);
void counters_close(struct counters *counters);

void counters_read(const struct counters *counters, struct counters_sample *ret);

/* Fills a round's counter fields with after - before, and its CPU at start and end. */
void counters_fill(const struct counters_sample *before, const struct counters_sample *after,
                   struct wire_round *round);

#endif
