/* The same files on hosts of any size: every example is planned for 2, 16 and 64 cores, as recorded, and `cores: ladder` takes one
 * hardware thread of as many cores as there are. */
#include "base/memory.h"
#include "coordinator/host/topology.h"
#include "coordinator/plan/plan.h"
#include "coordinator/sweep/sweep.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MOST_STEPS 8

struct host {
    struct topology_request request;
    int64_t workers;           /* of each runtime; one core of a host that has four keeps house */
    int64_t steps[MOST_STEPS]; /* of `cores: ladder`; ends with 0 */
};

static const struct host hosts[] = {
    {{.workers = TOPOLOGY_AUTO, .recorded_xml = COREFAN_TOPOLOGIES "/virtual-two-cores.xml"}, 2, {1, 2}},
    {{.workers = TOPOLOGY_AUTO, .synthetic = "pack:2 [numa] l3:2 core:4 pu:2(indexes=2*16:16*1)"},
     15,
     {1, 2, 4, 8, 15}},
    {{.workers = TOPOLOGY_AUTO, .recorded_xml = COREFAN_TOPOLOGIES "/two-sockets-smt.xml"},
     63,
     {1, 2, 4, 8, 16, 32, 63}},
};

static int64_t workers_of(const struct host *host)
{
    struct topology *topology = NULL;
    struct error err = {0};
    if (topology_choose(&host->request, &topology, &err) < 0)
        fail_msg("%s", err.text);
    int64_t count = (int64_t)topology->measured_count;
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(topology->measured[i].thread, 0);
        for (int64_t j = 0; j < i; j++)
            assert_int_not_equal(topology->measured[i].core, topology->measured[j].core);
    }
    topology_free(topology);
    return count;
}

static struct plan *plan_of(const char *path, int64_t workers)
{
    struct sweep *sweep = NULL;
    struct plan *plan = NULL;
    struct error err = {0};
    struct sweep_mistakes mistakes = {0};
    if (sweep_load(path, (struct sweep_settings){0}, &sweep, &mistakes) != 0)
        fail_msg("%s", sweep_mistakes_text(&mistakes));
    if (plan_make(sweep, workers, &plan, &err) != 0)
        fail_msg("%s: %s", path, err.text);
    sweep_mistakes_release(&mistakes);
    sweep_free(sweep);
    return plan;
}

static void test_every_example_is_planned(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        int64_t workers = workers_of(&hosts[i]);
        int files = 0;
        assert_int_equal(workers, hosts[i].workers);
        DIR *directory = opendir(COREFAN_EXAMPLES);
        assert_non_null(directory);
        for (const struct dirent *entry; (entry = readdir(directory));) {
            const char *ending = strrchr(entry->d_name, '.');
            if (!ending || strcmp(ending, ".yaml") != 0)
                continue;
            scoped_free char *path = memory_format("%s/%s", COREFAN_EXAMPLES, entry->d_name);
            struct plan *plan = plan_of(path, workers);
            for (int64_t group = 0; group < plan->group_count; group++)
                assert_in_range(plan->groups[group].cores, 1, workers);
            plan_free(plan);
            files++;
        }
        (void)closedir(directory);
        assert_true(files >= 9);
    }
}

static void test_ladder_of_cores(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        const struct host *host = &hosts[i];
        struct plan *plan = plan_of(COREFAN_EXAMPLES "/scaling.yaml", workers_of(host));
        int64_t steps = 0;
        while (steps < MOST_STEPS && host->steps[steps] > 0)
            steps++;
        assert_int_equal(plan->group_count, 2 * steps); /* two jobs */
        for (int64_t group = 0; group < plan->group_count; group++)
            assert_int_equal(plan->groups[group].cores, host->steps[group % steps]);
        plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_example_is_planned),
        cmocka_unit_test(test_ladder_of_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
