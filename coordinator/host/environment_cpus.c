/* Facts about the machine's CPUs, and about those that measure. */
#include "coordinator/host/environment_facts.h"

#include "base/memory.h"
#include "coordinator/host/topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CPU_DIRECTORY "devices/system/cpu/cpu%lld/%s"
#define STATES_MOST   32

/* A list of CPUs that owns its memory; count 0: none, or not known. */
struct cpus {
    int64_t *at;
    size_t count;
};

static struct cpus parse_cpus(const char *text)
{
    struct cpus cpus = {NULL, 0};
    if (!text || topology_parse_list("", text, &cpus.at, &cpus.count, NULL) < 0)
        return (struct cpus){NULL, 0};
    return cpus;
}

static bool has_cpu(const int64_t *cpus, size_t count, int64_t cpu)
{
    for (size_t i = 0; i < count; i++)
        if (cpus[i] == cpu)
            return true;
    return false;
}

static char *cpu_text(const struct environment_source *source, int64_t cpu, const char *path,
                      const char **ret_why)
{
    scoped_free char *name = memory_format(CPU_DIRECTORY, (long long)cpu, path);
    return environment_text(source->sys, name, ret_why);
}

/* The CPUs that share a core (or a package) with this one; older kernels call it by another name. */
static char *peers_text(const struct environment_source *source, int64_t cpu, const char *name,
                        const char *old_name, const char **ret_why)
{
    char *text = cpu_text(source, cpu, name, ret_why);
    return text ? text : cpu_text(source, cpu, old_name, ret_why);
}

static char *core_text(const struct environment_source *source, int64_t cpu, const char **ret_why)
{
    return peers_text(source, cpu, "topology/core_cpus_list", "topology/thread_siblings_list", ret_why);
}

static char *package_text(const struct environment_source *source, int64_t cpu, const char **ret_why)
{
    return peers_text(source, cpu, "topology/package_cpus_list", "topology/core_siblings_list", ret_why);
}

/* ---- counts ---- */

/* How many groups the online CPUs fall into: each is counted at its first online member. */
static json_t *count_groups(const struct environment_source *source, const struct cpus *online,
                            char *(*peers)(const struct environment_source *, int64_t, const char **),
                            const char **ret_why)
{
    int64_t groups = 0;
    for (size_t i = 0; i < online->count; i++) {
        scoped_free char *text = peers(source, online->at[i], ret_why);
        struct cpus members = parse_cpus(text);
        size_t first = 0;
        while (first < members.count && !has_cpu(online->at, online->count, members.at[first]))
            first++;
        bool known = first < members.count;
        groups += known && members.at[first] == online->at[i];
        free(members.at);
        if (known)
            continue;
        if (text)
            *ret_why = "unexpected_content";
        return NULL;
    }
    return online->count ? json_integer(groups) : NULL;
}

static json_t *count_list(const char *text, const char **ret_why)
{
    json_t *count = text ? environment_count(text) : NULL;
    if (text && !count)
        *ret_why = *text ? "unexpected_content" : "empty";
    return count;
}

static void put_counts(json_t *host, const struct environment_source *source)
{
    const char *why = NULL;
    scoped_free char *text = environment_text(source->sys, "devices/system/cpu/online", &why);
    struct cpus online = parse_cpus(text);
    environment_put(host, "online_cpu_count", count_list(text, &why), why);
    environment_put(host, "core_count", count_groups(source, &online, core_text, &why), why);
    environment_put(host, "package_count", count_groups(source, &online, package_text, &why), why);
    free(online.at);
    scoped_free char *nodes = environment_text(source->sys, "devices/system/node/online", &why);
    environment_put(host, "numa_node_count", count_list(nodes, &why), why);
}

/* ---- frequency and sleep ---- */

static void put_turbo(json_t *host, const struct environment_source *source)
{
    static const struct {
        const char *path;
        bool means_off; /* 1 = no turbo */
    } switches[] = {{"devices/system/cpu/intel_pstate/no_turbo", true},
                    {"devices/system/cpu/cpufreq/boost", false}};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        const char *why = NULL;
        json_t *set = environment_file(FACT_FLAG, source->sys, switches[i].path, &why);
        if (!set && why && strcmp(why, "missing") == 0)
            continue;
        environment_put(host, "turbo", set ? json_boolean(json_is_true(set) != switches[i].means_off) : NULL,
                        why);
        environment_put(host, "turbo_switch", json_string(switches[i].path), NULL);
        json_decref(set);
        return;
    }
    environment_put(host, "turbo", NULL, "no_cpufreq");
    environment_put(host, "turbo_switch", NULL, "no_cpufreq");
}

static json_t *idle_state(const struct environment_source *source, int64_t cpu, int state)
{
    static const struct {
        const char *name, *file;
        enum environment_kind kind;
    } facts[] = {{"name", "name", FACT_TEXT},
                 {"exit_us", "latency", FACT_INTEGER},
                 {"disabled", "disable", FACT_FLAG}};
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const char *why = NULL;
        scoped_free char *path = memory_format("cpuidle/state%d/%s", state, facts[i].file);
        scoped_free char *text = cpu_text(source, cpu, path, &why);
        if (i == 0 && !text && strcmp(why, "missing") == 0) {
            json_decref(object);
            return NULL;
        }
        json_t *value = environment_value(facts[i].kind, text, &why);
        environment_put(object, facts[i].name, value, why);
    }
    return object;
}

/* Those of the first measured CPU, and how long the slowest one that may be entered takes to leave. */
static void put_idle_states(json_t *host, const struct environment_source *source)
{
    const struct environment_request *request = source->request;
    const char *why = request->measured_count ? "missing" : "no_measured_cpus";
    json_t *states = json_array();
    json_int_t slowest_us = -1;
    for (int i = 0; request->measured_count && i < STATES_MOST; i++) {
        json_t *state = idle_state(source, request->measured[0], i);
        if (!state)
            break;
        json_t *exit_us = json_object_get(state, "exit_us");
        if (!json_is_true(json_object_get(state, "disabled")) && json_integer_value(exit_us) > slowest_us)
            slowest_us = json_is_integer(exit_us) ? json_integer_value(exit_us) : slowest_us;
        (void)json_array_append_new(states, state);
    }
    bool some = json_array_size(states) > 0;
    environment_put(host, "idle_states", some ? json_incref(states) : NULL, why);
    if (some)
        why = "unexpected_content";
    environment_put(host, "idle_exit_us", slowest_us >= 0 ? json_integer(slowest_us) : NULL, why);
    json_decref(states);
}

/* ---- what the CPUs did while we slept ---- */

struct ticks {
    int64_t total, busy, stolen;
};

enum { TICK_IDLE = 3, TICK_IOWAIT = 4, TICK_STEAL = 7, TICK_COLUMNS = 8 };

/* user nice system idle iowait irq softirq steal; what follows (guests) is part of user. */
static bool parse_ticks(const char *stat, const char *name, struct ticks *ret)
{
    scoped_free char *line = stat ? environment_field(stat, name) : NULL;
    int64_t columns[TICK_COLUMNS], total = 0;
    char *rest = line;
    if (!line)
        return false;
    for (int i = 0; i < TICK_COLUMNS; i++) {
        const char *word = strtok_r(rest, " ", &rest);
        if (!word || !environment_integer(word, &columns[i]) || columns[i] < 0 || columns[i] > INT64_MAX / 16)
            return false;
        total += columns[i];
    }
    *ret = (struct ticks){total, total - columns[TICK_IDLE] - columns[TICK_IOWAIT] - columns[TICK_STEAL],
                          columns[TICK_STEAL]};
    return true;
}

struct sample {
    char *before, *after; /* texts of /proc/stat, or NULL */
    const char *why;
};

static void sample_init(struct sample *sample, const struct environment_source *source)
{
    const char *later = source->request->later_proc;
    const struct timespec pause = {.tv_sec = ENVIRONMENT_SAMPLE_NS / 1000000000,
                                   .tv_nsec = ENVIRONMENT_SAMPLE_NS % 1000000000};
    *sample = (struct sample){.why = "unreadable"};
    sample->before = environment_text(source->proc, "stat", &sample->why);
    if (sample->before && !later)
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    if (sample->before)
        sample->after = environment_text(later ? later : source->proc, "stat", &sample->why);
}

static void sample_release(struct sample *sample)
{
    free(sample->before);
    free(sample->after);
}

/* Shares of the sample; idle time is counted with hesitation and may seem to go back: that is a share of 0. */
static bool sample_shares(const struct sample *sample, const char *name, double *ret_busy, double *ret_stolen,
                          const char **ret_why)
{
    struct ticks before, after;
    *ret_why = sample->why;
    if (!sample->after)
        return false;
    *ret_why = "unexpected_content";
    if (!parse_ticks(sample->before, name, &before) || !parse_ticks(sample->after, name, &after))
        return false;
    *ret_why = "no_ticks";
    int64_t total = after.total - before.total;
    if (total <= 0)
        return false;
    double busy = (double)(after.busy - before.busy) / (double)total,
           stolen = (double)(after.stolen - before.stolen) / (double)total;
    *ret_busy = busy < 0 ? 0 : busy > 1 ? 1 : busy;
    *ret_stolen = stolen < 0 ? 0 : stolen > 1 ? 1 : stolen;
    return true;
}

static void put_steal_since_boot(json_t *host, const struct sample *sample)
{
    struct ticks ticks;
    bool known = parse_ticks(sample->before, "cpu", &ticks) && ticks.total > 0;
    const char *why = sample->before ? "unexpected_content" : sample->why;
    environment_put(host, "steal_since_boot_x",
                    known ? environment_real((double)ticks.stolen / (double)ticks.total) : NULL, why);
}

/* ---- one entry per CPU that matters ---- */

static void put_frequency(json_t *entry, const struct environment_source *source, int64_t cpu)
{
    static const struct {
        const char *name, *file;
        enum environment_kind kind;
    } facts[] = {
        {"governor", "cpufreq/scaling_governor", FACT_TEXT},
        {"frequency_driver", "cpufreq/scaling_driver", FACT_TEXT},
        {"frequency_min_khz", "cpufreq/scaling_min_freq", FACT_INTEGER},
        {"frequency_max_khz", "cpufreq/scaling_max_freq", FACT_INTEGER},
        {"frequency_khz", "cpufreq/scaling_cur_freq", FACT_INTEGER},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const char *why = NULL;
        scoped_free char *text = cpu_text(source, cpu, facts[i].file, &why);
        json_t *value = environment_value(facts[i].kind, text, &why);
        environment_put(entry, facts[i].name, value, why && strcmp(why, "missing") == 0 ? "no_cpufreq" : why);
    }
}

static void put_core(json_t *entry, const struct environment_source *source, int64_t cpu)
{
    const char *why = NULL;
    scoped_free char *text = core_text(source, cpu, &why);
    struct cpus members = parse_cpus(text);
    json_t *value = environment_value(FACT_CPUS, text, &why);
    environment_put(entry, "core_cpus", value, why);
    environment_put(entry, "core", members.count ? json_integer(members.at[0]) : NULL, why);
    free(members.at);
}

static void put_shares(json_t *entry, const struct sample *sample, int64_t cpu)
{
    double busy = 0, stolen = 0;
    const char *why = NULL;
    scoped_free char *name = memory_format("cpu%" PRId64, cpu);
    bool known = sample_shares(sample, name, &busy, &stolen, &why);
    environment_put(entry, "busy_x", known ? environment_real(busy) : NULL, why);
    environment_put(entry, "steal_x", known ? environment_real(stolen) : NULL, why);
}

static bool is_listed(const json_t *list, int64_t cpu)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(list, i,
                       entry) if (json_integer_value(json_object_get(entry, "cpu")) == cpu) return true;
    return false;
}

static void add_cpu(json_t *list, const struct environment_source *source, const struct sample *sample,
                    int64_t cpu, const char *role)
{
    if (is_listed(list, cpu))
        return;
    json_t *entry = json_pack("{s:I, s:s}", "cpu", (json_int_t)cpu, "role", role);
    put_core(entry, source, cpu);
    put_frequency(entry, source, cpu);
    put_shares(entry, sample, cpu);
    (void)json_array_append_new(list, entry);
}

static void add_siblings(json_t *list, const struct environment_source *source, const struct sample *sample,
                         int64_t cpu)
{
    const char *why = NULL;
    scoped_free char *online_text = environment_text(source->sys, "devices/system/cpu/online", &why);
    scoped_free char *text = core_text(source, cpu, &why);
    struct cpus online = parse_cpus(online_text), members = parse_cpus(text);
    for (size_t i = 0; i < members.count; i++)
        if (has_cpu(online.at, online.count, members.at[i]))
            add_cpu(list, source, sample, members.at[i], "sibling");
    free(online.at);
    free(members.at);
}

static json_t *list_cpus(const struct environment_source *source, const struct sample *sample)
{
    const struct environment_request *request = source->request;
    json_t *list = json_array();
    for (size_t i = 0; i < request->measured_count; i++)
        add_cpu(list, source, sample, request->measured[i], "measured");
    for (size_t i = 0; i < request->housekeeping_count; i++)
        add_cpu(list, source, sample, request->housekeeping[i], "housekeeping");
    for (size_t i = 0; i < request->measured_count; i++)
        add_siblings(list, source, sample, request->measured[i]);
    return list;
}

/* ---- the measured CPUs as one ---- */

static bool plays(const json_t *entry, const char *role)
{
    return strcmp(json_string_value(json_object_get(entry, "role")), role) == 0;
}

/* The value that all measured CPUs have; null where one has none, or where they differ. */
static void put_common(json_t *host, const json_t *list, const char *name)
{
    json_t *common = NULL;
    const char *why = "no_measured_cpus";
    scoped_free char *reason = memory_format("%s_null_reason", name);
    size_t i;
    const json_t *entry;
    json_array_foreach(list, i, entry)
    {
        json_t *value = json_object_get(entry, name);
        if (!plays(entry, "measured"))
            continue;
        if (json_is_null(value) || (common && !json_equal(common, value))) {
            why = json_is_null(value) ? json_string_value(json_object_get(entry, reason)) : "mixed";
            common = NULL;
            break;
        }
        common = value;
    }
    environment_put(host, name, json_incref(common), why);
}

/* The largest share among the CPUs of that role; null where one is not known. */
static void put_most(json_t *host, const json_t *list, const char *role, const char *share, const char *name)
{
    double most = -1;
    const char *why = strcmp(role, "measured") == 0 ? "no_measured_cpus" : "no_siblings";
    scoped_free char *reason = memory_format("%s_null_reason", share);
    size_t i;
    const json_t *entry;
    json_array_foreach(list, i, entry)
    {
        const json_t *value = json_object_get(entry, share);
        if (!plays(entry, role))
            continue;
        if (json_is_null(value)) {
            why = json_string_value(json_object_get(entry, reason));
            most = -1;
            break;
        }
        most = json_real_value(value) > most ? json_real_value(value) : most;
    }
    environment_put(host, name, most >= 0 ? environment_real(most) : NULL, why);
}

static void put_list_text(json_t *host, const char *name, const int64_t *cpus, size_t count)
{
    scoped_free char *text = topology_list_text(cpus, count);
    environment_put(host, name, json_string(text), NULL);
}

void environment_put_cpus(json_t *host, const struct environment_source *source)
{
    static const char *const common[] = {"governor", "frequency_driver", "frequency_min_khz",
                                         "frequency_max_khz"};
    const struct environment_request *request = source->request;
    struct sample sample;
    sample_init(&sample, source);
    json_t *list = list_cpus(source, &sample);
    put_counts(host, source);
    put_list_text(host, "measured_cpus", request->measured, request->measured_count);
    put_list_text(host, "housekeeping_cpus", request->housekeeping, request->housekeeping_count);
    environment_put(host, "measured_cpu_count", json_integer((json_int_t)request->measured_count), NULL);
    environment_put(host, "housekeeping_cpu_count", json_integer((json_int_t)request->housekeeping_count),
                    NULL);
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        put_common(host, list, common[i]);
    put_turbo(host, source);
    put_idle_states(host, source);
    put_most(host, list, "measured", "busy_x", "busy_most_x");
    put_most(host, list, "measured", "steal_x", "steal_most_x");
    put_most(host, list, "sibling", "busy_x", "sibling_busy_most_x");
    put_steal_since_boot(host, &sample);
    environment_put(host, "cpus", list, NULL);
    sample_release(&sample);
}
