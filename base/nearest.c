#include "base/nearest.h"

#include <string.h>

#define LONGEST_NAME 32

static size_t smallest(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment: Damerau-Levenshtein in which no part is edited twice. */
static size_t distance(const char *a, const char *b)
{
    size_t rows[3][LONGEST_NAME + 1] = {{0}};
    size_t *before = rows[0];
    size_t *above = rows[1];
    size_t *row = rows[2];
    size_t a_length = strlen(a);
    size_t b_length = strlen(b);
    for (size_t j = 0; j <= b_length; j++)
        above[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = smallest(row[j], smallest(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smallest(row[j], before[j - 2] + 1);
        }
        size_t *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[b_length];
}

void nearest_consider(struct nearest *nearest, const char *name)
{
    size_t length = strlen(name);
    if (length > LONGEST_NAME || strlen(nearest->written) > LONGEST_NAME)
        return;
    size_t edits = distance(nearest->written, name);
    size_t bearable = length / 3 > 0 ? length / 3 : 1;
    if (edits > bearable || (nearest->name && edits >= nearest->distance))
        return;
    nearest->name = name;
    nearest->distance = edits;
}
