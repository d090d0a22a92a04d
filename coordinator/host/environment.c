#include "coordinator/host/environment.h"

#include "base/clock.h"
#include "base/memory.h"
#include "coordinator/host/doctor.h"
#include "coordinator/host/environment_facts.h"

#include <dirent.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

/* ---- system calls ---- */

static int64_t resolution_ns(clockid_t id)
{
    struct timespec ts = {0};
    (void)clock_getres(id, &ts);
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

/* Can the cycles of this thread in user mode be counted?  0 or errno. */
static int pmu_errno(void)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_HW_CPU_CYCLES,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    long fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0)
        return errno;
    (void)close((int)fd);
    return 0;
}

/* The signature in CPUID leaf 0x40000000, where the hypervisor bit says that there is one. */
static void hypervisor_signature(char ret[static 13])
{
    ret[0] = '\0';
#if defined(__x86_64__) || defined(__i386__)
    unsigned eax, ebx, ecx, edx, words[3];
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & (1u << 31)))
        return;
    __cpuid(0x40000000, eax, words[0], words[1], words[2]);
    memcpy(ret, words, sizeof words);
    ret[12] = '\0';
#endif
}

void environment_probe_host(struct environment_probe *ret)
{
    struct environment_probe probe = {
        .monotonic_resolution_ns = resolution_ns(CLOCK_MONOTONIC),
        .thread_cpu_resolution_ns = resolution_ns(CLOCK_THREAD_CPUTIME_ID),
        .tick_ns = resolution_ns(CLOCK_MONOTONIC_COARSE),
        .monotonic_cost_ns = clock_cost_ns(clock_monotonic_ns),
        .thread_cpu_cost_ns = clock_cost_ns(clock_thread_cpu_ns),
        .vdso = getauxval(AT_SYSINFO_EHDR) != 0,
        .pmu_errno = pmu_errno(),
    };
    struct utsname names;
    if (uname(&names) == 0)
        (void)snprintf(probe.machine, sizeof probe.machine, "%s", names.machine);
    hypervisor_signature(probe.hypervisor);
    (void)snprintf(probe.libc_version, sizeof probe.libc_version, "%s", gnu_get_libc_version());
    *ret = probe;
}

/* What perf_event_open means by it (its manual page, ERRORS). */
static const char *pmu_error(int number)
{
    switch (number) {
    case ENOENT:
    case ENODEV:
    case EOPNOTSUPP:
        return "the hardware, or the hypervisor, offers none";
    case EACCES:
    case EPERM:
        return "they may not be used";
    case ENOSYS:
        return "the kernel has none";
    default:
        return "they cannot be opened";
    }
}

/* HZ of the kernel: exact, since the coarse clock's resolution is the tick rounded to ns. */
static json_t *ticks_per_s(const struct environment_probe *probe)
{
    return probe->tick_ns > 0 ? json_integer(llround((double)NS_PER_S / (double)probe->tick_ns)) : NULL;
}

static json_t *rounded_ns(double ns)
{
    return isfinite(ns) ? json_real(round(ns * 1000) / 1000) : NULL;
}

static void put_probe(json_t *host, const struct environment_probe *probe)
{
    const char *why = "not_probed";
    environment_put(host, "machine", probe ? environment_value(FACT_TEXT, probe->machine, &why) : NULL, why);
    environment_put(host, "hz", probe ? ticks_per_s(probe) : NULL, why);
    environment_put(host, "clock_monotonic_resolution_ns",
                    probe ? json_integer(probe->monotonic_resolution_ns) : NULL, why);
    environment_put(host, "clock_thread_cpu_resolution_ns",
                    probe ? json_integer(probe->thread_cpu_resolution_ns) : NULL, why);
    environment_put(host, "clock_monotonic_cost_ns", probe ? rounded_ns(probe->monotonic_cost_ns) : NULL,
                    why);
    environment_put(host, "clock_thread_cpu_cost_ns", probe ? rounded_ns(probe->thread_cpu_cost_ns) : NULL,
                    why);
    environment_put(host, "vdso", probe ? json_boolean(probe->vdso) : NULL, why);
    environment_put(host, "pmu", probe ? json_boolean(probe->pmu_errno == 0) : NULL, why);
    environment_put(host, "pmu_error",
                    probe && probe->pmu_errno ? json_string(pmu_error(probe->pmu_errno)) : NULL,
                    probe ? "no_error" : why);
}

/* ---- one file, one fact ---- */

enum root { PROC, SYS };

static const struct {
    const char *name;
    enum root root;
    const char *path;
    enum environment_kind kind;
} file_facts[] = {
    {"boot_id", PROC, "sys/kernel/random/boot_id", FACT_TEXT},
    {"kernel", PROC, "sys/kernel/osrelease", FACT_TEXT},
    {"kernel_build", PROC, "sys/kernel/version", FACT_TEXT},
    {"command_line", PROC, "cmdline", FACT_TEXT},
    {"clock_source", SYS, "devices/system/clocksource/clocksource0/current_clocksource", FACT_TEXT},
    {"clock_sources", SYS, "devices/system/clocksource/clocksource0/available_clocksource", FACT_TEXT},
    {"timer_slack_ns", PROC, "self/timerslack_ns", FACT_INTEGER},
    {"online_cpus", SYS, "devices/system/cpu/online", FACT_CPUS},
    {"smt_active", SYS, "devices/system/cpu/smt/active", FACT_FLAG},
    {"smt_control", SYS, "devices/system/cpu/smt/control", FACT_TEXT},
    {"idle_driver", SYS, "devices/system/cpu/cpuidle/current_driver", FACT_TEXT},
    {"idle_governor", SYS, "devices/system/cpu/cpuidle/current_governor", FACT_TEXT},
    {"isolated_cpus", SYS, "devices/system/cpu/isolated", FACT_CPUS_ANY},
    {"nohz_full_cpus", SYS, "devices/system/cpu/nohz_full", FACT_CPUS_ANY},
    {"numa_balancing", PROC, "sys/kernel/numa_balancing", FACT_INTEGER},
    {"perf_event_paranoid", PROC, "sys/kernel/perf_event_paranoid", FACT_INTEGER},
};

static void put_files(json_t *host, const struct environment_source *source)
{
    for (size_t i = 0; i < sizeof file_facts / sizeof *file_facts; i++) {
        const char *why = NULL, *root = file_facts[i].root == PROC ? source->proc : source->sys;
        json_t *value = environment_file(file_facts[i].kind, root, file_facts[i].path, &why);
        environment_put(host, file_facts[i].name, value, why);
    }
}

/* ---- files that hold several facts ---- */

static void put_affinity(json_t *host, const struct environment_source *source)
{
    const char *why = NULL;
    scoped_free char *status = environment_text(source->proc, "self/status", &why);
    scoped_free char *cpus = status ? environment_field(status, "Cpus_allowed_list") : NULL;
    if (status)
        why = "unexpected_content";
    json_t *value = environment_value(FACT_CPUS, cpus, &why);
    environment_put(host, "affinity", value, why);
    environment_put(host, "affinity_cpu_count", value ? environment_count(cpus) : NULL, why);
}

/* The word at this place of /proc/self/stat, from 1 (proc(5)); the 2nd may hold spaces and brackets. */
static bool stat_number(const char *stat, int place, int64_t *ret)
{
    const char *end = strrchr(stat, ')');
    scoped_free char *text = memory_text(end ? end + 1 : "");
    char *rest = text, *word = strtok_r(rest, " ", &rest);
    for (int i = 3; word && i < place; i++)
        word = strtok_r(rest, " ", &rest);
    return word && environment_integer(word, ret);
}

static void put_scheduling(json_t *host, const struct environment_source *source)
{
    /* SCHED_* in the kernel's order */
    static const char *const policies[] = {"other", "fifo", "rr", "batch", NULL, "idle", "deadline", "ext"};
    enum { nice_place = 19, policy_place = 41 };
    const char *why = NULL;
    int64_t nice = 0, policy = -1;
    scoped_free char *stat = environment_text(source->proc, "self/stat", &why);
    bool nice_known = stat && stat_number(stat, nice_place, &nice);
    bool policy_known = stat && stat_number(stat, policy_place, &policy) && policy >= 0 &&
                        policy < (int64_t)(sizeof policies / sizeof *policies) && policies[policy];
    if (stat)
        why = "unexpected_content";
    environment_put(host, "scheduling_policy", policy_known ? json_string(policies[policy]) : NULL, why);
    environment_put(host, "nice", nice_known ? json_integer(nice) : NULL, why);
}

static void put_load(json_t *host, const struct environment_source *source)
{
    static const char *const names[] = {"load_1m", "load_5m", "load_15m"};
    const char *why = NULL;
    scoped_free char *text = environment_text(source->proc, "loadavg", &why);
    char *rest = text;
    if (text)
        why = "unexpected_content";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double load;
        char *word = text ? strtok_r(rest, " ", &rest) : NULL;
        bool known = word && environment_decimal(word, &load);
        environment_put(host, names[i], known ? environment_real(load) : NULL, why);
    }
}

/* "some avg10=3.68 avg60=1.72 avg300=1.06 total=..." */
static bool pressure_average(const char *text, double *ret)
{
    scoped_free char *some = environment_field(text, "some");
    char *start = some ? strstr(some, "avg10=") : NULL;
    if (!start)
        return false;
    start += strlen("avg10=");
    start[strcspn(start, " ")] = '\0';
    return environment_decimal(start, ret) && *ret <= 100;
}

static void put_pressure(json_t *host, const struct environment_source *source)
{
    static const char *const kinds[] = {"cpu", "memory", "io"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double percent = 0;
        const char *why = NULL;
        scoped_free char *path = memory_format("pressure/%s", kinds[i]);
        scoped_free char *name = memory_format("pressure_%s_10s_percent", kinds[i]);
        scoped_free char *text = environment_text(source->proc, path, &why);
        bool known = text && pressure_average(text, &percent);
        if (text)
            why = *text ? "unexpected_content" : "empty";
        environment_put(host, name, known ? environment_real(percent) : NULL, why);
    }
}

/* The level of the kernel; 0 when this process was started without (setarch -R): workers inherit that. */
static void put_aslr(json_t *host, const struct environment_source *source)
{
    const char *why = NULL, *no_matter = NULL;
    json_t *level = environment_file(FACT_INTEGER, source->proc, "sys/kernel/randomize_va_space", &why);
    scoped_free char *personality = environment_text(source->proc, "self/personality", &no_matter);
    if (level && personality && strtoul(personality, NULL, 16) & ADDR_NO_RANDOMIZE)
        (void)json_integer_set(level, 0);
    environment_put(host, "aslr", level, why);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void put_mitigations(json_t *host, const struct environment_source *source)
{
    scoped_free char *path = memory_format("%s/devices/system/cpu/vulnerabilities", source->sys);
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, is_visible, alphasort);
    const char *none = count < 0 ? environment_why(errno) : "empty";
    json_t *object = json_object();
    for (int i = 0; i < count; i++) {
        const char *why = NULL;
        json_t *state = environment_file(FACT_TEXT, path, entries[i]->d_name, &why);
        environment_put(object, entries[i]->d_name, state, why);
        free(entries[i]);
    }
    free(entries);
    environment_put(host, "mitigations", json_object_size(object) ? json_incref(object) : NULL, none);
    json_decref(object);
}

/* ---- hypervisor ---- */

static const struct {
    const char *signature, *name;
} hypervisors[] = {
    {"KVMKVMKVM", "kvm"},     {"Microsoft Hv", "hyper-v"},  {"VMwareVMware", "vmware"},
    {"XenVMMXenVMM", "xen"},  {"TCGTCGTCGTCG", "qemu"},     {"bhyve bhyve ", "bhyve"},
    {"ACRNACRNACRN", "acrn"}, {" lrpepyh vr", "parallels"}, {"VBoxVBoxVBox", "oracle"},
};

/* Who it is: by its signature, or else by what the machine calls itself. */
static json_t *hypervisor_name(const struct environment_source *source, const char *signature,
                               const char **ret_why)
{
    static const char *const files[] = {"hypervisor/type", "class/dmi/id/sys_vendor",
                                        "class/dmi/id/product_name"};
    for (size_t i = 0; i < sizeof hypervisors / sizeof *hypervisors; i++)
        if (strcmp(hypervisors[i].signature, signature) == 0)
            return json_string(hypervisors[i].name);
    json_t *name = NULL;
    for (size_t i = 0; !name && i < sizeof files / sizeof *files; i++)
        name = environment_file(FACT_TEXT, source->sys, files[i], ret_why);
    *ret_why = "not_named";
    return name;
}

/* A field of the first CPU in /proc/cpuinfo. */
static char *cpuinfo_field(const struct environment_source *source, const char *key, const char **ret_why)
{
    scoped_free char *text = environment_text(source->proc, "cpuinfo", ret_why);
    char *field = text ? environment_field(text, key) : NULL;
    if (text && !field)
        *ret_why = *text ? "missing" : "empty";
    return field;
}

static void put_model(json_t *host, const struct environment_source *source)
{
    const char *why = NULL;
    double mhz = 0;
    scoped_free char *model = cpuinfo_field(source, "model name", &why);
    json_t *value = environment_value(FACT_TEXT, model, &why);
    environment_put(host, "cpu_model", value, why);
    scoped_free char *frequency = cpuinfo_field(source, "cpu MHz", &why);
    bool known = frequency && environment_decimal(frequency, &mhz);
    environment_put(host, "cpu_mhz", known ? environment_real(mhz) : NULL,
                    frequency ? "unexpected_content" : why);
}

static void put_hypervisor(json_t *host, const struct environment_source *source)
{
    const struct environment_probe *probe = source->request->probe;
    const char *why = NULL, *signature = probe ? probe->hypervisor : "";
    scoped_free char *flags = cpuinfo_field(source, "flags", &why);
    scoped_free char *padded = memory_format(" %s ", flags ? flags : "");
    bool virtual_machine = *signature || strstr(padded, " hypervisor ");
    if (why && strcmp(why, "missing") == 0)
        why = "no_cpu_flag";
    json_t *name = NULL;
    if (virtual_machine)
        name = hypervisor_name(source, signature, &why);
    else if (flags)
        name = json_string("none");
    environment_put(host, "virtual_machine", flags || virtual_machine ? json_boolean(virtual_machine) : NULL,
                    why);
    environment_put(host, "hypervisor", name, why);
}

/* ---- what was built, and the whole ---- */

static void put_versions(json_t *host, const struct environment_probe *probe)
{
    static const char *const built[][2] = {
        {"corefan", COREFAN_VERSION},       {"libuv", COREFAN_UV_VERSION},
        {"libzmq", COREFAN_ZMQ_VERSION},    {"msgpack", COREFAN_MSGPACK_VERSION},
        {"compiler", COREFAN_COMPILER},     {"compiler_flags", COREFAN_FLAGS},
        {"build_type", COREFAN_BUILD_TYPE},
    };
    json_t *versions = json_object();
    for (size_t i = 0; i < sizeof built / sizeof *built; i++) {
        const char *why = NULL;
        json_t *value = environment_value(FACT_TEXT, built[i][1], &why);
        environment_put(versions, built[i][0], value, why);
    }
    const char *why = "not_probed";
    environment_put(versions, "libc", probe ? environment_value(FACT_TEXT, probe->libc_version, &why) : NULL,
                    why);
    environment_put(host, "versions", versions, NULL);
}

static json_t *read_host(const struct environment_source *source)
{
    static void (*const parts[])(json_t *, const struct environment_source *) = {
        put_files,
        put_affinity,
        put_scheduling,
        environment_put_cpus,
        environment_put_cgroup,
        put_pressure,
        put_mitigations,
        put_aslr,
        put_model,
        put_hypervisor,
        put_load,
    };
    json_t *host = json_object();
    const char *why = NULL;
    json_t *name = environment_file(FACT_TEXT, source->proc, "sys/kernel/hostname", &why);
    environment_put(host, "host", name, why);
    put_probe(host, source->request->probe);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        parts[i](host, source);
    put_versions(host, source->request->probe);
    return host;
}

int environment_read(const struct environment_request *request, char **ret_json, struct error *err)
{
    const struct environment_source source = {.proc = request->roots.proc ? request->roots.proc : "/proc",
                                              .sys = request->roots.sys ? request->roots.sys : "/sys",
                                              .request = request};
    json_t *host = read_host(&source), *list = json_array();
    environment_put(host, "findings", doctor_findings(host), "out_of_memory");
    (void)json_array_append_new(list, host);
    char *text = json_dumps(list, JSON_REAL_PRECISION(15) | JSON_INDENT(2));
    json_decref(list);
    if (!text)
        return error_set(err, ERROR_INTERNAL, "out of memory for the facts about this host");
    *ret_json = text;
    return 0;
}

int environment_capture(const int64_t *measured_cpus, size_t measured_count, const int64_t *housekeeping_cpus,
                        size_t housekeeping_count, char **ret_json, struct error *err)
{
    struct environment_probe probe;
    environment_probe_host(&probe);
    const struct environment_request request = {.probe = &probe,
                                                .measured = measured_cpus,
                                                .measured_count = measured_count,
                                                .housekeeping = housekeeping_cpus,
                                                .housekeeping_count = housekeeping_count};
    return environment_read(&request, ret_json, err);
}

const char *environment_build(void)
{
    return COREFAN_COMPILER ", " COREFAN_BUILD_TYPE "; libuv " COREFAN_UV_VERSION
                            ", libzmq " COREFAN_ZMQ_VERSION ", msgpack-c " COREFAN_MSGPACK_VERSION;
}
