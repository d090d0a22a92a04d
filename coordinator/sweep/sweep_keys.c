#include "coordinator/sweep/sweep_keys.h"

#include "base/nearest.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#define COUNT_OF(table) (sizeof(table) / sizeof((table)[0]))
#define HOUR_NS         (3600 * NS_PER_S)

static const struct sweep_word job_words[] = {
    {.name = "noop", .job = SWEEP_JOB_NOOP},
    {.name = "sleep", .job = SWEEP_JOB_SLEEP},
    {.name = "cpu", .job = SWEEP_JOB_CPU},
    {.name = "tcp", .job = SWEEP_JOB_TCP, .later = true},
    {.name = "http", .job = SWEEP_JOB_HTTP, .later = true},
    {.name = NULL},
};

static const struct sweep_word arm_words[] = {
    {.name = "sequential"}, {.name = "gather"},    {.name = "gather-return-exceptions"},
    {.name = "tasks"},      {.name = "taskgroup"}, {.name = NULL},
};

static const struct sweep_word runtime_words[] = {
    {.name = "libuv"}, {.name = "asyncio"}, {.name = "uvloop"}, {.name = NULL}};

static const struct sweep_word core_words[] = {{.name = "all"}, {.name = "ladder"}, {.name = NULL}};
static const struct sweep_word expect_core_words[] = {{.name = "all"}, {.name = NULL}};
static const struct sweep_word client_words[] = {{.name = "ladder"}, {.name = NULL}};
static const struct sweep_word placement_words[] = {{.name = "compact"}, {.name = "spread"}, {.name = NULL}};
static const struct sweep_word round_words[] = {{.name = "auto"}, {.name = NULL}};
static const struct sweep_word phase_words[] = {{.name = "together"}, {.name = "staggered"}, {.name = NULL}};
static const struct sweep_word arrival_words[] = {{.name = "poisson"}, {.name = "fixed"}, {.name = NULL}};
static const struct sweep_word wait_words[] = {{.name = "timerfd"}, {.name = "uv_timer"}, {.name = NULL}};
static const struct sweep_word gc_words[] = {
    {.name = "on"}, {.name = "off"}, {.name = "freeze"}, {.name = NULL}};
static const struct sweep_word outcome_words[] = {{.name = "fail"}, {.name = "cancel"}, {.name = NULL}};
static const struct sweep_word on_cancel_words[] = {
    {.name = "propagate"}, {.name = "suppress"}, {.name = "cleanup"}, {.name = NULL}};

/* As summary.json names them, per fan-out; of an estimate its p50. */
static const struct sweep_word metric_words[] = {
    {.name = "wall_ns"},
    {.name = "wall_ns.p90"},
    {.name = "wall_ns.p99"},
    {.name = "wall_ns.max"},
    {.name = "cpu_ns"},
    {.name = "cpu_ns.max"},
    {.name = "cpu_net_ns"},
    {.name = "harness_ns"},
    {.name = "over_ideal_x"},
    {.name = "speedup_x"},
    {.name = "speedup_block_x"},
    {.name = "max_in_flight"},
    {.name = "wakeups_per_fanout"},
    {.name = "throughput_per_s"},
    {.name = "throughput_per_s_core"},
    {.name = "utilization"},
    {.name = "ceiling_per_s_core"},
    {.name = "core_utilization"},
    {.name = "achieved_x"},
    {.name = "lag_max_ns"},
    {.name = "intended_wall_ns.p99"},
    {.name = "intended_wall_ns.max"},
    {.name = NULL},
};

static const struct sweep_key job_keys[] = {
    [SWEEP_JOB_KIND] = {.name = "kind",
                        .help = "kind of the job",
                        .type = SWEEP_TYPE_WORD,
                        .required = true,
                        .open = true,
                        .words = job_words},
};

static const struct sweep_key runtime_keys[] = {
    [SWEEP_RUNTIME_KIND] = {.name = "kind",
                            .help = "libuv, asyncio or uvloop",
                            .type = SWEEP_TYPE_WORD,
                            .required = true,
                            .words = runtime_words},
    [SWEEP_RUNTIME_LABEL] = {.name = "label", .help = "its name in reports", .type = SWEEP_TYPE_NAME},
    [SWEEP_RUNTIME_PYTHON] = {.name = "python", .help = "path of the interpreter", .type = SWEEP_TYPE_TEXT},
    [SWEEP_RUNTIME_EAGER] = {.name = "eager",
                             .help = "eager tasks (CPython 3.12 and later)",
                             .type = SWEEP_TYPE_FLAG},
    [SWEEP_RUNTIME_JOBS] = {.name = "jobs",
                            .help = "own coroutines by name, each as module:function",
                            .type = SWEEP_TYPE_PAIRS},
    [SWEEP_RUNTIME_PATH] = {.name = "path",
                            .help = "directory that they are imported from",
                            .type = SWEEP_TYPE_TEXT},
};

static const struct sweep_key fail_keys[] = {
    [SWEEP_FAIL_CHILDREN] = {.name = "children",
                             .help = "the first k in input order",
                             .type = SWEEP_TYPE_COUNT,
                             .least = 1,
                             .most = 1000000},
    [SWEEP_FAIL_FRACTION] = {.name = "fraction",
                             .help = "of the children, drawn in each round",
                             .type = SWEEP_TYPE_FRACTION},
    [SWEEP_FAIL_AT] = {.name = "at",
                       .help = "when, from the child's own start; left out: at the end of its delay",
                       .type = SWEEP_TYPE_DURATION,
                       .most = HOUR_NS},
    [SWEEP_FAIL_OUTCOME] = {.name = "outcome",
                            .help = "raise an error, or end cancelled",
                            .type = SWEEP_TYPE_WORD,
                            .fallback = "fail",
                            .words = outcome_words},
    [SWEEP_FAIL_ON_CANCEL] = {.name = "on_cancel",
                              .help = "what a child does when it is cancelled",
                              .type = SWEEP_TYPE_WORD,
                              .fallback = "propagate",
                              .words = on_cancel_words},
    [SWEEP_FAIL_CLEANUP] = {.name = "cleanup",
                            .help = "how long on_cancel: cleanup goes on",
                            .type = SWEEP_TYPE_DURATION,
                            .least = 1,
                            .most = HOUR_NS},
};

static const struct sweep_key stall_keys[] = {
    [SWEEP_STALL_CHILDREN] = {.name = "children",
                              .help = "the first k in input order",
                              .type = SWEEP_TYPE_COUNT,
                              .required = true,
                              .least = 1,
                              .most = 1000000},
    [SWEEP_STALL_CPU] = {.name = "cpu",
                         .help = "how long each of them holds the loop before it waits",
                         .type = SWEEP_TYPE_DURATION,
                         .required = true,
                         .least = 1,
                         .most = HOUR_NS},
};

static const struct sweep_key ladder_keys[] = {
    [SWEEP_LADDER_MOST] = {.name = "ladder",
                           .help = "1, 2, 4, ... up to this many, or until an arm was saturated on two rungs",
                           .type = SWEEP_TYPE_COUNT,
                           .required = true,
                           .least = 2,
                           .most = SWEEP_MAX_CLIENTS},
};

static const struct sweep_key expect_keys[] = {
    [SWEEP_EXPECT_JOB] = {.name = "job", .help = "kind of the job", .type = SWEEP_TYPE_NAME, .list = true},
    [SWEEP_EXPECT_FANOUT] = {.name = "fanout",
                             .help = "children of a fan-out",
                             .type = SWEEP_TYPE_COUNT,
                             .list = true,
                             .least = 1,
                             .most = 1000000},
    [SWEEP_EXPECT_DELAY] = {.name = "delay",
                            .help = "delay of a child",
                            .type = SWEEP_TYPE_DURATION,
                            .list = true,
                            .least = 1,
                            .most = HOUR_NS},
    [SWEEP_EXPECT_RUNTIME] = {.name = "runtime",
                              .help = "label of the runtime",
                              .type = SWEEP_TYPE_NAME,
                              .list = true},
    [SWEEP_EXPECT_ARM] =
        {.name = "arm", .help = "arm", .type = SWEEP_TYPE_WORD, .list = true, .words = arm_words},
    [SWEEP_EXPECT_CLIENTS] = {.name = "clients",
                              .help = "concurrent fan-outs per core",
                              .type = SWEEP_TYPE_COUNT,
                              .list = true,
                              .least = 1,
                              .most = SWEEP_MAX_CLIENTS},
    [SWEEP_EXPECT_RATE] = {.name = "rate",
                           .help = "fan-outs per second and core, or a part of the ceiling, as in the sweep",
                           .type = SWEEP_TYPE_RATE,
                           .list = true},
    [SWEEP_EXPECT_DURATION] = {.name = "duration",
                               .help = "length of a window",
                               .type = SWEEP_TYPE_DURATION,
                               .list = true,
                               .least = NS_PER_MS,
                               .most = HOUR_NS},
    [SWEEP_EXPECT_WAIT] =
        {.name = "wait", .help = "timer source", .type = SWEEP_TYPE_WORD, .list = true, .words = wait_words},
    [SWEEP_EXPECT_GC] =
        {.name = "gc", .help = "garbage collector", .type = SWEEP_TYPE_WORD, .list = true, .words = gc_words},
    [SWEEP_EXPECT_CORES] = {.name = "cores",
                            .help = "cores at the same time",
                            .type = SWEEP_TYPE_COUNT,
                            .list = true,
                            .wants = "a whole number or 'all'",
                            .least = 1,
                            .most = 65536,
                            .words = expect_core_words},
    [SWEEP_EXPECT_METRIC] = {.name = "metric",
                             .help = "figure of the summary, per fan-out",
                             .type = SWEEP_TYPE_WORD,
                             .required = true,
                             .words = metric_words},
    [SWEEP_EXPECT_MIN] = {.name = "min", .help = "the least that passes", .type = SWEEP_TYPE_NUMBER},
    [SWEEP_EXPECT_MAX] = {.name = "max", .help = "the most that passes", .type = SWEEP_TYPE_NUMBER},
};

static const struct sweep_key top_keys[] = {
    [SWEEP_JOB] = {.name = "job",
                   .help = "what each child does: noop returns at once, sleep waits, cpu burns",
                   .type = SWEEP_TYPE_MAP,
                   .list = true,
                   .identity = true,
                   .jobs = SWEEP_JOB_ALL,
                   .wants = "the name of a job or a map",
                   .map = &sweep_job_type},
    [SWEEP_FANOUT] = {.name = "fanout",
                      .help = "children of a fan-out",
                      .type = SWEEP_TYPE_COUNT,
                      .list = true,
                      .identity = true,
                      .jobs = SWEEP_JOB_ALL,
                      .needed_by = SWEEP_JOB_ALL,
                      .least = 1,
                      .most = 1000000},
    [SWEEP_DELAY] = {.name = "delay",
                     .help = "how long a child waits (sleep) or burns (cpu)",
                     .type = SWEEP_TYPE_DURATION,
                     .list = true,
                     .identity = true,
                     .jobs = SWEEP_JOB_SLEEP | SWEEP_JOB_CPU,
                     .needed_by = SWEEP_JOB_SLEEP | SWEEP_JOB_CPU,
                     .least = 1,
                     .most = HOUR_NS},
    [SWEEP_RUNTIMES] = {.name = "runtimes",
                        .help = "loops that the arms run on; a map for more: {kind: asyncio, eager: true}",
                        .type = SWEEP_TYPE_MAP,
                        .list = true,
                        .identity = true,
                        .jobs = SWEEP_JOB_ALL,
                        .fallback = "[libuv]",
                        .wants = "the name of a runtime or a map",
                        .map = &sweep_runtime_type},
    [SWEEP_ARMS] = {.name = "arms",
                    .help = "ways to await the children",
                    .type = SWEEP_TYPE_WORD,
                    .list = true,
                    .identity = true,
                    .jobs = SWEEP_JOB_ALL,
                    .fallback = "[sequential, gather, taskgroup]",
                    .words = arm_words},
    [SWEEP_CLIENTS] = {.name = "clients",
                       .help =
                           "concurrent fan-outs per core, closed loop; ladder = 1, 2, 4, ... until saturated",
                       .type = SWEEP_TYPE_COUNT,
                       .list = true,
                       .identity = true,
                       .jobs = SWEEP_JOB_ALL,
                       .fallback = "1",
                       .wants = "a whole number, 'ladder' or {ladder: N}",
                       .least = 1,
                       .most = SWEEP_MAX_CLIENTS,
                       .words = client_words,
                       .map = &sweep_ladder_type},
    [SWEEP_PHASE] = {.name = "phase",
                     .help = "clients start together, or spread over a delay",
                     .type = SWEEP_TYPE_WORD,
                     .list = true,
                     .identity = true,
                     .jobs = SWEEP_JOB_ALL,
                     .fallback = "together",
                     .words = phase_words},
    [SWEEP_RATE] = {.name = "rate",
                    .help = "fan-outs per second and core, open loop; 0.5x is a part of the measured ceiling",
                    .type = SWEEP_TYPE_RATE,
                    .list = true,
                    .identity = true,
                    .jobs = SWEEP_JOB_ALL},
    [SWEEP_ARRIVALS] = {.name = "arrivals",
                        .help = "how the starts of 'rate' are spread",
                        .type = SWEEP_TYPE_WORD,
                        .list = true,
                        .identity = true,
                        .jobs = SWEEP_JOB_ALL,
                        .fallback = "poisson",
                        .words = arrival_words},
    [SWEEP_DURATION] = {.name = "duration",
                        .help = "length of a window of 'clients' or 'rate'; 2s when left out",
                        .type = SWEEP_TYPE_DURATION,
                        .list = true,
                        .identity = true,
                        .jobs = SWEEP_JOB_ALL,
                        .least = NS_PER_MS,
                        .most = HOUR_NS},
    [SWEEP_WAIT] = {.name = "wait",
                    .help = "timer source of libuv's sleep",
                    .type = SWEEP_TYPE_WORD,
                    .list = true,
                    .identity = true,
                    .jobs = SWEEP_JOB_SLEEP,
                    .fallback = "timerfd",
                    .words = wait_words},
    [SWEEP_FAIL] = {.name = "fail",
                    .help = "children that end badly: {children: 1, at: 2ms} or {fraction: 0.1}",
                    .type = SWEEP_TYPE_MAP,
                    .list = true,
                    .identity = true,
                    .jobs = SWEEP_JOB_SLEEP,
                    .map = &sweep_fail_type},
    [SWEEP_STALL] = {.name = "stall",
                     .help = "children that hold the loop: {children: 1, cpu: 3ms}",
                     .type = SWEEP_TYPE_MAP,
                     .list = true,
                     .identity = true,
                     .jobs = SWEEP_JOB_SLEEP,
                     .map = &sweep_stall_type},
    [SWEEP_TIMEOUT] = {.name = "timeout",
                       .help = "per fan-out",
                       .type = SWEEP_TYPE_DURATION,
                       .list = true,
                       .identity = true,
                       .jobs = SWEEP_JOB_SLEEP | SWEEP_JOB_SOCKETS | SWEEP_JOB_OWN,
                       .least = 1,
                       .most = HOUR_NS},
    [SWEEP_GC] = {.name = "gc",
                  .help = "Python's garbage collector; left out: off for noop, on for all else",
                  .type = SWEEP_TYPE_WORD,
                  .list = true,
                  .identity = true,
                  .jobs = SWEEP_JOB_ALL,
                  .words = gc_words},
    [SWEEP_CORES] = {.name = "cores",
                     .help = "how many workers run a cell at the same time; ladder = 1, 2, 4, ... all",
                     .type = SWEEP_TYPE_COUNT,
                     .list = true,
                     .identity = true,
                     .jobs = SWEEP_JOB_ALL,
                     .fallback = "[1]",
                     .wants = "a whole number, 'all' or 'ladder'",
                     .least = 1,
                     .most = 65536,
                     .words = core_words},
    [SWEEP_ROUNDS] = {.name = "rounds",
                      .help =
                          "timed values per cell, worker and process: blocks; auto goes on until 'precision'",
                      .type = SWEEP_TYPE_COUNT,
                      .jobs = SWEEP_JOB_ALL,
                      .fallback = "9",
                      .wants = "a whole number or 'auto'",
                      .least = 1,
                      .most = 100000,
                      .words = round_words},
    [SWEEP_PRECISION] =
        {.name = "precision",
         .help = "of rounds: auto: largest half-width of a p50 interval, over the p50; 2% when left out",
         .type = SWEEP_TYPE_FRACTION,
         .jobs = SWEEP_JOB_ALL},
    [SWEEP_WARMUP] = {.name = "warmup",
                      .help = "rounds thrown away before, at least",
                      .type = SWEEP_TYPE_COUNT,
                      .jobs = SWEEP_JOB_ALL,
                      .fallback = "2",
                      .most = 100000},
    [SWEEP_PROCESSES] =
        {.name = "processes",
         .help = "fresh worker processes per cell, each measures all its rounds: n = rounds x cores x "
                 "processes; above 1 the process is the unit of intervals",
         .type = SWEEP_TYPE_COUNT,
         .jobs = SWEEP_JOB_ALL,
         .fallback = "1",
         .least = 1,
         .most = 1000},
    [SWEEP_NAME] = {.name = "name", .help = "name of the sweep and of its runs", .type = SWEEP_TYPE_NAME},
    [SWEEP_SEED] = {.name = "seed",
                    .help = "of every order and draw",
                    .type = SWEEP_TYPE_COUNT,
                    .fallback = "1",
                    .most = 1000000000000000000},
    [SWEEP_PLACEMENT] = {.name = "placement",
                         .help = "which CPUs gangs of local workers grow over: neighbours first, as far "
                                 "apart as can be, or a list",
                         .type = SWEEP_TYPE_CPUS,
                         .fallback = "compact",
                         .wants = "compact, spread or a list of CPUs such as 0,2-5",
                         .words = placement_words},
    [SWEEP_MATRIX] = {.name = "matrix",
                      .help = "entries, each a map of keys of cells; each multiplies out its lists",
                      .type = SWEEP_TYPE_MAP,
                      .list = true,
                      .wants = "a list of maps",
                      .map = &sweep_entry_type},
    [SWEEP_EXPECT] = {.name = "expect",
                      .help = "thresholds: {arm: gather, metric: over_ideal_x, max: 1.05}",
                      .type = SWEEP_TYPE_MAP,
                      .list = true,
                      .wants = "a list of maps",
                      .map = &sweep_expect_type},
};
_Static_assert(COUNT_OF(top_keys) == SWEEP_TOP_KEYS, "a key of the top has no line in the table");

#define MAP_TYPE(name_in_messages, table, bare)                                                              \
    {                                                                                                        \
        .title = (name_in_messages), .keys = (table), .count = COUNT_OF(table), .shorthand = (bare)          \
    }
#define NO_SHORTHAND SIZE_MAX

const struct sweep_map_type sweep_top_type = MAP_TYPE("a sweep", top_keys, NO_SHORTHAND);
const struct sweep_map_type sweep_entry_type = {
    .title = "a matrix entry", .keys = top_keys, .count = SWEEP_CELL_KEYS, .shorthand = NO_SHORTHAND};
const struct sweep_map_type sweep_job_type = MAP_TYPE("a job", job_keys, SWEEP_JOB_KIND);
const struct sweep_map_type sweep_runtime_type = MAP_TYPE("a runtime", runtime_keys, SWEEP_RUNTIME_KIND);
const struct sweep_map_type sweep_fail_type = MAP_TYPE("'fail'", fail_keys, NO_SHORTHAND);
const struct sweep_map_type sweep_stall_type = MAP_TYPE("'stall'", stall_keys, NO_SHORTHAND);
const struct sweep_map_type sweep_ladder_type = MAP_TYPE("a ladder", ladder_keys, NO_SHORTHAND);
const struct sweep_map_type sweep_expect_type = MAP_TYPE("a threshold", expect_keys, NO_SHORTHAND);

const struct sweep_word *sweep_find_word(const struct sweep_word *words, const char *name)
{
    for (; words && words->name; words++)
        if (strcmp(words->name, name) == 0)
            return words;
    return NULL;
}

size_t sweep_find_key(const struct sweep_map_type *type, const char *name)
{
    size_t i = 0;
    while (i < type->count && strcmp(type->keys[i].name, name) != 0)
        i++;
    return i;
}

const char *sweep_nearest_key(const struct sweep_map_type *type, const char *written)
{
    struct nearest nearest = {.written = written};
    for (size_t i = 0; i < type->count; i++)
        nearest_consider(&nearest, type->keys[i].name);
    return nearest.name;
}

const char *sweep_nearest_word(const struct sweep_word *words, const char *written)
{
    struct nearest nearest = {.written = written};
    for (; words && words->name; words++)
        nearest_consider(&nearest, words->name);
    return nearest.name;
}

char *sweep_list_words(const struct sweep_word *words, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (; words && words->name; words++) {
        if (words->later || used >= size)
            continue;
        int n = snprintf(buf + used, size - used, "%s%s", used ? ", " : "", words->name);
        used += n > 0 ? (size_t)n : 0;
    }
    return buf;
}
