/* sweep_keys.h: the keys of a sweep file, as tables: name, type, limits, jobs that they fit, default, help.
 *
 * One table serves the reader, the suggestions, the schema and the help, so they cannot differ.  A new key is
 * one line here and one place that uses it.  A key or a word that a later version will use stands here already
 * and is refused by name until then: an option is used or refused, never ignored. */
#ifndef COREFAN_COORDINATOR_SWEEP_KEYS_H
#define COREFAN_COORDINATOR_SWEEP_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SWEEP_MAX_CLIENTS    65536
#define SWEEP_LADDER_CLIENTS 1024         /* where a ladder ends at the latest, unless it says so itself */
#define SWEEP_WINDOW_NS      2000000000LL /* length of a window, unless told */

enum sweep_type {
    SWEEP_TYPE_WORD,     /* one of `words` */
    SWEEP_TYPE_NAME,     /* letters, digits, '.', '_', '+', '-'; at most 64 */
    SWEEP_TYPE_TEXT,     /* any text */
    SWEEP_TYPE_COUNT,    /* whole number, or one of `words`, or a `map` that stands for the first of them */
    SWEEP_TYPE_DURATION, /* number and unit, kept in ns */
    SWEEP_TYPE_RATE,     /* events per second, or a factor like 0.5x, kept as number */
    SWEEP_TYPE_FRACTION, /* 0.1 or 10% */
    SWEEP_TYPE_NUMBER,   /* decimal, signed; a duration counts in ns */
    SWEEP_TYPE_FLAG,     /* true or false */
    SWEEP_TYPE_MAP,      /* the keys of `map` */
    SWEEP_TYPE_PAIRS,    /* free names, each with a text */
    SWEEP_TYPE_CPUS, /* one of `words`, or a list of CPUs like 0,2-5 (whether they exist, the host says) */
};

/* Kinds of jobs, as bits: the jobs that a key fits. */
enum {
    SWEEP_JOB_NOOP = 1,
    SWEEP_JOB_SLEEP = 2,
    SWEEP_JOB_CPU = 4,
    SWEEP_JOB_TCP = 8,
    SWEEP_JOB_HTTP = 16,
    SWEEP_JOB_OWN = 32, /* a coroutine of the user's, named by a runtime */
    SWEEP_JOB_SOCKETS = SWEEP_JOB_TCP | SWEEP_JOB_HTTP,
    SWEEP_JOB_ALL = 63,
};

struct sweep_word {
    const char *name;
    unsigned job; /* for kinds of jobs: its bit */
    bool later;   /* known, but not built into this version */
};

struct sweep_map_type;

struct sweep_key {
    const char *name;
    const char *help;
    enum sweep_type type;
    bool list;                      /* takes several values; a single one is a list of one */
    bool identity;                  /* tells cells apart: part of their id */
    bool required;                  /* in every map of its kind (keys of cells: see needed_by) */
    bool later;                     /* known, but not built into this version */
    bool open;                      /* a word beside `words` is kept as text: another rule decides upon it */
    const char *fallback;           /* default, as YAML; NULL = none */
    const char *wants;              /* what the value must be, for messages; NULL = by type */
    unsigned jobs;                  /* jobs that it fits; 0 = not a matter of jobs */
    unsigned needed_by;             /* jobs that need it */
    int64_t least, most;            /* of a count, or of a duration in ns */
    const struct sweep_word *words; /* ended by a NULL name */
    const struct sweep_map_type *map;
};

struct sweep_map_type {
    const char *title; /* "the sweep", "a matrix entry" */
    const struct sweep_key *keys;
    size_t count;
    size_t shorthand; /* the key that a bare scalar stands for; beyond `count`: it stands for none */
};

/* Keys of a cell: they stand in matrix entries, and at the top as defaults.  The order is the order of their
 * expansion (the last varies fastest) and of the id. */
enum sweep_cell_key {
    SWEEP_JOB,
    SWEEP_FANOUT,
    SWEEP_DELAY,
    SWEEP_RUNTIMES,
    SWEEP_ARMS,
    SWEEP_CLIENTS,
    SWEEP_PHASE,
    SWEEP_RATE,
    SWEEP_ARRIVALS,
    SWEEP_DURATION,
    SWEEP_WAIT,
    SWEEP_FAIL,
    SWEEP_STALL,
    SWEEP_TIMEOUT,
    SWEEP_GC,
    SWEEP_CORES,
    SWEEP_ROUNDS,
    SWEEP_PRECISION,
    SWEEP_WARMUP,
    SWEEP_PROCESSES,
    SWEEP_CELL_KEYS,
    /* at the top only */
    SWEEP_NAME = SWEEP_CELL_KEYS,
    SWEEP_SEED,
    SWEEP_PLACEMENT,
    SWEEP_MATRIX,
    SWEEP_EXPECT,
    SWEEP_TOP_KEYS,
};

enum { SWEEP_JOB_KIND, SWEEP_JOB_KEYS };

enum {
    SWEEP_RUNTIME_KIND,
    SWEEP_RUNTIME_LABEL,
    SWEEP_RUNTIME_PYTHON,
    SWEEP_RUNTIME_EAGER,
    SWEEP_RUNTIME_JOBS,
    SWEEP_RUNTIME_PATH,
    SWEEP_RUNTIME_KEYS,
};

enum {
    SWEEP_FAIL_CHILDREN,
    SWEEP_FAIL_FRACTION,
    SWEEP_FAIL_AT,
    SWEEP_FAIL_OUTCOME,
    SWEEP_FAIL_ON_CANCEL,
    SWEEP_FAIL_CLEANUP,
    SWEEP_FAIL_KEYS,
};

enum { SWEEP_STALL_CHILDREN, SWEEP_STALL_CPU, SWEEP_STALL_KEYS };

enum { SWEEP_LADDER_MOST, SWEEP_LADDER_KEYS };

/* Of a threshold: selectors (all that are given must match; several values: any of them), then the bound. */
enum {
    SWEEP_EXPECT_JOB,
    SWEEP_EXPECT_FANOUT,
    SWEEP_EXPECT_DELAY,
    SWEEP_EXPECT_RUNTIME,
    SWEEP_EXPECT_ARM,
    SWEEP_EXPECT_CLIENTS,
    SWEEP_EXPECT_RATE,
    SWEEP_EXPECT_DURATION,
    SWEEP_EXPECT_WAIT,
    SWEEP_EXPECT_GC,
    SWEEP_EXPECT_CORES,
    SWEEP_EXPECT_METRIC,
    SWEEP_EXPECT_MIN,
    SWEEP_EXPECT_MAX,
    SWEEP_EXPECT_KEYS,
};

extern const struct sweep_map_type sweep_top_type, sweep_entry_type, sweep_job_type, sweep_runtime_type,
    sweep_fail_type, sweep_stall_type, sweep_ladder_type, sweep_expect_type;

/* The word of this name, or NULL. */
const struct sweep_word *sweep_find_word(const struct sweep_word *words, const char *name);

/* Number of the key of this name, or type->count. */
size_t sweep_find_key(const struct sweep_map_type *type, const char *name);

/* The name in the table nearest to what was written, or NULL when none is near: at most a third of its
 * letters (and at least one) inserted, left out, replaced or swapped with their neighbour. */
const char *sweep_nearest_key(const struct sweep_map_type *type, const char *written);
const char *sweep_nearest_word(const struct sweep_word *words, const char *written);

/* "noop, sleep, cpu": the words that this version supports.  Returns buf. */
char *sweep_list_words(const struct sweep_word *words, char *buf, size_t size);

#endif
