/* compare_internal.h: what the files of the comparison share, and its tests.  Nobody else includes it. */
#ifndef COREFAN_COORDINATOR_COMPARE_INTERNAL_H
#define COREFAN_COORDINATOR_COMPARE_INTERNAL_H

#include "coordinator/compare/compare.h"
#include "coordinator/stats/effect.h"

/* One metric of one cell, per fan-out. */
struct compare_figure {
    struct stats_estimate p50, clean_p50; /* clean: of the rounds without a flag */
    double min, max;                      /* hold when p50 is known */
    bool drifts;
    struct effect_value *values; /* by unit; NULL: from a bare summary */
    int64_t *blocks;             /* of each value */
    bool *clean;                 /* each value */
    size_t count;
};

struct compare_cell {
    char *id, *key;       /* key: id without what is ignored */
    const char *unusable; /* constant word: invalid or incomplete; NULL: fine */
    bool noisy, by_unit;
    double late_ns; /* how late its waits end, median; 0: it has none, or it is not known */
    struct compare_figure figures[COMPARE_METRICS];
};

struct compare_side {
    char *path;
    char *run_id, *status, *host, *tool_version; /* "" when not known */
    bool has_values;
    struct compare_cell *cells;
    size_t cell_count;
};

/* Worst first. */
#define COMPARE_OUTCOMES(X)                                                                                  \
    X(REGRESSION, regression)                                                                                \
    X(INCONCLUSIVE, inconclusive)                                                                            \
    X(PASS, pass)                                                                                            \
    X(IMPROVEMENT, improvement)

enum compare_outcome {
#define X(upper, lower) COMPARE_##upper,
    COMPARE_OUTCOMES(X)
#undef X
        COMPARE_OUTCOME_COUNT
};

struct compare_row {
    const struct compare_cell *base, *changed;
    enum compare_metric metric;
    struct effect effect;
    double p_regression, p_improvement; /* after Holm; hold when the effect is bounded */
    enum compare_outcome outcome;
    const char *why; /* constant word, when inconclusive */
};

struct comparison {
    struct compare_side sides[2]; /* base, changed */
    double threshold;
    unsigned metrics;
    struct compare_row *rows; /* by cell, worst first; a cell's rows stand together, by metric */
    size_t row_count, common_count;
    const struct compare_cell **only[2]; /* cells that the other side lacks, in its order */
    size_t only_count[2];
    size_t outcomes[COMPARE_OUTCOME_COUNT]; /* of rows */
};

const char *compare_metric_name(enum compare_metric metric);
const char *compare_outcome_name(enum compare_outcome outcome);

/* The side as its run directory or summary.json has it; keys are not set. */
int compare_load(const char *path, struct compare_side *ret, struct error *err);
void compare_side_release(struct compare_side *side);

/* Takes both sides, which it owns from here on also when it fails, and does all the rest. */
int compare_sides(struct compare_side base, struct compare_side changed,
                  const struct compare_options *options, struct comparison **ret, struct error *err);

#endif
