/* compare.h: two runs, cell by cell: what got slower, what did not, and what cannot be told.
 *
 *     run directories or summary.json --load--> two sides --match, judge--> a comparison --print--> text or JSON
 *
 * The rule, for each common cell and metric (p50 per fan-out), with T the threshold and the ratio changed / base:
 *
 *     regression     ci_lo > 1 + T, and so sure that Holm's step-down keeps it: over all rows of the comparison the
 *                    probability of one false regression stays below 2.5 %
 *     pass           ci_hi < 1 + T; improvement where the mirror image of a regression holds at 1 / (1 + T)
 *     inconclusive   all else, with a reason
 *
 * Noise may take a verdict away, never make one.  Where a side is `noisy`, a verdict stands only if the rounds without
 * a flag say the same; where a figure drifts, only if it holds between the halves of the two runs that are furthest
 * apart (of a bare summary: between least and largest value).  The CPU of a job that waits is mostly wake-ups, which
 * cost what the host lets them cost: where its waits ended later than those of the base, a regression stands only if it
 * is more than that (`wakes_later`), likewise an improvement where they ended sooner.  What does not stand is
 * inconclusive.  A cell that is invalid or incomplete is inconclusive.
 *
 * Ids match by their text, after the ignored keys were taken out.  effect.h has the intervals: from the values of both
 * runs where both are run directories, else from the medians and intervals of the summaries.  The same input gives the
 * same bytes: the seed of the bootstrap is a hash of the id and the metric.
 *
 * Ownership: compare_free frees all.  One thread. */
#ifndef COREFAN_COORDINATOR_COMPARE_H
#define COREFAN_COORDINATOR_COMPARE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define COMPARE_THRESHOLD 0.05

enum compare_metric { COMPARE_CPU, COMPARE_WALL, COMPARE_METRICS };

struct compare_options {
    const char *base, *changed; /* a run's directory or a summary.json */
    double threshold;           /* 0.05: 5 %; 0 < threshold <= 10 */
    unsigned metrics;           /* bits 1u << enum compare_metric */
    const char *const *ignored; /* keys of ids: "runtime", "cores", "gc" */
    size_t ignored_count;
};

struct compare_options compare_defaults(void); /* all but the two paths */

/* "5%" or "0.05"; "cpu,wall".  0, or -1 with ERROR_USAGE and *ret untouched. */
int compare_parse_threshold(const char *text, double *ret, struct error *err);
int compare_parse_metrics(const char *text, unsigned *ret, struct error *err);

struct comparison;

/* Reads both and judges.  -1 with ERROR_USAGE: an unknown key to ignore, a path or file that cannot be used, ids that
 * are no longer told apart, no common cell. */
int compare_make(const struct compare_options *options, struct comparison **ret, struct error *err);

void compare_free(struct comparison *comparison); /* NULL is fine */

/* ERROR_FAILED (99): a regression; ERROR_INCONCLUSIVE (98): none, but a row that could not be decided; ERROR_NONE. */
enum error_kind compare_exit_kind(const struct comparison *comparison);

/* For people: worst cell first, at most 100 columns, ASCII; the last line is the verdict: "PASS 44 cells, 0
 * regressions".  Or as JSON.  0, or -1 when the stream failed. */
int compare_print_text(const struct comparison *comparison, FILE *out);
int compare_print_json(const struct comparison *comparison, FILE *out);

#endif
