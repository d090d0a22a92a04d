/* make_run DIR SCENARIO: a run directory with fixed values, as a fleet would have filled it. */
#include "coordinator/store/store.h"

#include "base/memory.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

#define MOST_ARMS   6
#define MOST_BLOCKS 400

/* Nominal figures of one round; every round is a little off them. */
struct arm {
    const char *name;
    double wall_ns, cpu_ns; /* per fan-out */
    int64_t wakeups, in_flight;
    int64_t time_to_error_ns, wasted_cpu_ns, drain_ns, orphans, seen, lost; /* where children fail */
};

enum trouble { HEALTHY, FAILS, TIMES_OUT, STALLS };

enum mishap {
    NONE,
    RUNQ,
    FAULTS,
    BROKEN,
    DRIFTING,
    NOT_FINISHED,
    GIVEN_UP,
    SECOND_TRY,
    MIGRATED,
    UNEQUAL,
    THROTTLED,
    STOLEN,
    SLOWED,
    STOPPED,
    ASTRAY,
    EARLY,
    UNSTABLE,
    APART
};

struct group {
    const char *title, *job;
    int64_t fanout, delay_ns, cores, blocks, loops;
    enum trouble trouble;
    enum mishap mishap; /* of the second arm, or of the group */
    struct arm arms[MOST_ARMS];
};

#define MS 1e6
#define US 1e3
#define ARM(name, wall_ns, cpu_ns, wakeups, in_flight)                                                       \
    {                                                                                                        \
        name, wall_ns, cpu_ns, wakeups, in_flight, 0, 0, 0, 0, 0, 0                                          \
    }

static const struct group lab[] = {
    {"40 x 10ms sleep, 1 core",
     "sleep",
     40,
     10000000,
     1,
     9,
     1,
     HEALTHY,
     RUNQ,
     {ARM("sequential", 402.9 * MS, 1.9 * MS, 40, 1), ARM("gather", 10.12 * MS, 61 * US, 1, 40),
      ARM("taskgroup", 10.13 * MS, 64 * US, 1, 40)}},
    {"40 x 10ms sleep, 2 cores",
     "sleep",
     40,
     10000000,
     2,
     9,
     1,
     HEALTHY,
     NONE,
     {ARM("sequential", 403.1 * MS, 1.95 * MS, 40, 1), ARM("gather", 10.15 * MS, 63 * US, 1, 40),
      ARM("taskgroup", 10.16 * MS, 66 * US, 1, 40)}},
    {"2 x noop, 1 core",
     "noop",
     2,
     0,
     1,
     9,
     1000000,
     HEALTHY,
     NONE,
     {ARM("sequential", 3.1, 3.1, 0, 1), ARM("tasks", 44, 44, 0, 2), ARM("gather", 60, 60, 0, 2),
      ARM("taskgroup", 66, 66, 0, 2)}},
    {"20 x 10ms sleep, the first fails after 2ms, 1 core",
     "sleep",
     20,
     10000000,
     1,
     9,
     1,
     FAILS,
     NONE,
     {{"sequential", 2.06 * MS, 52 * US, 1, 1, 2060000, 0, 0, 0, 1, 0},
      {"gather", 2.08 * MS, 51 * US, 1, 20, 2080000, 21000, 8040000, 19, 1, 0},
      {"gather-return-exceptions", 10.1 * MS, 58 * US, 2, 20, 10100000, 0, 0, 0, 1, 0},
      {"taskgroup", 2.09 * MS, 55 * US, 1, 20, 2090000, 0, 0, 0, 1, 0}}},
};

static const struct group troubled[] = {
    {"4 x 1ms sleep, 1 core",
     "sleep",
     4,
     1000000,
     1,
     20,
     1,
     HEALTHY,
     FAULTS,
     {ARM("sequential", 4.3 * MS, 190 * US, 4, 1), ARM("gather", 1.07 * MS, 48 * US, 1, 4)}},
    {"5 x 1ms sleep, 1 core",
     "sleep",
     5,
     1000000,
     1,
     6,
     1,
     HEALTHY,
     BROKEN,
     {ARM("sequential", 5.3 * MS, 240 * US, 5, 1), ARM("gather", 1.07 * MS, 49 * US, 1, 5)}},
    {"6 x 1ms sleep, 1 core",
     "sleep",
     6,
     1000000,
     1,
     20,
     1,
     HEALTHY,
     DRIFTING,
     {ARM("sequential", 6.4 * MS, 290 * US, 6, 1), ARM("gather", 1.07 * MS, 51 * US, 1, 6)}},
    {"7 x 1ms sleep, 1 core",
     "sleep",
     7,
     1000000,
     1,
     5,
     1,
     HEALTHY,
     NOT_FINISHED,
     {ARM("sequential", 7.4 * MS, 340 * US, 7, 1), ARM("gather", 1.07 * MS, 52 * US, 1, 7)}},
    {"8 x 1ms sleep, 1 core",
     "sleep",
     8,
     1000000,
     1,
     5,
     1,
     HEALTHY,
     GIVEN_UP,
     {ARM("sequential", 8.5 * MS, 390 * US, 8, 1), ARM("gather", 1.07 * MS, 53 * US, 1, 8)}},
    {"9 x 1ms sleep, 1 core",
     "sleep",
     9,
     1000000,
     1,
     5,
     1,
     HEALTHY,
     SECOND_TRY,
     {ARM("sequential", 9.6 * MS, 440 * US, 9, 1), ARM("gather", 1.07 * MS, 54 * US, 1, 9)}},
    {"10 x 1ms sleep, 1 core",
     "sleep",
     10,
     1000000,
     1,
     9,
     1,
     HEALTHY,
     MIGRATED,
     {ARM("sequential", 10.7 * MS, 490 * US, 10, 1), ARM("gather", 1.07 * MS, 55 * US, 1, 10)}},
    {"11 x 1ms sleep, 2 cores",
     "sleep",
     11,
     1000000,
     2,
     9,
     1,
     HEALTHY,
     UNEQUAL,
     {ARM("sequential", 11.7 * MS, 540 * US, 11, 1), ARM("gather", 1.07 * MS, 56 * US, 1, 11)}},
    {"2 x noop, 1 core",
     "noop",
     2,
     0,
     1,
     5,
     1000000,
     HEALTHY,
     NONE,
     {ARM("sequential", 0.9, 0.9, 0, 1), ARM("gather", 60, 60, 0, 2)}},
};

/* One mishap each: what was disturbed, and only that, is flagged. */
#define SLEEPERS(fanout, mishap)                                                                             \
    {                                                                                                        \
#fanout " x 1ms sleep, 1 core", "sleep", fanout, 1000000, 1, 20, 1, HEALTHY, mishap,                 \
        {                                                                                                    \
            ARM("sequential", fanout * 1.07 * MS, fanout * 50 * US, fanout, 1),                              \
                ARM("gather", 1.08 * MS, 56 * US, 1, fanout)                                                 \
        }                                                                                                    \
    }
static const struct group disturbed[] = {
    SLEEPERS(20, NONE),
    SLEEPERS(21, RUNQ),
    SLEEPERS(22, THROTTLED),
    SLEEPERS(23, STOLEN),
    SLEEPERS(24, SLOWED),
    SLEEPERS(25, STOPPED),
    SLEEPERS(26, ASTRAY),
    SLEEPERS(27, EARLY),
    {"5 x 1ms cpu, 1 core",
     "cpu",
     5,
     1000000,
     1,
     20,
     1,
     HEALTHY,
     STOPPED,
     {ARM("sequential", 5.01 * MS, 5.0 * MS, 0, 1), ARM("gather", 5.02 * MS, 5.0 * MS, 0, 5)}},
    {"2 x noop, 1 core",
     "noop",
     2,
     0,
     1,
     20,
     1000000,
     HEALTHY,
     UNSTABLE,
     {ARM("sequential", 3.1, 3.1, 0, 1), ARM("gather", 60, 60, 0, 2)}},
    {"19 x 1ms sleep, 1 core, one behind the other",
     "sleep",
     19,
     1000000,
     1,
     20,
     1,
     HEALTHY,
     NONE,
     {ARM("sequential", 20 * MS, 1.0 * MS, 19, 1), ARM("gather", 19.9 * MS, 1.0 * MS, 19, 19)}},
};

static const struct group two_runtimes[] = {
    {"40 x 10ms sleep, 1 core",
     "sleep",
     40,
     10000000,
     1,
     9,
     1,
     HEALTHY,
     RUNQ,
     {ARM("sequential", 402.9 * MS, 1.9 * MS, 40, 1), ARM("gather", 10.12 * MS, 61 * US, 1, 40)}},
    {"2 x noop, 1 core",
     "noop",
     2,
     0,
     1,
     9,
     1000000,
     HEALTHY,
     NONE,
     {ARM("sequential", 3.1, 3.1, 0, 1), ARM("gather", 60, 60, 0, 2)}},
};

/* As published: the first label reproduces both experiments, the second neither. */
static const struct group published[] = {
    {"40 x 10ms sleep, 1 core",
     "sleep",
     40,
     10000000,
     1,
     9,
     1,
     HEALTHY,
     APART,
     {ARM("sequential", 415 * MS, 8.5 * MS, 40, 1), ARM("gather", 10.9 * MS, 950 * US, 1, 40),
      ARM("taskgroup", 11.0 * MS, 850 * US, 1, 40)}},
    {"100 x 5ms sleep, 1 core",
     "sleep",
     100,
     5000000,
     1,
     9,
     1,
     HEALTHY,
     RUNQ,
     {ARM("sequential", 508 * MS, 21 * MS, 100, 1), ARM("gather", 6.1 * MS, 1.9 * MS, 1, 100),
      ARM("taskgroup", 6.4 * MS, 2 * MS, 1, 100)}},
    {"2 x noop, 1 core",
     "noop",
     2,
     0,
     1,
     9,
     10000,
     HEALTHY,
     APART,
     {ARM("sequential", 478, 478, 0, 1), ARM("tasks", 8870, 8870, 0, 2), ARM("gather", 20700, 20700, 0, 2)}},
};

static const struct group one_block[] = {
    {"4 x 1ms sleep, 1 core",
     "sleep",
     4,
     1000000,
     1,
     1,
     1,
     HEALTHY,
     NONE,
     {ARM("sequential", 4.3 * MS, 190 * US, 4, 1), ARM("gather", 1.07 * MS, 48 * US, 1, 4)}},
};
static const struct group two_blocks[] = {
    {"4 x 1ms sleep, 1 core",
     "sleep",
     4,
     1000000,
     1,
     2,
     1,
     HEALTHY,
     NONE,
     {ARM("sequential", 4.3 * MS, 190 * US, 4, 1), ARM("gather", 1.07 * MS, 48 * US, 1, 4)}},
};
static const struct group five_blocks[] = {
    {"4 x 1ms sleep, 1 core",
     "sleep",
     4,
     1000000,
     1,
     5,
     1,
     HEALTHY,
     NONE,
     {ARM("gather", 1.07 * MS, 48 * US, 1, 4), ARM("taskgroup", 1.08 * MS, 48 * US, 1, 4)}},
};
static const struct group many_blocks[] = {
    {"4 x 1ms sleep, 1 core",
     "sleep",
     4,
     1000000,
     1,
     368,
     1,
     HEALTHY,
     NONE,
     {ARM("sequential", 4.3 * MS, 190 * US, 4, 1), ARM("gather", 1.07 * MS, 48 * US, 1, 4)}},
};

/* Thresholds that pass, fail, cannot be decided, and speak of cells that are broken or not measured. */
static const struct group gated[] = {
    {"40 x 10ms sleep, 1 core",
     "sleep",
     40,
     10000000,
     1,
     9,
     1,
     HEALTHY,
     NONE,
     {ARM("sequential", 402.9 * MS, 1.9 * MS, 40, 1), ARM("gather", 10.12 * MS, 61 * US, 1, 40)}},
    {"5 x 10ms sleep, 1 core",
     "sleep",
     5,
     10000000,
     1,
     9,
     1,
     HEALTHY,
     BROKEN,
     {ARM("sequential", 50.9 * MS, 240 * US, 5, 1), ARM("gather", 10.11 * MS, 59 * US, 1, 5)}},
    {"2 x noop, 1 core",
     "noop",
     2,
     0,
     1,
     9,
     1000000,
     HEALTHY,
     NONE,
     {ARM("sequential", 3.1, 3.1, 0, 1), ARM("gather", 60, 60, 0, 2)}},
};
static const char gated_sweep[] =
    "{\"name\": \"gated\", \"matrix\": [{\"job\": \"noop\", \"fanout\": 2}], \"expect\": ["
    "{\"arm\": \"gather\", \"job\": \"sleep\", \"metric\": \"over_ideal_x\", \"max\": 1.05},"
    "{\"arm\": \"gather\", \"job\": \"noop\", \"metric\": \"cpu_ns\", \"max\": 50},"
    "{\"fanout\": 40, \"metric\": \"wall_ns\", \"min\": 10130000, \"max\": 10140000},"
    "{\"job\": \"noop\", \"metric\": \"over_ideal_x\", \"max\": 2},"
    "{\"metric\": \"max_in_flight\", \"max\": 40}]}";

static const struct group failure[] = {
    {"4 x 10ms sleep, 1 core, fail fraction:0.5",
     "sleep",
     4,
     10000000,
     1,
     9,
     1,
     FAILS,
     NONE,
     {{"sequential", 12.06 * MS, 92 * US, 2, 1, 12060000, 0, 0, 0, 1, 0},
      {"tasks", 2.07 * MS, 50 * US, 1, 4, 2070000, 21000, 8030000, 2, 1, 1},
      {"gather", 2.08 * MS, 51 * US, 1, 4, 2080000, 22000, 8040000, 2, 1, 1},
      {"gather-return-exceptions", 10.1 * MS, 58 * US, 2, 4, 10100000, 0, 0, 0, 2, 0},
      {"taskgroup", 2.09 * MS, 55 * US, 1, 4, 2090000, 0, 0, 0, 2, 0}}},
    {"5 x 10ms sleep, 1 core, timeout 5ms",
     "sleep",
     5,
     10000000,
     1,
     9,
     1,
     TIMES_OUT,
     NONE,
     {{"tasks", 5.07 * MS, 50 * US, 1, 5, 5070000, 20000, 5030000, 4, 1, 0},
      {"gather", 10.1 * MS, 51 * US, 1, 5, -1, 0, 0, 0, 0, 0}}},
    {"6 x 10ms sleep, 1 core, stall children:1,cpu:3ms",
     "sleep",
     6,
     10000000,
     1,
     9,
     1,
     STALLS,
     NONE,
     {ARM("sequential", 63.1 * MS, 3.2 * MS, 6, 1), ARM("taskgroup", 13.1 * MS, 3.1 * MS, 1, 6)}},
};

/* A second runtime and a host whose names try to be more than text. */
#define HOSTILE_LABEL "py,\"3.13\"\x1b[31m"
#define HOSTILE_HOST  "<b>box</b>\r\n\x1b[2J"
#define LABELS        2
static char libuv[] = "libuv", hostile[] = HOSTILE_LABEL, asyncio[] = "asyncio", uvloop[] = "uvloop";

#define SCENARIO(name, interrupted)                                                                          \
    {                                                                                                        \
#name, name, sizeof name / sizeof *name, interrupted                                                 \
    }
static const struct scenario {
    const char *name;
    const struct group *groups;
    size_t group_count;
    bool interrupted;
} scenarios[] = {
    SCENARIO(lab, false),          SCENARIO(troubled, true),     SCENARIO(one_block, false),
    SCENARIO(two_blocks, false),   SCENARIO(five_blocks, false), SCENARIO(many_blocks, false),
    SCENARIO(two_runtimes, false), SCENARIO(gated, false),       SCENARIO(failure, false),
    SCENARIO(disturbed, false),    SCENARIO(published, false),
};

/* The runtimes of a scenario. */
struct label {
    char *name, *kind;
};

static const struct label plain[] = {{libuv, libuv}}, two[] = {{libuv, libuv}, {hostile, libuv}},
                          pythons[] = {{uvloop, uvloop}, {asyncio, asyncio}};

static const struct label *labels_of(const struct scenario *scenario)
{
    return strcmp(scenario->name, "two_runtimes") == 0 ? two
           : strcmp(scenario->name, "published") == 0  ? pythons
                                                       : plain;
}

/* ---- the plan ---- */

static size_t arm_count(const struct group *group)
{
    size_t count = 0;
    while (count < MOST_ARMS && group->arms[count].name)
        count++;
    return count;
}

static int64_t label_count(const struct scenario *scenario)
{
    return labels_of(scenario) == plain ? 1 : LABELS;
}

static struct plan_cell plan_cell(const struct group *group, int64_t number, int64_t group_number,
                                  const char *arm, const char *label)
{
    bool harness = strcmp(arm, "empty") == 0;
    struct plan_cell cell = {.group = group_number,
                             .runtime = memory_text(label),
                             .cores = group->cores,
                             .rounds = group->blocks,
                             .processes = 1,
                             .harness = harness};
    cell.id =
        memory_format("runtime=%s arm=%s job=%s fanout=%lld delay=%lldns cores=%lld", label, arm, group->job,
                      (long long)group->fanout, (long long)group->delay_ns, (long long)group->cores);
    cell.spec = (struct wire_cell){.cell = number,
                                   .arm = memory_text(arm),
                                   .job = memory_text(group->job),
                                   .fanout = group->fanout,
                                   .delay_ns = group->delay_ns,
                                   .wait = memory_text("timerfd"),
                                   .clients = 1,
                                   .phase = memory_text("together"),
                                   .warmup = 2,
                                   .calibrated = group->loops > 1};
    if (group->trouble == TIMES_OUT)
        cell.spec.timeout_ns = 5000000;
    if (group->trouble == STALLS)
        cell.spec.stall = (struct wire_stall){.present = true, .children = 1, .cpu_ns = 3000000};
    if (group->trouble == FAILS)
        cell.spec.fail = (struct wire_fail){.present = true,
                                            .children = 1,
                                            .at_ns = 2000000,
                                            .outcome = memory_text("fail"),
                                            .on_cancel = memory_text("propagate")};
    return cell;
}

static struct plan *make_plan(const struct scenario *scenario)
{
    struct plan *plan = memory_zeroed(1, sizeof *plan);
    plan->name = memory_text(scenario->name);
    plan->seed = 1;
    memset(plan->sweep_sha256, 'a', 64);
    plan->all_cores = 2;
    plan->groups = memory_zeroed(scenario->group_count, sizeof *plan->groups);
    plan->cells = memory_zeroed(scenario->group_count * LABELS * (MOST_ARMS + 1), sizeof *plan->cells);
    for (size_t i = 0; i < scenario->group_count; i++) {
        const struct group *group = &scenario->groups[i];
        int64_t number = plan->group_count++;
        plan->groups[number] = (struct plan_group){.number = number,
                                                   .title = memory_text(group->title),
                                                   .cores = group->cores,
                                                   .blocks = group->blocks,
                                                   .processes = 1,
                                                   .seed = 18446744073709551615u - i};
        size_t arms = arm_count(group);
        for (size_t slot = 0; slot < (arms + 1) * (size_t)label_count(scenario); slot++, plan->cell_count++) {
            size_t arm = slot % (arms + 1);
            plan->cells[plan->cell_count] =
                plan_cell(group, plan->cell_count, number, arm < arms ? group->arms[arm].name : "empty",
                          labels_of(scenario)[slot / (arms + 1)].name);
        }
    }
    return plan;
}

static void free_plan(struct plan *plan)
{
    for (int64_t i = 0; i < plan->cell_count; i++) {
        struct plan_cell *cell = &plan->cells[i];
        char *texts[] = {
            cell->id,        cell->runtime,    cell->spec.arm,          cell->spec.job,
            cell->spec.wait, cell->spec.phase, cell->spec.fail.outcome, cell->spec.fail.on_cancel};
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++)
            free(texts[j]);
    }
    for (int64_t i = 0; i < plan->group_count; i++)
        free(plan->groups[i].title);
    free(plan->groups);
    free(plan->cells);
    free(plan->name);
    free(plan);
}

/* ---- rounds ---- */

/* What befalls one round of the second arm. */
static void befall(const struct group *group, struct wire_round *round)
{
    switch (group->mishap) {
    case MIGRATED:
        round->cpu_end = round->cpu_start + 1;
        break;
    case ASTRAY:
        round->cpu_start = round->cpu_end = 7;
        break;
    case THROTTLED:
        round->throttles = 1;
        round->throttled_ns = 80000000;
        round->runq_ns += 80000000;
        round->wall_ns += 80000000;
        round->overshoot_max_ns += 80000000;
        break;
    case SLOWED:
        round->frequency_end_khz = 3500000;
        break;
    case STOPPED:
        round->wall_ns += 5000000;
        if (round->overshoot_max_ns != WIRE_NULL)
            round->overshoot_max_ns += 5000000;
        break;
    default:
        break;
    }
}

static void disturb(const struct group *group, int64_t arm, int64_t block, int64_t worker,
                    struct wire_round *round)
{
    static char broken[] = "gather had 1 of 5 children in flight, not 5";
    if (arm != 1)
        return;
    if (group->mishap == RUNQ && block == 3) {
        round->runq_ns = 400000;
        round->wall_ns += 400000;
    }
    if (group->mishap == FAULTS && block % 5 == 0)
        round->faults_minor = 3;
    if (group->mishap == BROKEN && block == 2)
        round->error = broken;
    if (block == 4)
        befall(group, round);
    if (group->mishap == EARLY) {
        round->early = 2;
        round->overshoot_min_ns = -400000;
    }
    if (group->mishap == UNEQUAL && worker == 1)
        round->cpu_ns = round->cpu_ns * 3 / 2;
    if (group->mishap == DRIFTING)
        round->wall_ns += block * 2000;
}

static void fill_waits(const struct group *group, struct wire_round *round)
{
    if (strcmp(group->job, "sleep") != 0)
        return;
    round->overshoot_min_ns = 9000 + round->block * 10;
    round->overshoot_p50_ns = 60000 + round->block * 100;
    round->overshoot_max_ns = 110000 + round->block * 1000;
}

static void fill_failure(const struct group *group, const struct arm *arm, struct wire_round *round)
{
    if (group->trouble == STALLS)
        round->stall_overshoot_p50_ns = (arm->in_flight > 1 ? 3060000 : 60000) + round->block * 100;
    if (group->trouble != FAILS && group->trouble != TIMES_OUT)
        return;
    round->time_to_error_ns =
        arm->time_to_error_ns < 0 ? WIRE_NULL : arm->time_to_error_ns + round->block * 100;
    round->wasted_cpu_ns = arm->wasted_cpu_ns;
    round->drain_ns = arm->drain_ns;
    round->orphans = arm->orphans;
    round->errors_seen = arm->seen;
    round->errors_lost = arm->lost;
}

static struct wire_round make_round(const struct group *group, int64_t first_cell, int64_t arm_index,
                                    int64_t worker, int64_t block)
{
    static const struct arm harness = {"empty", 900, 860, 0, 0, -1, 0, 0, 0, 0, 0};
    static const struct arm harness_looped = {"empty", 1, 1, 0, 0, -1, 0, 0, 0, 0, 0};
    bool is_harness = arm_index == (int64_t)arm_count(group);
    const struct arm *arm = !is_harness        ? &group->arms[arm_index]
                            : group->loops > 1 ? &harness_looped
                                               : &harness;
    struct rng rng = rng_stream((uint64_t)(first_cell + arm_index), (uint64_t)(block * 2 + worker));
    struct wire_round round;
    wire_round_init(&round);
    /* where labels lie apart, the concurrent arms of the second do worse at waits and better without */
    bool apart = group->mishap == APART && worker >= 2 && !is_harness && arm_index > 0;
    double times = !apart ? 1 : group->delay_ns > 0 ? 1.25 : 0.4;
    double loops = (double)group->loops * times;
    round.cell = first_cell + arm_index;
    round.block = block;
    round.position = arm_index;
    round.start_ns = 1000000000 + block * 2000000000 + arm_index * 500000000 + worker * 12000;
    round.intended_start_ns = group->cores > 1 ? round.start_ns - worker * 12000 : WIRE_NULL;
    round.wall_ns = (int64_t)(arm->wall_ns * loops * (1 + 0.002 * rng_unit(&rng)));
    round.cpu_ns = (int64_t)(arm->cpu_ns * loops * (1 + 0.02 * rng_unit(&rng)));
    round.fanouts = group->loops;
    round.wakeups = arm->wakeups;
    round.max_in_flight = arm->in_flight;
    round.early = 0;
    round.switches_voluntary = arm->wakeups;
    round.switches_involuntary = round.faults_minor = round.faults_major = 0;
    round.runq_ns = 1500;
    round.cpu_start = round.cpu_end = 1 + worker % 2;
    round.throttles = round.throttled_ns = 0;
    round.steal_ticks = group->mishap == STOLEN && block == 4;
    round.frequency_start_khz = 3600000;
    round.frequency_end_khz = 3540000; /* as it goes */
    if (!is_harness) {
        fill_waits(group, &round);
        fill_failure(group, arm, &round);
        disturb(group, arm_index, block, worker, &round);
    }
    return round;
}

/* All blocks of one worker, in one part. */
static int put_blocks(struct store *store, const struct group *group, int64_t number, int64_t first_cell,
                      int64_t attempt, int64_t worker, struct error *err)
{
    static struct wire_round rounds[MOST_BLOCKS * (MOST_ARMS + 1)];
    struct wire_result result = {
        .group = number, .attempt = attempt, .part = 0, .last = true, .rounds = rounds, .round_count = 0};
    for (int64_t block = 0; block < group->blocks; block++)
        for (int64_t arm = 0; arm <= (int64_t)arm_count(group); arm++)
            rounds[result.round_count++] = make_round(group, first_cell, arm, worker, block);
    bool fresh;
    return store_put_result(store, worker, &result, &fresh, err);
}

static int put_ready(struct store *store, const struct group *group, int64_t number, int64_t first_cell,
                     int64_t attempt, int64_t worker, struct error *err)
{
    static char unconverged[] = "warmup_unconverged", unstable[] = "calibration_unstable";
    static char *flags[] = {unconverged}, *unstable_flags[] = {unstable};
    struct wire_prepared cells[MOST_ARMS + 1];
    struct wire_ready ready = {.group = number, .attempt = attempt, .cells = cells};
    for (; ready.cell_count <= arm_count(group); ready.cell_count++)
        cells[ready.cell_count] = (struct wire_prepared){.cell = first_cell + (int64_t)ready.cell_count,
                                                         .loops = group->loops,
                                                         .warmups = 3,
                                                         .warmup_ns = 1000000};
    if (group->mishap == FAULTS)
        cells[1].flags = (struct wire_texts){flags, 1};
    if (group->mishap == UNSTABLE)
        cells[1].flags = (struct wire_texts){unstable_flags, 1};
    return store_put_ready(store, worker, &ready, err);
}

/* The slice of one label, whose workers are numbered from first_worker. */
static int put_slice(struct store *store, const struct group *group, int64_t number, int64_t first_cell,
                     int64_t first_worker, struct error *err)
{
    int64_t attempt = 1;
    if (group->mishap == SECOND_TRY) {
        if (put_blocks(store, group, number, first_cell, attempt, first_worker, err) < 0 ||
            store_void_attempt(store, number, attempt, "worker 0 (host box, cpu 1) lost: killed by signal 9",
                               err) < 0)
            return -1;
        attempt++;
    }
    for (int64_t worker = first_worker; worker < first_worker + group->cores; worker++)
        if (put_ready(store, group, number, first_cell, attempt, worker, err) < 0 ||
            put_blocks(store, group, number, first_cell, attempt, worker, err) < 0)
            return -1;
    return 0;
}

static int put_group(struct store *store, const struct group *group, int64_t number, int64_t first_cell,
                     int64_t label_total, struct error *err)
{
    if (group->mishap == GIVEN_UP)
        return store_void_attempt(store, number, 1, "worker 0 (host box, cpu 1) lost: no heartbeat for 3 s",
                                  err) < 0
                   ? -1
                   : store_fail_group(store, number, "worker 0 (host box, cpu 1) lost three times", err);
    for (int64_t label = 0; label < label_total; label++)
        if (put_slice(store, group, number, first_cell + label * ((int64_t)arm_count(group) + 1), label * 2,
                      err) < 0)
            return -1;
    int64_t attempt = group->mishap == SECOND_TRY ? 2 : 1;
    return group->mishap == NOT_FINISHED ? 0 : store_finish_group(store, number, attempt, err);
}

/* ---- the run ---- */

static int put_workers(struct store *store, const struct scenario *scenario, struct error *err)
{
    static char corefan[] = "corefan", corefan_version[] = "0.1.0", libuv_version[] = "1.44.2";
    static char instance[] = "00112233445566778899aabbccddeeff", host[] = "box",
                hostile_host[] = HOSTILE_HOST, boot_id[] = "boot";
    static struct wire_pair versions[] = {{corefan, corefan_version}, {libuv, libuv_version}};
    for (int64_t worker = 0; worker < 2 * label_count(scenario); worker++) {
        const struct wire_hello hello = {.instance = instance,
                                         .runtime = labels_of(scenario)[worker / 2].kind,
                                         .label = labels_of(scenario)[worker / 2].name,
                                         .host = labels_of(scenario) == two ? hostile_host : host,
                                         .boot_id = boot_id,
                                         .pid = 4000 + worker,
                                         .slot = worker,
                                         .cpu = 1 + worker % 2,
                                         .package = 0,
                                         .numa = WIRE_NULL,
                                         .core = 1 + worker % 2,
                                         .l3 = 0,
                                         .versions = {versions, 2},
                                         .wall_clock_cost_ps = 31250,
                                         .cpu_clock_cost_ps = 702000,
                                         .timer_overshoot_p50_ns = 58000,
                                         .timer_overshoot_max_ns = 90000,
                                         .spin_gap_max_ns = worker ? WIRE_NULL : 4100,
                                         .busy_heartbeats = true};
        if (store_put_worker(store, worker, &hello, err) < 0)
            return -1;
    }
    return 0;
}

/* What doctor found on the host: little, much, or nothing. */
static const struct {
    const char *scenario, *severity, *id, *what;
} found[] = {
    {"lab", "warning", "turbo", "turbo is on (/sys/no_turbo)"},
    {"lab", "note", "affinity", "this process may use 3 of 4 CPUs (0-2)"},
    {"failure", "severe", "cgroup_quota", "a cgroup quota allows 1 CPUs, 2 are to be measured"},
    {"troubled", "severe", "cgroup_quota", "a quota"},
    {"troubled", "warning", "steal", "steal"},
    {"troubled", "warning", "busy_neighbours", "busy"},
    {"troubled", "note", "no_pmu", "no hardware counters"},
    {"troubled", "warning", "aslr\\u001b[2J", "off"},
};

/* free() it. */
static char *environment_of(const struct scenario *scenario)
{
    char *findings = memory_text("");
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        if (strcmp(found[i].scenario, scenario->name) != 0)
            continue;
        char *longer = memory_format("%s%s{\"id\": \"%s\", \"severity\": \"%s\", \"what\": \"%s\", "
                                     "\"why\": \"it disturbs\", \"remedy\": \"mend %s\"}",
                                     findings, *findings ? ", " : "", found[i].id, found[i].severity,
                                     found[i].what, found[i].id);
        free(findings);
        findings = longer;
    }
    char *text = memory_format("[{\"host\": \"box\", \"governor\": null, \"governor_null_reason\": "
                               "\"no_cpufreq\", \"findings\": [%s]}]",
                               findings);
    free(findings);
    return text;
}

static int put_facts(struct store *store, const struct scenario *scenario, struct error *err)
{
    scoped_free char *environment = environment_of(scenario);
    const struct {
        const char *key, *value;
    } facts[] = {{"run_id", "golden"},
                 {"started_at", "2026-01-02T03:04:05Z"},
                 {"finished_at", "2026-01-02T03:05:06Z"},
                 {"tool_version", "0.1.0"},
                 {"argv", "[\"corefan\", \"run\"]"},
                 {"environment", environment},
                 {"reserved_cpus", "0"},
                 {"status", scenario->interrupted ? "interrupted" : "complete"}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (store_put_fact(store, facts[i].key, facts[i].value, err) < 0)
            return -1;
    if (strcmp(scenario->name, "gated") != 0)
        return 0;
    return store_put_fact(store, "sweep", gated_sweep, err) < 0
               ? -1
               : store_put_fact(store, "elapsed_ns", "252123456789", err);
}

static int fill(struct store *store, const struct scenario *scenario, const struct plan *plan,
                struct error *err)
{
    if (put_facts(store, scenario, err) < 0 || store_put_plan(store, plan, err) < 0 ||
        put_workers(store, scenario, err) < 0)
        return -1;
    int64_t first_cell = 0;
    for (size_t i = 0; i < scenario->group_count; i++) {
        if (put_group(store, &scenario->groups[i], (int64_t)i, first_cell, label_count(scenario), err) < 0)
            return -1;
        first_cell += label_count(scenario) * ((int64_t)arm_count(&scenario->groups[i]) + 1);
    }
    return 0;
}

static int make(const char *dir, const struct scenario *scenario, struct error *err)
{
    struct store *store;
    if (store_create(dir, &store, err) < 0)
        return -1;
    struct plan *plan = make_plan(scenario);
    int result = fill(store, scenario, plan, err);
    free_plan(plan);
    store_close(store);
    return result;
}

int main(int argc, char **argv)
{
    struct error err = {.kind = ERROR_USAGE, .text = "usage: make_run DIR SCENARIO"};
    for (size_t i = 0; argc == 3 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(scenarios[i].name, argv[2]) == 0 && make(argv[1], &scenarios[i], &err) == 0)
            return 0;
    (void)fprintf(stderr, "make_run: %s\n", err.text);
    return 1;
}
