#include "coordinator/fleet/launch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_DELAY_NS   (100 * NS_PER_MS)
#define LONGEST_DELAY_NS (5 * NS_PER_S)
#define YOUNG_NS         (10 * NS_PER_S)
#define LINE_BYTES       400

/* Which program runs which kind of runtime. */
static const struct program {
    const char *kind;
    const char *name;
    const char *loop; /* for --loop, or NULL */
    const char *remedy;
} programs[] = {
    {"libuv", "corefan-worker", NULL, "it comes with corefan: build or install it again"},
    {"asyncio", "corefan-worker-asyncio", "asyncio",
     "it comes with corefan (cmake --install) and wants python3-zmq and python3-msgpack"},
    {"uvloop", "corefan-worker-asyncio", "uvloop",
     "it comes with corefan (cmake --install) and wants python3-uvloop, python3-zmq and python3-msgpack"},
};

struct slot {
    char **argv; /* NULL-terminated */
    int64_t cpu;
    pid_t pid; /* 0: not running */
    int stderr_fd;
    int64_t started_ns, due_ns;
    int64_t early, young, starts;
    int64_t leave_by_ns; /* it was told to end; 0: not so */
    bool registered, over;
    char line[LINE_BYTES]; /* what it is writing */
    size_t line_bytes;
    char last_line[LINE_BYTES];
};

struct launch {
    char *worker, *endpoint, *housekeeping, *key;
    char *directory; /* of our own program */
    cpu_set_t affinity;
    int lifeline_read, lifeline_write;
    int epoll_fd;
    struct slot *slots;
    size_t count;
    struct launch_event *events;
    size_t event_count, event_read;
    bool no_more;
};

/* -- programs and arguments --------------------------------------------------------------------------------- */

static const struct program *program_of(const char *kind)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strcmp(programs[i].kind, kind) == 0)
            return &programs[i];
    return NULL;
}

static char *own_directory(void)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return memory_text(".");
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    return memory_text(path);
}

static char *program_path(const struct launch *launch, const struct program *program)
{
    const char *named = launch->worker ? launch->worker : getenv("COREFAN_WORKER");
    if (program == &programs[0] && named && *named)
        return memory_text(named);
    return memory_format("%s/%s", launch->directory, program->name);
}

struct arguments {
    char **at;
    size_t count;
};

static void add(struct arguments *arguments, char *text)
{
    arguments->at = memory_resized(arguments->at, arguments->count + 2, sizeof *arguments->at);
    arguments->at[arguments->count++] = text;
    arguments->at[arguments->count] = NULL;
}

static void add_option(struct arguments *arguments, const char *option, const char *value)
{
    if (!value)
        return;
    add(arguments, memory_text(option));
    add(arguments, memory_text(value));
}

static char **slot_arguments(const struct launch *launch, const struct plan_runtime *runtime,
                             const struct program *program, char *path, int64_t cpu)
{
    struct arguments arguments = {0};
    scoped_free char *cpu_text = memory_format("%lld", (long long)cpu);
    scoped_free char *slot_text = memory_format("%zu", launch->count);
    if (runtime->python)
        add(&arguments, memory_text(runtime->python));
    add(&arguments, path);
    add_option(&arguments, "--connect", launch->endpoint);
    add_option(&arguments, "--cpu", cpu_text);
    add_option(&arguments, "--slot", slot_text);
    add_option(&arguments, "--label", runtime->label);
    add_option(&arguments, "--housekeeping", launch->housekeeping);
    add_option(&arguments, "--key", launch->key);
    add_option(&arguments, "--coordinator-key", launch->key);
    add_option(&arguments, "--loop", program->loop);
    if (runtime->eager)
        add(&arguments, memory_text("--eager"));
    add_option(&arguments, "--path", runtime->path);
    for (size_t i = 0; i < runtime->jobs.count; i++) {
        scoped_free char *job = memory_format("%s=%s", runtime->jobs.at[i].name, runtime->jobs.at[i].value);
        add_option(&arguments, "--job", job);
    }
    return arguments.at;
}

/* An interpreter without a '/' in its name is looked for in PATH, when it is started. */
static int check_interpreter(const struct plan_runtime *runtime, struct error *err)
{
    if (!runtime->python || !strchr(runtime->python, '/') || access(runtime->python, X_OK) == 0)
        return 0;
    return error_set(err, ERROR_USAGE, "runtime '%s' wants the interpreter '%s': %s", runtime->label,
                     runtime->python, strerror(errno));
}

int launch_add(struct launch *launch, const struct plan_runtime *runtime, int64_t cpu, struct error *err)
{
    const struct program *program = program_of(runtime->kind);
    if (!program)
        return error_set(err, ERROR_USAGE, "runtime '%s' is of the kind '%s', for which there is no worker",
                         runtime->label, runtime->kind);
    if (check_interpreter(runtime, err) < 0)
        return -1;
    char *path = program_path(launch, program);
    if (access(path, X_OK) < 0) {
        error_set(err, ERROR_USAGE, "runtime '%s' wants the worker '%s': %s; %s", runtime->label, path,
                  strerror(errno), program->remedy);
        free(path);
        return -1;
    }
    launch->slots = memory_resized(launch->slots, launch->count + 1, sizeof *launch->slots);
    launch->slots[launch->count] = (struct slot){
        .argv = slot_arguments(launch, runtime, program, path, cpu), .cpu = cpu, .stderr_fd = -1};
    launch->count++;
    return 0;
}

/* -- life --------------------------------------------------------------------------------------------------- */

int launch_new(const struct launch_config *config, struct launch **ret, struct error *err)
{
    int lifeline[2];
    if (pipe2(lifeline, O_CLOEXEC) < 0)
        return error_set(err, ERROR_INTERNAL, "cannot make a pipe: %s", strerror(errno));
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) {
        error_set(err, ERROR_INTERNAL, "cannot make an epoll file: %s", strerror(errno));
        close(lifeline[0]);
        close(lifeline[1]);
        return -1;
    }
    struct launch *launch = memory_zeroed(1, sizeof *launch);
    launch->worker = memory_text(config->worker);
    launch->endpoint = memory_text(config->endpoint);
    launch->housekeeping = memory_text(config->housekeeping);
    launch->key = config->key ? memory_text(config->key) : NULL;
    launch->directory = own_directory();
    launch->lifeline_read = lifeline[0];
    launch->lifeline_write = lifeline[1];
    launch->epoll_fd = epoll_fd;
    if (sched_getaffinity(0, sizeof launch->affinity, &launch->affinity) < 0)
        CPU_ZERO(&launch->affinity);
    *ret = launch;
    return 0;
}

static void slot_release(struct slot *slot)
{
    for (size_t i = 0; slot->argv[i]; i++)
        free(slot->argv[i]);
    free(slot->argv);
    if (slot->stderr_fd >= 0)
        close(slot->stderr_fd);
}

void launch_free(struct launch *launch)
{
    if (!launch)
        return;
    launch->no_more = true;
    for (size_t i = 0; i < launch->count; i++)
        launch_kill(launch, (int64_t)i);
    for (size_t i = 0; i < launch->count; i++) {
        if (launch->slots[i].pid)
            while (waitpid(launch->slots[i].pid, NULL, 0) < 0 && errno == EINTR)
                ;
        slot_release(&launch->slots[i]);
    }
    while (launch->event_read < launch->event_count)
        free(launch->events[launch->event_read++].text);
    free(launch->events);
    free(launch->slots);
    close(launch->epoll_fd);
    close(launch->lifeline_read);
    close(launch->lifeline_write);
    free(launch->worker);
    free(launch->endpoint);
    free(launch->housekeeping);
    free(launch->key);
    free(launch->directory);
    free(launch);
}

size_t launch_slot_count(const struct launch *launch)
{
    return launch->count;
}

/* -- starting ----------------------------------------------------------------------------------------------- */

/* In the child, between fork and exec: calls that are safe there alone.  Tells errno through report_fd. */
static void become_worker(const struct launch *launch, const struct slot *slot, pid_t parent, int stderr_fd,
                          int report_fd)
{
    sigset_t none;
    sigemptyset(&none);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(127);
    setpgid(0, 0);
    if (CPU_COUNT(&launch->affinity) > 0)
        sched_setaffinity(0, sizeof launch->affinity, &launch->affinity);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int status = dup2(launch->lifeline_read, STDIN_FILENO);
    if (status >= 0)
        status = dup2(stderr_fd, STDOUT_FILENO); /* our own stdout holds results alone */
    if (status >= 0)
        status = dup2(stderr_fd, STDERR_FILENO);
    if (status >= 0)
        execvp(slot->argv[0], slot->argv);
    int failure = errno;
    ssize_t told = write(report_fd, &failure, sizeof failure);
    _exit(told == sizeof failure ? 127 : 126);
}

/* 0, or the errno of the exec that failed. */
static int exec_failure(int report_fd)
{
    int failure = 0;
    ssize_t got;
    do
        got = read(report_fd, &failure, sizeof failure);
    while (got < 0 && errno == EINTR);
    return got == sizeof failure ? failure : 0;
}

static int fork_worker(struct launch *launch, struct slot *slot, int errors[2], int report[2],
                       struct error *err)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        become_worker(launch, slot, parent, errors[1], report[1]);
    close(errors[1]);
    close(report[1]);
    if (pid < 0) {
        close(errors[0]);
        close(report[0]);
        return error_set(err, ERROR_INTERNAL, "cannot start a process: %s", strerror(errno));
    }
    setpgid(pid, pid); /* both sides: whoever comes first */
    int failure = exec_failure(report[0]);
    close(report[0]);
    slot->stderr_fd = errors[0];
    if (failure) {
        waitpid(pid, NULL, 0);
        return error_set(err, ERROR_USAGE, "cannot start '%s': %s", slot->argv[0], strerror(failure));
    }
    slot->pid = pid;
    return 0;
}

static int slot_start(struct launch *launch, struct slot *slot, int64_t now_ns, struct error *err)
{
    int errors[2], report[2];
    if (slot->stderr_fd >= 0)
        close(slot->stderr_fd);
    slot->stderr_fd = -1;
    if (pipe2(errors, O_CLOEXEC) < 0)
        return error_set(err, ERROR_INTERNAL, "cannot make a pipe: %s", strerror(errno));
    if (pipe2(report, O_CLOEXEC) < 0) {
        close(errors[0]);
        close(errors[1]);
        return error_set(err, ERROR_INTERNAL, "cannot make a pipe: %s", strerror(errno));
    }
    slot->registered = false;
    slot->line_bytes = 0;
    slot->last_line[0] = '\0';
    slot->started_ns = now_ns;
    slot->starts++;
    if (fork_worker(launch, slot, errors, report, err) < 0)
        return -1;
    fcntl(slot->stderr_fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)(slot - launch->slots)};
    epoll_ctl(launch->epoll_fd, EPOLL_CTL_ADD, slot->stderr_fd, &event);
    return 0;
}

static bool slot_waits(const struct launch *launch, const struct slot *slot)
{
    return !launch->no_more && slot->pid == 0 && !slot->over;
}

static bool slot_leaves(const struct slot *slot)
{
    return slot->pid != 0 && slot->leave_by_ns > 0;
}

int launch_due(struct launch *launch, int64_t now_ns, struct error *err)
{
    for (size_t i = 0; i < launch->count; i++) {
        struct slot *slot = &launch->slots[i];
        if (slot_leaves(slot) && slot->leave_by_ns <= now_ns) {
            launch_kill(launch, (int64_t)i);
            slot->leave_by_ns = now_ns + LAUNCH_LEAVE_NS;
        }
        if (slot_waits(launch, slot) && slot->due_ns <= now_ns && slot_start(launch, slot, now_ns, err) < 0)
            return -1;
    }
    return 0;
}

int64_t launch_next_due_ns(const struct launch *launch)
{
    int64_t next = INT64_MAX;
    for (size_t i = 0; i < launch->count; i++) {
        const struct slot *slot = &launch->slots[i];
        if (slot_waits(launch, slot) && slot->due_ns < next)
            next = slot->due_ns;
        if (slot_leaves(slot) && slot->leave_by_ns < next)
            next = slot->leave_by_ns;
    }
    return next;
}

/* -- what they write ---------------------------------------------------------------------------------------- */

int launch_fd(const struct launch *launch)
{
    return launch->epoll_fd;
}

static void line_end(struct slot *slot)
{
    if (slot->line_bytes == 0)
        return;
    slot->line[slot->line_bytes] = '\0';
    slot->line_bytes = 0;
    for (char *at = slot->line; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    memcpy(slot->last_line, slot->line, sizeof slot->last_line);
    log_line(LOG_INFO, "cpu %lld: %s", (long long)slot->cpu, slot->line);
}

static void take_text(struct slot *slot, const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (text[i] == '\n')
            line_end(slot);
        else if (slot->line_bytes < LINE_BYTES - 1)
            slot->line[slot->line_bytes++] = text[i];
    }
}

/* Bounded per call, so that a worker that writes without end cannot keep us here. */
static void slot_read(struct launch *launch, struct slot *slot)
{
    char text[4096];
    for (int turn = 0; slot->stderr_fd >= 0 && turn < 16; turn++) {
        ssize_t got = read(slot->stderr_fd, text, sizeof text);
        if (got > 0) {
            take_text(slot, text, (size_t)got);
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            epoll_ctl(launch->epoll_fd, EPOLL_CTL_DEL, slot->stderr_fd, NULL);
            close(slot->stderr_fd);
            slot->stderr_fd = -1;
        } else {
            return;
        }
    }
}

void launch_read(struct launch *launch)
{
    struct epoll_event events[64];
    int count = epoll_wait(launch->epoll_fd, events, 64, 0);
    for (int i = 0; i < count; i++)
        slot_read(launch, &launch->slots[events[i].data.u64]);
}

/* -- their end ---------------------------------------------------------------------------------------------- */

static char *story_of(const struct slot *slot, int status)
{
    const char *last = slot->last_line;
    const char *before = *last ? ": " : "";
    if (WIFSIGNALED(status))
        return memory_format("its process was ended by signal %d (%s)%s%s", WTERMSIG(status),
                             strsignal(WTERMSIG(status)), before, last);
    return memory_format("its process ended with exit status %d%s%s", WEXITSTATUS(status), before, last);
}

static void plan_restart(struct slot *slot, int64_t now_ns)
{
    int64_t delay = FIRST_DELAY_NS;
    slot->early = slot->registered ? 0 : slot->early + 1;
    slot->young = now_ns - slot->started_ns < YOUNG_NS ? slot->young + 1 : 0;
    for (int64_t i = 1; i < slot->young && delay < LONGEST_DELAY_NS; i++)
        delay *= 2;
    slot->due_ns = now_ns + (delay < LONGEST_DELAY_NS ? delay : LONGEST_DELAY_NS);
    slot->over = slot->early >= LAUNCH_MAX_EARLY || slot->starts > LAUNCH_MAX_RESTARTS;
}

/* Its own exit code for "not here": something is missing, and starting it again will not bring it. */
static bool is_refusal(const struct slot *slot, int status)
{
    return !slot->registered && WIFEXITED(status) && WEXITSTATUS(status) == error_exit_code(ERROR_USAGE);
}

/* It ended as it was asked to. */
static void slot_renew(struct slot *slot, int64_t now_ns)
{
    slot->leave_by_ns = 0;
    slot->due_ns = now_ns;
    slot->starts--;
}

static void event_add(struct launch *launch, struct launch_event event)
{
    if (launch->event_read == launch->event_count)
        launch->event_read = launch->event_count = 0;
    launch->events = memory_resized(launch->events, launch->event_count + 1, sizeof *launch->events);
    launch->events[launch->event_count++] = event;
}

void launch_reap(struct launch *launch, int64_t now_ns)
{
    for (size_t i = 0; i < launch->count; i++) {
        struct slot *slot = &launch->slots[i];
        int status;
        if (!slot->pid || waitpid(slot->pid, &status, WNOHANG) != slot->pid)
            continue;
        kill(-slot->pid, SIGKILL); /* what it may have started itself */
        slot->pid = 0;
        slot_read(launch, slot);
        line_end(slot);
        if (slot->leave_by_ns > 0) {
            slot_renew(slot, now_ns);
            continue;
        }
        bool refused = is_refusal(slot, status);
        plan_restart(slot, now_ns);
        slot->over = slot->over || refused;
        event_add(launch, (struct launch_event){.slot = (int64_t)i,
                                                .over = slot->over,
                                                .refused = refused,
                                                .text = story_of(slot, status)});
    }
}

bool launch_next_event(struct launch *launch, struct launch_event *ret)
{
    if (launch->event_read == launch->event_count)
        return false;
    *ret = launch->events[launch->event_read++];
    return true;
}

void launch_registered(struct launch *launch, int64_t slot)
{
    if (slot >= 0 && (size_t)slot < launch->count)
        launch->slots[slot].registered = true;
}

void launch_kill(struct launch *launch, int64_t slot)
{
    if (slot < 0 || (size_t)slot >= launch->count || launch->slots[slot].pid == 0)
        return;
    kill(-launch->slots[slot].pid, SIGKILL);
    kill(launch->slots[slot].pid, SIGKILL);
}

void launch_renew(struct launch *launch, int64_t slot, int64_t now_ns)
{
    if (slot >= 0 && (size_t)slot < launch->count && launch->slots[slot].pid != 0)
        launch->slots[slot].leave_by_ns = now_ns + LAUNCH_LEAVE_NS;
}

void launch_no_more(struct launch *launch)
{
    launch->no_more = true;
}

int64_t launch_running(const struct launch *launch)
{
    int64_t running = 0;
    for (size_t i = 0; i < launch->count; i++)
        running += launch->slots[i].pid != 0;
    return running;
}
