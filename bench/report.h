/* report.h: how programs in bench/ say what they measured: a line per figure, beside its goal, or JSON. */
#ifndef COREFAN_BENCH_REPORT_H
#define COREFAN_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

struct report {
    bool json;
    int lines;
};

/* limit: the figure should be at most that; 0: information only. */
void report_line(struct report *report, const char *name, double value, const char *unit, double limit);

/* After the last line. */
void report_end(const struct report *report);

/* Sorts in place.  n > 0. */
double report_median(double *values, size_t n);

#endif
