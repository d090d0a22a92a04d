/* summary_internal.h: what the files of the summary share.  Nobody else includes it. */
#ifndef COREFAN_COORDINATOR_SUMMARY_INTERNAL_H
#define COREFAN_COORDINATOR_SUMMARY_INTERNAL_H

#include "coordinator/stats/latency.h"
#include "coordinator/stats/precision.h"
#include "coordinator/store/store.h"
#include "coordinator/summary/summary.h"

/* One round that is a number, per fan-out. */
struct round_value {
    int64_t worker, block;
    double wall_ns; /* of a window: the median of its latencies */
    double cpu_ns;
    unsigned flags; /* of the round */
    const struct wire_round *raw;
};

/* A cell of the group at hand, with its rounds in memory. */
struct cell_rounds {
    const struct store_cell *plan;
    struct store_rounds *loaded;
    struct round_value *values; /* by worker, then block */
    size_t count;
    int64_t broken;
    const char *first_error;          /* of the broken ones */
    struct latency latency, intended; /* windows: of all values */
};

/* What a cell is compared with: NULL where there is none. */
struct cell_context {
    const struct store_run *run;
    const struct store_group *group;
    const struct cell_rounds *own, *sequential, *harness;
    uint64_t seed;
};

static inline struct summary_figure figure(double value)
{
    return (struct summary_figure){.known = true, .value = value};
}

static inline struct summary_figure no_figure(const char *why)
{
    return (struct summary_figure){.why = why};
}

static inline bool is_window(const struct store_cell *plan)
{
    return plan->spec.duration_ns > 0;
}

/* From environment_json. */
void summary_fill_disturbers(struct summary *summary);
void summary_free_disturbers(struct summary *summary);

/* Flags of the round; pinned_cpu: of its worker, WIRE_NULL when it is not. */
unsigned summary_disturbed(const struct wire_round *raw, const struct store_cell *plan, int64_t pinned_cpu);

/* The rounds of one cell, those that are no numbers set aside. */
int cell_rounds_load(struct store *store, const struct store_run *run, const struct store_cell *plan,
                     struct cell_rounds *ret, struct error *err);
void cell_rounds_release(struct cell_rounds *rounds);

/* Adds a window's latencies to those of its cell; *ret_wall_ns: their median.  Why it is no number, or NULL. */
const char *rounds_take_window(struct cell_rounds *rounds, const struct wire_round *raw, double *ret_wall_ns);

/* ---- Columns of rounds. ---- */

typedef double round_column(const struct round_value *value);

double round_wall_ns(const struct round_value *value);
double round_cpu_ns(const struct round_value *value);

/* free() it. */
double *rounds_gather(const struct round_value *values, size_t count, round_column *of);

/* How many values from `first` on are of the same worker. */
size_t rounds_of_worker(const struct cell_rounds *rounds, size_t first);

enum raw_field {
#define X(name) RAW_##name,
    WIRE_ROUND_INTEGERS(X)
#undef X
};

enum raw_reduction { LEAST, MIDDLE, MOST };

/* Over the raw rounds that know this field; `why` when none does. */
struct summary_figure rounds_reduce(const struct cell_rounds *rounds, enum raw_field field,
                                    enum raw_reduction reduction, const char *why);

/* Sum over those that know it. */
struct summary_figure rounds_sum(const struct cell_rounds *rounds, enum raw_field field, const char *why);

/* ---- Processes: with several of them they are the unit of every interval. ---- */

bool summary_by_process(const struct store_group *group);

/* Number of the process that measured this block, from 0. */
int64_t summary_process_of(const struct store_group *group, int64_t block);

/* p50 of a column of the cell, of all rounds or of those without a flag. */
struct stats_estimate summary_median(const struct cell_context *context, round_column *of, bool clean_alone,
                                     size_t worker_count);

/* Of pairs whose unit is the process; seeded by the cell. */
struct stats_estimate summary_paired(const struct cell_context *context, enum stats_figure of,
                                     const struct stats_pair *pairs, size_t count);
struct stats_estimate summary_paired_difference(const struct cell_context *context,
                                                const struct stats_pair *pairs, size_t count,
                                                size_t worker_count);
struct stats_estimate summary_paired_ratio(const struct cell_context *context, const struct stats_pair *pairs,
                                           size_t count);

/* Rounds over all workers and processes; with rounds: auto those that a process without a loss would have. */
int64_t summary_rounds_planned(const struct cell_context *context);

/* ---- Steps of the summary, in this order. ---- */

/* Everything of one cell but start skew and efficiency, which need more than its own group. */
void summary_fill_cell(const struct cell_context *context, struct summary_cell *cell);

/* Of windows: wall_ns over all fan-outs, once it holds the windows' own p50s; then all that only windows have. */
void summary_fill_latency(const struct cell_context *context, struct summary_cell *cell);
void summary_fill_windows(const struct cell_context *context, struct summary_cell *cell);

/* Rates that are a part of what no rung proved to be a ceiling; once all cells are there. */
void summary_flag_ceilings(struct summary *summary);

/* Verdict, its reason and the flags that belong to it; after the figures. */
void summary_judge_cell(const struct cell_context *context, struct summary_cell *cell);

/* Of a group with rounds: auto, the last one of the summary, whose cells are filled. */
void summary_fill_precision(struct summary *summary, const struct store_group *from,
                            const struct cell_rounds *cells, size_t count);

/* Start skew and overlap of a gang. */
void summary_fill_gang(const struct cell_context *context, struct summary_scaling *row);

/* Of a gang, once its cell is filled: per-core spread and siblings. */
void summary_fill_spread(const struct store_run *run, const struct summary_cell *cell,
                         struct summary_scaling *row);

/* All that makes a cell but its cores, as text; free() it. */
char *summary_key_without_cores(const struct store_cell *cell);

/* The law of each series of core counts, once all cells are there. */
void summary_fill_scalability(struct summary *summary);

/* Rows for the cells with several cores hold skew and overlap already: adds efficiency. */
void summary_fill_efficiency(struct summary *summary);

/* What the sweep expects of the cells; after all their figures. */
int summary_judge_thresholds(struct store *store, struct summary *summary, struct error *err);

/* The groups that are told in words. */
void summary_find(struct summary *summary);

/* Cost curves, once all cells are there. */
void summary_fill_capacity(struct summary *summary);

/* Runtimes against each other, once all cells are there. */
void summary_compare_runtimes(struct summary *summary);

/* Rows and verdicts of the lab, once all cells are there. */
void summary_fill_lab(struct summary *summary);

#endif
