/* One side of a comparison, from a run's store or from a summary.json that may hold anything. */
#include "coordinator/compare/compare_internal.h"
#include "coordinator/store/store.h"
#include "coordinator/summary/summary.h"

#include "base/memory.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

static char *text_or_empty(const char *text)
{
    return memory_text(text ? text : "");
}

/* ---- from a store ---- */

static void take_distribution(const struct summary_distribution *from, bool drifts,
                              struct compare_figure *figure)
{
    figure->p50 = from->p50;
    figure->clean_p50 = from->clean_p50;
    figure->min = from->min.value;
    figure->max = from->max.value;
    figure->drifts = drifts;
}

static void take_rounds(const struct summary_round *rounds, size_t count, struct compare_cell *cell)
{
    for (int metric = 0; metric < COMPARE_METRICS; metric++) {
        struct compare_figure *figure = &cell->figures[metric];
        figure->values = memory_zeroed(count + 1, sizeof *figure->values);
        figure->blocks = memory_zeroed(count + 1, sizeof *figure->blocks);
        figure->clean = memory_zeroed(count + 1, sizeof *figure->clean);
        figure->count = count;
        for (size_t i = 0; i < count; i++) {
            figure->values[i] = (struct effect_value){
                rounds[i].worker, metric == COMPARE_WALL ? rounds[i].wall_ns : rounds[i].cpu_ns};
            figure->blocks[i] = rounds[i].block;
            figure->clean[i] = rounds[i].clean;
        }
    }
}

static bool many_flagged(double flagged, double rounds)
{
    return flagged >= 2 && flagged * 10 > rounds;
}

static int take_cell(struct store *store, const struct summary *summary, const struct summary_cell *from,
                     struct compare_cell *cell, struct error *err)
{
    scoped_free struct summary_round *rounds = NULL;
    size_t count;
    cell->id = memory_text(from->id);
    cell->unusable = from->flags >> SUMMARY_FLAG_INCOMPLETE & 1 ? "cell_incomplete"
                     : from->verdict == SUMMARY_INVALID         ? "cell_invalid"
                                                                : NULL;
    cell->noisy =
        from->verdict == SUMMARY_NOISY || many_flagged((double)from->rounds_flagged, (double)from->rounds);
    cell->by_unit = from->processes > 1;
    cell->late_ns = from->overshoot_p50_ns.known ? fmax(from->overshoot_p50_ns.value, 0) : 0;
    take_distribution(&from->wall_ns, from->flags >> SUMMARY_FLAG_DRIFT_WALL & 1,
                      &cell->figures[COMPARE_WALL]);
    take_distribution(&from->cpu_ns, from->flags >> SUMMARY_FLAG_DRIFT_CPU & 1, &cell->figures[COMPARE_CPU]);
    if (summary_load_rounds(store, summary, from->number, &rounds, &count, err) < 0)
        return -1;
    take_rounds(rounds, count, cell);
    return 0;
}

static int take_summary(struct store *store, const struct summary *summary, struct compare_side *side,
                        struct error *err)
{
    side->run_id = memory_text(summary->run_id);
    side->status = memory_text(summary->status);
    side->host = text_or_empty(summary->worker_count ? summary->workers[0].host : NULL);
    side->tool_version = memory_text(summary->tool_version);
    side->has_values = true;
    side->cells = memory_zeroed(summary->cell_count + 1, sizeof *side->cells);
    for (size_t i = 0; i < summary->cell_count; i++)
        if (take_cell(store, summary, &summary->cells[i], &side->cells[side->cell_count++], err) < 0)
            return -1;
    return 0;
}

static int load_run(const char *dir, struct compare_side *side, struct error *err)
{
    struct store *store;
    struct summary *summary;
    if (store_open(dir, STORE_READ, &store, err) < 0)
        return -1;
    int result = summary_build(store, &summary, err);
    if (result == 0) {
        result = take_summary(store, summary, side, err);
        summary_free(summary);
    }
    store_close(store);
    return result;
}

/* ---- from a summary.json ---- */

struct reading {
    const char *path;
    struct error *err;
};

static int refuse(const struct reading *reading, const char *where, const char *what)
{
    error_set(reading->err, ERROR_USAGE, "'%s' is no summary of a run: %.200s%s%s", reading->path, where,
              *where ? ": " : "", what);
    for (char *at = reading->err ? reading->err->text : NULL; at && *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    return -1;
}

static const char *string_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* A number that a time can be: finite and not negative. */
static bool read_number(const json_t *object, const char *name, double *ret)
{
    const json_t *member = json_object_get(object, name);
    double value = json_number_value(member);
    if (!json_is_number(member) || !isfinite(value) || value < 0)
        return false;
    *ret = value;
    return true;
}

static int read_bounds(const struct reading *reading, const char *id, const json_t *from,
                       struct stats_estimate *estimate)
{
    if (!json_is_number(json_object_get(from, "ci_lo"))) {
        estimate->why = "one_value";
        return 0;
    }
    if (!read_number(from, "ci_lo", &estimate->ci_lo) || !read_number(from, "ci_hi", &estimate->ci_hi) ||
        !read_number(from, "ci_level", &estimate->ci_level) || estimate->ci_level > 1 ||
        !(estimate->ci_lo <= estimate->value && estimate->value <= estimate->ci_hi))
        return refuse(reading, id, "an interval contradicts itself");
    estimate->bounded = true;
    estimate->ci_method = "as_reported";
    return 0;
}

/* null or not there: unknown. */
static int read_estimate(const struct reading *reading, const char *id, const json_t *from,
                         struct stats_estimate *ret)
{
    struct stats_estimate estimate = {.known = true};
    double n = 0;
    *ret = stats_unknown("not_measured");
    if (!from || json_is_null(from))
        return 0;
    if (!read_number(from, "value", &estimate.value) || !read_number(from, "n", &n) || n > 1e15)
        return refuse(reading, id, "an estimate has no value or no n");
    estimate.n = (int64_t)n;
    if (read_bounds(reading, id, from, &estimate) < 0)
        return -1;
    *ret = estimate;
    return 0;
}

static int read_figure(const struct reading *reading, const char *id, const json_t *from,
                       struct compare_figure *figure)
{
    figure->p50 = figure->clean_p50 = stats_unknown("not_measured");
    if (json_is_null(from))
        return 0;
    if (!json_is_object(from))
        return refuse(reading, id, "wall_ns and cpu_ns must be maps or null");
    if (read_estimate(reading, id, json_object_get(from, "p50"), &figure->p50) < 0 ||
        read_estimate(reading, id, json_object_get(from, "clean_p50"), &figure->clean_p50) < 0)
        return -1;
    figure->min = figure->max = figure->p50.value;
    (void)read_number(from, "min", &figure->min);
    (void)read_number(from, "max", &figure->max);
    return 0;
}

static bool has_flag(const json_t *cell, enum summary_flag flag)
{
    const json_t *flags = json_object_get(cell, "flags");
    for (size_t i = 0; i < json_array_size(flags); i++) {
        const char *name = json_string_value(json_array_get(flags, i));
        if (name && strcmp(name, summary_flag_name(flag)) == 0)
            return true;
    }
    return false;
}

static bool has_verdict(const json_t *cell, enum summary_verdict verdict)
{
    return strcmp(string_of(cell, "verdict"), summary_verdict_name(verdict)) == 0;
}

static int read_cell(const struct reading *reading, const json_t *from, struct compare_cell *cell)
{
    const char *id = string_of(from, "id");
    double flagged = 0, rounds = 0, processes = 1;
    if (!id || !*id)
        return refuse(reading, "", "a cell has no id");
    if (!string_of(from, "verdict"))
        return refuse(reading, id, "it has no verdict");
    cell->id = memory_text(id);
    (void)read_number(from, "rounds", &rounds);
    (void)read_number(from, "rounds_flagged", &flagged);
    (void)read_number(from, "processes", &processes);
    (void)read_number(from, "overshoot_p50_ns", &cell->late_ns);
    cell->unusable = has_flag(from, SUMMARY_FLAG_INCOMPLETE) ? "cell_incomplete"
                     : has_verdict(from, SUMMARY_INVALID)    ? "cell_invalid"
                                                             : NULL;
    cell->noisy = has_verdict(from, SUMMARY_NOISY) || many_flagged(flagged, rounds);
    cell->by_unit = processes > 1;
    cell->figures[COMPARE_WALL].drifts = has_flag(from, SUMMARY_FLAG_DRIFT_WALL);
    cell->figures[COMPARE_CPU].drifts = has_flag(from, SUMMARY_FLAG_DRIFT_CPU);
    if (read_figure(reading, id, json_object_get(from, "wall_ns"), &cell->figures[COMPARE_WALL]) < 0)
        return -1;
    return read_figure(reading, id, json_object_get(from, "cpu_ns"), &cell->figures[COMPARE_CPU]);
}

static int read_version(const struct reading *reading, const json_t *root)
{
    const json_t *version = json_object_get(root, "schema_version");
    if (!json_is_integer(version))
        return refuse(reading, "", "it has no schema_version");
    if (json_integer_value(version) == SUMMARY_SCHEMA_VERSION)
        return 0;
    return error_set(reading->err, ERROR_USAGE,
                     "'%s' has schema version %lld, and this corefan compares version %d: rebuild it with "
                     "'corefan report --format json'",
                     reading->path, (long long)json_integer_value(version), SUMMARY_SCHEMA_VERSION);
}

static int read_summary(const struct reading *reading, const json_t *root, struct compare_side *side)
{
    const json_t *cells = json_object_get(root, "cells");
    if (!json_is_object(root))
        return refuse(reading, "", "it is no JSON object");
    if (read_version(reading, root) < 0)
        return -1;
    if (!json_is_array(cells))
        return refuse(reading, "", "it has no list of cells");
    side->run_id = text_or_empty(string_of(json_object_get(root, "run"), "id"));
    side->status = text_or_empty(string_of(json_object_get(root, "run"), "status"));
    side->host = text_or_empty(string_of(json_array_get(json_object_get(root, "workers"), 0), "host"));
    side->tool_version = text_or_empty(string_of(json_object_get(root, "tool"), "version"));
    side->cells = memory_zeroed(json_array_size(cells) + 1, sizeof *side->cells);
    for (size_t i = 0; i < json_array_size(cells); i++)
        if (read_cell(reading, json_array_get(cells, i), &side->cells[side->cell_count++]) < 0)
            return -1;
    return 0;
}

static int load_json(const char *path, struct compare_side *side, struct error *err)
{
    const struct reading reading = {path, err};
    json_error_t mistake;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &mistake);
    if (!root && mistake.line < 0)
        return error_set(err, ERROR_USAGE, "cannot open '%s': %s", path, strerror(errno));
    if (!root) {
        scoped_free char *where = memory_format("line %d", mistake.line);
        return refuse(&reading, where, mistake.text);
    }
    int result = read_summary(&reading, root, side);
    json_decref(root);
    return result;
}

/* ---- either ---- */

/* free() it: DIR/summary.json where there is one and no run.db, else NULL. */
static char *summary_of_directory(const char *dir)
{
    struct stat found;
    scoped_free char *db = memory_format("%s/run.db", dir);
    char *json = memory_format("%s/summary.json", dir);
    if (stat(db, &found) < 0 && stat(json, &found) == 0)
        return json;
    free(json);
    return NULL;
}

int compare_load(const char *path, struct compare_side *ret, struct error *err)
{
    struct compare_side side = {.path = memory_text(path)};
    struct stat found;
    int result;
    if (stat(path, &found) < 0) {
        result = error_set(err, ERROR_USAGE, "cannot open '%s': %s", path, strerror(errno));
    } else if (S_ISDIR(found.st_mode)) {
        scoped_free char *json = summary_of_directory(path);
        result = json ? load_json(json, &side, err) : load_run(path, &side, err);
    } else {
        result = load_json(path, &side, err);
    }
    if (result < 0) {
        compare_side_release(&side);
        return -1;
    }
    *ret = side;
    return 0;
}
