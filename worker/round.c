#include "worker/round.h"

#include "base/clock.h"
#include "base/memory.h"
#include "worker/median.h"
#include "worker/proof.h"

#include <stdlib.h>

/* What the clocks said, and how the fan-outs ended. */
struct timing {
    int64_t launch_ns, return_ns; /* on the runtime's clock */
    int64_t wall0_ns, cpu0_ns, cpu1_ns, wall1_ns;
    struct outcome outcome;
};

void round_bench_init(struct round_bench *bench, struct runtime *runtime, const struct counters *counters,
                      const struct wire_cell *cell, const struct arm *arm, struct slab *slab)
{
    *bench = (struct round_bench){
        .runtime = runtime, .counters = counters, .cell = cell, .arm = arm, .slab = slab, .loops = 1};
    struct coro *inner = &slab->fanout->coro;
    if (cell->timeout_ns > 0) {
        timeout_init(&bench->timeout, inner, cell->timeout_ns);
        inner = &bench->timeout.coro;
    }
    repeat_init(&bench->repeat, inner, 1);
}

/* Between the clock reads: the fan-outs and nothing else. */
static int time_fanouts(struct round_bench *bench, int64_t loops, struct timing *ret, struct error *err)
{
    bench->repeat.times = (uint64_t)loops;
    ret->launch_ns = runtime_now(bench->runtime);
    ret->wall0_ns = clock_monotonic_ns();
    ret->cpu0_ns = clock_thread_cpu_ns();
    int rc = repeat_run(bench->runtime, &bench->repeat, &ret->outcome, err);
    ret->cpu1_ns = clock_thread_cpu_ns();
    ret->wall1_ns = clock_monotonic_ns();
    ret->return_ns = runtime_now(bench->runtime);
    return rc;
}

int64_t round_cpu_ns(struct round_bench *bench, int64_t loops, struct error *err)
{
    struct timing timing;
    fanout_bind(bench->slab->fanout, bench->arm->resume);
    if (time_fanouts(bench, loops, &timing, err) < 0)
        return -1;
    if (timing.outcome.kind != OUTCOME_OK)
        return error_set(err, ERROR_INTERNAL, "'%s' failed while it was calibrated", bench->cell->arm);
    return timing.cpu1_ns - timing.cpu0_ns;
}

static void draw_failing(struct slab *slab, struct rng *chance)
{
    if (!slab->failing)
        return;
    for (int64_t i = 0; i < slab->cell->fanout; i++)
        slab->failing[i] = rng_unit(chance) < slab->cell->fail.fraction;
    job_choose_failing(slab->children, slab->failing);
}

static void book_waits(const struct round_bench *bench, struct wire_round *round)
{
    const struct wait_statistics *waits = &bench->runtime->waits;
    round->early = (int64_t)waits->early;
    if (waits->count == 0)
        return;
    round->overshoot_min_ns = waits->overshoot_min_ns;
    round->overshoot_max_ns = waits->overshoot_max_ns;
    if (waits->log)
        round->overshoot_p50_ns =
            median_ns(waits->log, waits->count < waits->log_capacity ? waits->count : waits->log_capacity);
}

/* How late are those that wait beside children that hold the loop?  Where all are started at once, a child
 * that holds the loop before the others get to their waits delays them too: what counts is when the fan-out
 * was started. */
static int64_t late_ns(const struct round_bench *bench, const struct timing *timing, uint32_t i)
{
    const struct job_children *children = bench->slab->children;
    return bench->arm->concurrent ? job_late_ns(children, i, timing->launch_ns)
                                  : job_overshoot_ns(children, i);
}

static void book_stall(const struct round_bench *bench, const struct timing *timing, struct wire_round *round)
{
    const struct slab *slab = bench->slab;
    size_t count = 0;
    if (!slab->cell->stall.present || !slab->overshoots_ns || bench->arm->harness)
        return;
    for (uint32_t i = 0; i < (uint32_t)slab->cell->fanout; i++) {
        int64_t late = late_ns(bench, timing, i);
        if (late != LEAF_NOT_WAITED && !job_is_stalling(slab->children, i))
            slab->overshoots_ns[count++] = late;
    }
    round->stall_overshoot_p50_ns = median_ns(slab->overshoots_ns, count);
}

/* What is left of the fan-out is driven to its end; where nothing is, that costs nothing by definition. */
static int book_orphans(struct round_bench *bench, const struct timing *timing, struct wire_round *round,
                        struct error *err)
{
    struct fanout *fanout = bench->slab->fanout;
    round->orphans = (int64_t)fanout_in_flight(fanout);
    int64_t cpu_ns = clock_thread_cpu_ns();
    if (fanout_drain(bench->runtime, fanout, err) < 0)
        return -1;
    cpu_ns = clock_thread_cpu_ns() - cpu_ns;
    round->wasted_cpu_ns = round->orphans ? cpu_ns : 0;
    round->drain_ns = round->orphans ? clock_monotonic_ns() - timing->wall1_ns : 0;
    return 0;
}

/* Who was told of what?  A timeout is an error of its own: the arm inside it ended cancelled. */
static void book_errors(const struct round_bench *bench, const struct timing *timing,
                        struct wire_round *round)
{
    struct outcome outcome = timing->outcome;
    bool timed_out = outcome.kind == OUTCOME_TIMEOUT;
    if (timed_out)
        outcome = (struct outcome){OUTCOME_CANCELLED, 0};
    struct fanout_errors errors = fanout_errors(bench->slab->fanout, outcome, bench->arm->keeps_errors);
    round->errors_seen = (int64_t)errors.seen + timed_out;
    round->errors_lost = (int64_t)errors.lost;
    if (timing->outcome.kind != OUTCOME_OK || errors.seen > 0)
        round->time_to_error_ns = timing->wall1_ns - timing->wall0_ns;
}

/* The arm has returned: what is still running, what does it cost, who learns of the errors? */
static int book_failures(struct round_bench *bench, const struct timing *timing, struct wire_round *round,
                         struct error *err)
{
    bool failed = timing->outcome.kind != OUTCOME_OK;
    bool may_fail = bench->cell->fail.present || bench->cell->timeout_ns > 0;
    if (!failed && (!may_fail || bench->arm->harness))
        return 0;
    if (book_orphans(bench, timing, round, err) < 0)
        return -1;
    book_errors(bench, timing, round);
    return 0;
}

/* Failures that nobody asked for, and a broken structural proof. */
static void judge(const struct round_bench *bench, const struct timing *timing, struct wire_round *round)
{
    char text[256];
    struct proof_facts facts = {.waits = bench->slab->job->waits,
                                .waits_ended = (int64_t)bench->runtime->waits.count,
                                .most_waiting = (int64_t)bench->runtime->waits.most_waiting,
                                .span_ns = timing->return_ns - timing->launch_ns};
    bool may_fail = bench->cell->fail.present || bench->cell->timeout_ns > 0;
    if (timing->outcome.kind != OUTCOME_OK && !may_fail)
        round->error = memory_format("%s ended with an error after %llu of %lld fan-outs", bench->cell->arm,
                                     (unsigned long long)bench->repeat.done, (long long)bench->loops);
    else if (proof_judge(bench->cell, &facts, round, text, sizeof text))
        round->error = memory_text(text);
}

int round_run(struct round_bench *bench, struct rng *chance, struct wire_round *ret, struct error *err)
{
    struct runtime *runtime = bench->runtime;
    struct fanout *fanout = bench->slab->fanout;
    struct counters_sample before, after;
    struct timing timing;
    wire_round_init(ret);
    draw_failing(bench->slab, chance);
    fanout_bind(fanout, bench->arm->resume);
    fanout->siblings.max_in_flight = 0;
    runtime->waits.log = bench->slab->overshoots_ns;
    runtime->waits.log_capacity = bench->slab->overshoots_ns ? (size_t)bench->cell->fanout : 0;
    runtime_waits_clear(runtime);
    uint64_t wakeups = runtime->wakeups;

    counters_read(bench->counters, &before);
    int rc = time_fanouts(bench, bench->loops, &timing, err);
    counters_read(bench->counters, &after);
    if (rc < 0)
        return -1;

    ret->start_ns = timing.wall0_ns;
    ret->wall_ns = timing.wall1_ns - timing.wall0_ns;
    ret->cpu_ns = timing.cpu1_ns - timing.cpu0_ns;
    ret->fanouts = bench->loops;
    ret->wakeups = (int64_t)(runtime->wakeups - wakeups);
    ret->max_in_flight = (int64_t)fanout->siblings.max_in_flight;
    counters_fill(&before, &after, ret);
    if (book_failures(bench, &timing, ret, err) < 0)
        return -1;
    book_waits(bench, ret);
    book_stall(bench, &timing, ret);
    judge(bench, &timing, ret);
    return 0;
}
