/* arms: what the arms cost, against the goals of the runtime and the floor, in one run on one core.
 *
 * Usage: arms [--json] [--waits N]
 * A line per goal: measured, goal, PASS or MISS.  A missed goal is no failure of the program: other machines have other
 * figures.  Exit 0, or 1 when something broke. */
#include "base/clock.h"
#include "base/memory.h"
#include "bench/floor.h"
#include "bench/report.h"
#include "worker/arms/arm.h"
#include "worker/jobs/job.h"
#include "worker/runtime/repeat.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <uv.h>

#define BATCHES 9 /* the figure is the median of them */

struct bench {
    struct runtime runtime;
    uv_loop_t loop;
    struct report report;
    uint64_t waits_to_check;
};

struct cell {
    struct fanout *fanout;
    struct job_children *children;
};

static _Noreturn void die(const char *what)
{
    (void)fprintf(stderr, "arms: %s\n", what);
    exit(1);
}

static struct cell cell_open(struct bench *bench, const char *arm, const char *job, uint32_t fanout,
                             int64_t delay_ns, enum sleep_source source)
{
    struct cell cell;
    struct error err;
    struct job_config config = {.delay_ns = delay_ns, .source = source};
    if (fanout_new(fanout, &cell.fanout, &err) != 0)
        die(err.text);
    fanout_bind(cell.fanout, arm_find(arm)->resume);
    if (job_open(job_find(job), &bench->runtime, cell.fanout, &config, &cell.children, &err) != 0)
        die(err.text);
    return cell;
}

static void cell_close(struct cell *cell)
{
    job_close(cell->children);
    fanout_free(cell->fanout);
}

static void cell_run(struct bench *bench, struct cell *cell, uint64_t times)
{
    struct repeat repeat;
    struct outcome outcome;
    struct error err;
    repeat_init(&repeat, &cell->fanout->coro, times);
    if (repeat_run(&bench->runtime, &repeat, &outcome, &err) != 0)
        die(err.text);
    if (outcome.kind != OUTCOME_OK)
        die("a fan-out failed");
}

struct no_wait {
    double arm_ns, floor_ns; /* CPU per fan-out */
};

/* The arm and the floor take turns, so that a change of the clock's frequency meets both. */
static struct no_wait no_wait(struct bench *bench, struct cell *cell, uint64_t times)
{
    double arm_ns[BATCHES], floor_ns[BATCHES];
    struct floor *floor = floor_new(cell->fanout->count);
    cell_run(bench, cell, times / 10 + 1);
    for (int b = 0; b < BATCHES; b++) {
        int64_t start_ns = clock_thread_cpu_ns();
        cell_run(bench, cell, times);
        int64_t half_ns = clock_thread_cpu_ns();
        for (uint64_t i = 0; i < times; i++)
            floor_run(floor);
        arm_ns[b] = (double)(half_ns - start_ns) / (double)times;
        floor_ns[b] = (double)(clock_thread_cpu_ns() - half_ns) / (double)times;
    }
    floor_free(floor);
    return (struct no_wait){report_median(arm_ns, BATCHES), report_median(floor_ns, BATCHES)};
}

static void bench_no_wait_arm(struct bench *bench, const struct arm *arm, uint32_t n)
{
    char name[80];
    struct cell cell = cell_open(bench, arm->name, "noop", n, 0, SLEEP_TIMERFD);
    struct no_wait cost = no_wait(bench, &cell, 2000000 / n);
    cell_close(&cell);
    bool has_goal = strcmp(arm->name, "gather") == 0 || strcmp(arm->name, "taskgroup") == 0;
    if (n == 2) {
        (void)snprintf(name, sizeof(name), "%s of 2, no wait, CPU per fan-out", arm->name);
        report_line(&bench->report, name, cost.arm_ns, "ns", has_goal ? 100 : 0);
        return;
    }
    (void)snprintf(name, sizeof(name), "%s of %u, no wait, CPU per child", arm->name, n);
    report_line(&bench->report, name, cost.arm_ns / n, "ns", has_goal ? 20 : 0);
    (void)snprintf(name, sizeof(name), "%s of %u, no wait, times the floor of %.2f ns", arm->name, n,
                   cost.floor_ns / n);
    report_line(&bench->report, name, cost.arm_ns / cost.floor_ns, "x", has_goal ? 4 : 0);
}

static void bench_no_wait(struct bench *bench)
{
    static const uint32_t sizes[] = {2, 100};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t a = 0; a < arm_count(); a++)
            bench_no_wait_arm(bench, arm_at(a), sizes[s]);
    }
}

/* A bare wait: one timerfd, one blocking read, nothing else. */
static double bare_wait_ns(int timerfd, int64_t delay_ns)
{
    int64_t start_ns = clock_monotonic_ns();
    int64_t until_ns = start_ns + delay_ns;
    struct itimerspec when = {.it_value = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S}};
    uint64_t ticks;
    if (timerfd_settime(timerfd, TFD_TIMER_ABSTIME, &when, NULL) != 0 ||
        read(timerfd, &ticks, sizeof(ticks)) != sizeof(ticks))
        die(strerror(errno));
    return (double)(clock_monotonic_ns() - start_ns);
}

struct wait_goal {
    const char *arm;
    uint32_t fanout;
    int64_t delay_ns;
    int rounds;
    double wall_limit_x, cpu_limit_ns;
};

static void bench_waits(struct bench *bench, const struct wait_goal *goal, int timerfd)
{
    char name[80];
    double *wall = memory_zeroed((size_t)goal->rounds, sizeof(double));
    double *cpu = memory_zeroed((size_t)goal->rounds, sizeof(double));
    double *bare = memory_zeroed((size_t)goal->rounds, sizeof(double));
    struct cell cell = cell_open(bench, goal->arm, "sleep", goal->fanout, goal->delay_ns, SLEEP_TIMERFD);
    cell_run(bench, &cell, 2);
    runtime_waits_clear(&bench->runtime);
    for (int r = 0; r < goal->rounds; r++) {
        bare[r] = bare_wait_ns(timerfd, goal->delay_ns);
        int64_t wall_ns = clock_monotonic_ns(), cpu_ns = clock_thread_cpu_ns();
        cell_run(bench, &cell, 1);
        cpu[r] = (double)(clock_thread_cpu_ns() - cpu_ns);
        wall[r] = (double)(clock_monotonic_ns() - wall_ns);
    }
    size_t n = (size_t)goal->rounds;
    double delay_ms = (double)goal->delay_ns / NS_PER_MS;
    double bare_ns = report_median(bare, n), wall_ns = report_median(wall, n);
    (void)snprintf(name, sizeof(name), "%s %u x %g ms, p50 wall over a bare wait", goal->arm, goal->fanout,
                   delay_ms);
    report_line(&bench->report, name, wall_ns / bare_ns, "x", goal->wall_limit_x);
    (void)snprintf(name, sizeof(name), "%s %u x %g ms, CPU per child", goal->arm, goal->fanout, delay_ms);
    report_line(&bench->report, name, report_median(cpu, n) / goal->fanout, "ns", goal->cpu_limit_ns);
    if (bench->runtime.waits.early > 0)
        die("a wait ended early by the runtime's own count");
    cell_close(&cell);
    free(wall);
    free(cpu);
    free(bare);
}

/* A child that times its own wait with its own clock reads. */
struct watched {
    struct coro coro;
    struct sleep sleep;
    int64_t start_ns, delay_ns;
    uint64_t *early;
};

static enum step watched_resume(struct coro *coro, struct activation *activation)
{
    struct watched *self = (struct watched *)(void *)coro;
    if (activation->wake == WAKE_START) {
        self->start_ns = clock_monotonic_ns();
        return sleep_start(&self->sleep, activation, self->delay_ns);
    }
    *self->early += clock_monotonic_ns() - self->start_ns < self->delay_ns;
    return coro_return(activation, OUTCOME_OK, 0);
}

static void bench_early(struct bench *bench)
{
    enum { children = 10000 };
    struct cell cell = {0};
    struct error err;
    struct watched *watched = memory_zeroed(children, sizeof(*watched));
    uint64_t early = 0, waits = 0;
    if (fanout_new(children, &cell.fanout, &err) != 0)
        die(err.text);
    fanout_bind(cell.fanout, arm_find("gather")->resume);
    for (uint32_t i = 0; i < children; i++) {
        watched[i] = (struct watched){.coro.resume = watched_resume, .early = &early};
        watched[i].delay_ns =
            NS_PER_MS + (int64_t)(i * 7919u % 4000u) * NS_PER_US; /* 1 to 5 ms, not in order */
        sleep_init(&watched[i].sleep, NULL);
        cell.fanout->bodies[i] = &watched[i].coro;
    }
    for (; waits < bench->waits_to_check; waits += children)
        cell_run(bench, &cell, 1);
    char name[80];
    (void)snprintf(name, sizeof(name), "waits that ended early, of %llu", (unsigned long long)waits);
    report_line(&bench->report, name, (double)early, "", 0.5);
    cell_close(&cell);
    free(watched);
}

static void bench_uv_timer(struct bench *bench)
{
    enum { children = 1000, rounds = 9 };
    double cpu[rounds];
    struct cell cell = cell_open(bench, "gather", "sleep", children, 5 * NS_PER_MS, SLEEP_UV_TIMER);
    cell_run(bench, &cell, 2);
    runtime_waits_clear(&bench->runtime);
    for (int r = 0; r < rounds; r++) {
        int64_t cpu_ns = clock_thread_cpu_ns();
        cell_run(bench, &cell, 1);
        cpu[r] = (double)(clock_thread_cpu_ns() - cpu_ns);
    }
    report_line(&bench->report, "uv_timer instead: gather 1000 x 5 ms, CPU per child",
                report_median(cpu, rounds) / children, "ns", 0);
    report_line(&bench->report, "uv_timer instead: waits that ended early",
                100.0 * (double)bench->runtime.waits.early / (double)bench->runtime.waits.count, "%", 0);
    cell_close(&cell);
}

static void parse(int argc, char **argv, struct bench *bench)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            bench->report.json = true;
        else if (strcmp(argv[i], "--waits") == 0 && i + 1 < argc)
            bench->waits_to_check = strtoull(argv[++i], NULL, 10);
        else
            die("usage: arms [--json] [--waits N]");
    }
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
    static const struct wait_goal goals[] = {
        {"gather", 40, 10 * NS_PER_MS, 41, 1.02, 0},      {"taskgroup", 40, 10 * NS_PER_MS, 41, 1.02, 0},
        {"gather", 1000, 5 * NS_PER_MS, 41, 0, 200},      {"gather", 10000, 5 * NS_PER_MS, 41, 1.10, 0},
        {"taskgroup", 10000, 5 * NS_PER_MS, 41, 1.10, 0},
    };
    struct bench bench = {.waits_to_check = 1000000};
    struct error err;
    parse(argc, argv, &bench);
    pin_here();
    if (uv_loop_init(&bench.loop) != 0 || runtime_init(&bench.runtime, &bench.loop, &err) != 0)
        die("no loop");
    int timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    if (timerfd < 0)
        die(strerror(errno));
    bench_no_wait(&bench);
    for (size_t g = 0; g < sizeof(goals) / sizeof(goals[0]); g++)
        bench_waits(&bench, &goals[g], timerfd);
    bench_early(&bench);
    bench_uv_timer(&bench);
    report_end(&bench.report);
    close(timerfd);
    runtime_release(&bench.runtime);
    (void)uv_run(&bench.loop, UV_RUN_DEFAULT);
    return uv_loop_close(&bench.loop) == 0 ? 0 : 1;
}
