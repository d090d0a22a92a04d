/* proof.h: did the arm do what its name says?  Judged from what the runtime counted, after every round.
 *
 *   sequential        1 child in flight; where children wait, at least one wake-up per child
 *   concurrent arms   all N in flight at once; at most N wake-ups
 *   empty             none in flight
 *   every arm         no wait ended before its deadline
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

/* NULL when the round holds, else buf with what is broken, in figures. `waits`: children of this job wait. */
const char *proof_judge(const struct wire_cell *cell, bool waits, const struct wire_round *round, char *buf,
                        size_t size);

#endif
