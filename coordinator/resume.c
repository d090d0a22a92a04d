#include "coordinator/resume.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static int get_number(struct store *store, const char *key, int64_t *ret, struct error *err)
{
    scoped_free char *text = NULL;
    if (store_get_fact(store, key, &text, err) < 0)
        return -1;
    if (text)
        *ret = strtoll(text, NULL, 10);
    return 0;
}

static int load_facts(struct resume *resume, struct error *err)
{
    struct store *store = resume->store;
    if (store_get_fact(store, "run_id", &resume->run, err) < 0 ||
        store_get_fact(store, "sweep", &resume->sweep, err) < 0 ||
        store_get_fact(store, "environment", &resume->environment, err) < 0 ||
        get_number(store, "all_cores", &resume->all_cores, err) < 0 ||
        get_number(store, "elapsed_ns", &resume->elapsed_ns, err) < 0)
        return -1;
    return 0;
}

static void load_past(struct resume *resume)
{
    const struct store_run *before = resume->before;
    resume->past = memory_zeroed(before->group_count, sizeof *resume->past);
    for (size_t i = 0; i < before->group_count; i++)
        resume->past[i] = (struct schedule_past){.done = before->groups[i].status == STORE_GROUP_DONE ||
                                                         before->groups[i].status == STORE_GROUP_LEFT_OUT,
                                                 .attempts = before->groups[i].attempts};
    for (size_t i = 0; i < before->worker_count; i++)
        if (before->workers[i].number >= resume->first_worker)
            resume->first_worker = before->workers[i].number + 1;
}

static void add_load(const struct wire_round *round, struct schedule_load *load)
{
    if (round->error || round->fanouts == WIRE_NULL || round->wall_ns == WIRE_NULL ||
        round->cpu_ns == WIRE_NULL)
        return;
    load->fanouts += (double)round->fanouts;
    load->wall_ns += (double)round->wall_ns;
    load->cpu_ns += (double)round->cpu_ns;
    load->busy_ns += round->busy_ticks == WIRE_NULL ? 0 : (double)round->busy_ticks * SCHEDULE_TICK_NS;
}

/* What the rungs showed that are done: the next ones go by it. */
static int load_loads(struct resume *resume, struct error *err)
{
    const struct store_run *before = resume->before;
    resume->loads = memory_zeroed(before->cell_count + 1, sizeof *resume->loads);
    for (size_t i = 0; i < before->cell_count; i++) {
        const struct store_cell *cell = &before->cells[i];
        struct store_rounds *rounds;
        bool is_window = cell->spec.duration_ns > 0 && !cell->harness;
        if (!is_window || before->groups[cell->group].status != STORE_GROUP_DONE)
            continue;
        if (store_load_rounds(resume->store, cell->number, &rounds, err) < 0)
            return -1;
        for (size_t j = 0; j < rounds->count; j++)
            add_load(&rounds->at[j].raw, &resume->loads[i]);
        store_rounds_free(rounds);
    }
    return 0;
}

int resume_open(const char *dir, struct resume *ret, struct error *err)
{
    struct resume resume = {0};
    int status = store_open(dir, STORE_RESUME, &resume.store, err);
    if (status == 0)
        status = load_facts(&resume, err);
    if (status == 0)
        status = store_load(resume.store, &resume.before, err);
    if (status == 0 && (!resume.run || !resume.sweep || resume.before->group_count == 0))
        status =
            error_set(err, ERROR_USAGE,
                      "'%s' cannot be resumed: it never got as far as its plan; run its sweep anew", dir);
    if (status == 0)
        status = load_loads(&resume, err);
    if (status < 0) {
        store_close(resume.store);
        resume_release(&resume);
        return -1;
    }
    load_past(&resume);
    *ret = resume;
    return 0;
}

static int check_cells(const struct store_run *before, const struct plan *plan, struct error *err)
{
    const char *advice = "resume it with the corefan that began it";
    if ((size_t)plan->cell_count != before->cell_count || (size_t)plan->group_count != before->group_count)
        return error_set(err, ERROR_USAGE, "this corefan plans %lld cells where the run has %zu: %s",
                         (long long)plan->cell_count, before->cell_count, advice);
    for (size_t i = 0; i < before->cell_count; i++)
        if (strcmp(plan->cells[i].id, before->cells[i].id) != 0 ||
            plan->cells[i].group != before->cells[i].group ||
            plan->cells[i].rounds != before->cells[i].rounds)
            return error_set(err, ERROR_USAGE, "this corefan plans '%s' where the run has '%s': %s",
                             plan->cells[i].id, before->cells[i].id, advice);
    return 0;
}

int resume_check(const struct resume *resume, const struct plan *plan, struct error *err)
{
    scoped_free char *sha256 = NULL;
    if (store_get_fact(resume->store, "sweep_sha256", &sha256, err) < 0)
        return -1;
    if (!sha256 || strcmp(sha256, plan->sweep_sha256) != 0)
        return error_set(
            err, ERROR_USAGE,
            "this sweep (sha256 %.12s) is not the one that the run was begun with (%.12s): leave it out, "
            "the run knows its own",
            plan->sweep_sha256, sha256 ? sha256 : "none");
    return check_cells(resume->before, plan, err);
}

void resume_release(struct resume *resume)
{
    free(resume->run);
    free(resume->sweep);
    free(resume->environment);
    free(resume->past);
    free(resume->loads);
    store_run_free(resume->before);
    *resume = (struct resume){0};
}
