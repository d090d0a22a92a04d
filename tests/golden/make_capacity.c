/* make_capacity DIR [open]: a run of windows made of a known rule: what a core carries, and where its arms cross over.
 *
 * 40 x 10 ms on asyncio, driven by 1 to 1,024 clients on one core, 32 also on two; 2 x noop by 1 and 16; 20 x 10 ms by 1 to 16,
 * and as much for 100 ms by 32 to 128.  CPU per fan-out in us of K clients: sequential 200 + 150 x 40 / K; gather
 * 310 + 200 / K + 25 x log2(K / 16) from 16 on; taskgroup 12 % more.
 * With `open` it is an open loop of 50 to 1,700 fan-outs per second, each of which costs what a single client's does: who comes
 * waits for those before as in a queue of that length of service, so from the intended start latency is higher than from the
 * actual one; and 16 clients beside it, which say nothing of such waits. 2 x noop
 * has one load only.
 * check_capacity.py knows the same rule. */
#include "coordinator/store/store.h"

#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WINDOW_NS  2e9
#define US         1e3
#define MS         1e6
#define BLOCKS     5
#define ARMS       3
#define WORKERS    32
#define CONTENTION 0.02 /* of cores */
#define SIBLINGS   1.5  /* what they wait for each other */
#define MOST       64

struct arm {
    const char *name;
    double work_ns, wakeup_ns, wakeups, growth_ns, latency_ns;
};

static const struct arm sleepers[ARMS] = {
    {"sequential", 200 * US, 150 * US, 40, 0, 403 * MS},
    {"gather", 310 * US, 200 * US, 1, 25 * US, 10.2 * MS},
    {"taskgroup", 347 * US, 224 * US, 1, 28 * US, 10.2 * MS},
};
static const struct arm no_waiters[ARMS] = {
    {"sequential", 316, 0, 0, 0, 0}, {"gather", 20.9 * US, 0, 0, 0, 0}, {"taskgroup", 16.5 * US, 0, 0, 0, 0}};

struct group {
    int64_t clients, cores;
    bool waits;
    int64_t fanout, delay_ms;
    double rate_per_s; /* 0: closed loop */
};

static const struct group closed_groups[] = {
    {1, 1, true, 40, 10, 0},    {2, 1, true, 40, 10, 0},   {4, 1, true, 40, 10, 0},
    {8, 1, true, 40, 10, 0},    {16, 1, true, 40, 10, 0},  {32, 1, true, 40, 10, 0},
    {32, 2, true, 40, 10, 0},   {32, 4, true, 40, 10, 0},  {32, 8, true, 40, 10, 0},
    {32, 16, true, 40, 10, 0},  {32, 6, true, 40, 10, 0},  {32, 32, true, 40, 10, 0},
    {64, 1, true, 40, 10, 0},   {128, 1, true, 40, 10, 0}, {256, 1, true, 40, 10, 0},
    {1024, 1, true, 40, 10, 0}, {1, 1, false, 2, 0, 0},    {16, 1, false, 2, 0, 0},
    {1, 1, true, 20, 10, 0},    {4, 1, true, 20, 10, 0},   {8, 1, true, 20, 10, 0},
    {15, 1, true, 20, 10, 0},   {32, 1, true, 20, 100, 0}, {64, 1, true, 20, 100, 0},
    {128, 1, true, 20, 100, 0},
};

static const struct group open_groups[] = {
    {16, 1, true, 40, 10, 0},   {1, 1, true, 40, 10, 50},   {1, 1, true, 40, 10, 100},
    {1, 1, true, 40, 10, 150},  {1, 1, true, 40, 10, 500},  {1, 1, true, 40, 10, 1000},
    {1, 1, true, 40, 10, 1500}, {1, 1, true, 40, 10, 1700}, {4, 1, false, 2, 0, 0},
};

struct groups {
    const struct group *at;
    int64_t count;
};
#define GROUPS(table) ((struct groups){table, (int64_t)(sizeof(table) / sizeof *(table))})

static char asyncio[] = "asyncio", host[] = "box", boot_id[] = "boot",
            instance[] = "00112233445566778899aabbccddeeff";

static const struct arm *arm_of(const struct group *group, int64_t arm)
{
    return group->waits ? &sleepers[arm] : &no_waiters[arm];
}

/* ---- the plan ---- */

static struct plan_cell plan_cell(const struct group *group, int64_t number, int64_t group_number,
                                  int64_t arm)
{
    struct plan_cell cell = {.group = group_number,
                             .runtime = memory_text(asyncio),
                             .cores = group->cores,
                             .rounds = BLOCKS,
                             .processes = 1};
    const char *name = arm_of(group, arm)->name;
    long long clients = group->clients, cores = group->cores;
    scoped_free char *job =
        group->waits ? memory_format("sleep/n=%d/delay=%dms", (int)group->fanout, (int)group->delay_ms)
                     : memory_text("noop/n=2");
    scoped_free char *load = group->rate_per_s > 0 ? memory_format("rate=%g%%2fs", group->rate_per_s)
                                                   : memory_format("clients=%lld", clients);
    cell.id = memory_format("asyncio/%s/%s/cores=%lld/%s/duration=2s", name, job, cores, load);
    cell.spec = (struct wire_cell){.cell = number,
                                   .arm = memory_text(name),
                                   .job = memory_text(group->waits ? "sleep" : "noop"),
                                   .fanout = group->fanout,
                                   .delay_ns = group->delay_ms * (int64_t)MS,
                                   .wait = memory_text("timerfd"),
                                   .clients = group->clients,
                                   .phase = memory_text("together"),
                                   .rate_per_s = group->rate_per_s,
                                   .arrivals = memory_text("poisson"),
                                   .duration_ns = (int64_t)WINDOW_NS,
                                   .warmup = 2};
    return cell;
}

static void make_plan(struct groups groups, struct plan *plan)
{
    memset(plan->sweep_sha256, 'a', 64);
    for (int64_t i = 0; i < groups.count; i++) {
        const struct group *group = &groups.at[i];
        long long clients = group->clients, cores = group->cores;
        scoped_free char *job =
            group->waits ? memory_format("%d x %dms sleep", (int)group->fanout, (int)group->delay_ms)
                         : memory_text("2 x noop");
        scoped_free char *load = group->rate_per_s > 0 ? memory_format("rate %g/s", group->rate_per_s)
                                                       : memory_format("clients %lld", clients);
        plan->groups[i] = (struct plan_group){.number = i,
                                              .title = memory_format("%s, %lld core%s, %s%s", job, cores,
                                                                     cores > 1 ? "s" : "", load,
                                                                     cores == 6 ? ", duration 2s" : ""),
                                              .cores = group->cores,
                                              .blocks = BLOCKS,
                                              .processes = 1,
                                              .seed = (uint64_t)i};
        for (int64_t arm = 0; arm < ARMS; arm++, plan->cell_count++)
            plan->cells[plan->cell_count] = plan_cell(group, plan->cell_count, i, arm);
    }
    plan->group_count = groups.count;
}

static void release_plan(struct plan *plan)
{
    for (int64_t i = 0; i < plan->group_count; i++)
        free(plan->groups[i].title);
    for (int64_t i = 0; i < plan->cell_count; i++) {
        struct plan_cell *cell = &plan->cells[i];
        char *texts[] = {cell->runtime,   cell->id,         cell->spec.arm,     cell->spec.job,
                         cell->spec.wait, cell->spec.phase, cell->spec.arrivals};
        for (size_t text = 0; text < sizeof texts / sizeof *texts; text++)
            free(texts[text]);
    }
}

/* ---- windows ---- */

struct window {
    int64_t pairs[6], intended_pairs[6];
    struct wire_round round;
};

/* 80 % at the latency, the rest a tenth and a half above it. */
static void fill_latency(double latency_ns, int64_t fanouts, int64_t *pairs, struct wire_histogram *histogram)
{
    const double places[] = {1, 1.1, 1.5};
    const int64_t tenth = fanouts / 10, counts[] = {fanouts - 2 * tenth, tenth, tenth};
    *histogram = (struct wire_histogram){
        .present = true, .significant_digits = 3, .lowest_ns = 1, .highest_ns = 100000000000};
    histogram->counts = pairs;
    for (size_t i = 0; i < 3; i++) {
        if (counts[i] == 0)
            continue;
        pairs[2 * histogram->pair_count] = wire_histogram_index(histogram, (int64_t)(latency_ns * places[i]));
        pairs[2 * histogram->pair_count++ + 1] = counts[i];
    }
}

/* What is due at a rate; a core that cannot keep up leaves the rest out. */
static void fill_open(const struct group *group, double latency_ns, double cpu_ns, struct window *window)
{
    struct wire_round *round = &window->round;
    double used = group->rate_per_s * cpu_ns / 1e9;
    double behind_ns = used < 1 ? cpu_ns * used / (2 * (1 - used)) : 1e9;
    round->offered = (int64_t)(group->rate_per_s * WINDOW_NS / 1e9);
    round->skipped = round->offered - round->fanouts;
    round->unfinished = 0;
    round->lag_p50_ns = 5000;
    round->lag_max_ns = 100000;
    fill_latency(latency_ns + behind_ns, round->fanouts, window->intended_pairs, &round->latency_intended);
}

static void fill_window(const struct group *group, int64_t arm_index, int64_t worker, int64_t block,
                        struct window *ret)
{
    const struct arm *arm = arm_of(group, arm_index);
    struct rng rng =
        rng_stream((uint64_t)(group->clients * 8 + arm_index), (uint64_t)(block * WORKERS + worker));
    double clients = (double)group->clients, wakeups = arm->wakeups / clients;
    double busy_ns = arm->work_ns + (clients > 16 ? arm->growth_ns * log2(clients / 16) : 0);
    double cpu_ns = (busy_ns + arm->wakeup_ns * wakeups) * (1 + 0.02 * (rng_unit(&rng) - 0.5));
    double waits_ns = arm->latency_ns * (group->waits ? (double)group->delay_ms / 10 : 1);
    double latency_ns = fmax(waits_ns, clients * cpu_ns) * (1 + CONTENTION * (double)(group->cores - 1));
    if (group->cores > WORKERS / 2)
        latency_ns *= SIBLINGS;
    double fanouts = floor(WINDOW_NS * clients / latency_ns);
    if (group->rate_per_s > 0)
        fanouts = floor(fmin(WINDOW_NS * group->rate_per_s / 1e9, WINDOW_NS / cpu_ns));
    struct wire_round *round = &ret->round;
    wire_round_init(round);
    round->block = block;
    round->position = arm_index;
    round->start_ns = 1000000000 + block * 3 * (int64_t)WINDOW_NS * ARMS +
                      arm_index * 3 * (int64_t)WINDOW_NS + worker * 12000;
    round->launch_ns =
        round->start_ns - 20000000 - worker * 7000; /* apart by 5 us, where they open 12 us apart */
    round->wall_ns = (int64_t)WINDOW_NS;
    round->cpu_ns = (int64_t)fmin(fanouts * cpu_ns, WINDOW_NS);
    round->fanouts = (int64_t)fanouts;
    round->wakeups = (int64_t)(fanouts * wakeups);
    round->max_in_flight = arm_index == 0 ? 1 : group->fanout;
    round->early = group->waits ? 0 : WIRE_NULL;
    round->runq_ns = 1500;
    round->switches_voluntary = round->wakeups;
    round->switches_involuntary = round->faults_minor = round->faults_major = 0;
    round->cpu_start = round->cpu_end = 1 + worker;
    round->throttles = round->throttled_ns = round->steal_ticks = 0;
    fill_latency(latency_ns, round->fanouts, ret->pairs, &round->latency);
    if (group->rate_per_s > 0)
        fill_open(group, latency_ns, cpu_ns, ret);
}

/* An arm that has left the ladder before this rung. */
static bool is_left_out(const struct group *group, int64_t arm)
{
    return group->clients == 256 && arm == ARMS - 1;
}

static int put_group(struct store *store, const struct group *group, int64_t number, struct error *err)
{
    int64_t first_cell = number * ARMS;
    int64_t arms = is_left_out(group, ARMS - 1) ? ARMS - 1 : ARMS;
    for (int64_t worker = 0; worker < group->cores; worker++) {
        static struct window windows[BLOCKS * ARMS];
        static struct wire_round rounds[BLOCKS * ARMS];
        bool fresh;
        for (int64_t i = 0; i < BLOCKS * arms; i++) {
            memset(&windows[i], 0, sizeof windows[i]);
            fill_window(group, i % arms, worker, i / arms, &windows[i]);
            rounds[i] = windows[i].round;
            rounds[i].cell = first_cell + i % arms;
        }
        const struct wire_result result = {.group = number,
                                           .attempt = 1,
                                           .last = true,
                                           .rounds = rounds,
                                           .round_count = (size_t)(BLOCKS * arms)};
        if (store_put_result(store, worker, &result, &fresh, err) < 0)
            return -1;
    }
    if (arms < ARMS && store_leave_out_cell(store, first_cell + arms, "saturated at K=32", err) < 0)
        return -1;
    return store_finish_group(store, number, 1, err);
}

static int fill(struct store *store, struct groups groups, const struct plan *plan, struct error *err)
{
    const char *facts[][2] = {{"run_id", "golden"},
                              {"started_at", "2026-01-02T03:04:05Z"},
                              {"status", "complete"},
                              {"tool_version", "0.1.0"},
                              {"reserved_cpus", "0"}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (store_put_fact(store, facts[i][0], facts[i][1], err) < 0)
            return -1;
    if (store_put_plan(store, plan, err) < 0)
        return -1;
    for (int64_t worker = 0; worker < WORKERS; worker++) {
        const struct wire_hello hello = {.instance = instance,
                                         .runtime = asyncio,
                                         .label = asyncio,
                                         .host = host,
                                         .boot_id = boot_id,
                                         .pid = 4000 + worker,
                                         .slot = worker,
                                         .cpu = 1 + worker,
                                         .core = worker % 16, /* the last 16 are siblings of the first */
                                         .package = 0,
                                         .busy_heartbeats = true};
        if (store_put_worker(store, worker, &hello, err) < 0)
            return -1;
    }
    for (int64_t i = 0; i < groups.count; i++)
        if (put_group(store, &groups.at[i], i, err) < 0)
            return -1;
    return 0;
}

int main(int argc, char **argv)
{
    static struct plan_group plan_groups[MOST];
    static struct plan_cell plan_cells[MOST * ARMS];
    static char name[] = "capacity";
    struct plan plan = {
        .name = name, .seed = 1, .all_cores = WORKERS, .groups = plan_groups, .cells = plan_cells};
    struct error err = {.text = "usage: make_capacity DIR [open]"};
    struct store *store = NULL;
    bool open = argc == 3 && strcmp(argv[2], "open") == 0;
    struct groups groups = open ? GROUPS(open_groups) : GROUPS(closed_groups);
    make_plan(groups, &plan);
    int status = argc == 2 || open ? store_create(argv[1], &store, &err) : -1;
    if (status == 0) {
        status = fill(store, groups, &plan, &err);
        store_close(store);
    }
    release_plan(&plan);
    if (status < 0)
        (void)fprintf(stderr, "make_capacity: %s\n", err.text);
    return status < 0;
}
