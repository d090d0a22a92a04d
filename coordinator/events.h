/* events.h: a run as it goes, for programs: one JSON object per line (docs/events.md).
 *
 * A reader that goes away costs the events, never the run: the first line that cannot be written is the last.  Every line is
 * flushed.  Lines are made between rounds, by the coordinator's thread, from what the fleet has carried out.
 * Threads: one.  Ownership: events_close; all calls take NULL and do nothing then. */
#ifndef COREFAN_COORDINATOR_EVENTS_H
#define COREFAN_COORDINATOR_EVENTS_H

#include "base/error.h"
#include "coordinator/plan/plan.h"
#include "coordinator/schedule/schedule.h"

#define EVENTS_VERSION 1

struct events;

/* path: a file, which is written anew, or "-": stdout.  -1: ERROR_USAGE. */
int events_open(const char *path, struct events **ret, struct error *err);
void events_close(struct events *events);

void events_started(struct events *events, const char *run, const char *name, const char *directory);
void events_planned(struct events *events, const struct plan *plan);
void events_action(struct events *events, const struct schedule_action *action);

/* error: NULL, or what broke. */
void events_finished(struct events *events, int exit_code, const char *error);

#endif
