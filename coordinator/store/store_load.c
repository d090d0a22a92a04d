#include "coordinator/store/store_internal.h"

#include "base/memory.h"

#include <jansson.h>
#include <string.h>

/* ---- texts of a loaded run: one chain, freed as a whole ---- */

struct kept {
    struct kept *next;
    max_align_t bytes[];
};

static void *keep(void **chain, size_t size)
{
    struct kept *kept = memory_zeroed(1, sizeof *kept + size);
    kept->next = *chain;
    *chain = kept;
    return kept->bytes;
}

static char *keep_text(void **chain, const char *text)
{
    return text ? memcpy(keep(chain, strlen(text) + 1), text, strlen(text)) : NULL; /* kept bytes are zero */
}

static void release(void *chain)
{
    for (struct kept *at = chain, *next; at; at = next) {
        next = at->next;
        free(at);
    }
}

/* ---- a query whose columns are read from left to right ---- */

struct query {
    struct store *store;
    sqlite3_stmt *stmt;
    int column;
    void **chain;
};

static int query_open(struct query *query, struct store *store, void **chain, const char *sql,
                      struct error *err)
{
    *query = (struct query){.store = store, .chain = chain};
    if (sqlite3_prepare_v2(store->db, sql, -1, &query->stmt, NULL) != SQLITE_OK)
        return store_sqlite_error(store, "read", err);
    return 0;
}

/* 1: a row; 0: no more; -1: err is set. */
static int query_next(struct query *query, struct error *err)
{
    query->column = 0;
    int code = sqlite3_step(query->stmt);
    if (code == SQLITE_ROW)
        return 1;
    return code == SQLITE_DONE ? 0 : store_sqlite_error(query->store, "read", err);
}

static void query_close(struct query *query)
{
    (void)sqlite3_finalize(query->stmt);
}

static int64_t take_integer(struct query *query)
{
    int column = query->column++;
    return sqlite3_column_type(query->stmt, column) == SQLITE_NULL
               ? WIRE_NULL
               : sqlite3_column_int64(query->stmt, column);
}

static double take_real(struct query *query)
{
    return sqlite3_column_double(query->stmt, query->column++);
}

static const char *peek_text(struct query *query)
{
    return (const char *)sqlite3_column_text(query->stmt, query->column++);
}

static char *take_text(struct query *query)
{
    return keep_text(query->chain, peek_text(query));
}

static struct wire_texts take_texts(struct query *query)
{
    const char *text = peek_text(query);
    json_t *array = text ? json_loads(text, 0, NULL) : NULL;
    struct wire_texts texts = {.count = json_array_size(array)};
    texts.at = keep(query->chain, (texts.count + 1) * sizeof *texts.at);
    for (size_t i = 0; i < texts.count; i++)
        texts.at[i] = keep_text(query->chain, json_string_value(json_array_get(array, i)));
    json_decref(array);
    return texts;
}

static struct wire_pairs take_pairs(struct query *query)
{
    const char *text = peek_text(query);
    json_t *object = text ? json_loads(text, 0, NULL) : NULL;
    struct wire_pairs pairs = {0};
    pairs.at = keep(query->chain, (json_object_size(object) + 1) * sizeof *pairs.at);
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at))
        pairs.at[pairs.count++] =
            (struct wire_pair){keep_text(query->chain, json_object_iter_key(at)),
                               keep_text(query->chain, json_string_value(json_object_iter_value(at)))};
    json_decref(object);
    return pairs;
}

static struct wire_fail take_fail(struct query *query)
{
    const char *text = peek_text(query);
    json_t *object = text ? json_loads(text, 0, NULL) : NULL;
    struct wire_fail fail = {.present = object != NULL};
    if (object) {
        fail.children = json_integer_value(json_object_get(object, "children"));
        fail.fraction = json_number_value(json_object_get(object, "fraction"));
        fail.at_ns = json_integer_value(json_object_get(object, "at_ns"));
        fail.outcome = keep_text(query->chain, json_string_value(json_object_get(object, "outcome")));
        fail.on_cancel = keep_text(query->chain, json_string_value(json_object_get(object, "on_cancel")));
        fail.cleanup_ns = json_integer_value(json_object_get(object, "cleanup_ns"));
    }
    json_decref(object);
    return fail;
}

static struct wire_stall take_stall(struct query *query)
{
    const char *text = peek_text(query);
    json_t *object = text ? json_loads(text, 0, NULL) : NULL;
    struct wire_stall stall = {.present = object != NULL,
                               .children = json_integer_value(json_object_get(object, "children")),
                               .cpu_ns = json_integer_value(json_object_get(object, "cpu_ns"))};
    json_decref(object);
    return stall;
}

/* The bytes that bind_histogram in store.c wrote. */
static struct wire_histogram take_histogram(struct query *query)
{
    int column = query->column++;
    size_t count = (size_t)sqlite3_column_bytes(query->stmt, column) / 8;
    const unsigned char *bytes = sqlite3_column_blob(query->stmt, column);
    struct wire_histogram histogram = {0};
    if (!bytes || count < 4)
        return histogram;
    int64_t *values = keep(query->chain, count * sizeof *values);
    for (size_t i = 0; i < count; i++) {
        uint64_t value = 0;
        for (size_t byte = 0; byte < 8; byte++)
            value = value << 8 | bytes[i * 8 + byte];
        values[i] = (int64_t)value;
    }
    return (struct wire_histogram){.present = true,
                                   .significant_digits = values[0],
                                   .lowest_ns = values[1],
                                   .highest_ns = values[2],
                                   .overflow = values[3],
                                   .counts = values + 4,
                                   .pair_count = (count - 4) / 2};
}

/* ---- tables ---- */

static void take_group(struct query *query, void *into)
{
    struct store_group *group = into;
    group->number = take_integer(query);
    group->title = take_text(query);
    const char *state = peek_text(query);
    group->status = strcmp(state, "done") == 0       ? STORE_GROUP_DONE
                    : strcmp(state, "partial") == 0  ? STORE_GROUP_PARTIAL
                    : strcmp(state, "failed") == 0   ? STORE_GROUP_FAILED
                    : strcmp(state, "left_out") == 0 ? STORE_GROUP_LEFT_OUT
                                                     : STORE_GROUP_PLANNED;
    group->attempt = take_integer(query);
    group->attempts = take_integer(query);
    group->reason = take_text(query);
    group->cores = take_integer(query);
    group->blocks = take_integer(query);
    group->processes = take_integer(query);
    group->precision = take_real(query); /* NULL reads as 0 */
    const char *seed = peek_text(query);
    group->seed = seed ? strtoull(seed, NULL, 10) : 0;
}

static void take_cell(struct query *query, void *into)
{
    struct store_cell *cell = into;
    cell->number = take_integer(query);
    cell->group = take_integer(query);
    cell->id = take_text(query);
    cell->runtime = take_text(query);
    cell->cores = take_integer(query);
    cell->rounds = take_integer(query);
    cell->processes = take_integer(query);
    cell->harness = take_integer(query) != 0;
    cell->spec.cell = cell->number;
    cell->spec.arm = take_text(query);
    cell->spec.job = take_text(query);
    cell->spec.fanout = take_integer(query);
    cell->spec.delay_ns = take_integer(query);
    cell->spec.wait = take_text(query);
    cell->spec.clients = take_integer(query);
    cell->spec.phase = take_text(query);
    cell->spec.rate_per_s = take_real(query);
    cell->rate_factor = take_real(query); /* NULL reads as 0 */
    cell->spec.arrivals = take_text(query);
    cell->spec.duration_ns = take_integer(query);
    cell->spec.warmup = take_integer(query);
    cell->spec.timeout_ns = take_integer(query);
    cell->spec.calibrated = take_integer(query) != 0;
    cell->spec.gc = take_text(query);
    cell->spec.fail = take_fail(query);
    cell->spec.stall = take_stall(query);
    cell->spec.params = take_pairs(query);
    cell->left_out = take_text(query);
}

static void take_worker(struct query *query, void *into)
{
    struct store_worker *worker = into;
    struct wire_hello *hello = &worker->hello;
    worker->number = take_integer(query);
    hello->instance = take_text(query);
    hello->runtime = take_text(query);
    hello->label = take_text(query);
    hello->host = take_text(query);
    hello->boot_id = take_text(query);
    hello->pid = take_integer(query);
    hello->slot = take_integer(query);
    hello->cpu = take_integer(query);
    hello->package = take_integer(query);
    hello->numa = take_integer(query);
    hello->core = take_integer(query);
    hello->l3 = take_integer(query);
    hello->versions = take_pairs(query);
    hello->arms = take_texts(query);
    hello->jobs = take_texts(query);
    hello->wall_clock_cost_ps = take_integer(query);
    hello->cpu_clock_cost_ps = take_integer(query);
    hello->timer_overshoot_p50_ns = take_integer(query);
    hello->timer_overshoot_max_ns = take_integer(query);
    hello->spin_gap_max_ns = take_integer(query);
    hello->busy_heartbeats = take_integer(query) != 0;
}

static void take_prepared(struct query *query, void *into)
{
    struct store_prepared *prepared = into;
    prepared->worker = take_integer(query);
    prepared->said.cell = take_integer(query);
    prepared->said.loops = take_integer(query);
    prepared->said.warmups = take_integer(query);
    prepared->said.warmup_ns = take_integer(query);
    prepared->said.calibration_ns = take_integer(query);
    prepared->said.flags = take_texts(query);
}

static void take_round(struct query *query, void *into)
{
    struct store_round *round = into;
    round->worker = take_integer(query);
    round->go = take_integer(query);
#define X(name) round->raw.name = take_integer(query);
    WIRE_ROUND_INTEGERS(X)
#undef X
    round->raw.error = take_text(query);
    round->raw.latency = take_histogram(query);
    round->raw.latency_intended = take_histogram(query);
}

static const char groups_sql[] =
    "SELECT number, title, state, attempt, (SELECT count(*) FROM attempts WHERE group_number = number),"
    " coalesce(reason, (SELECT reason FROM attempts WHERE group_number = number AND state = 'void'"
    " ORDER BY attempt DESC LIMIT 1)), cores, blocks, processes, precision, seed FROM groups ORDER BY number";

static const char cells_sql[] =
    "SELECT number, group_number, id, runtime, cores, rounds, processes, harness, arm, job, fanout, "
    "delay_ns, wait,"
    " clients, phase, rate_per_s, rate_factor, arrivals, duration_ns, warmup, timeout_ns, calibrated, gc, "
    "fail, stall, params, left_out"
    " FROM cells ORDER BY number";

static const char workers_sql[] = "SELECT number, instance, runtime, label, host, boot_id, pid, slot, cpu, "
                                  "package, numa, core, l3, versions, arms,"
                                  " jobs, wall_clock_cost_ps, cpu_clock_cost_ps, timer_overshoot_p50_ns, "
                                  "timer_overshoot_max_ns, spin_gap_max_ns,"
                                  " busy_heartbeats FROM workers ORDER BY number";

static const char prepared_sql[] =
    "SELECT worker, cell, loops, warmups, warmup_ns, calibration_ns, flags FROM ready JOIN groups"
    " ON groups.number = ready.group_number AND groups.attempt = ready.attempt WHERE groups.state IN "
    "('done', 'partial')"
    " ORDER BY cell, worker";

static const char rounds_sql[] = "SELECT worker, go"
#define X(name) ", " #name
    WIRE_ROUND_INTEGERS(X)
#undef X
        ", error, latency, latency_intended FROM counted_rounds WHERE cell = ?1 ORDER BY worker, block";

/* All rows of a query into a grown array of `size` bytes each.  bound: the value of ?1. */
static int load_rows(struct store *store, void **chain, const char *sql, int64_t bound, size_t size,
                     void (*take)(struct query *query, void *into), void **ret, size_t *ret_count,
                     struct error *err)
{
    struct query query;
    if (query_open(&query, store, chain, sql, err) < 0)
        return -1;
    if (sqlite3_bind_parameter_count(query.stmt) > 0)
        (void)sqlite3_bind_int64(query.stmt, 1, bound);
    char *rows = NULL;
    size_t count = 0, room = 0;
    int more;
    while ((more = query_next(&query, err)) > 0) {
        if (count == room) {
            room = room ? room * 2 : 64;
            rows = memory_resized(rows, room, size);
        }
        memset(rows + count * size, 0, size);
        take(&query, rows + count++ * size);
    }
    query_close(&query);
    *ret = rows; /* also on failure: the caller frees it with the rest */
    *ret_count = count;
    return more;
}

int store_load(struct store *store, struct store_run **ret, struct error *err)
{
    struct store_run *run = memory_zeroed(1, sizeof *run);
    void *rows[4] = {NULL};
    const struct {
        const char *sql;
        size_t size;
        void (*take)(struct query *query, void *into);
        size_t *count;
    } tables[] = {
        {groups_sql, sizeof *run->groups, take_group, &run->group_count},
        {cells_sql, sizeof *run->cells, take_cell, &run->cell_count},
        {workers_sql, sizeof *run->workers, take_worker, &run->worker_count},
        {prepared_sql, sizeof *run->prepared, take_prepared, &run->prepared_count},
    };
    int result = 0;
    for (size_t i = 0; result == 0 && i < 4; i++)
        result = load_rows(store, &run->texts, tables[i].sql, 0, tables[i].size, tables[i].take, &rows[i],
                           tables[i].count, err);
    run->groups = rows[0];
    run->cells = rows[1];
    run->workers = rows[2];
    run->prepared = rows[3];
    if (result < 0) {
        store_run_free(run);
        return -1;
    }
    *ret = run;
    return 0;
}

void store_run_free(struct store_run *run)
{
    if (!run)
        return;
    free(run->groups);
    free(run->cells);
    free(run->workers);
    free(run->prepared);
    release(run->texts);
    free(run);
}

int store_load_rounds(struct store *store, int64_t cell, struct store_rounds **ret, struct error *err)
{
    struct store_rounds *rounds = memory_zeroed(1, sizeof *rounds);
    void *rows = NULL;
    int result = load_rows(store, &rounds->texts, rounds_sql, cell, sizeof *rounds->at, take_round, &rows,
                           &rounds->count, err);
    rounds->at = rows;
    if (result < 0) {
        store_rounds_free(rounds);
        return -1;
    }
    *ret = rounds;
    return 0;
}

void store_rounds_free(struct store_rounds *rounds)
{
    if (!rounds)
        return;
    free(rounds->at);
    release(rounds->texts);
    free(rounds);
}
