/* engine.h: the measured thread, seen from outside.
 *
 * The engine is one thread, pinned to the measured CPU.  It owns the runtime and its libuv loop, every slab
 * and every counter, and sleeps in the loop until an order arrives.  It knows no socket: the session thread
 * hands it a slice, then go after go, and finds the answers in the engine's outward queue.  While rounds run,
 * the only things the two threads share are the atomics behind engine_cancel and engine_rounds_done.
 *
 * Orders are executed in the order in which they came.  engine_cancel makes everything ordered so far stale:
 * what runs stops before its next round, and no report of it appears later.
 *
 * Threads: engine_start, every order and engine_take belong to the session thread. */
#ifndef COREFAN_WORKER_ENGINE_H
#define COREFAN_WORKER_ENGINE_H

#include "base/error.h"
#include "proto/wire.h"
#include "worker/noise.h"
#include "worker/queue.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;

enum report_kind {
    REPORT_READY,  /* the slice is prepared, or cannot be: error says why */
    REPORT_RESULT, /* a go is done, or could not be finished: error says why */
    REPORT_BEAT    /* between two rounds: the measured thread holds still until engine_beat_done */
};

struct report {
    struct queue_item item;
    enum report_kind kind;
    uint64_t generation; /* private: which orders it answers */
    int64_t group, attempt, go;
    struct wire_prepared *prepared;
    size_t prepared_count;
    struct wire_round *rounds;
    size_t round_count;
    char *error;
};

void report_free(struct report *report); /* NULL is fine */

/* Starts the thread, pins it to cpu (-1: leaves it where the caller's affinity lets it run), and waits for
 * its noise probe, about 100 ms.  The calling thread's affinity is not changed. */
int engine_start(int64_t cpu, struct engine **ret, struct error *err);

/* Asks the thread to end and waits for it up to patience_ns.  false: it is stuck in a round; the engine is
 * leaked, and all that is left to do is to end the process.  NULL is fine. */
bool engine_stop(struct engine *engine, int64_t patience_ns);

const struct noise *engine_noise(const struct engine *engine);

/* A file that is readable when reports wait: poll it, then take until NULL. */
int engine_bell(const struct engine *engine);
struct report *engine_take(struct engine *engine); /* report_free it */

/* Prepare this slice (slabs, calibration, warm-up).  Takes over a decoded assign, frees it with
 * wire_release. */
void engine_prepare(struct engine *engine, struct wire_message *assign);

/* Measure some blocks of the slice that was prepared last. */
void engine_go(struct engine *engine, const struct wire_go *go);

void engine_cancel(struct engine *engine);

/* The go that runs, or waits to, stops before its next round; what it has measured by then is reported, with an
 * error that says so. */
void engine_wind_up(struct engine *engine);

/* Between rounds, at most once in interval_ns, post a REPORT_BEAT and hold still until engine_beat_done, so
 * that heartbeats can go out on a CPU that is shared with the measured thread.  0: never. */
void engine_beat_every(struct engine *engine, int64_t interval_ns);
void engine_beat_done(struct engine *engine);

int64_t engine_rounds_done(const struct engine *engine); /* within the go in progress */

#endif
