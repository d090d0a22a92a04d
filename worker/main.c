/* corefan-worker: one worker.  Puts its threads where they belong, then lets the session run. */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/streams.h"
#include "base/units.h"
#include "worker/arms/arm.h"
#include "worker/engine.h"
#include "worker/jobs/job.h"
#include "worker/pin.h"
#include "worker/session.h"
#include "worker/session_link.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <uv.h>

struct arguments {
    const char *endpoint, *label, *housekeeping;
    const char *key, *coordinator_key; /* files */
    int64_t cpu, slot, patience_ns;
    bool launched;
    bool quiet, verbose;
    struct error err;
};

enum option_key {
    OPTION_SLOT = 256,
    OPTION_LABEL,
    OPTION_HOUSEKEEPING,
    OPTION_PATIENCE,
    OPTION_KEY,
    OPTION_COORDINATOR_KEY
};

static const struct argp_option option_table[] = {
    {"connect", 'c', "ENDPOINT", 0,
     "Where the coordinator listens: tcp://127.0.0.1:5555 or ipc:///tmp/corefan", 0},
    {"cpu", 'p', "N", 0, "Pin the measured thread to this logical CPU", 0},
    {"housekeeping", OPTION_HOUSEKEEPING, "LIST", 0,
     "CPUs for the other threads (0,2-5), auto (any but the measured one) or none (the measured one). With a "
     "LIST apart "
     "from the measured CPU, heartbeats go out while it measures",
     0},
    {"label", OPTION_LABEL, "NAME", 0, "What sweeps and reports call this worker's runtime (default: libuv)",
     0},
    {"slot", OPTION_SLOT, "N", 0, "Number of the place that a launcher gave it; it then ends with its parent",
     0},
    {"patience", OPTION_PATIENCE, "DURATION", 0, "How long to wait for a lost coordinator (default: 60s)", 0},
    {"key", OPTION_KEY, "FILE", 0, "Our key pair (corefan keygen), for a coordinator that asks for one", 0},
    {"coordinator-key", OPTION_COORDINATOR_KEY, "FILE", 0, "The coordinator's public key", 0},
    {"quiet", 'q', NULL, 0, "Say nothing but errors", 0},
    {"verbose", 'v', NULL, 0, "Say more", 0},
    {0},
};

/* ---- the command line ---- */

static int read_number(const char *name, const char *text, int64_t most, int64_t *ret, struct error *err)
{
    const char *why = "too large";
    int64_t number;
    if (units_parse_count(text, &number, &why) < 0 || number > most)
        return error_set(err, ERROR_USAGE, "--%s '%s': %s", name, text, why);
    *ret = number;
    return 0;
}

static int read_patience(const char *text, int64_t *ret_ns, struct error *err)
{
    const char *why;
    int64_t ns;
    if (units_parse_duration(text, &ns, &why) < 0)
        return error_set(err, ERROR_USAGE, "--patience '%s': %s", text, why);
    *ret_ns = ns;
    return 0;
}

/* As a `name` of SPEC.md: what hello could not say is refused before anybody connects. */
static bool is_name(const char *text)
{
    struct wire_bytes frame;
    struct error err = {0};
    struct wire_message message = {.type = WIRE_WELCOME,
                                   .welcome = {.run = (char *)(uintptr_t)text, .heartbeat_ns = NS_PER_S}};
    if (wire_encode(&message, &frame, &err) < 0)
        return false;
    free(frame.data);
    return true;
}

static int read_label(const char *text, const char **ret, struct error *err)
{
    if (text[0] == '\0' || strlen(text) > 128 || !is_name(text))
        return error_set(err, ERROR_USAGE,
                         "--label: not a name of 1 to 128 bytes of UTF-8 without control characters");
    *ret = text;
    return 0;
}

static int check_arguments(const struct arguments *arguments, struct error *err)
{
    if (!arguments->endpoint)
        return error_set(err, ERROR_USAGE, "--connect is missing: where does the coordinator listen?");
    if (!arguments->key != !arguments->coordinator_key)
        return error_set(err, ERROR_USAGE, "--key and --coordinator-key belong together: say both, or none");
    return session_check_endpoint(arguments->endpoint, arguments->key != NULL, err);
}

static error_t take_option(int key, char *text, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    struct error *err = &arguments->err;
    int rc = 0;
    if (err->kind != ERROR_NONE) /* one mistake is told, the first */
        return 0;
    switch (key) {
    case 'c':
        arguments->endpoint = text;
        break;
    case OPTION_KEY:
        arguments->key = text;
        break;
    case OPTION_COORDINATOR_KEY:
        arguments->coordinator_key = text;
        break;
    case 'p':
        rc = read_number("cpu", text, INT_MAX, &arguments->cpu, err);
        break;
    case OPTION_SLOT:
        arguments->launched = true;
        rc = read_number("slot", text, 65535, &arguments->slot, err);
        break;
    case OPTION_LABEL:
        rc = read_label(text, &arguments->label, err);
        break;
    case OPTION_HOUSEKEEPING:
        arguments->housekeeping = text;
        break;
    case OPTION_PATIENCE:
        rc = read_patience(text, &arguments->patience_ns, err);
        break;
    case 'q':
        arguments->quiet = true;
        break;
    case 'v':
        arguments->verbose = true;
        break;
    case ARGP_KEY_ARG:
        rc = error_set(err, ERROR_USAGE, "unexpected argument '%s'", text);
        break;
    case ARGP_KEY_END:
        rc = check_arguments(arguments, err);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    (void)rc; /* told by err */
    return 0;
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    (void)fprintf(stream, "corefan-worker %s (protocol %d.%d)\n", COREFAN_VERSION, WIRE_MAJOR, WIRE_MINOR);
}

void (*argp_program_version_hook)(FILE *, struct argp_state *) = print_version;

static int read_command_line(int argc, char **argv, struct arguments *ret)
{
    static const struct argp parser = {
        .options = option_table,
        .parser = take_option,
        .doc = "Measures fan-outs on one core for a corefan coordinator."
               "\vIt ends when the coordinator says so.\n"
               "Example:\n"
               "  corefan-worker --connect tcp://127.0.0.1:5555 --cpu 1\n"
               "Exit codes: 0 done, 1 the coordinator or the loop was lost, 2 bad command line, or refused.",
    };
    argp_err_exit_status = 2;
    *ret = (struct arguments){.cpu = -1, .slot = WIRE_NULL, .patience_ns = 60 * NS_PER_S, .label = "libuv"};
    if (argp_parse(&parser, argc, argv, 0, NULL, ret) != 0)
        return error_set(&ret->err, ERROR_USAGE, "bad command line");
    return ret->err.kind == ERROR_NONE ? 0 : -1;
}

/* ---- threads and their places ---- */

/* A launched worker must not outlive its launcher, whatever ends that one, not even when it is stopped itself. */
static int bind_to_parent(const struct arguments *arguments, pid_t parent, struct error *err)
{
    if (!arguments->launched)
        return 0;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return error_set(err, ERROR_INTERNAL, "cannot bind to the parent: %s", strerror(errno));
    if (getppid() != parent)
        return error_set(err, ERROR_INTERNAL, "the launcher is gone");
    return 0;
}

static int place_threads(const struct arguments *arguments, bool *ret_apart, struct error *err)
{
    cpu_set_t allowed;
    struct pin_housekeeping house;
    if (pin_allowed(&allowed, err) < 0 ||
        (arguments->cpu >= 0 && pin_check(arguments->cpu, &allowed, err) < 0) ||
        pin_choose_housekeeping(arguments->housekeeping, arguments->cpu, &allowed, &house, err) < 0)
        return -1;
    *ret_apart = house.apart;
    return pin_this_thread(&house.cpus, err);
}

/* ---- what hello says ---- */

struct facts {
    struct utsname system;
    char host[256], boot_id[64], instance[33], zmq[32];
};

static void read_boot_id(char *buf, size_t size)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    (void)snprintf(buf, size, "unknown");
    if (!file)
        return;
    if (fgets(buf, (int)size, file))
        buf[strcspn(buf, "\n")] = '\0';
    (void)fclose(file);
}

static int draw_instance(char ret[33], struct error *err)
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return error_set(err, ERROR_INTERNAL, "no random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static int gather_facts(struct facts *ret, struct error *err)
{
    (void)uname(&ret->system);
    if (gethostname(ret->host, sizeof ret->host) < 0 || ret->host[0] == '\0')
        (void)snprintf(ret->host, sizeof ret->host, "unknown");
    ret->host[sizeof ret->host - 1] = '\0';
    read_boot_id(ret->boot_id, sizeof ret->boot_id);
    (void)session_link_version(ret->zmq, sizeof ret->zmq);
    return draw_instance(ret->instance, err);
}

static void add_version(struct wire_hello *hello, const char *name, const char *value)
{
    hello->versions.at =
        memory_resized(hello->versions.at, hello->versions.count + 1, sizeof *hello->versions.at);
    hello->versions.at[hello->versions.count++] =
        (struct wire_pair){.name = memory_text(name), .value = memory_text(value)};
}

static void add_text(struct wire_texts *texts, const char *text)
{
    texts->at = memory_resized(texts->at, texts->count + 1, sizeof *texts->at);
    texts->at[texts->count++] = memory_text(text);
}

static void fill_lists(struct wire_hello *hello, const struct facts *facts)
{
    add_version(hello, "corefan", COREFAN_VERSION);
    add_version(hello, "libuv", uv_version_string());
    add_version(hello, "libzmq", facts->zmq);
    add_version(hello, "msgpack", COREFAN_MSGPACK_VERSION);
    add_version(hello, "compiler", __VERSION__);
    add_version(hello, "kernel", facts->system.release);
    for (size_t i = 0; i < arm_count(); i++)
        add_text(&hello->arms, arm_at(i)->name);
    for (size_t i = 0; i < job_count(); i++)
        add_text(&hello->jobs, job_at(i)->name);
}

static void fill_hello(struct wire_hello *hello, const struct arguments *arguments, struct facts *facts,
                       const struct noise *noise)
{
    struct pin_place place = {WIRE_NULL, WIRE_NULL, WIRE_NULL, WIRE_NULL};
    static char runtime[] = "libuv";
    if (arguments->cpu >= 0)
        pin_locate(arguments->cpu, &place);
    *hello = (struct wire_hello){
        .instance = facts->instance,
        .runtime = runtime,
        .label = (char *)(uintptr_t)arguments->label,
        .host = facts->host,
        .boot_id = facts->boot_id,
        .pid = getpid(),
        .slot = arguments->slot,
        .cpu = arguments->cpu >= 0 ? arguments->cpu : WIRE_NULL,
        .package = place.package,
        .numa = place.numa,
        .core = place.core,
        .l3 = place.l3,
        .wall_clock_cost_ps = noise->wall_clock_cost_ps,
        .cpu_clock_cost_ps = noise->cpu_clock_cost_ps,
        .timer_overshoot_p50_ns = noise->timer_overshoot_p50_ns,
        .timer_overshoot_max_ns = noise->timer_overshoot_max_ns,
        .spin_gap_max_ns = noise->spin_gap_max_ns,
    };
    fill_lists(hello, facts);
}

static void release_hello(struct wire_hello *hello)
{
    for (size_t i = 0; i < hello->versions.count; i++) {
        free(hello->versions.at[i].name);
        free(hello->versions.at[i].value);
    }
    for (size_t i = 0; i < hello->arms.count; i++)
        free(hello->arms.at[i]);
    for (size_t i = 0; i < hello->jobs.count; i++)
        free(hello->jobs.at[i]);
    free(hello->versions.at);
    free(hello->arms.at);
    free(hello->jobs.at);
}

/* ---- the whole ---- */

static void block_signals(void)
{
    sigset_t signals;
    session_signals(&signals);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

static int serve(const struct arguments *arguments, pid_t parent, struct error *err)
{
    struct session_options options = {.endpoint = arguments->endpoint, .patience_ns = arguments->patience_ns};
    struct session_keys keys;
    if (arguments->key) {
        if (keys_read_pair(arguments->key, &keys.own, err) < 0 ||
            keys_read_public(arguments->coordinator_key, keys.coordinator, err) < 0)
            return -1;
        options.keys = &keys;
    }
    struct facts facts = {0};
    struct engine *engine;
    bool apart = false;
    if (bind_to_parent(arguments, parent, err) < 0 || arm_check(err) < 0 || job_check(err) < 0 ||
        place_threads(arguments, &apart, err) < 0 || gather_facts(&facts, err) < 0 ||
        engine_start(arguments->cpu, &engine, err) < 0)
        return -1;
    fill_hello(&options.hello, arguments, &facts, engine_noise(engine));
    options.hello.busy_heartbeats = apart;
    int rc = session_run(&options, engine, err);
    release_hello(&options.hello);
    if (!engine_stop(engine, 300 * NS_PER_MS)) {
        /* Its thread is in the middle of a round: no way to end it but with the process. */
        int code = rc < 0 ? error_exit_code(err->kind) : 0;
        if (rc < 0)
            log_line(LOG_ERROR, "%s", err->text);
        _exit(code);
    }
    return rc;
}

int main(int argc, char **argv)
{
    pid_t parent = getppid();
    struct arguments arguments;
    streams_begin("corefan-worker");
    log_setup("corefan-worker", LOG_WARNING);
    block_signals();
    int rc = read_command_line(argc, argv, &arguments);
    if (rc == 0) {
        enum log_level usual = arguments.launched ? LOG_WARNING : LOG_INFO;
        log_setup("corefan-worker", arguments.quiet ? LOG_ERROR : arguments.verbose ? LOG_DEBUG : usual);
        rc = serve(&arguments, parent, &arguments.err);
    }
    if (rc == 0)
        return 0;
    log_line(LOG_ERROR, "%s", arguments.err.text);
    return error_exit_code(arguments.err.kind);
}
