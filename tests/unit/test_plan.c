/* plan: order, numbers, ids, harness cells, expected times, refusals, and its two printed forms (golden files).
 *
 * Golden files are renewed by running this program with COREFAN_RENEW_GOLDEN=1; read the difference. */
#include "base/memory.h"
#include "coordinator/plan/plan.h"
#include "coordinator/sweep/sweep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sweep *sweep_of(const char *text)
{
    struct sweep *sweep = NULL;
    struct sweep_mistakes mistakes = {0};
    if (sweep_parse("a.yaml", text, strlen(text), (struct sweep_settings){0}, &sweep, &mistakes) != 0)
        fail_msg("%s", sweep_mistakes_text(&mistakes));
    return sweep;
}

static struct plan *plan_of(const char *text, int64_t workers)
{
    struct plan *plan = NULL;
    struct error err = {0};
    struct sweep *sweep = sweep_of(text);
    if (plan_make(sweep, workers, &plan, &err) != 0)
        fail_msg("%s", err.text);
    sweep_free(sweep); /* a plan stands on its own */
    return plan;
}

static void check_refused(const char *text, int64_t workers, const char *line)
{
    struct plan *plan = NULL;
    struct error err = {0};
    struct sweep *sweep = sweep_of(text);
    assert_int_equal(plan_make(sweep, workers, &plan, &err), -1);
    assert_null(plan);
    assert_int_equal(err.kind, ERROR_USAGE);
    assert_string_equal(err.text, line);
    sweep_free(sweep);
}

static const struct plan_cell *cell_named(const struct plan *plan, const char *id)
{
    for (int64_t i = 0; i < plan->cell_count; i++)
        if (strcmp(plan->cells[i].id, id) == 0)
            return &plan->cells[i];
    fail_msg("no cell '%s'", id);
    return NULL;
}

static void test_lab(void **state)
{
    (void)state;
    struct plan *plan = plan_of(sweep_lab_text, 2);
    assert_int_equal(plan->group_count, 14); /* 3 fan-outs x 2 delays, and noop, on 1 and on 2 cores */
    assert_int_equal(plan->reported_count, 6 * 2 * 3 + 2 * 4);
    assert_int_equal(plan->cell_count, plan->reported_count + 14);
    assert_true(plan->expected_ns > 50000000000 && plan->expected_ns < 70000000000); /* about a minute */
    const struct plan_cell *cell = cell_named(plan, "libuv/gather/sleep/n=40/delay=10ms/cores=1");
    assert_int_equal(cell->spec.fanout, 40);
    assert_int_equal(cell->spec.delay_ns, 10000000);
    assert_string_equal(cell->spec.wait, "timerfd");
    assert_string_equal(cell->spec.phase, "together");
    assert_null(cell->spec.gc);
    assert_int_equal(cell->spec.clients, 1);
    assert_int_equal(cell->spec.warmup, 2);
    assert_int_equal(cell->rounds, 9);
    assert_false(cell->spec.calibrated);
    assert_false(cell->spec.fail.present);
    cell = cell_named(plan, "libuv/empty/noop/n=2/cores=2");
    assert_true(cell->harness);
    assert_true(cell->spec.calibrated);
    plan_free(plan);

    plan = plan_of(sweep_lab_text, 1); /* `all` is 1: it collapses */
    assert_int_equal(plan->group_count, 7);
    plan_free(plan);
}

static void test_numbers_and_order(void **state)
{
    (void)state;
    struct plan *plan = plan_of("matrix:\n"
                                "- {job: sleep, fanout: [2, 3], delay: [1ms, 2ms], cores: [1, all]}\n"
                                "- {job: noop, fanout: 9}\n",
                                4);
    static const char *const titles[] = {
        "2 x 1ms sleep, 1 core",  "2 x 1ms sleep, 4 cores", "2 x 2ms sleep, 1 core",
        "2 x 2ms sleep, 4 cores", "3 x 1ms sleep, 1 core",  "3 x 1ms sleep, 4 cores",
        "3 x 2ms sleep, 1 core",  "3 x 2ms sleep, 4 cores", "9 x noop, 1 core",
    };
    assert_int_equal(plan->group_count, 9);
    for (int64_t i = 0; i < plan->group_count; i++) {
        const struct plan_group *group = &plan->groups[i];
        assert_int_equal(group->number, i);
        assert_string_equal(group->title, titles[i]);
        assert_int_equal(group->cell_count, 4);
        for (int64_t j = 0; j < 4; j++) {
            assert_int_equal(group->cells[j], 4 * i + j);
            assert_int_equal(plan->cells[4 * i + j].spec.cell, 4 * i + j);
            assert_int_equal(plan->cells[4 * i + j].group, i);
            assert_int_equal(plan->cells[4 * i + j].harness, j == 3);
        }
    }
    plan_free(plan);
}

/* Every rung of a ladder is a window, and knows the one below it. */
static void test_ladders(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int64_t clients, window_ns;
    } groups[] = {
        {"cores=1/duration=2s", 1, 2000000000}, {"cores=1/clients=2", 2, 2000000000},
        {"cores=1/clients=4", 4, 2000000000},   {"cores=1/clients=8", 8, 2000000000},
        {"cores=1/clients=10", 10, 2000000000},
    };
    struct plan *plan =
        plan_of("{job: sleep, delay: 5ms, fanout: 3, arms: [gather], clients: {ladder: 10}}", 1);
    assert_int_equal(plan->group_count, 5);
    assert_int_equal(plan->series_count, 1);
    for (int64_t i = 0; i < 5; i++) {
        const struct plan_group *group = &plan->groups[i];
        scoped_free char *id = memory_format("libuv/gather/sleep/n=3/delay=5ms/%s", groups[i].key);
        const struct plan_cell *cell = &plan->cells[group->cells[0]],
                               *harness = &plan->cells[group->cells[1]];
        assert_string_equal(cell->id, id);
        assert_int_equal(cell->spec.clients, groups[i].clients);
        assert_int_equal(cell->spec.duration_ns, groups[i].window_ns);
        assert_int_equal(cell->spec.warmup, 1);
        assert_int_equal(cell->series, 0);
        assert_int_equal(harness->series, -1);
        assert_int_equal(harness->spec.duration_ns, 100000000); /* nothing in it takes long */
        assert_int_equal(group->clients, groups[i].clients);
        assert_int_equal(group->window_ns, groups[i].window_ns);
        assert_int_equal(group->previous_rung, i - 1);
        assert_true(group->is_rung);
        assert_in_range(group->expected_ns, 9 * 2100000000LL,
                        9 * 2200000000LL); /* 9 windows, and of the harness */
    }
    plan_free(plan);
}

/* Clients that are asked for by number are measured whatever the rungs below show. */
static void test_rungs_that_are_asked_for(void **state)
{
    (void)state;
    struct plan *plan = plan_of("{job: noop, fanout: 3, arms: [gather], clients: [4, {ladder: 8}]}", 1);
    static const int64_t clients[] = {1, 2, 4, 8}, below[] = {-1, 0, 1, 2};
    assert_int_equal(plan->group_count, 4);
    for (int64_t i = 0; i < 4; i++) {
        assert_int_equal(plan->groups[i].clients, clients[i]);
        assert_int_equal(plan->groups[i].previous_rung, below[i]);
        assert_int_equal(plan->groups[i].is_rung, i != 2);
    }
    plan_free(plan);
}

static void test_plain_rounds_stay_what_they_were(void **state)
{
    (void)state;
    struct plan *plan = plan_of("{job: noop, fanout: 3, arms: [gather], clients: [1, 2]}", 1);
    const struct plan_cell *one = cell_named(plan, "libuv/gather/noop/n=3/cores=1"),
                           *two = cell_named(plan, "libuv/gather/noop/n=3/cores=1/clients=2");
    assert_int_equal(one->spec.duration_ns, 0);
    assert_true(one->spec.calibrated);
    assert_int_equal(one->spec.warmup, 2);
    assert_int_equal(two->spec.duration_ns, 2000000000);
    assert_false(two->spec.calibrated);
    assert_int_equal(two->series, -1);
    assert_false(plan->groups[two->group].is_rung);
    plan_free(plan);
}

/* One client has no phase: it is one cell, not two. */
static void test_phases(void **state)
{
    (void)state;
    struct plan *plan = plan_of("{job: sleep, fanout: 3, delay: 1ms, arms: [gather], clients: [1, 2], "
                                "duration: 1s, phase: [together, staggered]}",
                                1);
    assert_int_equal(plan->group_count, 3);
    const char *const ids[] = {
        "libuv/gather/sleep/n=3/delay=1ms/cores=1/duration=1s",
        "libuv/gather/sleep/n=3/delay=1ms/cores=1/clients=2/duration=1s",
        "libuv/gather/sleep/n=3/delay=1ms/cores=1/clients=2/phase=staggered/duration=1s"};
    const char *const phases[] = {"together", "together", "staggered"};
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(cell_named(plan, ids[i])->spec.phase, phases[i]);
    plan_free(plan);
}

/* A part of a ceiling finds the ladder of its own arm, on as many cores where there is one. */
static void test_parts_of_ceilings(void **state)
{
    (void)state;
    struct plan *plan =
        plan_of("job: sleep\nfanout: 3\ndelay: 1ms\nmatrix:\n"
                "- {rate: [0.5x, 20/s], cores: [1, 2, 4], arms: [gather, tasks]}\n"
                "- {clients: {ladder: 2}, cores: [1, 2], arms: [tasks, gather, sequential]}\n",
                4);
    for (int64_t cores = 1; cores <= 4; cores *= 2) {
        scoped_free char *tail = memory_format("sleep/n=3/delay=1ms/cores=%lld", (long long)cores);
        scoped_free char *part = memory_format("libuv/gather/%s/rate=0.5x", tail);
        scoped_free char *number = memory_format("libuv/gather/%s/rate=20%%2fs", tail);
        scoped_free char *rung =
            memory_format("libuv/gather/sleep/n=3/delay=1ms/cores=%d/clients=2", cores == 2 ? 2 : 1);
        const struct plan_cell *cell = cell_named(plan, part);
        assert_true(cell->rate_factor > 0.499 && cell->rate_factor < 0.501);
        assert_true(cell->spec.rate_per_s <= 0); /* not known yet */
        assert_true(cell->series >= 0);
        assert_int_equal(cell->series, cell_named(plan, rung)->series);
        assert_int_equal(cell->spec.clients, 1);
        assert_int_equal(cell->spec.duration_ns, 2000000000);
        assert_int_equal(cell_named(plan, number)->series, -1);
        assert_true(cell_named(plan, number)->spec.rate_per_s > 19.9);
    }
    assert_int_equal(plan->series_count, 6);
    plan_free(plan);
    check_refused(
        "job: sleep\nfanout: 3\ndelay: 1ms\nmatrix:\n- {rate: 0.5x, arms: [gather, tasks]}\n"
        "- {clients: ladder, arms: [gather]}\n",
        1,
        "a.yaml:5:10: 0.5x of a ceiling that is not measured here: add 'clients: ladder' for libuv tasks "
        "with the same job, fanout and delay");
    check_refused("job: sleep\ndelay: 1ms\nmatrix: [{rate: 0.5x, fanout: 3}, {clients: ladder, fanout: 4}]\n",
                  1,
                  "a.yaml:3:17: 0.5x of a ceiling that is not measured here: add 'clients: ladder' for libuv "
                  "sequential with the same job, fanout and delay");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void test_ids_are_unique(void **state)
{
    (void)state;
    struct plan *plan = plan_of("runtimes: [libuv, asyncio]\narms: [sequential, tasks, gather]\nmatrix:\n"
                                "- {job: sleep, fanout: [2, 20, 2], delay: [1ms, 10ms, 1000us], cores: "
                                "[ladder, 3], timeout: [1ms, 2ms]}\n"
                                "- {job: sleep, fanout: 2, delay: 1ms, fail: [{children: 1}, {children: 2}, "
                                "{fraction: 0.1}, {fraction: 10%}]}\n"
                                "- {job: [noop, cpu], fanout: 2, delay: 1ms, gc: [on, off]}\n",
                                8);
    char **ids = memory_zeroed((size_t)plan->cell_count, sizeof *ids);
    for (int64_t i = 0; i < plan->cell_count; i++)
        ids[i] = plan->cells[i].id;
    qsort(ids, (size_t)plan->cell_count, sizeof *ids, by_text);
    for (int64_t i = 1; i < plan->cell_count; i++)
        assert_string_not_equal(ids[i - 1], ids[i]);
    free(ids);
    /* 2 x 2 x 2 timeouts x {1, 2, 4, 8, 3} cores, three different failures, noop and cpu by two collectors */
    assert_int_equal(plan->group_count, 40 + 3 + 4);
    plan_free(plan);
}

static void test_entries_that_meet_share_a_group(void **state)
{
    (void)state;
    struct plan *plan = plan_of(
        "matrix:\n"
        "- {job: sleep, fanout: 4, delay: 1ms, arms: [sequential, gather]}\n"
        "- {job: noop, fanout: 4}\n"
        "- {job: sleep, fanout: 4, delay: 1000us, arms: [gather, tasks], runtimes: [asyncio, libuv]}\n",
        1);
    static const char *const ids[] = {
        "libuv/sequential/sleep/n=4/delay=1ms/cores=1", "libuv/gather/sleep/n=4/delay=1ms/cores=1",
        "libuv/tasks/sleep/n=4/delay=1ms/cores=1",      "libuv/empty/sleep/n=4/delay=1ms/cores=1",
        "asyncio/gather/sleep/n=4/delay=1ms/cores=1",   "asyncio/tasks/sleep/n=4/delay=1ms/cores=1",
        "asyncio/empty/sleep/n=4/delay=1ms/cores=1",
    };
    assert_int_equal(plan->group_count, 2);
    assert_int_equal(plan->groups[0].cell_count, 7);
    assert_int_equal(plan->groups[0].runtime_count, 2);
    assert_string_equal(plan->groups[0].runtimes[1], "asyncio");
    assert_int_equal(plan->groups[1].runtime_count, 1);
    for (size_t i = 0; i < 7; i++)
        assert_string_equal(plan->cells[i].id, ids[i]);
    plan_free(plan);
}

static void test_equal_input_gives_equal_plans(void **state)
{
    (void)state;
    struct plan *first = plan_of(sweep_lab_text, 2);
    struct plan *second = plan_of(sweep_lab_text, 2);
    struct plan *other = plan_of("name: lab\nseed: 2\njob: noop\nfanout: 2\n", 2);
    for (int64_t i = 0; i < first->group_count; i++) {
        assert_true(first->groups[i].seed == second->groups[i].seed);
        assert_true(first->groups[i].seed <= INT64_MAX);
        for (int64_t j = 0; j < i; j++)
            assert_true(first->groups[i].seed != first->groups[j].seed);
    }
    assert_true(other->groups[0].seed != first->groups[0].seed);
    assert_string_equal(first->sweep_sha256, second->sweep_sha256);
    plan_free(first);
    plan_free(second);
    plan_free(other);
}

static void test_runtimes(void **state)
{
    (void)state;
    struct plan *plan = plan_of(
        "job: cart\nfanout: 2\nruntimes:\n"
        "  - {kind: asyncio, python: /opt/py, eager: true, label: eager, path: ./, jobs: {cart: 's:c'}}\n"
        "  - {kind: uvloop, jobs: {other: 's:o', cart: 's:d'}}\n",
        1);
    assert_int_equal(plan->runtime_count, 2);
    assert_string_equal(plan->runtimes[0].label, "eager");
    assert_string_equal(plan->runtimes[0].kind, "asyncio");
    assert_string_equal(plan->runtimes[0].python, "/opt/py");
    assert_string_equal(plan->runtimes[0].path, "./");
    assert_true(plan->runtimes[0].eager);
    assert_string_equal(plan->runtimes[1].label, "uvloop");
    assert_false(plan->runtimes[1].eager);
    assert_null(plan->runtimes[1].python);
    assert_int_equal(plan->runtimes[1].jobs.count, 2);
    assert_string_equal(plan->runtimes[1].jobs.at[1].name, "cart");
    assert_string_equal(plan->runtimes[1].jobs.at[1].value, "s:d");
    (void)cell_named(plan, "eager/taskgroup/cart/n=2/cores=1");
    plan_free(plan);
}

static void test_failures(void **state)
{
    (void)state;
    struct plan *plan = plan_of("job: sleep\nfanout: 4\ndelay: 10ms\nwait: uv_timer\ntimeout: 20ms\n"
                                "fail: [{children: 1, at: 2ms, outcome: cancel}, {fraction: 25%}]\n"
                                "stall: {children: 2, cpu: 3ms}\n",
                                1);
    const struct plan_cell *cell =
        cell_named(plan, "libuv/gather/sleep/n=4/delay=10ms/cores=1/wait=uv_timer/fail=children:1,at:2ms,"
                         "outcome:cancel/stall=children:2,cpu:3ms/timeout=20ms");
    assert_true(cell->spec.fail.present);
    assert_int_equal(cell->spec.fail.children, 1);
    assert_int_equal(cell->spec.fail.at_ns, 2000000);
    assert_string_equal(cell->spec.fail.outcome, "cancel");
    assert_string_equal(cell->spec.fail.on_cancel, "propagate");
    assert_int_equal(cell->spec.stall.children, 2);
    assert_int_equal(cell->spec.stall.cpu_ns, 3000000);
    assert_int_equal(cell->spec.timeout_ns, 20000000);
    cell = cell_named(plan, "libuv/gather/sleep/n=4/delay=10ms/cores=1/wait=uv_timer/fail=fraction:0.25/"
                            "stall=children:2,cpu:3ms/timeout=20ms");
    assert_true(cell->spec.fail.fraction == 0.25);
    assert_int_equal(cell->spec.fail.at_ns, 10000000); /* at the end of its delay */
    cell = &plan->cells[plan->groups[0].cells[plan->groups[0].cell_count - 1]];
    assert_true(cell->harness);
    assert_false(cell->spec.fail.present); /* the harness has no children */
    plan_free(plan);
}

static void test_expected_times(void **state)
{
    (void)state;
    struct plan *plan = plan_of("rounds: 5\nwarmup: 1\narms: [sequential, gather]\nmatrix:\n"
                                "- {job: sleep, fanout: 40, delay: 10ms}\n"
                                "- {job: cpu, fanout: 40, delay: 10ms}\n"
                                "- {job: noop, fanout: 2}\n"
                                "- {job: sleep, fanout: 1000000, delay: 3600s, rounds: 100000}\n",
                                1);
    static const int64_t least[] = {400000000, 10000000, 400000000, 400000000, 15000000, 15000000};
    size_t next = 0;
    int64_t total = 0;
    for (int64_t i = 0; i < plan->cell_count && next < 6; i++) {
        if (plan->cells[i].harness)
            continue;
        assert_in_range(plan->cells[i].expected_ns, least[next], least[next] + least[next] / 100);
        next++;
    }
    for (int64_t i = 0; i < plan->groups[0].cell_count; i++) /* the harness takes its time too */
        total += plan->cells[plan->groups[0].cells[i]].expected_ns * (5 + 1);
    assert_int_equal(plan->groups[0].expected_ns, total);
    assert_int_equal(plan->groups[3].expected_ns, INT64_MAX); /* 4,000 years: it saturates */
    assert_int_equal(plan->expected_ns, INT64_MAX);
    plan_free(plan);
}

static void test_effort(void **state)
{
    (void)state;
    struct plan *plan =
        plan_of("precision: 5%\nmatrix:\n"
                "- {job: sleep, fanout: 2, delay: 10ms, arms: gather, rounds: auto, warmup: 0}\n"
                "- {job: sleep, fanout: 3, delay: 10ms, rounds: auto, processes: 1000}\n"
                "- {job: sleep, fanout: 4, delay: 10ms, arms: gather, rounds: 7, processes: 3, warmup: 1}\n",
                1);
    const struct plan_group *group = plan->groups;
    assert_int_equal(group[0].blocks, 1000);
    assert_int_equal(group[0].processes, 1);
    assert_float_equal(group[0].precision, 0.05, 1e-12);
    assert_int_equal(plan_expected_blocks(&group[0]), 10);
    int64_t block_ns =
        plan->cells[group[0].cells[0]].expected_ns + plan->cells[group[0].cells[1]].expected_ns;
    assert_int_equal(group[0].expected_ns, 10 * block_ns); /* the least */
    assert_int_equal(group[1].blocks,
                     100); /* x 1,000 processes: the blocks of a group stay within the protocol */
    assert_float_equal(group[2].precision, 0, 0);
    block_ns = plan->cells[group[2].cells[0]].expected_ns + plan->cells[group[2].cells[1]].expected_ns;
    assert_int_equal(group[2].expected_ns, 3 * (7 + 1) * block_ns);
    plan_free(plan);
    plan = plan_of("rounds: auto\nmatrix: [{job: sleep, fanout: 2, delay: 10ms}]\n", 1);
    assert_float_equal(plan->groups[0].precision, 0.02, 1e-12);
    plan_free(plan);
}

#define NOOP "job: noop\nfanout: 2\n"

static void test_refusals(void **state)
{
    (void)state;
    check_refused(
        NOOP "cores: [1, 5000]\n", 2,
        "a.yaml:3:12: 'cores' is 5000, but there are 2 workers per runtime: fewer 'cores', or more workers");
    check_refused(
        NOOP "cores: 2\n", 1,
        "a.yaml:3:8: 'cores' is 2, but there is 1 worker per runtime: fewer 'cores', or more workers");
    check_refused(NOOP, 0, "no workers: a plan needs at least one");
    check_refused(
        NOOP "expect:\n- {arm: gather, metric: cpu_ns, max: 1}\n- {arm: tasks, metric: cpu_ns, max: 1}\n", 1,
        "a.yaml:5:3: no cell matches this threshold");
    check_refused("matrix:\n- {job: noop, fanout: [2, 4]}\n- {job: noop, fanout: [3, 4], rounds: 5}\n", 1,
                  "a.yaml:3:3: 'rounds' is 5 here and 9 at line 2 for the same 'noop/n=4/cores=1'");
    check_refused("matrix:\n- {job: noop, fanout: 4}\n- {job: noop, fanout: 4, rounds: auto}\n", 1,
                  "a.yaml:3:3: 'rounds' is auto here and 9 at line 2 for the same 'noop/n=4/cores=1'");
    check_refused(
        "rounds: auto\nmatrix:\n- {job: noop, fanout: 4}\n- {job: noop, fanout: 4, precision: 5%}\n", 1,
        "a.yaml:4:3: 'precision' is 0.05 here and left out at line 3 for the same 'noop/n=4/cores=1'");

    /* 14 steps of a ladder make too many of what were few cells */
    char *whole = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&whole, &size);
    (void)fputs("job: noop\narms: gather\ncores: ladder\nfanout: [1", out);
    for (int i = 2; i <= 8000; i++)
        (void)fprintf(out, ", %d", i);
    (void)fputs("]\n", out);
    (void)fclose(out);
    check_refused(whole, 10000, "a.yaml:1:1: more than 100,000 cells up to here");
    free(whole);
}

static void test_thresholds_choose_cells(void **state)
{
    (void)state;
    struct sweep *sweep = sweep_of(
        "cores: [1, all]\nmatrix:\n- {job: sleep, fanout: [2, 3], delay: 5ms}\n- {job: noop, fanout: 2}\n"
        "- {job: sleep, fanout: 9, delay: 5ms, cores: 1, clients: ladder, arms: [gather]}\n"
        "- {job: sleep, fanout: 9, delay: 5ms, cores: 1, rate: [0.5x, 0.8x, 1.5k/s], duration: [2s, 3s], "
        "arms: [gather]}\n"
        "expect:\n"
        "- {arm: gather, metric: over_ideal_x, max: 1.05}\n"
        "- {arm: [gather, taskgroup], job: sleep, cores: all, delay: 5000us, metric: cpu_ns, max: 1ms}\n"
        "- {fanout: 3, runtime: libuv, wait: timerfd, clients: 1, metric: cpu_ns, max: 1ms}\n"
        "- {rate: [0.80x, 1500/s], metric: wall_ns.p99, max: 20ms}\n"
        "- {rate: 0.5x, duration: 3000ms, metric: wall_ns.p99, max: 20ms}\n"
        "- {duration: 3s, metric: wall_ns.p99, max: 20ms}\n"
        "- {fanout: 9, clients: [2, 4], metric: achieved_x, min: 0.9}\n");
    static const int expected[] = {23, 4, 6, 4, 1, 3, 2};
    struct plan *plan = NULL;
    struct error err = {0};
    assert_int_equal(plan_make(sweep, 2, &plan, &err), 0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        int found = 0;
        for (int64_t j = 0; j < plan->cell_count; j++)
            found += plan_cell_matches(plan, &plan->cells[j], sweep->thresholds->at[i].map);
        assert_int_equal(found, expected[i]);
    }
    plan_free(plan);
    sweep_free(sweep);
}

/* ---- golden files ---- */

static char *file_text(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "re");
    FILE *out = open_memstream(&text, &size);
    if (!file)
        fail_msg("cannot open %s", path);
    for (int c = fgetc(file); c != EOF; c = fgetc(file))
        (void)fputc(c, out);
    (void)fclose(file);
    (void)fclose(out);
    return text;
}

static void check_golden(const struct plan *plan, const char *name, int (*print)(const struct plan *, FILE *))
{
    scoped_free char *path = memory_format("%s/plan/%s", COREFAN_GOLDEN, name);
    if (getenv("COREFAN_RENEW_GOLDEN")) {
        FILE *file = fopen(path, "we");
        assert_non_null(file);
        assert_int_equal(print(plan, file), 0);
        (void)fclose(file);
    }
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(print(plan, out), 0);
    (void)fclose(out);
    scoped_free char *golden = file_text(path);
    assert_string_equal(text, golden);
    free(text);
}

static void check_width(const char *text)
{
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
}

static int print_text(const struct plan *plan, FILE *out)
{
    return plan_print_text(plan, 0, out);
}

static int print_json(const struct plan *plan, FILE *out)
{
    return plan_print_json(plan, 0, out);
}

static int print_text_in_5_s(const struct plan *plan, FILE *out)
{
    return plan_print_text(plan, 5000000000, out);
}

static int print_json_in_5_s(const struct plan *plan, FILE *out)
{
    return plan_print_json(plan, 5000000000, out);
}

static void test_printed_forms(void **state)
{
    (void)state;
    scoped_free char *mixed_path = memory_format("%s/plan/mixed.yaml", COREFAN_GOLDEN);
    scoped_free char *mixed = file_text(mixed_path);
    struct plan *plan = plan_of(sweep_lab_text, 2);
    check_golden(plan, "lab.txt", print_text);
    plan_free(plan);
    plan = plan_of(mixed, 3);
    check_golden(plan, "mixed.txt", print_text);
    check_golden(plan, "mixed.json", print_json);
    plan_free(plan);
    scoped_free char *effort_path = memory_format("%s/plan/effort.yaml", COREFAN_GOLDEN);
    scoped_free char *effort = file_text(effort_path);
    plan = plan_of(effort, 2);
    check_golden(plan, "effort.txt", print_text_in_5_s);
    check_golden(plan, "effort.json", print_json_in_5_s);
    plan_free(plan);
    scoped_free char *lab_text_path = memory_format("%s/plan/lab.txt", COREFAN_GOLDEN);
    scoped_free char *mixed_text_path = memory_format("%s/plan/mixed.txt", COREFAN_GOLDEN);
    scoped_free char *lab_text = file_text(lab_text_path);
    scoped_free char *mixed_text = file_text(mixed_text_path);
    check_width(lab_text);
    check_width(mixed_text);
}

static void test_a_stream_that_fails_is_told(void **state)
{
    (void)state;
    struct plan *plan = plan_of(sweep_lab_text, 2);
    FILE *full = fopen("/dev/full", "we");
    assert_non_null(full);
    (void)setvbuf(full, NULL, _IONBF, 0);
    assert_int_equal(plan_print_text(plan, 0, full), -1);
    clearerr(full);
    assert_int_equal(plan_print_json(plan, 0, full), -1);
    (void)fclose(full);
    plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lab),
        cmocka_unit_test(test_numbers_and_order),
        cmocka_unit_test(test_ladders),
        cmocka_unit_test(test_rungs_that_are_asked_for),
        cmocka_unit_test(test_plain_rounds_stay_what_they_were),
        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_parts_of_ceilings),
        cmocka_unit_test(test_ids_are_unique),
        cmocka_unit_test(test_entries_that_meet_share_a_group),
        cmocka_unit_test(test_equal_input_gives_equal_plans),
        cmocka_unit_test(test_runtimes),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_expected_times),
        cmocka_unit_test(test_effort),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_thresholds_choose_cells),
        cmocka_unit_test(test_printed_forms),
        cmocka_unit_test(test_a_stream_that_fails_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
