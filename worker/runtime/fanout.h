/* fanout.h: N children that one coroutine awaits together; the slab that arms work on.
 *
 * Child i has a coroutine bodies[i] (a job's leaf, or the `coro` of a nested fan-out), a task, and a result
 * slot in that task.  Arms that make tasks run bodies[i] in tasks[i]; `sequential` awaits the bodies inline
 * and uses the tasks as slots only.  All memory is allocated by fanout_new, once per cell; launching again
 * allocates nothing.
 *
 * Use:  fanout_new -> set bodies[] -> fanout_bind(arm's resume) -> any coroutine awaits &fanout->coro, again
 * and again. It ends with the arm's outcome; OUTCOME_OK has the fanout as its value, its results are in the
 * slots, in input order. OUTCOME_GROUP has it too; the members are errors[0 .. error_count-1].
 *
 * Before a fan-out is launched again, all its children must be done and their callbacks run: always so after
 * OUTCOME_OK; after any other outcome call fanout_drain (or wait for fanout_in_flight() == 0 and yield once
 * more).
 *
 * Threads: the one that drives the runtime. */
#ifndef COREFAN_WORKER_RUNTIME_FANOUT_H
#define COREFAN_WORKER_RUNTIME_FANOUT_H

#include "worker/runtime/task.h"

#include <stddef.h>

struct fanout {
    struct siblings siblings; /* its children; first member, so that a child finds its fan-out */
    struct coro coro;         /* await this */
    uint32_t count;
    struct task *tasks;   /* count, 64 bytes each, aligned to cache lines */
    struct coro **bodies; /* count; the owner of the fan-out sets them */
    struct coro
        *body; /* task groups: what the group's own block awaits after it made the children, or NULL */
    /* one launch; written by the arm */
    struct waitable waitable; /* what the parent is suspended on */
    struct task *parent;
    struct outcome outer;   /* gather: its future's outcome; task group: that of its block */
    struct outcome *errors; /* count + 1 of them: members of a group, in order */
    uint32_t error_count;
    uint32_t finished; /* done-callbacks that have run */
    uint32_t next;     /* child that is being awaited */
    uint8_t stage;     /* where the arm's coroutine stands */
    uint8_t completed; /* task group: its future of that name */
    bool outer_done : 1;
    bool cancel_requested : 1; /* gather: a cancel reached at least one child.  task group: it cancelled its
                                  parent */
    bool aborting : 1;
    bool propagate_cancel : 1;
};

/* What became of the errors of the last launch; see fanout_errors. */
struct fanout_errors {
    uint64_t failed; /* children that ended with an error (not cancelled), nested ones not opened */
    uint64_t seen;   /* errors that reached the caller, in the outcome or in a result slot */
    uint64_t lost;   /* failed - seen */
};

/* 0: *ret is the caller's, fanout_free it.  -1: too many children or no memory. */
int fanout_new(uint32_t count, struct fanout **ret, struct error *err);
void fanout_free(struct fanout *fanout);

/* Which arm it is: its resume function (arms/arm.h). */
static inline void fanout_bind(struct fanout *fanout, enum step (*resume)(struct coro *, struct activation *))
{
    fanout->coro.resume = resume;
}

static inline struct fanout *fanout_of_coro(struct coro *coro)
{
    return (struct fanout *)(void *)((char *)coro - offsetof(struct fanout, coro));
}

static inline struct fanout *fanout_of_waitable(struct waitable *waitable)
{
    return (struct fanout *)(void *)((char *)waitable - offsetof(struct fanout, waitable));
}

static inline struct fanout *fanout_of_child(const struct task *task)
{
    return (struct fanout *)(void *)task->siblings;
}

static inline uint32_t fanout_index(const struct fanout *fanout, const struct task *task)
{
    return (uint32_t)(task - fanout->tasks);
}

/* For arms: makes a task of every child, in input order, and queues them all. */
static inline void fanout_start_children(struct runtime *runtime, struct fanout *fanout,
                                         void (*on_done)(struct runtime *, struct call *))
{
    struct call **tail = runtime->ready.tail;
    uint32_t started = 0;
    for (struct task *task = fanout->tasks; started < fanout->count; started++, task++) {
        task_prepare(task, fanout->bodies[started], on_done);
        *tail = &task->ready;
        tail = &task->ready.next;
    }
    runtime->ready.tail = tail;
    siblings_enter(&fanout->siblings, started);
}

/* Children that are created and not done: the orphans, when the arm has returned. */
static inline uint64_t fanout_in_flight(const struct fanout *fanout)
{
    return siblings_in_flight(&fanout->siblings);
}

/* Turns until every child is done and its callbacks have run.  Not from inside a coroutine. */
int fanout_drain(struct runtime *runtime, struct fanout *fanout, struct error *err);

/* Counts after the fan-out is drained; outcome is what its arm returned, keeps_errors says that the arm
 * leaves errors in the result slots (gather-return-exceptions).  Pure. */
struct fanout_errors fanout_errors(const struct fanout *fanout, struct outcome outcome, bool keeps_errors);

#endif
