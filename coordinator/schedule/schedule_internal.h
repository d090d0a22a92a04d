/* schedule_internal.h: the structures of the schedule and what its files ask of each other.
 *
 * schedule.c: peers, messages, time.  schedule_ability.c: what workers announced.  schedule_groups.c: which group goes
 * where, its turns, its end.  schedule_ladder.c: which groups wait for others, and what those showed.
 * schedule_effort.c: whether a group may start and how long it goes on: precision, budget. */
#ifndef COREFAN_COORDINATOR_SCHEDULE_INTERNAL_H
#define COREFAN_COORDINATOR_SCHEDULE_INTERNAL_H

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/memory.h"
#include "coordinator/schedule/schedule.h"

enum worker_state {
    WORKER_IDLE,
    WORKER_PREPARING, /* assign sent */
    WORKER_READY,
    WORKER_MEASURING, /* go sent */
    WORKER_ABORTING,  /* abort sent; its answer is awaited before its host is used again */
    WORKER_WEDGED,    /* its lease ran out: out of the pool until it answers */
    WORKER_LEAVING,   /* told to end: all that is heard of it is its goodbye */
    WORKER_LOST,
};

struct peer_host;
struct attempt;

struct worker {
    int64_t number;
    unsigned char identity[SCHEDULE_MAX_IDENTITY];
    size_t identity_bytes;
    struct wire_message hello; /* as said; released when lost */
    char instance[40];
    char key[48]; /* only who holds it may speak for the instance */
    char *name;   /* "worker 3 (host b, cpu 5)" */
    struct peer_host *host;
    size_t label;
    int64_t slot; /* WIRE_NULL: not ours */
    bool shares_clock;
    bool busy_heartbeats;
    bool reconnected; /* since its slice was assigned */
    enum worker_state state;
    int64_t heard_ns;
    int64_t lease_until_ns; /* 0: none */
    int64_t lost_ns;
    int64_t order; /* in its pool */

    struct attempt *attempt; /* it is a member of */
    size_t runtime;          /* of the group, within the attempt */
    int64_t go;              /* last one sent */
    int64_t next_part;
    int64_t first_block, block_end;
    int64_t *next_block; /* of each cell of its slice, within the go */
    int64_t rounds_done; /* within the go, by results or heartbeats */

    int64_t logged_ns; /* of the last line about what was refused */
};

struct pool {
    struct worker **at; /* by order */
    size_t count, room;
};

struct peer_host {
    char *key;
    struct pool *pools; /* by label */
    struct attempt *attempt;
    int64_t renewing; /* places whose next worker is awaited: nothing starts here before */
    bool queued;      /* in the list of hosts to look at */
    struct peer_host *next;
};

enum group_status { GROUP_WAITING, GROUP_UNDER_WAY, GROUP_DONE, GROUP_FAILED };

/* The cells of one runtime of a group. */
struct slice {
    size_t label;
    const int64_t *cells; /* numbers; borrowed from the group */
    size_t cell_count;
    int64_t block_ns; /* one round of each */
};

struct group {
    const struct plan_group *plan;
    int64_t *cells; /* those of the plan, without those that are left out */
    int64_t cell_count;
    int64_t expected_ns; /* of them */
    struct slice *slices;
    size_t slice_count;
    enum group_status status;
    int64_t attempts;
    int64_t earlier;   /* attempts of a coordinator before this one */
    int64_t pass;      /* of the attempt: how many processes are done */
    int64_t newest;    /* highest number of a worker that measured it in this attempt; -1: none */
    bool kept;         /* something of the attempt is whole: it counts even if no more follows */
    bool admitted;     /* its time is set aside */
    bool held;         /* waits for other groups: in no queue yet */
    int64_t next_rung; /* above it; -1: none */
    int64_t until_ns;  /* rounds: auto: when its share of the budget ends */
    int64_t block_ns;  /* one block of all its runtimes, as expected */
    char *story;       /* what ended its attempts */
    size_t shape;
    int64_t next; /* waiting one of the same shape, or -1 */
};

/* Groups that need the same workers, in order. */
struct shape {
    size_t *labels;
    size_t label_count;
    int64_t cores;
    bool fresh;         /* several processes: workers must have a place, so that it can be renewed */
    int64_t head, tail; /* -1: empty */
};

/* A series of the plan: a ladder's cells of one runtime and arm. */
struct series {
    int64_t groups_left;     /* of its rungs */
    int64_t saturated_rungs; /* where its core had nothing left */
    int64_t saturated_at;    /* clients of the highest of them */
    double ceiling_per_s;    /* the most that a rung did, per core; 0: nothing is known */
};

/* What rounds: auto decides by: the values of one cell, per fan-out. */
struct effort_values {
    double *wall_ns, *cpu_ns;
    size_t count, room;
};

/* One try at a group; of a group with several processes, one pass of it. */
struct attempt {
    struct group *group;
    int64_t number;
    struct peer_host **hosts;
    size_t host_count;
    struct worker **members; /* by runtime, `cores` of each; NULL once gone */
    size_t member_count;
    size_t ready_count, measuring_count, aborting_count;
    bool voided;
    bool partial; /* stopped before its end */
    bool stored;  /* rounds of it are in the store */
    int64_t go, block;
    int64_t first_block, batch_end;  /* of the pass; of the batch */
    int64_t started_ns, measured_ns; /* assigned; first go */
    struct effort_values *values;    /* by cell of the group; NULL: fixed rounds */
    size_t runtime_turn, cell_turn;
    uint32_t *runtime_order, *cell_order;
    int64_t turns_done; /* runtime turns */
    struct attempt *next, *previous;
};

struct slot_state {
    struct worker *worker;
    struct worker *leaving;     /* had the place before; NULL: nobody, or long gone */
    struct peer_host *renewing; /* waits for the next worker */
    bool over;
};

struct schedule {
    struct schedule_config config;
    char *run, *boot_id, *host;
    char **labels;
    int64_t *live; /* by label */
    struct slot_state *slots;

    enum schedule_phase phase;
    int64_t now_ns, ticked_ns;
    struct map identities;                      /* -> struct worker */
    struct map instances;                       /* -> struct worker */
    struct map hosts;                           /* -> struct peer_host */
    struct map strangers;                       /* -> when it was last told of, ns */
    int64_t strangers_since_ns, strangers_told; /* lines of this minute */
    struct worker **workers;
    size_t worker_count, worker_room;
    struct peer_host **host_list;
    size_t host_count, host_room;
    struct peer_host *look_first, *look_last;

    const struct plan *plan;
    struct group *groups;
    size_t *cell_position; /* in its slice, by cell */
    struct shape *shapes;
    size_t shape_count;
    struct series *series;
    struct schedule_load *loads; /* by cell, of ladders */
    double *rates;               /* by cell: what a part of a ceiling came to; 0: the cell's own */
    int64_t *parts;              /* numbers of groups with parts of ceilings */
    size_t part_count;
    struct attempt *attempts; /* under way */
    int64_t groups_left, groups_done, groups_failed, done_ns;
    int64_t deadline_ns;               /* INT64_MAX: none */
    int64_t needed_ns, auto_needed_ns; /* least time that unfinished groups need; those with rounds: auto */
    int64_t committed_ns;              /* of those that were admitted */
    int64_t fixed_took_ns, fixed_cost_ns; /* passes with fixed rounds: in truth, as expected */
    int64_t stuck_since_ns;               /* nothing runs and nothing can; 0: not so */
    int64_t workers_lost, workers_renewed, voided, refused, malformed, duplicates;

    struct schedule_action *actions;
    size_t action_count, action_room, action_read;
};

/* schedule.c */
struct schedule_action *schedule_act(struct schedule *schedule, enum schedule_action_kind kind);
struct schedule_action *schedule_send(struct schedule *schedule, const struct worker *worker,
                                      enum wire_type type);
void schedule_log(struct schedule *schedule, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void schedule_note(struct schedule *schedule, const char *word, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

void schedule_renew(struct schedule *schedule, struct worker *worker);

/* schedule_effort.c */
int64_t effort_pass_ns(const struct group *group);
/* Counts what the group still needs in (sign 1) or out (-1): out before its pass or status changes, in afterwards. */
void effort_count(struct schedule *schedule, const struct group *group, int sign);
bool effort_admits(struct schedule *schedule, struct group *group);
void effort_open(const struct schedule *schedule, struct attempt *attempt);
void effort_close(struct attempt *attempt);
void effort_take(struct attempt *attempt, const struct wire_result *result);
bool effort_goes_on(const struct schedule *schedule, struct attempt *attempt); /* moves batch_end */
void effort_learn(struct schedule *schedule, const struct attempt *attempt);

/* schedule_ladder.c */
void ladder_begin(struct schedule *schedule, const struct schedule_load *loads); /* holds what must wait */
void ladder_free(struct schedule *schedule);
void ladder_take(struct schedule *schedule, const struct wire_result *result);
void ladder_forget(struct schedule *schedule, const struct group *group); /* its attempt is void */
void ladder_over(struct schedule *schedule, struct group *group);         /* frees what waited for it */

/* schedule_ability.c: "arm" or "job" and its name, where the worker has not announced what the cell needs, or NULL. */
const char *schedule_lacks(const struct wire_hello *hello, const struct plan_cell *cell,
                           const char **ret_name);

/* schedule_groups.c */
void schedule_groups_begin(struct schedule *schedule, const struct schedule_past *past,
                           const struct schedule_load *loads);
void schedule_release(struct schedule *schedule, struct group *group); /* waits no more: into its queue */
void schedule_leave_out(struct schedule *schedule, struct group *group, const char *why);
void schedule_leave_out_cell(struct schedule *schedule, int64_t cell, const char *why);
/* Of a group that waits no more and is in no queue yet: the first `count` of its cells are all that it has.  There may be
 * a shape more afterwards, so pointers to shapes no longer hold. */
void schedule_keep_cells(struct schedule *schedule, struct group *group, int64_t count);
void schedule_fail_group(struct schedule *schedule, struct group *group, const char *why);
void schedule_groups_free(struct schedule *schedule);
void schedule_look_at(struct schedule *schedule, struct peer_host *host);
void schedule_look_at_all(struct schedule *schedule);
void schedule_dispatch(struct schedule *schedule); /* gives waiting groups to hosts that were marked */
void schedule_stuck(struct schedule *schedule);    /* gives up what nobody can run any more */
void schedule_member_ready(struct schedule *schedule, struct worker *worker, const struct wire_ready *ready);
void schedule_member_done(struct schedule *schedule, struct worker *worker, bool complete, const char *error);
void schedule_member_settled(struct schedule *schedule, struct worker *worker); /* an abort was answered */
void schedule_member_gone(struct schedule *schedule, struct worker *worker, const char *why);
void schedule_void(struct schedule *schedule, struct attempt *attempt, const char *why);
void schedule_assign(struct schedule *schedule, struct worker *worker);
void schedule_stop(struct schedule *schedule);
void schedule_close_kept(struct schedule *schedule); /* stopped: what is whole counts */
int64_t schedule_attempt_done_ns(const struct attempt *attempt);
const struct slice *schedule_slice_of(const struct worker *worker);
void pool_add(struct pool *pool, struct worker *worker);
void pool_remove(struct pool *pool, const struct worker *worker);

#endif
