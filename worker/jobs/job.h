/* job.h: what the children of a fan-out do.  One line per job in the table of job.c.
 *
 * A job fills fanout->bodies with its leaves.  It does not know which arm awaits them.
 *   noop   ends at once
 *   sleep  waits delay_ns
 *   cpu    burns delay_ns of thread CPU
 *
 * Use: fanout_new -> job_open (allocates all leaves) -> rounds -> job_close -> fanout_free.
 * Nothing is allocated between job_open and job_close.  Threads: the one that drives the runtime. */
#ifndef COREFAN_WORKER_JOBS_JOB_H
#define COREFAN_WORKER_JOBS_JOB_H

#include "base/error.h"
#include "worker/jobs/leaf.h"
#include "worker/runtime/fanout.h"

#include <stdbool.h>
#include <stdint.h>

struct job_failure {   /* how failing children end, and how every child takes a cancel */
    int64_t children;  /* the first k in input order fail; job_choose_failing overrides */
    int64_t at_ns;     /* from their own start */
    enum leaf_end end; /* LEAF_FAIL or LEAF_CANCEL_SELF; LEAF_OK: there are no failures */
    enum leaf_on_cancel on_cancel;
    int64_t cleanup_ns;
};

struct job_stall {    /* the first children burn CPU before they wait */
    int64_t children; /* 0: none */
    int64_t cpu_ns;
};

struct job_parameter { /* further keys of a job by name */
    const char *name, *value;
};

struct job_config {
    int64_t delay_ns;
    enum sleep_source source;
    struct job_failure failure;
    struct job_stall stall;
    const struct job_parameter *parameters;
    size_t parameter_count;
};

struct job {
    const char *name;
    bool waits;       /* a child suspends on a wait: rounds are timed one by one; else L are timed together */
    bool needs_delay; /* delay_ns must be > 0 */
    /* Fills the script of one of its children; the jobs of this table are scripted. */
    void (*script)(const struct job_config *config, struct leaf_script *ret);
};

struct job_children; /* the leaves of one fan-out */

/* NULL when there is none of that name. */
const struct job *job_find(const char *name);
size_t job_count(void);
const struct job *job_at(size_t index);
int job_check(struct error *err); /* the table; call at start */

/* Makes the leaves of fanout and sets its bodies.  config is copied.  0, or -1 (no memory, a config that
 * makes no sense, libuv failed): *ret and the fanout's bodies are untouched then. */
int job_open(const struct job *job, struct runtime *runtime, struct fanout *fanout,
             const struct job_config *config, struct job_children **ret, struct error *err);

/* The children must be done.  With SLEEP_UV_TIMER their handles close at the next turns of the libuv loop:
 * this runs the loop until they have. */
void job_close(struct job_children *children);

/* Which children fail in the next launch: failing[i] != 0.  Between launches only.  Needs a config with
 * failures. */
void job_choose_failing(struct job_children *children, const uint8_t *failing);

/* Overshoot of child i's wait in the last launch; LEAF_NOT_WAITED when it had none that ended by its timer.
 */
int64_t job_overshoot_ns(const struct job_children *children, uint32_t i);

/* How late child i's wait ended against from_ns + its delay, as if it had begun at from_ns; LEAF_NOT_WAITED
 * likewise. */
int64_t job_late_ns(const struct job_children *children, uint32_t i, int64_t from_ns);

/* Whether child i burnt CPU before its wait (stall). */
bool job_is_stalling(const struct job_children *children, uint32_t i);

#endif
