/* store: what goes in comes out, what must not count does not, and trouble is told in one line. */
#include "coordinator/store/store.h"

#include "base/memory.h"
#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

/* ---- a scratch directory per test ---- */

static int make_scratch(void **state)
{
    char *dir = memory_text("/tmp/corefan-store-XXXXXX");
    *state = dir;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    scoped_free char *command = memory_format("rm -rf '%s'", (char *)*state);
    free(*state);
    return system(command);
}

/* free() it. */
static char *path_in(void **state, const char *name)
{
    return memory_format("%s/%s", (char *)*state, name);
}

/* ---- a plan of two groups with two cells each ---- */

static char libuv[] = "libuv", gather[] = "gather", sleep_job[] = "sleep", timerfd[] = "timerfd";
static char together[] = "together", fail_word[] = "fail", propagate[] = "propagate",
            title[] = "4 x 1ms sleep";
static char name[] = "tested", target[] = "target", address[] = "tcp://[::1]:80";

static struct wire_pair params[] = {{target, address}};

static struct plan_cell cells[4];
static struct plan_group groups[2];

static struct plan plan_of_two_groups(void)
{
    static char ids[4][8] = {"cell 0", "cell 1", "cell 2", "cell 3"};
    for (int64_t i = 0; i < 4; i++)
        cells[i] = (struct plan_cell){.id = ids[i],
                                      .group = i / 2,
                                      .runtime = libuv,
                                      .cores = 1,
                                      .rounds = 5,
                                      .processes = 2,
                                      .harness = i % 2 == 1,
                                      .spec = {.cell = i,
                                               .arm = gather,
                                               .job = sleep_job,
                                               .fanout = 4,
                                               .delay_ns = 1000000,
                                               .wait = timerfd,
                                               .clients = 3,
                                               .phase = together,
                                               .rate_per_s = 0.125,
                                               .duration_ns = 7,
                                               .warmup = 2,
                                               .timeout_ns = 9,
                                               .calibrated = true,
                                               .fail = {.present = i == 0,
                                                        .children = 1,
                                                        .fraction = 0.1,
                                                        .at_ns = 2,
                                                        .outcome = fail_word,
                                                        .on_cancel = propagate,
                                                        .cleanup_ns = 3},
                                               .stall = {.present = i == 0, .children = 2, .cpu_ns = 5},
                                               .params = {params, 1}}};
    for (int64_t i = 0; i < 2; i++)
        groups[i] = (struct plan_group){.number = i,
                                        .title = title,
                                        .cores = 1,
                                        .blocks = 5,
                                        .processes = 2,
                                        .seed = UINT64_MAX - (uint64_t)i};
    return (struct plan){
        .name = name, .seed = 3, .groups = groups, .group_count = 2, .cells = cells, .cell_count = 4};
}

static void put_worker(struct store *store, int64_t number)
{
    struct error err = {0};
    const struct wire_hello hello = {
        .instance = name, .runtime = libuv, .label = libuv, .host = name, .slot = WIRE_NULL, .cpu = 3};
    if (store_put_worker(store, number, &hello, &err) < 0)
        fail_msg("%s", err.text);
}

static struct store *new_store(void **state, const char *dir_name)
{
    struct error err = {0};
    struct store *store = NULL;
    scoped_free char *dir = path_in(state, dir_name);
    const struct plan plan = plan_of_two_groups();
    if (store_create(dir, &store, &err) < 0 || store_put_plan(store, &plan, &err) < 0)
        fail_msg("%s", err.text);
    put_worker(store, 0);
    return store;
}

static struct wire_round round_of(int64_t cell, int64_t block)
{
    struct wire_round round;
    wire_round_init(&round);
    round.cell = cell;
    round.block = block;
    round.start_ns = round.wall_ns = round.cpu_ns = round.fanouts = 1;
    return round;
}

/* One round of a cell as a part of its own. */
static int put_one(struct store *store, int64_t cell, int64_t attempt, int64_t part, bool *ret_new,
                   struct error *err)
{
    struct wire_round round = round_of(cell, part);
    const struct wire_result result = {
        .group = cell / 2, .attempt = attempt, .part = part, .rounds = &round, .round_count = 1};
    return store_put_result(store, 0, &result, ret_new, err);
}

static size_t count_rounds(struct store *store, int64_t cell)
{
    struct store_rounds *rounds;
    struct error err = {0};
    if (store_load_rounds(store, cell, &rounds, &err) < 0)
        fail_msg("%s", err.text);
    size_t count = rounds->count;
    store_rounds_free(rounds);
    return count;
}

/* ---- what goes in comes out ---- */

static void facts_are_kept(void **state)
{
    struct store *store = new_store(state, "run");
    struct error err = {0};
    char *text = NULL;
    assert_int_equal(store_put_fact(store, "status", "running", &err), 0);
    assert_int_equal(store_put_fact(store, "status", "it's \"done\"\n", &err), 0);
    assert_int_equal(store_get_fact(store, "status", &text, &err), 0);
    assert_string_equal(text, "it's \"done\"\n");
    free(text);
    assert_int_equal(store_get_fact(store, "nothing", &text, &err), 0);
    assert_null(text);
    assert_int_equal(store_get_fact(store, "seed", &text, &err), 0);
    assert_string_equal(text, "3");
    free(text);
    assert_int_equal(store_put_event(store, "worker_lost", "worker 0 lost", &err), 0);
    store_close(store);
    store_close(NULL);
}

static void every_raw_value_comes_back(void **state)
{
    struct store *store = new_store(state, "run");
    struct error err = {0};
    struct rng rng = rng_seeded(5);
    char broken[] = "gather had 1 in flight; it's 'broken'";
    int64_t counts[] = {0, 3, 51952, 1};
    struct wire_round in[3];
    for (size_t i = 0; i < 3; i++) {
        wire_round_init(&in[i]);
#define X(field) in[i].field = rng_below(&rng, 4) == 0 ? WIRE_NULL : (int64_t)(rng_next(&rng) >> 1);
        WIRE_ROUND_INTEGERS(X)
#undef X
        in[i].overshoot_min_ns = -7;
        in[i].cell = 0;
        in[i].block = (int64_t)i;
    }
    in[1].error = broken;
    in[2].latency = (struct wire_histogram){true, 3, 1, INT64_C(1000000000000000000), 2, counts, 2};
    in[2].latency_intended = (struct wire_histogram){.present = true, .significant_digits = 2};
    const struct wire_result result = {
        .group = 0, .attempt = 1, .last = true, .rounds = in, .round_count = 3};
    bool fresh = false;
    assert_int_equal(store_put_result(store, 0, &result, &fresh, &err), 0);
    assert_true(fresh);
    assert_int_equal(store_finish_group(store, 0, 1, &err), 0);
    struct store_rounds *out = NULL;
    assert_int_equal(store_load_rounds(store, 0, &out, &err), 0);
    assert_int_equal(out->count, 3);
    for (size_t i = 0; i < 3; i++) {
#define X(field) assert_int_equal(out->at[i].raw.field, in[i].field);
        WIRE_ROUND_INTEGERS(X)
#undef X
    }
    assert_null(out->at[0].raw.error);
    assert_string_equal(out->at[1].raw.error, broken);
    assert_false(out->at[1].raw.latency.present);
    const struct wire_histogram *latency = &out->at[2].raw.latency;
    assert_true(latency->present && latency->pair_count == 2 && latency->overflow == 2);
    assert_memory_equal(latency->counts, counts, sizeof counts);
    assert_true(out->at[2].raw.latency_intended.present);
    assert_int_equal(out->at[2].raw.latency_intended.pair_count, 0);
    store_rounds_free(out);
    store_close(store);
}

static void a_plan_comes_back(void **state)
{
    struct store *store = new_store(state, "run");
    struct error err = {0};
    struct store_run *run = NULL;
    assert_int_equal(store_load(store, &run, &err), 0);
    assert_int_equal(run->group_count, 2);
    assert_int_equal(run->cell_count, 4);
    assert_true(run->groups[1].seed == UINT64_MAX - 1);
    const struct store_cell *cell = &run->cells[0];
    assert_string_equal(cell->id, "cell 0");
    assert_true(cell->spec.rate_per_s > 0.1249 && cell->spec.rate_per_s < 0.1251);
    assert_true(cell->spec.calibrated && cell->spec.fail.present && cell->spec.stall.present);
    assert_string_equal(cell->spec.fail.on_cancel, "propagate");
    assert_int_equal(cell->spec.fail.cleanup_ns, 3);
    assert_int_equal(cell->spec.stall.cpu_ns, 5);
    assert_string_equal(cell->spec.params.at[0].value, address);
    assert_null(cell->spec.gc);
    assert_false(run->cells[1].spec.fail.present);
    assert_true(run->cells[1].harness);
    assert_int_equal(run->workers[0].hello.slot, WIRE_NULL);
    assert_int_equal(run->workers[0].hello.cpu, 3);
    store_run_free(run);
    store_run_free(NULL);
    store_close(store);
}

/* ---- what counts ---- */

static void a_part_counts_once(void **state)
{
    struct store *store = new_store(state, "run");
    struct error err = {0};
    bool fresh = false;
    assert_int_equal(put_one(store, 0, 1, 0, &fresh, &err), 0);
    assert_true(fresh);
    assert_int_equal(put_one(store, 0, 1, 0, &fresh, &err), 0);
    assert_false(fresh);
    assert_int_equal(count_rounds(store, 0), 0);
    assert_int_equal(store_finish_group(store, 0, 1, &err), 0);
    assert_int_equal(count_rounds(store, 0), 1);
    store_close(store);
}

static void only_the_named_attempt_counts(void **state)
{
    struct store *store = new_store(state, "run");
    struct error err = {0};
    struct store_group_state group;
    bool fresh;
    for (int64_t part = 0; part < 3; part++)
        assert_int_equal(put_one(store, 0, 1, part, &fresh, &err), 0);
    assert_int_equal(store_void_attempt(store, 0, 1, "worker 0 lost", &err), 0);
    assert_int_equal(put_one(store, 0, 2, 0, &fresh, &err), 0);
    assert_int_equal(store_get_group(store, 0, &group, &err), 0);
    assert_false(group.done || group.failed);
    assert_int_equal(group.attempts, 2);
    assert_int_equal(store_finish_group(store, 0, 1, &err), -1);
    assert_non_null(strstr(err.text, "void"));
    assert_int_equal(store_finish_group(store, 0, 2, &err), 0);
    assert_int_equal(count_rounds(store, 0), 1);
    assert_int_equal(store_get_group(store, 0, &group, &err), 0);
    assert_true(group.done);
    store_close(store);
}

static void a_failed_group_tells_its_story(void **state)
{
    struct store *store = new_store(state, "run");
    struct error err = {0};
    struct store_group_state group;
    struct store_run *run;
    assert_int_equal(store_void_attempt(store, 1, 1, "worker 0 lost", &err), 0);
    assert_int_equal(store_fail_group(store, 1, "lost three times", &err), 0);
    assert_int_equal(store_get_group(store, 1, &group, &err), 0);
    assert_true(group.failed && !group.done);
    assert_int_equal(store_load(store, &run, &err), 0);
    assert_string_equal(run->groups[1].reason, "lost three times");
    assert_int_equal(run->groups[1].status, STORE_GROUP_FAILED);
    store_run_free(run);
    assert_int_equal(store_get_group(store, 9, &group, &err), -1);
    store_close(store);
}

static void results_that_contradict_the_plan_are_refused(void **state)
{
    struct store *store = new_store(state, "run");
    bool fresh = true;
    const struct {
        int64_t group, cell, block, worker;
    } wrong[] = {{0, 2, 0, 0}, {0, 99, 0, 0}, {7, 0, 0, 0}, {0, 0, 0, 55}, {0, 0, 1, 0}};
    struct error err = {0};
    assert_int_equal(put_one(store, 0, 1, 1, &fresh, &err), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct wire_round rounds[] = {round_of(wrong[i].cell, 40), round_of(wrong[i].cell, wrong[i].block)};
        const struct wire_result result = {
            .group = wrong[i].group, .attempt = 1, .part = 30, .rounds = rounds, .round_count = 2};
        err = (struct error){0};
        assert_int_equal(store_put_result(store, wrong[i].worker, &result, &fresh, &err), -1);
        assert_int_equal(err.kind, ERROR_USAGE);
    }
    assert_int_equal(store_finish_group(store, 0, 1, &err), 0);
    assert_int_equal(count_rounds(store, 0), 1); /* nothing of the refused parts stayed */
    store_close(store);
}

static void ready_is_told_again(void **state)
{
    struct store *store = new_store(state, "run");
    struct error err = {0};
    char flag[] = "warmup_unconverged";
    char *flags[] = {flag};
    struct wire_prepared said = {.cell = 0, .loops = 1 << 20, .warmups = 3, .flags = {flags, 1}};
    const struct wire_ready ready = {.group = 0, .attempt = 4, .cells = &said, .cell_count = 1};
    struct store_run *run;
    assert_int_equal(store_put_ready(store, 0, &ready, &err), 0);
    assert_int_equal(store_put_ready(store, 0, &ready, &err), 0);
    assert_int_equal(store_finish_group(store, 0, 4, &err), 0);
    assert_int_equal(store_load(store, &run, &err), 0);
    assert_int_equal(run->prepared_count, 1);
    assert_int_equal(run->prepared[0].said.loops, 1 << 20);
    assert_string_equal(run->prepared[0].said.flags.at[0], flag);
    store_run_free(run);
    store_close(store);
}

/* A worker that comes again under its number keeps the rounds that point at it. */
static void a_worker_may_register_again(void **state)
{
    struct store *store = new_store(state, "run");
    struct error err = {0};
    bool fresh;
    assert_int_equal(put_one(store, 0, 1, 0, &fresh, &err), 0);
    put_worker(store, 0);
    put_worker(store, 1);
    assert_int_equal(store_finish_group(store, 0, 1, &err), 0);
    assert_int_equal(count_rounds(store, 0), 1);
    store_close(store);
}

/* ---- opening ---- */

static void a_run_is_resumed_after_its_process_died(void **state)
{
    scoped_free char *dir = path_in(state, "deep/er/run");
    struct error err = {0};
    struct store *store = NULL;
    pid_t child = fork();
    if (child == 0) {
        bool fresh;
        store = new_store(state, "deep/er/run");
        _exit(put_one(store, 0, 1, 0, &fresh, NULL) == 0 ? 0 : 1); /* no close: as if killed */
    }
    int status = -1;
    assert_true(waitpid(child, &status, 0) == child && status == 0);
    assert_int_equal(store_open(dir, STORE_RESUME, &store, &err), 0);
    assert_int_equal(store_finish_group(store, 0, 1, &err), 0);
    assert_int_equal(count_rounds(store, 0), 1);
    store_close(store);
    scoped_free char *lock = path_in(state, "deep/er/run/run.lock");
    scoped_free char *log = path_in(state, "deep/er/run/run.db-wal");
    assert_int_equal(access(lock, F_OK), -1);
    assert_int_equal(access(log, F_OK), -1);
}

static void one_writer_many_readers(void **state)
{
    struct store *store = new_store(state, "run"), *second = NULL, *reader = NULL;
    scoped_free char *dir = path_in(state, "run");
    struct error err = {0};
    bool fresh;
    assert_int_equal(store_open(dir, STORE_RESUME, &second, &err), -1);
    assert_non_null(strstr(err.text, "in use by another corefan"));
    assert_int_equal(err.kind, ERROR_USAGE);
    assert_int_equal(store_open(dir, STORE_READ, &reader, &err), 0);
    assert_int_equal(put_one(store, 0, 1, 0, &fresh, &err), 0);
    assert_int_equal(store_finish_group(store, 0, 1, &err), 0);
    assert_int_equal(count_rounds(reader, 0), 1);
    assert_int_equal(store_put_fact(reader, "a", "b", &err), -1);
    assert_non_null(strstr(err.text, "opened for reading"));
    store_close(store);
    store_close(reader);
    assert_int_equal(store_open(dir, STORE_RESUME, &second, &err), 0);
    store_close(second);
}

static void a_directory_in_use_is_refused(void **state)
{
    struct error err = {0};
    struct store *store = NULL;
    scoped_free char *file = path_in(state, "notes.txt");
    FILE *notes = fopen(file, "w");
    assert_non_null(notes);
    (void)fclose(notes);
    assert_int_equal(store_create(*state, &store, &err), -1);
    assert_non_null(strstr(err.text, "is not empty (it holds 'notes.txt')"));
    assert_int_equal(err.kind, ERROR_USAGE);
    assert_int_equal(store_create(file, &store, &err), -1);
    assert_non_null(strstr(err.text, "notes.txt"));
    assert_int_equal(store_create("/proc/corefan/run", &store, &err), -1);
    assert_non_null(strstr(err.text, "/proc/corefan"));
    assert_int_equal(store_create("", &store, &err), -1);
    assert_null(store);
}

static void change(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void a_newer_schema_is_refused_by_name(void **state)
{
    store_close(new_store(state, "run"));
    scoped_free char *dir = path_in(state, "run"), *db = path_in(state, "run/run.db");
    struct store *store = NULL;
    change(db, "UPDATE meta SET value = '99' WHERE key = 'schema_version'");
    for (int mode = STORE_READ; mode <= STORE_RESUME; mode++) {
        struct error err = {0};
        assert_int_equal(store_open(dir, (enum store_mode)mode, &store, &err), -1);
        assert_non_null(strstr(err.text, "schema is version 99"));
        assert_non_null(strstr(err.text, "knows up to 3"));
        assert_int_equal(err.kind, ERROR_USAGE);
    }
    assert_null(store);
}

static void an_older_schema_says_what_to_do(void **state)
{
    static const struct {
        const char *sql, *told;
    } rows[] = {
        {"UPDATE meta SET value = '1' WHERE key = 'schema_version'", "(schema version 1, this one reads 3)"},
        {"DROP VIEW counted_rounds; ALTER TABLE groups DROP COLUMN precision", /* nobody raised the version */
         "(schema version 3 without groups.precision, this one reads 3)"},
        {"DROP TABLE events", "without events.at_ns"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scoped_free char *run = memory_format("old%zu", i);
        scoped_free char *file = memory_format("%s/run.db", run);
        store_close(new_store(state, run));
        scoped_free char *dir = path_in(state, run), *db = path_in(state, file);
        struct store *store = NULL;
        change(db, rows[i].sql);
        for (int mode = STORE_READ; mode <= STORE_RESUME; mode++) {
            struct error err = {0};
            assert_int_equal(store_open(dir, (enum store_mode)mode, &store, &err), -1);
            assert_int_equal(err.kind, ERROR_USAGE);
            assert_non_null(strstr(err.text, "an older corefan wrote it"));
            assert_non_null(strstr(err.text, rows[i].told));
            assert_non_null(strstr(err.text, "or run the sweep again"));
            assert_null(strchr(err.text, '\n'));
        }
        assert_null(store);
    }
}

static void overwrite(const char *path, long from, size_t bytes)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, from, SEEK_SET), 0);
    for (size_t i = 0; i < bytes; i++)
        (void)fputc(0xa5, file);
    assert_int_equal(fclose(file), 0);
}

static void what_is_no_run_is_refused(void **state)
{
    struct error err = {0};
    struct store *store = NULL;
    assert_int_equal(store_open("/nonexistent", STORE_READ, &store, &err), -1);
    assert_string_equal(err.text, "cannot read '/nonexistent/run.db': No such file or directory");
    scoped_free char *dir = path_in(state, "other"), *db = path_in(state, "other/run.db");
    assert_int_equal(mkdir(dir, 0777), 0);
    change(db, "CREATE TABLE notes(text)");
    assert_int_equal(store_open(dir, STORE_READ, &store, &err), -1);
    assert_non_null(strstr(err.text, "it is not a corefan run"));
    overwrite(db, 0, 4096);
    assert_int_equal(store_open(dir, STORE_READ, &store, &err), -1);
    assert_non_null(strstr(err.text, "it is not a database"));
    assert_int_equal(err.kind, ERROR_USAGE);
    assert_null(store);
}

static void damage_is_told(void **state)
{
    struct store *store = new_store(state, "run");
    struct error err = {0};
    bool fresh;
    for (int64_t part = 0; part < 200; part++)
        assert_int_equal(put_one(store, 0, 1, part, &fresh, &err), 0);
    assert_int_equal(store_finish_group(store, 0, 1, &err), 0);
    store_close(store);
    scoped_free char *dir = path_in(state, "run"), *db = path_in(state, "run/run.db");
    struct stat status;
    assert_int_equal(stat(db, &status), 0);
    overwrite(db, 8192, (size_t)status.st_size - 8192);
    struct store_rounds *rounds = NULL;
    struct store_run *run = NULL;
    int result = store_open(dir, STORE_READ, &store, &err);
    if (result == 0) {
        result = store_load(store, &run, &err);
        result = result == 0 ? store_load_rounds(store, 0, &rounds, &err) : result;
        store_run_free(run);
        store_close(store);
    }
    assert_int_equal(result, -1);
    assert_non_null(strstr(err.text, "the file is damaged"));
    assert_non_null(strstr(err.text, db));
    assert_null(rounds);
}

/* ---- trouble with the disk, each in a process of its own ---- */

/* Runs `act` in a child; its message comes back in text.  Its exit status; 77: could not be arranged here. */
static int in_child(int (*act)(const char *dir, struct error *err), const char *dir, char *text, size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct error err = {0};
        int result = act(dir, &err);
        (void)!write(ends[1], err.text, strlen(err.text));
        _exit(result);
    }
    (void)close(ends[1]);
    size_t used = 0;
    for (ssize_t got; (got = read(ends[0], text + used, size - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = '\0';
    (void)close(ends[0]);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Writes until the disk says no.  0 when it did. */
static int fill_up(const char *dir, struct error *err)
{
    struct store *store;
    const struct plan plan = plan_of_two_groups();
    const struct wire_hello hello = {.instance = name, .runtime = libuv, .label = libuv, .host = name};
    if (store_create(dir, &store, err) < 0)
        return 0;
    int result = store_put_plan(store, &plan, err);
    if (result == 0)
        result = store_put_worker(store, 0, &hello, err);
    bool fresh;
    for (int64_t part = 0; result == 0 && part < 100000; part++)
        result = put_one(store, 0, 1, part, &fresh, err);
    store_close(store);
    return result < 0 ? 0 : 1;
}

static int on_a_full_disk(const char *dir, struct error *err)
{
    if (unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return 77;
    (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (mount("none", dir, "tmpfs", 0, "size=512k") < 0)
        return 77;
    scoped_free char *run = memory_format("%s/run", dir);
    return fill_up(run, err);
}

static int on_a_limited_file(const char *dir, struct error *err)
{
    const struct rlimit limit = {300000, 300000};
    scoped_free char *run = memory_format("%s/limited", dir);
    (void)signal(SIGXFSZ, SIG_IGN);
    return setrlimit(RLIMIT_FSIZE, &limit) < 0 ? 77 : fill_up(run, err);
}

static int as_somebody_else(const char *dir, struct error *err)
{
    struct store *store;
    if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
        return 77;
    scoped_free char *run = memory_format("%s/run", dir);
    return store_open(run, STORE_RESUME, &store, err) < 0 ? 0 : 1;
}

static int reads_as_somebody_else(const char *dir, struct error *err)
{
    struct store *store;
    struct store_run *run;
    if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
        return 77;
    scoped_free char *path = memory_format("%s/run", dir);
    if (store_open(path, STORE_READ, &store, err) < 0 || store_load(store, &run, err) < 0)
        return 1;
    return run->cell_count == 4 ? 0 : 1;
}

static void a_full_disk_is_told(void **state)
{
    char text[1200];
    int result = in_child(on_a_full_disk, *state, text, sizeof text);
    if (result == 77)
        skip();
    assert_int_equal(result, 0);
    assert_non_null(strstr(text, "cannot write '"));
    assert_non_null(strstr(text, "/run/run.db': disk full"));
}

static void a_failed_write_is_told(void **state)
{
    char text[1200];
    assert_int_equal(in_child(on_a_limited_file, *state, text, sizeof text), 0);
    assert_non_null(strstr(text, "cannot write '"));
    assert_non_null(strstr(text, "/limited/run.db': disk I/O error"));
}

static void a_directory_of_others_is_read_not_written(void **state)
{
    char text[1200];
    store_close(new_store(state, "run"));
    scoped_free char *dir = path_in(state, "run"), *db = path_in(state, "run/run.db");
    assert_int_equal(chmod(*state, 0755) | chmod(dir, 0555) | chmod(db, 0444), 0);
    int result = in_child(as_somebody_else, *state, text, sizeof text);
    if (result == 77)
        skip();
    assert_int_equal(result, 0);
    assert_non_null(strstr(text, "run.lock': Permission denied"));
    if (in_child(reads_as_somebody_else, *state, text, sizeof text) != 0)
        fail_msg("%s", text);
    assert_int_equal(chmod(dir, 0755), 0);
}

#define STORE_TEST(test) cmocka_unit_test_setup_teardown(test, make_scratch, remove_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(facts_are_kept),
        STORE_TEST(every_raw_value_comes_back),
        STORE_TEST(a_plan_comes_back),
        STORE_TEST(a_part_counts_once),
        STORE_TEST(only_the_named_attempt_counts),
        STORE_TEST(a_failed_group_tells_its_story),
        STORE_TEST(results_that_contradict_the_plan_are_refused),
        STORE_TEST(ready_is_told_again),
        STORE_TEST(a_worker_may_register_again),
        STORE_TEST(a_run_is_resumed_after_its_process_died),
        STORE_TEST(one_writer_many_readers),
        STORE_TEST(a_directory_in_use_is_refused),
        STORE_TEST(a_newer_schema_is_refused_by_name),
        STORE_TEST(an_older_schema_says_what_to_do),
        STORE_TEST(what_is_no_run_is_refused),
        STORE_TEST(damage_is_told),
        STORE_TEST(a_full_disk_is_told),
        STORE_TEST(a_failed_write_is_told),
        STORE_TEST(a_directory_of_others_is_read_not_written),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
