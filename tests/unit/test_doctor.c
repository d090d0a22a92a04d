/* Each rule on both sides of its bound, and whole hosts. */
#include "base/memory.h"
#include "coordinator/host/doctor.h"
#include "coordinator/host/environment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>

/* A host on which every fact is known and nothing disturbs. */
static const char quiet_host[] =
    "{\"host\": \"quiet\", \"command_line\": \"ro quiet\", \"clock_source\": \"tsc\", \"vdso\": true,"
    " \"clock_monotonic_cost_ns\": 25.0, \"timer_slack_ns\": 50000, \"scheduling_policy\": \"other\","
    " \"affinity\": \"0-7\", \"affinity_cpu_count\": 8, \"online_cpu_count\": 8, \"measured_cpu_count\": 2,"
    " \"housekeeping_cpu_count\": 1, \"governor\": \"performance\", \"turbo\": false,"
    " \"turbo_switch\": \"devices/system/cpu/intel_pstate/no_turbo\", \"idle_exit_us\": 10, \"busy_most_x\": "
    "0.05,"
    " \"sibling_busy_most_x\": 0.05, \"steal_most_x\": 0.0, \"steal_since_boot_x\": 0.0, \"load_1m\": 0.5,"
    " \"cgroup_quota_cpus\": null, \"cgroup_quota_cpus_null_reason\": \"no_limit\", \"cgroup_quota_us\": "
    "300000,"
    " \"cgroup_period_us\": 100000, \"cgroup_periods\": 40, \"cgroup_throttled_periods\": 0,"
    " \"cgroup_throttled_ns\": 0, \"pressure_cpu_10s_percent\": 1.0, \"pressure_memory_10s_percent\": 0.0,"
    " \"pressure_io_10s_percent\": 0.0, \"aslr\": 2, \"pmu\": true, \"pmu_error\": null, \"cpus\": ["
    " {\"cpu\": 1, \"role\": \"measured\", \"core\": 1, \"governor\": \"performance\", \"busy_x\": 0.05},"
    " {\"cpu\": 2, \"role\": \"measured\", \"core\": 2, \"governor\": \"performance\", \"busy_x\": 0.0},"
    " {\"cpu\": 0, \"role\": \"housekeeping\", \"core\": 0, \"governor\": \"powersave\", \"busy_x\": 0.9},"
    " {\"cpu\": 5, \"role\": \"sibling\", \"core\": 1, \"governor\": \"powersave\", \"busy_x\": 0.05}]}";

enum { MEASURED_1, MEASURED_2, HOUSEKEEPING_0, SIBLING_5, HOST = -1 };

/* A value at a fact of the host, or of one of its CPUs. */
struct change {
    const char *fact, *json;
    int cpu;
};

static void apply(json_t *host, struct change change)
{
    json_t *object =
        change.cpu == HOST ? host : json_array_get(json_object_get(host, "cpus"), (size_t)change.cpu);
    json_t *value = json_loads(change.json, JSON_DECODE_ANY, NULL);
    assert_non_null(object);
    assert_non_null(value);
    assert_int_equal(json_object_set_new(object, change.fact, value), 0);
}

static struct doctor *examine(json_t *host)
{
    json_t *list = json_pack("[O]", host);
    scoped_free char *text = json_dumps(list, 0);
    struct doctor *doctor = NULL;
    struct error err = {0};
    json_decref(list);
    if (doctor_examine(text, &doctor, &err) < 0)
        fail_msg("%s", err.text);
    return doctor;
}

static struct doctor *examine_changed(const struct change *changes, size_t count)
{
    json_t *host = json_loads(quiet_host, 0, NULL);
    assert_non_null(host);
    for (size_t i = 0; i < count; i++)
        apply(host, changes[i]);
    struct doctor *doctor = examine(host);
    json_decref(host);
    return doctor;
}

/* "governor=warning turbo=warning" */
static char *list_findings(const struct doctor *doctor)
{
    char *text = memory_text("");
    for (size_t i = 0; i < doctor->finding_count; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];
        char *longer = memory_format("%s%s%s=%s", text, i ? " " : "", finding->id,
                                     doctor_severity_name(finding->severity));
        free(text);
        text = longer;
    }
    return text;
}

static void test_quiet(void **state)
{
    (void)state;
    struct doctor *doctor = examine_changed(NULL, 0);
    scoped_free char *found = list_findings(doctor);
    assert_string_equal(found, "");
    assert_int_equal(doctor->unchecked_count, 0);
    assert_false(doctor_disturbed(doctor));
    assert_string_equal(doctor->host, "quiet");
    doctor_free(doctor);
}

#define CHANGES_MOST 3

/* What is changed, what alone is found then, and its first words. */
static const struct rule_case {
    struct change changes[CHANGES_MOST];
    const char *found, *what;
} rule_cases[] = {
    {{{"cgroup_quota_cpus", "3.0", HOST}},
     "cgroup_quota=warning",
     "a cgroup quota allows 3 CPUs (300000 us in 100000 us), 2 are to be measured"},
    {{{"cgroup_quota_cpus", "2.0", HOST}}, "cgroup_quota=severe", "a cgroup quota allows 2 CPUs"},
    {{{"cgroup_throttled_periods", "3", HOST}, {"cgroup_throttled_ns", "5000000", HOST}},
     "cgroup_throttled=warning",
     "the cgroup was throttled in 3 of 40 periods, 5.00 ms in all"},
    {{{"steal_most_x", "0.05", HOST}}, "steal=warning", "the hypervisor took 5.0 % of a measured CPU"},
    {{{"steal_since_boot_x", "0.001", HOST}},
     "steal=warning",
     "the hypervisor took 0.1 % of the CPU time since boot"},
    {{{"steal_since_boot_x", "0.0009", HOST}}, "steal=note", "the hypervisor took 0.09 % of the CPU time"},
    {{{"busy_x", "0.1", MEASURED_1}, {"busy_most_x", "0.1", HOST}},
     "busy_neighbours=warning",
     "measured CPU 1 busy for up to 10 % of a short sample"},
    {{{"busy_x", "0.0999", MEASURED_1}, {"busy_most_x", "0.0999", HOST}}, "", NULL},
    {{{"busy_x", "0.1", SIBLING_5}, {"sibling_busy_most_x", "0.1", HOST}},
     "busy_sibling=warning",
     "CPU 5, on the core of a measured one, busy for up to 10 %"},
    {{{"busy_x", "0.0999", SIBLING_5}, {"sibling_busy_most_x", "0.0999", HOST}}, "", NULL},
    {{{"core", "1", MEASURED_2}}, "shared_cores=warning", "measured CPUs 1-2 share cores with each other"},
    {{{"core", "null", MEASURED_1}, {"core", "null", MEASURED_2}}, "", NULL},
    {{{"core", "2", HOUSEKEEPING_0}},
     "shared_housekeeping=note",
     "housekeeping CPU 0 on a core that is measured"},
    {{{"housekeeping_cpu_count", "0", HOST}}, "no_housekeeping=warning", "no CPU is left for housekeeping"},
    {{{"governor", "\"powersave\"", MEASURED_2},
      {"governor", "null", HOST},
      {"governor_null_reason", "\"mixed\"", HOST}},
     "governor=warning",
     "CPU 2: governor is not 'performance'"},
    {{{"governor", "\"powersave\"", MEASURED_1},
      {"governor", "\"powersave\"", MEASURED_2},
      {"governor", "\"powersave\"", HOST}},
     "governor=warning",
     "CPUs 1-2: governor is 'powersave', not 'performance'"},
    {{{"turbo", "true", HOST}},
     "turbo=warning",
     "turbo is on (/sys/devices/system/cpu/intel_pstate/no_turbo)"},
    {{{"idle_exit_us", "51", HOST}}, "idle_exit=note", "the deepest idle state takes up to 51 us to leave"},
    {{{"idle_exit_us", "50", HOST}}, "", NULL},
    {{{"clock_source", "\"hpet\"", HOST}}, "clock_source=warning", "clock source is 'hpet'"},
    {{{"clock_source", "\"kvm-clock\"", HOST}}, "", NULL},
    {{{"clock_source", "\"arch_sys_counter\"", HOST}}, "", NULL},
    {{{"clock_monotonic_cost_ns", "201.0", HOST}},
     "clock_cost=warning",
     "a read of the monotonic clock takes 201 ns"},
    {{{"clock_monotonic_cost_ns", "201.0", HOST}, {"vdso", "false", HOST}},
     "clock_cost=warning",
     "a read of the monotonic clock takes 201 ns, and the kernel maps no vDSO"},
    {{{"clock_monotonic_cost_ns", "200.0", HOST}}, "", NULL},
    {{{"timer_slack_ns", "50001", HOST}}, "timer_slack=warning", "timer slack is 50.0 us, not 50 us"},
    {{{"timer_slack_ns", "1", HOST}}, "timer_slack=warning", "timer slack is 1.00 ns, not 50 us"},
    {{{"scheduling_policy", "\"fifo\"", HOST}},
     "scheduling_policy=warning",
     "scheduling policy is 'fifo', not 'other'"},
    {{{"pressure_cpu_10s_percent", "5.0", HOST}},
     "cpu_pressure=warning",
     "tasks waited for a CPU in 5.0 % of"},
    {{{"pressure_cpu_10s_percent", "4.99", HOST}}, "", NULL},
    {{{"pressure_memory_10s_percent", "5.0", HOST}},
     "memory_pressure=warning",
     "tasks waited for memory in 5.0 %"},
    {{{"pressure_io_10s_percent", "5.0", HOST}}, "io_pressure=note", "tasks waited for I/O in 5.0 %"},
    {{{"load_1m", "6.01", HOST}},
     "load=note",
     "load of the last minute is 6.01, with 6 CPUs beside the measured"},
    {{{"load_1m", "6.0", HOST}}, "", NULL},
    {{{"measured_cpu_count", "8", HOST}, {"load_1m", "0.51", HOST}},
     "load=note",
     "load of the last minute is 0.51, with 0 CPUs beside"},
    {{{"measured_cpu_count", "8", HOST}}, "", NULL},
    {{{"affinity_cpu_count", "7", HOST}}, "affinity=note", "this process may use 7 of 8 CPUs (0-7)"},
    {{{"aslr", "0", HOST}}, "aslr=warning", "address space randomisation is off"},
    {{{"aslr", "1", HOST}}, "aslr=warning", "address space randomisation is partly off"},
    {{{"command_line", "\"ro mitigations=off\"", HOST}},
     "no_mitigations=note",
     "mitigations of CPU defects are off"},
    {{{"command_line", "\"ro mitigations=off,x\"", HOST}}, "", NULL},
    {{{"pmu", "false", HOST}, {"pmu_error", "\"the kernel has none\"", HOST}},
     "no_pmu=note",
     "no hardware counters: the kernel has none"},
};

static void test_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rule_cases / sizeof *rule_cases; i++) {
        const struct rule_case *rule = &rule_cases[i];
        size_t count = 0;
        while (count < CHANGES_MOST && rule->changes[count].fact)
            count++;
        struct doctor *doctor = examine_changed(rule->changes, count);
        scoped_free char *found = list_findings(doctor);
        if (strcmp(found, rule->found) != 0)
            fail_msg("%s = %s: found '%s', not '%s'", rule->changes[0].fact, rule->changes[0].json, found,
                     rule->found);
        if (rule->what && strncmp(doctor->findings[0].what, rule->what, strlen(rule->what)) != 0)
            fail_msg("'%s' does not begin with '%s'", doctor->findings[0].what, rule->what);
        assert_int_equal(doctor->unchecked_count, 0);
        assert_int_equal(doctor_disturbed(doctor), *found && !strstr(found, "=note"));
        doctor_free(doctor);
    }
}

/* Facts that nobody knows: each rule is unchecked, none is found. */
static void test_unknown(void **state)
{
    (void)state;
    json_t *host = json_object();
    struct doctor *doctor = examine(host);
    assert_int_equal(doctor->finding_count, 0);
    assert_int_equal(doctor->unchecked_count, 23);
    for (size_t i = 0; i < doctor->unchecked_count; i++)
        assert_string_equal(doctor->unchecked[i].reason, "not_stored");
    doctor_free(doctor);
    json_decref(host);

    const struct change changes[] = {{"turbo", "null", HOST}, {"turbo_null_reason", "\"no_cpufreq\"", HOST}};
    doctor = examine_changed(changes, 2);
    assert_int_equal(doctor->unchecked_count, 1);
    assert_string_equal(doctor->unchecked[0].id, "turbo");
    assert_string_equal(doctor->unchecked[0].fact, "turbo");
    assert_string_equal(doctor->unchecked[0].reason, "no_cpufreq");
    doctor_free(doctor);
}

static void test_no_host(void **state)
{
    static const char *const texts[] = {"", "[]", "{}", "[1]", "null", "[", "[[]]"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct doctor *untouched = (struct doctor *)&untouched, *doctor = untouched;
        struct error err = {0};
        assert_int_equal(doctor_examine(texts[i], &doctor, &err), -1);
        assert_int_equal(err.kind, ERROR_INTERNAL);
        assert_ptr_equal(doctor, untouched);
    }
    doctor_free(NULL);
}

/* Facts of the wrong kind, as an edited store may hold them, are no more than not found. */
static void test_wrong_kinds(void **state)
{
    (void)state;
    static const char *const values[] = {"{}", "[]", "\"x\"", "-1e300", "1e300", "true", "[[1]]"};
    json_t *quiet = json_loads(quiet_host, 0, NULL);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const char *fact;
        json_t *value;
        json_object_foreach(quiet, fact, value)
        {
            struct doctor *doctor = examine_changed(&(struct change){fact, values[i], HOST}, 1);
            assert_true(doctor->finding_count <= 2);
            doctor_free(doctor);
        }
    }
    json_decref(quiet);
}

/* ---- recorded hosts ---- */

struct recorded {
    const char *tree;
    int64_t measured[2], housekeeping[2];
    size_t measured_count, housekeeping_count;
    int pmu_errno;
    const char *found;
};

static char *read_recorded(const struct recorded *host)
{
    scoped_free char *proc = memory_format(COREFAN_HOSTS "/%s/proc", host->tree),
                     *sys = memory_format(COREFAN_HOSTS "/%s/sys", host->tree),
                     *later = memory_format(COREFAN_HOSTS "/%s/proc.later", host->tree);
    const struct environment_probe probe = {
        .tick_ns = 4000000, .monotonic_cost_ns = 25, .vdso = true, .pmu_errno = host->pmu_errno};
    const struct environment_request request = {.roots = {proc, sys},
                                                .later_proc = later,
                                                .probe = &probe,
                                                .measured = host->measured,
                                                .measured_count = host->measured_count,
                                                .housekeeping = host->housekeeping,
                                                .housekeeping_count = host->housekeeping_count};
    char *text = NULL;
    struct error err = {0};
    assert_int_equal(environment_read(&request, &text, &err), 0);
    return text;
}

static const struct recorded recorded_hosts[] = {
    {"laptop", {1}, {0}, 1, 1, 0, "busy_sibling=warning governor=warning turbo=warning idle_exit=note"},
    {"container",
     {2, 3},
     {0, 1},
     2,
     2,
     EACCES,
     "cgroup_quota=severe cgroup_throttled=warning steal=note busy_neighbours=warning clock_source=warning "
     "scheduling_policy=warning load=note affinity=note no_mitigations=note no_pmu=note"},
    {"virtual",
     {0, 1},
     {0},
     2,
     0,
     ENOENT,
     "steal=warning shared_cores=warning no_housekeeping=warning load=note no_pmu=note"},
};

/* The findings of the facts are those that stand beside the facts. */
static void test_recorded(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recorded_hosts / sizeof *recorded_hosts; i++) {
        scoped_free char *text = read_recorded(&recorded_hosts[i]);
        struct doctor *doctor = NULL;
        struct error err = {0};
        assert_int_equal(doctor_examine(text, &doctor, &err), 0);
        scoped_free char *found = list_findings(doctor);
        assert_string_equal(found, recorded_hosts[i].found);
        assert_true(doctor_disturbed(doctor));
        json_t *list = json_loads(text, 0, NULL);
        const json_t *kept = json_object_get(json_array_get(list, 0), "findings");
        assert_int_equal(json_array_size(kept), doctor->finding_count);
        for (size_t k = 0; k < doctor->finding_count; k++) {
            const json_t *finding = json_array_get(kept, k);
            const struct {
                const char *key, *value;
            } members[] = {{"id", doctor->findings[k].id},
                           {"severity", doctor_severity_name(doctor->findings[k].severity)},
                           {"what", doctor->findings[k].what},
                           {"why", doctor->findings[k].why},
                           {"remedy", doctor->findings[k].remedy}};
            for (size_t m = 0; m < sizeof members / sizeof *members; m++)
                assert_string_equal(json_string_value(json_object_get(finding, members[m].key)),
                                    members[m].value);
        }
        json_decref(list);
        doctor_free(doctor);
    }
}

/* ---- print ---- */

static char *printed(const struct doctor *doctor, int (*print)(const struct doctor *, FILE *))
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    assert_int_equal(print(doctor, out), 0);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void test_text(void **state)
{
    (void)state;
    const struct change changes[] = {
        {"aslr", "1", HOST}, {"turbo", "null", HOST}, {"turbo_null_reason", "\"no_cpufreq\"", HOST}};
    struct doctor *doctor = examine_changed(changes, 3);
    scoped_free char *text = printed(doctor, doctor_print_text);
    assert_string_equal(
        text, "warning  address space randomisation is partly off\n"
              "  why    every process gets the same layout: a lucky or unlucky one repeats itself and "
              "passes for an\n"
              "         effect\n"
              "  remedy sysctl kernel.randomize_va_space=2\n"
              "         not checked: turbo (no_cpufreq)\n");
    doctor_free(doctor);
    doctor = examine_changed(NULL, 0);
    scoped_free char *quiet = printed(doctor, doctor_print_text);
    assert_string_equal(quiet, "quiet    nothing was found that disturbs measurements here\n");
    doctor_free(doctor);
}

/* No line is wider than the page, none holds what a terminal would obey. */
static void test_text_is_safe(void **state)
{
    (void)state;
    const struct change changes[] = {{"clock_source", "\"\\u001b[2J\\u00e9\\n\"", HOST}};
    struct doctor *doctor = examine_changed(changes, 1);
    scoped_free char *text = printed(doctor, doctor_print_text);
    size_t column = 0;
    for (const char *at = text; *at; at++) {
        assert_true(*at == '\n' || (*at >= ' ' && *at <= '~'));
        column = *at == '\n' ? 0 : column + 1;
        assert_true(column <= 100);
    }
    doctor_free(doctor);
}

static void test_json(void **state)
{
    (void)state;
    const struct change changes[] = {
        {"aslr", "0", HOST}, {"turbo", "null", HOST}, {"turbo_null_reason", "\"no_cpufreq\"", HOST}};
    struct doctor *doctor = examine_changed(changes, 3);
    scoped_free char *text = printed(doctor, doctor_print_json);
    json_t *object = json_loads(text, 0, NULL);
    const char *id = NULL, *fact = NULL, *reason = NULL, *severity = NULL;
    int disturbed = 0;
    assert_int_equal(json_unpack(object, "{s:b, s:[{s:s, s:s}], s:[{s:s, s:s}]}", "disturbed", &disturbed,
                                 "findings", "id", &id, "severity", &severity, "unchecked", "fact", &fact,
                                 "reason", &reason),
                     0);
    assert_true(disturbed);
    assert_string_equal(id, "aslr");
    assert_string_equal(severity, "warning");
    assert_string_equal(fact, "turbo");
    assert_string_equal(reason, "no_cpufreq");
    json_decref(object);
    doctor_free(doctor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quiet),   cmocka_unit_test(test_rules),        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_no_host), cmocka_unit_test(test_wrong_kinds),  cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_text),    cmocka_unit_test(test_text_is_safe), cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
