/* resume.h: a run that was begun and not finished: what it was asked to do, and what of it is done.
 *
 * Groups whose state is done are left as they are; those that are planned, partial or failed are measured, each in a
 * further attempt, so that no number of an attempt is ever used twice.  The plan is made again from the stored sweep and
 * must come out as the stored one: same sweep, same seed, same `all`, same cells.
 *
 * Ownership: resume_release frees all but the store, which the caller takes.  Threads: one. */
#ifndef COREFAN_COORDINATOR_RESUME_H
#define COREFAN_COORDINATOR_RESUME_H

#include "base/error.h"
#include "coordinator/plan/plan.h"
#include "coordinator/schedule/schedule.h"
#include "coordinator/store/store.h"

#include <stddef.h>
#include <stdint.h>

struct resume { /* zeroed: nothing */
    struct store *store;
    char *run;          /* its id: workers that outlived its coordinator know it by that */
    char *sweep;        /* canonical JSON */
    char *environment;  /* JSON array, or NULL */
    int64_t all_cores;  /* what `all` stood for */
    int64_t elapsed_ns; /* by then */
    int64_t first_worker;
    struct schedule_past *past;  /* by group */
    struct schedule_load *loads; /* by cell */
    struct store_run *before;
};

/* Takes the writer's lock of DIR.  ERROR_USAGE: it is no run, another corefan has it, or it never got as far as its
 * plan. */
int resume_open(const char *dir, struct resume *ret, struct error *err);

/* ERROR_USAGE: the plan is not the one that was begun; says in what. */
int resume_check(const struct resume *resume, const struct plan *plan, struct error *err);

void resume_release(struct resume *resume);

#endif
