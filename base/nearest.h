/* nearest.h: the name that somebody probably meant.
 *
 * Set `written`, offer every name there is, read `name`: the closest one by optimal string alignment distance
 * (Damerau-Levenshtein in which no part is edited twice), if it is within a third of its length, else NULL.
 * Names longer than 32 bytes are never meant.  Pure; any thread; names are not copied. */
#ifndef COREFAN_BASE_NEAREST_H
#define COREFAN_BASE_NEAREST_H

#include <stddef.h>

struct nearest {
    const char *written;
    const char *name;
    size_t distance;
};

void nearest_consider(struct nearest *nearest, const char *name);

#endif
