/* pyperf's JSON, format 1.0, so that `pyperf compare_to`, `hist` and `stats` work on a run of ours.
 *
 * A suite has benchmarks; a benchmark has metadata (its name, its unit) and runs; a run has values in seconds per
 * fan-out, warm-ups and metadata.  Here: two benchmarks per cell, its id for wall time and "ID cpu" for thread CPU; one
 * run per worker.  What pyperf's loader asks for, and what is done about it:
 *   values are above 0: a benchmark with one that is not is left out;
 *   names are unique, texts are not empty and have no line breaks: control characters become '?';
 *   `hostname` is the same in all runs of a benchmark: else it is called corefan_host;
 *   a warm-up is [loops, seconds per loop]: the warm-up rounds of a worker are one, since only their sum is stored;
 *   `date` has no zone: that of the run of ours, in UTC;
 *   a suite has benchmarks: pyperf refuses a run in which nothing was measured.
 * Sources: pyperf's documentation ("pyperf JSON", metadata) and the checks of its loader. */
#include "base/memory.h"
#include "coordinator/report/report.h"

#include <jansson.h>
#include <string.h>

#define NS_PER_SECOND 1e9
#define DUMP          (JSON_COMPACT | JSON_REAL_PRECISION(15))

enum clock { WALL, CPU, CLOCKS };

/* ---- metadata ---- */

/* An empty text is not put. */
static void put_text(json_t *metadata, const char *name, const char *value)
{
    scoped_free char *clean = memory_text(value);
    bool blank = true;
    for (char *at = clean; at && *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
        blank = blank && *at == ' ';
    }
    if (blank)
        return;
    json_t *text = json_string(clean);
    (void)json_object_set_new(metadata, name, text ? text : json_string("?"));
}

/* "2026-01-02T03:04:05Z" as pyperf writes it: "2026-01-02 03:04:05". */
static void put_date(json_t *metadata, const char *stamp)
{
    char date[] = "YYYY-MM-DD HH:MM:SS";
    const size_t length = sizeof date - 1, day = 10;
    if (!stamp || strlen(stamp) != length + 1 || stamp[day] != 'T' || stamp[length] != 'Z')
        return;
    memcpy(date, stamp, length);
    date[day] = ' ';
    put_text(metadata, "date", date);
}

static const struct summary_worker *find_worker(const struct summary *summary, int64_t number)
{
    for (size_t i = 0; i < summary->worker_count; i++)
        if (summary->workers[i].number == number)
            return &summary->workers[i];
    return NULL;
}

static const char *host_of(const struct summary *summary, const struct summary_cell_worker *worker)
{
    const struct summary_worker *from = find_worker(summary, worker->worker);
    return from ? from->host : "";
}

static bool on_one_host(const struct summary *summary, const struct summary_cell *cell)
{
    for (size_t i = 1; i < cell->worker_count; i++)
        if (strcmp(host_of(summary, &cell->workers[i]), host_of(summary, &cell->workers[0])) != 0)
            return false;
    return true;
}

static json_t *metadata_of_run(const struct summary *summary, const struct summary_cell *cell,
                               const struct summary_cell_worker *worker)
{
    const struct summary_worker *from = find_worker(summary, worker->worker);
    json_t *metadata = json_object();
    put_date(metadata, summary->started_at);
    (void)json_object_set_new(metadata, "duration", json_real(worker->timed_ns / NS_PER_SECOND));
    if (worker->fanouts_of_round.known)
        (void)json_object_set_new(metadata, "loops",
                                  json_integer((json_int_t)worker->fanouts_of_round.value));
    (void)json_object_set_new(metadata, "corefan_worker", json_integer((json_int_t)worker->worker));
    if (worker->warmups.known)
        (void)json_object_set_new(metadata, "corefan_warmups",
                                  json_integer((json_int_t)worker->warmups.value));
    put_text(metadata, on_one_host(summary, cell) ? "hostname" : "corefan_host", host_of(summary, worker));
    if (from && from->cpu.known) {
        char cpu[32];
        (void)snprintf(cpu, sizeof cpu, "%.0f", from->cpu.value);
        put_text(metadata, "cpu_affinity", cpu);
    }
    return metadata;
}

static json_t *metadata_of_benchmark(const struct summary_cell *cell, enum clock clock)
{
    json_t *metadata = json_object();
    scoped_free char *name = memory_format("%s%s", cell->id, clock == CPU ? " cpu" : "");
    put_text(metadata, "name", name);
    put_text(metadata, "unit", "second");
    put_text(metadata, "corefan_runtime", cell->runtime);
    put_text(metadata, "corefan_arm", cell->arm);
    put_text(metadata, "corefan_job", cell->job);
    put_text(metadata, "corefan_verdict", summary_verdict_name(cell->verdict));
    return metadata;
}

/* ---- values ---- */

static double value_ns(const struct summary_round *round, enum clock clock)
{
    return clock == CPU ? round->cpu_ns : round->wall_ns;
}

/* One entry for all warm-up rounds of the worker: their fan-outs, and wall time over those.  NULL where it is not known
 * how many fan-outs they had. */
static json_t *warmups_of(const struct summary_cell_worker *worker)
{
    const struct summary_figure *fanouts = &worker->fanouts_of_round;
    if (!worker->warmups.known || !worker->warmup_ns.known || !fanouts->known || worker->warmups.value < 1)
        return NULL;
    double loops = worker->warmups.value * fanouts->value;
    json_t *entry = json_array(), *warmups = json_array();
    (void)json_array_append_new(entry, json_integer((json_int_t)loops));
    (void)json_array_append_new(entry, json_real(worker->warmup_ns.value / loops / NS_PER_SECOND));
    (void)json_array_append_new(warmups, entry);
    return warmups;
}

/* The worker's values begin at first. */
static json_t *run_of(const struct summary *summary, const struct summary_cell *cell,
                      const struct summary_cell_worker *worker, const struct summary_round *first,
                      enum clock clock)
{
    json_t *run = json_object(), *values = json_array();
    for (int64_t i = 0; i < worker->n; i++)
        (void)json_array_append_new(values, json_real(value_ns(&first[i], clock) / NS_PER_SECOND));
    (void)json_object_set_new(run, "metadata", metadata_of_run(summary, cell, worker));
    json_t *warmups = clock == WALL ? warmups_of(worker) : NULL;
    if (warmups)
        (void)json_object_set_new(run, "warmups", warmups);
    (void)json_object_set_new(run, "values", values);
    return run;
}

static json_t *benchmark_of(const struct summary *summary, const struct summary_cell *cell, enum clock clock)
{
    json_t *benchmark = json_object(), *runs = json_array();
    const struct summary_round *first = cell->values;
    for (size_t i = 0; i < cell->worker_count; first += cell->workers[i++].n)
        (void)json_array_append_new(runs, run_of(summary, cell, &cell->workers[i], first, clock));
    (void)json_object_set_new(benchmark, "metadata", metadata_of_benchmark(cell, clock));
    (void)json_object_set_new(benchmark, "runs", runs);
    return benchmark;
}

static bool has_values(const struct summary_cell *cell, enum clock clock)
{
    for (size_t i = 0; i < cell->value_count; i++)
        if (!(value_ns(&cell->values[i], clock) > 0))
            return false;
    return cell->value_count > 0;
}

/* ---- the stream: a benchmark is one line, so that a large run needs no large tree ---- */

static void dump(json_t *value, FILE *out)
{
    (void)json_dumpf(value, out, DUMP);
    json_decref(value);
}

int report_pyperf(const struct summary *summary, FILE *out)
{
    const char *before = "\n";
    json_t *metadata = json_object();
    put_text(metadata, "corefan_run", summary->run_id);
    put_text(metadata, "corefan_version", summary->tool_version);
    (void)fputs("{\"version\": \"1.0\",\n\"metadata\": ", out);
    dump(metadata, out);
    (void)fputs(",\n\"benchmarks\": [", out);
    for (size_t i = 0; i < CLOCKS * summary->cell_count; i++) {
        const struct summary_cell *cell = &summary->cells[i / CLOCKS];
        enum clock clock = (enum clock)(i % CLOCKS);
        if (!has_values(cell, clock))
            continue;
        (void)fputs(before, out);
        dump(benchmark_of(summary, cell, clock), out);
        before = ",\n";
    }
    (void)fputs("\n]}\n", out);
    return ferror(out) ? -1 : 0;
}
