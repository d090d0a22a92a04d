/* doctor.h: what on a host disturbs measurements, why, and what to do about it.
 *
 * A pure function of the facts of environment.h: a table of rules, each with the facts that it needs, a test, and a
 * remedy.  A rule whose facts are null cannot be decided and is listed as unchecked with the reason: silence about it
 * would be a claim.
 *
 * Severities: a note bounds what the numbers can tell, or what they can be compared with; a warning adds noise or
 * bias; severe: numbers are likely wrong.  Ownership: doctor_free.  Threads: one owner. */
#ifndef COREFAN_COORDINATOR_DOCTOR_H
#define COREFAN_COORDINATOR_DOCTOR_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct json_t;

enum doctor_severity { DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_SEVERE };

struct doctor_finding {
    const char *id;
    enum doctor_severity severity;
    char *what;      /* "CPUs 0-7 run under governor 'powersave', not 'performance'" */
    const char *why; /* it disturbs */
    const char *remedy;
};

struct doctor_unchecked {
    const char *id;   /* of the rule */
    const char *fact; /* which is null */
    char *reason;
};

struct doctor {
    char *host;
    struct doctor_finding *findings; /* in the order of the table */
    size_t finding_count;
    struct doctor_unchecked *unchecked;
    size_t unchecked_count;
};

/* Examines the first host of what environment_capture gives.  -1: ERROR_INTERNAL, the text is no such array. */
int doctor_examine(const char *environment_json, struct doctor **ret, struct error *err);

void doctor_free(struct doctor *doctor); /* NULL is fine */

/* Is there a finding beyond a note? */
bool doctor_disturbed(const struct doctor *doctor);

/* "note", "warning", "severe" */
const char *doctor_severity_name(enum doctor_severity severity);

/* 0, or -1 when writing failed. */
int doctor_print_text(const struct doctor *doctor, FILE *out);
int doctor_print_json(const struct doctor *doctor, FILE *out);

/* The findings about one host's object as a JSON array of {id, severity, what, why, remedy}: what environment keeps
 * beside the facts.  NULL: no memory. */
struct json_t *doctor_findings(const struct json_t *host);

#endif
