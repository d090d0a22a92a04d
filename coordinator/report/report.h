/* report.h: a finished summary, written in one of several forms.
 *
 * A form is one file with one render function, and one line in the table of report.c.  A render function takes the
 * summary as it is: it computes no figure, asks no store and no clock, so the same summary gives the same bytes.
 * What is unknown in the summary is shown as unknown ("-", null, an empty field), never as 0. */
#ifndef COREFAN_COORDINATOR_REPORT_REPORT_H
#define COREFAN_COORDINATOR_REPORT_REPORT_H

#include "coordinator/summary/summary.h"

#include <stddef.h>
#include <stdio.h>

struct report_format {
    const char *name;  /* of --format */
    const char *file;  /* in the run's directory; NULL: only on request */
    const char *about; /* for --help */
    int (*render)(const struct summary *summary, FILE *out); /* 0, or -1 when the stream failed */
};

extern const struct report_format report_formats[];
extern const size_t report_format_count;

/* NULL when there is no such form. */
const struct report_format *report_find(const char *name);

/* The render functions, one per file. */
int report_text(const struct summary *summary, FILE *out); /* ASCII, at most 100 columns, no colour */
int report_json(const struct summary *summary,
                FILE *out); /* summary.json of the contract; an entry of a list per line */
int report_csv(const struct summary *summary,
               FILE *out); /* a row per cell; RFC 4180 but for line ends, which are \n */
/* JUnit XML: a case per cell; failure: a threshold failed; skipped: one is undecided; error: invalid or incomplete */
int report_junit(const struct summary *summary, FILE *out);
int report_pyperf(const struct summary *summary, FILE *out); /* format 1.0, for pyperf's own commands */

#endif
