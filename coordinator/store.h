/* store.h: a run's directory and its run.db (SQLite, WAL): every raw value, before it is acknowledged.
 *
 * The only file that includes sqlite3.h.  One writer per directory (a lock is held); readers may look at any
 * time. A call that returns 0 has committed.  Threads: one store, one thread.  Ownership: store_close frees
 * it. */
#ifndef COREFAN_COORDINATOR_STORE_H
#define COREFAN_COORDINATOR_STORE_H

#include "base/error.h"
#include "coordinator/plan.h"
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
 * tool_version, sweep (its source text), plan facts, environment (JSON array), reserved CPUs ... Replaces an
 * older value. */
int store_put_fact(struct store *store, const char *key, const char *value, struct error *err);
/* *ret: text to free(), or NULL when the fact is not there. */
int store_get_fact(struct store *store, const char *key, char **ret, struct error *err);

/* Groups and cells of the plan, in one transaction. */
int store_put_plan(struct store *store, const struct plan *plan, struct error *err);

/* A worker that registered: its number in the run and what it said of itself. */
int store_put_worker(struct store *store, int64_t worker, const struct wire_hello *hello, struct error *err);

/* What a worker said in ready (calibration, warm-up) for an attempt. */
int store_put_ready(struct store *store, int64_t worker, const struct wire_ready *ready, struct error *err);

/* One result part, committed on return.  *ret_new is false when that part was there already (a duplicate). */
int store_put_result(struct store *store, int64_t worker, const struct wire_result *result, bool *ret_new,
                     struct error *err);

/* The group's rounds of this attempt count: state done.  Rounds of other attempts stay, marked void. */
int store_finish_group(struct store *store, int64_t group, int64_t attempt, struct error *err);

/* The attempt is void; its rounds stay in the file but count for nothing. */
int store_void_attempt(struct store *store, int64_t group, int64_t attempt, const char *reason,
                       struct error *err);

/* The group is given up after its last attempt: state failed, with its story. */
int store_fail_group(struct store *store, int64_t group, const char *reason, struct error *err);

/* Something worth telling later: kind is a word (worker_lost, result_refused, ...). */
int store_put_event(struct store *store, const char *kind, const char *text, struct error *err);

struct store_group_state {
    bool done, failed;
    int64_t attempts;
};
int store_get_group(struct store *store, int64_t group, struct store_group_state *ret, struct error *err);

#endif
