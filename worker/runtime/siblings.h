/* siblings.h: tasks or awaits that are counted together: those of one fan-out, or a runtime's own.
 *
 * In flight = created and not done.  The maximum is measured, not deduced: it is the structural proof that an
 * arm did what its name claims (1 for sequential, N for the others). */
#ifndef COREFAN_WORKER_RUNTIME_SIBLINGS_H
#define COREFAN_WORKER_RUNTIME_SIBLINGS_H

#include <stdint.h>

struct siblings {
    uint64_t created, finished; /* since the start */
    uint64_t max_in_flight;     /* set it to 0 to begin anew */
};

static inline uint64_t siblings_in_flight(const struct siblings *siblings)
{
    return siblings->created - siblings->finished;
}

static inline void siblings_enter(struct siblings *siblings, uint32_t count)
{
    siblings->created += count;
    if (siblings_in_flight(siblings) > siblings->max_in_flight)
        siblings->max_in_flight = siblings_in_flight(siblings);
}

static inline void siblings_leave(struct siblings *siblings)
{
    siblings->finished++;
}

#endif
