/* pin: lists of CPUs, housekeeping, places. */
#include "worker/pin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static cpu_set_t set_of(const char *list)
{
    cpu_set_t cpus;
    assert_int_equal(pin_parse_list(list, &cpus, NULL), 0);
    return cpus;
}

static void lists_are_read(void **state)
{
    (void)state;
    cpu_set_t cpus = set_of("0,2-5");
    assert_int_equal(CPU_COUNT(&cpus), 5);
    assert_true(CPU_ISSET(0, &cpus) && !CPU_ISSET(1, &cpus) && CPU_ISSET(2, &cpus) && CPU_ISSET(5, &cpus));
    cpus = set_of("1023");
    assert_true(CPU_ISSET(1023, &cpus));
    cpus = set_of("3-3,3");
    assert_int_equal(CPU_COUNT(&cpus), 1);
}

static void bad_lists_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     ",",   "0,", "a",    "1-",  "-1",     "5-2",
                                      "0,,1", "0 1", " 0", "1024", "0x1", "0-1024", "99999999999999999999",
                                      "0;1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct error err = {0};
        cpu_set_t cpus;
        memset(&cpus, 0x5a, sizeof cpus);
        cpu_set_t before = cpus;
        if (pin_parse_list(bad[i], &cpus, &err) == 0)
            fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(err.kind, ERROR_USAGE);
        assert_memory_equal(&cpus, &before, sizeof cpus);
    }
}

static void cpus_are_checked(void **state)
{
    (void)state;
    struct error err = {0};
    cpu_set_t only_first = set_of("0");
    assert_int_equal(pin_check(0, &only_first, NULL), 0);
    assert_int_equal(pin_check(1023, &only_first, &err), -1);
    assert_non_null(strstr(err.text, "cpu 1023 does not exist"));
    assert_int_equal(pin_check(-1, &only_first, &err), -1);
    assert_int_equal(pin_check(1 << 30, &only_first, &err), -1);
    cpu_set_t none;
    CPU_ZERO(&none);
    assert_int_equal(pin_check(0, &none, &err), -1);
    assert_non_null(strstr(err.text, "cpu 0 is not allowed"));
}

static void housekeeping_leaves_the_measured_cpu_alone(void **state)
{
    (void)state;
    struct pin_housekeeping house;
    cpu_set_t allowed = set_of("0-3"), expected = set_of("0,2-3"), measured = set_of("1");
    assert_int_equal(pin_choose_housekeeping(NULL, 1, &allowed, &house, NULL), 0);
    assert_true(CPU_EQUAL(&house.cpus, &expected));
    assert_false(house.apart); /* others may measure there */
    assert_int_equal(pin_choose_housekeeping("none", 1, &allowed, &house, NULL), 0);
    assert_true(CPU_EQUAL(&house.cpus, &measured));
    assert_false(house.apart);
    assert_int_equal(pin_choose_housekeeping("auto", -1, &allowed, &house, NULL), 0);
    assert_true(CPU_EQUAL(&house.cpus, &allowed));
    assert_false(house.apart);
}

static void one_cpu_is_shared(void **state)
{
    (void)state;
    struct pin_housekeeping house;
    cpu_set_t allowed = set_of("1");
    assert_int_equal(pin_choose_housekeeping("auto", 1, &allowed, &house, NULL), 0);
    assert_true(CPU_EQUAL(&house.cpus, &allowed));
    assert_false(house.apart);
}

static void a_list_sets_cpus_aside(void **state)
{
    (void)state;
    struct pin_housekeeping house;
    struct error err = {0};
    cpu_set_t allowed = set_of("0"), expected = set_of("0");
    assert_int_equal(pin_choose_housekeeping("0", 1, &allowed, &house, NULL), 0);
    assert_true(CPU_EQUAL(&house.cpus, &expected));
    assert_true(house.apart);
    assert_int_equal(pin_choose_housekeeping("0", 0, &allowed, &house, NULL), 0);
    assert_false(house.apart);
    assert_int_equal(pin_choose_housekeeping("0-1023", 0, &allowed, &house, &err), -1);
    assert_int_equal(pin_choose_housekeeping("nobody", 0, &allowed, &house, &err), -1);
    assert_non_null(strstr(err.text, "'nobody' is no list of CPUs"));
}

static void threads_go_where_they_are_told(void **state)
{
    (void)state;
    cpu_set_t allowed, now;
    int64_t first = 0;
    assert_int_equal(pin_allowed(&allowed, NULL), 0);
    while (!CPU_ISSET((size_t)first, &allowed))
        first++;
    assert_int_equal(pin_this_thread_to(first, NULL), 0);
    assert_int_equal(pin_allowed(&now, NULL), 0);
    assert_int_equal(CPU_COUNT(&now), 1);
    assert_int_equal(sched_getcpu(), first);
    assert_int_equal(pin_this_thread(&allowed, NULL), 0);
    assert_int_equal(pin_allowed(&now, NULL), 0);
    assert_true(CPU_EQUAL(&now, &allowed));
}

static void places_that_do_not_exist_are_not_known(void **state)
{
    (void)state;
    struct pin_place place;
    pin_locate(100000, &place);
    assert_true(place.package == INT64_MIN && place.numa == INT64_MIN && place.core == INT64_MIN);
    assert_true(place.l3 == INT64_MIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(bad_lists_are_refused),
        cmocka_unit_test(cpus_are_checked),
        cmocka_unit_test(housekeeping_leaves_the_measured_cpu_alone),
        cmocka_unit_test(one_cpu_is_shared),
        cmocka_unit_test(a_list_sets_cpus_aside),
        cmocka_unit_test(threads_go_where_they_are_told),
        cmocka_unit_test(places_that_do_not_exist_are_not_known),
    };
    return cmocka_run_group_tests_name("pin", tests, NULL, NULL);
}
