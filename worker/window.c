#include "worker/window.h"

#include "base/clock.h"
#include "base/memory.h"
#include "worker/median.h"
#include "worker/proof.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum stage { STAGE_WARMING, STAGE_OPENING, STAGE_OPEN, STAGE_CLOSED };

/* What is read at one edge of a window. */
struct edge {
    int64_t wall_ns, cpu_ns, busy_ticks;
    uint64_t wakeups, children;
    struct counters_sample counters;
};

struct window {
    struct window_bench *bench;
    enum stage stage;
    int64_t duration_ns, launch_ns;
    int64_t fanouts; /* ended, in this stage */
    struct edge opened, closed;
    struct wait_statistics waits;
    uint64_t most_in_flight;
    bool broken;
    /* a loop that never suspends is made to turn */
    uint64_t turns;
    int64_t turned_ns;
    /* open loop */
    struct timer arrival, end;
    struct rng arrivals;
    double sum_ns; /* of the gaps so far: the next start */
    int64_t offered, skipped;
    int64_t next_ns; /* the next intended start, from the launch on */
};

int window_room_open(struct window_room *room, struct error *err)
{
    const int64_t highest_ns = 100 * NS_PER_S;
    struct window_room made = {0};
    if (histogram_init(&made.latency, 3, 1, highest_ns, err) < 0 ||
        histogram_init(&made.intended, 3, 1, highest_ns, err) < 0 ||
        histogram_init(&made.lag, 3, 1, highest_ns, err) < 0) {
        window_room_close(&made);
        return -1;
    }
    if (!(made.overshoots_ns = malloc(WINDOW_LOG * sizeof *made.overshoots_ns))) {
        window_room_close(&made);
        return error_set(err, ERROR_INTERNAL, "no memory for %d waits", WINDOW_LOG);
    }
    memset(made.overshoots_ns, 0, WINDOW_LOG * sizeof *made.overshoots_ns); /* touched */
    *room = made;
    return 0;
}

void window_room_close(struct window_room *room)
{
    histogram_release(&room->latency);
    histogram_release(&room->intended);
    histogram_release(&room->lag);
    free(room->overshoots_ns);
    *room = (struct window_room){0};
}

bool window_is(const struct wire_cell *cell)
{
    return cell->duration_ns > 0;
}

int window_check(const struct wire_cell *cell, struct error *err)
{
    if (cell->duration_ns == 0 && (cell->clients > 1 || cell->rate_per_s > 0))
        return error_set(err, ERROR_USAGE, "clients or a rate without the duration of a window");
    if (cell->duration_ns == 0)
        return 0;
    if (cell->clients > 1 && cell->rate_per_s > 0)
        return error_set(err, ERROR_USAGE,
                         "clients (a closed loop) and a rate (an open one) exclude each other");
    if (cell->rate_per_s > WINDOW_RATE)
        return error_set(err, ERROR_USAGE,
                         "%.6g fan-outs per second are more than the %d that can be started",
                         cell->rate_per_s, WINDOW_RATE);
    if (cell->clients > WINDOW_CHILDREN / cell->fanout)
        return error_set(err, ERROR_USAGE, "%lld clients of %lld children each are more than %d children",
                         (long long)cell->clients, (long long)cell->fanout, WINDOW_CHILDREN);
    if (cell->fail.present || cell->timeout_ns > 0)
        return error_set(err, ERROR_USAGE,
                         "windows with 'fail' or 'timeout' are not measured: their fan-outs must end well");
    return 0;
}

static bool is_open_loop(const struct window *window)
{
    return window->bench->cell->rate_per_s > 0;
}

/* ---- the edges ---- */

static void window_open(struct window *window)
{
    struct window_bench *bench = window->bench;
    struct runtime *runtime = bench->runtime;
    window->stage = STAGE_OPEN;
    window->fanouts = 0;
    crowd_forget_most(bench->crowd);
    window->opened.children = crowd_children_ended(bench->crowd);
    runtime->waits.log = bench->room->overshoots_ns;
    runtime->waits.log_capacity = WINDOW_LOG;
    runtime_waits_clear(runtime);
    window->opened.wakeups = runtime->wakeups;
    window->opened.busy_ticks = counters_busy_ticks(bench->counters);
    counters_read(bench->counters, &window->opened.counters);
    window->opened.wall_ns = runtime_now(runtime);
    window->opened.cpu_ns = clock_thread_cpu_ns();
}

static void window_close(struct window *window)
{
    struct window_bench *bench = window->bench;
    struct runtime *runtime = bench->runtime;
    window->closed.cpu_ns = clock_thread_cpu_ns();
    window->closed.wall_ns = runtime_now(runtime);
    counters_read(bench->counters, &window->closed.counters);
    window->closed.busy_ticks = counters_busy_ticks(bench->counters);
    window->closed.wakeups = runtime->wakeups;
    window->closed.children = crowd_children_ended(bench->crowd);
    window->most_in_flight = crowd_most_in_flight(bench->crowd);
    window->waits = runtime->waits;
    runtime->waits.log = NULL;
    runtime->waits.log_capacity = 0;
    window->stage = STAGE_CLOSED;
}

/* ---- what clients ask ---- */

static bool client_begins(void *context, struct client *client, int64_t now_ns)
{
    struct window *window = context;
    if (is_open_loop(window) && window->stage != STAGE_WARMING)
        histogram_record(&window->bench->room->lag, now_ns - client->intended_ns);
    return true;
}

/* Where fan-outs never suspend, nobody else would ever run. */
static enum client_next again(struct window *window, int64_t now_ns)
{
    uint64_t turns = window->bench->runtime->turns;
    if (window->turns != turns) {
        window->turns = turns;
        window->turned_ns = now_ns;
        return CLIENT_AGAIN;
    }
    return now_ns - window->turned_ns < NS_PER_MS ? CLIENT_AGAIN : CLIENT_YIELD;
}

static bool is_long_enough(const struct window *window, int64_t now_ns)
{
    return now_ns - window->opened.wall_ns >= window->duration_ns &&
           window->fanouts % (int64_t)window->bench->crowd->count == 0;
}

static enum client_next closed_loop_ended(struct window *window, const struct client *client, int64_t now_ns)
{
    window->fanouts++;
    if (window->stage == STAGE_OPENING) {
        if (window->fanouts == (int64_t)window->bench->crowd->count)
            window_open(window);
        return CLIENT_YIELD; /* opening takes its time, which is nobody's latency */
    }
    histogram_record(&window->bench->room->latency, now_ns - client->started_ns);
    if (!is_long_enough(window, now_ns))
        return again(window, now_ns);
    window_close(window);
    return CLIENT_ENDS;
}

static enum client_next client_ended(void *context, struct client *client, int64_t now_ns)
{
    struct window *window = context;
    if (window->stage == STAGE_WARMING)
        return CLIENT_ENDS;
    if (!is_open_loop(window))
        return window->stage == STAGE_CLOSED ? CLIENT_ENDS : closed_loop_ended(window, client, now_ns);
    window->fanouts += window->stage == STAGE_OPEN;
    histogram_record(&window->bench->room->latency, now_ns - client->started_ns);
    histogram_record(&window->bench->room->intended, now_ns - client->intended_ns);
    return CLIENT_ENDS;
}

static void client_broke(void *context, struct client *client)
{
    struct window *window = context;
    (void)client;
    window->broken = true;
}

/* ---- open loop: arrivals ---- */

/* SPEC.md, 6.4. */
static int64_t draw_next(struct window *window)
{
    const struct wire_cell *cell = window->bench->cell;
    if (strcmp(cell->arrivals, "fixed") == 0)
        window->sum_ns = floor((double)window->offered * 1e9 / cell->rate_per_s);
    else
        window->sum_ns += floor(-log(1 - rng_unit(&window->arrivals)) * 1e9 / cell->rate_per_s + 0.5);
    return window->sum_ns < 9e18 ? (int64_t)window->sum_ns : INT64_MAX;
}

static void start_one(struct window *window, int64_t intended_ns)
{
    struct client *client = crowd_launch(window->bench->crowd);
    if (client)
        client->intended_ns = intended_ns;
    else
        window->skipped++;
}

/* Everything that is due starts now, however late. */
static void start_due(struct window *window)
{
    struct runtime *runtime = window->bench->runtime;
    int64_t passed_ns = runtime_now(runtime) - window->launch_ns;
    while (window->next_ns < window->duration_ns && window->next_ns <= passed_ns) {
        start_one(window, window->launch_ns + window->next_ns);
        window->offered++;
        window->next_ns = draw_next(window);
    }
    if (window->next_ns < window->duration_ns)
        runtime_timer_start_at(runtime, &window->arrival, window->launch_ns + window->next_ns);
}

static void on_arrival(struct runtime *runtime, struct call *call)
{
    struct timer *timer = (struct timer *)(void *)call;
    (void)runtime;
    if (runtime_timer_fired(timer))
        start_due((struct window *)(void *)((char *)timer - offsetof(struct window, arrival)));
}

/* First the end of the window, then that of the patience with what it started. */
static void on_end(struct runtime *runtime, struct call *call)
{
    struct timer *timer = (struct timer *)(void *)call;
    struct window *window = (struct window *)(void *)((char *)timer - offsetof(struct window, end));
    if (!runtime_timer_fired(timer))
        return;
    if (window->stage == STAGE_OPEN) {
        runtime_timer_cancel(runtime, &window->arrival);
        start_due(window); /* what was intended before the end and is not started yet, counts as late */
        window_close(window);
        runtime_timer_start_at(runtime, &window->end, runtime_now(runtime) + WINDOW_DRAIN_NS);
    }
}

static bool open_loop_is_over(const void *context)
{
    const struct window *window = context;
    return window->broken || (window->stage == STAGE_CLOSED &&
                              (window->bench->crowd->active == 0 || window->end.place == TIMER_IDLE));
}

static int run_open_loop(struct window *window, struct rng arrivals, struct error *err)
{
    struct runtime *runtime = window->bench->runtime;
    window->arrivals = arrivals;
    window->arrival.call.run = on_arrival;
    window->end.call.run = on_end;
    window_open(window);
    window->launch_ns = window->opened.wall_ns;
    window->next_ns = draw_next(window);
    runtime_timer_start_at(runtime, &window->end, window->launch_ns + window->duration_ns);
    start_due(window);
    if (runtime_run_until(runtime, open_loop_is_over, window, err) < 0)
        return -1;
    runtime_timer_cancel(runtime, &window->end);
    return 0;
}

/* ---- closed loop ---- */

static bool is_closed(const void *context)
{
    const struct window *window = context;
    return window->stage == STAGE_CLOSED || window->broken;
}

/* i / clients of one delay. */
static int64_t offset_ns(const struct wire_cell *cell, size_t i)
{
    double span_ns = cell->delay_ns > 0 ? (double)cell->delay_ns : (double)NS_PER_MS;
    return (int64_t)(span_ns * (double)i / (double)cell->clients);
}

static int run_closed_loop(struct window *window, struct error *err)
{
    struct crowd *crowd = window->bench->crowd;
    const struct wire_cell *cell = window->bench->cell;
    bool staggered = strcmp(cell->phase, "staggered") == 0;
    window->stage = STAGE_OPENING;
    window->launch_ns = runtime_now(crowd->runtime);
    for (size_t i = 0; i < crowd->count; i++)
        if (staggered && i > 0)
            (void)crowd_launch_at(crowd, window->launch_ns + offset_ns(cell, i));
        else
            (void)crowd_launch(crowd);
    return runtime_run_until(crowd->runtime, is_closed, window, err);
}

/* ---- the whole ---- */

static struct crowd_hooks hooks_of(struct window *window)
{
    return (struct crowd_hooks){client_begins, client_ended, client_broke, window};
}

static bool nobody_is_active(const void *context)
{
    const struct window *window = context;
    return window->bench->crowd->active == 0 || window->broken;
}

int window_warm_up(struct window_bench *bench, struct error *err)
{
    struct window window = {.bench = bench, .stage = STAGE_WARMING};
    const struct crowd_hooks hooks = hooks_of(&window);
    crowd_bind(bench->crowd, bench->arm, &hooks);
    while (crowd_launch(bench->crowd))
        continue;
    if (runtime_run_until(bench->runtime, nobody_is_active, &window, err) < 0)
        return -1;
    return crowd_give_up(bench->crowd, err);
}

static void book_waits(struct window *window, struct wire_round *round)
{
    const struct wait_statistics *waits = &window->waits;
    int64_t *log = window->bench->room->overshoots_ns;
    size_t count = waits->count < WINDOW_LOG ? waits->count : WINDOW_LOG;
    round->early = (int64_t)waits->early;
    if (waits->count == 0)
        return;
    round->overshoot_min_ns = waits->overshoot_min_ns;
    round->overshoot_max_ns = waits->overshoot_max_ns;
    round->overshoot_p50_ns = median_ns(log, count);
}

static void book_open_loop(const struct window *window, size_t unfinished, struct wire_round *round)
{
    const struct histogram *lag = &window->bench->room->lag;
    round->offered = window->offered;
    round->skipped = window->skipped;
    round->unfinished = (int64_t)unfinished;
    if (lag->total > 0) {
        round->lag_p50_ns = histogram_quantile_ns(lag, 0.5);
        round->lag_max_ns = lag->most_ns;
    }
    histogram_export(&window->bench->room->intended, &round->latency_intended);
}

static void book(struct window *window, struct wire_round *round)
{
    const struct edge *opened = &window->opened, *closed = &window->closed;
    round->start_ns = opened->wall_ns;
    round->wall_ns = closed->wall_ns - opened->wall_ns;
    round->cpu_ns = closed->cpu_ns - opened->cpu_ns;
    round->fanouts = window->fanouts;
    round->wakeups = (int64_t)(closed->wakeups - opened->wakeups);
    round->max_in_flight = (int64_t)window->most_in_flight;
    round->launch_ns = window->launch_ns;
    round->children = (int64_t)(closed->children - opened->children);
    round->busy_ticks = counters_grown(opened->busy_ticks, closed->busy_ticks);
    counters_fill(&opened->counters, &closed->counters, round);
    book_waits(window, round);
    histogram_export(&window->bench->room->latency, &round->latency);
}

static void judge(const struct window *window, struct wire_round *round)
{
    char text[256];
    const struct window_bench *bench = window->bench;
    if (window->broken)
        round->error = memory_format("a fan-out of %s ended with an error", bench->cell->arm);
    else if (proof_judge_window(bench->cell, bench->crowd->clients[0].slab.job->waits,
                                bench->room->latency.least_ns, round, text, sizeof text))
        round->error = memory_text(text);
}

int window_run(struct window_bench *bench, struct rng arrivals, struct wire_round *ret, struct error *err)
{
    struct window window = {.bench = bench, .duration_ns = bench->cell->duration_ns};
    const struct crowd_hooks hooks = hooks_of(&window);
    if (bench->arm->harness && window.duration_ns > WINDOW_HARNESS_NS)
        window.duration_ns = WINDOW_HARNESS_NS;
    wire_round_init(ret);
    crowd_bind(bench->crowd, bench->arm, &hooks);
    histogram_clear(&bench->room->latency);
    histogram_clear(&bench->room->intended);
    histogram_clear(&bench->room->lag);
    int rc = is_open_loop(&window) ? run_open_loop(&window, arrivals, err) : run_closed_loop(&window, err);
    size_t unfinished = bench->crowd->active;
    if (rc < 0 || crowd_give_up(bench->crowd, err) < 0)
        return -1;
    if (window.stage != STAGE_CLOSED) /* broken before its time */
        window_close(&window);
    book(&window, ret);
    if (is_open_loop(&window))
        book_open_loop(&window, unfinished, ret);
    judge(&window, ret);
    return 0;
}
