/* Local workers, the lock of a host's CPUs, and where a coordinator may listen: with real processes and files. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "coordinator/fleet/endpoint.h"
#include "coordinator/fleet/launch.h"
#include "coordinator/host/hostlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a scratch directory ---- */

static int enter_scratch(void **state)
{
    char *directory = memory_text("/tmp/corefan-unit-XXXXXX");
    *state = mkdtemp(directory);
    return *state ? 0 : -1;
}

static int leave_scratch(void **state)
{
    char *command = memory_format("rm -rf '%s'", (char *)*state);
    int status = system(command);
    free(command);
    free(*state);
    return status;
}

static char *script(const char *directory, const char *text)
{
    char *path = memory_format("%s/worker", directory);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fprintf(file, "#!/bin/sh\n%s\n", text) > 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0755), 0);
    return path;
}

/* ---- launch ---- */

static const struct plan_runtime libuv = {.label = (char[]){"libuv"}, .kind = (char[]){"libuv"}};

static struct launch *launch_of(const char *worker)
{
    struct launch *launch = NULL;
    struct error err = {0};
    struct launch_config config = {.worker = worker, .endpoint = "ipc:///x", .housekeeping = "1"};
    assert_int_equal(launch_new(&config, &launch, &err), 0);
    if (launch_add(launch, &libuv, 0, &err) < 0)
        fail_msg("%s", err.text);
    return launch;
}

static void start_due(struct launch *launch, int64_t now_ns)
{
    struct error err = {0};
    if (launch_due(launch, now_ns, &err) < 0)
        fail_msg("%s", err.text);
}

/* Waits for the next end of a process. */
static struct launch_event next_event(struct launch *launch, int64_t now_ns)
{
    struct launch_event event;
    for (int i = 0; i < 2000; i++) {
        launch_reap(launch, now_ns);
        if (launch_next_event(launch, &event))
            return event;
        (void)poll(NULL, 0, 5);
    }
    fail_msg("no process ended");
    return event;
}

static void test_arguments(void **state)
{
    scoped_free char *worker = script(*state, "echo \"$*\" >&2");
    struct launch *launch = launch_of(worker);
    start_due(launch, 0);
    struct launch_event event = next_event(launch, 0);
    assert_string_equal(event.text,
                        "its process ended with exit status 0: --connect ipc:///x --cpu 0 --slot 0 "
                        "--label libuv --housekeeping 1");
    free(event.text);
    launch_free(launch);
}

static void test_restarts_back_off_and_end(void **state)
{
    scoped_free char *worker = script(*state, "echo one >&2; echo 'no such device' >&2; exit 7");
    struct launch *launch = launch_of(worker);
    int64_t now_ns = NS_PER_S, delay_ns = 100 * NS_PER_MS;
    for (int i = 1; i <= LAUNCH_MAX_EARLY; i++, delay_ns *= 2) {
        start_due(launch, now_ns);
        assert_int_equal(launch_running(launch), 1);
        struct launch_event event = next_event(launch, now_ns);
        assert_int_equal(event.slot, 0);
        assert_int_equal(event.over, i == LAUNCH_MAX_EARLY);
        assert_string_equal(event.text, "its process ended with exit status 7: no such device");
        free(event.text);
        assert_int_equal(launch_next_due_ns(launch), event.over ? INT64_MAX : now_ns + delay_ns);
        start_due(launch, now_ns + delay_ns - 1);
        assert_int_equal(launch_running(launch), 0);
        now_ns += delay_ns;
    }
    launch_free(launch);
}

static void test_a_registered_worker_may_die_more_often(void **state)
{
    scoped_free char *worker = script(*state, "exec sleep 100");
    struct launch *launch = launch_of(worker);
    int64_t now_ns = NS_PER_S;
    for (int i = 0; i < 2 * LAUNCH_MAX_EARLY; i++) {
        start_due(launch, now_ns);
        launch_registered(launch, 0);
        launch_kill(launch, 0);
        struct launch_event event = next_event(launch, now_ns);
        assert_false(event.over);
        assert_string_equal(event.text, "its process was ended by signal 9 (Killed)");
        free(event.text);
        now_ns = launch_next_due_ns(launch);
    }
    launch_no_more(launch);
    assert_int_equal(launch_next_due_ns(launch), INT64_MAX);
    launch_free(launch);
}

static void wait_for_none(struct launch *launch, int64_t now_ns)
{
    for (int i = 0; i < 2000 && launch_running(launch) > 0; i++) {
        launch_reap(launch, now_ns);
        (void)poll(NULL, 0, 5);
    }
    assert_int_equal(launch_running(launch), 0);
}

static void test_renewal_is_neither_a_failure_nor_a_restart(void **state)
{
    scoped_free char *worker = script(*state, "exit 0");
    struct launch *launch = launch_of(worker);
    struct launch_event event;
    int64_t now_ns = NS_PER_S;
    for (int i = 0; i < 2 * LAUNCH_MAX_EARLY; i++) { /* never registered, and yet not given up */
        start_due(launch, now_ns);
        launch_renew(launch, 0, now_ns);
        wait_for_none(launch, now_ns);
        assert_false(launch_next_event(launch, &event));
        assert_int_equal(launch_next_due_ns(launch), now_ns); /* at once */
    }
    launch_renew(launch, 0, now_ns); /* nothing runs: nothing to renew */
    start_due(launch, now_ns);
    event = next_event(launch, now_ns);
    assert_string_equal(event.text, "its process ended with exit status 0");
    free(event.text);
    launch_free(launch);
}

static void test_who_does_not_leave_is_killed(void **state)
{
    scoped_free char *worker = script(*state, "exec sleep 100");
    struct launch *launch = launch_of(worker);
    struct launch_event event;
    int64_t now_ns = NS_PER_S;
    start_due(launch, now_ns);
    launch_renew(launch, 0, now_ns);
    assert_int_equal(launch_next_due_ns(launch), now_ns + LAUNCH_LEAVE_NS);
    start_due(launch, now_ns + LAUNCH_LEAVE_NS - 1);
    launch_reap(launch, now_ns);
    assert_int_equal(launch_running(launch), 1);
    now_ns += LAUNCH_LEAVE_NS;
    start_due(launch, now_ns);
    wait_for_none(launch, now_ns);
    assert_false(launch_next_event(launch, &event));
    assert_int_equal(launch_next_due_ns(launch), now_ns);
    launch_free(launch);
}

static void test_programs_that_are_not_there(void **state)
{
    (void)state;
    struct launch *launch = NULL;
    struct error err = {0};
    struct launch_config config = {.worker = "/nonexistent/worker", .endpoint = "ipc:///x"};
    const struct plan_runtime unknown = {.label = (char[]){"x"}, .kind = (char[]){"perl"}};
    assert_int_equal(launch_new(&config, &launch, &err), 0);
    assert_int_equal(launch_add(launch, &libuv, 0, &err), -1);
    assert_non_null(strstr(err.text, "'/nonexistent/worker': No such file"));
    assert_int_equal(launch_add(launch, &unknown, 0, &err), -1);
    assert_non_null(strstr(err.text, "'perl', for which there is no worker"));
    assert_int_equal(launch_slot_count(launch), 0);
    launch_free(launch);
}

static void test_a_program_that_cannot_be_executed(void **state)
{
    scoped_free char *path = memory_format("%s/worker", (char *)*state);
    FILE *file = fopen(path, "we");
    assert_true(fprintf(file, "#!/nonexistent/interpreter\n") > 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0755), 0);
    struct launch *launch = launch_of(path);
    struct error err = {0};
    assert_int_equal(launch_due(launch, 0, &err), -1);
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(launch_running(launch), 0);
    launch_free(launch);
}

static bool is_alive(pid_t pid)
{
    char path[64], text[256] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool read = fgets(text, sizeof text, file) != NULL;
    (void)fclose(file);
    const char *state = strrchr(text, ')');
    return read && state && state[2] != 'Z';
}

static pid_t read_pid(const char *path)
{
    for (int i = 0; i < 2000; i++) {
        FILE *file = fopen(path, "re");
        int pid = 0;
        if (file) {
            int got = fscanf(file, "%d", &pid);
            (void)fclose(file);
            if (got == 1)
                return pid;
        }
        (void)poll(NULL, 0, 5);
    }
    fail_msg("the worker never told its pid");
    return 0;
}

static void assert_ends(pid_t pid)
{
    for (int i = 0; i < 2000 && is_alive(pid); i++)
        (void)poll(NULL, 0, 5);
    assert_false(is_alive(pid));
}

static void test_workers_end_with_a_killed_launcher(void **state)
{
    scoped_free char *pid_file = memory_format("%s/pid", (char *)*state);
    scoped_free char *text = memory_format("echo $$ > %s; exec sleep 100", pid_file);
    scoped_free char *worker = script(*state, text);
    pid_t launcher = fork();
    if (launcher == 0) {
        start_due(launch_of(worker), 0);
        for (;;)
            (void)pause();
    }
    pid_t pid = read_pid(pid_file);
    assert_true(is_alive(pid));
    assert_int_equal(kill(launcher, SIGKILL), 0);
    assert_int_equal(waitpid(launcher, NULL, 0), launcher);
    assert_ends(pid);
}

/* a wrapper that starts a process of its own: both go */
static void test_freeing_ends_the_whole_group(void **state)
{
    scoped_free char *pid_file = memory_format("%s/pid", (char *)*state);
    scoped_free char *text = memory_format("sleep 100 & echo $! > %s; wait", pid_file);
    scoped_free char *worker = script(*state, text);
    struct launch *launch = launch_of(worker);
    start_due(launch, 0);
    pid_t grandchild = read_pid(pid_file);
    launch_free(launch);
    assert_ends(grandchild);
}

static void test_what_a_worker_writes_is_bounded(void **state)
{
    scoped_free char *worker =
        script(*state, "head -c 100000 /dev/zero | tr '\\0' x >&2; printf '\\033[2Jlast' >&2");
    struct launch *launch = launch_of(worker);
    start_due(launch, 0);
    for (int i = 0; i < 100; i++) {
        struct pollfd file = {.fd = launch_fd(launch), .events = POLLIN};
        if (poll(&file, 1, 20) > 0)
            launch_read(launch);
    }
    struct launch_event event = next_event(launch, 0);
    assert_true(strlen(event.text) < 500);
    assert_null(strchr(event.text, '\033'));
    free(event.text);
    launch_free(launch);
}

/* ---- hostlock ---- */

static void test_lock_is_exclusive_per_cpu(void **state)
{
    const int64_t ours[] = {0, 1}, theirs[] = {3, 1}, others[] = {2, 3};
    struct hostlock lock = {.fd = -1}, second = {.fd = -1};
    struct error err = {0};
    assert_int_equal(hostlock_take(*state, ours, 2, false, &lock, &err), 0);
    assert_false(lock.crowded);
    pid_t child = fork();
    if (child == 0) { /* POSIX locks do not hold against their own process */
        scoped_free char *who = memory_format("(process %d)", (int)getppid());
        bool fine = hostlock_take(*state, theirs, 2, false, &second, &err) == -1 && second.fd == -1 &&
                    err.kind == ERROR_USAGE && strstr(err.text, "cpu 1 ") && strstr(err.text, who);
        fine = fine && hostlock_take(*state, others, 2, false, &second, &err) == 0;
        hostlock_release(&second);
        fine = fine && hostlock_take(*state, theirs, 2, true, &second, &err) == 0 && second.crowded;
        _exit(fine ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    hostlock_release(&lock);
    hostlock_release(&lock);
}

static void test_lock_of_a_dead_holder_is_free(void **state)
{
    const int64_t cpus[] = {0};
    struct hostlock lock = {.fd = -1};
    struct error err = {0};
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(hostlock_take(*state, cpus, 1, false, &lock, &err) == 0 ? 0 : 1); /* not released */
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(hostlock_take(*state, cpus, 1, false, &lock, &err), 0);
    hostlock_release(&lock);
}

static void test_lock_refuses_links(void **state)
{
    const int64_t cpus[] = {0};
    struct hostlock lock = {.fd = -1};
    struct error err = {0};
    scoped_free char *victim = memory_format("%s/victim", (char *)*state);
    scoped_free char *path = memory_format("%s/corefan.lock", (char *)*state);
    assert_int_equal(symlink(victim, path), 0);
    assert_int_equal(hostlock_take(*state, cpus, 1, false, &lock, &err), -1);
    assert_int_equal(err.kind, ERROR_INTERNAL);
    assert_int_equal(access(victim, F_OK), -1);
}

/* ---- endpoint ---- */

static void test_endpoints(void **state)
{
    (void)state;
    static const struct {
        const char *text, *bound; /* NULL: refused */
        bool has_keys;
    } cases[] = {
        {"tcp://127.0.0.1:5555", "tcp://127.0.0.1:5555", false},
        {"tcp://127.9.9.9:0", "tcp://127.9.9.9:0", false},
        {"tcp://127.0.0.1:*", "tcp://127.0.0.1:*", false},
        {"tcp://localhost:5555", "tcp://127.0.0.1:5555", false},
        {"tcp://[::1]:5555", "tcp://[::1]:5555", false},
        {"ipc:///tmp/x", "ipc:///tmp/x", false},
        {"tcp://0.0.0.0:5555", NULL, false},
        {"tcp://*:5555", NULL, false},
        {"tcp://[::]:5555", NULL, false},
        {"tcp://192.168.1.1:5555", NULL, false},
        {"tcp://example.org:5555", NULL, false},
        {"tcp://127.0.0.1.example.org:5555", NULL, false},
        {"tcp://eth0:5555", NULL, false},
        {"tcp://127.0.0.1", NULL, false},
        {"tcp://127.0.0.1:", NULL, false},
        {"tcp://127.0.0.1:65536", NULL, false},
        {"tcp://127.0.0.1:1;tcp://0.0.0.0:1", NULL, false},
        {"tcp://:5555", NULL, false},
        {"ipc://", NULL, false},
        {"ipc://@abstract", NULL, false},
        {"udp://127.0.0.1:5555", NULL, false},
        {"inproc://x", NULL, false},
        {"", NULL, false},
        {"tcp://0.0.0.0:5555", "tcp://0.0.0.0:5555", true},
        {"tcp://[::]:5555", "tcp://[::]:5555", true},
        {"tcp://192.168.1.1:5555", "tcp://192.168.1.1:5555", true},
        {"tcp://example.org:5555", NULL, true},
        {"tcp://*:5555", NULL, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *bound = NULL;
        struct error err = {0};
        int status = endpoint_check(cases[i].text, cases[i].has_keys, &bound, &err);
        if (cases[i].bound) {
            assert_int_equal(status, 0);
            assert_string_equal(bound, cases[i].bound);
        } else {
            if (status == 0)
                fail_msg("'%s' was accepted", cases[i].text);
            assert_int_equal(err.kind, ERROR_USAGE);
            assert_null(strchr(err.text, '\n'));
            assert_null(bound);
        }
        free(bound);
    }
}

static void test_path_that_is_taken(void **state)
{
    struct error err = {0};
    scoped_free char *file = memory_format("%s/file", (char *)*state);
    scoped_free char *socket_path = memory_format("%s/socket", (char *)*state);
    scoped_free char *as_file = memory_format("ipc://%s", file),
                     *as_socket = memory_format("ipc://%s", socket_path);
    assert_int_equal(endpoint_claim(as_file, &err), 0); /* nothing there */
    int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    assert_int_equal(endpoint_claim(as_file, &err), -1);
    assert_int_equal(access(file, F_OK), 0); /* it is somebody's */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(endpoint_claim(as_socket, &err), -1);
    assert_non_null(strstr(err.text, "already in use"));
    close(fd); /* left behind by a process that ended: may be had */
    assert_int_equal(endpoint_claim(as_socket, &err), 0);
}

int main(void)
{
    log_setup("test_launch", LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_arguments, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(test_restarts_back_off_and_end, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(test_a_registered_worker_may_die_more_often, enter_scratch,
                                        leave_scratch),
        cmocka_unit_test_setup_teardown(test_renewal_is_neither_a_failure_nor_a_restart, enter_scratch,
                                        leave_scratch),
        cmocka_unit_test_setup_teardown(test_who_does_not_leave_is_killed, enter_scratch, leave_scratch),
        cmocka_unit_test(test_programs_that_are_not_there),
        cmocka_unit_test_setup_teardown(test_a_program_that_cannot_be_executed, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(test_workers_end_with_a_killed_launcher, enter_scratch,
                                        leave_scratch),
        cmocka_unit_test_setup_teardown(test_freeing_ends_the_whole_group, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(test_what_a_worker_writes_is_bounded, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(test_lock_is_exclusive_per_cpu, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(test_lock_of_a_dead_holder_is_free, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(test_lock_refuses_links, enter_scratch, leave_scratch),
        cmocka_unit_test(test_endpoints),
        cmocka_unit_test_setup_teardown(test_path_that_is_taken, enter_scratch, leave_scratch),
    };
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
