/* hostlock.h: no two runs measure on the same CPU of a host without being told to.
 *
 * One file for the host, one byte of it for each CPU, locked with fcntl(2): the kernel gives the lock back when
 * its holder ends, however it ends, and names the holder.  The file is /run/lock/corefan.lock; where that cannot
 * be written, $XDG_RUNTIME_DIR/corefan.lock or /tmp/corefan.lock.  It is left in place: removing it would let two
 * runs lock two files.
 *
 * Limits: runs in containers that share CPUs but not /run/lock do not see each other.  A POSIX lock is lost when
 * its process closes any descriptor of the file, so nothing else here opens it.
 * Ownership: hostlock_release gives the CPUs back. */
#ifndef COREFAN_COORDINATOR_HOSTLOCK_H
#define COREFAN_COORDINATOR_HOSTLOCK_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hostlock {
    int fd;       /* -1: nothing held */
    bool crowded; /* another run holds some of the CPUs, and co_run allowed it */
};

/* Locks these CPUs.  One that another run holds: -1 and ERROR_USAGE naming it and its process; with co_run the
 * rest is locked and *ret says `crowded`.  directory: NULL for the ones above; tests name another. */
int hostlock_take(const char *directory, const int64_t *cpus, size_t count, bool co_run, struct hostlock *ret,
                  struct error *err);

void hostlock_release(struct hostlock *lock); /* fine on one that holds nothing, and twice */

#endif
