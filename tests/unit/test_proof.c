/* proof: rounds that hold and rounds that do not. */
#include "worker/proof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct counted {
    const char *arm;
    int64_t in_flight, wakeups, early;
    const char *broken; /* part of the text; NULL: it holds */
};

static struct wire_cell cell_of(const char *arm, const char *wait)
{
    return (struct wire_cell){.arm = (char *)(uintptr_t)arm, .fanout = 40, .wait = (char *)(uintptr_t)wait};
}

static const char *judge(const struct wire_cell *cell, bool waits, const struct counted *counted,
                         int64_t fanouts, char *buf, size_t size)
{
    struct wire_round round;
    wire_round_init(&round);
    round.fanouts = fanouts;
    round.max_in_flight = counted->in_flight;
    round.wakeups = counted->wakeups;
    round.early = counted->early;
    const struct proof_facts facts = {.waits = waits,
                                      .waits_ended = cell->fanout * fanouts,
                                      .most_waiting = strcmp(cell->arm, "sequential") == 0 ? 1 : cell->fanout,
                                      .span_ns = INT64_MAX};
    return proof_judge(cell, &facts, &round, buf, size);
}

static void expect(const struct wire_cell *cell, bool waits, int64_t fanouts, const struct counted *counted)
{
    char buf[256];
    const char *text = judge(cell, waits, counted, fanouts, buf, sizeof buf);
    if (!counted->broken && text)
        fail_msg("%s, in flight %d, wake-ups %d: %s", counted->arm, (int)counted->in_flight,
                 (int)counted->wakeups, text);
    if (counted->broken && (!text || !strstr(text, counted->broken)))
        fail_msg("%s, in flight %d, wake-ups %d: '%s' instead of '%s'", counted->arm, (int)counted->in_flight,
                 (int)counted->wakeups, text ? text : "fine", counted->broken);
}

static void waits_are_proven_by_flight_and_wakeups(void **state)
{
    (void)state;
    static const struct counted rows[] = {
        {"sequential", 1, 40, 0, NULL},
        {"sequential", 1, 47, 0, NULL},
        {"sequential", 1, 39, 0, "woke up 39 times, fewer than its 40 waits"},
        {"sequential", 2, 40, 0, "2 of 40 children in flight, not 1"},
        {"sequential", 0, 40, 0, "0 of 40 children in flight, not 1"},
        {"gather", 40, 1, 0, NULL},
        {"gather", 40, 40, 0, NULL},
        {"gather", 40, 41, 0, "woke up 41 times, more than its 40 children"},
        {"gather", 39, 1, 0, "gather had 39 of 40 children in flight, not 40"},
        {"taskgroup", 1, 40, 0, "1 of 40"},
        {"tasks", 41, 40, 0, "41 of 40"},
        {"empty", 0, 0, 0, NULL},
        {"empty", 1, 0, 0, "1 of 40 children in flight, not 0"},
        {"gather", 40, 1, 3, "3 of 40 waits ended before their deadline"},
        {"sequential", 1, 40, 1, "1 of 40 waits ended before"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wire_cell cell = cell_of(rows[i].arm, "timerfd");
        expect(&cell, true, 1, &rows[i]);
    }
}

static void what_does_not_wait_owes_no_wakeups(void **state)
{
    (void)state;
    static const struct counted rows[] = {
        {"sequential", 1, 0, 0, NULL}, {"gather", 40, 0, 0, NULL},        {"gather", 1, 0, 0, "1 of 40"},
        {"tasks", 40, 5000, 0, NULL},  {"sequential", 40, 0, 0, "40 of"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wire_cell cell = cell_of(rows[i].arm, "timerfd");
        expect(&cell, false, 100, &rows[i]);
    }
}

static void where_children_fail_only_upper_bounds_hold(void **state)
{
    (void)state;
    static const struct counted rows[] = {
        {"sequential", 1, 3, 0, NULL}, {"sequential", 2, 3, 0, "2 of 40"},
        {"gather", 7, 60, 0, NULL},    {"gather", 41, 1, 0, "41 of"},
        {"taskgroup", 0, 0, 0, NULL},  {"gather", 7, 1, 2, "2 of 40 waits"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wire_cell failing = cell_of(rows[i].arm, "timerfd"), stalling = failing, limited = failing;
        failing.fail.present = stalling.stall.present = true;
        limited.timeout_ns = 5;
        expect(&failing, true, 1, &rows[i]);
        expect(&stalling, true, 1, &rows[i]);
        expect(&limited, true, 1, &rows[i]);
    }
}

static void uv_timer_is_known_to_be_early(void **state)
{
    (void)state;
    struct wire_cell cell = cell_of("gather", "uv_timer");
    const struct counted early = {"gather", 40, 1, 13, NULL}, apart = {"gather", 1, 1, 13, "1 of 40"};
    const struct counted fewer = {"sequential", 1, 27, 13, NULL};
    const struct counted too_few = {"sequential", 1, 26, 13, "woke up 26 times, fewer than its 27 waits"};
    struct wire_cell sequential = cell_of("sequential", "uv_timer");
    expect(&sequential, true, 1, &fewer);
    expect(&sequential, true, 1, &too_few);
    expect(&cell, true, 1, &early);
    expect(&cell, true, 1, &apart);
}

struct waited {
    const char *arm, *wait;
    int64_t waits_ended, most_waiting, span_ns, early;
    const char *broken;
};

static void waits_are_as_many_and_as_long_as_asked_for(void **state)
{
    (void)state;
    static const struct waited rows[] = {
        {"gather", "timerfd", 40, 40, 1000, 0, NULL},
        {"gather", "timerfd", 40, 1, 40000, 0, "1 of 40 children waited at the same time, not 40"},
        {"gather", "timerfd", 40, 39, 2000, 0, "39 of 40 children waited at the same time, not 40"},
        {"sequential", "timerfd", 40, 2, 40000, 0, "2 of 40 children waited at the same time, not 1"},
        {"gather", "timerfd", 40, 40, 999, 0, "gather took 999 ns, less than its waits of 1000 ns"},
        {"gather", "timerfd", 39, 39, 1000, 0, "39 of 40 children waited"},
        {"gather", "timerfd", 0, 0, 1000, 0, "0 of 40 children waited"},
        {"sequential", "timerfd", 40, 1, 40000, 0, NULL},
        {"sequential", "timerfd", 40, 1, 39999, 0,
         "sequential took 39999 ns, less than its waits of 40000 ns"},
        {"empty", "timerfd", 0, 0, 3, 0, NULL},
        {"gather", "uv_timer", 40, 40, 500, 2, NULL}, /* early by design */
        {"gather", "uv_timer", 40, 40, 500, 0, "less than its waits"},
        {"gather", "uv_timer", 12, 40, 500, 2, "12 of 40 children waited"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct waited *row = &rows[i];
        bool sequential = strcmp(row->arm, "sequential") == 0, empty = strcmp(row->arm, "empty") == 0;
        struct wire_cell cell = cell_of(row->arm, row->wait);
        struct wire_round round;
        char buf[256];
        cell.delay_ns = 1000;
        wire_round_init(&round);
        round.fanouts = 1;
        round.early = row->early;
        round.wakeups = round.max_in_flight = empty ? 0 : 40;
        round.max_in_flight = sequential ? 1 : round.max_in_flight;
        const struct proof_facts facts = {true, row->waits_ended, row->most_waiting, row->span_ns};
        const char *text = proof_judge(&cell, &facts, &round, buf, sizeof buf);
        if (row->broken ? !text || !strstr(text, row->broken) : text != NULL)
            fail_msg("row %zu: '%s'", i, text ? text : "fine");
        cell.stall.present = true;
        assert_null(proof_judge(&cell, &facts, &round, buf, sizeof buf));
    }
}

static void no_figure_overflows(void **state)
{
    (void)state;
    struct wire_cell cell = cell_of("sequential", "timerfd");
    const struct proof_facts facts = {true, 40, 1, INT64_MAX - 1};
    struct wire_round round;
    char buf[256];
    cell.delay_ns = INT64_MAX / 2;
    wire_round_init(&round);
    round.fanouts = round.max_in_flight = 1;
    round.early = 0;
    round.wakeups = 40;
    assert_non_null(proof_judge(&cell, &facts, &round, buf, sizeof buf));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_are_as_many_and_as_long_as_asked_for),
        cmocka_unit_test(no_figure_overflows),
        cmocka_unit_test(waits_are_proven_by_flight_and_wakeups),
        cmocka_unit_test(what_does_not_wait_owes_no_wakeups),
        cmocka_unit_test(where_children_fail_only_upper_bounds_hold),
        cmocka_unit_test(uv_timer_is_known_to_be_early),
    };
    return cmocka_run_group_tests_name("proof", tests, NULL, NULL);
}
