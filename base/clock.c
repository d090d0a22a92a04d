#include "base/clock.h"

#include <time.h>

static int64_t read_ns(clockid_t id)
{
    struct timespec ts = {0};
    (void)clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int64_t clock_monotonic_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_thread_cpu_ns(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t clock_realtime_ns(void)
{
    return read_ns(CLOCK_REALTIME);
}

double clock_cost_ns(int64_t (*read)(void))
{
    enum { batches = 5, reads = 1000 };
    double best = 0;
    for (int b = 0; b < batches; b++) {
        int64_t start = clock_monotonic_ns();
        for (int i = 0; i < reads; i++)
            (void)read();
        double mean = (double)(clock_monotonic_ns() - start) / reads;
        if (b == 0 || mean < best)
            best = mean;
    }
    return best;
}
