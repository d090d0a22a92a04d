/* bare_timerfd CPU DELAY_NS COUNT: how late waits end here by a timerfd and a read, and nothing else: the yardstick
 * for the waits of a worker.  Shares no code with it.  Prints the overshoots in ns, one a line, in order. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { ns_per_s = 1000000000 };

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * ns_per_s + now.tv_nsec;
}

static int wait_until(int timer, int64_t deadline_ns)
{
    struct itimerspec at = {
        .it_value = {.tv_sec = deadline_ns / ns_per_s, .tv_nsec = deadline_ns % ns_per_s}};
    uint64_t expirations;
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL) < 0)
        return -1;
    return read(timer, &expirations, sizeof expirations) == (ssize_t)sizeof expirations ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET((size_t)strtol(argv[1], NULL, 10), &cpus);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    if (timer < 0 || sched_setaffinity(0, sizeof cpus, &cpus) < 0)
        return 1;
    int64_t delay_ns = strtoll(argv[2], NULL, 10);
    for (long left = strtol(argv[3], NULL, 10); left > 0; left--) {
        int64_t deadline_ns = now_ns() + delay_ns;
        if (wait_until(timer, deadline_ns) < 0)
            return 1;
        (void)printf("%lld\n", (long long)(now_ns() - deadline_ns));
    }
    return 0;
}
