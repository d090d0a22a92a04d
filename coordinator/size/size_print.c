#include "coordinator/size/size_internal.h"

#include "coordinator/report/figure.h"
#include "coordinator/report/line.h"

#include <jansson.h>
#include <string.h>

/* ---- text ---- */

static void print_head(const struct sizing *sizing, FILE *out)
{
    char rate[FIGURE_BYTES], p99[FIGURE_BYTES];
    struct line line = {.length = 0};
    line_add(&line, "Cores for %s/s with a p99 of at most %s.",
             figure_rate(rate, true, sizing->options.rate_per_s),
             figure_duration(p99, true, sizing->options.p99_ns));
    line_print(&line, out);
}

static void print_impossible(const struct size_row *row, FILE *out)
{
    char least[FIGURE_BYTES], clients[FIGURE_BYTES];
    const struct capacity_size *size = &row->size;
    struct line line = {.length = 0};
    line_add(&line, "%-24.24s %-16.16s  not reachable: ", row->arm, row->runtime);
    if (size->least_p99_ns > 0 && row->open_loop)
        line_add(&line, "p99 is %s or more at every rate", figure_duration(least, true, size->least_p99_ns));
    else if (size->least_p99_ns > 0)
        line_add(
            &line, "p99 is %s with %s client%s already", figure_duration(least, true, size->least_p99_ns),
            figure_whole(clients, true, (double)size->least_clients), size->least_clients == 1 ? "" : "s");
    else
        line_add(&line, "no load has enough fan-outs for a p99");
    (void)fprintf(out, "%s\n", line.text);
}

static void print_row(const struct size_row *row, FILE *out)
{
    char cores[FIGURE_BYTES], lo[FIGURE_BYTES], hi[FIGURE_BYTES],
        bounds[2 * FIGURE_BYTES + 4] = "-", each[FIGURE_BYTES], p99[FIGURE_BYTES], saved[FIGURE_BYTES];
    const struct capacity_size *size = &row->size;
    const struct summary_figure *cost = &row->capacity->cpu_ns_per_saved_ms;
    struct line line = {.length = 0};
    if (!size->cores.known) {
        print_impossible(row, out);
        return;
    }
    if (size->cores.bounded)
        (void)snprintf(bounds, sizeof bounds, "%s..%s", figure_whole(lo, true, size->cores.ci_lo),
                       figure_whole(hi, true, size->cores.ci_hi));
    line_add(&line, "%-24.24s %-16.16s%7s%13s%12s%10s%6.2f%11s%s", row->arm, row->runtime,
             figure_whole(cores, true, size->cores.value), bounds,
             figure_rate(each, true, size->per_s_core.value), figure_duration(p99, true, size->p99_ns),
             size->utilization, figure_duration(saved, cost->known, cost->value), row->open_loop ? "" : " *");
    (void)fprintf(out, "%s\n", line.text);
}

/* "load (32 clients)"; an open loop has none. */
static void add_hardest(struct line *line, const struct size_row *row)
{
    char clients[FIGURE_BYTES];
    if (row->open_loop)
        line_add(line, "rate");
    else
        line_add(line, "load (%s client%s)", figure_whole(clients, true, (double)row->size.clients),
                 row->size.clients == 1 ? "" : "s");
}

static void print_notes(const struct sizing *sizing, FILE *out)
{
    for (size_t i = 0; i < sizing->row_count; i++) {
        const struct size_row *row = &sizing->rows[i];
        struct line line = {.length = 0};
        if (!row->size.cores.known || !row->size.more_is_possible)
            continue;
        line_add(&line, "  %s on %s may need fewer: its hardest ", row->arm, row->runtime);
        add_hardest(&line, row);
        line_add(&line, " was still in time.");
        line_print(&line, out);
    }
}

static void print_legend(const struct sizing *sizing, FILE *out)
{
    struct line line = {.length = 0};
    bool closed = false;
    for (size_t i = 0; i < sizing->row_count; i++)
        closed |= !sizing->rows[i].open_loop;
    line_add(
        &line,
        "  each per s: the most that one core does in time; p99: of the hardest load in time; used: of each "
        "core at that rate; CPU/ms: CPU over that of sequential, per ms of latency saved.");
    line_print(&line, out);
    if (!closed)
        return;
    line_add(&line,
             "  *: from a closed loop, in which clients wait for their answers. Requests that come as they "
             "please need room beyond that: measure with 'rate' to know how much.");
    line_print(&line, out);
}

int size_print_text(const struct sizing *sizing, FILE *out)
{
    print_head(sizing, out);
    for (size_t i = 0; i < sizing->row_count; i++) {
        const char *title = sizing->rows[i].capacity->title;
        if (i == 0 || strcmp(title, sizing->rows[i - 1].capacity->title) != 0) {
            struct line line = {.length = 0};
            line_add(&line, "%s", title);
            (void)fputc('\n', out);
            line_print(&line, out);
            (void)fprintf(out, "%-24s %-16s%7s%13s%12s%10s%6s%11s\n", "arm", "runtime", "cores", "interval",
                          "each per s", "p99", "used", "CPU/ms");
        }
        print_row(&sizing->rows[i], out);
    }
    (void)fputc('\n', out);
    print_notes(sizing, out);
    print_legend(sizing, out);
    return ferror(out) ? -1 : 0;
}

/* ---- JSON ---- */

static void put_number(json_t *object, const char *name, bool known, double value, const char *why)
{
    char reason[64];
    if (known) {
        (void)json_object_set_new(object, name, json_real(value));
        return;
    }
    (void)snprintf(reason, sizeof reason, "%s_null_reason", name);
    (void)json_object_set_new(object, name, json_null());
    (void)json_object_set_new(object, reason, json_string(why));
}

static void put_estimate(json_t *object, const char *name, const struct stats_estimate *estimate)
{
    if (!estimate->known) {
        put_number(object, name, false, 0, estimate->why);
        return;
    }
    json_t *entry = json_object();
    put_number(entry, "value", true, estimate->value, NULL);
    (void)json_object_set_new(entry, "n", json_integer((json_int_t)estimate->n));
    put_number(entry, "ci_lo", estimate->bounded, estimate->ci_lo, estimate->why);
    put_number(entry, "ci_hi", estimate->bounded, estimate->ci_hi, estimate->why);
    put_number(entry, "ci_level", estimate->bounded, estimate->ci_level, estimate->why);
    (void)json_object_set_new(object, name, entry);
}

static json_t *row_object(const struct size_row *row)
{
    const struct capacity_size *size = &row->size;
    const struct summary_figure *saved = &row->capacity->cpu_ns_per_saved_ms;
    json_t *object = json_pack("{s:s?, s:s?, s:s?, s:s}", "job", row->capacity->title, "runtime",
                               row->runtime, "arm", row->arm, "loop", row->open_loop ? "open" : "closed");
    const char *why = size->cores.why;
    put_estimate(object, "cores", &size->cores);
    put_estimate(object, "per_s_core", &size->per_s_core);
    put_number(object, "utilization", size->cores.known, size->utilization, why);
    put_number(object, "cpu_ns", size->cores.known, size->cpu_ns, why);
    put_number(object, "p99_ns", size->cores.known, size->p99_ns, why);
    put_number(object, "clients", size->cores.known && !row->open_loop, (double)size->clients,
               row->open_loop ? "open_loop" : why);
    put_number(object, "least_p99_ns", size->least_p99_ns > 0, size->least_p99_ns, "no_p99");
    put_number(object, "cpu_ns_per_saved_ms", saved->known, saved->value, saved->why);
    (void)json_object_set_new(object, "more_is_possible", json_boolean(size->more_is_possible));
    return object;
}

int size_print_json(const struct sizing *sizing, FILE *out)
{
    json_t *root = json_object(), *rows = json_array();
    put_number(root, "rate_per_s", true, sizing->options.rate_per_s, NULL);
    put_number(root, "p99_ns", true, sizing->options.p99_ns, NULL);
    for (size_t i = 0; i < sizing->row_count; i++)
        (void)json_array_append_new(rows, row_object(&sizing->rows[i]));
    (void)json_object_set_new(root, "rows", rows);
    int status = json_dumpf(root, out, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    (void)fputc('\n', out);
    json_decref(root);
    return status < 0 || ferror(out) ? -1 : 0;
}
