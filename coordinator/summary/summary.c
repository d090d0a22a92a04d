#include "coordinator/summary/summary_internal.h"

#include "base/memory.h"

#include <string.h>

const char *summary_verdict_name(enum summary_verdict verdict)
{
    static const char *const names[] = {
#define X(upper, lower) #lower,
        SUMMARY_VERDICTS(X)
#undef X
    };
    return names[verdict];
}

const char *summary_flag_name(enum summary_flag flag)
{
    static const char *const names[] = {
#define X(upper, lower) #lower,
        SUMMARY_FLAGS(X)
#undef X
    };
    return names[flag];
}

/* ---- facts ---- */

static int load_facts(struct store *store, struct summary *summary, struct error *err)
{
    const struct {
        const char *key;
        char **into;
        const char *otherwise; /* NULL: stays unknown */
    } facts[] = {
        {"run_id", &summary->run_id, ""},
        {"name", &summary->name, ""},
        {"seed", &summary->seed, "0"},
        {"started_at", &summary->started_at, ""},
        {"finished_at", &summary->finished_at, ""},
        {"sweep_sha256", &summary->sweep_sha256, ""},
        {"tool_version", &summary->tool_version, COREFAN_VERSION},
        {"argv", &summary->argv_json, NULL},
        {"environment", &summary->environment_json, NULL},
        {"reserved_cpus", &summary->reserved_cpus, NULL},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        if (store_get_fact(store, facts[i].key, facts[i].into, err) < 0)
            return -1;
        if (!*facts[i].into)
            *facts[i].into = memory_text(facts[i].otherwise);
    }
    return 0;
}

static int load_status(struct store *store, struct summary *summary, struct error *err)
{
    scoped_free char *stored = NULL;
    if (store_get_fact(store, "status", &stored, err) < 0)
        return -1;
    if (stored && strcmp(stored, "interrupted") == 0)
        summary->status = "interrupted";
    else
        summary->status = summary->cells_incomplete ? "incomplete" : "complete";
    return 0;
}

static int load_elapsed(struct store *store, struct summary *summary, struct error *err)
{
    scoped_free char *stored = NULL;
    if (store_get_fact(store, "elapsed_ns", &stored, err) < 0)
        return -1;
    scoped_free char *budget = NULL;
    if (store_get_fact(store, "budget_ns", &budget, err) < 0)
        return -1;
    summary->budget_ns = budget ? figure((double)strtoll(budget, NULL, 10)) : no_figure("no_budget");
    scoped_free char *fill_idle = NULL;
    if (store_get_fact(store, "fill_idle", &fill_idle, err) < 0)
        return -1;
    summary->fill_idle = fill_idle != NULL;
    summary->elapsed_ns = stored ? figure((double)strtoll(stored, NULL, 10)) : no_figure("not_stored");
    return 0;
}

/* ---- workers ---- */

static struct summary_figure known_or(int64_t value, double scale, const char *why)
{
    return value == WIRE_NULL ? no_figure(why) : figure((double)value * scale);
}

static void fill_worker(const struct store_worker *from, struct summary_worker *worker)
{
    const struct wire_hello *hello = &from->hello;
    *worker = (struct summary_worker){.number = from->number,
                                      .runtime = hello->runtime,
                                      .label = hello->label,
                                      .host = hello->host,
                                      .cpu = known_or(hello->cpu, 1, "not_pinned"),
                                      .core = known_or(hello->core, 1, "not_known"),
                                      .package = known_or(hello->package, 1, "not_known"),
                                      .numa = known_or(hello->numa, 1, "not_known"),
                                      .version_count = hello->versions.count};
    worker->wall_clock_cost_ns = known_or(hello->wall_clock_cost_ps, 1e-3, "not_probed");
    worker->cpu_clock_cost_ns = known_or(hello->cpu_clock_cost_ps, 1e-3, "not_probed");
    worker->timer_overshoot_p50_ns = known_or(hello->timer_overshoot_p50_ns, 1, "not_probed");
    worker->timer_overshoot_max_ns = known_or(hello->timer_overshoot_max_ns, 1, "not_probed");
    worker->spin_gap_max_ns = known_or(hello->spin_gap_max_ns, 1, "not_probed");
    worker->version_names = memory_zeroed(worker->version_count + 1, sizeof *worker->version_names);
    worker->version_values = memory_zeroed(worker->version_count + 1, sizeof *worker->version_values);
    for (size_t i = 0; i < worker->version_count; i++) {
        worker->version_names[i] = hello->versions.at[i].name;
        worker->version_values[i] = hello->versions.at[i].value;
    }
}

static int compare_cpus(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool seen_before(const struct store_run *run, size_t index,
                        bool (*same)(const struct wire_hello *, const struct wire_hello *))
{
    for (size_t i = 0; i < index; i++)
        if (same(&run->workers[i].hello, &run->workers[index].hello))
            return true;
    return false;
}

static bool same_host(const struct wire_hello *a, const struct wire_hello *b)
{
    return strcmp(a->host, b->host) == 0;
}

static bool same_cpu(const struct wire_hello *a, const struct wire_hello *b)
{
    return same_host(a, b) && a->cpu == b->cpu && a->cpu != WIRE_NULL;
}

static void fill_workers(const struct store_run *run, struct summary *summary)
{
    summary->worker_count = run->worker_count;
    summary->workers = memory_zeroed(run->worker_count + 1, sizeof *summary->workers);
    summary->measured_cpus = memory_zeroed(run->worker_count + 1, sizeof *summary->measured_cpus);
    for (size_t i = 0; i < run->worker_count; i++) {
        const struct wire_hello *hello = &run->workers[i].hello;
        fill_worker(&run->workers[i], &summary->workers[i]);
        summary->host_count += !seen_before(run, i, same_host);
        if (seen_before(run, i, same_cpu))
            continue; /* a worker that took a lost one's place, or another runtime's on the same core */
        summary->cores_measured++;
        if (hello->cpu != WIRE_NULL && same_host(hello, &run->workers[0].hello))
            summary->measured_cpus[summary->measured_cpu_count++] = hello->cpu;
    }
    qsort(summary->measured_cpus, summary->measured_cpu_count, sizeof *summary->measured_cpus, compare_cpus);
}

/* ---- groups and their cells ---- */

/* The cell of that runtime that runs this arm (`empty` for the harness); NULL when the group has none. */
static const struct cell_rounds *find_arm(const struct cell_rounds *cells, size_t count, const char *runtime,
                                          const char *arm)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(cells[i].plan->runtime, runtime) == 0 && strcmp(cells[i].plan->spec.arm, arm) == 0)
            return &cells[i];
    return NULL;
}

static void note_in_group(const struct summary_cell *cell, struct summary_group *group)
{
    double level = cell->wall_ns.p50.bounded ? cell->wall_ns.p50.ci_level : 0;
    bool incomplete = cell->flags >> SUMMARY_FLAG_INCOMPLETE & 1;
    if (group->cell_count == 0)
        group->ci_level = level;
    else if (level < group->ci_level || level > group->ci_level)
        group->ci_level = 0;
    group->windows = group->windows || cell->is_window;
    group->window_ns = cell->duration_ns;
    group->clients = cell->clients;
    group->rate_per_s = cell->rate_per_s > group->rate_per_s ? cell->rate_per_s : group->rate_per_s;
    group->waits = group->waits || cell->job_waits;
    group->may_fail = group->may_fail || cell->may_fail;
    group->fails = group->fails || cell->fails;
    group->stalls = group->stalls || cell->stalls;
    group->complete = group->complete && !incomplete;
    group->measured = group->measured || cell->rounds + cell->rounds_broken > 0;
}

static void note_in_run(const struct summary_cell *cell, struct summary *summary)
{
    summary->cells_incomplete += cell->flags >> SUMMARY_FLAG_INCOMPLETE & 1;
    summary->rounds += cell->rounds;
    summary->rounds_flagged += cell->rounds_flagged;
    summary->rounds_broken += cell->rounds_broken;
    summary->verdicts[cell->verdict]++;
    for (int flag = 0; flag < SUMMARY_ROUND_FLAGS; flag++)
        summary->flagged_by[flag] += cell->flagged_by[flag];
}

/* What a worker said when it had made this cell ready; NULL when nothing is stored. */
static const struct wire_prepared *find_prepared(const struct store_run *run, int64_t cell, int64_t worker)
{
    size_t lo = 0, hi = run->prepared_count;
    while (lo < hi) { /* by cell, then worker */
        size_t middle = lo + (hi - lo) / 2;
        const struct store_prepared *at = &run->prepared[middle];
        bool before = at->said.cell != cell ? at->said.cell < cell : at->worker < worker;
        lo = before ? middle + 1 : lo;
        hi = before ? hi : middle;
    }
    const struct store_prepared *found = &run->prepared[lo];
    return lo < run->prepared_count && found->said.cell == cell && found->worker == worker ? &found->said
                                                                                           : NULL;
}

static void note_effort(const struct store_run *run, const struct cell_rounds *rounds,
                        struct summary_cell *cell)
{
    const struct round_value *value = rounds->values;
    for (size_t i = 0; i < cell->worker_count; i++) {
        struct summary_cell_worker *worker = &cell->workers[i];
        const struct wire_prepared *said = find_prepared(run, cell->number, worker->worker);
        const int64_t fanouts = value->raw->fanouts;
        bool same = true;
        for (int64_t n = 0; n < worker->n; n++, value++) {
            worker->timed_ns += (double)value->raw->wall_ns;
            same = same && value->raw->fanouts == fanouts;
        }
        worker->fanouts_of_round = same ? figure((double)fanouts) : no_figure("differs");
        worker->warmups = known_or(said ? said->warmups : WIRE_NULL, 1, "not_stored");
        worker->warmup_ns = known_or(said ? said->warmup_ns : WIRE_NULL, 1, "not_stored");
    }
}

static void keep_values(const struct cell_rounds *rounds, struct summary_cell *cell)
{
    cell->values = memory_zeroed(rounds->count, sizeof *cell->values);
    cell->value_count = rounds->count;
    for (size_t i = 0; i < rounds->count; i++) {
        const struct round_value *from = &rounds->values[i];
        cell->values[i] =
            (struct summary_round){from->worker, from->block, from->wall_ns, from->cpu_ns, from->flags == 0};
    }
}

static void add_cell(const struct cell_context *context, struct summary *summary, struct summary_group *group)
{
    size_t index = summary->cell_count++;
    struct summary_cell *cell = &summary->cells[index];
    summary_fill_cell(context, cell);
    summary_judge_cell(context, cell);
    keep_values(context->own, cell);
    note_effort(context->run, context->own, cell);
    note_in_group(cell, group);
    note_in_run(cell, summary);
    group->cells[group->cell_count++] = index;
    if (cell->cores > 1) {
        struct summary_scaling *row = &summary->scaling[summary->scaling_count++];
        row->cell = index;
        summary_fill_gang(context, row);
        summary_fill_spread(context->run, cell, row);
    }
}

/* The cells of one group, next to each other in plan order. */
struct group_cells {
    const struct store_cell **at;
    size_t count;
};

static int load_group(struct store *store, const struct store_run *run, struct group_cells group,
                      struct cell_rounds *cells, size_t *ret_count, struct error *err)
{
    for (*ret_count = 0; *ret_count < group.count; ++*ret_count)
        if (cell_rounds_load(store, run, group.at[*ret_count], &cells[*ret_count], err) < 0)
            return -1;
    return 0;
}

static int fill_group(struct store *store, const struct store_group *from, struct group_cells of,
                      struct summary *summary, struct error *err)
{
    scoped_free struct cell_rounds *cells = memory_zeroed(of.count + 1, sizeof *cells);
    size_t count = 0;
    int result = load_group(store, summary->source, of, cells, &count, err);
    struct summary_group *group = &summary->groups[summary->group_count++];
    *group = (struct summary_group){.number = from->number,
                                    .title = from->title,
                                    .reason = from->reason,
                                    .left_out = from->status == STORE_GROUP_LEFT_OUT,
                                    .complete = true,
                                    .attempts = from->attempts,
                                    .rounds = from->blocks,
                                    .processes = from->processes,
                                    .cells = memory_zeroed(of.count + 1, sizeof *group->cells)};
    for (size_t i = 0; result == 0 && i < count; i++) {
        const char *runtime = cells[i].plan->runtime;
        const struct cell_context context = {.run = summary->source,
                                             .group = from,
                                             .own = &cells[i],
                                             .sequential = find_arm(cells, count, runtime, "sequential"),
                                             .harness = find_arm(cells, count, runtime, "empty"),
                                             .seed = strtoull(summary->seed, NULL, 10)};
        if (!cells[i].plan->harness && !group->left_out)
            add_cell(&context, summary, group);
    }
    if (result == 0)
        summary_fill_precision(summary, from, cells, count);
    for (size_t i = 0; i < count; i++)
        cell_rounds_release(&cells[i]);
    return result;
}

static int compare_places(const void *a, const void *b)
{
    const struct store_cell *x = *(const struct store_cell *const *)a,
                            *y = *(const struct store_cell *const *)b;
    int order = (x->group > y->group) - (x->group < y->group);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

static void note_left_out(const struct store_cell *cell, struct summary *summary)
{
    summary->left_out[summary->left_out_count++] = (struct summary_left_out){.group = (size_t)cell->group,
                                                                             .id = cell->id,
                                                                             .arm = cell->spec.arm,
                                                                             .runtime = cell->runtime,
                                                                             .reason = cell->left_out};
}

static int fill_groups(struct store *store, const struct store_run *run, struct summary *summary,
                       struct error *err)
{
    scoped_free const struct store_cell **order = memory_zeroed(run->cell_count + 1, sizeof *order);
    size_t count = 0;
    summary->left_out = memory_zeroed(run->cell_count + 1, sizeof *summary->left_out);
    for (size_t i = 0; i < run->cell_count; i++)
        if (run->cells[i].left_out)
            note_left_out(&run->cells[i], summary);
        else
            order[count++] = &run->cells[i];
    qsort(order, count, sizeof *order, compare_places);
    summary->groups = memory_zeroed(run->group_count + 1, sizeof *summary->groups);
    summary->cells = memory_zeroed(run->cell_count + 1, sizeof *summary->cells);
    summary->scaling = memory_zeroed(run->cell_count + 1, sizeof *summary->scaling);
    size_t first = 0;
    for (size_t i = 0; i < run->group_count; i++) {
        struct group_cells of = {order + first, 0};
        for (; first < count && order[first]->group == run->groups[i].number; first++)
            of.count++;
        if (fill_group(store, &run->groups[i], of, summary, err) < 0)
            return -1;
    }
    return 0;
}

static void count_runtimes(struct summary *summary)
{
    scoped_free const char **seen = memory_zeroed(summary->cell_count + 1, sizeof *seen);
    for (size_t i = 0; i < summary->cell_count; i++) {
        int64_t at = 0;
        while (at < summary->runtime_count && strcmp(seen[at], summary->cells[i].runtime) != 0)
            at++;
        if (at == summary->runtime_count)
            seen[summary->runtime_count++] = summary->cells[i].runtime;
    }
}

/* ---- the whole ---- */

int summary_build(struct store *store, struct summary **ret, struct error *err)
{
    struct summary *summary = memory_zeroed(1, sizeof *summary);
    if (store_load(store, &summary->source, err) < 0 || load_facts(store, summary, err) < 0 ||
        fill_groups(store, summary->source, summary, err) < 0 || load_status(store, summary, err) < 0 ||
        load_elapsed(store, summary, err) < 0 || summary_judge_thresholds(store, summary, err) < 0) {
        summary_free(summary);
        return -1;
    }
    summary_fill_disturbers(summary);
    fill_workers(summary->source, summary);
    count_runtimes(summary);
    summary_fill_efficiency(summary);
    summary_fill_capacity(summary);
    summary_fill_scalability(summary);
    summary_flag_ceilings(summary);
    summary_find(summary);
    summary_compare_runtimes(summary);
    summary_fill_lab(summary);
    *ret = summary;
    return 0;
}

static void free_facts(struct summary *summary)
{
    char *facts[] = {summary->run_id,       summary->name,        summary->seed,
                     summary->started_at,   summary->finished_at, summary->sweep_sha256,
                     summary->tool_version, summary->argv_json,   summary->environment_json,
                     summary->reserved_cpus};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        free(facts[i]);
}

void summary_free(struct summary *summary)
{
    if (!summary)
        return;
    free_facts(summary);
    summary_free_disturbers(summary);
    for (size_t i = 0; i < summary->worker_count; i++) {
        free(summary->workers[i].version_names);
        free(summary->workers[i].version_values);
    }
    for (size_t i = 0; i < summary->group_count; i++)
        free(summary->groups[i].cells);
    for (size_t i = 0; i < summary->cell_count; i++) {
        free(summary->cells[i].verdict_reason);
        free(summary->cells[i].workers);
        free(summary->cells[i].values);
        free(summary->cells[i].windows);
    }
    for (size_t i = 0; i < summary->condition_count; i++) {
        free(summary->conditions[i].text);
        free(summary->conditions[i].metric);
    }
    for (size_t i = 0; i < summary->lab_verdict_count; i++)
        free(summary->lab_verdicts[i].reason);
    free(summary->lab_verdicts);
    free(summary->lab);
    for (size_t i = 0; i < summary->capacity_count; i++) {
        free(summary->capacity[i].title);
        free(summary->capacity[i].cells);
    }
    free(summary->capacity);
    free(summary->contrasts);
    free(summary->conditions);
    free(summary->thresholds);
    free(summary->precisions);
    free(summary->workers);
    free(summary->groups);
    free(summary->cells);
    free(summary->left_out);
    free(summary->scaling);
    free(summary->scalability);
    free(summary->findings);
    free(summary->measured_cpus);
    store_run_free(summary->source);
    free(summary);
}
