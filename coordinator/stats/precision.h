/* precision.h: the rule of `rounds: auto`: how many blocks are enough, how many more would be.
 *
 * A group goes on until the p50 interval of every cell, for wall and for CPU, has a half-width of at most `target` times
 * the p50; it looks after PRECISION_FIRST_BLOCKS blocks and then after each batch.  A batch is sized by what the
 * widest interval still needs, as intervals shrink with the root of n, but at least grows the whole by a quarter and at
 * most doubles it: few looks, since each is a chance to stop at a lucky value, and little waste.
 *
 * Pure: no I/O, no clocks.  The coordinator decides with it while it measures, the summary tells of it afterwards. */
#ifndef COREFAN_COORDINATOR_PRECISION_H
#define COREFAN_COORDINATOR_PRECISION_H

#include "coordinator/stats/stats.h"

#include <stdbool.h>
#include <stdint.h>

#define PRECISION_DEFAULT      0.02
#define PRECISION_FIRST_BLOCKS 10
#define PRECISION_LEAST_BLOCKS 6 /* fewer values have no interval at STATS_LEVEL */
#define PRECISION_MOST_BLOCKS  1000

/* Half the width of the interval over the p50.  INFINITY where there is no interval or the p50 is not positive: that is
 * never precise. */
double precision_of(const struct stats_estimate *p50);

/* How many values it takes, where n gave `achieved`; at least n.  INT64_MAX where nobody can say. */
int64_t precision_needed(int64_t n, double achieved, double target);

struct precision_state {
    int64_t blocks, most; /* measured, and the largest number allowed */
    double achieved, target;
    int64_t block_ns; /* what one block took, with all that belongs to it */
    int64_t left_ns;  /* of the time that this group may take; INT64_MAX: no limit */
};

/* How many blocks there shall be after the next batch; state->blocks: enough, or no more can be had. */
int64_t precision_next(const struct precision_state *state);

/* How many blocks to begin with where a block is expected to take block_ns: the first batch, or less down to
 * PRECISION_LEAST_BLOCKS when time is short; never more than `most`. */
int64_t precision_first(int64_t most, int64_t block_ns, int64_t left_ns);

#endif
