#include "worker/engine.h"

#include "base/clock.h"
#include "base/memory.h"
#include "worker/counters.h"
#include "worker/measure.h"
#include "worker/pin.h"
#include "worker/runtime/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

enum order_kind { ORDER_PREPARE, ORDER_GO, ORDER_QUIT, ORDER_KIND_COUNT };

struct order {
    struct queue_item item; /* first */
    enum order_kind kind;
    uint64_t generation;
    struct wire_message message; /* assign or go */
};

#define NOTHING_WINDS_UP UINT64_MAX

struct engine {
    /* set before the thread runs, or by it before `started` */
    int64_t cpu;
    pthread_t thread;
    int bell;
    struct noise noise;
    struct error start_error;
    bool broken;
    sem_t started, beat_done, finished;
    /* shared */
    struct queue inward, outward;
    atomic_uint_fast64_t generation; /* of what is wanted now */
    atomic_uint_fast64_t winding_up; /* the one that ends before its next round; none: NOTHING_WINDS_UP */
    atomic_int_fast64_t rounds_done;
    atomic_int_fast64_t beat_interval_ns;
    /* the measured thread's own */
    uv_loop_t loop;
    uv_async_t doorbell;
    struct runtime runtime;
    struct counters counters;
    struct wire_message assign;
    struct measure *measure;
    uint64_t working_for; /* generation of the order in hand */
    int64_t next_beat_ns;
    bool quit;
};

/* ---- reports ---- */

void report_free(struct report *report)
{
    if (!report)
        return;
    measure_prepared_free(report->prepared, report->prepared_count);
    for (size_t i = 0; i < report->round_count; i++)
        measure_round_release(&report->rounds[i]);
    free(report->rounds);
    free(report->error);
    free(report);
}

static struct report *report_new(const struct engine *engine, enum report_kind kind, int64_t group,
                                 int64_t attempt)
{
    struct report *report = memory_zeroed(1, sizeof *report);
    report->kind = kind;
    report->generation = engine->working_for;
    report->group = group;
    report->attempt = attempt;
    return report;
}

static void post(struct engine *engine, struct report *report)
{
    queue_push(&engine->outward, &report->item);
}

static void dispose_report(struct queue_item *item)
{
    report_free((struct report *)item);
}

/* ---- the measured thread ---- */

static bool is_stale(const struct engine *engine)
{
    return engine->working_for != atomic_load(&engine->generation);
}

static bool wait_at_most(sem_t *semaphore, int64_t patience_ns)
{
    int64_t until_ns = clock_monotonic_ns() + patience_ns;
    struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
    int rc;
    do
        rc = sem_clockwait(semaphore, CLOCK_MONOTONIC, &until);
    while (rc < 0 && errno == EINTR);
    return rc == 0;
}

/* Lets the session thread have the CPU that both live on, until its frame is out. */
static void hold_still(struct engine *engine, int64_t interval_ns)
{
    while (sem_trywait(&engine->beat_done) == 0) /* of a beat that came too late */
        continue;
    post(engine, report_new(engine, REPORT_BEAT, WIRE_NULL, WIRE_NULL));
    (void)wait_at_most(&engine->beat_done, 50 * NS_PER_MS);
    (void)noise_sleep_until(clock_monotonic_ns() + NS_PER_MS);
    engine->next_beat_ns = clock_monotonic_ns() + interval_ns;
}

static bool winds_up(const struct engine *engine)
{
    return engine->working_for == atomic_load(&engine->winding_up);
}

static bool between_rounds(void *context, int64_t rounds_done)
{
    struct engine *engine = context;
    int64_t interval_ns = atomic_load(&engine->beat_interval_ns);
    atomic_store(&engine->rounds_done, rounds_done);
    if (is_stale(engine) || winds_up(engine))
        return false;
    if (interval_ns > 0 && clock_monotonic_ns() >= engine->next_beat_ns)
        hold_still(engine, interval_ns);
    return true;
}

static void drop_slice(struct engine *engine)
{
    measure_free(engine->measure);
    engine->measure = NULL;
    wire_release(&engine->assign);
    engine->assign = (struct wire_message){0};
}

static void run_prepare(struct engine *engine, struct order *order)
{
    struct measure_tools tools = {
        .runtime = &engine->runtime,
        .counters = &engine->counters,
        .cpu_clock_cost_ps = engine->noise.cpu_clock_cost_ps,
        .hooks = {between_rounds, engine},
    };
    struct error err = {0};
    drop_slice(engine);
    engine->assign = order->message;
    order->message = (struct wire_message){0};
    const struct wire_assign *assign = &engine->assign.assign;
    enum measure_end end = measure_prepare(&tools, assign, &engine->measure, &err);
    if (end == MEASURE_STOPPED)
        return;
    struct report *report = report_new(engine, REPORT_READY, assign->group, assign->attempt);
    if (end == MEASURE_FAILED)
        report->error = memory_text(err.text);
    else
        report->prepared = measure_take_prepared(engine->measure, &report->prepared_count);
    post(engine, report);
}

static void run_go(struct engine *engine, struct order *order)
{
    const struct wire_go *go = &order->message.go;
    struct error err = {0};
    struct report *report = report_new(engine, REPORT_RESULT, go->group, go->attempt);
    report->go = go->go;
    size_t count = engine->measure ? measure_round_count(engine->measure, go) : 0;
    enum measure_end end = MEASURE_FAILED;
    if (count > 0 && !(report->rounds = calloc(count, sizeof *report->rounds)))
        (void)error_set(&err, ERROR_INTERNAL, "no memory for %zu rounds", count);
    else if (count > 0)
        end = measure_go(engine->measure, go, report->rounds, &report->round_count, &err);
    else
        (void)error_set(&err, ERROR_USAGE,
                        "go %lld asks for a cell or for blocks that the slice does not have",
                        (long long)go->go);
    if (end == MEASURE_STOPPED && is_stale(engine)) {
        report_free(report);
        return;
    }
    if (end == MEASURE_STOPPED)
        (void)error_set(&err, ERROR_INTERRUPTED, "interrupted after %zu of %zu rounds", report->round_count,
                        count);
    if (end != MEASURE_DONE)
        report->error = memory_text(err.text);
    post(engine, report);
}

static void run_quit(struct engine *engine, struct order *order)
{
    (void)order;
    engine->quit = true;
}

static void run_order(struct engine *engine, struct order *order)
{
    static void (*const run[ORDER_KIND_COUNT])(struct engine *, struct order *) = {
        [ORDER_PREPARE] = run_prepare, [ORDER_GO] = run_go, [ORDER_QUIT] = run_quit};
    engine->working_for = order->generation;
    engine->next_beat_ns = clock_monotonic_ns() + atomic_load(&engine->beat_interval_ns);
    atomic_store(&engine->rounds_done, 0);
    (void)uv_run(&engine->loop, UV_RUN_NOWAIT); /* the bell must not ring in the middle of a round */
    if (!is_stale(engine))
        run[order->kind](engine, order);
    if (order->kind == ORDER_PREPARE)
        wire_release(&order->message);
    free(order);
}

static void dispose_order(struct queue_item *item)
{
    struct order *order = (struct order *)item;
    if (order->kind == ORDER_PREPARE)
        wire_release(&order->message);
    free(order);
}

/* Waking the loop is all that it has to do. */
static void on_doorbell(uv_async_t *doorbell)
{
    (void)doorbell;
}

static int open_loop(struct engine *engine, struct error *err)
{
    int rc = uv_loop_init(&engine->loop);
    if (rc < 0)
        return error_set(err, ERROR_INTERNAL, "cannot make a loop: %s", uv_strerror(rc));
    rc = uv_async_init(&engine->loop, &engine->doorbell, on_doorbell);
    if (rc == 0 && runtime_init(&engine->runtime, &engine->loop, err) == 0)
        return 0;
    if (rc < 0)
        (void)error_set(err, ERROR_INTERNAL, "cannot make a bell: %s", uv_strerror(rc));
    else
        uv_close((uv_handle_t *)&engine->doorbell, NULL);
    (void)uv_run(&engine->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&engine->loop);
    return -1;
}

static void close_loop(struct engine *engine)
{
    runtime_release(&engine->runtime);
    uv_close((uv_handle_t *)&engine->doorbell, NULL);
    (void)uv_run(&engine->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&engine->loop);
}

/* The bell counts as an event of the runtime while it sleeps, and at no other time: rounds poll less without. */
static void sleep_until_rung(struct engine *engine)
{
    runtime_event_open(&engine->runtime);
    if (runtime_turn(&engine->runtime, true, NULL) < 0)
        engine->quit = true; /* not even sleeping works: the lease will tell */
    runtime_event_close(&engine->runtime);
}

static void *engine_main(void *argument)
{
    struct engine *engine = argument;
    (void)pthread_setname_np(pthread_self(), "measured");
    engine->broken = (engine->cpu >= 0 && pin_this_thread_to(engine->cpu, &engine->start_error) < 0) ||
                     open_loop(engine, &engine->start_error) < 0;
    if (!engine->broken)
        noise_probe(&engine->noise);
    bool broken = engine->broken;
    (void)sem_post(&engine->started);
    if (broken)
        return NULL;
    counters_open(&engine->counters);
    while (!engine->quit) {
        struct queue_item *item = queue_pop(&engine->inward);
        if (item)
            run_order(engine, (struct order *)item);
        else
            sleep_until_rung(engine);
    }
    drop_slice(engine);
    counters_close(&engine->counters);
    close_loop(engine);
    (void)sem_post(&engine->finished);
    return NULL;
}

/* ---- seen from the session thread ---- */

static void ring_engine(void *context)
{
    (void)uv_async_send(&((struct engine *)context)->doorbell);
}

static void ring_session(void *context)
{
    uint64_t one = 1;
    ssize_t written = write(((struct engine *)context)->bell, &one, sizeof one);
    (void)written; /* fails only when it rings already */
}

static void release(struct engine *engine)
{
    queue_release(&engine->inward, dispose_order);
    queue_release(&engine->outward, dispose_report);
    (void)sem_destroy(&engine->started);
    (void)sem_destroy(&engine->beat_done);
    (void)sem_destroy(&engine->finished);
    (void)close(engine->bell);
    free(engine);
}

static int start_thread(struct engine *engine, struct error *err)
{
    int rc = pthread_create(&engine->thread, NULL, engine_main, engine);
    if (rc != 0)
        return error_set(err, ERROR_INTERNAL, "cannot start the measured thread: %s", strerror(rc));
    while (sem_wait(&engine->started) < 0 && errno == EINTR)
        continue;
    if (!engine->broken)
        return 0;
    (void)pthread_join(engine->thread, NULL);
    if (err)
        *err = engine->start_error;
    return -1;
}

int engine_start(int64_t cpu, struct engine **ret, struct error *err)
{
    int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bell < 0)
        return error_set(err, ERROR_INTERNAL, "cannot make an eventfd: %s", strerror(errno));
    struct engine *engine = memory_zeroed(1, sizeof *engine);
    engine->cpu = cpu;
    engine->bell = bell;
    atomic_init(&engine->winding_up, NOTHING_WINDS_UP);
    (void)sem_init(&engine->started, 0, 0);
    (void)sem_init(&engine->beat_done, 0, 0);
    (void)sem_init(&engine->finished, 0, 0);
    queue_init(&engine->inward, ring_engine, engine);
    queue_init(&engine->outward, ring_session, engine);
    if (start_thread(engine, err) < 0) {
        release(engine);
        return -1;
    }
    *ret = engine;
    return 0;
}

static struct order *order_new(const struct engine *engine, enum order_kind kind)
{
    struct order *order = memory_zeroed(1, sizeof *order);
    order->kind = kind;
    order->generation = atomic_load(&engine->generation);
    return order;
}

bool engine_stop(struct engine *engine, int64_t patience_ns)
{
    if (!engine)
        return true;
    engine_cancel(engine);
    queue_push(&engine->inward, &order_new(engine, ORDER_QUIT)->item);
    (void)sem_post(&engine->beat_done);
    if (!wait_at_most(&engine->finished, patience_ns))
        return false;
    (void)pthread_join(engine->thread, NULL);
    release(engine);
    return true;
}

const struct noise *engine_noise(const struct engine *engine)
{
    return &engine->noise;
}

int engine_bell(const struct engine *engine)
{
    return engine->bell;
}

struct report *engine_take(struct engine *engine)
{
    uint64_t rung;
    ssize_t got = read(engine->bell, &rung, sizeof rung);
    (void)got; /* fails only when it did not ring */
    for (;;) {
        struct report *report = (struct report *)queue_pop(&engine->outward);
        if (!report || report->generation == atomic_load(&engine->generation))
            return report;
        report_free(report);
    }
}

void engine_prepare(struct engine *engine, struct wire_message *assign)
{
    struct order *order = order_new(engine, ORDER_PREPARE);
    order->message = *assign;
    *assign = (struct wire_message){0};
    queue_push(&engine->inward, &order->item);
}

void engine_go(struct engine *engine, const struct wire_go *go)
{
    struct order *order = order_new(engine, ORDER_GO);
    order->message.go = *go;
    queue_push(&engine->inward, &order->item);
}

void engine_cancel(struct engine *engine)
{
    atomic_fetch_add(&engine->generation, 1);
}

void engine_wind_up(struct engine *engine)
{
    atomic_store(&engine->winding_up, atomic_load(&engine->generation));
}

void engine_beat_every(struct engine *engine, int64_t interval_ns)
{
    atomic_store(&engine->beat_interval_ns, interval_ns);
}

void engine_beat_done(struct engine *engine)
{
    (void)sem_post(&engine->beat_done);
}

int64_t engine_rounds_done(const struct engine *engine)
{
    return atomic_load(&engine->rounds_done);
}
