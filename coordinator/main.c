/* corefan: the coordinator's command line.  A table of commands; only this file turns errors into messages and exit
 * codes. */
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/streams.h"
#include "coordinator/compare/compare.h"
#include "coordinator/fleet/fleet_link.h"
#include "coordinator/host/doctor.h"
#include "coordinator/host/environment.h"
#include "coordinator/host/topology.h"
#include "coordinator/list.h"
#include "coordinator/options.h"
#include "coordinator/run.h"
#include "coordinator/size/size.h"
#include "coordinator/sweep/sweep_schema.h"
#include "proto/wire.h"

#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct words { /* the whole command line as it was written: argp moves options to the front of its own */
    int argc;
    char **argv;
};

struct command {
    const char *name, *about;
    /* argv[0] is the command's name.  The exit code, or -1 with err. */
    int (*execute)(int argc, char **argv, const struct words *all, struct error *err);
};

static int execute_run(int argc, char **argv, const struct words *all, struct error *err)
{
    struct options_run options;
    if (options_parse_run(argc, argv, &options, err) < 0)
        return -1;
    log_setup("corefan", options.quiet ? LOG_ERROR : options.verbose ? LOG_DEBUG : LOG_INFO);
    int code = run_sweep(&options, all->argc, all->argv, stdout, err);
    options_release_run(&options);
    return code;
}

static int execute_plan(int argc, char **argv, const struct words *all, struct error *err)
{
    struct options_run options;
    (void)all;
    if (options_parse_plan(argc, argv, &options, err) < 0)
        return -1;
    int code = run_plan(&options, stdout, err);
    options_release_run(&options);
    return code;
}

static int execute_report(int argc, char **argv, const struct words *all, struct error *err)
{
    struct options_report options;
    (void)all;
    if (options_parse_report(argc, argv, &options, err) < 0)
        return -1;
    return run_report(&options, stdout, err);
}

static int execute_compare(int argc, char **argv, const struct words *all, struct error *err)
{
    struct options_compare options;
    struct comparison *comparison;
    (void)all;
    if (options_parse_compare(argc, argv, &options, err) < 0)
        return -1;
    int status = compare_make(&options.compare, &comparison, err);
    if (status == 0) {
        int printed = strcmp(options.format, "json") == 0 ? compare_print_json(comparison, stdout)
                                                          : compare_print_text(comparison, stdout);
        status = error_exit_code(compare_exit_kind(comparison));
        if (printed < 0 || fflush(stdout) != 0)
            status = error_set(err, ERROR_INTERNAL, "cannot write the comparison");
        compare_free(comparison);
    }
    options_release_compare(&options);
    return status;
}

static int execute_size(int argc, char **argv, const struct words *all, struct error *err)
{
    struct options_size options;
    struct sizing *sizing;
    (void)all;
    if (options_parse_size(argc, argv, &options, err) < 0 || size_make(&options.size, &sizing, err) < 0)
        return -1;
    int printed = strcmp(options.format, "json") == 0 ? size_print_json(sizing, stdout)
                                                      : size_print_text(sizing, stdout);
    int code = error_exit_code(size_exit_kind(sizing));
    size_free(sizing);
    if (printed < 0 || fflush(stdout) != 0)
        return error_set(err, ERROR_INTERNAL, "cannot write the answer");
    return code;
}

/* With the CPUs that `run` would measure on. */
static int capture_this_host(const struct options_doctor *options, char **ret, struct error *err)
{
    struct topology *topology;
    struct topology_request request = {
        .workers = TOPOLOGY_AUTO, .cpus = options->cpus, .housekeeping = options->housekeeping};
    if (topology_choose(&request, &topology, err) < 0)
        return -1;
    int64_t *measured = memory_zeroed(topology->measured_count, sizeof *measured);
    for (size_t i = 0; i < topology->measured_count; i++)
        measured[i] = topology->measured[i].cpu;
    int status = environment_capture(measured, topology->measured_count, topology->housekeeping,
                                     topology->housekeeping_count, ret, err);
    free(measured);
    topology_free(topology);
    return status;
}

static int execute_doctor(int argc, char **argv, const struct words *all, struct error *err)
{
    struct options_doctor options;
    struct doctor *doctor;
    char *environment;
    (void)all;
    if (options_parse_doctor(argc, argv, &options, err) < 0 ||
        capture_this_host(&options, &environment, err) < 0)
        return -1;
    int status = doctor_examine(environment, &doctor, err);
    free(environment);
    if (status < 0)
        return -1;
    status = strcmp(options.format, "json") == 0 ? doctor_print_json(doctor, stdout)
                                                 : doctor_print_text(doctor, stdout);
    int code = doctor_disturbed(doctor) ? error_exit_code(ERROR_FAILED) : 0;
    doctor_free(doctor);
    return status < 0 ? error_set(err, ERROR_INTERNAL, "cannot write the report") : code;
}

static int execute_keygen(int argc, char **argv, const struct words *all, struct error *err)
{
    struct options_run options;
    struct key_pair pair;
    (void)all;
    if (options_parse_keygen(argc, argv, &options, err) < 0 || link_draw_keys(&pair, err) < 0 ||
        keys_write(options.key, &pair, err) < 0)
        return -1;
    if (printf("%s: the pair, keep it to yourself\n%s.pub: what the other side may know\n", options.key,
               options.key) < 0 ||
        fflush(stdout) != 0)
        return error_set(err, ERROR_INTERNAL, "cannot write to stdout");
    return 0;
}

static int execute_list(int argc, char **argv, const struct words *all, struct error *err)
{
    struct options_list options;
    struct list *list;
    (void)all;
    if (options_parse_list(argc, argv, &options, err) < 0 || list_make(options.dir, &list, err) < 0)
        return -1;
    int printed =
        strcmp(options.format, "json") == 0 ? list_print_json(list, stdout) : list_print_text(list, stdout);
    list_free(list);
    return printed < 0 ? error_set(err, ERROR_INTERNAL, "cannot write the list") : 0;
}

static int execute_schema(int argc, char **argv, const struct words *all, struct error *err)
{
    (void)all;
    if (options_parse_schema(argc, argv, err) < 0)
        return -1;
    return sweep_schema_print(stdout) < 0 ? error_set(err, ERROR_INTERNAL, "cannot write the schema") : 0;
}

static const struct command commands[] = {
    {"run", "run a sweep; without a file, the built-in lab", execute_run},
    {"plan", "print the cells, their order, precision and time; run nothing", execute_plan},
    {"report", "rebuild any report of a run from its store", execute_report},
    {"compare", "what got slower between two runs, cell by cell", execute_compare},
    {"size", "the cores that a rate needs at a p99, by the windows of a run", execute_size},
    {"list", "the runs under a directory, newest first", execute_list},
    {"keygen", "make a key pair, so that hosts can trust each other", execute_keygen},
    {"doctor", "what on this machine disturbs measurements, with remedies", execute_doctor},
    {"schema", "print a JSON Schema of sweep files, for editors", execute_schema},
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    (void)fprintf(stream, "corefan %s (protocol %d.%d)\nbuilt with %s\n", COREFAN_VERSION, WIRE_MAJOR,
                  WIRE_MINOR, environment_build());
}

void (*argp_program_version_hook)(FILE *, struct argp_state *) = print_version;

static void print_help(FILE *stream)
{
    (void)fputs("corefan: how much CPU does a fan-out cost, and so how many can one core carry?\n\n"
                "Usage: corefan COMMAND [OPTION...]\n\nCommands:\n",
                stream);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        (void)fprintf(stream, "  %-8s %s\n", commands[i].name, commands[i].about);
    (void)fputs("\nExamples:\n"
                "  corefan run                         the built-in lab, about a minute\n"
                "  corefan run mine.yaml --set rounds=20\n"
                "  corefan report runs/lab-* --format csv\n"
                "\n'corefan COMMAND --help' tells the options of a command.\n",
                stream);
}

static const struct command *find_command(const char *name, struct error *err)
{
    struct nearest nearest = {.written = name};
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
        nearest_consider(&nearest, commands[i].name);
    }
    if (nearest.name)
        error_set(err, ERROR_USAGE, "unknown command '%.40s', did you mean '%s'?", name, nearest.name);
    else
        error_set(err, ERROR_USAGE, "unknown command '%.40s' (see corefan --help)", name);
    return NULL;
}

static int complain(const struct error *err)
{
    if (err->text[0] != '\0')
        (void)fprintf(stderr, "corefan: %s\n", err->text);
    streams_told();
    return error_exit_code(err->kind == ERROR_NONE ? ERROR_INTERNAL : err->kind);
}

int main(int argc, char **argv)
{
    struct error err = {0};
    streams_begin("corefan");
    scoped_free char **written = memory_zeroed((size_t)argc + 1, sizeof *argv);
    memcpy(written, argv, (size_t)argc * sizeof *argv);
    struct words all = {argc, written};
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that may grow no further is a write that failed */
    log_setup("corefan", LOG_WARNING);
    argp_err_exit_status = 2;
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        print_version(stdout, NULL);
        return 0;
    }
    const struct command *command = find_command(argv[1], &err);
    int code = command ? command->execute(argc - 1, argv + 1, &all, &err) : -1;
    return code < 0 ? complain(&err) : code;
}
