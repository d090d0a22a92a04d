#include "worker/histogram.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int bits_of_digits[] = {0, 4, 7, 10, 14, 17};

int histogram_init(struct histogram *histogram, int64_t significant_digits, int64_t lowest_ns,
                   int64_t highest_ns, struct error *err)
{
    struct histogram made = {.significant_digits = significant_digits,
                             .lowest_ns = lowest_ns,
                             .highest_ns = highest_ns,
                             .bits = bits_of_digits[significant_digits]};
    made.count = histogram_bucket(&made, highest_ns) + 1;
    if (!(made.counts = calloc(made.count, sizeof *made.counts)))
        return error_set(err, ERROR_INTERNAL, "no memory for a histogram of %zu buckets", made.count);
    *histogram = made;
    histogram_clear(histogram);
    return 0;
}

void histogram_release(struct histogram *histogram)
{
    free(histogram->counts);
    *histogram = (struct histogram){0};
}

void histogram_clear(struct histogram *histogram)
{
    memset(histogram->counts, 0, histogram->count * sizeof *histogram->counts);
    histogram->total = histogram->overflow = 0;
    histogram->least_ns = INT64_MAX;
    histogram->most_ns = INT64_MIN;
}

static int64_t bucket_begin_ns(const struct histogram *histogram, size_t bucket)
{
    const struct wire_histogram make = {.significant_digits = histogram->significant_digits,
                                        .lowest_ns = histogram->lowest_ns,
                                        .highest_ns = histogram->highest_ns};
    return wire_histogram_lower_ns(&make, (int64_t)bucket);
}

int64_t histogram_quantile_ns(const struct histogram *histogram, double q)
{
    uint64_t rank = (uint64_t)ceil(q * (double)histogram->total * (1 - 1e-12)),
             seen = 0; /* 0.07 x 100 is 7 */
    for (size_t i = 0; histogram->total > 0 && i < histogram->count; i++) {
        seen += histogram->counts[i];
        if (seen >= rank)
            return bucket_begin_ns(histogram, i);
    }
    return WIRE_NULL;
}

void histogram_export(const struct histogram *histogram, struct wire_histogram *ret)
{
    size_t used = 0;
    for (size_t i = 0; i < histogram->count; i++)
        used += histogram->counts[i] > 0;
    *ret = (struct wire_histogram){.present = true,
                                   .significant_digits = histogram->significant_digits,
                                   .lowest_ns = histogram->lowest_ns,
                                   .highest_ns = histogram->highest_ns,
                                   .overflow = (int64_t)histogram->overflow,
                                   .counts = memory_zeroed(2 * used + 1, sizeof *ret->counts)};
    for (size_t i = 0; i < histogram->count; i++) {
        if (histogram->counts[i] == 0)
            continue;
        ret->counts[2 * ret->pair_count] = (int64_t)i;
        ret->counts[2 * ret->pair_count + 1] = (int64_t)histogram->counts[i];
        ret->pair_count++;
    }
}
