/* Sweep -> plan.  Entries are multiplied out into drafts of groups, in the order of the file; entries that come to
 * the same group share its draft.  Then drafts become groups and cells with their numbers. */
#include "coordinator/plan.h"

#include "base/clock.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/units.h"
#include "coordinator/precision.h"
#include "coordinator/sweep.h"

#include <string.h>

/* What one round is taken to cost where nothing was measured yet; figures of an idle core of 2020 or so. */
#define CALIBRATED_ROUND_NS (15 * NS_PER_MS) /* calibration ends between 10 and 20 ms */
#define CALIBRATION_ROUNDS  11               /* doubling up (2), then three at L and three at 2 L */
#define OWN_JOB_NS          (10 * NS_PER_MS) /* a coroutine of the user's: a guess */
#define HARNESS_NS          (20 * NS_PER_US)
#define RESTART_NS          (400 * NS_PER_MS) /* a worker ends, another starts and probes its noise */
#define CHILD_LIBUV_NS      200
#define CHILD_PYTHON_NS     15000
#define MOST_ROUND_NS       (INT64_MAX / 4096) /* 26 days: the rounds of a whole block can be added up */

struct pick { /* an arm on a runtime */
    int64_t runtime;
    const char *arm;
};

struct draft {
    const struct sweep_entry *entry;
    const struct sweep_value *chosen[SWEEP_CELL_KEYS]; /* NULL: no value */
    int64_t cores;
    char *key; /* id without runtime and arm: "sleep/n=40/delay=10ms/cores=1" */
    struct pick *picks;
    size_t pick_count;
};

struct maker {
    const struct sweep *sweep;
    struct plan *plan;
    struct draft *drafts;
    size_t draft_count;
    struct map by_key; /* draft's key -> 1 + its number */
    struct error *err;
};

static const struct sweep_key *cell_key(size_t key)
{
    return &sweep_top_type.keys[key];
}

static int refuse_at(struct error *err, struct sweep_mark mark, const char *text)
{
    const char *source = mark.source ? mark.source : "default";
    if (mark.line == 0)
        return error_set(err, ERROR_USAGE, "%s: %s", source, text);
    return error_set(err, ERROR_USAGE, "%s:%zu:%zu: %s", source, mark.line, mark.column, text);
}

/* ---- runtimes ---- */

static char *text_of(const struct sweep_map *map, size_t key)
{
    const struct sweep_value *value = sweep_get(map, key);
    return value ? memory_text(value->text) : NULL;
}

static struct plan_runtime make_runtime(const struct sweep_map *map)
{
    const struct sweep_value *eager = sweep_get(map, SWEEP_RUNTIME_EAGER);
    const struct sweep_value *jobs = sweep_get(map, SWEEP_RUNTIME_JOBS);
    struct plan_runtime runtime = {
        .label = text_of(map, SWEEP_RUNTIME_LABEL),
        .kind = text_of(map, SWEEP_RUNTIME_KIND),
        .python = text_of(map, SWEEP_RUNTIME_PYTHON),
        .eager = eager && eager->integer,
        .path = text_of(map, SWEEP_RUNTIME_PATH),
    };
    if (!runtime.label)
        runtime.label = memory_text(runtime.kind);
    size_t count = jobs ? jobs->pairs.count : 0;
    runtime.jobs.at = memory_zeroed(count, sizeof *runtime.jobs.at);
    for (; runtime.jobs.count < count; runtime.jobs.count++)
        runtime.jobs.at[runtime.jobs.count] =
            (struct wire_pair){.name = memory_text(jobs->pairs.at[runtime.jobs.count].name),
                               .value = memory_text(jobs->pairs.at[runtime.jobs.count].value)};
    return runtime;
}

static void release_runtime(struct plan_runtime *runtime)
{
    for (size_t i = 0; i < runtime->jobs.count; i++) {
        free(runtime->jobs.at[i].name);
        free(runtime->jobs.at[i].value);
    }
    free(runtime->jobs.at);
    free(runtime->label);
    free(runtime->kind);
    free(runtime->python);
    free(runtime->path);
}

/* Number of the runtime in the plan: a new one at its first appearance.  One label is one runtime (sweep_check). */
static int64_t runtime_number(struct plan *plan, const struct sweep_map *map)
{
    const struct sweep_value *label = sweep_get(map, SWEEP_RUNTIME_LABEL);
    const char *name = (label ? label : sweep_get(map, SWEEP_RUNTIME_KIND))->text;
    for (int64_t i = 0; i < plan->runtime_count; i++)
        if (strcmp(plan->runtimes[i].label, name) == 0)
            return i;
    plan->runtimes = memory_resized(plan->runtimes, (size_t)plan->runtime_count + 1, sizeof *plan->runtimes);
    plan->runtimes[plan->runtime_count] = make_runtime(map);
    return plan->runtime_count++;
}

/* ---- names ---- */

static bool is_always_in_id(size_t key)
{
    return key == SWEEP_FANOUT || key == SWEEP_DELAY || key == SWEEP_CORES;
}

/* Runtimes and arms tell cells of a group apart, the job stands in front, fanout, delay and cores come first. */
static bool is_further_key(size_t key)
{
    return cell_key(key)->identity && key != SWEEP_JOB && key != SWEEP_RUNTIMES && key != SWEEP_ARMS &&
           !is_always_in_id(key);
}

/* Text of a further key where it is not at its default, else NULL. */
static char *further_text(const struct draft *draft, size_t key)
{
    if (!is_further_key(key) || !draft->chosen[key])
        return NULL;
    char *text = sweep_value_text(cell_key(key), draft->chosen[key]);
    if (!cell_key(key)->fallback || strcmp(text, cell_key(key)->fallback) != 0)
        return text;
    free(text);
    return NULL;
}

/* `head`, then the further keys, each as separator NAME joint VALUE. */
static char *with_further_keys(const struct draft *draft, char *head, const char *separator,
                               const char *joint)
{
    for (size_t key = 0; key < SWEEP_CELL_KEYS; key++) {
        scoped_free char *text = further_text(draft, key);
        if (!text)
            continue;
        scoped_free char *shorter = head;
        head = memory_format("%s%s%s%s%s", shorter, separator, cell_key(key)->name, joint, text);
    }
    return head;
}

static char *make_key(const struct draft *draft)
{
    char delay[32] = "";
    if (draft->chosen[SWEEP_DELAY])
        (void)units_exact_duration(delay, sizeof delay, draft->chosen[SWEEP_DELAY]->integer);
    char *head = memory_format("%s/n=%lld%s%s/cores=%lld", draft->entry->job,
                               (long long)draft->chosen[SWEEP_FANOUT]->integer, delay[0] ? "/delay=" : "",
                               delay, (long long)draft->cores);
    return with_further_keys(draft, head, "/", "=");
}

static char *make_title(const struct draft *draft)
{
    char delay[32] = "";
    char fanout[32];
    if (draft->chosen[SWEEP_DELAY])
        (void)units_exact_duration(delay, sizeof delay, draft->chosen[SWEEP_DELAY]->integer);
    (void)units_format_count(fanout, sizeof fanout, draft->chosen[SWEEP_FANOUT]->integer);
    char *head = memory_format("%s x %s%s%s, %lld %s", fanout, delay, delay[0] ? " " : "", draft->entry->job,
                               (long long)draft->cores, draft->cores == 1 ? "core" : "cores");
    return with_further_keys(draft, head, ", ", " ");
}

/* ---- multiplying out ---- */

/* A number of the entry that is the same for all its cells. */
static int64_t single(const struct sweep_entry *entry, size_t key)
{
    return entry->keys[key] ? entry->keys[key]->at[0].integer : 0;
}

static void add_cores(int64_t *list, size_t *count, int64_t cores)
{
    for (size_t i = 0; i < *count; i++)
        if (list[i] == cores)
            return;
    list[(*count)++] = cores;
}

#define LONGEST_LADDER 64 /* steps: every power of two of an int64_t, and `all` */

/* Core counts of the entry, each once.  *ret: free() it. */
static int resolve_cores(const struct maker *maker, const struct sweep_entry *entry, int64_t **ret,
                         size_t *ret_count)
{
    const struct sweep_values *values = entry->keys[SWEEP_CORES];
    int64_t all = maker->plan->all_cores;
    size_t count = 0;
    char text[160];
    scoped_free int64_t *list = memory_zeroed(values->count + LONGEST_LADDER, sizeof *list);
    for (size_t i = 0; i < values->count; i++) {
        const struct sweep_value *value = &values->at[i];
        bool is_ladder = value->word && strcmp(value->word->name, "ladder") == 0;
        for (int64_t step = 1; is_ladder && step < all; step *= 2)
            add_cores(list, &count, step);
        add_cores(list, &count, value->word ? all : value->integer);
        if (value->word || value->integer <= all)
            continue;
        (void)snprintf(text, sizeof text, "'cores' is %lld, but there %s %lld %s per runtime",
                       (long long)value->integer, all == 1 ? "is" : "are", (long long)all,
                       all == 1 ? "worker" : "workers");
        return refuse_at(maker->err, value->mark, text);
    }
    *ret = list;
    *ret_count = count;
    list = NULL;
    return 0;
}

/* The draft with this key: a new one that takes it, or one from before. */
static struct draft *find_draft(struct maker *maker, struct draft *draft)
{
    draft->key = make_key(draft);
    uintptr_t number = (uintptr_t)map_get(&maker->by_key, draft->key, strlen(draft->key));
    if (number > 0) {
        free(draft->key);
        return &maker->drafts[number - 1];
    }
    size_t count = maker->draft_count;
    if ((count & (count - 1)) == 0) /* room doubles at every power of two */
        maker->drafts = memory_resized(maker->drafts, count ? 2 * count : 1, sizeof *maker->drafts);
    maker->drafts[maker->draft_count++] = *draft;
    map_put(&maker->by_key, draft->key, strlen(draft->key), (void *)(uintptr_t)maker->draft_count); // NOLINT
    return &maker->drafts[count];
}

static bool has_pick(const struct draft *draft, struct pick pick)
{
    for (size_t i = 0; i < draft->pick_count; i++)
        if (draft->picks[i].runtime == pick.runtime && strcmp(draft->picks[i].arm, pick.arm) == 0)
            return true;
    return false;
}

static int add_picks(struct maker *maker, struct draft *draft, const struct sweep_entry *entry)
{
    const struct sweep_values *runtimes = entry->keys[SWEEP_RUNTIMES];
    const struct sweep_values *arms = entry->keys[SWEEP_ARMS];
    draft->picks =
        memory_resized(draft->picks, draft->pick_count + runtimes->count * arms->count, sizeof *draft->picks);
    for (size_t i = 0; i < runtimes->count * arms->count; i++) {
        struct pick pick = {runtime_number(maker->plan, runtimes->at[i / arms->count].map),
                            arms->at[i % arms->count].text};
        if (has_pick(draft, pick))
            continue;
        draft->picks[draft->pick_count++] = pick;
        if (++maker->plan->reported_count > SWEEP_MAX_CELLS)
            return refuse_at(maker->err, entry->mark, "more than 100,000 cells up to here");
    }
    return 0;
}

/* free() it. */
static char *effort_text(const struct sweep_entry *entry, size_t key)
{
    const struct sweep_values *values = entry->keys[key];
    return values && values->count > 0 ? sweep_value_text(cell_key(key), &values->at[0])
                                       : memory_text("left out");
}

static int check_same_effort(const struct maker *maker, const struct draft *draft,
                             const struct sweep_entry *entry)
{
    static const size_t effort[] = {SWEEP_ROUNDS, SWEEP_PRECISION, SWEEP_WARMUP, SWEEP_PROCESSES};
    char text[512];
    for (size_t i = 0; i < sizeof effort / sizeof effort[0]; i++) {
        scoped_free char *before = effort_text(draft->entry, effort[i]);
        scoped_free char *now = effort_text(entry, effort[i]);
        if (strcmp(before, now) == 0)
            continue;
        (void)snprintf(text, sizeof text, "'%s' is %.32s here and %.32s at line %zu for the same '%.200s'",
                       cell_key(effort[i])->name, now, before, draft->entry->mark.line, draft->key);
        return refuse_at(maker->err, entry->mark, text);
    }
    return 0;
}

/* Takes a combination, the number'th in the order of the keys, the last one fastest. */
static void choose(struct draft *draft, size_t number)
{
    for (size_t i = SWEEP_CELL_KEYS; i > 0; i--) {
        size_t key = i - 1;
        const struct sweep_values *values = draft->entry->keys[key];
        if (key == SWEEP_JOB || key == SWEEP_RUNTIMES || key == SWEEP_ARMS || key == SWEEP_CORES || !values)
            continue;
        draft->chosen[key] = &values->at[number % values->count];
        number /= values->count;
    }
}

static size_t combinations(const struct sweep_entry *entry)
{
    size_t count = 1;
    for (size_t key = 0; key < SWEEP_CELL_KEYS; key++)
        if (key != SWEEP_JOB && key != SWEEP_RUNTIMES && key != SWEEP_ARMS && key != SWEEP_CORES &&
            entry->keys[key])
            count *= entry->keys[key]->count;
    return count;
}

static int draft_entry(struct maker *maker, const struct sweep_entry *entry)
{
    scoped_free int64_t *cores = NULL;
    size_t core_count = 0;
    if (resolve_cores(maker, entry, &cores, &core_count) != 0)
        return -1;
    size_t count = combinations(entry) * core_count; /* at most 100,000 times a ladder: sweep_check */
    for (size_t i = 0; i < count; i++) {
        struct draft wanted = {.entry = entry, .cores = cores[i % core_count]};
        choose(&wanted, i / core_count);
        struct draft *draft = find_draft(maker, &wanted);
        if (check_same_effort(maker, draft, entry) != 0 || add_picks(maker, draft, entry) != 0)
            return -1;
    }
    return 0;
}

/* ---- expected times ---- */

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static int64_t plus(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t children_ns(const struct wire_cell *spec, unsigned job_bit)
{
    bool one_by_one = strcmp(spec->arm, "sequential") == 0;
    switch (job_bit) {
    case SWEEP_JOB_SLEEP:
        return one_by_one ? times(spec->fanout, spec->delay_ns) : spec->delay_ns;
    case SWEEP_JOB_CPU:
        return times(spec->fanout, spec->delay_ns);
    case SWEEP_JOB_NOOP:
        return 0;
    default:
        return one_by_one ? times(spec->fanout, OWN_JOB_NS) : OWN_JOB_NS;
    }
}

static int64_t round_ns(const struct wire_cell *spec, unsigned job_bit, const struct plan_runtime *runtime)
{
    bool is_harness = strcmp(spec->arm, "empty") == 0;
    int64_t least = spec->calibrated ? CALIBRATED_ROUND_NS : HARNESS_NS;
    int64_t child_ns = strcmp(runtime->kind, "libuv") == 0 ? CHILD_LIBUV_NS : CHILD_PYTHON_NS;
    if (is_harness)
        return least;
    int64_t ns = plus(children_ns(spec, job_bit), times(spec->fanout, child_ns));
    if (spec->stall.present)
        ns = plus(ns, times(spec->stall.children, spec->stall.cpu_ns));
    if (spec->timeout_ns > 0 && spec->timeout_ns < ns)
        ns = spec->timeout_ns;
    ns = ns > least ? ns : least;
    return ns < MOST_ROUND_NS ? ns : MOST_ROUND_NS;
}

/* ---- cells and groups ---- */

static int64_t integer_or(const struct sweep_value *value, int64_t otherwise)
{
    return value ? value->integer : otherwise;
}

static char *text_or_null(const struct sweep_value *value)
{
    return value ? memory_text(value->text) : NULL;
}

static struct wire_fail make_fail(const struct sweep_value *value, int64_t delay_ns)
{
    if (!value)
        return (struct wire_fail){0};
    const struct sweep_value *fraction = sweep_get(value->map, SWEEP_FAIL_FRACTION);
    return (struct wire_fail){
        .present = true,
        .children = integer_or(sweep_get(value->map, SWEEP_FAIL_CHILDREN), 0),
        .fraction = fraction ? fraction->number : 0,
        .at_ns = integer_or(sweep_get(value->map, SWEEP_FAIL_AT), delay_ns),
        .outcome = text_or_null(sweep_get(value->map, SWEEP_FAIL_OUTCOME)),
        .on_cancel = text_or_null(sweep_get(value->map, SWEEP_FAIL_ON_CANCEL)),
        .cleanup_ns = integer_or(sweep_get(value->map, SWEEP_FAIL_CLEANUP), 0),
    };
}

static struct wire_stall make_stall(const struct sweep_value *value)
{
    if (!value)
        return (struct wire_stall){0};
    return (struct wire_stall){
        .present = true,
        .children = integer_or(sweep_get(value->map, SWEEP_STALL_CHILDREN), 0),
        .cpu_ns = integer_or(sweep_get(value->map, SWEEP_STALL_CPU), 0),
    };
}

static struct wire_cell make_spec(const struct draft *draft, const char *arm)
{
    const struct sweep_value *const *chosen = draft->chosen;
    int64_t delay_ns = integer_or(chosen[SWEEP_DELAY], 0);
    struct wire_cell spec = {
        .arm = memory_text(arm),
        .job = memory_text(draft->entry->job),
        .fanout = chosen[SWEEP_FANOUT]->integer,
        .delay_ns = delay_ns,
        .wait = chosen[SWEEP_WAIT] ? memory_text(chosen[SWEEP_WAIT]->text)
                                   : memory_text(cell_key(SWEEP_WAIT)->fallback),
        .clients = integer_or(chosen[SWEEP_CLIENTS], 1),
        .phase = text_or_null(chosen[SWEEP_PHASE]),
        .rate_per_s = chosen[SWEEP_RATE] ? chosen[SWEEP_RATE]->number : 0,
        .duration_ns = integer_or(chosen[SWEEP_DURATION], 0),
        .warmup = single(draft->entry, SWEEP_WARMUP),
        .timeout_ns = integer_or(chosen[SWEEP_TIMEOUT], 0),
        .calibrated = draft->entry->job_bit == SWEEP_JOB_NOOP,
        .gc = text_or_null(chosen[SWEEP_GC]),
    };
    if (strcmp(arm, "empty") != 0) { /* the harness runs no children that could fail */
        spec.fail = make_fail(chosen[SWEEP_FAIL], delay_ns);
        spec.stall = make_stall(chosen[SWEEP_STALL]);
    }
    return spec;
}

static void release_spec(struct wire_cell *spec)
{
    char *texts[] = {spec->arm, spec->job,          spec->wait,          spec->phase,
                     spec->gc,  spec->fail.outcome, spec->fail.on_cancel};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
}

static void add_cell(struct plan *plan, struct plan_group *group, const struct draft *draft, struct pick pick)
{
    const struct plan_runtime *runtime = &plan->runtimes[pick.runtime];
    struct plan_cell cell = {
        .spec = make_spec(draft, pick.arm),
        .id = memory_format("%s/%s/%s", runtime->label, pick.arm, draft->key),
        .group = group->number,
        .runtime = memory_text(runtime->label),
        .cores = draft->cores,
        .rounds = group->blocks,
        .processes = group->processes,
        .harness = strcmp(pick.arm, "empty") == 0,
    };
    cell.spec.cell = plan->cell_count;
    cell.expected_ns = round_ns(&cell.spec, draft->entry->job_bit, runtime);
    int64_t rounds =
        plan_expected_blocks(group) + cell.spec.warmup + (cell.spec.calibrated ? CALIBRATION_ROUNDS : 0);
    group->expected_ns = plus(group->expected_ns, times(cell.expected_ns, times(rounds, group->processes)));
    group->cells[group->cell_count++] = plan->cell_count;
    plan->cells[plan->cell_count++] = cell;
}

/* Cells of one runtime in the order of its picks, its harness last. */
static void add_runtime(struct plan *plan, struct plan_group *group, const struct draft *draft,
                        int64_t runtime)
{
    bool runs = false;
    for (size_t i = 0; i < draft->pick_count; i++) {
        if (draft->picks[i].runtime != runtime)
            continue;
        add_cell(plan, group, draft, draft->picks[i]);
        runs = true;
    }
    if (!runs)
        return;
    add_cell(plan, group, draft, (struct pick){runtime, "empty"});
    group->runtimes[group->runtime_count++] = memory_text(plan->runtimes[runtime].label);
}

int64_t plan_expected_blocks(const struct plan_group *group)
{
    bool goes_on = group->precision > 0 && group->blocks > PRECISION_FIRST_BLOCKS;
    return goes_on ? PRECISION_FIRST_BLOCKS : group->blocks;
}

/* rounds, processes and precision; blocks of all processes together stay below SWEEP_MAX_BLOCKS. */
static void set_effort(struct plan_group *group, const struct sweep_entry *entry)
{
    const struct sweep_values *precision = entry->keys[SWEEP_PRECISION];
    group->blocks = single(entry, SWEEP_ROUNDS);
    group->processes = single(entry, SWEEP_PROCESSES);
    if (!entry->keys[SWEEP_ROUNDS]->at[0].word || group->processes < 1)
        return;
    int64_t most = SWEEP_MAX_BLOCKS / group->processes;
    group->blocks = most < PRECISION_MOST_BLOCKS ? most : PRECISION_MOST_BLOCKS;
    group->precision = precision && precision->count > 0 ? precision->at[0].number : PRECISION_DEFAULT;
}

static void add_group(struct maker *maker, const struct draft *draft)
{
    struct plan *plan = maker->plan;
    struct plan_group *group = &plan->groups[plan->group_count];
    struct rng stream = rng_stream(plan->seed, (uint64_t)plan->group_count + 1);
    *group = (struct plan_group){
        .number = plan->group_count,
        .title = make_title(draft),
        .cells = memory_zeroed(draft->pick_count + (size_t)plan->runtime_count, sizeof *group->cells),
        .runtimes = memory_zeroed((size_t)plan->runtime_count, sizeof *group->runtimes),
        .cores = draft->cores,
        .seed = rng_next(&stream) >> 1, /* the wire carries signed integers */
    };
    set_effort(group, draft->entry);
    for (int64_t runtime = 0; runtime < plan->runtime_count; runtime++)
        add_runtime(plan, group, draft, runtime);
    plan->expected_ns = plus(plan->expected_ns, group->expected_ns);
    plan->group_count++;
}

/* ---- thresholds ---- */

/* How the cell says what the selector asks for; free() it.  NULL: the cell has nothing to say. */
static char *said_by_cell(const struct plan_cell *cell, size_t selector)
{
    char delay[32];
    switch (selector) {
    case SWEEP_EXPECT_JOB:
        return memory_text(cell->spec.job);
    case SWEEP_EXPECT_FANOUT:
        return memory_format("%lld", (long long)cell->spec.fanout);
    case SWEEP_EXPECT_DELAY:
        return memory_text(units_exact_duration(delay, sizeof delay, cell->spec.delay_ns));
    case SWEEP_EXPECT_RUNTIME:
        return memory_text(cell->runtime);
    case SWEEP_EXPECT_ARM:
        return memory_text(cell->spec.arm);
    case SWEEP_EXPECT_CLIENTS:
        return memory_format("%lld", (long long)cell->spec.clients);
    case SWEEP_EXPECT_WAIT:
        return memory_text(cell->spec.wait);
    case SWEEP_EXPECT_GC:
        return memory_text(cell->spec.gc);
    case SWEEP_EXPECT_CORES:
        return memory_format("%lld", (long long)cell->cores);
    default:
        return NULL;
    }
}

bool plan_cell_matches(const struct plan *plan, const struct plan_cell *cell,
                       const struct sweep_map *threshold)
{
    for (size_t selector = 0; selector < SWEEP_EXPECT_METRIC; selector++) {
        const struct sweep_values *values = &threshold->keys[selector];
        if (values->count == 0)
            continue;
        scoped_free char *said = said_by_cell(cell, selector);
        scoped_free char *all = memory_format("%lld", (long long)plan->all_cores);
        bool matches = false;
        for (size_t i = 0; said && !matches && i < values->count; i++) {
            scoped_free char *asked = sweep_value_text(&threshold->type->keys[selector], &values->at[i]);
            bool is_all = selector == SWEEP_EXPECT_CORES && values->at[i].word;
            matches = strcmp(said, is_all ? all : asked) == 0;
        }
        if (!matches)
            return false;
    }
    return !cell->harness;
}

static int check_thresholds(const struct maker *maker)
{
    const struct sweep_values *thresholds = maker->sweep->thresholds;
    for (size_t i = 0; i < thresholds->count; i++) {
        int64_t cell = 0;
        while (cell < maker->plan->cell_count &&
               !plan_cell_matches(maker->plan, &maker->plan->cells[cell], thresholds->at[i].map))
            cell++;
        if (cell == maker->plan->cell_count)
            return refuse_at(maker->err, thresholds->at[i].mark, "no cell matches this threshold");
    }
    return 0;
}

/* ---- the whole ---- */

static int make_drafts(struct maker *maker)
{
    for (size_t i = 0; i < maker->sweep->entry_count; i++)
        if (draft_entry(maker, &maker->sweep->entries[i]) != 0)
            return -1;
    return 0;
}

/* Workers are started again for the group with most processes, and serve the others at the same time. */
static int64_t restarts_ns(const struct plan *plan)
{
    int64_t most = 1;
    for (int64_t i = 0; i < plan->group_count; i++)
        most = plan->groups[i].processes > most ? plan->groups[i].processes : most;
    return (most - 1) * RESTART_NS;
}

static void make_groups(struct maker *maker)
{
    struct plan *plan = maker->plan;
    size_t cells = (size_t)plan->reported_count + maker->draft_count * (size_t)plan->runtime_count;
    plan->groups = memory_zeroed(maker->draft_count, sizeof *plan->groups);
    plan->cells = memory_zeroed(cells, sizeof *plan->cells);
    for (size_t i = 0; i < maker->draft_count; i++)
        add_group(maker, &maker->drafts[i]);
    plan->expected_ns = plus(plan->expected_ns, restarts_ns(plan));
}

static void release_drafts(struct maker *maker)
{
    for (size_t i = 0; i < maker->draft_count; i++) {
        free(maker->drafts[i].key);
        free(maker->drafts[i].picks);
    }
    free(maker->drafts);
    map_release(&maker->by_key);
}

int plan_make(const struct sweep *sweep, int64_t workers_per_runtime, struct plan **ret, struct error *err)
{
    if (workers_per_runtime < 1)
        return error_set(err, ERROR_USAGE, "no workers: a plan needs at least one");
    struct plan *plan = memory_zeroed(1, sizeof *plan);
    struct maker maker = {.sweep = sweep, .plan = plan, .err = err};
    map_init(&maker.by_key, (uint64_t)sweep->seed);
    plan->name = memory_text(sweep->name);
    plan->seed = (uint64_t)sweep->seed;
    plan->all_cores = workers_per_runtime;
    memcpy(plan->sweep_sha256, sweep->sha256, sizeof plan->sweep_sha256);
    int rc = make_drafts(&maker);
    if (rc == 0) {
        make_groups(&maker);
        rc = check_thresholds(&maker);
    }
    release_drafts(&maker);
    if (rc == 0)
        *ret = plan;
    else
        plan_free(plan);
    return rc;
}

static void release_group(struct plan_group *group)
{
    for (int64_t i = 0; i < group->runtime_count; i++)
        free(group->runtimes[i]);
    free(group->runtimes);
    free(group->cells);
    free(group->title);
}

void plan_free(struct plan *plan)
{
    if (!plan)
        return;
    for (int64_t i = 0; i < plan->runtime_count; i++)
        release_runtime(&plan->runtimes[i]);
    for (int64_t i = 0; i < plan->group_count; i++)
        release_group(&plan->groups[i]);
    for (int64_t i = 0; i < plan->cell_count; i++) {
        release_spec(&plan->cells[i].spec);
        free(plan->cells[i].id);
        free(plan->cells[i].runtime);
    }
    free(plan->runtimes);
    free(plan->groups);
    free(plan->cells);
    free(plan->name);
    free(plan);
}
