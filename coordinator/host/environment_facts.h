/* environment_facts.h: between the files of environment: from a file's text to a fact, or to the reason for none.
 *
 * `ret_why` receives one of the reasons of environment.h, a constant, whenever nothing is returned. */
#ifndef COREFAN_COORDINATOR_ENVIRONMENT_FACTS_H
#define COREFAN_COORDINATOR_ENVIRONMENT_FACTS_H

#include "coordinator/host/environment.h"

#include <jansson.h>

#define ENVIRONMENT_MAX_BYTES (1u << 20) /* of one file; what follows is not read */

enum environment_kind {
    FACT_TEXT,
    FACT_INTEGER,
    FACT_FLAG,     /* 0 or 1 */
    FACT_CPUS,     /* list of CPUs, at least one */
    FACT_CPUS_ANY, /* list of CPUs; nothing, or "(null)", is none */
};

struct environment_source {
    const char *proc, *sys;
    const struct environment_request *request;
};

/* Sets name to value (which it takes); NULL: to null, with the reason beside it. */
void environment_put(json_t *object, const char *name, json_t *value, const char *why);

/* Text of ROOT/path without white space at its ends; a 0 byte in it is shown as '?'.  NULL, or free() it. */
char *environment_text(const char *root, const char *path, const char **ret_why);

/* The reason for an errno. */
const char *environment_why(int number);

/* A text as a value of this kind; NULL text stays NULL. */
json_t *environment_value(enum environment_kind kind, const char *text, const char **ret_why);

/* ROOT/path as a value of this kind. */
json_t *environment_file(enum environment_kind kind, const char *root, const char *path,
                         const char **ret_why);

/* The whole text must be the number. */
bool environment_integer(const char *text, int64_t *ret);

/* The whole text must be a decimal >= 0: "3.68". */
bool environment_decimal(const char *text, double *ret);

/* How many CPUs a list names; NULL where it is none. */
json_t *environment_count(const char *list);

/* Rounded to 6 decimals, so that it prints as it is. */
json_t *environment_real(double value);

/* What follows `key` and white space or ':' on the line that begins with it.  NULL, or free() it. */
char *environment_field(const char *text, const char *key);

/* The parts of the object. */
void environment_put_cpus(json_t *host, const struct environment_source *source);
void environment_put_cgroup(json_t *host, const struct environment_source *source);

#endif
