#include "worker/proof.h"

#include <stdio.h>
#include <string.h>

#define ANY INT64_MAX

/* What a round of this cell must lie between; per fan-out in flight, per round wake-ups. */
struct bounds {
    int64_t in_flight_least, in_flight_most;
    int64_t wakeups_least, wakeups_most;
};

/* All children are meant to run to their end. */
static bool is_whole(const struct wire_cell *cell)
{
    return !cell->fail.present && !cell->stall.present && cell->timeout_ns == 0;
}

static struct bounds bounds_of(const struct wire_cell *cell, bool waits, const struct wire_round *round)
{
    bool whole = is_whole(cell);
    int64_t children = cell->fanout * round->fanouts;
    int64_t early = round->early > 0 ? round->early : 0; /* these need no wake-up of their own */
    if (strcmp(cell->arm, "empty") == 0)
        return (struct bounds){0, 0, 0, ANY};
    if (strcmp(cell->arm, "sequential") == 0)
        return (struct bounds){whole ? 1 : 0, 1, waits && whole ? children - early : 0, ANY};
    return (struct bounds){whole ? cell->fanout : 0, cell->fanout, 0, whole && waits ? children : ANY};
}

/* Delays that follow one another in this round; the others lie beside them. */
static int64_t delays_in_a_row(const struct wire_cell *cell, const struct wire_round *round)
{
    return strcmp(cell->arm, "sequential") == 0 ? cell->fanout * round->fanouts : round->fanouts;
}

/* Did the children wait, and for as long as the cell says?  Whatever they told of it themselves. */
static bool judge_waits(const struct wire_cell *cell, const struct proof_facts *facts,
                        const struct wire_round *round, char *buf, size_t size)
{
    int64_t children = cell->fanout * round->fanouts, least_ns;
    int64_t waiting = strcmp(cell->arm, "sequential") == 0 ? 1 : cell->fanout;
    if (__builtin_mul_overflow(delays_in_a_row(cell, round), cell->delay_ns, &least_ns))
        least_ns = ANY;
    if (facts->waits_ended != children)
        (void)snprintf(buf, size, "%lld of %lld children waited", (long long)facts->waits_ended,
                       (long long)children);
    else if (facts->most_waiting != waiting)
        (void)snprintf(buf, size, "%lld of %lld children waited at the same time, not %lld",
                       (long long)facts->most_waiting, (long long)cell->fanout, (long long)waiting);
    else if (round->early <= 0 && facts->span_ns < least_ns)
        (void)snprintf(buf, size, "%s took %lld ns, less than its waits of %lld ns", cell->arm,
                       (long long)facts->span_ns, (long long)least_ns);
    else
        return false;
    return true;
}

static bool judge_counts(const struct wire_cell *cell, const struct bounds *bounds,
                         const struct wire_round *round, char *buf, size_t size)
{
    const char *arm = cell->arm;
    if (round->max_in_flight < bounds->in_flight_least || round->max_in_flight > bounds->in_flight_most)
        (void)snprintf(buf, size, "%s had %lld of %lld children in flight, not %lld", arm,
                       (long long)round->max_in_flight, (long long)cell->fanout,
                       (long long)bounds->in_flight_most);
    else if (round->wakeups < bounds->wakeups_least)
        (void)snprintf(buf, size, "%s woke up %lld times, fewer than its %lld waits", arm,
                       (long long)round->wakeups, (long long)bounds->wakeups_least);
    else if (round->wakeups > bounds->wakeups_most)
        (void)snprintf(buf, size, "%s woke up %lld times, more than its %lld children", arm,
                       (long long)round->wakeups, (long long)bounds->wakeups_most);
    else
        return false;
    return true;
}

const char *proof_judge_window(const struct wire_cell *cell, bool waits, int64_t least_ns,
                               const struct wire_round *round, char *buf, size_t size)
{
    struct bounds bounds = bounds_of(cell, false, round);
    bool harness = strcmp(cell->arm, "empty") == 0;
    int64_t row_ns;
    if (__builtin_mul_overflow(strcmp(cell->arm, "sequential") == 0 ? cell->fanout : 1, cell->delay_ns,
                               &row_ns))
        row_ns = ANY;
    bounds.wakeups_least = 0; /* shared by all that is under way */
    bounds.wakeups_most = ANY;
    if (round->early > 0 && strcmp(cell->wait, "uv_timer") != 0)
        (void)snprintf(buf, size, "%lld waits ended before their deadline", (long long)round->early);
    else if (round->fanouts > 0 && judge_counts(cell, &bounds, round, buf, size))
        return buf;
    else if (waits && !harness && is_whole(cell) && round->early <= 0 && least_ns < row_ns)
        (void)snprintf(buf, size, "a fan-out of %s took %lld ns, less than its waits of %lld ns", cell->arm,
                       (long long)least_ns, (long long)row_ns);
    else
        return NULL;
    return buf;
}

const char *proof_judge(const struct wire_cell *cell, const struct proof_facts *facts,
                        const struct wire_round *round, char *buf, size_t size)
{
    struct bounds bounds = bounds_of(cell, facts->waits, round);
    if (round->early > 0 && strcmp(cell->wait, "uv_timer") != 0) {
        (void)snprintf(buf, size, "%lld of %lld waits ended before their deadline", (long long)round->early,
                       (long long)cell->fanout * round->fanouts);
        return buf;
    }
    if (judge_counts(cell, &bounds, round, buf, size))
        return buf;
    bool must_wait = facts->waits && is_whole(cell) && strcmp(cell->arm, "empty") != 0;
    return must_wait && judge_waits(cell, facts, round, buf, size) ? buf : NULL;
}
