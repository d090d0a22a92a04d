/* Latencies of many fan-outs, and the summary of windows: stores with made-up histograms. */
#include "base/memory.h"
#include "coordinator/plan/plan.h"
#include "coordinator/stats/latency.h"
#include "coordinator/store/hgrm.h"
#include "coordinator/store/store.h"
#include "coordinator/summary/summary.h"
#include "coordinator/sweep/sweep.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#define MS 1000000LL

static void assert_close(double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("got %.17g, expected %.17g", got, expected);
}

/* ---- histograms ---- */

struct made_histogram {
    struct wire_histogram histogram;
    int64_t pairs[16];
};

/* `count` times each of some ascending values. */
static void make_histogram(struct made_histogram *ret, const int64_t *values_ns, size_t n, int64_t count)
{
    *ret = (struct made_histogram){
        .histogram = {.present = true, .significant_digits = 3, .lowest_ns = 1, .highest_ns = 100000000000}};
    for (size_t i = 0; i < n; i++) {
        ret->pairs[2 * i] = wire_histogram_index(&ret->histogram, values_ns[i]);
        ret->pairs[2 * i + 1] = count;
    }
    ret->histogram.counts = ret->pairs;
    ret->histogram.pair_count = n;
}

static void test_latencies_add_up(void **state)
{
    struct latency latency = {.count = 0};
    struct latency_moments moments;
    struct made_histogram low, high;
    double ns;
    (void)state;
    make_histogram(&low, (const int64_t[]){100, 200, 300}, 3, 1);
    make_histogram(&high, (const int64_t[]){200, 400}, 2, 3);
    assert_int_equal(latency_add(&latency, &low.histogram), 0);
    assert_int_equal(latency_add(&latency, &high.histogram), 0);
    assert_int_equal(latency.total, 9); /* 100, 4 x 200, 300, 3 x 400 */
    assert_int_equal(latency.count, 4);
    assert_true(latency_quantile(&latency, 0.5, &ns)); /* the fifth of nine */
    assert_close(ns, 200, 0);
    assert_true(latency_quantile(&latency, 5.01 / 9, &ns)); /* just beyond it: the sixth */
    assert_close(ns, 300, 0);
    assert_true(latency_quantile(&latency, 1, &ns));
    assert_close(ns, 400, 0);
    assert_true(latency_moments(&latency, &moments));
    assert_close(moments.min_ns, 100, 0);
    assert_close(moments.max_ns, 400, 0);
    assert_close(moments.mean_ns, 2400.0 / 9, 1e-9);
    latency_release(&latency);
    latency_release(&latency);
}

/* 4,096 is in a bucket of four (4,096 to 4,099): its middle, and its ends. */
static void test_a_bucket_stands_for_its_values(void **state)
{
    struct latency latency = {.count = 0};
    struct latency_moments moments;
    struct made_histogram one;
    double ns;
    (void)state;
    make_histogram(&one, (const int64_t[]){4097}, 1, 1);
    assert_int_equal(latency_add(&latency, &one.histogram), 0);
    assert_true(latency_quantile(&latency, 0.99, &ns));
    assert_close(ns, 4097.5, 0);
    assert_true(latency_moments(&latency, &moments));
    assert_close(moments.min_ns, 4096, 0);
    assert_close(moments.max_ns, 4099, 0);
    latency_release(&latency);
}

static void test_unlike_histograms_do_not_add_up(void **state)
{
    struct latency latency = {.count = 0};
    struct made_histogram first, other;
    (void)state;
    make_histogram(&first, (const int64_t[]){100}, 1, 1);
    assert_int_equal(latency_add(&latency, &first.histogram), 0);
    for (int kind = 0; kind < 3; kind++) {
        make_histogram(&other, (const int64_t[]){100}, 1, 1);
        other.histogram.significant_digits -= kind == 0;
        other.histogram.lowest_ns += kind == 1;
        other.histogram.highest_ns += kind == 2;
        assert_int_equal(latency_add(&latency, &other.histogram), -1);
        assert_int_equal(latency.total, 1);
    }
    latency_release(&latency);
}

static void test_overflow_is_counted_and_not_guessed(void **state)
{
    struct latency latency = {.count = 0};
    struct latency_moments moments;
    struct made_histogram one;
    double ns;
    (void)state;
    assert_false(latency_quantile(&latency, 0.5, &ns));
    assert_false(latency_moments(&latency, &moments));
    make_histogram(&one, (const int64_t[]){100}, 1, 6);
    one.histogram.overflow = 4;
    assert_int_equal(latency_add(&latency, &one.histogram), 0);
    assert_int_equal(latency.total, 10);
    assert_true(latency_quantile(&latency, 0.6, &ns));
    assert_false(latency_quantile(&latency, 0.61, &ns));
    assert_false(latency_moments(&latency, &moments));
    latency_release(&latency);
}

/* ---- summaries ---- */

struct made {
    char dir[64];
    struct store *store;
    struct plan *plan;
    struct summary *summary;
};

static void check(int status, const struct error *err)
{
    if (status < 0)
        fail_msg("%s", err->text);
}

static struct plan *plan_of(const char *text)
{
    struct sweep *sweep = NULL;
    struct plan *plan = NULL;
    struct error err = {0};
    struct sweep_mistakes mistakes = {0};
    if (sweep_parse("a.yaml", text, strlen(text), (struct sweep_settings){0}, &sweep, &mistakes) != 0)
        fail_msg("%s", sweep_mistakes_text(&mistakes));
    check(plan_make(sweep, 2, &plan, &err), &err);
    sweep_free(sweep);
    return plan;
}

static void put_workers(struct made *made, int64_t count)
{
    struct error err = {0};
    char libuv[] = "libuv", host[] = "box", boot_id[] = "boot";
    for (int64_t number = 0; number < count; number++) {
        scoped_free char *instance = memory_format("%032llx", (long long)number);
        const struct wire_hello hello = {.instance = instance,
                                         .runtime = libuv,
                                         .label = libuv,
                                         .host = host,
                                         .boot_id = boot_id,
                                         .pid = 100 + number,
                                         .cpu = number,
                                         .busy_heartbeats = true};
        check(store_put_worker(made->store, number, &hello, &err), &err);
    }
}

/* What a test says about its windows. */
typedef void made_up(const struct plan_cell *cell, int64_t worker, struct wire_round *round,
                     struct made_histogram *latency);

static void put_windows(struct made *made, const struct plan_group *group, int64_t worker, made_up *window)
{
    struct error err = {0};
    bool fresh;
    size_t count = (size_t)(group->blocks * group->cell_count);
    scoped_free struct wire_round *rounds = memory_zeroed(count, sizeof *rounds);
    scoped_free struct made_histogram *latencies = memory_zeroed(count, sizeof *latencies);
    for (size_t i = 0; i < count; i++) {
        struct wire_round *round = &rounds[i];
        wire_round_init(round);
        round->block = (int64_t)i / group->cell_count;
        round->position = (int64_t)i % group->cell_count;
        round->cell = group->cells[round->position];
        round->start_ns = 1000000000 + (int64_t)i * 2000000000;
        window(&made->plan->cells[round->cell], worker, round, &latencies[i]);
        round->latency = latencies[i].histogram;
    }
    const struct wire_result result = {
        .group = group->number, .attempt = 1, .last = true, .rounds = rounds, .round_count = count};
    check(store_put_result(made->store, worker, &result, &fresh, &err), &err);
}

static const struct summary *summarise(struct made *made, const char *sweep, int64_t workers, made_up *window)
{
    struct error err = {0};
    *made = (struct made){.plan = plan_of(sweep)};
    (void)snprintf(made->dir, sizeof made->dir, "/tmp/corefan-window-%lld", (long long)getpid());
    for (int64_t i = 0; i < made->plan->cell_count; i++) {
        made->plan->cells[i].spec.duration_ns = 1000 * MS;
        made->plan->cells[i].spec.clients = made->plan->cells[i].spec.rate_per_s > 0 ? 1 : 4;
    }
    check(store_create(made->dir, &made->store, &err), &err);
    check(store_put_plan(made->store, made->plan, &err), &err);
    put_workers(made, workers);
    for (int64_t worker = 0; worker < workers; worker++)
        put_windows(made, &made->plan->groups[0], worker, window);
    check(store_finish_group(made->store, 0, 1, &err), &err);
    check(summary_build(made->store, &made->summary, &err), &err);
    return made->summary;
}

static void made_close(struct made *made)
{
    scoped_free char *path = memory_format("%s/run.db", made->dir);
    summary_free(made->summary);
    store_close(made->store);
    plan_free(made->plan);
    (void)unlink(path);
    (void)rmdir(made->dir);
}

static const struct summary_cell *cell_of(const struct summary *summary, const char *arm)
{
    for (size_t i = 0; i < summary->cell_count; i++)
        if (strcmp(summary->cells[i].arm, arm) == 0)
            return &summary->cells[i];
    fail_msg("no cell of arm %s", arm);
    return NULL;
}

/* Windows of 1 s.  Gather: in block b, 100 fan-outs of b ms and 300 of 20 ms: no mean of medians gives 20. */
static void mixed_windows(const struct plan_cell *cell, int64_t worker, struct wire_round *round,
                          struct made_histogram *latency)
{
    const int64_t block = round->block, gather[] = {(block + 1) * MS, 20 * MS}, sequential[] = {40 * MS};
    bool is_gather = strcmp(cell->spec.arm, "gather") == 0;
    (void)worker;
    round->wall_ns = 1000 * MS;
    round->cpu_ns = cell->harness ? MS : is_gather ? 400 * MS : 990 * MS;
    round->wakeups = 50;
    round->fanouts = is_gather ? 400 : 100;
    make_histogram(latency, is_gather ? gather : sequential, is_gather ? 2 : 1, 100);
    if (is_gather)
        latency->pairs[3] = 300;
}

static void test_percentiles_are_those_of_all_fanouts(void **state)
{
    struct made made;
    (void)state;
    const struct summary *summary =
        summarise(&made, "{job: sleep, fanout: 4, delay: 10ms, arms: [sequential, gather], rounds: 9}", 1,
                  mixed_windows);
    const struct summary_cell *gather = cell_of(summary, "gather");
    assert_true(gather->is_window);
    assert_int_equal(gather->verdict, SUMMARY_OK);
    assert_close(gather->wall_ns.p50.value, 20 * MS, 0.001 * 20 * MS);
    assert_true(gather->wall_ns.p50.bounded);
    assert_string_equal(gather->wall_ns.p50.ci_method, "order_statistic_of_windows");
    assert_int_equal(gather->wall_ns.p50.n, 9);
    assert_close(gather->wall_ns.min.value, MS, 0.001 * MS);
    assert_close(gather->wall_ns.max.value, 20 * MS, 0.001 * 20 * MS);
    assert_close(gather->wall_ns.mean.value, (100.0 * 45 + 300.0 * 9 * 20) / 3600 * MS, 0.001 * 20 * MS);
    assert_close(gather->wall_ns.p99.value, 20 * MS, 0.001 * 20 * MS);
    assert_close(gather->cpu_ns.p50.value, MS, 1);
    assert_close(gather->wakeups_per_fanout.value, 0.125, 1e-9);
    assert_close(gather->throughput_per_s_core.value, 400, 1e-9);
    assert_close(gather->utilization.value, 0.4, 1e-9);
    assert_false(gather->saturated);
    assert_int_equal(gather->window_count, 9);
    assert_close(gather->windows[2].cpu_ns, MS, 1);
    assert_close(gather->windows[2].throughput_per_s, 400, 1e-9);
    assert_close(gather->windows[2].utilization, 0.4, 1e-9);
    assert_close(gather->windows[2].wakeups.value, 0.125, 1e-9);
    assert_close(gather->windows[2].latency_p50_ns, 20 * MS, 0.001 * 20 * MS);
    assert_close(gather->speedup_x.value, 2, 0.004);
    made_close(&made);
}

static void test_a_core_without_rest_is_saturated(void **state)
{
    struct made made;
    (void)state;
    const struct summary *summary =
        summarise(&made, "{job: sleep, fanout: 4, delay: 10ms, arms: [sequential, gather], rounds: 9}", 1,
                  mixed_windows);
    const struct summary_cell *sequential = cell_of(summary, "sequential");
    assert_true(sequential->saturated);
    assert_true(sequential->flags >> SUMMARY_FLAG_SATURATED & 1);
    assert_false(cell_of(summary, "gather")->flags >> SUMMARY_FLAG_SATURATED & 1);
    assert_true(sequential->wall_ns.p99.known);                /* 900 fan-outs */
    assert_false(sequential->windows[0].latency_p99_ns.known); /* 100 */
    assert_string_equal(sequential->windows[0].latency_p99_ns.why, "fewer_than_368_values");
    made_close(&made);
}

/* Two workers, of which one is twice as fast: rates add up, latencies are pooled. */
static void unequal_windows(const struct plan_cell *cell, int64_t worker, struct wire_round *round,
                            struct made_histogram *latency)
{
    const int64_t ns[] = {(worker + 1) * 10 * MS};
    (void)cell;
    round->wall_ns = 1000 * MS;
    round->cpu_ns = 100 * MS;
    round->fanouts = 200 / (worker + 1);
    make_histogram(latency, ns, 1, round->fanouts);
}

static void test_workers_add_up(void **state)
{
    struct made made;
    (void)state;
    const struct summary *summary =
        summarise(&made, "{job: sleep, fanout: 4, delay: 10ms, arms: [gather], rounds: 6, cores: 2}", 2,
                  unequal_windows);
    const struct summary_cell *gather = cell_of(summary, "gather");
    assert_close(gather->throughput_per_s.value, 300, 1e-9);
    assert_close(gather->throughput_per_s_core.value, 150, 1e-9);
    assert_close(gather->wall_ns.p50.value, 10 * MS, 0.001 * 10 * MS); /* two thirds of all fan-outs */
    assert_close(gather->wall_ns.mean.value, 40.0 / 3 * MS, 0.001 * 20 * MS);
    assert_int_equal(gather->window_count, 12);
    assert_false(gather->wakeups_per_fanout.known);
    assert_false(gather->windows[0].wakeups.known);
    made_close(&made);
}

static void broken_windows(const struct plan_cell *cell, int64_t worker, struct wire_round *round,
                           struct made_histogram *latency)
{
    mixed_windows(cell, worker, round, latency);
    if (round->block == 1)
        latency->histogram.present = false;
    if (round->block == 2)
        latency->histogram.highest_ns *= 10;
    if (round->block == 3) {
        latency->histogram.overflow = 1000;
    }
}

static void test_a_window_without_latencies_is_no_number(void **state)
{
    struct made made;
    (void)state;
    const struct summary *summary = summarise(
        &made, "{job: sleep, fanout: 4, delay: 10ms, arms: [gather], rounds: 9}", 1, broken_windows);
    const struct summary_cell *gather = cell_of(summary, "gather");
    assert_int_equal(gather->rounds, 6);
    assert_int_equal(gather->rounds_broken, 3);
    assert_int_equal(gather->verdict, SUMMARY_INVALID);
    made_close(&made);
}

/* ---- HdrHistogram's text ---- */

/* 100, 200, ... 1,000 ns, once each, in both windows. */
static void ten_values(const struct plan_cell *cell, int64_t worker, struct wire_round *round,
                       struct made_histogram *latency)
{
    int64_t ns[8];
    (void)cell;
    (void)worker;
    for (int64_t i = 0; i < 5; i++)
        ns[i] = (round->block * 5 + i + 1) * 100;
    round->wall_ns = 1000 * MS;
    round->cpu_ns = MS;
    round->fanouts = 5;
    make_histogram(latency, ns, 5, 1);
}

static char *hgrm_of(const struct made *made, const char *cell, struct error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (hgrm_write(made->store, cell, out, err) < 0)
        err->text[sizeof err->text - 1] = '\0';
    (void)fclose(out);
    return text;
}

static void test_hgrm_steps_as_hdrhistogram_does(void **state)
{
    static const char *const lines[] = {
        "       Value     Percentile TotalCount 1/(1-Percentile)\n",
        "\n",
        "       0.100 0.000000000000          1           1.00\n",
        "       0.100 0.100000000000          1           1.11\n",
        "       0.200 0.200000000000          2           1.25\n",
        "       0.300 0.300000000000          3           1.43\n",
        "       0.400 0.400000000000          4           1.67\n",
        "       0.500 0.500000000000          5           2.00\n",
        "       0.600 0.550000000000          6           2.22\n",
        "       0.600 0.600000000000          6           2.50\n",
        "       0.700 0.650000000000          7           2.86\n",
        "       0.700 0.700000000000          7           3.33\n",
        "       0.800 0.750000000000          8           4.00\n",
        "       0.800 0.775000000000          8           4.44\n",
        "       0.800 0.800000000000          8           5.00\n",
        "       0.900 0.825000000000          9           5.71\n",
        "       0.900 0.850000000000          9           6.67\n",
        "       0.900 0.875000000000          9           8.00\n",
        "       0.900 0.887500000000          9           8.89\n",
        "       0.900 0.900000000000          9          10.00\n",
        "       1.000 0.912500000000         10          11.43\n",
        "       1.000 1.000000000000         10\n",
        "#[Mean    =        0.550, StdDeviation   =        0.287]\n",
        "#[Max     =        1.000, Total count    =           10]\n",
        "#[Buckets =           27, SubBuckets     =         2048]\n",
        "#[libuv/gather/sleep/n=4/delay=10ms/cores=1, us from the actual start]\n",
    };
    struct made made;
    struct error err = {0};
    (void)state;
    (void)summarise(&made, "{job: sleep, fanout: 4, delay: 10ms, arms: [gather], rounds: 2}", 1, ten_values);
    scoped_free char *text = hgrm_of(&made, NULL, &err);
    const char *at = text;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        size_t length = strcspn(at, "\n") + 1;
        scoped_free char *line = strndup(at, length);
        assert_string_equal(line, lines[i]);
        at += length;
    }
    assert_string_equal(at, "");
    made_close(&made);
}

static void test_hgrm_asks_which_cell(void **state)
{
    static const struct {
        const char *cell, *line;
    } rows[] = {
        {NULL, "this run has 2 cells of windows: name one, like --cell "
               "libuv/sequential/sleep/n=4/delay=10ms/cores=1"},
        {"nope", "no cell 'nope' in this run (--format csv lists them)"},
    };
    struct made made;
    (void)state;
    (void)summarise(&made, "{job: sleep, fanout: 4, delay: 10ms, arms: [sequential, gather], rounds: 9}", 1,
                    mixed_windows);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = {0};
        scoped_free char *text = hgrm_of(&made, rows[i].cell, &err);
        assert_string_equal(text, "");
        assert_int_equal(err.kind, ERROR_USAGE);
        assert_string_equal(err.text, rows[i].line);
    }
    made_close(&made);
}

/* ---- open loops ---- */

/* Of 100 starts per window: on time; or one in ten not ended; or, once, 50 ms late with a histogram that shows it. */
static void open_windows(const struct plan_cell *cell, int64_t worker, struct wire_round *round,
                         struct made_histogram *latency)
{
    const int64_t ns[] = {10 * MS};
    bool behind = strcmp(cell->spec.arm, "sequential") == 0;
    (void)worker;
    round->wall_ns = 1000 * MS;
    round->cpu_ns = 100 * MS;
    round->busy_ticks = behind ? 99 : 20;
    round->offered = 100;
    round->fanouts = behind ? 90 : 99;
    round->skipped = behind ? 1 : 0;
    round->unfinished = 0;
    round->lag_p50_ns = 1000 * (round->block + 1);
    round->lag_max_ns = round->block == 4 ? 50 * MS : 5000;
    make_histogram(latency, ns, 1, behind ? 99 : 100);
}

static void test_open_loop(void **state)
{
    struct made made;
    (void)state;
    const struct summary *summary = summarise(
        &made, "{job: sleep, fanout: 4, delay: 10ms, arms: [sequential, gather], rate: 100/s, rounds: 9}", 1,
        open_windows);
    const struct summary_cell *gather = cell_of(summary, "gather"), *behind = cell_of(summary, "sequential");
    assert_string_equal(gather->arrivals, "poisson");
    assert_close(gather->offered_per_s_core.value, 100, 1e-9);
    assert_close(gather->achieved_x.value, 1, 1e-9); /* one of 100 is under way at the close, as it must */
    assert_close(gather->lag_p50_ns.value, 5000, 1e-9);
    assert_close(gather->lag_max_ns.value, 50 * MS, 1e-9);
    assert_close(gather->skipped.value, 0, 0);
    assert_close(gather->core_utilization.value, 0.2, 1e-9);
    assert_close(gather->busy_x.value, 0.2, 1e-9);
    assert_false(gather->saturated);
    assert_false(gather->flags >> SUMMARY_FLAG_GENERATOR_LIMITED & 1);
    /* 81 were under way at the close of nine windows, where 9 and three deviations of that would be right */
    assert_close(behind->achieved_x.value, (810 + 9 + 9) / 900.0, 0.001);
    assert_true(behind->flags >> SUMMARY_FLAG_GENERATOR_LIMITED & 1);
    assert_close(behind->skipped.value, 9, 0);
    assert_close(behind->utilization.value, 0.1, 1e-9); /* its CPU was busy with something else */
    assert_close(behind->busy_x.value, 0.99, 1e-9);
    assert_false(behind->saturated);
    assert_close(behind->windows[0].utilization, 0.99, 1e-9);
    made_close(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_latencies_add_up),
        cmocka_unit_test(test_a_bucket_stands_for_its_values),
        cmocka_unit_test(test_unlike_histograms_do_not_add_up),
        cmocka_unit_test(test_overflow_is_counted_and_not_guessed),
        cmocka_unit_test(test_percentiles_are_those_of_all_fanouts),
        cmocka_unit_test(test_a_core_without_rest_is_saturated),
        cmocka_unit_test(test_workers_add_up),
        cmocka_unit_test(test_a_window_without_latencies_is_no_number),
        cmocka_unit_test(test_hgrm_steps_as_hdrhistogram_does),
        cmocka_unit_test(test_hgrm_asks_which_cell),
        cmocka_unit_test(test_open_loop),
    };
    return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
