#include "coordinator/schedule/schedule_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COORDINATOR_PAUSE_BEATS 2 /* a tick later than this many heartbeats: it was us who slept */

/* -- actions ------------------------------------------------------------------------------------------------ */

struct schedule_action *schedule_act(struct schedule *schedule, enum schedule_action_kind kind)
{
    if (schedule->action_count == schedule->action_room) {
        schedule->action_room = schedule->action_room ? schedule->action_room * 2 : 16;
        schedule->actions =
            memory_resized(schedule->actions, schedule->action_room, sizeof *schedule->actions);
    }
    struct schedule_action *action = &schedule->actions[schedule->action_count++];
    *action = (struct schedule_action){.kind = kind, .slot = WIRE_NULL};
    return action;
}

struct schedule_action *schedule_send(struct schedule *schedule, const struct worker *worker,
                                      enum wire_type type)
{
    struct schedule_action *action = schedule_act(schedule, SCHEDULE_SEND);
    action->identity = worker->identity;
    action->identity_bytes = worker->identity_bytes;
    action->message.type = type;
    return action;
}

static void actions_clear(struct schedule *schedule)
{
    for (size_t i = 0; i < schedule->action_count; i++) {
        free(schedule->actions[i].text);
        free(schedule->actions[i].cell_list);
    }
    schedule->action_count = schedule->action_read = 0;
}

/* Peers write some of it: no line ends, no escape codes (C0, DEL, and C1 as UTF-8). */
static void clean_text(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at; at++)
        if (*at < 0x20 || *at == 0x7f)
            *at = '?';
        else if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0)
            at[0] = at[1] = '?';
}

static char *format_text(const char *fmt, va_list args) __attribute__((format(printf, 1, 0)));

static char *format_text(const char *fmt, va_list args)
{
    char text[700];
    vsnprintf(text, sizeof text, fmt, args);
    clean_text(text);
    return memory_text(text);
}

void schedule_log(struct schedule *schedule, enum log_level level, const char *fmt, ...)
{
    struct schedule_action *action = schedule_act(schedule, SCHEDULE_LOG);
    va_list args;
    va_start(args, fmt);
    action->level = (int)level;
    action->text = format_text(fmt, args);
    va_end(args);
}

void schedule_note(struct schedule *schedule, const char *word, const char *fmt, ...)
{
    struct schedule_action *action = schedule_act(schedule, SCHEDULE_STORE_EVENT);
    va_list args;
    va_start(args, fmt);
    action->word = word;
    action->text = format_text(fmt, args);
    va_end(args);
}

static void send_reject(struct schedule *schedule, const struct schedule_event *event, const char *why)
{
    struct schedule_action *action = schedule_act(schedule, SCHEDULE_SEND);
    action->identity = event->identity;
    action->identity_bytes = event->identity_bytes;
    action->text = memory_text(why);
    action->message.type = WIRE_REJECT;
    action->message.reject.reason = action->text;
}

const struct schedule_action *schedule_next(struct schedule *schedule)
{
    return schedule->action_read < schedule->action_count ? &schedule->actions[schedule->action_read++]
                                                          : NULL;
}

/* -- life --------------------------------------------------------------------------------------------------- */

struct schedule *schedule_new(const struct schedule_config *config)
{
    struct schedule *schedule = memory_zeroed(1, sizeof *schedule);
    schedule->config = *config;
    schedule->run = memory_text(config->run);
    schedule->boot_id = memory_text(config->boot_id);
    schedule->host = memory_text(config->host);
    schedule->labels = memory_zeroed(config->label_count, sizeof *schedule->labels);
    for (size_t i = 0; i < config->label_count; i++)
        schedule->labels[i] = memory_text(config->labels[i]);
    schedule->live = memory_zeroed(config->label_count, sizeof *schedule->live);
    schedule->slots = memory_zeroed(config->slot_count, sizeof *schedule->slots);
    map_init(&schedule->identities, config->seed);
    map_init(&schedule->instances, config->seed + 1);
    map_init(&schedule->hosts, config->seed + 2);
    map_init(&schedule->strangers, config->seed + 3);
    return schedule;
}

static void worker_free(struct worker *worker)
{
    wire_release(&worker->hello);
    free(worker->name);
    free(worker->next_block);
    free(worker);
}

static void hosts_free(struct schedule *schedule)
{
    for (size_t i = 0; i < schedule->host_count; i++) {
        struct peer_host *host = schedule->host_list[i];
        for (size_t j = 0; j < schedule->config.label_count; j++)
            free(host->pools[j].at);
        free(host->pools);
        free(host->key);
        free(host);
    }
    free(schedule->host_list);
}

static void strangers_forget(struct schedule *schedule)
{
    for (size_t i = 0; i < schedule->strangers.capacity; i++)
        free(schedule->strangers.slots[i].value);
    map_release(&schedule->strangers);
    map_init(&schedule->strangers, schedule->config.seed + 3);
}

void schedule_free(struct schedule *schedule)
{
    if (!schedule)
        return;
    actions_clear(schedule);
    free(schedule->actions);
    schedule_groups_free(schedule);
    for (size_t i = 0; i < schedule->worker_count; i++)
        worker_free(schedule->workers[i]);
    free(schedule->workers);
    hosts_free(schedule);
    strangers_forget(schedule);
    map_release(&schedule->identities);
    map_release(&schedule->instances);
    map_release(&schedule->hosts);
    for (size_t i = 0; i < schedule->config.label_count; i++)
        free(schedule->labels[i]);
    free(schedule->labels);
    free(schedule->live);
    free(schedule->slots);
    free(schedule->run);
    free(schedule->boot_id);
    free(schedule->host);
    free(schedule);
}

int64_t schedule_live(const struct schedule *schedule, const char *label)
{
    int64_t fewest = INT64_MAX;
    for (size_t i = 0; i < schedule->config.label_count; i++)
        if ((!label || strcmp(label, schedule->labels[i]) == 0) && schedule->live[i] < fewest)
            fewest = schedule->live[i];
    return fewest == INT64_MAX ? 0 : fewest;
}

int64_t schedule_slots_coming(const struct schedule *schedule)
{
    int64_t coming = 0;
    for (size_t i = 0; i < schedule->config.slot_count; i++)
        coming += !schedule->slots[i].worker && !schedule->slots[i].over;
    return coming;
}

/* -- refusals ----------------------------------------------------------------------------------------------- */

static bool may_log(int64_t *logged_ns, int64_t now_ns)
{
    if (*logged_ns && now_ns - *logged_ns < SCHEDULE_STRANGER_LOG_NS)
        return false;
    *logged_ns = now_ns ? now_ns : 1;
    return true;
}

static void refuse(struct schedule *schedule, struct worker *worker, const char *what)
{
    schedule->refused++;
    if (may_log(&worker->logged_ns, schedule->now_ns)) {
        schedule_log(schedule, LOG_WARNING, "%s: %s refused", worker->name, what);
        schedule_note(schedule, "refused", "%s: %s", worker->name, what);
    }
}

/* Peers that never registered; when there are too many to tell apart, all start afresh. */
static int64_t *stranger_logged_ns(struct schedule *schedule, const struct schedule_event *event)
{
    int64_t *logged_ns = map_get(&schedule->strangers, event->identity, event->identity_bytes);
    if (logged_ns)
        return logged_ns;
    if (schedule->strangers.count >= SCHEDULE_MAX_STRANGERS)
        strangers_forget(schedule);
    logged_ns = memory_zeroed(1, sizeof *logged_ns);
    map_put(&schedule->strangers, event->identity, event->identity_bytes, logged_ns);
    return logged_ns;
}

/* However many strangers there are: a few lines in a minute, and then how many there were. */
static bool may_log_stranger(struct schedule *schedule, int64_t now_ns)
{
    if (now_ns - schedule->strangers_since_ns >= SCHEDULE_STRANGER_LOG_NS) {
        schedule->strangers_since_ns = now_ns;
        schedule->strangers_told = 0;
    }
    if (schedule->strangers_told++ < SCHEDULE_STRANGER_LINES)
        return true;
    if (schedule->strangers_told == SCHEDULE_STRANGER_LINES + 1)
        schedule_log(schedule, LOG_WARNING, "further strangers are refused without a word, for a minute");
    return false;
}

/* Answers a frame with the reason why it is refused, and tells of it once per peer and minute. */
static void on_malformed(struct schedule *schedule, const struct schedule_event *event)
{
    struct worker *worker = map_get(&schedule->identities, event->identity, event->identity_bytes);
    int64_t *logged_ns = worker ? &worker->logged_ns : stranger_logged_ns(schedule, event);
    schedule->malformed++;
    if (may_log(logged_ns, event->now_ns) && (worker || may_log_stranger(schedule, event->now_ns))) {
        schedule_log(schedule, LOG_WARNING, "%s: frame refused: %s", worker ? worker->name : "a peer",
                     event->text);
        schedule_note(schedule, "malformed", "%s: %s", worker ? worker->name : "a peer", event->text);
    }
    send_reject(schedule, event, event->text);
}

/* -- registration ------------------------------------------------------------------------------------------- */

static struct peer_host *host_of(struct schedule *schedule, const struct wire_hello *hello)
{
    scoped_free char *key = memory_format("%s\n%s", hello->boot_id, hello->host);
    struct peer_host *host = map_get(&schedule->hosts, key, strlen(key));
    if (host)
        return host;
    host = memory_zeroed(1, sizeof *host);
    host->key = memory_text(key);
    host->pools = memory_zeroed(schedule->config.label_count, sizeof *host->pools);
    map_put(&schedule->hosts, key, strlen(key), host);
    if (schedule->host_count == schedule->host_room) {
        schedule->host_room = schedule->host_room ? schedule->host_room * 2 : 8;
        schedule->host_list =
            memory_resized(schedule->host_list, schedule->host_room, sizeof *schedule->host_list);
    }
    schedule->host_list[schedule->host_count++] = host;
    return host;
}

static void bind_identity(struct schedule *schedule, struct worker *worker,
                          const struct schedule_event *event)
{
    if (worker->identity_bytes)
        map_remove(&schedule->identities, worker->identity, worker->identity_bytes);
    memcpy(worker->identity, event->identity, event->identity_bytes);
    worker->identity_bytes = event->identity_bytes;
    map_put(&schedule->identities, worker->identity, worker->identity_bytes, worker);
}

/* A worker that was told to end is gone, or as good as gone. */
static void worker_depart(struct schedule *schedule, struct worker *worker)
{
    map_remove(&schedule->identities, worker->identity, worker->identity_bytes);
    worker->identity_bytes = 0;
    worker->state = WORKER_LOST;
    wire_release(&worker->hello);
    for (size_t i = 0; i < schedule->config.slot_count; i++)
        if (schedule->slots[i].leaving == worker)
            schedule->slots[i].leaving = NULL;
}

/* The next worker of a place is here, or will never be. */
static void slot_renewed(struct schedule *schedule, struct slot_state *slot)
{
    if (slot->leaving)
        worker_depart(schedule, slot->leaving);
    if (!slot->renewing)
        return;
    slot->renewing->renewing--;
    schedule_look_at(schedule, slot->renewing);
    slot->renewing = NULL;
}

/* A place is taken by a process of this host alone, and only while nobody else has it. */
static void bind_slot(struct schedule *schedule, struct worker *worker)
{
    int64_t slot = worker->hello.hello.slot;
    worker->slot = WIRE_NULL;
    if (slot < 0 || (size_t)slot >= schedule->config.slot_count || !worker->shares_clock)
        return;
    if (schedule->slots[slot].worker || schedule->slots[slot].over)
        return;
    schedule->slots[slot].worker = worker;
    worker->slot = slot;
    slot_renewed(schedule, &schedule->slots[slot]);
}

/* Takes the hello over: what the worker says of itself now. */
static void take_hello(struct schedule *schedule, struct worker *worker, struct wire_message *message)
{
    wire_release(&worker->hello);
    worker->hello = *message;
    *message = (struct wire_message){0};
    const struct wire_hello *hello = &worker->hello.hello;
    worker->shares_clock = strcmp(hello->boot_id, schedule->boot_id) == 0;
    worker->busy_heartbeats = hello->busy_heartbeats;
    bind_slot(schedule, worker);
    worker->order =
        worker->slot != WIRE_NULL ? worker->slot : (int64_t)schedule->config.slot_count + worker->number;
    free(worker->name);
    worker->name = hello->cpu == WIRE_NULL
                       ? memory_format("worker %lld (host %.64s)", (long long)worker->number, hello->host)
                       : memory_format("worker %lld (host %.64s, cpu %lld)", (long long)worker->number,
                                       hello->host, (long long)hello->cpu);
}

static struct worker *worker_new(struct schedule *schedule, const struct wire_hello *hello, const char *key)
{
    struct worker *worker = memory_zeroed(1, sizeof *worker);
    if (schedule->worker_count == schedule->worker_room) {
        schedule->worker_room = schedule->worker_room ? schedule->worker_room * 2 : 8;
        schedule->workers =
            memory_resized(schedule->workers, schedule->worker_room, sizeof *schedule->workers);
    }
    worker->number = schedule->config.first_worker + (int64_t)schedule->worker_count;
    schedule->workers[schedule->worker_count++] = worker;
    snprintf(worker->instance, sizeof worker->instance, "%s", hello->instance);
    snprintf(worker->key, sizeof worker->key, "%s", key);
    map_put(&schedule->instances, worker->instance, strlen(worker->instance), worker);
    worker->state = WORKER_LOST; /* until it joins */
    worker->slot = WIRE_NULL;
    return worker;
}

static void worker_join(struct schedule *schedule, struct worker *worker)
{
    worker->host = host_of(schedule, &worker->hello.hello);
    worker->state = WORKER_IDLE;
    worker->lease_until_ns = 0;
    if (worker->slot != WIRE_NULL)
        schedule_act(schedule, SCHEDULE_REGISTERED)->slot = worker->slot;
    pool_add(&worker->host->pools[worker->label], worker);
    schedule->live[worker->label]++;
    schedule->stuck_since_ns = 0;
    schedule_look_at(schedule, worker->host);
}

static void store_worker(struct schedule *schedule, const struct worker *worker)
{
    struct schedule_action *action = schedule_act(schedule, SCHEDULE_STORE_WORKER);
    action->number = worker->number;
    action->hello = &worker->hello.hello;
}

static size_t label_of(const struct schedule *schedule, const char *label)
{
    size_t i = 0;
    while (i < schedule->config.label_count && strcmp(schedule->labels[i], label) != 0)
        i++;
    return i;
}

/* Why that hello is refused, to free(); NULL when it is not. */
static char *hello_refused(const struct schedule *schedule, const struct wire_hello *hello)
{
    bool known = map_get(&schedule->instances, hello->instance, strlen(hello->instance)) != NULL;
    if (strlen(hello->instance) >= sizeof((struct worker *)0)->instance)
        return memory_text("instance is not 32 hex digits");
    if (label_of(schedule, hello->label) == schedule->config.label_count)
        return memory_format("runtime '%.64s' is not in this sweep", hello->label);
    if ((!known && (int64_t)schedule->worker_count - schedule->workers_renewed >= SCHEDULE_MAX_WORKERS) ||
        schedule->host_count >= SCHEDULE_MAX_WORKERS)
        return memory_format("this run has had its %d workers", SCHEDULE_MAX_WORKERS);
    return NULL;
}

static void worker_lose(struct schedule *schedule, struct worker *worker, const char *why);

static const char fresh_process[] = "its place is taken by a fresh process";

static void say_goodbye(struct schedule *schedule, const struct worker *worker, const char *reason)
{
    struct schedule_action *action = schedule_send(schedule, worker, WIRE_BYE);
    action->text = memory_text(reason);
    action->message.bye.reason = action->text;
}

static void on_hello(struct schedule *schedule, struct worker *known, const struct schedule_event *event)
{
    const struct wire_hello *hello = &event->message->hello;
    scoped_free char *refused = hello_refused(schedule, hello);
    if (refused) {
        scoped_free char *text = memory_format("worker of host %.64s: %s", hello->host, refused);
        struct schedule_event refusal = *event;
        refusal.text = text;
        on_malformed(schedule, &refusal);
        return;
    }
    struct worker *worker = map_get(&schedule->instances, hello->instance, strlen(hello->instance));
    const char *key = event->key ? event->key : "";
    if (worker && strcmp(worker->key, key) != 0) {
        struct schedule_event refusal = *event;
        refusal.text = "another key speaks for that instance";
        on_malformed(schedule, &refusal);
        return;
    }
    if (!worker && schedule->phase == SCHEDULE_CLOSING) {
        send_reject(schedule, event, "the run is over");
        return;
    }
    if (known && known != worker)
        worker_lose(schedule, known, "another process took its place");
    if (!worker)
        worker = worker_new(schedule, hello, key);
    bind_identity(schedule, worker, event);
    if (worker->state == WORKER_LEAVING) { /* the goodbye was lost with its connection */
        say_goodbye(schedule, worker,
                    schedule->phase == SCHEDULE_CLOSING ? "the run is over" : fresh_process);
        return;
    }
    if (worker->state == WORKER_LOST) {
        worker->label = label_of(schedule, hello->label);
        take_hello(schedule, worker, event->message);
        worker_join(schedule, worker);
        schedule_log(schedule, LOG_DEBUG, "%s registered: %s, pid %lld", worker->name,
                     worker->hello.hello.label, (long long)worker->hello.hello.pid);
        if (schedule->phase != SCHEDULE_GATHERING)
            store_worker(schedule, worker);
    }
    worker->heard_ns = event->now_ns;
    worker->reconnected = worker->attempt != NULL;
    struct schedule_action *action = schedule_send(schedule, worker, WIRE_WELCOME);
    action->message.welcome = (struct wire_welcome){
        .worker = worker->number, .run = schedule->run, .heartbeat_ns = schedule->config.heartbeat_ns};
}

/* -- loss --------------------------------------------------------------------------------------------------- */

static void worker_lose(struct schedule *schedule, struct worker *worker, const char *why)
{
    if (worker->state == WORKER_LOST)
        return;
    if (worker->state == WORKER_LEAVING) {
        worker_depart(schedule, worker);
        return;
    }
    if (worker->state != WORKER_WEDGED)
        pool_remove(&worker->host->pools[worker->label], worker);
    schedule->live[worker->label] -= worker->state != WORKER_WEDGED;
    worker->state = WORKER_LOST;
    worker->lost_ns = schedule->now_ns;
    schedule->workers_lost++;
    if (worker->slot != WIRE_NULL)
        schedule->slots[worker->slot].worker = NULL;
    map_remove(&schedule->identities, worker->identity, worker->identity_bytes);
    worker->identity_bytes = 0;
    const struct attempt *attempt = worker->attempt;
    bool again = attempt && !attempt->voided && attempt->number < SCHEDULE_MAX_ATTEMPTS;
    scoped_free char *group =
        again ? memory_format("; group %lld will be issued again", (long long)attempt->group->plan->number)
              : memory_text("");
    scoped_free char *story = memory_format("%s lost: %s", worker->name, why);
    schedule_log(schedule, LOG_WARNING, "%s%s", story, group);
    schedule_note(schedule, "worker_lost", "%s%s", story, group);
    schedule_member_gone(schedule, worker, story);
    wire_release(&worker->hello);
}

/* The place of an idle worker gets a fresh process: it is told to end, and that is nobody's loss. */
void schedule_renew(struct schedule *schedule, struct worker *worker)
{
    struct slot_state *slot = &schedule->slots[worker->slot];
    say_goodbye(schedule, worker, fresh_process);
    schedule_act(schedule, SCHEDULE_RENEW)->slot = worker->slot;
    pool_remove(&worker->host->pools[worker->label], worker);
    schedule->live[worker->label]--;
    schedule->workers_renewed++;
    worker->state = WORKER_LEAVING;
    worker->slot = WIRE_NULL;
    slot->worker = NULL;
    slot->leaving = worker;
    slot->renewing = worker->host;
    worker->host->renewing++;
}

/* A live process whose loop does not come back: a local one is ended, another's sits out until it answers. */
static void worker_wedge(struct schedule *schedule, struct worker *worker, const char *why)
{
    if (worker->slot != WIRE_NULL) {
        schedule_act(schedule, SCHEDULE_KILL)->slot = worker->slot;
        worker_lose(schedule, worker, why);
        return;
    }
    pool_remove(&worker->host->pools[worker->label], worker);
    schedule->live[worker->label]--;
    worker->state = WORKER_WEDGED;
    scoped_free char *story = memory_format("%s set aside: %s", worker->name, why);
    schedule_log(schedule, LOG_WARNING, "%s", story);
    schedule_note(schedule, "worker_wedged", "%s", story);
    schedule_member_gone(schedule, worker, story);
}

static void worker_answers_again(struct schedule *schedule, struct worker *worker)
{
    schedule_log(schedule, LOG_INFO, "%s answers again", worker->name);
    worker_join(schedule, worker);
}

/* -- messages of registered workers ------------------------------------------------------------------------- */

static bool is_current(const struct worker *worker, int64_t group, int64_t attempt)
{
    return worker->attempt && worker->attempt->group->plan->number == group &&
           worker->attempt->number == attempt;
}

/* An answer to something that is over: it settles an abort and ends a wedge; it is refused all the same. */
static void late_answer(struct schedule *schedule, struct worker *worker, int64_t group, int64_t attempt,
                        const char *what)
{
    if (worker->state == WORKER_ABORTING && is_current(worker, group, attempt)) {
        schedule_member_settled(schedule, worker);
        return;
    }
    if (worker->state == WORKER_WEDGED)
        worker_answers_again(schedule, worker);
    refuse(schedule, worker, what);
}

static void on_ready(struct schedule *schedule, struct worker *worker, const struct schedule_event *event)
{
    const struct wire_ready *ready = &event->message->ready;
    if (worker->state == WORKER_PREPARING && is_current(worker, ready->group, ready->attempt))
        schedule_member_ready(schedule, worker, ready);
    else
        late_answer(schedule, worker, ready->group, ready->attempt, "late ready");
}

/* The user stopped the run and this worker had nothing more to say of its group. */
static void stopped_without_result(struct schedule *schedule, struct worker *worker)
{
    if (worker->state == WORKER_MEASURING)
        schedule_member_done(schedule, worker, false, NULL);
}

/* What was sent to it was lost with its connection. */
static void forgotten_slice(struct schedule *schedule, struct worker *worker)
{
    worker->reconnected = false;
    if (worker->state == WORKER_PREPARING) {
        schedule_assign(schedule, worker);
    } else if (worker->state == WORKER_READY || worker->state == WORKER_MEASURING) {
        scoped_free char *why = memory_format("%s lost its slice with its connection", worker->name);
        worker->state = WORKER_READY;
        schedule_void(schedule, worker->attempt, why);
    }
}

static void on_heartbeat(struct schedule *schedule, struct worker *worker, const struct schedule_event *event)
{
    const struct wire_heartbeat *beat = &event->message->heartbeat;
    bool idle = beat->state && strcmp(beat->state, "idle") == 0;
    if (idle && worker->state == WORKER_ABORTING)
        schedule_member_settled(schedule, worker);
    else if (idle && worker->state == WORKER_WEDGED)
        worker_answers_again(schedule, worker);
    else if (idle && schedule->phase == SCHEDULE_STOPPING)
        stopped_without_result(schedule, worker);
    else if (idle && worker->reconnected)
        forgotten_slice(schedule, worker);
    else if (worker->state == WORKER_MEASURING && is_current(worker, beat->group, beat->attempt) &&
             beat->rounds_done > worker->rounds_done)
        worker->rounds_done = beat->rounds_done;
}

static void send_ack(struct schedule *schedule, const struct worker *worker, const struct wire_result *result,
                     int64_t part)
{
    schedule_send(schedule, worker, WIRE_ACK)->message.ack =
        (struct wire_ack){.group = result->group, .attempt = result->attempt, .go = result->go, .part = part};
}

/* Where that cell is in the worker's slice, or -1. */
static int64_t position_of(const struct schedule *schedule, const struct worker *worker, int64_t cell)
{
    const struct slice *slice = schedule_slice_of(worker);
    if (cell < 0 || cell >= schedule->plan->cell_count)
        return -1;
    size_t position = schedule->cell_position[cell];
    return position < slice->cell_count && slice->cells[position] == cell ? (int64_t)position : -1;
}

/* Each cell's rounds must come block by block, none twice, none left out.  Checks all, then counts all. */
static const char *take_rounds(const struct schedule *schedule, struct worker *worker,
                               const struct wire_result *result)
{
    const struct slice *slice = schedule_slice_of(worker);
    scoped_free int64_t *next = memory_zeroed(slice->cell_count, sizeof *next);
    memcpy(next, worker->next_block, slice->cell_count * sizeof *next);
    for (size_t i = 0; i < result->round_count; i++) {
        int64_t position = position_of(schedule, worker, result->rounds[i].cell);
        if (position < 0)
            return "a round of a cell that is not in its slice";
        if (next[position] >= worker->block_end || result->rounds[i].block != next[position])
            return "a round that was not asked for, or out of order";
        next[position]++;
    }
    memcpy(worker->next_block, next, slice->cell_count * sizeof *next);
    return NULL;
}

static bool go_complete(const struct worker *worker)
{
    const struct slice *slice = schedule_slice_of(worker);
    for (size_t i = 0; i < slice->cell_count; i++)
        if (worker->next_block[i] != worker->block_end)
            return false;
    return true;
}

static int64_t rounds_taken(const struct worker *worker)
{
    const struct slice *slice = schedule_slice_of(worker);
    int64_t rounds = 0;
    for (size_t i = 0; i < slice->cell_count; i++)
        rounds += worker->next_block[i] - worker->first_block;
    return rounds;
}

static void broken_result(struct schedule *schedule, struct worker *worker, const char *what)
{
    scoped_free char *why = memory_format("%s sent %s", worker->name, what);
    refuse(schedule, worker, what);
    worker->attempt->measuring_count--;
    worker->state = WORKER_READY;
    schedule_void(schedule, worker->attempt, why);
}

static void current_result(struct schedule *schedule, struct worker *worker, const struct wire_result *result)
{
    const char *wrong = take_rounds(schedule, worker, result);
    bool complete = !wrong && go_complete(worker);
    if (!wrong && result->last && !complete && !result->error && schedule->phase == SCHEDULE_RUNNING)
        wrong = "a result that lacks rounds";
    if (wrong) {
        broken_result(schedule, worker, wrong);
        return;
    }
    struct schedule_action *action = schedule_act(schedule, SCHEDULE_STORE_RESULT);
    action->number = worker->number;
    action->result = result;
    worker->attempt->stored |= result->round_count > 0;
    effort_take(worker->attempt, result);
    ladder_take(schedule, result);
    worker->next_part++;
    worker->rounds_done = rounds_taken(worker);
    if (!result->last)
        return; /* nothing is sent to it before the last part */
    for (int64_t part = 0; part <= result->part; part++)
        send_ack(schedule, worker, result, part);
    schedule_member_done(schedule, worker, complete, result->error);
}

static void on_result(struct schedule *schedule, struct worker *worker, const struct schedule_event *event)
{
    const struct wire_result *result = &event->message->result;
    bool current = is_current(worker, result->group, result->attempt);
    bool stored = current &&
                  (result->go < worker->go || (result->go == worker->go && result->part < worker->next_part));
    if (stored && worker->state != WORKER_ABORTING) { /* its ack was lost: say it again */
        schedule->duplicates++;
        if (worker->state != WORKER_MEASURING)
            send_ack(schedule, worker, result, result->part);
    } else if (current && worker->state == WORKER_MEASURING && result->go == worker->go &&
               result->part == worker->next_part) {
        current_result(schedule, worker, result);
    } else {
        send_ack(schedule, worker, result,
                 result->part); /* so that it is not sent again; nothing was stored */
        if (result->last || worker->state != WORKER_ABORTING)
            late_answer(schedule, worker, result->group, result->attempt, "late or foreign result");
    }
}

static void on_bye(struct schedule *schedule, struct worker *worker, const struct schedule_event *event)
{
    const char *reason = event->message->bye.reason;
    scoped_free char *why = memory_format("it left%s%.200s", reason ? ": " : "", reason ? reason : "");
    worker_lose(schedule, worker, why);
}

static void on_abort(struct schedule *schedule, struct worker *worker, const struct schedule_event *event)
{
    const struct wire_abort *abort = &event->message->abort;
    if (!is_current(worker, abort->group, abort->attempt) || worker->state > WORKER_MEASURING) {
        late_answer(schedule, worker, abort->group, abort->attempt, "late abort");
        return;
    }
    if (schedule->phase == SCHEDULE_STOPPING) {
        stopped_without_result(schedule, worker);
        return;
    }
    scoped_free char *why = memory_format("%s gave it up: %.300s", worker->name,
                                          abort->reason ? abort->reason : "no reason given");
    worker->state = WORKER_READY;
    schedule_void(schedule, worker->attempt, why);
}

static void on_reject(struct schedule *schedule, struct worker *worker, const struct schedule_event *event)
{
    const char *reason = event->message->reject.reason;
    if (may_log(&worker->logged_ns, schedule->now_ns))
        schedule_log(schedule, LOG_WARNING, "%s rejects a message of ours: %.300s", worker->name,
                     reason ? reason : "no reason given");
}

typedef void message_handler(struct schedule *schedule, struct worker *worker,
                             const struct schedule_event *event);

static message_handler *const handlers[WIRE_TYPE_COUNT] = {
    [WIRE_READY] = on_ready, [WIRE_HEARTBEAT] = on_heartbeat, [WIRE_RESULT] = on_result,
    [WIRE_BYE] = on_bye,     [WIRE_ABORT] = on_abort,         [WIRE_REJECT] = on_reject,
};

static void on_message(struct schedule *schedule, const struct schedule_event *event)
{
    struct worker *worker = map_get(&schedule->identities, event->identity, event->identity_bytes);
    enum wire_type type = event->message->type;
    if (worker)
        worker->heard_ns = event->now_ns;
    if (type == WIRE_HELLO) {
        on_hello(schedule, worker, event);
        return;
    }
    if (worker && worker->state == WORKER_LEAVING) { /* whatever else it says is not heard */
        if (type == WIRE_BYE)
            worker_depart(schedule, worker);
        return;
    }
    if (type == WIRE_REJECT && !worker)
        return; /* an answer to an answer would go on for ever */
    struct schedule_event refused = *event;
    refused.text = worker ? "not a message for a coordinator" : "not registered: say hello first";
    if (worker && type < WIRE_TYPE_COUNT && handlers[type])
        handlers[type](schedule, worker, event);
    else
        on_malformed(schedule, &refused);
}

/* -- local processes and time ------------------------------------------------------------------------------- */

static void on_gone(struct schedule *schedule, const struct schedule_event *event)
{
    struct worker *worker = map_get(&schedule->identities, event->identity, event->identity_bytes);
    if (worker)
        worker_lose(schedule, worker, event->text);
}

static void on_slot(struct schedule *schedule, const struct schedule_event *event)
{
    if (event->slot < 0 || (size_t)event->slot >= schedule->config.slot_count)
        return;
    struct slot_state *slot = &schedule->slots[event->slot];
    if (slot->worker)
        worker_lose(schedule, slot->worker, event->text);
    if (event->kind == SCHEDULE_SLOT_OVER) {
        slot->over = true;
        slot_renewed(schedule, slot);
    }
}

static bool silent_while_busy(const struct worker *worker)
{
    return !worker->busy_heartbeats && worker->state >= WORKER_PREPARING &&
           worker->state <= WORKER_ABORTING && worker->state != WORKER_READY;
}

static void check_worker(struct schedule *schedule, struct worker *worker)
{
    char text[120];
    int64_t silence_ns = schedule->now_ns - worker->heard_ns;
    if (worker->state == WORKER_LOST || worker->state == WORKER_LEAVING)
        return;
    if (worker->lease_until_ns && schedule->now_ns > worker->lease_until_ns &&
        worker->state != WORKER_WEDGED) {
        worker_wedge(schedule, worker, "its lease ran out");
    } else if (!silent_while_busy(worker) &&
               silence_ns > SCHEDULE_MISSED_BEATS * schedule->config.heartbeat_ns) {
        snprintf(text, sizeof text, "no heartbeat for %.1f s", (double)silence_ns / (double)NS_PER_S);
        if (worker->slot != WIRE_NULL)
            schedule_act(schedule, SCHEDULE_KILL)->slot = worker->slot;
        worker_lose(schedule, worker, text);
    }
}

/* When this process itself did not run for a while, silence proves nothing: every wait starts later by as much. */
static void forgive_pause(struct schedule *schedule)
{
    int64_t pause_ns = schedule->ticked_ns ? schedule->now_ns - schedule->ticked_ns : 0;
    if (pause_ns <= COORDINATOR_PAUSE_BEATS * schedule->config.heartbeat_ns)
        return;
    for (size_t i = 0; i < schedule->worker_count; i++) {
        struct worker *worker = schedule->workers[i];
        worker->heard_ns += pause_ns;
        if (worker->heard_ns > schedule->now_ns)
            worker->heard_ns = schedule->now_ns;
        if (worker->lease_until_ns)
            worker->lease_until_ns += pause_ns;
    }
}

static void on_tick(struct schedule *schedule)
{
    forgive_pause(schedule);
    schedule->ticked_ns = schedule->now_ns;
    for (size_t i = 0; i < schedule->worker_count; i++)
        check_worker(schedule, schedule->workers[i]);
    schedule_stuck(schedule);
}

static void on_stop(struct schedule *schedule)
{
    if (schedule->phase == SCHEDULE_RUNNING) {
        schedule->phase = SCHEDULE_STOPPING;
        schedule_stop(schedule);
    } else if (!schedule->attempts && schedule->phase != SCHEDULE_CLOSING) {
        schedule->phase = SCHEDULE_OVER;
    }
}

/* -- entry -------------------------------------------------------------------------------------------------- */

void schedule_begin(struct schedule *schedule, const struct plan *plan, const struct schedule_past *past,
                    const struct schedule_load *loads, int64_t now_ns)
{
    actions_clear(schedule);
    schedule->plan = plan;
    schedule->now_ns = now_ns;
    schedule->phase = SCHEDULE_RUNNING;
    schedule->deadline_ns = schedule->config.budget_ns > 0 ? now_ns + schedule->config.budget_ns : INT64_MAX;
    schedule_groups_begin(schedule, past, loads);
    for (size_t i = 0; i < schedule->worker_count; i++)
        if (schedule->workers[i]->state != WORKER_LOST)
            store_worker(schedule, schedule->workers[i]);
    schedule_look_at_all(schedule);
    schedule_dispatch(schedule);
}

void schedule_feed(struct schedule *schedule, const struct schedule_event *event)
{
    actions_clear(schedule);
    if (event->identity_bytes > SCHEDULE_MAX_IDENTITY)
        return;
    schedule->now_ns = event->now_ns;
    switch (event->kind) {
    case SCHEDULE_MESSAGE:
        on_message(schedule, event);
        break;
    case SCHEDULE_MALFORMED:
        on_malformed(schedule, event);
        break;
    case SCHEDULE_GONE:
        on_gone(schedule, event);
        break;
    case SCHEDULE_SLOT_LOST:
    case SCHEDULE_SLOT_OVER:
        on_slot(schedule, event);
        break;
    case SCHEDULE_TICK:
        on_tick(schedule);
        break;
    case SCHEDULE_STOP:
        on_stop(schedule);
        break;
    }
    if (schedule->phase == SCHEDULE_STOPPING && !schedule->attempts) {
        schedule_close_kept(schedule);
        schedule->phase = SCHEDULE_OVER;
    }
    schedule_dispatch(schedule);
}

void schedule_farewell(struct schedule *schedule, const char *reason)
{
    actions_clear(schedule);
    for (size_t i = 0; i < schedule->worker_count; i++) {
        struct worker *worker = schedule->workers[i];
        if (worker->state == WORKER_LOST)
            continue;
        say_goodbye(schedule, worker, reason);
        worker->state = WORKER_LEAVING;
        worker->attempt = NULL;
    }
    schedule->phase = SCHEDULE_CLOSING;
}

int64_t schedule_round_ns(const struct schedule *schedule)
{
    int64_t longest_ns = 0;
    for (const struct attempt *attempt = schedule->attempts; attempt; attempt = attempt->next) {
        const struct group *group = attempt->group;
        for (int64_t i = 0; i < group->cell_count; i++) {
            int64_t expected_ns = schedule->plan->cells[group->cells[i]].expected_ns;
            longest_ns = expected_ns > longest_ns ? expected_ns : longest_ns;
        }
    }
    return longest_ns;
}

int64_t schedule_by_hand(const struct schedule *schedule)
{
    int64_t count = 0;
    for (size_t i = 0; i < schedule->worker_count; i++)
        count += schedule->workers[i]->identity_bytes && schedule->workers[i]->slot == WIRE_NULL;
    return count;
}

void schedule_progress(const struct schedule *schedule, struct schedule_progress *ret)
{
    *ret = (struct schedule_progress){.phase = schedule->phase,
                                      .current_group = -1,
                                      .groups_done = schedule->groups_done,
                                      .groups_failed = schedule->groups_failed,
                                      .done_ns = schedule->done_ns,
                                      .workers_registered = (int64_t)schedule->worker_count,
                                      .workers_lost = schedule->workers_lost,
                                      .workers_renewed = schedule->workers_renewed,
                                      .workers_live = (int64_t)schedule->identities.count,
                                      .voided = schedule->voided,
                                      .refused = schedule->refused,
                                      .malformed = schedule->malformed,
                                      .duplicates = schedule->duplicates};
    if (schedule->plan) {
        ret->group_count = schedule->plan->group_count;
        ret->expected_ns = schedule->plan->expected_ns;
    }
    for (const struct attempt *attempt = schedule->attempts; attempt; attempt = attempt->next) {
        ret->groups_under_way++;
        ret->current_group = attempt->group->plan->number;
        ret->done_ns += schedule_attempt_done_ns(attempt);
    }
}

/* -- invariants --------------------------------------------------------------------------------------------- */

static const char *check_workers(const struct schedule *schedule)
{
    size_t live = 0;
    for (size_t i = 0; i < schedule->worker_count; i++) {
        const struct worker *worker = schedule->workers[i];
        bool lost = worker->state == WORKER_LOST;
        live += !lost;
        if (lost && (worker->attempt || worker->identity_bytes))
            return "a lost worker is still a member or can still be reached";
        if (!lost && map_get(&schedule->identities, worker->identity, worker->identity_bytes) != worker)
            return "a live worker cannot be found by its identity";
        if (worker->attempt && worker->attempt != worker->host->attempt)
            return "a member's host is owned by another group";
        if (worker->slot != WIRE_NULL && !lost && schedule->slots[worker->slot].worker != worker)
            return "a slot does not know its worker";
    }
    return live == schedule->identities.count ? NULL : "an identity leads to no live worker";
}

static const char *check_groups(const struct schedule *schedule)
{
    int64_t under_way = 0, finished = 0;
    for (int64_t i = 0; schedule->groups && i < schedule->plan->group_count; i++) {
        under_way += schedule->groups[i].status == GROUP_UNDER_WAY;
        finished += schedule->groups[i].status >= GROUP_DONE;
        if (schedule->groups[i].attempts > SCHEDULE_MAX_ATTEMPTS)
            return "a group has had more attempts than it may";
        if (schedule->groups[i].held && schedule->groups[i].status != GROUP_WAITING)
            return "a group that waits for others is under way or over";
    }
    for (const struct attempt *attempt = schedule->attempts; attempt; attempt = attempt->next) {
        if (attempt->voided && attempt->aborting_count == 0)
            return "a void attempt waits for nobody";
        if (attempt->measuring_count > attempt->member_count ||
            attempt->aborting_count > attempt->member_count)
            return "an attempt counts more members than it has";
        under_way--;
    }
    if (schedule->phase == SCHEDULE_RUNNING && under_way != 0)
        return "groups under way and attempts differ in number";
    if (schedule->groups && finished != schedule->groups_done + schedule->groups_failed)
        return "finished groups are not counted right";
    return schedule->phase == SCHEDULE_OVER && schedule->attempts ? "over, and still under way" : NULL;
}

const char *schedule_check(const struct schedule *schedule)
{
    const char *wrong = check_workers(schedule);
    return wrong ? wrong : check_groups(schedule);
}
