#include "coordinator/run.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "coordinator/events.h"
#include "coordinator/fleet/endpoint.h"
#include "coordinator/fleet/fleet.h"
#include "coordinator/fleet/launch.h"
#include "coordinator/host/environment.h"
#include "coordinator/host/fill.h"
#include "coordinator/host/hostlock.h"
#include "coordinator/host/topology.h"
#include "coordinator/plan/plan.h"
#include "coordinator/report/report.h"
#include "coordinator/resume.h"
#include "coordinator/store/hgrm.h"
#include "coordinator/store/rounds_csv.h"
#include "coordinator/store/store.h"
#include "coordinator/summary/summary.h"
#include "coordinator/sweep/sweep.h"

#include <errno.h>
#include <jansson.h>
#include <sched.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* How long a lost worker that was started by hand is waited for. */
#define REJOIN_NS (10 * NS_PER_S)

/* Everything that a run owns, in the order in which it comes to be; run_release frees it in reverse. */
struct run {
    const struct options_run *options;
    struct sweep *sweep;
    struct topology *topology; /* NULL without local workers */
    struct hostlock lock;
    char *listen;
    struct door_config door; /* zeroed without keys */
    struct plan *plan;
    char *environment;
    char *dir, *id;
    struct resume resume; /* of a run that was begun before; zeroed otherwise */
    struct store *store;
    struct launch *launch;
    struct fill *fill; /* NULL: nobody asked for it */
    struct fleet *fleet;
    struct events *events; /* NULL: nobody wants any */
    struct progress progress;
    int64_t started_ns; /* clock_monotonic_ns */
};

/* -- before anything starts --------------------------------------------------------------------------------- */

/* Every mistake is a line; err->text is empty then.  begun: canonical text of the run that is resumed, or NULL. */
static int read_sweep(const struct options_run *options, const char *begun, struct sweep **ret,
                      struct error *err)
{
    struct sweep_mistakes mistakes = {0};
    struct sweep_settings settings = {.at = (const char *const *)options->settings,
                                      .count = options->setting_count,
                                      .any_job = options->workers == 0};
    bool stored = begun && !options->sweep;
    int status = stored ? sweep_parse("the run's sweep", begun, strlen(begun), settings, ret, &mistakes)
                        : sweep_load(options->sweep, settings, ret, &mistakes);
    if (status < 0) {
        scoped_free char *text = sweep_mistakes_text(&mistakes);
        (void)fprintf(stderr, "%s\n", text);
        error_set(err, ERROR_USAGE, "%s", "");
    }
    sweep_mistakes_release(&mistakes);
    return status;
}

static int check_placement(const struct sweep *sweep, struct error *err)
{
    if (!sweep->placement)
        return 0;
    return error_set(err, ERROR_USAGE,
                     "'placement' chooses CPUs of local workers, and --workers 0 starts none");
}

static int choose_cpus(const struct options_run *options, const struct sweep *sweep, struct topology **ret,
                       struct error *err)
{
    struct topology_request request = {.workers = options->workers,
                                       .cpus = options->cpus,
                                       .housekeeping = options->housekeeping,
                                       .placement = sweep->placement,
                                       .oversubscribe = options->oversubscribe};
    if (options->workers == 0)
        return check_placement(sweep, err);
    return topology_choose(&request, ret, err);
}

static int64_t local_workers(const struct run *run)
{
    return run->topology ? (int64_t)run->topology->measured_count : 0;
}

static int check_options(const struct options_run *options, struct error *err)
{
    if (options->resume && options->out)
        return error_set(err, ERROR_USAGE, "--resume goes on in the run's own directory: leave out --out");
    if (options->workers == 0 && options->expect == 0)
        return error_set(err, ERROR_USAGE, "--workers 0 leaves nobody to measure: say --expect N too");
    if (options->workers == 0 && options->cpus)
        return error_set(err, ERROR_USAGE,
                         "--cpus chooses CPUs of local workers, and --workers 0 starts none");
    if (options->workers == 0 && options->fill_idle)
        return error_set(err, ERROR_USAGE,
                         "--fill-idle keeps CPUs of local workers busy, and --workers 0 starts none");
    if (options->authorized_keys && !options->key)
        return error_set(err, ERROR_USAGE,
                         "--authorized-keys needs --key FILE, our own pair (corefan keygen makes one)");
    if (options->key && !options->listen)
        return error_set(err, ERROR_USAGE,
                         "--key guards what --listen opens: without --listen nobody else can connect");
    if (options->expect > 0 && options->key && !options->authorized_keys)
        return error_set(err, ERROR_USAGE,
                         "--key lets nobody in but our own workers: say --authorized-keys DIR too");
    return 0;
}

static int check_listen(const struct options_run *options, struct error *err)
{
    if (options->expect > 0 && !options->listen)
        return error_set(err, ERROR_USAGE,
                         "--expect needs --listen ENDPOINT, where the workers can find this run");
    return 0;
}

/* Fresh processes are made by starting workers again, which only who started them can do. */
static int check_processes(const struct options_run *options, const struct plan *plan, struct error *err)
{
    for (int64_t i = 0; i < plan->group_count; i++)
        if (plan->groups[i].processes > 1 && (options->workers == 0 || options->expect > 0))
            return error_set(
                err, ERROR_USAGE,
                "'processes' is %lld, but workers that were started by hand cannot be started again: "
                "leave out %s",
                (long long)plan->groups[i].processes, options->workers == 0 ? "--workers 0" : "--expect");
    return 0;
}

static int read_keys(const struct options_run *options, struct door_config *ret, struct error *err)
{
    bool known;
    ret->directory = options->authorized_keys;
    if (options->key && keys_read_pair(options->key, &ret->own, err) < 0)
        return -1;
    return ret->directory ? keys_directory_has(ret->directory, "", &known, err) : 0;
}

/* Workers of one runtime that a group which is not done needs at the same time, the most of any. */
static int64_t largest_gang(const struct plan *plan, const struct schedule_past *past)
{
    int64_t largest = 0;
    for (int64_t i = 0; i < plan->group_count; i++)
        if (!past[i].done && plan->groups[i].cores > largest)
            largest = plan->groups[i].cores;
    return largest;
}

/* `all` stays what it was when the run was begun; workers that a gang does not need may be missing, or come later. */
static int make_plan(const struct run *run, int64_t workers, struct plan **ret, struct error *err)
{
    const struct resume *resume = &run->resume;
    if (!resume->store)
        return plan_make(run->sweep, workers, ret, err);
    struct plan *plan = NULL;
    if (plan_make(run->sweep, resume->all_cores, &plan, err) < 0 || resume_check(resume, plan, err) < 0) {
        plan_free(plan);
        return -1;
    }
    int64_t needed = largest_gang(plan, resume->past);
    if (workers < needed) {
        plan_free(plan);
        return error_set(
            err, ERROR_USAGE,
            "what is left of the run needs %lld worker%s per runtime at the same time, and there are "
            "%lld now: --workers %lld",
            (long long)needed, needed == 1 ? "" : "s", (long long)workers, (long long)needed);
    }
    *ret = plan;
    return 0;
}

static int prepare(struct run *run, struct error *err)
{
    const struct options_run *options = run->options;
    run->lock.fd = -1;
    if (check_options(options, err) < 0 ||
        (options->resume && resume_open(options->resume, &run->resume, err) < 0))
        return -1;
    if (read_sweep(options, run->resume.sweep, &run->sweep, err) < 0 ||
        choose_cpus(options, run->sweep, &run->topology, err) < 0)
        return -1;
    if (read_keys(options, &run->door, err) < 0 ||
        (options->listen && endpoint_check(options->listen, options->key != NULL, &run->listen, err) < 0))
        return -1;
    if (make_plan(run, local_workers(run) + options->expect, &run->plan, err) < 0)
        return -1;
    return check_processes(options, run->plan, err);
}

/* Each of them once; free() it. */
static int64_t *measured_cpus(const struct topology *topology, size_t *ret_count)
{
    int64_t *cpus = memory_zeroed(topology->measured_count, sizeof *cpus);
    size_t count = 0;
    for (size_t i = 0; i < topology->measured_count && (i == 0 || topology->measured[i].cpu != cpus[0]); i++)
        cpus[count++] = topology->measured[i].cpu; /* from then on they are shared, in turn */
    *ret_count = count;
    return cpus;
}

static int lock_cpus(struct run *run, struct error *err)
{
    if (!run->topology)
        return 0;
    size_t count, workers = run->topology->measured_count;
    scoped_free int64_t *cpus = measured_cpus(run->topology, &count);
    if (count < workers)
        log_line(LOG_WARNING,
                 "%zu workers share %zu CPU%s (--oversubscribe): they measure each other as well", workers,
                 count, count == 1 ? "" : "s");
    if (hostlock_take(NULL, cpus, count, run->options->co_run, &run->lock, err) < 0)
        return -1;
    return environment_capture(cpus, count, run->topology->housekeeping, run->topology->housekeeping_count,
                               &run->environment, err);
}

/* -- the run's directory ------------------------------------------------------------------------------------ */

#define UTC_STAMP "%Y%m%dT%H%M%SZ"
#define UTC_ISO   "%Y-%m-%dT%H:%M:%SZ"

static struct tm utc_now(void)
{
    time_t now = time(NULL);
    struct tm utc;
    (void)gmtime_r(&now, &utc);
    return utc;
}

static char *directory_of(const struct run *run)
{
    char stamp[32];
    struct tm utc = utc_now();
    if (run->options->out)
        return memory_text(run->options->out);
    (void)strftime(stamp, sizeof stamp, UTC_STAMP, &utc);
    char *dir = memory_format("runs/%s-%s", run->plan->name, stamp);
    for (int next = 2; access(dir, F_OK) == 0; next++) { /* another run began in the same second */
        free(dir);
        dir = memory_format("runs/%s-%s-%d", run->plan->name, stamp, next);
    }
    return dir;
}

static char *draw_id(void)
{
    uint64_t words[2];
    if (getrandom(words, sizeof words, 0) != (ssize_t)sizeof words)
        words[0] = words[1] = (uint64_t)clock_realtime_ns();
    return memory_format("%016llx%016llx", (unsigned long long)words[0], (unsigned long long)words[1]);
}

static int put_fact_time(struct store *store, const char *key, struct error *err)
{
    char text[32];
    struct tm utc = utc_now();
    (void)strftime(text, sizeof text, UTC_ISO, &utc);
    return store_put_fact(store, key, text, err);
}

static int put_fact_argv(struct store *store, int argc, char **argv, struct error *err)
{
    json_t *array = json_array();
    for (int i = 0; i < argc; i++) { /* words that are no UTF-8 are kept as bytes would be shown */
        json_t *word = json_string(argv[i]);
        json_array_append_new(array, word ? word : json_string("?"));
    }
    scoped_free char *text = json_dumps(array, JSON_COMPACT);
    json_decref(array);
    return text ? store_put_fact(store, "argv", text, err) : error_set(err, ERROR_INTERNAL, "out of memory");
}

static int put_fact_cpus(const struct run *run, struct error *err)
{
    if (!run->topology)
        return 0;
    scoped_free char *reserved =
        topology_list_text(run->topology->housekeeping, run->topology->housekeeping_count);
    return store_put_fact(run->store, "reserved_cpus", reserved, err);
}

static int put_fact_budget(const struct run *run, struct error *err)
{
    if (run->options->budget_ns == 0)
        return 0;
    scoped_free char *text = memory_format("%lld", (long long)run->options->budget_ns);
    return store_put_fact(run->store, "budget_ns", text, err);
}

/* What was measured under another environment says so by being there: a host's first capture stays. */
static int put_fact_environment(const struct run *run, struct error *err)
{
    json_t *all = run->resume.environment ? json_loads(run->resume.environment, 0, NULL) : NULL;
    json_t *now = run->environment ? json_loads(run->environment, 0, NULL) : NULL;
    const char *host = json_string_value(json_object_get(json_array_get(now, 0), "host"));
    bool known = false;
    size_t i;
    json_t *entry;
    json_array_foreach(all, i, entry)
    {
        const char *other = json_string_value(json_object_get(entry, "host"));
        known |= host && other && strcmp(host, other) == 0;
    }
    int status = 0;
    if (now && !known) {
        if (!all)
            all = json_array();
        (void)json_array_extend(all, now);
        scoped_free char *text = json_dumps(all, JSON_COMPACT);
        status = text ? store_put_fact(run->store, "environment", text, err)
                      : error_set(err, ERROR_INTERNAL, "out of memory");
    }
    json_decref(all);
    json_decref(now);
    return status;
}

static int reopen_store(struct run *run, struct error *err)
{
    int64_t done = 0;
    run->dir = memory_text(run->options->resume);
    run->id = memory_text(run->resume.run);
    run->store = run->resume.store;
    for (int64_t i = 0; i < run->plan->group_count; i++)
        done += run->resume.past[i].done;
    log_line(LOG_INFO, "goes on with '%s': %lld of %lld groups are done", run->dir, (long long)done,
             (long long)run->plan->group_count);
    scoped_free char *text =
        memory_format("%lld of %lld groups were done", (long long)done, (long long)run->plan->group_count);
    if (store_put_event(run->store, "resumed", text, err) < 0 ||
        store_put_fact(run->store, "status", "running", err) < 0 || put_fact_cpus(run, err) < 0 ||
        put_fact_environment(run, err) < 0)
        return -1;
    return 0;
}

static int open_store(struct run *run, int argc, char **argv, struct error *err)
{
    run->started_ns = clock_monotonic_ns();
    if (run->resume.store)
        return reopen_store(run, err);
    run->dir = directory_of(run);
    run->id = draw_id();
    if (store_create(run->dir, &run->store, err) < 0)
        return -1;
    if (store_put_fact(run->store, "run_id", run->id, err) < 0 ||
        store_put_fact(run->store, "tool_version", COREFAN_VERSION, err) < 0 ||
        store_put_fact(run->store, "sweep", run->sweep->canonical, err) < 0 ||
        put_fact_time(run->store, "started_at", err) < 0 || put_fact_argv(run->store, argc, argv, err) < 0 ||
        put_fact_cpus(run, err) < 0 || put_fact_budget(run, err) < 0 ||
        (run->options->fill_idle && store_put_fact(run->store, "fill_idle", "1", err) < 0))
        return -1;
    return run->environment ? store_put_fact(run->store, "environment", run->environment, err) : 0;
}

/* Nothing was measured: leave nothing behind. */
static void discard_store(struct run *run)
{
    if (run->resume.store)
        return;
    static const char *const files[] = {"run.db", "run.db-wal", "run.db-shm", "run.lock"};
    store_close(run->store);
    run->store = NULL;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        scoped_free char *path = memory_format("%s/%s", run->dir, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(run->dir);
}

/* -- workers ------------------------------------------------------------------------------------------------ */

static void show_progress(void *context, const struct schedule_progress *now)
{
    struct run *run = context;
    struct progress_state state = {.group_count = now->group_count,
                                   .groups_done = now->groups_done,
                                   .expected_ns = now->expected_ns,
                                   .done_ns = now->done_ns};
    if (now->phase == SCHEDULE_GATHERING)
        return;
    if (now->current_group >= 0 && now->current_group < run->plan->group_count)
        state.title = run->plan->groups[now->current_group].title;
    progress_show(&run->progress, &state);
}

static int64_t cpu_of_slot(const struct run *run, int64_t slot)
{
    return run->topology->measured[slot / run->plan->runtime_count].cpu;
}

static void tell_action(void *context, const struct schedule_action *action)
{
    struct run *run = context;
    events_action(run->events, action);
    if (run->fill && action->kind == SCHEDULE_OCCUPY)
        fill_occupy(run->fill, cpu_of_slot(run, action->slot));
    if (run->fill && action->kind == SCHEDULE_VACATE)
        fill_vacate(run->fill, cpu_of_slot(run, action->slot));
}

static int open_fleet(struct run *run, struct error *err)
{
    const struct topology *topology = run->topology;
    struct fleet_config config = {
        .run = run->id,
        .listen = run->listen,
        .door = run->options->key ? &run->door : NULL,
        .runtimes = run->plan->runtimes,
        .runtime_count = run->plan->runtime_count,
        .housekeeping = topology ? topology->housekeeping : NULL,
        .housekeeping_count = topology ? topology->housekeeping_count : 0,
        .slot_count = (size_t)(local_workers(run) * run->plan->runtime_count),
        .budget_ns = run->options->budget_ns,
        .first_worker = run->resume.first_worker,
        .rejoin_ns = REJOIN_NS,
        .on_progress = show_progress,
        .on_action = tell_action,
        .context = run,
    };
    return fleet_open(&config, &run->fleet, err);
}

/* All runtimes of a CPU, then the next CPU. */
static int launch_workers(struct run *run, struct error *err)
{
    const struct topology *topology = run->topology;
    if (!topology)
        return 0;
    scoped_free char *housekeeping = topology_list_text(topology->housekeeping, topology->housekeeping_count);
    struct launch_config config = {.endpoint = fleet_endpoint(run->fleet),
                                   .key = run->options->key,
                                   .housekeeping = topology->housekeeping_count ? housekeeping : "none"};
    if (launch_new(&config, &run->launch, err) < 0)
        return -1;
    for (size_t i = 0; i < topology->measured_count; i++)
        for (int64_t r = 0; r < run->plan->runtime_count; r++)
            if (launch_add(run->launch, &run->plan->runtimes[r], topology->measured[i].cpu, err) < 0)
                return -1;
    fleet_watch(run->fleet, run->launch);
    return 0;
}

static int fill_idle_cpus(struct run *run, struct error *err)
{
    if (!run->options->fill_idle)
        return 0;
    size_t count;
    scoped_free int64_t *cpus = measured_cpus(run->topology, &count);
    return fill_new(cpus, count, &run->fill, err);
}

/* Ours are the coordinator's threads: off the measured CPUs, where there are others. */
static void pin_to_housekeeping(const struct topology *topology)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (size_t i = 0; topology && i < topology->housekeeping_count; i++)
        CPU_SET((size_t)topology->housekeeping[i], &cpus);
    if (CPU_COUNT(&cpus) > 0)
        (void)sched_setaffinity(0, sizeof cpus, &cpus);
}

/* The words that start a worker of the first runtime. */
static void tell_whom_we_wait_for(const struct run *run)
{
    const char *kind = run->plan->runtimes[0].kind;
    bool is_libuv = strcmp(kind, "libuv") == 0;
    log_line(LOG_INFO, "waiting at %s for %lld worker%s: corefan-worker%s%s --connect %s --cpu N",
             fleet_endpoint(run->fleet), (long long)run->options->expect,
             run->options->expect == 1 ? "" : "s", is_libuv ? "" : "-asyncio --loop ", is_libuv ? "" : kind,
             fleet_endpoint(run->fleet));
}

static void tell_about_place(const struct run *run)
{
    if (!run->topology)
        tell_whom_we_wait_for(run);
    else if (run->topology->housekeeping_count == 0)
        log_line(LOG_INFO, "no CPU is left for housekeeping: heartbeats go out between rounds only");
    if (run->lock.crowded)
        log_line(LOG_WARNING, "another run measures on some of these CPUs: figures will be disturbed");
}

/* The final plan knows how many workers really came. */
static int make_final_plan(struct run *run, struct error *err)
{
    struct plan *plan;
    if (run->resume.store)
        return 0; /* made and stored long ago */
    if (plan_make(run->sweep, fleet_workers_per_runtime(run->fleet), &plan, err) < 0)
        return -1;
    plan_free(run->plan);
    run->plan = plan;
    return store_put_plan(run->store, plan, err);
}

static int start(struct run *run, int argc, char **argv, struct error *err)
{
    if (lock_cpus(run, err) < 0 || open_store(run, argc, argv, err) < 0)
        return -1;
    if (open_fleet(run, err) < 0 || launch_workers(run, err) < 0 || fill_idle_cpus(run, err) < 0) {
        discard_store(run);
        return -1;
    }
    pin_to_housekeeping(run->topology);
    tell_about_place(run);
    events_started(run->events, run->id, run->plan->name, run->dir);
    if (fleet_gather(run->fleet, run->options->expect, run->options->expect_timeout_ns, err) < 0 ||
        make_final_plan(run, err) < 0 || fleet_check(run->fleet, run->plan, run->resume.past, err) < 0) {
        discard_store(run);
        return -1;
    }
    events_planned(run->events, run->plan);
    return 0;
}

/* -- the end ------------------------------------------------------------------------------------------------ */

/* Whole or not at all: what stands there from before stays until the new one is on the disk. */
static int write_report(const struct summary *summary, const struct report_format *format, const char *dir,
                        struct error *err)
{
    scoped_free char *path = memory_format("%s/%s", dir, format->file);
    scoped_free char *unfinished = memory_format("%s.new", path);
    FILE *file = fopen(unfinished, "we");
    bool written = file && format->render(summary, file) == 0;
    if (file && fclose(file) != 0)
        written = false;
    if (written && rename(unfinished, path) == 0)
        return 0;
    (void)error_set(err, ERROR_INTERNAL, "cannot write '%s': %s", path, strerror(errno));
    (void)unlink(unfinished);
    return -1;
}

static int write_reports(const struct summary *summary, const char *dir, struct error *err)
{
    for (size_t i = 0; i < report_format_count; i++)
        if (report_formats[i].file && write_report(summary, &report_formats[i], dir, err) < 0)
            return -1;
    return 0;
}

static int print_report(const struct summary *summary, const char *format, FILE *out, struct error *err)
{
    if (report_find(format)->render(summary, out) < 0 || fflush(out) != 0)
        return error_set(err, ERROR_INTERNAL, "cannot write the report: %s", strerror(errno));
    return 0;
}

static void tell_imprecise(const struct summary *summary)
{
    if (summary->imprecise > 0)
        log_line(LOG_WARNING,
                 "%zu of %zu groups did not reach their precision: about %.3g s more of measuring is missing",
                 summary->imprecise, summary->precision_count, summary->missing_ns / (double)NS_PER_S);
}

/* Events on stdout leave no room for a report. */
static bool is_stdout_taken(const struct options_run *options)
{
    return options->events && strcmp(options->events, "-") == 0;
}

static int conclude(struct run *run, FILE *out, struct error *err)
{
    struct summary *summary;
    scoped_free char *elapsed_ns =
        memory_format("%lld", (long long)(run->resume.elapsed_ns + clock_monotonic_ns() - run->started_ns));
    if (put_fact_time(run->store, "finished_at", err) < 0 ||
        store_put_fact(run->store, "elapsed_ns", elapsed_ns, err) < 0 ||
        summary_build(run->store, &summary, err) < 0)
        return -1;
    int code = error_exit_code(summary_exit_kind(summary));
    tell_imprecise(summary);
    if (write_reports(summary, run->dir, err) < 0)
        code = -1;
    struct error lost = {0};
    if (!is_stdout_taken(run->options) && print_report(summary, run->options->format, out, &lost) < 0) {
        *err = code < 0 ? *err : lost;
        code = -1;
    }
    summary_free(summary);
    if (code >= 0)
        log_line(LOG_INFO, "results are in %s", run->dir);
    return code;
}

static void run_release(struct run *run)
{
    progress_end(&run->progress);
    fill_free(run->fill);
    fleet_close(run->fleet);
    events_close(run->events);
    launch_free(run->launch);
    store_close(run->store ? run->store : run->resume.store);
    resume_release(&run->resume);
    hostlock_release(&run->lock);
    topology_free(run->topology);
    plan_free(run->plan);
    sweep_free(run->sweep);
    free(run->listen);
    free(run->environment);
    free(run->dir);
    free(run->id);
}

/* What was not taken, in numbers; a line for each would let a peer fill the disk. */
static int put_refusals(const struct run *run, struct error *err)
{
    struct schedule_progress now;
    fleet_progress(run->fleet, &now);
    if (now.refused + now.duplicates + now.malformed == 0)
        return 0;
    scoped_free char *text = memory_format(
        "late or foreign: %lld; delivered twice: %lld; frames that are none, or of strangers: %lld",
        (long long)now.refused, (long long)now.duplicates, (long long)now.malformed);
    return store_put_event(run->store, "refusals", text, err);
}

static int measure(struct run *run, FILE *out, struct error *err)
{
    struct error broken = {0};
    int status = fleet_run(run->fleet, run->plan, run->store, run->resume.past, run->resume.loads, &broken);
    progress_end(&run->progress);
    if (broken.kind == ERROR_INTERRUPTED)
        (void)store_put_fact(run->store, "status", "interrupted", &broken);
    if (status == 0 && put_refusals(run, err) < 0)
        return -1;
    int code = conclude(run, out, err);
    if (status < 0 && broken.kind != ERROR_INTERRUPTED) {
        *err = broken;
        return -1;
    }
    return code;
}

int run_sweep(const struct options_run *options, int argc, char **argv, FILE *out, struct error *err)
{
    struct run run = {.options = options};
    int code = -1;
    if (check_listen(options, err) == 0 && prepare(&run, err) == 0 &&
        (!options->events || events_open(options->events, &run.events, err) == 0)) {
        progress_begin(&run.progress, options->quiet ? PROGRESS_NONE : options->progress);
        if (start(&run, argc, argv, err) == 0)
            code = measure(&run, out, err);
        events_finished(run.events, code < 0 ? error_exit_code(err->kind) : code,
                        code < 0 ? err->text : NULL);
    }
    run_release(&run);
    return code;
}

int run_plan(const struct options_run *options, FILE *out, struct error *err)
{
    struct run run = {.options = options};
    int status = prepare(&run, err);
    if (status == 0)
        status = strcmp(options->format, "json") == 0 ? plan_print_json(run.plan, options->budget_ns, out)
                                                      : plan_print_text(run.plan, options->budget_ns, out);
    run_release(&run);
    return status;
}

int run_report(const struct options_report *options, FILE *out, struct error *err)
{
    struct store *store;
    struct summary *summary = NULL;
    if (store_open(options->run, STORE_READ, &store, err) < 0)
        return -1;
    int status = options->rounds ? rounds_csv_write(store, out, err)
                 : options->hgrm ? hgrm_write(store, options->cell, out, err)
                                 : summary_build(store, &summary, err);
    if (status == 0 && summary)
        status = print_report(summary, options->format, out, err);
    summary_free(summary);
    store_close(store);
    return status;
}
