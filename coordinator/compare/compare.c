#include "coordinator/compare/compare_internal.h"
#include "coordinator/sweep/sweep_keys.h"

#include "base/map.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

#define ALPHA ((1 - STATS_LEVEL) / 2)

const char *compare_metric_name(enum compare_metric metric)
{
    static const char *const names[COMPARE_METRICS] = {[COMPARE_CPU] = "cpu", [COMPARE_WALL] = "wall"};
    return names[metric];
}

const char *compare_outcome_name(enum compare_outcome outcome)
{
    static const char *const names[] = {
#define X(upper, lower) #lower,
        COMPARE_OUTCOMES(X)
#undef X
    };
    return names[outcome];
}

/* ---- options ---- */

struct compare_options compare_defaults(void)
{
    return (struct compare_options){.threshold = COMPARE_THRESHOLD, .metrics = (1u << COMPARE_METRICS) - 1};
}

int compare_parse_threshold(const char *text, double *ret, struct error *err)
{
    size_t digits = strspn(text, "0123456789.");
    bool is_percent = strcmp(text + digits, "%") == 0;
    char *rest;
    double number = strtod(text, &rest) / (is_percent ? 100 : 1);
    if (digits == 0 || rest != text + digits || (*rest && !is_percent) || !(number > 0 && number <= 10))
        return error_set(err, ERROR_USAGE,
                         "threshold '%.40s' is not a share above 0 and up to 1000%% (write it like 5%%)",
                         text);
    *ret = number;
    return 0;
}

static int find_metric(const char *name, size_t length)
{
    for (int metric = 0; metric < COMPARE_METRICS; metric++) {
        const char *known = compare_metric_name((enum compare_metric)metric);
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return metric;
    }
    return -1;
}

int compare_parse_metrics(const char *text, unsigned *ret, struct error *err)
{
    unsigned metrics = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        int metric = find_metric(at, length);
        if (metric < 0)
            return error_set(err, ERROR_USAGE, "unknown metric '%.*s' (cpu, wall)",
                             (int)(length < 40 ? length : 40), at);
        metrics |= 1u << metric;
        at += length;
        if (!*at)
            break;
    }
    *ret = metrics;
    return 0;
}

/* ---- ids without what is ignored: "libuv/gather/sleep/n=40/delay=10ms/cores=1" ---- */

enum { PLACE_RUNTIME, PLACE_ARM, PLACE_JOB, PLACE_COUNT };

/* How a key stands in an id: by its place, or as NAME=. */
struct ignored {
    int place; /* PLACE_COUNT: by name */
    const char *name;
};

static int find_ignored(const char *written, struct ignored *ret, struct error *err)
{
    static const struct {
        const char *written;
        struct ignored as;
    } words[] = {
        {"runtime", {PLACE_RUNTIME, NULL}}, {"runtimes", {PLACE_RUNTIME, NULL}}, {"arm", {PLACE_ARM, NULL}},
        {"arms", {PLACE_ARM, NULL}},        {"job", {PLACE_JOB, NULL}},          {"n", {PLACE_COUNT, "n"}},
        {"fanout", {PLACE_COUNT, "n"}},
    };
    struct nearest nearest = {.written = written};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i].written, written) == 0) {
            *ret = words[i].as;
            return 0;
        }
        nearest_consider(&nearest, words[i].written);
    }
    for (size_t i = 0; i < SWEEP_CELL_KEYS; i++) {
        const struct sweep_key *key = &sweep_top_type.keys[i];
        if (key->identity && strcmp(key->name, written) == 0) {
            *ret = (struct ignored){PLACE_COUNT, key->name};
            return 0;
        }
        if (key->identity)
            nearest_consider(&nearest, key->name);
    }
    return error_set(err, ERROR_USAGE, "unknown key '%.40s' to ignore%s%s%s", written,
                     nearest.name ? ", did you mean '" : ": it is no part of an id",
                     nearest.name ? nearest.name : "", nearest.name ? "'?" : "");
}

static bool is_ignored(const struct ignored *ignored, size_t count, int place, const char *part,
                       size_t length)
{
    for (size_t i = 0; i < count; i++) {
        if (ignored[i].place < PLACE_COUNT ? ignored[i].place == place : false)
            return true;
        size_t name = ignored[i].name ? strlen(ignored[i].name) : 0;
        if (name > 0 && place >= PLACE_COUNT && length > name && part[name] == '=' &&
            memcmp(part, ignored[i].name, name) == 0)
            return true;
    }
    return false;
}

/* free() it. */
static char *make_key(const char *id, const struct ignored *ignored, size_t count)
{
    char *key = memory_zeroed(strlen(id) + 2, 1);
    size_t used = 0;
    int place = 0;
    for (const char *at = id;; place++) {
        size_t length = strcspn(at, "/");
        if (!is_ignored(ignored, count, place, at, length)) {
            key[used++] = '/';
            memcpy(key + used, at, length);
            used += length;
        }
        at += length;
        if (!*at++)
            break;
    }
    if (used == 0)
        key[0] = '/';
    return key;
}

static int set_keys(struct compare_side *side, const struct ignored *ignored, size_t count, struct map *map,
                    struct error *err)
{
    for (size_t i = 0; i < side->cell_count; i++) {
        struct compare_cell *cell = &side->cells[i];
        cell->key = make_key(cell->id, ignored, count);
        const struct compare_cell *other = map_get(map, cell->key, strlen(cell->key));
        if (other && count == 0)
            return error_set(err, ERROR_USAGE, "'%s' has two cells '%.200s'", side->path, cell->id);
        if (other)
            return error_set(err, ERROR_USAGE,
                             "'%s': what is left of '%.200s' and '%.200s' is the same: ignore less",
                             side->path, other->id, cell->id);
        map_put(map, cell->key, strlen(cell->key), cell);
    }
    return 0;
}

static int match(struct comparison *comparison, const struct compare_options *options, struct map maps[2],
                 struct error *err)
{
    scoped_free struct ignored *ignored = memory_zeroed(options->ignored_count + 1, sizeof *ignored);
    for (size_t i = 0; i < options->ignored_count; i++)
        if (find_ignored(options->ignored[i], &ignored[i], err) < 0)
            return -1;
    for (int side = 0; side < 2; side++) {
        comparison->only[side] =
            memory_zeroed(comparison->sides[side].cell_count + 1, sizeof *comparison->only[side]);
        if (set_keys(&comparison->sides[side], ignored, options->ignored_count, &maps[side], err) < 0)
            return -1;
    }
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < comparison->sides[side].cell_count; i++) {
            const struct compare_cell *cell = &comparison->sides[side].cells[i];
            if (!map_get(&maps[!side], cell->key, strlen(cell->key)))
                comparison->only[side][comparison->only_count[side]++] = cell;
        }
    comparison->common_count = comparison->sides[0].cell_count - comparison->only_count[0];
    if (comparison->common_count == 0)
        return error_set(err, ERROR_USAGE, "'%s' and '%s' have no cell in common", comparison->sides[0].path,
                         comparison->sides[1].path);
    return 0;
}

/* ---- effects ---- */

enum selection { EVERY_ROUND, CLEAN_ROUNDS };

/* The values of a selection; free() them. */
static struct effect_value *select_values(const struct compare_figure *figure, enum selection selection,
                                          size_t *ret_count)
{
    struct effect_value *values = memory_zeroed(figure->count + 1, sizeof *values);
    *ret_count = 0;
    for (size_t i = 0; i < figure->count; i++)
        if (selection == EVERY_ROUND || figure->clean[i])
            values[(*ret_count)++] = figure->values[i];
    return values;
}

/* FNV-1a, then mixed: equal for equal cells, whatever else the runs hold. */
static uint64_t seed_of(const struct compare_row *row, enum selection selection)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *at = row->base->key; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    struct rng rng = rng_stream(hash, (uint64_t)row->metric * 2 + (uint64_t)selection);
    return rng_next(&rng);
}

static struct effect measure(const struct compare_row *row, enum selection selection)
{
    const struct compare_figure *base = &row->base->figures[row->metric],
                                *changed = &row->changed->figures[row->metric];
    if (!base->values || !changed->values)
        return selection == EVERY_ROUND ? effect_of_estimates(&base->p50, &changed->p50)
                                        : effect_of_estimates(&base->clean_p50, &changed->clean_p50);
    struct effect_sample samples[2] = {{.by_unit = row->base->by_unit}, {.by_unit = row->changed->by_unit}};
    scoped_free struct effect_value *base_values = select_values(base, selection, &samples[0].n);
    scoped_free struct effect_value *changed_values = select_values(changed, selection, &samples[1].n);
    samples[0].values = base_values;
    samples[1].values = changed_values;
    return effect_of_values(samples[0], samples[1], seed_of(row, selection));
}

/* Rows of the common cells, in the order of the base. */
static void measure_rows(struct comparison *comparison, const struct map *changed_cells)
{
    const struct compare_side *base = &comparison->sides[0];
    comparison->rows = memory_zeroed(comparison->common_count * COMPARE_METRICS, sizeof *comparison->rows);
    for (size_t i = 0; i < base->cell_count; i++) {
        const struct compare_cell *cell = &base->cells[i],
                                  *changed = map_get(changed_cells, cell->key, strlen(cell->key));
        for (int metric = 0; changed && metric < COMPARE_METRICS; metric++) {
            if (!(comparison->metrics >> metric & 1))
                continue;
            struct compare_row *row = &comparison->rows[comparison->row_count++];
            *row =
                (struct compare_row){.base = cell, .changed = changed, .metric = (enum compare_metric)metric};
            row->effect = measure(row, EVERY_ROUND);
        }
    }
}

static void adjust(const struct comparison *comparison)
{
    double slower = 1 + comparison->threshold, faster = 1 / slower;
    size_t count = comparison->row_count, family = 0;
    scoped_free double *p = memory_zeroed(2 * count + 1, sizeof *p);
    double *p_faster = p + count;
    for (size_t i = 0; i < count; i++)
        if (comparison->rows[i].effect.ratio.bounded) {
            p[family] = effect_p_above(&comparison->rows[i].effect, slower);
            p_faster[family++] = effect_p_below(&comparison->rows[i].effect, faster);
        }
    stats_holm(p, family, p);
    stats_holm(p_faster, family, p_faster);
    for (size_t i = 0, next = 0; i < count; i++)
        if (comparison->rows[i].effect.ratio.bounded) {
            comparison->rows[i].p_regression = p[next];
            comparison->rows[i].p_improvement = p_faster[next++];
        }
}

/* ---- the rule ---- */

static void decide(struct compare_row *row, enum compare_outcome outcome, const char *why)
{
    row->outcome = outcome;
    row->why = why;
}

static void judge_undisturbed(struct compare_row *row, double threshold)
{
    const struct stats_estimate *ratio = &row->effect.ratio;
    double slower = 1 + threshold, faster = 1 / slower;
    const char *unusable = row->base->unusable ? row->base->unusable : row->changed->unusable;
    if (unusable)
        decide(row, COMPARE_INCONCLUSIVE, unusable);
    else if (!ratio->known || !ratio->bounded)
        decide(row, COMPARE_INCONCLUSIVE, ratio->why);
    else if (ratio->ci_lo > slower && row->p_regression <= ALPHA)
        decide(row, COMPARE_REGRESSION, NULL);
    else if (ratio->ci_lo > slower)
        decide(row, COMPARE_INCONCLUSIVE, "one_of_many_tests");
    else if (!(ratio->ci_hi < slower))
        decide(row, COMPARE_INCONCLUSIVE, "interval_spans_threshold");
    else if (ratio->ci_hi < faster && row->p_improvement <= ALPHA)
        decide(row, COMPARE_IMPROVEMENT, NULL);
    else
        decide(row, COMPARE_PASS, NULL);
}

/* The range that the ratio keeps within, by a second look. */
struct range {
    bool known;
    double lo, hi;
};

static bool stands(enum compare_outcome outcome, struct range range, double threshold)
{
    double slower = 1 + threshold;
    if (!range.known)
        return false;
    return outcome == COMPARE_REGRESSION ? range.lo > slower : range.hi < slower;
}

static struct range clean_range(const struct compare_row *row)
{
    struct effect clean = measure(row, CLEAN_ROUNDS);
    return (struct range){clean.ratio.bounded, clean.ratio.ci_lo, clean.ratio.ci_hi};
}

static int compare_numbers(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t middle_block(const struct compare_figure *figure)
{
    scoped_free int64_t *blocks = memory_zeroed(figure->count + 1, sizeof *blocks);
    memcpy(blocks, figure->blocks, figure->count * sizeof *blocks);
    qsort(blocks, figure->count, sizeof *blocks, compare_numbers);
    return blocks[figure->count / 2];
}

/* Between which medians a figure drifts: those of its first and its second half. */
static struct range drift_range(const struct compare_figure *figure)
{
    double p50 = figure->p50.value;
    if (!figure->drifts)
        return (struct range){figure->p50.known, p50, p50};
    if (!figure->values || figure->count < 2)
        return (struct range){figure->p50.known, figure->min, figure->max};
    scoped_free double *halves = memory_zeroed(2 * figure->count, sizeof *halves);
    double *late = halves + figure->count;
    size_t early_count = 0, late_count = 0;
    int64_t middle = middle_block(figure);
    for (size_t i = 0; i < figure->count; i++) {
        if (figure->blocks[i] < middle)
            halves[early_count++] = figure->values[i].value;
        else
            late[late_count++] = figure->values[i].value;
    }
    if (early_count == 0)
        return (struct range){true, figure->min, figure->max};
    double first = stats_median_in_place(halves, early_count),
           second = stats_median_in_place(late, late_count);
    return (struct range){true, fmin(first, second), fmax(first, second)};
}

static struct range drifted_ratio(const struct compare_row *row)
{
    struct range base = drift_range(&row->base->figures[row->metric]),
                 changed = drift_range(&row->changed->figures[row->metric]);
    if (!base.known || !changed.known || !(base.lo > 0))
        return (struct range){.known = false};
    return (struct range){true, changed.lo / base.hi, changed.hi / base.lo};
}

/* The CPU of a job that waits is mostly what it costs to wake up, and that changes with what else the host does, for
 * all rounds of a run alike.  How late its waits ended tells: as the CPU would be if both sides had woken as fast. */
static struct range evenly_woken_ratio(const struct compare_row *row)
{
    const struct stats_estimate *ratio = &row->effect.ratio;
    double base = row->base->late_ns, changed = row->changed->late_ns;
    bool known = row->metric == COMPARE_CPU && base > 0 && changed > 0;
    double times = known ? changed / base : 1;
    return (struct range){ratio->bounded, ratio->ci_lo / fmax(times, 1), ratio->ci_hi / fmin(times, 1)};
}

static void look_at_wakeups(struct compare_row *row, double threshold)
{
    struct range even = evenly_woken_ratio(row);
    if (row->outcome == COMPARE_REGRESSION && !stands(row->outcome, even, threshold))
        decide(row, COMPARE_INCONCLUSIVE, "wakes_later");
    else if (row->outcome == COMPARE_IMPROVEMENT && !(even.hi < 1 / (1 + threshold)))
        decide(row, COMPARE_PASS, NULL);
}

static void look_again(struct compare_row *row, double threshold)
{
    bool noisy = row->base->noisy || row->changed->noisy;
    bool drifts = row->base->figures[row->metric].drifts || row->changed->figures[row->metric].drifts;
    if (row->outcome == COMPARE_INCONCLUSIVE)
        return;
    if (noisy && !stands(row->outcome, clean_range(row), threshold))
        decide(row, COMPARE_INCONCLUSIVE, "noisy");
    else if (drifts && !stands(row->outcome, drifted_ratio(row), threshold))
        decide(row, COMPARE_INCONCLUSIVE, "drift");
    else if ((noisy || drifts) && row->outcome == COMPARE_IMPROVEMENT)
        decide(row, COMPARE_PASS, NULL);
}

/* ---- worst first ---- */

struct rank {
    enum compare_outcome outcome;
    double ratio;
    size_t first, count; /* rows */
};

static int compare_ranks(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;
    if (x->outcome != y->outcome)
        return x->outcome < y->outcome ? -1 : 1;
    if (x->ratio < y->ratio || x->ratio > y->ratio)
        return x->ratio > y->ratio ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* A cell ranks by its worst row; one that only passes and improves, as an improvement. */
static struct rank rank_cell(const struct comparison *comparison, size_t first)
{
    struct rank rank = {.outcome = COMPARE_IMPROVEMENT, .first = first};
    bool improves = false;
    for (size_t i = first;
         i < comparison->row_count && comparison->rows[i].base == comparison->rows[first].base; i++) {
        const struct compare_row *row = &comparison->rows[i];
        double ratio = row->effect.ratio.known ? row->effect.ratio.value : 0;
        if (row->outcome < rank.outcome || (row->outcome == rank.outcome && ratio > rank.ratio)) {
            rank.outcome = row->outcome;
            rank.ratio = ratio;
        }
        improves = improves || row->outcome == COMPARE_IMPROVEMENT;
        rank.count++;
    }
    if (improves && rank.outcome == COMPARE_PASS)
        rank.outcome = COMPARE_IMPROVEMENT;
    return rank;
}

static void sort_rows(struct comparison *comparison)
{
    scoped_free struct rank *ranks = memory_zeroed(comparison->common_count, sizeof *ranks);
    struct compare_row *sorted = memory_zeroed(comparison->row_count, sizeof *sorted);
    size_t count = 0, used = 0;
    for (size_t first = 0; first < comparison->row_count; first += ranks[count++].count)
        ranks[count] = rank_cell(comparison, first);
    qsort(ranks, count, sizeof *ranks, compare_ranks);
    for (size_t i = 0; i < count; i++) {
        memcpy(sorted + used, comparison->rows + ranks[i].first, ranks[i].count * sizeof *sorted);
        used += ranks[i].count;
    }
    free(comparison->rows);
    comparison->rows = sorted;
}

/* ---- the whole ---- */

static void judge(struct comparison *comparison)
{
    adjust(comparison);
    for (size_t i = 0; i < comparison->row_count; i++) {
        struct compare_row *row = &comparison->rows[i];
        judge_undisturbed(row, comparison->threshold);
        look_again(row, comparison->threshold);
        look_at_wakeups(row, comparison->threshold);
        comparison->outcomes[row->outcome]++;
    }
    sort_rows(comparison);
}

int compare_sides(struct compare_side base, struct compare_side changed,
                  const struct compare_options *options, struct comparison **ret, struct error *err)
{
    struct comparison *comparison = memory_zeroed(1, sizeof *comparison);
    struct map maps[2];
    *comparison = (struct comparison){
        .sides = {base, changed}, .threshold = options->threshold, .metrics = options->metrics};
    for (int side = 0; side < 2; side++)
        map_init(&maps[side], (uint64_t)side);
    int result = match(comparison, options, maps, err);
    if (result == 0) {
        measure_rows(comparison, &maps[1]);
        judge(comparison);
        *ret = comparison;
    } else {
        compare_free(comparison);
    }
    for (int side = 0; side < 2; side++)
        map_release(&maps[side]);
    return result;
}

int compare_make(const struct compare_options *options, struct comparison **ret, struct error *err)
{
    struct compare_side base = {0}, changed = {0};
    if (compare_load(options->base, &base, err) < 0)
        return -1;
    if (compare_load(options->changed, &changed, err) < 0) {
        compare_side_release(&base);
        return -1;
    }
    return compare_sides(base, changed, options, ret, err);
}

enum error_kind compare_exit_kind(const struct comparison *comparison)
{
    if (comparison->outcomes[COMPARE_REGRESSION] > 0)
        return ERROR_FAILED;
    return comparison->outcomes[COMPARE_INCONCLUSIVE] > 0 ? ERROR_INCONCLUSIVE : ERROR_NONE;
}

static void release_cell(struct compare_cell *cell)
{
    for (int metric = 0; metric < COMPARE_METRICS; metric++) {
        free(cell->figures[metric].values);
        free(cell->figures[metric].blocks);
        free(cell->figures[metric].clean);
    }
    free(cell->id);
    free(cell->key);
}

void compare_side_release(struct compare_side *side)
{
    for (size_t i = 0; i < side->cell_count; i++)
        release_cell(&side->cells[i]);
    char *texts[] = {side->path, side->run_id, side->status, side->host, side->tool_version};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    free(side->cells);
    *side = (struct compare_side){0};
}

void compare_free(struct comparison *comparison)
{
    if (!comparison)
        return;
    for (int side = 0; side < 2; side++) {
        compare_side_release(&comparison->sides[side]);
        free(comparison->only[side]);
    }
    free(comparison->rows);
    free(comparison);
}
