/* Sweep -> plan.  Entries are multiplied out into drafts of groups, in the order of the file; entries that come to
 * the same group share its draft.  Then drafts become groups and cells with their numbers. */
#include "coordinator/plan/plan.h"

#include "base/clock.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/units.h"
#include "coordinator/stats/precision.h"
#include "coordinator/sweep/sweep.h"

#include <string.h>

/* What one round is taken to cost where nothing was measured yet; figures of an idle core of 2020 or so. */
#define CALIBRATED_ROUND_NS (15 * NS_PER_MS) /* calibration ends between 10 and 20 ms */
#define CALIBRATION_ROUNDS  11               /* doubling up (2), then three at L and three at 2 L */
#define OWN_JOB_NS          (10 * NS_PER_MS) /* a coroutine of the user's: a guess */
#define HARNESS_NS          (20 * NS_PER_US)
#define HARNESS_WINDOW_NS   (100 * NS_PER_MS) /* at most: its fan-outs are short */
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
    const char *placement;                             /* of the sweep; NULL: the usual one */
    const struct sweep_value *chosen[SWEEP_CELL_KEYS]; /* NULL: no value; not of clients and cores */
    int64_t cores, clients;
    bool in_ladder, asked_for; /* a rung; some entry names its clients */
    char *key;                 /* id without runtime and arm: "sleep/n=40/delay=10ms/cores=1" */
    struct pick *picks;
    size_t pick_count;
};

struct maker {
    const struct sweep *sweep;
    struct plan *plan;
    struct draft *drafts;
    size_t draft_count;
    struct map by_key; /* draft's key -> 1 + its number */
    struct map
        series; /* series_key of an arm on a runtime, and what finds it for a part of its ceiling -> 1 + its number */
    struct map rungs; /* series_key of a group -> 1 + number of the highest rung so far */
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

static bool has_rate(const struct draft *draft)
{
    return draft->chosen[SWEEP_RATE] != NULL;
}

/* What a window lasts that nobody said anything about; 0: it is none. */
static int64_t implied_window_ns(const struct draft *draft)
{
    return draft->clients > 1 || has_rate(draft) ? SWEEP_WINDOW_NS : 0;
}

static int64_t window_ns(const struct draft *draft)
{
    if (draft->chosen[SWEEP_DURATION])
        return draft->chosen[SWEEP_DURATION]->integer;
    return draft->in_ladder ? SWEEP_WINDOW_NS : implied_window_ns(draft);
}

static char *clients_text(const struct draft *draft)
{
    return draft->clients > 1 ? memory_format("%lld", (long long)draft->clients) : NULL;
}

static char *duration_text(const struct draft *draft)
{
    char duration[32];
    int64_t ns = window_ns(draft);
    return ns != implied_window_ns(draft) ? memory_text(units_exact_duration(duration, sizeof duration, ns))
                                          : NULL;
}

/* Text of a further key where it is not at its default, else NULL. */
static char *further_text(const struct draft *draft, size_t key)
{
    if (key == SWEEP_CLIENTS)
        return clients_text(draft);
    if (key == SWEEP_DURATION)
        return duration_text(draft);
    if (!is_further_key(key) || !draft->chosen[key] || (key == SWEEP_PHASE && draft->clients == 1))
        return NULL;
    char *text = sweep_value_text(cell_key(key), draft->chosen[key]);
    if (!cell_key(key)->fallback || strcmp(text, cell_key(key)->fallback) != 0)
        return text;
    free(text);
    return NULL;
}

#define KEY_BIT(key) (1u << (key))
#define LOAD_KEYS                                                                                            \
    (KEY_BIT(SWEEP_CLIENTS) | KEY_BIT(SWEEP_RATE) | KEY_BIT(SWEEP_ARRIVALS) | KEY_BIT(SWEEP_DURATION))

/* `head`, then the further keys but those to skip, each as separator NAME joint VALUE. */
static char *with_further_keys(const struct draft *draft, char *head, const char *separator,
                               const char *joint, unsigned skip)
{
    for (size_t key = 0; key < SWEEP_CELL_KEYS; key++) {
        scoped_free char *text = skip & KEY_BIT(key) ? NULL : further_text(draft, key);
        if (!text)
            continue;
        scoped_free char *shorter = head;
        head = memory_format("%s%s%s%s%s", shorter, separator, cell_key(key)->name, joint, text);
    }
    return head;
}

/* "sleep/n=40/delay=10ms"; free() it. */
static char *job_key(const struct draft *draft)
{
    char delay[32] = "";
    if (draft->chosen[SWEEP_DELAY])
        (void)units_exact_duration(delay, sizeof delay, draft->chosen[SWEEP_DELAY]->integer);
    return memory_format("%s/n=%lld%s%s", draft->entry->job, (long long)draft->chosen[SWEEP_FANOUT]->integer,
                         delay[0] ? "/delay=" : "", delay);
}

static char *make_key(const struct draft *draft)
{
    scoped_free char *job = job_key(draft);
    char *head = memory_format("%s/cores=%lld", job, (long long)draft->cores);
    char *key = with_further_keys(draft, head, "/", "=", 0);
    if (!draft->placement)
        return key;
    scoped_free char *shorter = key;
    return memory_format("%s/placement=%s", shorter, draft->placement);
}

/* What the rungs of one ladder have in common. */
static char *series_key(const struct draft *draft)
{
    scoped_free char *job = job_key(draft);
    char *head =
        memory_format("%s/cores=%lld/%lld", job, (long long)draft->cores, (long long)window_ns(draft));
    return with_further_keys(draft, head, "/", "=", LOAD_KEYS);
}

/* What a rate that is a part of a ceiling has in common with the ladder that finds it; cores 0: whatever they are. */
static char *ceiling_key(const struct draft *draft, int64_t cores)
{
    scoped_free char *job = job_key(draft);
    char *head = memory_format("%s/at %lld", job, (long long)cores);
    return with_further_keys(draft, head, "/", "=", LOAD_KEYS | KEY_BIT(SWEEP_PHASE));
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
    char *title = with_further_keys(draft, head, ", ", " ", 0);
    for (char *slash; (slash = strstr(title, "%2f"));) { /* "1000%2fs" */
        *slash = '/';
        memmove(slash + 1, slash + 3, strlen(slash + 3) + 1);
    }
    return title;
}

/* ---- multiplying out ---- */

/* A number of the entry that is the same for all its cells. */
static int64_t single(const struct sweep_entry *entry, size_t key)
{
    return entry->keys[key] ? entry->keys[key]->at[0].integer : 0;
}

#define LONGEST_LADDER 64 /* steps: every power of two of an int64_t, and `all` */

static void add_cores(int64_t *list, size_t *count, int64_t cores)
{
    for (size_t i = 0; i < *count; i++)
        if (list[i] == cores)
            return;
    list[(*count)++] = cores;
}

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
        (void)snprintf(text, sizeof text,
                       "'cores' is %lld, but there %s %lld %s per runtime: fewer 'cores', or more workers",
                       (long long)value->integer, all == 1 ? "is" : "are", (long long)all,
                       all == 1 ? "worker" : "workers");
        return refuse_at(maker->err, value->mark, text);
    }
    *ret = list;
    *ret_count = count;
    list = NULL;
    return 0;
}

/* Clients of the entry, each once. */
struct clients {
    int64_t count;
    bool in_ladder, asked_for;
};

static void add_clients(struct clients *list, size_t *count, struct clients more)
{
    size_t i = 0;
    while (i < *count && list[i].count != more.count)
        i++;
    *count += i == *count;
    list[i].count = more.count;
    list[i].in_ladder |= more.in_ladder;
    list[i].asked_for |= more.asked_for;
}

static int by_count(const void *a, const void *b)
{
    const struct clients *x = a, *y = b;
    return (x->count > y->count) - (x->count < y->count);
}

/* *ret_count of them, a ladder from below; free() it. */
static struct clients *resolve_clients(const struct sweep_entry *entry, size_t *ret_count)
{
    const struct sweep_values *values = entry->keys[SWEEP_CLIENTS];
    size_t given = values ? values->count : 0;
    bool has_ladder = false;
    struct clients *list = memory_zeroed((given + 1) * LONGEST_LADDER, sizeof *list);
    *ret_count = 0;
    for (size_t i = 0; i < given; i++) {
        const struct sweep_value *value = &values->at[i];
        has_ladder |= value->word != NULL;
        for (int64_t rung = 1; value->word && rung < value->integer; rung *= 2)
            add_clients(list, ret_count, (struct clients){.count = rung, .in_ladder = true});
        add_clients(list, ret_count,
                    (struct clients){.count = value->integer,
                                     .in_ladder = value->word != NULL,
                                     .asked_for = !value->word});
    }
    if (given == 0)
        add_clients(list, ret_count, (struct clients){.count = 1});
    if (has_ladder)
        qsort(list, *ret_count, sizeof *list, by_count);
    return list;
}

/* The draft with this key: a new one that takes it, or one from before. */
static struct draft *find_draft(struct maker *maker, struct draft *draft)
{
    draft->key = make_key(draft);
    uintptr_t number = (uintptr_t)map_get(&maker->by_key, draft->key, strlen(draft->key));
    if (number > 0) {
        struct draft *before = &maker->drafts[number - 1];
        free(draft->key);
        before->in_ladder |= draft->in_ladder;
        before->asked_for |= draft->asked_for;
        return before;
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
    const char *fallback = cell_key(key)->fallback;
    return values && values->count > 0 ? sweep_value_text(cell_key(key), &values->at[0])
                                       : memory_text(fallback ? fallback : "left out");
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

/* Keys whose values are combined; clients and cores are worked out first, arms and runtimes share a group. */
static bool is_combined(const struct sweep_entry *entry, size_t key)
{
    return key != SWEEP_JOB && key != SWEEP_RUNTIMES && key != SWEEP_ARMS && key != SWEEP_CORES &&
           key != SWEEP_CLIENTS && entry->keys[key];
}

/* Takes a combination, the number'th in the order of the keys, the last one fastest. */
static void choose(struct draft *draft, size_t number, const struct clients *clients, size_t client_count)
{
    for (size_t i = SWEEP_CELL_KEYS; i > 0; i--) {
        size_t key = i - 1;
        const struct sweep_values *values = draft->entry->keys[key];
        if (key == SWEEP_CLIENTS) {
            const struct clients *chosen = &clients[number % client_count];
            draft->clients = chosen->count;
            draft->in_ladder = chosen->in_ladder;
            draft->asked_for = chosen->asked_for;
            number /= client_count;
        } else if (is_combined(draft->entry, key)) {
            draft->chosen[key] = &values->at[number % values->count];
            number /= values->count;
        }
    }
}

static size_t combinations(const struct sweep_entry *entry)
{
    size_t count = 1;
    for (size_t key = 0; key < SWEEP_CELL_KEYS; key++)
        if (is_combined(entry, key))
            count *= entry->keys[key]->count;
    return count;
}

static int draft_entry(struct maker *maker, const struct sweep_entry *entry)
{
    scoped_free int64_t *cores = NULL;
    size_t core_count = 0, client_count;
    if (resolve_cores(maker, entry, &cores, &core_count) != 0)
        return -1;
    scoped_free struct clients *clients = resolve_clients(entry, &client_count);
    size_t count =
        combinations(entry) * client_count * core_count; /* at most 100,000 times ladders: sweep_check */
    for (size_t i = 0; i < count; i++) {
        struct draft wanted = {
            .entry = entry, .placement = maker->sweep->placement, .cores = cores[i % core_count]};
        choose(&wanted, i / core_count, clients, client_count);
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

/* Beside what it counts, a window waits for its first fan-outs and for those that are under way at its end. */
static int64_t window_round_ns(const struct wire_cell *spec, int64_t fanout_ns, int64_t cpu_ns)
{
    int64_t latency_ns = times(spec->clients, cpu_ns);
    latency_ns = latency_ns > fanout_ns ? latency_ns : fanout_ns;
    int64_t ns = plus(spec->duration_ns, times(2, latency_ns));
    return ns < MOST_ROUND_NS ? ns : MOST_ROUND_NS;
}

static int64_t round_ns(const struct wire_cell *spec, unsigned job_bit, const struct plan_runtime *runtime)
{
    bool is_harness = strcmp(spec->arm, "empty") == 0;
    int64_t least = spec->calibrated ? CALIBRATED_ROUND_NS : HARNESS_NS;
    int64_t child_ns = strcmp(runtime->kind, "libuv") == 0 ? CHILD_LIBUV_NS : CHILD_PYTHON_NS;
    if (is_harness)
        return spec->duration_ns > 0 ? spec->duration_ns : least;
    int64_t cpu_ns = times(spec->fanout, child_ns), ns = plus(children_ns(spec, job_bit), cpu_ns);
    if (spec->stall.present)
        ns = plus(ns, times(spec->stall.children, spec->stall.cpu_ns));
    if (spec->timeout_ns > 0 && spec->timeout_ns < ns)
        ns = spec->timeout_ns;
    if (spec->duration_ns > 0)
        return window_round_ns(spec, ns, job_bit == SWEEP_JOB_CPU ? ns : cpu_ns);
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

/* Windows begin with fan-outs that are not counted: one to throw away is enough unless somebody wants more. */
static int64_t warmups(const struct sweep_entry *entry, bool is_window)
{
    if (entry->keys[SWEEP_WARMUP])
        return single(entry, SWEEP_WARMUP);
    return is_window ? 1 : strtoll(cell_key(SWEEP_WARMUP)->fallback, NULL, 10);
}

static struct wire_cell make_spec(const struct draft *draft, const char *arm)
{
    const struct sweep_value *const *chosen = draft->chosen;
    int64_t delay_ns = integer_or(chosen[SWEEP_DELAY], 0), length_ns = window_ns(draft);
    bool is_harness = strcmp(arm, "empty") == 0;
    struct wire_cell spec = {
        .arm = memory_text(arm),
        .job = memory_text(draft->entry->job),
        .fanout = chosen[SWEEP_FANOUT]->integer,
        .delay_ns = delay_ns,
        .wait = chosen[SWEEP_WAIT] ? memory_text(chosen[SWEEP_WAIT]->text)
                                   : memory_text(cell_key(SWEEP_WAIT)->fallback),
        .clients = draft->clients,
        .phase = memory_text(chosen[SWEEP_PHASE] && draft->clients > 1 ? chosen[SWEEP_PHASE]->text
                                                                       : cell_key(SWEEP_PHASE)->fallback),
        .rate_per_s = has_rate(draft) && !chosen[SWEEP_RATE]->is_factor ? chosen[SWEEP_RATE]->number : 0,
        .arrivals = memory_text(chosen[SWEEP_ARRIVALS] ? chosen[SWEEP_ARRIVALS]->text
                                                       : cell_key(SWEEP_ARRIVALS)->fallback),
        .duration_ns = is_harness && length_ns > HARNESS_WINDOW_NS ? HARNESS_WINDOW_NS : length_ns,
        .warmup = warmups(draft->entry, length_ns > 0),
        .timeout_ns = integer_or(chosen[SWEEP_TIMEOUT], 0),
        .calibrated = draft->entry->job_bit == SWEEP_JOB_NOOP && length_ns == 0,
        .gc = text_or_null(chosen[SWEEP_GC]),
    };
    if (!is_harness) { /* the harness runs no children that could fail */
        spec.fail = make_fail(chosen[SWEEP_FAIL], delay_ns);
        spec.stall = make_stall(chosen[SWEEP_STALL]);
    }
    return spec;
}

static void release_spec(struct wire_cell *spec)
{
    char *texts[] = {spec->arrivals, spec->arm, spec->job,          spec->wait,
                     spec->phase,    spec->gc,  spec->fail.outcome, spec->fail.on_cancel};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
}

/* Before the first round.  A window is warm once every client has had a fan-out. */
static int64_t preparing_ns(const struct plan_cell *cell)
{
    const struct wire_cell *spec = &cell->spec;
    if (spec->duration_ns > 0)
        return cell->expected_ns - spec->duration_ns;
    return times(cell->expected_ns, spec->warmup + (spec->calibrated ? CALIBRATION_ROUNDS : 0));
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
        .series = -1,
        .rate_factor =
            has_rate(draft) && draft->chosen[SWEEP_RATE]->is_factor ? draft->chosen[SWEEP_RATE]->number : 0,
    };
    cell.spec.cell = plan->cell_count;
    cell.expected_ns = round_ns(&cell.spec, draft->entry->job_bit, runtime);
    int64_t rounds_ns = times(cell.expected_ns, plan_expected_blocks(group));
    group->expected_ns =
        plus(group->expected_ns, times(plus(rounds_ns, preparing_ns(&cell)), group->processes));
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
        .clients = draft->clients,
        .window_ns = window_ns(draft),
        .previous_rung = -1,
        .is_rung = draft->in_ladder && !draft->asked_for,
        .seed = rng_next(&stream) >> 1, /* the wire carries signed integers */
    };
    set_effort(group, draft->entry);
    for (int64_t runtime = 0; runtime < plan->runtime_count; runtime++)
        add_runtime(plan, group, draft, runtime);
    plan->expected_ns = plus(plan->expected_ns, group->expected_ns);
    plan->group_count++;
}

/* ---- ladders, and rates that are parts of their ceilings ---- */

/* Number that stands under this text, or -1. */
static int64_t find_number(struct map *map, const char *text)
{
    return (int64_t)(uintptr_t)map_get(map, text, strlen(text)) - 1;
}

static void put_number(struct map *map, const char *text, int64_t number)
{
    map_put(map, text, strlen(text), (void *)(uintptr_t)(number + 1)); // NOLINT
}

static char *of_cell(const struct plan_cell *cell, const char *key)
{
    return memory_format("%s/%s/%s", cell->runtime, cell->spec.arm, key);
}

/* The series of a rung's cell: a new one that parts of its ceiling can find, or that of the rungs before. */
static void join_series(struct maker *maker, const struct draft *draft, struct plan_cell *cell)
{
    scoped_free char *key = series_key(draft);
    scoped_free char *name = of_cell(cell, key);
    cell->series = find_number(&maker->series, name);
    if (cell->series >= 0)
        return;
    cell->series = maker->plan->series_count++;
    put_number(&maker->series, name, cell->series);
    for (int64_t cores = draft->cores; cores >= 0; cores = cores > 0 ? 0 : -1) {
        scoped_free char *ceiling = ceiling_key(draft, cores);
        scoped_free char *found_by = of_cell(cell, ceiling);
        if (find_number(&maker->series, found_by) < 0)
            put_number(&maker->series, found_by, cell->series);
    }
}

static int by_clients(const void *a, const void *b)
{
    const struct plan_group *x = *(const struct plan_group *const *)a,
                            *y = *(const struct plan_group *const *)b;
    int order = (x->clients > y->clients) - (x->clients < y->clients);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

/* From the least clients up, each rung knows the one below it; no ladder has two rungs of as many clients. */
static void link_rungs(struct maker *maker)
{
    struct plan *plan = maker->plan;
    scoped_free struct plan_group **order = memory_zeroed((size_t)plan->group_count + 1, sizeof *order);
    size_t count = 0;
    for (int64_t i = 0; i < plan->group_count; i++)
        if (maker->drafts[i].in_ladder)
            order[count++] = &plan->groups[i];
    qsort(order, count, sizeof *order, by_clients);
    for (size_t i = 0; i < count; i++) {
        struct plan_group *group = order[i];
        const struct draft *draft = &maker->drafts[group->number];
        scoped_free char *key = series_key(draft);
        group->previous_rung = find_number(&maker->rungs, key);
        put_number(&maker->rungs, key, group->number);
        for (int64_t j = 0; j < group->cell_count; j++)
            if (!plan->cells[group->cells[j]].harness)
                join_series(maker, draft, &plan->cells[group->cells[j]]);
    }
}

static int find_ceiling(struct maker *maker, const struct draft *draft, struct plan_cell *cell)
{
    char text[320];
    for (int64_t cores = draft->cores; cores >= 0 && cell->series<0; cores = cores> 0 ? 0 : -1) {
        scoped_free char *ceiling = ceiling_key(draft, cores);
        scoped_free char *found_by = of_cell(cell, ceiling);
        cell->series = find_number(&maker->series, found_by);
    }
    if (cell->series >= 0)
        return 0;
    (void)snprintf(
        text, sizeof text,
        "%gx of a ceiling that is not measured here: add 'clients: ladder' for %.40s %.40s with the same "
        "job, fanout and delay",
        cell->rate_factor, cell->runtime, cell->spec.arm);
    return refuse_at(maker->err, draft->chosen[SWEEP_RATE]->mark, text);
}

static int link_ceilings(struct maker *maker)
{
    struct plan *plan = maker->plan;
    for (int64_t i = 0; i < plan->cell_count; i++) {
        struct plan_cell *cell = &plan->cells[i];
        if (cell->rate_factor > 0 && !cell->harness &&
            find_ceiling(maker, &maker->drafts[cell->group], cell) != 0)
            return -1;
    }
    return 0;
}

/* ---- thresholds ---- */

/* A part of a ceiling stays a part: what it came to is another matter. */
static char *rate_said(const struct plan_cell *cell)
{
    bool is_part = cell->rate_factor > 0;
    if (!is_part && !(cell->spec.rate_per_s > 0))
        return NULL;
    const struct sweep_value value = {.number = is_part ? cell->rate_factor : cell->spec.rate_per_s,
                                      .is_factor = is_part};
    return sweep_value_text(&sweep_expect_type.keys[SWEEP_EXPECT_RATE], &value);
}

/* How the cell says what the selector asks for; free() it.  NULL: the cell has nothing to say. */
static char *said_by_cell(const struct plan_cell *cell, size_t selector)
{
    char delay[32], length[32];
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
    case SWEEP_EXPECT_RATE:
        return rate_said(cell);
    case SWEEP_EXPECT_DURATION:
        return memory_text(units_exact_duration(length, sizeof length, cell->spec.duration_ns));
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
    map_release(&maker->series);
    map_release(&maker->rungs);
}

int plan_make(const struct sweep *sweep, int64_t workers_per_runtime, struct plan **ret, struct error *err)
{
    if (workers_per_runtime < 1)
        return error_set(err, ERROR_USAGE, "no workers: a plan needs at least one");
    struct plan *plan = memory_zeroed(1, sizeof *plan);
    struct maker maker = {.sweep = sweep, .plan = plan, .err = err};
    map_init(&maker.by_key, (uint64_t)sweep->seed);
    map_init(&maker.series, (uint64_t)sweep->seed);
    map_init(&maker.rungs, (uint64_t)sweep->seed);
    plan->name = memory_text(sweep->name);
    plan->seed = (uint64_t)sweep->seed;
    plan->all_cores = workers_per_runtime;
    memcpy(plan->sweep_sha256, sweep->sha256, sizeof plan->sweep_sha256);
    int rc = make_drafts(&maker);
    if (rc == 0) {
        make_groups(&maker);
        link_rungs(&maker);
        rc = link_ceilings(&maker) != 0 ? -1 : check_thresholds(&maker);
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
