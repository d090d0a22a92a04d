/* compare: matching, the rule and each way around it, error rates over many simulated runs, real stores, and files
 * that may hold anything. */
#include "coordinator/compare/compare_internal.h"
#include "coordinator/plan/plan.h"
#include "coordinator/store/store.h"
#include "coordinator/sweep/sweep.h"

#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- sides made of seeded values ---- */

struct recipe {
    size_t cells, units, rounds; /* rounds of each unit */
    double cpu_ns, wall_ns;      /* medians of all cells */
    double between, within;      /* deviations of the logarithm */
    uint64_t seed;
};

static double normal(struct rng *rng)
{
    return sqrt(-2 * log(1 - rng_unit(rng))) * cos(2 * 3.141592653589793 * rng_unit(rng));
}

static void fill_figure(struct compare_figure *figure, const struct recipe *recipe, double median,
                        struct rng *rng)
{
    size_t count = recipe->units * recipe->rounds;
    figure->values = memory_zeroed(count + 1, sizeof *figure->values);
    figure->blocks = memory_zeroed(count + 1, sizeof *figure->blocks);
    figure->clean = memory_zeroed(count + 1, sizeof *figure->clean);
    figure->count = count;
    for (size_t unit = 0; unit < recipe->units; unit++) {
        double offset = recipe->between * normal(rng);
        for (size_t i = 0; i < recipe->rounds; i++) {
            size_t at = unit * recipe->rounds + i;
            figure->values[at] =
                (struct effect_value){(int64_t)unit, median * exp(offset + recipe->within * normal(rng))};
            figure->blocks[at] = (int64_t)i;
            figure->clean[at] = true;
        }
    }
}

/* Estimates of what the values say. */
static void settle_figure(struct compare_figure *figure)
{
    scoped_free double *values = memory_zeroed(figure->count + 1, sizeof *values);
    for (size_t i = 0; i < figure->count; i++)
        values[i] = figure->values[i].value;
    struct stats_moments moments = stats_moments(values, figure->count);
    figure->p50 = figure->clean_p50 = stats_median(values, figure->count);
    figure->min = moments.min;
    figure->max = moments.max;
}

static struct compare_side make_side(const struct recipe *recipe)
{
    struct rng rng = rng_seeded(recipe->seed);
    struct compare_side side = {.path = memory_text("side"),
                                .run_id = memory_text("id"),
                                .status = memory_text("complete"),
                                .host = memory_text("box"),
                                .tool_version = memory_text("0.1.0"),
                                .has_values = true,
                                .cell_count = recipe->cells,
                                .cells = memory_zeroed(recipe->cells, sizeof *side.cells)};
    for (size_t i = 0; i < recipe->cells; i++) {
        struct compare_cell *cell = &side.cells[i];
        cell->id = memory_format("libuv/gather/sleep/n=%zu/delay=1ms/cores=1", i + 1);
        cell->by_unit = recipe->units > 1;
        fill_figure(&cell->figures[COMPARE_CPU], recipe, recipe->cpu_ns, &rng);
        fill_figure(&cell->figures[COMPARE_WALL], recipe, recipe->wall_ns, &rng);
        for (int metric = 0; metric < COMPARE_METRICS; metric++)
            settle_figure(&cell->figures[metric]);
    }
    return side;
}

static struct comparison *compare_them(struct compare_side base, struct compare_side changed,
                                       double threshold)
{
    struct compare_options options = compare_defaults();
    struct comparison *comparison;
    struct error err = {0};
    options.threshold = threshold;
    if (compare_sides(base, changed, &options, &comparison, &err) < 0)
        fail_msg("%s", err.text);
    return comparison;
}

/* The only row that is not of the other metric. */
static const struct compare_row *row_of(const struct comparison *comparison, enum compare_metric metric)
{
    for (size_t i = 0; i < comparison->row_count; i++)
        if (comparison->rows[i].metric == metric)
            return &comparison->rows[i];
    return NULL;
}

static void check_row(const struct comparison *comparison, enum compare_metric metric,
                      enum compare_outcome outcome, const char *why)
{
    const struct compare_row *row = row_of(comparison, metric);
    if (row->outcome != outcome)
        fail_msg("%s, %s", compare_outcome_name(row->outcome), row->why ? row->why : "");
    if (why)
        assert_string_equal(row->why, why);
    else
        assert_null(row->why);
}

/* ---- the rule ---- */

static const struct recipe quiet = {1, 1, 9, 60000, 1000000, 0, 0.002, 1};

static struct recipe slower_cpu(double times, uint64_t seed)
{
    struct recipe recipe = quiet;
    recipe.cpu_ns *= times;
    recipe.seed = seed;
    return recipe;
}

static void test_outcomes(void **state)
{
    static const struct {
        double times;
        enum compare_outcome outcome;
        const char *why;
        enum error_kind kind;
    } table[] = {
        {1, COMPARE_PASS, NULL, ERROR_NONE},
        {1.03, COMPARE_PASS, NULL, ERROR_NONE},
        {1.05, COMPARE_INCONCLUSIVE, "interval_spans_threshold", ERROR_INCONCLUSIVE},
        {1.1, COMPARE_REGRESSION, NULL, ERROR_FAILED},
        {0.97, COMPARE_PASS, NULL, ERROR_NONE},
        {0.9, COMPARE_IMPROVEMENT, NULL, ERROR_NONE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct recipe changed = slower_cpu(table[i].times, 2);
        struct comparison *comparison = compare_them(make_side(&quiet), make_side(&changed), 0.05);
        check_row(comparison, COMPARE_CPU, table[i].outcome, table[i].why);
        check_row(comparison, COMPARE_WALL, COMPARE_PASS, NULL);
        assert_int_equal(compare_exit_kind(comparison), table[i].kind);
        compare_free(comparison);
    }
}

/* Half of the rounds are flagged and slow: all rounds say one thing, the clean ones another. */
static void disturb(struct compare_side *side, double times)
{
    struct compare_figure *figure = &side->cells[0].figures[COMPARE_CPU];
    side->cells[0].noisy = true;
    for (size_t i = 0; i < figure->count; i++) {
        bool hit = i % 2 == 0;
        figure->values[i].value *= hit ? times : 1;
        side->cells[0].figures[COMPARE_CPU].clean[i] = side->cells[0].figures[COMPARE_WALL].clean[i] = !hit;
    }
    settle_figure(figure);
}

static void test_noise_makes_no_failure(void **state)
{
    (void)state;
    struct recipe again = slower_cpu(1, 2);
    again.rounds = 40;
    struct compare_side base = make_side(&again), changed = make_side(&again);
    struct compare_figure *figure = &changed.cells[0].figures[COMPARE_CPU];
    for (size_t i = 0; i < figure->count; i++) { /* three in four rounds met a neighbour */
        figure->clean[i] = i % 4 == 0;
        figure->values[i].value *= figure->clean[i] ? 1 : 1.2;
    }
    settle_figure(figure);
    changed.cells[0].noisy = true;
    struct comparison *comparison = compare_them(base, changed, 0.05);
    assert_true(row_of(comparison, COMPARE_CPU)->effect.ratio.ci_lo > 1.05);
    check_row(comparison, COMPARE_CPU, COMPARE_INCONCLUSIVE, "noisy");
    compare_free(comparison);
}

static void test_noise_takes_a_pass_away(void **state)
{
    (void)state;
    struct recipe slow = slower_cpu(1.2, 2), fast = slower_cpu(1, 3);
    slow.rounds = fast.rounds = 20;
    struct compare_side base = make_side(&fast), changed = make_side(&slow);
    struct compare_figure *figure = &changed.cells[0].figures[COMPARE_CPU];
    for (size_t i = 0; i < figure->count; i++) { /* what was flagged hides what the clean rounds cost */
        figure->clean[i] = i % 4 == 0;
        figure->values[i].value /= figure->clean[i] ? 1 : 1.2;
    }
    settle_figure(figure);
    changed.cells[0].noisy = true;
    struct comparison *comparison = compare_them(base, changed, 0.05);
    assert_true(row_of(comparison, COMPARE_CPU)->effect.ratio.ci_hi < 1.05);
    check_row(comparison, COMPARE_CPU, COMPARE_INCONCLUSIVE, "noisy");
    compare_free(comparison);
}

static void test_noise_leaves_what_clean_rounds_say(void **state)
{
    (void)state;
    struct recipe again = slower_cpu(1, 2), slow = slower_cpu(1.2, 3);
    again.rounds = slow.rounds = 20;
    struct compare_side base = make_side(&again), same = make_side(&again);
    disturb(&same, 1.01);
    struct comparison *comparison = compare_them(base, same, 0.05);
    check_row(comparison, COMPARE_CPU, COMPARE_PASS, NULL);
    compare_free(comparison);
    struct compare_side slower = make_side(&slow);
    disturb(&slower, 1.01);
    comparison = compare_them(make_side(&again), slower, 0.05);
    check_row(comparison, COMPARE_CPU, COMPARE_REGRESSION, NULL);
    compare_free(comparison);
}

/* The same host that wakes half as fast: waits end later, each wake-up costs more, and nothing of that is the code's. */
static void test_slow_wakeups_make_no_failure(void **state)
{
    (void)state;
    static const struct {
        double cpu_times, late_base_ns, late_changed_ns;
        enum compare_outcome outcome;
    } rows[] = {
        {1.6, 30000, 60000, COMPARE_INCONCLUSIVE}, {2.5, 30000, 60000, COMPARE_REGRESSION},
        {1.6, 30000, 30000, COMPARE_REGRESSION},   {1.6, 60000, 30000, COMPARE_REGRESSION},
        {1.6, 0, 60000, COMPARE_REGRESSION},       {1.6, 30000, 0, COMPARE_REGRESSION},
        {0.7, 60000, 30000, COMPARE_PASS},         {0.4, 60000, 30000, COMPARE_IMPROVEMENT},
        {0.7, 30000, 60000, COMPARE_IMPROVEMENT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct recipe other = slower_cpu(rows[i].cpu_times, 2);
        other.wall_ns *= rows[i].cpu_times;
        struct compare_side base = make_side(&quiet), changed = make_side(&other);
        base.cells[0].late_ns = rows[i].late_base_ns;
        changed.cells[0].late_ns = rows[i].late_changed_ns;
        struct comparison *comparison = compare_them(base, changed, 0.05);
        check_row(comparison, COMPARE_CPU, rows[i].outcome,
                  rows[i].outcome == COMPARE_INCONCLUSIVE ? "wakes_later" : NULL);
        check_row(comparison, COMPARE_WALL, rows[i].cpu_times > 1 ? COMPARE_REGRESSION : COMPARE_IMPROVEMENT,
                  NULL); /* all that it took */
        compare_free(comparison);
    }
}

/* Values that grow by `share` over the run. */
static void drift(struct compare_figure *figure, double share)
{
    figure->drifts = true;
    for (size_t i = 0; i < figure->count; i++)
        figure->values[i].value *= 1 + share * (double)i / (double)figure->count;
    settle_figure(figure);
}

static void test_drift(void **state)
{
    static const struct {
        double times, share;
        enum compare_outcome outcome;
        const char *why;
    } table[] = {
        {1, 0.01, COMPARE_PASS, NULL},               /* too little to matter */
        {1, 0.07, COMPARE_INCONCLUSIVE, "drift"},    /* its second half would not pass */
        {1.03, 0.06, COMPARE_INCONCLUSIVE, "drift"}, /* its first half would not fail */
        {1.2, 0.04, COMPARE_REGRESSION, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct recipe base = slower_cpu(1, 2), changed = slower_cpu(table[i].times, 3);
        base.rounds = changed.rounds = 100;
        struct compare_side sides[2] = {make_side(&base), make_side(&changed)};
        drift(&sides[1].cells[0].figures[COMPARE_CPU], table[i].share);
        struct comparison *comparison = compare_them(sides[0], sides[1], 0.05);
        check_row(comparison, COMPARE_CPU, table[i].outcome, table[i].why);
        check_row(comparison, COMPARE_WALL, COMPARE_PASS, NULL);
        compare_free(comparison);
    }
}

static void test_unusable_cells(void **state)
{
    (void)state;
    struct recipe slow = slower_cpu(2, 2);
    struct compare_side changed = make_side(&slow);
    changed.cells[0].unusable = "cell_invalid";
    struct comparison *comparison = compare_them(make_side(&quiet), changed, 0.05);
    check_row(comparison, COMPARE_CPU, COMPARE_INCONCLUSIVE, "cell_invalid");
    assert_int_equal(compare_exit_kind(comparison), ERROR_INCONCLUSIVE);
    compare_free(comparison);
}

/* One of 100 cells is slow, a little too little to be sure of that among 200 rows; alone it would do. */
static void test_holm_over_the_run(void **state)
{
    (void)state;
    for (size_t cells = 1; cells <= 100; cells += 99) {
        struct recipe many = quiet;
        many.cells = cells;
        many.within = 0.0145;
        struct recipe again = many;
        again.seed = 2;
        struct compare_side base = make_side(&many), changed = make_side(&again);
        struct recipe slow = slower_cpu(1.12, 4);
        slow.within = 0.0145;
        struct compare_side only = make_side(&slow), before = make_side(&quiet);
        struct compare_figure spare = changed.cells[0].figures[COMPARE_CPU];
        changed.cells[0].figures[COMPARE_CPU] = only.cells[0].figures[COMPARE_CPU];
        only.cells[0].figures[COMPARE_CPU] = spare;
        compare_side_release(&only);
        compare_side_release(&before);
        struct comparison *comparison = compare_them(base, changed, 0.05);
        const struct compare_row *row = NULL;
        for (size_t i = 0; i < comparison->row_count; i++)
            if (strcmp(comparison->rows[i].base->id, "libuv/gather/sleep/n=1/delay=1ms/cores=1") == 0 &&
                comparison->rows[i].metric == COMPARE_CPU)
                row = &comparison->rows[i];
        assert_true(row->effect.ratio.ci_lo > 1.05);
        if (cells == 1)
            assert_int_equal(row->outcome, COMPARE_REGRESSION);
        else
            assert_string_equal(row->why, "one_of_many_tests");
        compare_free(comparison);
    }
}

/* ---- error rates ---- */

/* The truth lies exactly at the threshold, the worst case for a false alarm: 16 cells, two metrics, 40 runs.  Without
 * Holm most runs would hold a row whose interval alone says regression. */
static void test_false_regressions_per_run(void **state)
{
    int alarms = 0;
    size_t without_holm = 0;
    (void)state;
    for (uint64_t run = 0; run < 40; run++) {
        struct recipe base = {16, 1, 9, 60000, 1000000, 0, 0.02, 2 * run + 1}, changed = base;
        changed.seed++;
        changed.cpu_ns *= 1.05;
        changed.wall_ns *= 1.05;
        struct comparison *comparison = compare_them(make_side(&base), make_side(&changed), 0.05);
        alarms += compare_exit_kind(comparison) == ERROR_FAILED;
        for (size_t i = 0; i < comparison->row_count; i++)
            without_holm += comparison->rows[i].effect.ratio.ci_lo > 1.05;
        compare_free(comparison);
    }
    assert_in_range(alarms, 0, 4); /* 2.5 % of 40 are one; more than 4 have a chance of 0.3 % */
    assert_true(without_holm > 5);
}

/* The same binary twice, fresh processes: never a regression, and nearly always a pass. */
static void test_equal_runs(void **state)
{
    size_t passed = 0;
    (void)state;
    for (uint64_t run = 0; run < 20; run++) {
        struct recipe base = {7, 5, 3, 60000, 1000000, 0.005, 0.005, 1000 + 2 * run}, changed = base;
        changed.seed++;
        struct comparison *comparison = compare_them(make_side(&base), make_side(&changed), 0.05);
        assert_int_not_equal(compare_exit_kind(comparison), ERROR_FAILED);
        passed += compare_exit_kind(comparison) == ERROR_NONE;
        compare_free(comparison);
    }
    assert_in_range(passed, 19, 20);
}

/* 20 processes that differ by 2 %: +10 % is found each time, +3 % at a threshold of 1 % in all but one of 20, +1 % at
 * 1 % never decided. */
static void test_power(void **state)
{
    int found_ten = 0, found_three = 0, decided_one = 0;
    (void)state;
    for (uint64_t run = 0; run < 20; run++) {
        struct recipe base = {1, 20, 5, 60000, 1000000, 0.01, 0.01, 5000 + 2 * run}, changed = base;
        changed.seed++;
        changed.cpu_ns = base.cpu_ns * 1.1;
        changed.wall_ns = base.wall_ns * 1.1;
        struct comparison *comparison = compare_them(make_side(&base), make_side(&changed), 0.05);
        found_ten += comparison->outcomes[COMPARE_REGRESSION] == 2;
        compare_free(comparison);
        changed.cpu_ns = base.cpu_ns * 1.03;
        changed.wall_ns = base.wall_ns * 1.01;
        struct recipe quiet_base = base, quiet_changed = changed;
        quiet_base.between = quiet_changed.between = 0.004;
        comparison = compare_them(make_side(&quiet_base), make_side(&quiet_changed), 0.01);
        found_three += row_of(comparison, COMPARE_CPU)->outcome == COMPARE_REGRESSION;
        decided_one += row_of(comparison, COMPARE_WALL)->outcome != COMPARE_INCONCLUSIVE;
        compare_free(comparison);
    }
    assert_int_equal(found_ten, 20);
    assert_in_range(found_three, 19, 20);
    assert_in_range(decided_one, 0, 2);
}

/* ---- matching ---- */

static struct compare_side side_of(const char *const *ids, size_t count)
{
    struct recipe recipe = quiet;
    recipe.cells = count;
    struct compare_side side = make_side(&recipe);
    for (size_t i = 0; i < count; i++) {
        free(side.cells[i].id);
        side.cells[i].id = memory_text(ids[i]);
    }
    return side;
}

#define COUNT(list) (sizeof(list) / sizeof *(list))

static int try_match(const char *const *base, size_t base_count, const char *const *changed,
                     size_t changed_count, const char *ignored, struct comparison **ret, struct error *err)
{
    struct compare_options options = compare_defaults();
    options.ignored = &ignored;
    options.ignored_count = ignored ? 1 : 0;
    return compare_sides(side_of(base, base_count), side_of(changed, changed_count), &options, ret, err);
}

static void test_ignored_keys(void **state)
{
    static const struct {
        const char *base, *changed, *ignored;
    } same[] = {
        {"libuv/gather/sleep/n=4/delay=1ms/cores=1", "libuv/gather/sleep/n=4/delay=1ms/cores=1", NULL},
        {"libuv/gather/sleep/n=4/delay=1ms/cores=1", "asyncio/gather/sleep/n=4/delay=1ms/cores=1", "runtime"},
        {"libuv/gather/sleep/n=4/delay=1ms/cores=1", "libuv/tasks/sleep/n=4/delay=1ms/cores=1", "arm"},
        {"libuv/gather/sleep/n=4/delay=1ms/cores=1", "libuv/gather/cpu/n=4/delay=1ms/cores=1", "job"},
        {"libuv/gather/sleep/n=4/delay=1ms/cores=1", "libuv/gather/sleep/n=5/delay=1ms/cores=1", "fanout"},
        {"libuv/gather/sleep/n=4/delay=1ms/cores=1", "libuv/gather/sleep/n=4/delay=2ms/cores=1", "delay"},
        {"libuv/gather/sleep/n=4/delay=1ms/cores=1", "libuv/gather/sleep/n=4/delay=1ms/cores=2", "cores"},
        {"libuv/gather/noop/n=4/cores=1/gc=off", "libuv/gather/noop/n=4/cores=1", "gc"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(same); i++) {
        struct comparison *comparison;
        struct error err = {0};
        if (try_match(&same[i].base, 1, &same[i].changed, 1, same[i].ignored, &comparison, &err) < 0)
            fail_msg("%zu: %s", i, err.text);
        assert_int_equal(comparison->common_count, 1);
        compare_free(comparison);
        if (same[i].ignored && try_match(&same[i].base, 1, &same[i].changed, 1, NULL, &comparison, &err) == 0)
            fail_msg("%zu matches without --ignore", i);
    }
}

static void test_cells_of_one_side(void **state)
{
    static const char *const base[] = {"a/b/c/n=1", "a/b/c/n=2", "a/b/c/n=3"}, *const changed[] = {
                                                                                   "a/b/c/n=3", "a/b/c/n=4"};
    struct comparison *comparison;
    struct error err = {0};
    (void)state;
    assert_int_equal(try_match(base, 3, changed, 2, NULL, &comparison, &err), 0);
    assert_int_equal(comparison->common_count, 1);
    assert_int_equal(comparison->row_count, 2);
    assert_int_equal(comparison->only_count[0], 2);
    assert_int_equal(comparison->only_count[1], 1);
    assert_string_equal(comparison->only[0][1]->id, "a/b/c/n=2");
    assert_string_equal(comparison->only[1][0]->id, "a/b/c/n=4");
    compare_free(comparison);
}

static void check_refusal(const char *const *base, size_t base_count, const char *const *changed,
                          size_t changed_count, const char *ignored, const char *text)
{
    struct comparison *comparison;
    struct error err = {0};
    assert_int_equal(try_match(base, base_count, changed, changed_count, ignored, &comparison, &err), -1);
    assert_int_equal(err.kind, ERROR_USAGE);
    assert_string_equal(err.text, text);
}

static void test_refusals(void **state)
{
    static const char *const one[] = {"a/b/c/n=1"}, *const other[] = {"a/b/c/n=2"},
                             *const twice[] = {"x/b/c", "x/b/c"},
                             *const near[] = {"a/b/c/n=1/gc=on", "a/b/c/n=1/gc=off"};
    (void)state;
    check_refusal(one, 1, other, 1, NULL, "'side' and 'side' have no cell in common");
    check_refusal(one, 1, one, 0, NULL, "'side' and 'side' have no cell in common");
    check_refusal(twice, 2, one, 1, NULL, "'side' has two cells 'x/b/c'");
    check_refusal(
        near, 2, one, 1, "gc",
        "'side': what is left of 'a/b/c/n=1/gc=on' and 'a/b/c/n=1/gc=off' is the same: ignore less");
    check_refusal(one, 1, one, 1, "core", "unknown key 'core' to ignore, did you mean 'cores'?");
    check_refusal(one, 1, one, 1, "seed", "unknown key 'seed' to ignore: it is no part of an id");
}

static void test_options(void **state)
{
    static const struct {
        const char *text;
        double value; /* 0: refused */
    } thresholds[] = {{"5%", 0.05}, {"0.05", 0.05}, {"2.5%", 0.025}, {"1000%", 10}, {"1", 1},   {"0%", 0},
                      {"-5%", 0},   {"5 %", 0},     {"nan", 0},      {"inf", 0},    {"0x1", 0}, {"", 0},
                      {"1001%", 0}, {"1.2.3", 0},   {"1e-2", 0},     {"5%%", 0},    {".", 0},   {"%", 0}};
    static const struct {
        const char *text;
        unsigned metrics;
    } metrics[] = {{"cpu", 1}, {"wall", 2}, {"cpu,wall", 3}, {"wall,cpu,wall", 3},
                   {"", 0},    {"cpu,", 0}, {"CPU", 0}};
    struct error err = {0};
    (void)state;
    for (size_t i = 0; i < COUNT(thresholds); i++) {
        double got = 0;
        int result = compare_parse_threshold(thresholds[i].text, &got, &err);
        if ((result == 0) != (thresholds[i].value > 0) || fabs(got - thresholds[i].value) > 1e-12)
            fail_msg("'%s': %g", thresholds[i].text, got);
    }
    for (size_t i = 0; i < COUNT(metrics); i++) {
        unsigned got = 0;
        (void)compare_parse_metrics(metrics[i].text, &got, &err);
        if (got != metrics[i].metrics)
            fail_msg("'%s': %u", metrics[i].text, got);
    }
}

/* ---- what is printed ---- */

static char *printed(const struct comparison *comparison, int (*print)(const struct comparison *, FILE *))
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(print(comparison, out), 0);
    (void)fclose(out);
    return text;
}

static void check_page(const char *text)
{
    size_t column = 0;
    for (const char *at = text; *at; at++) {
        column = *at == '\n' ? 0 : column + 1;
        if (column > 100 || (*at != '\n' && (*at < ' ' || *at > '~')))
            fail_msg("column %zu: %.60s", column, at);
    }
}

static void test_worst_first(void **state)
{
    static const char *const order[] = {"n=3/", "n=2/", "n=1/", "n=4/"};
    (void)state;
    struct recipe four = quiet, again = quiet;
    four.cells = again.cells = 4;
    again.seed = 2;
    struct compare_side base = make_side(&four), changed = make_side(&again);
    for (size_t i = 0; i < 9; i++) {
        base.cells[3].figures[COMPARE_CPU].values[i].value *= 1.5; /* improvement */
        changed.cells[1].figures[COMPARE_WALL].values[i].value *= 1.2;
        changed.cells[2].figures[COMPARE_CPU].values[i].value *= 1.5;
    }
    for (size_t i = 0; i < 4; i++)
        for (int metric = 0; metric < COMPARE_METRICS; metric++) {
            settle_figure(&base.cells[i].figures[metric]);
            settle_figure(&changed.cells[i].figures[metric]);
        }
    struct comparison *comparison = compare_them(base, changed, 0.05);
    scoped_free char *text = printed(comparison, compare_print_text);
    const char *at = text;
    for (size_t i = 0; i < 4; i++) {
        const char *next = strstr(at, order[i]);
        if (!next)
            fail_msg("%s is not where it belongs in\n%s", order[i], text);
        at = next;
    }
    check_page(text);
    assert_non_null(strstr(text, "\nFAIL 4 cells, 2 regressions, 1 improvement\n"));
    compare_free(comparison);
}

static void test_hostile_names(void **state)
{
    static const char *const ids[] = {
        "\x1b[31m/\xff\xfe/c/n=1/\n\"<&>",
        "a/b/c/n=1/params=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    struct comparison *comparison;
    struct error err = {0};
    (void)state;
    assert_int_equal(try_match(ids, 2, ids, 2, NULL, &comparison, &err), 0);
    scoped_free char *text = printed(comparison, compare_print_text),
                     *json = printed(comparison, compare_print_json);
    check_page(text);
    assert_non_null(strstr(text, "\nPASS 2 cells, 0 regressions\n"));
    assert_null(strchr(json, 0x1b));
    compare_free(comparison);
}

/* ---- real stores ---- */

static const char small_sweep[] = "name: s\nrounds: 9\narms: [sequential, gather]\nmatrix:\n"
                                  "- {job: sleep, fanout: 4, delay: 1ms}\n- {job: noop, fanout: 2}\n";

static int put_rounds(struct store *store, const struct plan *plan, double times, struct rng *rng,
                      struct error *err)
{
    for (int64_t group = 0; group < plan->group_count; group++) {
        struct wire_round rounds[64];
        struct wire_result result = {.group = group, .attempt = 1, .last = true, .rounds = rounds};
        for (int64_t i = 0; i < plan->groups[group].cell_count; i++)
            for (int64_t block = 0; block < 9; block++) {
                struct wire_round *round = &rounds[result.round_count++];
                wire_round_init(round);
                round->cell = plan->groups[group].cells[i];
                round->block = block;
                round->start_ns = 1000000 * (block + 1);
                round->wall_ns = (int64_t)(2e6 * times * (1 + 0.01 * rng_unit(rng)));
                round->cpu_ns = plan->cells[round->cell].harness
                                    ? 900
                                    : (int64_t)(7e4 * times * (1 + 0.01 * rng_unit(rng)));
                if (plan->cells[round->cell].harness ||
                    strcmp(plan->cells[round->cell].spec.job, "noop") == 0)
                    round->wall_ns =
                        round->cpu_ns + 100; /* what never waits uses its wall time, or was stopped */
                round->fanouts = 1;
            }
        bool fresh;
        if (store_put_result(store, 0, &result, &fresh, err) < 0 ||
            store_finish_group(store, group, 1, err) < 0)
            return -1;
    }
    return 0;
}

static void make_run(const char *dir, double times, uint64_t seed)
{
    static char word[] = "libuv";
    const struct wire_hello hello = {
        .instance = word, .runtime = word, .label = word, .host = word, .slot = 0, .cpu = 1};
    struct error err = {0};
    struct sweep *sweep;
    struct plan *plan;
    struct store *store;
    struct sweep_mistakes mistakes = {0};
    struct rng rng = rng_seeded(seed);
    assert_int_equal(
        sweep_parse("s", small_sweep, strlen(small_sweep), (struct sweep_settings){0}, &sweep, &mistakes), 0);
    assert_int_equal(plan_make(sweep, 1, &plan, &err), 0);
    if (store_create(dir, &store, &err) < 0 || store_put_plan(store, plan, &err) < 0 ||
        store_put_worker(store, 0, &hello, &err) < 0 || put_rounds(store, plan, times, &rng, &err) < 0)
        fail_msg("%s", err.text);
    store_close(store);
    plan_free(plan);
    sweep_free(sweep);
}

static int make_scratch(void **state)
{
    char *dir = memory_text("/tmp/corefan-compare-XXXXXX");
    *state = dir;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    scoped_free char *command = memory_format("rm -rf '%s'", (char *)*state);
    free(*state);
    return system(command);
}

static enum error_kind compare_paths(const char *base, const char *changed)
{
    struct compare_options options = compare_defaults();
    struct comparison *comparison;
    struct error err = {0};
    options.base = base;
    options.changed = changed;
    if (compare_make(&options, &comparison, &err) < 0)
        fail_msg("%s", err.text);
    scoped_free char *text = printed(comparison, compare_print_text),
                     *again = printed(comparison, compare_print_text);
    assert_string_equal(text, again);
    check_page(text);
    enum error_kind kind = compare_exit_kind(comparison);
    compare_free(comparison);
    return kind;
}

static void test_stores(void **state)
{
    char *dirs[8];
    for (uint64_t i = 0; i < 8; i++) {
        dirs[i] = memory_format("%s/run%llu", (char *)*state, (unsigned long long)i);
        make_run(dirs[i], i == 7 ? 1.1 : 1, i + 1);
    }
    for (size_t i = 0; i + 1 < 7; i++)
        assert_int_equal(compare_paths(dirs[i], dirs[i + 1]), ERROR_NONE);
    assert_int_equal(compare_paths(dirs[0], dirs[7]), ERROR_FAILED);
    assert_int_equal(compare_paths(dirs[7], dirs[0]), ERROR_NONE); /* better */
    for (size_t i = 0; i < 8; i++)
        free(dirs[i]);
}

/* ---- files that may hold anything ---- */

#define P50(value)                                                                                           \
    "{\"value\": " #value                                                                                    \
    ", \"n\": 9, \"ci_lo\": 99, \"ci_hi\": 103, \"ci_level\": 0.96, \"ci_method\": \"x\"}"
#define CELL(id, wall, cpu)                                                                                  \
    "{\"id\": \"" id                                                                                         \
    "\", \"verdict\": \"ok\", \"flags\": [], \"rounds\": 9, \"rounds_flagged\": 0, \"wall_ns\": " wall       \
    ", \"cpu_ns\": " cpu "}"
#define FIGURE "{\"p50\": " P50(100) ", \"clean_p50\": " P50(100) ", \"min\": 98, \"max\": 105}"
#define SUMMARY(cells)                                                                                       \
    "{\"schema_version\": 1, \"run\": {\"id\": \"r\", \"status\": \"complete\"}, \"cells\": [" cells "]}"
#define GOOD SUMMARY(CELL("a/b/c/n=1", FIGURE, FIGURE))

static char *write_file(void **state, const char *name, const char *text, size_t size)
{
    char *path = memory_format("%s/%s", (char *)*state, name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, size, out), size);
    (void)fclose(out);
    return path;
}

static void check_one_line(const struct error *err)
{
    assert_int_equal(err->kind, ERROR_USAGE);
    assert_true(strlen(err->text) > 0);
    for (const char *at = err->text; *at; at++)
        if (*at < ' ' || *at > '~')
            fail_msg("not one plain line: %s", err->text);
}

static void test_hostile_summaries(void **state)
{
    static const struct {
        const char *text, *says;
    } table[] = {
        {"", "is no summary of a run: line 1: "},
        {"\x7f"
         "ELF",
         "is no summary of a run"},
        {"[]", "it is no JSON object"},
        {"7", "is no summary"},
        {"{\"cells\": []}", "it has no schema_version"},
        {"{\"schema_version\": \"1\", \"cells\": []}", "it has no schema_version"},
        {"{\"schema_version\": 2, \"cells\": []}",
         "has schema version 2, and this corefan compares version 1"},
        {"{\"schema_version\": 1}", "it has no list of cells"},
        {"{\"schema_version\": 1, \"cells\": {}}", "it has no list of cells"},
        {SUMMARY("7"), "a cell has no id"},
        {SUMMARY("{\"id\": 7}"), "a cell has no id"},
        {SUMMARY("{\"id\": \"\"}"), "a cell has no id"},
        {SUMMARY("{\"id\": \"x\"}"), "x: it has no verdict"},
        {SUMMARY(CELL("x", "7", FIGURE)), "x: wall_ns and cpu_ns must be maps or null"},
        {SUMMARY("{\"id\": \"x\", \"verdict\": \"ok\"}"), "x: wall_ns and cpu_ns must be maps or null"},
        {SUMMARY(CELL("x", "{\"p50\": 7}", FIGURE)), "x: an estimate has no value or no n"},
        {SUMMARY(CELL("x", "{\"p50\": {\"value\": -1, \"n\": 9}}", FIGURE)),
         "x: an estimate has no value or no n"},
        {SUMMARY(CELL("x", "{\"p50\": " P50(98) "}", FIGURE)), "x: an interval contradicts itself"},
        {SUMMARY(CELL("x", "{\"p50\": {\"value\": 1, \"n\": 9, \"ci_lo\": 1}}", FIGURE)),
         "x: an interval contradicts itself"},
        {SUMMARY(CELL("x", "{\"p50\": {\"value\": 1e999, \"n\": 9}}", FIGURE)), "real number overflow"},
        {SUMMARY(CELL("x\\u0000y", FIGURE, FIGURE)), "is no summary"},
        {"{\"schema_version\": 1, \"cells\": [], \"cells\": []}", "duplicate object key"},
        {SUMMARY(CELL("\\u001b[31m\\nz", "7", FIGURE)), "?[31m?z: "},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        scoped_free char *path = write_file(state, "x.json", table[i].text, strlen(table[i].text));
        struct compare_side side;
        struct error err = {0};
        if (compare_load(path, &side, &err) == 0)
            fail_msg("taken: %s", table[i].text);
        check_one_line(&err);
        if (!strstr(err.text, table[i].says))
            fail_msg("'%s' does not say '%s'", err.text, table[i].says);
    }
}

static void test_unusual_but_fine_summaries(void **state)
{
    static const struct {
        const char *text;
        enum compare_outcome cpu;
        const char *why;
    } table[] = {
        {GOOD, COMPARE_PASS, NULL},
        {SUMMARY(CELL("a/b/c/n=1", FIGURE, "null")), COMPARE_INCONCLUSIVE, "not_measured"},
        {SUMMARY(CELL("a/b/c/n=1", FIGURE, "{\"p50\": null}")), COMPARE_INCONCLUSIVE, "not_measured"},
        {SUMMARY(CELL("a/b/c/n=1", FIGURE, "{\"p50\": {\"value\": 100, \"n\": 1, \"ci_lo\": null}}")),
         COMPARE_INCONCLUSIVE, "one_value"},
        {SUMMARY(CELL("a/b/c/n=1", FIGURE,
                      "{\"p50\": {\"value\": 0, \"n\": 9, \"ci_lo\": 0, \"ci_hi\": 0, "
                      "\"ci_level\": 0.96}}")),
         COMPARE_INCONCLUSIVE, "no_time_seen"},
        {SUMMARY(CELL("a/b/c/n=1", FIGURE,
                      "{\"p50\": {\"value\": 1e300, \"n\": 9, \"ci_lo\": 1e-300, \"ci_hi\": 1e308, "
                      "\"ci_level\": 0.001}}")),
         COMPARE_INCONCLUSIVE, "too_uncertain"},
        {SUMMARY("{\"id\": \"a/b/c/n=1\", \"verdict\": \"invalid\", \"wall_ns\": " FIGURE
                 ", \"cpu_ns\": " FIGURE "}"),
         COMPARE_INCONCLUSIVE, "cell_invalid"},
        {SUMMARY("{\"id\": \"a/b/c/n=1\", \"verdict\": \"ok\", \"flags\": [7, \"incomplete\"], "
                 "\"wall_ns\": " FIGURE ", \"cpu_ns\": " FIGURE "}"),
         COMPARE_INCONCLUSIVE, "cell_incomplete"},
    };
    scoped_free char *good = write_file(state, "good.json", GOOD, strlen(GOOD));
    for (size_t i = 0; i < COUNT(table); i++) {
        scoped_free char *path = write_file(state, "x.json", table[i].text, strlen(table[i].text));
        struct compare_options options = compare_defaults();
        struct comparison *comparison;
        struct error err = {0};
        options.base = good;
        options.changed = path;
        if (compare_make(&options, &comparison, &err) < 0)
            fail_msg("%zu: %s", i, err.text);
        check_row(comparison, COMPARE_CPU, table[i].cpu, table[i].why);
        compare_free(comparison);
    }
}

/* Cut anywhere, and bytes changed anywhere: refused in one line or read, never worse. */
static void test_damaged_summaries(void **state)
{
    struct rng rng = rng_seeded(9);
    size_t length = strlen(GOOD), taken = 0;
    for (size_t i = 0; i < 3000; i++) {
        scoped_free char *text = memory_text(GOOD);
        size_t size = i < length ? i : length;
        for (size_t changes = i < length ? 0 : 1 + rng_below(&rng, 3); changes > 0; changes--)
            text[rng_below(&rng, length)] = (char)rng_next(&rng);
        scoped_free char *path = write_file(state, "x.json", text, size);
        struct compare_side side;
        struct error err = {0};
        if (compare_load(path, &side, &err) < 0) {
            check_one_line(&err);
            continue;
        }
        taken++;
        compare_side_release(&side);
    }
    assert_in_range(taken, 1, 2900);
}

static void test_paths(void **state)
{
    struct compare_side side;
    struct error err = {0};
    scoped_free char *empty = memory_format("%s/empty", (char *)*state),
                     *nothing = memory_format("%s/no", (char *)*state),
                     *inside = memory_format("%s/empty/summary.json", (char *)*state);
    assert_int_equal(mkdir(empty, 0700), 0);
    assert_int_equal(compare_load(nothing, &side, &err), -1);
    check_one_line(&err);
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(compare_load(empty, &side, &err), -1);
    assert_non_null(strstr(err.text, "empty"));
    free(write_file(state, "empty/summary.json", GOOD, strlen(GOOD)));
    assert_int_equal(compare_load(empty, &side, &err), 0); /* a directory that was stripped of its run.db */
    compare_side_release(&side);
    assert_int_equal(compare_load(inside, &side, &err), 0);
    compare_side_release(&side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outcomes),
        cmocka_unit_test(test_noise_makes_no_failure),
        cmocka_unit_test(test_noise_takes_a_pass_away),
        cmocka_unit_test(test_noise_leaves_what_clean_rounds_say),
        cmocka_unit_test(test_slow_wakeups_make_no_failure),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_unusable_cells),
        cmocka_unit_test(test_holm_over_the_run),
        cmocka_unit_test(test_false_regressions_per_run),
        cmocka_unit_test(test_equal_runs),
        cmocka_unit_test(test_power),
        cmocka_unit_test(test_ignored_keys),
        cmocka_unit_test(test_cells_of_one_side),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_worst_first),
        cmocka_unit_test(test_hostile_names),
        cmocka_unit_test_setup_teardown(test_stores, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(test_hostile_summaries, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(test_unusual_but_fine_summaries, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(test_damaged_summaries, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(test_paths, make_scratch, remove_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
