/* noise.h: the noise floor of the CPU that the calling thread is pinned to, before anything is measured
 * there.
 *
 * Two probes, about 60 ms together: bare timerfd waits of 1 ms (how late does the kernel wake us?), and a 10
 * ms spin on the clock (what is the largest gap that somebody else tears into it?).  And what one read of
 * each clock costs.  To be run by the measured thread. */
#ifndef COREFAN_WORKER_NOISE_H
#define COREFAN_WORKER_NOISE_H

#include <stdint.h>

struct noise {
    int64_t wall_clock_cost_ps, cpu_clock_cost_ps;
    int64_t timer_overshoot_p50_ns, timer_overshoot_max_ns; /* WIRE_NULL when timerfd is not there */
    int64_t spin_gap_max_ns;
};

void noise_probe(struct noise *ret);

/* Sleeps until CLOCK_MONOTONIC reads at least `at_ns`: a timerfd, which carries no timer slack.  Returns at
 * once when that is past.  0, or -1 with errno set. */
int noise_sleep_until(int64_t at_ns);

#endif
