#include "base/rng.h"
#include "base/units.h"
#include "coordinator/schedule/schedule_internal.h"

#include <string.h>

#define START_LEAD_NS        (2 * NS_PER_MS)
#define START_LEAD_MEMBER_NS (50 * NS_PER_US)
#define LEASE_FLOOR_NS       (10 * NS_PER_S)
#define PREPARE_CELL_NS      (2 * NS_PER_S) /* calibration of one cell, generously */
#define PREPARE_ROUNDS       64             /* warm-up rounds of one cell at most, generously */
#define PREPARE_WINDOWS      8
#define ABORT_LEASE_NS       (10 * NS_PER_S)
#define LEASE_FACTOR         8
#define WINDOW_LEASE_FACTOR  4 /* windows take as long as they are told, however slow the machine */
/* Orders of runtimes come from streams of their own: blocks, whose streams order cells, number fewer than this. */
#define RUNTIME_STREAM (1ull << 40)

/* -- pools -------------------------------------------------------------------------------------------------- */

void pool_add(struct pool *pool, struct worker *worker)
{
    if (pool->count == pool->room) {
        pool->room = pool->room ? pool->room * 2 : 4;
        pool->at = memory_resized(pool->at, pool->room, sizeof *pool->at);
    }
    size_t at = pool->count++;
    for (; at > 0 && pool->at[at - 1]->order > worker->order; at--)
        pool->at[at] = pool->at[at - 1];
    pool->at[at] = worker;
}

void pool_remove(struct pool *pool, const struct worker *worker)
{
    for (size_t i = 0; i < pool->count; i++)
        if (pool->at[i] == worker) {
            memmove(pool->at + i, pool->at + i + 1, (pool->count - i - 1) * sizeof *pool->at);
            pool->count--;
            return;
        }
}

void schedule_look_at(struct schedule *schedule, struct peer_host *host)
{
    if (host->queued || host->attempt || host->renewing > 0)
        return;
    host->queued = true;
    host->next = NULL;
    if (schedule->look_last)
        schedule->look_last->next = host;
    else
        schedule->look_first = host;
    schedule->look_last = host;
}

void schedule_look_at_all(struct schedule *schedule)
{
    for (size_t i = 0; i < schedule->host_count; i++)
        schedule_look_at(schedule, schedule->host_list[i]);
}

/* -- groups and their shapes -------------------------------------------------------------------------------- */

static size_t label_index(const struct schedule *schedule, const char *label)
{
    size_t i = 0;
    while (i < schedule->config.label_count && strcmp(schedule->labels[i], label) != 0)
        i++;
    return i;
}

static bool shape_fits(const struct shape *shape, const struct group *group)
{
    if (shape->cores != group->plan->cores || shape->fresh != (group->plan->processes > 1) ||
        shape->label_count != group->slice_count)
        return false;
    for (size_t i = 0; i < shape->label_count; i++)
        if (shape->labels[i] != group->slices[i].label)
            return false;
    return true;
}

static size_t shape_of(struct schedule *schedule, const struct group *group)
{
    for (size_t i = 0; i < schedule->shape_count; i++)
        if (shape_fits(&schedule->shapes[i], group))
            return i;
    size_t count = group->slice_count;
    struct shape shape = {.cores = group->plan->cores,
                          .fresh = group->plan->processes > 1,
                          .label_count = count,
                          .head = -1,
                          .tail = -1};
    shape.labels = memory_zeroed(count, sizeof *shape.labels);
    for (size_t i = 0; i < count; i++)
        shape.labels[i] = group->slices[i].label;
    schedule->shapes = memory_resized(schedule->shapes, schedule->shape_count + 1, sizeof *schedule->shapes);
    schedule->shapes[schedule->shape_count] = shape;
    return schedule->shape_count++;
}

/* cells of a group lie by runtime: cut them where the runtime changes */
static void slices_make(struct schedule *schedule, struct group *group)
{
    group->slice_count = 0;
    group->block_ns = 0;
    for (int64_t i = 0; i < group->cell_count; i++) {
        const struct plan_cell *cell = &schedule->plan->cells[group->cells[i]];
        size_t label = label_index(schedule, cell->runtime);
        if (group->slice_count == 0 || group->slices[group->slice_count - 1].label != label)
            group->slices[group->slice_count++] = (struct slice){.label = label, .cells = &group->cells[i]};
        struct slice *slice = &group->slices[group->slice_count - 1];
        schedule->cell_position[group->cells[i]] = slice->cell_count++;
        slice->block_ns += cell->expected_ns;
        group->block_ns += cell->expected_ns;
    }
    group->shape = shape_of(schedule, group);
}

static void group_open(struct schedule *schedule, struct group *group, const struct plan_group *plan)
{
    size_t cells = (size_t)plan->cell_count;
    group->plan = plan;
    group->next = group->newest = -1;
    group->expected_ns = plan->expected_ns;
    group->slices = memory_zeroed((size_t)plan->runtime_count, sizeof *group->slices);
    group->cells = memory_zeroed(cells, sizeof *group->cells);
    group->cell_count = plan->cell_count;
    memcpy(group->cells, plan->cells, cells * sizeof *group->cells);
    slices_make(schedule, group);
}

void schedule_keep_cells(struct schedule *schedule, struct group *group, int64_t count)
{
    int64_t block_ns = group->block_ns, expected_ns = group->expected_ns;
    effort_count(schedule, group, -1);
    group->cell_count = count;
    slices_make(schedule, group);
    double part = block_ns > 0 ? (double)group->block_ns / (double)block_ns : 1;
    group->expected_ns = (int64_t)((double)expected_ns * part);
    schedule->done_ns += expected_ns - group->expected_ns;
    effort_count(schedule, group, 1);
}

static void shape_append(struct schedule *schedule, int64_t number)
{
    struct shape *shape = &schedule->shapes[schedule->groups[number].shape];
    schedule->groups[number].next = -1;
    if (shape->tail >= 0)
        schedule->groups[shape->tail].next = number;
    else
        shape->head = number;
    shape->tail = number;
}

/* a group that is to be tried again comes first: its neighbours in the plan were meant to be its neighbours in time */
static void shape_prepend(struct schedule *schedule, int64_t number)
{
    struct shape *shape = &schedule->shapes[schedule->groups[number].shape];
    schedule->groups[number].next = shape->head;
    shape->head = number;
    if (shape->tail < 0)
        shape->tail = number;
}

static void shape_pop(struct schedule *schedule, struct shape *shape)
{
    shape->head = schedule->groups[shape->head].next;
    if (shape->head < 0)
        shape->tail = -1;
}

/* Before all of higher numbers: the next rung of a ladder follows the one below it. */
void schedule_release(struct schedule *schedule, struct group *group)
{
    struct shape *shape = &schedule->shapes[group->shape];
    int64_t number = group->plan->number, before = -1;
    group->held = false;
    if (shape->tail < 0 || (shape->tail < number && schedule->groups[shape->tail].pass == 0)) {
        shape_append(schedule, number);
        return;
    }
    for (int64_t at = shape->head; at >= 0 && at < number && schedule->groups[at].pass == 0;
         at = schedule->groups[at].next)
        before = at;
    if (before < 0) {
        shape_prepend(schedule, number);
        return;
    }
    group->next = schedule->groups[before].next;
    schedule->groups[before].next = number;
    if (shape->tail == before)
        shape->tail = number;
}

void schedule_groups_begin(struct schedule *schedule, const struct schedule_past *past,
                           const struct schedule_load *loads)
{
    const struct plan *plan = schedule->plan;
    schedule->groups = memory_zeroed((size_t)plan->group_count, sizeof *schedule->groups);
    schedule->cell_position = memory_zeroed((size_t)plan->cell_count, sizeof *schedule->cell_position);
    for (int64_t i = 0; i < plan->group_count; i++) {
        struct group *group = &schedule->groups[i];
        group_open(schedule, group, &plan->groups[i]);
        group->earlier = past ? past[i].attempts : 0;
        if (past && past[i].done) {
            group->status = GROUP_DONE;
            schedule->groups_done++;
            schedule->done_ns += group->plan->expected_ns;
        } else {
            schedule->groups_left++;
            effort_count(schedule, group, 1);
        }
    }
    ladder_begin(schedule, loads);
}

static void attempt_free(struct attempt *attempt)
{
    effort_close(attempt);
    free(attempt->hosts);
    free(attempt->members);
    free(attempt->runtime_order);
    free(attempt->cell_order);
    free(attempt);
}

void schedule_groups_free(struct schedule *schedule)
{
    while (schedule->attempts) {
        struct attempt *attempt = schedule->attempts;
        schedule->attempts = attempt->next;
        attempt_free(attempt);
    }
    for (int64_t i = 0; schedule->groups && i < schedule->plan->group_count; i++) {
        free(schedule->groups[i].slices);
        free(schedule->groups[i].cells);
        free(schedule->groups[i].story);
    }
    for (size_t i = 0; i < schedule->shape_count; i++)
        free(schedule->shapes[i].labels);
    ladder_free(schedule);
    free(schedule->groups);
    free(schedule->shapes);
    free(schedule->cell_position);
}

const struct slice *schedule_slice_of(const struct worker *worker)
{
    return &worker->attempt->group->slices[worker->runtime];
}

int64_t schedule_attempt_done_ns(const struct attempt *attempt)
{
    const struct group *group = attempt->group;
    int64_t total = (attempt->batch_end - attempt->first_block) * group->cell_count, rounds;
    if (group->slice_count == 1 && group->plan->cores == 1)
        rounds = (attempt->block - attempt->first_block) * group->cell_count +
                 (attempt->members[0] ? attempt->members[0]->rounds_done : 0);
    else
        rounds = attempt->turns_done * group->cell_count / (int64_t)group->slice_count;
    if (rounds > total)
        rounds = total;
    double pass_ns = (double)effort_pass_ns(group);
    return total > 0 ? (int64_t)(pass_ns * (double)rounds / (double)total) : 0;
}

/* -- leases ------------------------------------------------------------------------------------------------- */

static int64_t slice_lease(const struct plan_group *plan, const struct slice *slice, int64_t blocks)
{
    double factor = plan->window_ns > 0 ? WINDOW_LEASE_FACTOR : LEASE_FACTOR;
    double lease = (double)LEASE_FLOOR_NS + factor * (double)slice->block_ns * (double)blocks;
    return lease < 9e18 ? (int64_t)lease : INT64_MAX / 2;
}

static int64_t prepare_lease(const struct schedule *schedule, const struct slice *slice)
{
    double expected = 0;
    for (size_t i = 0; i < slice->cell_count; i++) {
        const struct plan_cell *cell = &schedule->plan->cells[slice->cells[i]];
        int64_t most = cell->spec.duration_ns > 0 ? PREPARE_WINDOWS : PREPARE_ROUNDS;
        int64_t rounds = cell->spec.warmup > most ? cell->spec.warmup : most;
        expected += (double)PREPARE_CELL_NS + (double)cell->expected_ns * (double)rounds;
    }
    return (int64_t)((double)LEASE_FLOOR_NS + (expected < 9e18 ? expected : 9e18) / 2);
}

static void lease_start(struct schedule *schedule, struct worker *worker, int64_t lease_ns)
{
    worker->lease_until_ns = schedule->now_ns + lease_ns;
}

/* -- choosing members --------------------------------------------------------------------------------------- */

/* How many workers of a pool can take part: those with a place stand first. */
static size_t pool_usable(const struct pool *pool, const struct shape *shape)
{
    size_t count = shape->fresh ? 0 : pool->count;
    while (count < pool->count && pool->at[count]->slot != WIRE_NULL)
        count++;
    return count;
}

static bool host_has(const struct peer_host *host, const struct shape *shape)
{
    for (size_t i = 0; i < shape->label_count; i++)
        if ((int64_t)pool_usable(&host->pools[shape->labels[i]], shape) < shape->cores)
            return false;
    return true;
}

/* Why that worker cannot run that slice: a word and the name, or NULL. */
static const char *lacks(const struct schedule *schedule, const struct worker *worker,
                         const struct slice *slice, const char **ret_name)
{
    const char *what = NULL;
    for (size_t i = 0; i < slice->cell_count && !what; i++)
        what = schedule_lacks(&worker->hello.hello, &schedule->plan->cells[slice->cells[i]], ret_name);
    return what;
}

/* Of the workers of a pool that can take part, those that know all arms and jobs of the slice; fills members with `count`
 * of them where there are as many: a gang takes the first ones, a single one rotates with the groups and their attempts. */
static size_t capable(const struct schedule *schedule, const struct pool *pool, const struct shape *shape,
                      const struct slice *slice, struct worker **members, size_t skip, size_t count)
{
    size_t usable = pool_usable(pool, shape), found = 0;
    const char *name;
    for (size_t i = 0; i < usable; i++) {
        if (lacks(schedule, pool->at[i], slice, &name))
            continue;
        if (found >= skip && found - skip < count)
            members[found - skip] = pool->at[i];
        found++;
    }
    return found;
}

static void take_members(const struct schedule *schedule, const struct pool *pool, const struct shape *shape,
                         const struct slice *slice, struct worker **members, size_t count, size_t turn)
{
    size_t found = capable(schedule, pool, shape, slice, members, 0, count);
    if (found >= count && count == 1)
        (void)capable(schedule, pool, shape, slice, members, turn % found, count);
    for (size_t i = 0; found < count && i < count; i++)
        members[i] = pool->at[i]; /* who is told to do it says what it lacks */
}

static bool host_can(const struct schedule *schedule, const struct peer_host *host, const struct shape *shape,
                     const struct group *group)
{
    if (!host_has(host, shape))
        return false;
    for (size_t i = 0; i < shape->label_count; i++)
        if ((int64_t)capable(schedule, &host->pools[shape->labels[i]], shape, &group->slices[i], NULL, 0, 0) <
            shape->cores)
            return false;
    return true;
}

/* A group waits for a host that knows its arms and jobs, if there is one. */
static bool better_elsewhere(const struct schedule *schedule, const struct peer_host *host,
                             const struct shape *shape, const struct group *group)
{
    if (host_can(schedule, host, shape, group))
        return false;
    for (size_t i = 0; i < schedule->host_count; i++)
        if (host_can(schedule, schedule->host_list[i], shape, group))
            return true;
    return false;
}

/* As planned, with the rate that a part of a ceiling has come to. */
static struct wire_cell cell_spec(const struct schedule *schedule, int64_t cell)
{
    struct wire_cell spec = schedule->plan->cells[cell].spec;
    if (schedule->rates && schedule->rates[cell] > 0)
        spec.rate_per_s = schedule->rates[cell];
    return spec;
}

void schedule_assign(struct schedule *schedule, struct worker *worker)
{
    struct attempt *attempt = worker->attempt;
    const struct slice *slice = schedule_slice_of(worker);
    const struct plan_group *plan = attempt->group->plan;
    struct schedule_action *action = schedule_send(schedule, worker, WIRE_ASSIGN);
    struct wire_cell *cells = memory_zeroed(slice->cell_count, sizeof *cells);
    for (size_t i = 0; i < slice->cell_count; i++)
        cells[i] = cell_spec(schedule, slice->cells[i]);
    action->cell_list = cells;
    action->message.assign = (struct wire_assign){.group = plan->number,
                                                  .attempt = attempt->number,
                                                  .lease_ns = slice_lease(plan, slice, plan->blocks),
                                                  .seed = (int64_t)plan->seed,
                                                  .blocks = plan->blocks * plan->processes,
                                                  .gang = plan->cores,
                                                  .cells = cells,
                                                  .cell_count = slice->cell_count};
    worker->state = WORKER_PREPARING;
    worker->reconnected = false;
    worker->rounds_done = 0;
    worker->go = -1;
    free(worker->next_block);
    worker->next_block = memory_zeroed(slice->cell_count, sizeof *worker->next_block);
    lease_start(schedule, worker, prepare_lease(schedule, slice));
}

/* The group is over, in whatever way. */
static void group_end(struct schedule *schedule, struct group *group, enum group_status status)
{
    effort_count(schedule, group, -1);
    schedule->done_ns += effort_pass_ns(group) * (group->plan->processes - group->pass);
    group->status = status;
    schedule->groups_left--;
    schedule->groups_done += status == GROUP_DONE;
    schedule->groups_failed += status == GROUP_FAILED;
    ladder_over(schedule, group);
}

/* Ends it without a measurement that counts, in the store and in a line. */
static void end_untimed(struct schedule *schedule, struct group *group, enum schedule_action_kind how,
                        enum log_level level, const char *verb, const char *why)
{
    struct schedule_action *action = schedule_act(schedule, how);
    action->group = group->plan->number;
    action->text = memory_text(why);
    schedule_log(schedule, level, "group %lld (%s) %s: %s", (long long)group->plan->number,
                 group->plan->title, verb, why);
    group_end(schedule, group, how == SCHEDULE_STORE_FAIL ? GROUP_FAILED : GROUP_DONE);
}

void schedule_leave_out(struct schedule *schedule, struct group *group, const char *why)
{
    end_untimed(schedule, group, SCHEDULE_STORE_LEAVE_OUT, LOG_DEBUG, "left out", why);
}

void schedule_leave_out_cell(struct schedule *schedule, int64_t cell, const char *why)
{
    struct schedule_action *action = schedule_act(schedule, SCHEDULE_STORE_DROP_CELL);
    action->number = cell;
    action->text = memory_text(why);
    schedule_log(schedule, LOG_DEBUG, "%s left out: %s", schedule->plan->cells[cell].id, why);
}

void schedule_fail_group(struct schedule *schedule, struct group *group, const char *why)
{
    end_untimed(schedule, group, SCHEDULE_STORE_FAIL, LOG_WARNING, "given up", why);
}

static void store_close(struct schedule *schedule, struct group *group, enum schedule_action_kind how)
{
    struct schedule_action *action = schedule_act(schedule, how);
    action->group = group->plan->number;
    action->attempt = group->earlier + group->attempts;
    group_end(schedule, group, GROUP_DONE);
}

/* The budget does not reach for the first group of a shape, or not for more of it. */
static void drop_first(struct schedule *schedule, struct shape *shape)
{
    char budget[32];
    struct group *group = &schedule->groups[shape->head];
    shape_pop(schedule, shape);
    (void)units_exact_duration(budget, sizeof budget, schedule->config.budget_ns);
    if (group->pass == 0) {
        scoped_free char *why = memory_format("left out, the budget of %s does not reach for it", budget);
        schedule_fail_group(schedule, group, why);
        return;
    }
    schedule_log(schedule, LOG_WARNING, "group %lld (%s): the budget of %s ends after %lld of %lld processes",
                 (long long)group->plan->number, group->plan->title, budget, (long long)group->pass,
                 (long long)group->plan->processes);
    store_close(schedule, group, SCHEDULE_STORE_FINISH);
}

/* Takes the group for its members; false when one of them cannot run it, and the group is failed. */
static bool members_can(struct schedule *schedule, struct attempt *attempt)
{
    int64_t cores = attempt->group->plan->cores;
    for (size_t i = 0; i < attempt->member_count; i++) {
        const char *name = NULL;
        size_t runtime = i / (size_t)cores;
        const char *what = lacks(schedule, attempt->members[i], &attempt->group->slices[runtime], &name);
        if (what) {
            scoped_free char *why =
                memory_format("%s does not know the %s '%s'", attempt->members[i]->name, what, name);
            schedule_fail_group(schedule, attempt->group, why);
            return false;
        }
    }
    return true;
}

static void tell_slot(struct schedule *schedule, enum schedule_action_kind kind, const struct worker *worker)
{
    if (worker->slot != WIRE_NULL)
        schedule_act(schedule, kind)->slot = worker->slot;
}

static void attempt_start(struct schedule *schedule, struct attempt *attempt)
{
    struct group *group = attempt->group;
    group->status = GROUP_UNDER_WAY;
    group->attempts += group->pass == 0;
    attempt->number = group->earlier + group->attempts;
    attempt->next = schedule->attempts;
    if (attempt->next)
        attempt->next->previous = attempt;
    schedule->attempts = attempt;
    for (size_t i = 0; i < attempt->host_count; i++)
        attempt->hosts[i]->attempt = attempt;
    for (size_t i = 0; i < attempt->member_count; i++) {
        struct worker *worker = attempt->members[i];
        worker->attempt = attempt;
        worker->runtime = i / (size_t)group->plan->cores;
        tell_slot(schedule, SCHEDULE_OCCUPY, worker);
        schedule_assign(schedule, worker);
    }
    effort_open(schedule, attempt);
}

static struct attempt *attempt_new(struct group *group)
{
    struct attempt *attempt = memory_zeroed(1, sizeof *attempt);
    size_t runtimes = group->slice_count;
    attempt->group = group;
    attempt->member_count = runtimes * (size_t)group->plan->cores;
    attempt->members = memory_zeroed(attempt->member_count, sizeof *attempt->members);
    attempt->runtime_order = memory_zeroed(runtimes, sizeof *attempt->runtime_order);
    attempt->cell_order = memory_zeroed((size_t)group->cell_count, sizeof *attempt->cell_order);
    return attempt;
}

/* Members that measured this group before make room for fresh processes; whether there were any. */
static bool renew_members(struct schedule *schedule, struct attempt *attempt)
{
    size_t renewed = 0;
    for (size_t i = 0; i < attempt->member_count; i++) {
        if (attempt->members[i]->number > attempt->group->newest)
            continue;
        schedule_renew(schedule, attempt->members[i]);
        renewed++;
    }
    return renewed > 0;
}

/* The same places in all passes of an attempt, others in the next attempt. */
static void choose_members(const struct schedule *schedule, const struct peer_host *host,
                           const struct shape *shape, struct attempt *attempt)
{
    const struct group *group = attempt->group;
    size_t cores = (size_t)shape->cores;
    int64_t turn = group->plan->number + group->attempts - (group->pass > 0);
    for (size_t i = 0; i < shape->label_count; i++)
        take_members(schedule, &host->pools[shape->labels[i]], shape, &group->slices[i],
                     attempt->members + i * cores, cores, (size_t)turn);
}

static void start_on_host(struct schedule *schedule, struct peer_host *host, struct shape *shape)
{
    struct group *group = &schedule->groups[shape->head];
    if (better_elsewhere(schedule, host, shape, group))
        return;
    if (!effort_admits(schedule, group)) {
        drop_first(schedule, shape);
        schedule_look_at(schedule, host);
        return;
    }
    struct attempt *attempt = attempt_new(group);
    choose_members(schedule, host, shape, attempt);
    if (renew_members(schedule, attempt)) { /* the host is looked at again when they are there */
        attempt_free(attempt);
        return;
    }
    shape_pop(schedule, shape);
    attempt->hosts = memory_zeroed(1, sizeof(struct peer_host *));
    attempt->hosts[attempt->host_count++] = host;
    if (members_can(schedule, attempt)) {
        attempt_start(schedule, attempt);
        return;
    }
    attempt_free(attempt);
    schedule_look_at(schedule, host);
}

/* Does the first one's group come before the other's?  First passes before second ones, then by number. */
static bool comes_first(const struct schedule *schedule, const struct shape *a, const struct shape *b)
{
    int64_t pass_a = schedule->groups[a->head].pass, pass_b = schedule->groups[b->head].pass;
    return pass_a != pass_b ? pass_a < pass_b : a->head < b->head;
}

/* The waiting group that comes first among those that this host alone can run. */
static struct shape *shape_for_host(struct schedule *schedule, const struct peer_host *host)
{
    struct shape *best = NULL;
    for (size_t i = 0; i < schedule->shape_count; i++) {
        struct shape *shape = &schedule->shapes[i];
        if (shape->head >= 0 && (!best || comes_first(schedule, shape, best)) && host_has(host, shape))
            best = shape;
    }
    return best;
}

/* Fills one runtime's part of a gang from idle hosts in turn; how many are missing. */
static size_t take_from_hosts(const struct schedule *schedule, size_t label, struct worker **members,
                              size_t count)
{
    size_t taken = 0;
    for (size_t i = 0; i < schedule->host_count && taken < count; i++) {
        const struct peer_host *host = schedule->host_list[i];
        for (size_t j = 0; !host->attempt && !host->renewing && j < host->pools[label].count && taken < count;
             j++)
            members[taken++] = host->pools[label].at[j];
    }
    return count - taken;
}

static void own_hosts_of_members(struct schedule *schedule, struct attempt *attempt)
{
    attempt->hosts = memory_zeroed(schedule->host_count, sizeof(struct peer_host *));
    for (size_t i = 0; i < attempt->member_count; i++) {
        struct peer_host *host = attempt->members[i]->host;
        if (!host->attempt)
            attempt->hosts[attempt->host_count++] = host;
        host->attempt = attempt;
    }
}

static bool some_host_has(const struct schedule *schedule, const struct shape *shape)
{
    for (size_t i = 0; i < schedule->host_count; i++)
        if (host_has(schedule->host_list[i], shape))
            return true;
    return false;
}

/* Gangs that no single host holds, once nothing else runs. */
static void start_across_hosts(struct schedule *schedule)
{
    for (size_t s = 0; s < schedule->shape_count; s++) {
        struct shape *shape = &schedule->shapes[s];
        if (shape->head < 0 || shape->fresh || some_host_has(schedule, shape))
            continue;
        while (shape->head >= 0 && !effort_admits(schedule, &schedule->groups[shape->head])) {
            drop_first(schedule, shape);
            shape = &schedule->shapes[s]; /* what waited for the group may have brought a shape of its own */
        }
        if (shape->head < 0)
            continue;
        struct attempt *attempt = attempt_new(&schedule->groups[shape->head]);
        size_t missing = 0, cores = (size_t)shape->cores;
        for (size_t i = 0; i < shape->label_count; i++)
            missing += take_from_hosts(schedule, shape->labels[i], attempt->members + i * cores, cores);
        bool can = missing == 0;
        if (can) {
            shape_pop(schedule, shape);
            can = members_can(schedule, attempt);
        }
        if (!can) {
            attempt_free(attempt);
            continue;
        }
        own_hosts_of_members(schedule, attempt);
        attempt_start(schedule, attempt);
        return;
    }
}

void schedule_dispatch(struct schedule *schedule)
{
    if (schedule->phase != SCHEDULE_RUNNING)
        return;
    while (schedule->look_first) {
        struct peer_host *host = schedule->look_first;
        schedule->look_first = host->next;
        if (!schedule->look_first)
            schedule->look_last = NULL;
        host->queued = false;
        struct shape *shape = host->attempt ? NULL : shape_for_host(schedule, host);
        if (shape)
            start_on_host(schedule, host, shape);
    }
    if (!schedule->attempts && schedule->groups_left > 0)
        start_across_hosts(schedule);
    if (schedule->groups_left == 0)
        schedule->phase = SCHEDULE_OVER;
}

/* -- turns -------------------------------------------------------------------------------------------------- */

static void shuffled(uint32_t *items, size_t count, uint64_t seed, uint64_t stream)
{
    struct rng rng = rng_stream(seed, stream);
    for (size_t i = 0; i < count; i++)
        items[i] = (uint32_t)i;
    rng_shuffle(&rng, items, count);
}

static void send_go(struct schedule *schedule, struct worker *worker, int64_t blocks, int64_t position)
{
    struct attempt *attempt = worker->attempt;
    const struct plan_group *plan = attempt->group->plan;
    const struct slice *slice = schedule_slice_of(worker);
    struct schedule_action *action = schedule_send(schedule, worker, WIRE_GO);
    action->message.go = (struct wire_go){.group = plan->number,
                                          .attempt = attempt->number,
                                          .go = attempt->go,
                                          .first_block = attempt->block,
                                          .blocks = blocks,
                                          .cell = position < 0 ? WIRE_NULL : slice->cells[position],
                                          .start_at_ns = WIRE_NULL};
    if (plan->cores > 1 && worker->shares_clock)
        action->start_in_ns = START_LEAD_NS + plan->cores * START_LEAD_MEMBER_NS;
    worker->state = WORKER_MEASURING;
    worker->go = attempt->go;
    worker->next_part = 0;
    worker->rounds_done = 0;
    worker->first_block = attempt->block;
    worker->block_end = attempt->block + blocks;
    for (size_t i = 0; i < slice->cell_count; i++) {
        bool asked = position < 0 || i == (size_t)position;
        worker->next_block[i] = asked ? worker->first_block : worker->block_end;
    }
    attempt->measuring_count++;
    lease_start(schedule, worker, slice_lease(plan, slice, blocks));
}

/* One turn: a single worker's whole slice, one block of one runtime, or one cell of a gang. */
static void turn_begin(struct schedule *schedule, struct attempt *attempt)
{
    const struct plan_group *plan = attempt->group->plan;
    size_t cores = (size_t)plan->cores, runtimes = attempt->group->slice_count;
    if (attempt->runtime_turn == 0 && attempt->cell_turn == 0)
        shuffled(attempt->runtime_order, runtimes, plan->seed, RUNTIME_STREAM + (uint64_t)attempt->block);
    size_t runtime = attempt->runtime_order[attempt->runtime_turn];
    const struct slice *slice = &attempt->group->slices[runtime];
    if (cores > 1 && attempt->cell_turn == 0)
        shuffled(attempt->cell_order, slice->cell_count, plan->seed, (uint64_t)attempt->block);
    int64_t position = cores > 1 ? (int64_t)attempt->cell_order[attempt->cell_turn] : -1;
    int64_t blocks = cores == 1 && runtimes == 1 ? attempt->batch_end - attempt->block : 1;
    for (size_t i = 0; i < cores; i++)
        send_go(schedule, attempt->members[runtime * cores + i], blocks, position);
}

/* Steps to the turn after this one; false when there is none in this batch. */
static bool turn_next(struct attempt *attempt)
{
    const struct plan_group *plan = attempt->group->plan;
    size_t runtime = attempt->runtime_order[attempt->runtime_turn];
    attempt->go++;
    if (plan->cores > 1 && ++attempt->cell_turn < attempt->group->slices[runtime].cell_count)
        return true;
    attempt->cell_turn = 0;
    attempt->turns_done++;
    if (++attempt->runtime_turn < attempt->group->slice_count)
        return true;
    attempt->runtime_turn = 0;
    bool whole_batch = plan->cores == 1 && attempt->group->slice_count == 1;
    attempt->block = whole_batch ? attempt->batch_end : attempt->block + 1;
    return attempt->block < attempt->batch_end;
}

/* -- the end of an attempt ---------------------------------------------------------------------------------- */

static void worker_release(struct schedule *schedule, struct worker *worker)
{
    tell_slot(schedule, SCHEDULE_VACATE, worker);
    worker->attempt = NULL;
    worker->lease_until_ns = 0;
    free(worker->next_block);
    worker->next_block = NULL;
    if (worker->state < WORKER_WEDGED)
        worker->state = WORKER_IDLE;
}

static void attempt_unlink(struct schedule *schedule, struct attempt *attempt)
{
    if (attempt->next)
        attempt->next->previous = attempt->previous;
    if (attempt->previous)
        attempt->previous->next = attempt->next;
    else
        schedule->attempts = attempt->next;
    for (size_t i = 0; i < attempt->member_count; i++)
        if (attempt->members[i])
            worker_release(schedule, attempt->members[i]);
    for (size_t i = 0; i < attempt->host_count; i++) {
        attempt->hosts[i]->attempt = NULL;
        schedule_look_at(schedule, attempt->hosts[i]);
    }
    attempt_free(attempt);
}

/* One process has measured all its blocks: the next one, or the group is done. */
static void finish_pass(struct schedule *schedule, struct attempt *attempt)
{
    struct group *group = attempt->group;
    effort_learn(schedule, attempt);
    effort_count(schedule, group, -1);
    group->pass++;
    group->kept = true;
    effort_count(schedule, group, 1);
    schedule->done_ns += effort_pass_ns(group);
    for (size_t i = 0; i < attempt->member_count; i++)
        if (attempt->members[i]->number > group->newest)
            group->newest = attempt->members[i]->number;
    if (group->pass == group->plan->processes) {
        store_close(schedule, group, SCHEDULE_STORE_FINISH);
    } else {
        group->status = GROUP_WAITING;
        shape_append(schedule, group->plan->number);
    }
    attempt_unlink(schedule, attempt);
}

void schedule_close_kept(struct schedule *schedule)
{
    for (int64_t i = 0; schedule->groups && i < schedule->plan->group_count; i++)
        if (schedule->groups[i].kept && schedule->groups[i].status < GROUP_DONE)
            store_close(schedule, &schedule->groups[i], SCHEDULE_STORE_KEEP);
}

/* Once nobody works for a void attempt any more: again, or never. */
static void attempt_settle(struct schedule *schedule, struct attempt *attempt)
{
    struct group *group = attempt->group;
    if (attempt->aborting_count > 0)
        return;
    attempt_unlink(schedule, attempt);
    if (schedule->phase != SCHEDULE_RUNNING) {
        group->status = GROUP_WAITING;
    } else if (group->attempts >= SCHEDULE_MAX_ATTEMPTS) {
        schedule_fail_group(schedule, group, group->story);
    } else {
        group->status = GROUP_WAITING;
        shape_prepend(schedule, group->plan->number);
    }
    schedule_look_at_all(schedule);
}

static void story_add(struct group *group, int64_t attempt, const char *why)
{
    char *longer = group->story ? memory_format("%s; attempt %lld: %s", group->story, (long long)attempt, why)
                                : memory_format("attempt %lld: %s", (long long)attempt, why);
    free(group->story);
    group->story = longer;
}

static void send_abort(struct schedule *schedule, struct worker *worker, const char *why, bool keep)
{
    const struct attempt *attempt = worker->attempt;
    struct schedule_action *action = schedule_send(schedule, worker, WIRE_ABORT);
    action->text = memory_text(why);
    action->message.abort = (struct wire_abort){.group = attempt->group->plan->number,
                                                .attempt = attempt->number,
                                                .reason = action->text,
                                                .keep = keep};
}

static void abort_member(struct schedule *schedule, struct worker *worker, const char *why)
{
    struct attempt *attempt = worker->attempt;
    send_abort(schedule, worker, why, false);
    if (worker->state == WORKER_READY) {
        worker->state = WORKER_IDLE;
        worker->lease_until_ns = 0;
        return;
    }
    worker->state = WORKER_ABORTING;
    lease_start(schedule, worker, ABORT_LEASE_NS + schedule_slice_of(worker)->block_ns);
    attempt->aborting_count++;
}

/* What its processes measured before is void too. */
static void pass_forget(struct schedule *schedule, struct group *group)
{
    effort_count(schedule, group, -1);
    schedule->done_ns -= effort_pass_ns(group) * group->pass;
    ladder_forget(schedule, group);
    group->pass = 0;
    group->newest = -1;
    group->kept = group->admitted = false;
    effort_count(schedule, group, 1);
}

void schedule_void(struct schedule *schedule, struct attempt *attempt, const char *why)
{
    if (attempt->voided)
        return;
    attempt->voided = true;
    schedule->voided++;
    pass_forget(schedule, attempt->group);
    story_add(attempt->group, attempt->number, why);
    struct schedule_action *action = schedule_act(schedule, SCHEDULE_STORE_VOID);
    action->group = attempt->group->plan->number;
    action->attempt = attempt->number;
    action->text = memory_text(why);
    for (size_t i = 0; i < attempt->member_count; i++) {
        struct worker *worker = attempt->members[i];
        if (worker && worker->state >= WORKER_PREPARING && worker->state <= WORKER_MEASURING)
            abort_member(schedule, worker, why);
    }
    attempt_settle(schedule, attempt);
}

void schedule_member_settled(struct schedule *schedule, struct worker *worker)
{
    struct attempt *attempt = worker->attempt;
    worker->state = WORKER_IDLE;
    worker->lease_until_ns = 0;
    attempt->aborting_count--;
    attempt_settle(schedule, attempt);
}

static void member_drop(struct schedule *schedule, struct attempt *attempt, struct worker *worker)
{
    for (size_t i = 0; i < attempt->member_count; i++)
        if (attempt->members[i] == worker)
            attempt->members[i] = NULL;
    worker_release(schedule, worker);
}

/* the worker's state is LOST or WEDGED already */
void schedule_member_gone(struct schedule *schedule, struct worker *worker, const char *why)
{
    struct attempt *attempt = worker->attempt;
    if (!attempt)
        return;
    member_drop(schedule, attempt, worker);
    if (attempt->voided) {
        attempt->aborting_count = 0;
        for (size_t i = 0; i < attempt->member_count; i++)
            attempt->aborting_count += attempt->members[i] && attempt->members[i]->state == WORKER_ABORTING;
        attempt_settle(schedule, attempt);
        return;
    }
    schedule_void(schedule, attempt, why);
}

/* -- what members say --------------------------------------------------------------------------------------- */

void schedule_member_ready(struct schedule *schedule, struct worker *worker, const struct wire_ready *ready)
{
    struct attempt *attempt = worker->attempt;
    if (ready->error) {
        scoped_free char *why = memory_format("%s cannot run it: %s", worker->name, ready->error);
        worker->state = WORKER_READY;
        schedule_void(schedule, attempt, why);
        return;
    }
    struct schedule_action *action = schedule_act(schedule, SCHEDULE_STORE_READY);
    action->number = worker->number;
    action->ready = ready;
    worker->state = WORKER_READY;
    worker->lease_until_ns = 0;
    if (++attempt->ready_count < attempt->member_count)
        return;
    attempt->measured_ns = schedule->now_ns;
    turn_begin(schedule, attempt);
}

/* The user stopped it: what is stored counts. */
static void attempt_keep(struct schedule *schedule, struct attempt *attempt)
{
    attempt->group->kept |= attempt->stored && !attempt->voided;
    attempt_unlink(schedule, attempt);
}

static void stopped_member_done(struct schedule *schedule, struct attempt *attempt, bool complete)
{
    attempt->partial |= !complete;
    if (attempt->measuring_count > 0)
        return;
    if (attempt->partial || turn_next(attempt) || attempt->values)
        attempt_keep(schedule, attempt);
    else
        finish_pass(schedule, attempt);
}

void schedule_member_done(struct schedule *schedule, struct worker *worker, bool complete, const char *error)
{
    struct attempt *attempt = worker->attempt;
    worker->state = WORKER_READY;
    worker->lease_until_ns = 0;
    attempt->measuring_count--;
    if (schedule->phase == SCHEDULE_STOPPING) {
        stopped_member_done(schedule, attempt, complete && !error);
        return;
    }
    if (error) {
        scoped_free char *why = memory_format("%s could not finish: %s", worker->name, error);
        schedule_void(schedule, attempt, why);
        return;
    }
    if (attempt->measuring_count > 0)
        return;
    if (turn_next(attempt) || effort_goes_on(schedule, attempt))
        turn_begin(schedule, attempt);
    else
        finish_pass(schedule, attempt);
}

/* -- nothing goes on, and the user's stop ------------------------------------------------------------------- */

static struct shape *shape_with_waiting(struct schedule *schedule)
{
    for (size_t i = 0; i < schedule->shape_count; i++)
        if (schedule->shapes[i].head >= 0)
            return &schedule->shapes[i];
    return NULL;
}

void schedule_stuck(struct schedule *schedule)
{
    if (schedule->phase != SCHEDULE_RUNNING)
        return;
    if (schedule->attempts || schedule_slots_coming(schedule) > 0 || schedule->groups_left == 0) {
        schedule->stuck_since_ns = 0;
        return;
    }
    if (schedule->stuck_since_ns == 0)
        schedule->stuck_since_ns = schedule->now_ns;
    if (schedule->now_ns - schedule->stuck_since_ns < schedule->config.rejoin_ns)
        return;
    struct shape *shape;
    while ((shape = shape_with_waiting(schedule))) { /* who waited for a group may be in any of them */
        struct group *group = &schedule->groups[shape->head];
        scoped_free char *why = memory_format("%s%sno host has the %lld %sworker%s per runtime that it needs",
                                              group->story ? group->story : "", group->story ? "; then " : "",
                                              (long long)shape->cores, shape->fresh ? "local " : "",
                                              shape->cores == 1 ? "" : "s");
        shape_pop(schedule, shape);
        schedule_fail_group(schedule, group, why);
    }
    schedule->phase = SCHEDULE_OVER;
}

/* what measures is asked to end after its round and its result still counts; what only prepares is left */
static void stop_attempt(struct schedule *schedule, struct attempt *attempt)
{
    for (size_t i = 0; i < attempt->member_count; i++) {
        struct worker *worker = attempt->members[i];
        if (!worker || worker->state == WORKER_IDLE || worker->state == WORKER_ABORTING)
            continue;
        send_abort(schedule, worker, "interrupted", true);
    }
    if (attempt->measuring_count == 0 || attempt->voided)
        attempt_keep(schedule, attempt);
}

void schedule_stop(struct schedule *schedule)
{
    struct attempt *next;
    for (struct attempt *attempt = schedule->attempts; attempt; attempt = next) {
        next = attempt->next;
        stop_attempt(schedule, attempt);
    }
}
