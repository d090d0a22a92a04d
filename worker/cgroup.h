/* cgroup.h: where the kernel counts how often this process's control group ran out of its CPU quota.
 *
 * /proc/self/cgroup names the group of each hierarchy, /proc/self/mountinfo where that hierarchy is mounted and
 * which of its groups is the root of the mount.  The controller `cpu` sits in one hierarchy alone: version 1's,
 * where that is mounted, or else version 2's.  See cgroups(7), proc(5).  Pure: no file is opened here. */
#ifndef COREFAN_WORKER_CGROUP_H
#define COREFAN_WORKER_CGROUP_H

#include <stdint.h>

/* Path of cpu.stat of the group, from the texts of those two files; NULL when none can be seen.  free() it. */
char *cgroup_cpu_stat_path(const char *cgroups, const char *mountinfo);

/* What cpu.stat says: periods in which the quota ran out, and for how long threads were held.  WIRE_NULL
 * (INT64_MIN) for what is not there: a group without quota in version 2 does not count. */
struct cgroup_throttling {
    int64_t periods, held_ns;
};
void cgroup_parse_throttling(const char *cpu_stat, struct cgroup_throttling *ret);

#endif
