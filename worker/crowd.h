/* crowd.h: the clients of a window: fan-outs of one kind that are under way at the same time, allocated once.
 *
 * Each client has a slab of its own and a task that awaits its fan-out.  What a client does when its fan-out has ended is
 * decided by the window that the crowd works for (crowd_hooks).  Cells of a slice that differ only in their arm share a
 * crowd: the arm is bound anew before each window.  Launching again allocates nothing.
 *
 * Threads: the measured one. */
#ifndef COREFAN_WORKER_CROWD_H
#define COREFAN_WORKER_CROWD_H

#include "base/error.h"
#include "proto/wire.h"
#include "worker/arms/arm.h"
#include "worker/slab.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client {
    struct coro coro;
    struct task task;
    struct crowd *crowd;
    struct slab slab;
    struct timer timer;  /* of its start, where that is not at once */
    int64_t intended_ns; /* its start by the schedule of an open loop */
    int64_t started_ns;  /* of the fan-out that is under way */
    struct client *next; /* the next free one */
};

enum client_next { CLIENT_AGAIN, CLIENT_YIELD, CLIENT_ENDS };

struct crowd_hooks {
    /* A client's task runs for the first time.  false: it ends at once. */
    bool (*begins)(void *context, struct client *client, int64_t now_ns);
    /* Its fan-out has ended well.  CLIENT_YIELD: again, after everything else that is ready. */
    enum client_next (*ended)(void *context, struct client *client, int64_t now_ns);
    /* Its fan-out has ended in any other way, though nobody asked for that. */
    void (*broke)(void *context, struct client *client);
    void *context;
};

struct crowd {
    struct runtime *runtime;
    const struct wire_cell *cell; /* the first one that asked for it */
    struct client *clients;
    size_t count;
    size_t active;       /* launched and not done */
    struct client *free; /* those that are not active */
    struct crowd_hooks hooks;
    bool leaving; /* what ends now was given up */
};

/* How many clients a cell needs: `clients`, or for an open loop as many as its backlog may hold. */
size_t crowd_size(const struct wire_cell *cell);

/* Whether the clients of one cell do for the other, if there are enough of them. */
bool crowd_alike(const struct wire_cell *a, const struct wire_cell *b);

/* size: crowd_size of the cell, or more in an open loop, for other cells of its kind.  cell must outlive the crowd.  -1: as
 * slab_open. */
int crowd_open(struct runtime *runtime, const struct wire_cell *cell, size_t size, struct crowd **ret,
               struct error *err);
void crowd_close(struct crowd *crowd); /* nobody is active; NULL is fine */

/* Whether a crowd made for one cell serves the other. */
bool crowd_serves(const struct crowd *crowd, const struct wire_cell *cell);

/* Nobody is active.  From now on all are free, run that arm and answer to these hooks. */
void crowd_bind(struct crowd *crowd, const struct arm *arm, const struct crowd_hooks *hooks);

/* Takes a free client and starts it: at once, or at at_ns of the runtime's clock.  NULL: none is free. */
struct client *crowd_launch(struct crowd *crowd);
struct client *crowd_launch_at(struct crowd *crowd, int64_t at_ns);

/* Cancels all that is under way and turns until it has ended.  0, or -1 when the loop cannot go on. */
int crowd_give_up(struct crowd *crowd, struct error *err);

/* Over all fan-outs: children that ended since the start, and how many were in flight at most in one of them since
 * crowd_forget_most. */
uint64_t crowd_children_ended(const struct crowd *crowd);
uint64_t crowd_most_in_flight(const struct crowd *crowd);
void crowd_forget_most(struct crowd *crowd);

#endif
