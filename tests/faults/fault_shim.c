/* fault_shim.so: faults inside of a process, injected by LD_PRELOAD and switched from outside.
 *
 * COREFAN_FAULTS names a file whose first byte is a set of switches; it is mapped, so that a switch acts at once.
 *   'f'  a read of the thread's CPU clock touches 16 pages of fresh memory afterwards
 *   'w'  the wall clock steps by an hour at every read, forwards and back */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { fresh_pages = 16, page_bytes = 4096, step_s = 3600 };

static const volatile char *switches;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static _Atomic unsigned wall_reads;

__attribute__((constructor)) static void open_switches(void)
{
    const char *path = getenv("COREFAN_FAULTS");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0)
        (void)close(file);
    if (mapped != MAP_FAILED)
        switches = mapped;
}

static char switched(void)
{
    return switches ? *switches : '-';
}

static void touch_fresh_memory(void)
{
    volatile char *memory =
        mmap(NULL, fresh_pages * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return;
    for (int i = 0; i < fresh_pages; i++)
        memory[i * page_bytes] = 1;
    (void)munmap((void *)(size_t)memory, fresh_pages * page_bytes);
}

static time_t step(void)
{
    return atomic_fetch_add(&wall_reads, 1) % 2 ? step_s : -step_s;
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
    if (!real_clock_gettime)
        *(void **)&real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real_clock_gettime(id, ret);
    if (rc == 0 && id == CLOCK_THREAD_CPUTIME_ID && switched() == 'f')
        touch_fresh_memory();
    if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) && switched() == 'w')
        ret->tv_sec += step();
    return rc;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int rc = clock_gettime(CLOCK_REALTIME, &now);
    *ret = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = (suseconds_t)(now.tv_nsec / 1000)};
    return rc;
}

time_t time(time_t *ret)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}
