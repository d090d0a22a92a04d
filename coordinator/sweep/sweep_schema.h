/* sweep_schema.h: a JSON Schema (draft 2020-12) of sweep files, so that editors complete and check them.
 *
 * Made from the tables of sweep_keys, and from one table of rules beside them, so that it cannot know other keys or
 * words than the parser does.  What a schema can say, it says as the parser does; what it cannot (limits of values with
 * units, what keys of different maps mean to each other) the parser alone refuses.  Pure but for the stream. */
#ifndef COREFAN_COORDINATOR_SWEEP_SCHEMA_H
#define COREFAN_COORDINATOR_SWEEP_SCHEMA_H

#include <stdio.h>

/* 0, or -1 when the stream took not all of it. */
int sweep_schema_print(FILE *out);

#endif
