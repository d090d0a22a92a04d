/* store.h: a run's directory and its run.db (SQLite, WAL): every raw value, before it is acknowledged.
 *
 * The only file that includes sqlite3.h.  One writer per directory (a lock is held); readers may look at any
 * time. A call that returns 0 has committed.  Threads: one store, one thread.  Ownership: store_close frees
 * it. */
#ifndef COREFAN_COORDINATOR_STORE_H
#define COREFAN_COORDINATOR_STORE_H

#include "base/error.h"
#include "coordinator/plan/plan.h"
#include "proto/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct store;

/* Makes DIR (and its parents) and an empty run.db with the schema.  Refuses a directory that exists and is
 * not empty. */
int store_create(const char *dir, struct store **ret, struct error *err);

enum store_mode { STORE_READ, STORE_RESUME };

/* Opens what store_create made.  STORE_RESUME takes the writer's lock. */
int store_open(const char *dir, enum store_mode mode, struct store **ret, struct error *err);

void store_close(struct store *store); /* NULL is fine */

/* Facts about the run as text: run_id, name, seed, started_at, finished_at, status, argv (JSON),
 * tool_version, sweep (canonical JSON), elapsed_ns, plan facts, environment (JSON array), reserved CPUs ... Replaces an
 * older value. */
int store_put_fact(struct store *store, const char *key, const char *value, struct error *err);
/* *ret: text to free(), or NULL when the fact is not there. */
int store_get_fact(struct store *store, const char *key, char **ret, struct error *err);

/* Groups and cells of the plan, in one transaction, and the facts name, seed, sweep_sha256, all_cores,
 * expected_ns. */
int store_put_plan(struct store *store, const struct plan *plan, struct error *err);

/* A worker that registered: its number in the run and what it said of itself. */
int store_put_worker(struct store *store, int64_t worker, const struct wire_hello *hello, struct error *err);

/* What a worker said in ready (calibration, warm-up) for an attempt. */
int store_put_ready(struct store *store, int64_t worker, const struct wire_ready *ready, struct error *err);

/* One result part, committed on return.  *ret_new is false when that part was there already (a duplicate). -1
 * with ERROR_USAGE: the part contradicts the plan (a cell that is not of that group) or repeats a round;
 * nothing of it was stored, the store is fine.  Any other kind: the disk or the file. */
int store_put_result(struct store *store, int64_t worker, const struct wire_result *result, bool *ret_new,
                     struct error *err);

/* The group's rounds of this attempt count: state done, which says nothing of how many there are (a run
 * with a budget may end a group early).  Rounds of other attempts stay, marked void. */
int store_finish_group(struct store *store, int64_t group, int64_t attempt, struct error *err);

/* The attempt is void; its rounds stay in the file but count for nothing.  Not even when finished later. */
int store_void_attempt(struct store *store, int64_t group, int64_t attempt, const char *reason,
                       struct error *err);

/* The same for a group that was stopped before its end: state partial; the rounds that it has count. */
int store_keep_group(struct store *store, int64_t group, int64_t attempt, const char *reason,
                     struct error *err);

/* The group is given up after its last attempt: state failed, with its story. */
int store_fail_group(struct store *store, int64_t group, const char *reason, struct error *err);

/* The group is not measured, and that is no failure: a rung beyond saturation.  State left_out. */
int store_leave_out_group(struct store *store, int64_t group, const char *reason, struct error *err);

/* The same for an arm of a group whose other arms are measured. */
int store_leave_out_cell(struct store *store, int64_t cell, const char *reason, struct error *err);

/* What the rate of a cell comes to that is a part of a measured ceiling. */
int store_put_rate(struct store *store, int64_t cell, double rate_per_s, struct error *err);

/* Something worth telling later: kind is a word (worker_lost, result_refused, ...). */
int store_put_event(struct store *store, const char *kind, const char *text, struct error *err);

struct store_group_state {
    bool done, failed;
    int64_t attempts;
};
int store_get_group(struct store *store, int64_t group, struct store_group_state *ret, struct error *err);

/* ---- Reading a run back: what summary.c needs, in plan order. ---- */

enum store_group_status {
    STORE_GROUP_PLANNED,
    STORE_GROUP_PARTIAL,
    STORE_GROUP_DONE,
    STORE_GROUP_FAILED,
    STORE_GROUP_LEFT_OUT
};

struct store_group {
    int64_t number; /* its index */
    char *title;
    enum store_group_status status;
    int64_t attempt;  /* the one that counts, when done */
    int64_t attempts; /* begun */
    char *reason;     /* of a failure or of the last void attempt; NULL without either */
    int64_t cores, processes;
    int64_t blocks; /* of each process, which number them from its own multiple on; rounds: auto: the most */
    double precision; /* that rounds: auto goes on to; 0: fixed rounds */
    uint64_t seed;
};

struct store_cell {
    int64_t number; /* its index, and spec.cell */
    int64_t group;
    char *id;
    char *runtime;
    int64_t cores, rounds, processes;
    bool harness;
    double rate_factor; /* the rate is this part of a measured ceiling; 0: it is a number */
    char *left_out;     /* why it was not measured, and that is no failure; NULL without */
    struct wire_cell spec;
};

struct store_worker {
    int64_t number;
    struct wire_hello hello;
};

/* What ready said of one cell, in the attempt that counts. */
struct store_prepared {
    int64_t worker;
    struct wire_prepared said; /* said.cell */
};

struct store_run {
    struct store_group *groups;
    struct store_cell *cells; /* with the harness cells */
    struct store_worker *workers;
    struct store_prepared *prepared; /* by cell, then worker */
    size_t group_count, cell_count, worker_count, prepared_count;
    void *texts; /* owner of every text that hangs below */
};

struct store_round {
    int64_t worker, go;
    struct wire_round raw;
};

struct store_rounds {
    struct store_round *at; /* by worker, then block */
    size_t count;
    void *texts;
};

/* 0: *ret is the caller's, store_run_free it. */
int store_load(struct store *store, struct store_run **ret, struct error *err);
void store_run_free(struct store_run *run); /* NULL is fine */

/* The rounds of one cell that count: those of the attempt that finished its group. */
int store_load_rounds(struct store *store, int64_t cell, struct store_rounds **ret, struct error *err);
void store_rounds_free(struct store_rounds *rounds); /* NULL is fine */

#endif
