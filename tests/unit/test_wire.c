/* wire.c: every message through bytes and back, limits from both sides, and damaged frames. */
#include "base/memory.h"
#include "base/rng.h"
#include "proto/frame.h"
#include "proto/wire.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define INSTANCE "00112233445566778899aabbccddeeff"

/* ---- messages built by hand ---- */

static struct wire_message hello_message(void)
{
    static char *arms[] = {"sequential", "gather"};
    static char *jobs[] = {"noop"};
    static struct wire_pair versions[] = {{"libuv", "1.44.2"}, {"kernel", "6.1"}};
    return (struct wire_message){
        .type = WIRE_HELLO,
        .hello = {.instance = INSTANCE,
                  .runtime = "libuv",
                  .label = "libuv",
                  .host = "bench-1",
                  .boot_id = "boot",
                  .pid = 4711,
                  .slot = WIRE_NULL,
                  .cpu = 1,
                  .numa = WIRE_NULL,
                  .core = 1,
                  .versions = {versions, 2},
                  .arms = {arms, 2},
                  .jobs = {jobs, 1},
                  .timer_overshoot_p50_ns = -3,
                  .busy_heartbeats = true},
    };
}

static struct wire_cell cell_of(int64_t number)
{
    return (struct wire_cell){.cell = number,
                              .arm = "gather",
                              .job = "sleep",
                              .fanout = 40,
                              .delay_ns = 10000000,
                              .wait = "timerfd",
                              .clients = 1,
                              .phase = "together"};
}

static struct wire_message assign_message(struct wire_cell *cells, size_t count)
{
    return (struct wire_message){
        .type = WIRE_ASSIGN,
        .assign = {.group = 2,
                   .attempt = 1,
                   .lease_ns = 30,
                   .seed = -1,
                   .blocks = 9,
                   .gang = 1,
                   .cells = cells,
                   .cell_count = count},
    };
}

static struct wire_round measured_round(int64_t cell)
{
    struct wire_round round;
    wire_round_init(&round);
    round.cell = cell;
    round.block = 0;
    round.position = 0;
    round.start_ns = 1000;
    round.wall_ns = 10061234;
    round.cpu_ns = 48210;
    round.fanouts = 1;
    return round;
}

static struct wire_message result_message(struct wire_round *rounds, size_t count)
{
    return (struct wire_message){
        .type = WIRE_RESULT,
        .result = {.group = 2, .attempt = 1, .last = true, .rounds = rounds, .round_count = count},
    };
}

static void assert_encodes(const struct wire_message *message, struct wire_bytes *ret)
{
    struct error err = {0};
    if (wire_encode(message, ret, &err) < 0)
        fail_msg("%s", err.text);
}

static void assert_decodes(const struct wire_bytes *bytes, struct wire_message *ret)
{
    struct error err = {0};
    if (wire_decode(bytes->data, bytes->size, ret, &err) < 0)
        fail_msg("%s", err.text);
}

static struct wire_message through_bytes(const struct wire_message *message)
{
    struct wire_bytes bytes;
    struct wire_message got;
    assert_encodes(message, &bytes);
    assert_decodes(&bytes, &got);
    free(bytes.data);
    assert_int_equal(got.type, message->type);
    assert_int_equal(got.major, WIRE_MAJOR);
    assert_int_equal(got.minor, WIRE_MINOR);
    return got;
}

static void assert_not_encoded(const struct wire_message *message, const char *words)
{
    struct error err = {0};
    struct wire_bytes bytes = {.size = 77};
    assert_int_equal(wire_encode(message, &bytes, &err), -1);
    assert_string_equal(err.text, words);
    assert_int_equal(bytes.size, 77); /* untouched */
}

static void assert_refused(const void *data, size_t size, const char *words)
{
    struct error err = {0};
    struct wire_message message = {.type = WIRE_BYE, .major = 77};
    assert_int_equal(wire_decode(data, size, &message, &err), -1);
    assert_string_equal(err.text, words);
    assert_int_equal(message.major, 77); /* untouched */
}

/* ---- round trips ---- */

static void hello_comes_back(void **state)
{
    (void)state;
    struct wire_message sent = hello_message();
    struct wire_message got = through_bytes(&sent);
    assert_string_equal(got.hello.instance, INSTANCE);
    assert_string_equal(got.hello.host, "bench-1");
    assert_int_equal(got.hello.pid, 4711);
    assert_true(got.hello.slot == WIRE_NULL);
    assert_int_equal(got.hello.cpu, 1);
    assert_int_equal(got.hello.package, 0);
    assert_true(got.hello.numa == WIRE_NULL);
    assert_int_equal(got.hello.versions.count, 2);
    assert_string_equal(got.hello.versions.at[1].name, "kernel");
    assert_string_equal(got.hello.versions.at[1].value, "6.1");
    assert_int_equal(got.hello.arms.count, 2);
    assert_string_equal(got.hello.arms.at[1], "gather");
    assert_int_equal(got.hello.timer_overshoot_p50_ns, -3);
    assert_true(got.hello.busy_heartbeats);
    wire_release(&got);
}

static void small_messages_come_back(void **state)
{
    (void)state;
    struct wire_message got = through_bytes(&(struct wire_message){
        .type = WIRE_WELCOME, .welcome = {.worker = 3, .run = "lab", .heartbeat_ns = 1000000}});
    assert_int_equal(got.welcome.worker, 3);
    assert_string_equal(got.welcome.run, "lab");
    wire_release(&got);

    got = through_bytes(&(struct wire_message){.type = WIRE_REJECT, .reject = {.reason = "no\nreally"}});
    assert_string_equal(got.reject.reason, "no\nreally");
    wire_release(&got);

    got = through_bytes(&(struct wire_message){.type = WIRE_GO,
                                               .go = {.group = 1,
                                                      .attempt = 2,
                                                      .go = 3,
                                                      .first_block = 4,
                                                      .blocks = 5,
                                                      .cell = WIRE_NULL,
                                                      .start_at_ns = INT64_MAX}});
    assert_int_equal(got.go.first_block, 4);
    assert_true(got.go.cell == WIRE_NULL);
    assert_true(got.go.start_at_ns == INT64_MAX);
    wire_release(&got);

    got = through_bytes(&(struct wire_message){
        .type = WIRE_HEARTBEAT, .heartbeat = {.group = WIRE_NULL, .attempt = WIRE_NULL, .state = "idle"}});
    assert_true(got.heartbeat.group == WIRE_NULL);
    assert_string_equal(got.heartbeat.state, "idle");
    wire_release(&got);

    got = through_bytes(
        &(struct wire_message){.type = WIRE_ACK, .ack = {.group = 1, .attempt = 2, .go = 3, .part = 4}});
    assert_int_equal(got.ack.part, 4);
    wire_release(&got);

    got = through_bytes(
        &(struct wire_message){.type = WIRE_ABORT, .abort = {.group = 1, .attempt = 2, .reason = "gone"}});
    assert_string_equal(got.abort.reason, "gone");
    wire_release(&got);

    got = through_bytes(&(struct wire_message){.type = WIRE_BYE});
    assert_null(got.bye.reason);
    wire_release(&got);
}

static void assign_comes_back(void **state)
{
    (void)state;
    static struct wire_pair params[] = {{"target", "127.0.0.1:7000"}};
    struct wire_cell cells[2] = {cell_of(7), cell_of(8)};
    cells[0].rate_per_s = 0.1;
    cells[0].gc = "freeze";
    cells[0].params = (struct wire_pairs){params, 1};
    cells[0].fail = (struct wire_fail){.present = true,
                                       .fraction = 0.25,
                                       .at_ns = 5,
                                       .outcome = "cancel",
                                       .on_cancel = "cleanup",
                                       .cleanup_ns = 6};
    cells[1].stall = (struct wire_stall){.present = true, .children = 2, .cpu_ns = 3000000};
    struct wire_message sent = assign_message(cells, 2);
    struct wire_message got = through_bytes(&sent);
    assert_int_equal(got.assign.seed, -1); /* 2^64-1 on the wire */
    assert_int_equal(got.assign.cell_count, 2);
    const struct wire_cell *cell = &got.assign.cells[0];
    assert_int_equal(cell->cell, 7);
    assert_true(cell->rate_per_s == 0.1);
    assert_string_equal(cell->gc, "freeze");
    assert_string_equal(cell->params.at[0].value, "127.0.0.1:7000");
    assert_true(cell->fail.present && cell->fail.fraction == 0.25);
    assert_string_equal(cell->fail.on_cancel, "cleanup");
    assert_false(cell->stall.present);
    assert_false(cell[1].fail.present);
    assert_null(cell[1].gc);
    assert_int_equal(cell[1].stall.cpu_ns, 3000000);
    wire_release(&got);
}

static void ready_comes_back(void **state)
{
    (void)state;
    static char *flags[] = {"calibration_unstable"};
    struct wire_prepared cells[] = {
        {.cell = 7, .loops = 131072, .warmups = 2, .warmup_ns = 3, .calibration_ns = 4, .flags = {flags, 1}}};
    struct wire_message got = through_bytes(&(struct wire_message){
        .type = WIRE_READY, .ready = {.group = 1, .attempt = 1, .cells = cells, .cell_count = 1}});
    assert_int_equal(got.ready.cells[0].loops, 131072);
    assert_string_equal(got.ready.cells[0].flags.at[0], "calibration_unstable");
    assert_null(got.ready.error);
    wire_release(&got);
}

static void result_comes_back(void **state)
{
    (void)state;
    static int64_t counts[] = {14532, 3, 14533, 1000000000};
    struct wire_round rounds[2] = {measured_round(7), measured_round(8)};
    rounds[0].overshoot_min_ns = -12;
    rounds[0].latency = (struct wire_histogram){.present = true,
                                                .significant_digits = 3,
                                                .lowest_ns = 1,
                                                .highest_ns = 60000000000,
                                                .overflow = 4,
                                                .counts = counts,
                                                .pair_count = 2};
    rounds[1].error = "2 waits ended before their deadline";
    rounds[1].wall_ns = WIRE_NULL;
    struct wire_message sent = result_message(rounds, 2);
    struct wire_message got = through_bytes(&sent);
    const struct wire_round *round = got.result.rounds;
    assert_int_equal(got.result.round_count, 2);
    assert_true(got.result.last);
    assert_int_equal(round[0].overshoot_min_ns, -12);
    assert_true(round[0].cycles == WIRE_NULL);
    assert_true(round[0].latency.present);
    assert_false(round[0].latency_intended.present);
    assert_int_equal(round[0].latency.pair_count, 2);
    assert_memory_equal(round[0].latency.counts, counts, sizeof counts);
    assert_string_equal(round[1].error, rounds[1].error);
    assert_true(round[1].wall_ns == WIRE_NULL);
    wire_release(&got);
}

/* Every integer of a round travels under its own name. */
static void round_integers_keep_their_places(void **state)
{
    (void)state;
    struct wire_round round = measured_round(0);
    int64_t next = 1;
#define X(name) round.name = next++;
    WIRE_ROUND_INTEGERS(X)
#undef X
    struct wire_message sent = result_message(&round, 1);
    struct wire_message got = through_bytes(&sent);
    next = 1;
#define X(name) assert_int_equal(got.result.rounds[0].name, next++);
    WIRE_ROUND_INTEGERS(X)
#undef X
    wire_release(&got);
}

static void largest_result_fits(void **state)
{
    (void)state;
    struct wire_round *rounds = memory_zeroed(WIRE_MAX_ROUNDS + 1, sizeof *rounds);
    for (size_t i = 0; i <= WIRE_MAX_ROUNDS; i++)
        rounds[i] = measured_round((int64_t)i);
    struct wire_message sent = result_message(rounds, WIRE_MAX_ROUNDS);
    struct wire_message got = through_bytes(&sent);
    assert_int_equal(got.result.rounds[WIRE_MAX_ROUNDS - 1].cell, WIRE_MAX_ROUNDS - 1);
    wire_release(&got);
    sent.result.round_count++;
    assert_not_encoded(&sent, "result: 'rounds' has 1025 entries, not 0..1024");
    free(rounds);
}

/* ---- limits of what is sent ---- */

static void what_breaks_the_law_is_not_sent(void **state)
{
    (void)state;
    struct wire_message message = hello_message();
    message.hello.runtime = NULL;
    assert_not_encoded(&message, "hello: 'runtime' is missing");
    message = hello_message();
    message.hello.pid = 0;
    assert_not_encoded(&message, "hello: 'pid' is 0, not 1..2147483647");
    message = hello_message();
    message.hello.pid = WIRE_NULL;
    assert_not_encoded(&message, "hello: 'pid' is missing");
    message = hello_message();
    message.hello.host = "a\xff";
    assert_not_encoded(&message, "hello: 'host' is not UTF-8");
    message.hello.host = "a\x1b[2J";
    assert_not_encoded(&message, "hello: 'host' holds a control character");
    message = hello_message();
    message.hello.instance = "0011223344556677889900112233445X";
    assert_not_encoded(&message, "hello: 'instance' is not 32 lower-case hex digits");
    static struct wire_pair twice[] = {{"libuv", "1"}, {"libuv", "2"}};
    message = hello_message();
    message.hello.versions = (struct wire_pairs){twice, 2};
    assert_not_encoded(&message, "hello: 'versions' entry 1 appears twice");

    struct wire_cell cell = cell_of(7);
    message = assign_message(&cell, 1);
    cell.fanout = 1000001;
    assert_not_encoded(&message, "assign: cells[0]: 'fanout' is 1000001, not 1..1000000");
    cell = cell_of(7);
    cell.rate_per_s = (double)NAN;
    assert_not_encoded(&message, "assign: cells[0]: 'rate_per_s' is nan, not 0..1000000000");
    cell = cell_of(7);
    cell.phase = "apart";
    assert_not_encoded(&message, "assign: cells[0]: 'phase' is 'apart', not one of together, staggered");
    cell = cell_of(7);
    cell.fail = (struct wire_fail){.present = true, .children = 1, .fraction = 0.5};
    assert_not_encoded(&message, "assign: cells[0]: fail: 'children' and 'fraction' are both set");

    struct wire_round round = measured_round(7);
    message = result_message(&round, 1);
    round.cpu_ns = WIRE_NULL;
    assert_not_encoded(&message, "result: rounds[0]: 'cpu_ns' is missing and 'error' does not say why");
    message = (struct wire_message){.type = WIRE_TYPE_COUNT};
    assert_not_encoded(&message, "11 is no type of message");
}

static void texts_have_limits(void **state)
{
    (void)state;
    char text[WIRE_MAX_TEXT_BYTES + 2];
    memset(text, 'x', sizeof text);
    text[WIRE_MAX_TEXT_BYTES] = '\0';
    struct wire_message message = {.type = WIRE_REJECT, .reject = {.reason = text}};
    struct wire_message got = through_bytes(&message);
    assert_int_equal(strlen(got.reject.reason), WIRE_MAX_TEXT_BYTES);
    wire_release(&got);
    text[WIRE_MAX_TEXT_BYTES] = 'x';
    text[WIRE_MAX_TEXT_BYTES + 1] = '\0';
    assert_not_encoded(&message, "reject: 'reason' is too long");
}

/* ---- frames that are too large to be vectors ---- */

static void frames_have_limits(void **state)
{
    (void)state;
    char *data = memory_zeroed(WIRE_MAX_FRAME_BYTES + 1, 1);
    assert_refused(data, WIRE_MAX_FRAME_BYTES + 1, "a frame of 4194305 bytes is over the limit of 4194304");

    /* a bye of 1 MiB and some bytes: 257 texts of 4096 bytes under an unknown key */
    static const char head[] = "\x83\xa4type\xa3"
                               "bye\xa1v\x92\x01\x00\xa1x\xdc\x01\x01";
    size_t size = sizeof head - 1;
    memcpy(data, head, size);
    for (int i = 0; i < 257; i++) {
        memcpy(data + size, "\xda\x10\x00", 3);
        memset(data + size + 3, 'x', 4096);
        size += 3 + 4096;
    }
    char words[100];
    (void)snprintf(words, sizeof words, "bye: %zu bytes are over the limit of 1048576", size);
    assert_refused(data, size, words);

    /* 2^20 nils under an unknown key: 9 keys and containers precede them, so the last 9 are too many; they start
     * at byte 22 */
    size = sizeof head - 4;
    memcpy(data + size, "\xdd\x00\x10\x00\x00", 5);
    memset(data + size + 5, 0xc0, 1 << 20);
    size += 5 + (1 << 20);
    (void)snprintf(words, sizeof words, "byte %d: more than 1048576 values in a frame", 22 + (1 << 20) - 8);
    assert_refused(data, size, words);
    free(data);
}

static void versions_are_told_apart(void **state)
{
    (void)state;
    static const char other[] = "\x82\xa4type\xa5hello\xa1v\x92\x02\x07";
    int64_t major = -1;
    int64_t minor = -1;
    assert_int_equal(wire_peek_version(other, sizeof other - 1, &major, &minor), 0);
    assert_int_equal(major, 2);
    assert_int_equal(minor, 7);
    assert_refused(other, sizeof other - 1, "protocol 2.7 of the peer is not 1.x");
    assert_int_equal(wire_peek_version("\x80", 1, &major, &minor), -1);
    assert_int_equal(wire_peek_version("junk", 4, &major, &minor), -1);
    assert_int_equal(wire_peek_version("", 0, &major, &minor), -1);
    assert_int_equal(major, 2); /* untouched */
}

static void types_have_names(void **state)
{
    (void)state;
    assert_string_equal(wire_type_name(WIRE_HELLO), "hello");
    assert_string_equal(wire_type_name(WIRE_BYE), "bye");
    assert_null(wire_type_name(WIRE_TYPE_COUNT));
    assert_null(wire_type_name((enum wire_type)(-1)));
}

static void release_is_safe_twice(void **state)
{
    (void)state;
    struct wire_message message = {0};
    wire_release(&message);
    struct wire_message sent = hello_message();
    message = through_bytes(&sent);
    wire_release(&message);
    assert_null(message.arena);
    wire_release(&message);
}

/* ---- histograms ---- */

static void buckets_have_no_gaps(void **state)
{
    (void)state;
    for (int64_t digits = 1; digits <= 5; digits++) {
        struct wire_histogram histogram = {.significant_digits = digits, .lowest_ns = digits == 2 ? 7 : 1};
        int64_t precision = 1;
        for (int64_t i = 0; i < digits; i++)
            precision *= 10;
        for (int64_t index = 0; index < 40 * precision; index++) {
            int64_t lower = wire_histogram_lower_ns(&histogram, index);
            int64_t next = wire_histogram_lower_ns(&histogram, index + 1);
            assert_true(next > lower);
            assert_int_equal(wire_histogram_index(&histogram, lower), index);
            assert_int_equal(wire_histogram_index(&histogram, next - 1), index);
            if (next - lower > histogram.lowest_ns)
                assert_true((next - lower) * precision <= lower);
        }
    }
    struct wire_histogram corefan = {.significant_digits = 3, .lowest_ns = 1};
    assert_int_equal(wire_histogram_index(&corefan, -5), 0);
    assert_int_equal(wire_histogram_index(&corefan, 2048), 2048);
    assert_int_equal(wire_histogram_index(&corefan, 10000000), 14532);
    assert_int_equal(wire_histogram_index(&corefan, 1000000000000000000), 51952);
}

/* ---- damage ---- */

static struct wire_bytes read_vector(const char *name)
{
    struct wire_bytes bytes = {0};
    unsigned byte;
    scoped_free char *path = memory_format(COREFAN_VECTORS "/valid/%s", name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fscanf(file, " %2x", &byte) == 1) {
        bytes.data = memory_resized(bytes.data, bytes.size + 1, 1);
        bytes.data[bytes.size++] = (char)byte;
    }
    (void)fclose(file);
    return bytes;
}

static void decode_and_forget(const char *data, size_t size, size_t *taken)
{
    struct wire_message message;
    struct error err = {0};
    if (wire_decode(data, size, &message, &err) < 0) {
        assert_true(err.text[0] != '\0');
        return;
    }
    ++*taken;
    wire_release(&message);
}

/* A copy of its own size, cut and with some bytes changed: a sanitizer sees every read beyond it. */
static void decode_damaged(struct rng *rng, const struct wire_bytes *whole, size_t *taken)
{
    size_t size = rng_below(rng, 4) == 0 ? (size_t)rng_below(rng, whole->size + 1) : whole->size;
    char *copy = memory_zeroed(size, 1);
    memcpy(copy, whole->data, size);
    for (uint64_t changes = 1 + rng_below(rng, 4); changes > 0 && size > 0; changes--)
        copy[rng_below(rng, size)] = (char)rng_next(rng);
    decode_and_forget(copy, size, taken);
    free(copy);
}

static void damaged_frames_do_no_harm(void **state)
{
    (void)state;
    enum { times = 20000 };
    struct rng rng = rng_seeded(20250131);
    size_t vectors = 0;
    size_t taken = 0;
    DIR *dir = opendir(COREFAN_VECTORS "/valid");
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (!strstr(entry->d_name, ".hex") || strstr(entry->d_name, "largest") ||
            strstr(entry->d_name, "longest"))
            continue; /* the long ones take their time and have the same fields */
        struct wire_bytes whole = read_vector(entry->d_name);
        for (int i = 0; i < times; i++)
            decode_damaged(&rng, &whole, &taken);
        free(whole.data);
        vectors++;
    }
    (void)closedir(dir);
    assert_true(vectors >= 40);
    assert_true(taken > 0 && taken < vectors * times); /* some damage is harmless, some is not */
}

static void noise_is_refused(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(7);
    char noise[64];
    size_t taken = 0;
    for (int i = 0; i < 200000; i++) {
        size_t size = (size_t)rng_below(&rng, sizeof noise + 1);
        for (size_t at = 0; at < size; at++)
            noise[at] = (char)rng_next(&rng);
        decode_and_forget(noise, size, &taken);
    }
    assert_int_equal(taken, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_comes_back),          cmocka_unit_test(small_messages_come_back),
        cmocka_unit_test(assign_comes_back),         cmocka_unit_test(ready_comes_back),
        cmocka_unit_test(result_comes_back),         cmocka_unit_test(round_integers_keep_their_places),
        cmocka_unit_test(largest_result_fits),       cmocka_unit_test(what_breaks_the_law_is_not_sent),
        cmocka_unit_test(texts_have_limits),         cmocka_unit_test(frames_have_limits),
        cmocka_unit_test(versions_are_told_apart),   cmocka_unit_test(types_have_names),
        cmocka_unit_test(release_is_safe_twice),     cmocka_unit_test(buckets_have_no_gaps),
        cmocka_unit_test(damaged_frames_do_no_harm), cmocka_unit_test(noise_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
