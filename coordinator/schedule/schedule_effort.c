#include "coordinator/schedule/schedule_internal.h"
#include "coordinator/stats/precision.h"

#include <math.h>

/* Expected times are guesses until a few passes have shown how they compare with the truth. */
#define LEAST_PACE 0.2
#define MOST_PACE  20

/* ---- time ---- */

int64_t effort_pass_ns(const struct group *group)
{
    return group->expected_ns / group->plan->processes;
}

static int64_t needed_ns(const struct group *group)
{
    bool over = group->status >= GROUP_DONE;
    return over ? 0 : effort_pass_ns(group) * (group->plan->processes - group->pass);
}

void effort_count(struct schedule *schedule, const struct group *group, int sign)
{
    int64_t ns = sign * needed_ns(group);
    schedule->needed_ns += ns;
    if (group->plan->precision > 0)
        schedule->auto_needed_ns += ns;
    if (group->admitted)
        schedule->committed_ns += ns;
}

static double pace(const struct schedule *schedule)
{
    if (schedule->fixed_cost_ns <= 0)
        return 1;
    return fmin(fmax((double)schedule->fixed_took_ns / (double)schedule->fixed_cost_ns, LEAST_PACE),
                MOST_PACE);
}

void effort_learn(struct schedule *schedule, const struct attempt *attempt)
{
    if (attempt->values)
        return;
    schedule->fixed_took_ns += schedule->now_ns - attempt->started_ns;
    schedule->fixed_cost_ns += effort_pass_ns(attempt->group);
}

/* The least that its pass needs, and its part of what is left beyond the least of all. */
static int64_t share_ns(const struct schedule *schedule, const struct group *group)
{
    double least = (double)effort_pass_ns(group), hosts = (double)schedule->host_count;
    double left = (double)(schedule->deadline_ns - schedule->now_ns) * hosts;
    double beyond = left - pace(schedule) * (double)schedule->needed_ns;
    if (schedule->auto_needed_ns > 0 && beyond > 0)
        least += beyond * least / (double)schedule->auto_needed_ns;
    return least < (double)(INT64_MAX / 4) ? (int64_t)least : INT64_MAX / 4;
}

bool effort_admits(struct schedule *schedule, struct group *group)
{
    group->until_ns = INT64_MAX;
    if (schedule->deadline_ns == INT64_MAX)
        return true;
    int64_t left_ns = schedule->deadline_ns - schedule->now_ns;
    if (group->admitted && left_ns <= 0)
        return false;
    if (!group->admitted) {
        double others = (double)schedule->committed_ns / (double)schedule->host_count;
        if (pace(schedule) * ((double)needed_ns(group) + others) > (double)left_ns)
            return false;
        effort_count(schedule, group, -1);
        group->admitted = true;
        effort_count(schedule, group, 1);
    }
    if (group->plan->precision > 0)
        group->until_ns = schedule->now_ns + share_ns(schedule, group);
    return true;
}

/* ---- blocks ---- */

static int64_t left_ns(const struct schedule *schedule, const struct group *group)
{
    return group->until_ns == INT64_MAX ? INT64_MAX : group->until_ns - schedule->now_ns;
}

void effort_open(const struct schedule *schedule, struct attempt *attempt)
{
    const struct group *group = attempt->group;
    int64_t blocks = group->plan->blocks;
    attempt->started_ns = schedule->now_ns;
    attempt->first_block = attempt->block = group->pass * blocks;
    if (group->plan->precision > 0) {
        attempt->values = memory_zeroed((size_t)group->plan->cell_count, sizeof *attempt->values);
        blocks = precision_first(blocks, group->block_ns, left_ns(schedule, group));
    }
    attempt->batch_end = attempt->first_block + blocks;
}

void effort_close(struct attempt *attempt)
{
    for (int64_t i = 0; attempt->values && i < attempt->group->plan->cell_count; i++) {
        free(attempt->values[i].wall_ns);
        free(attempt->values[i].cpu_ns);
    }
    free(attempt->values);
    attempt->values = NULL;
}

static void add_value(struct effort_values *values, const struct wire_round *round)
{
    bool is_number = !round->error && round->fanouts != WIRE_NULL && round->fanouts > 0 &&
                     round->wall_ns != WIRE_NULL && round->cpu_ns != WIRE_NULL;
    if (!is_number)
        return;
    if (values->count == values->room) {
        values->room = values->room ? values->room * 2 : 16;
        values->wall_ns = memory_resized(values->wall_ns, values->room, sizeof *values->wall_ns);
        values->cpu_ns = memory_resized(values->cpu_ns, values->room, sizeof *values->cpu_ns);
    }
    values->wall_ns[values->count] = (double)round->wall_ns / (double)round->fanouts;
    values->cpu_ns[values->count++] = (double)round->cpu_ns / (double)round->fanouts;
}

void effort_take(struct attempt *attempt, const struct wire_result *result)
{
    const struct plan_group *plan = attempt->group->plan;
    for (size_t i = 0; attempt->values && i < result->round_count; i++)
        add_value(&attempt->values[result->rounds[i].cell - plan->cells[0]], &result->rounds[i]);
}

/* The widest interval of all cells but the harness, for wall and CPU. */
static double achieved(const struct schedule *schedule, const struct attempt *attempt)
{
    const struct group *group = attempt->group;
    double widest = 0;
    for (int64_t i = 0; i < group->cell_count; i++) {
        const struct effort_values *values = &attempt->values[group->cells[i] - group->plan->cells[0]];
        if (schedule->plan->cells[group->cells[i]].harness)
            continue;
        struct stats_estimate wall = stats_median(values->wall_ns, values->count);
        struct stats_estimate cpu = stats_median(values->cpu_ns, values->count);
        widest = fmax(widest, fmax(precision_of(&wall), precision_of(&cpu)));
    }
    return widest;
}

bool effort_goes_on(const struct schedule *schedule, struct attempt *attempt)
{
    const struct plan_group *plan = attempt->group->plan;
    if (!attempt->values)
        return false;
    int64_t blocks = attempt->block - attempt->first_block;
    struct precision_state state = {
        .blocks = blocks,
        .most = plan->blocks,
        .achieved = achieved(schedule, attempt),
        .target = plan->precision,
        .block_ns = (schedule->now_ns - attempt->measured_ns) / blocks,
        .left_ns = left_ns(schedule, attempt->group),
    };
    attempt->batch_end = attempt->first_block + precision_next(&state);
    attempt->group->kept = true;
    return attempt->batch_end > attempt->block;
}
