/* A summary of several processes, and of rounds: auto: stores with made-up rounds. */
#include "base/memory.h"
#include "coordinator/plan/plan.h"
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

/* Wall of a round of the sequential arm, in ns; gather takes a quarter, all else 1,000 ns. */
typedef int64_t made_up(int64_t process, int64_t block);

struct made {
    char dir[64];
    struct store *store;
    struct plan *plan;
    struct summary *summary;
};

static void assert_close(double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("got %.17g, expected %.17g", got, expected);
}

static struct plan *plan_of(const char *text)
{
    struct sweep *sweep = NULL;
    struct plan *plan = NULL;
    struct error err = {0};
    struct sweep_mistakes mistakes = {0};
    if (sweep_parse("a.yaml", text, strlen(text), (struct sweep_settings){0}, &sweep, &mistakes) != 0)
        fail_msg("%s", sweep_mistakes_text(&mistakes));
    if (plan_make(sweep, 2, &plan, &err) != 0)
        fail_msg("%s", err.text);
    sweep_free(sweep);
    return plan;
}

static void check(int status, const struct error *err)
{
    if (status < 0)
        fail_msg("%s", err->text);
}

static void put_worker(struct made *made, int64_t number)
{
    struct error err = {0};
    scoped_free char *instance = memory_format("%032llx", (long long)number);
    char libuv[] = "libuv", host[] = "box", boot_id[] = "boot";
    const struct wire_hello hello = {.instance = instance,
                                     .runtime = libuv,
                                     .label = libuv,
                                     .host = host,
                                     .boot_id = boot_id,
                                     .pid = 100 + number,
                                     .cpu = number % 2,
                                     .busy_heartbeats = true};
    check(store_put_worker(made->store, number, &hello, &err), &err);
}

static void put_process(struct made *made, const struct plan_group *group, int64_t process, int64_t worker,
                        int64_t blocks, made_up *wall_ns)
{
    struct error err = {0};
    bool fresh;
    size_t count = 0;
    struct wire_round *rounds = memory_zeroed((size_t)(blocks * group->cell_count), sizeof *rounds);
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t i = 0; i < group->cell_count; i++) {
            const struct plan_cell *cell = &made->plan->cells[group->cells[i]];
            bool sequential = strcmp(cell->spec.arm, "sequential") == 0;
            int64_t ns = wall_ns(process, block);
            struct wire_round *round = &rounds[count++];
            wire_round_init(round);
            round->cell = group->cells[i];
            round->block = process * group->blocks + block;
            round->position = i;
            round->start_ns = 1000000000 + block * 1000000;
            round->wall_ns = cell->harness ? 1000 : sequential ? ns : ns / 4;
            round->cpu_ns = round->wall_ns;
            round->fanouts = 1;
        }
    const struct wire_result result = {
        .group = group->number, .attempt = 1, .last = true, .rounds = rounds, .round_count = count};
    check(store_put_result(made->store, worker, &result, &fresh, &err), &err);
    free(rounds);
}

static void made_open(struct made *made, const char *sweep)
{
    struct error err = {0};
    *made = (struct made){.plan = plan_of(sweep)};
    (void)snprintf(made->dir, sizeof made->dir, "/tmp/corefan-process-%lld", (long long)getpid());
    check(store_create(made->dir, &made->store, &err), &err);
    check(store_put_plan(made->store, made->plan, &err), &err);
}

/* The first `processes` of the group, each on `cores` workers of its own. */
static void put_group(struct made *made, int64_t number, int64_t processes, const int64_t *blocks,
                      made_up *wall_ns)
{
    struct error err = {0};
    const struct plan_group *group = &made->plan->groups[number];
    for (int64_t process = 0; process < processes; process++)
        for (int64_t core = 0; core < group->cores; core++) {
            int64_t worker = process * group->cores + core;
            put_worker(made, worker);
            put_process(made, group, process, worker, blocks[process], wall_ns);
        }
    check(store_finish_group(made->store, number, 1, &err), &err);
}

static const struct summary *summarise(struct made *made)
{
    struct error err = {0};
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

/* ---- processes ---- */

#define SWEEP(effort) effort "\narms: [sequential, gather]\nmatrix: [{job: sleep, fanout: 4, delay: 1ms}]\n"

static const int64_t nine[] = {9, 9, 9, 9, 9, 9, 9, 9};

/* Each process has a level of its own, rounds of one are nearly the same. */
static int64_t stepped(int64_t process, int64_t block)
{
    static const int64_t levels[] = {0, 70000, 20000, 50000, 10000, 90000};
    return 4000000 + levels[process] + block * 7 % 9 * 40;
}

static int64_t steady(int64_t process, int64_t block)
{
    return 4000000 + (process * 9 + block) * 7 % 27 * 400;
}

static int64_t drifting(int64_t process, int64_t block)
{
    return stepped(process, 0) + block * 400;
}

static void test_three_processes(void **state)
{
    struct made made;
    (void)state;
    made_open(&made, SWEEP("processes: 3"));
    put_group(&made, 0, 3, nine, stepped);
    const struct summary *summary = summarise(&made);
    const struct summary_cell *cell = &summary->cells[0];
    assert_int_equal(cell->rounds, 27);
    assert_int_equal(cell->rounds_planned, 27);
    assert_int_equal(cell->processes, 3);
    assert_int_equal(cell->worker_count, 3);
    assert_string_equal(cell->wall_ns.p50.ci_method, "process_range");
    assert_close(cell->wall_ns.p50.ci_level, 0.75, 1e-12);
    assert_int_equal(cell->wall_ns.p50.ci_lo, 4000160); /* medians of the three */
    assert_int_equal(cell->wall_ns.p50.ci_hi, 4070160);
    assert_int_equal(cell->wall_ns.p50.value, 4020160);
    assert_string_equal(summary->cells[1].speedup_x.ci_method, "process_range");
    assert_string_equal(summary->cells[1].speedup_block_x.ci_method, "process_range");
    assert_string_equal(cell->cpu_net_ns.ci_method, "process_range");
    assert_int_equal(cell->verdict, SUMMARY_OK);
    unsigned unwanted = 1u << SUMMARY_FLAG_WORKERS_DISAGREE | 1u << SUMMARY_FLAG_DRIFT_WALL;
    assert_int_equal(cell->flags & unwanted, 0);
    /* three processes took turns on one core: they are no three cores */
    assert_close(cell->throughput_per_s.value, cell->throughput_per_s_core.value, 1e-9);
    assert_true(cell->throughput_per_s.value < 1e9 / 4000000);
    assert_int_equal(summary->groups[0].rounds, 9);
    assert_int_equal(summary_exit_kind(summary), ERROR_NONE);
    made_close(&made);
}

static void test_six_processes(void **state)
{
    struct made made;
    (void)state;
    made_open(&made, SWEEP("processes: 6"));
    put_group(&made, 0, 6, nine, stepped);
    const struct stats_estimate p50 = summarise(&made)->cells[0].wall_ns.p50;
    assert_string_equal(p50.ci_method, "hierarchical_bootstrap");
    assert_close(p50.ci_level, 0.95, 1e-12);
    assert_int_equal(p50.n, 54);
    assert_true(p50.ci_lo < 4010000 && p50.ci_hi > 4050000); /* 54 pooled values would say less than that */
    made_close(&made);
}

static void test_processes_of_a_gang(void **state)
{
    struct made made;
    (void)state;
    made_open(&made, SWEEP("processes: 3\ncores: 2"));
    put_group(&made, 0, 3, nine, stepped);
    const struct summary *summary = summarise(&made);
    const struct summary_cell *cell = &summary->cells[0];
    assert_int_equal(cell->rounds_planned, 54);
    assert_int_equal(cell->worker_count, 6);
    assert_close(cell->wall_ns.p50.ci_level, 0.75, 1e-12); /* three times two that ran together */
    assert_close(cell->throughput_per_s.value, 2 * cell->throughput_per_s_core.value, 1e-6);
    assert_true(summary->scaling[0].overlap_x.known);
    made_close(&made);
}

static void test_a_process_that_is_missing(void **state)
{
    struct made made;
    (void)state;
    made_open(&made, SWEEP("processes: 3"));
    put_group(&made, 0, 2, nine, stepped);
    const struct summary *summary = summarise(&made);
    assert_int_equal(summary->cells[0].rounds, 18);
    assert_int_equal(summary->cells[0].rounds_planned, 27);
    assert_close(summary->cells[0].wall_ns.p50.ci_level, 0.5, 1e-12);
    assert_string_equal(summary->status, "incomplete");
    assert_int_equal(summary_exit_kind(summary), ERROR_INCOMPLETE);
    made_close(&made);
}

static void test_drift_within_processes(void **state)
{
    struct made made;
    (void)state;
    made_open(&made, SWEEP("processes: 3"));
    put_group(&made, 0, 3, nine, drifting);
    assert_true(summarise(&made)->cells[0].flags >> SUMMARY_FLAG_DRIFT_WALL & 1);
    made_close(&made);
}

static void test_one_process_pools_values(void **state)
{
    struct made made;
    (void)state;
    made_open(&made, SWEEP("rounds: 9"));
    put_group(&made, 0, 1, nine, stepped);
    assert_string_equal(summarise(&made)->cells[0].wall_ns.p50.ci_method, "order_statistic");
    assert_int_equal(made.summary->precision_count, 0);
    made_close(&made);
}

/* ---- rounds: auto ---- */

static void test_precision_reached(void **state)
{
    struct made made;
    static const int64_t blocks[] = {20};
    (void)state;
    made_open(&made, SWEEP("rounds: auto\nprecision: 1%"));
    put_group(&made, 0, 1, blocks, steady);
    const struct summary *summary = summarise(&made);
    assert_int_equal(summary->precision_count, 1);
    const struct summary_precision *row = &summary->precisions[0];
    assert_true(row->reached);
    assert_int_equal(row->rounds, 20);
    assert_int_equal(summary->groups[0].rounds, 20);
    assert_int_equal(row->most, 1000);
    assert_true(row->missing_ns.known && row->missing_ns.value <= 0);
    assert_string_equal(summary->status, "complete");
    assert_int_equal(summary_exit_kind(summary), ERROR_NONE);
    made_close(&made);
}

static void test_precision_missed(void **state)
{
    struct made made;
    static const int64_t blocks[] = {20};
    (void)state;
    made_open(&made, SWEEP("rounds: auto\nprecision: 0.01%"));
    put_group(&made, 0, 1, blocks, steady);
    const struct summary *summary = summarise(&made);
    const struct summary_precision *row = &summary->precisions[0];
    const struct stats_estimate *p50 = &summary->cells[row->cell].wall_ns.p50;
    double achieved = (p50->ci_hi - p50->ci_lo) / 2 / p50->value, block_ns = 1000;
    for (size_t i = 0; i < 2; i++)
        block_ns += summary->cells[i].wall_ns.mean.value;
    assert_false(row->reached);
    assert_close(row->achieved_x.value, achieved, 1e-12);
    double missing_ns = (ceil(20 * pow(achieved / 0.0001, 2)) - 20) * block_ns;
    assert_close(row->missing_ns.value / missing_ns, 1, 1e-6);
    assert_close(summary->missing_ns, row->missing_ns.value, 0);
    assert_int_equal(summary->imprecise, 1);
    assert_string_equal(summary->status, "complete"); /* rounds: auto plans no number */
    assert_int_equal(summary_exit_kind(summary), ERROR_INCONCLUSIVE);
    made_close(&made);
}

static void test_precision_of_processes(void **state)
{
    struct made made;
    static const int64_t blocks[] = {10, 20, 12};
    (void)state;
    made_open(&made, SWEEP("rounds: auto\nprecision: 0.1%\nprocesses: 3"));
    put_group(&made, 0, 3, blocks, stepped);
    const struct summary *summary = summarise(&made);
    const struct summary_precision *row = &summary->precisions[0];
    assert_int_equal(row->processes, 3);
    assert_int_equal(row->rounds, 20);
    assert_int_equal(summary->cells[0].rounds, 42);
    assert_int_equal(summary->cells[0].rounds_planned, 42);
    assert_false(row->reached); /* precise within each, and yet they differ: more processes are missing */
    double block_ns = 1000, times = row->achieved_x.value / 0.001;
    for (size_t i = 0; i < 2; i++)
        block_ns += summary->cells[i].wall_ns.mean.value;
    assert_close(row->missing_ns.value / ((ceil(3 * times * times) - 3) * 20 * block_ns), 1, 1e-6);
    made_close(&made);
}

static void test_precision_of_a_group_that_was_left_out(void **state)
{
    struct made made;
    struct error err = {0};
    (void)state;
    made_open(&made, SWEEP("rounds: auto"));
    check(store_fail_group(made.store, 0, "left out", &err), &err);
    check(store_put_fact(made.store, "budget_ns", "5000000000", &err), &err);
    const struct summary *summary = summarise(&made);
    assert_int_equal(summary->cells[0].rounds_planned, 10);
    assert_false(summary->precisions[0].reached);
    assert_string_equal(summary->precisions[0].achieved_x.why, "not_measured");
    assert_true(summary->budget_ns.known);
    assert_int_equal(summary_exit_kind(summary), ERROR_INCOMPLETE);
    made_close(&made);
}

/* An arm that left its ladder is no cell of the run and no lack of it. */
static void test_an_arm_that_was_left_out(void **state)
{
    struct made made;
    struct error err = {0};
    (void)state;
    made_open(&made, SWEEP("rounds: 9"));
    const struct plan_cell *cell = &made.plan->cells[made.plan->groups[0].cells[1]];
    put_group(&made, 0, 1, nine, steady);
    check(store_leave_out_cell(made.store, cell->spec.cell, "saturated at K=32", &err), &err);
    assert_int_equal(store_leave_out_cell(made.store, 999, "saturated at K=32", &err), -1);
    const struct summary *summary = summarise(&made);
    assert_int_equal(summary->cell_count, 1);
    assert_string_equal(summary->cells[0].arm, "sequential");
    assert_int_equal(summary->left_out_count, 1);
    assert_string_equal(summary->left_out[0].id, cell->id);
    assert_string_equal(summary->left_out[0].reason, "saturated at K=32");
    assert_int_equal(summary->left_out[0].group, 0);
    assert_int_equal(summary_exit_kind(summary), ERROR_NONE);
    made_close(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_arm_that_was_left_out),
        cmocka_unit_test(test_three_processes),
        cmocka_unit_test(test_six_processes),
        cmocka_unit_test(test_processes_of_a_gang),
        cmocka_unit_test(test_a_process_that_is_missing),
        cmocka_unit_test(test_drift_within_processes),
        cmocka_unit_test(test_one_process_pools_values),
        cmocka_unit_test(test_precision_reached),
        cmocka_unit_test(test_precision_missed),
        cmocka_unit_test(test_precision_of_processes),
        cmocka_unit_test(test_precision_of_a_group_that_was_left_out),
    };
    return cmocka_run_group_tests_name("process", tests, NULL, NULL);
}
