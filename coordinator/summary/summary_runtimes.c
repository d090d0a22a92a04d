/* Runtimes against each other: the same arm of the same group, p50 over p50, against the first runtime that has it. */
#include "coordinator/summary/summary_internal.h"

#include "base/memory.h"

#include <string.h>

static struct summary_figure over(const struct stats_estimate *a, const struct stats_estimate *b)
{
    if (!a->known || !b->known)
        return no_figure("not_measured");
    return b->value > 0 ? figure(a->value / b->value) : no_figure("denominator_not_positive");
}

/* The first cell of the group that runs this arm; there is one, the cell itself at the latest. */
static size_t first_with_arm(const struct summary *summary, const struct summary_group *group,
                             const char *arm)
{
    size_t i = 0;
    while (strcmp(summary->cells[group->cells[i]].arm, arm) != 0)
        i++;
    return group->cells[i];
}

/* Cells of a group lie by runtime, so a contrast grows at the end of the list. */
static struct summary_contrast *contrast_of(struct summary *summary, size_t group, size_t first, size_t cell)
{
    struct summary_contrast *last = &summary->contrasts[summary->contrast_count];
    const char *runtime = summary->cells[cell].runtime;
    if (summary->contrast_count > 0 && last[-1].group == group &&
        strcmp(summary->cells[last[-1].lowest].runtime, runtime) == 0 &&
        strcmp(summary->cells[last[-1].first].runtime, summary->cells[first].runtime) == 0)
        return &last[-1];
    *last = (struct summary_contrast){.group = group, .first = first, .lowest = cell, .highest = cell};
    summary->contrast_count++;
    return last;
}

static void note_contrast(struct summary *summary, size_t group, size_t first, size_t cell)
{
    const struct summary_cell *cells = summary->cells;
    struct summary_contrast *contrast = contrast_of(summary, group, first, cell);
    double times = cells[cell].cpu_over_first_x.value;
    if (times < cells[contrast->lowest].cpu_over_first_x.value)
        contrast->lowest = cell;
    if (times > cells[contrast->highest].cpu_over_first_x.value)
        contrast->highest = cell;
}

static void compare_group(struct summary *summary, size_t index)
{
    const struct summary_group *group = &summary->groups[index];
    for (size_t i = 0; i < group->cell_count; i++) {
        struct summary_cell *cell = &summary->cells[group->cells[i]];
        size_t first = first_with_arm(summary, group, cell->arm);
        const struct summary_cell *against = &summary->cells[first];
        cell->first_of_arm = against == cell;
        cell->wall_over_first_x = over(&cell->wall_ns.p50, &against->wall_ns.p50);
        cell->cpu_over_first_x = over(&cell->cpu_ns.p50, &against->cpu_ns.p50);
        if (!cell->first_of_arm && cell->cpu_over_first_x.known)
            note_contrast(summary, index, first, group->cells[i]);
    }
}

void summary_compare_runtimes(struct summary *summary)
{
    summary->contrasts = memory_zeroed(summary->cell_count + 1, sizeof *summary->contrasts);
    for (size_t i = 0; i < summary->group_count; i++)
        compare_group(summary, i);
}
