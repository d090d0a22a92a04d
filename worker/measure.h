/* measure.h: one slice, prepared and measured round by round.  (METHOD: what a round records.)
 *
 * A slice is one runtime's share of a group.  Preparing makes a slab per cell, calibrates what is too short
 * to time alone and warms up, so that a timed round allocates nothing and faults nothing.  A round is
 *
 *     counters | wall0 cpu0 | L fan-outs | cpu1 wall1 | counters
 *
 * and what lies between the clock reads is the fan-out and nothing else.  The structural proof (proof.h) is
 * made after each round from what the runtime counted.
 *
 * Threads: the measured thread alone.  This module knows wire.h's structs as data; it knows no socket and no
 * queue. */
#ifndef COREFAN_WORKER_MEASURE_H
#define COREFAN_WORKER_MEASURE_H

#include "base/error.h"
#include "proto/wire.h"
#include "worker/counters.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct runtime;
struct measure;

/* How the owner of the thread takes part between two rounds. */
struct measure_hooks {
    bool (*between_rounds)(void *context, int64_t rounds_done); /* false: stop here */
    void *context;
};

struct measure_tools {
    struct runtime *runtime;
    const struct counters *counters;
    int64_t cpu_clock_cost_ps;
    struct measure_hooks hooks;
};

enum measure_end { MEASURE_DONE, MEASURE_STOPPED, MEASURE_FAILED };

/* assign must outlive the slice.  MEASURE_FAILED: this slice cannot be run here, err says why (an arm or a
 * job that is not known, more memory than there is).  *ret only after MEASURE_DONE. */
enum measure_end measure_prepare(const struct measure_tools *tools, const struct wire_assign *assign,
                                 struct measure **ret, struct error *err);

void measure_free(struct measure *measure); /* NULL is fine */

/* What ready says of each cell, in the order of the slice.  The caller's from then on, measure_prepared_free
 * it; to be taken once. */
struct wire_prepared *measure_take_prepared(struct measure *measure, size_t *ret_count);
void measure_prepared_free(struct wire_prepared *prepared, size_t count); /* NULL is fine */

/* Rounds that this go will give; 0 when it names a cell that is not in the slice or blocks beyond its end. */
size_t measure_round_count(const struct measure *measure, const struct wire_go *go);

/* Runs them into rounds[measure_round_count].  *ret_count: how many are filled, also when it was stopped.
 * round->error and the counts of its histograms are memory of their own: measure_round_release frees them. */
enum measure_end measure_go(struct measure *measure, const struct wire_go *go, struct wire_round *rounds,
                            size_t *ret_count, struct error *err);

void measure_round_release(struct wire_round *round);

#endif
