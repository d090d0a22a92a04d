/* Which groups wait for others: the rungs of a ladder for the one below, parts of ceilings for the whole ladder. */
#include "coordinator/schedule/schedule_internal.h"

#include <string.h>

#define SATURATED_AT "saturated at K=%lld"

static bool is_part(const struct plan_cell *cell)
{
    return cell->rate_factor > 0 && cell->series >= 0;
}

static bool is_of_ladder(const struct plan_cell *cell)
{
    return cell->series >= 0 && !is_part(cell);
}

static const struct plan_cell *cell_at(const struct schedule *schedule, const struct group *group,
                                       int64_t index)
{
    return &schedule->plan->cells[group->plan->cells[index]];
}

static bool has_parts(const struct schedule *schedule, const struct group *group)
{
    for (int64_t i = 0; i < group->plan->cell_count; i++)
        if (is_part(cell_at(schedule, group, i)))
            return true;
    return false;
}

static bool must_wait(const struct schedule *schedule, const struct group *group)
{
    int64_t below = group->plan->previous_rung;
    if (below >= 0 && schedule->groups[below].status < GROUP_DONE)
        return true;
    for (int64_t i = 0; i < group->plan->cell_count; i++) {
        const struct plan_cell *cell = cell_at(schedule, group, i);
        if (is_part(cell) && schedule->series[cell->series].groups_left > 0)
            return true;
    }
    return false;
}

/* ---- what a rung showed ---- */

void ladder_take(struct schedule *schedule, const struct wire_result *result)
{
    for (size_t i = 0; i < result->round_count; i++) {
        const struct wire_round *round = &result->rounds[i];
        const struct plan_cell *cell = &schedule->plan->cells[round->cell];
        bool is_number = !round->error && round->fanouts != WIRE_NULL && round->wall_ns != WIRE_NULL &&
                         round->cpu_ns != WIRE_NULL;
        if (!is_number || !is_of_ladder(cell))
            continue;
        struct schedule_load *load = &schedule->loads[round->cell];
        load->fanouts += (double)round->fanouts;
        load->wall_ns += (double)round->wall_ns;
        load->cpu_ns += (double)round->cpu_ns;
        load->busy_ns += round->busy_ticks == WIRE_NULL ? 0 : (double)round->busy_ticks * SCHEDULE_TICK_NS;
    }
}

void ladder_forget(struct schedule *schedule, const struct group *group)
{
    for (int64_t i = 0; schedule->loads && i < group->plan->cell_count; i++)
        schedule->loads[group->plan->cells[i]] = (struct schedule_load){0};
}

static void learn(struct schedule *schedule, const struct group *group)
{
    for (int64_t i = 0; i < group->plan->cell_count; i++) {
        const struct plan_cell *cell = cell_at(schedule, group, i);
        const struct schedule_load *load = &schedule->loads[cell->spec.cell];
        if (!is_of_ladder(cell) || !(load->wall_ns > 0))
            continue;
        struct series *series = &schedule->series[cell->series];
        double per_s = load->fanouts / load->wall_ns * (double)NS_PER_S;
        double busy_ns = load->busy_ns > load->cpu_ns ? load->busy_ns : load->cpu_ns;
        series->ceiling_per_s = per_s > series->ceiling_per_s ? per_s : series->ceiling_per_s;
        if (busy_ns < PLAN_SATURATED * load->wall_ns || load->cpu_ns < PLAN_OWN_SHARE * load->wall_ns)
            continue;
        series->saturated_rungs++;
        series->saturated_at =
            cell->spec.clients > series->saturated_at ? cell->spec.clients : series->saturated_at;
    }
}

/* ---- what follows for those that waited ---- */

/* Clients at which the arm of this cell was saturated for the second time; 0: it is not yet. */
static int64_t cell_saturated_at(const struct schedule *schedule, const struct plan_cell *cell)
{
    if (!is_of_ladder(cell) || schedule->series[cell->series].saturated_rungs < PLAN_SATURATED_RUNGS)
        return 0;
    return schedule->series[cell->series].saturated_at;
}

/* The same of all that the rung would measure; 0: something is not saturated yet. */
static int64_t saturated_at(const struct schedule *schedule, const struct group *group)
{
    int64_t clients = 0;
    for (int64_t i = 0; group->plan->is_rung && i < group->plan->cell_count; i++) {
        const struct plan_cell *cell = cell_at(schedule, group, i);
        int64_t at = cell->harness ? clients : cell_saturated_at(schedule, cell);
        if (at == 0)
            return 0;
        clients = at > clients ? at : clients;
    }
    return clients;
}

/* The rung goes on without the arms that are; a runtime's harness, which comes last of its cells, goes with the last arm. */
static void leave_out_saturated(struct schedule *schedule, struct group *group)
{
    const struct plan_cell *last = NULL;
    int64_t kept = 0;
    for (int64_t i = 0; group->plan->is_rung && i < group->plan->cell_count; i++) {
        const struct plan_cell *cell = cell_at(schedule, group, i);
        int64_t clients = cell->harness ? 0 : cell_saturated_at(schedule, cell);
        if (clients > 0) {
            scoped_free char *why = memory_format(SATURATED_AT, (long long)clients);
            schedule_leave_out_cell(schedule, cell->spec.cell, why);
        } else if (!cell->harness || (last && strcmp(last->runtime, cell->runtime) == 0)) {
            group->cells[kept++] = cell->spec.cell;
            last = cell;
        }
    }
    if (group->plan->is_rung && kept < group->cell_count)
        schedule_keep_cells(schedule, group, kept);
}

static void put_rate(struct schedule *schedule, const struct plan_cell *cell, double per_s)
{
    struct schedule_action *action = schedule_act(schedule, SCHEDULE_STORE_RATE);
    schedule->rates[cell->spec.cell] = per_s;
    action->number = cell->spec.cell;
    action->rate_per_s = per_s;
}

static void tell_of_unsaturated(struct schedule *schedule, const struct plan_cell *cell)
{
    const struct series *series = &schedule->series[cell->series];
    if (series->saturated_rungs == 0)
        schedule_note(schedule, "never_saturated", "%s is a part of %.6g/s, the most that its ladder did",
                      cell->id, series->ceiling_per_s);
}

/* Parts become numbers; the harness of a runtime goes as fast as the fastest of its arms.  false: a ceiling is missing. */
static bool put_rates(struct schedule *schedule, const struct group *group)
{
    double fastest = 0;
    for (int64_t i = 0; i < group->plan->cell_count; i++) {
        const struct plan_cell *cell = cell_at(schedule, group, i);
        if (is_part(cell) && !(schedule->series[cell->series].ceiling_per_s > 0))
            return false;
    }
    for (int64_t i = 0; i < group->plan->cell_count; i++) { /* a runtime's harness comes last of its cells */
        const struct plan_cell *cell = cell_at(schedule, group, i);
        double per_s =
            is_part(cell) ? cell->rate_factor * schedule->series[cell->series].ceiling_per_s : fastest;
        fastest = cell->harness ? 0 : per_s > fastest ? per_s : fastest;
        put_rate(schedule, cell, per_s);
        if (is_part(cell))
            tell_of_unsaturated(schedule, cell);
    }
    return true;
}

static void release_if_free(struct schedule *schedule, struct group *group)
{
    if (!group->held || must_wait(schedule, group))
        return;
    int64_t clients = saturated_at(schedule, group);
    group->held = false;
    if (clients > 0) {
        scoped_free char *why = memory_format(SATURATED_AT, (long long)clients);
        schedule_leave_out(schedule, group, why);
    } else if (has_parts(schedule, group) && !put_rates(schedule, group)) {
        schedule_fail_group(schedule, group,
                            "no rung of the ladder was measured, so its ceiling is not known");
    } else {
        leave_out_saturated(schedule, group);
        schedule_release(schedule, group);
    }
}

void ladder_over(struct schedule *schedule, struct group *group)
{
    bool closed = false;
    for (int64_t i = 0; i < group->plan->cell_count; i++) {
        const struct plan_cell *cell = cell_at(schedule, group, i);
        if (is_of_ladder(cell))
            closed |= --schedule->series[cell->series].groups_left == 0;
    }
    learn(schedule, group);
    if (schedule->phase != SCHEDULE_RUNNING)
        return;
    if (group->next_rung >= 0)
        release_if_free(schedule, &schedule->groups[group->next_rung]);
    for (size_t i = 0; closed && i < schedule->part_count; i++)
        release_if_free(schedule, &schedule->groups[schedule->parts[i]]);
}

/* ---- begin and end ---- */

static void enter(struct schedule *schedule, struct group *group)
{
    bool over = group->status >= GROUP_DONE;
    if (group->plan->previous_rung >= 0)
        schedule->groups[group->plan->previous_rung].next_rung = group->plan->number;
    for (int64_t i = 0; i < group->plan->cell_count; i++) {
        const struct plan_cell *cell = cell_at(schedule, group, i);
        if (is_of_ladder(cell))
            schedule->series[cell->series].groups_left += !over;
    }
    if (over)
        learn(schedule, group);
    else if (has_parts(schedule, group))
        schedule->parts[schedule->part_count++] = group->plan->number;
}

void ladder_begin(struct schedule *schedule, const struct schedule_load *loads)
{
    const struct plan *plan = schedule->plan;
    size_t cells = (size_t)plan->cell_count, groups = (size_t)plan->group_count;
    schedule->series = memory_zeroed((size_t)plan->series_count + 1, sizeof *schedule->series);
    schedule->loads = memory_zeroed(cells + 1, sizeof *schedule->loads);
    schedule->rates = memory_zeroed(cells + 1, sizeof *schedule->rates);
    schedule->parts = memory_zeroed(groups + 1, sizeof *schedule->parts);
    for (size_t i = 0; loads && i < cells; i++)
        schedule->loads[i] = loads[i];
    for (size_t i = 0; i < groups; i++)
        schedule->groups[i].next_rung = -1;
    for (size_t i = 0; i < groups; i++)
        enter(schedule, &schedule->groups[i]);
    for (size_t i = 0; i < groups; i++) /* first hold all: leaving one out frees the next */
        schedule->groups[i].held = schedule->groups[i].status == GROUP_WAITING;
    for (size_t i = 0; i < groups; i++)
        release_if_free(schedule, &schedule->groups[i]);
}

void ladder_free(struct schedule *schedule)
{
    free(schedule->series);
    free(schedule->loads);
    free(schedule->rates);
    free(schedule->parts);
}
