/* capacity_internal.h: what the files of the cost curve share.  Nobody else includes it. */
#ifndef COREFAN_COORDINATOR_CAPACITY_INTERNAL_H
#define COREFAN_COORDINATOR_CAPACITY_INTERNAL_H

#include "base/rng.h"
#include "coordinator/capacity/capacity.h"

#define CAPACITY_TERMS 3

/* A load by its medians, or by those of a bootstrap draw of its windows. */
struct capacity_point {
    double clients, cpu_ns, wakeups, thread_utilization, utilization, throughput_per_s, latency_p50_ns;
    const struct capacity_load *load;
    bool in_phase; /* may stand on a curve of CPU against clients */
    bool fits;     /* may enter the fit */
};

/* All loads of one curve by clients, then in phase first; plain rounds are left out where there are windows of as many
 * clients and the job waits. */
struct capacity_points {
    struct capacity_point *at;
    size_t count, fitting;
    int64_t windows; /* in all */
    bool waits;
};

struct capacity_points capacity_points_of(const struct capacity_loads *loads); /* capacity_points_release */
void capacity_points_release(struct capacity_points *points);

/* The same loads with medians of windows drawn with replacement; ret has room for points->count. */
void capacity_points_draw(const struct capacity_points *points, struct rng *rng, struct capacity_point *ret);

/* What shape a curve has, besides its coefficients. */
struct capacity_shape {
    double growth_from; /* 0: no third term */
    bool misses;
    bool by_burst;
};

/* Fits the points that may enter.  false when no coefficients can be had: *ret untouched. */
bool capacity_model_fit(const struct capacity_point *at, size_t count, struct capacity_shape shape,
                        struct capacity_model *ret);

/* The shape that the fitting points have: wake-ups by what is missed less, the third term by how well each next load is
 * foretold. */
struct capacity_shape capacity_shape_choose(const struct capacity_point *at, size_t count);
struct capacity_shape capacity_shape_of(const struct capacity_model *model);

/* How far the fit misses each fitting point, relative, scaled for the terms that it spent; ret has room for all fitting
 * ones.  Returns how many, 0 when there are not more points than terms. */
size_t capacity_residuals(const struct capacity_model *model, const struct capacity_point *at, size_t count,
                          double *ret);

/* CPU per fan-out of a busy core: without wake-ups. */
double capacity_busy_ns(const struct capacity_model *model, double clients);

/* The clients K with K x busy(K) = latency of one; at least 1. */
double capacity_knee(const struct capacity_model *model, double latency_of_one_ns);

/* Bounds of an estimate whose value is known, from draws of which some may be NaN (not defined there) but no more
 * than a tail: then `uncertain` is why there are none.  Reorders draws. */
void capacity_bound(struct stats_estimate *estimate, double *draws, size_t count, const char *uncertain);

#endif
