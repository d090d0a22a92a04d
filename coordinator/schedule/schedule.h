/* schedule.h: who measures what, and when: the state of a fleet without sockets, processes or clocks.
 *
 * A pure state machine.  Events go in (a message of a peer, the death of a local worker, the time), actions come
 * out (send this, store that, kill this slot), in the order in which they are to be carried out.  The fleet feeds
 * it real ones; tests and a fuzz target feed it made-up ones in virtual time.
 *
 *   worker:  registered -> preparing -> ready -> measuring -> ... -> idle      lost when it dies or falls silent,
 *                                                                             wedged when its lease runs out
 *   group:   waiting -> under way (attempt 1) -> done
 *                       void (a member was lost) -> waiting -> attempt 2, 3 -> done, or failed with its story
 *
 * Passes.  A group of K processes is measured in K passes of one attempt, each by workers that have not measured it
 * before in this attempt: a place whose worker has is renewed first, and its host waits for the new one.  Every group
 * has its first pass before any has its second, so a place is renewed once per pass, whatever the number of groups, and the
 * processes of a group are spread over the run.  Workers without a place cannot be renewed and take no part in it.
 *
 * Effort.  A pass is one batch of blocks, or (rounds: auto) batches until precision.h says that it is enough.
 * With a budget, a group starts only if the least that it needs fits into the time that is left; what remains beyond
 * the least of all groups is shared by those with rounds: auto, by their expected cost.
 *
 * Ladders.  A rung waits for the one below it.  A series leaves the ladder once it was saturated on
 * PLAN_SATURATED_RUNGS rungs, and a rung that no series is left for is left out; rates that are a part of a ceiling wait for the whole ladder: then they are numbers.
 *
 * Rules.  A host (one boot id and host name) runs one group at a time.  A group's members are all ready before
 * the first `go`.  A result is stored before it is acknowledged, because the action to store precedes the one to
 * send.  Of each member, go, cell and block exactly one round is accepted; all else is counted and refused.
 * Leases bound every wait for a worker that is busy, heartbeats every wait for one that is not.
 *
 * Memory: bounded by `max_workers` registrations and by one hello (64 KiB) for each live worker.
 * Cost: an event costs O(members of the group it touches), a tick O(workers).
 * Threads: one.  Times are ns of one monotonic clock. */
#ifndef COREFAN_COORDINATOR_SCHEDULE_H
#define COREFAN_COORDINATOR_SCHEDULE_H

#include "base/error.h"
#include "coordinator/plan/plan.h"
#include "proto/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHEDULE_MAX_ATTEMPTS    3
#define SCHEDULE_MISSED_BEATS    3
#define SCHEDULE_MAX_WORKERS     16384 /* registrations in one run, restarts counted, renewals not */
#define SCHEDULE_MAX_STRANGERS   1024  /* unregistered peers that are told apart */
#define SCHEDULE_MAX_IDENTITY    255   /* bytes; the limit of ZeroMQ */
#define SCHEDULE_STRANGER_LOG_NS (60 * 1000000000LL)
#define SCHEDULE_STRANGER_LINES  8 /* in that time, over all of them */

struct schedule;

struct schedule_config {
    const char *run;           /* id of the run, told to every worker */
    const char *const *labels; /* runtime labels of the sweep; a worker of another one is rejected */
    size_t label_count;
    const char *boot_id; /* of this host: who has the same can be given a start time */
    const char *host;
    int64_t heartbeat_ns;
    int64_t
        rejoin_ns; /* how long a lost worker that was started by hand is waited for when nothing else can go on */
    size_t slot_count;    /* places of local workers, numbered from 0 */
    uint64_t seed;        /* of the hash tables only */
    int64_t budget_ns;    /* for all groups, from schedule_begin on; 0: all it takes */
    int64_t first_worker; /* number of the first one that registers */
};

enum schedule_event_kind {
    SCHEDULE_MESSAGE,   /* a decoded frame: identity, message */
    SCHEDULE_MALFORMED, /* a frame that is none: identity, text = what to answer */
    SCHEDULE_GONE,      /* a peer that cannot be reached: identity, text */
    SCHEDULE_SLOT_LOST, /* the process of a slot ended: slot, text */
    SCHEDULE_SLOT_OVER, /* and it will not be started again: slot, text */
    SCHEDULE_TICK,      /* time has passed */
    SCHEDULE_STOP,      /* the user wants to stop: finish the rounds that run, then no more */
};

struct schedule_event {
    enum schedule_event_kind kind;
    int64_t now_ns;
    const void *identity;
    size_t identity_bytes;
    const char *key;              /* that the peer holds; NULL or "": none is needed */
    struct wire_message *message; /* may be taken over: it is zeroed then */
    const char *text;
    int64_t slot;
};

#define SCHEDULE_ACTIONS(X)                                                                                  \
    X(SEND)            /* message to identity; start_in_ns > 0: set go.start_at_ns to now + that */          \
    X(STORE_WORKER)    /* number, hello */                                                                   \
    X(STORE_READY)     /* number, ready */                                                                   \
    X(STORE_RESULT)    /* number, result */                                                                  \
    X(STORE_FINISH)    /* group, attempt */                                                                  \
    X(STORE_KEEP)      /* group, attempt: stopped by the user, what is stored counts */                      \
    X(STORE_VOID)      /* group, attempt, text */                                                            \
    X(STORE_FAIL)      /* group, text */                                                                     \
    X(STORE_LEAVE_OUT) /* group, text: not measured, and that is no failure */                               \
    X(STORE_DROP_CELL) /* number of a cell, text: the same for an arm of a group that is measured */         \
    X(STORE_RATE)      /* number of a cell, rate_per_s: what a part of a ceiling comes to */                 \
    X(STORE_EVENT)     /* word, text */                                                                      \
    X(REGISTERED)      /* slot: its worker is here */                                                        \
    X(KILL)            /* slot: end its process; the launcher starts the next one */                         \
    X(RENEW)           /* slot: its worker was told to end; start the next one, this is no failure */        \
    X(OCCUPY)          /* slot: its worker was given something to measure */                                 \
    X(VACATE)          /* slot: no more; as often as OCCUPY */                                               \
    X(LOG)             /* level, text */

enum schedule_action_kind {
#define X(name) SCHEDULE_##name,
    SCHEDULE_ACTIONS(X)
#undef X
};

/* What it points at lives until the next event is fed. */
struct schedule_action {
    enum schedule_action_kind kind;
    const void *identity;
    size_t identity_bytes;
    struct wire_message message; /* SEND; never release it */
    int64_t start_in_ns;
    int64_t number; /* of a worker; of a cell */
    double rate_per_s;
    const struct wire_hello *hello;
    const struct wire_ready *ready;
    const struct wire_result *result;
    int64_t group, attempt, slot;
    const char *word;
    char *text;
    int level;       /* enum log_level */
    void *cell_list; /* of an assign; owned by the schedule */
};

enum schedule_phase {
    SCHEDULE_GATHERING, /* workers register; no plan yet */
    SCHEDULE_RUNNING,
    SCHEDULE_STOPPING, /* after SCHEDULE_STOP: waits for the last results */
    SCHEDULE_OVER,     /* every group done or failed, or stopped */
    SCHEDULE_CLOSING,  /* after schedule_farewell: waits for the answers */
};

struct schedule_progress {
    enum schedule_phase phase;
    int64_t group_count, groups_done, groups_failed, groups_under_way;
    int64_t expected_ns, done_ns; /* of the plan; done_ns with the parts of running groups */
    int64_t current_group;        /* one that runs, or -1 */
    int64_t workers_live, workers_registered, workers_lost, workers_renewed;
    int64_t voided, refused, malformed, duplicates;
};

/* Copies what it needs of the config.  Never NULL. */
struct schedule *schedule_new(const struct schedule_config *config);
void schedule_free(struct schedule *schedule);

/* Live workers of that label; of the one with the fewest for NULL. */
int64_t schedule_live(const struct schedule *schedule, const char *label);

/* Slots whose worker is not registered and may still come. */
int64_t schedule_slots_coming(const struct schedule *schedule);

/* What an earlier coordinator made of a group. */
struct schedule_past {
    bool done;        /* need not run again */
    int64_t attempts; /* begun: the next one has a higher number */
};

/* The first arm or job that the plan has for a label and that no live worker of it has announced, in words, or NULL.
 * Groups that are done in `past` (by group, or NULL) do not count.  free() it. */
char *schedule_lacking(const struct schedule *schedule, const struct plan *plan,
                       const struct schedule_past *past);

#define SCHEDULE_TICK_NS 1e7 /* of a round's busy_ticks */

/* What windows of one cell came to, over all that count. */
struct schedule_load {
    double fanouts, wall_ns, cpu_ns, busy_ns; /* busy: of the CPU, whoever used it; 0 when not known */
};

/* Starts the plan, which must outlive the schedule.  Phase GATHERING only.  past: by group, or NULL; loads: of the cells
 * of ladders that need not run again, by cell, or NULL. */
void schedule_begin(struct schedule *schedule, const struct plan *plan, const struct schedule_past *past,
                    const struct schedule_load *loads, int64_t now_ns);

/* Takes one event.  Its actions are then waiting; those of the event before are forgotten. */
void schedule_feed(struct schedule *schedule, const struct schedule_event *event);

/* The next action in order, or NULL.  Read all of them before the next event. */
const struct schedule_action *schedule_next(struct schedule *schedule);

/* Says goodbye to every live worker: fills actions.  From then on all that is heard is their own goodbye. */
void schedule_farewell(struct schedule *schedule, const char *reason);

/* The longest round of the groups under way, as expected. */
int64_t schedule_round_ns(const struct schedule *schedule);

/* Workers without a place that can still be reached. */
int64_t schedule_by_hand(const struct schedule *schedule);

void schedule_progress(const struct schedule *schedule, struct schedule_progress *ret);

/* Checks what must always hold, for tests and fuzzing: NULL, or what does not. */
const char *schedule_check(const struct schedule *schedule);

#endif
