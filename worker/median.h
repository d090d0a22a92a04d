/* median.h: the middle of some durations.  Pure. */
#ifndef COREFAN_WORKER_MEDIAN_H
#define COREFAN_WORKER_MEDIAN_H

#include <stddef.h>
#include <stdint.h>

/* The middle one, or the lower of the two; WIRE_NULL without values.  Sorts in place. */
int64_t median_ns(int64_t *values_ns, size_t count);

#endif
