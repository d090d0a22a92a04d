#include "worker/noise.h"

#include "base/clock.h"

#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { timer_waits = 49 };

int noise_sleep_until(int64_t at_ns)
{
    struct itimerspec due = {.it_value = {.tv_sec = at_ns / NS_PER_S, .tv_nsec = at_ns % NS_PER_S}};
    uint64_t expired;
    if (clock_monotonic_ns() >= at_ns)
        return 0;
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    if (timer < 0)
        return -1;
    int rc = timerfd_settime(timer, TFD_TIMER_ABSTIME, &due, NULL);
    if (rc == 0)
        rc = read(timer, &expired, sizeof expired) == (ssize_t)sizeof expired ? 0 : -1;
    (void)close(timer);
    return rc;
}

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static void probe_timer(struct noise *ret)
{
    int64_t overshoot_ns[timer_waits];
    ret->timer_overshoot_p50_ns = ret->timer_overshoot_max_ns = INT64_MIN;
    for (int i = 0; i < timer_waits; i++) {
        int64_t due_ns = clock_monotonic_ns() + NS_PER_MS;
        if (noise_sleep_until(due_ns) < 0)
            return;
        overshoot_ns[i] = clock_monotonic_ns() - due_ns;
    }
    qsort(overshoot_ns, timer_waits, sizeof *overshoot_ns, compare);
    ret->timer_overshoot_p50_ns = overshoot_ns[timer_waits / 2];
    ret->timer_overshoot_max_ns = overshoot_ns[timer_waits - 1];
}

static int64_t probe_spin_gap(void)
{
    int64_t now_ns = clock_monotonic_ns();
    int64_t end_ns = now_ns + 10 * NS_PER_MS;
    int64_t gap_ns = 0;
    while (now_ns < end_ns) {
        int64_t next_ns = clock_monotonic_ns();
        if (next_ns - now_ns > gap_ns)
            gap_ns = next_ns - now_ns;
        now_ns = next_ns;
    }
    return gap_ns;
}

void noise_probe(struct noise *ret)
{
    ret->wall_clock_cost_ps = (int64_t)(1000 * clock_cost_ns(clock_monotonic_ns));
    ret->cpu_clock_cost_ps = (int64_t)(1000 * clock_cost_ns(clock_thread_cpu_ns));
    probe_timer(ret);
    ret->spin_gap_max_ns = probe_spin_gap();
}
