/* counters.h: what the kernel counts for the measured thread, read before and after a round.
 *
 * Context switches and faults from getrusage(RUSAGE_THREAD), run-queue delay from this thread's schedstat,
 * cycles and instructions from perf_event_open where there is a PMU, throttling from the cpu.stat of the own
 * control group.  Reading costs some microseconds and some switches into the kernel: always outside the clock
 * reads of a round, never between them.
 *
 * Of the CPU that the thread is pinned to: its frequency, once after each round, and what the hypervisor stole,
 * once after each block, since /proc/stat is dear to read on a large machine and counts in ticks.
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
    int cpu_stat;     /* of the control group, -1 when none can be seen */
    int frequency;    /* scaling_cur_freq, -1 without cpufreq or when the thread is not pinned */
    int stat;         /* /proc/stat, -1 when the thread is not pinned */
    int64_t cpu;      /* that it is pinned to */
    char *stat_text;  /* room for /proc/stat down to the line of that CPU */
    size_t stat_size;
};

struct counters_sample {
    int64_t switches_voluntary, switches_involuntary;
    int64_t faults_minor, faults_major;
    int64_t runq_ns;
    int64_t throttles, throttled_ns;
    int64_t cycles, instructions;
    int64_t cpu; /* logical CPU at this moment */
};

/* For the calling thread, after it was pinned.  Never fails: what is missing reads as WIRE_NULL. */
void counters_open(struct counters *ret);
void counters_close(struct counters *counters);

void counters_read(const struct counters *counters, struct counters_sample *ret);

int64_t counters_steal_ticks(const struct counters *counters);
int64_t counters_busy_ticks(const struct counters *counters); /* of that CPU: all but idle and iowait */
int64_t counters_frequency_khz(const struct counters *counters);

/* after - before, or WIRE_NULL where one of them is. */
int64_t counters_grown(int64_t before, int64_t after);

/* Fills a round's counter fields with after - before, and its CPU at start and end. */
void counters_fill(const struct counters_sample *before, const struct counters_sample *after,
                   struct wire_round *round);

#endif
