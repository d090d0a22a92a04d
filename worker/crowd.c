#include "worker/crowd.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BACKLOG_MOST  65536
#define BACKLOG_LEAST 1024
#define BACKLOG_BYTES (UINT64_C(256) << 20)
#define CHILD_BYTES   256 /* of a slab, generously */

/* ---- a client ---- */

static enum step start_fanout(struct client *client, struct activation *activation, int64_t now_ns)
{
    client->started_ns = now_ns;
    return coro_await(activation, &client->slab.fanout->coro);
}

static enum step fanout_ended(struct client *client, struct activation *activation)
{
    struct crowd *crowd = client->crowd;
    if (activation->outcome.kind != OUTCOME_OK) {
        if (!crowd->leaving)
            crowd->hooks.broke(crowd->hooks.context, client);
        return STEP_DONE;
    }
    int64_t now_ns = runtime_now(activation->runtime);
    switch (crowd->hooks.ended(crowd->hooks.context, client, now_ns)) {
    case CLIENT_AGAIN:
        return start_fanout(client, activation, now_ns);
    case CLIENT_YIELD:
        return coro_yield(activation);
    default:
        return coro_return(activation, OUTCOME_OK, 0);
    }
}

static enum step client_resume(struct coro *coro, struct activation *activation)
{
    struct client *client = (struct client *)(void *)coro;
    struct crowd *crowd = client->crowd;
    if (activation->wake == WAKE_RETURN)
        return fanout_ended(client, activation);
    if (activation->wake == WAKE_CANCEL)
        return coro_return(activation, OUTCOME_CANCELLED, 0);
    int64_t now_ns = runtime_now(activation->runtime);
    if (activation->wake == WAKE_START && !crowd->hooks.begins(crowd->hooks.context, client, now_ns))
        return coro_return(activation, OUTCOME_OK, 0);
    return start_fanout(client, activation, now_ns);
}

static void become_free(struct client *client)
{
    struct crowd *crowd = client->crowd;
    client->next = crowd->free;
    crowd->free = client;
    crowd->active--;
}

static void on_done(struct runtime *runtime, struct call *call)
{
    struct task *task = (struct task *)(void *)call;
    (void)runtime;
    become_free((struct client *)(void *)((char *)task - offsetof(struct client, task)));
}

static void start_task(struct client *client)
{
    struct runtime *runtime = client->crowd->runtime;
    task_start(runtime, &client->task, &client->coro, &runtime->roots, on_done);
}

static void on_timer(struct runtime *runtime, struct call *call)
{
    struct timer *timer = (struct timer *)(void *)call;
    (void)runtime;
    if (runtime_timer_fired(timer))
        start_task((struct client *)(void *)((char *)timer - offsetof(struct client, timer)));
}

static int client_open(struct crowd *crowd, struct client *client, struct error *err)
{
    *client = (struct client){.crowd = crowd, .coro.resume = client_resume, .timer.call.run = on_timer};
    return slab_open(crowd->runtime, crowd->cell, &client->slab, err);
}

/* ---- the crowd ---- */

size_t crowd_size(const struct wire_cell *cell)
{
    if (!(cell->rate_per_s > 0))
        return (size_t)cell->clients;
    double wanted = ceil(cell->rate_per_s * (double)cell->duration_ns / 1e9);
    uint64_t fits = BACKLOG_BYTES / (((uint64_t)cell->fanout + 2) * CHILD_BYTES);
    size_t most = fits < BACKLOG_MOST ? (size_t)fits : BACKLOG_MOST;
    size_t size = wanted < BACKLOG_LEAST  ? BACKLOG_LEAST
                  : wanted < BACKLOG_MOST ? (size_t)wanted
                                          : BACKLOG_MOST;
    size = size < most ? size : most;
    return size > 0 ? size : 1;
}

static bool is_open_loop(const struct wire_cell *cell)
{
    return cell->rate_per_s > 0;
}

bool crowd_alike(const struct wire_cell *a, const struct wire_cell *b)
{
    const struct slab made_for_a = {.cell = a};
    return is_open_loop(a) == is_open_loop(b) && slab_serves(&made_for_a, b);
}

int crowd_open(struct runtime *runtime, const struct wire_cell *cell, size_t size, struct crowd **ret,
               struct error *err)
{
    struct crowd *crowd = memory_zeroed(1, sizeof *crowd);
    *crowd =
        (struct crowd){.runtime = runtime, .cell = cell, .clients = calloc(size, sizeof *crowd->clients)};
    int rc = 0;
    if (!crowd->clients) {
        crowd_close(crowd);
        return error_set(err, ERROR_INTERNAL, "no memory for %zu clients", size);
    }
    for (; rc == 0 && crowd->count < size; crowd->count++)
        rc = client_open(crowd, &crowd->clients[crowd->count], err);
    if (rc < 0) {
        crowd_close(crowd);
        return -1;
    }
    *ret = crowd;
    return 0;
}

void crowd_close(struct crowd *crowd)
{
    if (!crowd)
        return;
    for (size_t i = 0; i < crowd->count; i++)
        slab_close(&crowd->clients[i].slab);
    free(crowd->clients);
    free(crowd);
}

bool crowd_serves(const struct crowd *crowd, const struct wire_cell *cell)
{
    size_t needed = crowd_size(cell);
    bool enough = is_open_loop(cell) ? crowd->count >= needed : crowd->count == needed;
    return enough && crowd_alike(crowd->cell, cell);
}

void crowd_bind(struct crowd *crowd, const struct arm *arm, const struct crowd_hooks *hooks)
{
    crowd->hooks = *hooks;
    crowd->leaving = false;
    crowd->free = NULL;
    for (size_t i = crowd->count; i-- > 0;) { /* the first is taken first */
        struct client *client = &crowd->clients[i];
        fanout_bind(client->slab.fanout, arm->resume);
        client->next = crowd->free;
        crowd->free = client;
    }
}

static struct client *take_free(struct crowd *crowd)
{
    struct client *client = crowd->free;
    if (!client)
        return NULL;
    crowd->free = client->next;
    crowd->active++;
    return client;
}

struct client *crowd_launch(struct crowd *crowd)
{
    struct client *client = take_free(crowd);
    if (client)
        start_task(client);
    return client;
}

struct client *crowd_launch_at(struct crowd *crowd, int64_t at_ns)
{
    struct client *client = take_free(crowd);
    if (client)
        runtime_timer_start_at(crowd->runtime, &client->timer, at_ns);
    return client;
}

static bool nobody_is_active(const void *context)
{
    return ((const struct crowd *)context)->active == 0;
}

int crowd_give_up(struct crowd *crowd, struct error *err)
{
    crowd->leaving = true;
    for (size_t i = 0; i < crowd->count; i++) {
        struct client *client = &crowd->clients[i];
        if (client->timer.place != TIMER_IDLE) {
            runtime_timer_cancel(crowd->runtime, &client->timer);
            become_free(client);
        } else if (client->task.state == TASK_ACTIVE) {
            (void)task_cancel(crowd->runtime, &client->task);
        }
    }
    if (runtime_run_until(crowd->runtime, nobody_is_active, crowd, err) < 0)
        return -1;
    for (size_t i = 0; i < crowd->count; i++)
        if (fanout_in_flight(crowd->clients[i].slab.fanout) > 0 &&
            fanout_drain(crowd->runtime, crowd->clients[i].slab.fanout, err) < 0)
            return -1;
    return ready_is_empty(&crowd->runtime->ready) || runtime_turn(crowd->runtime, false, err) >= 0 ? 0 : -1;
}

uint64_t crowd_children_ended(const struct crowd *crowd)
{
    uint64_t ended = 0;
    for (size_t i = 0; i < crowd->count; i++)
        ended += crowd->clients[i].slab.fanout->siblings.finished;
    return ended;
}

uint64_t crowd_most_in_flight(const struct crowd *crowd)
{
    uint64_t most = 0;
    for (size_t i = 0; i < crowd->count; i++) {
        uint64_t own = crowd->clients[i].slab.fanout->siblings.max_in_flight;
        most = own > most ? own : most;
    }
    return most;
}

void crowd_forget_most(struct crowd *crowd)
{
    for (size_t i = 0; i < crowd->count; i++) {
        struct siblings *siblings = &crowd->clients[i].slab.fanout->siblings;
        siblings->max_in_flight = siblings_in_flight(siblings);
    }
}
