#include "coordinator/host/doctor.h"

#include "base/memory.h"
#include "base/units.h"
#include "coordinator/host/topology.h"

#include <jansson.h>
#include <string.h>

#define BUSY_X           0.10  /* of a sample of 20 ticks: 2 of them */
#define STEAL_X          0.001 /* since boot: beyond this it is more than start-up */
#define PRESSURE_PERCENT 5.0
#define DEFAULT_SLACK_NS 50000
#define CLOCK_COST_NS    200.0 /* a read without a system call takes 15 to 60 ns; with one, several hundred */
#define IDLE_EXIT_US     50
#define FACTS_MOST       3
#define PAGE_COLUMNS     100
#define FINDING_INDENT   9

/* ---- reading facts ---- */

static double number_of(const json_t *object, const char *fact)
{
    return json_number_value(json_object_get(object, fact));
}

static const char *text_of(const json_t *object, const char *fact)
{
    const char *text = json_string_value(json_object_get(object, fact));
    return text ? text : "";
}

static bool is_true(const json_t *object, const char *fact)
{
    return json_is_true(json_object_get(object, fact));
}

static bool plays(const json_t *cpu, const char *role)
{
    return strcmp(text_of(cpu, "role"), role) == 0;
}

static int64_t core_of(const json_t *cpu)
{
    const json_t *core = json_object_get(cpu, "core");
    return json_is_integer(core) ? json_integer_value(core) : -1;
}

/* "CPUs 1-3": those of a role that pass.  NULL: none. */
static char *name_cpus(const json_t *host, const char *role,
                       bool (*pass)(const json_t *host, const json_t *cpu))
{
    const json_t *list = json_object_get(host, "cpus"), *cpu;
    scoped_free int64_t *cpus = memory_zeroed(json_array_size(list), sizeof *cpus);
    size_t i, count = 0;
    json_array_foreach(list, i, cpu) if (plays(cpu, role) && pass(host, cpu)) cpus[count++] =
        json_integer_value(json_object_get(cpu, "cpu"));
    scoped_free char *text = topology_list_text(cpus, count);
    return count ? memory_format("CPU%s %s", count > 1 ? "s" : "", text) : NULL;
}

/* ---- tests: what was found, to free(), or NULL ---- */

static bool is_slow_governor(const json_t *host, const json_t *cpu)
{
    (void)host;
    return strcmp(text_of(cpu, "governor"), "performance") != 0;
}

static char *find_governor(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    const char *governor = text_of(host, "governor");
    scoped_free char *cpus = name_cpus(host, "measured", is_slow_governor);
    if (!cpus)
        return NULL;
    return *governor ? memory_format("%s: governor is '%s', not 'performance'", cpus, governor)
                     : memory_format("%s: governor is not 'performance'", cpus);
}

static char *find_turbo(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    return is_true(host, "turbo") ? memory_format("turbo is on (/sys/%s)", text_of(host, "turbo_switch"))
                                  : NULL;
}

/* Does a CPU of that role share this one's core? */
static bool has_peer(const json_t *host, const json_t *cpu, const char *role)
{
    const json_t *list = json_object_get(host, "cpus"), *other;
    size_t i;
    json_array_foreach(list, i, other) if (other != cpu && plays(other, role) && core_of(cpu) >= 0 &&
                                           core_of(other) == core_of(cpu)) return true;
    return false;
}

static bool shares_with_measured(const json_t *host, const json_t *cpu)
{
    return has_peer(host, cpu, "measured");
}

static char *find_shared_cores(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    scoped_free char *cpus = name_cpus(host, "measured", shares_with_measured);
    return cpus ? memory_format("measured %s share cores with each other", cpus) : NULL;
}

static char *find_shared_housekeeping(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    scoped_free char *cpus = name_cpus(host, "housekeeping", shares_with_measured);
    return cpus ? memory_format("housekeeping %s on a core that is measured", cpus) : NULL;
}

static bool is_busy(const json_t *host, const json_t *cpu)
{
    (void)host;
    return number_of(cpu, "busy_x") >= BUSY_X;
}

static char *find_busy_sibling(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    scoped_free char *cpus = name_cpus(host, "sibling", is_busy);
    return cpus ? memory_format("%s, on the core of a measured one, busy for up to %.0f %% of a short sample",
                                cpus, number_of(host, "sibling_busy_most_x") * 100)
                : NULL;
}

static char *find_busy_neighbours(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    scoped_free char *cpus = name_cpus(host, "measured", is_busy);
    return cpus ? memory_format(
                      "measured %s busy for up to %.0f %% of a short sample, with nothing of ours on it",
                      cpus, number_of(host, "busy_most_x") * 100)
                : NULL;
}

static char *find_load(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    double spare = number_of(host, "online_cpu_count") - number_of(host, "measured_cpu_count"),
           load = number_of(host, "load_1m");
    return load > (spare > 0 ? spare : 0.5)
               ? memory_format("load of the last minute is %.2f, with %.0f CPU%s beside the measured ones",
                               load, spare > 0 ? spare : 0, spare == 1 ? "" : "s")
               : NULL;
}

static char *find_steal(const json_t *host, enum doctor_severity *severity)
{
    double sampled = number_of(host, "steal_most_x"), since_boot = number_of(host, "steal_since_boot_x");
    if (sampled > 0)
        return memory_format(
            "the hypervisor took %.1f %% of a measured CPU in a short sample, %.3g %% since boot",
            sampled * 100, since_boot * 100);
    if (since_boot < STEAL_X)
        *severity = DOCTOR_NOTE;
    return since_boot > 0
               ? memory_format("the hypervisor took %.3g %% of the CPU time since boot", since_boot * 100)
               : NULL;
}

static char *find_no_pmu(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    const char *error = text_of(host, "pmu_error");
    if (is_true(host, "pmu"))
        return NULL;
    return memory_format("no hardware counters%s%s", *error ? ": " : "", error);
}

static char *find_timer_slack(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    char slack[32];
    double slack_ns = number_of(host, "timer_slack_ns");
    if (slack_ns == DEFAULT_SLACK_NS)
        return NULL;
    return memory_format("timer slack is %s, not 50 us",
                         units_format_duration(slack, sizeof slack, slack_ns));
}

static char *find_policy(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    const char *policy = text_of(host, "scheduling_policy");
    return strcmp(policy, "other") != 0 ? memory_format("scheduling policy is '%s', not 'other'", policy)
                                        : NULL;
}

static char *find_quota(const json_t *host, enum doctor_severity *severity)
{
    double cpus = number_of(host, "cgroup_quota_cpus"), measured = number_of(host, "measured_cpu_count");
    if (cpus <= measured)
        *severity = DOCTOR_SEVERE;
    return memory_format("a cgroup quota allows %.3g CPUs (%.0f us in %.0f us), %.0f are to be measured",
                         cpus, number_of(host, "cgroup_quota_us"), number_of(host, "cgroup_period_us"),
                         measured);
}

static char *find_throttling(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    char lost[32];
    double periods = number_of(host, "cgroup_throttled_periods");
    if (periods <= 0)
        return NULL;
    (void)units_format_duration(lost, sizeof lost, number_of(host, "cgroup_throttled_ns"));
    return memory_format("the cgroup was throttled in %.0f of %.0f periods, %s in all", periods,
                         number_of(host, "cgroup_periods"), lost);
}

static char *find_affinity(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    double allowed = number_of(host, "affinity_cpu_count"), online = number_of(host, "online_cpu_count");
    return allowed < online ? memory_format("this process may use %.0f of %.0f CPUs (%s)", allowed, online,
                                            text_of(host, "affinity"))
                            : NULL;
}

/* Clock sources whose reads the vDSO serves without a system call. */
static const char *const fast_clock_sources[] = {
    "tsc",      "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource",
    "timebase", "tod",
};

static char *find_clock_source(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    const char *clock = text_of(host, "clock_source");
    for (size_t i = 0; i < sizeof fast_clock_sources / sizeof *fast_clock_sources; i++)
        if (strcmp(clock, fast_clock_sources[i]) == 0)
            return NULL;
    return memory_format("clock source is '%s', which takes a system call to read", clock);
}

static char *find_clock_cost(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    char cost[32];
    double cost_ns = number_of(host, "clock_monotonic_cost_ns");
    (void)units_format_duration(cost, sizeof cost, cost_ns);
    return cost_ns > CLOCK_COST_NS
               ? memory_format("a read of the monotonic clock takes %s%s", cost,
                               is_true(host, "vdso") ? "" : ", and the kernel maps no vDSO")
               : NULL;
}

static char *find_no_housekeeping(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    return number_of(host, "housekeeping_cpu_count") < 1
               ? memory_text("no CPU is left for housekeeping: heartbeats go out between rounds only")
               : NULL;
}

static char *find_aslr(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    double level = number_of(host, "aslr");
    return level < 2 ? memory_format("address space randomisation is %s", level < 1 ? "off" : "partly off")
                     : NULL;
}

static char *find_no_mitigations(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    scoped_free char *line = memory_format(" %s ", text_of(host, "command_line"));
    return strstr(line, " mitigations=off ") ? memory_text("mitigations of CPU defects are off") : NULL;
}

static char *find_idle_exit(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    double exit_us = number_of(host, "idle_exit_us");
    return exit_us > IDLE_EXIT_US
               ? memory_format("the deepest idle state takes up to %.0f us to leave", exit_us)
               : NULL;
}

static char *find_pressure(const json_t *host, const char *fact, const char *waited_for)
{
    double percent = number_of(host, fact);
    return percent >= PRESSURE_PERCENT
               ? memory_format("tasks waited for %s in %.1f %% of the last 10 s", waited_for, percent)
               : NULL;
}

static char *find_cpu_pressure(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    return find_pressure(host, "pressure_cpu_10s_percent", "a CPU");
}

static char *find_memory_pressure(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    return find_pressure(host, "pressure_memory_10s_percent", "memory");
}

static char *find_io_pressure(const json_t *host, enum doctor_severity *severity)
{
    (void)severity;
    return find_pressure(host, "pressure_io_10s_percent", "I/O");
}

/* ---- the table ---- */

static const struct rule {
    const char *id;
    enum doctor_severity severity; /* unless the test says another */
    const char *facts[FACTS_MOST]; /* that must be known */
    char *(*find)(const json_t *host, enum doctor_severity *severity);
    const char *why, *remedy;
} rules[] = {
    {"cgroup_quota",
     DOCTOR_WARNING,
     {"cgroup_quota_cpus"},
     find_quota,
     "once the quota of a period is spent, every thread stands still until the next one",
     "raise or remove the limit (docker --cpus, Kubernetes limits.cpu, systemd CPUQuota=), or measure fewer "
     "CPUs"},
    {"cgroup_throttled",
     DOCTOR_WARNING,
     {"cgroup_throttled_periods"},
     find_throttling,
     "rounds that stood still in between look slow",
     "raise or remove the limit; what counts is whether it grows during a run"},
    {"steal",
     DOCTOR_WARNING,
     {"steal_most_x", "steal_since_boot_x"},
     find_steal,
     "time that other guests of this machine take is wall time, and can be CPU time, of the round it falls "
     "into",
     "use a dedicated or bare-metal machine, or CPUs pinned to this guest; else more rounds and processes"},
    {"busy_neighbours",
     DOCTOR_WARNING,
     {"busy_most_x"},
     find_busy_neighbours,
     "whatever runs there takes turns with the measured thread and empties its caches",
     "stop it, move it (taskset, cpuset), or choose other CPUs with --cpus"},
    {"busy_sibling",
     DOCTOR_WARNING,
     {"sibling_busy_most_x"},
     find_busy_sibling,
     "the two hardware threads of a core share its execution units: each is slower while the other works",
     "stop what runs there, or switch it off: echo off > /sys/devices/system/cpu/smt/control"},
    {"shared_cores",
     DOCTOR_WARNING,
     {"measured_cpu_count"},
     find_shared_cores,
     "the two hardware threads of a core share its execution units: they do not count as two cores",
     "measure one hardware thread per core: --workers auto, or one of each pair in --cpus"},
    {"shared_housekeeping",
     DOCTOR_NOTE,
     {"housekeeping_cpu_count"},
     find_shared_housekeeping,
     "coordinator and sessions slow the measured thread of the same core down while they work",
     "leave a whole core out of --cpus, or name one with --housekeeping"},
    {"no_housekeeping",
     DOCTOR_WARNING,
     {"housekeeping_cpu_count"},
     find_no_housekeeping,
     "coordinator, sessions and ZeroMQ's threads take turns with what is measured",
     "measure one CPU less (--workers N, --cpus LIST), so that one is left"},
    {"governor",
     DOCTOR_WARNING,
     {"governor"},
     find_governor,
     "the clock rate follows the load: short bursts run slower than long ones, and the first rounds slower "
     "than the "
     "rest",
     "cpupower frequency-set -g performance"},
    {"turbo",
     DOCTOR_WARNING,
     {"turbo"},
     find_turbo,
     "the clock rate depends on heat and on how many cores work: one core alone runs faster than all "
     "together",
     "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo, or echo 0 > "
     "/sys/devices/system/cpu/cpufreq/boost"},
    {"idle_exit",
     DOCTOR_NOTE,
     {"idle_exit_us"},
     find_idle_exit,
     "a CPU that slept deeply wakes up late, and how deeply depends on how long it expected to sleep",
     "cpupower idle-set -D 50, or the kernel option processor.max_cstate=1"},
    {"clock_source",
     DOCTOR_WARNING,
     {"clock_source"},
     find_clock_source,
     "each reading of the clock costs as much as what lies between two of them",
     "boot with clocksource=tsc tsc=reliable where the hardware allows it; see the kernel's log for why it "
     "was left"},
    {"clock_cost",
     DOCTOR_WARNING,
     {"clock_monotonic_cost_ns"},
     find_clock_cost,
     "each reading of the clock costs as much as what lies between two of them",
     "leave tracers, seccomp sandboxes and emulated kernels that intercept system calls; check the clock "
     "source"},
    {"timer_slack",
     DOCTOR_WARNING,
     {"timer_slack_ns"},
     find_timer_slack,
     "poll and epoll wake up as late as the slack allows, so waits cannot be compared with other hosts'",
     "start from a shell or unit with the default (systemd: TimerSlackNSec=50us)"},
    {"scheduling_policy",
     DOCTOR_WARNING,
     {"scheduling_policy"},
     find_policy,
     "wake-ups are ordered and granted otherwise than on a host as it comes",
     "start without chrt, nice tools or a unit's CPUSchedulingPolicy=; chrt -o 0 corefan ... goes back"},
    {"cpu_pressure",
     DOCTOR_WARNING,
     {"pressure_cpu_10s_percent"},
     find_cpu_pressure,
     "more is ready to run than there are CPUs: measured threads may have to queue",
     "stop what else runs (top), or give the measured CPUs to corefan alone"},
    {"memory_pressure",
     DOCTOR_WARNING,
     {"pressure_memory_10s_percent"},
     find_memory_pressure,
     "reclaim and swapping stall threads in places that look like work",
     "free memory, or raise the limit of the cgroup"},
    {"io_pressure",
     DOCTOR_NOTE,
     {"pressure_io_10s_percent"},
     find_io_pressure,
     "the store commits each result to disk, and interrupts of disks land on some CPU",
     "wait for what is writing, or put --out on another disk"},
    {"load",
     DOCTOR_NOTE,
     {"load_1m", "online_cpu_count", "measured_cpu_count"},
     find_load,
     "as long as that goes on, some of it runs on measured CPUs",
     "wait until it is over, stop it, or measure fewer CPUs"},
    {"affinity",
     DOCTOR_NOTE,
     {"affinity_cpu_count", "online_cpu_count"},
     find_affinity,
     "the other CPUs can neither be measured nor take the housekeeping, and may be busy unseen",
     "start without taskset, or widen the cpuset (docker --cpuset-cpus, systemd AllowedCPUs=)"},
    {"aslr",
     DOCTOR_WARNING,
     {"aslr"},
     find_aslr,
     "every process gets the same layout: a lucky or unlucky one repeats itself and passes for an effect",
     "sysctl kernel.randomize_va_space=2"},
    {"no_mitigations",
     DOCTOR_NOTE,
     {"command_line"},
     find_no_mitigations,
     "system calls are cheaper than on a host as it comes: compare with equal hosts only",
     "boot without mitigations=off"},
    {"no_pmu",
     DOCTOR_NOTE,
     {"pmu"},
     find_no_pmu,
     "cycles and instructions per fan-out are null: a change of frequency cannot be told from a change of "
     "work",
     "sysctl kernel.perf_event_paranoid=2 or lower, a container with CAP_PERFMON, or a guest with a virtual "
     "PMU"},
};

#define RULE_COUNT (sizeof rules / sizeof *rules)

/* The first fact of the rule that is not known, and why; NULL: all are.  CPUs that differ are known one by one.  A
 * limit or neighbour that does not exist is known not to disturb: *ret_absent. */
static const char *missing_fact(const json_t *host, const struct rule *rule, const char **ret_reason,
                                bool *ret_absent)
{
    for (size_t i = 0; i < FACTS_MOST && rule->facts[i]; i++) {
        const json_t *fact = json_object_get(host, rule->facts[i]);
        if (fact && !json_is_null(fact))
            continue;
        scoped_free char *name = memory_format("%s_null_reason", rule->facts[i]);
        const char *reason = json_string_value(json_object_get(host, name));
        if (reason && strcmp(reason, "mixed") == 0)
            continue;
        *ret_reason = reason ? reason : "not_stored";
        *ret_absent = reason && (strcmp(reason, "no_limit") == 0 || strcmp(reason, "no_siblings") == 0);
        return rule->facts[i];
    }
    return NULL;
}

static void apply(struct doctor *doctor, const struct rule *rule, const json_t *host)
{
    const char *reason = NULL;
    bool absent = false;
    const char *fact = missing_fact(host, rule, &reason, &absent);
    if (absent)
        return;
    if (fact) {
        doctor->unchecked[doctor->unchecked_count++] =
            (struct doctor_unchecked){.id = rule->id, .fact = fact, .reason = memory_text(reason)};
        return;
    }
    enum doctor_severity severity = rule->severity;
    char *what = rule->find(host, &severity);
    if (what)
        doctor->findings[doctor->finding_count++] = (struct doctor_finding){
            .id = rule->id, .severity = severity, .what = what, .why = rule->why, .remedy = rule->remedy};
}

static struct doctor *examine(const json_t *host)
{
    struct doctor *doctor = memory_zeroed(1, sizeof *doctor);
    doctor->host = memory_text(text_of(host, "host"));
    doctor->findings = memory_zeroed(RULE_COUNT, sizeof *doctor->findings);
    doctor->unchecked = memory_zeroed(RULE_COUNT, sizeof *doctor->unchecked);
    for (size_t i = 0; i < RULE_COUNT; i++)
        apply(doctor, &rules[i], host);
    return doctor;
}

int doctor_examine(const char *environment_json, struct doctor **ret, struct error *err)
{
    json_t *list = json_loads(environment_json, 0, NULL);
    const json_t *host = json_array_get(list, 0);
    int status = json_is_object(host) ? 0 : error_set(err, ERROR_INTERNAL, "the environment holds no host");
    if (status == 0)
        *ret = examine(host);
    json_decref(list);
    return status;
}

void doctor_free(struct doctor *doctor)
{
    if (!doctor)
        return;
    for (size_t i = 0; i < doctor->finding_count; i++)
        free(doctor->findings[i].what);
    for (size_t i = 0; i < doctor->unchecked_count; i++)
        free(doctor->unchecked[i].reason);
    free(doctor->findings);
    free(doctor->unchecked);
    free(doctor->host);
    free(doctor);
}

bool doctor_disturbed(const struct doctor *doctor)
{
    for (size_t i = 0; i < doctor->finding_count; i++)
        if (doctor->findings[i].severity > DOCTOR_NOTE)
            return true;
    return false;
}

const char *doctor_severity_name(enum doctor_severity severity)
{
    static const char *const names[] = {
        [DOCTOR_NOTE] = "note", [DOCTOR_WARNING] = "warning", [DOCTOR_SEVERE] = "severe"};
    return names[severity];
}

/* ---- JSON ---- */

static json_t *findings_array(const struct doctor *doctor)
{
    json_t *list = json_array();
    for (size_t i = 0; i < doctor->finding_count; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];
        json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:s}", "id", finding->id, "severity",
                                   doctor_severity_name(finding->severity), "what", finding->what, "why",
                                   finding->why, "remedy", finding->remedy);
        (void)json_array_append_new(list, object);
    }
    return list;
}

struct json_t *doctor_findings(const struct json_t *host)
{
    struct doctor *doctor = examine(host);
    json_t *list = findings_array(doctor);
    doctor_free(doctor);
    return list;
}

int doctor_print_json(const struct doctor *doctor, FILE *out)
{
    json_t *unchecked = json_array();
    for (size_t i = 0; i < doctor->unchecked_count; i++)
        (void)json_array_append_new(unchecked, json_pack("{s:s, s:s, s:s}", "id", doctor->unchecked[i].id,
                                                         "fact", doctor->unchecked[i].fact, "reason",
                                                         doctor->unchecked[i].reason));
    json_t *object =
        json_pack("{s:s, s:b, s:o, s:o}", "host", doctor->host, "disturbed", doctor_disturbed(doctor),
                  "findings", findings_array(doctor), "unchecked", unchecked);
    int status = object ? json_dumpf(object, out, JSON_INDENT(2)) : -1;
    json_decref(object);
    return status < 0 || fputc('\n', out) == EOF ? -1 : 0;
}

/* ---- text ---- */

/* Words behind a label, broken at PAGE_COLUMNS and set in; what is not printable becomes '?'. */
static void print_wrapped(FILE *out, const char *label, const char *text)
{
    scoped_free char *clean = memory_text(text);
    for (char *at = clean; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    int column = fprintf(out, "%-*s", FINDING_INDENT, label);
    char *rest = clean;
    bool first = true;
    for (const char *word; (word = strtok_r(rest, " ", &rest)); first = false) {
        if (!first && column + 1 + (int)strlen(word) > PAGE_COLUMNS)
            column = fprintf(out, "\n%*s", FINDING_INDENT, "") - 1;
        else if (!first)
            column += fprintf(out, " ");
        column += fprintf(out, "%s", word);
    }
    (void)fputc('\n', out);
}

static void print_unchecked(const struct doctor *doctor, FILE *out)
{
    scoped_free char *text = memory_text("");
    for (size_t i = 0; i < doctor->unchecked_count; i++) {
        const struct doctor_unchecked *rule = &doctor->unchecked[i];
        char *longer = memory_format("%s%s%s (%s)", text, i ? ", " : "not checked: ", rule->id, rule->reason);
        free(text);
        text = longer;
    }
    if (doctor->unchecked_count)
        print_wrapped(out, "", text);
}

int doctor_print_text(const struct doctor *doctor, FILE *out)
{
    for (size_t i = 0; i < doctor->finding_count; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];
        print_wrapped(out, doctor_severity_name(finding->severity), finding->what);
        print_wrapped(out, "  why", finding->why);
        print_wrapped(out, "  remedy", finding->remedy);
    }
    if (doctor->finding_count == 0)
        print_wrapped(out, "quiet", "nothing was found that disturbs measurements here");
    print_unchecked(doctor, out);
    return ferror(out) ? -1 : 0;
}
