/* fill: who spins is told by the CPU time of this process, which does nothing else meanwhile. */
#include "coordinator/host/fill.h"

#include "base/clock.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static int64_t first_cpu(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (int64_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, &set))
            return cpu;
    return -1;
}

static int64_t cpu_time_ns(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Waits until this process has used that much CPU, for as long as it takes: only a filler that spins can do so. */
static void await_spinning(void)
{
    int64_t enough_ns = cpu_time_ns() + 20 * NS_PER_MS;
    while (cpu_time_ns() < enough_ns)
        (void)nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
}

/* CPU of this process in a tenth of a second: a filler that spins would take it, but for what others leave it. */
static int64_t used_ns(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 10 * NS_PER_MS},
                    NULL); /* who was told to stop has stopped */
    int64_t before_ns = cpu_time_ns();
    (void)nanosleep(&(struct timespec){.tv_nsec = 100 * NS_PER_MS}, NULL);
    return cpu_time_ns() - before_ns;
}

#define NEXT_TO_NOTHING_NS (5 * NS_PER_MS)

static void test_only_idle_cpus_beside_occupied_ones_spin(void **state)
{
    (void)state;
    const int64_t elsewhere = 65535, cpus[] = {first_cpu()};
    struct fill *fill = NULL;
    struct error err = {0};
    assert_int_equal(fill_new(cpus, 1, &fill, &err), 0);
    assert_true(used_ns() < NEXT_TO_NOTHING_NS); /* nobody is measured */
    fill_occupy(fill, cpus[0]);
    assert_true(used_ns() < NEXT_TO_NOTHING_NS); /* it is measured itself */
    fill_vacate(fill, cpus[0]);
    fill_occupy(fill, elsewhere);
    assert_true(used_ns() < NEXT_TO_NOTHING_NS); /* not one of its CPUs */
    fill_free(fill);
}

static void test_an_idle_cpu_spins_while_another_is_occupied(void **state)
{
    (void)state;
    struct fill *fill = NULL;
    struct error err = {0};
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    if (CPU_COUNT(&set) < 2)
        skip();
    int64_t both[2], count = 0;
    for (int64_t cpu = 0; cpu < CPU_SETSIZE && count < 2; cpu++)
        if (CPU_ISSET((size_t)cpu, &set))
            both[count++] = cpu;
    assert_int_equal(fill_new(both, 2, &fill, &err), 0);
    fill_occupy(fill, both[0]);
    await_spinning();
    fill_occupy(fill, both[1]);
    assert_true(used_ns() < NEXT_TO_NOTHING_NS);
    fill_vacate(fill, both[0]);
    await_spinning();
    fill_free(fill);
    assert_true(used_ns() < NEXT_TO_NOTHING_NS);
}

static void test_a_cpu_that_is_not_there(void **state)
{
    (void)state;
    const int64_t cpus[] = {first_cpu(), 60000};
    struct fill *fill = NULL;
    struct error err = {0};
    assert_int_equal(fill_new(cpus, 2, &fill, &err), -1);
    assert_int_equal(err.kind, ERROR_INTERNAL);
    assert_non_null(strstr(err.text, "cannot keep cpu 60000 busy"));
    assert_null(fill);
    fill_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_idle_cpus_beside_occupied_ones_spin),
        cmocka_unit_test(test_an_idle_cpu_spins_while_another_is_occupied),
        cmocka_unit_test(test_a_cpu_that_is_not_there),
    };
    return cmocka_run_group_tests_name("fill", tests, NULL, NULL);
}
