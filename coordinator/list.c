#include "coordinator/list.h"

#include "base/memory.h"
#include "coordinator/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct listed { /* texts are NULL where they are not known */
    char *directory, *name, *started_at, *status, *verdict, *trouble;
    int64_t cells; /* -1: not known */
};

struct list {
    char *dir;
    struct listed *at;
    size_t count;
};

static char *under(const char *dir, const char *name)
{
    return memory_format("%s/%s", dir, name);
}

static char *text_or_null(const char *text)
{
    return text ? memory_text(text) : NULL;
}

/* ---- one run ---- */

/* As `run` would end: a threshold that failed outweighs what is undecided. */
static const char *verdict_of(const json_t *summary, const char *status)
{
    size_t i;
    json_t *row;
    bool undecided = false;
    const json_t *thresholds = json_object_get(summary, "thresholds");
    json_array_foreach(thresholds, i, row)
    {
        if (json_is_false(json_object_get(row, "passed")))
            return "fail";
        undecided |= json_is_null(json_object_get(row, "passed"));
    }
    if (strcmp(status, "complete") != 0)
        return status;
    return undecided ? "inconclusive" : json_array_size(thresholds) > 0 ? "pass" : NULL;
}

/* False: there is no summary that can be read. */
static bool read_summary(struct listed *run)
{
    scoped_free char *path = under(run->directory, "summary.json");
    json_t *summary = json_load_file(path, 0, NULL);
    const json_t *about = json_object_get(summary, "run");
    const char *status = json_string_value(json_object_get(about, "status"));
    if (status) {
        run->name = text_or_null(json_string_value(json_object_get(about, "name")));
        run->started_at = text_or_null(json_string_value(json_object_get(about, "started_at")));
        run->status = memory_text(status);
        run->cells = (int64_t)json_array_size(json_object_get(summary, "cells"));
        run->verdict = text_or_null(verdict_of(summary, status));
    }
    json_decref(summary);
    return status != NULL;
}

/* Whoever writes a run holds its lock. */
static bool is_running(const struct listed *run)
{
    scoped_free char *path = under(run->directory, "run.lock");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool held = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    (void)close(fd);
    return held;
}

static int64_t count_cells(struct store *store)
{
    struct store_run *plan;
    struct error ignored = {0};
    int64_t cells = 0;
    if (store_load(store, &plan, &ignored) < 0)
        return -1;
    for (size_t i = 0; i < plan->cell_count; i++)
        cells += !plan->cells[i].harness;
    store_run_free(plan);
    return cells;
}

static void read_store(struct listed *run, bool running)
{
    struct store *store = NULL;
    struct error err = {0};
    run->status = memory_text(running ? "running" : "unfinished");
    if (store_open(run->directory, STORE_READ, &store, &err) < 0 ||
        store_get_fact(store, "name", &run->name, &err) < 0 ||
        store_get_fact(store, "started_at", &run->started_at, &err) < 0) {
        run->trouble = memory_text(err.text);
        free(run->status);
        run->status = memory_text("unreadable");
    } else {
        run->cells = count_cells(store);
    }
    store_close(store);
}

static struct listed read_run(const char *dir)
{
    struct listed run = {.directory = memory_text(dir), .cells = -1};
    bool running = is_running(&run);
    if (running || !read_summary(&run))
        read_store(&run, running);
    return run;
}

/* ---- all of them ---- */

static bool holds_run(const char *dir)
{
    scoped_free char *path = under(dir, "run.db");
    return access(path, F_OK) == 0;
}

static void add_run(struct list *list, const char *dir)
{
    list->at = memory_resized(list->at, list->count + 1, sizeof *list->at);
    list->at[list->count++] = read_run(dir);
}

static bool is_directory(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* A directory that cannot be read holds nothing for us, unless it is the one that was named. */
static bool add_below(struct list *list, const char *dir, int levels) // NOLINT(misc-no-recursion)
{
    if (holds_run(dir)) {
        add_run(list, dir);
        return true;
    }
    DIR *stream = opendir(dir);
    if (!stream)
        return false;
    for (struct dirent *entry; levels > 0 && (entry = readdir(stream));) {
        scoped_free char *path = under(dir, entry->d_name);
        if (entry->d_name[0] != '.' && is_directory(path))
            (void)add_below(list, path, levels - 1);
    }
    (void)closedir(stream);
    return true;
}

static int newest_first(const void *left, const void *right)
{
    const struct listed *a = left;
    const struct listed *b = right;
    int by_time = strcmp(b->started_at ? b->started_at : "", a->started_at ? a->started_at : "");
    return by_time ? by_time : strcmp(a->directory, b->directory);
}

int list_make(const char *dir, struct list **ret, struct error *err)
{
    struct list *list = memory_zeroed(1, sizeof *list);
    list->dir = memory_text(dir);
    if (!add_below(list, dir, LIST_MOST_LEVELS)) {
        list_free(list);
        return error_set(err, ERROR_USAGE, "cannot read '%s': %s", dir, strerror(errno));
    }
    if (list->count > 0)
        qsort(list->at, list->count, sizeof *list->at, newest_first);
    *ret = list;
    return 0;
}

void list_free(struct list *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->count; i++) {
        struct listed *run = &list->at[i];
        char *texts[] = {run->directory, run->name, run->started_at, run->status, run->verdict, run->trouble};
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++)
            free(texts[j]);
    }
    free(list->at);
    free(list->dir);
    free(list);
}

/* ---- out ---- */

/* Names of directories may hold anything; a terminal must not.  Width 0: the last of a line. */
static void put_text(FILE *out, const char *text, int width)
{
    scoped_free char *shown = memory_text(text ? text : "-");
    for (char *p = shown; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = '?';
    (void)fprintf(out, "%-*s%s", width, shown, width > 0 ? "  " : "");
}

static int widest(const struct list *list, size_t offset, int width)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *const *text = (const char *const *)((const char *)&list->at[i] + offset);
        int length = *text ? (int)strlen(*text) : 1;
        width = length > width ? length : width;
    }
    return width;
}

int list_print_text(const struct list *list, FILE *out)
{
    int name = widest(list, offsetof(struct listed, name), 4);
    int status = widest(list, offsetof(struct listed, status), 6);
    int verdict = widest(list, offsetof(struct listed, verdict), 7);
    if (list->count == 0)
        (void)fprintf(out, "no run lies in '%s'\n", list->dir);
    else
        (void)fprintf(out, "%-20s  %-*s  %5s  %-*s  %-*s  %s\n", "started", name, "name", "cells", status,
                      "status", verdict, "verdict", "directory");
    for (size_t i = 0; i < list->count; i++) {
        const struct listed *run = &list->at[i];
        put_text(out, run->started_at, 20);
        put_text(out, run->name, name);
        if (run->cells < 0)
            (void)fprintf(out, "%5s  ", "-");
        else
            (void)fprintf(out, "%5lld  ", (long long)run->cells);
        put_text(out, run->status, status);
        put_text(out, run->verdict, verdict);
        put_text(out, run->directory, 0);
        if (run->trouble) {
            (void)fputs("  ", out);
            put_text(out, run->trouble, 0);
        }
        (void)fputc('\n', out);
    }
    return fflush(out) == 0 && !ferror(out) ? 0 : -1;
}

/* null with its reason where it is not known */
static void put_json(json_t *object, const char *key, const char *text, const char *reason)
{
    scoped_free char *sibling = memory_format("%s_null_reason", key);
    json_t *value = text ? json_string(text) : NULL; /* NULL too when it is no UTF-8 */
    json_object_set_new(object, key, value ? value : json_null());
    if (!value)
        json_object_set_new(object, sibling, json_string(text ? "not_utf8" : reason));
}

int list_print_json(const struct list *list, FILE *out)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const struct listed *run = &list->at[i];
        const char *unknown = run->trouble ? run->trouble : "not_told";
        json_t *row = json_object();
        put_json(row, "directory", run->directory, unknown);
        put_json(row, "name", run->name, unknown);
        put_json(row, "started_at", run->started_at, unknown);
        put_json(row, "status", run->status, unknown);
        put_json(row, "verdict", run->verdict, "no_thresholds_or_unfinished");
        json_object_set_new(row, "cells", run->cells < 0 ? json_null() : json_integer(run->cells));
        if (run->cells < 0)
            json_object_set_new(row, "cells_null_reason", json_string(unknown));
        json_array_append_new(runs, row);
    }
    json_t *all = json_pack("{s:i, s:o}", "schema_version", 1, "runs", runs);
    int status = json_dumpf(all, out, JSON_INDENT(2));
    json_decref(all);
    return status == 0 && fputc('\n', out) != EOF && fflush(out) == 0 ? 0 : -1;
}
