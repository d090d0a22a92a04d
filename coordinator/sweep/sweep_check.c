/* The rules of a sweep that no single value shows: keys that go together, jobs that keys fit, sizes. */
#include "coordinator/sweep/sweep.h"

#include "base/memory.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

/* ---- inside one map ---- */

static void check_runtime(const struct sweep_map *map, struct sweep_mistakes *mistakes)
{
    const struct sweep_value *kind = sweep_get(map, SWEEP_RUNTIME_KIND);
    bool is_libuv = strcmp(kind->text, "libuv") == 0;
    for (size_t i = SWEEP_RUNTIME_PYTHON; is_libuv && i < SWEEP_RUNTIME_KEYS; i++)
        if (map->keys[i].given)
            sweep_mistake(mistakes, map->keys[i].mark, "'%s' is for asyncio and uvloop, not for libuv",
                          map->type->keys[i].name);
    const struct sweep_value *jobs = sweep_get(map, SWEEP_RUNTIME_JOBS);
    if (map->keys[SWEEP_RUNTIME_PATH].given && !map->keys[SWEEP_RUNTIME_JOBS].given)
        sweep_mistake(mistakes, map->keys[SWEEP_RUNTIME_PATH].mark, "'path' is of no use without 'jobs'");
    for (size_t i = 0; jobs && i < jobs->pairs.count; i++) {
        const char *name = jobs->pairs.at[i].name;
        if (sweep_find_word(sweep_job_type.keys[SWEEP_JOB_KIND].words, name))
            sweep_mistake(mistakes, jobs->mark, "job '%s' is built in: give the coroutine another name",
                          name);
        for (size_t j = 0; j < i; j++)
            if (strcmp(jobs->pairs.at[j].name, name) == 0)
                sweep_mistake(mistakes, jobs->mark, "job '%s' is named twice", name);
    }
}

static void check_fail(const struct sweep_map *map, struct sweep_mistakes *mistakes)
{
    const struct sweep_value *on_cancel = sweep_get(map, SWEEP_FAIL_ON_CANCEL);
    bool children = map->keys[SWEEP_FAIL_CHILDREN].given;
    bool fraction = map->keys[SWEEP_FAIL_FRACTION].given;
    bool cleanup = map->keys[SWEEP_FAIL_CLEANUP].given;
    bool wants_cleanup = strcmp(on_cancel->text, "cleanup") == 0;
    if (children == fraction)
        sweep_mistake(mistakes, map->mark, "'fail' needs either 'children' or 'fraction'");
    if (cleanup && !wants_cleanup)
        sweep_mistake(mistakes, map->keys[SWEEP_FAIL_CLEANUP].mark,
                      "'cleanup' is of no use without on_cancel: cleanup");
    if (wants_cleanup && !cleanup)
        sweep_mistake(mistakes, on_cancel->mark, "on_cancel: cleanup needs 'cleanup', how long it takes");
}

static void check_expect(const struct sweep_map *map, struct sweep_mistakes *mistakes)
{
    const struct sweep_value *least = sweep_get(map, SWEEP_EXPECT_MIN);
    const struct sweep_value *most = sweep_get(map, SWEEP_EXPECT_MAX);
    if (!least && !most)
        sweep_mistake(mistakes, map->mark, "a threshold needs 'min', 'max' or both");
    if (least && most && least->number > most->number)
        sweep_mistake(mistakes, least->mark, "'min' is above 'max': nothing can pass");
}

static const struct {
    const struct sweep_map_type *type;
    void (*check)(const struct sweep_map *, struct sweep_mistakes *);
} map_checks[] = {
    {&sweep_runtime_type, check_runtime},
    {&sweep_fail_type, check_fail},
    {&sweep_expect_type, check_expect},
};

void sweep_check_map(const struct sweep_map *map, struct sweep_mistakes *mistakes)
{
    for (size_t i = 0; i < sizeof map_checks / sizeof map_checks[0]; i++)
        if (map_checks[i].type == map->type)
            map_checks[i].check(map, mistakes);
}

/* ---- between the keys of an entry ---- */

struct checker {
    struct sweep *sweep;
    struct sweep_mistakes *mistakes;
    bool any_job;       /* see sweep_settings */
    unsigned jobs_seen; /* bits of all jobs in the sweep */
    bool goes_on;       /* some entry has rounds: auto */
    unsigned used;      /* bits of the keys of windows that some entry can use */
    int64_t cells;
};

static const char *runtime_label(const struct sweep_value *runtime)
{
    const struct sweep_value *label = sweep_get(runtime->map, SWEEP_RUNTIME_LABEL);
    return (label ? label : sweep_get(runtime->map, SWEEP_RUNTIME_KIND))->text;
}

static bool runtime_has_job(const struct sweep_value *runtime, const char *job)
{
    const struct sweep_value *jobs = sweep_get(runtime->map, SWEEP_RUNTIME_JOBS);
    for (size_t i = 0; jobs && i < jobs->pairs.count; i++)
        if (strcmp(jobs->pairs.at[i].name, job) == 0)
            return true;
    return false;
}

static bool is_python(const struct sweep_value *runtime)
{
    return strcmp(sweep_get(runtime->map, SWEEP_RUNTIME_KIND)->text, "libuv") != 0;
}

/* Values of a key of this entry; none when it was complained of or is not there. */
static struct sweep_values values_of(const struct sweep_entry *entry, enum sweep_cell_key key)
{
    const struct sweep_values *values = entry->keys[key];
    return values ? *values : (struct sweep_values){0};
}

static void check_own_job(struct checker *checker, const struct sweep_entry *entry,
                          const struct sweep_value *kind)
{
    struct sweep_values runtimes = values_of(entry, SWEEP_RUNTIMES);
    size_t have = 0;
    if (runtimes.count == 0)
        return;
    for (size_t i = 0; i < runtimes.count; i++)
        have += runtime_has_job(&runtimes.at[i], entry->job);
    const struct sweep_word *words = sweep_job_type.keys[SWEEP_JOB_KIND].words;
    const char *nearest = sweep_nearest_word(words, entry->job);
    char list[128];
    if (have > 0) {
        for (size_t i = 0; i < runtimes.count; i++)
            if (!runtime_has_job(&runtimes.at[i], entry->job))
                sweep_mistake(checker->mistakes, runtimes.at[i].mark, "runtime '%s' has no job '%.40s'",
                              runtime_label(&runtimes.at[i]), entry->job);
    } else if (nearest) {
        sweep_mistake(checker->mistakes, kind->mark, "unknown job '%.40s', did you mean '%s'?", entry->job,
                      nearest);
    } else {
        sweep_mistake(checker->mistakes, kind->mark,
                      "unknown job '%.40s': only %s, one of a runtime's 'jobs', or with --workers 0 one that "
                      "workers announce",
                      entry->job, sweep_list_words(words, list, sizeof list));
    }
}

static void check_runtimes(struct checker *checker, const struct sweep_entry *entry)
{
    struct sweep_values runtimes = values_of(entry, SWEEP_RUNTIMES);
    struct sweep_values waits = values_of(entry, SWEEP_WAIT);
    struct sweep_values gc = values_of(entry, SWEEP_GC);
    size_t pythons = 0;
    for (size_t i = 0; i < runtimes.count; i++)
        pythons += is_python(&runtimes.at[i]);
    if (runtimes.count > SWEEP_MAX_RUNTIMES)
        sweep_mistake(checker->mistakes, runtimes.mark, "%zu runtimes: at most %d", runtimes.count,
                      SWEEP_MAX_RUNTIMES);
    for (size_t i = 0; i < waits.count && pythons > 0; i++)
        if (strcmp(waits.at[i].text, "timerfd") != 0)
            sweep_mistake(checker->mistakes, waits.at[i].mark,
                          "wait '%s' is for libuv alone: asyncio and uvloop have timers of their own",
                          waits.at[i].text);
    if (gc.count > 0 && runtimes.count > 0 && pythons == 0)
        sweep_mistake(checker->mistakes, gc.mark, "'gc' needs a runtime with a collector: asyncio or uvloop");
}

static int64_t least_of(struct sweep_values values)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < values.count; i++)
        least = values.at[i].integer < least ? values.at[i].integer : least;
    return least;
}

static void check_children(struct checker *checker, const struct sweep_entry *entry, enum sweep_cell_key key,
                           size_t children_key)
{
    struct sweep_values maps = values_of(entry, key);
    int64_t fanout = least_of(values_of(entry, SWEEP_FANOUT));
    for (size_t i = 0; i < maps.count; i++) {
        const struct sweep_value *children = sweep_get(maps.at[i].map, children_key);
        if (children && children->integer > fanout)
            sweep_mistake(checker->mistakes, children->mark,
                          "'children' is %lld, more than a 'fanout' of %lld", (long long)children->integer,
                          (long long)fanout);
    }
}

static void check_failures(struct checker *checker, const struct sweep_entry *entry)
{
    char at_text[32];
    char delay_text[32];
    struct sweep_values fails = values_of(entry, SWEEP_FAIL);
    int64_t delay = least_of(values_of(entry, SWEEP_DELAY));
    check_children(checker, entry, SWEEP_FAIL, SWEEP_FAIL_CHILDREN);
    check_children(checker, entry, SWEEP_STALL, SWEEP_STALL_CHILDREN);
    for (size_t i = 0; i < fails.count; i++) {
        const struct sweep_value *at = sweep_get(fails.at[i].map, SWEEP_FAIL_AT);
        if (at && at->integer > delay)
            sweep_mistake(checker->mistakes, at->mark, "'at' is %s, after a 'delay' of %s has ended",
                          units_exact_duration(at_text, sizeof at_text, at->integer),
                          units_exact_duration(delay_text, sizeof delay_text, delay));
    }
}

static const struct sweep_value *single_of(const struct sweep_entry *entry, enum sweep_cell_key key)
{
    struct sweep_values values = values_of(entry, key);
    return values.count > 0 ? &values.at[0] : NULL;
}

/* With fixed rounds a precision that stands at the top, for other entries, is not the entry's. */
static void check_effort(struct checker *checker, struct sweep_entry *entry, const struct sweep_map *map)
{
    char limit[32];
    const struct sweep_value *rounds = single_of(entry, SWEEP_ROUNDS);
    const struct sweep_value *processes = single_of(entry, SWEEP_PROCESSES);
    bool is_auto = rounds && rounds->word;
    checker->goes_on |= is_auto;
    if (map != checker->sweep->top && map->keys[SWEEP_PRECISION].given && rounds && !is_auto)
        sweep_mistake(checker->mistakes, map->keys[SWEEP_PRECISION].mark,
                      "'precision' is of no use without rounds: auto");
    int64_t blocks = rounds && !is_auto ? rounds->integer : 1;
    if (processes && blocks * processes->integer > SWEEP_MAX_BLOCKS)
        sweep_mistake(checker->mistakes, processes->mark, "'rounds' x 'processes' is more than %s",
                      units_format_count(limit, sizeof limit, SWEEP_MAX_BLOCKS));
    if (!is_auto)
        entry->keys[SWEEP_PRECISION] = NULL;
}

/* ---- windows ---- */

#define MOST_CHILDREN 10000000 /* at the same time, of all clients of a core */

static bool is_given(const struct sweep_entry *entry, enum sweep_cell_key key)
{
    return entry->keys[key] && entry->keys[key]->given;
}

/* The most concurrent fan-outs that the entry asks for. */
static int64_t most_clients(const struct sweep_entry *entry)
{
    struct sweep_values clients = values_of(entry, SWEEP_CLIENTS);
    int64_t most = 1;
    for (size_t i = 0; i < clients.count; i++)
        most = clients.at[i].integer > most ? clients.at[i].integer : most;
    return most;
}

/* Together is what one client does anyway. */
static bool is_harmless(const struct sweep_entry *entry, enum sweep_cell_key key)
{
    struct sweep_values values = values_of(entry, key);
    for (size_t i = 0; i < values.count; i++)
        if (key != SWEEP_PHASE || strcmp(values.at[i].text, "together") != 0)
            return false;
    return true;
}

/* A key that says nothing about this entry: a mistake where it stands in it, left alone where it comes from the top. */
static void drop_useless(struct checker *checker, struct sweep_entry *entry, const struct sweep_map *map,
                         enum sweep_cell_key key, bool is_of_use, const char *needs)
{
    if (is_of_use) {
        checker->used |= 1u << key;
        return;
    }
    if (!is_harmless(entry, key) && map != checker->sweep->top && map->keys[key].given && !map->flawed &&
        !checker->sweep->top->flawed)
        sweep_mistake(checker->mistakes, map->keys[key].mark, "'%s' is of no use without %s",
                      sweep_top_type.keys[key].name, needs);
    entry->keys[key] = NULL;
}

static const struct {
    enum sweep_cell_key key;
    const char *needs;
} window_keys[] = {
    {SWEEP_PHASE, "'clients' above 1"},
    {SWEEP_ARRIVALS, "'rate'"},
    {SWEEP_DURATION, "'clients' or 'rate': it is the length of their windows"},
};

static void check_rates(struct checker *checker, const struct sweep_entry *entry)
{
    char window[32];
    struct sweep_values rates = values_of(entry, SWEEP_RATE), durations = values_of(entry, SWEEP_DURATION);
    int64_t window_ns = durations.count > 0 ? least_of(durations) : SWEEP_WINDOW_NS;
    if (rates.count > 0 && most_clients(entry) > 1)
        sweep_mistake(checker->mistakes, rates.mark,
                      "'rate' starts fan-outs whatever is under way, 'clients' above 1 wait for theirs: "
                      "an entry has one of them");
    for (size_t i = 0; i < rates.count; i++)
        if (!rates.at[i].is_factor && rates.at[i].number * (double)window_ns < 1e9)
            sweep_mistake(checker->mistakes, rates.at[i].mark,
                          "'rate' is %g/s: less than one fan-out in a window of %s", rates.at[i].number,
                          units_exact_duration(window, sizeof window, window_ns));
}

/* What becomes of errors and time limits is told for plain rounds. */
static void check_failing_windows(struct checker *checker, const struct sweep_entry *entry)
{
    static const enum sweep_cell_key keys[] = {SWEEP_FAIL, SWEEP_TIMEOUT};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (values_of(entry, keys[i]).count > 0)
            sweep_mistake(checker->mistakes, values_of(entry, keys[i]).mark,
                          "'%s' does not go with windows ('clients' above 1, 'rate', 'duration')",
                          sweep_top_type.keys[keys[i]].name);
}

static void check_windows(struct checker *checker, struct sweep_entry *entry, const struct sweep_map *map)
{
    char children[32];
    char limit[32];
    bool has_rate = values_of(entry, SWEEP_RATE).count > 0;
    int64_t clients = most_clients(entry), fanout = 1;
    struct sweep_values fanouts = values_of(entry, SWEEP_FANOUT);
    const bool of_use[] = {clients > 1, has_rate, has_rate || is_given(entry, SWEEP_CLIENTS)};
    check_rates(checker, entry);
    for (size_t i = 0; i < sizeof window_keys / sizeof *window_keys; i++)
        drop_useless(checker, entry, map, window_keys[i].key, of_use[i], window_keys[i].needs);
    bool has_windows = clients > 1 || has_rate || is_given(entry, SWEEP_DURATION);
    if (has_windows)
        check_failing_windows(checker, entry);
    if (has_windows && !is_given(entry, SWEEP_WARMUP))
        entry->keys[SWEEP_WARMUP] = NULL; /* windows need less of it than plain rounds */
    for (size_t i = 0; i < fanouts.count; i++)
        fanout = fanouts.at[i].integer > fanout ? fanouts.at[i].integer : fanout;
    if (clients > 1 && clients * fanout > MOST_CHILDREN)
        sweep_mistake(checker->mistakes, values_of(entry, SWEEP_CLIENTS).mark,
                      "'clients' x 'fanout' is %s children at the same time: at most %s",
                      units_format_count(children, sizeof children, clients * fanout),
                      units_format_count(limit, sizeof limit, MOST_CHILDREN));
}

/* As a default for all entries a key must be of use to one of them. */
static void check_window_defaults(struct checker *checker)
{
    const struct sweep_map *top = checker->sweep->top;
    struct sweep_entry as_top = {.mark = top->mark};
    for (size_t key = 0; key < SWEEP_CELL_KEYS; key++)
        as_top.keys[key] = &top->keys[key];
    for (size_t i = 0; i < sizeof window_keys / sizeof *window_keys; i++)
        if (top->keys[window_keys[i].key].given && !(checker->used >> window_keys[i].key & 1) &&
            !top->flawed && !is_harmless(&as_top, window_keys[i].key))
            sweep_mistake(checker->mistakes, top->keys[window_keys[i].key].mark,
                          "'%s' is of no use without %s", sweep_top_type.keys[window_keys[i].key].name,
                          window_keys[i].needs);
}

/* Cells of an entry before anything is expanded; `ladder` counts as one here, plan_make knows better. */
static int64_t count_cells(const struct sweep_entry *entry)
{
    int64_t cells = 1;
    for (size_t key = 0; key < SWEEP_CELL_KEYS; key++) {
        bool multiplies = key != SWEEP_JOB && sweep_top_type.keys[key].list && entry->keys[key];
        int64_t values = multiplies ? (int64_t)entry->keys[key]->count : 1;
        if (values > 0 && __builtin_mul_overflow(cells, values, &cells))
            return INT64_MAX;
    }
    return cells;
}

static void add_cells(struct checker *checker, const struct sweep_entry *entry)
{
    char count[32];
    char limit[32];
    int64_t before = checker->cells;
    if (__builtin_add_overflow(checker->cells, count_cells(entry), &checker->cells))
        checker->cells = INT64_MAX;
    if (before <= SWEEP_MAX_CELLS && checker->cells > SWEEP_MAX_CELLS)
        sweep_mistake(checker->mistakes, entry->mark, "%s cells up to here: at most %s",
                      units_format_count(count, sizeof count, checker->cells),
                      units_format_count(limit, sizeof limit, SWEEP_MAX_CELLS));
}

/* ---- from maps to entries ---- */

static void check_needs(struct checker *checker, const struct sweep_map *map, const struct sweep_entry *entry)
{
    for (size_t i = 0; i < SWEEP_CELL_KEYS; i++) {
        const struct sweep_key *key = &sweep_top_type.keys[i];
        if ((key->needed_by & entry->job_bit) && !entry->keys[i] && !map->flawed &&
            !checker->sweep->top->flawed)
            sweep_mistake(checker->mistakes, entry->mark, "no '%s': job '%.40s' needs one", key->name,
                          entry->job);
    }
}

static struct sweep_entry make_entry(const struct sweep *sweep, const struct sweep_map *map,
                                     const struct sweep_value *kind)
{
    struct sweep_entry entry = {.mark = map->mark, .job = kind->text};
    entry.job_bit = kind->word ? kind->word->job : SWEEP_JOB_OWN;
    for (size_t i = 0; i < SWEEP_CELL_KEYS; i++) {
        const struct sweep_values *own = map == sweep->top || map->keys[i].given ? &map->keys[i] : NULL;
        const struct sweep_values *values = own ? own : &sweep->top->keys[i];
        if ((values->count > 0 || values->given) && (sweep_top_type.keys[i].jobs & entry.job_bit))
            entry.keys[i] = values;
    }
    return entry;
}

static void add_entry(struct checker *checker, const struct sweep_map *map, const struct sweep_value *kind)
{
    struct sweep *sweep = checker->sweep;
    struct sweep_entry entry = make_entry(sweep, map, kind);
    checker->jobs_seen |= entry.job_bit;
    check_needs(checker, map, &entry);
    if (entry.job_bit == SWEEP_JOB_OWN && !checker->any_job)
        check_own_job(checker, &entry, kind);
    check_runtimes(checker, &entry);
    check_failures(checker, &entry);
    check_effort(checker, &entry, map);
    check_windows(checker, &entry, map);
    add_cells(checker, &entry);
    size_t count = sweep->entry_count;
    if ((count & (count - 1)) == 0) /* room doubles at every power of two */
        sweep->entries = memory_resized(sweep->entries, count ? 2 * count : 1, sizeof entry);
    sweep->entries[sweep->entry_count++] = entry;
}

/* Keys that stand in `map` and fit none of its jobs. */
static void check_fit(struct checker *checker, const struct sweep_map *map, unsigned jobs, const char *whose)
{
    for (size_t i = 0; i < SWEEP_CELL_KEYS; i++)
        if (map->keys[i].given && jobs != 0 && !(sweep_top_type.keys[i].jobs & jobs))
            sweep_mistake(checker->mistakes, map->keys[i].mark, "'%s' does not fit %s",
                          sweep_top_type.keys[i].name, whose);
}

static const char *name_of_jobs(const struct sweep_values *jobs, char *buf, size_t size)
{
    const char *first = sweep_get(jobs->at[0].map, SWEEP_JOB_KIND)->text;
    if (jobs->count > 1)
        return "any job of its entry";
    (void)snprintf(buf, size, "job '%.40s'", first);
    return buf;
}

static void add_entries(struct checker *checker, const struct sweep_map *map)
{
    const struct sweep_map *top = checker->sweep->top;
    const struct sweep_values *jobs =
        map->keys[SWEEP_JOB].given ? &map->keys[SWEEP_JOB] : &top->keys[SWEEP_JOB];
    char whose[64];
    unsigned bits = 0;
    if (!jobs->given && !map->flawed && !top->flawed)
        sweep_mistake(checker->mistakes, map->mark, "no 'job' (%s)", "noop, sleep or cpu");
    for (size_t i = 0; i < jobs->count; i++) {
        add_entry(checker, map, sweep_get(jobs->at[i].map, SWEEP_JOB_KIND));
        bits |= checker->sweep->entries[checker->sweep->entry_count - 1].job_bit;
    }
    if (jobs->count > 0 && map != top)
        check_fit(checker, map, bits, name_of_jobs(jobs, whose, sizeof whose));
}

/* One label means one runtime in the whole sweep. */
static void check_labels(struct checker *checker)
{
    const struct sweep_key *key = &sweep_top_type.keys[SWEEP_RUNTIMES];
    const struct sweep_value *known[SWEEP_MAX_RUNTIMES];
    size_t count = 0;
    for (size_t i = 0; i < checker->sweep->entry_count; i++) {
        struct sweep_values runtimes = values_of(&checker->sweep->entries[i], SWEEP_RUNTIMES);
        for (size_t j = 0; j < runtimes.count; j++) {
            const struct sweep_value *runtime = &runtimes.at[j];
            size_t k = 0;
            while (k < count && strcmp(runtime_label(known[k]), runtime_label(runtime)) != 0)
                k++;
            if (k == count && count < SWEEP_MAX_RUNTIMES)
                known[count++] = runtime;
            if (k == count || known[k] == runtime)
                continue;
            scoped_free char *first = sweep_value_text(key, known[k]);
            scoped_free char *second = sweep_value_text(key, runtime);
            if (strcmp(first, second) != 0)
                sweep_mistake(checker->mistakes, runtime->mark,
                              "two different runtimes are called '%s': give one a label",
                              runtime_label(runtime));
        }
    }
}

/* As a default for all entries it must be of use to one of them. */
static void check_precision(struct checker *checker)
{
    const struct sweep_values *precision = &checker->sweep->top->keys[SWEEP_PRECISION];
    if (precision->given && !checker->goes_on && !checker->sweep->top->flawed)
        sweep_mistake(checker->mistakes, precision->mark, "'precision' is of no use without rounds: auto");
}

int sweep_check(struct sweep *sweep, bool any_job, struct sweep_mistakes *mistakes)
{
    size_t before = mistakes->count;
    struct checker checker = {.sweep = sweep, .mistakes = mistakes, .any_job = any_job};
    const struct sweep_values *matrix = &sweep->top->keys[SWEEP_MATRIX];
    if (!matrix->given)
        add_entries(&checker, sweep->top);
    for (size_t i = 0; i < matrix->count; i++)
        add_entries(&checker, matrix->at[i].map);
    if (!matrix->given || matrix->count > 0)
        check_fit(&checker, sweep->top, checker.jobs_seen, "any job of the sweep");
    check_labels(&checker);
    check_precision(&checker);
    check_window_defaults(&checker);
    return mistakes->count > before ? -1 : 0;
}
