#include "worker/arms/arm.h"

#include "worker/arms/arms.h"

#include <string.h>

static enum step empty_resume(struct coro *coro, struct activation *activation)
{
    return coro_return(activation, OUTCOME_OK, (int64_t)(intptr_t)fanout_of_coro(coro));
}

static const struct arm arms[] = {
    {.name = "sequential", .resume = sequential_resume},
    {.name = "gather", .resume = gather_resume, .concurrent = true},
    {.name = "gather-return-exceptions",
     .resume = gather_return_exceptions_resume,
     .concurrent = true,
     .keeps_errors = true},
    {.name = "tasks", .resume = tasks_resume, .concurrent = true},
    {.name = "taskgroup", .resume = taskgroup_resume, .concurrent = true},
    {.name = "empty", .resume = empty_resume, .harness = true},
};

size_t arm_count(void)
{
    return sizeof(arms) / sizeof(arms[0]);
}

const struct arm *arm_at(size_t index)
{
    return index < arm_count() ? &arms[index] : NULL;
}

const struct arm *arm_find(const char *name)
{
    for (size_t i = 0; i < arm_count(); i++) {
        if (strcmp(arms[i].name, name) == 0)
            return &arms[i];
    }
    return NULL;
}

int arm_check(struct error *err)
{
    for (size_t i = 0; i < arm_count(); i++) {
        if (!arms[i].name || !arms[i].resume)
            return error_set(err, ERROR_INTERNAL, "arm %zu lacks a name or a resume function", i);
        if (arm_find(arms[i].name) != &arms[i])
            return error_set(err, ERROR_INTERNAL, "two arms are named '%s'", arms[i].name);
    }
    return 0;
}
