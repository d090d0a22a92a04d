/* windows: what the driver of a window costs beside the fan-outs that it drives, in one run on one core.
 *
 * Usage: windows [--json]
 * A line per figure, some beside a goal; a missed goal is no failure of the program.  Exit 0, or 1 when something broke. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "bench/report.h"
#include "worker/runtime/repeat.h"
#include "worker/window.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define BATCHES  5 /* the figure is the median of them */
#define VALUES   (1u << 16)
#define ONE_MIB  ((double)(1 << 20))
#define CHILDREN 40

struct bench {
    struct runtime runtime;
    uv_loop_t loop;
    struct counters counters;
    struct window_room room;
    struct report report;
};

static _Noreturn void die(const char *what)
{
    (void)fprintf(stderr, "windows: %s\n", what);
    exit(1);
}

static char *constant(const char *text)
{
    return (char *)(uintptr_t)text;
}

static struct wire_cell cell_of(const char *arm, const char *job, int64_t fanout, int64_t delay_ns,
                                int64_t clients)
{
    return (struct wire_cell){.arm = constant(arm),
                              .job = constant(job),
                              .fanout = fanout,
                              .delay_ns = delay_ns,
                              .clients = clients,
                              .duration_ns = 300 * NS_PER_MS,
                              .wait = constant("timerfd"),
                              .phase = constant("together"),
                              .arrivals = constant("poisson")};
}

static struct window_bench open_window(struct bench *bench, const struct wire_cell *cell)
{
    struct error err;
    struct window_bench window = {.runtime = &bench->runtime,
                                  .counters = &bench->counters,
                                  .cell = cell,
                                  .arm = arm_find(cell->arm),
                                  .room = &bench->room};
    if (crowd_open(&bench->runtime, cell, crowd_size(cell), &window.crowd, &err) < 0 ||
        window_warm_up(&window, &err) < 0)
        die(err.text);
    return window;
}

static struct wire_round run_window(struct window_bench *window)
{
    struct error err;
    struct wire_round round;
    if (window_run(window, rng_stream(1, 1), &round, &err) < 0)
        die(err.text);
    if (round.error)
        die(round.error);
    free(round.latency.counts);
    free(round.latency_intended.counts);
    return round;
}

/* Values spread over 1 us to 1 s, so that neither the buckets nor the branches are always the same. */
static void bench_histogram(struct bench *bench)
{
    int64_t *values_ns = memory_zeroed(VALUES, sizeof *values_ns);
    double spread_ns[BATCHES], near_ns[BATCHES];
    struct rng rng = rng_seeded(1);
    for (uint32_t i = 0; i < VALUES; i++)
        values_ns[i] = (int64_t)pow(10, 3 + 6 * rng_unit(&rng));
    for (int b = 0; b < BATCHES; b++) {
        int64_t start_ns = clock_thread_cpu_ns();
        for (uint32_t i = 0; i < 32 * VALUES; i++)
            histogram_record(&bench->room.latency, values_ns[i % VALUES]);
        int64_t half_ns = clock_thread_cpu_ns();
        for (uint32_t i = 0; i < 32 * VALUES; i++)
            histogram_record(&bench->room.latency, 10 * NS_PER_MS + (values_ns[i % VALUES] & 0xffff));
        spread_ns[b] = (double)(half_ns - start_ns) / (32.0 * VALUES);
        near_ns[b] = (double)(clock_thread_cpu_ns() - half_ns) / (32.0 * VALUES);
    }
    free(values_ns);
    report_line(&bench->report, "record a value, 1 us to 1 s", report_median(spread_ns, BATCHES), "ns", 10);
    report_line(&bench->report, "record a value near 10 ms", report_median(near_ns, BATCHES), "ns", 10);
}

/* A fan-out in a window beside the same one in a plain loop: what timing each of them adds. */
static void bench_relaunch(struct bench *bench, const char *arm, int64_t fanout)
{
    char name[80];
    const struct wire_cell cell = cell_of(arm, "noop", fanout, 0, 1);
    struct window_bench window = open_window(bench, &cell);
    double window_ns[BATCHES], plain_ns[BATCHES];
    for (int b = 0; b < BATCHES; b++) {
        struct repeat repeat;
        struct outcome outcome;
        struct error err;
        struct wire_round round = run_window(&window);
        window_ns[b] = (double)round.cpu_ns / (double)round.fanouts;
        repeat_init(&repeat, &window.crowd->clients[0].slab.fanout->coro, (uint64_t)round.fanouts);
        int64_t start_ns = clock_thread_cpu_ns();
        if (repeat_run(&bench->runtime, &repeat, &outcome, &err) < 0)
            die(err.text);
        plain_ns[b] = (double)(clock_thread_cpu_ns() - start_ns) / (double)round.fanouts;
    }
    crowd_close(window.crowd);
    double in_window_ns = report_median(window_ns, BATCHES), alone_ns = report_median(plain_ns, BATCHES);
    (void)snprintf(name, sizeof name, "%s of %d, no wait, alone: CPU per fan-out", arm, (int)fanout);
    report_line(&bench->report, name, alone_ns, "ns", 0);
    (void)snprintf(name, sizeof name, "%s of %d, no wait: what a window adds to it", arm, (int)fanout);
    report_line(&bench->report, name, in_window_ns - alone_ns, "ns", 0);
}

/* The same number of children in one fan-out that is no window's. */
static double plain_child_ns(struct bench *bench, int64_t clients)
{
    const struct wire_cell cell = cell_of("gather", "sleep", clients * CHILDREN, 10 * NS_PER_MS, 1);
    struct window_bench window = open_window(bench, &cell);
    struct repeat repeat;
    struct outcome outcome;
    struct error err;
    double cpu_ns[BATCHES];
    repeat_init(&repeat, &window.crowd->clients[0].slab.fanout->coro, 10);
    for (int b = 0; b < BATCHES; b++) {
        int64_t start_ns = clock_thread_cpu_ns();
        if (repeat_run(&bench->runtime, &repeat, &outcome, &err) < 0)
            die(err.text);
        cpu_ns[b] = (double)(clock_thread_cpu_ns() - start_ns) / (10.0 * (double)clients * CHILDREN);
    }
    crowd_close(window.crowd);
    return report_median(cpu_ns, BATCHES);
}

static void bench_clients(struct bench *bench, const char *phase, int64_t clients)
{
    char name[80];
    struct wire_cell cell = cell_of("gather", "sleep", CHILDREN, 10 * NS_PER_MS, clients);
    cell.phase = constant(phase);
    struct window_bench window = open_window(bench, &cell);
    double child_ns[BATCHES];
    for (int b = 0; b < BATCHES; b++) {
        struct wire_round round = run_window(&window);
        child_ns[b] = (double)round.cpu_ns / (double)round.children;
    }
    crowd_close(window.crowd);
    (void)snprintf(name, sizeof name, "%d clients %s, gather %d x 10 ms, CPU per child", (int)clients, phase,
                   CHILDREN);
    report_line(&bench->report, name, report_median(child_ns, BATCHES), "ns", 0);
}

static void bench_working_sets(struct bench *bench)
{
    static const int64_t clients[] = {1, 32, 1024};
    char name[80];
    for (size_t i = 0; i < sizeof clients / sizeof clients[0]; i++) {
        bench_clients(bench, "together", clients[i]);
        bench_clients(bench, "staggered", clients[i]);
        (void)snprintf(name, sizeof name, "no window, one gather of %d x 10 ms, CPU per child",
                       (int)clients[i] * CHILDREN);
        report_line(&bench->report, name, plain_child_ns(bench, clients[i]), "ns", 0);
    }
}

static double resident_mib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*s %ld", &pages) != 1)
        die("cannot read /proc/self/statm");
    (void)fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / ONE_MIB;
}

/* As many clients as a cell may have. */
static void bench_memory(struct bench *bench)
{
    const struct wire_cell cell = cell_of("gather", "sleep", CHILDREN, 10 * NS_PER_MS, 65536);
    double before_mib = resident_mib();
    struct window_bench window = open_window(bench, &cell);
    struct wire_round round = run_window(&window);
    report_line(&bench->report, "memory of 65536 clients, gather 40 x 10 ms", resident_mib() - before_mib,
                "MiB", 1024);
    report_line(&bench->report, "65536 clients, gather 40 x 10 ms, CPU per child",
                (double)round.cpu_ns / (double)round.children, "ns", 0);
    crowd_close(window.crowd);
}

static void pin_here(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)sched_getcpu(), &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char **argv)
{
    struct bench bench = {.report.json = argc == 2 && strcmp(argv[1], "--json") == 0};
    struct error err;
    if (argc > 2 || (argc == 2 && !bench.report.json))
        die("usage: windows [--json]");
    pin_here();
    if (uv_loop_init(&bench.loop) != 0 || runtime_init(&bench.runtime, &bench.loop, &err) != 0)
        die("no loop");
    counters_open(&bench.counters);
    if (window_room_open(&bench.room, &err) < 0)
        die(err.text);
    bench_histogram(&bench);
    bench_relaunch(&bench, "empty", 2);
    bench_relaunch(&bench, "sequential", 2);
    bench_relaunch(&bench, "gather", 2);
    bench_relaunch(&bench, "gather", CHILDREN);
    bench_working_sets(&bench);
    bench_memory(&bench);
    report_end(&bench.report);
    window_room_close(&bench.room);
    counters_close(&bench.counters);
    runtime_release(&bench.runtime);
    (void)uv_run(&bench.loop, UV_RUN_DEFAULT);
    return uv_loop_close(&bench.loop) == 0 ? 0 : 1;
}
