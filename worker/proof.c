#include "worker/proof.h"

#include <stdio.h>
#include <string.h>

#define ANY INT64_MAX

/* What a round of this cell must lie between; per fan-out in flight, per round wake-ups. */
struct bounds {
    int64_t in_flight_least, in_flight_most;
    int64_t wakeups_least, wakeups_most;
};

static struct bounds bounds_of(const struct wire_cell *cell, bool waits, const struct wire_round *round)
{
    bool whole = !cell->fail.present && !cell->stall.present && cell->timeout_ns == 0;
    int64_t children = cell->fanout * round->fanouts;
    int64_t early = round->early > 0 ? round->early : 0; /* these need no wake-up of their own */
    if (strcmp(cell->arm, "empty") == 0)
        return (struct bounds){0, 0, 0, ANY};
    if (strcmp(cell->arm, "sequential") == 0)
        return (struct bounds){whole ? 1 : 0, 1, waits && whole ? children - early : 0, ANY};
    return (struct bounds){whole ? cell->fanout : 0, cell->fanout, 0, whole && waits ? children : ANY};
}

const char *proof_judge(const struct wire_cell *cell, bool waits, const struct wire_round *round, char *buf,
                        size_t size)
{
    struct bounds bounds = bounds_of(cell, waits, round);
    const char *arm = cell->arm;
    if (round->early > 0 && strcmp(cell->wait, "uv_timer") != 0)
        (void)snprintf(buf, size, "%lld of %lld waits ended before their deadline", (long long)round->early,
                       (long long)cell->fanout * round->fanouts);
    else if (round->max_in_flight < bounds.in_flight_least || round->max_in_flight > bounds.in_flight_most)
        (void)snprintf(buf, size, "%s had %lld of %lld children in flight, not %lld", arm,
                       (long long)round->max_in_flight, (long long)cell->fanout,
                       (long long)bounds.in_flight_most);
    else if (round->wakeups < bounds.wakeups_least)
        (void)snprintf(buf, size, "%s woke up %lld times, fewer than its %lld waits", arm,
                       (long long)round->wakeups, (long long)bounds.wakeups_least);
    else if (round->wakeups > bounds.wakeups_most)
        (void)snprintf(buf, size, "%s woke up %lld times, more than its %lld children", arm,
                       (long long)round->wakeups, (long long)bounds.wakeups_most);
    else
        return NULL;
    return buf;
}
