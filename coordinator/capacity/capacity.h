/* capacity.h: from CPU per fan-out to throughput per core: the cost curve, and what follows from it.
 *
 * One curve belongs to one runtime, arm, job, fan-out and delay.  It is read off loads: K clients in closed loop on one
 * core, measured over windows.  Of a job that waits, the CPU per fan-out falls as clients share wake-ups, and rises again
 * as what they keep alive outgrows the caches (or a collector's young generation):
 *
 *     cpu(K) = work + wakeup x wakeups_per_fanout(K) + growth x g(K),  for K > growth_from
 *     g(K) = log2(K / growth_from)   cache after cache, each larger than the one before, or
 *     g(K) = 1 - growth_from / K     one cache that holds growth_from of K: the part that misses it
 *
 * whichever the loads follow better, and 0 below growth_from.
 *
 * The coefficients are >= 0 and come from least squares of relative errors over in-phase loads (`together`, or one client)
 * at a utilisation of at most CAPACITY_FIT_UTILIZATION: staggered clients leave the first two terms collinear, and saturated
 * ones would put the answer into the question.  The third term is there only where it foretells each next load from the
 * lesser ones clearly better than the first two alone.  What K clients keep alive does not depend on how long they wait, and
 * with longer waits more of them leave the core half idle: loads of the same arm with a longer wait are borrowed for the fit,
 * where they have more clients than its own.  A core that is busy does not sleep, so it pays no wake-ups:
 *
 *     ceiling = 1 / (work + growth x g(K*)),  K* = the knee: the clients at which K* / latency of one = ceiling
 *
 * The ceiling that was measured is the highest throughput of a load that kept its core busy (CAPACITY_SATURATED) with the
 * measured thread itself (CAPACITY_OWN_SHARE: what the kernel does on its behalf is not in its CPU time, what others do on
 * its core is no ceiling of its own); it never enters the fit, so that error_x = measured / predicted can be wrong.
 * Everywhere else utilization is that of the thread: others on the core leave what a fan-out costs as it is, or nearly so.
 *
 * wakeups_per_fanout(K) is what was counted, or that of the least load shared by K, whichever the loads follow better: a burst
 * pays for a cold core and cold caches once, however often its loop wakes until it is over.
 *
 * A job that does not wait keeps its core busy with one client.  Its few clients, up to CAPACITY_FEW, share turns of the loop
 * as others share wake-ups, and foretell what more do: cpu(K) = work + turn / K.  With fewer than three such loads, or where
 * they share nothing, the least one alone is its work, plain rounds first.  The ceiling is the highest throughput of windows
 * that what is foretold does not stand on.
 *
 * Intervals: STATS_LEVEL, by CAPACITY_DRAWS bootstrap draws from a seed: in each, every load draws from its own windows, and
 * its CPU is moved by one of the relative residuals of the fit, so that what the curve cannot follow widens what it foretells.
 *
 * Pure: no I/O, no clocks; any thread; inputs are only read; nothing is kept.  Units: ns and counts per fan-out, rates per
 * second and core.  "Unknown" has a reason, never 0 or NaN. */
#ifndef COREFAN_COORDINATOR_CAPACITY_H
#define COREFAN_COORDINATOR_CAPACITY_H

#include "coordinator/stats/stats.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CAPACITY_FIT_UTILIZATION 0.5
#define CAPACITY_SATURATED       0.98
#define CAPACITY_OWN_SHARE       0.9 /* of a saturated core's time that the measured thread has, at least */
#define CAPACITY_FEW             4   /* clients, of a job that does not wait */
#define CAPACITY_DRAWS           2000
#define CAPACITY_LATENCY_GROWTH  1.1
#define CAPACITY_MOST_CLIENTS    65536
#define CAPACITY_SCALE_LEAST     6 /* distinct core counts of a fit of the scalability law */

/* What one core did in one window, or in one plain round. */
struct capacity_window {
    double cpu_ns;             /* per fan-out, > 0 */
    double wakeups;            /* per fan-out */
    double thread_utilization; /* CPU time of the measured thread over wall time */
    double utilization;        /* the greater of that and of the CPU's own busy time, whoever used it */
    double throughput_per_s;
    double latency_p50_ns, latency_p99_ns; /* p99: 0 where it is not known */
};

struct capacity_load {
    int64_t clients;
    bool together; /* started in phase; one client always is */
    bool timed;    /* a window; false: plain rounds, which prove no ceiling */
    const struct capacity_window *windows;
    size_t count;  /* >= 1 */
    bool borrowed; /* of the same arm with a longer wait: for the fit alone */
};

struct capacity_loads {
    const struct capacity_load *at; /* in any order */
    size_t count;
    bool waits; /* the job does */
};

/* Coefficients of the curve, with wakeups_per_fanout(K) = wakeups_of_one x K ^ wakeups_power for loads that were not
 * measured. */
struct capacity_model {
    double work_ns, wakeup_ns, growth_ns;
    double growth_from; /* clients; 0: without this term */
    bool misses;        /* the third term is that of one cache */
    double wakeups_of_one, wakeups_power;
    bool by_burst; /* wake-ups are those of the least load, shared, rather than what was counted */
};

struct capacity_curve {
    bool fitted; /* model holds */
    struct capacity_model model;
    size_t loads_fitted;
    double residual_x; /* root mean square of the relative errors of the fit */

    struct stats_estimate work_ns, wakeup_ns;
    struct stats_estimate working_set_ns; /* the third term at the knee; or `no_third_term` */
    struct stats_estimate predicted_per_s_core, measured_per_s_core, error_x;
    struct stats_estimate clients_at_knee;
    struct stats_estimate
        clients_in_time; /* before latency p50 exceeds CAPACITY_LATENCY_GROWTH of the least load's */

    int64_t ceiling_clients; /* of the load that gave measured_per_s_core; 0 without */
    double
        busiest_utilization; /* of the thread, the greatest of all windows' loads, and where; 0 without windows */
    int64_t busiest_clients;
};

/* The curve of some loads.  Words for what is not known: `no_loads`, `too_few_loads` (in the fit), `work_not_separable` (the
 * fit leaves it 0), `does_not_wait`, `no_windows`, `never_saturated`, `core_shared` (busy, but with others), `no_harder_load` (than those of the fit), `latency_not_reached`. */
void capacity_fit(const struct capacity_loads *loads, uint64_t seed, struct capacity_curve *ret);

/* CPU per fan-out at this many clients, ns. */
double capacity_cost_ns(const struct capacity_model *model, double clients);

/* ---- Two arms ---- */

struct capacity_crossover {
    struct stats_estimate
        measured; /* clients at which both cost the same CPU, between loads that were measured */
    struct stats_estimate predicted; /* the same of their models, up to CAPACITY_MOST_CLIENTS */
    bool
        first_cheaper_below; /* of the crossing that is known, measured rather than predicted; else everywhere */
};

/* Of the first crossing from below.  Words: `too_few_loads` (fewer than two client counts in common range),
 * `first_always_cheaper`, `second_always_cheaper`, `not_fitted`.  Between loads, CPU is a straight line in logarithms.
 * An interval that not all but a tail of the draws confirm stays unbounded (`crossing_uncertain`). */
void capacity_cross(const struct capacity_loads *first, const struct capacity_loads *second, uint64_t seed,
                    struct capacity_crossover *ret);

/* CPU that `first` costs over `second`, ns, for each ms of latency that it saves: cost at the busy core, where CPU is what is
 * short (`work_ns` and `working_set_ns`), latency at the least load.  Negative: it saves both.  Words: `not_fitted`,
 * `saves_no_latency`. */
struct stats_estimate capacity_cost_per_saved_ms(const struct capacity_loads *first,
                                                 const struct capacity_curve *first_curve,
                                                 const struct capacity_loads *second,
                                                 const struct capacity_curve *second_curve);

/* ---- How many cores ---- */

/* One way to drive a core, and how long its fan-outs took. */
struct capacity_offer {
    struct capacity_load load;
    double p99_ns; /* over all its windows; 0: not known */
};

struct capacity_demand {
    double rate_per_s; /* of all cores together, > 0 */
    double p99_ns;     /* at most, > 0 */
};

struct capacity_size {
    struct stats_estimate cores;      /* whole numbers, the ends of the interval too */
    struct stats_estimate per_s_core; /* the most that one core does in time */
    double utilization;               /* of each of those cores, when the rate is spread over them evenly */
    double cpu_ns, p99_ns;            /* per fan-out, of the load that is nearest below that rate */
    int64_t clients;                  /* of that load */
    bool more_is_possible; /* no load was late and none kept the core busy: it may do more than was tried */
    double least_p99_ns;   /* of all loads, and with how many clients; 0: none is known */
    int64_t least_clients;
};

/* The cores that a demand needs.  A core is driven as hard as its p99 allows: between the hardest load in time and the next
 * harder one that is late, throughput is a straight line in the logarithm of p99.  Words for cores: `no_p99` (no load
 * has as many fan-outs as a p99 takes), `p99_out_of_reach` (it is longer at every load). */
void capacity_size_for(const struct capacity_offer *offers, size_t count,
                       const struct capacity_demand *demand, uint64_t seed, struct capacity_size *ret);

/* ---- Many cores ---- */

struct capacity_scale_point {
    int64_t cores;
    const double *throughput_per_s; /* of all cores together, a value per window */
    size_t count;
};

/* The Universal Scalability Law (Gunther: Guerrilla Capacity Planning, 2007): X(n) = l n / (1 + s (n - 1) + k n (n - 1)),
 * linear in n / X; contention s and coherency k >= 0. */
struct capacity_scalability {
    struct stats_estimate per_core_per_s; /* l */
    struct stats_estimate contention_x, coherency_x;
    struct stats_estimate peak_cores; /* sqrt((1 - s) / k), only where the interval of k excludes 0 */
};

/* Words: `too_few_core_counts`, `collinear`, `no_peak`. */
void capacity_scale(const struct capacity_scale_point *points, size_t count, uint64_t seed,
                    struct capacity_scalability *ret);

#endif
