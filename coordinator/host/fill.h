/* fill.h: keeps CPUs busy on which nothing is measured just then.
 *
 * A core that runs alone may run faster than it would beside others (turbo, shared power), which makes one core look better
 * than many.  While at least one of its CPUs is occupied, each of the others spins, at the lowest policy there is
 * (SCHED_IDLE): whatever else wants that CPU gets it at once.  An occupied CPU never spins, so its idle times and its
 * wake-ups are what they are without.
 *
 * Threads: one per CPU, pinned to it, which end with fill_free; call all functions from one thread.  Signals are blocked in
 * them. */
#ifndef COREFAN_COORDINATOR_FILL_H
#define COREFAN_COORDINATOR_FILL_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct fill;

/* -1 and ERROR_INTERNAL when a thread cannot be started or pinned. */
int fill_new(const int64_t *cpus, size_t count, struct fill **ret, struct error *err);
void fill_free(struct fill *fill); /* NULL is fine */

/* One more, or one less, that measures on a CPU; CPUs that are not its own are ignored. */
void fill_occupy(struct fill *fill, int64_t cpu);
void fill_vacate(struct fill *fill, int64_t cpu);

#endif
