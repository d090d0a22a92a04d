#include "worker/slab.h"

#include <stdlib.h>
#include <string.h>

struct word {
    const char *text;
    int value;
};

static const struct word sources[] = {{"timerfd", SLEEP_TIMERFD}, {"uv_timer", SLEEP_UV_TIMER}, {NULL, 0}};
static const struct word ends[] = {{"fail", LEAF_FAIL}, {"cancel", LEAF_CANCEL_SELF}, {NULL, 0}};
static const struct word cancel_answers[] = {
    {"propagate", LEAF_PROPAGATE}, {"suppress", LEAF_SUPPRESS}, {"cleanup", LEAF_CLEANUP}, {NULL, 0}};

static int find_word(const struct word *words, const char *what, const char *text, int *ret,
                     struct error *err)
{
    for (; words->text; words++) {
        if (strcmp(words->text, text) != 0)
            continue;
        *ret = words->value;
        return 0;
    }
    return error_set(err, ERROR_USAGE, "unknown %s '%s'", what, text);
}

static int read_failure(const struct wire_fail *fail, struct job_failure *ret, struct error *err)
{
    int end = LEAF_OK, on_cancel = LEAF_PROPAGATE;
    if (!fail->present)
        return 0;
    if (find_word(ends, "outcome", fail->outcome, &end, err) < 0 ||
        find_word(cancel_answers, "on_cancel", fail->on_cancel, &on_cancel, err) < 0)
        return -1;
    *ret = (struct job_failure){
        .children = fail->children,
        .at_ns = fail->at_ns,
        .end = (enum leaf_end)end,
        .on_cancel = (enum leaf_on_cancel)on_cancel,
        .cleanup_ns = fail->cleanup_ns,
    };
    return 0;
}

static int open_children(struct runtime *runtime, struct slab *slab, struct error *err)
{
    const struct wire_cell *cell = slab->cell;
    struct job_config config = {.delay_ns = cell->delay_ns};
    int source = SLEEP_TIMERFD;
    if (find_word(sources, "wait source", cell->wait, &source, err) < 0 ||
        read_failure(&cell->fail, &config.failure, err) < 0)
        return -1;
    config.source = (enum sleep_source)source;
    if (cell->stall.present)
        config.stall = (struct job_stall){cell->stall.children, cell->stall.cpu_ns};
    _Static_assert(sizeof(struct job_parameter) == sizeof(struct wire_pair), "pairs of texts both");
    struct job_parameter *parameters = calloc(cell->params.count + 1, sizeof *parameters);
    if (!parameters)
        return error_set(err, ERROR_INTERNAL, "no memory");
    for (size_t i = 0; i < cell->params.count; i++)
        parameters[i] = (struct job_parameter){cell->params.at[i].name, cell->params.at[i].value};
    config.parameters = parameters;
    config.parameter_count = cell->params.count;
    int rc = job_open(slab->job, runtime, slab->fanout, &config, &slab->children, err);
    free(parameters);
    return rc;
}

#define ROOM_BYTES 64 /* whole cache lines */

/* Zeroed, every page of it there from now on: calloc would leave that to the first round.  NULL: no memory. */
static void *room_of(size_t bytes)
{
    size_t whole = (bytes + ROOM_BYTES) / ROOM_BYTES * ROOM_BYTES;
    void *room = aligned_alloc(ROOM_BYTES, whole);
    if (room)
        memset(room, 0, whole);
    return room;
}

static int open_rooms(struct slab *slab, struct error *err)
{
    size_t count = (size_t)slab->cell->fanout;
    if (slab->cell->duration_ns > 0) /* windows keep overshoots of their own */
        return 0;
    if (slab->job->waits && !(slab->overshoots_ns = room_of(count * sizeof *slab->overshoots_ns)))
        return error_set(err, ERROR_INTERNAL, "no memory for %zu waits", count);
    if (slab->cell->fail.present && slab->cell->fail.fraction > 0 && !(slab->failing = room_of(count)))
        return error_set(err, ERROR_INTERNAL, "no memory for %zu children", count);
    return 0;
}

int slab_open(struct runtime *runtime, const struct wire_cell *cell, struct slab *ret, struct error *err)
{
    struct slab slab = {.cell = cell, .job = job_find(cell->job)};
    if (!slab.job)
        return error_set(err, ERROR_USAGE, "unknown job '%s'", cell->job);
    if (fanout_new((uint32_t)cell->fanout, &slab.fanout, err) < 0)
        return -1;
    if (open_children(runtime, &slab, err) < 0 || open_rooms(&slab, err) < 0) {
        slab_close(&slab);
        return -1;
    }
    *ret = slab;
    return 0;
}

void slab_close(struct slab *slab)
{
    if (slab->children)
        job_close(slab->children);
    fanout_free(slab->fanout);
    free(slab->overshoots_ns);
    free(slab->failing);
    *slab = (struct slab){0};
}

static bool same_fail(const struct wire_fail *a, const struct wire_fail *b)
{
    if (!a->present || !b->present)
        return a->present == b->present;
    return a->children == b->children && !(a->fraction < b->fraction) && !(a->fraction > b->fraction) &&
           a->at_ns == b->at_ns && a->cleanup_ns == b->cleanup_ns && strcmp(a->outcome, b->outcome) == 0 &&
           strcmp(a->on_cancel, b->on_cancel) == 0;
}

static bool same_stall(const struct wire_stall *a, const struct wire_stall *b)
{
    if (!a->present || !b->present)
        return a->present == b->present;
    return a->children == b->children && a->cpu_ns == b->cpu_ns;
}

static bool same_pairs(const struct wire_pairs *a, const struct wire_pairs *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (strcmp(a->at[i].name, b->at[i].name) != 0 || strcmp(a->at[i].value, b->at[i].value) != 0)
            return false;
    return a->count == b->count;
}

bool slab_serves(const struct slab *slab, const struct wire_cell *cell)
{
    const struct wire_cell *own = slab->cell;
    return own->fanout == cell->fanout && strcmp(own->job, cell->job) == 0 &&
           own->delay_ns == cell->delay_ns && (own->duration_ns > 0) == (cell->duration_ns > 0) &&
           strcmp(own->wait, cell->wait) == 0 && same_fail(&own->fail, &cell->fail) &&
           same_stall(&own->stall, &cell->stall) && same_pairs(&own->params, &cell->params);
}
