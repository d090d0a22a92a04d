#include "proto/fields.h"

#include "proto/frame.h"

#include <string.h>

/* limits that SPEC.md states by name */
#define SPAN_NS     1000000000000000000LL /* 10^18: sums of nine still fit 64 bits */
#define NAME_BYTES  128
#define MOST_FANOUT 1000000
#define MOST_ROUNDS 100000
#define MOST_TRIES  1000000
#define MOST_CPU    1048575
#define MOST_COUNT  1000000000000000LL /* 10^15 */
#define NUMBER      2147483647LL

#define PLACE(record, member) .key = #member, .offset = offsetof(struct record, member)

#define INTEGER(record, member, least, most)                                                                 \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_INTEGER, .required = true, .low = (least), .high = (most)       \
    }
#define INTEGER_OR(record, member, least, most, otherwise)                                                   \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_INTEGER, .low = (least), .high = (most),                        \
                               .fallback = (otherwise)                                                       \
    }
#define REAL_OR(record, member, least, most, otherwise)                                                      \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_REAL, .low = (least), .high = (most), .fallback = (otherwise)   \
    }
#define FLAG(record, member)                                                                                 \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_FLAG, .required = true                                          \
    }
#define FLAG_OR(record, member)                                                                              \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_FLAG                                                            \
    }
#define TEXT(record, member, least, most)                                                                    \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_TEXT, .required = true, .low = (least), .high = (most)          \
    }
#define TEXT_OR_NIL(record, member)                                                                          \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_TEXT, .high = WIRE_MAX_TEXT_BYTES                               \
    }
#define NAME(record, member) TEXT(record, member, 1, NAME_BYTES)
#define NAME_OR(record, member, otherwise)                                                                   \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_TEXT, .low = 1, .high = NAME_BYTES,                             \
                               .fallback_text = (otherwise)                                                  \
    }
#define WORD(record, member, list)                                                                           \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_TEXT, .required = true, .high = NAME_BYTES, .words = (list)     \
    }
#define WORD_OR(record, member, list, otherwise)                                                             \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_TEXT, .high = NAME_BYTES, .words = (list),                      \
                               .fallback_text = (otherwise)                                                  \
    }
#define TEXTS(record, member, most)                                                                          \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_TEXTS, .required = true, .high = (most)                         \
    }
#define TEXTS_OR_NONE(record, member, most)                                                                  \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_TEXTS, .high = (most)                                           \
    }
#define PAIRS_OR_NONE(record, member, most)                                                                  \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_PAIRS, .high = (most)                                           \
    }
#define MAP_OR_NIL(record, member, shape)                                                                    \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_MAP, .nested = (shape)                                          \
    }
#define MAPS(record, member, counter, least, most, shape)                                                    \
    {                                                                                                        \
        PLACE(record, member), .kind = FIELD_MAPS, .required = true, .low = (least), .high = (most),         \
                               .nested = (shape), .count_offset = offsetof(struct record, counter)           \
    }

#define SHAPE(record, table, checker)                                                                        \
    {                                                                                                        \
        .fields = (table), .field_count = sizeof(table) / sizeof((table)[0]), .size = sizeof(struct record), \
        .check = (checker)                                                                                   \
    }

static const char *const phases[] = {"together", "staggered", NULL};
static const char *const arrivals[] = {"poisson", "fixed", NULL};
static const char *const collectors[] = {"on", "off", "freeze", NULL};
static const char *const outcomes[] = {"fail", "cancel", NULL};
static const char *const cancel_answers[] = {"propagate", "suppress", "cleanup", NULL};
static const char *const states[] = {"idle", "preparing", "ready", "measuring", NULL};

static int check_hello(const void *of, struct error *err)
{
    const struct wire_hello *hello = of;
    if (strspn(hello->instance, "0123456789abcdef") != 32)
        return error_set(err, ERROR_INTERNAL, "'instance' is not 32 lower-case hex digits");
    return 0;
}

static const struct field hello_fields[] = {
    TEXT(wire_hello, instance, 32, 32),
    NAME(wire_hello, runtime),
    NAME(wire_hello, label),
    TEXT(wire_hello, host, 1, 255),
    NAME(wire_hello, boot_id),
    INTEGER(wire_hello, pid, 1, NUMBER),
    INTEGER_OR(wire_hello, slot, 0, 65535, WIRE_NULL),
    INTEGER_OR(wire_hello, cpu, 0, MOST_CPU, WIRE_NULL),
    INTEGER_OR(wire_hello, package, 0, MOST_CPU, WIRE_NULL),
    INTEGER_OR(wire_hello, numa, 0, MOST_CPU, WIRE_NULL),
    INTEGER_OR(wire_hello, core, 0, MOST_CPU, WIRE_NULL),
    INTEGER_OR(wire_hello, l3, 0, MOST_CPU, WIRE_NULL),
    PAIRS_OR_NONE(wire_hello, versions, 64),
    TEXTS(wire_hello, arms, 64),
    TEXTS(wire_hello, jobs, 256),
    INTEGER_OR(wire_hello, wall_clock_cost_ps, 0, SPAN_NS, WIRE_NULL),
    INTEGER_OR(wire_hello, cpu_clock_cost_ps, 0, SPAN_NS, WIRE_NULL),
    INTEGER_OR(wire_hello, timer_overshoot_p50_ns, -SPAN_NS, SPAN_NS, WIRE_NULL),
    INTEGER_OR(wire_hello, timer_overshoot_max_ns, -SPAN_NS, SPAN_NS, WIRE_NULL),
    INTEGER_OR(wire_hello, spin_gap_max_ns, 0, SPAN_NS, WIRE_NULL),
    FLAG(wire_hello, busy_heartbeats),
};

static const struct field welcome_fields[] = {
    INTEGER(wire_welcome, worker, 0, NUMBER),
    NAME(wire_welcome, run),
    INTEGER(wire_welcome, heartbeat_ns, 1000000, 3600000000000),
};

static const struct field reject_fields[] = {
    TEXT(wire_reject, reason, 1, WIRE_MAX_TEXT_BYTES),
};

static int check_fail(const void *of, struct error *err)
{
    const struct wire_fail *fail = of;
    if (fail->children > 0 && fail->fraction > 0)
        return error_set(err, ERROR_INTERNAL, "'children' and 'fraction' are both set");
    return 0;
}

static const struct field fail_fields[] = {
    INTEGER_OR(wire_fail, children, 0, MOST_FANOUT, 0),
    REAL_OR(wire_fail, fraction, 0, 1, 0),
    INTEGER_OR(wire_fail, at_ns, 0, SPAN_NS, 0),
    WORD_OR(wire_fail, outcome, outcomes, "fail"),
    WORD_OR(wire_fail, on_cancel, cancel_answers, "propagate"),
    INTEGER_OR(wire_fail, cleanup_ns, 0, SPAN_NS, 0),
};
static const struct shape fail_shape = SHAPE(wire_fail, fail_fields, check_fail);

static const struct field stall_fields[] = {
    INTEGER(wire_stall, children, 0, MOST_FANOUT),
    INTEGER(wire_stall, cpu_ns, 0, SPAN_NS),
};
static const struct shape stall_shape = SHAPE(wire_stall, stall_fields, NULL);

static const struct field cell_fields[] = {
    INTEGER(wire_cell, cell, 0, NUMBER),
    NAME(wire_cell, arm),
    NAME(wire_cell, job),
    INTEGER(wire_cell, fanout, 1, MOST_FANOUT),
    INTEGER(wire_cell, delay_ns, 0, SPAN_NS),
    NAME_OR(wire_cell, wait, "timerfd"),
    INTEGER_OR(wire_cell, clients, 1, 65536, 1),
    WORD_OR(wire_cell, phase, phases, "together"),
    REAL_OR(wire_cell, rate_per_s, 0, 1000000000, 0),
    WORD_OR(wire_cell, arrivals, arrivals, "poisson"),
    INTEGER_OR(wire_cell, duration_ns, 0, SPAN_NS, 0),
    INTEGER_OR(wire_cell, warmup, 0, MOST_ROUNDS, 0),
    INTEGER_OR(wire_cell, timeout_ns, 0, SPAN_NS, 0),
    FLAG_OR(wire_cell, calibrated),
    WORD_OR(wire_cell, gc, collectors, NULL),
    MAP_OR_NIL(wire_cell, fail, &fail_shape),
    MAP_OR_NIL(wire_cell, stall, &stall_shape),
    PAIRS_OR_NONE(wire_cell, params, 64),
};
static const struct shape cell_shape = SHAPE(wire_cell, cell_fields, NULL);

static int check_assign(const void *of, struct error *err)
{
    const struct wire_assign *assign = of;
    for (size_t i = 0; i < assign->cell_count; i++)
        for (size_t j = 0; j < i; j++)
            if (assign->cells[i].cell == assign->cells[j].cell)
                return error_set(err, ERROR_INTERNAL, "'cells' has cell %lld twice",
                                 (long long)assign->cells[i].cell);
    return 0;
}

static const struct field assign_fields[] = {
    INTEGER(wire_assign, group, 0, NUMBER),
    INTEGER(wire_assign, attempt, 0, MOST_TRIES),
    INTEGER(wire_assign, lease_ns, 1, SPAN_NS),
    {PLACE(wire_assign, seed), .kind = FIELD_BITS, .required = true},
    INTEGER(wire_assign, blocks, 1, MOST_ROUNDS),
    INTEGER(wire_assign, gang, 1, 65536),
    MAPS(wire_assign, cells, cell_count, 1, WIRE_MAX_CELLS, &cell_shape),
};

static const struct field prepared_fields[] = {
    INTEGER(wire_prepared, cell, 0, NUMBER),
    INTEGER(wire_prepared, loops, 1, MOST_COUNT),
    INTEGER(wire_prepared, warmups, 0, NUMBER),
    INTEGER(wire_prepared, warmup_ns, 0, SPAN_NS),
    INTEGER(wire_prepared, calibration_ns, 0, SPAN_NS),
    TEXTS_OR_NONE(wire_prepared, flags, 32),
};
static const struct shape prepared_shape = SHAPE(wire_prepared, prepared_fields, NULL);

static const struct field ready_fields[] = {
    INTEGER(wire_ready, group, 0, NUMBER),
    INTEGER(wire_ready, attempt, 0, MOST_TRIES),
    MAPS(wire_ready, cells, cell_count, 0, WIRE_MAX_CELLS, &prepared_shape),
    TEXT_OR_NIL(wire_ready, error),
};

static const struct field go_fields[] = {
    INTEGER(wire_go, group, 0, NUMBER),
    INTEGER(wire_go, attempt, 0, MOST_TRIES),
    INTEGER(wire_go, go, 0, NUMBER),
    INTEGER(wire_go, first_block, 0, MOST_ROUNDS - 1),
    INTEGER(wire_go, blocks, 1, MOST_ROUNDS),
    INTEGER_OR(wire_go, cell, 0, NUMBER, WIRE_NULL),
    INTEGER_OR(wire_go, start_at_ns, 0, INT64_MAX, WIRE_NULL),
};

static const struct field heartbeat_fields[] = {
    INTEGER_OR(wire_heartbeat, group, 0, NUMBER, WIRE_NULL),
    INTEGER_OR(wire_heartbeat, attempt, 0, MOST_TRIES, WIRE_NULL),
    INTEGER_OR(wire_heartbeat, rounds_done, 0, MOST_COUNT, 0),
    WORD(wire_heartbeat, state, states),
};

/* Counts above 0 under ascending indexes, none beyond the bucket of highest_ns. */
static int check_histogram(const void *of, struct error *err)
{
    const struct wire_histogram *histogram = of;
    if (histogram->highest_ns < histogram->lowest_ns)
        return error_set(err, ERROR_INTERNAL, "'highest_ns' is below 'lowest_ns'");
    int64_t last = wire_histogram_index(histogram, histogram->highest_ns);
    int64_t before = -1;
    int64_t total = 0;
    for (size_t i = 0; i < histogram->pair_count; i++) {
        int64_t index = histogram->counts[2 * i];
        int64_t count = histogram->counts[2 * i + 1];
        if (index > last)
            return error_set(err, ERROR_INTERNAL, "'counts' has bucket %lld, beyond %lld", (long long)index,
                             (long long)last);
        if (index <= before)
            return error_set(err, ERROR_INTERNAL, "'counts' has bucket %lld after %lld", (long long)index,
                             (long long)before);
        if (count < 1 || count > MOST_COUNT - total)
            return error_set(err, ERROR_INTERNAL, "'counts' has %lld in bucket %lld, not 1..%lld",
                             (long long)count, (long long)index, (long long)(MOST_COUNT - total));
        before = index;
        total += count;
    }
    return 0;
}

static const struct field histogram_fields[] = {
    INTEGER(wire_histogram, significant_digits, 1, 5),
    INTEGER(wire_histogram, lowest_ns, 1, SPAN_NS),
    INTEGER(wire_histogram, highest_ns, 1, SPAN_NS),
    INTEGER(wire_histogram, overflow, 0, MOST_COUNT),
    {PLACE(wire_histogram, counts), .kind = FIELD_COUNTS, .required = true, .high = FRAME_MAX_VALUES / 2,
     .count_offset = offsetof(struct wire_histogram, pair_count)},
};
static const struct shape histogram_shape = SHAPE(wire_histogram, histogram_fields, check_histogram);

#define ROUND(member, least, most)      INTEGER(wire_round, member, least, most)
#define ROUND_NULL(member, least, most) INTEGER_OR(wire_round, member, least, most, WIRE_NULL)

static const struct field round_fields[] = {
    ROUND(cell, 0, NUMBER),
    ROUND(block, 0, MOST_ROUNDS - 1),
    ROUND(position, 0, WIRE_MAX_CELLS - 1),
    ROUND_NULL(intended_start_ns, 0, INT64_MAX),
    ROUND_NULL(start_ns, 0, INT64_MAX),
    ROUND_NULL(wall_ns, 0, SPAN_NS),
    ROUND_NULL(cpu_ns, 0, SPAN_NS),
    ROUND_NULL(fanouts, 0, MOST_COUNT),
    ROUND_NULL(wakeups, 0, MOST_COUNT),
    ROUND_NULL(max_in_flight, 0, MOST_COUNT),
    ROUND_NULL(early, 0, MOST_COUNT),
    ROUND_NULL(overshoot_min_ns, -SPAN_NS, SPAN_NS),
    ROUND_NULL(overshoot_p50_ns, -SPAN_NS, SPAN_NS),
    ROUND_NULL(overshoot_max_ns, -SPAN_NS, SPAN_NS),
    ROUND_NULL(switches_voluntary, 0, MOST_COUNT),
    ROUND_NULL(switches_involuntary, 0, MOST_COUNT),
    ROUND_NULL(faults_minor, 0, MOST_COUNT),
    ROUND_NULL(faults_major, 0, MOST_COUNT),
    ROUND_NULL(runq_ns, 0, SPAN_NS),
    ROUND_NULL(cpu_start, 0, MOST_CPU),
    ROUND_NULL(cpu_end, 0, MOST_CPU),
    ROUND_NULL(throttles, 0, MOST_COUNT),
    ROUND_NULL(throttled_ns, 0, SPAN_NS),
    ROUND_NULL(steal_ticks, 0, MOST_COUNT),
    ROUND_NULL(frequency_start_khz, 0, MOST_COUNT),
    ROUND_NULL(frequency_end_khz, 0, MOST_COUNT),
    ROUND_NULL(cycles, 0, INT64_MAX),
    ROUND_NULL(instructions, 0, INT64_MAX),
    ROUND_NULL(gc_runs, 0, MOST_COUNT),
    ROUND_NULL(time_to_error_ns, 0, SPAN_NS),
    ROUND_NULL(wasted_cpu_ns, 0, SPAN_NS),
    ROUND_NULL(drain_ns, 0, SPAN_NS),
    ROUND_NULL(orphans, 0, MOST_COUNT),
    ROUND_NULL(errors_seen, 0, MOST_COUNT),
    ROUND_NULL(errors_lost, 0, MOST_COUNT),
    ROUND_NULL(stall_overshoot_p50_ns, -SPAN_NS, SPAN_NS),
    ROUND_NULL(launch_ns, 0, INT64_MAX),
    ROUND_NULL(children, 0, MOST_COUNT),
    ROUND_NULL(busy_ticks, 0, MOST_COUNT),
    ROUND_NULL(offered, 0, MOST_COUNT),
    ROUND_NULL(skipped, 0, MOST_COUNT),
    ROUND_NULL(unfinished, 0, MOST_COUNT),
    ROUND_NULL(lag_p50_ns, 0, SPAN_NS),
    ROUND_NULL(lag_max_ns, 0, SPAN_NS),
    TEXT_OR_NIL(wire_round, error),
    MAP_OR_NIL(wire_round, latency, &histogram_shape),
    MAP_OR_NIL(wire_round, latency_intended, &histogram_shape),
};

enum round_integer {
#define X(name) ROUND_INTEGER_##name,
    WIRE_ROUND_INTEGERS(X)
#undef X
        ROUND_INTEGER_COUNT
};
_Static_assert(sizeof round_fields / sizeof round_fields[0] == ROUND_INTEGER_COUNT + 3,
               "every member of a round has its row");

/* A round is either measured or says why it is not. */
static int check_round(const void *of, struct error *err)
{
    static const size_t measured[] = {
        offsetof(struct wire_round, start_ns),
        offsetof(struct wire_round, wall_ns),
        offsetof(struct wire_round, cpu_ns),
        offsetof(struct wire_round, fanouts),
    };
    static const char *const names[] = {"start_ns", "wall_ns", "cpu_ns", "fanouts"};
    const struct wire_round *round = of;
    if (round->error)
        return 0;
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        int64_t value;
        memcpy(&value, (const char *)of + measured[i], sizeof value);
        if (value == WIRE_NULL)
            return error_set(err, ERROR_INTERNAL, "'%s' is missing and 'error' does not say why", names[i]);
    }
    return 0;
}
static const struct shape round_shape = SHAPE(wire_round, round_fields, check_round);

static int check_result(const void *of, struct error *err)
{
    const struct wire_result *result = of;
    if (result->error && !result->last)
        return error_set(err, ERROR_INTERNAL, "'error' in a part that is not the last");
    return 0;
}

static const struct field result_fields[] = {
    INTEGER(wire_result, group, 0, NUMBER),
    INTEGER(wire_result, attempt, 0, MOST_TRIES),
    INTEGER(wire_result, go, 0, NUMBER),
    INTEGER(wire_result, part, 0, NUMBER),
    FLAG(wire_result, last),
    MAPS(wire_result, rounds, round_count, 0, WIRE_MAX_ROUNDS, &round_shape),
    TEXT_OR_NIL(wire_result, error),
};

static const struct field ack_fields[] = {
    INTEGER(wire_ack, group, 0, NUMBER),
    INTEGER(wire_ack, attempt, 0, MOST_TRIES),
    INTEGER(wire_ack, go, 0, NUMBER),
    INTEGER(wire_ack, part, 0, NUMBER),
};

static const struct field abort_fields[] = {
    INTEGER(wire_abort, group, 0, NUMBER),
    INTEGER(wire_abort, attempt, 0, MOST_TRIES),
    TEXT(wire_abort, reason, 1, WIRE_MAX_TEXT_BYTES),
    FLAG_OR(wire_abort, keep),
};

static const struct field bye_fields[] = {
    TEXT_OR_NIL(wire_bye, reason),
};

#define RULE(record, checker, most)                                                                          \
    {                                                                                                        \
        .shape = {.fields = record##_fields,                                                                 \
                  .field_count = sizeof record##_fields / sizeof record##_fields[0],                         \
                  .size = sizeof(struct wire_##record),                                                      \
                  .check = (checker)},                                                                       \
        .most_bytes = (most)                                                                                 \
    }

const struct message_rule message_rules[WIRE_TYPE_COUNT] = {
    [WIRE_HELLO] = RULE(hello, check_hello, 64u << 10),
    [WIRE_WELCOME] = RULE(welcome, NULL, 1u << 20),
    [WIRE_REJECT] = RULE(reject, NULL, 1u << 20),
    [WIRE_ASSIGN] = RULE(assign, check_assign, 1u << 20),
    [WIRE_READY] = RULE(ready, NULL, 1u << 20),
    [WIRE_GO] = RULE(go, NULL, 1u << 20),
    [WIRE_HEARTBEAT] = RULE(heartbeat, NULL, 1u << 20),
    [WIRE_RESULT] = RULE(result, check_result, WIRE_MAX_FRAME_BYTES),
    [WIRE_ACK] = RULE(ack, NULL, 1u << 20),
    [WIRE_ABORT] = RULE(abort, NULL, 1u << 20),
    [WIRE_BYE] = RULE(bye, NULL, 1u << 20),
};
