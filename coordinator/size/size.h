/* size.h: how many cores a load needs, for each runtime and arm of a run: what `corefan size` answers.
 *
 *     run.db --summary--> rows of capacity, their loads --capacity_size_for--> a sizing --print--> text or JSON
 *
 * Loads of a rate (open loop, latency from the intended start) say it best, since requests do not wait for each other's
 * answers; where a row has none, its closed-loop windows stand in, and the answer says so.
 *
 * Ownership: size_free frees all.  The same run gives the same bytes.  One thread. */
#ifndef COREFAN_COORDINATOR_SIZE_H
#define COREFAN_COORDINATOR_SIZE_H

#include "base/error.h"

#include <stdio.h>

struct size_options {
    const char *run;   /* its directory */
    double rate_per_s; /* of all cores together */
    double p99_ns;     /* at most */
};

struct sizing;

/* -1 with ERROR_USAGE: no such run, or one without windows. */
int size_make(const struct size_options *options, struct sizing **ret, struct error *err);

void size_free(struct sizing *sizing); /* NULL is fine */

/* ERROR_FAILED (99) when no arm can do it, else ERROR_NONE. */
enum error_kind size_exit_kind(const struct sizing *sizing);

/* For people: fewest cores first, at most 100 columns, ASCII.  Or as JSON.  0, or -1 when the stream failed. */
int size_print_text(const struct sizing *sizing, FILE *out);
int size_print_json(const struct sizing *sizing, FILE *out);

#endif
