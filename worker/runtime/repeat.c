#include "worker/runtime/repeat.h"

static enum step repeat_resume(struct coro *coro, struct activation *activation)
{
    struct repeat *repeat = (struct repeat *)(void *)coro;
    if (activation->wake == WAKE_START)
        repeat->done = 0;
    else if (activation->outcome.kind != OUTCOME_OK)
        return STEP_DONE;
    else
        repeat->done++;
    if (repeat->done >= repeat->times)
        return coro_return(activation, OUTCOME_OK, 0);
    return coro_await(activation, repeat->inner);
}

void repeat_init(struct repeat *repeat, struct coro *inner, uint64_t times)
{
    *repeat = (struct repeat){.coro.resume = repeat_resume, .inner = inner, .times = times};
}

int repeat_run(struct runtime *runtime, struct repeat *repeat, struct outcome *ret, struct error *err)
{
    struct task task = {.state = TASK_IDLE};
    task_start(runtime, &task, &repeat->coro, &runtime->roots, NULL);
    if (runtime_run_task(runtime, &task, err) != 0)
        return -1;
    *ret = task_outcome(&task);
    return 0;
}
