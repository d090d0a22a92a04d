#include "worker/jobs/leaf.h"

#include "base/clock.h"

enum stage { STAGE_MAIN, STAGE_CLEANUP };

static struct leaf *leaf_of_coro(struct coro *coro)
{
    return (struct leaf *)(void *)coro;
}

static void burn(struct runtime *runtime, int64_t burn_ns)
{
    (void)runtime_now(runtime); /* waits that were started before do not wait for this */
    int64_t until_ns = clock_thread_cpu_ns() + burn_ns;
    while (clock_thread_cpu_ns() < until_ns)
        ;
}

static enum step finish(const struct leaf_script *script, struct activation *activation)
{
    static const enum outcome_kind kinds[] = {
        [LEAF_OK] = OUTCOME_OK, [LEAF_FAIL] = OUTCOME_FAIL, [LEAF_CANCEL_SELF] = OUTCOME_CANCELLED};
    return coro_return(activation, kinds[script->end], script->value);
}

static enum step finish_cleanup(const struct leaf_script *script, struct activation *activation)
{
    bool fails = script->on_cancel == LEAF_CLEANUP_FAIL;
    return coro_return(activation, fails ? OUTCOME_FAIL : OUTCOME_CANCELLED, script->cancel_value);
}

/* Yields for 0, sleeps for more. */
static enum step wait_for(struct leaf *leaf, struct activation *activation, int64_t delay_ns)
{
    return delay_ns > 0 ? sleep_start(&leaf->sleep, activation, delay_ns) : coro_yield(activation);
}

static enum step start(struct leaf *leaf, struct activation *activation)
{
    const struct leaf_script *script = leaf->script;
    leaf->cancels = 0;
    leaf->overshoot_ns = LEAF_NOT_WAITED;
    leaf->stage = STAGE_MAIN;
    if (script->burn_ns > 0)
        burn(activation->runtime, script->burn_ns);
    if (script->delay_ns < 0)
        return finish(script, activation);
    if (script->on_cancel == LEAF_IGNORE)
        leaf->deadline_ns = runtime_now(activation->runtime) + script->delay_ns;
    return wait_for(leaf, activation, script->delay_ns);
}

static enum step wait_on(struct leaf *leaf, struct activation *activation)
{
    int64_t left_ns = leaf->deadline_ns - runtime_now(activation->runtime);
    return wait_for(leaf, activation, left_ns);
}

static enum step clean_up(struct leaf *leaf, struct activation *activation)
{
    leaf->stage = STAGE_CLEANUP;
    if (leaf->script->cleanup_ns < 0)
        return finish_cleanup(leaf->script, activation);
    return wait_for(leaf, activation, leaf->script->cleanup_ns);
}

static enum step cancelled(struct leaf *leaf, struct activation *activation)
{
    const struct leaf_script *script = leaf->script;
    leaf->cancels++;
    if (leaf->stage == STAGE_CLEANUP)
        return coro_return(activation, OUTCOME_CANCELLED, 0);
    switch (script->on_cancel) {
    case LEAF_SUPPRESS:
        return coro_return(activation, OUTCOME_OK, script->cancel_value);
    case LEAF_CANCEL_FAIL:
        return coro_return(activation, OUTCOME_FAIL, script->cancel_value);
    case LEAF_IGNORE:
        return wait_on(leaf, activation);
    case LEAF_CLEANUP:
    case LEAF_CLEANUP_FAIL:
        return clean_up(leaf, activation);
    case LEAF_PROPAGATE:
        break;
    }
    return coro_return(activation, OUTCOME_CANCELLED, 0);
}

static enum step leaf_resume(struct coro *coro, struct activation *activation)
{
    struct leaf *leaf = leaf_of_coro(coro);
    if (activation->wake == WAKE_START)
        return start(leaf, activation);
    if (activation->wake == WAKE_CANCEL)
        return cancelled(leaf, activation);
    if (leaf->stage == STAGE_CLEANUP)
        return finish_cleanup(leaf->script, activation);
    if (leaf->script->delay_ns > 0)
        leaf->overshoot_ns = sleep_overshoot_ns(&leaf->sleep);
    return finish(leaf->script, activation);
}

void leaf_init(struct leaf *leaf, const struct leaf_script *script, struct uv_timer_s *uv_timer)
{
    *leaf = (struct leaf){.coro.resume = leaf_resume, .script = script, .overshoot_ns = LEAF_NOT_WAITED};
    sleep_init(&leaf->sleep, uv_timer);
}
