#include "coordinator/options.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/units.h"
#include "coordinator/host/topology.h"
#include "coordinator/report/report.h"

#include <argp.h>
#include <stdio.h>
#include <string.h>

#define MAX_WORKERS 65536

enum option_key {
    OPTION_WORKERS = 256,
    OPTION_EXPECT,
    OPTION_EXPECT_TIMEOUT,
    OPTION_CPUS,
    OPTION_HOUSEKEEPING,
    OPTION_LISTEN,
    OPTION_RESUME,
    OPTION_KEY,
    OPTION_AUTHORIZED_KEYS,
    OPTION_SET,
    OPTION_SEED,
    OPTION_BUDGET,
    OPTION_PROGRESS,
    OPTION_FORMAT,
    OPTION_EVENTS,
    OPTION_CO_RUN,
    OPTION_OVERSUBSCRIBE,
    OPTION_FILL_IDLE,
    OPTION_ROUNDS,
    OPTION_CELL,
    OPTION_THRESHOLD,
    OPTION_METRIC,
    OPTION_IGNORE,
    OPTION_RATE,
    OPTION_P99,
};

/* What every command's parser works on; the command's own struct is behind `of`. */
struct parsing {
    void *of;
    struct error *err;
    bool failed;
};

/* -- mistakes, one line each -------------------------------------------------------------------------------- */

static bool names_option(const struct argp_option *option, const char *word, size_t length)
{
    return option->name && strlen(option->name) == length && memcmp(option->name, word, length) == 0;
}

/* getopt would take abbreviations and answer in two lines: long options are checked by their full names before it
 * sees them. */
static int check_long_option(const struct argp_option *table, const char *word, bool last, struct error *err)
{
    size_t length = strcspn(word, "=");
    char written[64];
    (void)snprintf(written, sizeof written, "%.*s", (int)length, word);
    struct nearest nearest = {.written = written};
    if (strcmp(written, "help") == 0 || strcmp(written, "version") == 0 || strcmp(written, "usage") == 0)
        return 0;
    for (const struct argp_option *option = table; option->name; option++) {
        if (names_option(option, word, length)) {
            if (option->arg && last && word[length] == '\0')
                return error_set(err, ERROR_USAGE, "--%s is missing its %s", option->name, option->arg);
            if (!option->arg && word[length] == '=')
                return error_set(err, ERROR_USAGE, "--%s takes no value", option->name);
            return 0;
        }
        nearest_consider(&nearest, option->name);
    }
    if (nearest.name)
        return error_set(err, ERROR_USAGE, "unknown option '--%s', did you mean '--%s'?", written,
                         nearest.name);
    return error_set(err, ERROR_USAGE, "unknown option '--%s' (see --help)", written);
}

static bool takes_value(const struct argp_option *table, const char *word)
{
    for (const struct argp_option *option = table; option->name; option++)
        if (names_option(option, word, strlen(word)))
            return option->arg != NULL;
    return false;
}

static int check_words(const struct argp_option *table, int argc, char **argv, struct error *err)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--") == 0)
            return 0;
        if (strncmp(word, "--", 2) == 0) {
            if (check_long_option(table, word + 2, i + 1 == argc, err) < 0)
                return -1;
            i += takes_value(table, word + 2);
        } else if (word[0] == '-' && word[1] != '\0' && strchr("qv?V", word[1]) == NULL) {
            return error_set(err, ERROR_USAGE, "unknown option '%.20s' (see --help)", word);
        }
    }
    return 0;
}

/* -- the environment ---------------------------------------------------------------------------------------- */

/* What usual options are when the command line does not say; corefan(1) lists them. */
static const struct {
    const char *variable, *option;
    const char *unless; /* an option of the command line that makes it meaningless */
} usual[] = {
    {"COREFAN_CPUS", "--cpus", NULL},
    {"COREFAN_HOUSEKEEPING", "--housekeeping", NULL},
    {"COREFAN_WORKERS", "--workers", NULL},
    {"COREFAN_OUT", "--out", "--resume"},
    {"COREFAN_LISTEN", "--listen", NULL},
    {"COREFAN_BUDGET", "--budget", NULL},
    {"COREFAN_PROGRESS", "--progress", NULL},
    {"COREFAN_KEY", "--key", NULL},
    {"COREFAN_AUTHORIZED_KEYS", "--authorized-keys", NULL},
};
#define USUAL_COUNT (sizeof usual / sizeof usual[0])

static bool is_among(int argc, char **argv, const char *option)
{
    size_t length = strlen(option);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], option, length) == 0 && (argv[i][length] == '\0' || argv[i][length] == '='))
            return true;
    return false;
}

static bool is_usual(size_t i, const struct argp_option *table, int argc, char **argv)
{
    const char *value = getenv(usual[i].variable);
    return value && value[0] != '\0' && takes_value(table, usual[i].option + 2) &&
           !is_among(argc, argv, usual[i].option) &&
           !(usual[i].unless && is_among(argc, argv, usual[i].unless));
}

/* The command line with what the environment adds put before it, so that later words win.  The array is the caller's to
 * free, the words are not. */
static char **with_usual(const struct argp_option *table, int argc, char **argv, int *ret_argc)
{
    char **words = memory_zeroed((size_t)argc + 2 * USUAL_COUNT + 1, sizeof *words);
    int count = 0;
    words[count++] = argv[0];
    for (size_t i = 0; i < USUAL_COUNT; i++) {
        if (!is_usual(i, table, argc, argv))
            continue;
        words[count++] = (char *)(uintptr_t)usual[i].option;
        words[count++] = getenv(usual[i].variable);
    }
    for (int i = 1; i < argc; i++)
        words[count++] = argv[i];
    *ret_argc = count;
    return words;
}

/* A value that the user did not write just now is refused by where it came from. */
static void name_variable(int given_count, char **words, struct error *err)
{
    for (int i = 1; i + 1 < given_count; i += 2)
        for (size_t j = 0; j < USUAL_COUNT; j++) {
            size_t length = strlen(usual[j].option);
            if (words[i] == usual[j].option && strncmp(err->text, usual[j].option, length) == 0 &&
                err->text[length] == ' ')
                error_prefix(err, "%s", usual[j].variable);
        }
}

static int parse(const struct argp *argp, int argc, char **argv, void *of, struct error *err)
{
    struct parsing parsing = {.of = of, .err = err};
    char name[64];
    if (check_words(argp->options, argc, argv, err) < 0)
        return -1;
    (void)snprintf(name, sizeof name, "corefan %s", argv[0]);
    int count;
    scoped_free char **words = with_usual(argp->options, argc, argv, &count);
    words[0] = name; /* what --help calls the command */
    if (argp_parse(argp, count, words, 0, NULL, &parsing) != 0 && !parsing.failed) {
        parsing.failed = true;
        error_set(err, ERROR_USAGE, "bad command line (see --help)");
    }
    if (parsing.failed)
        name_variable(count - argc + 1, words, err);
    return parsing.failed ? -1 : 0;
}

static int refuse_extra(struct parsing *parsing, const char *text)
{
    return error_set(parsing->err, ERROR_USAGE, "unexpected argument '%s'", text);
}

/* Wraps up one option: the first mistake is kept. */
static error_t settle(struct parsing *parsing, int status)
{
    if (status < 0)
        parsing->failed = true;
    return 0;
}

/* -- values ------------------------------------------------------------------------------------------------- */

static int read_count(const char *option, const char *text, int64_t most, int64_t *ret, struct error *err)
{
    const char *why = "too large";
    int64_t count;
    if (units_parse_count(text, &count, &why) < 0 || count > most)
        return error_set(err, ERROR_USAGE, "--%s '%s': %s", option, text, why);
    *ret = count;
    return 0;
}

static int read_workers(const char *text, int64_t *ret, struct error *err)
{
    if (strcmp(text, "auto") == 0) {
        *ret = TOPOLOGY_AUTO;
        return 0;
    }
    return read_count("workers", text, MAX_WORKERS, ret, err);
}

static int read_timeout(const char *text, int64_t *ret, struct error *err)
{
    const char *why;
    if (units_parse_duration(text, ret, &why) < 0)
        return error_set(err, ERROR_USAGE, "--expect-timeout '%s': %s", text, why);
    return 0;
}

static int read_budget(const char *text, int64_t *ret, struct error *err)
{
    const char *why = "it must be above 0";
    int64_t budget_ns;
    if (units_parse_duration(text, &budget_ns, &why) < 0 || budget_ns == 0)
        return error_set(err, ERROR_USAGE, "--budget '%s': %s", text, why);
    *ret = budget_ns;
    return 0;
}

static int read_progress(const char *text, enum progress_mode *ret, struct error *err)
{
    if (progress_parse_mode(text, ret) < 0)
        return error_set(err, ERROR_USAGE, "--progress '%s': must be auto, bar, plain or none", text);
    return 0;
}

static int read_format(const char *text, const char **ret, struct error *err)
{
    char names[128] = "";
    struct nearest nearest = {.written = text};
    if (report_find(text)) {
        *ret = text;
        return 0;
    }
    for (size_t i = 0, used = 0; i < report_format_count; i++) {
        int n = snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", report_formats[i].name);
        used += n > 0 && used + (size_t)n < sizeof names ? (size_t)n : 0;
        nearest_consider(&nearest, report_formats[i].name);
    }
    if (nearest.name)
        return error_set(err, ERROR_USAGE, "unknown format '%s', did you mean '%s'? (%s)", text, nearest.name,
                         names);
    return error_set(err, ERROR_USAGE, "unknown format '%s' (%s)", text, names);
}

/* text or json, for what is no report of a run */
static int read_plain_format(const char *text, const char **ret, struct error *err)
{
    if (strcmp(text, "text") != 0 && strcmp(text, "json") != 0)
        return error_set(err, ERROR_USAGE, "unknown format '%s' (text, json)", text);
    *ret = text;
    return 0;
}

static int add_setting(struct options_run *options, char *setting)
{
    options->settings =
        memory_resized(options->settings, options->setting_count + 1, sizeof *options->settings);
    options->settings[options->setting_count++] = setting;
    return 0;
}

static int take_sweep(struct parsing *parsing, const char *text)
{
    struct options_run *options = parsing->of;
    if (options->sweep)
        return refuse_extra(parsing, text);
    options->sweep = text;
    return 0;
}

/* -- run and plan ------------------------------------------------------------------------------------------- */

static int take_place_option(struct options_run *options, int key, char *text, struct error *err)
{
    switch (key) {
    case OPTION_WORKERS:
        return read_workers(text, &options->workers, err);
    case OPTION_CPUS:
        options->cpus = text;
        return 0;
    case OPTION_HOUSEKEEPING:
        options->housekeeping = text;
        return 0;
    case OPTION_OVERSUBSCRIBE:
        options->oversubscribe = true;
        return 0;
    case OPTION_EXPECT:
        return read_count("expect", text, MAX_WORKERS, &options->expect, err);
    case OPTION_SET:
        return add_setting(options, memory_text(text));
    case OPTION_SEED:
        return add_setting(options, memory_format("seed=%s", text));
    case OPTION_BUDGET:
        return read_budget(text, &options->budget_ns, err);
    default:
        return 1;
    }
}

static int take_run_option(struct options_run *options, int key, char *text, struct error *err)
{
    switch (key) {
    case OPTION_EXPECT_TIMEOUT:
        return read_timeout(text, &options->expect_timeout_ns, err);
    case OPTION_LISTEN:
        options->listen = text;
        return 0;
    case 'o':
        options->out = text;
        return 0;
    case OPTION_EVENTS:
        options->events = text;
        return 0;
    case OPTION_RESUME:
        options->resume = text;
        return 0;
    case OPTION_KEY:
        options->key = text;
        return 0;
    case OPTION_AUTHORIZED_KEYS:
        options->authorized_keys = text;
        return 0;
    case OPTION_PROGRESS:
        return read_progress(text, &options->progress, err);
    case OPTION_FORMAT:
        return read_format(text, &options->format, err);
    case OPTION_FILL_IDLE:
        options->fill_idle = true;
        return 0;
    case OPTION_CO_RUN:
        options->co_run = true;
        return 0;
    case 'q':
        options->quiet = true;
        return 0;
    case 'v':
        options->verbose = true;
        return 0;
    default:
        return 1;
    }
}

static error_t parse_run(int key, char *text, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    if (parsing->failed)
        return 0;
    if (key == ARGP_KEY_ARG)
        return settle(parsing, take_sweep(parsing, text));
    int status = take_place_option(parsing->of, key, text, parsing->err);
    if (status > 0)
        status = take_run_option(parsing->of, key, text, parsing->err);
    return status > 0 ? ARGP_ERR_UNKNOWN : settle(parsing, status);
}

static error_t parse_plan(int key, char *text, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    struct options_run *options = parsing->of;
    if (parsing->failed)
        return 0;
    if (key == ARGP_KEY_ARG)
        return settle(parsing, take_sweep(parsing, text));
    if (key == OPTION_FORMAT)
        return settle(parsing, read_plain_format(text, &options->format, parsing->err));
    int status = take_place_option(options, key, text, parsing->err);
    return status > 0 ? ARGP_ERR_UNKNOWN : settle(parsing, status);
}

#define PLACE_OPTIONS                                                                                          \
    {"workers", OPTION_WORKERS, "N", 0, "local workers per runtime, or auto: one per core; 0: none", 0},       \
        {"cpus", OPTION_CPUS, "LIST", 0, "measure on these CPUs: 0,2-5", 0},                                   \
        {"housekeeping", OPTION_HOUSEKEEPING, "LIST", 0, "CPUs for all other threads, auto or none", 0},       \
        {"oversubscribe", OPTION_OVERSUBSCRIBE, NULL, 0, "more workers than CPUs may share them; flagged", 0}, \
        {"expect", OPTION_EXPECT, "N", 0, "wait for N workers that are started elsewhere", 0},                 \
        {"set", OPTION_SET, "KEY=VALUE", 0, "set a key of the sweep; repeatable", 0},                          \
        {"budget", OPTION_BUDGET, "D", 0, "time for all groups (10m); the rest is left out", 0},               \
    {                                                                                                          \
        "seed", OPTION_SEED, "N", 0, "seed of orders and draws", 0                                             \
    }

static const struct argp_option run_options[] = {
    PLACE_OPTIONS,
    {"expect-timeout", OPTION_EXPECT_TIMEOUT, "D", 0, "how long to wait for workers (60s)", 1},
    {"listen", OPTION_LISTEN, "ENDPOINT", 0, "tcp://127.0.0.1:PORT or ipc://PATH, instead of a private one",
     1},
    {"key", OPTION_KEY, "FILE", 0, "our key pair (keygen): who connects needs one too", 1},
    {"authorized-keys", OPTION_AUTHORIZED_KEYS, "DIR", 0, "public keys (*.pub) of workers to let in", 1},
    {"out", 'o', "DIR", 0, "where results go (runs/NAME-UTCSTAMP)", 1},
    {"resume", OPTION_RESUME, "DIR", 0, "go on with a run that was interrupted or killed", 1},
    {"format", OPTION_FORMAT, "FORMAT", 0, "what goes to stdout: text, json, csv ...", 1},
    {"events", OPTION_EVENTS, "FILE", 0, "what happens, as NDJSON; -: stdout", 1},
    {"progress", OPTION_PROGRESS, "HOW", 0, "auto, bar, plain or none; on stderr", 1},
    {"fill-idle", OPTION_FILL_IDLE, NULL, 0, "keep measured CPUs busy while they are idle", 1},
    {"co-run", OPTION_CO_RUN, NULL, 0, "measure on CPUs that another run uses; flagged", 1},
    {"quiet", 'q', NULL, 0, "no progress, errors only", 1},
    {"verbose", 'v', NULL, 0, "say more on stderr", 1},
    {0},
};

static const struct argp_option plan_options[] = {
    PLACE_OPTIONS,
    {"format", OPTION_FORMAT, "FORMAT", 0, "text or json", 0},
    {0},
};

static struct options_run run_defaults(void)
{
    return (struct options_run){.workers = TOPOLOGY_AUTO,
                                .expect_timeout_ns = 60 * NS_PER_S,
                                .progress = PROGRESS_AUTO,
                                .format = "text"};
}

static int parse_into(const struct argp *argp, int argc, char **argv, struct options_run *ret,
                      struct error *err)
{
    struct options_run options = run_defaults();
    if (parse(argp, argc, argv, &options, err) < 0) {
        options_release_run(&options);
        return -1;
    }
    *ret = options;
    return 0;
}

int options_parse_run(int argc, char **argv, struct options_run *ret, struct error *err)
{
    static const struct argp argp = {
        .options = run_options,
        .parser = parse_run,
        .args_doc = "[SWEEP]",
        .doc = "Runs a sweep; without a file, the built-in lab (about a minute).\v"
               "Examples:\n"
               "  corefan run\n"
               "  corefan run mine.yaml --cpus 2-5 --set rounds=20\n"
               "  corefan run --workers 0 --expect 2 --listen tcp://127.0.0.1:5555\n"
               "Exit codes: 0 done, 2 bad input, 3 incomplete, 98 undecided, 99 failed, 130 interrupted.",
    };
    return parse_into(&argp, argc, argv, ret, err);
}

int options_parse_plan(int argc, char **argv, struct options_run *ret, struct error *err)
{
    static const struct argp argp = {
        .options = plan_options,
        .parser = parse_plan,
        .args_doc = "[SWEEP]",
        .doc = "Prints what a sweep would measure, in which order and how long it takes. Runs nothing.\v"
               "Examples:\n"
               "  corefan plan mine.yaml\n"
               "  corefan plan mine.yaml --set rounds=20 --format json\n"
               "Exit codes: 0 done, 2 bad input.",
    };
    return parse_into(&argp, argc, argv, ret, err);
}

void options_release_run(struct options_run *options)
{
    for (size_t i = 0; i < options->setting_count; i++)
        free(options->settings[i]);
    free(options->settings);
    options->settings = NULL;
    options->setting_count = 0;
}

/* -- report ------------------------------------------------------------------------------------------------- */

static int take_report_format(struct options_report *options, const char *text, struct error *err)
{
    options->hgrm = strcmp(text, "hgrm") == 0; /* of the store, not of a summary */
    return options->hgrm ? 0 : read_format(text, &options->format, err);
}

static int take_report_word(struct parsing *parsing, int key, char *text)
{
    struct options_report *options = parsing->of;
    switch (key) {
    case OPTION_FORMAT:
        return take_report_format(options, text, parsing->err);
    case OPTION_CELL:
        options->cell = text;
        return 0;
    case OPTION_ROUNDS:
        options->rounds = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->run)
            return refuse_extra(parsing, text);
        options->run = text;
        return 0;
    case ARGP_KEY_END:
        if (!options->run)
            return error_set(parsing->err, ERROR_USAGE, "which run? name its directory");
        return 0;
    default:
        return 1;
    }
}

static error_t parse_report(int key, char *text, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    if (parsing->failed)
        return 0;
    int status = take_report_word(parsing, key, text);
    return status > 0 ? ARGP_ERR_UNKNOWN : settle(parsing, status);
}

int options_parse_report(int argc, char **argv, struct options_report *ret, struct error *err)
{
    static const struct argp_option table[] = {
        {"format", OPTION_FORMAT, "FORMAT", 0,
         "text, json, csv ..., or hgrm: latencies of a cell of windows, for HdrHistogram's plotter", 0},
        {"cell", OPTION_CELL, "ID", 0, "hgrm: of which cell, where the run has several", 0},
        {"rounds", OPTION_ROUNDS, NULL, 0, "csv: a row per round, with every raw value", 0},
        {0},
    };
    static const struct argp argp = {
        .options = table,
        .parser = parse_report,
        .args_doc = "RUN",
        .doc = "Rebuilds any report of a run from its store.\v"
               "Example:\n  corefan report runs/lab-20260101T120000Z --format csv > lab.csv\n"
               "Exit codes: 0 done, whatever the thresholds came to (`run` tells that), 2 no such run.",
    };
    struct options_report options = {.format = "text"};
    if (parse(&argp, argc, argv, &options, err) < 0)
        return -1;
    if (options.cell && !options.hgrm)
        return error_set(err, ERROR_USAGE, "--cell goes with --format hgrm");
    if (options.rounds && (options.hgrm || strcmp(options.format, "csv") != 0))
        return error_set(err, ERROR_USAGE, "--rounds goes with --format csv");
    *ret = options;
    return 0;
}

/* -- compare ------------------------------------------------------------------------------------------------ */

static int add_ignored(struct options_compare *options, const char *key)
{
    size_t count = options->compare.ignored_count;
    options->ignored = memory_resized(options->ignored, count + 1, sizeof *options->ignored);
    options->ignored[count] = key;
    options->compare.ignored = options->ignored;
    options->compare.ignored_count = count + 1;
    return 0;
}

static int take_compared(struct parsing *parsing, const char *path)
{
    struct compare_options *compare = &((struct options_compare *)parsing->of)->compare;
    if (compare->changed)
        return refuse_extra(parsing, path);
    *(compare->base ? &compare->changed : &compare->base) = path;
    return 0;
}

static int take_compare_word(struct parsing *parsing, int key, char *text)
{
    struct options_compare *options = parsing->of;
    switch (key) {
    case OPTION_FORMAT:
        return read_plain_format(text, &options->format, parsing->err);
    case OPTION_THRESHOLD:
        return compare_parse_threshold(text, &options->compare.threshold, parsing->err);
    case OPTION_METRIC:
        return compare_parse_metrics(text, &options->compare.metrics, parsing->err);
    case OPTION_IGNORE:
        return add_ignored(options, text);
    case ARGP_KEY_ARG:
        return take_compared(parsing, text);
    case ARGP_KEY_END:
        if (!options->compare.changed)
            return error_set(parsing->err, ERROR_USAGE, "compare needs two runs: BASE and NEW");
        return 0;
    default:
        return 1;
    }
}

static error_t parse_compare(int key, char *text, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    if (parsing->failed)
        return 0;
    int status = take_compare_word(parsing, key, text);
    return status > 0 ? ARGP_ERR_UNKNOWN : settle(parsing, status);
}

int options_parse_compare(int argc, char **argv, struct options_compare *ret, struct error *err)
{
    static const struct argp_option table[] = {
        {"threshold", OPTION_THRESHOLD, "SHARE", 0, "a regression is more than this (5%)", 0},
        {"metric", OPTION_METRIC, "LIST", 0, "p50 of what: cpu, wall (cpu,wall)", 0},
        {"ignore", OPTION_IGNORE, "KEY", 0, "match cells that differ in this key of their id; repeatable", 0},
        {"format", OPTION_FORMAT, "FORMAT", 0, "text or json", 0},
        {0},
    };
    static const struct argp argp = {
        .options = table,
        .parser = parse_compare,
        .args_doc = "BASE NEW",
        .doc = "Compares two runs cell by cell; each is a run's directory or a summary.json.\v"
               "Examples:\n"
               "  corefan compare runs/main runs/branch\n"
               "  corefan compare base.json runs/branch --metric cpu --threshold 2%\n"
               "  corefan compare runs/libuv runs/asyncio --ignore runtime\n"
               "Exit codes: 0 no regression, 99 regression, 98 undecided, 2 no cell in common or bad input.",
    };
    struct options_compare options = {.compare = compare_defaults(), .format = "text"};
    if (parse(&argp, argc, argv, &options, err) < 0) {
        options_release_compare(&options);
        return -1;
    }
    *ret = options;
    return 0;
}

void options_release_compare(struct options_compare *options)
{
    free(options->ignored);
    options->ignored = NULL;
}

/* -- size --------------------------------------------------------------------------------------------------- */

static int read_rate(const char *text, double *ret, struct error *err)
{
    const char *why = "it must be above 0";
    if (units_parse_rate(text, ret, &why) < 0)
        return error_set(err, ERROR_USAGE, "--rate '%s': %s", text, why);
    return 0;
}

static int read_p99(const char *text, double *ret, struct error *err)
{
    const char *why = "it must be above 0";
    int64_t ns;
    if (units_parse_duration(text, &ns, &why) < 0 || ns == 0)
        return error_set(err, ERROR_USAGE, "--p99 '%s': %s", text, why);
    *ret = (double)ns;
    return 0;
}

static int check_sized(const struct options_size *options, struct error *err)
{
    if (!options->size.run)
        return error_set(err, ERROR_USAGE, "which run? name its directory");
    if (!(options->size.rate_per_s > 0))
        return error_set(err, ERROR_USAGE, "at which rate? --rate 50k/s");
    if (!(options->size.p99_ns > 0))
        return error_set(err, ERROR_USAGE, "at which latency? --p99 25ms");
    return 0;
}

static int take_size_word(struct parsing *parsing, int key, char *text)
{
    struct options_size *options = parsing->of;
    switch (key) {
    case OPTION_RATE:
        return read_rate(text, &options->size.rate_per_s, parsing->err);
    case OPTION_P99:
        return read_p99(text, &options->size.p99_ns, parsing->err);
    case OPTION_FORMAT:
        return read_plain_format(text, &options->format, parsing->err);
    case ARGP_KEY_ARG:
        if (options->size.run)
            return refuse_extra(parsing, text);
        options->size.run = text;
        return 0;
    case ARGP_KEY_END:
        return check_sized(options, parsing->err);
    default:
        return 1;
    }
}

static error_t parse_size(int key, char *text, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    if (parsing->failed)
        return 0;
    int status = take_size_word(parsing, key, text);
    return status > 0 ? ARGP_ERR_UNKNOWN : settle(parsing, status);
}

int options_parse_size(int argc, char **argv, struct options_size *ret, struct error *err)
{
    static const struct argp_option table[] = {
        {"rate", OPTION_RATE, "RATE", 0, "fan-outs per second, of all cores together: 50k/s", 0},
        {"p99", OPTION_P99, "D", 0, "latency that 99 of 100 fan-outs may take: 25ms", 0},
        {"format", OPTION_FORMAT, "FORMAT", 0, "text or json", 0},
        {0},
    };
    static const struct argp argp = {
        .options = table,
        .parser = parse_size,
        .args_doc = "RUN",
        .doc = "Says how many cores a rate needs at a latency, for each runtime and arm of a run that has "
               "windows "
               "('clients' or 'rate').\v"
               "Example:\n  corefan size runs/capacity-20260101T120000Z --rate 50k/s --p99 25ms\n"
               "Exit codes: 0 some arm can do it, 99 none can, 2 bad input.",
    };
    struct options_size options = {.format = "text"};
    if (parse(&argp, argc, argv, &options, err) < 0)
        return -1;
    *ret = options;
    return 0;
}

/* -- keygen ------------------------------------------------------------------------------------------------- */

static error_t parse_keygen(int key, char *text, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    struct options_run *options = parsing->of;
    if (parsing->failed)
        return 0;
    if (key == ARGP_KEY_ARG && options->key)
        return settle(parsing, refuse_extra(parsing, text));
    if (key == ARGP_KEY_ARG)
        options->key = text;
    else if (key == ARGP_KEY_END && !options->key)
        return settle(parsing,
                      error_set(parsing->err, ERROR_USAGE, "which FILE is the pair to be written to?"));
    else if (key != ARGP_KEY_END)
        return ARGP_ERR_UNKNOWN;
    return 0;
}

int options_parse_keygen(int argc, char **argv, struct options_run *ret, struct error *err)
{
    static const struct argp_option table[] = {{0}};
    static const struct argp argp = {
        .options = table,
        .parser = parse_keygen,
        .args_doc = "FILE",
        .doc = "Makes a key pair: FILE (mode 0600) and FILE.pub, which may be handed out.\v"
               "Example:\n"
               "  corefan keygen coordinator.key    # here; give coordinator.key.pub away\n"
               "  corefan keygen worker.key         # there; bring worker.key.pub here\n"
               "Nothing is ever overwritten.\n"
               "Exit codes: 0 done, 1 cannot write, 2 bad input.",
    };
    struct options_run options = {0};
    if (parse(&argp, argc, argv, &options, err) < 0)
        return -1;
    *ret = options;
    return 0;
}

/* -- doctor ------------------------------------------------------------------------------------------------- */

static error_t parse_doctor(int key, char *text, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    struct options_doctor *options = parsing->of;
    if (parsing->failed)
        return 0;
    if (key == OPTION_FORMAT)
        return settle(parsing, read_plain_format(text, &options->format, parsing->err));
    if (key == ARGP_KEY_ARG)
        return settle(parsing, refuse_extra(parsing, text));
    if (key != OPTION_CPUS && key != OPTION_HOUSEKEEPING)
        return ARGP_ERR_UNKNOWN;
    *(key == OPTION_CPUS ? &options->cpus : &options->housekeeping) = text;
    return 0;
}

int options_parse_doctor(int argc, char **argv, struct options_doctor *ret, struct error *err)
{
    static const struct argp_option table[] = {
        {"cpus", OPTION_CPUS, "LIST", 0, "judge these CPUs: 0,2-5 (those that run would measure on)", 0},
        {"housekeeping", OPTION_HOUSEKEEPING, "LIST", 0, "CPUs for all other threads, auto or none", 0},
        {"format", OPTION_FORMAT, "FORMAT", 0, "text or json", 0},
        {0},
    };
    static const struct argp argp = {
        .options = table,
        .parser = parse_doctor,
        .doc = "Says what on this machine disturbs measurements, each with its remedy.\v"
               "Example:\n  corefan doctor --cpus 2-5\n"
               "Exit codes: 0 nothing beyond notes, 99 something disturbs, 2 bad input.",
    };
    struct options_doctor options = {.format = "text"};
    if (parse(&argp, argc, argv, &options, err) < 0)
        return -1;
    *ret = options;
    return 0;
}

/* -- list --------------------------------------------------------------------------------------------------- */

static int take_list_word(struct parsing *parsing, int key, char *text)
{
    struct options_list *options = parsing->of;
    switch (key) {
    case OPTION_FORMAT:
        return read_plain_format(text, &options->format, parsing->err);
    case ARGP_KEY_ARG:
        if (options->dir)
            return refuse_extra(parsing, text);
        options->dir = text;
        return 0;
    default:
        return 1;
    }
}

static error_t parse_list(int key, char *text, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    if (parsing->failed)
        return 0;
    int status = take_list_word(parsing, key, text);
    return status > 0 ? ARGP_ERR_UNKNOWN : settle(parsing, status);
}

int options_parse_list(int argc, char **argv, struct options_list *ret, struct error *err)
{
    static const struct argp_option table[] = {
        {"format", OPTION_FORMAT, "FORMAT", 0, "text or json", 0},
        {0},
    };
    static const struct argp argp = {
        .options = table,
        .parser = parse_list,
        .args_doc = "[DIR]",
        .doc = "Lists the runs under a directory (runs), newest first.\v"
               "Examples:\n"
               "  corefan list\n"
               "  corefan list /srv/runs --format json\n"
               "Exit codes: 0 done, 2 no such directory or bad input.",
    };
    struct options_list options = {.format = "text"};
    if (parse(&argp, argc, argv, &options, err) < 0)
        return -1;
    if (!options.dir)
        options.dir = "runs";
    *ret = options;
    return 0;
}

/* -- schema ------------------------------------------------------------------------------------------------- */

static error_t parse_nothing(int key, char *text, struct argp_state *state)
{
    struct parsing *parsing = state->input;
    if (parsing->failed)
        return 0;
    return key == ARGP_KEY_ARG ? settle(parsing, refuse_extra(parsing, text)) : ARGP_ERR_UNKNOWN;
}

int options_parse_schema(int argc, char **argv, struct error *err)
{
    static const struct argp_option table[] = {{0}};
    static const struct argp argp = {
        .options = table,
        .parser = parse_nothing,
        .doc =
            "Prints a JSON Schema (draft 2020-12) of sweep files, so that editors complete and check them.\v"
            "Example:\n"
            "  corefan schema > ~/.config/corefan.schema.json\n"
            "and as the first line of a sweep:\n"
            "  # yaml-language-server: $schema=~/.config/corefan.schema.json\n"
            "Exit codes: 0 done, 2 bad input.",
    };
    return parse(&argp, argc, argv, NULL, err);
}
