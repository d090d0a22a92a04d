/* leaf.h: a child that follows a script: burn CPU, wait, then end well or not, and react to a cancel in a
 * given way.
 *
 * The jobs noop, sleep and cpu are scripts; so are the children that a sweep's `fail` and `stall` change, and
 * the leaves of the conformance cases.  Scripts are shared and constant while leaves run; a leaf is one
 * child's own state. Ownership: caller's.  Threads: the one that drives the runtime. */
#ifndef COREFAN_WORKER_JOBS_LEAF_H
#define COREFAN_WORKER_JOBS_LEAF_H

#include "worker/runtime/sleep.h"

enum leaf_end { LEAF_OK, LEAF_FAIL, LEAF_CANCEL_SELF };

enum leaf_on_cancel {
    LEAF_PROPAGATE,
    LEAF_SUPPRESS,     /* swallows it and returns cancel_value */
    LEAF_CANCEL_FAIL,  /* fails with cancel_value */
    LEAF_CLEANUP,      /* waits cleanup_ns, then propagates; a second cancel ends the wait */
    LEAF_CLEANUP_FAIL, /* waits cleanup_ns, then fails with cancel_value */
    LEAF_IGNORE,       /* waits on to its own deadline */
};

#define LEAF_NO_WAIT (-1)

struct leaf_script {
    int64_t burn_ns;    /* thread CPU burnt before the wait; 0: none */
    int64_t delay_ns;   /* LEAF_NO_WAIT: ends without suspending; 0: yields once; > 0: waits */
    int64_t cleanup_ns; /* like delay_ns */
    int64_t value;      /* of LEAF_OK, or the error of LEAF_FAIL */
    int64_t cancel_value;
    enum leaf_end end;
    enum leaf_on_cancel on_cancel;
};

struct leaf {
    struct coro coro; /* await this */
    const struct leaf_script *script;
    struct sleep sleep;
    int64_t deadline_ns;  /* only kept for LEAF_IGNORE */
    int64_t overshoot_ns; /* of its main wait; LEAF_NOT_WAITED when that has not ended by its timer in this
                             launch */
    uint32_t cancels;     /* delivered to it in this launch */
    uint8_t stage;
};

#define LEAF_NOT_WAITED INT64_MIN

/* uv_timer as in sleep_init.  The script may be replaced between launches. */
void leaf_init(struct leaf *leaf, const struct leaf_script *script, struct uv_timer_s *uv_timer);

#endif
