#include "worker/measure.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "worker/calibrate.h"
#include "worker/noise.h"
#include "worker/round.h"
#include "worker/window.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct measure {
    struct measure_tools tools;
    const struct wire_assign *assign;
    struct slab *slabs; /* room for one per cell; pointed at, so never moved */
    size_t slab_count;
    struct round_bench *benches;  /* one per cell that is timed fan-out by fan-out */
    struct window_bench *windows; /* one per cell that is a window */
    struct crowd **crowds;
    size_t crowd_count;
    struct window_room room; /* zeroed without windows */
    struct wire_prepared *prepared;
    uint32_t *order; /* of the cells in a block */
    int64_t rounds_done;
};

enum { flags_most = 2 };

/* ---- preparing ---- */

static int share_slab(struct measure *measure, const struct wire_cell *cell, struct slab **ret,
                      struct error *err)
{
    for (size_t i = 0; i < measure->slab_count; i++) {
        if (!slab_serves(&measure->slabs[i], cell))
            continue;
        *ret = &measure->slabs[i];
        return 0;
    }
    struct slab *slab = &measure->slabs[measure->slab_count];
    if (slab_open(measure->tools.runtime, cell, slab, err) < 0)
        return -1;
    measure->slab_count++;
    *ret = slab;
    return 0;
}

/* An open loop of any rate makes do with the clients of the fastest one of its kind. */
static size_t size_of_crowd(const struct measure *measure, const struct wire_cell *cell)
{
    const struct wire_assign *assign = measure->assign;
    size_t size = crowd_size(cell);
    for (size_t i = 0; cell->rate_per_s > 0 && i < assign->cell_count; i++) {
        const struct wire_cell *other = &assign->cells[i];
        if (crowd_alike(cell, other) && crowd_size(other) > size)
            size = crowd_size(other);
    }
    return size;
}

static int share_crowd(struct measure *measure, const struct wire_cell *cell, struct crowd **ret,
                       struct error *err)
{
    for (size_t i = 0; i < measure->crowd_count; i++) {
        if (!crowd_serves(measure->crowds[i], cell))
            continue;
        *ret = measure->crowds[i];
        return 0;
    }
    size_t size = size_of_crowd(measure, cell);
    if (crowd_open(measure->tools.runtime, cell, size, &measure->crowds[measure->crowd_count], err) < 0)
        return -1;
    *ret = measure->crowds[measure->crowd_count++];
    return 0;
}

static int open_window(struct measure *measure, size_t i, const struct arm *arm, struct error *err)
{
    const struct wire_cell *cell = &measure->assign->cells[i];
    struct crowd *crowd;
    if (!measure->room.overshoots_ns && window_room_open(&measure->room, err) < 0)
        return -1;
    if (share_crowd(measure, cell, &crowd, err) < 0)
        return -1;
    measure->windows[i] = (struct window_bench){.runtime = measure->tools.runtime,
                                                .counters = measure->tools.counters,
                                                .cell = cell,
                                                .arm = arm,
                                                .crowd = crowd,
                                                .room = &measure->room};
    return 0;
}

static int open_bench(struct measure *measure, size_t i, struct error *err)
{
    const struct wire_cell *cell = &measure->assign->cells[i];
    const struct arm *arm = arm_find(cell->arm);
    struct slab *slab;
    if (!arm)
        return error_set(err, ERROR_USAGE, "unknown arm '%s'", cell->arm);
    if (window_check(cell, err) < 0)
        return -1;
    if (window_is(cell))
        return open_window(measure, i, arm, err);
    if (share_slab(measure, cell, &slab, err) < 0)
        return -1;
    round_bench_init(&measure->benches[i], measure->tools.runtime, measure->tools.counters, cell, arm, slab);
    return 0;
}

static bool goes_on(const struct measure *measure)
{
    const struct measure_hooks *hooks = &measure->tools.hooks;
    return hooks->between_rounds(hooks->context, measure->rounds_done);
}

static void add_flag(struct wire_prepared *prepared, const char *flag)
{
    prepared->flags.at[prepared->flags.count++] = memory_text(flag);
}

struct calibration_run {
    struct measure *measure;
    struct round_bench *bench;
    struct error *err;
    bool stopped;
};

static int64_t calibration_cost(void *context, int64_t loops)
{
    struct calibration_run *run = context;
    run->stopped = !goes_on(run->measure);
    return run->stopped ? -1 : round_cpu_ns(run->bench, loops, run->err);
}

/* Too short to time alone, and nothing in it that may end a fan-out early or let it wait. */
static bool is_calibrated(const struct round_bench *bench)
{
    const struct wire_cell *cell = bench->cell;
    bool waits = bench->slab->job->waits && !bench->arm->harness;
    return cell->calibrated && !waits && !cell->fail.present && cell->timeout_ns == 0;
}

static enum measure_end calibrate_bench(struct measure *measure, size_t i, struct error *err)
{
    struct calibration_run run = {.measure = measure, .bench = &measure->benches[i], .err = err};
    struct wire_prepared *prepared = &measure->prepared[i];
    struct calibration found;
    if (!is_calibrated(run.bench))
        return MEASURE_DONE;
    int64_t start_ns = clock_monotonic_ns();
    int64_t threshold_ns = calibrate_threshold_ns(measure->tools.cpu_clock_cost_ps);
    if (calibrate(calibration_cost, &run, threshold_ns, &found) < 0)
        return run.stopped ? MEASURE_STOPPED : MEASURE_FAILED;
    run.bench->loops = prepared->loops = found.loops;
    prepared->calibration_ns = clock_monotonic_ns() - start_ns;
    if (!found.stable)
        add_flag(prepared, "calibration_unstable");
    return MEASURE_DONE;
}

/* A CPU value where CPU is what is measured; waits are judged by their wall time. */
static int64_t warmup_value_ns(const struct round_bench *bench, const struct wire_round *round)
{
    return bench->slab->job->waits ? round->wall_ns : round->cpu_ns;
}

/* The streams of SPEC.md, "Failing children". */
static struct rng chance_of_round(const struct measure *measure, const struct wire_cell *cell, int64_t block)
{
    return rng_stream((uint64_t)measure->assign->seed,
                      ((uint64_t)cell->cell + 1) * (UINT64_C(1) << 32) + (uint64_t)block);
}

/* SPEC.md, "Arrivals of an open loop". */
static struct rng arrivals_of_round(const struct measure *measure, const struct wire_cell *cell,
                                    int64_t block)
{
    return rng_stream((uint64_t)measure->assign->seed,
                      (((uint64_t)cell->cell + 1) << 32) + (uint64_t)block + (UINT64_C(1) << 62));
}

static struct rng chance_of_warmup(const struct measure *measure, const struct wire_cell *cell)
{
    return rng_stream((uint64_t)measure->assign->seed, (uint64_t)cell->cell + 1 + (UINT64_C(1) << 63));
}

static enum measure_end warm_up(struct measure *measure, size_t i, struct error *err)
{
    struct round_bench *bench = &measure->benches[i];
    struct wire_prepared *prepared = &measure->prepared[i];
    struct rng chance = chance_of_warmup(measure, bench->cell);
    struct warmup warmup = {0};
    enum warmup_verdict verdict;
    do {
        struct wire_round round;
        if (!goes_on(measure))
            return MEASURE_STOPPED;
        if (round_run(bench, &chance, &round, err) < 0)
            return MEASURE_FAILED;
        free(round.error);
        warmup_add(&warmup, warmup_value_ns(bench, &round), round.wall_ns, round.faults_minor);
        verdict = warmup_judge(&warmup, bench->cell->warmup);
    } while (verdict == WARMUP_MORE);
    prepared->warmups = warmup.rounds;
    prepared->warmup_ns = warmup.spent_ns;
    if (verdict == WARMUP_UNCONVERGED)
        add_flag(prepared, "warmup_unconverged");
    return MEASURE_DONE;
}

static enum measure_end warm_up_window(struct measure *measure, size_t i, struct error *err)
{
    struct wire_prepared *prepared = &measure->prepared[i];
    int64_t start_ns = clock_monotonic_ns();
    if (!goes_on(measure))
        return MEASURE_STOPPED;
    if (window_warm_up(&measure->windows[i], err) < 0)
        return MEASURE_FAILED;
    prepared->warmups = 1;
    prepared->warmup_ns = clock_monotonic_ns() - start_ns;
    return MEASURE_DONE;
}

static enum measure_end prepare_cell(struct measure *measure, size_t i, struct error *err)
{
    if (open_bench(measure, i, err) < 0)
        return MEASURE_FAILED;
    if (measure->windows[i].crowd)
        return warm_up_window(measure, i, err);
    enum measure_end end = calibrate_bench(measure, i, err);
    return end == MEASURE_DONE ? warm_up(measure, i, err) : end;
}

static struct measure *allocate(const struct measure_tools *tools, const struct wire_assign *assign)
{
    struct measure *measure = memory_zeroed(1, sizeof *measure);
    size_t count = assign->cell_count;
    *measure = (struct measure){
        .tools = *tools,
        .assign = assign,
        .slabs = memory_zeroed(count, sizeof *measure->slabs),
        .benches = memory_zeroed(count, sizeof *measure->benches),
        .windows = memory_zeroed(count, sizeof *measure->windows),
        .crowds = memory_zeroed(count, sizeof *measure->crowds),
        .prepared = memory_zeroed(count, sizeof *measure->prepared),
        .order = memory_zeroed(count, sizeof *measure->order),
    };
    for (size_t i = 0; i < count; i++) {
        struct wire_prepared *prepared = &measure->prepared[i];
        prepared->cell = assign->cells[i].cell;
        prepared->loops = 1;
        prepared->flags.at = memory_zeroed(flags_most, sizeof *prepared->flags.at);
    }
    return measure;
}

enum measure_end measure_prepare(const struct measure_tools *tools, const struct wire_assign *assign,
                                 struct measure **ret, struct error *err)
{
    struct measure *measure = allocate(tools, assign);
    enum measure_end end = MEASURE_DONE;
    for (size_t i = 0; i < assign->cell_count && end == MEASURE_DONE; i++) {
        end = prepare_cell(measure, i, err);
        if (end == MEASURE_FAILED)
            error_prefix(err, "cell %lld", (long long)assign->cells[i].cell);
    }
    if (end == MEASURE_DONE)
        *ret = measure;
    else
        measure_free(measure);
    return end;
}

void measure_free(struct measure *measure)
{
    if (!measure)
        return;
    for (size_t i = 0; i < measure->slab_count; i++)
        slab_close(&measure->slabs[i]);
    for (size_t i = 0; i < measure->crowd_count; i++)
        crowd_close(measure->crowds[i]);
    window_room_close(&measure->room);
    measure_prepared_free(measure->prepared, measure->assign->cell_count);
    free(measure->slabs);
    free(measure->benches);
    free(measure->windows);
    free(measure->crowds);
    free(measure->order);
    free(measure);
}

struct wire_prepared *measure_take_prepared(struct measure *measure, size_t *ret_count)
{
    struct wire_prepared *prepared = measure->prepared;
    measure->prepared = NULL;
    *ret_count = measure->assign->cell_count;
    return prepared;
}

void measure_prepared_free(struct wire_prepared *prepared, size_t count)
{
    for (size_t i = 0; prepared && i < count; i++) {
        for (size_t j = 0; j < prepared[i].flags.count; j++)
            free(prepared[i].flags.at[j]);
        free(prepared[i].flags.at);
    }
    free(prepared);
}

/* ---- measuring ---- */

static bool has_cell(const struct measure *measure, int64_t cell)
{
    for (size_t i = 0; i < measure->assign->cell_count; i++)
        if (measure->assign->cells[i].cell == cell)
            return true;
    return false;
}

size_t measure_round_count(const struct measure *measure, const struct wire_go *go)
{
    const struct wire_assign *assign = measure->assign;
    if (go->first_block < 0 || go->blocks < 1 || go->blocks > assign->blocks ||
        go->first_block > assign->blocks - go->blocks)
        return 0;
    if (go->cell == WIRE_NULL)
        return assign->cell_count * (size_t)go->blocks;
    return has_cell(measure, go->cell) ? (size_t)go->blocks : 0;
}

/* Where a go stands. */
struct turn {
    const struct wire_go *go;
    struct wire_round *rounds;
    size_t count;
    int64_t block;
    int64_t steal_ticks;   /* when the block before ended */
    int64_t frequency_khz; /* when the round before ended */
};

/* What is read once between two rounds stands at the end of the one and at the start of the other. */
static void note_frequency(const struct measure *measure, struct turn *turn, struct wire_round *round)
{
    round->frequency_start_khz = turn->frequency_khz;
    round->frequency_end_khz = turn->frequency_khz = counters_frequency_khz(measure->tools.counters);
}

/* Ticks are too coarse for a round: all rounds since the block before have the same. */
static void note_steal(const struct measure *measure, struct turn *turn, size_t first_round)
{
    int64_t ticks = counters_steal_ticks(measure->tools.counters);
    for (size_t i = first_round; i < turn->count; i++)
        turn->rounds[i].steal_ticks = counters_grown(turn->steal_ticks, ticks);
    turn->steal_ticks = ticks;
}

static int run_cell(struct measure *measure, size_t index, int64_t block, struct wire_round *round,
                    struct error *err)
{
    const struct wire_cell *cell = &measure->assign->cells[index];
    struct rng chance = chance_of_round(measure, cell, block);
    return measure->windows[index].crowd
               ? window_run(&measure->windows[index], arrivals_of_round(measure, cell, block), round, err)
               : round_run(&measure->benches[index], &chance, round, err);
}

static enum measure_end run_position(struct measure *measure, struct turn *turn, size_t position,
                                     struct error *err)
{
    size_t index = measure->order[position];
    const struct wire_cell *cell = &measure->assign->cells[index];
    struct wire_round *round = &turn->rounds[turn->count];
    if (turn->go->cell != WIRE_NULL && turn->go->cell != cell->cell)
        return MEASURE_DONE;
    if (!goes_on(measure))
        return MEASURE_STOPPED;
    if (run_cell(measure, index, turn->block, round, err) < 0)
        return MEASURE_FAILED;
    round->cell = cell->cell;
    round->block = turn->block;
    round->position = (int64_t)position;
    note_frequency(measure, turn, round);
    if (turn->count == 0)
        round->intended_start_ns = turn->go->start_at_ns;
    turn->count++;
    measure->rounds_done++;
    return MEASURE_DONE;
}

static enum measure_end run_block(struct measure *measure, struct turn *turn, struct error *err)
{
    size_t cells = measure->assign->cell_count, first_round = turn->count;
    struct rng rng = rng_stream((uint64_t)measure->assign->seed, (uint64_t)turn->block);
    for (size_t i = 0; i < cells; i++)
        measure->order[i] = (uint32_t)i;
    rng_shuffle(&rng, measure->order, cells);
    enum measure_end end = MEASURE_DONE;
    for (size_t position = 0; position < cells && end == MEASURE_DONE; position++)
        end = run_position(measure, turn, position, err);
    note_steal(measure, turn, first_round);
    return end;
}

#define START_SPIN_NS (300 * NS_PER_US)

static int wait_for_start(const struct measure *measure, const struct wire_go *go, struct error *err)
{
    if (go->start_at_ns == WIRE_NULL)
        return 0;
    int64_t ahead_ns = go->start_at_ns - clock_monotonic_ns();
    if (ahead_ns > measure->assign->lease_ns)
        return error_set(err, ERROR_USAGE, "the start lies %lld ms ahead, beyond the lease",
                         (long long)(ahead_ns / NS_PER_MS));
    if (noise_sleep_until(go->start_at_ns - START_SPIN_NS) < 0)
        return error_set(err, ERROR_INTERNAL, "cannot wait for the start: %s", strerror(errno));
    while (clock_monotonic_ns() < go->start_at_ns)
        ; /* nothing is timed yet, and wake-ups of several cores are further apart than their clocks */
    return 0;
}

enum measure_end measure_go(struct measure *measure, const struct wire_go *go, struct wire_round *rounds,
                            size_t *ret_count, struct error *err)
{
    struct turn turn = {.go = go,
                        .rounds = rounds,
                        .block = go->first_block,
                        .steal_ticks = counters_steal_ticks(measure->tools.counters),
                        .frequency_khz = counters_frequency_khz(measure->tools.counters)};
    enum measure_end end = MEASURE_DONE;
    measure->rounds_done = 0;
    if (wait_for_start(measure, go, err) < 0)
        return MEASURE_FAILED;
    for (; turn.block < go->first_block + go->blocks && end == MEASURE_DONE; turn.block++)
        end = run_block(measure, &turn, err);
    *ret_count = turn.count;
    return end;
}

void measure_round_release(struct wire_round *round)
{
    free(round->error);
    free(round->latency.counts);
    free(round->latency_intended.counts);
}
