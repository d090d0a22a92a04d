#include "worker/median.h"

#include "proto/wire.h"

#include <stdlib.h>

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

int64_t median_ns(int64_t *values_ns, size_t count)
{
    if (count == 0)
        return WIRE_NULL;
    qsort(values_ns, count, sizeof *values_ns, compare);
    return values_ns[(count - 1) / 2];
}
