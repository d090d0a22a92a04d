#include "coordinator/stats/latency.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

static bool same_make(const struct wire_histogram *a, const struct wire_histogram *b)
{
    return a->significant_digits == b->significant_digits && a->lowest_ns == b->lowest_ns &&
           a->highest_ns == b->highest_ns;
}

/* Two ascending lists into one. */
static void merge(struct latency *into, const struct wire_histogram *more)
{
    struct latency_bucket *merged = memory_zeroed(into->count + more->pair_count + 1, sizeof *merged);
    size_t count = 0, i = 0, j = 0;
    while (i < into->count || j < more->pair_count) {
        int64_t own = i < into->count ? into->at[i].index : INT64_MAX;
        int64_t other = j < more->pair_count ? more->counts[2 * j] : INT64_MAX;
        struct latency_bucket *bucket = &merged[count++];
        bucket->index = own < other ? own : other;
        if (own <= other)
            bucket->count += into->at[i++].count;
        if (other <= own)
            bucket->count += more->counts[2 * j++ + 1];
    }
    free(into->at);
    into->at = merged;
    into->count = count;
}

int latency_add(struct latency *into, const struct wire_histogram *more)
{
    if (!into->make.present)
        into->make = (struct wire_histogram){.present = true,
                                             .significant_digits = more->significant_digits,
                                             .lowest_ns = more->lowest_ns,
                                             .highest_ns = more->highest_ns};
    if (!same_make(&into->make, more))
        return -1;
    merge(into, more);
    into->overflow += more->overflow;
    into->total += more->overflow;
    for (size_t i = 0; i < more->pair_count; i++)
        into->total += more->counts[2 * i + 1];
    return 0;
}

void latency_release(struct latency *latency)
{
    free(latency->at);
    *latency = (struct latency){.count = 0};
}

static double lower_ns(const struct latency *latency, size_t bucket)
{
    return (double)wire_histogram_lower_ns(&latency->make, latency->at[bucket].index);
}

double latency_bucket_end_ns(const struct latency *latency, size_t bucket)
{
    return (double)wire_histogram_lower_ns(&latency->make, latency->at[bucket].index + 1) - 1;
}

static double middle_ns(const struct latency *latency, size_t bucket)
{
    return (lower_ns(latency, bucket) + latency_bucket_end_ns(latency, bucket)) / 2;
}

int64_t latency_octave_buckets(const struct latency *latency)
{
    int64_t buckets = 1, least = 1;
    for (int64_t digit = 0; digit < latency->make.significant_digits; digit++)
        least *= 10;
    while (buckets < least)
        buckets *= 2;
    return buckets;
}

bool latency_quantile(const struct latency *latency, double q, double *ret_ns)
{
    int64_t rank = (int64_t)ceil(q * (double)latency->total);
    int64_t seen = 0;
    for (size_t i = 0; i < latency->count; i++) {
        seen += latency->at[i].count;
        if (seen >= rank && seen > 0) {
            *ret_ns = middle_ns(latency, i);
            return true;
        }
    }
    return false;
}

bool latency_moments(const struct latency *latency, struct latency_moments *ret)
{
    double sum = 0, squares = 0, total = (double)latency->total;
    if (latency->count == 0 || latency->overflow > 0)
        return false;
    for (size_t i = 0; i < latency->count; i++)
        sum += middle_ns(latency, i) * (double)latency->at[i].count;
    for (size_t i = 0; i < latency->count; i++) {
        double apart = middle_ns(latency, i) - sum / total;
        squares += apart * apart * (double)latency->at[i].count;
    }
    *ret = (struct latency_moments){.min_ns = lower_ns(latency, 0),
                                    .max_ns = latency_bucket_end_ns(latency, latency->count - 1),
                                    .mean_ns = sum / total,
                                    .stddev_ns = sqrt(squares / total)};
    return true;
}
