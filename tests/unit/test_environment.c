/* Facts from recorded hosts, from damaged ones, and from this one. */
#include "base/memory.h"
#include "coordinator/host/environment.h"
#include "coordinator/host/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PLACES_MOST 200

static const struct environment_probe probe = {
    .monotonic_resolution_ns = 1,
    .thread_cpu_resolution_ns = 1,
    .tick_ns = 3333333,
    .monotonic_cost_ns = 23.4567,
    .thread_cpu_cost_ns = 480,
    .vdso = true,
    .machine = "x86_64",
    .libc_version = "2.36",
};

/* A host below a directory: what environment_read says about it, as its one object. */
static json_t *read_tree(const char *tree, const struct environment_probe *asked, const int64_t *measured,
                         size_t measured_count, const int64_t *housekeeping, size_t housekeeping_count)
{
    scoped_free char *proc = memory_format("%s/proc", tree), *sys = memory_format("%s/sys", tree),
                     *later = memory_format("%s/proc.later", tree), *text = NULL;
    const struct environment_request request = {.roots = {proc, sys},
                                                .later_proc = later,
                                                .probe = asked,
                                                .measured = measured,
                                                .measured_count = measured_count,
                                                .housekeeping = housekeeping,
                                                .housekeeping_count = housekeeping_count};
    struct error err = {0};
    assert_int_equal(environment_read(&request, &text, &err), 0);
    json_t *list = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(list), 1);
    json_t *host = json_incref(json_array_get(list, 0));
    json_decref(list);
    return host;
}

static json_t *read_laptop(const char *tree)
{
    return read_tree(tree, &probe, (const int64_t[]){1}, 1, (const int64_t[]){0}, 1);
}

static json_t *read_container(const char *tree)
{
    struct environment_probe guest = probe;
    guest.pmu_errno = EACCES;
    (void)strcpy(guest.hypervisor, "XenVMMXenVMM");
    return read_tree(tree, &guest, (const int64_t[]){2, 3}, 2, (const int64_t[]){0, 1}, 2);
}

static json_t *read_virtual(const char *tree)
{
    return read_tree(tree, NULL, (const int64_t[]){0, 1}, 2, NULL, 0);
}

/* What a fact must be, as JSON text; a null's reason in its place. */
struct expected {
    const char *fact, *json;
};

static void assert_facts(const json_t *object, const struct expected *expected, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        scoped_free char *reason = memory_format("%s_null_reason", expected[i].fact);
        const json_t *value = json_object_get(object, expected[i].fact);
        if (json_is_null(value))
            value = json_object_get(object, reason);
        scoped_free char *text =
            json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15) | JSON_SORT_KEYS);
        if (!text || strcmp(text, expected[i].json) != 0)
            fail_msg("%s is %s, not %s", expected[i].fact, text ? text : "not there", expected[i].json);
    }
}

#define ASSERT_FACTS(object, table) assert_facts(object, table, sizeof(table) / sizeof *(table))

static void test_laptop(void **state)
{
    static const struct expected expected[] = {
        {"host", "\"laptop\""},
        {"kernel", "\"6.1.0-18-amd64\""},
        {"kernel_build", "\"#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)\""},
        {"boot_id", "\"0f0e0d0c-0b0a-4908-8706-050403020100\""},
        {"command_line",
         "\"BOOT_IMAGE=/vmlinuz-6.1.0-18-amd64 root=/dev/mapper/root ro quiet isolcpus=1 nohz_full=1\""},
        {"machine", "\"x86_64\""},
        {"hz", "300"},
        {"clock_monotonic_cost_ns", "23.457"},
        {"clock_source", "\"tsc\""},
        {"clock_sources", "\"tsc hpet acpi_pm\""},
        {"timer_slack_ns", "50000"},
        {"affinity", "\"0-3\""},
        {"affinity_cpu_count", "4"},
        {"scheduling_policy", "\"other\""},
        {"nice", "0"},
        {"online_cpus", "\"0-3\""},
        {"online_cpu_count", "4"},
        {"core_count", "2"},
        {"package_count", "1"},
        {"numa_node_count", "1"},
        {"numa_balancing", "0"},
        {"smt_active", "true"},
        {"smt_control", "\"on\""},
        {"measured_cpus", "\"1\""},
        {"housekeeping_cpus", "\"0\""},
        {"governor", "\"powersave\""},
        {"frequency_driver", "\"intel_pstate\""},
        {"frequency_min_khz", "400000"},
        {"frequency_max_khz", "3900000"},
        {"turbo", "true"},
        {"turbo_switch", "\"devices/system/cpu/intel_pstate/no_turbo\""},
        {"idle_driver", "\"intel_idle\""},
        {"idle_exit_us", "85"}, /* C10 takes longer, and is disabled */
        {"isolated_cpus", "\"1\""},
        {"nohz_full_cpus", "\"1\""},
        {"aslr", "2"},
        {"mitigations",
         "{\"meltdown\": \"Mitigation: PTI\", "
         "\"spectre_v1\": \"Mitigation: usercopy/swapgs barriers and __user pointer sanitization\"}"},
        {"cpu_model", "\"Intel(R) Core(TM) i7-7600U CPU @ 2.80GHz\""},
        {"cpu_mhz", "2900.124"},
        {"virtual_machine", "false"},
        {"hypervisor", "\"none\""},
        {"steal_since_boot_x", "0.0"},
        {"busy_most_x", "0.0"},
        {"sibling_busy_most_x", "0.3"},
        {"cgroup_version", "2"},
        {"cgroup_path", "\"/user.slice/user-1000.slice/session-2.scope\""},
        {"cgroup_quota_cpus", "\"no_limit\""},
        {"cgroup_throttled_periods", "\"no_limit\""},
        {"cgroup_cpus", "\"no_limit\""},
        {"pressure_cpu_10s_percent", "0.12"},
        {"load_1m", "0.42"},
        {"load_15m", "0.21"},
        {"pmu", "true"},
        {"pmu_error", "\"no_error\""},
    };
    static const struct expected sibling[] = {
        {"cpu", "3"},      {"role", "\"sibling\""},      {"core", "1"},      {"core_cpus", "\"1,3\""},
        {"busy_x", "0.3"}, {"frequency_khz", "1100000"}, {"steal_x", "0.0"},
    };
    (void)state;
    json_t *host = read_laptop(COREFAN_HOSTS "/laptop");
    ASSERT_FACTS(host, expected);
    json_t *cpus = json_object_get(host, "cpus");
    assert_int_equal(json_array_size(cpus), 3);
    ASSERT_FACTS(json_array_get(cpus, 2), sibling);
    assert_int_equal(json_array_size(json_object_get(host, "idle_states")), 4);
    json_decref(host);
}

static void test_container(void **state)
{
    static const struct expected expected[] = {
        {"affinity", "\"0-3\""},
        {"online_cpu_count", "8"},
        {"core_count", "4"},
        {"scheduling_policy", "\"batch\""},
        {"nice", "5"},
        {"cgroup_version", "2"},
        {"cgroup_path", "\"/workload/worker\""},
        {"cgroup_quota_cpus", "1.5"}, /* one level up */
        {"cgroup_quota_us", "150000"},
        {"cgroup_period_us", "100000"},
        {"cgroup_periods", "400"}, /* of the group that limits */
        {"cgroup_throttled_periods", "12"},
        {"cgroup_throttled_ns", "350000000"},
        {"cgroup_memory_bytes", "2147483648"},
        {"cgroup_cpus", "\"0-3\""},
        {"governor", "\"no_cpufreq\""},
        {"turbo", "\"no_cpufreq\""},
        {"idle_exit_us", "\"missing\""},
        {"pressure_cpu_10s_percent", "\"missing\""},
        {"smt_active", "\"missing\""},
        {"mitigations", "\"missing\""},
        {"hypervisor", "\"xen\""},
        {"virtual_machine", "true"},
        {"busy_most_x", "0.75"},
        {"sibling_busy_most_x", "\"unexpected_content\""}, /* the recorded sample leaves these CPUs out */
        {"pmu", "false"},
        {"pmu_error", "\"they may not be used\""},
    };
    (void)state;
    json_t *host = read_container(COREFAN_HOSTS "/container");
    ASSERT_FACTS(host, expected);
    json_decref(host);
}

static void test_virtual(void **state)
{
    static const struct expected expected[] = {
        {"hz", "\"not_probed\""},
        {"pmu", "\"not_probed\""},
        {"vdso", "\"not_probed\""},
        {"clock_monotonic_cost_ns", "\"not_probed\""},
        {"core_count", "1"},
        {"package_count", "1"},
        {"measured_cpus", "\"0-1\""},
        {"housekeeping_cpus", "\"\""},
        {"housekeeping_cpu_count", "0"},
        {"steal_since_boot_x", "0.02"},
        {"steal_most_x", "0.15"},
        {"sibling_busy_most_x", "\"no_siblings\""},
        {"cgroup_version", "1"},
        {"cgroup_path", "\"/\""},
        {"cgroup_quota_cpus", "\"no_limit\""},
        {"cgroup_throttled_ns", "0"},
        {"cgroup_memory_bytes", "\"no_limit\""},
        {"cgroup_cpus", "\"0-1\""}, /* its mount point has a space */
        {"virtual_machine", "true"},
        {"hypervisor", "\"QEMU\""}, /* by its name: nobody asked the CPU */
    };
    (void)state;
    json_t *host = read_virtual(COREFAN_HOSTS "/virtual");
    ASSERT_FACTS(host, expected);
    json_decref(host);
}

static void test_versions(void **state)
{
    (void)state;
    json_t *host = read_laptop(COREFAN_HOSTS "/laptop"), *versions = json_object_get(host, "versions");
    static const char *const names[] = {"corefan",  "libuv",      "libzmq", "msgpack",
                                        "compiler", "build_type", "libc"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_non_null(json_string_value(json_object_get(versions, names[i])));
    assert_string_equal(json_string_value(json_object_get(versions, "corefan")), COREFAN_VERSION);
    json_decref(host);
}

/* ---- damage ---- */

/* Every null has its reason, every reason its null, at all depths; nothing is NaN, since JSON has none. */
static size_t assert_reasons(json_t *value)
{
    static const char suffix[] = "_null_reason";
    const char *key;
    json_t *member;
    size_t nulls = 0, i;
    json_object_foreach(value, key, member)
    {
        size_t length = strlen(key);
        scoped_free char *reason = memory_format("%s%s", key, suffix);
        if (length > sizeof suffix && strcmp(key + length - (sizeof suffix - 1), suffix) == 0) {
            scoped_free char *fact = memory_format("%.*s", (int)(length - (sizeof suffix - 1)), key);
            assert_true(json_is_null(json_object_get(value, fact)));
        } else if (json_is_null(member)) {
            if (!json_is_string(json_object_get(value, reason)))
                fail_msg("%s is null without a reason", key);
            nulls++;
        } else {
            nulls += assert_reasons(member);
        }
    }
    json_array_foreach(value, i, member) nulls += assert_reasons(member);
    return nulls;
}

struct places {
    char *at[PLACES_MOST];
    size_t count;
};

static struct places places; /* nftw has no context */

static int note_place(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status;
    (void)where;
    if (kind == FTW_F && places.count < PLACES_MOST)
        places.at[places.count++] = memory_text(path);
    return 0;
}

static void release_places(void)
{
    while (places.count > 0)
        free(places.at[--places.count]);
}

struct copy {
    char path[64];
};

static int run(const char *program, char *const argv[])
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)execvp(program, argv);
        _exit(127);
    }
    int status = -1;
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

static struct copy copy_tree(const char *name)
{
    struct copy copy;
    (void)snprintf(copy.path, sizeof copy.path, "/tmp/test_environment.XXXXXX");
    assert_non_null(mkdtemp(copy.path));
    scoped_free char *from = memory_format(COREFAN_HOSTS "/%s/.", name);
    assert_int_equal(run("cp", (char *[]){(char[]){"cp"}, (char[]){"-r"}, from, copy.path, NULL}), 0);
    assert_int_equal(chmod(copy.path, 0755), 0);
    return copy;
}

static void remove_tree(struct copy *copy)
{
    assert_int_equal(run("rm", (char *[]){(char[]){"rm"}, (char[]){"-r"}, copy->path, NULL}), 0);
}

static void write_file(const char *path, const char *bytes, size_t count)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), (ssize_t)count);
    assert_int_equal(close(fd), 0);
}

/* What stands in a file's place. */
struct damage {
    const char *name;
    void (*make)(const char *path);
};

static void make_nothing(const char *path)
{
    (void)path;
}

static void make_empty(const char *path)
{
    write_file(path, "", 0);
}

static void make_noise(const char *path)
{
    static const char noise[] =
        "\xff\xfe\0cpu -1 9999999999999999999999 nan max : ,,-\n4:cpu:\n::\n - cgroup2\n\\04\n";
    write_file(path, noise, sizeof noise - 1);
}

static void make_digits(const char *path)
{
    char digits[5000];
    memset(digits, '9', sizeof digits);
    write_file(path, digits, sizeof digits);
}

static void make_negative(const char *path)
{
    write_file(path, "-7\n", 3);
}

static void make_directory(const char *path)
{
    assert_int_equal(mkdir(path, 0755), 0);
}

static void make_loop(const char *path)
{
    assert_int_equal(symlink(path, path), 0);
}

static void make_pipe(const char *path)
{
    assert_int_equal(mkfifo(path, 0644), 0);
}

static void make_forbidden(const char *path)
{
    write_file(path, "1\n", 2);
    assert_int_equal(chmod(path, 0), 0);
}

static const struct damage damages[] = {
    {"missing", make_nothing}, {"empty", make_empty},       {"noise", make_noise},
    {"digits", make_digits},   {"negative", make_negative}, {"a directory", make_directory},
    {"a loop", make_loop},     {"a pipe", make_pipe},       {"forbidden", make_forbidden},
};

/* Files that root may read are forbidden only to others. */
static void as_nobody(bool yes)
{
    static uid_t before = (uid_t)-1;
    if (yes && geteuid() == 0) {
        before = 0;
        assert_int_equal(seteuid(65534), 0);
    } else if (!yes && before == 0) {
        assert_int_equal(seteuid(0), 0);
    }
}

static size_t read_damaged(const char *tree, json_t *(*read_host)(const char *tree))
{
    as_nobody(true);
    json_t *host = read_host(tree);
    as_nobody(false);
    size_t nulls = assert_reasons(host);
    assert_true(json_is_array(json_object_get(host, "findings")));
    json_decref(host);
    return nulls;
}

/* Each file alone, in every way; then all of them. */
static void check_damages(const char *name, json_t *(*read_host)(const char *tree))
{
    struct copy copy = copy_tree(name);
    size_t quiet = read_damaged(copy.path, read_host);
    assert_int_equal(nftw(copy.path, note_place, 16, FTW_PHYS), 0);
    assert_true(places.count > 20 && places.count < PLACES_MOST);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        for (size_t k = 0; k < places.count; k++) {
            scoped_free char *aside = memory_format("%s.aside", places.at[k]);
            assert_int_equal(rename(places.at[k], aside), 0);
            damages[i].make(places.at[k]);
            (void)read_damaged(copy.path, read_host);
            (void)remove(places.at[k]);
            assert_int_equal(rename(aside, places.at[k]), 0);
        }
    }
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        for (size_t k = 0; k < places.count; k++) {
            (void)remove(places.at[k]);
            damages[i].make(places.at[k]);
        }
        assert_true(read_damaged(copy.path, read_host) > quiet);
    }
    release_places();
    remove_tree(&copy);
}

static void test_damaged(void **state)
{
    (void)state;
    check_damages("laptop", read_laptop);
    check_damages("container", read_container);
    check_damages("virtual", read_virtual);
}

/* Which reason stands for which damage, on one file. */
static void test_reasons(void **state)
{
    static const struct {
        void (*make)(const char *path);
        const char *json;
    } cases[] = {
        {make_nothing, "\"missing\""},          {make_empty, "\"empty\""},
        {make_noise, "\"unexpected_content\""}, {make_digits, "\"unexpected_content\""},
        {make_directory, "\"unreadable\""},     {make_loop, "\"unreadable\""},
        {make_forbidden, "\"forbidden\""},      {make_negative, "-7"},
    };
    (void)state;
    struct copy copy = copy_tree("laptop");
    scoped_free char *path = memory_format("%s/proc/self/timerslack_ns", copy.path);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(remove(path), 0);
        cases[i].make(path);
        if (cases[i].make == make_nothing)
            assert_int_equal(access(path, F_OK), -1);
        as_nobody(true);
        json_t *host = read_laptop(copy.path);
        as_nobody(false);
        assert_facts(host, &(struct expected){"timer_slack_ns", cases[i].json}, 1);
        json_decref(host);
        if (cases[i].make == make_nothing)
            make_empty(path);
    }
    remove_tree(&copy);
}

static void replace(const struct copy *copy, const char *place, const char *text)
{
    scoped_free char *path = memory_format("%s/%s", copy->path, place);
    write_file(path, text, strlen(text));
}

/* One file of a tree changed: what one fact becomes. */
static void test_variants(void **state)
{
    static const struct {
        const char *tree;
        json_t *(*read_host)(const char *tree);
        const char *place, *text, *fact, *json;
    } cases[] = {
        {"laptop", read_laptop, "sys/devices/system/cpu/intel_pstate/no_turbo", "1\n", "turbo", "false"},
        {"laptop", read_laptop, "sys/devices/system/cpu/nohz_full", "(null)\n", "nohz_full_cpus", "\"\""},
        {"laptop", read_laptop, "sys/devices/system/cpu/isolated", "\n", "isolated_cpus", "\"\""},
        {"laptop", read_laptop, "proc/self/personality", "00040000\n", "aslr", "0"},
        {"laptop", read_laptop, "proc/cpuinfo", "processor : 0\nFeatures : fp asimd\n", "virtual_machine",
         "\"no_cpu_flag\""},
        {"laptop", read_laptop, "sys/fs/cgroup/user.slice/cpu.max", "25000 100000", "cgroup_quota_cpus",
         "0.25"},
        {"laptop", read_laptop, "sys/fs/cgroup/user.slice/cpu.max", "0 0", "cgroup_quota_cpus",
         "\"unexpected_content\""},
        {"laptop", read_laptop, "proc/self/cgroup", "0::/../elsewhere\n", "cgroup_version", "\"no_cgroup\""},
        {"container", read_container, "sys/fs/cgroup/workload/worker/cpu.max", "50000 100000",
         "cgroup_quota_cpus", "0.5"},
        {"container", read_container, "sys/fs/cgroup/workload/worker/cpu.max", "900000 100000",
         "cgroup_quota_cpus", "1.5"},
        {"virtual", read_virtual, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "20000\n",
         "cgroup_quota_cpus", "0.2"},
        {"virtual", read_virtual, "sys/fs/cgroup/cpu,cpuacct/cpu.stat",
         "nr_periods 9\nnr_throttled 3\nthrottled_time 5000001\n", "cgroup_throttled_ns", "5000001"},
        {"virtual", read_virtual, "proc.later/stat",
         "cpu0 20000 0 5000 72500 250 0 250 2000 0 0\ncpu1 20000 0 5000 72500 250 0 250 2000\n",
         "busy_most_x", "\"no_ticks\""},
        {"laptop", read_laptop, "proc.later/stat", "cpu1 5000 25 2000 225010 260 0 75 0 0 0", "busy_most_x",
         "0.0"},
        {"laptop", read_laptop, "sys/fs/cgroup/user.slice/cpu.max", "50000 0", "cgroup_quota_cpus",
         "\"unexpected_content\""},
        {"laptop", read_laptop, "proc/self/timerslack_ns", "50000 ns", "timer_slack_ns",
         "\"unexpected_content\""},
        {"laptop", read_laptop, "proc/pressure/cpu", "some avg10=nan avg60=0.00", "pressure_cpu_10s_percent",
         "\"unexpected_content\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct copy copy = copy_tree(cases[i].tree);
        replace(&copy, cases[i].place, cases[i].text);
        json_t *host = cases[i].read_host(copy.path);
        assert_facts(host, &(struct expected){cases[i].fact, cases[i].json}, 1);
        json_decref(host);
        remove_tree(&copy);
    }
}

/* What no terminal should see does not come in. */
static void test_control_characters(void **state)
{
    static const char name[] = "a\0b\033[31m\xc3\xa9";
    (void)state;
    struct copy copy = copy_tree("laptop");
    scoped_free char *path = memory_format("%s/proc/sys/kernel/hostname", copy.path);
    write_file(path, name, sizeof name - 1);
    json_t *host = read_laptop(copy.path);
    assert_facts(host, &(struct expected){"host", "\"a?b?[31m??\""}, 1);
    json_decref(host);
    remove_tree(&copy);
}

static void test_mixed_governors(void **state)
{
    (void)state;
    struct copy copy = copy_tree("laptop");
    replace(&copy, "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
    json_t *host = read_tree(copy.path, &probe, (const int64_t[]){1, 2}, 2, NULL, 0);
    assert_facts(host, &(struct expected){"governor", "\"mixed\""}, 1);
    assert_facts(host, &(struct expected){"frequency_driver", "\"intel_pstate\""}, 1);
    json_decref(host);
    remove_tree(&copy);
}

static void test_nothing_measured(void **state)
{
    (void)state;
    json_t *host = read_tree(COREFAN_HOSTS "/laptop", &probe, NULL, 0, NULL, 0);
    static const struct expected expected[] = {{"governor", "\"no_measured_cpus\""},
                                               {"busy_most_x", "\"no_measured_cpus\""},
                                               {"idle_exit_us", "\"no_measured_cpus\""},
                                               {"turbo", "true"}};
    ASSERT_FACTS(host, expected);
    (void)assert_reasons(host);
    json_decref(host);
}

/* ---- this host ---- */

static json_t *capture(const int64_t *measured, size_t measured_count)
{
    scoped_free char *text = NULL;
    struct error err = {0};
    assert_int_equal(environment_capture(measured, measured_count, NULL, 0, &text, &err), 0);
    json_t *list = json_loads(text, 0, NULL), *host = json_incref(json_array_get(list, 0));
    json_decref(list);
    (void)assert_reasons(host);
    return host;
}

static int64_t allowed_cpu(void)
{
    cpu_set_t allowed;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            return (int64_t)cpu;
    return 0;
}

static json_int_t integer_of(const json_t *host, const char *fact)
{
    const json_t *value = json_object_get(host, fact);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* What the files say, against what system calls say. */
static void test_this_host(void **state)
{
    (void)state;
    char name[256];
    cpu_set_t allowed;
    assert_int_equal(gethostname(name, sizeof name), 0);
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int64_t cpu = allowed_cpu();
    json_t *host = capture(&cpu, 1);
    assert_string_equal(json_string_value(json_object_get(host, "host")), name);
    assert_int_equal(integer_of(host, "affinity_cpu_count"), CPU_COUNT(&allowed));
    assert_int_equal(integer_of(host, "online_cpu_count"), sysconf(_SC_NPROCESSORS_ONLN));
    assert_int_equal(integer_of(host, "timer_slack_ns"), prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0));
    assert_true(integer_of(host, "clock_monotonic_resolution_ns") >= 1);
    assert_true(json_real_value(json_object_get(host, "clock_monotonic_cost_ns")) > 0);
    json_decref(host);
}

/* Facts of the process itself: changed here, read there. */
static void change_process(void)
{
    static const struct sched_param none = {0};
    int64_t cpu = allowed_cpu();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(prctl(PR_SET_TIMERSLACK, 1234, 0, 0, 0), 0);
    assert_int_equal(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    assert_true(personality(ADDR_NO_RANDOMIZE) >= 0);
    json_t *host = capture(&cpu, 1);
    static const struct expected expected[] = {{"affinity_cpu_count", "1"},
                                               {"timer_slack_ns", "1234"},
                                               {"scheduling_policy", "\"batch\""},
                                               {"aslr", "0"}};
    ASSERT_FACTS(host, expected);
    json_decref(host);
}

/* Runs it in a process of its own, so that nothing changed stays. */
static void in_child(void (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_this_process(void **state)
{
    (void)state;
    in_child(change_process);
}

static void *spin(void *stop)
{
    while (!atomic_load((atomic_bool *)stop))
        ;
    return NULL;
}

/* A competitor on a CPU is seen there: ours alone would keep it busy for none of the sample. */
static void test_busy_cpu(void **state)
{
    (void)state;
    atomic_bool stop = false;
    pthread_t thread;
    pthread_attr_t attributes;
    cpu_set_t one;
    int64_t cpu = allowed_cpu();
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setaffinity_np(&attributes, sizeof one, &one), 0);
    assert_int_equal(pthread_create(&thread, &attributes, spin, &stop), 0);
    json_t *host = capture(&cpu, 1);
    atomic_store(&stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_attr_destroy(&attributes), 0);
    const json_t *finding;
    size_t i, found = 0;
    json_array_foreach(json_object_get(host, "findings"), i, finding) found +=
        strcmp(json_string_value(json_object_get(finding, "id")), "busy_neighbours") == 0;
    assert_int_equal(found, 1);
    json_decref(host);
}

/* A quota on a real group of version 1 or 2, with this process inside: CPU time is burnt until it is throttled. */
static void live_in_group(const char *group, const char *file, const char *quota)
{
    scoped_free char *limit = memory_format("%s/%s", group, file),
                     *members = memory_format("%s/cgroup.procs", group);
    scoped_free char *pid = memory_format("%d", (int)getpid());
    write_file(limit, quota, strlen(quota));
    write_file(members, pid, strlen(pid));
    json_t *host = NULL;
    do {
        json_decref(host);
        struct timespec now = {0};
        int64_t from = clock(), cpu = allowed_cpu();
        while (clock() - from < CLOCKS_PER_SEC / 20)
            (void)clock_gettime(CLOCK_MONOTONIC, &now);
        host = capture(&cpu, 1);
    } while (integer_of(host, "cgroup_throttled_periods") == 0 ||
             integer_of(host, "cgroup_throttled_ns") == 0);
    assert_facts(host, &(struct expected){"cgroup_quota_cpus", "0.2"}, 1);
    json_decref(host);
}

static void test_real_quota(void **state)
{
    static const struct {
        const char *parent, *file, *quota;
    } versions[] = {{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "20000"},
                    {"/sys/fs/cgroup", "cpu.max", "20000 100000"}};
    (void)state;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        scoped_free char *group = memory_format("%s/corefan-test-%d", versions[i].parent, (int)getpid());
        scoped_free char *limit = memory_format("%s/%s", group, versions[i].file);
        if (mkdir(group, 0755) < 0)
            continue;
        bool usable = access(limit, W_OK) == 0;
        int status = 0;
        pid_t pid = usable ? fork() : -1;
        if (pid == 0) {
            live_in_group(group, versions[i].file, versions[i].quota);
            _exit(0);
        }
        pid_t ended = usable ? waitpid(pid, &status, 0) : -1;
        assert_int_equal(rmdir(group), 0);
        if (!usable)
            continue;
        assert_int_equal(ended, pid);
        assert_int_equal(status, 0);
        return;
    }
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_laptop),          cmocka_unit_test(test_container),
        cmocka_unit_test(test_virtual),         cmocka_unit_test(test_versions),
        cmocka_unit_test(test_damaged),         cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_variants),        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_mixed_governors), cmocka_unit_test(test_nothing_measured),
        cmocka_unit_test(test_this_host),       cmocka_unit_test(test_this_process),
        cmocka_unit_test(test_busy_cpu),        cmocka_unit_test(test_real_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
