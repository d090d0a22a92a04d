/* list.h: the runs under a directory: what each is called, when it began, how far it got, what came out.
 *
 * A run is a directory with a run.db; those that lie in other runs are none.  What a finished run came to is read from its
 * summary.json, what an unfinished one is from its store; a file that cannot be read makes a line with its reason, not
 * an error.  Newest first.  Ownership: list_free.  Threads: one. */
#ifndef COREFAN_COORDINATOR_LIST_H
#define COREFAN_COORDINATOR_LIST_H

#include "base/error.h"

#include <stdio.h>

#define LIST_MOST_LEVELS 4 /* directories below the one that is named */

struct list;

/* 0, or -1 with ERROR_USAGE: there is no such directory. */
int list_make(const char *dir, struct list **ret, struct error *err);
void list_free(struct list *list); /* NULL is fine */

/* 0, or -1 when the stream took not all of it. */
int list_print_text(const struct list *list, FILE *out);
int list_print_json(const struct list *list, FILE *out);

#endif
