/* latency.h: how long many fan-outs took: the workers' histograms, added up and read.
 *
 * Buckets are those of SPEC.md, 7.  A set of histograms of one make (digits, lowest, highest) adds up without loss: counts
 * are summed, nothing is averaged.  A value that is read stands for its bucket: its middle for quantiles and moments, its
 * ends for the least and the largest.  What lies above the histogram (overflow) is counted, and a figure that would need
 * to know it is not known.
 *
 * Pure.  Ownership: the caller's struct, latency_release frees what hangs below.  One thread. */
#ifndef COREFAN_COORDINATOR_LATENCY_H
#define COREFAN_COORDINATOR_LATENCY_H

#include "proto/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct latency_bucket {
    int64_t index, count;
};

struct latency {
    struct wire_histogram make; /* digits, lowest_ns, highest_ns; without counts */
    struct latency_bucket *at;  /* by index */
    size_t count;
    int64_t total, overflow; /* total: with those that overflow */
};

/* -1: the histogram is of another make than what is there already; nothing was added.  A zeroed struct takes any. */
int latency_add(struct latency *into, const struct wire_histogram *more);

void latency_release(struct latency *latency); /* fine on a zeroed struct and twice */

/* The value of rank ceil(q x total), 0 < q <= 1.  false: there is none, or it lies above the histogram. */
bool latency_quantile(const struct latency *latency, double q, double *ret_ns);

/* The last ns that belongs to the bucket; how many buckets a doubling of the value takes. */
double latency_bucket_end_ns(const struct latency *latency, size_t bucket);
int64_t latency_octave_buckets(const struct latency *latency);

struct latency_moments {
    double min_ns, max_ns, mean_ns, stddev_ns; /* of all, not of a sample */
};

/* false: there are no values, or some lie above the histogram. */
bool latency_moments(const struct latency *latency, struct latency_moments *ret);

#endif
