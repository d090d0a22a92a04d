/* histogram.h: many durations in ns, in log-linear buckets (SPEC.md, 7; as in HdrHistogram).
 *
 * Recording costs some ns and allocates nothing.  A value above highest_ns is counted as overflow, never dropped; a
 * negative one counts as 0.  Threads: one. */
#ifndef COREFAN_WORKER_HISTOGRAM_H
#define COREFAN_WORKER_HISTOGRAM_H

#include "base/error.h"
#include "proto/wire.h"

#include <stddef.h>
#include <stdint.h>

struct histogram { /* zeroed: none */
    int64_t significant_digits, lowest_ns, highest_ns;
    int bits;         /* 2^bits >= 10^significant_digits */
    uint64_t *counts; /* by bucket */
    size_t count;     /* of buckets */
    uint64_t total, overflow;
    int64_t least_ns, most_ns; /* exact; INT64_MAX and INT64_MIN without values */
};

/* 0, or -1: no memory.  1..5 digits, 1 <= lowest_ns <= highest_ns. */
int histogram_init(struct histogram *histogram, int64_t significant_digits, int64_t lowest_ns,
                   int64_t highest_ns, struct error *err);
void histogram_release(struct histogram *histogram); /* fine on a zeroed one and twice */

void histogram_clear(struct histogram *histogram);

static inline size_t histogram_bucket(const struct histogram *histogram, int64_t ns)
{
    uint64_t units = ns > 0 ? (uint64_t)ns : 0;
    if (histogram->lowest_ns > 1)
        units /= (uint64_t)histogram->lowest_ns;
    if (units >> histogram->bits == 0)
        return units;
    int octave = 63 - __builtin_clzll(units) - histogram->bits;
    return ((size_t)octave << histogram->bits) + (units >> octave);
}

static inline void histogram_record(struct histogram *histogram, int64_t ns)
{
    histogram->total++;
    histogram->least_ns = ns < histogram->least_ns ? ns : histogram->least_ns;
    histogram->most_ns = ns > histogram->most_ns ? ns : histogram->most_ns;
    if (ns > histogram->highest_ns)
        histogram->overflow++;
    else
        histogram->counts[histogram_bucket(histogram, ns)]++;
}

/* First value of the bucket that holds rank ceil(q x total), 0 < q <= 1; WIRE_NULL without values or where that rank
 * overflows. */
int64_t histogram_quantile_ns(const struct histogram *histogram, double q);

/* As the wire has it.  ret->counts is memory of its own: free it. */
void histogram_export(const struct histogram *histogram, struct wire_histogram *ret);

#endif
