#include "coordinator/summary/summary_internal.h"

#include "base/memory.h"

#include <string.h>

/* ---- one core against several ---- */

char *summary_key_without_cores(const struct store_cell *cell)
{
    const struct wire_cell *x = &cell->spec;
    char *key = memory_format(
        "%s %s %s %s %s %s %lld %lld %lld %lld %lld %.17g fail %d %lld %.17g %lld %s %s %lld stall %lld %lld",
        cell->runtime, x->arm, x->job, x->wait ? x->wait : "", x->phase ? x->phase : "", x->gc ? x->gc : "",
        (long long)x->fanout, (long long)x->delay_ns, (long long)x->clients, (long long)x->duration_ns,
        (long long)x->timeout_ns, x->rate_per_s, x->fail.present, (long long)x->fail.children,
        x->fail.fraction, (long long)x->fail.at_ns, x->fail.outcome ? x->fail.outcome : "",
        x->fail.on_cancel ? x->fail.on_cancel : "", (long long)x->fail.cleanup_ns,
        (long long)x->stall.children, (long long)x->stall.cpu_ns);
    for (size_t i = 0; i < x->params.count; i++) {
        char *longer = memory_format("%s %s=%s", key, x->params.at[i].name, x->params.at[i].value);
        free(key);
        key = longer;
    }
    return key;
}

struct keyed_cell {
    char *key;
    const struct summary_cell *cell;
};

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const struct keyed_cell *)a)->key, ((const struct keyed_cell *)b)->key);
}

static struct summary_figure efficiency(const struct summary_cell *many, const struct keyed_cell *found)
{
    if (!found)
        return no_figure("no_cell_on_one_core");
    const struct summary_figure *one = &found->cell->throughput_per_s;
    if (!many->throughput_per_s.known || !one->known)
        return no_figure("not_measured");
    return figure(many->throughput_per_s.value / ((double)many->cores * one->value));
}

void summary_fill_efficiency(struct summary *summary)
{
    if (summary->scaling_count == 0)
        return;
    const struct store_cell *plans = summary->source->cells;
    scoped_free struct keyed_cell *singles = memory_zeroed(summary->cell_count, sizeof *singles);
    size_t count = 0;
    for (size_t i = 0; i < summary->cell_count; i++)
        if (summary->cells[i].cores == 1)
            singles[count++] = (struct keyed_cell){
                summary_key_without_cores(&plans[summary->cells[i].number]), &summary->cells[i]};
    qsort(singles, count, sizeof *singles, compare_keys);
    for (size_t i = 0; i < summary->scaling_count; i++) {
        const struct summary_cell *many = &summary->cells[summary->scaling[i].cell];
        struct keyed_cell wanted = {summary_key_without_cores(&plans[many->number]), NULL};
        summary->scaling[i].efficiency_x =
            efficiency(many, bsearch(&wanted, singles, count, sizeof *singles, compare_keys));
        free(wanted.key);
    }
    for (size_t i = 0; i < count; i++)
        free(singles[i].key);
}

/* ---- what is told in words ---- */

#define FINDINGS_MOST 12

static bool needs_sequential(enum summary_finding_kind kind)
{
    return kind == SUMMARY_FOUND_WAIT || kind == SUMMARY_FOUND_NO_WAIT;
}

/* The concurrent cell that the sentence is about, and the sequential one; false when the group lacks what its kind
 * needs. */
static bool choose_cells(const struct summary *summary, const struct summary_group *group,
                         const char *runtime, struct summary_finding *ret)
{
    const struct summary_cell *best = NULL, *sequential = NULL, *gather = NULL;
    for (size_t i = 0; i < group->cell_count; i++) {
        const struct summary_cell *cell = &summary->cells[group->cells[i]];
        if (!cell->wall_ns.p50.known || cell->rounds_broken > 0 || strcmp(cell->runtime, runtime) != 0)
            continue;
        if (strcmp(cell->arm, "sequential") == 0) {
            sequential = cell;
            continue;
        }
        if (strcmp(cell->arm, "gather") == 0)
            gather = cell;
        if (!best || cell->wall_ns.p50.value < best->wall_ns.p50.value)
            best = cell;
    }
    if (!best || (!sequential && needs_sequential(ret->kind)))
        return false;
    bool as_good =
        gather && best->wall_ns.p50.bounded && gather->wall_ns.p50.value <= best->wall_ns.p50.ci_hi;
    ret->best = (size_t)((as_good ? gather : best) - summary->cells);
    ret->sequential = sequential ? (size_t)(sequential - summary->cells) : ret->best;
    return true;
}

static enum summary_finding_kind kind_of(const struct summary_group *group)
{
    if (group->may_fail)
        return group->fails ? SUMMARY_FOUND_FAILURE : SUMMARY_FOUND_TIMEOUT;
    if (group->stalls)
        return SUMMARY_FOUND_STALL;
    return group->waits ? SUMMARY_FOUND_WAIT : SUMMARY_FOUND_NO_WAIT;
}

/* Does a tell more than b?  Fewer cores first, then more children, then longer waits. */
static bool tells_more(const struct summary_cell *a, const struct summary_cell *b)
{
    if (a->cores != b->cores)
        return a->cores < b->cores;
    if (a->clients != b->clients)
        return a->clients < b->clients;
    if (a->fanout != b->fanout)
        return a->fanout > b->fanout;
    return a->delay_ns > b->delay_ns;
}

/* The finding about the same runtime, job and kind; NULL when there is none. */
static struct summary_finding *find_same(struct summary *summary, const struct summary_finding *finding)
{
    const char *job = summary->cells[finding->best].job;
    for (size_t i = 0; i < summary->finding_count; i++) {
        struct summary_finding *other = &summary->findings[i];
        if (other->kind == finding->kind && strcmp(other->runtime, finding->runtime) == 0 &&
            strcmp(summary->cells[other->best].job, job) == 0)
            return other;
    }
    return NULL;
}

static void consider(struct summary *summary, size_t group, const char *runtime)
{
    struct summary_finding finding = {
        .kind = kind_of(&summary->groups[group]), .group = group, .runtime = runtime};
    if (!choose_cells(summary, &summary->groups[group], runtime, &finding))
        return;
    struct summary_finding *same = find_same(summary, &finding);
    if (!same && summary->finding_count < FINDINGS_MOST)
        summary->findings[summary->finding_count++] = finding;
    else if (same && tells_more(&summary->cells[finding.best], &summary->cells[same->best]))
        *same = finding;
}

void summary_find(struct summary *summary)
{
    summary->findings = memory_zeroed(FINDINGS_MOST, sizeof *summary->findings);
    for (size_t i = 0; i < summary->group_count; i++) {
        const struct summary_group *group = &summary->groups[i];
        const char *runtime = NULL;
        if (group->windows && (group->clients > 1 || group->rate_per_s > 0))
            continue; /* curves tell of those */
        for (size_t j = 0; j < group->cell_count; j++) {
            const char *next = summary->cells[group->cells[j]].runtime;
            if (!runtime || strcmp(runtime, next) != 0)
                consider(summary, i, next); /* cells of a group lie by runtime */
            runtime = next;
        }
    }
}
