/* What workers announced, against what a plan has for their runtime. */
#include "coordinator/schedule/schedule_internal.h"

#include <stdlib.h>
#include <string.h>

static bool announced(const struct wire_texts *texts, const char *name)
{
    for (size_t i = 0; i < texts->count; i++)
        if (strcmp(texts->at[i], name) == 0)
            return true;
    return false;
}

const char *schedule_lacks(const struct wire_hello *hello, const struct plan_cell *cell,
                           const char **ret_name)
{
    *ret_name = cell->spec.arm;
    if (!cell->harness && !announced(&hello->arms, cell->spec.arm))
        return "arm";
    *ret_name = cell->spec.job;
    if (!cell->harness && !announced(&hello->jobs, cell->spec.job))
        return "job";
    return NULL;
}

/* "noop, sleep, cpu" */
static char *list(const struct wire_texts *texts)
{
    char *text = memory_text(texts->count ? texts->at[0] : "none");
    for (size_t i = 1; i < texts->count; i++) {
        char *longer = memory_format("%s, %s", text, texts->at[i]);
        free(text);
        text = longer;
    }
    return text;
}

static char *describe(const struct worker *worker, const struct plan_cell *cell, const char *what,
                      const char *name)
{
    const struct wire_hello *hello = &worker->hello.hello;
    bool is_job = strcmp(what, "job") == 0;
    bool takes_jobs = strcmp(hello->runtime, "libuv") != 0;
    scoped_free char *has = list(is_job ? &hello->jobs : &hello->arms);
    scoped_free char *remedy = is_job && takes_jobs
                                   ? memory_format("start one with --job '%s=MODULE:FUNCTION'", name)
                                   : memory_text("leave it out of the sweep");
    return memory_format("no worker of runtime '%s' announced the %s '%s': %s; %s knows %s", cell->runtime,
                         what, name, remedy, worker->name, has);
}

/* What all live workers of the cell's runtime lack, in words, or NULL: of the last one, if they differ. */
static char *lacking(const struct schedule *schedule, const struct plan_cell *cell)
{
    const struct worker *lacks = NULL;
    const char *what = NULL, *name = NULL, *found;
    for (size_t i = 0; i < schedule->worker_count; i++) {
        const struct worker *worker = schedule->workers[i];
        if (worker->state == WORKER_LOST || worker->state == WORKER_LEAVING ||
            strcmp(cell->runtime, schedule->labels[worker->label]) != 0)
            continue;
        found = schedule_lacks(&worker->hello.hello, cell, &name);
        if (!found)
            return NULL;
        what = found;
        lacks = worker;
    }
    return lacks ? describe(lacks, cell, what, name) : NULL;
}

char *schedule_lacking(const struct schedule *schedule, const struct plan *plan,
                       const struct schedule_past *past)
{
    char *text = NULL;
    for (int64_t i = 0; i < plan->cell_count && !text; i++)
        if (!past || !past[plan->cells[i].group].done)
            text = lacking(schedule, &plan->cells[i]);
    return text;
}
