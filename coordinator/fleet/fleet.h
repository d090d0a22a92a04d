/* fleet.h: the workers of a run, at the coordinator: one socket, one poll loop, one schedule.
 *
 *   ZeroMQ frames, signals, dead children, the clock --> events --> schedule --> actions --> sends, store, kills
 *
 * The loop sleeps in poll(2) on the socket, a signalfd and the workers' stderr.  A result is committed to the
 * store before its ack is sent; a store that fails ends the run with its error.  SIGINT or SIGTERM once: what
 * measures ends after its round, the rest is left, within FLEET_STOP_NS; twice: at once.
 *
 * Threads: one, and ZeroMQ's.  SIGINT, SIGTERM and SIGCHLD are blocked in the calling thread from fleet_open to
 * fleet_close.  Ownership: fleet_close says goodbye to every worker, ends the local ones, and frees. */
#ifndef COREFAN_COORDINATOR_FLEET_H
#define COREFAN_COORDINATOR_FLEET_H

#include "base/error.h"
#include "coordinator/fleet/fleet_link.h"
#include "coordinator/fleet/launch.h"
#include "coordinator/plan/plan.h"
#include "coordinator/schedule/schedule.h"
#include "coordinator/store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLEET_HEARTBEAT_NS 1000000000LL
#define FLEET_STOP_NS      800000000LL

struct fleet;

struct fleet_config {
    const char *run;                /* id of the run */
    const char *listen;             /* checked by endpoint_check; NULL: private */
    const struct door_config *door; /* who is let in; NULL: whoever can reach the address */
    const struct plan_runtime *runtimes;
    int64_t runtime_count;
    const int64_t *housekeeping; /* CPUs; none: the loop wakes up once a second only while others measure */
    size_t housekeeping_count;
    size_t slot_count;
    int64_t budget_ns;    /* for the whole plan, see schedule.h; 0: all it takes */
    int64_t first_worker; /* number of the first one: 0, or more when a run is resumed */
    int64_t rejoin_ns;    /* how long a worker started by hand is waited for when nothing else can go on */
    /* Called from the loop, at every tick (250 ms, or 1 s without housekeeping CPUs); may be NULL. */
    void (*on_progress)(void *context, const struct schedule_progress *progress);
    /* Called with every action once it is carried out (stored, sent); may be NULL. */
    void (*on_action)(void *context, const struct schedule_action *action);
    void *context;
};

int fleet_open(const struct fleet_config *config, struct fleet **ret, struct error *err);
void fleet_close(struct fleet *fleet); /* NULL is fine */

/* Where workers connect to. */
const char *fleet_endpoint(const struct fleet *fleet);

/* The local processes, which must outlive the fleet.  Their slots are those of the config. */
void fleet_watch(struct fleet *fleet, struct launch *launch);

/* Waits until every slot and `expect` further workers have registered.  -1: who is missing after timeout_ns, or
 * why a local worker cannot start; ERROR_INTERRUPTED. */
int fleet_gather(struct fleet *fleet, int64_t expect, int64_t timeout_ns, struct error *err);

/* Live workers of the runtime that has the fewest: what `all` stands for. */
int64_t fleet_workers_per_runtime(const struct fleet *fleet);

/* Whether somebody announced each arm and job that the plan has for a runtime, but for groups that are done in `past`
 * (see schedule_begin).  -1: the first one that nobody did, ERROR_INCOMPLETE. */
int fleet_check(const struct fleet *fleet, const struct plan *plan, const struct schedule_past *past,
                struct error *err);

/* Runs the plan; both must outlive the fleet.  0: every group is done or failed, see fleet_progress.  -1:
 * ERROR_INTERRUPTED, or what broke.  `past`, `loads`: see schedule_begin. */
int fleet_run(struct fleet *fleet, const struct plan *plan, struct store *store,
              const struct schedule_past *past, const struct schedule_load *loads, struct error *err);

void fleet_progress(const struct fleet *fleet, struct schedule_progress *ret);

#endif
