/* calibrate.h: when is a cell ready to be timed?  Two rules, both pure: the clock comes from the caller.
 *
 * Calibration (no-wait fan-outs take nanoseconds, a clock read takes more): the inner loop count L doubles
 * until L fan-outs take the threshold of CPU.  The cost per fan-out at L and at 2 L (median of three each)
 * must agree within 2 %; else once more with L doubled; else the cell is flagged: a cost that depends on L is
 * no cost per fan-out.  Then L is frozen.
 *
 * Warm-up: rounds are thrown away until the last one had no page fault and the first of the last five is no
 * outlier among them (first <= Q3 + 1.5 IQR: after a cold start the first value sticks out above).  It ends
 * unconverged after 50 rounds or two seconds.  Cheap rounds are always taken five times, so that the rule has
 * something to judge; slow ones (a plain loop over 100 waits) only as often as asked for. */
#ifndef COREFAN_WORKER_CALIBRATE_H
#define COREFAN_WORKER_CALIBRATE_H

#include <stdbool.h>
#include <stdint.h>

/* CPU ns that `loops` fan-outs took; negative when the work has to stop. */
typedef int64_t (*calibrate_cost)(void *context, int64_t loops);

struct calibration {
    int64_t loops;
    bool stable;
};

/* CPU that a calibrated round takes at least: 10 ms, and 1,000 reads of the CPU clock. */
int64_t calibrate_threshold_ns(int64_t cpu_clock_cost_ps);

/* 0, or -1 when `cost` had to stop (*ret untouched). */
int calibrate(calibrate_cost cost, void *context, int64_t threshold_ns, struct calibration *ret);

enum { warmup_window = 5, warmup_cap = 50 };

struct warmup {
    int64_t rounds; /* thrown away so far */
    int64_t spent_ns;
    int64_t values[warmup_window]; /* the last ones, oldest first */
    bool faulted;                  /* in the last round */
};

enum warmup_verdict { WARMUP_MORE, WARMUP_DONE, WARMUP_UNCONVERGED };

/* Takes the figures of one more round in. */
void warmup_add(struct warmup *warmup, int64_t value_ns, int64_t wall_ns, int64_t faults);

/* at_least: rounds asked for by the sweep. */
enum warmup_verdict warmup_judge(const struct warmup *warmup, int64_t at_least);

#endif
