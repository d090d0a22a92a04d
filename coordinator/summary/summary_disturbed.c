/* What disturbed a round, from the raw values that came with it.  (METHOD: disturbed rounds.) */
#include "coordinator/summary/summary_internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define DELAY_LEAST_NS      (20 * NS_PER_US)
#define LATENESS_LEAST_NS   (2 * NS_PER_MS)
#define FAULT_NS            NS_PER_US /* about what a minor fault costs */
#define FREQUENCY_MOST_PART 50        /* a fiftieth: 2 % */

/* A round and what it was meant to be. */
struct judged_round {
    const struct wire_round *raw;
    const struct store_cell *plan;
    int64_t pinned_cpu; /* WIRE_NULL when the worker is not */
};

static int64_t known_or_0(int64_t value)
{
    return value == WIRE_NULL ? 0 : value;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Rounds bear as much, or 1 % of their wall time. */
static int64_t bearable_ns(const struct wire_round *raw, int64_t least_ns)
{
    return larger(raw->wall_ns / 100, least_ns);
}

/* While its group is throttled a thread stands in the run queue, in the kernel's books: that time is told as
 * throttling, not twice. */
static bool was_kept_waiting(const struct judged_round *round)
{
    const struct wire_round *raw = round->raw;
    return known_or_0(raw->runq_ns) - known_or_0(raw->throttled_ns) > bearable_ns(raw, DELAY_LEAST_NS);
}

static bool was_elsewhere(int64_t cpu, int64_t wanted)
{
    return cpu != WIRE_NULL && wanted != WIRE_NULL && cpu != wanted;
}

static bool was_migrated(const struct judged_round *round)
{
    const struct wire_round *raw = round->raw;
    return was_elsewhere(raw->cpu_end, raw->cpu_start) || was_elsewhere(raw->cpu_start, round->pinned_cpu);
}

/* A window holds many fan-outs: minor faults count once they may have cost 1 % of its CPU time. */
static bool has_faulted(const struct judged_round *round)
{
    const struct wire_round *raw = round->raw;
    int64_t bearable = is_window(round->plan) ? raw->cpu_ns / 100 / FAULT_NS : 0;
    return known_or_0(raw->faults_minor) > bearable || known_or_0(raw->faults_major) > 0;
}

static bool was_throttled(const struct judged_round *round)
{
    return known_or_0(round->raw->throttles) > 0 || known_or_0(round->raw->throttled_ns) > 0;
}

static bool was_stolen_from(const struct judged_round *round)
{
    return known_or_0(round->raw->steal_ticks) > 0;
}

static bool has_changed_frequency(const struct judged_round *round)
{
    int64_t start = round->raw->frequency_start_khz, end = round->raw->frequency_end_khz;
    return start != WIRE_NULL && end != WIRE_NULL && llabs(end - start) > start / FREQUENCY_MOST_PART;
}

/* ---- gaps ---- */

/* Its thread is never idle by its own will. */
static bool never_waits(const struct store_cell *plan)
{
    const struct wire_cell *spec = &plan->spec;
    if (plan->harness)
        return true;
    return (strcmp(spec->job, "noop") == 0 || strcmp(spec->job, "cpu") == 0) && !spec->fail.present;
}

/* How long the thread was away where it should have run: all of the wall time that it did not use, or, where it
 * waits, how late its latest wait ended. */
static int64_t absence_ns(const struct judged_round *round)
{
    return never_waits(round->plan) ? round->raw->wall_ns : known_or_0(round->raw->overshoot_max_ns);
}

/* Nobody else ran in its place, no page was fetched, no quota had run out, no hypervisor owns up to it: somebody
 * has stopped this process (SIGSTOP, a debugger, the freezer), or the whole machine stood still.  Lateness is bearable
 * up to 2 ms, since some runtimes count in whole milliseconds. */
static bool has_gap(const struct judged_round *round)
{
    const struct wire_round *raw = round->raw;
    if (round->plan->spec.rate_per_s > 0 || known_or_0(raw->faults_major) > 0 || was_stolen_from(round))
        return false;
    int64_t explained_ns = raw->cpu_ns + larger(known_or_0(raw->runq_ns), known_or_0(raw->throttled_ns));
    int64_t least_ns = never_waits(round->plan) ? DELAY_LEAST_NS : LATENESS_LEAST_NS;
    return absence_ns(round) - explained_ns > bearable_ns(raw, least_ns);
}

unsigned summary_disturbed(const struct wire_round *raw, const struct store_cell *plan, int64_t pinned_cpu)
{
    static bool (*const holds[SUMMARY_ROUND_FLAGS])(const struct judged_round *) = {
        [SUMMARY_FLAG_RUNQ_DELAY] = was_kept_waiting,
        [SUMMARY_FLAG_MIGRATION] = was_migrated,
        [SUMMARY_FLAG_FAULTS] = has_faulted,
        [SUMMARY_FLAG_THROTTLED] = was_throttled,
        [SUMMARY_FLAG_STEAL] = was_stolen_from,
        [SUMMARY_FLAG_FREQUENCY] = has_changed_frequency,
        [SUMMARY_FLAG_GAP] = has_gap,
    };
    const struct judged_round round = {raw, plan, pinned_cpu};
    unsigned flags = 0;
    for (int flag = 0; flag < SUMMARY_ROUND_FLAGS; flag++)
        flags |= (unsigned)holds[flag](&round) << flag;
    return flags;
}
