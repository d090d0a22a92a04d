/* summary.h: what a run found, finished: every figure that a report may show, computed once, from the store alone.
 *
 * summary_build reads run.db and nothing else: no clock, no environment, no worker.  The same store gives the same
 * summary, so that every report can be rebuilt to the byte.  Reports take this struct, do no arithmetic and no SQL.
 *
 * Units: *_ns is ns per fan-out (per round / fan-outs of the round), *_x a ratio, *_per_s a rate.  A figure that is
 * not known says why in one word.  Ownership: summary_free frees all that hangs below; pointers between cells and
 * groups are indexes.  Threads: read-only once built. */
#ifndef COREFAN_COORDINATOR_SUMMARY_H
#define COREFAN_COORDINATOR_SUMMARY_H

#include "base/error.h"
#include "coordinator/capacity/capacity.h"
#include "coordinator/stats/stats.h"
#include "coordinator/summary/threshold.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;
struct store_run;

#define SUMMARY_SCHEMA_VERSION 1

#define SUMMARY_SATURATED 0.98 /* utilization from which on a core has nothing left */
#define SUMMARY_OWN_SHARE                                                                                    \
    0.9 /* of such a core that the measured thread has, at least: others are no saturation */
#define SUMMARY_GENERATOR_LIMITED 0.99 /* achieved / offered below which the load is not what was asked for */

/* A plain figure. */
struct summary_figure {
    bool known;
    double value;
    const char *why; /* constant word, when not known */
};

/* METHOD: disturbed rounds.  Worst last; a cell has the worst that holds, its flags tell the others. */
#define SUMMARY_VERDICTS(X)                                                                                  \
    X(OK, ok)                                                                                                \
    X(NOISY, noisy) /* >= 2 rounds and > 10 % flagged, or the clean p50 lies outside the interval */         \
    X(DRIFT, drift) /* values follow their order: Spearman p < 0.001, n >= 8 */                              \
    X(BELOW_FLOOR, below_floor) /* no more CPU than the harness alone */                                     \
    X(INVALID, invalid)         /* a round is no number, or there is none */

enum summary_verdict {
#define X(upper, lower) SUMMARY_##upper,
    SUMMARY_VERDICTS(X)
#undef X
        SUMMARY_VERDICT_COUNT
};

/* The first seven are raised by rounds, the rest by cells.  Never a reason to drop a value. */
#define SUMMARY_FLAGS(X)                                                                                     \
    X(RUNQ_DELAY, runq_delay) /* runnable but not running for more than max(20 us, 1 % of the round) */      \
    X(MIGRATION, migration) /* another CPU at the end than at the start, or than the worker is pinned to */  \
    X(FAULTS, faults)                                                                                        \
    X(THROTTLED, throttled) /* the CPU quota of the worker's control group ran out */                        \
    X(STEAL, steal)         /* the hypervisor took ticks of the CPU in this block */                         \
    X(FREQUENCY, frequency) /* of the CPU: more than 2 % apart at start and end */                           \
    X(GAP,                                                                                                   \
      gap) /* away for longer than all of these and its own CPU explain: a stop, a machine that stood */     \
    X(CALIBRATION_UNSTABLE, calibration_unstable)                                                            \
    X(WARMUP_UNCONVERGED, warmup_unconverged)                                                                \
    X(CPU_RESOLUTION, cpu_resolution) /* the median round of a job that waits costs < 50 us CPU */           \
    X(EARLY_TIMERS, early_timers)     /* waits ended before their deadline, as this runtime's timers do */   \
    X(WORKERS_DISAGREE, workers_disagree) /* intervals of two workers are disjoint */                        \
    X(OVERSUBSCRIBED, oversubscribed)     /* two of its workers have the same CPU */                         \
    X(SERIAL, serial) /* a job that waits, in a concurrent arm, takes as long as one child after another */  \
    X(SPEEDUP_BEYOND_FANOUT, speedup_beyond_fanout)                                                          \
    X(DRIFT_WALL, drift_wall)                                                                                \
    X(DRIFT_CPU, drift_cpu)                                                                                  \
    X(SATURATED, saturated)                 /* windows: the core was never idle (SUMMARY_SATURATED) */       \
    X(GENERATOR_LIMITED, generator_limited) /* open loop: fewer fan-outs than offered */                     \
    X(CEILING_NOT_REACHED,                                                                                   \
      ceiling_not_reached)    /* its rate is a part of the most that an unsaturated ladder did */            \
    X(INCOMPLETE, incomplete) /* fewer rounds than planned */

enum summary_flag {
#define X(upper, lower) SUMMARY_FLAG_##upper,
    SUMMARY_FLAGS(X)
#undef X
        SUMMARY_FLAG_COUNT
};
#define SUMMARY_ROUND_FLAGS 7

const char *summary_verdict_name(enum summary_verdict verdict);
const char *summary_flag_name(enum summary_flag flag);

/* Per fan-out, over the rounds that are numbers.
 *
 * Of windows: wall_ns is the latency of each fan-out, from the histograms of all windows added up, and its interval is that
 * of the windows' own p50s (`order_statistic_of_windows`, or that of the processes); cpu_ns is one value per window. */
struct summary_distribution {
    struct stats_estimate p50;       /* of all rounds: the headline */
    struct stats_estimate clean_p50; /* of the rounds without a flag */
    struct summary_figure min, max, mean, stddev;
    struct summary_figure p90, p99; /* p99 only where its interval can exist: n >= STATS_P99_MIN_N */
};

/* A round that is a number, per fan-out; wall_ns of a window is its latency_p50_ns. */
struct summary_round {
    int64_t worker, block;
    double wall_ns, cpu_ns;
    bool clean; /* without a flag */
};

/* A window that is a number: what one core did in it.  Rates and times are those of that core. */
struct summary_window {
    int64_t worker, block;
    double length_ns, fanouts;     /* true length; fan-outs that ended in it */
    double cpu_ns;                 /* per fan-out */
    struct summary_figure wakeups; /* per fan-out */
    double throughput_per_s;       /* fan-outs / length */
    double thread_utilization;     /* CPU time of the measured thread / length */
    /* busy time of its CPU, whoever used it / length; coarse: it comes in ticks of 10 ms */
    struct summary_figure core_utilization;
    double utilization;                   /* the greater of the two */
    double latency_p50_ns;                /* of its own histogram */
    struct summary_figure latency_p99_ns; /* from STATS_P99_MIN_N fan-outs on */
    bool clean;                           /* without a flag */
};

struct summary_cell_worker {
    int64_t worker, n;
    double wall_p50_ns, cpu_p50_ns, throughput_per_s;
    double timed_ns;                          /* wall time of its rounds that are numbers */
    struct summary_figure fanouts_of_round;   /* where it is the same in all of them */
    struct summary_figure warmups, warmup_ns; /* rounds before the first one, and their wall time */
};

struct summary_cell {
    int64_t number, group;
    const char *id, *runtime, *arm, *job, *phase, *wait;
    int64_t fanout, delay_ns, clients, cores, processes, attempts, duration_ns, timeout_ns;
    double rate_per_s;      /* 0: closed loop */
    bool job_waits;         /* false: noop, cpu */
    bool may_fail, fails;   /* the sweep's `fail` or `timeout`; its `fail` alone */
    bool stalls;            /* its `stall` */
    int64_t rounds_planned; /* over all workers */
    int64_t rounds;         /* that are numbers */
    int64_t rounds_flagged, rounds_broken;
    int64_t flagged_by[SUMMARY_ROUND_FLAGS];

    enum summary_verdict verdict;
    char *verdict_reason; /* for people; NULL when ok */
    unsigned flags;       /* bit 1u << enum summary_flag */

    struct summary_distribution wall_ns, cpu_ns;
    struct summary_figure harness_ns; /* CPU p50 of the empty arm in the same blocks */
    struct stats_estimate cpu_net_ns; /* paired difference to it */
    struct summary_figure ideal_wall_ns, over_ideal_x;
    struct stats_estimate speedup_x;             /* ratio of p50 walls, sequential / this; bootstrap */
    struct stats_estimate speedup_block_x;       /* median of the ratios within blocks */
    struct stats_estimate cpu_over_sequential_x; /* ratio of p50 CPUs, this / sequential; bootstrap */
    struct summary_figure overshoot_adjusted_x;  /* speedup after taking each wait's own lateness off */
    struct summary_figure max_in_flight, wakeups_per_fanout, fanouts_per_round;
    struct summary_figure throughput_per_s; /* sum of the workers' */
    struct summary_figure throughput_per_s_core, utilization;
    struct stats_estimate ceiling_per_s_core;
    /* of waits: least and largest of all, and the median over rounds of each round's median */
    struct summary_figure overshoot_min_ns, overshoot_p50_ns, overshoot_max_ns;
    struct summary_figure early_waits; /* that ended before their deadline, over all rounds */

    /* medians over rounds, when may_fail */
    struct summary_figure time_to_error_ns, wasted_cpu_ns, drain_ns, orphans, errors_seen, errors_lost;
    /* when stalls: how late those woke that did not, against the start of the fan-out (SPEC.md, round) */
    struct summary_figure stall_overshoot_p50_ns;

    /* p50s over those of the same arm on the first runtime of its group that has it */
    struct summary_figure wall_over_first_x, cpu_over_first_x;
    bool first_of_arm; /* it is that one itself */

    /* Windows alone (is_window); elsewhere none is known (`no_window`). */
    bool is_window; /* rounds are windows of duration_ns */
    bool
        saturated; /* busy_x >= SUMMARY_SATURATED, and most of it is the measured thread's (SUMMARY_OWN_SHARE) */
    double rate_factor;   /* the rate is this part of a measured ceiling; 0: it is a number */
    const char *arrivals; /* open loop: poisson, fixed; else NULL */
    struct summary_figure core_utilization;  /* busy time of the CPUs / length of the windows */
    struct summary_figure busy_x;            /* the greater of utilization and core_utilization */
    struct summary_distribution intended_ns; /* open loop: latency from the intended start */
    /* open loop, sums over windows: achieved is the part of the offered ones that ended in time, or were under way at the
     * close for no longer than they must; skipped found the backlog full, unfinished did not end in
     * time after the window */
    struct summary_figure offered_per_s_core, achieved_x, skipped, unfinished;
    /* actual - intended start: the median of the windows' medians; the worst of all */
    struct summary_figure lag_p50_ns, lag_max_ns;
    struct summary_window *windows; /* by worker, then block */
    size_t window_count;

    struct summary_cell_worker *workers;
    size_t worker_count;
    struct summary_round *values; /* every round that is a number, by worker, then block */
    size_t value_count;
};

/* An arm that left its ladder below this rung, of which others were measured. */
struct summary_left_out {
    size_t group;
    const char *id, *arm, *runtime, *reason;
};

struct summary_group {
    int64_t number;
    const char *title;
    const char *reason; /* of its failure or last void attempt; NULL without */
    bool left_out;     /* a rung beyond saturation: not measured, no failure; reason tells, cell_count is 0 */
    bool windows;      /* its rounds are windows */
    int64_t window_ns; /* their length */
    int64_t clients;   /* of its cells; 1 in open loop */
    double rate_per_s; /* of its cells, the largest; 0: closed loop */
    bool waits, may_fail; /* some cell of it does */
    bool fails, stalls;
    bool complete, measured; /* every cell has all its rounds; some cell has some */
    int64_t attempts;
    int64_t rounds; /* planned, per worker and process; rounds: auto: of the process that has most */
    int64_t processes;
    double ci_level; /* of its medians; 0 when they differ or there are none */
    size_t *cells;   /* indexes into summary->cells */
    size_t cell_count;
};

/* What became of rounds: auto in one group. */
struct summary_precision {
    size_t group;                     /* index */
    double target_x;                  /* half-width of a p50 interval over the p50 */
    struct summary_figure achieved_x; /* the widest of its cells, wall or CPU */
    bool reached;
    size_t cell;                     /* index of the one with the widest interval */
    bool is_cpu;                     /* which is that of CPU */
    int64_t rounds, processes, most; /* per process; measured ones; the most rounds that there can be */
    struct summary_figure
        missing_ns; /* of measuring, as intervals shrink with the root of n; 0 when reached */
};

/* What a runtime's CPU per fan-out comes to in one group, against the first runtime that has the same arm. */
struct summary_contrast {
    size_t group; /* index */
    size_t first; /* a cell of the runtime that is compared with */
    size_t lowest,
        highest; /* cells of the other one: the least and the largest cpu_over_first_x of its arms */
};

/* One line per cell that ran on several cores, against the same cell on one. */
struct summary_scaling {
    size_t cell;
    struct summary_figure efficiency_x; /* throughput / (cores x throughput of one core) */
    struct summary_figure
        start_skew_ns; /* median over turns of last start - first start, on one host's clock */
    struct summary_figure
        overlap_x; /* median over turns: time in which all ran / from first start to last end */
    struct summary_figure start_skew_p99_ns; /* from STATS_P99_MIN_N turns on */
    struct summary_figure start_skew_max_ns;
    struct summary_figure core_spread_x; /* fastest - slowest core, over their mean throughput */
    struct summary_figure frequency_khz; /* median over rounds and cores, at their ends */
    int64_t siblings; /* workers that share a physical core with another one: a series of their own */
};

/* Throughput as cores are added, where CAPACITY_SCALE_LEAST core counts or more were measured. */
struct summary_scalability {
    size_t cell; /* the first of the series */
    struct capacity_scalability law;
};

/* One runtime and arm with one job, driven by several numbers of clients, at least once in windows: what one core can
 * carry.  Of cells with as few cores as there are. */
struct summary_capacity {
    char *title;   /* "40 x 10ms sleep" */
    size_t cell;   /* that of the fewest clients */
    size_t *cells; /* all of its loads, those of a rate too */
    size_t cell_count;
    size_t sequential; /* row of the sequential arm on the same runtime; its own for itself; SIZE_MAX: none */
    struct capacity_curve curve;
    struct summary_figure idle_cpu_ns, idle_wall_ns; /* p50s with the fewest clients */
    struct summary_figure busy_cpu_ns;               /* p50 at the measured ceiling */
    struct summary_figure predicted_busy_cpu_ns;
    double residual_percent; /* by how much the fit misses its loads */
    bool told;               /* in words: gather, or the first concurrent arm where there is none */
    /* against sequential */
    struct stats_estimate crossover_clients, predicted_crossover_clients;
    struct summary_figure crossover_error_x; /* measured / predicted */
    bool cheaper_below; /* this arm is, with fewer clients than that; without one, always */
    struct summary_figure cpu_ns_per_saved_ms;
};

struct summary_worker {
    int64_t number;
    const char *runtime, *label, *host;
    struct summary_figure cpu, core, package, numa;
    const char **version_names, **version_values;
    size_t version_count;
    struct summary_figure wall_clock_cost_ns, cpu_clock_cost_ns;
    struct summary_figure timer_overshoot_p50_ns, timer_overshoot_max_ns, spin_gap_max_ns;
};

enum summary_finding_kind {
    SUMMARY_FOUND_WAIT,
    SUMMARY_FOUND_NO_WAIT,
    SUMMARY_FOUND_FAILURE,
    SUMMARY_FOUND_TIMEOUT,
    SUMMARY_FOUND_STALL
};

/* A group that tells most of its kind of job: for the sentences above the tables. */
struct summary_finding {
    enum summary_finding_kind kind;
    size_t group;
    const char *runtime;
    size_t best;       /* cell: the fastest concurrent arm, gather where it is within the other's interval */
    size_t sequential; /* cell: for SUMMARY_FOUND_WAIT and NO_WAIT */
};

/* An entry of the sweep's `expect`. */
struct summary_condition {
    char *text; /* "arm: gather, metric: over_ideal_x, max: 1.05" */
    char *metric;
    int64_t outcomes[3]; /* of its cells, by enum threshold_outcome */
};

/* A condition against one of the cells that it speaks of. */
struct summary_threshold {
    size_t condition, cell; /* indexes */
    const char *metric;     /* of the condition */
    struct stats_estimate figure;
    struct threshold bounds;
    enum threshold_outcome outcome;
    const char *why; /* when undecided */
};

/* A published figure of the lab (summary_lab.c) beside a cell that measures the same. */
struct summary_lab_row {
    size_t cell;
    const char *experiment, *metric; /* "wall_ns", "cpu_ns" or "speedup_x" */
    const char *published;           /* as it was published: "38.15x", "478 ns +- 16" */
    double published_lo, published_hi;
    double measured;
    double ratio_x; /* measured / the middle of what was published */
};

/* Does an experiment come out on this runtime as it did when it was published? */
struct summary_lab_verdict {
    const char *experiment, *runtime;
    bool reproduces;
    char *reason; /* what was compared, or what differs */
};

/* What doctor found on a host before the run began, as the environment keeps it. */
struct summary_disturber {
    char *host, *id; /* of doctor's rule: "no_housekeeping" */
    char *what, *remedy;
    bool severe, note; /* a note disturbs nothing: it bounds what the numbers can tell */
};

struct summary {
    const char *status; /* complete, incomplete, interrupted */
    char *run_id, *name, *seed, *started_at, *finished_at, *sweep_sha256,
        *tool_version;      /* "" when not stored */
    char *argv_json;        /* array, or NULL */
    char *environment_json; /* array, or NULL */
    bool fill_idle;         /* measured CPUs were kept busy while only others were measured */
    char *reserved_cpus;    /* a CPU list, "" for none, or NULL when not stored */

    struct summary_worker *workers;
    struct summary_group *groups;
    struct summary_cell *cells;
    struct summary_left_out *left_out; /* arms; whole rungs are groups */
    size_t left_out_count;
    struct summary_scaling *scaling;
    struct summary_scalability *scalability;
    size_t scalability_count;
    struct summary_finding *findings;
    size_t worker_count, group_count, cell_count, scaling_count, finding_count;

    struct summary_disturber *disturbers; /* as doctor orders them */
    size_t disturber_count, disturber_notes;

    struct summary_condition *conditions;
    struct summary_threshold *thresholds; /* by condition, then cell */
    size_t condition_count, threshold_count;
    struct summary_precision *precisions;
    size_t precision_count, imprecise; /* groups with rounds: auto; those that did not reach it */
    double missing_ns;                 /* sum of those that are known */
    struct summary_figure budget_ns;

    size_t conditions_failed;         /* some cell fails */
    size_t conditions_undecided;      /* none fails, but not every cell passes */
    struct summary_figure elapsed_ns; /* of the run, on a clock that does not step */

    struct summary_capacity *capacity; /* by cell */
    size_t capacity_count;

    struct summary_contrast *contrasts; /* by group, then runtime */
    size_t contrast_count;

    struct summary_lab_row *lab;
    struct summary_lab_verdict *lab_verdicts;
    size_t lab_count, lab_verdict_count;

    int64_t *measured_cpus; /* ascending, on the first host */
    size_t measured_cpu_count;
    int64_t cores_measured; /* on all hosts */
    int64_t host_count, runtime_count;
    int64_t cells_incomplete;
    int64_t rounds, rounds_flagged, rounds_broken; /* sums over cells */
    int64_t flagged_by[SUMMARY_ROUND_FLAGS];
    int64_t verdicts[SUMMARY_VERDICT_COUNT];

    struct store_run *source; /* owner of the const texts above */
};

/* 0: *ret is the caller's. */
int summary_build(struct store *store, struct summary **ret, struct error *err);

void summary_free(struct summary *summary); /* NULL is fine */

/* What the run comes to, first what weighs most: interrupted (130); incomplete (3), where a round that is no number is
 * missing too; a threshold that failed (99); one that could not be decided, or precision that was not reached (98); or
 * ERROR_NONE.  error_exit_code has the numbers. */
enum error_kind summary_exit_kind(const struct summary *summary);

/* The figure that a threshold calls by this name ("wall_ns", "wall_ns.max", "speedup_x"); false for no such name.
 * over_ideal_x has the interval of p50 wall; what never has one is not bounded and says no why. */
bool summary_find_metric(const struct summary_cell *cell, const char *name, struct stats_estimate *ret);

/* The rounds behind a cell of the summary (cell->number), by worker, then block.  free() *ret. */
int summary_load_rounds(struct store *store, const struct summary *summary, int64_t cell_number,
                        struct summary_round **ret, size_t *ret_count, struct error *err);

#endif
