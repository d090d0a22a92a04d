#include "worker/jobs/job.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define CACHE_LINE_BYTES 64u
#define JOB_ERROR_VALUE  1 /* the error of every child that is told to fail */

enum { SCRIPT_FAILS = 1, SCRIPT_STALLS = 2, SCRIPT_COUNT = 4 };

struct job_children {
    struct runtime *runtime;
    uint32_t count;
    struct job_config config;
    struct leaf_script scripts[SCRIPT_COUNT]; /* by the bits above */
    struct leaf *leaves;                      /* NULL: children that need no state */
    struct coro *plain;                       /* those */
    uv_timer_t *uv_timers;                    /* NULL: SLEEP_TIMERFD */
    size_t handles_open;
};

static void noop_script(const struct job_config *config, struct leaf_script *ret)
{
    (void)config;
    ret->delay_ns = LEAF_NO_WAIT;
}

static void sleep_script(const struct job_config *config, struct leaf_script *ret)
{
    ret->delay_ns = config->delay_ns;
}

static void cpu_script(const struct job_config *config, struct leaf_script *ret)
{
    ret->burn_ns = config->delay_ns;
    ret->delay_ns = LEAF_NO_WAIT;
}

static const struct job jobs[] = {
    {.name = "noop", .script = noop_script},
    {.name = "sleep", .script = sleep_script, .waits = true, .needs_delay = true},
    {.name = "cpu", .script = cpu_script, .needs_delay = true},
};

size_t job_count(void)
{
    return sizeof(jobs) / sizeof(jobs[0]);
}

const struct job *job_at(size_t index)
{
    return index < job_count() ? &jobs[index] : NULL;
}

const struct job *job_find(const char *name)
{
    for (size_t i = 0; i < job_count(); i++) {
        if (strcmp(jobs[i].name, name) == 0)
            return &jobs[i];
    }
    return NULL;
}

int job_check(struct error *err)
{
    for (size_t i = 0; i < job_count(); i++) {
        if (!jobs[i].name || !jobs[i].script)
            return error_set(err, ERROR_INTERNAL, "job %zu lacks a name or a script", i);
        if (job_find(jobs[i].name) != &jobs[i])
            return error_set(err, ERROR_INTERNAL, "two jobs are named '%s'", jobs[i].name);
    }
    return 0;
}

/* Children without state: nothing to burn, to wait for or to fail. */
static enum step plain_resume(struct coro *coro, struct activation *activation)
{
    (void)coro;
    return coro_return(activation, OUTCOME_OK, 0);
}

static bool has_failures(const struct job_config *config)
{
    return config->failure.end != LEAF_OK;
}

static bool is_plain(const struct leaf_script *script, const struct job_config *config)
{
    return script->burn_ns == 0 && script->delay_ns < 0 && !has_failures(config) &&
           config->stall.children == 0;
}

/* A burning child burns until it fails, any other one waits. */
static void make_failing(struct leaf_script *script, const struct job_failure *failure)
{
    if (script->burn_ns > 0)
        script->burn_ns = failure->at_ns;
    else
        script->delay_ns = failure->at_ns > 0 ? failure->at_ns : LEAF_NO_WAIT;
    script->end = failure->end;
    script->value = JOB_ERROR_VALUE;
}

static void make_scripts(struct job_children *children, const struct job *job)
{
    const struct job_config *config = &children->config;
    for (int bits = 0; bits < SCRIPT_COUNT; bits++) {
        struct leaf_script *script = &children->scripts[bits];
        job->script(config, script);
        script->on_cancel = config->failure.on_cancel;
        script->cleanup_ns = config->failure.cleanup_ns;
        if (bits & SCRIPT_FAILS)
            make_failing(script, &config->failure);
        if (bits & SCRIPT_STALLS)
            script->burn_ns += config->stall.cpu_ns;
    }
}

static const struct leaf_script *script_of(const struct job_children *children, uint32_t i, bool fails)
{
    int bits = (fails ? SCRIPT_FAILS : 0) | (job_is_stalling(children, i) ? SCRIPT_STALLS : 0);
    return &children->scripts[bits];
}

static void *slab(size_t count, size_t size)
{
    size_t bytes = (count * size + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES;
    void *memory = aligned_alloc(CACHE_LINE_BYTES, bytes ? bytes : CACHE_LINE_BYTES);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static int allocate(struct job_children *children, bool plain)
{
    if (plain)
        return (children->plain = slab(children->count, sizeof(*children->plain))) ? 0 : -1;
    if (!(children->leaves = slab(children->count, sizeof(*children->leaves))))
        return -1;
    if (children->config.source == SLEEP_UV_TIMER)
        children->uv_timers = slab(children->count, sizeof(*children->uv_timers));
    return children->config.source == SLEEP_UV_TIMER && !children->uv_timers ? -1 : 0;
}

static void free_memory(struct job_children *children)
{
    free(children->leaves);
    free(children->plain);
    free(children->uv_timers);
    free(children);
}

static void init_leaf(struct job_children *children, uint32_t i)
{
    uv_timer_t *uv_timer = NULL;
    if (children->uv_timers) {
        uv_timer = &children->uv_timers[i];
        (void)uv_timer_init(children->runtime->loop, uv_timer);
        children->handles_open++;
    }
    bool fails = has_failures(&children->config) && (int64_t)i < children->config.failure.children;
    leaf_init(&children->leaves[i], script_of(children, i, fails), uv_timer);
}

static void bind_children(struct job_children *children, struct fanout *fanout)
{
    for (uint32_t i = 0; i < children->count; i++) {
        if (children->plain) {
            children->plain[i].resume = plain_resume;
            fanout->bodies[i] = &children->plain[i];
        } else {
            init_leaf(children, i);
            fanout->bodies[i] = &children->leaves[i].coro;
        }
    }
}

static int check_config(const struct job *job, const struct runtime *runtime, const struct job_config *config,
                        struct error *err)
{
    if (job->needs_delay && config->delay_ns <= 0)
        return error_set(err, ERROR_USAGE, "job '%s' needs a delay above 0", job->name);
    if (config->source == SLEEP_UV_TIMER && !runtime->loop)
        return error_set(err, ERROR_USAGE, "wait 'uv_timer' needs a libuv loop");
    if (config->parameter_count > 0)
        return error_set(err, ERROR_USAGE, "job '%s' has no key '%s'", job->name, config->parameters[0].name);
    return 0;
}

int job_open(const struct job *job, struct runtime *runtime, struct fanout *fanout,
             const struct job_config *config, struct job_children **ret, struct error *err)
{
    if (check_config(job, runtime, config, err) != 0)
        return -1;
    struct job_children *children = calloc(1, sizeof(*children));
    if (!children)
        return error_set(err, ERROR_INTERNAL, "no memory for a job");
    children->runtime = runtime;
    children->count = fanout->count;
    children->config = *config;
    make_scripts(children, job);
    if (allocate(children, is_plain(&children->scripts[0], config)) != 0) {
        free_memory(children);
        return error_set(err, ERROR_INTERNAL, "no memory for %u children", fanout->count);
    }
    bind_children(children, fanout);
    *ret = children;
    return 0;
}

static void handle_closed(uv_handle_t *handle)
{
    struct job_children *children = handle->data;
    children->handles_open--;
}

void job_close(struct job_children *children)
{
    if (!children)
        return;
    for (uint32_t i = 0; children->uv_timers && i < children->count; i++) {
        children->uv_timers[i].data = children;
        uv_close((uv_handle_t *)&children->uv_timers[i], handle_closed);
    }
    while (children->handles_open > 0)
        (void)uv_run(children->runtime->loop, UV_RUN_NOWAIT);
    free_memory(children);
}

void job_choose_failing(struct job_children *children, const uint8_t *failing)
{
    for (uint32_t i = 0; children->leaves && i < children->count; i++)
        children->leaves[i].script = script_of(children, i, failing[i] != 0);
}

int64_t job_overshoot_ns(const struct job_children *children, uint32_t i)
{
    return children->leaves ? children->leaves[i].overshoot_ns : LEAF_NOT_WAITED;
}

int64_t job_late_ns(const struct job_children *children, uint32_t i, int64_t from_ns)
{
    if (job_overshoot_ns(children, i) == LEAF_NOT_WAITED)
        return LEAF_NOT_WAITED;
    const struct leaf *leaf = &children->leaves[i];
    return leaf->sleep.timer.fired_ns - leaf->script->delay_ns - from_ns;
}

bool job_is_stalling(const struct job_children *children, uint32_t i)
{
    return (int64_t)i < children->config.stall.children;
}
