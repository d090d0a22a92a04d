/* Windows of the worker, in virtual time: when they open and close, who is counted, what is late and for whom. */
#include "base/clock.h"
#include "worker/jobs/job.h"
#include "worker/window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char gather[] = "gather", sequential[] = "sequential", sleeping[] = "sleep", timerfd[] = "timerfd",
            together[] = "together", staggered[] = "staggered", fixed[] = "fixed", poisson[] = "poisson";

struct rig {
    struct runtime runtime;
    struct counters counters;
    struct window_room room;
    struct wire_cell cell;
    struct window_bench bench;
};

static void rig_open(struct rig *rig, struct wire_cell cell)
{
    struct error err = {0};
    runtime_init_virtual(&rig->runtime);
    counters_open(&rig->counters);
    cell.wait = timerfd;
    cell.phase = cell.phase ? cell.phase : together;
    cell.arrivals = cell.arrivals ? cell.arrivals : poisson;
    cell.clients = cell.clients ? cell.clients : 1;
    rig->cell = cell;
    assert_int_equal(window_check(&rig->cell, &err), 0);
    assert_int_equal(window_room_open(&rig->room, &err), 0);
    rig->bench = (struct window_bench){.runtime = &rig->runtime,
                                       .counters = &rig->counters,
                                       .cell = &rig->cell,
                                       .arm = arm_find(cell.arm),
                                       .room = &rig->room};
    assert_int_equal(crowd_open(&rig->runtime, &rig->cell, crowd_size(&rig->cell), &rig->bench.crowd, &err),
                     0);
    assert_int_equal(window_warm_up(&rig->bench, &err), 0);
}

static struct wire_round rig_run(struct rig *rig)
{
    struct error err = {0};
    struct wire_round round;
    assert_int_equal(window_run(&rig->bench, rng_stream(42, (8ull << 32) + 3 + (1ull << 62)), &round, &err),
                     0);
    assert_int_equal(rig->bench.crowd->active, 0);
    assert_true(ready_is_empty(&rig->runtime.ready));
    assert_null(timer_queue_first(&rig->runtime.timers));
    return round;
}

static void round_free(struct wire_round *round)
{
    free(round->error);
    free(round->latency.counts);
    free(round->latency_intended.counts);
}

static void rig_close(struct rig *rig)
{
    crowd_close(rig->bench.crowd);
    window_room_close(&rig->room);
    counters_close(&rig->counters);
    runtime_release(&rig->runtime);
}

static int64_t counted(const struct wire_histogram *histogram)
{
    int64_t total = histogram->overflow;
    for (size_t i = 0; i < histogram->pair_count; i++)
        total += histogram->counts[2 * i + 1];
    return total;
}

static void all_start_together(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, (struct wire_cell){.arm = gather,
                                      .job = sleeping,
                                      .fanout = 3,
                                      .delay_ns = 5 * NS_PER_MS,
                                      .clients = 4,
                                      .duration_ns = 20 * NS_PER_MS});
    struct wire_round round = rig_run(&rig);
    assert_null(round.error);
    assert_int_equal(round.start_ns - round.launch_ns, 5 * NS_PER_MS); /* once all four have ended */
    assert_int_equal(round.wall_ns, 20 * NS_PER_MS);
    assert_int_equal(round.fanouts, 16);
    assert_int_equal(round.children, 48);
    assert_int_equal(round.wakeups, 4);
    assert_int_equal(round.max_in_flight, 3);
    assert_int_equal(counted(&round.latency), 16);
    assert_int_equal(round.latency.pair_count, 1); /* each took 5 ms to the ns */
    assert_int_equal(round.latency.counts[0], wire_histogram_index(&round.latency, 5 * NS_PER_MS));
    assert_false(round.latency_intended.present);
    assert_int_equal(round.offered, WIRE_NULL);
    round_free(&round);
    rig_close(&rig);
}

/* Ends at 8, 10, 12, 14 (open), 16, 18 ... 34: long enough, but the tenth; closes with the twelfth at 38. */
static void staggered_windows_count_whole_turns(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, (struct wire_cell){.arm = gather,
                                      .job = sleeping,
                                      .fanout = 2,
                                      .delay_ns = 8 * NS_PER_MS,
                                      .clients = 4,
                                      .phase = staggered,
                                      .duration_ns = 20 * NS_PER_MS});
    struct wire_round round = rig_run(&rig);
    assert_null(round.error);
    assert_int_equal(round.start_ns - round.launch_ns, 14 * NS_PER_MS);
    assert_int_equal(round.wall_ns, 24 * NS_PER_MS);
    assert_int_equal(round.fanouts, 12);
    round_free(&round);
    rig_close(&rig);
}

static void sequential_clients_wait_for_each_child(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, (struct wire_cell){.arm = sequential,
                                      .job = sleeping,
                                      .fanout = 4,
                                      .delay_ns = 5 * NS_PER_MS,
                                      .clients = 2,
                                      .duration_ns = NS_PER_MS});
    struct wire_round round = rig_run(&rig);
    assert_null(round.error);
    assert_int_equal(round.wall_ns, 20 * NS_PER_MS); /* as long as one takes, though asked for less */
    assert_int_equal(round.fanouts, 2);
    assert_int_equal(round.max_in_flight, 1);
    round_free(&round);
    rig_close(&rig);
}

/* A window that is run again and again gives the same, and what was given up leaves nothing behind. */
static void windows_repeat(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, (struct wire_cell){.arm = gather,
                                      .job = sleeping,
                                      .fanout = 2,
                                      .delay_ns = 8 * NS_PER_MS,
                                      .clients = 3,
                                      .phase = staggered,
                                      .duration_ns = 30 * NS_PER_MS});
    struct wire_round first = rig_run(&rig);
    for (int i = 0; i < 3; i++) {
        struct wire_round round = rig_run(&rig);
        assert_int_equal(round.fanouts, first.fanouts);
        assert_int_equal(round.wall_ns, first.wall_ns);
        round_free(&round);
    }
    round_free(&first);
    rig_close(&rig);
}

/* ---- open loop ---- */

static struct wire_cell open_loop(double rate_per_s, int64_t duration_ns, int64_t delay_ns)
{
    return (struct wire_cell){.arm = gather,
                              .job = sleeping,
                              .fanout = 2,
                              .delay_ns = delay_ns,
                              .rate_per_s = rate_per_s,
                              .arrivals = fixed,
                              .duration_ns = duration_ns};
}

static void starts_do_not_wait_for_anybody(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, open_loop(1000, 10500 * NS_PER_US, 5 * NS_PER_MS));
    struct wire_round round = rig_run(&rig);
    assert_null(round.error);
    assert_int_equal(round.launch_ns, round.start_ns);
    assert_int_equal(round.wall_ns, 10500 * NS_PER_US);
    assert_int_equal(round.offered, 11); /* at 0, 1 ... 10 ms */
    assert_int_equal(round.fanouts, 6);  /* those of 0..5 ms ended in time */
    assert_int_equal(counted(&round.latency), 11);
    assert_int_equal(counted(&round.latency_intended), 11);
    assert_int_equal(round.skipped, 0);
    assert_int_equal(round.unfinished, 0);
    assert_int_equal(round.lag_max_ns, 0);
    round_free(&round);
    rig_close(&rig);
}

static void poisson_starts_are_those_of_the_spec(void **state)
{
    (void)state;
    struct rig rig;
    struct wire_cell cell = open_loop(1000, 2900 * NS_PER_US, NS_PER_MS);
    cell.arrivals = poisson;
    rig_open(&rig, cell);
    struct wire_round round = rig_run(&rig);
    assert_int_equal(round.offered, 4); /* 459514, 557549, 2027923, 2895751 ns; the next one is at 3028884 */
    assert_int_equal(round.fanouts, 2);
    round_free(&round);
    rig_close(&rig);
}

static void a_start_in_a_far_future_never_comes(void **state)
{
    (void)state;
    static char *const arrivals[] = {fixed, poisson};
    for (int i = 0; i < 2; i++) {
        struct rig rig;
        struct wire_cell cell = open_loop(1e-300, 10 * NS_PER_MS, NS_PER_MS);
        cell.arrivals = arrivals[i];
        rig_open(&rig, cell);
        struct wire_round round = rig_run(&rig);
        assert_null(round.error);
        assert_int_equal(round.offered, arrivals[i] == fixed ? 1 : 0);
        assert_int_equal(round.wall_ns, 10 * NS_PER_MS);
        round_free(&round);
        rig_close(&rig);
    }
}

static void backlog_is_bounded(void **state)
{
    (void)state;
    struct rig rig;
    struct wire_cell cell = open_loop(1e7, 10 * NS_PER_MS, 2 * NS_PER_S);
    cell.fanout = 1;
    rig_open(&rig, cell);
    assert_int_equal(crowd_size(&rig.cell), 65536);
    struct wire_round round = rig_run(&rig);
    assert_int_equal(round.offered, 100000);
    assert_int_equal(round.skipped, 100000 - 65536);
    assert_int_equal(round.unfinished, 65536);
    assert_int_equal(round.fanouts, 0);
    assert_int_equal(counted(&round.latency), 0);
    round_free(&round);
    rig_close(&rig);
}

static void freeze(struct runtime *runtime, struct call *call)
{
    if (runtime_timer_fired((struct timer *)(void *)call))
        runtime->virtual_ns += 50 * NS_PER_MS;
}

static int64_t quantile_ns(const struct wire_histogram *histogram, double q)
{
    int64_t rank = (int64_t)(q * (double)counted(histogram)), seen = 0;
    for (size_t i = 0; i < histogram->pair_count; i++)
        if ((seen += histogram->counts[2 * i + 1]) >= rank)
            return wire_histogram_lower_ns(histogram, histogram->counts[2 * i]);
    return -1;
}

/* The loop stands still for 50 ms of 500: one start in ten waits, and only the intended start tells. */
static void a_frozen_loop_shows_in_the_intended_start_alone(void **state)
{
    (void)state;
    struct rig rig;
    struct timer timer = {.call.run = freeze};
    rig_open(&rig, open_loop(1000, 500 * NS_PER_MS, NS_PER_MS));
    runtime_timer_start_at(&rig.runtime, &timer, runtime_now(&rig.runtime) + 250 * NS_PER_MS + NS_PER_US);
    struct wire_round round = rig_run(&rig);
    assert_int_equal(round.offered, 500);
    assert_true(quantile_ns(&round.latency, 0.99) < 2 * NS_PER_MS);
    assert_true(quantile_ns(&round.latency_intended, 0.99) > 40 * NS_PER_MS);
    assert_true(round.lag_max_ns > 45 * NS_PER_MS);
    assert_int_equal(round.lag_p50_ns, 0);
    round_free(&round);
    rig_close(&rig);
}

/* Starts that were due before the end and could only be made after it are the latest of all. */
static void what_starts_after_the_end_is_late_too(void **state)
{
    (void)state;
    struct rig rig;
    struct timer timer = {.call.run = freeze};
    rig_open(&rig, open_loop(1000, 100 * NS_PER_MS, NS_PER_MS));
    runtime_timer_start_at(&rig.runtime, &timer, runtime_now(&rig.runtime) + 60 * NS_PER_MS - NS_PER_US);
    struct wire_round round = rig_run(&rig);
    assert_int_equal(round.offered, 100);
    assert_int_equal(round.skipped, 0);
    assert_int_equal(counted(&round.latency_intended), 100);
    assert_int_equal(round.lag_max_ns, 50 * NS_PER_MS - NS_PER_US); /* the one that was due at 60 ms */
    round_free(&round);
    rig.cell.duration_ns = 80 * NS_PER_MS; /* and now it ends while the loop stands still */
    runtime_timer_start_at(&rig.runtime, &timer, runtime_now(&rig.runtime) + 60 * NS_PER_MS - NS_PER_US);
    round = rig_run(&rig);
    assert_int_equal(round.offered, 80);
    assert_int_equal(counted(&round.latency_intended), 80);
    assert_int_equal(round.lag_max_ns, 50 * NS_PER_MS - NS_PER_US);
    round_free(&round);
    rig_close(&rig);
}

/* Cells of a slice share clients: all rates those of the fastest, all arms of a closed loop those of one number. */
static void who_shares_clients(void **state)
{
    (void)state;
    struct rig rig;
    struct wire_cell slow = open_loop(1000, 2 * NS_PER_S, NS_PER_MS),
                     fast = open_loop(5000, 2 * NS_PER_S, NS_PER_MS);
    struct wire_cell closed = fast;
    slow.wait = fast.wait = closed.wait = timerfd;
    closed.rate_per_s = 0;
    closed.clients = 10000;
    rig_open(&rig, fast);
    assert_int_equal(rig.bench.crowd->count, 10000); /* no more can ever be under way */
    assert_true(crowd_serves(rig.bench.crowd, &fast));
    assert_true(crowd_serves(rig.bench.crowd, &slow));
    assert_false(crowd_serves(rig.bench.crowd, &closed));
    slow.fanout++;
    assert_false(crowd_serves(rig.bench.crowd, &slow));
    rig_close(&rig);
    rig_open(&rig, closed);
    assert_true(crowd_serves(rig.bench.crowd, &closed));
    closed.clients--;
    assert_false(crowd_serves(rig.bench.crowd, &closed));
    assert_false(crowd_serves(rig.bench.crowd, &fast));
    rig_close(&rig);
}

/* ---- what cannot be ---- */

static void what_is_no_window(void **state)
{
    (void)state;
    struct error err = {0};
    struct wire_cell cell = {.clients = 2, .fanout = 1};
    assert_int_equal(window_check(&cell, &err), -1);
    cell.duration_ns = NS_PER_S;
    assert_int_equal(window_check(&cell, &err), 0);
    cell.rate_per_s = 10;
    assert_int_equal(window_check(&cell, &err), -1);
    cell.clients = 1;
    assert_int_equal(window_check(&cell, &err), 0);
    cell.timeout_ns = 1;
    assert_int_equal(window_check(&cell, &err), -1);
    cell.timeout_ns = 0;
    cell.rate_per_s = 1e8;
    assert_int_equal(window_check(&cell, &err), 0);
    cell.rate_per_s = 1.1e8;
    assert_int_equal(window_check(&cell, &err), -1);
    assert_non_null(strstr(err.text, "1.1e+08 fan-outs per second"));
    cell.rate_per_s = 0;
    cell.clients = 1024;
    cell.fanout = 16384;
    assert_int_equal(window_check(&cell, &err), 0);
    cell.fanout++;
    assert_int_equal(window_check(&cell, &err), -1);
    assert_non_null(strstr(err.text, "1024 clients of 16385 children each are more than 16777216"));
    cell = (struct wire_cell){.clients = 1, .fail.present = true};
    assert_int_equal(window_check(&cell, &err), 0); /* a round, not a window */
}

/* ---- the histogram ---- */

static void buckets_are_those_of_the_spec(void **state)
{
    (void)state;
    struct error err = {0};
    for (int64_t digits = 1; digits <= 5; digits++) {
        struct histogram histogram;
        const struct wire_histogram make = {
            .significant_digits = digits, .lowest_ns = 3, .highest_ns = NS_PER_S};
        assert_int_equal(histogram_init(&histogram, digits, 3, NS_PER_S, &err), 0);
        struct rng rng = rng_seeded((uint64_t)digits);
        for (int i = 0; i < 20000; i++) {
            int64_t ns = (int64_t)(rng_next(&rng) >> (34 + rng_below(&rng, 29)));
            if (ns <= NS_PER_S)
                assert_int_equal(histogram_bucket(&histogram, ns), wire_histogram_index(&make, ns));
        }
        histogram_release(&histogram);
    }
}

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static void quantiles_are_within_a_thousandth(void **state)
{
    (void)state;
    enum { many = 5000 };
    static int64_t values[many];
    struct error err = {0};
    struct histogram histogram;
    struct rng rng = rng_seeded(7);
    assert_int_equal(histogram_init(&histogram, 3, 1, 100 * NS_PER_S, &err), 0);
    assert_int_equal(histogram_quantile_ns(&histogram, 0.5), WIRE_NULL);
    for (int i = 0; i < many; i++) {
        values[i] = (int64_t)(rng_next(&rng) >> (28 + rng_below(&rng, 30)));
        histogram_record(&histogram, values[i]);
    }
    qsort(values, many, sizeof *values, compare);
    for (int percent = 1; percent <= 100; percent++) {
        int64_t exact = values[(many * percent + 99) / 100 - 1];
        int64_t got = histogram_quantile_ns(&histogram, percent / 100.0);
        assert_true(got <= exact && exact - got <= exact / 1000 + 1);
    }
    assert_int_equal(histogram.least_ns, values[0]);
    assert_int_equal(histogram.most_ns, values[many - 1]);
    histogram_release(&histogram);
}

static void what_is_too_long_overflows(void **state)
{
    (void)state;
    struct error err = {0};
    struct histogram histogram;
    struct wire_histogram wire;
    assert_int_equal(histogram_init(&histogram, 3, 1, 1000, &err), 0);
    histogram_record(&histogram, -5);
    histogram_record(&histogram, 1000);
    histogram_record(&histogram, 1001);
    histogram_record(&histogram, INT64_MAX);
    histogram_export(&histogram, &wire);
    assert_int_equal(wire.overflow, 2);
    assert_int_equal(wire.pair_count, 2);
    assert_int_equal(wire.counts[0], 0);
    assert_int_equal(wire.counts[2], 1000);
    assert_int_equal(histogram_quantile_ns(&histogram, 1), WIRE_NULL);
    free(wire.counts);
    histogram_release(&histogram);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_start_together),
        cmocka_unit_test(staggered_windows_count_whole_turns),
        cmocka_unit_test(sequential_clients_wait_for_each_child),
        cmocka_unit_test(windows_repeat),
        cmocka_unit_test(starts_do_not_wait_for_anybody),
        cmocka_unit_test(poisson_starts_are_those_of_the_spec),
        cmocka_unit_test(a_start_in_a_far_future_never_comes),
        cmocka_unit_test(backlog_is_bounded),
        cmocka_unit_test(a_frozen_loop_shows_in_the_intended_start_alone),
        cmocka_unit_test(what_starts_after_the_end_is_late_too),
        cmocka_unit_test(who_shares_clients),
        cmocka_unit_test(what_is_no_window),
        cmocka_unit_test(buckets_are_those_of_the_spec),
        cmocka_unit_test(quantiles_are_within_a_thousandth),
        cmocka_unit_test(what_is_too_long_overflows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
