#include "worker/counters.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
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

void counters_open(struct counters *ret)
{
    ret->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ret->cycles = open_event(PERF_COUNT_HW_CPU_CYCLES, -1);
    ret->instructions = ret->cycles < 0 ? -1 : open_event(PERF_COUNT_HW_INSTRUCTIONS, ret->cycles);
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
}

/* schedstat is "time on CPU, time waiting on a run queue, time slices", ns. */
static int64_t read_runq_ns(int file)
{
    char text[96];
    long long waited;
    ssize_t got = file < 0 ? -1 : pread(file, text, sizeof text - 1, 0);
    if (got <= 0)
        return WIRE_NULL;
    text[got] = '\0';
    return sscanf(text, "%*s %lld", &waited) == 1 ? waited : WIRE_NULL;
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
    read_pmu(counters, ret);
    ret->cpu = sched_getcpu();
}

static int64_t grown(int64_t before, int64_t after)
{
    return before == WIRE_NULL || after == WIRE_NULL ? WIRE_NULL : after - before;
}

void counters_fill(const struct counters_sample *before, const struct counters_sample *after,
                   struct wire_round *round)
{
    round->switches_voluntary = grown(before->switches_voluntary, after->switches_voluntary);
    round->switches_involuntary = grown(before->switches_involuntary, after->switches_involuntary);
    round->faults_minor = grown(before->faults_minor, after->faults_minor);
    round->faults_major = grown(before->faults_major, after->faults_major);
    round->runq_ns = grown(before->runq_ns, after->runq_ns);
    round->cycles = grown(before->cycles, after->cycles);
    round->instructions = grown(before->instructions, after->instructions);
    round->cpu_start = before->cpu;
    round->cpu_end = after->cpu;
}
