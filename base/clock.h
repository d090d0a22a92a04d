/* clock.h: the only clocks that corefan reads.
 *
 * Wall time is CLOCK_MONOTONIC: it never steps, and on one host it is the same for all processes.  CPU time
 * is CLOCK_THREAD_CPUTIME_ID of the calling thread.  CLOCK_REALTIME serves for time stamps in reports and for
 * nothing else.  All values are ns.  Any thread; never fails on Linux. */
#ifndef COREFAN_BASE_CLOCK_H
#define COREFAN_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_US 1000LL
#define NS_PER_MS 1000000LL
#define NS_PER_S  1000000000LL

int64_t clock_monotonic_ns(void);
int64_t clock_thread_cpu_ns(void);
int64_t clock_realtime_ns(void);

/* What one read costs here: the smallest mean of five batches of 1,000 reads of `read`. */
double clock_cost_ns(int64_t (*read)(void));

#endif
