#include "coordinator/host/fill.h"

#include "base/memory.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define TURNS_BETWEEN_LOOKS 1000

struct filler {
    struct fill *fill;
    pthread_t thread;
    int64_t cpu;
    int64_t occupied;
    atomic_bool spins;
};

struct fill {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over; /* under lock, as are all changes of spins */
    struct filler *fillers;
    size_t count;
};

static void spin(struct filler *filler)
{
    while (atomic_load_explicit(&filler->spins, memory_order_relaxed))
        for (volatile int turn = 0; turn < TURNS_BETWEEN_LOOKS; turn = turn + 1)
            ;
}

static void *run_filler(void *context)
{
    struct filler *filler = context;
    struct fill *fill = filler->fill;
    const struct sched_param lowest = {0};
    (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &lowest);
    pthread_mutex_lock(&fill->lock);
    while (!fill->over) {
        if (!atomic_load(&filler->spins)) {
            pthread_cond_wait(&fill->changed, &fill->lock);
            continue;
        }
        pthread_mutex_unlock(&fill->lock);
        spin(filler);
        pthread_mutex_lock(&fill->lock);
    }
    pthread_mutex_unlock(&fill->lock);
    return NULL;
}

static int start(struct filler *filler)
{
    pthread_attr_t attributes;
    cpu_set_t *set = CPU_ALLOC((size_t)filler->cpu + 1);
    size_t size = CPU_ALLOC_SIZE((size_t)filler->cpu + 1);
    sigset_t all, before;
    CPU_ZERO_S(size, set);
    CPU_SET_S((size_t)filler->cpu, size, set);
    (void)sigfillset(&all);
    (void)pthread_attr_init(&attributes);
    int rc = pthread_attr_setaffinity_np(&attributes, size, set);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    if (rc == 0)
        rc = pthread_create(&filler->thread, &attributes, run_filler, filler);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    CPU_FREE(set);
    return rc;
}

int fill_new(const int64_t *cpus, size_t count, struct fill **ret, struct error *err)
{
    struct fill *fill = memory_zeroed(1, sizeof *fill);
    (void)pthread_mutex_init(&fill->lock, NULL);
    (void)pthread_cond_init(&fill->changed, NULL);
    fill->fillers = memory_zeroed(count, sizeof *fill->fillers);
    for (; fill->count < count; fill->count++) {
        struct filler *filler = &fill->fillers[fill->count];
        filler->fill = fill;
        filler->cpu = cpus[fill->count];
        int rc = start(filler);
        if (rc == 0)
            continue;
        fill_free(fill);
        return error_set(err, ERROR_INTERNAL, "cannot keep cpu %lld busy: %s", (long long)filler->cpu,
                         strerror(rc));
    }
    *ret = fill;
    return 0;
}

static void settle(struct fill *fill)
{
    int64_t occupied = 0;
    pthread_mutex_lock(&fill->lock);
    for (size_t i = 0; i < fill->count; i++)
        occupied += fill->fillers[i].occupied;
    for (size_t i = 0; i < fill->count; i++)
        atomic_store(&fill->fillers[i].spins, !fill->over && occupied > 0 && fill->fillers[i].occupied == 0);
    pthread_cond_broadcast(&fill->changed);
    pthread_mutex_unlock(&fill->lock);
}

static void count_on(struct fill *fill, int64_t cpu, int64_t more)
{
    for (size_t i = 0; i < fill->count; i++)
        if (fill->fillers[i].cpu == cpu)
            fill->fillers[i].occupied += more;
    settle(fill);
}

void fill_occupy(struct fill *fill, int64_t cpu)
{
    count_on(fill, cpu, 1);
}

void fill_vacate(struct fill *fill, int64_t cpu)
{
    count_on(fill, cpu, -1);
}

void fill_free(struct fill *fill)
{
    if (!fill)
        return;
    pthread_mutex_lock(&fill->lock);
    fill->over = true;
    pthread_mutex_unlock(&fill->lock);
    settle(fill);
    for (size_t i = 0; i < fill->count; i++)
        (void)pthread_join(fill->fillers[i].thread, NULL);
    pthread_cond_destroy(&fill->changed);
    pthread_mutex_destroy(&fill->lock);
    free(fill->fillers);
    free(fill);
}
