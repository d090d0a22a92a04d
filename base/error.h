/* error.h: what went wrong, where, and what to do, in one line.
 *
 * A module never prints and never exits: it fills a `struct error` that its caller owns and returns a
 * negative value.  Only a program's main file turns an error into a message on stderr and an exit code.
 *
 * Messages are lower case, problem first, subject quoted, no full stop: "cannot open 'lab.yaml': No such
 * file". Threads: a struct error belongs to one thread.  Ownership: no memory is held; copy it freely. */
#ifndef COREFAN_BASE_ERROR_H
#define COREFAN_BASE_ERROR_H

/* name, exit code of the contract */
#define ERROR_KINDS(X)                                                                                       \
    X(NONE, 0)                                                                                               \
    X(INTERNAL, 1)      /* a defect of ours, memory, an operation of the system that failed */               \
    X(USAGE, 2)         /* the command line, the sweep or a file given by the user is wrong */               \
    X(INCOMPLETE, 3)    /* some planned cell lacks a full result */                                          \
    X(INCONCLUSIVE, 98) /* a threshold or comparison could not be decided */                                 \
    X(FAILED, 99)       /* a threshold or comparison failed */                                               \
    X(INTERRUPTED, 130) /* the user stopped it */

enum error_kind {
#define X(name, exit_code) ERROR_##name,
    ERROR_KINDS(X)
#undef X
};

struct error {
    enum error_kind kind;
    char text[1024]; /* one line without its end; several mistakes are joined by '\n' */
};

/* Fills *err (NULL is fine) and returns -1, so that a caller can `return error_set(...)`.  Longer text is
 * cut. */
int error_set(struct error *err, enum error_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts `context: ` before the text that is there.  Returns -1. */
int error_prefix(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The exit code of the contract for this kind; 1 for a value that is no kind. */
int error_exit_code(enum error_kind kind);

#endif
