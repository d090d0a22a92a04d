/* pyperf's JSON, format 1.0, so that `pyperf compare_to`, `hist` and `stats` work on a run of ours.
 *
 * A suite has benchmarks; a benchmark has metadata (its name, its unit) and runs; a run has values in seconds per
 * fan-out and metadata.  Here: two benchmarks per cell, its id for wall time and "ID cpu" for thread CPU; one run per
 * worker.  Source: pyperf's documentation, "pyperf JSON" and the metadata list. */
#include "coordinator/report/report.h"

#include <jansson.h>
#include <string.h>

#define NS_PER_SECOND 1e9

static json_t *metadata_of_run(const struct summary *summary, const struct summary_cell *cell, int64_t worker)
{
    json_t *metadata = json_object();
    for (size_t i = 0; i < summary->worker_count; i++) {
        const struct summary_worker *from = &summary->workers[i];
        if (from->number != worker)
            continue;
        char cpu[32];
        (void)json_object_set_new(metadata, "hostname", json_string(from->host));
        (void)json_object_set_new(metadata, "corefan_runtime", json_string(from->label));
        if (from->cpu.known) {
            (void)snprintf(cpu, sizeof cpu, "%.0f", from->cpu.value);
            (void)json_object_set_new(metadata, "cpu_affinity", json_string(cpu));
        }
    }
    (void)json_object_set_new(metadata, "corefan_worker", json_integer(worker));
    (void)json_object_set_new(metadata, "corefan_verdict", json_string(summary_verdict_name(cell->verdict)));
    return metadata;
}

static json_t *run_of(const struct summary *summary, const struct summary_cell *cell, size_t first,
                      size_t count, bool cpu)
{
    json_t *values = json_array();
    for (size_t i = first; i < first + count; i++) {
        double ns = cpu ? cell->values[i].cpu_ns : cell->values[i].wall_ns;
        (void)json_array_append_new(values, json_real(ns / NS_PER_SECOND));
    }
    json_t *run = json_object();
    (void)json_object_set_new(run, "metadata", metadata_of_run(summary, cell, cell->values[first].worker));
    (void)json_object_set_new(run, "values", values);
    return run;
}

static json_t *runs_of(const struct summary *summary, const struct summary_cell *cell, bool cpu)
{
    json_t *runs = json_array();
    for (size_t first = 0; first < cell->value_count;) {
        size_t count = 1;
        while (first + count < cell->value_count &&
               cell->values[first + count].worker == cell->values[first].worker)
            count++;
        (void)json_array_append_new(runs, run_of(summary, cell, first, count, cpu));
        first += count;
    }
    return runs;
}

static json_t *benchmark_of(const struct summary *summary, const struct summary_cell *cell, bool cpu)
{
    char name[512];
    (void)snprintf(name, sizeof name, "%s%s", cell->id, cpu ? " cpu" : "");
    json_t *metadata = json_object();
    (void)json_object_set_new(metadata, "name", json_string(name));
    (void)json_object_set_new(metadata, "unit", json_string("second"));
    json_t *benchmark = json_object();
    (void)json_object_set_new(benchmark, "metadata", metadata);
    (void)json_object_set_new(benchmark, "runs", runs_of(summary, cell, cpu));
    return benchmark;
}

/* pyperf refuses a benchmark without values, and values that are not above 0. */
static bool has_values(const struct summary_cell *cell, bool cpu)
{
    for (size_t i = 0; i < cell->value_count; i++)
        if (!((cpu ? cell->values[i].cpu_ns : cell->values[i].wall_ns) > 0))
            return false;
    return cell->value_count > 0;
}

int report_pyperf(const struct summary *summary, FILE *out)
{
    json_t *benchmarks = json_array();
    for (size_t i = 0; i < 2 * summary->cell_count; i++)
        if (has_values(&summary->cells[i / 2], i % 2))
            (void)json_array_append_new(benchmarks, benchmark_of(summary, &summary->cells[i / 2], i % 2));
    json_t *metadata = json_object();
    (void)json_object_set_new(metadata, "corefan_run", json_string(summary->run_id));
    (void)json_object_set_new(metadata, "corefan_version", json_string(summary->tool_version));
    json_t *suite = json_object();
    (void)json_object_set_new(suite, "version", json_string("1.0"));
    (void)json_object_set_new(suite, "metadata", metadata);
    (void)json_object_set_new(suite, "benchmarks", benchmarks);
    int status = json_dumpf(suite, out, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(suite);
    (void)fputc('\n', out);
    return status < 0 || ferror(out) ? -1 : 0;
}
