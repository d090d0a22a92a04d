/* sweep.h: a sweep file read and checked: what to measure, in the words of its author.
 *
 *     file --sweep_tree--> tree --sweep.c, by the tables of sweep_keys--> values --sweep_check--> entries
 *
 * Every mistake is reported with its place, and a sweep with a mistake does not exist.  What exists is whole:
 * defaults are filled in, each entry has one job and only keys that fit it.  plan.h expands it.
 *
 * A scalar is read by what its key wants; quotes around it do not matter (JSON is YAML too).  A single value is
 * a list of one.  `--set KEY=VALUE` takes any key of the top; VALUE is YAML.  A key of cells is set for every
 * entry: what an entry says about it gives way.  Later settings win.
 *
 * Ownership: sweep_free frees everything that hangs below.  Threads: read-only once made. */
#ifndef COREFAN_COORDINATOR_SWEEP_H
#define COREFAN_COORDINATOR_SWEEP_H

#include "coordinator/sweep/sweep_keys.h"
#include "coordinator/sweep/sweep_mistakes.h"
#include "proto/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SWEEP_MAX_CELLS    100000
#define SWEEP_MAX_BLOCKS   100000 /* of a group, over all its processes */
#define SWEEP_MAX_RUNTIMES 64

/* One value; which members count depends on the type of its key. */
struct sweep_value {
    struct sweep_mark mark;
    const struct sweep_word *word; /* word of the table, also of a count (`all`); NULL for another value */
    int64_t integer;               /* count, duration in ns, flag; of a ladder of clients: where it ends */
    double number;                 /* rate, fraction, number */
    bool is_factor;                /* a rate that is a part of the measured ceiling */
    char *text;                    /* word, name or text as written */
    struct sweep_map *map;
    struct wire_pairs pairs;
};

struct sweep_values {
    bool given; /* stands in the file or in a setting; false: a default, or nothing */
    struct sweep_mark mark;
    struct sweep_value *at;
    size_t count; /* 0 = no value */
};

struct sweep_map {
    const struct sweep_map_type *type;
    struct sweep_mark mark;
    struct sweep_values *keys; /* type->count of them */
    bool flawed;               /* something in it is wrong: what it lacks may be what was misspelt */
};

/* A matrix entry with one job: its own keys over those of the top over the defaults. */
struct sweep_entry {
    struct sweep_mark mark;
    const char *job;  /* kind */
    unsigned job_bit; /* SWEEP_JOB_... */
    const struct sweep_values
        *keys[SWEEP_CELL_KEYS]; /* NULL: no value, nothing for this job, or (warmup) the plan's choice */
};

struct sweep {
    const char *name;
    int64_t seed;
    const char *placement;       /* "spread" or a list of CPUs; NULL: compact */
    struct sweep_entry *entries; /* in the order of the file */
    size_t entry_count;
    const struct sweep_values *thresholds; /* maps of sweep_expect_type; count may be 0 */
    char *text;                            /* as read, before settings */
    char *canonical;                       /* JSON of what it comes to: reads back as the same sweep */
    char sha256[65];                       /* of canonical, in hex */

    struct sweep_map *top; /* owns all values */
    char **sources;        /* owns the sources of marks */
    size_t source_count;
    char *given_name; /* owns name where the file gives none */
};

struct sweep_settings { /* "KEY=VALUE", in order */
    const char *const *at;
    size_t count;
    bool any_job; /* a job that is neither built in nor a runtime's own is one that workers will announce */
};

/* 0, or -1 with at least one mistake more; *ret untouched.  `name` is what messages call the text. */
int sweep_parse(const char *name, const char *text, size_t size, struct sweep_settings settings,
                struct sweep **ret, struct sweep_mistakes *mistakes);

/* The file of this path ("-": stdin); NULL: the built-in lab. */
int sweep_load(const char *path, struct sweep_settings settings, struct sweep **ret,
               struct sweep_mistakes *mistakes);

void sweep_free(struct sweep *sweep); /* NULL is fine */

/* Source text of the built-in lab (examples/lab.yaml), ended by 0. */
extern const char sweep_lab_text[];

/* First value of a key of a map, or NULL. */
const struct sweep_value *sweep_get(const struct sweep_map *map, size_t key);

/* The value as a sweep file would say it, in one way only: "40", "10ms", "all", "children:1,at:2ms" (keys of a
 * map that are not at their default).  Any '/' and '=' in it are written %2f and %3d.  free() it. */
char *sweep_value_text(const struct sweep_key *key, const struct sweep_value *value);

/* ---- between the files of this module ---- */

/* Rules inside one map that the tables do not say. */
void sweep_check_map(const struct sweep_map *map, struct sweep_mistakes *mistakes);

/* Rules between keys; fills entries.  any_job: see sweep_settings.  0, or -1 with a mistake more. */
int sweep_check(struct sweep *sweep, bool any_job, struct sweep_mistakes *mistakes);

/* Fills canonical and sha256. */
void sweep_canonicalise(struct sweep *sweep);

#endif
