/* pin.h: which CPUs this process may use, and which thread goes where.
 *
 * The measured thread is pinned to one logical CPU.  Everything else of a worker (session thread, ZeroMQ's
 * I/O thread) stays on housekeeping CPUs, so that it takes nothing from the measured one.  CPU numbers are
 * the kernel's.  Any thread; a pin acts on the calling thread, and threads that it starts later inherit it.
 */
#ifndef COREFAN_WORKER_PIN_H
#define COREFAN_WORKER_PIN_H

#include "base/error.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* "0,2-5" -> a set.  Strict: no spaces, no empty parts, ranges ascend.  *ret untouched on failure. */
int pin_parse_list(const char *text, cpu_set_t *ret, struct error *err);

/* CPUs that the calling thread may run on now (affinity mask, cgroup cpuset). */
int pin_allowed(cpu_set_t *ret, struct error *err);

/* Refuses a CPU that does not exist or is not in `allowed`, and says which of the two it is. */
int pin_check(int64_t cpu, const cpu_set_t *allowed, struct error *err);

/* Where the other threads live. */
struct pin_housekeeping {
    cpu_set_t cpus;
    bool apart; /* none of them is the measured CPU, and they were set aside for this: heartbeats may go out
                   while a slice is measured */
};

/* wanted: "auto" (or NULL), "none" or a list.
 *   list  those CPUs; each must be allowed; apart unless the measured CPU is among them
 *   auto  every allowed CPU but the measured one, but not apart: others may be measuring there
 *   none  the measured CPU itself
 * measured: the CPU of the measured thread, or -1 when it is not pinned. */
int pin_choose_housekeeping(const char *wanted, int64_t measured, const cpu_set_t *allowed,
                            struct pin_housekeeping *ret, struct error *err);

int pin_this_thread(const cpu_set_t *cpus, struct error *err);
int pin_this_thread_to(int64_t cpu, struct error *err);

/* Where a CPU sits: os indexes from sysfs, WIRE_NULL (INT64_MIN) when the kernel does not tell. */
struct pin_place {
    int64_t package, numa, core, l3;
};
void pin_locate(int64_t cpu, struct pin_place *ret);

#endif
