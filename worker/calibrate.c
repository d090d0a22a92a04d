#include "worker/calibrate.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

enum { samples = 3 };

static const int64_t loops_cap = INT64_C(1) << 36;
static const double agreement = 0.02;
/* Below this much time a cell is cheap enough for a full window of warm-up; above the other one it stops. */
static const int64_t cheap_ns = 100 * NS_PER_MS;
static const int64_t dear_ns = 2 * NS_PER_S;

int64_t calibrate_threshold_ns(int64_t cpu_clock_cost_ps)
{
    int64_t reads_ns = cpu_clock_cost_ps; /* 1,000 reads in ns is one read in ps */
    return reads_ns > 10 * NS_PER_MS ? reads_ns : 10 * NS_PER_MS;
}

static int64_t median_of_three(const int64_t v[samples])
{
    int64_t low = v[0] < v[1] ? v[0] : v[1];
    int64_t high = v[0] < v[1] ? v[1] : v[0];
    return v[2] < low ? low : v[2] > high ? high : v[2];
}

/* Cost per fan-out at this loop count, or -1. */
static double unit_cost(calibrate_cost cost, void *context, int64_t loops)
{
    int64_t taken_ns[samples];
    for (int i = 0; i < samples; i++)
        if ((taken_ns[i] = cost(context, loops)) < 0)
            return -1;
    return (double)median_of_three(taken_ns) / (double)loops;
}

/* 1 agree, 0 do not, -1 had to stop. */
static int costs_agree(calibrate_cost cost, void *context, int64_t loops)
{
    double single = unit_cost(cost, context, loops);
    double twice = single < 0 ? -1 : unit_cost(cost, context, 2 * loops);
    if (twice < 0)
        return -1;
    return fabs(twice - single) <= agreement * single;
}

int calibrate(calibrate_cost cost, void *context, int64_t threshold_ns, struct calibration *ret)
{
    int64_t loops = 1;
    int64_t taken_ns = cost(context, loops);
    while (taken_ns >= 0 && taken_ns < threshold_ns && loops < loops_cap) {
        loops *= 2;
        taken_ns = cost(context, loops);
    }
    int agree = taken_ns < 0 ? -1 : costs_agree(cost, context, loops);
    if (agree == 0) {
        loops *= 2;
        agree = costs_agree(cost, context, loops);
    }
    if (agree < 0)
        return -1;
    *ret = (struct calibration){.loops = loops, .stable = agree == 1};
    return 0;
}

void warmup_add(struct warmup *warmup, int64_t value_ns, int64_t wall_ns, int64_t faults)
{
    if (warmup->rounds >= warmup_window)
        memmove(warmup->values, warmup->values + 1, sizeof warmup->values - sizeof *warmup->values);
    int64_t at = warmup->rounds < warmup_window ? warmup->rounds : warmup_window - 1;
    warmup->values[at] = value_ns;
    warmup->rounds++;
    warmup->spent_ns += wall_ns;
    warmup->faulted = faults > 0;
}

static void sort(int64_t *values, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        int64_t value = values[i], at = i;
        for (; at > 0 && values[at - 1] > value; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
}

/* Linear interpolation between order statistics (type 7, the default of R and NumPy). */
static double quantile(const int64_t *sorted, int64_t n, double q)
{
    double where = q * (double)(n - 1);
    int64_t below = (int64_t)where;
    int64_t above = below + 1 < n ? below + 1 : below;
    return (double)sorted[below] + (where - (double)below) * (double)(sorted[above] - sorted[below]);
}

static bool first_is_outlier(const struct warmup *warmup)
{
    int64_t sorted[warmup_window];
    int64_t n = warmup->rounds < warmup_window ? warmup->rounds : warmup_window;
    if (n < warmup_window)
        return false;
    memcpy(sorted, warmup->values, sizeof sorted);
    sort(sorted, n);
    double q1 = quantile(sorted, n, 0.25), q3 = quantile(sorted, n, 0.75);
    return (double)warmup->values[0] > q3 + 1.5 * (q3 - q1);
}

enum warmup_verdict warmup_judge(const struct warmup *warmup, int64_t at_least)
{
    if (warmup->rounds < at_least || warmup->rounds < 1)
        return WARMUP_MORE;
    if (warmup->rounds < warmup_window && warmup->spent_ns < cheap_ns)
        return WARMUP_MORE;
    if (!warmup->faulted && !first_is_outlier(warmup))
        return WARMUP_DONE;
    bool spent = warmup->spent_ns >= dear_ns || warmup->rounds >= warmup_cap;
    return spent && warmup->rounds >= at_least ? WARMUP_UNCONVERGED : WARMUP_MORE;
}
