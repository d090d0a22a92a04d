/* sweep: every mistake with its exact line, settings, defaults, and a canonical form that reads back. */
#include "base/memory.h"
#include "coordinator/sweep/sweep.h"
#include "coordinator/sweep/sweep_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct sweep_settings no_settings = {0};

/* Mistakes of a text as lines, "" when there are none.  free() it. */
static char *mistakes_of(const char *text, size_t size, struct sweep_settings settings)
{
    struct sweep *sweep = NULL;
    struct sweep_mistakes mistakes = {0};
    int rc = sweep_parse("a.yaml", text, size, settings, &sweep, &mistakes);
    char *lines = sweep_mistakes_text(&mistakes);
    assert_int_equal(rc == 0, lines[0] == '\0');
    assert_int_equal(rc == 0, sweep != NULL);
    sweep_mistakes_release(&mistakes);
    sweep_free(sweep);
    return lines;
}

static struct sweep *good(const char *text)
{
    struct sweep *sweep = NULL;
    struct sweep_mistakes mistakes = {0};
    if (sweep_parse("a.yaml", text, strlen(text), no_settings, &sweep, &mistakes) != 0)
        fail_msg("%s", sweep_mistakes_text(&mistakes));
    assert_int_equal(mistakes.count, 0);
    return sweep;
}

struct bad {
    const char *text;
    const char *lines;
};

static void check_bad(const struct bad *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        scoped_free char *lines = mistakes_of(table[i].text, strlen(table[i].text), no_settings);
        assert_string_equal(lines, table[i].lines);
    }
}
#define CHECK_BAD(table) check_bad(table, sizeof(table) / sizeof((table)[0]))

#define NOOP "job: noop\nfanout: 2\n"
#define WAIT "job: sleep\nfanout: 4\ndelay: 10ms\n"

static void test_text_that_is_no_sweep(void **state)
{
    (void)state;
    static const struct bad table[] = {
        {"", "a.yaml: empty"},
        {"# words\n\n", "a.yaml: empty"},
        {"---\n", "a.yaml: empty"},
        {"5", "a.yaml:1:1: a sweep must be a map of keys"},
        {"\n- job: noop", "a.yaml:2:1: a sweep must be a map of keys"},
        {"''", "a.yaml:1:1: a sweep must be a map of keys"},
        {"job: [", "a.yaml:2:1: not YAML: did not find expected node content"},
        {"job: noop\nfanout: 'x", "a.yaml:2:11: not YAML: found unexpected end of stream"},
        {"a: b: c", "a.yaml:1:5: not YAML: mapping values are not allowed in this context"},
        {"\tjob: noop", "a.yaml:1:1: not YAML: found character that cannot start any token"},
        {"name: \xff", "a.yaml:1:7: not UTF-8 text: invalid leading UTF-8 octet"},
        {"name: a\nseed: \x01", "a.yaml:2:7: not UTF-8 text: control characters are not allowed"},
        {"\xff\xfej\0o\0", "a.yaml:1:1: not UTF-8 text: invalid leading UTF-8 octet"},
        {NOOP "---\njob: cpu\n", "a.yaml:3:1: a second document: one sweep is one document"},
        {"name: \"a\\0b\"\n" NOOP, "a.yaml:1:7: text with a NUL character"},
        {NOOP "? [a, b]\n: c\n", "a.yaml:3:3: a key must be text"},
        {NOOP "? {a: b}\n: c\n", "a.yaml:3:3: a key must be text"},
        {"[[[[[[[[[[[[[[[[[[[[[[", "a.yaml:1:18: nested too deeply: at most 16"},
        {"{a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: ",
         "a.yaml:1:66: nested too deeply: at most 16"},
        {"job: &a noop\nfanout: 2\n",
         "a.yaml:1:6: anchor '&a': anchors and aliases are not supported, write the value out"},
        {"a: &a [x, x]\nb: &b [*a, *a]\n" NOOP,
         "a.yaml:1:1: unknown key 'a' in a sweep\n"
         "a.yaml:1:4: anchor '&a': anchors and aliases are not supported, write the value out\n"
         "a.yaml:2:1: unknown key 'b' in a sweep\n"
         "a.yaml:2:4: anchor '&b': anchors and aliases are not supported, write the value out\n"
         "a.yaml:2:8: alias '*a': anchors and aliases are not supported, write the value out\n"
         "a.yaml:2:12: alias '*a': anchors and aliases are not supported, write the value out"},
        {"job: !!str noop\nfanout: 2\n", "a.yaml:1:6: tag 'tag:yaml.org,2002:str': tags are not supported"},
        {"job: noop\nfanout: !x 2\n", "a.yaml:2:9: tag '!x': tags are not supported"},
    };
    CHECK_BAD(table);
}

static void test_keys(void **state)
{
    (void)state;
    static const struct bad table[] = {
        {NOOP "fanouts: 3\n", "a.yaml:3:1: unknown key 'fanouts', did you mean 'fanout'?"},
        {NOOP "dealy: 3ms\n", "a.yaml:3:1: unknown key 'dealy', did you mean 'delay'?"},
        {NOOP "Seed: 3\n", "a.yaml:3:1: unknown key 'Seed', did you mean 'seed'?"},
        {NOOP "zebra: 3\n", "a.yaml:3:1: unknown key 'zebra' in a sweep"},
        {NOOP "seed: 1\nname: x\nseed: 2\n", "a.yaml:5:1: duplicate key 'seed' (first at 3:1)"},
        {"matrix:\n  - {job: noop, fanouts: 2}\n",
         "a.yaml:2:17: unknown key 'fanouts', did you mean 'fanout'?"},
        {"matrix:\n  - {job: noop, fanout: 2, seed: 2}\n",
         "a.yaml:2:28: 'seed' stands at the top of a sweep, not in a matrix entry"},
        {"matrix:\n  - {job: noop, fanout: 2, fanout: 3}\n",
         "a.yaml:2:28: duplicate key 'fanout' (first at 2:17)"},
        {"jb: noop\nfanout: 2\n", "a.yaml:1:1: unknown key 'jb', did you mean 'job'?"},
        {"name: x\n", "a.yaml:1:1: no 'job' (noop, sleep or cpu)"},
        {"job: noop\n", "a.yaml:1:1: no 'fanout': job 'noop' needs one"},
        {"matrix:\n  - {fanout: 2}\n  - {job: cpu, fanout: 2}\n",
         "a.yaml:2:5: no 'job' (noop, sleep or cpu)\na.yaml:3:5: no 'delay': job 'cpu' needs one"},
        {"matrix: []\n", "a.yaml:1:9: 'matrix' is an empty list"},
        {"matrix: 5\n", "a.yaml:1:9: 'matrix' must be a list of maps, not '5'"},
        {"matrix: [[]]\n", "a.yaml:1:10: 'matrix' must be a list of maps, not a list"},
        {"matrix:\n", "a.yaml:1:8: 'matrix' has no value"},
        {NOOP "expect: [{metric: cpu_ns}]\n", "a.yaml:3:10: a threshold needs 'min', 'max' or both"},
        {NOOP "expect: [{max: 1}]\n", "a.yaml:3:10: a threshold needs 'metric'"},
        {NOOP "expect: [{metric: over_ideal, max: 1}]\n",
         "a.yaml:3:19: 'metric' cannot be 'over_ideal', did you mean 'over_ideal_x'?"},
        {NOOP "expect: [{metric: cpu_ns, min: 2us, max: 1000}]\n",
         "a.yaml:3:32: 'min' is above 'max': nothing can pass"},
        {NOOP "expect: [{metric: cpu_ns, max: fast}]\n", "a.yaml:3:32: 'max' must be a number, not 'fast'"},
    };
    CHECK_BAD(table);
}

static void test_values(void **state)
{
    (void)state;
    static const struct bad table[] = {
        {"job: noop\nfanout: 0\n", "a.yaml:2:9: 'fanout' must be 1 to 1,000,000, not '0'"},
        {"job: noop\nfanout: 1000000000\n", "a.yaml:2:9: 'fanout' must be 1 to 1,000,000, not '1000000000'"},
        {"job: noop\nfanout: 99999999999999999999\n",
         "a.yaml:2:9: 'fanout' must be 1 to 1,000,000, not '99999999999999999999'"},
        {"job: noop\nfanout: -2\n", "a.yaml:2:9: 'fanout' must be 1 to 1,000,000, not '-2'"},
        {"job: noop\nfanout: lots\n", "a.yaml:2:9: 'fanout' must be a whole number, not 'lots'"},
        {"job: noop\nfanout: 2.5\n", "a.yaml:2:9: 'fanout' must be a whole number, not '2.5'"},
        {"job: noop\nfanout: .nan\n", "a.yaml:2:9: 'fanout' must be a whole number, not '.nan'"},
        {"job: noop\nfanout: .inf\n", "a.yaml:2:9: 'fanout' must be a whole number, not '.inf'"},
        {"job: noop\nfanout: 1e3\n", "a.yaml:2:9: 'fanout' must be a whole number, not '1e3'"},
        {"job: noop\nfanout: {a: b}\n", "a.yaml:2:9: 'fanout' must be a whole number, not a map"},
        {"job: noop\nfanout: [[2]]\n", "a.yaml:2:10: 'fanout' must be a whole number, not a list"},
        {"job: noop\nfanout: []\n", "a.yaml:2:9: 'fanout' is an empty list"},
        {"job: noop\nfanout:\n", "a.yaml:2:8: 'fanout' has no value"},
        {"job: noop\nfanout: [2, ~]\n", "a.yaml:2:13: 'fanout' has no value"},
        {"job: noop\nfanout: null\n", "a.yaml:2:9: 'fanout' has no value"},
        {"job: noop\nfanout: ''\n", "a.yaml:2:9: 'fanout' must be a whole number, not ''"},
        {"job: sleep\nfanout: 2\ndelay: 5\n",
         "a.yaml:3:8: 'delay' is '5': missing unit (ns, us, ms, s, m, h)"},
        {"job: sleep\nfanout: 2\ndelay: -5ms\n",
         "a.yaml:3:8: 'delay' is '-5ms': a duration cannot be negative"},
        {"job: sleep\nfanout: 2\ndelay: 0ms\n", "a.yaml:3:8: 'delay' must be 1ns to 3600s, not '0ms'"},
        {"job: sleep\nfanout: 2\ndelay: 2h\n", "a.yaml:3:8: 'delay' must be 1ns to 3600s, not '2h'"},
        {"job: sleep\nfanout: 2\ndelay: [5ms, nan]\n",
         "a.yaml:3:14: 'delay' is 'nan': not a duration (write it like 5ms)"},
        {NOOP "rounds: 0\n", "a.yaml:3:9: 'rounds' must be 1 to 100,000, not '0'"},
        {NOOP "rounds: 100001\n", "a.yaml:3:9: 'rounds' must be 1 to 100,000, not '100001'"},
        {NOOP "rounds: [1, 2]\n", "a.yaml:3:9: 'rounds' must be a whole number or 'auto', not a list"},
        {NOOP "warmup: -1\n", "a.yaml:3:9: 'warmup' must be 0 to 100,000, not '-1'"},
        {NOOP "seed: x\n", "a.yaml:3:7: 'seed' must be a whole number, not 'x'"},
        {NOOP "cores: 0\n", "a.yaml:3:8: 'cores' must be 1 to 65,536, not '0'"},
        {NOOP "cores: every\n", "a.yaml:3:8: 'cores' must be a whole number, 'all' or 'ladder', not 'every'"},
        {NOOP "arms: gathr\n", "a.yaml:3:7: 'arms' cannot be 'gathr', did you mean 'gather'?"},
        {NOOP "arms: [tasks, race]\n",
         "a.yaml:3:15: 'arms' cannot be 'race', only sequential, gather, gather-return-exceptions, tasks, "
         "taskgroup"},
        {NOOP "name: a/b\n",
         "a.yaml:3:7: 'name' must be a name (letters, digits, '.', '_', '+', '-'; at most "
         "64), not 'a/b'"},
        {NOOP "name: ../x\n",
         "a.yaml:3:7: 'name' must be a name (letters, digits, '.', '_', '+', '-'; at most "
         "64), not '../x'"},
        {NOOP "name: \"a\\nb\"\n",
         "a.yaml:3:7: 'name' must be a name (letters, digits, '.', '_', '+', '-'; at "
         "most 64), not 'a?b'"},
        {NOOP "runtimes: node\n", "a.yaml:3:11: 'runtimes' cannot be 'node', only libuv, asyncio, uvloop"},
        {NOOP "runtimes: [{label: x}]\n", "a.yaml:3:12: a runtime needs 'kind'"},
        {NOOP "runtimes: [{kind: asyncio, eager: yes}]\n",
         "a.yaml:3:35: 'eager' must be true or false, not 'yes'"},
        {NOOP "runtimes: [{kind: asyncio, jobs: [a]}]\n",
         "a.yaml:3:34: 'jobs' must be a map of names to texts, not a list"},
        {NOOP "runtimes: [{kind: asyncio, jobs: {a b: c, d: }}]\n",
         "a.yaml:3:35: 'jobs' must be a name (letters, digits, '.', '_', '+', '-'; at most 64), not 'a b'\n"
         "a.yaml:3:46: 'd' has no value"},
    };
    CHECK_BAD(table);
}

/* An option is used or refused. */
static void test_what_later_versions_will_know(void **state)
{
    (void)state;
    static const struct bad table[] = {
        {"job: tcp\nfanout: 2\n", "a.yaml:1:6: 'job' cannot be 'tcp' yet, only noop, sleep, cpu"},
        {"job: {kind: http}\nfanout: 2\n", "a.yaml:1:13: 'kind' cannot be 'http' yet, only noop, sleep, cpu"},
    };
    CHECK_BAD(table);
}

static void test_windows_that_cannot_be(void **state)
{
    (void)state;
    static const struct bad table[] = {
        {NOOP "clients: 65537\n", "a.yaml:3:10: 'clients' must be 1 to 65,536, not '65537'"},
        {NOOP "clients: {ladder: 65537}\n", "a.yaml:3:19: 'ladder' must be 2 to 65,536, not '65537'"},
        {NOOP "clients: {ladder: 1}\n", "a.yaml:3:19: 'ladder' must be 2 to 65,536, not '1'"},
        {NOOP "clients: [2, {ladder: never}]\n", "a.yaml:3:23: 'ladder' must be a whole number, not 'never'"},
        {NOOP "clients: {laddr: 8}\n", "a.yaml:3:10: a ladder needs 'ladder'\n"
                                       "a.yaml:3:11: unknown key 'laddr', did you mean 'ladder'?"},
        {NOOP "clients: leiter\n",
         "a.yaml:3:10: 'clients' must be a whole number, 'ladder' or {ladder: N}, not 'leiter'"},
        {NOOP "cores: {ladder: 4}\n",
         "a.yaml:3:8: 'cores' must be a whole number, 'all' or 'ladder', not a map"},
        {NOOP "rate: 0/s\n", "a.yaml:3:7: 'rate' is '0/s': a rate is above 0"},
        {NOOP "rate: 1000000M/s\n", "a.yaml:3:7: 'rate' must be 0.001/s to 10M/s, not '1000000M/s'"},
        {NOOP "rate: 1e12/s\n", "a.yaml:3:7: 'rate' is '1e12/s': not a rate (write it like 1000/s or 50k/s)"},
        {NOOP "rate: 0.001x\n", "a.yaml:3:7: 'rate' must be 0.01x to 10x, not '0.001x'"},
        {NOOP "rate: 0.4/s\n", "a.yaml:3:7: 'rate' is 0.4/s: less than one fan-out in a window of 2s"},
        {NOOP "rate: [9/s, 11/s]\nduration: 100ms\n",
         "a.yaml:3:8: 'rate' is 9/s: less than one fan-out in a window of 100ms"},
        {NOOP "rate: 5/s\nclients: [1, 2]\n", "a.yaml:3:1: 'rate' starts fan-outs whatever is under way, "
                                              "'clients' above 1 wait for theirs: an entry has "
                                              "one of them"},
        {NOOP "duration: 0s\nclients: 2\n", "a.yaml:3:11: 'duration' must be 1ms to 3600s, not '0s'"},
        {NOOP "duration: 2s\n", "a.yaml:3:1: 'duration' is of no use without 'clients' or 'rate': it is the "
                                "length of their windows"},
        {NOOP "phase: staggered\n", "a.yaml:3:1: 'phase' is of no use without 'clients' above 1"},
        {NOOP "arrivals: fixed\n", "a.yaml:3:1: 'arrivals' is of no use without 'rate'"},
        {"matrix: [{"
         "job: noop, fanout: 2, duration: 2s}, {job: noop, fanout: 3, phase: staggered}]\n",
         "a.yaml:1:33: 'duration' is of no use without 'clients' or 'rate': it is the length of their "
         "windows\n"
         "a.yaml:1:71: 'phase' is of no use without 'clients' above 1"},
        {WAIT "clients: 2\ntimeout: 5ms\nfail: {children: 1}\n",
         "a.yaml:5:1: 'timeout' does not go with windows ('clients' above 1, 'rate', 'duration')\n"
         "a.yaml:6:1: 'fail' does not go with windows ('clients' above 1, 'rate', 'duration')"},
        {"job: noop\nfanout: 1M\nclients: 11\n",
         "a.yaml:3:1: 'clients' x 'fanout' is 11,000,000 children at the same time: at most 10,000,000"},
    };
    CHECK_BAD(table);
}

static const struct sweep_entry *entry_of(const struct sweep *sweep, size_t number)
{
    assert_true(number < sweep->entry_count);
    return &sweep->entries[number];
}

static void test_windows(void **state)
{
    (void)state;
    struct sweep *sweep =
        good("job: sleep\ndelay: 1ms\nfanout: 4\nduration: 1s\nphase: [together, staggered]\n"
             "matrix: [{clients: [3, ladder, {ladder: 100}]}, {rate: [0.5x, 20/s], arrivals: fixed},"
             " {clients: 1}, {fanout: 9}]\n");
    const struct sweep_entry *closed = entry_of(sweep, 0), *open = entry_of(sweep, 1);
    assert_int_equal(closed->keys[SWEEP_CLIENTS]->at[0].integer, 3);
    assert_null(closed->keys[SWEEP_CLIENTS]->at[0].word);
    assert_int_equal(closed->keys[SWEEP_CLIENTS]->at[1].integer, 1024);
    assert_string_equal(closed->keys[SWEEP_CLIENTS]->at[1].word->name, "ladder");
    assert_int_equal(closed->keys[SWEEP_CLIENTS]->at[2].integer, 100);
    assert_string_equal(closed->keys[SWEEP_CLIENTS]->at[2].word->name, "ladder");
    assert_int_equal(closed->keys[SWEEP_PHASE]->count, 2);
    assert_null(closed->keys[SWEEP_ARRIVALS]);
    assert_true(open->keys[SWEEP_RATE]->at[0].is_factor);
    assert_false(open->keys[SWEEP_RATE]->at[1].is_factor);
    assert_string_equal(open->keys[SWEEP_ARRIVALS]->at[0].text, "fixed");
    assert_null(open->keys[SWEEP_PHASE]); /* a default of the top that is of use elsewhere */
    assert_int_equal(entry_of(sweep, 2)->keys[SWEEP_DURATION]->at[0].integer, 1000000000);
    assert_null(entry_of(sweep, 3)->keys[SWEEP_DURATION]);
    struct sweep *again = good(sweep->canonical);
    assert_string_equal(again->canonical, sweep->canonical);
    sweep_free(again);
    sweep_free(sweep);
}

static void test_keys_that_go_together(void **state)
{
    (void)state;
    static const struct bad table[] = {
        {"matrix: [{job: noop, fanout: 2, delay: 5ms}]\n", "a.yaml:1:33: 'delay' does not fit job 'noop'"},
        {NOOP "delay: 5ms\n", "a.yaml:3:1: 'delay' does not fit any job of the sweep"},
        {NOOP "stall: {children: 1, cpu: 3ms}\n", "a.yaml:3:1: 'stall' does not fit any job of the sweep"},
        {"matrix: [{job: [noop, cpu], fanout: 2, delay: 1ms, wait: timerfd}]\n",
         "a.yaml:1:52: 'wait' does not fit any job of its entry"},
        {NOOP "timeout: 5ms\n", "a.yaml:3:1: 'timeout' does not fit any job of the sweep"},
        {"job: slep\nfanout: 2\ndelay: 1ms\n", "a.yaml:1:6: unknown job 'slep', did you mean 'sleep'?\n"
                                               "a.yaml:3:1: 'delay' does not fit any job of the sweep"},
        {"job: cart\nfanout: 2\n", "a.yaml:1:6: unknown job 'cart': only noop, sleep, cpu, one of a "
                                   "runtime's 'jobs', or with --workers 0 one "
                                   "that workers announce"},
        {"job: cart\nfanout: 2\nruntimes: [libuv, {kind: asyncio, jobs: {cart: 'shop:cart'}}]\n",
         "a.yaml:3:12: runtime 'libuv' has no job 'cart'"},
        {NOOP "runtimes: [{kind: asyncio, jobs: {cpu: 'a:b'}}]\n",
         "a.yaml:3:34: job 'cpu' is built in: give the coroutine another name"},
        {NOOP "runtimes: [{kind: asyncio, jobs: {a: 'a:b', a: 'a:c'}}]\n",
         "a.yaml:3:34: job 'a' is named twice"},
        {NOOP "runtimes: [{kind: asyncio, path: ./}]\n", "a.yaml:3:28: 'path' is of no use without 'jobs'"},
        {NOOP "runtimes: [{kind: libuv, eager: true}]\n",
         "a.yaml:3:26: 'eager' is for asyncio and uvloop, not for libuv"},
        {NOOP "runtimes: [asyncio, {kind: asyncio, eager: true}]\n",
         "a.yaml:3:21: two different runtimes are called 'asyncio': give one a label"},
        {"matrix:\n- {job: noop, fanout: 2, runtimes: {kind: asyncio, label: x}}\n"
         "- {job: noop, fanout: 2, runtimes: {kind: uvloop, label: x}}\n",
         "a.yaml:3:36: two different runtimes are called 'x': give one a label"},
        {WAIT "wait: [timerfd, uv_timer]\nruntimes: [libuv, asyncio]\n",
         "a.yaml:4:17: wait 'uv_timer' is for libuv alone: asyncio and uvloop have timers of their own"},
        {NOOP "gc: off\n", "a.yaml:3:1: 'gc' needs a runtime with a collector: asyncio or uvloop"},
        {WAIT "fail: {at: 2ms}\n", "a.yaml:4:7: 'fail' needs either 'children' or 'fraction'"},
        {WAIT "fail: {children: 1, fraction: 0.5}\n",
         "a.yaml:4:7: 'fail' needs either 'children' or 'fraction'"},
        {WAIT "fail: {fraction: 0}\n", "a.yaml:4:18: 'fraction' must be above 0 and at most 1, not '0'"},
        {WAIT "fail: {fraction: 101%}\n",
         "a.yaml:4:18: 'fraction' must be above 0 and at most 1, not '101%'"},
        {WAIT "fail: {fraction: nan}\n",
         "a.yaml:4:18: 'fraction' must be a fraction like 0.1 or 10%, not 'nan'"},
        {WAIT "fail: {children: 5}\n", "a.yaml:4:18: 'children' is 5, more than a 'fanout' of 4"},
        {WAIT "fail: {children: 1, at: 11ms}\n",
         "a.yaml:4:25: 'at' is 11ms, after a 'delay' of 10ms has ended"},
        {WAIT "fail: {children: 1, cleanup: 1ms}\n",
         "a.yaml:4:21: 'cleanup' is of no use without on_cancel: cleanup"},
        {WAIT "fail: {children: 1, on_cancel: cleanup}\n",
         "a.yaml:4:32: on_cancel: cleanup needs 'cleanup', how long it takes"},
        {WAIT "fail: 1\n", "a.yaml:4:7: 'fail' must be a map, not '1'"},
        {WAIT "stall: {children: 5, cpu: 1ms}\n", "a.yaml:4:19: 'children' is 5, more than a 'fanout' of 4"},
        {WAIT "stall: {children: 1}\n", "a.yaml:4:8: 'stall' needs 'cpu'"},
        /* a default that is wrong for two entries is told once */
        {"runtimes: asyncio\nwait: uv_timer\nmatrix:\n- {job: sleep, fanout: 2, delay: 1ms}\n"
         "- {job: sleep, fanout: 3, delay: 1ms}\n",
         "a.yaml:2:7: wait 'uv_timer' is for libuv alone: asyncio and uvloop have timers of their own"},
    };
    CHECK_BAD(table);
}

static void test_effort(void **state)
{
    (void)state;
    static const struct bad table[] = {
        {NOOP "precision: 2%\n", "a.yaml:3:1: 'precision' is of no use without rounds: auto"},
        {"rounds: auto\nmatrix:\n- {job: noop, fanout: 2}\n- {job: noop, fanout: 3, rounds: 5, precision: "
         "2%}\n",
         "a.yaml:4:37: 'precision' is of no use without rounds: auto"},
        {NOOP "rounds: auto\nprecision: 120%\n",
         "a.yaml:4:12: 'precision' must be above 0 and at most 1, not '120%'"},
        {NOOP "rounds: auto\nprecision: 0\n",
         "a.yaml:4:12: 'precision' must be above 0 and at most 1, not '0'"},
        {NOOP "rounds: autos\n", "a.yaml:3:9: 'rounds' must be a whole number or 'auto', not 'autos'"},
        {NOOP "processes: 1001\n", "a.yaml:3:12: 'processes' must be 1 to 1,000, not '1001'"},
        {NOOP "processes: auto\n", "a.yaml:3:12: 'processes' must be a whole number, not 'auto'"},
        {NOOP "rounds: 101\nprocesses: 1000\n", "a.yaml:4:12: 'rounds' x 'processes' is more than 100,000"},
    };
    CHECK_BAD(table);
    struct sweep *mixed =
        good("precision: 2%\nmatrix:\n- {job: noop, fanout: 2}\n- {job: noop, fanout: 3, rounds: auto}\n");
    /* what the entry with fixed rounds has no use for is not in its canonical form */
    struct sweep *again = good(mixed->canonical);
    assert_string_equal(again->canonical, mixed->canonical);
    assert_null(mixed->entries[0].keys[SWEEP_PRECISION]);
    assert_non_null(mixed->entries[1].keys[SWEEP_PRECISION]);
    sweep_free(mixed);
    sweep_free(again);
    sweep_free(good(NOOP "rounds: 100\nprocesses: 1000\n"));
    sweep_free(good(NOOP "rounds: auto\n"));
}

static void test_all_mistakes_in_the_order_of_the_file(void **state)
{
    (void)state;
    static const struct bad table[] = {
        {"name: bad\nfanouts: 3\nmatrix:\n  - {job: sleep, fanout: 0, delay: 5}\nrounds: none\n",
         "a.yaml:2:1: unknown key 'fanouts', did you mean 'fanout'?\n"
         "a.yaml:4:26: 'fanout' must be 1 to 1,000,000, not '0'\n"
         "a.yaml:4:36: 'delay' is '5': missing unit (ns, us, ms, s, m, h)\n"
         "a.yaml:5:9: 'rounds' must be a whole number or 'auto', not 'none'"},
    };
    CHECK_BAD(table);
}

static char *list_of_numbers(size_t count)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    for (size_t i = 0; i < count; i++)
        (void)fprintf(out, "%s%zu", i > 0 ? ", " : "[", i + 1);
    (void)fputs("]", out);
    (void)fclose(out);
    return text;
}

static void test_size_is_computed_before_expanding(void **state)
{
    (void)state;
    scoped_free char *fanouts = list_of_numbers(1000);
    scoped_free char *cores = list_of_numbers(10000);
    scoped_free char *text =
        memory_format("arms: gather\nmatrix:\n  - {job: noop, fanout: %s, cores: %s}\n", fanouts, cores);
    scoped_free char *lines = mistakes_of(text, strlen(text), no_settings);
    assert_string_equal(lines, "a.yaml:3:5: 10,000,000 cells up to here: at most 100,000");

    scoped_free char *most =
        memory_format("arms: gather\njob: noop\nfanout: %s\ncores: %s\n", fanouts, "[1]");
    scoped_free char *none = mistakes_of(most, strlen(most), no_settings);
    assert_string_equal(none, "");
}

static void test_limits_of_text(void **state)
{
    (void)state;
    char *large = memory_zeroed(SWEEP_MAX_BYTES + 1, 1);
    memset(large, '#', SWEEP_MAX_BYTES + 1);
    char *lines = mistakes_of(large, SWEEP_MAX_BYTES + 1, no_settings);
    assert_string_equal(lines, "a.yaml: too large: at most 1048576 bytes");
    free(lines);
    lines = mistakes_of(large, SWEEP_MAX_BYTES, no_settings);
    assert_string_equal(lines, "a.yaml: empty");
    free(lines);
    for (size_t i = 0; i < SWEEP_MAX_BYTES; i++)
        large[i] = i == 0 ? '[' : i % 2 ? 'x' : ',';
    lines = mistakes_of(large, SWEEP_MAX_BYTES, no_settings);
    assert_string_equal(lines, "a.yaml:1:200000: too many values: at most 100000");
    free(lines);
    free(large);
    lines = mistakes_of("a\0b", 3, no_settings);
    assert_string_equal(lines, "a.yaml:1:2: not UTF-8 text: a NUL byte");
    free(lines);
}

static void test_very_many_mistakes(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    for (size_t i = 0; i < SWEEP_MAX_MISTAKES + 5; i++)
        (void)fprintf(out, "x%zu: 1\n", i);
    (void)fclose(out);
    char *lines = mistakes_of(text, size, no_settings);
    assert_non_null(strstr(lines, "a.yaml:1000:1: unknown key 'x999' in a sweep\n5 more mistakes"));
    free(lines);
    free(text);
}

struct set_case {
    const char *settings[3];
    const char *lines;
};

static void test_settings_that_are_wrong(void **state)
{
    (void)state;
    static const struct set_case table[] = {
        {{"fanouts=3"}, "--set fanouts: unknown key 'fanouts', did you mean 'fanout'?"},
        {{"fanout=0"}, "--set fanout: 'fanout' must be 1 to 1,000,000, not '0'"},
        {{"fanout="}, "--set fanout: empty"},
        {{"fanout"}, "--set: 'fanout' is not KEY=VALUE"},
        {{"=3"}, "--set: '=3' is not KEY=VALUE"},
        {{"delay=5"}, "--set delay: 'delay' is '5': missing unit (ns, us, ms, s, m, h)"},
        {{"arms=[gather, race]", "clients=0"},
         "--set arms:1:10: 'arms' cannot be 'race', only sequential, gather, gather-return-exceptions, "
         "tasks, "
         "taskgroup\n--set clients: 'clients' must be 1 to 65,536, not '0'"},
        {{"matrix=[{job: noop, fanout: 0}]"}, "--set matrix:1:22: 'fanout' must be 1 to 1,000,000, not '0'"},
        {{"cores=*x"},
         "--set cores:1:1: alias '*x': anchors and aliases are not supported, write the value out"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct sweep_settings settings = {.at = table[i].settings, .count = table[i].settings[1] ? 2 : 1};
        scoped_free char *lines = mistakes_of(sweep_lab_text, strlen(sweep_lab_text), settings);
        assert_string_equal(lines, table[i].lines);
    }
}

/* Workers that somebody else starts may announce jobs that the sweep does not know of. */
static void test_jobs_that_workers_announce(void **state)
{
    (void)state;
    static const struct sweep_settings any_job = {.any_job = true};
    static const struct bad table[] = {
        {"job: cart\nfanout: 2\n", ""},
        {"job: slep\nfanout: 2\nruntimes: [libuv, asyncio]\n", ""},
        {"job: cart\nfanout: 2\nruntimes: [uvloop, {kind: asyncio, jobs: {cart: 'shop:cart'}}]\n", ""},
        {"job: slep\nfanout: 2\ndelay: 1ms\n", "a.yaml:3:1: 'delay' does not fit any job of the sweep"},
        {NOOP "runtimes: [{kind: asyncio, jobs: {cpu: 'a:b'}}]\n",
         "a.yaml:3:34: job 'cpu' is built in: give the coroutine another name"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        scoped_free char *lines = mistakes_of(table[i].text, strlen(table[i].text), any_job);
        assert_string_equal(lines, table[i].lines);
    }
}

static void test_settings_reach_every_entry(void **state)
{
    (void)state;
    static const char *const settings[] = {"fanout=7", "rounds=3", "fanout=[8, 9]", "name=other"};
    struct sweep *sweep = NULL;
    struct sweep_mistakes mistakes = {0};
    assert_int_equal(sweep_load(NULL, (struct sweep_settings){.at = settings, .count = 4}, &sweep, &mistakes),
                     0);
    assert_string_equal(sweep->name, "other");
    assert_int_equal(sweep->entry_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct sweep_values *fanout = sweep->entries[i].keys[SWEEP_FANOUT];
        assert_int_equal(fanout->count, 2);
        assert_int_equal(fanout->at[1].integer, 9);
        assert_int_equal(sweep->entries[i].keys[SWEEP_ROUNDS]->at[0].integer, 3);
    }
    assert_string_equal(sweep->text, sweep_lab_text);
    sweep_free(sweep);
}

static void test_defaults(void **state)
{
    (void)state;
    struct sweep *sweep = good(NOOP);
    const struct sweep_entry *entry = &sweep->entries[0];
    assert_string_equal(sweep->name, "a"); /* of a.yaml */
    assert_int_equal(sweep->seed, 1);
    assert_int_equal(sweep->entry_count, 1);
    assert_int_equal(entry->job_bit, SWEEP_JOB_NOOP);
    assert_int_equal(entry->keys[SWEEP_ROUNDS]->at[0].integer, 9);
    assert_int_equal(entry->keys[SWEEP_WARMUP]->at[0].integer, 2);
    assert_int_equal(entry->keys[SWEEP_PROCESSES]->at[0].integer, 1);
    assert_int_equal(entry->keys[SWEEP_CORES]->count, 1);
    assert_int_equal(entry->keys[SWEEP_CORES]->at[0].integer, 1);
    assert_int_equal(entry->keys[SWEEP_ARMS]->count, 3);
    assert_string_equal(entry->keys[SWEEP_ARMS]->at[2].text, "taskgroup");
    assert_string_equal(sweep_get(entry->keys[SWEEP_RUNTIMES]->at[0].map, SWEEP_RUNTIME_KIND)->text, "libuv");
    assert_null(entry->keys[SWEEP_DELAY]);
    assert_null(entry->keys[SWEEP_WAIT]); /* it has a default, but noop does not wait */
    assert_int_equal(sweep->thresholds->count, 0);
    sweep_free(sweep);
}

static void test_entries_over_the_top(void **state)
{
    (void)state;
    struct sweep *sweep = good("delay: 5ms\nfanout: 3\nmatrix:\n"
                               "  - {job: [sleep, noop]}\n"
                               "  - {job: cpu, delay: [1ms, 2ms], fanout: 10k}\n");
    assert_int_equal(sweep->entry_count, 3);
    assert_string_equal(sweep->entries[0].job, "sleep");
    assert_int_equal(sweep->entries[0].keys[SWEEP_DELAY]->at[0].integer, 5000000);
    assert_string_equal(sweep->entries[1].job, "noop");
    assert_null(sweep->entries[1].keys[SWEEP_DELAY]);
    assert_int_equal(sweep->entries[2].keys[SWEEP_DELAY]->count, 2);
    assert_int_equal(sweep->entries[2].keys[SWEEP_FANOUT]->at[0].integer, 10000);
    sweep_free(sweep);
}

static const char *const good_texts[] = {
    NOOP,
    WAIT
    "fail: [{children: 1, at: 2ms}, {fraction: 12.5%, outcome: cancel, on_cancel: cleanup, cleanup: 1ms}]\n"
    "stall: {children: 2, cpu: 3ms}\ntimeout: 20ms\nwait: uv_timer\n",
    "job: cart\nfanout: 2\nname: own\nruntimes: [{kind: asyncio, python: /opt/py/bin/python3, eager: true, "
    "label: "
    "py313-eager, path: ./, jobs: {cart: 'shop.jobs:fetch_cart'}}]\ngc: [on, off, freeze]\n",
    "{\"job\": \"cpu\", \"fanout\": \"3\", \"delay\": \"1.5ms\", \"cores\": [\"ladder\", 2, \"all\"], "
    "\"rounds\": 3}",
    NOOP
    "expect:\n  - {arm: gather, metric: cpu_ns, max: 20us}\n  - {cores: all, metric: speedup_x, min: -0.5, "
    "max: 1.05}\n",
};

static void test_canonical_form_reads_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good_texts / sizeof good_texts[0]; i++) {
        struct sweep *first = good(good_texts[i]);
        struct sweep *second = good(first->canonical);
        assert_string_equal(first->canonical, second->canonical);
        assert_string_equal(first->sha256, second->sha256);
        sweep_free(first);
        sweep_free(second);
    }
}

static void test_hash_is_of_content(void **state)
{
    (void)state;
    struct sweep *plain = good("name: x\njob: sleep\nfanout: 4\ndelay: 1ms\n");
    struct sweep *dressed = good("# words\nmatrix: [{delay: [1000us], 'fanout': 4, job: {kind: sleep}}]\n"
                                 "name: x\nrounds: 9\n");
    struct sweep *other = good("name: x\njob: sleep\nfanout: 4\ndelay: 2ms\n");
    assert_string_equal(plain->sha256, dressed->sha256);
    assert_string_not_equal(plain->sha256, other->sha256);
    assert_int_equal(strlen(plain->sha256), 64);
    sweep_free(plain);
    sweep_free(dressed);
    sweep_free(other);
}

static void test_every_default_and_example_of_the_table_is_valid(void **state)
{
    (void)state;
    for (size_t i = 0; i < sweep_top_type.count; i++) {
        const struct sweep_key *key = &sweep_top_type.keys[i];
        assert_non_null(key->help);
        assert_true(strlen(key->help) > 5);
        if (i < SWEEP_CELL_KEYS)
            assert_int_not_equal(key->jobs, 0);
        if (!key->fallback)
            continue;
        unsigned job = key->jobs & SWEEP_JOB_NOOP;
        scoped_free char *text =
            memory_format("%s%s%s: %s\n", job || !key->jobs ? NOOP : WAIT,
                          i == SWEEP_ARRIVALS ? "rate: 9/s\n" : "", key->name, key->fallback);
        sweep_free(good(text));
    }
}

static char *load_mistakes(const char *path)
{
    struct sweep *sweep = NULL;
    struct sweep_mistakes mistakes = {0};
    assert_int_equal(sweep_load(path, no_settings, &sweep, &mistakes), -1);
    assert_null(sweep);
    char *lines = sweep_mistakes_text(&mistakes);
    sweep_mistakes_release(&mistakes);
    return lines;
}

static void test_files_that_cannot_be_read(void **state)
{
    (void)state;
    char dir[] = "/tmp/corefan-sweep-XXXXXX";
    assert_non_null(mkdtemp(dir));
    scoped_free char *missing = memory_format("%s/none.yaml", dir);
    scoped_free char *locked = memory_format("%s/locked.yaml", dir);
    struct bad table[] = {
        {dir, "cannot be read: Is a directory"},
        {missing, "cannot be read: No such file or directory"},
        {locked, "cannot be read: Permission denied"},
        {"/dev/zero", "too large: at most 1048576 bytes"},
        {"/dev/null", "empty"},
    };
    int fd = open(locked, O_WRONLY | O_CREAT, 0);
    assert_true(fd >= 0);
    (void)close(fd);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].text == locked && geteuid() == 0)
            continue; /* nothing is locked to root */
        scoped_free char *lines = load_mistakes(table[i].text);
        scoped_free char *expected = memory_format("%s: %s", table[i].text, table[i].lines);
        assert_string_equal(lines, expected);
    }
    (void)unlink(locked);
    (void)rmdir(dir);
}

static void test_examples(void **state)
{
    (void)state;
    static const char *const names[] = {"lab",     "failure",  "capacity",
                                        "scaling", "endpoint", "background-job"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct sweep *sweep = NULL;
        struct sweep_mistakes mistakes = {0};
        scoped_free char *path = memory_format("%s/%s.yaml", COREFAN_EXAMPLES, names[i]);
        if (sweep_load(path, no_settings, &sweep, &mistakes) != 0)
            fail_msg("%s", sweep_mistakes_text(&mistakes));
        assert_string_equal(sweep->name, names[i]);
        if (i == 0)
            assert_string_equal(sweep->text, sweep_lab_text);
        sweep_free(sweep);
    }
}

static void test_suggestions(void **state)
{
    (void)state;
    static const char *const table[][2] = {
        {"fanouts", "fanout"},  {"fan-out", "fanout"}, {"faonut", "fanout"}, {"delays", "delay"},
        {"arm", "arms"},        {"cors", "cores"},     {"round", "rounds"},  {"gc", "gc"},
        {"timeuot", "timeout"}, {"xyz", NULL},         {"", NULL},           {"concurrency", NULL},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const char *nearest = sweep_nearest_key(&sweep_top_type, table[i][0]);
        if (table[i][1])
            assert_string_equal(nearest, table[i][1]);
        else
            assert_null(nearest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_that_is_no_sweep),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_what_later_versions_will_know),
        cmocka_unit_test(test_windows_that_cannot_be),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_keys_that_go_together),
        cmocka_unit_test(test_effort),
        cmocka_unit_test(test_all_mistakes_in_the_order_of_the_file),
        cmocka_unit_test(test_size_is_computed_before_expanding),
        cmocka_unit_test(test_limits_of_text),
        cmocka_unit_test(test_very_many_mistakes),
        cmocka_unit_test(test_settings_that_are_wrong),
        cmocka_unit_test(test_jobs_that_workers_announce),
        cmocka_unit_test(test_settings_reach_every_entry),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_entries_over_the_top),
        cmocka_unit_test(test_canonical_form_reads_back),
        cmocka_unit_test(test_hash_is_of_content),
        cmocka_unit_test(test_every_default_and_example_of_the_table_is_valid),
        cmocka_unit_test(test_files_that_cannot_be_read),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_suggestions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
