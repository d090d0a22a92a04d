/* run.h: one run, from sweep file to summary: what `corefan run` does, in the order in which it does it.
 *
 *   sweep -> CPUs and their lock -> plan (checked before anything starts) -> store -> workers -> fleet -> summary
 *
 * Writes DIR/run.db while it runs, and DIR/summary.json and summary.txt at its end, also after an interrupt or a
 * failure: what was measured is kept.  The report that was asked for goes to `out`, warnings and progress to stderr.
 * Threads: one. */
#ifndef COREFAN_COORDINATOR_RUN_H
#define COREFAN_COORDINATOR_RUN_H

#include "base/error.h"
#include "coordinator/options.h"

#include <stdio.h>

/* The exit code, or -1 with err and nothing measured.  argv is the whole command line, for the record.  Mistakes of the
 * sweep have been told, a line each, when err->text is empty. */
int run_sweep(const struct options_run *options, int argc, char **argv, FILE *out, struct error *err);

/* Prints the plan alone. */
int run_plan(const struct options_run *options, FILE *out, struct error *err);

/* Any report of a run, from its store. */
int run_report(const struct options_report *options, FILE *out, struct error *err);

#endif
