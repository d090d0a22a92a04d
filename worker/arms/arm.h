/* arm.h: the ways to await N children.  One file per arm, one line in the table of arm.c.
 *
 * An arm is the resume function of fanout->coro (worker/runtime/fanout.h).  It gets WAKE_START at each
 * launch, makes or awaits the children, and ends with an outcome by the rules of the primitive whose name it
 * bears, as CPython 3.13 has them. An arm does not know what its children do.
 *
 *                            children made        first failure                     parent cancelled
 *   sequential               at each await        raises; the rest never start      hits the current child
 *   gather                   all at the call      first callback wins, rest runs on all pending ones, in
 * order gather-return-exceptions all at the call      kept in its slot                  all; waits; always
 * Cancelled tasks                    all up front         seen when its turn comes          only the awaited
 * child taskgroup                all up front         siblings cancelled, all awaited   all; waits;
 * Cancelled, or the group empty                    none: the harness alone */
#ifndef COREFAN_WORKER_ARMS_ARM_H
#define COREFAN_WORKER_ARMS_ARM_H

#include "worker/runtime/fanout.h"

struct arm {
    const char *name;
    enum step (*resume)(struct coro *coro, struct activation *activation);
    bool concurrent;   /* N children in flight at once; else one */
    bool harness;      /* runs no child */
    bool keeps_errors; /* failed children stay in their result slots and the arm ends OUTCOME_OK */
};

/* NULL when there is none of that name. */
const struct arm *arm_find(const char *name);

/* The table in order, `empty` included: arm_at(0) .. arm_at(arm_count() - 1). */
size_t arm_count(void);
const struct arm *arm_at(size_t index);

/* Checks the table (names unique, every field there).  Call at start.  0 or -1. */
int arm_check(struct error *err);

#endif
