/* store_internal.h: what store.c (writing) and store_load.c (reading) share.  Nobody else includes it. */
#ifndef COREFAN_COORDINATOR_STORE_INTERNAL_H
#define COREFAN_COORDINATOR_STORE_INTERNAL_H

#include "coordinator/store/store.h"

#include <sqlite3.h>

/* Version of the schema below.  A file with a higher one is refused by name. */
#define STORE_SCHEMA_VERSION 3 /* raise it with every change of a table; docs/schema.md tells what changed */

#define STORE_STATEMENTS 17

struct store {
    sqlite3 *db;
    char *dir;
    char *path; /* DIR/run.db */
    char *lock_path;
    int lock_fd; /* -1 for a reader */
    sqlite3_stmt *prepared[STORE_STATEMENTS];
};

/* Fills err from what SQLite last said: "cannot write 'x/run.db': disk full".  verb: "read" or "write". */
int store_sqlite_error(const struct store *store, const char *verb, struct error *err);

#endif
