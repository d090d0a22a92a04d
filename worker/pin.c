#include "worker/pin.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOT_KNOWN INT64_MIN

/* Reads a CPU number and moves *text past it; -1 when there is none or it is too large. */
static int64_t take_number(const char **text)
{
    const char *at = *text;
    int64_t number = 0;
    if (*at < '0' || *at > '9')
        return -1;
    for (; *at >= '0' && *at <= '9'; at++) {
        number = number * 10 + (*at - '0');
        if (number >= CPU_SETSIZE)
            return -1;
    }
    *text = at;
    return number;
}

/* One part of a list: "3" or "2-5". */
static int take_range(const char **text, cpu_set_t *cpus)
{
    int64_t first = take_number(text);
    int64_t last = first;
    if (first >= 0 && **text == '-') {
        ++*text;
        last = take_number(text);
    }
    if (first < 0 || last < first)
        return -1;
    for (int64_t cpu = first; cpu <= last; cpu++)
        CPU_SET((size_t)cpu, cpus);
    return 0;
}

int pin_parse_list(const char *text, cpu_set_t *ret, struct error *err)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    const char *at = text;
    while (take_range(&at, &cpus) == 0) {
        if (*at == '\0') {
            *ret = cpus;
            return 0;
        }
        if (*at++ != ',')
            break;
    }
    return error_set(err, ERROR_USAGE, "'%s' is no list of CPUs (example: 0,2-5)", text);
}

int pin_allowed(cpu_set_t *ret, struct error *err)
{
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) < 0)
        return error_set(err, ERROR_INTERNAL, "cannot read the allowed CPUs: %s", strerror(errno));
    *ret = cpus;
    return 0;
}

int pin_check(int64_t cpu, const cpu_set_t *allowed, struct error *err)
{
    long configured = sysconf(_SC_NPROCESSORS_CONF);
    if (cpu < 0 || cpu >= CPU_SETSIZE || cpu >= configured)
        return error_set(err, ERROR_USAGE, "cpu %lld does not exist (this host has 0-%ld)", (long long)cpu,
                         configured - 1);
    if (!CPU_ISSET((size_t)cpu, allowed))
        return error_set(err, ERROR_USAGE,
                         "cpu %lld is not allowed here (offline, or outside the affinity mask)",
                         (long long)cpu);
    return 0;
}

static int choose_listed(const char *wanted, int64_t measured, const cpu_set_t *allowed,
                         struct pin_housekeeping *ret, struct error *err)
{
    struct pin_housekeeping chosen = {0};
    if (pin_parse_list(wanted, &chosen.cpus, err) < 0)
        return -1;
    for (int64_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, &chosen.cpus) && pin_check(cpu, allowed, err) < 0)
            return -1;
    chosen.apart = measured >= 0 && !CPU_ISSET((size_t)measured, &chosen.cpus);
    *ret = chosen;
    return 0;
}

int pin_choose_housekeeping(const char *wanted, int64_t measured, const cpu_set_t *allowed,
                            struct pin_housekeeping *ret, struct error *err)
{
    bool none = wanted && strcmp(wanted, "none") == 0;
    if (wanted && !none && strcmp(wanted, "auto") != 0)
        return choose_listed(wanted, measured, allowed, ret, err);
    struct pin_housekeeping chosen = {.cpus = *allowed};
    if (measured >= 0 && none) {
        CPU_ZERO(&chosen.cpus);
        CPU_SET((size_t)measured, &chosen.cpus);
    } else if (measured >= 0 && CPU_COUNT(&chosen.cpus) > 1) {
        CPU_CLR((size_t)measured, &chosen.cpus);
    }
    *ret = chosen;
    return 0;
}

int pin_this_thread(const cpu_set_t *cpus, struct error *err)
{
    int rc = pthread_setaffinity_np(pthread_self(), sizeof *cpus, cpus);
    if (rc != 0)
        return error_set(err, ERROR_INTERNAL, "cannot pin a thread: %s", strerror(rc));
    return 0;
}

int pin_this_thread_to(int64_t cpu, struct error *err)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET((size_t)cpu, &cpus);
    if (pin_this_thread(&cpus, err) < 0)
        return error_prefix(err, "cpu %lld", (long long)cpu);
    return 0;
}

static int64_t read_fact(int64_t cpu, const char *name)
{
    char path[160];
    long long value;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%lld/%s", (long long)cpu, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return NOT_KNOWN;
    int got = fscanf(file, "%lld", &value);
    (void)fclose(file);
    return got == 1 ? value : NOT_KNOWN;
}

/* The node is a link named nodeN in the CPU's directory. */
static int64_t read_node(int64_t cpu)
{
    char path[80];
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%lld", (long long)cpu);
    DIR *dir = opendir(path);
    int64_t node = NOT_KNOWN;
    if (!dir)
        return node;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        char *end = entry->d_name;
        if (strncmp(entry->d_name, "node", 4) != 0)
            continue;
        long number = strtol(entry->d_name + 4, &end, 10);
        if (end != entry->d_name + 4 && *end == '\0')
            node = number;
    }
    (void)closedir(dir);
    return node;
}

void pin_locate(int64_t cpu, struct pin_place *ret)
{
    *ret = (struct pin_place){
        .package = read_fact(cpu, "topology/physical_package_id"),
        .numa = read_node(cpu),
        .core = read_fact(cpu, "topology/core_id"),
        .l3 = read_fact(cpu, "cache/index3/id"),
    };
}
