/* launch.h: the worker processes of this host: started, watched, started again, never left behind.
 *
 * A slot is a place for one worker: a runtime on a CPU.  Its process gets its own process group (a Ctrl-C at the
 * terminal is ours to handle), our stderr's lines through a pipe, and PR_SET_PDEATHSIG: the kernel ends it when
 * this process ends, even by SIGKILL.  Its stdin is a pipe that ends at the same moment, for wrappers that start a
 * process of their own.
 *
 * A process that ends is started again after 100 ms, doubled each time it ends young, at most 5 s.  One that
 * ended LAUNCH_MAX_EARLY times without having registered, or LAUNCH_MAX_RESTARTS times in all, is given up.
 *
 * Threads: one, that which called launch_new (PR_SET_PDEATHSIG counts the parent's thread).  SIGCHLD is the
 * caller's to watch; it then calls launch_reap.  Ownership: launch_free ends what still runs. */
#ifndef COREFAN_COORDINATOR_LAUNCH_H
#define COREFAN_COORDINATOR_LAUNCH_H

#include "base/error.h"
#include "coordinator/plan/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAUNCH_MAX_EARLY    3
#define LAUNCH_MAX_RESTARTS 100
#define LAUNCH_LEAVE_NS     2000000000LL

struct launch;

struct launch_config {
    const char *worker;   /* program for the libuv runtime; NULL: $COREFAN_WORKER, or corefan-worker beside
                                 our own */
    const char *endpoint; /* for --connect */
    const char *housekeeping; /* for --housekeeping: a list, or "none" */
    const char *key;          /* file for --key and --coordinator-key; NULL: none */
};

/* What became of a slot. */
struct launch_event {
    int64_t slot;
    bool over;    /* it is given up */
    bool refused; /* it said itself that it cannot run here: exit status 2 before it registered */
    char *text;   /* "its process exited with status 3: last line"; free() it */
};

/* Remembers the CPU affinity of the caller: workers get it, whatever the caller pins itself to later. */
int launch_new(const struct launch_config *config, struct launch **ret, struct error *err);

/* Ends every process with SIGKILL and waits for it.  NULL is fine. */
void launch_free(struct launch *launch);

/* Adds a slot, with the next number.  -1 and ERROR_USAGE when the program of that runtime is not there, saying
 * how to get it. */
int launch_add(struct launch *launch, const struct plan_runtime *runtime, int64_t cpu, struct error *err);

size_t launch_slot_count(const struct launch *launch);

/* Starts what is due at now_ns and is not running.  -1 when a program cannot be started at all. */
int launch_due(struct launch *launch, int64_t now_ns, struct error *err);

/* When launch_due has something to do again; INT64_MAX for never. */
int64_t launch_next_due_ns(const struct launch *launch);

/* A file that is readable when workers wrote to their stderr; then call launch_read, which logs their lines. */
int launch_fd(const struct launch *launch);
void launch_read(struct launch *launch);

/* Looks for processes that ended, after SIGCHLD. */
void launch_reap(struct launch *launch, int64_t now_ns);

/* The next thing that launch_reap found; false: nothing more. */
bool launch_next_event(struct launch *launch, struct launch_event *ret);

/* The worker of that slot is known to the fleet: from now on its death is no failure to start. */
void launch_registered(struct launch *launch, int64_t slot);

void launch_kill(struct launch *launch, int64_t slot);

/* The process of that slot was told to end: the next one starts as soon as it has, which is neither an event nor counted
 * as a restart.  One that still runs LAUNCH_LEAVE_NS later is killed. */
void launch_renew(struct launch *launch, int64_t slot, int64_t now_ns);

/* No process is started again from now on. */
void launch_no_more(struct launch *launch);

int64_t launch_running(const struct launch *launch);

#endif
