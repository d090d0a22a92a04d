#include "worker/counters.h"

#include "base/memory.h"
#include "worker/cgroup.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_event(uint64_t config, int leader)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_HARDWARE,
        .size = sizeof attr,
        .config = config,
        .exclude_kernel = 1,
        .exclude_hv = 1,
        .read_format = PERF_FORMAT_GROUP,
    };
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
}

static int open_file(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* A whole file of /proc; NULL, or free() it. */
static char *read_whole(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "re");
    ssize_t got = file ? getdelim(&text, &size, '\0', file) : -1;
    if (file)
        (void)fclose(file);
    if (got < 0) {
        free(text);
        return NULL;
    }
    return text;
}

static int open_cpu_stat(void)
{
    scoped_free char *cgroups = read_whole("/proc/self/cgroup");
    scoped_free char *mounts = read_whole("/proc/self/mountinfo");
    scoped_free char *path = cgroups && mounts ? cgroup_cpu_stat_path(cgroups, mounts) : NULL;
    return path ? open_file(path) : -1;
}

/* The only CPU that the calling thread may run on, or WIRE_NULL. */
static int64_t pinned_cpu(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0 || CPU_COUNT(&allowed) != 1)
        return WIRE_NULL;
    int64_t cpu = 0;
    while (!CPU_ISSET((size_t)cpu, &allowed))
        cpu++;
    return cpu;
}

static void open_files_of_cpu(struct counters *counters)
{
    enum { line_bytes = 256 }; /* "cpu4095" and ten numbers of 20 digits */
    scoped_free char *path =
        memory_format("/sys/devices/system/cpu/cpu%lld/cpufreq/scaling_cur_freq", (long long)counters->cpu);
    counters->frequency = open_file(path);
    counters->stat = open_file("/proc/stat");
    counters->stat_size = line_bytes * (size_t)(counters->cpu + 2); /* a line for all CPUs comes first */
    counters->stat_text = memory_zeroed(counters->stat_size, 1);
}

void counters_open(struct counters *ret)
{
    *ret = (struct counters){.schedstat = open_file("/proc/thread-self/schedstat"),
                             .cycles = open_event(PERF_COUNT_HW_CPU_CYCLES, -1),
                             .instructions = -1,
                             .cpu_stat = open_cpu_stat(),
                             .frequency = -1,
                             .stat = -1,
                             .cpu = pinned_cpu()};
    if (ret->cycles >= 0)
        ret->instructions = open_event(PERF_COUNT_HW_INSTRUCTIONS, ret->cycles);
    if (ret->cpu != WIRE_NULL)
        open_files_of_cpu(ret);
}

static void close_file(int *file)
{
    if (*file >= 0)
        (void)close(*file);
    *file = -1;
}

void counters_close(struct counters *counters)
{
    close_file(&counters->schedstat);
    close_file(&counters->instructions);
    close_file(&counters->cycles);
    close_file(&counters->cpu_stat);
    close_file(&counters->frequency);
    close_file(&counters->stat);
    free(counters->stat_text);
    counters->stat_text = NULL;
}

/* The file's text as it is now, from its start. */
static bool read_text(int file, char *text, size_t size)
{
    ssize_t got = file < 0 ? -1 : pread(file, text, size - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* schedstat is "time on CPU, time waiting on a run queue, time slices", ns. */
static int64_t read_runq_ns(int file)
{
    char text[96];
    long long waited;
    return read_text(file, text, sizeof text) && sscanf(text, "%*s %lld", &waited) == 1 ? waited : WIRE_NULL;
}

static void read_throttling(int file, struct counters_sample *ret)
{
    char text[1024];
    struct cgroup_throttling throttling = {WIRE_NULL, WIRE_NULL};
    if (read_text(file, text, sizeof text))
        cgroup_parse_throttling(text, &throttling);
    ret->throttles = throttling.periods;
    ret->throttled_ns = throttling.held_ns;
}

int64_t counters_frequency_khz(const struct counters *counters)
{
    char text[32];
    long long khz;
    return read_text(counters->frequency, text, sizeof text) && sscanf(text, "%lld", &khz) == 1 && khz >= 0
               ? khz
               : WIRE_NULL;
}

/* "cpu1 user nice system idle iowait irq softirq steal ..." */
static const char *stat_line(const struct counters *counters)
{
    char head[32];
    if (counters->stat < 0 || !read_text(counters->stat, counters->stat_text, counters->stat_size))
        return NULL;
    (void)snprintf(head, sizeof head, "\ncpu%lld ", (long long)counters->cpu);
    const char *line = strstr(counters->stat_text, head);
    return line ? line + strlen(head) : NULL;
}

int64_t counters_steal_ticks(const struct counters *counters)
{
    long long ticks;
    const char *line = stat_line(counters);
    return line && sscanf(line, "%*s %*s %*s %*s %*s %*s %*s %lld", &ticks) == 1 && ticks >= 0 ? ticks
                                                                                               : WIRE_NULL;
}

int64_t counters_busy_ticks(const struct counters *counters)
{
    long long user, nice, system, irq, softirq;
    const char *line = stat_line(counters);
    return line && sscanf(line, "%lld %lld %lld %*s %*s %lld %lld", &user, &nice, &system, &irq, &softirq) ==
                       5
               ? user + nice + system + irq + softirq
               : WIRE_NULL;
}

static void read_pmu(const struct counters *counters, struct counters_sample *ret)
{
    struct {
        uint64_t count;
        uint64_t values[2];
    } group;
    ret->cycles = ret->instructions = WIRE_NULL;
    if (counters->instructions < 0 || read(counters->cycles, &group, sizeof group) != (ssize_t)sizeof group)
        return;
    ret->cycles = (int64_t)group.values[0];
    ret->instructions = (int64_t)group.values[1];
}

void counters_read(const struct counters *counters, struct counters_sample *ret)
{
    struct rusage usage = {0};
    (void)getrusage(RUSAGE_THREAD, &usage);
    ret->switches_voluntary = usage.ru_nvcsw;
    ret->switches_involuntary = usage.ru_nivcsw;
    ret->faults_minor = usage.ru_minflt;
    ret->faults_major = usage.ru_majflt;
    ret->runq_ns = read_runq_ns(counters->schedstat);
    read_throttling(counters->cpu_stat, ret);
    read_pmu(counters, ret);
    ret->cpu = sched_getcpu();
}

int64_t counters_grown(int64_t before, int64_t after)
{
    return before == WIRE_NULL || after == WIRE_NULL ? WIRE_NULL : after - before;
}

void counters_fill(const struct counters_sample *before, const struct counters_sample *after,
                   struct wire_round *round)
{
    round->switches_voluntary = counters_grown(before->switches_voluntary, after->switches_voluntary);
    round->switches_involuntary = counters_grown(before->switches_involuntary, after->switches_involuntary);
    round->faults_minor = counters_grown(before->faults_minor, after->faults_minor);
    round->faults_major = counters_grown(before->faults_major, after->faults_major);
    round->runq_ns = counters_grown(before->runq_ns, after->runq_ns);
    round->throttles = counters_grown(before->throttles, after->throttles);
    round->throttled_ns = counters_grown(before->throttled_ns, after->throttled_ns);
    round->cycles = counters_grown(before->cycles, after->cycles);
    round->instructions = counters_grown(before->instructions, after->instructions);
    round->cpu_start = before->cpu;
    round->cpu_end = after->cpu;
}
