/* Any sequence of messages, losses and waits: the schedule keeps its invariants, and a group that is done has every
 * round of every cell exactly once from each worker of its gang.
 *
 *     cmake --preset fuzz && cmake --build build/fuzz --target fuzz_schedule
 *     build/fuzz/bin/fuzz_schedule -max_len=2048 NEW tests/fuzz/corpus/schedule
 *
 * The input is a list of commands: a byte for what happens, one for the peer, and what it needs.  Half of the
 * commands are the right answer to what that peer was sent last, so that groups get somewhere. */
#include "base/clock.h"
#include "base/memory.h"
#include "coordinator/schedule/schedule.h"
#include "coordinator/sweep/sweep.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEERS      8
#define SLOTS      4
#define MAX_CELLS  64
#define MAX_BLOCKS 4
#define MAX_GROUPS 16
#define MAX_ROUNDS 256

static const char sweep_text[] =
    "rounds: 3\ncores: [1, 2]\nruntimes: [libuv, {kind: libuv, label: other}]\n"
    "matrix:\n"
    "  - {job: sleep, fanout: [1, 2], delay: 1ms, arms: [gather]}\n"
    "  - {job: sleep, fanout: 3, delay: 1ms, runtimes: [libuv]}\n"
    "  - {job: sleep, fanout: 4, delay: 1ms, cores: 1, arms: [gather], clients: {ladder: 8}}\n"
    "  - {job: sleep, fanout: 4, delay: 1ms, cores: 1, arms: [gather], rate: 0.5x}\n";

struct peer {
    unsigned char identity[2];
    bool assigned, going;
    struct wire_assign slice;
    int64_t cells[MAX_CELLS];
    struct wire_go go;
};

struct world {
    const struct plan *plan;
    struct schedule *schedule;
    struct peer peers[PEERS];
    int64_t now_ns;
    bool begun;
    int open[MAX_CELLS][MAX_BLOCKS];
    int64_t open_attempt[MAX_GROUPS];
    bool closed[MAX_GROUPS];
    const uint8_t *data;
    size_t size;
};

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "fuzz_schedule: %s\n", what);
    abort();
}

static uint8_t next(struct world *world)
{
    if (world->size == 0)
        return 0;
    world->size--;
    return *world->data++;
}

/* The same for every input, and read-only: made once. */
static const struct plan *the_plan(void)
{
    static struct plan *plan;
    struct sweep *sweep = NULL;
    struct error err = {0};
    struct sweep_mistakes mistakes = {0};
    if (plan)
        return plan;
    require(sweep_parse("f.yaml", sweep_text, strlen(sweep_text), (struct sweep_settings){0}, &sweep,
                        &mistakes) == 0,
            "the sweep is refused");
    require(plan_make(sweep, 2, &plan, &err) == 0, "the sweep cannot be planned");
    require(plan->cell_count <= MAX_CELLS && plan->group_count <= MAX_GROUPS, "the plan is too large");
    sweep_free(sweep);
    return plan;
}

/* ---- what the schedule wants done ---- */

static void take_send(struct world *world, const struct schedule_action *action)
{
    const struct wire_message *message = &action->message;
    struct wire_bytes bytes;
    struct error err;
    require(wire_encode(message, &bytes, &err) == 0, "a message that cannot be written");
    free(bytes.data);
    if (action->identity_bytes != 2)
        return;
    struct peer *peer = &world->peers[((const unsigned char *)action->identity)[0] % PEERS];
    if (message->type == WIRE_ASSIGN) {
        peer->slice = message->assign;
        for (size_t i = 0; i < message->assign.cell_count; i++)
            peer->cells[i] = message->assign.cells[i].cell;
        peer->assigned = true;
        peer->going = false;
    } else if (message->type == WIRE_GO) {
        peer->go = message->go;
        /* not its slice when it took over the instance of another peer: then it cannot answer rightly */
        peer->going =
            peer->assigned && peer->slice.group == peer->go.group && peer->slice.attempt == peer->go.attempt;
    }
}

static void clear_open(struct world *world, int64_t group)
{
    for (int64_t c = 0; c < world->plan->cell_count; c++)
        if (world->plan->cells[c].group == group)
            memset(world->open[c], 0, sizeof world->open[c]);
}

static void store_result(struct world *world, const struct wire_result *result)
{
    require(!world->closed[result->group], "a result of a group that is over is stored");
    if (world->open_attempt[result->group] != result->attempt)
        clear_open(world, result->group);
    world->open_attempt[result->group] = result->attempt;
    for (size_t i = 0; i < result->round_count; i++) {
        const struct wire_round *round = &result->rounds[i];
        require(round->cell >= 0 && round->cell < world->plan->cell_count && round->block >= 0 &&
                    round->block < MAX_BLOCKS,
                "a round that is not in the plan is stored");
        require(world->plan->cells[round->cell].group == result->group, "a round of another group is stored");
        world->open[round->cell][round->block]++;
    }
}

static void finish(struct world *world, int64_t group, int64_t attempt, bool whole)
{
    require(!world->closed[group], "a group ends twice");
    require(world->open_attempt[group] == attempt, "a group is done without a result of its attempt");
    world->closed[group] = true;
    for (int64_t c = 0; c < world->plan->cell_count; c++) {
        const struct plan_cell *cell = &world->plan->cells[c];
        for (int64_t b = 0; cell->group == group && b < cell->rounds; b++)
            require(world->open[c][b] == cell->cores || (!whole && world->open[c][b] < cell->cores),
                    "a group is done, and a round is missing or there twice");
    }
}

static void take_actions(struct world *world)
{
    const struct schedule_action *action;
    while ((action = schedule_next(world->schedule))) {
        if (action->kind == SCHEDULE_SEND) {
            take_send(world, action);
        } else if (action->kind == SCHEDULE_STORE_RESULT) {
            store_result(world, action->result);
        } else if (action->kind == SCHEDULE_STORE_FINISH) {
            finish(world, action->group, action->attempt, true);
        } else if (action->kind == SCHEDULE_STORE_KEEP) {
            finish(world, action->group, action->attempt, false);
        } else if (action->kind == SCHEDULE_STORE_VOID) {
            clear_open(world, action->group);
        } else if (action->kind == SCHEDULE_STORE_FAIL) {
            require(!world->closed[action->group], "a group fails that is over");
            world->closed[action->group] = true;
        } else if (action->kind == SCHEDULE_LOG) {
            for (const char *at = action->text; *at; at++)
                require((unsigned char)*at >= ' ', "a control character in a log line");
        }
    }
    const char *wrong = schedule_check(world->schedule);
    require(!wrong, wrong ? wrong : "");
}

/* ---- what happens ---- */

static void feed(struct world *world, struct schedule_event event)
{
    event.now_ns = world->now_ns;
    schedule_feed(world->schedule, &event);
    take_actions(world);
}

/* Over the wire: what could not be decoded never reaches a schedule. */
static void say(struct world *world, const struct peer *peer, struct wire_message message)
{
    struct wire_bytes bytes;
    struct wire_message decoded;
    struct error err;
    if (wire_encode(&message, &bytes, &err) < 0)
        return;
    int status = wire_decode(bytes.data, bytes.size, &decoded, &err);
    free(bytes.data);
    if (status < 0)
        return;
    feed(world, (struct schedule_event){.kind = SCHEDULE_MESSAGE,
                                        .identity = peer->identity,
                                        .identity_bytes = sizeof peer->identity,
                                        .message = &decoded});
    wire_release(&decoded);
}

static char *words[] = {(char[]){"libuv"}, (char[]){"other"},  (char[]){"here"},       (char[]){"there"},
                        (char[]){"a\nb"},  (char[]){"gather"}, (char[]){"sequential"}, (char[]){"taskgroup"},
                        (char[]){"sleep"}, (char[]){"idle"},   (char[]){"ready"},      (char[]){"measuring"}};
static char *instances[] = {
    (char[]){"0000000000000000000000000000000a"}, (char[]){"0000000000000000000000000000000b"},
    (char[]){"0000000000000000000000000000000c"}, (char[]){"0000000000000000000000000000000d"},
    (char[]){"0000000000000000000000000000000e"}, (char[]){"0000000000000000000000000000000f"},
    (char[]){"00000000000000000000000000000010"}, (char[]){"00000000000000000000000000000011"}};

static void say_hello(struct world *world, struct peer *peer, size_t number)
{
    uint8_t how = next(world);
    struct wire_message message = {.type = WIRE_HELLO};
    message.hello = (struct wire_hello){.instance = instances[how & 0x80 ? how % PEERS : number],
                                        .runtime = words[0],
                                        .label = words[how & 0x40 ? how % 3 : number % 2],
                                        .host = words[how & 0x20 ? 3 : 2],
                                        .boot_id = words[how & 0x20 ? 3 : 2],
                                        .pid = 1,
                                        .slot = how & 0x10 ? how % 8 : WIRE_NULL,
                                        .cpu = how % 4,
                                        .arms = {&words[5], 3},
                                        .jobs = {&words[8], how & 0x08 ? 0 : 1},
                                        .busy_heartbeats = how & 1};
    say(world, peer, message);
}

static void say_ready(struct world *world, struct peer *peer)
{
    struct wire_message message = {.type = WIRE_READY};
    message.ready = (struct wire_ready){.group = peer->slice.group, .attempt = peer->slice.attempt};
    say(world, peer, message);
}

/* All that the last go asked for, in parts of `width` rounds; how many: as the input says. */
static void say_result(struct world *world, struct peer *peer, bool honest)
{
    static struct wire_round rounds[MAX_ROUNDS];
    const struct wire_go *go = &peer->go;
    bool one = go->cell != WIRE_NULL;
    size_t width = one ? 1 : peer->slice.cell_count, count = width * (size_t)go->blocks;
    uint8_t lie = honest ? 0 : next(world);
    if (count > MAX_ROUNDS)
        count = MAX_ROUNDS;
    for (size_t i = 0; i < count; i++) {
        wire_round_init(&rounds[i]);
        rounds[i].cell = one ? go->cell : peer->cells[i % width];
        rounds[i].block = go->first_block + (int64_t)(i / width);
        rounds[i].position = 0;
        rounds[i].start_ns = rounds[i].wall_ns = rounds[i].fanouts = 1;
        rounds[i].cpu_ns = go->go % 2; /* groups of one block a go are saturated half of the time */
    }
    struct wire_message message = {.type = WIRE_RESULT};
    message.result = (struct wire_result){.group = go->group + (lie & 1),
                                          .attempt = go->attempt - (lie >> 1 & 1),
                                          .go = go->go + (lie >> 2 & 1),
                                          .part = lie >> 3 & 1,
                                          .last = !(lie >> 4 & 1),
                                          .rounds = rounds,
                                          .round_count = lie >> 5 & 1 && count ? count - 1 : count,
                                          .error = lie >> 6 & 1 ? words[4] : NULL};
    if (lie >> 7 && count)
        rounds[count / 2].cell = next(world);
    say(world, peer, message);
}

static void answer(struct world *world, struct peer *peer)
{
    if (peer->going) {
        peer->going = false;
        say_result(world, peer, true);
    } else if (peer->assigned) {
        say_ready(world, peer);
    }
}

static void say_heartbeat(struct world *world, struct peer *peer)
{
    struct wire_message message = {.type = WIRE_HEARTBEAT};
    message.heartbeat = (struct wire_heartbeat){.group = peer->slice.group,
                                                .attempt = peer->slice.attempt,
                                                .rounds_done = next(world),
                                                .state = words[9 + next(world) % 3]};
    say(world, peer, message);
}

static void say_other(struct world *world, struct peer *peer)
{
    struct wire_message message = {.type = (enum wire_type)(next(world) % WIRE_TYPE_COUNT)};
    switch (message.type) {
    case WIRE_HELLO:
    case WIRE_RESULT:
    case WIRE_HEARTBEAT:
        return;
    case WIRE_ABORT:
        message.abort = (struct wire_abort){
            .group = peer->slice.group, .attempt = peer->slice.attempt, .reason = words[4]};
        break;
    case WIRE_READY:
        message.ready = (struct wire_ready){
            .group = peer->slice.group, .attempt = peer->slice.attempt, .error = words[4]};
        break;
    default:
        break;
    }
    say(world, peer, message);
}

static void let_time_pass(struct world *world)
{
    int64_t steps = next(world) % 64;
    for (int64_t i = 0; i < steps; i++) {
        world->now_ns += 250 * NS_PER_MS;
        feed(world, (struct schedule_event){.kind = SCHEDULE_TICK});
    }
    world->now_ns += (int64_t)next(world) * NS_PER_S;
    feed(world, (struct schedule_event){.kind = SCHEDULE_TICK});
}

static void something_else(struct world *world, const struct peer *peer)
{
    static const enum schedule_event_kind kinds[] = {SCHEDULE_MALFORMED, SCHEDULE_GONE, SCHEDULE_SLOT_LOST,
                                                     SCHEDULE_SLOT_LOST, SCHEDULE_SLOT_OVER};
    uint8_t which = next(world);
    struct schedule_event event = {.kind = kinds[which % 5],
                                   .identity = peer->identity,
                                   .identity_bytes = sizeof peer->identity,
                                   .text = words[4],
                                   .slot = which / 5 % (SLOTS + 2) - 1};
    if (which == 255)
        event.kind = SCHEDULE_STOP;
    feed(world, event);
}

static void step(struct world *world)
{
    uint8_t what = next(world);
    size_t number = next(world) % PEERS;
    struct peer *peer = &world->peers[number];
    if (!world->begun && what > 200) {
        world->begun = true;
        schedule_begin(world->schedule, world->plan, NULL, NULL, world->now_ns);
        take_actions(world);
    } else if (what >= 128) {
        answer(world, peer);
    } else if (what >= 96) {
        say_hello(world, peer, number);
    } else if (what >= 64) {
        say_result(world, peer, false);
    } else if (what >= 48) {
        say_heartbeat(world, peer);
    } else if (what >= 32) {
        say_other(world, peer);
    } else if (what >= 16) {
        something_else(world, peer);
    } else {
        let_time_pass(world);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *labels[] = {"libuv", "other"};
    struct world *world = memory_zeroed(1, sizeof *world);
    world->plan = the_plan();
    world->now_ns = NS_PER_S;
    world->data = data;
    world->size = size;
    for (size_t i = 0; i < PEERS; i++)
        world->peers[i] = (struct peer){.identity = {(unsigned char)i, 0}, .go.cell = WIRE_NULL};
    world->schedule = schedule_new(&(struct schedule_config){.run = "r",
                                                             .labels = labels,
                                                             .label_count = 2,
                                                             .boot_id = "here",
                                                             .host = "here",
                                                             .heartbeat_ns = NS_PER_S,
                                                             .rejoin_ns = 10 * NS_PER_S,
                                                             .slot_count = SLOTS,
                                                             .seed = 1});
    while (world->size > 0)
        step(world);
    schedule_farewell(world->schedule, "over");
    take_actions(world);
    schedule_free(world->schedule);
    free(world);
    return 0;
}
