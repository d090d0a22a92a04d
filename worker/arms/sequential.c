/* sequential: `[await child for child in children]`.  No tasks; the first failure ends it, the rest never starts. */
#include "worker/arms/arms.h"

static void keep_result(struct fanout *fanout, uint32_t i, struct outcome outcome)
{
    fanout->tasks[i].kind = (uint8_t)outcome.kind;
    fanout->tasks[i].value = outcome.value;
    fanout->tasks[i].state = TASK_DONE;
}

static void mark_never_started(struct fanout *fanout, uint32_t from)
{
    for (uint32_t i = from; i < fanout->count; i++)
        fanout->tasks[i].state = TASK_IDLE;
}

enum step sequential_resume(struct coro *coro, struct activation *activation)
{
    struct fanout *fanout = fanout_of_coro(coro);
    if (activation->wake == WAKE_START) {
        fanout->next = 0;
    } else {
        siblings_leave(&fanout->siblings);
        keep_result(fanout, fanout->next++, activation->outcome);
        if (activation->outcome.kind != OUTCOME_OK) {
            mark_never_started(fanout, fanout->next);
            return STEP_DONE;
        }
    }
    if (fanout->next == fanout->count)
        return coro_return(activation, OUTCOME_OK, (int64_t)(intptr_t)fanout);
    siblings_enter(&fanout->siblings, 1);
    return coro_await(activation, fanout->bodies[fanout->next]);
}
