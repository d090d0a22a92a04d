/* rounds_csv.h: every raw value of a run as CSV, a row per round, straight from its store.
 *
 * RFC 4180 but for line ends, which are \n; a header; an empty field for what is not known.  First what tells the cell
 * apart, then the round as the protocol has it (SPEC.md).  The harness is there too, as arm `empty`.  Rows by cell,
 * worker and block; only rounds that count (those of the attempt that finished its group).  Totals are those of the round, over its
 * `fanouts` fan-outs: the raw values, no figure is derived.  Threads: the store's. */
#ifndef COREFAN_COORDINATOR_ROUNDS_CSV_H
#define COREFAN_COORDINATOR_ROUNDS_CSV_H

#include "base/error.h"
#include "coordinator/store/store.h"

#include <stdio.h>

int rounds_csv_write(struct store *store, FILE *out, struct error *err);

#endif
