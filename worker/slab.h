/* slab.h: the children that a cell's arm awaits: one fan-out and its leaves, allocated once.
 *
 * Cells of a slice that differ only in their arm share a slab: the arm is bound anew before each round.  So
 * all arms work on the same memory, and a group needs it once.  Every page is touched when it is opened, so that it lies
 * near the core that measures.  Threads: the measured one, pinned before. */
#ifndef COREFAN_WORKER_SLAB_H
#define COREFAN_WORKER_SLAB_H

#include "base/error.h"
#include "proto/wire.h"
#include "worker/jobs/job.h"

#include <stdbool.h>
#include <stdint.h>

struct slab {
    const struct wire_cell *cell; /* the first one that asked for it */
    const struct job *job;
    struct fanout *fanout;
    struct job_children *children;
    int64_t *
        overshoots_ns; /* fanout: room for the waits of one round; NULL where children do not wait, and in windows */
    uint8_t *failing; /* fanout: which children fail; NULL unless a fraction is drawn per round */
};

/* cell must outlive the slab.  -1: a job, wait source or value that is not known here, or no memory; *ret
 * untouched. */
int slab_open(struct runtime *runtime, const struct wire_cell *cell, struct slab *ret, struct error *err);
void slab_close(struct slab *slab); /* fine on a zeroed slab and twice */

/* Whether a slab made for one cell serves the other. */
bool slab_serves(const struct slab *slab, const struct wire_cell *cell);

#endif
