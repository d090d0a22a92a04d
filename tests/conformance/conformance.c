/* conformance: runs files of cases (README.md) on the runtime and compares with what they expect.
 *
 * Usage: conformance [--turns] [--all] [--print] [--real] FILE
 *   (none)   a line per case: `G03 ok`, or its first difference: `G03 t_ms expected 20 got 40`; then `N passed, N failed`
 *   --all    every difference, a line each
 *   --turns  the turns of the ready queue, ours beside the expected ones, as information
 *   --print  what happened, a JSON object per case and line; compares nothing
 *   --real   on a libuv loop with real timers; compares what does not depend on the exact time
 * Exit 0; 1 when a case differs; 2 when the file cannot be read. */
#include "base/clock.h"
#include "tests/conformance/play.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <uv.h>

struct options {
    bool turns, all, print, real;
    const char *file;
};

struct difference {
    const char *key;
    const json_t *expected, *got;
};

/* In the order in which differences are told. */
static const char *const fields[] = {
    "outcome",           "t_ms", "drain_ms", "finish_order", "orphans", "unretrieved_logged", "next_await",
    "parent_cancelling", "notes"};

/* What the real clock can change without anything being wrong. */
static const char *const timed_fields[] = {"t_ms", "drain_ms", "notes", "start_ms", "end_ms", "start_turn"};

static bool is_timed(const char *key)
{
    for (size_t i = 0; i < sizeof(timed_fields) / sizeof(timed_fields[0]); i++) {
        if (strcmp(key, timed_fields[i]) == 0)
            return true;
    }
    return false;
}

static bool is_field(const char *key)
{
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strcmp(key, fields[i]) == 0)
            return true;
    }
    return strcmp(key, "children") == 0 || strcmp(key, "turns") == 0;
}

static bool same_multiset(const json_t *a, const json_t *b)
{
    if (!json_is_array(a) || !json_is_array(b) || json_array_size(a) != json_array_size(b))
        return false;
    json_t *rest = json_copy((json_t *)(uintptr_t)b);
    bool same = true;
    for (size_t i = 0; i < json_array_size(a) && same; i++) {
        same = false;
        for (size_t k = 0; k < json_array_size(rest) && !same; k++) {
            same = json_equal(json_array_get(a, i), json_array_get(rest, k)) == 1;
            if (same)
                (void)json_array_remove(rest, k);
        }
    }
    json_decref(rest);
    return same;
}

static bool same(const char *key, const json_t *a, const json_t *b)
{
    if (!a || !b)
        return (!a || json_is_null(a)) && (!b || json_is_null(b));
    if (strcmp(key, "unretrieved_logged") == 0)
        return same_multiset(a, b);
    return json_equal(a, b) == 1;
}

struct comparison {
    const struct options *options;
    const char *id;
    int differences;
};

static char *dumped(const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_SORT_KEYS) : NULL;
    return text ? text : strdup("null");
}

static void compare(struct comparison *comparison, const char *prefix, const char *key,
                    const json_t *expected, const json_t *got)
{
    if ((comparison->options->real && is_timed(key)) || same(key, expected, got))
        return;
    if (comparison->differences++ > 0 && !comparison->options->all)
        return;
    char *want = dumped(expected), *have = dumped(got);
    printf("%s %s%s expected %s got %s\n", comparison->id, prefix, key, want, have);
    free(want);
    free(have);
}

static void compare_objects(struct comparison *comparison, const char *prefix, json_t *expected, json_t *got)
{
    const char *key;
    json_t *value;
    json_object_foreach(expected, key, value)
    {
        compare(comparison, prefix, key, value, json_object_get(got, key));
    }
    json_object_foreach(got, key, value)
    {
        if (!json_object_get(expected, key))
            compare(comparison, prefix, key, NULL, value);
    }
}

static void compare_children(struct comparison *comparison, json_t *expected, json_t *got)
{
    const char *path;
    json_t *value;
    char prefix[512];
    json_object_foreach(expected, path, value)
    {
        (void)snprintf(prefix, sizeof(prefix), "children.%s.", path);
        compare_objects(comparison, prefix, value, json_object_get(got, path));
    }
    json_object_foreach(got, path, value)
    {
        (void)snprintf(prefix, sizeof(prefix), "children.%s.", path);
        if (!json_object_get(expected, path))
            compare_objects(comparison, prefix, NULL, value);
    }
}

static int compare_case(const struct options *options, const char *id, json_t *expected, json_t *got)
{
    struct comparison comparison = {.options = options, .id = id};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        compare(&comparison, "", fields[i], json_object_get(expected, fields[i]),
                json_object_get(got, fields[i]));
    compare_children(&comparison, json_object_get(expected, "children"), json_object_get(got, "children"));
    const char *key;
    json_t *value;
    json_object_foreach(expected, key, value)
    {
        if (!is_field(key))
            compare(&comparison, "", key, value, NULL);
    }
    return comparison.differences;
}

static json_t *play_virtual(struct test_case *test_case, struct error *err)
{
    struct runtime runtime;
    runtime_init_virtual(&runtime);
    return play_case(&runtime, test_case, NS_PER_MS, err);
}

static json_t *play_real(struct test_case *test_case, int64_t ns_per_ms, struct error *err)
{
    uv_loop_t loop;
    struct runtime runtime;
    json_t *got = NULL;
    if (uv_loop_init(&loop) != 0) {
        (void)error_set(err, ERROR_INTERNAL, "no loop");
        return NULL;
    }
    if (runtime_init(&runtime, &loop, err) == 0) {
        got = play_case(&runtime, test_case, ns_per_ms, err);
        runtime_release(&runtime);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
    return got;
}

static json_t *play_once(json_t *json, size_t number, const struct options *options, int64_t ns_per_ms,
                         struct error *err)
{
    struct test_case *test_case;
    if (case_read(json, number, &test_case, err) != 0)
        return NULL;
    json_t *got = options->real ? play_real(test_case, ns_per_ms, err) : play_virtual(test_case, err);
    case_free(test_case);
    return got;
}

/* A case whose result hangs on which turn something falls into cannot be held against the real clock. */
static bool depends_on_turns(const json_t *json)
{
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(json, "events"), i, event)
    {
        if (json_object_get(event, "after_turns"))
            return true;
    }
    return false;
}

/* 0 agrees, 1 differs, 2 cannot be read. */
static int check_case(json_t *json, size_t number, const struct options *options, struct error *err)
{
    /* A stall of the machine can let deadlines that are apart fall into one turn: then with longer milliseconds. */
    static const int64_t real_ns_per_ms[] = {NS_PER_MS, 5 * NS_PER_MS, 25 * NS_PER_MS};
    size_t tries = options->real ? sizeof(real_ns_per_ms) / sizeof(real_ns_per_ms[0]) : 1;
    const char *id = json_string_value(json_object_get(json, "id"));
    json_t *expected = json_object_get(json, "expect");
    int differences = 0;
    for (size_t i = 0; i < tries && (i == 0 || differences > 0); i++) {
        json_t *got = play_once(json, number, options, real_ns_per_ms[i], err);
        if (!got)
            return 2;
        differences = compare_case(options, id, expected, got);
        if (differences == 0)
            printf("%s ok\n", id);
        else if (i + 1 < tries)
            printf("%s again with longer milliseconds\n", id);
        if (options->turns)
            printf("%s turns %lld expected %lld\n", id,
                   (long long)json_integer_value(json_object_get(got, "turns")),
                   (long long)json_integer_value(json_object_get(expected, "turns")));
        json_decref(got);
    }
    return differences > 0;
}

static int print_case(json_t *json, size_t number, const struct options *options, struct error *err)
{
    json_t *got = play_once(json, number, options, NS_PER_MS, err);
    if (!got)
        return 2;
    char *text = json_dumps(got, JSON_COMPACT);
    if (text)
        (void)puts(text);
    free(text);
    json_decref(got);
    return 0;
}

/* Every case can be read, before any is run. */
static int check_file(json_t *cases, const struct options *options, struct error *err)
{
    size_t i;
    json_t *json;
    if (!json_is_array(cases))
        return error_set(err, ERROR_USAGE, "not a list of cases");
    json_array_foreach(cases, i, json)
    {
        struct test_case *test_case;
        if (case_read(json, i, &test_case, err) != 0)
            return -1;
        case_free(test_case);
        const json_t *expected = json_object_get(json, "expect");
        if (!options->print &&
            (!json_is_object(expected) || !json_is_object(json_object_get(expected, "children"))))
            return error_set(err, ERROR_USAGE, "case '%s' lacks 'expect'",
                             json_string_value(json_object_get(json, "id")));
    }
    return 0;
}

static int run_cases(json_t *cases, const struct options *options, struct error *err)
{
    size_t i, passed = 0, failed = 0;
    json_t *json;
    json_array_foreach(cases, i, json)
    {
        if (options->real && depends_on_turns(json))
            continue;
        int rc = options->print ? print_case(json, i, options, err) : check_case(json, i, options, err);
        if (rc == 2)
            return 2;
        passed += rc == 0;
        failed += rc == 1;
    }
    if (!options->print)
        printf("%zu passed, %zu failed\n", passed, failed);
    return failed > 0;
}

static json_t *load(const char *path, struct error *err)
{
    json_error_t where;
    json_t *cases = NULL;
    struct stat status;
    FILE *file = fopen(path, "r");
    if (!file || fstat(fileno(file), &status) != 0)
        (void)error_set(err, ERROR_USAGE, "%s", strerror(errno));
    else if (S_ISDIR(status.st_mode))
        (void)error_set(err, ERROR_USAGE, "is a directory");
    else if (!(cases = json_loadf(file, 0, &where)))
        (void)error_set(err, ERROR_USAGE, "line %d: %s", where.line, where.text);
    if (file)
        (void)fclose(file);
    return cases;
}

static int run_file(const struct options *options, struct error *err)
{
    json_t *cases = load(options->file, err);
    if (!cases)
        return 2;
    int rc = check_file(cases, options, err) != 0 ? 2 : run_cases(cases, options, err);
    json_decref(cases);
    return rc;
}

static bool parse(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--turns") == 0)
            options->turns = true;
        else if (strcmp(argv[i], "--all") == 0)
            options->all = true;
        else if (strcmp(argv[i], "--print") == 0)
            options->print = true;
        else if (strcmp(argv[i], "--real") == 0)
            options->real = true;
        else if (argv[i][0] == '-' || options->file)
            return false;
        else
            options->file = argv[i];
    }
    return options->file != NULL;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    struct error err;
    if (!parse(argc, argv, &options)) {
        (void)fprintf(stderr, "usage: conformance [--turns] [--all] [--print] [--real] FILE\n");
        return 2;
    }
    int rc = run_file(&options, &err);
    if (rc == 2)
        (void)fprintf(stderr, "conformance: '%s': %s\n", options.file, err.text);
    return rc;
}
