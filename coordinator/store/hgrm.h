/* hgrm.h: the latencies of one cell in the text form of HdrHistogram's percentile distribution (.hgrm), which its plotters
 * and many load generators share; straight from a run's store.
 *
 * Values are in us, of all windows of the cell that count, added up: from the intended start of an open loop, else from the
 * actual one.  Levels as HdrHistogram steps them, 5 to each halving of what is left to 100 %.  A value is the last ns of its
 * bucket.  What overflowed is told in a comment and is in no line.  Threads: the store's. */
#ifndef COREFAN_COORDINATOR_HGRM_H
#define COREFAN_COORDINATOR_HGRM_H

#include "base/error.h"
#include "coordinator/store/store.h"

#include <stdio.h>

/* cell_id: NULL where the run has one cell of windows alone.  -1 with ERROR_USAGE: no such cell, which one is meant, or it
 * has no windows. */
int hgrm_write(struct store *store, const char *cell_id, FILE *out, struct error *err);

#endif
