#include "coordinator/store/store_internal.h"

#include "base/clock.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* docs/schema.md explains every table and column. */
static const char schema_sql[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE workers("
    "  number INTEGER PRIMARY KEY, instance TEXT, runtime TEXT NOT NULL, label TEXT NOT NULL, host TEXT NOT "
    "NULL,"
    "  boot_id TEXT, pid INTEGER, slot INTEGER, cpu INTEGER, package INTEGER, numa INTEGER, core INTEGER,"
    "  l3 INTEGER, versions TEXT NOT NULL, arms TEXT NOT NULL, jobs TEXT NOT NULL, wall_clock_cost_ps "
    "INTEGER,"
    "  cpu_clock_cost_ps INTEGER, timer_overshoot_p50_ns INTEGER, timer_overshoot_max_ns INTEGER,"
    "  spin_gap_max_ns INTEGER, busy_heartbeats INTEGER NOT NULL);"
    "CREATE TABLE groups("
    "  number INTEGER PRIMARY KEY, title TEXT NOT NULL, cores INTEGER NOT NULL, blocks INTEGER NOT NULL,"
    "  processes INTEGER NOT NULL, precision REAL, seed TEXT NOT NULL, expected_ns INTEGER,"
    "  state TEXT NOT NULL DEFAULT 'planned' CHECK (state IN ('planned', 'partial', 'done', 'failed',"
    " 'left_out')),"
    "  attempt INTEGER, reason TEXT);"
    "CREATE TABLE attempts("
    "  group_number INTEGER NOT NULL REFERENCES groups(number), attempt INTEGER NOT NULL,"
    "  state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'counts', 'void')), reason TEXT,"
    "  PRIMARY KEY (group_number, attempt)) WITHOUT ROWID;"
    "CREATE TABLE cells("
    "  number INTEGER PRIMARY KEY, group_number INTEGER NOT NULL REFERENCES groups(number),"
    "  id TEXT NOT NULL, runtime TEXT NOT NULL, cores INTEGER NOT NULL, rounds INTEGER NOT NULL,"
    "  processes INTEGER NOT NULL, harness INTEGER NOT NULL, expected_ns INTEGER, arm TEXT NOT NULL,"
    "  job TEXT NOT NULL, fanout INTEGER NOT NULL, delay_ns INTEGER NOT NULL, wait TEXT, clients INTEGER NOT "
    "NULL,"
    "  phase TEXT, rate_per_s REAL NOT NULL, rate_factor REAL, arrivals TEXT, duration_ns INTEGER NOT NULL, "
    "warmup INTEGER NOT NULL,"
    "  timeout_ns INTEGER NOT NULL, calibrated INTEGER NOT NULL, gc TEXT, fail TEXT, stall TEXT, params "
    "TEXT, left_out TEXT);"
    "CREATE INDEX cells_by_group ON cells(group_number);"
    "CREATE TABLE ready("
    "  group_number INTEGER NOT NULL, attempt INTEGER NOT NULL, worker INTEGER NOT NULL REFERENCES "
    "workers(number),"
    "  cell INTEGER NOT NULL REFERENCES cells(number), loops INTEGER, warmups INTEGER, warmup_ns INTEGER,"
    "  calibration_ns INTEGER, flags TEXT NOT NULL, PRIMARY KEY (cell, attempt, worker),"
    "  FOREIGN KEY (group_number, attempt) REFERENCES attempts(group_number, attempt)) WITHOUT ROWID;"
    "CREATE TABLE parts("
    "  group_number INTEGER NOT NULL, attempt INTEGER NOT NULL, worker INTEGER NOT NULL REFERENCES "
    "workers(number),"
    "  go INTEGER NOT NULL, part INTEGER NOT NULL, last INTEGER NOT NULL, error TEXT,"
    "  PRIMARY KEY (group_number, attempt, worker, go, part),"
    "  FOREIGN KEY (group_number, attempt) REFERENCES attempts(group_number, attempt)) WITHOUT ROWID;"
    "CREATE TABLE rounds("
    "  group_number INTEGER NOT NULL, attempt INTEGER NOT NULL, worker INTEGER NOT NULL REFERENCES "
    "workers(number),"
    "  go INTEGER NOT NULL, part INTEGER NOT NULL"
#define X(name) ", " #name " INTEGER"
    WIRE_ROUND_INTEGERS(X)
#undef X
        ", error TEXT, latency BLOB, latency_intended BLOB,"
        "  FOREIGN KEY (cell) REFERENCES cells(number),"
        "  FOREIGN KEY (group_number, attempt) REFERENCES attempts(group_number, attempt));"
        "CREATE UNIQUE INDEX rounds_by_cell ON rounds(cell, attempt, worker, block);"
        "CREATE TABLE events(at_ns INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL);"
        /* the rounds that count */
        "CREATE VIEW counted_rounds AS SELECT rounds.* FROM rounds JOIN groups"
        "  ON groups.number = rounds.group_number AND groups.attempt = rounds.attempt WHERE groups.state "
        "IN ('done', 'partial');";

enum {
    PUT_FACT,
    GET_FACT,
    PUT_GROUP,
    PUT_CELL,
    PUT_WORKER,
    OPEN_ATTEMPT,
    PUT_READY,
    PUT_PART,
    PUT_ROUND,
    VOID_ATTEMPT,
    COUNT_ATTEMPT,
    VOID_OTHERS,
    CLOSE_GROUP,
    PUT_EVENT,
    PUT_RATE,
    LEAVE_OUT_CELL,
    GET_GROUP,
    STATEMENT_COUNT
};
_Static_assert(STATEMENT_COUNT <= STORE_STATEMENTS, "room for every statement");

static const char *const statement_sql[STATEMENT_COUNT] = {
    [PUT_FACT] = "INSERT INTO meta VALUES(?1, ?2) ON CONFLICT(key) DO UPDATE SET value = ?2",
    [GET_FACT] = "SELECT value FROM meta WHERE key = ?1",
    [PUT_GROUP] = "INSERT INTO groups(number, title, cores, blocks, processes, precision, seed, "
                  "expected_ns) VALUES(?, ?, ?, ?, ?, nullif(?, 0), ?, ?)",
    [PUT_CELL] =
        "INSERT INTO cells(number, group_number, id, runtime, cores, rounds, processes, harness,"
        " expected_ns, arm, job, fanout, delay_ns, wait, clients, phase, rate_per_s, rate_factor, arrivals,"
        " duration_ns, warmup, timeout_ns, calibrated, gc, fail, stall, params)"
        " VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, 0), ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [PUT_WORKER] =
        "INSERT OR REPLACE INTO workers VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,"
        " ?, ?, ?)",
    [OPEN_ATTEMPT] = "INSERT OR IGNORE INTO attempts(group_number, attempt) VALUES(?1, ?2)",
    [PUT_READY] = "INSERT OR REPLACE INTO ready VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [PUT_PART] = "INSERT OR IGNORE INTO parts VALUES(?, ?, ?, ?, ?, ?, ?)",
    [PUT_ROUND] = "INSERT INTO rounds SELECT ?, ?, ?, ?, ?"
#define X(name) ", ?"
    WIRE_ROUND_INTEGERS(X)
#undef X
        ", ?, ?, ? WHERE EXISTS (SELECT 1 FROM cells WHERE number = ?6 AND group_number = ?1)",
    [VOID_ATTEMPT] =
        "UPDATE attempts SET state = 'void', reason = ?3 WHERE group_number = ?1 AND attempt = ?2",
    [COUNT_ATTEMPT] = "UPDATE attempts SET state = 'counts' WHERE group_number = ?1 AND attempt = ?2"
                      " AND state <> 'void'",
    [VOID_OTHERS] = "UPDATE attempts SET state = 'void', reason = coalesce(reason, 'another attempt counts')"
                    " WHERE group_number = ?1 AND attempt <> ?2",
    [CLOSE_GROUP] = "UPDATE groups SET state = ?2, attempt = ?3, reason = ?4 WHERE number = ?1",
    [PUT_EVENT] = "INSERT INTO events VALUES(?, ?, ?)",
    [PUT_RATE] = "UPDATE cells SET rate_per_s = ?2 WHERE number = ?1",
    [LEAVE_OUT_CELL] = "UPDATE cells SET left_out = ?2 WHERE number = ?1",
    [GET_GROUP] = "SELECT state, (SELECT count(*) FROM attempts WHERE group_number = ?1) FROM groups"
                  " WHERE number = ?1",
};

/* ---- errors ---- */

static const char *plain_reason(int code)
{
    static const struct {
        int code;
        const char *text;
    } reasons[] = {
        {SQLITE_FULL, "disk full"},
        {SQLITE_READONLY, "it is read-only"},
        {SQLITE_PERM, "permission denied"},
        {SQLITE_CORRUPT, "the file is damaged"},
        {SQLITE_NOTADB, "it is not a database"},
        {SQLITE_BUSY, "another process holds it"},
        {SQLITE_LOCKED, "another process holds it"},
        {SQLITE_CANTOPEN, "it cannot be opened"},
        {SQLITE_NOMEM, "out of memory"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].code == (code & 0xff))
            return reasons[i].text;
    return NULL;
}

int store_sqlite_error(const struct store *store, const char *verb, struct error *err)
{
    int code = sqlite3_extended_errcode(store->db);
    int system = sqlite3_system_errno(store->db);
    /* with a full disk, the shared index of the write-ahead log fails as an input/output error */
    if ((code & 0xff) == SQLITE_IOERR && (system == ENOSPC || system == EDQUOT))
        code = SQLITE_FULL;
    const char *reason = plain_reason(code);
    if (!reason && (code & 0xff) == SQLITE_IOERR && system != 0)
        reason = strerror(system);
    scoped_free char *text = memory_text(reason ? reason : sqlite3_errmsg(store->db));
    for (char *at = text; *at; at++) /* names in a damaged file are any bytes */
        *at = (unsigned char)*at < ' ' || (unsigned char)*at > '~' ? '?' : *at;
    bool users = store->lock_fd < 0 && (code & 0xff) != SQLITE_NOMEM && (code & 0xff) != SQLITE_IOERR;
    return error_set(err, users ? ERROR_USAGE : ERROR_INTERNAL, "cannot %s '%s': %s", verb, store->path,
                     text);
}

/* ---- statements ---- */

/* A prepared statement, ready to bind; NULL with err set. */
static sqlite3_stmt *statement(struct store *store, int which, struct error *err)
{
    sqlite3_stmt **slot = &store->prepared[which];
    if (!*slot && sqlite3_prepare_v3(store->db, statement_sql[which], -1, SQLITE_PREPARE_PERSISTENT, slot,
                                     NULL) != SQLITE_OK) {
        store_sqlite_error(store, "write", err);
        return NULL;
    }
    return *slot;
}

static void bind_integer(sqlite3_stmt *stmt, int *index, int64_t value)
{
    ++*index;
    if (value == WIRE_NULL)
        (void)sqlite3_bind_null(stmt, *index);
    else
        (void)sqlite3_bind_int64(stmt, *index, value);
}

static void bind_text(sqlite3_stmt *stmt, int *index, const char *value)
{
    (void)sqlite3_bind_text(stmt, ++*index, value, -1, SQLITE_TRANSIENT);
}

static void bind_real(sqlite3_stmt *stmt, int *index, double value)
{
    (void)sqlite3_bind_double(stmt, ++*index, value);
}

/* Runs a statement that returns no row, and makes it ready for the next time. */
static int perform(struct store *store, sqlite3_stmt *stmt, struct error *err)
{
    int code = sqlite3_step(stmt);
    int result = code == SQLITE_DONE ? 0 : store_sqlite_error(store, "write", err);
    (void)sqlite3_reset(stmt);
    (void)sqlite3_clear_bindings(stmt);
    return result;
}

static int execute(struct store *store, const char *sql, struct error *err)
{
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : store_sqlite_error(store, "write", err);
}

static int begin(struct store *store, struct error *err)
{
    if (store->lock_fd < 0)
        return error_set(err, ERROR_INTERNAL, "cannot write '%s': it was opened for reading", store->path);
    return execute(store, "BEGIN IMMEDIATE", err);
}

/* Commits when result is 0, else rolls back.  Returns the result of the whole. */
static int finish(struct store *store, int result, struct error *err)
{
    if (result == 0)
        result = execute(store, "COMMIT", err);
    if (result != 0)
        (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return result;
}

/* ---- small JSON texts in columns ---- */

static char *pairs_json(const struct wire_pairs *pairs)
{
    json_t *object = json_object();
    for (size_t i = 0; i < pairs->count; i++)
        (void)json_object_set_new(object, pairs->at[i].name, json_string(pairs->at[i].value));
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text ? text : memory_text("{}");
}

static char *texts_json(const struct wire_texts *texts)
{
    json_t *array = json_array();
    for (size_t i = 0; i < texts->count; i++)
        (void)json_array_append_new(array, json_string(texts->at[i]));
    char *text = json_dumps(array, JSON_COMPACT);
    json_decref(array);
    return text ? text : memory_text("[]");
}

static char *fail_json(const struct wire_fail *fail)
{
    if (!fail->present)
        return NULL;
    json_t *object =
        json_pack("{s:I, s:f, s:I, s:s?, s:s?, s:I}", "children", (json_int_t)fail->children, "fraction",
                  fail->fraction, "at_ns", (json_int_t)fail->at_ns, "outcome", fail->outcome, "on_cancel",
                  fail->on_cancel, "cleanup_ns", (json_int_t)fail->cleanup_ns);
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

static char *stall_json(const struct wire_stall *stall)
{
    return stall->present ? memory_format("{\"children\":%lld,\"cpu_ns\":%lld}", (long long)stall->children,
                                          (long long)stall->cpu_ns)
                          : NULL;
}

/* ---- opening and closing ---- */

static int make_directories(const char *dir, struct error *err)
{
    scoped_free char *path = memory_text(dir);
    for (char *slash = path + 1; *path && (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST)
            return error_set(err, ERROR_USAGE, "cannot make directory '%s': %s", path, strerror(errno));
        *slash = '/';
    }
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return error_set(err, ERROR_USAGE, "cannot make directory '%s': %s", path, strerror(errno));
    return 0;
}

static int expect_empty(const char *dir, struct error *err)
{
    DIR *stream = opendir(dir);
    if (!stream)
        return error_set(err, ERROR_USAGE, "cannot use '%s' for a run: %s", dir, strerror(errno));
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(stream));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = error_set(err, ERROR_USAGE, "'%s' is not empty (it holds '%s'): name another directory",
                               dir, entry->d_name);
    (void)closedir(stream);
    return result;
}

/* Takes DIR/run.lock.  The file goes when its holder is done, so whoever got it must check that it is still
 * there. */
static int take_lock(struct store *store, struct error *err)
{
    for (;;) {
        int fd = open(store->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            return error_set(err, ERROR_USAGE, "cannot write '%s': %s", store->lock_path, strerror(errno));
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            int why = errno;
            (void)close(fd);
            return why == EWOULDBLOCK
                       ? error_set(err, ERROR_USAGE, "'%s' is in use by another corefan", store->dir)
                       : error_set(err, ERROR_USAGE, "cannot lock '%s': %s", store->lock_path, strerror(why));
        }
        struct stat status;
        if (fstat(fd, &status) == 0 && status.st_nlink > 0) {
            store->lock_fd = fd;
            return 0;
        }
        (void)close(fd);
    }
}

static struct store *store_new(const char *dir)
{
    struct store *store = memory_zeroed(1, sizeof *store);
    store->dir = memory_text(dir);
    store->path = memory_format("%s/run.db", dir);
    store->lock_path = memory_format("%s/run.lock", dir);
    store->lock_fd = -1;
    return store;
}

static int connect_database(struct store *store, const char *name, int flags, struct error *err)
{
    (void)sqlite3_close(store->db);
    store->db = NULL;
    if (sqlite3_open_v2(name, &store->db, flags | SQLITE_OPEN_EXRESCODE, NULL) != SQLITE_OK)
        return store_sqlite_error(store, "open", err);
    (void)sqlite3_busy_timeout(store->db, 5000);
    return 0;
}

static int prepare_for_writing(struct store *store, struct error *err)
{
    return execute(store,
                   "PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA journal_mode = WAL;"
                   "PRAGMA wal_autocheckpoint = 1000;",
                   err);
}

static int make_schema(struct store *store, struct error *err)
{
    scoped_free char *version =
        memory_format("PRAGMA user_version = %d; INSERT INTO meta VALUES('schema_version', '%d')",
                      STORE_SCHEMA_VERSION, STORE_SCHEMA_VERSION);
    if (begin(store, err) < 0)
        return -1;
    int result = execute(store, schema_sql, err);
    if (result == 0)
        result = execute(store, version, err);
    return finish(store, result, err);
}

int store_create(const char *dir, struct store **ret, struct error *err)
{
    struct store *store = store_new(dir);
    if (make_directories(dir, err) < 0 || expect_empty(dir, err) < 0 || take_lock(store, err) < 0 ||
        connect_database(store, store->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err) < 0 ||
        prepare_for_writing(store, err) < 0 || make_schema(store, err) < 0) {
        store_close(store);
        return -1;
    }
    *ret = store;
    return 0;
}

/* The schema's version, or -1 with what SQLite says in the connection. */
static int schema_version(struct store *store)
{
    sqlite3_stmt *stmt = NULL;
    int version = -1;
    if (sqlite3_prepare_v2(store->db, "SELECT value FROM meta WHERE key = 'schema_version'", -1, &stmt,
                           NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW)
        version = sqlite3_column_int(stmt, 0);
    (void)sqlite3_finalize(stmt);
    return version;
}

/* A name for SQLite that promises that nobody writes: the one way to read a log-mode file on read-only media.
 */
static char *immutable_name(const char *path)
{
    char *name = memory_zeroed(strlen(path) * 3 + 32, 1);
    size_t used = (size_t)sprintf(name, "file:");
    for (const char *at = path; *at; at++) {
        if (strchr("?#%", *at))
            used += (size_t)sprintf(name + used, "%%%02x", (unsigned)(unsigned char)*at);
        else
            name[used++] = *at;
    }
    (void)sprintf(name + used, "?immutable=1");
    return name;
}

/* Whether the table has it in this database. */
static bool has_column(struct store *store, const char *table, const char *column)
{
    sqlite3_stmt *stmt = NULL;
    bool found = false;
    if (sqlite3_prepare_v2(store->db, "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2", -1, &stmt,
                           NULL) == SQLITE_OK) {
        (void)sqlite3_bind_text(stmt, 1, table, -1, SQLITE_STATIC);
        (void)sqlite3_bind_text(stmt, 2, column, -1, SQLITE_STATIC);
        found = sqlite3_step(stmt) == SQLITE_ROW;
    }
    (void)sqlite3_finalize(stmt);
    return found;
}

/* "groups.precision": the first column of this corefan's tables that the file lacks, or NULL.  The version should
 * tell as much, but somebody may have forgotten to raise it.  free() it. */
static char *missing_column(struct store *store)
{
    static const char columns_sql[] =
        "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table'";
    sqlite3 *own = NULL;
    sqlite3_stmt *stmt = NULL;
    char *missing = NULL;
    if (sqlite3_open(":memory:", &own) == SQLITE_OK &&
        sqlite3_exec(own, schema_sql, NULL, NULL, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(own, columns_sql, -1, &stmt, NULL) == SQLITE_OK)
        while (!missing && sqlite3_step(stmt) == SQLITE_ROW) {
            const char *table = (const char *)sqlite3_column_text(stmt, 0),
                       *column = (const char *)sqlite3_column_text(stmt, 1);
            if (!has_column(store, table, column))
                missing = memory_format("%s.%s", table, column);
        }
    (void)sqlite3_finalize(stmt);
    (void)sqlite3_close(own);
    return missing;
}

static int refuse_older(struct store *store, int version, struct error *err)
{
    scoped_free char *missing = missing_column(store);
    if (version == STORE_SCHEMA_VERSION && !missing)
        return 0;
    return error_set(
        err, ERROR_USAGE,
        "cannot read '%s': an older corefan wrote it (schema version %d%s%s, this one reads %d): "
        "report it with that corefan, or run the sweep again; its summary.json can still be "
        "compared",
        store->path, version, missing ? " without " : "", missing ? missing : "", STORE_SCHEMA_VERSION);
}

static int check_schema(struct store *store, struct error *err)
{
    int version = schema_version(store);
    if (version > STORE_SCHEMA_VERSION)
        return error_set(
            err, ERROR_USAGE,
            "cannot read '%s': its schema is version %d, this corefan %s knows up to %d: use a newer "
            "corefan",
            store->path, version, COREFAN_VERSION, STORE_SCHEMA_VERSION);
    if (version > 0)
        return refuse_older(store, version, err);
    int code = sqlite3_errcode(store->db) & 0xff;
    if (code == SQLITE_OK || code == SQLITE_DONE || code == SQLITE_ERROR || code == SQLITE_ROW)
        return error_set(err, ERROR_USAGE, "cannot read '%s': it is not a corefan run", store->path);
    store_sqlite_error(store, "read", err);
    if (err)
        err->kind = ERROR_USAGE;
    return -1;
}

static int open_for_reading(struct store *store, struct error *err)
{
    if (connect_database(store, store->path, SQLITE_OPEN_READONLY, err) < 0)
        return -1;
    if (schema_version(store) < 0) {
        int code = sqlite3_errcode(store->db) & 0xff;
        scoped_free char *log = memory_format("%s-wal", store->path);
        scoped_free char *name = immutable_name(store->path);
        if ((code == SQLITE_CANTOPEN || code == SQLITE_READONLY) && access(log, F_OK) != 0 &&
            connect_database(store, name, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, err) < 0)
            return -1;
    }
    return check_schema(store, err);
}

int store_open(const char *dir, enum store_mode mode, struct store **ret, struct error *err)
{
    struct store *store = store_new(dir);
    int result;
    struct stat about;
    if (access(store->path, R_OK) != 0)
        result = error_set(err, ERROR_USAGE, "cannot read '%s': %s", store->path, strerror(errno));
    else if (stat(store->path, &about) != 0 || !S_ISREG(about.st_mode))
        result = error_set(err, ERROR_USAGE, "cannot read '%s': it is no file", store->path);
    else if (mode == STORE_READ)
        result = open_for_reading(store, err);
    else if ((result = take_lock(store, err)) == 0 &&
             (result = connect_database(store, store->path, SQLITE_OPEN_READWRITE, err)) == 0 &&
             (result = check_schema(store, err)) == 0)
        result = prepare_for_writing(store, err);
    if (result < 0) {
        store_close(store);
        return -1;
    }
    *ret = store;
    return 0;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    for (size_t i = 0; i < STORE_STATEMENTS; i++)
        (void)sqlite3_finalize(store->prepared[i]);
    if (store->db && store->lock_fd >= 0) {
        /* one file, readable from read-only media; stays in log mode while others look at it */
        (void)sqlite3_busy_timeout(store->db, 0);
        (void)sqlite3_exec(store->db, "PRAGMA journal_mode = DELETE", NULL, NULL, NULL);
    }
    (void)sqlite3_close(store->db);
    if (store->lock_fd >= 0) {
        (void)unlink(store->lock_path);
        (void)close(store->lock_fd);
    }
    free(store->dir);
    free(store->path);
    free(store->lock_path);
    free(store);
}

/* ---- facts and events ---- */

/* Within a transaction or alone. */
static int put_fact(struct store *store, const char *key, const char *value, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, PUT_FACT, err);
    if (!stmt)
        return -1;
    int index = 0;
    bind_text(stmt, &index, key);
    bind_text(stmt, &index, value);
    return perform(store, stmt, err);
}

int store_put_fact(struct store *store, const char *key, const char *value, struct error *err)
{
    if (begin(store, err) < 0)
        return -1;
    return finish(store, put_fact(store, key, value, err), err);
}

int store_get_fact(struct store *store, const char *key, char **ret, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, GET_FACT, err);
    if (!stmt)
        return -1;
    int index = 0, result = 0;
    bind_text(stmt, &index, key);
    int code = sqlite3_step(stmt);
    if (code == SQLITE_ROW)
        *ret = memory_text((const char *)sqlite3_column_text(stmt, 0));
    else if (code == SQLITE_DONE)
        *ret = NULL;
    else
        result = store_sqlite_error(store, "read", err);
    (void)sqlite3_reset(stmt);
    return result;
}

int store_put_event(struct store *store, const char *kind, const char *text, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, PUT_EVENT, err);
    if (!stmt || begin(store, err) < 0)
        return -1;
    int index = 0;
    bind_integer(stmt, &index, clock_realtime_ns());
    bind_text(stmt, &index, kind);
    bind_text(stmt, &index, text);
    return finish(store, perform(store, stmt, err), err);
}

/* ---- the plan ---- */

static int put_group(struct store *store, const struct plan_group *group, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, PUT_GROUP, err);
    if (!stmt)
        return -1;
    scoped_free char *seed = memory_format("%llu", (unsigned long long)group->seed);
    int index = 0;
    bind_integer(stmt, &index, group->number);
    bind_text(stmt, &index, group->title);
    bind_integer(stmt, &index, group->cores);
    bind_integer(stmt, &index, group->blocks);
    bind_integer(stmt, &index, group->processes);
    bind_real(stmt, &index, group->precision);
    bind_text(stmt, &index, seed);
    bind_integer(stmt, &index, group->expected_ns);
    return perform(store, stmt, err);
}

static int put_cell(struct store *store, int64_t number, const struct plan_cell *cell, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, PUT_CELL, err);
    if (!stmt)
        return -1;
    const struct wire_cell *spec = &cell->spec;
    scoped_free char *fail = fail_json(&spec->fail);
    scoped_free char *stall = stall_json(&spec->stall);
    scoped_free char *params = pairs_json(&spec->params);
    int index = 0;
    bind_integer(stmt, &index, number);
    bind_integer(stmt, &index, cell->group);
    bind_text(stmt, &index, cell->id);
    bind_text(stmt, &index, cell->runtime);
    bind_integer(stmt, &index, cell->cores);
    bind_integer(stmt, &index, cell->rounds);
    bind_integer(stmt, &index, cell->processes);
    bind_integer(stmt, &index, cell->harness);
    bind_integer(stmt, &index, cell->expected_ns);
    bind_text(stmt, &index, spec->arm);
    bind_text(stmt, &index, spec->job);
    bind_integer(stmt, &index, spec->fanout);
    bind_integer(stmt, &index, spec->delay_ns);
    bind_text(stmt, &index, spec->wait);
    bind_integer(stmt, &index, spec->clients);
    bind_text(stmt, &index, spec->phase);
    bind_real(stmt, &index, spec->rate_per_s);
    bind_real(stmt, &index, cell->rate_factor);
    bind_text(stmt, &index, spec->arrivals);
    bind_integer(stmt, &index, spec->duration_ns);
    bind_integer(stmt, &index, spec->warmup);
    bind_integer(stmt, &index, spec->timeout_ns);
    bind_integer(stmt, &index, spec->calibrated);
    bind_text(stmt, &index, spec->gc);
    bind_text(stmt, &index, fail);
    bind_text(stmt, &index, stall);
    bind_text(stmt, &index, params);
    return perform(store, stmt, err);
}

static int put_plan_facts(struct store *store, const struct plan *plan, struct error *err)
{
    const struct {
        const char *key;
        char *value;
    } facts[] = {
        {"name", memory_text(plan->name ? plan->name : "")},
        {"seed", memory_format("%llu", (unsigned long long)plan->seed)},
        {"sweep_sha256", memory_text(plan->sweep_sha256)},
        {"all_cores", memory_format("%lld", (long long)plan->all_cores)},
        {"expected_ns", memory_format("%lld", (long long)plan->expected_ns)},
    };
    int result = 0;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        if (result == 0)
            result = put_fact(store, facts[i].key, facts[i].value, err);
        free(facts[i].value);
    }
    return result;
}

int store_put_plan(struct store *store, const struct plan *plan, struct error *err)
{
    if (begin(store, err) < 0)
        return -1;
    int result = put_plan_facts(store, plan, err);
    for (int64_t i = 0; result == 0 && i < plan->group_count; i++)
        result = put_group(store, &plan->groups[i], err);
    for (int64_t i = 0; result == 0 && i < plan->cell_count; i++)
        result = put_cell(store, i, &plan->cells[i], err);
    return finish(store, result, err);
}

/* ---- workers ---- */

int store_put_worker(struct store *store, int64_t worker, const struct wire_hello *hello, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, PUT_WORKER, err);
    if (!stmt || begin(store, err) < 0)
        return -1;
    scoped_free char *versions = pairs_json(&hello->versions);
    scoped_free char *arms = texts_json(&hello->arms);
    scoped_free char *jobs = texts_json(&hello->jobs);
    const int64_t places[] = {hello->pid,  hello->slot, hello->cpu, hello->package,
                              hello->numa, hello->core, hello->l3};
    const int64_t noise[] = {hello->wall_clock_cost_ps, hello->cpu_clock_cost_ps,
                             hello->timer_overshoot_p50_ns, hello->timer_overshoot_max_ns,
                             hello->spin_gap_max_ns};
    int index = 0;
    bind_integer(stmt, &index, worker);
    bind_text(stmt, &index, hello->instance);
    bind_text(stmt, &index, hello->runtime);
    bind_text(stmt, &index, hello->label);
    bind_text(stmt, &index, hello->host);
    bind_text(stmt, &index, hello->boot_id);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        bind_integer(stmt, &index, places[i]);
    bind_text(stmt, &index, versions);
    bind_text(stmt, &index, arms);
    bind_text(stmt, &index, jobs);
    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++)
        bind_integer(stmt, &index, noise[i]);
    bind_integer(stmt, &index, hello->busy_heartbeats);
    return finish(store, perform(store, stmt, err), err);
}

/* ---- attempts ---- */

static int on_attempt(struct store *store, int which, int64_t group, int64_t attempt, const char *reason,
                      struct error *err)
{
    sqlite3_stmt *stmt = statement(store, which, err);
    if (!stmt)
        return -1;
    int index = 0;
    bind_integer(stmt, &index, group);
    bind_integer(stmt, &index, attempt);
    if (reason)
        bind_text(stmt, &index, reason);
    return perform(store, stmt, err);
}

/* An attempt of a group that is not in the plan is refused: data from outside, not a fault of the file. */
static int refuse_constraint(struct store *store, int result, const char *what, struct error *err)
{
    if (result < 0 && (sqlite3_errcode(store->db) & 0xff) == SQLITE_CONSTRAINT)
        return error_set(err, ERROR_USAGE, "%s contradicts the plan: %s", what, sqlite3_errmsg(store->db));
    return result;
}

int store_put_ready(struct store *store, int64_t worker, const struct wire_ready *ready, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, PUT_READY, err);
    if (!stmt || begin(store, err) < 0)
        return -1;
    int result = on_attempt(store, OPEN_ATTEMPT, ready->group, ready->attempt, NULL, err);
    for (size_t i = 0; result == 0 && i < ready->cell_count; i++) {
        const struct wire_prepared *cell = &ready->cells[i];
        scoped_free char *flags = texts_json(&cell->flags);
        int index = 0;
        bind_integer(stmt, &index, ready->group);
        bind_integer(stmt, &index, ready->attempt);
        bind_integer(stmt, &index, worker);
        bind_integer(stmt, &index, cell->cell);
        bind_integer(stmt, &index, cell->loops);
        bind_integer(stmt, &index, cell->warmups);
        bind_integer(stmt, &index, cell->warmup_ns);
        bind_integer(stmt, &index, cell->calibration_ns);
        bind_text(stmt, &index, flags);
        result = perform(store, stmt, err);
    }
    result = refuse_constraint(store, result, "ready", err);
    return finish(store, result, err);
}

/* ---- results ---- */

/* int64 each, in the byte order of SQLite's own files (big-endian): significant digits, lowest, highest,
 * overflow, then pairs of bucket and count. */
static void bind_histogram(sqlite3_stmt *stmt, int *index, const struct wire_histogram *histogram)
{
    ++*index;
    if (!histogram->present)
        return;
    size_t count = 4 + histogram->pair_count * 2;
    unsigned char *bytes = memory_zeroed(count, 8);
    const int64_t head[] = {histogram->significant_digits, histogram->lowest_ns, histogram->highest_ns,
                            histogram->overflow};
    for (size_t i = 0; i < count; i++) {
        uint64_t value = (uint64_t)(i < 4 ? head[i] : histogram->counts[i - 4]);
        for (size_t byte = 0; byte < 8; byte++)
            bytes[i * 8 + byte] = (unsigned char)(value >> (56 - 8 * byte));
    }
    (void)sqlite3_bind_blob64(stmt, *index, bytes, count * 8, free);
}

static int put_round(struct store *store, int64_t worker, const struct wire_result *result,
                     const struct wire_round *round, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, PUT_ROUND, err);
    if (!stmt)
        return -1;
    int index = 0;
    bind_integer(stmt, &index, result->group);
    bind_integer(stmt, &index, result->attempt);
    bind_integer(stmt, &index, worker);
    bind_integer(stmt, &index, result->go);
    bind_integer(stmt, &index, result->part);
#define X(name) bind_integer(stmt, &index, round->name);
    WIRE_ROUND_INTEGERS(X)
#undef X
    bind_text(stmt, &index, round->error);
    bind_histogram(stmt, &index, &round->latency);
    bind_histogram(stmt, &index, &round->latency_intended);
    if (perform(store, stmt, err) < 0)
        return -1;
    if (sqlite3_changes(store->db) == 0)
        return error_set(err, ERROR_USAGE, "a round names cell %lld, which is not of group %lld",
                         (long long)round->cell, (long long)result->group);
    return 0;
}

/* 1 when the part is new, 0 when it was there, -1. */
static int put_part(struct store *store, int64_t worker, const struct wire_result *result, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, PUT_PART, err);
    if (!stmt)
        return -1;
    int index = 0;
    bind_integer(stmt, &index, result->group);
    bind_integer(stmt, &index, result->attempt);
    bind_integer(stmt, &index, worker);
    bind_integer(stmt, &index, result->go);
    bind_integer(stmt, &index, result->part);
    bind_integer(stmt, &index, result->last);
    bind_text(stmt, &index, result->error);
    return perform(store, stmt, err) < 0 ? -1 : sqlite3_changes(store->db) > 0;
}

int store_put_result(struct store *store, int64_t worker, const struct wire_result *result, bool *ret_new,
                     struct error *err)
{
    if (begin(store, err) < 0)
        return -1;
    int outcome = on_attempt(store, OPEN_ATTEMPT, result->group, result->attempt, NULL, err);
    int fresh = outcome == 0 ? put_part(store, worker, result, err) : -1;
    outcome = fresh < 0 ? -1 : 0;
    for (size_t i = 0; outcome == 0 && fresh && i < result->round_count; i++)
        outcome = put_round(store, worker, result, &result->rounds[i], err);
    outcome = refuse_constraint(store, outcome, "a result", err);
    if (finish(store, outcome, err) < 0)
        return -1;
    *ret_new = fresh > 0;
    return 0;
}

/* ---- the fate of groups ---- */

static int close_group(struct store *store, int64_t group, const char *state, int64_t attempt,
                       const char *reason, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, CLOSE_GROUP, err);
    if (!stmt)
        return -1;
    int index = 0;
    bind_integer(stmt, &index, group);
    bind_text(stmt, &index, state);
    bind_integer(stmt, &index, attempt);
    bind_text(stmt, &index, reason);
    if (perform(store, stmt, err) < 0)
        return -1;
    if (sqlite3_changes(store->db) == 0)
        return error_set(err, ERROR_INTERNAL, "group %lld is not in '%s'", (long long)group, store->path);
    return 0;
}

/* That attempt is the one that counts, and the group is in that state for good. */
static int settle_group(struct store *store, int64_t group, int64_t attempt, const char *state,
                        const char *reason, struct error *err)
{
    if (begin(store, err) < 0)
        return -1;
    int result = on_attempt(store, OPEN_ATTEMPT, group, attempt, NULL, err);
    if (result == 0)
        result = on_attempt(store, COUNT_ATTEMPT, group, attempt, NULL, err);
    if (result == 0 && sqlite3_changes(store->db) == 0)
        result = error_set(err, ERROR_INTERNAL, "attempt %lld of group %lld is void and cannot count",
                           (long long)attempt, (long long)group);
    if (result == 0)
        result = on_attempt(store, VOID_OTHERS, group, attempt, NULL, err);
    if (result == 0)
        result = close_group(store, group, state, attempt, reason, err);
    return finish(store, result, err);
}

int store_finish_group(struct store *store, int64_t group, int64_t attempt, struct error *err)
{
    return settle_group(store, group, attempt, "done", NULL, err);
}

int store_keep_group(struct store *store, int64_t group, int64_t attempt, const char *reason,
                     struct error *err)
{
    return settle_group(store, group, attempt, "partial", reason, err);
}

int store_void_attempt(struct store *store, int64_t group, int64_t attempt, const char *reason,
                       struct error *err)
{
    if (begin(store, err) < 0)
        return -1;
    int result = on_attempt(store, OPEN_ATTEMPT, group, attempt, NULL, err);
    if (result == 0)
        result = on_attempt(store, VOID_ATTEMPT, group, attempt, reason ? reason : "no reason given", err);
    return finish(store, result, err);
}

int store_fail_group(struct store *store, int64_t group, const char *reason, struct error *err)
{
    if (begin(store, err) < 0)
        return -1;
    return finish(store, close_group(store, group, "failed", WIRE_NULL, reason, err), err);
}

int store_leave_out_group(struct store *store, int64_t group, const char *reason, struct error *err)
{
    if (begin(store, err) < 0)
        return -1;
    return finish(store, close_group(store, group, "left_out", WIRE_NULL, reason, err), err);
}

static int update_cell(struct store *store, sqlite3_stmt *stmt, int64_t cell, struct error *err)
{
    int result = perform(store, stmt, err);
    if (result == 0 && sqlite3_changes(store->db) == 0)
        result = error_set(err, ERROR_INTERNAL, "cell %lld is not in '%s'", (long long)cell, store->path);
    return finish(store, result, err);
}

int store_put_rate(struct store *store, int64_t cell, double rate_per_s, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, PUT_RATE, err);
    if (!stmt || begin(store, err) < 0)
        return -1;
    int index = 0;
    bind_integer(stmt, &index, cell);
    bind_real(stmt, &index, rate_per_s);
    return update_cell(store, stmt, cell, err);
}

int store_leave_out_cell(struct store *store, int64_t cell, const char *reason, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, LEAVE_OUT_CELL, err);
    if (!stmt || begin(store, err) < 0)
        return -1;
    int index = 0;
    bind_integer(stmt, &index, cell);
    bind_text(stmt, &index, reason);
    return update_cell(store, stmt, cell, err);
}

int store_get_group(struct store *store, int64_t group, struct store_group_state *ret, struct error *err)
{
    sqlite3_stmt *stmt = statement(store, GET_GROUP, err);
    if (!stmt)
        return -1;
    int index = 0, result = 0;
    bind_integer(stmt, &index, group);
    int code = sqlite3_step(stmt);
    if (code == SQLITE_ROW) {
        const char *state = (const char *)sqlite3_column_text(stmt, 0);
        ret->done = strcmp(state, "done") == 0;
        ret->failed = strcmp(state, "failed") == 0;
        ret->attempts = sqlite3_column_int64(stmt, 1);
    } else if (code == SQLITE_DONE) {
        result = error_set(err, ERROR_INTERNAL, "group %lld is not in '%s'", (long long)group, store->path);
    } else {
        result = store_sqlite_error(store, "read", err);
    }
    (void)sqlite3_reset(stmt);
    return result;
}
