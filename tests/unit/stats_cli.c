/* stats_cli: stats.h on a pipe, for check_stats.py.  A line in: a verb, then numbers.  A line out: numbers. */
#include "coordinator/capacity/capacity.h"
#include "coordinator/stats/stats.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

struct line {
    double *at;
    size_t count;
};

static void print_estimate(struct stats_estimate estimate)
{
    printf("%.17g %d %.17g %.17g %.17g\n", estimate.value, estimate.bounded, estimate.ci_lo, estimate.ci_hi,
           estimate.ci_level);
}

static void ranks(struct line in)
{
    struct stats_ranks ret = {0};
    bool known = in.at[1] == 0.5 ? stats_median_ranks((int64_t)in.at[0], &ret)
                                 : stats_quantile_ranks((int64_t)in.at[0], in.at[1], &ret);
    printf("%d %lld %lld %.17g\n", known, (long long)ret.lo, (long long)ret.hi, ret.level);
}

static void quantile(struct line in)
{
    scoped_free double *sorted = stats_sorted(in.at + 1, in.count - 1);
    printf("%.17g\n", stats_quantile(sorted, in.count - 1, in.at[0]));
}

static void median(struct line in)
{
    print_estimate(stats_median(in.at, in.count));
}

static void moments(struct line in)
{
    struct stats_moments got = stats_moments(in.at, in.count);
    printf("%.17g %.17g %.17g %.17g\n", got.min, got.max, got.mean, got.stddev);
}

/* seed, then unit a b per pair */
static void ratio(struct line in)
{
    size_t n = (in.count - 1) / 3;
    scoped_free struct stats_pair *pairs = memory_zeroed(n + 1, sizeof *pairs);
    for (size_t i = 0; i < n; i++)
        pairs[i] = (struct stats_pair){(int64_t)in.at[1 + 3 * i], in.at[2 + 3 * i], in.at[3 + 3 * i]};
    print_estimate(stats_bootstrap_ratio(pairs, n, (uint64_t)in.at[0]));
}

static void spearman(struct line in)
{
    double rho = 0, p = 0;
    size_t n = in.count / 2;
    bool known = stats_spearman(in.at, in.at + n, n, &rho, &p);
    printf("%d %.17g %.17g\n", known, rho, p);
}

static void holm(struct line in)
{
    stats_holm(in.at, in.count, in.at);
    for (size_t i = 0; i < in.count; i++)
        printf("%.17g%c", in.at[i], i + 1 < in.count ? ' ' : '\n');
}

static void student(struct line in)
{
    printf("%.17g %.17g\n", stats_t_tail(in.at[0], in.at[1]), stats_t_critical(in.at[2], in.at[1]));
}

/* terms, then a row of the design and its y, again and again */
static void fit(struct line in)
{
    size_t terms = (size_t)in.at[0], rows = (in.count - 1) / (terms + 1);
    scoped_free double *design = memory_zeroed(rows * terms, sizeof *design);
    scoped_free double *y = memory_zeroed(rows, sizeof *y);
    for (size_t row = 0; row < rows; row++) {
        memcpy(design + row * terms, in.at + 1 + row * (terms + 1), terms * sizeof *design);
        y[row] = in.at[1 + row * (terms + 1) + terms];
    }
    struct stats_fit got;
    if (stats_least_squares(design, y, rows, terms, &got, NULL) < 0) {
        puts("collinear");
        return;
    }
    for (size_t i = 0; i < terms; i++)
        printf("%.17g %.17g ", got.coefficient[i], got.standard_error[i]);
    printf("%.17g\n", got.residual_stddev);
}

/* waits, then clients cpu wakeups utilization throughput latency per load, a window each */
struct loads {
    struct capacity_load at[64];
    struct capacity_window windows[64];
    struct capacity_loads all;
};

static void read_loads(const double *numbers, size_t count, bool waits, struct loads *ret)
{
    for (size_t i = 0; i < count; i++, numbers += 6) {
        ret->windows[i] = (struct capacity_window){.cpu_ns = numbers[1],
                                                   .wakeups = numbers[2],
                                                   .thread_utilization = numbers[3],
                                                   .utilization = numbers[3],
                                                   .throughput_per_s = numbers[4],
                                                   .latency_p50_ns = numbers[5]};
        ret->at[i] = (struct capacity_load){(int64_t)numbers[0], true, true, &ret->windows[i], 1, false};
    }
    ret->all = (struct capacity_loads){ret->at, count, waits};
}

static void curve(struct line in)
{
    struct loads loads;
    read_loads(in.at + 1, (in.count - 1) / 6, in.at[0] > 0, &loads);
    struct capacity_curve got;
    capacity_fit(&loads.all, 1, &got);
    printf("%.17g %.17g %.17g %.17g %.17g %.17g\n", got.model.work_ns, got.model.wakeup_ns,
           got.model.growth_ns, got.model.growth_from, got.clients_at_knee.value,
           got.predicted_per_s_core.value);
}

/* cores, then throughput, again and again */
static void law(struct line in)
{
    struct capacity_scale_point points[64];
    for (size_t i = 0; i < in.count / 2; i++)
        points[i] = (struct capacity_scale_point){(int64_t)in.at[2 * i], &in.at[2 * i + 1], 1};
    struct capacity_scalability got;
    capacity_scale(points, in.count / 2, 1, &got);
    printf("%.17g %.17g %.17g\n", got.per_core_per_s.value, got.contention_x.value, got.coherency_x.value);
}

static const struct {
    const char *name;
    void (*run)(struct line in);
} verbs[] = {
    {"ranks", ranks}, {"quantile", quantile}, {"median", median}, {"moments", moments},
    {"ratio", ratio}, {"spearman", spearman}, {"holm", holm},     {"student", student},
    {"fit", fit},     {"curve", curve},       {"law", law},
};

static void answer(char *text)
{
    char *rest = text + strcspn(text, " \n");
    size_t name_length = (size_t)(rest - text);
    struct line in = {memory_zeroed(strlen(text), sizeof *in.at), 0};
    for (char *end; in.at[in.count] = strtod(rest, &end), end != rest; rest = end)
        in.count++;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strlen(verbs[i].name) == name_length && strncmp(verbs[i].name, text, name_length) == 0)
            verbs[i].run(in);
    free(in.at);
}

int main(void)
{
    char *text = NULL;
    size_t room = 0;
    while (getline(&text, &room, stdin) > 0)
        answer(text);
    free(text);
    return 0;
}
