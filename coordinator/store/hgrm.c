#include "coordinator/store/hgrm.h"

#include "coordinator/stats/latency.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define NS_PER_UNIT    1000.0 /* a value is in us */
#define TICKS_PER_HALF 5
#define DECIMALS       3

/* ---- which cell ---- */

static bool is_candidate(const struct store_cell *cell)
{
    return cell->spec.duration_ns > 0 && !cell->harness;
}

static const struct store_cell *find_cell(const struct store_run *run, const char *id)
{
    for (size_t i = 0; i < run->cell_count; i++)
        if (strcmp(run->cells[i].id, id) == 0)
            return &run->cells[i];
    return NULL;
}

/* NULL: err says why. */
static const struct store_cell *choose_cell(const struct store_run *run, const char *id, struct error *err)
{
    const struct store_cell *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < run->cell_count; i++)
        if (is_candidate(&run->cells[i]) && count++ == 0)
            first = &run->cells[i];
    const struct store_cell *chosen = id ? find_cell(run, id) : first;
    if (!first)
        error_set(err, ERROR_USAGE, "no cell of this run has windows, and only those have latencies");
    else if (!id && count > 1)
        error_set(err, ERROR_USAGE, "this run has %zu cells of windows: name one, like --cell %s", count,
                  first->id);
    else if (!chosen)
        error_set(err, ERROR_USAGE, "no cell '%.200s' in this run (--format csv lists them)", id);
    else if (chosen->spec.duration_ns == 0)
        error_set(err, ERROR_USAGE, "'%.200s' has no windows, and only those have latencies", chosen->id);
    else
        return chosen;
    return NULL;
}

/* ---- its latencies ---- */

static bool is_open(const struct store_cell *cell)
{
    return cell->spec.rate_per_s > 0 || cell->rate_factor > 0;
}

static int load_latency(struct store *store, const struct store_cell *cell, struct latency *ret,
                        struct error *err)
{
    struct store_rounds *rounds;
    int status = store_load_rounds(store, cell->number, &rounds, err);
    if (status < 0)
        return -1;
    for (size_t i = 0; status == 0 && i < rounds->count; i++) {
        const struct wire_round *raw = &rounds->at[i].raw;
        const struct wire_histogram *of = is_open(cell) ? &raw->latency_intended : &raw->latency;
        if (!raw->error && of->present && latency_add(ret, of) < 0)
            status =
                error_set(err, ERROR_USAGE,
                          "histograms of '%.200s' differ in their make and cannot be added up", cell->id);
    }
    store_rounds_free(rounds);
    return status;
}

/* ---- the text ---- */

/* How far each level is from the one before. */
static double step_after(double level)
{
    double halvings = floor(log2(100 / (100 - level))) + 1;
    return 100 / (TICKS_PER_HALF * exp2(halvings));
}

static void print_level(FILE *out, double value_ns, double level, int64_t count)
{
    (void)fprintf(out, "%12.*f %2.12f %10" PRId64, DECIMALS, value_ns / NS_PER_UNIT, level / 100, count);
    if (level < 100)
        (void)fprintf(out, " %14.2f", 1 / (1 - level / 100));
    (void)fputc('\n', out);
}

static void print_levels(FILE *out, const struct latency *latency, int64_t total)
{
    double level = 0;
    int64_t seen = 0;
    (void)fprintf(out, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    for (size_t i = 0; i < latency->count; i++) {
        double value_ns = latency_bucket_end_ns(latency, i);
        bool is_last = i + 1 == latency->count;
        seen += latency->at[i].count;
        while (100.0 * (double)seen / (double)total >= level) {
            print_level(out, value_ns, level, seen);
            level += step_after(level);
            if (is_last)
                break;
        }
        if (is_last)
            print_level(out, value_ns, 100, seen);
    }
}

/* Powers of two that HdrHistogram would need for as much, from `sub` values on. */
static int count_octaves(int64_t sub, const struct wire_histogram *make)
{
    int64_t highest = make->lowest_ns > 0 ? make->highest_ns / make->lowest_ns : 0;
    int octaves = 1;
    while (highest >= sub) {
        highest /= 2;
        octaves++;
    }
    return octaves;
}

static void print_footer(FILE *out, const struct store_cell *cell, const struct latency *latency,
                         int64_t total)
{
    struct latency within = *latency;
    struct latency_moments moments = {0};
    int64_t sub = 2 * latency_octave_buckets(latency);
    within.total = total;
    within.overflow = 0;
    (void)latency_moments(&within, &moments);
    (void)fprintf(out, "#[Mean    = %12.*f, StdDeviation   = %12.*f]\n", DECIMALS,
                  moments.mean_ns / NS_PER_UNIT, DECIMALS, moments.stddev_ns / NS_PER_UNIT);
    (void)fprintf(out, "#[Max     = %12.*f, Total count    = %12" PRId64 "]\n", DECIMALS,
                  moments.max_ns / NS_PER_UNIT, total);
    (void)fprintf(out, "#[Buckets = %12d, SubBuckets     = %12" PRId64 "]\n",
                  count_octaves(sub, &latency->make), sub);
    (void)fprintf(out, "#[%s, us from the %s start", cell->id, is_open(cell) ? "intended" : "actual");
    if (latency->overflow > 0)
        (void)fprintf(out, ", and %" PRId64 " above %" PRId64 " s", latency->overflow,
                      latency->make.highest_ns / 1000000000);
    (void)fputs("]\n", out);
}

static int write_cell(struct store *store, const struct store_cell *cell, FILE *out, struct error *err)
{
    struct latency latency = {.count = 0};
    int status = load_latency(store, cell, &latency, err);
    int64_t total = latency.total - latency.overflow;
    if (status == 0 && total == 0)
        status = error_set(err, ERROR_USAGE, "'%.200s' has no latencies: it was not measured", cell->id);
    if (status == 0) {
        print_levels(out, &latency, total);
        print_footer(out, cell, &latency, total);
        if (fflush(out) != 0 || ferror(out))
            status = error_set(err, ERROR_INTERNAL, "cannot write the histogram: %s", strerror(errno));
    }
    latency_release(&latency);
    return status;
}

int hgrm_write(struct store *store, const char *cell_id, FILE *out, struct error *err)
{
    struct store_run *run;
    if (store_load(store, &run, err) < 0)
        return -1;
    const struct store_cell *cell = choose_cell(run, cell_id, err);
    int status = cell ? write_cell(store, cell, out, err) : -1;
    store_run_free(run);
    return status;
}
