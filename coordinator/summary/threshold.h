/* threshold.h: whether a figure keeps within its bounds: yes, no, or not to be told.
 *
 * An interval that lies inside passes, one that lies outside fails, and one that reaches over a bound leaves it
 * undecided, since both could be true.  A bound itself still passes.  A figure that never has an interval (a count,
 * a rate) decides by its value; an estimate that should have one and has none (one value only) decides nothing.
 *
 * Pure: no I/O, no knowledge of cells.  Any thread. */
#ifndef COREFAN_COORDINATOR_THRESHOLD_H
#define COREFAN_COORDINATOR_THRESHOLD_H

#include "coordinator/stats/stats.h"

struct threshold {
    bool has_min, has_max; /* at least one */
    double min, max;       /* in the unit of the figure; min <= max */
};

enum threshold_outcome { THRESHOLD_PASSED, THRESHOLD_FAILED, THRESHOLD_UNDECIDED };

struct threshold_result {
    enum threshold_outcome outcome;
    const char *why; /* constant word, when undecided */
};

/* The figure: known without bounded and with why NULL is one that never has an interval. */
struct threshold_result threshold_judge(const struct threshold *threshold,
                                        const struct stats_estimate *figure);

#endif
