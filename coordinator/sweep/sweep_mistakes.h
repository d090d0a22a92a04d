/* sweep_mistakes.h: everything that is wrong with a sweep, each with its place.
 *
 * A reader of sweeps does not stop at the first mistake: it adds each one here and goes on.  Lines come out in
 * the order of the file.  Ownership: sweep_mistakes_release frees it; a zeroed struct is an empty list.
 * Threads: one owner. */
#ifndef COREFAN_COORDINATOR_SWEEP_MISTAKES_H
#define COREFAN_COORDINATOR_SWEEP_MISTAKES_H

#include <stdbool.h>
#include <stddef.h>

#define SWEEP_MAX_MISTAKES 1000 /* kept; what comes on top is only counted */

/* Where a value stands.  The source is not owned; a list of mistakes keeps a copy of its own. */
struct sweep_mark {
    const char *source; /* path of the file, "--set KEY", or NULL for none */
    size_t line;        /* from 1; 0 = the source as a whole */
    size_t column;      /* in characters, from 1 */
};

struct sweep_mistake {
    size_t source; /* 0 = none, else 1 + its place in sources */
    size_t line, column;
    char *text;
};

struct sweep_mistakes {
    struct sweep_mistake *at;
    size_t kept;
    size_t count;   /* ever told, repeats among them: 0 = all is well */
    size_t dropped; /* not kept for lack of room */
    char **sources;
    size_t source_count;
};

/* Adds one, unless the same stands there already; control characters in the text are shown as '?'. */
void sweep_mistake(struct sweep_mistakes *list, struct sweep_mark mark, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* No further one will be kept: whoever words them can save the effort. */
bool sweep_mistakes_full(const struct sweep_mistakes *list);

/* "lab.yaml:7:3: unknown key 'fanouts', did you mean 'fanout'?", one line each, joined by '\n', without a last
 * one, in the order of the file; sources in the order in which they were first named.  free() it. */
char *sweep_mistakes_text(struct sweep_mistakes *list);

void sweep_mistakes_release(struct sweep_mistakes *list); /* NULL is fine */

#endif
