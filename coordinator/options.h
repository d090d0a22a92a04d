/* options.h: the command lines of corefan, one table per command.
 *
 * argp parses and prints --help; this module gives every mistake one line of its own ("unknown option '--sed', did
 * you mean '--seed'?").  An option is used or refused, never ignored.
 * Texts point into argv.  Ownership: options_release_... frees the lists.  One thread. */
#ifndef COREFAN_COORDINATOR_OPTIONS_H
#define COREFAN_COORDINATOR_OPTIONS_H

#include "base/error.h"
#include "coordinator/compare/compare.h"
#include "coordinator/progress.h"
#include "coordinator/size/size.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options_run {   /* of run and plan */
    const char *sweep; /* path, "-", or NULL for the built-in lab */
    int64_t workers;   /* local ones; TOPOLOGY_AUTO; 0: none */
    int64_t expect;    /* workers that somebody else starts */
    int64_t expect_timeout_ns;
    int64_t budget_ns; /* for all groups; 0: all it takes */
    const char *cpus, *housekeeping, *listen, *out, *resume;
    const char *key, *authorized_keys; /* of keygen: the file to make */
    const char *events;                /* file of NDJSON, "-": stdout; NULL: none */
    char **settings;                   /* KEY=VALUE */
    size_t setting_count;
    enum progress_mode progress;
    const char *format; /* of what goes to stdout */
    bool oversubscribe, fill_idle, co_run, quiet, verbose;
};

struct options_report {
    const char *run;
    const char *format;
    bool rounds;      /* csv: a row per round */
    bool hgrm;        /* instead of a format: the latencies of one cell */
    const char *cell; /* its id, or NULL */
};

struct options_compare {
    struct compare_options compare; /* paths point into argv, the list of ignored keys is owned */
    const char **ignored;
    const char *format;
};

struct options_size {
    struct size_options size;
    const char *format;
};

struct options_list {
    const char *dir;
    const char *format;
};

struct options_doctor {
    const char *format;
    const char *cpus, *housekeeping; /* as those of run */
};

/* argv[0] is the command's name.  0, or -1 with ERROR_USAGE.  --help and --version print and exit. */
int options_parse_run(int argc, char **argv, struct options_run *ret, struct error *err);
int options_parse_plan(int argc, char **argv, struct options_run *ret, struct error *err);
int options_parse_report(int argc, char **argv, struct options_report *ret, struct error *err);
int options_parse_compare(int argc, char **argv, struct options_compare *ret, struct error *err);
int options_parse_size(int argc, char **argv, struct options_size *ret, struct error *err);
int options_parse_keygen(int argc, char **argv, struct options_run *ret, struct error *err);
int options_parse_doctor(int argc, char **argv, struct options_doctor *ret, struct error *err);
int options_parse_list(int argc, char **argv, struct options_list *ret, struct error *err);
int options_parse_schema(int argc, char **argv, struct error *err); /* nothing but --help */

void options_release_run(struct options_run *options);
void options_release_compare(struct options_compare *options);

#endif
