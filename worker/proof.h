/* proof.h: did the arm do what its name says?  Judged from what the runtime counted, after every round.
 *
 *   sequential        1 child in flight; where children wait, at least one wake-up per child
 *   concurrent arms   all N in flight at once; at most N wake-ups
 *   empty             none in flight
 *   every arm         no wait ended before its deadline; where children wait, each one does, as many at the same
 *                     time as are in flight, and the fan-out takes at least the delay that was asked for
 *                     (sequential: N of them)
 *
 * A round that breaks it is an error, not a number.  Where children fail, stall or time out, fewer may be
 * started, cancelled waits end at once and some are over before the loop gets to poll: then only the upper
 * bounds on what is in flight hold.  Waits on uv_timer end early, which is what that source is there to show:
 * they are counted, not refused, and need no wake-up of their own.  Pure. */
#ifndef COREFAN_WORKER_PROOF_H
#define COREFAN_WORKER_PROOF_H

#include "proto/wire.h"

#include <stdbool.h>
#include <stddef.h>

/* What the runtime knows of a round beyond its raw values. */
struct proof_facts {
    bool waits;           /* children of this job wait */
    int64_t waits_ended;  /* by their timer */
    int64_t most_waiting; /* at the same time */
    int64_t span_ns;      /* on the runtime's own clock, from before the first fan-out to after the last */
};

/* NULL when the round holds, else buf with what is broken, in figures. */
const char *proof_judge(const struct wire_cell *cell, const struct proof_facts *facts,
                        const struct wire_round *round, char *buf, size_t size);

/* The same for a window.  least_ns: the shortest of its fan-outs, INT64_MAX without any. */
const char *proof_judge_window(const struct wire_cell *cell, bool waits, int64_t least_ns,
                               const struct wire_round *round, char *buf, size_t size);

#endif
