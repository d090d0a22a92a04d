#include "coordinator/host/hostlock.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NAME "corefan.lock"

/* Opens what is there, else makes it for all users: in a sticky directory O_CREAT on another's file may fail. */
static int open_lock_file(const char *directory)
{
    scoped_free char *path = memory_format("%s/" LOCK_NAME, directory);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd >= 0)
        (void)fchmod(fd, 0666);
    else if (errno == EEXIST)
        fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    return fd;
}

static int open_somewhere(const char *directory, struct error *err)
{
    const char *places[] = {"/run/lock", getenv("XDG_RUNTIME_DIR"), "/tmp"};
    int fd = directory ? open_lock_file(directory) : -1;
    for (size_t i = 0; !directory && fd < 0 && i < sizeof places / sizeof *places; i++)
        if (places[i])
            fd = open_lock_file(places[i]);
    if (fd < 0)
        return error_set(err, ERROR_INTERNAL, "cannot open a lock file in %s: %s",
                         directory ? directory : "/run/lock or /tmp", strerror(errno));
    return fd;
}

static struct flock byte_of(int64_t cpu)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = cpu, .l_len = 1};
}

static int held_by_another(int fd, int64_t cpu, struct error *err)
{
    struct flock holder = byte_of(cpu);
    if (fcntl(fd, F_GETLK, &holder) < 0 || holder.l_type == F_UNLCK)
        holder.l_pid = 0;
    scoped_free char *who =
        holder.l_pid > 0 ? memory_format(" (process %d)", (int)holder.l_pid) : memory_text("");
    return error_set(err, ERROR_USAGE,
                     "cpu %lld is being measured by another run%s: wait for it, choose other --cpus, or say "
                     "--co-run",
                     (long long)cpu, who);
}

static int lock_bytes(int fd, const int64_t *cpus, size_t count, bool co_run, bool *ret_crowded,
                      struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        struct flock byte = byte_of(cpus[i]);
        if (fcntl(fd, F_SETLK, &byte) == 0)
            continue;
        if (errno != EACCES && errno != EAGAIN)
            return error_set(err, ERROR_INTERNAL, "cannot lock cpu %lld: %s", (long long)cpus[i],
                             strerror(errno));
        if (!co_run)
            return held_by_another(fd, cpus[i], err);
        *ret_crowded = true;
    }
    return 0;
}

int hostlock_take(const char *directory, const int64_t *cpus, size_t count, bool co_run, struct hostlock *ret,
                  struct error *err)
{
    bool crowded = false;
    int fd = open_somewhere(directory, err);
    if (fd < 0)
        return -1;
    if (lock_bytes(fd, cpus, count, co_run, &crowded, err) < 0) {
        close(fd);
        return -1;
    }
    *ret = (struct hostlock){.fd = fd, .crowded = crowded};
    return 0;
}

void hostlock_release(struct hostlock *lock)
{
    if (lock->fd >= 0)
        close(lock->fd);
    lock->fd = -1;
}
