/* environment.h: what this host is like while it measures, as facts that a report can keep.
 *
 * METHOD: kernel, command line, HZ, clocks, timer slack, scheduling, affinity, topology, SMT, NUMA, governor,
 * frequency, turbo, C-states, isolation, ASLR, mitigations, hypervisor, steal, cgroup limits and throttling, pressure,
 * load, PMU, versions, compiler.  One JSON object per host.  A fact `foo` that cannot be known is null and has a
 * sibling `foo_null_reason`; nothing that is missing, empty, forbidden or garbage is an error.  Reasons:
 *
 *   missing             there is no such file          forbidden          it may not be read
 *   empty               it has no content              unreadable         reading it failed
 *   unexpected_content  it is not what it should be    not_probed         a system call had to be asked and was not
 *   no_cpufreq          frequencies are not ours       no_measured_cpus   the caller named none
 *   no_limit            nothing is limited             no_cgroup          this process is in none, or it is not mounted
 *   no_ticks            no time passed in the sample   no_siblings        no further CPU is on a measured core
 *   no_error            nothing failed                 not_named          the hypervisor does not tell its name
 *   no_cpu_flag         this architecture tells nothing about hypervisors
 *   mixed               the measured CPUs differ: see `cpus`
 *
 * Facts come from files below two roots, so that recorded hosts can stand in for this one, and from system calls,
 * asked once by environment_probe_host.  The object's `findings` are doctor's (doctor.h), so that a report of a
 * stored run can tell them.
 *
 * CPU lists are text ("0,2-5"); `_x` is a ratio, `_percent` the kernel's own percentage.  Threads: any; the affinity,
 * policy and timer slack are those of the process, so call it before anything is pinned. */
#ifndef COREFAN_COORDINATOR_ENVIRONMENT_H
#define COREFAN_COORDINATOR_ENVIRONMENT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENVIRONMENT_SAMPLE_NS 200000000LL /* over which busy and stolen shares are taken */

struct environment_roots {
    const char *proc, *sys; /* NULL: /proc, /sys */
};

/* What only system calls tell. */
struct environment_probe {
    int64_t monotonic_resolution_ns, thread_cpu_resolution_ns;
    int64_t tick_ns; /* of the coarse clock: 1 s / HZ */
    double monotonic_cost_ns, thread_cpu_cost_ns;
    bool vdso;           /* the kernel maps one; clock_monotonic_cost_ns tells whether it serves */
    int pmu_errno;       /* 0: cycles of this process can be counted */
    char machine[65];    /* "x86_64" */
    char hypervisor[13]; /* its signature, "KVMKVMKVM"; "" where there is none */
    char libc_version[32];
};

struct environment_request {
    struct environment_roots roots;
    const char *later_proc; /* root of the second sample; NULL: the first, ENVIRONMENT_SAMPLE_NS later */
    const struct environment_probe *probe; /* NULL: these facts are not_probed */
    const int64_t *measured, *housekeeping;
    size_t measured_count, housekeeping_count;
};

/* Takes some ms. */
void environment_probe_host(struct environment_probe *ret);

/* JSON text of an array with one object; free() it.  Takes ENVIRONMENT_SAMPLE_NS, asleep.  -1: only memory. */
int environment_read(const struct environment_request *request, char **ret_json, struct error *err);

/* This host: environment_probe_host and environment_read. */
int environment_capture(const int64_t *measured_cpus, size_t measured_count, const int64_t *housekeeping_cpus,
                        size_t housekeeping_count, char **ret_json, struct error *err);

/* "GNU 12.2.0, Release; libuv 1.44.2, libzmq 4.3.4, msgpack-c 4.0.0": of this build; a constant. */
const char *environment_build(void);

#endif
