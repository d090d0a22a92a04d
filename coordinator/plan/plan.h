/* plan.h: a sweep made concrete: groups, cells, order and expected cost.
 *
 * sweep -> plan is pure: the same sweep, seed, worker counts and options give the same plan, byte for byte.
 * Ownership: plan_free frees everything that hangs below.  Threads: a plan is read-only once made. */
#ifndef COREFAN_COORDINATOR_PLAN_H
#define COREFAN_COORDINATOR_PLAN_H

#include "base/error.h"
#include "proto/wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PLAN_SATURATED_RUNGS 2
#define PLAN_SATURATED       0.98 /* utilization of a core that has nothing left */
#define PLAN_OWN_SHARE                                                                                       \
    0.9 /* of its time that the measured thread has then, at least: others are no saturation */

struct sweep; /* sweep.h */
struct sweep_map;

/* One arm on one runtime with one value of every other key.  Its number is its index in plan->cells. */
struct plan_cell {
    struct wire_cell spec; /* spec.cell is the number */
    char *id;              /* canonical text, stable across runs; the same for nothing else in the plan */
    int64_t group;
    char *runtime;  /* label */
    int64_t cores;  /* the gang: workers that run it at the same time */
    int64_t rounds; /* per worker and process; blocks of its group */
    int64_t processes;
    bool harness;        /* the `empty` arm of its group and runtime: measured, not reported as a cell */
    int64_t expected_ns; /* one round, as far as known beforehand */
    /* A ladder's cells of one runtime and arm are a series: what is saturated, and the ceiling.  Of a rung: the one that it
     * belongs to; with a rate_factor: the one whose ceiling it is a part of; else -1. */
    int64_t series;
    double rate_factor; /* spec.rate_per_s is this times the ceiling, once that is known; 0: it is a number */
};

/* Cells that differ only in arm or runtime; measured together, in blocks. */
struct plan_group {
    int64_t number; /* also its position in plan->groups: the order of execution */
    char *title;    /* "40 x 10ms sleep, 1 core" */
    int64_t *cells; /* numbers, by runtime, then arm, the harness cell of each runtime last */
    int64_t cell_count;
    char **runtimes; /* labels, in the order of the sweep */
    int64_t runtime_count;
    int64_t cores;
    int64_t blocks; /* of each process; process p has those from p * blocks on.  rounds: auto: the most */
    int64_t processes;
    double precision; /* rounds: auto goes on to it; 0: fixed rounds */
    int64_t clients;
    int64_t window_ns;     /* length of its rounds; 0: they are no windows */
    int64_t previous_rung; /* of its ladder: the group that must be over before; -1: none */
    bool
        is_rung; /* of a ladder: a series that was saturated on PLAN_SATURATED_RUNGS before has no part in it */
    uint64_t seed;       /* orders of its blocks */
    int64_t expected_ns; /* all blocks and warm-ups; rounds: auto: with PRECISION_FIRST_BLOCKS, the least */
};

struct plan_runtime {
    char *label;
    char *kind;   /* libuv, asyncio, uvloop */
    char *python; /* interpreter, or NULL */
    bool eager;
    struct wire_pairs jobs; /* own coroutines: name -> module:function */
    char *path;             /* for their import, or NULL */
};

struct plan {
    char *name;
    uint64_t seed;
    char sweep_sha256[65];
    struct plan_runtime *runtimes;
    int64_t runtime_count;
    struct plan_group *groups;
    int64_t group_count;
    struct plan_cell *cells;
    int64_t cell_count;     /* with the harness cells */
    int64_t reported_count; /* without them */
    int64_t series_count;
    int64_t expected_ns; /* with the time in which workers start again */
    int64_t all_cores;   /* what `all` stood for */
};

/* workers_per_runtime: what `all` stands for.  Refuses more cores than that, and more than 10^5 cells. */
int plan_make(const struct sweep *sweep, int64_t workers_per_runtime, struct plan **ret, struct error *err);

void plan_free(struct plan *plan); /* NULL is fine */

/* Whether a threshold of the sweep (a map of sweep_expect_type) speaks of this cell; never of a harness one. */
bool plan_cell_matches(const struct plan *plan, const struct plan_cell *cell,
                       const struct sweep_map *threshold);

/* Blocks per process that expected_ns stands for. */
int64_t plan_expected_blocks(const struct plan_group *group);

/* Whole plan for people (100 columns) or as JSON; budget_ns: what `--budget` allows, 0: all it takes.  0 or -1 when the
 * stream failed. */
int plan_print_text(const struct plan *plan, int64_t budget_ns, FILE *out);
int plan_print_json(const struct plan *plan, int64_t budget_ns, FILE *out);

#endif
