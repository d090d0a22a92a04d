/* capacity: curves that are known give back what they were made of; what may not be known says why. */
#include "base/rng.h"
#include "coordinator/capacity/capacity.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_LOADS   20
#define MOST_WINDOWS 9
#define MS           1e6
#define US           1e3

/* Loads of one arm, made of a rule. */
struct made {
    struct capacity_window windows[MOST_LOADS][MOST_WINDOWS];
    struct capacity_load at[MOST_LOADS];
    struct capacity_loads loads;
};

static void assert_close(double got, double expected, double relative)
{
    if (!(fabs(got - expected) <= relative * fabs(expected)))
        fail_msg("got %.17g, expected %.17g", got, expected);
}

static void assert_within(double got, double lo, double hi)
{
    if (!(got >= lo && got <= hi))
        fail_msg("got %.17g, expected %.17g to %.17g", got, lo, hi);
}

static void assert_why(const struct stats_estimate *estimate, const char *why)
{
    assert_false(estimate->known);
    assert_string_equal(estimate->why, why);
}

/* From -1 to 1, with the middle more likely. */
static double noise(struct rng *rng)
{
    return rng_unit(rng) - rng_unit(rng);
}

static void add_load(struct made *made, int64_t clients, size_t windows)
{
    struct capacity_load *load = &made->at[made->loads.count];
    *load = (struct capacity_load){.clients = clients,
                                   .together = true,
                                   .timed = true,
                                   .windows = made->windows[made->loads.count],
                                   .count = windows};
    made->loads.count++;
}

static struct capacity_window *last_windows(struct made *made)
{
    return made->windows[made->loads.count - 1];
}

struct rule {
    double work_ns, wakeup_ns, growth_ns, growth_from, delay_ns;
    double wakeups; /* of one client's fan-out; shared by all */
    double noise;   /* relative, of CPU */
    bool misses;    /* growth is that of one cache */
};

static double busy_of(const struct rule *rule, double clients)
{
    double times = clients / rule->growth_from;
    double over = !(rule->growth_ns > 0 && times > 1) ? 0 : rule->misses ? 1 - 1 / times : log2(times);
    return rule->work_ns + rule->growth_ns * over;
}

/* Clients 1, 2, 4 ... up to most; above the knee the core is busy and latency follows. */
static void make(const struct rule *rule, int64_t most, size_t windows, uint64_t seed, struct made *ret)
{
    struct rng rng = rng_seeded(seed);
    *ret = (struct made){.loads = {ret->at, 0, true}};
    for (int64_t clients = 1; clients <= most; clients *= 2) {
        add_load(ret, clients, windows);
        for (size_t i = 0; i < windows; i++) {
            double K = (double)clients, wakeups = rule->wakeups / K, busy = busy_of(rule, K);
            double cpu_ns = (busy + rule->wakeup_ns * wakeups) * (1 + rule->noise * noise(&rng));
            double latency_ns = fmax(rule->delay_ns + cpu_ns, K * cpu_ns);
            last_windows(ret)[i] = (struct capacity_window){.cpu_ns = cpu_ns,
                                                            .wakeups = wakeups,
                                                            .thread_utilization = K * cpu_ns / latency_ns,
                                                            .utilization = K * cpu_ns / latency_ns,
                                                            .throughput_per_s = K / latency_ns * 1e9,
                                                            .latency_p50_ns = latency_ns};
        }
    }
}

/* A table as it was published: one window per load, CPU in us, throughput per s or 0. */
struct published {
    int64_t clients;
    double cpu_us, throughput_per_s;
};

static void make_published(const struct published *rows, size_t count, double wakeups_of_one,
                           struct made *ret)
{
    *ret = (struct made){.loads = {ret->at, 0, true}};
    for (size_t i = 0; i < count; i++) {
        add_load(ret, rows[i].clients, 1);
        last_windows(ret)[0] =
            (struct capacity_window){.cpu_ns = rows[i].cpu_us * US,
                                     .wakeups = wakeups_of_one / (double)rows[i].clients,
                                     .thread_utilization = rows[i].cpu_us * rows[i].throughput_per_s * 1e-6,
                                     .utilization = rows[i].cpu_us * rows[i].throughput_per_s * 1e-6,
                                     .throughput_per_s = rows[i].throughput_per_s,
                                     .latency_p50_ns = 10 * MS};
    }
}

static const struct rule gather = {
    .work_ns = 310 * US, .wakeup_ns = 200 * US, .delay_ns = 10 * MS, .wakeups = 1, .noise = 0};

/* ---- the curve ---- */

static void test_a_known_curve_comes_back(void **state)
{
    (void)state;
    struct made made;
    struct capacity_curve curve;
    make(&gather, 128, 1, 1, &made);
    capacity_fit(&made.loads, 1, &curve);
    assert_true(curve.fitted);
    assert_close(curve.work_ns.value, gather.work_ns, 1e-9);
    assert_close(curve.wakeup_ns.value, gather.wakeup_ns, 1e-9);
    assert_why(&curve.working_set_ns, "no_third_term");
    assert_close(curve.predicted_per_s_core.value, 1e9 / gather.work_ns, 1e-9);
    /* K x work = latency of one: 10.51 ms / 310 us */
    assert_close(curve.clients_at_knee.value, 10.51 / 0.31, 1e-9);
    assert_true(curve.measured_per_s_core.known);
    assert_close(curve.error_x.value, 1, 0.02); /* there are still wake-ups of 200 us / 128 */
    assert_true(curve.ceiling_clients >= 64);
}

static void test_the_working_set_moves_ceiling_and_knee(void **state)
{
    (void)state;
    const struct rule rule = {.work_ns = 20 * US,
                              .wakeup_ns = 90 * US,
                              .growth_ns = 5 * US,
                              .growth_from = 8,
                              .delay_ns = 10 * MS,
                              .wakeups = 1};
    struct made made;
    struct capacity_curve curve;
    make(&rule, 1024, 1, 1, &made);
    capacity_fit(&made.loads, 1, &curve);
    assert_close(curve.model.growth_from, 8, 1e-12);
    assert_close(curve.model.growth_ns, rule.growth_ns, 1e-6);
    assert_close(curve.work_ns.value, rule.work_ns, 1e-6);
    double knee = curve.clients_at_knee.value;
    assert_close(knee * busy_of(&rule, knee), 10.11 * MS, 1e-6);
    assert_close(curve.predicted_per_s_core.value, 1e9 / busy_of(&rule, knee), 1e-6);
    assert_close(curve.work_ns.value + curve.working_set_ns.value, busy_of(&rule, knee), 1e-6);
}

/* 40 children each, of whom one cache holds those of 512 clients. */
static const struct rule one_cache = {.work_ns = 1.2 * US,
                                      .wakeup_ns = 15 * US,
                                      .growth_ns = 3.2 * US,
                                      .growth_from = 512,
                                      .misses = true,
                                      .delay_ns = 100 * MS,
                                      .wakeups = 1};

static void test_one_cache_that_is_outgrown(void **state)
{
    (void)state;
    struct made made;
    struct capacity_curve curve;
    make(&one_cache, 65536, 1, 1, &made);
    capacity_fit(&made.loads, 1, &curve);
    assert_true(curve.model.misses);
    assert_close(curve.model.growth_from, 512, 1e-12);
    assert_close(curve.model.growth_ns, one_cache.growth_ns, 1e-6);
    double knee = curve.clients_at_knee.value;
    assert_close(curve.predicted_per_s_core.value, 1e9 / busy_of(&one_cache, knee), 1e-6);
    assert_close(curve.error_x.value, 1, 0.05);
}

/* With 10 ms the core is half busy before the cache is outgrown; with 100 ms it is not. */
static void test_longer_waits_lend_their_loads(void **state)
{
    (void)state;
    struct rule rule = one_cache;
    rule.delay_ns = 10 * MS;
    struct made own, longer;
    struct capacity_curve alone, curve;
    make(&rule, 8192, 1, 1, &own);
    capacity_fit(&own.loads, 1, &alone);
    assert_true(alone.error_x.value < 0.6);
    make(&one_cache, 8192, 1, 1, &longer);
    for (size_t i = longer.loads.count - 6; i < longer.loads.count; i++) {
        longer.at[i].borrowed = true;
        own.at[own.loads.count++] = longer.at[i];
    }
    capacity_fit(&own.loads, 1, &curve);
    assert_close(curve.predicted_per_s_core.value, 1e9 / busy_of(&rule, curve.clients_at_knee.value), 0.02);
    assert_close(curve.error_x.value, 1, 0.1);
    assert_close(curve.measured_per_s_core.value, alone.measured_per_s_core.value, 1e-12);
    assert_int_equal(curve.busiest_clients, alone.busiest_clients);
    assert_close(curve.clients_in_time.value, alone.clients_in_time.value, 1e-12);

    for (size_t i = 0; i < own.loads.count; i++)
        own.at[i].borrowed = true;
    capacity_fit(&own.loads, 1, &curve);
    assert_why(&curve.predicted_per_s_core, "no_loads"); /* nothing of its own */
}

static void test_noise_alone_makes_no_third_term(void **state)
{
    (void)state;
    struct rule rule = gather;
    rule.work_ns = 5 * US;
    rule.noise = 0.05;
    int chosen = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct made made;
        struct capacity_curve curve;
        make(&rule, 512, 3, seed, &made);
        capacity_fit(&made.loads, 1, &curve);
        chosen += curve.model.growth_from > 0;
    }
    assert_true(chosen <= 8);
}

/* 40 x 10 ms gathered in C, clients in phase, 1, 2, 4 ... 256 of them: 72 us a wake-up, about 0.25 us of work, where
 * 1 / (73 us of one client) would say 14,000 per s. */
static void test_the_prototype_of_the_lab(void **state)
{
    (void)state;
    static const struct published rows[] = {{1, 73, 90},     {2, 33, 190},       {4, 14, 390},
                                            {8, 7.7, 790},   {16, 4.4, 1590},    {32, 2.3, 3180},
                                            {64, 1.3, 6370}, {128, 0.84, 12700}, {256, 0.46, 25500}};
    struct made made;
    struct capacity_curve curve;
    make_published(rows, 9, 1, &made);
    capacity_fit(&made.loads, 1, &curve);
    assert_within(curve.wakeup_ns.value, 55 * US, 80 * US);
    assert_within(curve.work_ns.value, 150, 350);
    assert_true(curve.predicted_per_s_core.value > 1e6);
    assert_true(curve.work_ns.bounded &&
                curve.work_ns.ci_lo < curve.work_ns.ci_hi); /* by what the fit misses */
    assert_why(&curve.measured_per_s_core, "never_saturated");
    assert_why(&curve.error_x, "never_saturated");
    assert_close(curve.busiest_utilization, 0.84e-6 * 12700, 0.2);
    assert_int_equal(curve.busiest_clients, 256);
}

static void test_saturated_and_staggered_loads_never_enter_the_fit(void **state)
{
    (void)state;
    struct made made;
    struct capacity_curve before, after;
    make(&gather, 128, 1, 1, &made);
    capacity_fit(&made.loads, 1, &before);
    for (size_t i = 0; i < made.loads.count; i++)
        if (made.windows[i][0].thread_utilization > CAPACITY_FIT_UTILIZATION)
            made.windows[i][0].cpu_ns *= 3;
    add_load(&made, 8, 1);
    made.at[made.loads.count - 1].together = false;
    last_windows(&made)[0] = (struct capacity_window){9 * US, 1, 0.1, 0.1, 700, 10 * MS, 0};
    capacity_fit(&made.loads, 1, &after);
    assert_close(after.predicted_per_s_core.value, before.predicted_per_s_core.value, 1e-12);
    assert_int_equal(after.loads_fitted, before.loads_fitted);

    for (size_t i = 0; i < made.loads.count; i++)
        made.windows[i][0].cpu_ns *=
            made.windows[i][0].thread_utilization <= CAPACITY_FIT_UTILIZATION ? 2 : 1;
    capacity_fit(&made.loads, 1, &after);
    assert_true(after.predicted_per_s_core.value < 0.6 * before.predicted_per_s_core.value);
}

static void test_a_core_that_others_use_is_no_ceiling(void **state)
{
    (void)state;
    struct made made;
    struct capacity_curve alone, shared;
    make(&gather, 128, 1, 1, &made);
    capacity_fit(&made.loads, 1, &alone);
    for (size_t i = 0; i < made.loads.count; i++) {
        made.windows[i][0].utilization = 1; /* somebody is there at every load */
        if (made.windows[i][0].thread_utilization > 0.8)
            made.windows[i][0].thread_utilization = 0.8;
    }
    capacity_fit(&made.loads, 1, &shared);
    assert_why(&shared.measured_per_s_core, "core_shared");
    assert_close(shared.busiest_utilization, 0.8, 1e-12);
    assert_close(shared.predicted_per_s_core.value, alone.predicted_per_s_core.value, 1e-9);

    made.windows[made.loads.count - 1][0].thread_utilization =
        0.95; /* interrupts take 5 %: a ceiling all the same */
    capacity_fit(&made.loads, 1, &shared);
    assert_int_equal(shared.ceiling_clients, 128);
}

static void test_intervals_hold_and_shrink(void **state)
{
    (void)state;
    struct rule rule = gather;
    int held = 0;
    double width[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        rule.noise = i == 0 ? 0.1 : 0.01;
        for (uint64_t seed = 1; seed <= 20; seed++) {
            struct made made;
            struct capacity_curve curve;
            make(&rule, 128, 9, seed, &made);
            capacity_fit(&made.loads, seed, &curve);
            const struct stats_estimate *work = &curve.work_ns, *error = &curve.error_x;
            assert_true(work->bounded && error->bounded && curve.clients_at_knee.bounded);
            assert_true(work->ci_lo <= work->value && work->value <= work->ci_hi);
            assert_string_equal(work->ci_method, "bootstrap");
            assert_string_equal(curve.measured_per_s_core.ci_method, "order_statistic");
            held += work->ci_lo <= rule.work_ns && rule.work_ns <= work->ci_hi;
            width[i] += work->ci_hi - work->ci_lo;
        }
    }
    assert_true(held >= 34); /* of 40, at 95 % */
    assert_true(width[1] < width[0] / 5);
}

static void test_equal_input_gives_equal_output(void **state)
{
    (void)state;
    struct rule rule = gather;
    struct made made;
    struct capacity_curve one, same, other;
    rule.noise = 0.05;
    make(&rule, 128, 5, 3, &made);
    capacity_fit(&made.loads, 11, &one);
    capacity_fit(&made.loads, 11, &same);
    capacity_fit(&made.loads, 12, &other);
    assert_true(one.work_ns.ci_lo == same.work_ns.ci_lo && one.error_x.ci_hi == same.error_x.ci_hi);
    assert_true(one.work_ns.ci_lo != other.work_ns.ci_lo);
}

static void test_too_little_says_so(void **state)
{
    (void)state;
    struct made made;
    struct capacity_curve curve;
    make(&gather, 128, 1, 1, &made);
    made.loads.count = 0;
    capacity_fit(&made.loads, 1, &curve);
    assert_why(&curve.predicted_per_s_core, "no_loads");
    assert_why(&curve.measured_per_s_core, "no_windows");

    made.loads.count = 1;
    capacity_fit(&made.loads, 1, &curve);
    assert_why(&curve.predicted_per_s_core, "too_few_loads");
    assert_why(&curve.clients_at_knee, "too_few_loads");
    assert_why(&curve.error_x, "too_few_loads");
    made.at[0].timed = false;
    capacity_fit(&made.loads, 1, &curve);
    assert_why(&curve.measured_per_s_core, "no_windows");

    /* two distinct loads are a line, though nothing says how well it fits */
    made.loads.count = 2;
    capacity_fit(&made.loads, 1, &curve);
    assert_close(curve.work_ns.value, gather.work_ns, 1e-9);
    assert_false(curve.work_ns.bounded);
    assert_string_equal(curve.work_ns.why, "one_window");

    /* wake-ups that explain everything leave no work to foretell with */
    for (size_t i = 0; i < 2; i++)
        made.windows[i][0].cpu_ns = 1000 * made.windows[i][0].wakeups;
    capacity_fit(&made.loads, 1, &curve);
    assert_why(&curve.predicted_per_s_core, "work_not_separable");
}

static void test_plain_rounds_stand_in_for_one_client_and_prove_no_ceiling(void **state)
{
    (void)state;
    struct made made;
    struct capacity_curve curve;
    make(&gather, 8, 1, 1, &made);
    made.at[0].timed = false; /* one client, round by round */
    capacity_fit(&made.loads, 1, &curve);
    assert_int_equal(curve.loads_fitted, 4);
    assert_close(curve.work_ns.value, gather.work_ns, 1e-9);
    add_load(&made, 1, 1); /* a window of one client takes their place */
    last_windows(&made)[0] = made.windows[0][0];
    capacity_fit(&made.loads, 1, &curve);
    assert_int_equal(curve.loads_fitted, 4);
}

/* 9.5 us of work, and a turn of the loop of 3.7 us that all clients share. */
static void make_busy(struct made *made, const int64_t *clients, size_t count)
{
    *made = (struct made){.loads = {made->at, 0, false}};
    for (size_t i = 0; i < count; i++) {
        double K = (double)clients[i], cpu_ns = 9.5 * US + 3.7 * US / K;
        add_load(made, clients[i], 1);
        last_windows(made)[0] = (struct capacity_window){.cpu_ns = cpu_ns,
                                                         .thread_utilization = 1,
                                                         .utilization = 1,
                                                         .throughput_per_s = 1e9 / cpu_ns,
                                                         .latency_p50_ns = K * cpu_ns};
    }
}

static void test_a_job_that_does_not_wait(void **state)
{
    (void)state;
    struct made made;
    struct capacity_curve curve;
    make_busy(&made, (const int64_t[]){1, 2, 4, 8, 16}, 5);
    capacity_fit(&made.loads, 1, &curve);
    assert_true(curve.fitted);
    assert_int_equal(curve.loads_fitted, 3);
    assert_close(curve.work_ns.value, 9.5 * US, 1e-9);
    assert_close(curve.model.wakeup_ns, 3.7 * US, 1e-9);
    assert_int_equal(curve.ceiling_clients, 16);
    assert_close(curve.error_x.value, 9.5 / (9.5 + 3.7 / 16), 1e-9);
    assert_why(&curve.wakeup_ns, "does_not_wait");
    assert_why(&curve.clients_at_knee, "does_not_wait");
    assert_why(&curve.clients_in_time, "does_not_wait");

    made.windows[4][0].cpu_ns *= 2; /* what was not in the fit changes nothing */
    capacity_fit(&made.loads, 1, &curve);
    assert_close(curve.work_ns.value, 9.5 * US, 1e-9);
    made.loads.count = 3; /* and what was in it proves nothing */
    capacity_fit(&made.loads, 1, &curve);
    assert_why(&curve.measured_per_s_core, "no_harder_load");
}

/* More clients only cost more: the least load foretells, all others may prove it wrong. */
static void test_clients_that_share_nothing(void **state)
{
    (void)state;
    struct made made;
    struct capacity_curve curve;
    make_busy(&made, (const int64_t[]){1, 2, 4, 8}, 4);
    for (size_t i = 0; i < 4; i++) {
        made.windows[i][0].cpu_ns = 200 * US * (1 + 0.05 * (double)i);
        made.windows[i][0].throughput_per_s = 1e9 / made.windows[i][0].cpu_ns;
    }
    capacity_fit(&made.loads, 1, &curve);
    assert_false(curve.fitted);
    assert_close(curve.work_ns.value, 200 * US, 1e-12);
    assert_int_equal(curve.ceiling_clients, 2);
    assert_close(curve.error_x.value, 1 / 1.05, 1e-9);
}

static void test_without_few_clients_plain_rounds_tell_the_work(void **state)
{
    (void)state;
    struct made made;
    struct capacity_curve curve;
    make_busy(&made, (const int64_t[]){1, 16}, 2);
    add_load(&made, 1, 1);
    made.at[made.loads.count - 1].timed = false;
    last_windows(&made)[0] = (struct capacity_window){.cpu_ns = 13 * US, .throughput_per_s = 1e9 / (13 * US)};
    capacity_fit(&made.loads, 1, &curve);
    assert_false(curve.fitted);
    assert_close(curve.work_ns.value, 13 * US, 1e-12);
    assert_close(curve.predicted_per_s_core.value, 1e9 / (13 * US), 1e-12);
    assert_close(curve.error_x.value, 13 / (9.5 + 3.7 / 16), 1e-9);
}

/* Timers in whole ms: more and more wake-ups per burst, of which only the first finds the core cold. */
static void test_a_burst_pays_for_a_cold_core_once(void **state)
{
    (void)state;
    struct made made;
    struct capacity_curve curve;
    make(&gather, 16, 1, 1, &made);
    for (size_t i = 0; i < made.loads.count; i++)
        made.windows[i][0].wakeups *= 1 + 0.3 * (double)i;
    capacity_fit(&made.loads, 1, &curve);
    assert_true(curve.model.by_burst);
    assert_close(curve.work_ns.value, gather.work_ns, 1e-6);

    for (size_t i = 0; i < made.loads.count; i++) /* each of them costs: counted */
        made.windows[i][0].cpu_ns = gather.work_ns + gather.wakeup_ns * made.windows[i][0].wakeups;
    capacity_fit(&made.loads, 1, &curve);
    assert_false(curve.model.by_burst);
    assert_close(curve.work_ns.value, gather.work_ns, 1e-6);
}

static void test_latency_growth_is_read_between_loads(void **state)
{
    (void)state;
    struct made made;
    struct capacity_curve curve;
    make(&gather, 64, 1, 1, &made);
    static const double latency_ms[] = {10, 10.2, 10.4, 10.8, 11.2, 14, 22};
    for (size_t i = 0; i < made.loads.count; i++)
        made.windows[i][0].latency_p50_ns = latency_ms[i] * MS;
    capacity_fit(&made.loads, 1, &curve);
    assert_close(curve.clients_in_time.value, 8 * pow(2, log(11 / 10.8) / log(11.2 / 10.8)), 1e-9);
    made.loads.count = 4;
    capacity_fit(&made.loads, 1, &curve);
    assert_why(&curve.clients_in_time, "latency_not_reached");
}

/* ---- two arms ---- */

/* 40 x 10 ms, CPU per fan-out (and throughput) of K clients on one core of CPython 3.11. */
static const struct published asyncio_sequential[] = {
    {1, 8532, 2.3}, {16, 908, 38}, {64, 666, 113}, {256, 498, 452}, {1024, 424, 2048}};
static const struct published asyncio_gather[] = {
    {1, 946, 90}, {16, 623, 1243}, {64, 767, 1303}, {256, 908, 1099}, {1024, 1816, 540}};
static const struct published uvloop_sequential[] = {
    {1, 7861, 2.3}, {16, 997, 38}, {64, 517, 113}, {256, 348, 565}, {1024, 319, 2048}};
static const struct published uvloop_gather[] = {
    {1, 733, 90}, {16, 452, 1327}, {64, 424, 2359}, {256, 632, 1583}, {1024, 1221, 819}};

static void test_the_crossovers_of_the_lab(void **state)
{
    (void)state;
    struct made sequential, concurrent;
    struct capacity_crossover cross;
    make_published(asyncio_sequential, 5, 40, &sequential);
    make_published(asyncio_gather, 5, 1, &concurrent);
    capacity_cross(&concurrent.loads, &sequential.loads, 1, &cross);
    assert_within(cross.measured.value, 40, 60); /* about 50 */
    assert_true(cross.first_cheaper_below);
    assert_false(cross.measured.bounded);
    capacity_cross(&sequential.loads, &concurrent.loads, 1, &cross);
    assert_within(cross.measured.value, 40, 60);
    assert_false(cross.first_cheaper_below);

    make_published(uvloop_sequential, 5, 40, &sequential);
    make_published(uvloop_gather, 5, 1, &concurrent);
    capacity_cross(&concurrent.loads, &sequential.loads, 1, &cross);
    assert_within(cross.measured.value, 64, 256);

    /* the ceiling, and the one that is never reached */
    struct capacity_curve curve;
    make_published(asyncio_gather, 5, 1, &concurrent);
    capacity_fit(&concurrent.loads, 1, &curve);
    assert_close(curve.measured_per_s_core.value, 1303, 1e-9);
    make_published(asyncio_sequential, 5, 40, &sequential);
    capacity_fit(&sequential.loads, 1, &curve);
    assert_why(&curve.measured_per_s_core, "never_saturated");
    assert_int_equal(curve.busiest_clients, 1024);
    assert_close(curve.busiest_utilization, 0.868, 1e-2);
}

static const struct rule lazy = {
    .work_ns = 200 * US, .wakeup_ns = 150 * US, .delay_ns = 400 * MS, .wakeups = 40};

static void test_a_crossover_is_foretold_and_found(void **state)
{
    (void)state;
    struct rule quick_rule = gather, lazy_rule = lazy;
    struct made quick, slow;
    struct capacity_crossover cross;
    quick_rule.noise = lazy_rule.noise = 0.02;
    make(&quick_rule, 256, 5, 1, &quick);
    make(&lazy_rule, 2048, 5, 2, &slow);
    capacity_cross(&quick.loads, &slow.loads, 7, &cross);
    /* 310 + 200 / K = 200 + 6000 / K */
    double truth = (6000 - 200) / (310.0 - 200);
    assert_true(cross.first_cheaper_below);
    assert_true(cross.measured.bounded && cross.predicted.bounded);
    assert_within(cross.predicted.value, truth / 1.1, truth * 1.1);
    assert_within(cross.measured.value, truth / 1.1, truth * 1.1);
    assert_true(cross.predicted.ci_lo < truth && truth < cross.predicted.ci_hi);
    assert_true(cross.measured.ci_hi / cross.measured.ci_lo < 1.5);
}

static void test_no_crossover_says_who_is_cheaper(void **state)
{
    (void)state;
    struct rule dear = gather;
    struct made cheap, dearer;
    struct capacity_crossover cross;
    dear.work_ns *= 2;
    dear.wakeup_ns *= 2;
    make(&gather, 64, 1, 1, &cheap);
    make(&dear, 64, 1, 1, &dearer);
    capacity_cross(&cheap.loads, &dearer.loads, 1, &cross);
    assert_why(&cross.measured, "first_always_cheaper");
    assert_why(&cross.predicted, "first_always_cheaper");
    assert_true(cross.first_cheaper_below);
    capacity_cross(&dearer.loads, &cheap.loads, 1, &cross);
    assert_why(&cross.measured, "second_always_cheaper");
    cheap.loads.count = 1;
    capacity_cross(&cheap.loads, &dearer.loads, 1, &cross);
    assert_why(&cross.measured, "too_few_loads");
    assert_why(&cross.predicted, "not_fitted");
}

static void test_a_doubtful_crossover_has_no_interval(void **state)
{
    (void)state;
    struct rule one = gather, other = gather;
    struct made first, second;
    struct capacity_crossover cross;
    int doubtful = 0, crossed = 0;
    one.noise = other.noise = 0.3; /* the same arm twice: they touch everywhere */
    for (uint64_t seed = 0; seed < 10; seed++) {
        make(&one, 16, 3, seed, &first);
        make(&other, 16, 3, seed + 100, &second);
        capacity_cross(&first.loads, &second.loads, 1, &cross);
        crossed += cross.measured.known;
        doubtful += cross.measured.known && !cross.measured.bounded &&
                    strcmp(cross.measured.why, "crossing_uncertain") == 0;
    }
    assert_true(crossed > 0 && doubtful > 0);
}

static void test_what_a_saved_millisecond_costs(void **state)
{
    (void)state;
    struct made quick, slow;
    struct capacity_curve quick_curve, slow_curve;
    make(&gather, 256, 1, 1, &quick);
    make(&lazy, 2048, 1, 2, &slow);
    capacity_fit(&quick.loads, 1, &quick_curve);
    capacity_fit(&slow.loads, 1, &slow_curve);
    struct stats_estimate cost =
        capacity_cost_per_saved_ms(&quick.loads, &quick_curve, &slow.loads, &slow_curve);
    /* 310 us rather than 200 us of work; 10.51 ms rather than 406.2 ms */
    assert_close(cost.value, 110 * US / (406.2 - 10.51), 1e-6);
    cost = capacity_cost_per_saved_ms(&slow.loads, &slow_curve, &quick.loads, &quick_curve);
    assert_why(&cost, "saves_no_latency");
    quick.loads.count = 1;
    capacity_fit(&quick.loads, 1, &quick_curve);
    cost = capacity_cost_per_saved_ms(&quick.loads, &quick_curve, &slow.loads, &slow_curve);
    assert_why(&cost, "not_fitted");
}

/* ---- how many cores ---- */

static void test_cores_for_a_rate(void **state)
{
    (void)state;
    static const double throughput[] = {90, 600, 1200, 2300, 2400}, p99_ms[] = {12, 13, 20, 40, 90};
    struct capacity_window windows[5][3];
    struct capacity_offer offers[5];
    struct capacity_size size;
    for (size_t i = 0; i < 5; i++) {
        for (size_t j = 0; j < 3; j++)
            windows[i][j] =
                (struct capacity_window){.cpu_ns = 400 * US,
                                         .utilization = throughput[i] / 2400,
                                         .throughput_per_s = throughput[i] * (0.99 + 0.01 * (double)j),
                                         .latency_p99_ns = p99_ms[i] * MS};
        offers[i] = (struct capacity_offer){{1LL << i, true, true, windows[i], 3, false}, p99_ms[i] * MS};
    }
    capacity_size_for(offers, 5, &(struct capacity_demand){10000, 20 * MS}, 1, &size);
    assert_close(size.per_s_core.value, 1200, 1e-9);
    assert_close(size.cores.value, 9, 1e-12); /* 8.33 */
    assert_true(size.cores.bounded && size.cores.ci_lo <= 9 && size.cores.ci_hi >= 9);
    assert_close(size.utilization, 10000.0 / 9 * 400e-6, 1e-9);
    assert_int_equal(size.clients, 4);
    assert_false(size.more_is_possible);

    capacity_size_for(offers, 5, &(struct capacity_demand){10000, sqrt(20 * 40) * MS}, 1, &size);
    assert_close(size.per_s_core.value, 1750, 1e-9); /* half-way in the logarithm of p99 */

    capacity_size_for(offers, 5, &(struct capacity_demand){10000, 11 * MS}, 1, &size);
    assert_why(&size.cores, "p99_out_of_reach");
    assert_close(size.least_p99_ns, 12 * MS, 1e-12);
    assert_int_equal(size.least_clients, 1);

    capacity_size_for(offers, 3, &(struct capacity_demand){10000, 50 * MS}, 1, &size);
    assert_true(size.more_is_possible); /* nothing harder was tried, and the core was half idle */
    capacity_size_for(offers, 5, &(struct capacity_demand){10000, 500 * MS}, 1, &size);
    assert_false(size.more_is_possible); /* busy: there is no more */

    offers[0].p99_ns = 0;
    capacity_size_for(offers, 1, &(struct capacity_demand){10000, 50 * MS}, 1, &size);
    assert_why(&size.cores, "no_p99");
    capacity_size_for(offers, 0, &(struct capacity_demand){10000, 50 * MS}, 1, &size);
    assert_why(&size.cores, "no_p99");
}

/* ---- many cores ---- */

static void scale(const int64_t *cores, size_t count, double contention, double coherency, double spread,
                  struct capacity_scalability *ret)
{
    double throughput[MOST_LOADS][MOST_WINDOWS];
    struct capacity_scale_point points[MOST_LOADS];
    struct rng rng = rng_seeded(5);
    for (size_t i = 0; i < count; i++) {
        double n = (double)cores[i];
        for (size_t j = 0; j < MOST_WINDOWS; j++)
            throughput[i][j] =
                1000 * n / (1 + contention * (n - 1) + coherency * n * (n - 1)) * (1 + spread * noise(&rng));
        points[i] = (struct capacity_scale_point){cores[i], throughput[i], MOST_WINDOWS};
    }
    capacity_scale(points, count, 3, ret);
}

static void test_the_scalability_law(void **state)
{
    (void)state;
    static const int64_t cores[] = {1, 2, 4, 8, 16, 32, 64};
    struct capacity_scalability law;
    scale(cores, 7, 0.05, 0.001, 0.01, &law);
    assert_close(law.per_core_per_s.value, 1000, 0.02);
    assert_within(0.05, law.contention_x.ci_lo, law.contention_x.ci_hi);
    assert_within(0.001, law.coherency_x.ci_lo, law.coherency_x.ci_hi);
    assert_close(law.peak_cores.value, sqrt(0.95 / 0.001), 0.1);

    scale(cores, 7, 0.05, 0, 0.01, &law); /* no peak where retrograde scaling is not shown */
    assert_true(law.coherency_x.known && law.coherency_x.ci_lo <= 0);
    assert_why(&law.peak_cores, "no_peak");

    scale(cores, 7, 0, 0, 0, &law); /* straight: no coefficient falls below 0 */
    assert_true(law.contention_x.value >= 0 && law.contention_x.value < 1e-9);
    assert_true(law.coherency_x.value >= 0 && law.coherency_x.value < 1e-9);

    scale(cores, 5, 0.05, 0.001, 0.01, &law);
    assert_why(&law.per_core_per_s, "too_few_core_counts");
    assert_why(&law.peak_cores, "too_few_core_counts");
    static const int64_t repeated[] = {1, 2, 4, 8, 8, 8, 4};
    scale(repeated, 7, 0.05, 0.001, 0.01, &law);
    assert_why(&law.contention_x, "too_few_core_counts");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_known_curve_comes_back),
        cmocka_unit_test(test_the_working_set_moves_ceiling_and_knee),
        cmocka_unit_test(test_one_cache_that_is_outgrown),
        cmocka_unit_test(test_longer_waits_lend_their_loads),
        cmocka_unit_test(test_noise_alone_makes_no_third_term),
        cmocka_unit_test(test_the_prototype_of_the_lab),
        cmocka_unit_test(test_saturated_and_staggered_loads_never_enter_the_fit),
        cmocka_unit_test(test_a_core_that_others_use_is_no_ceiling),
        cmocka_unit_test(test_intervals_hold_and_shrink),
        cmocka_unit_test(test_equal_input_gives_equal_output),
        cmocka_unit_test(test_too_little_says_so),
        cmocka_unit_test(test_plain_rounds_stand_in_for_one_client_and_prove_no_ceiling),
        cmocka_unit_test(test_a_job_that_does_not_wait),
        cmocka_unit_test(test_clients_that_share_nothing),
        cmocka_unit_test(test_without_few_clients_plain_rounds_tell_the_work),
        cmocka_unit_test(test_a_burst_pays_for_a_cold_core_once),
        cmocka_unit_test(test_latency_growth_is_read_between_loads),
        cmocka_unit_test(test_the_crossovers_of_the_lab),
        cmocka_unit_test(test_a_crossover_is_foretold_and_found),
        cmocka_unit_test(test_no_crossover_says_who_is_cheaper),
        cmocka_unit_test(test_a_doubtful_crossover_has_no_interval),
        cmocka_unit_test(test_what_a_saved_millisecond_costs),
        cmocka_unit_test(test_cores_for_a_rate),
        cmocka_unit_test(test_the_scalability_law),
    };
    return cmocka_run_group_tests_name("capacity", tests, NULL, NULL);
}
