/* measure: slices in virtual time: order, accounts of failures, refusals; and in real time: no allocation. */
#include "base/clock.h"
#include "base/memory.h"
#include "worker/measure.h"
#include "worker/runtime/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <uv.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_MALLOC 0
#endif
#endif
#ifndef OWN_MALLOC
#define OWN_MALLOC 1
#endif

/* ---- between the clock reads ---- */

/* Every read of the CPU clock by measure goes through here: rounds read it in pairs. */
static volatile bool between_reads;
static volatile int64_t allocations;

int64_t __real_clock_thread_cpu_ns(void);
int64_t __wrap_clock_thread_cpu_ns(void);
int64_t __wrap_clock_thread_cpu_ns(void)
{
    between_reads = !between_reads;
    return __real_clock_thread_cpu_ns();
}

#if OWN_MALLOC
/* They stand in for the C library's in this whole process, libuv included. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

void *malloc(size_t size)
{
    allocations += between_reads;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocations += between_reads;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    allocations += between_reads;
    return __libc_realloc(old, size);
}
#endif

/* ---- slices ---- */

struct bench {
    struct runtime runtime;
    struct counters counters;
    struct measure_tools tools;
    struct wire_assign assign;
    struct wire_cell cells[10];
    int64_t rounds_seen, stop_at; /* 0: never */
};

static bool between_rounds(void *context, int64_t rounds_done)
{
    struct bench *bench = context;
    (void)rounds_done;
    bench->rounds_seen++;
    return bench->stop_at == 0 || bench->rounds_seen < bench->stop_at;
}

static void bench_open(struct bench *bench)
{
    *bench = (struct bench){0};
    runtime_init_virtual(&bench->runtime);
    counters_open(&bench->counters);
    bench->tools = (struct measure_tools){.runtime = &bench->runtime,
                                          .counters = &bench->counters,
                                          .cpu_clock_cost_ps = 700000,
                                          .hooks = {between_rounds, bench}};
    bench->assign =
        (struct wire_assign){.lease_ns = NS_PER_S, .seed = 42, .blocks = 4, .cells = bench->cells};
}

static void bench_close(struct bench *bench)
{
    counters_close(&bench->counters);
    runtime_release(&bench->runtime);
}

static char *constant(const char *text)
{
    return (char *)(uintptr_t)text;
}

static struct wire_cell *add_cell(struct bench *bench, int64_t number, const char *arm, const char *job,
                                  int64_t fanout, int64_t delay_ns)
{
    struct wire_cell *cell = &bench->cells[bench->assign.cell_count++];
    *cell = (struct wire_cell){.cell = number,
                               .arm = constant(arm),
                               .job = constant(job),
                               .fanout = fanout,
                               .delay_ns = delay_ns,
                               .wait = constant("timerfd"),
                               .clients = 1,
                               .phase = constant("together")};
    return cell;
}

static struct measure *prepare(struct bench *bench)
{
    struct measure *measure = NULL;
    struct error err = {0};
    if (measure_prepare(&bench->tools, &bench->assign, &measure, &err) != MEASURE_DONE)
        fail_msg("%s", err.text);
    return measure;
}

static struct wire_go go_of(int64_t first_block, int64_t blocks, int64_t cell)
{
    return (struct wire_go){
        .first_block = first_block, .blocks = blocks, .cell = cell, .start_at_ns = WIRE_NULL};
}

static struct wire_round *run(struct measure *measure, const struct wire_go *go, size_t expected)
{
    struct error err = {0};
    size_t count = measure_round_count(measure, go), got = 0;
    assert_int_equal(count, expected);
    struct wire_round *rounds = memory_zeroed(count, sizeof *rounds);
    if (measure_go(measure, go, rounds, &got, &err) != MEASURE_DONE)
        fail_msg("%s", err.text);
    assert_int_equal(got, expected);
    return rounds;
}

static void fill_six(struct bench *bench)
{
    static const char *const arms[] = {"sequential", "gather",    "gather-return-exceptions",
                                       "tasks",      "taskgroup", "empty"};
    for (int64_t i = 0; i < 6; i++)
        add_cell(bench, 10 + i, arms[i], "sleep", 5, 3 * NS_PER_MS);
}

static void blocks_run_in_the_order_of_the_seed(void **state)
{
    (void)state;
    static const int64_t order[4][6] = {/* SPEC.md, "The order of a block" */
                                        {5, 3, 0, 1, 4, 2},
                                        {0, 4, 3, 2, 1, 5},
                                        {0, 4, 1, 3, 5, 2},
                                        {5, 2, 0, 1, 3, 4}};
    struct bench bench;
    bench_open(&bench);
    fill_six(&bench);
    struct measure *measure = prepare(&bench);
    struct wire_go whole = go_of(0, 4, WIRE_NULL);
    struct wire_round *rounds = run(measure, &whole, 24);
    for (int64_t i = 0; i < 24; i++) {
        if (rounds[i].error)
            fail_msg("%s", rounds[i].error);
        assert_int_equal(rounds[i].cell, 10 + order[i / 6][i % 6]);
        assert_int_equal(rounds[i].block, i / 6);
        assert_int_equal(rounds[i].position, i % 6);
        assert_int_equal(rounds[i].fanouts, 1);
    }
    free(rounds);
    struct wire_go one = go_of(2, 2, 14); /* the task group, second and fifth of its blocks */
    rounds = run(measure, &one, 2);
    assert_int_equal(rounds[0].position, 1);
    assert_int_equal(rounds[1].position, 5);
    assert_int_equal(rounds[1].block, 3);
    free(rounds);
    measure_free(measure);
    bench_close(&bench);
}

static void rounds_carry_what_the_runtime_counted(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    add_cell(&bench, 0, "sequential", "sleep", 5, 3 * NS_PER_MS);
    add_cell(&bench, 1, "gather", "sleep", 5, 3 * NS_PER_MS);
    add_cell(&bench, 2, "gather", "noop", 7, 0);
    struct measure *measure = prepare(&bench);
    static const int64_t wakeups[] = {5, 1, 0}, in_flight[] = {1, 5, 7};
    for (int64_t cell = 0; cell < 3; cell++) {
        struct wire_go go = go_of(0, 1, cell);
        struct wire_round *round = run(measure, &go, 1);
        assert_int_equal(round->wakeups, wakeups[cell]);
        assert_int_equal(round->max_in_flight, in_flight[cell]);
        assert_int_equal(round->early, 0);
        assert_int_equal(round->overshoot_p50_ns, cell < 2 ? 0 : WIRE_NULL); /* virtual time is exact */
        assert_int_equal(round->orphans, WIRE_NULL);
        assert_true(round->cpu_ns > 0 && round->wall_ns > 0 && round->start_ns > 0);
        assert_true(round->faults_minor >= 0 && round->cpu_end >= 0);
        assert_int_equal(round->intended_start_ns, WIRE_NULL);
        free(round);
    }
    measure_free(measure);
    bench_close(&bench);
}

struct account {
    const char *arm;
    int64_t orphans, seen, lost;
    bool told; /* the caller gets an error, raised or in a slot */
};

static void failures_are_accounted_for(void **state)
{
    (void)state;
    static const struct account accounts[] = {
        {"sequential", 0, 1, 0, true},
        {"gather", 3, 1, 1, true},
        {"gather-return-exceptions", 0, 2, 0, true},
        {"tasks", 3, 1, 1, true},
        {"taskgroup", 0, 1, 0, true},
    };
    for (size_t i = 0; i < sizeof accounts / sizeof accounts[0]; i++) {
        const struct account *account = &accounts[i];
        struct bench bench;
        bench_open(&bench);
        struct wire_cell *cell = add_cell(&bench, 0, account->arm, "sleep", 4, 10 * NS_PER_MS);
        cell->calibrated = true; /* must not be: fan-outs that fail are timed one by one */
        cell->fail = (struct wire_fail){.present = true,
                                        .children = 1,
                                        .at_ns = 2 * NS_PER_MS,
                                        .outcome = constant("fail"),
                                        .on_cancel = constant("propagate")};
        bool both_fail = account->seen + account->lost == 2;
        if (both_fail)
            cell->fail.children = 2;
        struct measure *measure = prepare(&bench);
        struct wire_go go = go_of(0, 1, WIRE_NULL);
        struct wire_round *round = run(measure, &go, 1);
        if (round->error)
            fail_msg("%s: %s", account->arm, round->error);
        print_message("%s: orphans %d, seen %d, lost %d\n", account->arm, (int)round->orphans,
                      (int)round->errors_seen, (int)round->errors_lost);
        assert_int_equal(round->errors_seen, account->seen);
        assert_int_equal(round->errors_lost, account->lost);
        assert_true(account->orphans > 0 ? round->orphans > 0 : round->orphans == 0);
        assert_int_equal(round->time_to_error_ns != WIRE_NULL, account->told);
        assert_int_equal(round->wasted_cpu_ns > 0, account->orphans > 0);
        assert_int_equal(round->drain_ns > 0, account->orphans > 0);
        free(round);
        measure_free(measure);
        bench_close(&bench);
    }
}

static void a_fraction_is_drawn_as_the_law_says(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    struct wire_cell *cell = add_cell(&bench, 7, "gather-return-exceptions", "sleep", 4, 10 * NS_PER_MS);
    cell->fail = (struct wire_fail){.present = true,
                                    .fraction = 0.25,
                                    .at_ns = 2 * NS_PER_MS,
                                    .outcome = constant("fail"),
                                    .on_cancel = constant("propagate")};
    struct measure *measure = prepare(&bench);
    struct wire_go go = go_of(3, 1, WIRE_NULL);
    struct wire_round *round = run(measure, &go, 1);
    assert_int_equal(round->errors_seen, 2); /* SPEC.md, "Failing children": 0 and 3 of 4 */
    free(round);
    measure_free(measure);
    bench_close(&bench);
}

static void a_timeout_is_an_error_that_arrives(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    add_cell(&bench, 0, "sequential", "sleep", 4, 10 * NS_PER_MS)->timeout_ns = 15 * NS_PER_MS;
    add_cell(&bench, 1, "gather", "sleep", 4, 10 * NS_PER_MS)->timeout_ns = 15 * NS_PER_MS;
    struct measure *measure = prepare(&bench);
    for (int64_t number = 0; number < 2; number++) {
        struct wire_go go = go_of(0, 1, number);
        struct wire_round *round = run(measure, &go, 1);
        assert_null(round->error);
        assert_int_equal(round->time_to_error_ns != WIRE_NULL, number == 0);
        assert_int_equal(round->errors_seen, number == 0 ? 1 : 0);
        assert_int_equal(round->errors_lost, 0);
        free(round);
    }
    measure_free(measure);
    bench_close(&bench);
}

static void calibration_finds_loops(void **state)
{
    (void)state;
    struct bench bench;
    size_t count;
    bench_open(&bench);
    add_cell(&bench, 0, "gather", "noop", 2, 0)->calibrated = true;
    add_cell(&bench, 1, "empty", "noop", 2, 0)->calibrated = true;
    add_cell(&bench, 2, "gather", "sleep", 2, NS_PER_MS)->calibrated =
        true; /* real waits are never grouped */
    struct measure *measure = prepare(&bench);
    struct wire_prepared *prepared = measure_take_prepared(measure, &count);
    assert_int_equal(count, 3);
    assert_true(prepared[0].loops > 1 && prepared[1].loops > prepared[0].loops);
    assert_int_equal(prepared[2].loops, 1);
    assert_int_equal(prepared[2].calibration_ns, 0);
    for (size_t i = 0; i < count; i++) {
        struct wire_go go = go_of(0, 1, (int64_t)i);
        struct wire_round *round = run(measure, &go, 1);
        assert_null(round->error);
        assert_int_equal(round->fanouts, prepared[i].loops);
        assert_true(prepared[i].warmups >= 1 && prepared[i].warmup_ns > 0);
        free(round);
    }
    measure_prepared_free(prepared, count);
    measure_free(measure);
    bench_close(&bench);
}

static void expect_refusal(struct bench *bench, const char *part)
{
    struct measure *measure = NULL;
    struct error err = {0};
    assert_int_equal(measure_prepare(&bench->tools, &bench->assign, &measure, &err), MEASURE_FAILED);
    assert_null(measure);
    if (!strstr(err.text, part))
        fail_msg("'%s' does not say '%s'", err.text, part);
    bench->assign.cell_count = 0;
}

static void what_cannot_be_run_is_refused_with_a_reason(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    add_cell(&bench, 3, "gather", "sleep", 2, NS_PER_MS);
    add_cell(&bench, 4, "juggle", "sleep", 2, NS_PER_MS);
    expect_refusal(&bench, "cell 4: unknown arm 'juggle'");
    add_cell(&bench, 5, "gather", "dig", 2, NS_PER_MS);
    expect_refusal(&bench, "cell 5: unknown job 'dig'");
    add_cell(&bench, 6, "gather", "sleep", 2, NS_PER_MS)->wait = constant("sundial");
    expect_refusal(&bench, "cell 6: unknown wait source 'sundial'");
    add_cell(&bench, 7, "gather", "sleep", 2, 0);
    expect_refusal(&bench, "cell 7: ");
    add_cell(&bench, 8, "gather", "sleep", 2, NS_PER_MS)->clients = 2;
    expect_refusal(&bench, "cell 8: clients or a rate without");
    bench_close(&bench);
}

static void a_stop_ends_a_go_before_its_next_round(void **state)
{
    (void)state;
    struct bench bench;
    struct error err = {0};
    size_t got = 99;
    bench_open(&bench);
    fill_six(&bench);
    struct measure *measure = prepare(&bench);
    struct wire_go go = go_of(0, 4, WIRE_NULL);
    struct wire_round rounds[24];
    bench.stop_at = bench.rounds_seen + 8;
    assert_int_equal(measure_go(measure, &go, rounds, &got, &err), MEASURE_STOPPED);
    assert_int_equal(got, 7);
    measure_free(measure);
    bench.assign.cell_count = 0;
    fill_six(&bench);
    for (bench.stop_at = 1; bench.stop_at < 20; bench.stop_at += 3) {
        bench.rounds_seen = 0;
        measure = NULL;
        assert_int_equal(measure_prepare(&bench.tools, &bench.assign, &measure, &err), MEASURE_STOPPED);
        assert_null(measure);
    }
    bench_close(&bench);
}

static void goes_beyond_the_slice_have_no_rounds(void **state)
{
    (void)state;
    static const int64_t bad[][3] = {
        {0, 5, WIRE_NULL}, {4, 1, WIRE_NULL},         {-1, 1, WIRE_NULL},        {0, 0, WIRE_NULL},
        {0, 1, 99},        {INT64_MAX, 1, WIRE_NULL}, {1, INT64_MAX, WIRE_NULL}, {0, 1, 0},
    };
    struct bench bench;
    bench_open(&bench);
    fill_six(&bench);
    struct measure *measure = prepare(&bench);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct wire_go go = go_of(bad[i][0], bad[i][1], bad[i][2]);
        assert_int_equal(measure_round_count(measure, &go), 0);
    }
    measure_free(measure);
    bench_close(&bench);
}

static void a_start_is_never_early(void **state)
{
    (void)state;
    struct bench bench;
    struct error err = {0};
    size_t got;
    bench_open(&bench);
    fill_six(&bench);
    struct measure *measure = prepare(&bench);
    for (int64_t ahead_ns = -NS_PER_MS; ahead_ns < 20 * NS_PER_MS; ahead_ns += 3 * NS_PER_MS) {
        struct wire_go go = go_of(0, 1, WIRE_NULL);
        go.start_at_ns = clock_monotonic_ns() + ahead_ns;
        struct wire_round *rounds = run(measure, &go, 6);
        assert_int_equal(rounds[0].intended_start_ns, go.start_at_ns);
        assert_true(rounds[0].start_ns >= go.start_at_ns);
        assert_int_equal(rounds[1].intended_start_ns, WIRE_NULL);
        free(rounds);
    }
    struct wire_go far = go_of(0, 1, WIRE_NULL);
    struct wire_round rounds[6];
    far.start_at_ns = clock_monotonic_ns() + 10 * NS_PER_S; /* the lease is one second */
    assert_int_equal(measure_go(measure, &far, rounds, &got, &err), MEASURE_FAILED);
    assert_non_null(strstr(err.text, "beyond the lease"));
    measure_free(measure);
    bench_close(&bench);
}

static void nothing_is_allocated_between_the_clock_reads(void **state)
{
    (void)state;
    struct bench bench;
    uv_loop_t loop;
    if (!OWN_MALLOC)
        skip();
    bench_open(&bench);
    runtime_release(&bench.runtime);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(runtime_init(&bench.runtime, &loop, NULL), 0);
    fill_six(&bench);
    add_cell(&bench, 20, "gather", "noop", 100, 0);
    add_cell(&bench, 21, "taskgroup", "sleep", 1000, NS_PER_MS);
    struct wire_cell *cell = add_cell(&bench, 22, "gather", "sleep", 5, NS_PER_MS);
    cell->clients = 8;
    cell->duration_ns = 10 * NS_PER_MS;
    cell = add_cell(&bench, 23, "tasks", "sleep", 5, NS_PER_MS);
    cell->rate_per_s = 2000;
    cell->arrivals = constant("poisson");
    cell->duration_ns = 10 * NS_PER_MS;
    struct measure *measure = prepare(&bench);
    struct wire_go go = go_of(0, 4, WIRE_NULL);
    allocations = 0;
    struct wire_round *rounds = run(measure, &go, 40);
    assert_int_equal(allocations, 0);
    assert_false(between_reads);
    for (size_t i = 0; i < 40; i++)
        measure_round_release(&rounds[i]);
    free(rounds);
    between_reads = true; /* the count does count */
    void *volatile taken = malloc(10);
    between_reads = false;
    free(taken);
    assert_int_equal(allocations, 1);
    measure_free(measure);
    bench_close(&bench);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_run_in_the_order_of_the_seed),
        cmocka_unit_test(rounds_carry_what_the_runtime_counted),
        cmocka_unit_test(failures_are_accounted_for),
        cmocka_unit_test(a_fraction_is_drawn_as_the_law_says),
        cmocka_unit_test(a_timeout_is_an_error_that_arrives),
        cmocka_unit_test(calibration_finds_loops),
        cmocka_unit_test(what_cannot_be_run_is_refused_with_a_reason),
        cmocka_unit_test(a_stop_ends_a_go_before_its_next_round),
        cmocka_unit_test(goes_beyond_the_slice_have_no_rounds),
        cmocka_unit_test(a_start_is_never_early),
        cmocka_unit_test(nothing_is_allocated_between_the_clock_reads),
    };
    return cmocka_run_group_tests_name("measure", tests, NULL, NULL);
}
