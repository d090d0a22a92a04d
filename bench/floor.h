/* floor.h: the least that a queue of tasks in C can cost: what the arms are compared with. */
#ifndef COREFAN_BENCH_FLOOR_H
#define COREFAN_BENCH_FLOOR_H

#include <stddef.h>

struct floor;

struct floor *floor_new(size_t children); /* exits when there is no memory */
void floor_free(struct floor *floor);

/* One fan-out: per child set a 64-byte task, queue it; then take each, call it indirectly, store its result. */
void floor_run(struct floor *floor);

#endif
