/* The schedule in virtual time: made-up workers that obey, fall silent, die, lie and come back. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "coordinator/plan/plan.h"
#include "coordinator/schedule/schedule.h"
#include "coordinator/sweep/sweep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MAX_PEERS  64
#define MAX_CELLS  64
#define MAX_SENT   8192
#define MAX_BLOCKS 1024

/* ---- made-up workers and a store, around a real schedule ---- */

enum manner { OBEYS, SILENT }; /* silent: takes what is sent, answers nothing */

/* What a peer was sent, kept beyond the action's life. */
struct sent {
    int peer;
    enum wire_type type;
    int64_t group, attempt, go, first_block, blocks, cell, part, start_in_ns;
    int64_t cells[MAX_CELLS];
    size_t cell_count;
    char reason[160];
    bool keep;
};

struct peer {
    char identity[16], instance[40];
    const char *label, *host, *boot_id;
    int64_t slot, number;
    bool busy_heartbeats, lost;
    enum manner manner;
    bool measuring;
    struct sent slice;       /* its last assign */
    double rates[MAX_CELLS]; /* of the cells of that */
};

struct sim {
    struct plan *plan;
    struct schedule *schedule;
    int64_t now_ns;
    struct peer peers[MAX_PEERS];
    int peer_count;
    struct sent sent[MAX_SENT];
    size_t sent_count, answered;
    /* the store */
    int stored[MAX_CELLS][MAX_BLOCKS];      /* rounds that are not void, over all workers */
    int open_rounds[MAX_CELLS][MAX_BLOCKS]; /* of attempts that are neither finished nor void */
    int64_t open_group_of[MAX_CELLS];
    int finished[MAX_CELLS], kept[MAX_CELLS], voided, failed, results_stored, events;
    int64_t stored_group, stored_attempt, stored_go, stored_part; /* the last result */
    char story[700];
    int64_t killed_slot;
    int occupied[MAX_PEERS];     /* slots */
    int64_t renewing[MAX_PEERS]; /* places whose next process has not been started */
    int renewing_count;
    int64_t order[MAX_CELLS]; /* groups as they ended, in whatever way */
    int over;
    char left_out[MAX_CELLS][64];                                            /* why, by group; "" */
    char dropped[MAX_CELLS][64];                                             /* why, by cell; "" */
    double rates[MAX_CELLS];                                                 /* stored, by cell */
    void (*measure)(const struct plan_cell *cell, struct wire_round *round); /* NULL: as below */
    int64_t block_ns;       /* what a block takes, beside the ms of every answer */
    int64_t jitter;         /* largest deviation of a round's wall from 1 ms, ns */
    bool quiet_while_busy;  /* peers that are added from now on */
    const char *less_known; /* an arm that they do not know */
    int logs, warnings;
    char log[700];
};

static struct plan *plan_of(const char *text, int64_t workers)
{
    struct sweep *sweep = NULL;
    struct plan *plan = NULL;
    struct error err = {0};
    struct sweep_mistakes mistakes = {0};
    if (sweep_parse("a.yaml", text, strlen(text), (struct sweep_settings){0}, &sweep, &mistakes) != 0)
        fail_msg("%s", sweep_mistakes_text(&mistakes));
    if (plan_make(sweep, workers, &plan, &err) != 0)
        fail_msg("%s", err.text);
    sweep_free(sweep);
    return plan;
}

static void sim_open_with(struct sim *sim, const char *sweep, int64_t workers, size_t slots,
                          int64_t budget_ns)
{
    const char *labels[8];
    memset(sim, 0, sizeof *sim);
    sim->plan = plan_of(sweep, workers);
    sim->now_ns = 100 * NS_PER_S;
    sim->killed_slot = -1;
    for (int64_t i = 0; i < sim->plan->runtime_count; i++)
        labels[i] = sim->plan->runtimes[i].label;
    sim->schedule = schedule_new(&(struct schedule_config){.run = "r",
                                                           .labels = labels,
                                                           .label_count = (size_t)sim->plan->runtime_count,
                                                           .boot_id = "here",
                                                           .host = "a",
                                                           .heartbeat_ns = NS_PER_S,
                                                           .rejoin_ns = 10 * NS_PER_S,
                                                           .slot_count = slots,
                                                           .budget_ns = budget_ns,
                                                           .seed = 1});
}

static void sim_open(struct sim *sim, const char *sweep, int64_t workers, size_t slots)
{
    sim_open_with(sim, sweep, workers, slots, 0);
}

static void sim_close(struct sim *sim)
{
    schedule_free(sim->schedule);
    plan_free(sim->plan);
}

static int peer_of(const struct sim *sim, const struct schedule_action *action)
{
    for (int i = 0; i < sim->peer_count; i++)
        if (strlen(sim->peers[i].identity) == action->identity_bytes &&
            memcmp(sim->peers[i].identity, action->identity, action->identity_bytes) == 0)
            return i;
    return -1;
}

/* The rule of SPEC.md that nothing reaches a worker while it measures, but an abort, a welcome, a goodbye. */
static void check_silence(const struct sim *sim, const struct sent *sent)
{
    bool may = sent->type == WIRE_ABORT || sent->type == WIRE_WELCOME || sent->type == WIRE_BYE ||
               sent->type == WIRE_REJECT;
    if (sent->peer >= 0 && sim->peers[sent->peer].measuring && !may)
        fail_msg("%s was sent to a worker that measures", wire_type_name(sent->type));
}

static void note_assign(struct sent *sent, const struct wire_assign *assign)
{
    sent->group = assign->group;
    sent->attempt = assign->attempt;
    sent->blocks = assign->blocks;
    sent->cell_count = assign->cell_count;
    for (size_t i = 0; i < assign->cell_count; i++)
        sent->cells[i] = assign->cells[i].cell;
}

static void note_go(struct sent *sent, const struct wire_go *go)
{
    sent->group = go->group;
    sent->attempt = go->attempt;
    sent->go = go->go;
    sent->first_block = go->first_block;
    sent->blocks = go->blocks;
    sent->cell = go->cell;
}

static void note_ack(struct sent *sent, const struct wire_ack *ack)
{
    sent->group = ack->group;
    sent->attempt = ack->attempt;
    sent->go = ack->go;
    sent->part = ack->part;
}

static void note_abort(struct sent *sent, const struct wire_abort *abort)
{
    sent->group = abort->group;
    sent->keep = abort->keep;
}

static void take_send(struct sim *sim, const struct schedule_action *action)
{
    struct sent sent = {.peer = peer_of(sim, action), .type = action->message.type};
    const struct wire_message *message = &action->message;
    sent.start_in_ns = action->start_in_ns;
    check_silence(sim, &sent);
    if (sent.type == WIRE_ASSIGN)
        note_assign(&sent, &message->assign);
    else if (sent.type == WIRE_GO)
        note_go(&sent, &message->go);
    else if (sent.type == WIRE_ACK)
        note_ack(&sent, &message->ack);
    else if (sent.type == WIRE_ABORT)
        note_abort(&sent, &message->abort);
    else if (sent.type == WIRE_WELCOME && sent.peer >= 0)
        sim->peers[sent.peer].number = message->welcome.worker;
    else if (sent.type == WIRE_REJECT)
        (void)snprintf(sent.reason, sizeof sent.reason, "%s", message->reject.reason);
    for (size_t i = 0; sent.type == WIRE_ASSIGN && i < message->assign.cell_count; i++)
        sim->peers[sent.peer].rates[i] = message->assign.cells[i].rate_per_s;
    if (sent.type == WIRE_GO)
        sim->peers[sent.peer].measuring = true;
    if (sent.type == WIRE_BYE && sent.peer >= 0)
        sim->peers[sent.peer].lost = true;
    assert_true(sim->sent_count < MAX_SENT);
    sim->sent[sim->sent_count++] = sent;
}

static void store_result(struct sim *sim, const struct wire_result *result)
{
    sim->results_stored++;
    sim->stored_group = result->group;
    sim->stored_attempt = result->attempt;
    sim->stored_go = result->go;
    sim->stored_part = result->part;
    for (size_t i = 0; i < result->round_count; i++)
        sim->open_rounds[result->rounds[i].cell][result->rounds[i].block]++;
}

/* Open rounds of a group count from now on, or never. */
static void settle_rounds(struct sim *sim, int64_t group, bool count)
{
    for (int64_t c = 0; c < sim->plan->cell_count; c++) {
        for (int b = 0; sim->plan->cells[c].group == group && b < MAX_BLOCKS; b++) {
            if (count)
                sim->stored[c][b] += sim->open_rounds[c][b];
            sim->open_rounds[c][b] = 0;
        }
    }
}

static void take_action(struct sim *sim, const struct schedule_action *action)
{
    switch (action->kind) {
    case SCHEDULE_SEND:
        take_send(sim, action);
        break;
    case SCHEDULE_STORE_RESULT:
        store_result(sim, action->result);
        break;
    case SCHEDULE_STORE_KEEP:
        assert_int_equal(sim->kept[action->group]++, 0);
        settle_rounds(sim, action->group, true);
        break;
    case SCHEDULE_STORE_FINISH:
        sim->order[sim->over++] = action->group;
        assert_int_equal(sim->finished[action->group]++, 0);
        settle_rounds(sim, action->group, true);
        break;
    case SCHEDULE_STORE_VOID:
        sim->voided++;
        settle_rounds(sim, action->group, false);
        break;
    case SCHEDULE_STORE_LEAVE_OUT:
        sim->order[sim->over++] = action->group;
        (void)snprintf(sim->left_out[action->group], sizeof *sim->left_out, "%s", action->text);
        break;
    case SCHEDULE_STORE_DROP_CELL:
        assert_string_equal(sim->dropped[action->number], ""); /* once */
        (void)snprintf(sim->dropped[action->number], sizeof *sim->dropped, "%s", action->text);
        break;
    case SCHEDULE_STORE_RATE:
        sim->rates[action->number] = action->rate_per_s;
        break;
    case SCHEDULE_STORE_FAIL:
        sim->failed++;
        (void)snprintf(sim->story, sizeof sim->story, "%s", action->text);
        break;
    case SCHEDULE_STORE_EVENT:
        sim->events++;
        break;
    case SCHEDULE_KILL:
        sim->killed_slot = action->slot;
        break;
    case SCHEDULE_OCCUPY:
        assert_int_equal(sim->occupied[action->slot]++, 0);
        break;
    case SCHEDULE_VACATE:
        assert_int_equal(sim->occupied[action->slot]--, 1);
        break;
    case SCHEDULE_RENEW:
        assert_true(sim->renewing_count < MAX_PEERS);
        sim->renewing[sim->renewing_count++] = action->slot;
        break;
    case SCHEDULE_LOG:
        sim->warnings += action->level == LOG_WARNING;
        sim->logs++;
        (void)snprintf(sim->log, sizeof sim->log, "%s", action->text);
        break;
    default:
        break;
    }
}

static void take_actions(struct sim *sim)
{
    const struct schedule_action *action;
    while ((action = schedule_next(sim->schedule)))
        take_action(sim, action);
    const char *wrong = schedule_check(sim->schedule);
    if (wrong)
        fail_msg("%s", wrong);
}

static void feed(struct sim *sim, struct schedule_event event)
{
    event.now_ns = sim->now_ns;
    schedule_feed(sim->schedule, &event);
    take_actions(sim);
}

static void say(struct sim *sim, int peer, struct wire_message message)
{
    feed(sim, (struct schedule_event){.kind = SCHEDULE_MESSAGE,
                                      .identity = sim->peers[peer].identity,
                                      .identity_bytes = strlen(sim->peers[peer].identity),
                                      .message = &message});
}

static char *arms[] = {(char[]){"empty"}, (char[]){"sequential"}, (char[]){"gather"}, (char[]){"taskgroup"},
                       (char[]){"tasks"}};
static char *jobs[] = {(char[]){"noop"}, (char[]){"sleep"}, (char[]){"cpu"}};

static void hello(struct sim *sim, int number)
{
    struct peer *peer = &sim->peers[number];
    struct wire_message message = {.type = WIRE_HELLO};
    message.hello = (struct wire_hello){.runtime = (char[]){"libuv"},
                                        .pid = 100 + number,
                                        .slot = peer->slot,
                                        .cpu = number,
                                        .jobs = {jobs, 3},
                                        .busy_heartbeats = peer->busy_heartbeats};
    char *known[5];
    size_t known_count = 0;
    for (size_t i = 0; i < 5; i++)
        if (!sim->less_known || strcmp(arms[i], sim->less_known) != 0)
            known[known_count++] = arms[i];
    message.hello.arms = (struct wire_texts){known, known_count};
    scoped_free char *instance = memory_text(peer->instance), *label = memory_text(peer->label);
    scoped_free char *host = memory_text(peer->host), *boot_id = memory_text(peer->boot_id);
    message.hello.instance = instance;
    message.hello.label = label;
    message.hello.host = host;
    message.hello.boot_id = boot_id;
    /* the schedule keeps a hello: give it one whose arena owns its texts, as decoding does */
    struct wire_bytes bytes;
    struct wire_message decoded;
    struct error err = {0};
    if (wire_encode(&message, &bytes, &err) < 0 || wire_decode(bytes.data, bytes.size, &decoded, &err) < 0)
        fail_msg("%s", err.text);
    free(bytes.data);
    feed(sim, (struct schedule_event){.kind = SCHEDULE_MESSAGE,
                                      .identity = peer->identity,
                                      .identity_bytes = strlen(peer->identity),
                                      .message = &decoded});
    wire_release(&decoded);
}

static int add_peer(struct sim *sim, const char *label, const char *host, const char *boot_id, int64_t slot)
{
    int number = sim->peer_count++;
    struct peer *peer = &sim->peers[number];
    assert_true(number < MAX_PEERS);
    *peer = (struct peer){.label = label,
                          .host = host,
                          .boot_id = boot_id,
                          .slot = slot,
                          .number = -1,
                          .busy_heartbeats = !sim->quiet_while_busy};
    (void)snprintf(peer->identity, sizeof peer->identity, "p%d", number);
    (void)snprintf(peer->instance, sizeof peer->instance, "%032x", number);
    hello(sim, number);
    return number;
}

static void begin(struct sim *sim)
{
    schedule_begin(sim->schedule, sim->plan, NULL, NULL, sim->now_ns);
    take_actions(sim);
}

static void ready(struct sim *sim, int peer, const char *error)
{
    const struct sent *slice = &sim->peers[peer].slice;
    struct wire_message message = {.type = WIRE_READY};
    scoped_free char *text = memory_text(error);
    message.ready = (struct wire_ready){.group = slice->group, .attempt = slice->attempt, .error = text};
    say(sim, peer, message);
}

static void heartbeat(struct sim *sim, int peer, const char *state)
{
    struct wire_message message = {.type = WIRE_HEARTBEAT};
    scoped_free char *text = memory_text(state);
    message.heartbeat = (struct wire_heartbeat){.group = WIRE_NULL, .attempt = WIRE_NULL, .state = text};
    say(sim, peer, message);
}

/* Rounds [from, to) of a go, cell by cell within each block. */
static void result(struct sim *sim, int peer, const struct sent *go, int64_t part, bool last, size_t from,
                   size_t to)
{
    const struct sent *slice = &sim->peers[peer].slice;
    size_t width = go->cell == WIRE_NULL ? slice->cell_count : 1;
    struct wire_round *rounds = memory_zeroed(to > from ? to - from : 1, sizeof *rounds);
    for (size_t i = from; i < to; i++) {
        wire_round_init(&rounds[i - from]);
        rounds[i - from].cell = go->cell == WIRE_NULL ? slice->cells[i % width] : go->cell;
        rounds[i - from].block = go->first_block + (int64_t)(i / width);
        rounds[i - from].position = (int64_t)(i % width);
        rounds[i - from].fanouts = 1;
        rounds[i - from].wall_ns = NS_PER_MS + rounds[i - from].block * 37 % 101 * sim->jitter / 101;
        rounds[i - from].cpu_ns = 1000;
        if (sim->measure)
            sim->measure(&sim->plan->cells[rounds[i - from].cell], &rounds[i - from]);
    }
    struct wire_message message = {.type = WIRE_RESULT};
    message.result = (struct wire_result){.group = go->group,
                                          .attempt = go->attempt,
                                          .go = go->go,
                                          .part = part,
                                          .last = last,
                                          .rounds = rounds,
                                          .round_count = to - from};
    sim->peers[peer].measuring &= !last;
    say(sim, peer, message);
    free(rounds);
}

static size_t rounds_of(const struct sim *sim, int peer, const struct sent *go)
{
    return (size_t)go->blocks * (go->cell == WIRE_NULL ? sim->peers[peer].slice.cell_count : 1);
}

static void answer(struct sim *sim, const struct sent *sent)
{
    struct peer *peer = &sim->peers[sent->peer];
    if (sent->type == WIRE_ASSIGN)
        peer->slice = *sent;
    if (sent->type == WIRE_ABORT)
        peer->measuring = false;
    if (peer->lost || peer->manner == SILENT)
        return;
    sim->now_ns += NS_PER_MS + (sent->type == WIRE_GO ? sent->blocks * sim->block_ns : 0);
    if (sent->type == WIRE_ASSIGN)
        ready(sim, sent->peer, NULL);
    else if (sent->type == WIRE_GO)
        result(sim, sent->peer, sent, 0, true, 0, rounds_of(sim, sent->peer, sent));
    else if (sent->type == WIRE_ABORT)
        heartbeat(sim, sent->peer, "idle");
}

/* Lets every peer answer what it was sent until nothing is left, or `most` answers were given. */
static void settle(struct sim *sim, size_t most)
{
    for (; sim->answered < sim->sent_count && most > 0; most--) {
        struct sent sent = sim->sent[sim->answered++];
        if (sent.peer >= 0)
            answer(sim, &sent);
    }
}

/* The next process of every place that is renewed. */
static void renew(struct sim *sim)
{
    while (sim->renewing_count > 0) {
        int64_t slot = sim->renewing[--sim->renewing_count];
        int before = sim->peer_count - 1;
        while (sim->peers[before].slot != slot)
            before--;
        add_peer(sim, sim->peers[before].label, sim->peers[before].host, sim->peers[before].boot_id, slot);
    }
}

static void settle_and_renew(struct sim *sim)
{
    settle(sim, 10000);
    while (sim->renewing_count > 0) {
        renew(sim);
        settle(sim, 10000);
    }
}

static void pass(struct sim *sim, int64_t ns)
{
    for (int64_t end_ns = sim->now_ns + ns; sim->now_ns < end_ns;) {
        sim->now_ns += 250 * NS_PER_MS;
        for (int i = 0; i < sim->peer_count; i++)
            if (!sim->peers[i].lost && sim->peers[i].manner == OBEYS)
                heartbeat(sim, i, sim->peers[i].measuring ? "measuring" : "ready");
        feed(sim, (struct schedule_event){.kind = SCHEDULE_TICK});
    }
}

static void lose_slot(struct sim *sim, int peer, bool over)
{
    sim->peers[peer].lost = true;
    sim->peers[peer].measuring = false;
    feed(sim, (struct schedule_event){.kind = over ? SCHEDULE_SLOT_OVER : SCHEDULE_SLOT_LOST,
                                      .slot = sim->peers[peer].slot,
                                      .text = "its process was ended by signal 9 (Killed)"});
}

static struct schedule_progress progress_of(const struct sim *sim)
{
    struct schedule_progress progress;
    schedule_progress(sim->schedule, &progress);
    return progress;
}

/* Every cell has exactly `cores` rounds in each of its blocks. */
static void check_complete(const struct sim *sim)
{
    for (int slot = 0; slot < MAX_PEERS; slot++)
        assert_int_equal(sim->occupied[slot], 0);
    assert_int_equal(progress_of(sim).phase, SCHEDULE_OVER);
    assert_int_equal(progress_of(sim).groups_failed, 0);
    for (int64_t c = 0; c < sim->plan->cell_count; c++) {
        const struct plan_cell *cell = &sim->plan->cells[c];
        for (int64_t b = 0; b < MAX_BLOCKS; b++)
            assert_int_equal(sim->stored[c][b], b < cell->rounds * cell->processes ? cell->cores : 0);
    }
}

static size_t count_sent(const struct sim *sim, enum wire_type type, int peer)
{
    size_t count = 0;
    for (size_t i = 0; i < sim->sent_count; i++)
        count += sim->sent[i].type == type && (peer < 0 || sim->sent[i].peer == peer);
    return count;
}

static const struct sent *last_sent(const struct sim *sim, enum wire_type type)
{
    for (size_t i = sim->sent_count; i-- > 0;)
        if (sim->sent[i].type == type)
            return &sim->sent[i];
    fail_msg("no %s was sent", wire_type_name(type));
    return NULL;
}

#define ONE_GROUP   "rounds: 6\nmatrix: [{job: sleep, fanout: 3, delay: 1ms}]\n"
#define GANG_OF_3   "rounds: 4\ncores: 3\nmatrix: [{job: sleep, fanout: 3, delay: 1ms}]\n"
#define FOUR_GROUPS "rounds: 3\nmatrix: [{job: sleep, fanout: [1, 2, 3, 4], delay: 1ms}]\n"

/* ---- how groups are measured ---- */

static void test_one_worker_gets_all_blocks_at_once(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 1);
    assert_int_equal(schedule_slots_coming(sim.schedule), 1);
    add_peer(&sim, "libuv", "a", "here", 0);
    assert_int_equal(schedule_slots_coming(sim.schedule), 0);
    assert_int_equal(schedule_live(sim.schedule, NULL), 1);
    begin(&sim);
    settle(&sim, 1000);
    assert_int_equal(count_sent(&sim, WIRE_GO, 0), 1);
    const struct sent *go = last_sent(&sim, WIRE_GO);
    assert_int_equal(go->blocks, 6);
    assert_int_equal(go->cell, WIRE_NULL);
    assert_int_equal(go->start_in_ns, 0);
    check_complete(&sim);
    sim_close(&sim);
}

static void test_parts_are_acknowledged_after_the_last(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    int peer = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 2); /* welcome, assign */
    struct sent go = *last_sent(&sim, WIRE_GO);
    result(&sim, peer, &go, 0, false, 0, 10);
    assert_int_equal(sim.results_stored, 1);
    assert_int_equal(count_sent(&sim, WIRE_ACK, peer), 0);
    result(&sim, peer, &go, 0, false, 0, 10); /* again: not stored again, and no frame while it measures */
    assert_int_equal(sim.results_stored, 1);
    assert_int_equal(progress_of(&sim).duplicates, 1);
    result(&sim, peer, &go, 1, true, 10, 24);
    assert_int_equal(sim.results_stored, 2);
    assert_int_equal(count_sent(&sim, WIRE_ACK, peer), 2);
    assert_int_equal(last_sent(&sim, WIRE_ACK)->part, 1);
    check_complete(&sim);
    sim_close(&sim);
}

static void test_gang_starts_together_cell_by_cell(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, GANG_OF_3, 3, 3);
    for (int i = 0; i < 3; i++)
        add_peer(&sim, "libuv", "a", "here", i);
    sim.answered = sim.sent_count;
    begin(&sim);
    assert_int_equal(count_sent(&sim, WIRE_ASSIGN, -1), 3);
    settle(&sim, 2);
    assert_int_equal(count_sent(&sim, WIRE_GO, -1), 0); /* two of three are ready */
    settle(&sim, 1);
    assert_int_equal(count_sent(&sim, WIRE_GO, -1), 3);
    const struct sent *goes = &sim.sent[sim.sent_count - 3];
    assert_true(goes[0].start_in_ns >= 2 * NS_PER_MS);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(goes[i].start_in_ns, goes[0].start_in_ns);
        assert_int_equal(goes[i].cell, goes[0].cell);
    }
    assert_true(goes[0].cell >= 0);
    settle(&sim, 1000);
    assert_int_equal(count_sent(&sim, WIRE_GO, 0), 4 * 4); /* blocks x (3 arms and the empty one) */
    check_complete(&sim);
    sim_close(&sim);
}

static void test_runtimes_alternate_block_by_block(void **state)
{
    struct sim sim;
    int firsts[2] = {0, 0};
    (void)state;
    sim_open(&sim,
             "rounds: 16\nruntimes: [libuv, {kind: libuv, label: other}]\n"
             "matrix: [{job: sleep, fanout: 3, delay: 1ms}]\n",
             1, 0);
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    add_peer(&sim, "other", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 10000);
    check_complete(&sim);
    assert_int_equal(count_sent(&sim, WIRE_GO, 0), 16);
    assert_int_equal(count_sent(&sim, WIRE_GO, 1), 16);
    for (size_t i = 0, turn = 0; i < sim.sent_count; i++) {
        if (sim.sent[i].type != WIRE_GO)
            continue;
        assert_int_equal(sim.sent[i].blocks, 1);
        assert_int_equal(sim.sent[i].first_block, turn / 2);
        firsts[sim.sent[i].peer] += turn % 2 == 0;
        turn++;
    }
    assert_true(firsts[0] > 0 && firsts[1] > 0); /* the order is drawn for each block */
    sim_close(&sim);
}

static void test_single_groups_rotate_over_the_workers(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, FOUR_GROUPS, 2, 2);
    add_peer(&sim, "libuv", "a", "here", 1);
    add_peer(&sim, "libuv", "a", "here", 0);
    begin(&sim);
    settle(&sim, 1000);
    assert_int_equal(count_sent(&sim, WIRE_ASSIGN, 0), 2);
    assert_int_equal(count_sent(&sim, WIRE_ASSIGN, 1), 2);
    check_complete(&sim);
    sim_close(&sim);
}

static void test_a_group_owns_its_host(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, FOUR_GROUPS, 2, 0);
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    add_peer(&sim, "libuv", "b", "there", WIRE_NULL);
    begin(&sim);
    assert_int_equal(count_sent(&sim, WIRE_ASSIGN, -1), 2); /* one on each host, though a has two workers */
    assert_int_equal(count_sent(&sim, WIRE_ASSIGN, 2), 1);
    settle(&sim, 1000);
    check_complete(&sim);
    sim_close(&sim);
}

static void test_gang_over_two_hosts(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, GANG_OF_3, 3, 0);
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    add_peer(&sim, "libuv", "b", "there", WIRE_NULL);
    begin(&sim);
    settle(&sim, 1000);
    check_complete(&sim);
    for (size_t i = 0; i < sim.sent_count; i++)
        if (sim.sent[i].type == WIRE_GO) /* only who shares our clock can be told when to start */
            assert_int_equal(sim.sent[i].start_in_ns > 0, sim.sent[i].peer < 2);
    sim_close(&sim);
}

static void test_late_joiner_takes_the_next_group(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, FOUR_GROUPS, 1, 0);
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 3);
    add_peer(&sim, "libuv", "b", "there", WIRE_NULL);
    settle(&sim, 1000);
    assert_true(count_sent(&sim, WIRE_ASSIGN, 1) > 0);
    assert_int_equal(progress_of(&sim).voided, 0);
    check_complete(&sim);
    sim_close(&sim);
}

/* ---- loss ---- */

static void test_lost_worker_is_replaced_and_its_group_issued_again(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 1);
    int first = add_peer(&sim, "libuv", "a", "here", 0);
    begin(&sim);
    settle(&sim, 2);
    struct sent go = *last_sent(&sim, WIRE_GO);
    result(&sim, first, &go, 0, false, 0, 8);
    lose_slot(&sim, first, false);
    assert_int_equal(sim.voided, 1);
    assert_int_equal(schedule_slots_coming(sim.schedule), 1);
    add_peer(&sim, "libuv", "a", "here", 0);
    settle(&sim, 1000);
    assert_int_equal(last_sent(&sim, WIRE_ASSIGN)->attempt, 2);
    check_complete(&sim);
    sim_close(&sim);
}

static void test_gang_with_a_lost_member_is_void_as_a_whole(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, GANG_OF_3, 3, 3);
    for (int i = 0; i < 3; i++)
        add_peer(&sim, "libuv", "a", "here", i);
    begin(&sim);
    settle(&sim, 3 + 3 + 5); /* welcomes, assigns, and some goes: some have answered */
    size_t before = count_sent(&sim, WIRE_ASSIGN, -1);
    lose_slot(&sim, 1, false);
    assert_int_equal(sim.voided, 1);
    add_peer(&sim, "libuv", "a", "here", 1);
    assert_int_equal(count_sent(&sim, WIRE_ASSIGN, -1), before); /* the others have not let go yet */
    settle(&sim, 1000);
    assert_int_equal(count_sent(&sim, WIRE_ASSIGN, -1), before + 3);
    check_complete(&sim);
    sim_close(&sim);
}

static void test_attempts_are_bounded_and_the_rest_goes_on(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, FOUR_GROUPS, 1, 1);
    begin(&sim);
    for (int i = 0; i < SCHEDULE_MAX_ATTEMPTS; i++) {
        add_peer(&sim, "libuv", "a", "here", 0);
        assert_int_equal(last_sent(&sim, WIRE_ASSIGN)->group, 0);
        assert_int_equal(last_sent(&sim, WIRE_ASSIGN)->attempt, i + 1);
        lose_slot(&sim, sim.peer_count - 1, false);
        sim.answered = sim.sent_count;
    }
    assert_int_equal(sim.failed, 1);
    assert_non_null(strstr(sim.story, "attempt 1: worker 0"));
    assert_non_null(strstr(sim.story, "attempt 3: worker 2"));
    add_peer(&sim, "libuv", "a", "here", 0);
    settle(&sim, 1000);
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(progress_of(&sim).groups_done, 3);
    assert_int_equal(progress_of(&sim).groups_failed, 1);
    sim_close(&sim);
}

static void test_silence_is_loss_and_the_coordinators_own_is_not(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 1);
    int peer = add_peer(&sim, "libuv", "a", "here", 0);
    sim.peers[peer].manner = SILENT;
    pass(&sim, 2900 * NS_PER_MS);
    assert_int_equal(progress_of(&sim).workers_live, 1);
    sim.now_ns += 60 * NS_PER_S; /* we slept: a stopped process, a suspended machine */
    feed(&sim, (struct schedule_event){.kind = SCHEDULE_TICK});
    assert_int_equal(progress_of(&sim).workers_live, 1);
    pass(&sim, 4 * NS_PER_S);
    assert_int_equal(progress_of(&sim).workers_live, 0);
    assert_int_equal(sim.killed_slot, 0);
    assert_non_null(strstr(sim.log, "no heartbeat for 3."));
    sim_close(&sim);
}

static void test_busy_worker_without_housekeeping_may_be_silent(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 1);
    sim.quiet_while_busy = true;
    int peer = add_peer(&sim, "libuv", "a", "here", 0);
    begin(&sim);
    settle(&sim, 2);
    struct sent go = *last_sent(&sim, WIRE_GO);
    sim.peers[peer].manner = SILENT;
    pass(&sim, 8 * NS_PER_S);
    assert_int_equal(progress_of(&sim).workers_live, 1);
    result(&sim, peer, &go, 0, true, 0, rounds_of(&sim, peer, &go));
    check_complete(&sim);
    sim_close(&sim);
}

static void test_wedged_worker_by_lease(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 1);
    add_peer(&sim, "libuv", "a", "here", 0);
    begin(&sim);
    settle(&sim, 2);
    pass(&sim, 9 * NS_PER_S); /* its session lives, its loop does not come back */
    assert_int_equal(sim.voided, 0);
    pass(&sim, 3 * NS_PER_S);
    assert_int_equal(sim.voided, 1);
    assert_int_equal(sim.killed_slot, 0);
    sim_close(&sim);
}

static void test_wedged_worker_started_by_hand_comes_back(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    int peer = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 2);
    struct sent go = *last_sent(&sim, WIRE_GO);
    pass(&sim, 13 * NS_PER_S);
    assert_int_equal(sim.voided, 1);
    assert_int_equal(sim.killed_slot, -1);
    assert_int_equal(schedule_live(sim.schedule, NULL), 0);
    int stored = sim.results_stored;
    sim.answered = sim.sent_count;
    result(&sim, peer, &go, 0, true, 0,
           rounds_of(&sim, peer, &go)); /* late: refused, acknowledged, and alive */
    assert_int_equal(sim.results_stored, stored);
    assert_int_equal(progress_of(&sim).refused, 1);
    settle(&sim, 1000);
    assert_int_equal(last_sent(&sim, WIRE_ASSIGN)->attempt, 2);
    check_complete(&sim);
    sim_close(&sim);
}

static void test_nobody_left_ends_the_run(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, FOUR_GROUPS, 1, 1);
    int peer = add_peer(&sim, "libuv", "a", "here", 0);
    begin(&sim);
    lose_slot(&sim, peer, true);
    pass(&sim, 9 * NS_PER_S);
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_RUNNING);
    pass(&sim, 2 * NS_PER_S);
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(progress_of(&sim).groups_failed, 4);
    assert_non_null(strstr(sim.story, "no host has the 1 worker per runtime"));
    sim_close(&sim);
}

static void test_reconnection_keeps_the_slice(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    int peer = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 2);
    struct sent go = *last_sent(&sim, WIRE_GO);
    (void)snprintf(sim.peers[peer].identity, sizeof sim.peers[peer].identity, "again");
    hello(&sim, peer);
    assert_int_equal(sim.peers[peer].number, 0);
    assert_int_equal(progress_of(&sim).workers_registered, 1);
    result(&sim, peer, &go, 0, true, 0, rounds_of(&sim, peer, &go));
    check_complete(&sim);
    sim_close(&sim);
}

static void test_assign_lost_with_its_connection_is_repeated(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    int peer = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    sim.answered = sim.sent_count; /* the assign never arrives */
    (void)snprintf(sim.peers[peer].identity, sizeof sim.peers[peer].identity, "again");
    hello(&sim, peer);
    heartbeat(&sim, peer, "idle");
    assert_int_equal(count_sent(&sim, WIRE_ASSIGN, -1), 2);
    assert_int_equal(last_sent(&sim, WIRE_ASSIGN)->attempt, 1);
    settle(&sim, 1000);
    check_complete(&sim);
    sim_close(&sim);
}

/* ---- lies, noise and strangers ---- */

static void test_rounds_that_were_not_asked_for(void **state)
{
    static const struct {
        int64_t cell, block;
    } lies[] = {{0, 6}, {0, -1}, {0, 1}, {99, 0}, {-1, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct sim sim;
        sim_open(&sim, ONE_GROUP, 1, 0);
        int peer = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
        begin(&sim);
        settle(&sim, 2);
        struct sent go = *last_sent(&sim, WIRE_GO);
        struct wire_round round;
        wire_round_init(&round);
        round.cell = lies[i].cell;
        round.block = lies[i].block;
        struct wire_message message = {.type = WIRE_RESULT};
        message.result = (struct wire_result){
            .group = go.group, .attempt = go.attempt, .go = go.go, .rounds = &round, .round_count = 1};
        sim.peers[peer].measuring = false; /* it has answered, if badly */
        say(&sim, peer, message);
        assert_int_equal(sim.results_stored, 0);
        assert_int_equal(sim.voided, 1);
        assert_int_equal(progress_of(&sim).refused, 1);
        sim_close(&sim);
    }
}

static void test_result_that_lacks_rounds(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    int peer = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 2);
    struct sent go = *last_sent(&sim, WIRE_GO);
    sim.peers[peer].measuring = false;
    result(&sim, peer, &go, 0, true, 0, 23);
    assert_int_equal(sim.results_stored, 0);
    assert_int_equal(sim.voided, 1);
    sim.answered = sim.sent_count - 1;
    settle(&sim, 1000);
    check_complete(&sim);
    sim_close(&sim);
}

static void test_foreign_results_change_nothing(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 2, 0);
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    int idle = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 3);
    struct sent go = *last_sent(&sim, WIRE_GO);
    sim.peers[idle].slice = sim.peers[0].slice;
    result(&sim, idle, &go, 0, true, 0, 24);
    assert_int_equal(sim.results_stored, 0);
    assert_int_equal(progress_of(&sim).refused, 1);
    assert_int_equal(count_sent(&sim, WIRE_ACK, idle), 1); /* so that it does not keep it */
    settle(&sim, 1000);
    check_complete(&sim);
    sim_close(&sim);
}

static void test_slice_that_cannot_be_run(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    int peer = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    sim.answered = sim.sent_count;
    for (int i = 0; i < SCHEDULE_MAX_ATTEMPTS; i++) {
        sim.peers[peer].slice = *last_sent(&sim, WIRE_ASSIGN);
        ready(&sim, peer, "no memory\nfor 10 children");
    }
    assert_int_equal(sim.failed, 1);
    assert_non_null(strstr(sim.story, "no memory"));
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    sim_close(&sim);
}

static void check_lacking(const char *sweep, const char *label, const struct schedule_past *past,
                          const char *expected)
{
    struct sim sim;
    sim_open(&sim, sweep, 1, 0);
    add_peer(&sim, label, "a", "here", WIRE_NULL);
    scoped_free char *lacking = schedule_lacking(sim.schedule, sim.plan, past);
    if (expected)
        assert_string_equal(lacking, expected);
    else
        assert_null(lacking);
    sim_close(&sim);
}

static void test_what_workers_have_not_announced(void **state)
{
    (void)state;
    static const char cart[] = "job: cart\nfanout: 2\narms: gather\n"
                               "runtimes: {kind: asyncio, label: py, jobs: {cart: 'a:b'}}\n";
    static const char two[] =
        "job: noop\nfanout: 2\nmatrix: [{arms: gather}, {arms: gather-return-exceptions, fanout: 3}]\n";
    static const struct schedule_past past[] = {{.done = false}, {.done = true}};
    static const char no_arm[] = "no worker of runtime 'libuv' announced the arm 'gather-return-exceptions': "
                                 "leave it out of the sweep; "
                                 "worker 0 (host a, cpu 0) knows empty, sequential, gather, taskgroup, tasks";
    check_lacking(
        cart, "py", NULL,
        "no worker of runtime 'py' announced the job 'cart': leave it out of the sweep; worker 0 (host "
        "a, cpu 0) knows noop, sleep, cpu");
    check_lacking(cart, "other", NULL, NULL); /* a stranger, who was not let in */
    check_lacking("job: noop\nfanout: 2\n", "libuv", NULL, NULL);
    check_lacking(two, "libuv", NULL, no_arm);
    check_lacking(two, "libuv", past, NULL); /* that group is done */
}

static void test_strangers_are_told_and_forgotten(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    struct schedule_event noise = {
        .kind = SCHEDULE_MALFORMED, .identity = "x", .identity_bytes = 1, .text = "size: empty\x1b[2J"};
    feed(&sim, noise);
    assert_int_equal(sim.logs, 1);
    assert_null(strchr(sim.log, '\x1b'));
    assert_string_equal(last_sent(&sim, WIRE_REJECT)->reason, noise.text);
    for (int i = 0; i < 100; i++)
        feed(&sim, noise);
    assert_int_equal(sim.logs, 1); /* once per peer and minute */
    assert_int_equal(progress_of(&sim).malformed, 101);
    sim.now_ns += 61 * NS_PER_S;
    feed(&sim, noise);
    assert_int_equal(sim.logs, 2);
    sim.sent_count = 0;
    for (uint32_t i = 0; i < 4 * SCHEDULE_MAX_STRANGERS; i++) {
        noise.identity = &i;
        noise.identity_bytes = sizeof i;
        feed(&sim, noise);
    }
    sim_close(&sim);
}

static void test_who_may_not_register(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    int peer = add_peer(&sim, "uvloop", "a", "here", WIRE_NULL);
    assert_int_equal(progress_of(&sim).workers_registered, 0);
    assert_non_null(strstr(last_sent(&sim, WIRE_REJECT)->reason, "uvloop"));
    struct sent nothing = {.cell = WIRE_NULL};
    result(&sim, peer, &nothing, 0, true, 0, 0);
    assert_non_null(strstr(last_sent(&sim, WIRE_REJECT)->reason, "say hello first"));
    struct wire_message message = {.type = WIRE_REJECT};
    size_t before = sim.sent_count;
    say(&sim, peer, message); /* never answered: two sides would go on for ever */
    assert_int_equal(sim.sent_count, before);
    sim_close(&sim);
}

/* Who knows less than a group needs leaves it to those that know enough, on its host or on another. */
static void test_workers_that_cannot_leave_it_to_those_that_can(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(
        &sim,
        "rounds: 2\nmatrix: [{job: sleep, arms: [sequential, gather], fanout: [1, 2, 3, 4], delay: 1ms}]\n",
        3, 0);
    sim.less_known = "sequential";
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    add_peer(&sim, "libuv", "b", "there", WIRE_NULL);
    sim.less_known = NULL;
    int able = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 10000);
    check_complete(&sim);
    assert_int_equal(progress_of(&sim).groups_failed, 0);
    for (size_t i = 0; i < sim.sent_count; i++)
        if (sim.sent[i].type == WIRE_ASSIGN)
            assert_int_equal(sim.sent[i].peer, able);
    sim_close(&sim);
}

static void test_what_nobody_can_fails_with_its_name(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    sim.less_known = "gather";
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 10000);
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(progress_of(&sim).groups_failed, 1);
    assert_non_null(strstr(sim.story, "does not know the arm 'gather'"));
    sim_close(&sim);
}

static void test_many_strangers_are_few_lines(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    int before = sim.logs;
    struct schedule_event noise = {.kind = SCHEDULE_MALFORMED, .text = "nonsense", .identity_bytes = 4};
    for (uint32_t i = 0; i < 300; i++) {
        noise.identity = &i;
        feed(&sim, noise);
    }
    assert_int_equal(sim.logs - before, SCHEDULE_STRANGER_LINES + 1);
    assert_int_equal(progress_of(&sim).malformed, 300);
    sim_close(&sim);
}

static void test_slot_belongs_to_this_host(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 1);
    add_peer(&sim, "libuv", "b", "there", 0); /* claims slot 0 from elsewhere */
    assert_int_equal(schedule_slots_coming(sim.schedule), 1);
    add_peer(&sim, "libuv", "a", "here", 0);
    assert_int_equal(schedule_slots_coming(sim.schedule), 0);
    sim_close(&sim);
}

/* ---- the user stops ---- */

static void test_stop_lets_go_of_what_runs(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, GANG_OF_3, 3, 3);
    for (int i = 0; i < 3; i++)
        add_peer(&sim, "libuv", "a", "here", i);
    begin(&sim);
    settle(&sim, 3 + 3 + 3 + 1); /* one cell turn done, one member of the next has answered */
    int stored = sim.results_stored;
    assert_true(stored > 0);
    feed(&sim, (struct schedule_event){.kind = SCHEDULE_STOP});
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_STOPPING);
    for (int i = 0; i < 3; i++)
        heartbeat(&sim, i, "idle");
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(sim.finished[0], 0);
    assert_int_equal(sim.kept[0], 1); /* what was measured counts */
    assert_int_equal(sim.voided, 0);
    assert_true(last_sent(&sim, WIRE_ABORT)->keep);
    schedule_farewell(sim.schedule, "the run is over");
    take_actions(&sim);
    assert_int_equal(count_sent(&sim, WIRE_BYE, -1), 3);
    sim_close(&sim);
}

static void test_farewell_waits_for_the_answers(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 2, 1);
    add_peer(&sim, "libuv", "a", "here", 0);
    int by_hand = add_peer(&sim, "libuv", "b", "there", WIRE_NULL);
    begin(&sim);
    settle(&sim, 2);
    assert_int_equal(schedule_by_hand(sim.schedule), 1);
    schedule_farewell(sim.schedule, "the run is over");
    take_actions(&sim);
    int logs = sim.logs;
    heartbeat(&sim, by_hand, "idle"); /* what else it says is not heard */
    assert_int_equal(schedule_by_hand(sim.schedule), 1);
    say(&sim, by_hand, (struct wire_message){.type = WIRE_BYE});
    assert_int_equal(schedule_by_hand(sim.schedule), 0);
    assert_int_equal(progress_of(&sim).workers_lost, 0);
    assert_int_equal(sim.logs, logs);
    size_t welcomes = count_sent(&sim, WIRE_WELCOME, -1);
    add_peer(&sim, "libuv", "c", "there", WIRE_NULL); /* too late */
    assert_int_equal(count_sent(&sim, WIRE_WELCOME, -1), welcomes);
    assert_non_null(strstr(last_sent(&sim, WIRE_REJECT)->reason, "over"));
    sim_close(&sim);
}

static void test_stop_keeps_the_rounds_of_a_single_worker(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    int peer = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 2);
    struct sent go = *last_sent(&sim, WIRE_GO);
    feed(&sim, (struct schedule_event){.kind = SCHEDULE_STOP});
    assert_true(last_sent(&sim, WIRE_ABORT)->keep);
    result(&sim, peer, &go, 0, false, 0, 5);
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_STOPPING);
    result(&sim, peer, &go, 1, true, 5, 7); /* seven of 24 */
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(count_sent(&sim, WIRE_ACK, -1), 2);
    assert_int_equal(sim.kept[0], 1);
    assert_int_equal(sim.finished[0], 0);
    assert_int_equal(sim.results_stored, 2);
    sim_close(&sim);
}

static void test_stop_has_nothing_to_keep_of_what_only_prepares(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    feed(&sim, (struct schedule_event){.kind = SCHEDULE_STOP});
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(sim.kept[0], 0);
    sim_close(&sim);
}

static void test_stop_keeps_a_group_that_was_just_done(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, ONE_GROUP, 1, 0);
    int peer = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 2);
    struct sent go = *last_sent(&sim, WIRE_GO);
    feed(&sim, (struct schedule_event){.kind = SCHEDULE_STOP});
    result(&sim, peer, &go, 0, true, 0, 24); /* it crossed the abort */
    assert_int_equal(sim.finished[0], 1);
    check_complete(&sim);
    sim_close(&sim);
}

/* ---- everything at once, seeded ---- */

static void mishap(struct sim *sim, struct rng *rng)
{
    int peer = (int)rng_below(rng, (uint64_t)sim->peer_count);
    struct peer *victim = &sim->peers[peer];
    if (victim->lost)
        return;
    switch (rng_below(rng, 4)) {
    case 0: /* its process dies and another takes its place */
        lose_slot(sim, peer, false);
        if (sim->peer_count < MAX_PEERS)
            add_peer(sim, victim->label, victim->host, victim->boot_id, victim->slot);
        break;
    case 1: /* it falls silent, is ended, and another takes its place */
        victim->manner = SILENT;
        pass(sim, 5 * NS_PER_S);
        lose_slot(sim, peer, false);
        if (sim->peer_count < MAX_PEERS)
            add_peer(sim, victim->label, victim->host, victim->boot_id, victim->slot);
        break;
    case 2: /* it sends its last answer again */
        result(sim, peer, &victim->slice, 0, true, 0, 0);
        break;
    default:
        heartbeat(sim, peer, victim->measuring ? "measuring" : "idle");
        break;
    }
}

static void test_random_mishaps_lose_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct rng rng = rng_seeded(seed);
        static struct sim sim;
        sim_open(&sim, "rounds: 3\ncores: [1, 2, 3]\nmatrix: [{job: sleep, fanout: [1, 2], delay: 1ms}]\n", 3,
                 3);
        for (int i = 0; i < 3; i++)
            add_peer(&sim, "libuv", "a", "here", i);
        begin(&sim);
        for (int i = 0; i < 8 && progress_of(&sim).phase == SCHEDULE_RUNNING; i++) {
            settle(&sim, rng_below(&rng, 30));
            mishap(&sim, &rng);
        }
        settle(&sim, MAX_SENT);
        assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
        assert_int_equal(progress_of(&sim).groups_done + progress_of(&sim).groups_failed,
                         sim.plan->group_count);
        for (int64_t c = 0; c < sim.plan->cell_count; c++) {
            const struct plan_cell *cell = &sim.plan->cells[c];
            for (int64_t b = 0; b < cell->rounds; b++)
                assert_int_equal(sim.stored[c][b], sim.finished[cell->group] ? cell->cores : 0);
        }
        sim_close(&sim);
    }
}

/* ---- fresh processes ---- */

#define THREE_TIMES                                                                                          \
    "rounds: 4\nprocesses: 3\nmatrix:\n- {job: sleep, fanout: [1, 2], delay: 1ms}\n"                         \
    "- {job: sleep, fanout: 3, delay: 1ms, cores: 2}\n"

static void check_passes(const struct sim *sim)
{
    int64_t last_pass = 0;
    uint64_t peers[3] = {0};
    for (size_t i = 0; i < sim->sent_count; i++) {
        const struct sent *sent = &sim->sent[i];
        if (sent->type != WIRE_GO)
            continue;
        int64_t pass = sent->first_block / 4;
        uint64_t peer = 1ull << sent->peer;
        assert_true(pass >= last_pass); /* every group has one pass before any has its next */
        last_pass = pass;
        peers[sent->group] |= peer;
    }
    for (int group = 0; group < 3; group++)
        assert_int_equal(__builtin_popcountll(peers[group]), 3 * sim->plan->groups[group].cores);
}

static void test_processes_are_fresh_in_every_pass(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, THREE_TIMES, 2, 2);
    add_peer(&sim, "libuv", "a", "here", 0);
    add_peer(&sim, "libuv", "a", "here", 1);
    begin(&sim);
    settle_and_renew(&sim);
    check_complete(&sim);
    check_passes(&sim);
    assert_int_equal(sim.peer_count, 3 * 2); /* a place is renewed once per pass, not once per group */
    assert_int_equal(progress_of(&sim).workers_renewed, 4);
    assert_int_equal(progress_of(&sim).workers_lost, 0);
    assert_int_equal(progress_of(&sim).voided, 0);
    assert_int_equal(progress_of(&sim).done_ns, progress_of(&sim).expected_ns - 2 * 400 * NS_PER_MS);
    assert_int_equal(sim.warnings, 0);
    for (size_t i = 0; i < sim.sent_count; i++)
        if (sim.sent[i].type == WIRE_ASSIGN)
            assert_int_equal(sim.sent[i].blocks, 12);
    sim_close(&sim);
}

static void test_nothing_starts_on_a_host_whose_place_is_renewed(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, THREE_TIMES, 2, 2);
    add_peer(&sim, "libuv", "a", "here", 0);
    add_peer(&sim, "libuv", "a", "here", 1);
    begin(&sim);
    settle(&sim, 10000);
    assert_int_equal(sim.renewing_count, 1);
    size_t assigned = count_sent(&sim, WIRE_ASSIGN, -1);
    int leaving = (int)sim.renewing[0];
    assert_int_equal(last_sent(&sim, WIRE_BYE)->peer, leaving);
    heartbeat(&sim, leaving, "idle"); /* was on its way; no longer heard, and no reason to complain */
    ready(&sim, leaving, NULL);
    sim.peers[leaving].manner = SILENT;
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL); /* makes the host worth a look, and yet it must wait */
    assert_int_equal(sim.renewing_count, 1);
    pass(&sim, 20 * NS_PER_S);
    assert_int_equal(count_sent(&sim, WIRE_ASSIGN, -1), assigned);
    assert_int_equal(count_sent(&sim, WIRE_REJECT, -1), 0);
    assert_int_equal(sim.warnings, 0);
    settle_and_renew(&sim);
    check_complete(&sim);
    sim_close(&sim);
}

static void test_loss_in_a_later_pass_voids_the_earlier_ones(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, "rounds: 4\nprocesses: 3\nmatrix: [{job: sleep, fanout: 3, delay: 1ms}]\n", 1, 1);
    add_peer(&sim, "libuv", "a", "here", 0);
    begin(&sim);
    settle(&sim, 10000);
    renew(&sim);
    settle(&sim, 2); /* welcome, assign: it measures */
    lose_slot(&sim, 1, false);
    assert_int_equal(sim.voided, 1);
    sim.answered = sim.sent_count;
    add_peer(&sim, "libuv", "a", "here", 0);
    settle_and_renew(&sim);
    check_complete(&sim);
    assert_int_equal(last_sent(&sim, WIRE_GO)->attempt, 2);
    assert_int_equal(progress_of(&sim).workers_lost, 1);
    sim_close(&sim);
}

static void test_place_that_cannot_be_renewed(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, "rounds: 4\nprocesses: 2\nmatrix: [{job: sleep, fanout: 3, delay: 1ms}]\n", 1, 1);
    int peer = add_peer(&sim, "libuv", "a", "here", 0);
    begin(&sim);
    settle(&sim, 10000);
    lose_slot(&sim, peer, true); /* the next process came to nothing */
    pass(&sim, 20 * NS_PER_S);
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(progress_of(&sim).groups_failed, 1);
    assert_non_null(strstr(sim.story, "no host has the 1 local worker"));
    sim_close(&sim);
}

static void test_only_places_serve_several_processes(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, "rounds: 4\nprocesses: 3\nmatrix: [{job: sleep, fanout: [1, 2, 3, 4], delay: 1ms}]\n", 1,
             1);
    int by_hand = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    add_peer(&sim, "libuv", "a", "here", 0);
    begin(&sim);
    settle_and_renew(&sim);
    assert_int_equal(count_sent(&sim, WIRE_ASSIGN, by_hand), 0);
    check_complete(&sim);
    sim_close(&sim);
}

static void test_stop_keeps_whole_passes(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, THREE_TIMES, 2, 2);
    add_peer(&sim, "libuv", "a", "here", 0);
    add_peer(&sim, "libuv", "a", "here", 1);
    begin(&sim);
    settle(&sim, 10000); /* all have one pass */
    feed(&sim, (struct schedule_event){.kind = SCHEDULE_STOP});
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    for (int64_t c = 0; c < sim.plan->cell_count; c++)
        for (int64_t b = 0; b < 12; b++)
            assert_int_equal(sim.stored[c][b], b < 4 ? sim.plan->cells[c].cores : 0);
    sim_close(&sim);
}

/* ---- rounds: auto ---- */

#define GOES_ON "rounds: auto\nprecision: 2%\nmatrix: [{job: sleep, fanout: 3, delay: 1ms}]\n"

static int64_t blocks_stored(const struct sim *sim, int64_t cell)
{
    int64_t blocks = 0;
    while (blocks < MAX_BLOCKS && sim->stored[cell][blocks] > 0)
        blocks++;
    return blocks;
}

static void test_auto_stops_when_precise(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, GOES_ON, 1, 0);
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 10000);
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(count_sent(&sim, WIRE_GO, 0), 1); /* all values are the same: the first look is enough */
    assert_int_equal(blocks_stored(&sim, 0), 10);
    sim_close(&sim);
}

static void test_auto_goes_on_in_batches(void **state)
{
    struct sim sim;
    int64_t blocks = 0;
    (void)state;
    sim_open(&sim, GOES_ON, 1, 0);
    sim.jitter = NS_PER_MS / 3;
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 10000);
    for (size_t i = 0; i < sim.sent_count; i++) {
        const struct sent *go = &sim.sent[i];
        if (go->type != WIRE_GO)
            continue;
        assert_int_equal(go->first_block, blocks);
        assert_true(blocks == 0 ? go->blocks == 10 : go->blocks >= blocks / 4 && go->blocks <= blocks);
        blocks += go->blocks;
    }
    assert_true(blocks > 10 && blocks < 1000);
    assert_int_equal(blocks_stored(&sim, 0), blocks);
    assert_int_equal(sim.finished[0], 1);
    sim_close(&sim);
}

static void test_auto_has_an_end(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim,
             "rounds: auto\nprecision: 0.01%\nruntimes: [libuv, {kind: libuv, label: other}]\n"
             "matrix: [{job: noop, fanout: 2, arms: gather}]\n",
             1, 0);
    sim.jitter = NS_PER_MS;
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    add_peer(&sim, "other", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 20000);
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(blocks_stored(&sim, 0), 1000);
    assert_int_equal(sim.finished[0], 1);
    sim_close(&sim);
}

static void test_stop_keeps_whole_batches(void **state)
{
    struct sim sim;
    (void)state;
    sim_open(&sim, GOES_ON, 1, 0);
    sim.jitter = NS_PER_MS / 3;
    int peer = add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 3); /* welcome, assign, the first go */
    feed(&sim, (struct schedule_event){.kind = SCHEDULE_STOP});
    heartbeat(&sim, peer, "idle");
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(blocks_stored(&sim, 0), 10);
    sim_close(&sim);
}

/* ---- budgets ---- */

static void test_budget_leaves_out_what_does_not_fit(void **state)
{
    struct sim sim;
    (void)state;
    /* expected and true: 10 blocks of 1 s, and two warm-ups that this worker does not need */
    sim_open_with(&sim, "rounds: 10\nmatrix: [{job: sleep, arms: gather, fanout: [1, 2, 3, 4], delay: 1s}]\n",
                  1, 0, 25 * NS_PER_S);
    sim.block_ns = NS_PER_S;
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 10000);
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(progress_of(&sim).groups_done, 2);
    assert_int_equal(progress_of(&sim).groups_failed, 2);
    assert_true(sim.finished[0] && sim.finished[1]);
    assert_non_null(strstr(sim.story, "left out, the budget of 25s does not reach for it"));
    assert_int_equal(sim.warnings, 2);
    sim_close(&sim);
}

static void test_budget_ends_after_whole_passes(void **state)
{
    struct sim sim;
    (void)state;
    sim_open_with(&sim,
                  "rounds: 10\nprocesses: 3\nmatrix: [{job: sleep, arms: gather, fanout: 1, delay: 1s}]\n", 1,
                  1, 40 * NS_PER_S);
    sim.block_ns = 2 * NS_PER_S; /* twice of what was expected */
    add_peer(&sim, "libuv", "a", "here", 0);
    begin(&sim);
    settle_and_renew(&sim);
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(blocks_stored(&sim, 0), 20);
    assert_int_equal(sim.finished[0], 1);
    assert_non_null(strstr(sim.log, "ends after 2 of 3 processes"));
    sim_close(&sim);
}

/* Two groups that are never precise get their shares of the time, and no more. */
static void test_budget_is_shared_by_expected_cost(void **state)
{
    struct sim sim;
    (void)state;
    sim_open_with(&sim,
                  "rounds: auto\nprecision: 0.01%\n"
                  "matrix: [{job: sleep, arms: gather, fanout: [1, 2], delay: 100ms}]\n",
                  1, 0, 60 * NS_PER_S);
    sim.block_ns = 100 * NS_PER_MS;
    sim.jitter = NS_PER_MS;
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    int64_t start_ns = sim.now_ns;
    begin(&sim);
    settle(&sim, 10000);
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(progress_of(&sim).groups_done, 2);
    int64_t first = blocks_stored(&sim, sim.plan->groups[0].cells[0]);
    int64_t second = blocks_stored(&sim, sim.plan->groups[1].cells[0]);
    assert_in_range(first, 280, 300);
    assert_in_range(second, 290, 310);
    assert_in_range(sim.now_ns - start_ns, 58 * NS_PER_S, 60 * NS_PER_S);
    sim_close(&sim);
}

/* ---- ladders ---- */

/* Gather does 1,000 per second and client until its core has nothing left at 16 clients, tasks at 64. */
static void measure_load(const struct plan_cell *cell, struct wire_round *round)
{
    double most = strcmp(cell->spec.arm, "gather") == 0 ? 16 : 64, clients = (double)cell->spec.clients;
    double used = clients < most ? clients / most : 1;
    round->wall_ns = NS_PER_S;
    round->fanouts = (int64_t)(1000 * used * most);
    round->cpu_ns = (int64_t)(used * 0.99 * NS_PER_S);
}

/* A core whose interrupts nobody counts as the thread's: only its own busy time tells. */
static void measure_interrupts(const struct plan_cell *cell, struct wire_round *round)
{
    measure_load(cell, round);
    round->busy_ticks = round->cpu_ns / 10000000;
    round->cpu_ns = round->cpu_ns * 92 / 100;
}

/* A core that is busy with somebody else. */
static void measure_neighbours(const struct plan_cell *cell, struct wire_round *round)
{
    measure_load(cell, round);
    round->busy_ticks = 100;
    round->cpu_ns = round->cpu_ns * 85 / 100;
}

#define LADDER "job: sleep\ndelay: 10ms\nfanout: 4\nrounds: 2\nduration: 1s\n"

static void test_ladder_ends_after_two_saturated_rungs(void **state)
{
    (void)state;
    struct sim sim;
    void (*const loads[])(const struct plan_cell *, struct wire_round *) = {measure_load, measure_interrupts};
    for (size_t i = 0; i < 2; i++) {
        sim_open(&sim, LADDER "clients: {ladder: 1024}\narms: gather\n", 1, 0);
        sim.measure = loads[i];
        add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
        begin(&sim);
        settle(&sim, 10000);
        assert_int_equal(sim.plan->group_count, 11);
        for (int64_t g = 0; g < 11; g++) { /* 16 and 32 clients were saturated */
            assert_int_equal(sim.finished[g], g < 6);
            assert_string_equal(sim.left_out[g], g < 6 ? "" : "saturated at K=32");
            assert_int_equal(sim.order[g], g);
        }
        assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
        assert_int_equal(progress_of(&sim).groups_done, 11);
        assert_int_equal(progress_of(&sim).groups_failed, 0);
        assert_int_equal(sim.failed, 0);
        sim_close(&sim);
    }
}

static void test_neighbours_do_not_saturate_a_ladder(void **state)
{
    (void)state;
    struct sim sim;
    sim_open(&sim, LADDER "clients: {ladder: 256}\narms: gather\n", 1, 0);
    sim.measure = measure_neighbours;
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 10000);
    for (int64_t g = 0; g < 9; g++)
        assert_int_equal(sim.finished[g], 1);
    sim_close(&sim);
}

/* How many blocks of that arm (of that runtime) of a group count. */
static int64_t blocks_of(const struct sim *sim, int64_t group, const char *runtime, const char *arm)
{
    int64_t blocks = 0;
    for (int64_t i = 0; i < sim->plan->groups[group].cell_count; i++) {
        const struct plan_cell *cell = &sim->plan->cells[sim->plan->groups[group].cells[i]];
        if (strcmp(cell->runtime, runtime) == 0 && strcmp(cell->spec.arm, arm) == 0)
            for (int block = 0; block < MAX_BLOCKS; block++)
                blocks += sim->stored[cell->spec.cell][block];
    }
    return blocks;
}

/* The slowest to saturate goes on alone; what was asked for by number is measured all the same. */
static void test_ladder_goes_on_for_the_last_arm(void **state)
{
    (void)state;
    struct sim sim;
    sim_open(&sim, LADDER "clients: [{ladder: 1024}, 512]\narms: [gather, tasks]\n", 1, 0);
    sim.measure = measure_load;
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 10000);
    for (int64_t g = 0; g < sim.plan->group_count; g++) {
        int64_t clients = sim.plan->groups[g].clients;
        bool measured = clients <= 128 || clients == 512;
        assert_int_equal(sim.finished[g], measured);
        assert_string_equal(sim.left_out[g], measured          ? ""
                                             : clients == 1024 ? "saturated at K=512"
                                                               : "saturated at K=128");
        bool both = clients <= 32 || clients == 512;
        assert_string_equal(sim.dropped[sim.plan->groups[g].cells[0]],
                            measured && !both ? "saturated at K=32" : "");
        assert_int_equal(blocks_of(&sim, g, "libuv", "gather"), both ? 2 : 0);
        assert_int_equal(blocks_of(&sim, g, "libuv", "tasks"), measured ? 2 : 0);
        assert_int_equal(blocks_of(&sim, g, "libuv", "empty"), measured ? 2 : 0);
    }
    assert_int_equal(progress_of(&sim).done_ns, progress_of(&sim).expected_ns);
    sim_close(&sim);
}

static void measure_by_label(const struct plan_cell *cell, struct wire_round *round)
{
    measure_load(cell, round);
    if (strcmp(cell->runtime, "other") == 0) /* wants twice as many clients */
        round->cpu_ns = round->cpu_ns * (cell->spec.clients < 32 ? 1 : 2) / 2;
}

/* Once all its arms have left, a runtime takes no part, nor does its harness, and its workers are not needed; gangs too. */
static void test_runtime_leaves_a_ladder(void **state)
{
    (void)state;
    for (int64_t cores = 1; cores <= 2; cores++) {
        struct sim sim;
        scoped_free char *sweep =
            memory_format(LADDER "clients: {ladder: 128}\narms: gather\ncores: %lld\nruntimes: [{kind: "
                                 "libuv, label: other}, libuv]\n",
                          (long long)cores);
        sim_open(&sim, sweep, 2, 0);
        sim.measure = measure_by_label;
        for (int i = 0; i < 2; i++) {
            add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
            add_peer(&sim, "other", "a", "here", WIRE_NULL);
        }
        begin(&sim);
        settle(&sim, 10000);
        for (int64_t g = 0; g < 8;
             g++) { /* libuv was saturated at 16 and 32 clients, the other at 32 and 64 */
            assert_int_equal(sim.finished[g], g < 7);
            assert_string_equal(sim.left_out[g], g < 7 ? "" : "saturated at K=64");
            for (int64_t i = 0; i < 4; i++)
                assert_string_equal(sim.dropped[sim.plan->groups[g].cells[i]],
                                    g == 6 && i == 2 ? "saturated at K=32" : "");
            assert_int_equal(blocks_of(&sim, g, "libuv", "empty"), g < 6 ? 2 * cores : 0);
            assert_int_equal(blocks_of(&sim, g, "libuv", "gather"), g < 6 ? 2 * cores : 0);
            assert_int_equal(blocks_of(&sim, g, "other", "empty"), g < 7 ? 2 * cores : 0);
            assert_int_equal(blocks_of(&sim, g, "other", "gather"), g < 7 ? 2 * cores : 0);
        }
        assert_int_equal(progress_of(&sim).done_ns, progress_of(&sim).expected_ns);
        assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
        sim_close(&sim);
    }
}

/* On two hosts too, a rung waits for the one below. */
static void test_rungs_wait_for_each_other(void **state)
{
    (void)state;
    struct sim sim;
    sim_open(&sim, LADDER "clients: {ladder: 8}\narms: gather\nmatrix: [{}, {fanout: 5}]\n", 1, 0);
    sim.measure = measure_load;
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    add_peer(&sim, "libuv", "b", "there", WIRE_NULL);
    begin(&sim);
    settle(&sim, 10000);
    int64_t last_of_four = -1, last_of_five = -1;
    assert_int_equal(sim.over, 8);
    for (int i = 0; i < sim.over; i++) {
        bool five = sim.order[i] >= 4;
        assert_true(sim.order[i] > (five ? last_of_five : last_of_four));
        *(five ? &last_of_five : &last_of_four) = sim.order[i];
    }
    sim_close(&sim);
}

static void test_parts_of_a_ceiling_become_numbers(void **state)
{
    (void)state;
    struct sim sim;
    sim_open(&sim, LADDER "arms: [gather, tasks]\nmatrix: [{rate: 0.5x}, {clients: {ladder: 256}}]\n", 1, 0);
    sim.measure = measure_load;
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 10000);
    const struct plan_group *part = &sim.plan->groups[0];
    assert_int_equal(sim.order[sim.over - 1], 0); /* it stands first and had to wait */
    assert_int_equal(sim.finished[0], 1);
    assert_true(sim.rates[part->cells[0]] > 7999 && sim.rates[part->cells[0]] < 8001);
    assert_true(sim.rates[part->cells[1]] > 31999 && sim.rates[part->cells[1]] < 32001);
    assert_true(sim.rates[part->cells[2]] > 31999 && sim.rates[part->cells[2]] < 32001); /* the harness */
    for (int i = 0; i < 3; i++) /* and that is what the worker was told */
        assert_true(sim.peers[0].rates[i] >= sim.rates[part->cells[i]] &&
                    sim.peers[0].rates[i] <= sim.rates[part->cells[i]]);
    assert_int_equal(sim.events, 0);
    sim_close(&sim);
}

static void test_ceiling_that_was_not_reached_is_told(void **state)
{
    (void)state;
    struct sim sim;
    sim_open(&sim, LADDER "arms: [gather]\nmatrix: [{rate: 0.5x}, {clients: {ladder: 8}}]\n", 1, 0);
    sim.measure = measure_load;
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    begin(&sim);
    settle(&sim, 10000);
    assert_int_equal(sim.finished[0], 1);
    assert_true(sim.rates[sim.plan->groups[0].cells[0]] > 3999 &&
                sim.rates[sim.plan->groups[0].cells[0]] < 4001);
    assert_int_equal(sim.events, 1);
    sim_close(&sim);
}

static void measure_for_ever(const struct plan_cell *cell, struct wire_round *round)
{
    measure_load(cell, round);
    round->wall_ns = round->cpu_ns = 1000 * NS_PER_S;
}

/* Rounds of an attempt that is void say nothing of saturation. */
static void test_ladder_forgets_void_attempts(void **state)
{
    (void)state;
    struct sim sim;
    sim_open(&sim,
             LADDER "clients: {ladder: 64}\narms: gather\nruntimes: [libuv, {kind: libuv, label: other}]\n",
             1, 0);
    sim.measure = measure_for_ever;
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    int other = add_peer(&sim, "other", "a", "here", WIRE_NULL);
    begin(&sim);
    for (int i = 0; i < 100 && sim.results_stored < 2; i++)
        settle(&sim, 1);
    assert_int_equal(sim.results_stored, 2); /* each has measured a block of the first rung */
    feed(&sim, (struct schedule_event){.kind = SCHEDULE_GONE,
                                       .identity = sim.peers[other].identity,
                                       .identity_bytes = strlen(sim.peers[other].identity),
                                       .text = "gone"});
    sim.peers[other].lost = true;
    sim.measure = measure_load;
    add_peer(&sim, "other", "a", "here", WIRE_NULL);
    settle(&sim, 10000);
    assert_int_equal(sim.voided, 1);
    for (int64_t g = 0; g < 7; g++)
        assert_int_equal(sim.finished[g], g < 6);
    sim_close(&sim);
}

/* Nobody measures the ladder: what waited for it is given up with it, and the run ends. */
static void test_ladder_without_workers_fails_as_a_whole(void **state)
{
    (void)state;
    struct sim sim;
    sim_open(&sim, LADDER "arms: gather\nmatrix: [{rate: 0.5x}, {clients: {ladder: 8}}]\n", 1, 0);
    begin(&sim);
    for (int i = 0; i < 20; i++) {
        sim.now_ns += NS_PER_S;
        feed(&sim, (struct schedule_event){.kind = SCHEDULE_TICK});
    }
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    assert_int_equal(progress_of(&sim).groups_failed, 5);
    assert_int_equal(sim.failed, 5);
    sim_close(&sim);
}

/* A run that is resumed knows what its rungs had shown. */
static void test_ladder_of_a_resumed_run(void **state)
{
    (void)state;
    struct sim sim;
    sim_open(&sim, LADDER "arms: gather\nmatrix: [{clients: {ladder: 64}}, {rate: 0.5x}]\n", 1, 0);
    sim.measure = measure_load;
    struct schedule_past past[8] = {{0}};
    struct schedule_load loads[MAX_CELLS] = {{0}};
    for (int64_t g = 0; g < 6; g++) {
        struct wire_round round;
        wire_round_init(&round);
        measure_load(&sim.plan->cells[sim.plan->groups[g].cells[0]], &round);
        past[g] = (struct schedule_past){.done = true, .attempts = 1};
        loads[sim.plan->groups[g].cells[0]] = (struct schedule_load){.fanouts = (double)round.fanouts,
                                                                     .wall_ns = (double)round.wall_ns,
                                                                     .cpu_ns = (double)round.cpu_ns};
    }
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    schedule_begin(sim.schedule, sim.plan, past, loads, sim.now_ns);
    take_actions(&sim);
    settle(&sim, 10000);
    assert_string_equal(sim.left_out[6], "saturated at K=32");
    assert_int_equal(sim.finished[7], 1);
    assert_true(sim.rates[sim.plan->groups[7].cells[0]] > 7999 &&
                sim.rates[sim.plan->groups[7].cells[0]] < 8001);
    assert_int_equal(progress_of(&sim).phase, SCHEDULE_OVER);
    sim_close(&sim);
}

/* An arm that had left before goes on to be left out, from the first rung that is not done. */
static void test_arms_of_a_resumed_ladder(void **state)
{
    (void)state;
    struct sim sim;
    sim_open(&sim, LADDER "clients: {ladder: 128}\narms: [gather, tasks]\n", 1, 0);
    sim.measure = measure_load;
    struct schedule_past past[8] = {{0}};
    struct schedule_load loads[MAX_CELLS] = {{0}};
    for (int64_t g = 0; g < 6; g++) {
        past[g] = (struct schedule_past){.done = true, .attempts = 1};
        for (int64_t i = 0; i < 2; i++) {
            const struct plan_cell *cell = &sim.plan->cells[sim.plan->groups[g].cells[i]];
            struct wire_round round;
            wire_round_init(&round);
            measure_load(cell, &round);
            loads[cell->spec.cell] = (struct schedule_load){.fanouts = (double)round.fanouts,
                                                            .wall_ns = (double)round.wall_ns,
                                                            .cpu_ns = (double)round.cpu_ns};
        }
    }
    add_peer(&sim, "libuv", "a", "here", WIRE_NULL);
    schedule_begin(sim.schedule, sim.plan, past, loads, sim.now_ns);
    take_actions(&sim);
    settle(&sim, 10000);
    for (int64_t g = 6; g < 8; g++) {
        assert_int_equal(sim.finished[g], 1);
        assert_string_equal(sim.dropped[sim.plan->groups[g].cells[0]], "saturated at K=32");
        assert_int_equal(blocks_of(&sim, g, "libuv", "gather"), 0);
        assert_int_equal(blocks_of(&sim, g, "libuv", "tasks"), 2);
    }
    assert_int_equal(progress_of(&sim).done_ns, progress_of(&sim).expected_ns);
    sim_close(&sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_are_acknowledged_after_the_last),
        cmocka_unit_test(test_ladder_ends_after_two_saturated_rungs),
        cmocka_unit_test(test_neighbours_do_not_saturate_a_ladder),
        cmocka_unit_test(test_ladder_goes_on_for_the_last_arm),
        cmocka_unit_test(test_runtime_leaves_a_ladder),
        cmocka_unit_test(test_arms_of_a_resumed_ladder),
        cmocka_unit_test(test_rungs_wait_for_each_other),
        cmocka_unit_test(test_parts_of_a_ceiling_become_numbers),
        cmocka_unit_test(test_ceiling_that_was_not_reached_is_told),
        cmocka_unit_test(test_ladder_forgets_void_attempts),
        cmocka_unit_test(test_ladder_without_workers_fails_as_a_whole),
        cmocka_unit_test(test_ladder_of_a_resumed_run),
        cmocka_unit_test(test_one_worker_gets_all_blocks_at_once),
        cmocka_unit_test(test_parts_are_acknowledged_after_the_last),
        cmocka_unit_test(test_gang_starts_together_cell_by_cell),
        cmocka_unit_test(test_runtimes_alternate_block_by_block),
        cmocka_unit_test(test_single_groups_rotate_over_the_workers),
        cmocka_unit_test(test_a_group_owns_its_host),
        cmocka_unit_test(test_gang_over_two_hosts),
        cmocka_unit_test(test_late_joiner_takes_the_next_group),
        cmocka_unit_test(test_lost_worker_is_replaced_and_its_group_issued_again),
        cmocka_unit_test(test_gang_with_a_lost_member_is_void_as_a_whole),
        cmocka_unit_test(test_attempts_are_bounded_and_the_rest_goes_on),
        cmocka_unit_test(test_silence_is_loss_and_the_coordinators_own_is_not),
        cmocka_unit_test(test_busy_worker_without_housekeeping_may_be_silent),
        cmocka_unit_test(test_wedged_worker_by_lease),
        cmocka_unit_test(test_wedged_worker_started_by_hand_comes_back),
        cmocka_unit_test(test_nobody_left_ends_the_run),
        cmocka_unit_test(test_reconnection_keeps_the_slice),
        cmocka_unit_test(test_assign_lost_with_its_connection_is_repeated),
        cmocka_unit_test(test_rounds_that_were_not_asked_for),
        cmocka_unit_test(test_result_that_lacks_rounds),
        cmocka_unit_test(test_foreign_results_change_nothing),
        cmocka_unit_test(test_slice_that_cannot_be_run),
        cmocka_unit_test(test_what_workers_have_not_announced),
        cmocka_unit_test(test_strangers_are_told_and_forgotten),
        cmocka_unit_test(test_who_may_not_register),
        cmocka_unit_test(test_workers_that_cannot_leave_it_to_those_that_can),
        cmocka_unit_test(test_what_nobody_can_fails_with_its_name),
        cmocka_unit_test(test_many_strangers_are_few_lines),
        cmocka_unit_test(test_slot_belongs_to_this_host),
        cmocka_unit_test(test_stop_lets_go_of_what_runs),
        cmocka_unit_test(test_farewell_waits_for_the_answers),
        cmocka_unit_test(test_stop_keeps_the_rounds_of_a_single_worker),
        cmocka_unit_test(test_stop_has_nothing_to_keep_of_what_only_prepares),
        cmocka_unit_test(test_stop_keeps_a_group_that_was_just_done),
        cmocka_unit_test(test_random_mishaps_lose_nothing),
        cmocka_unit_test(test_processes_are_fresh_in_every_pass),
        cmocka_unit_test(test_nothing_starts_on_a_host_whose_place_is_renewed),
        cmocka_unit_test(test_loss_in_a_later_pass_voids_the_earlier_ones),
        cmocka_unit_test(test_place_that_cannot_be_renewed),
        cmocka_unit_test(test_only_places_serve_several_processes),
        cmocka_unit_test(test_stop_keeps_whole_passes),
        cmocka_unit_test(test_auto_stops_when_precise),
        cmocka_unit_test(test_auto_goes_on_in_batches),
        cmocka_unit_test(test_auto_has_an_end),
        cmocka_unit_test(test_stop_keeps_whole_batches),
        cmocka_unit_test(test_budget_leaves_out_what_does_not_fit),
        cmocka_unit_test(test_budget_ends_after_whole_passes),
        cmocka_unit_test(test_budget_is_shared_by_expected_cost),
    };
    return cmocka_run_group_tests_name("fleet", tests, NULL, NULL);
}
