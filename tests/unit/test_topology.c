#include "base/memory.h"
#include "coordinator/host/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TWO_SOCKETS COREFAN_TOPOLOGIES "/two-sockets-smt.xml"
#define FORBIDDEN   COREFAN_TOPOLOGIES "/forbidden.xml"
#define OFFLINE     COREFAN_TOPOLOGIES "/offline.xml"
#define VIRTUAL     COREFAN_TOPOLOGIES "/virtual-two-cores.xml"

static struct topology *chosen(struct topology_request request)
{
    struct topology *topology = NULL;
    struct error err = {0};
    if (topology_choose(&request, &topology, &err) < 0)
        fail_msg("%s", err.text);
    return topology;
}

static void assert_refused(struct topology_request request, const char *text)
{
    struct topology *untouched = (struct topology *)&request;
    struct topology *topology = untouched;
    struct error err = {0};
    assert_int_equal(topology_choose(&request, &topology, &err), -1);
    assert_int_equal(err.kind, ERROR_USAGE);
    assert_string_equal(err.text, text);
    assert_ptr_equal(topology, untouched);
}

static char *measured_text(const struct topology *topology)
{
    char *text = memory_text("");
    for (size_t i = 0; i < topology->measured_count; i++) {
        char *longer = memory_format("%s%s%lld", text, i ? " " : "", (long long)topology->measured[i].cpu);
        free(text);
        text = longer;
    }
    return text;
}

static void assert_choice(struct topology_request request, const char *measured, const char *housekeeping)
{
    struct topology *topology = chosen(request);
    scoped_free char *got = measured_text(topology);
    scoped_free char *kept = topology_list_text(topology->housekeeping, topology->housekeeping_count);
    assert_string_equal(got, measured);
    assert_string_equal(kept, housekeeping);
    topology_free(topology);
}

static void test_lists(void **state)
{
    (void)state;
    int64_t *cpus = NULL;
    size_t count = 0;
    struct error err = {0};
    assert_int_equal(topology_parse_list("--cpus", "7,0,2-5", &cpus, &count, &err), 0);
    assert_int_equal(count, 6);
    assert_int_equal(cpus[0], 7);
    assert_int_equal(cpus[5], 5);
    free(cpus);
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"", "--cpus '' is not a list of CPUs such as 0,2-5"},
        {"a", "--cpus 'a' is not a list of CPUs such as 0,2-5"},
        {"0,", "--cpus '0,' is not a list of CPUs such as 0,2-5"},
        {",0", "--cpus ',0' is not a list of CPUs such as 0,2-5"},
        {"0,,1", "--cpus '0,,1' is not a list of CPUs such as 0,2-5"},
        {"1-", "--cpus '1-' is not a list of CPUs such as 0,2-5"},
        {"-1", "--cpus '-1' is not a list of CPUs such as 0,2-5"},
        {"0 1", "--cpus '0 1' is not a list of CPUs such as 0,2-5"},
        {"0x1", "--cpus '0x1' is not a list of CPUs such as 0,2-5"},
        {"99999999999999999999", "--cpus '99999999999999999999' is not a list of CPUs such as 0,2-5"},
        {"5-2", "--cpus '5-2': the range 5-2 runs backwards"},
        {"0,0", "--cpus '0,0': cpu 0 appears twice"},
        {"2-5,4", "--cpus '2-5,4': cpu 4 appears twice"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cpus = (int64_t *)&count;
        assert_int_equal(topology_parse_list("--cpus", wrong[i].text, &cpus, &count, &err), -1);
        assert_string_equal(err.text, wrong[i].message);
        assert_ptr_equal(cpus, &count);
    }
}

static void test_list_text(void **state)
{
    (void)state;
    const int64_t cpus[] = {0, 2, 3, 4, 9, 10};
    scoped_free char *text = topology_list_text(cpus, 6);
    scoped_free char *none = topology_list_text(cpus, 0);
    assert_string_equal(text, "0,2-4,9-10");
    assert_string_equal(none, "");
}

static void test_one_thread_per_core_first(void **state)
{
    (void)state;
    struct topology *topology =
        chosen((struct topology_request){.workers = TOPOLOGY_AUTO, .recorded_xml = TWO_SOCKETS});
    assert_int_equal(topology->physical_cores, 64);
    assert_int_equal(topology->packages, 2);
    assert_int_equal(topology->numa_nodes, 2);
    assert_int_equal(topology->l3_groups, 8);
    assert_int_equal(topology->measured_count, 63);
    for (size_t i = 0; i < 63; i++) {
        assert_int_equal(topology->measured[i].cpu, i + 1);
        assert_int_equal(topology->measured[i].thread, 0);
        assert_int_equal(topology->measured[i].l3, (i + 1) / 8);
        assert_int_equal(topology->measured[i].package, (i + 1) / 32);
        assert_int_equal(topology->measured[i].numa, (i + 1) / 32);
    }
    scoped_free char *kept = topology_list_text(topology->housekeeping, topology->housekeeping_count);
    assert_string_equal(kept, "0,64");
    assert_false(topology->housekeeping_shares_cores);
    topology_free(topology);
}

static void test_siblings_come_second(void **state)
{
    (void)state;
    struct topology *topology =
        chosen((struct topology_request){.workers = 126, .recorded_xml = TWO_SOCKETS});
    assert_int_equal(topology->measured[62].cpu, 63);
    assert_int_equal(topology->measured[63].cpu, 65);
    assert_int_equal(topology->measured[63].thread, 1);
    assert_int_equal(topology->measured[63].core, topology->measured[0].core);
    assert_int_equal(topology->measured[125].cpu, 127);
    topology_free(topology);
    assert_refused((struct topology_request){.workers = 127, .recorded_xml = TWO_SOCKETS},
                   "127 workers want a CPU each, and 126 of 128 can be measured (the rest is kept for "
                   "housekeeping): fewer --workers, or --oversubscribe");
}

static void test_housekeeping(void **state)
{
    (void)state;
    const char *four = "core:4 pu:2", *three = "core:3 pu:1", *threads = "core:1 pu:2";
    assert_choice((struct topology_request){.workers = TOPOLOGY_AUTO, .synthetic = four}, "2 4 6", "0-1");
    assert_choice((struct topology_request){.workers = 1, .synthetic = four}, "2", "0-1,4-7");
    assert_choice(
        (struct topology_request){.workers = TOPOLOGY_AUTO, .synthetic = four, .housekeeping = "none"},
        "0 2 4 6", "");
    assert_choice((struct topology_request){.workers = TOPOLOGY_AUTO, .synthetic = four, .housekeeping = "6"},
                  "0 2 4", "6");
    assert_choice((struct topology_request){.workers = TOPOLOGY_AUTO, .synthetic = four, .cpus = "7,0"},
                  "7 0", "2-5");
    assert_choice((struct topology_request){.workers = TOPOLOGY_AUTO, .synthetic = three}, "0 1 2", "");
    assert_choice((struct topology_request){.workers = 2, .synthetic = three}, "0 1", "2");
    assert_choice((struct topology_request){.workers = 0, .synthetic = three}, "", "0-2");
    /* only a sibling of the measured thread is left: better than nothing, and the choice says so */
    struct topology *topology = chosen((struct topology_request){.workers = 1, .synthetic = threads});
    assert_int_equal(topology->housekeeping_count, 1);
    assert_true(topology->housekeeping_shares_cores);
    topology_free(topology);
}

/* Two packages of two cache groups of two cores; the first core keeps house. */
static void test_placement(void **state)
{
    (void)state;
    const char *host = "pack:2 l3:2 core:2 pu:2";
    struct topology_request request = {.workers = TOPOLOGY_AUTO, .synthetic = host};
    assert_choice(request, "2 4 6 8 10 12 14", "0-1");
    request.placement = "spread";
    assert_choice(request, "2 8 4 12 6 10 14", "0-1");
    request.workers = 3;
    assert_choice(request, "2 8 4", "0-1,6-7,10-15");
    request.workers = 9; /* second threads come when there are no first ones left */
    assert_choice(request, "2 8 4 12 6 10 14 3 9", "0-1");
    request.cpus = "4-7,12";
    request.workers = TOPOLOGY_AUTO;
    assert_choice(request, "4 12 6 5 7", "0-3,8-11,14-15");
    request.cpus = NULL;
    request.placement = "12,3";
    assert_choice(request, "12 3", "0-1,4-11,14-15");
    request.placement = "16";
    assert_refused(request, "placement '16': cpu 16 does not exist (this host has 0-15)");
    request.placement = "5-2";
    assert_refused(request, "placement '5-2': the range 5-2 runs backwards");
    request.placement = "3";
    request.cpus = "4";
    assert_refused(request, "'placement' names CPUs, and so does --cpus: leave one of them out");
}

/* 64 cores of two sockets: gangs of any size have as many cores of either. */
static void test_spread_of_a_large_host(void **state)
{
    (void)state;
    struct topology *topology = chosen((struct topology_request){
        .workers = 62, .recorded_xml = TWO_SOCKETS, .placement = "spread", .housekeeping = "0"});
    int64_t packages[2] = {0}, caches[8] = {0};
    for (size_t i = 0; i < topology->measured_count; i++) {
        packages[topology->measured[i].package]++;
        caches[topology->measured[i].l3]++;
        assert_int_equal(topology->measured[i].thread, 0);
        assert_true(llabs(packages[0] - packages[1]) <= 1);
        if (i == 7)
            for (size_t cache = 0; cache < 8; cache++)
                assert_int_equal(caches[cache], 1);
    }
    topology_free(topology);
}

static void test_oversubscription(void **state)
{
    (void)state;
    struct topology_request request = {.workers = 5, .recorded_xml = VIRTUAL, .oversubscribe = true};
    assert_choice(request, "0 1 0 1 0", "");
    request.workers = 1;
    assert_choice(request, "0", "1");
    request.housekeeping = "0-1";
    assert_refused(
        request, "1 worker wants a CPU each, and 0 of 2 can be measured (the rest is kept for housekeeping)");
}

static void test_forbidden_cpus(void **state)
{
    (void)state;
    struct topology *topology =
        chosen((struct topology_request){.workers = TOPOLOGY_AUTO, .recorded_xml = FORBIDDEN});
    assert_int_equal(topology->physical_cores, 60);
    assert_int_equal(topology->measured_count, 59);
    assert_int_equal(topology->measured[0].cpu, 5);
    assert_int_equal(topology->housekeeping[0], 4);
    topology_free(topology);
    assert_refused(
        (struct topology_request){.workers = TOPOLOGY_AUTO, .recorded_xml = FORBIDDEN, .cpus = "3"},
        "--cpus '3': cpu 3 is not allowed for this process (usable: 4-63,68-127)");
    assert_refused(
        (struct topology_request){.workers = TOPOLOGY_AUTO, .recorded_xml = FORBIDDEN, .housekeeping = "64"},
        "--housekeeping '64': cpu 64 is not allowed for this process (usable: 4-63,68-127)");
}

static void test_affinity(void **state)
{
    (void)state;
    assert_choice(
        (struct topology_request){.workers = TOPOLOGY_AUTO, .synthetic = "core:8 pu:2", .affinity = "5,9"},
        "5 9", "");
    assert_refused(
        (struct topology_request){
            .workers = TOPOLOGY_AUTO, .synthetic = "core:8 pu:2", .affinity = "5,9", .cpus = "0"},
        "--cpus '0': cpu 0 is not allowed for this process (usable: 5,9)");
}

static void test_offline_cpus(void **state)
{
    (void)state;
    /* cores 2 and 3 have lost their first threads, 2 and 3: their siblings 6 and 7 stand for them */
    assert_choice((struct topology_request){.workers = TOPOLOGY_AUTO, .recorded_xml = OFFLINE}, "1 6 7",
                  "0,4");
    assert_refused(
        (struct topology_request){.workers = TOPOLOGY_AUTO, .recorded_xml = OFFLINE, .cpus = "1-2"},
        "--cpus '1-2': cpu 2 is offline (usable: 0-1,4-7)");
    assert_refused((struct topology_request){.workers = TOPOLOGY_AUTO, .recorded_xml = OFFLINE, .cpus = "8"},
                   "--cpus '8': cpu 8 does not exist (this host has 0-7)");
}

static void test_small_machine(void **state)
{
    (void)state;
    assert_choice((struct topology_request){.workers = TOPOLOGY_AUTO, .recorded_xml = VIRTUAL}, "0 1", "");
    assert_refused(
        (struct topology_request){.workers = 3, .recorded_xml = VIRTUAL},
        "3 workers want a CPU each, and 2 of 2 can be measured: fewer --workers, or --oversubscribe");
    assert_refused(
        (struct topology_request){
            .workers = TOPOLOGY_AUTO, .recorded_xml = VIRTUAL, .cpus = "1", .housekeeping = "1"},
        "cpu 1 is in both --cpus and --housekeeping");
    assert_refused(
        (struct topology_request){.workers = TOPOLOGY_AUTO, .recorded_xml = VIRTUAL, .housekeeping = "0-1"},
        "1 worker wants a CPU each, and 0 of 2 can be measured (the rest is kept for housekeeping)");
}

static void test_this_host(void **state)
{
    (void)state;
    struct topology *topology = chosen((struct topology_request){.workers = 1});
    assert_int_equal(topology->measured_count, 1);
    assert_true(topology->allowed_count >= 1);
    topology_free(topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_list_text),
        cmocka_unit_test(test_one_thread_per_core_first),
        cmocka_unit_test(test_siblings_come_second),
        cmocka_unit_test(test_housekeeping),
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_spread_of_a_large_host),
        cmocka_unit_test(test_oversubscription),
        cmocka_unit_test(test_forbidden_cpus),
        cmocka_unit_test(test_affinity),
        cmocka_unit_test(test_offline_cpus),
        cmocka_unit_test(test_small_machine),
        cmocka_unit_test(test_this_host),
    };
    return cmocka_run_group_tests_name("topology", tests, NULL, NULL);
}
