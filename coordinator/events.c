#include "coordinator/events.h"

#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct events {
    FILE *file;
    bool is_stdout, is_broken;
    int64_t *attempts; /* by group: the last one whose start was told */
    int64_t group_count;
};

int events_open(const char *path, struct events **ret, struct error *err)
{
    bool is_stdout = strcmp(path, "-") == 0;
    FILE *file = is_stdout ? stdout : fopen(path, "we");
    if (!file)
        return error_set(err, ERROR_USAGE, "cannot write --events '%s': %s", path, strerror(errno));
    struct events *events = memory_zeroed(1, sizeof *events);
    *events = (struct events){.file = file, .is_stdout = is_stdout};
    *ret = events;
    return 0;
}

void events_close(struct events *events)
{
    if (!events)
        return;
    if (!events->is_stdout)
        (void)fclose(events->file);
    free(events->attempts);
    free(events);
}

/* Takes the rest of the object, which begins with what every event has. */
static void tell(struct events *events, const char *word, json_t *rest)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    json_t *line = json_pack("{s:i, s:s, s:I}", "v", EVENTS_VERSION, "event", word, "at_ns",
                             (json_int_t)now.tv_sec * 1000000000 + now.tv_nsec);
    json_object_update(line, rest);
    bool written = !events->is_broken && json_dumpf(line, events->file, JSON_COMPACT) == 0 &&
                   fputc('\n', events->file) != EOF && fflush(events->file) == 0;
    if (!written && !events->is_broken)
        log_line(LOG_WARNING, "cannot write events: %s; the run goes on without them", strerror(errno));
    events->is_broken |= !written;
    json_decref(line);
    json_decref(rest);
}

/* Texts of others that are no UTF-8 are kept out, not the event. */
static json_t *text(const char *value)
{
    json_t *string = value ? json_string(value) : NULL;
    return string ? string : json_string("?");
}

void events_started(struct events *events, const char *run, const char *name, const char *directory)
{
    if (events)
        tell(events, "started",
             json_pack("{s:o, s:o, s:o, s:s}", "run", text(run), "name", text(name), "directory",
                       text(directory), "tool_version", COREFAN_VERSION));
}

void events_planned(struct events *events, const struct plan *plan)
{
    json_int_t cells = 0;
    json_int_t expected_ns = 0;
    if (!events)
        return;
    free(events->attempts);
    events->group_count = plan->group_count;
    events->attempts = memory_zeroed((size_t)plan->group_count + 1, sizeof *events->attempts);
    for (int64_t i = 0; i < plan->group_count; i++) {
        expected_ns += plan->groups[i].expected_ns;
    }
    for (int64_t i = 0; i < plan->cell_count; i++)
        cells += !plan->cells[i].harness;
    tell(events, "planned",
         json_pack("{s:I, s:I, s:I}", "groups", (json_int_t)plan->group_count, "cells", cells, "expected_ns",
                   expected_ns));
}

static void tell_worker(struct events *events, const struct schedule_action *action)
{
    const struct wire_hello *hello = action->hello;
    tell(events, "worker",
         json_pack("{s:I, s:o, s:o, s:I, s:o}", "worker", (json_int_t)action->number, "runtime",
                   text(hello->label), "host", text(hello->host), "pid", (json_int_t)hello->pid, "cpu",
                   hello->cpu == WIRE_NULL ? json_null() : json_integer(hello->cpu)));
}

static void tell_start(struct events *events, const struct wire_message *message)
{
    if (message->type != WIRE_ASSIGN || message->assign.group < 0 ||
        message->assign.group >= events->group_count)
        return;
    int64_t *last = &events->attempts[message->assign.group];
    if (message->assign.attempt <= *last)
        return;
    *last = message->assign.attempt;
    tell(events, "group_started",
         json_pack("{s:I, s:I}", "group", (json_int_t)message->assign.group, "attempt",
                   (json_int_t)message->assign.attempt));
}

static void tell_group(struct events *events, const char *word, const struct schedule_action *action,
                       const char *reason)
{
    json_t *rest = json_pack("{s:I}", "group", (json_int_t)action->group);
    if (action->attempt > 0)
        json_object_set_new(rest, "attempt", json_integer(action->attempt));
    if (reason)
        json_object_set_new(rest, "reason", text(reason));
    tell(events, word, rest);
}

void events_action(struct events *events, const struct schedule_action *action)
{
    if (!events)
        return;
    switch (action->kind) {
    case SCHEDULE_SEND:
        tell_start(events, &action->message);
        break;
    case SCHEDULE_STORE_WORKER:
        tell_worker(events, action);
        break;
    case SCHEDULE_STORE_FINISH:
        tell_group(events, "group_finished", action, NULL);
        break;
    case SCHEDULE_STORE_KEEP:
        tell_group(events, "group_stopped", action, "interrupted");
        break;
    case SCHEDULE_STORE_VOID:
        tell_group(events, "group_void", action, action->text);
        break;
    case SCHEDULE_STORE_FAIL:
        tell_group(events, "group_failed", action, action->text);
        break;
    case SCHEDULE_STORE_LEAVE_OUT:
        tell_group(events, "group_left_out", action, action->text);
        break;
    case SCHEDULE_STORE_DROP_CELL:
        tell(events, "cell_left_out",
             json_pack("{s:I, s:o}", "cell", (json_int_t)action->number, "reason", text(action->text)));
        break;
    case SCHEDULE_STORE_EVENT:
        tell(events, "warning",
             json_pack("{s:o, s:o}", "kind", text(action->word), "text", text(action->text)));
        break;
    default:
        break;
    }
}

void events_finished(struct events *events, int exit_code, const char *error)
{
    if (!events)
        return;
    json_t *rest = json_pack("{s:i}", "exit_code", exit_code);
    if (error && error[0] != '\0')
        json_object_set_new(rest, "error", text(error));
    tell(events, "finished", rest);
}
