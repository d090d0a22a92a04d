/* cgroup: which file counts throttling, on machines of every make; and what it says. */
#include "proto/wire.h"
#include "worker/cgroup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

struct machine {
    const char *cgroups, *mountinfo, *path; /* NULL: none can be seen */
};

#define V1_CPU(root, point)  "30 25 0:26 " root " " point " rw,relatime shared:11 - cgroup cgroup rw,cpu\n"
#define V1_BOTH(root, point) "31 25 0:27 " root " " point " rw - cgroup cgroup rw,cpu,cpuacct\n"
#define V1_ACCT              "32 25 0:28 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
#define V2(root, point)      "33 25 0:29 " root " " point " rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define OTHERS               "20 1 0:19 / /sys rw - sysfs sysfs rw\n21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"

static const struct machine machines[] = {
    {"0::/user.slice/a.scope\n", OTHERS V2("/", "/sys/fs/cgroup"),
     "/sys/fs/cgroup/user.slice/a.scope/cpu.stat"},
    {"0::/\n", V2("/", "/sys/fs/cgroup"), "/sys/fs/cgroup/cpu.stat"},
    {"4:memory:/m\n1:cpu:/\n0::/u\n", V1_CPU("/", "/sys/fs/cgroup/cpu") V2("/", "/sys/fs/cgroup/unified"),
     "/sys/fs/cgroup/cpu/cpu.stat"},
    {"2:cpuacct:/x\n1:cpu:/a/b\n", V1_ACCT V1_CPU("/", "/sys/fs/cgroup/cpu"),
     "/sys/fs/cgroup/cpu/a/b/cpu.stat"},
    {"3:cpu,cpuacct:/a\n", V1_BOTH("/", "/cg/cpu,cpuacct"), "/cg/cpu,cpuacct/a/cpu.stat"},
    /* a container sees its own group at the mount point */
    {"3:cpu,cpuacct:/docker/7f\n", V1_BOTH("/docker/7f", "/sys/fs/cgroup/cpu"),
     "/sys/fs/cgroup/cpu/cpu.stat"},
    {"3:cpu,cpuacct:/docker/7f/w\n", V1_BOTH("/docker/7f", "/cg"), "/cg/w/cpu.stat"},
    {"3:cpu,cpuacct:/docker/7fa\n", V1_BOTH("/docker/7f", "/cg"), NULL},
    {"0::/../outside\n", V2("/", "/sys/fs/cgroup"), NULL},
    {"0::/a\n", V2("/", "/odd\\040place"), "/odd place/a/cpu.stat"},
    /* version 1 is named but not mounted: its controller may sit in version 2 */
    {"3:cpu:/a\n0::/b\n", V2("/", "/sys/fs/cgroup"), "/sys/fs/cgroup/b/cpu.stat"},
    {"1:name=systemd:/a\n2:cpuset:/c\n", V1_ACCT, NULL},
    {"0::/a:b\n", V2("/", "/cg"), "/cg/a:b/cpu.stat"},
    {"", "", NULL},
    {"0:\n:\nrubbish\n0::relative\n", "rubbish\n - \n - cgroup2\n1 2 - cgroup2 a b\n", NULL},
};

static void the_file_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        char *path = cgroup_cpu_stat_path(machines[i].cgroups, machines[i].mountinfo);
        print_message("%s", machines[i].cgroups);
        if (machines[i].path) {
            assert_non_null(path);
            assert_string_equal(path, machines[i].path);
        } else {
            assert_null(path);
        }
        free(path);
    }
}

static void expect(const char *cpu_stat, int64_t periods, int64_t held_ns)
{
    struct cgroup_throttling got = {7, 7};
    cgroup_parse_throttling(cpu_stat, &got);
    assert_int_equal(got.periods, periods);
    assert_int_equal(got.held_ns, held_ns);
}

static void both_versions_are_understood(void **state)
{
    (void)state;
    expect("nr_periods 20\nnr_throttled 3\nthrottled_time 250000123\n", 3, 250000123);
    expect("usage_usec 9\nnr_periods 20\nnr_throttled 4\nthrottled_usec 250\nnr_bursts 0\n", 4, 250000);
    expect("usage_usec 9\nuser_usec 5\nsystem_usec 4\n", WIRE_NULL, WIRE_NULL); /* no quota */
    expect("nr_throttled_more 3\nx nr_throttled 5\n", WIRE_NULL, WIRE_NULL);
    expect("nr_throttled x\nthrottled_time -4\n", WIRE_NULL, WIRE_NULL);
    expect("throttled_usec 9223372036854775807\nnr_throttled 1", 1, WIRE_NULL);
    expect("", WIRE_NULL, WIRE_NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_is_found),
        cmocka_unit_test(both_versions_are_understood),
    };
    return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
