/* topology.h: which CPUs of this host are measured, and which are kept for housekeeping.
 *
 * The only file that includes hwloc.h.  Order of choice: one hardware thread per physical core, in hwloc's logical
 * order (neighbours share caches), then the second thread of each core, and so on.  Only CPUs that are online,
 * in the cgroup's cpuset and in the affinity mask are chosen.
 *
 * Housekeeping CPUs carry the coordinator, the workers' session threads and ZeroMQ's: allowed CPUs minus the
 * measured ones.  With `auto` and at least 4 physical cores, one core is kept back for them: that of the lowest
 * CPU number, where most interrupts go.  CPUs that share a core with a measured one are taken for housekeeping
 * only when there is nothing else.
 *
 * With placement `spread` each next CPU comes from the package, then the NUMA node, then the cache group of which the
 * fewest were taken so far; first threads of cores still come before second ones.
 *
 * CPU numbers are the kernel's.  Recorded topologies (hwloc XML, or a synthetic description) stand in for the host
 * where tests say so.  Ownership: topology_free.  Threads: any; the struct is read-only once made. */
#ifndef COREFAN_COORDINATOR_TOPOLOGY_H
#define COREFAN_COORDINATOR_TOPOLOGY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOPOLOGY_MAX_CPU 65535
#define TOPOLOGY_AUTO    (-1)

struct topology_request {
    int64_t workers;          /* measured CPUs wanted; TOPOLOGY_AUTO: one per physical core that is left */
    const char *cpus;         /* --cpus LIST: exactly these may be measured, in this order; or NULL */
    const char *placement;    /* NULL: compact, neighbours first; "spread"; or a list, as cpus */
    bool oversubscribe;       /* more workers than CPUs: they share them, in turn */
    const char *housekeeping; /* "auto" (or NULL), "none", or a list */
    const char *recorded_xml; /* path of an hwloc XML file instead of this host */
    const char *synthetic;    /* hwloc synthetic description instead of this host */
    const char *affinity;     /* with one of the two: list of allowed CPUs; NULL: all that it allows */
};

struct topology_cpu {
    int64_t cpu;
    int64_t package, numa, core, l3; /* os or logical indexes; -1: not known */
    int64_t thread; /* 0: first hardware thread of its core that may be used, 1: second ... */
};

struct topology {
    struct topology_cpu *measured; /* in the order in which gangs grow */
    size_t measured_count;
    int64_t *housekeeping; /* ascending; may be empty: then nothing is apart from what is measured */
    size_t housekeeping_count;
    bool housekeeping_shares_cores; /* its only CPUs are siblings of measured ones */
    int64_t *allowed;               /* ascending */
    size_t allowed_count;
    int64_t physical_cores; /* allowed ones */
    int64_t packages, numa_nodes, l3_groups;
};

/* 0, or -1 with ERROR_USAGE: one line that names the option, the CPU and what is wrong with it. */
int topology_choose(const struct topology_request *request, struct topology **ret, struct error *err);

void topology_free(struct topology *topology); /* NULL is fine */

/* "0,2-5" -> numbers in the order given.  Strict: no spaces, signs, empty parts, descending ranges, duplicates.
 * `option` names it in messages.  *ret: free() it. */
int topology_parse_list(const char *option, const char *text, int64_t **ret, size_t *ret_count,
                        struct error *err);

/* Ascending numbers -> "0,2-5"; "" for none.  free() it. */
char *topology_list_text(const int64_t *cpus, size_t count);

#endif
