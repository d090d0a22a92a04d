#include "coordinator/report/text_capacity.h"

#include "coordinator/report/figure.h"
#include "coordinator/report/line.h"

#include <stdint.h>
#include <string.h>

static const struct summary_cell *cell_of(const struct summary *summary, const struct summary_capacity *row)
{
    return &summary->cells[row->cell];
}

/* ---- in words ---- */

static void tell_busiest(struct line *line, const struct summary_capacity *row)
{
    char clients[FIGURE_BYTES];
    const char *why = row->curve.measured_per_s_core.why;
    if (why && strcmp(why, "core_shared") == 0)
        line_add(line, "others were on its core");
    else if (why && strcmp(why, "no_harder_load") == 0)
        line_add(line, "no harder load than that of %s client%s",
                 figure_whole(clients, true, (double)row->curve.busiest_clients),
                 row->curve.busiest_clients == 1 ? "" : "s");
    else if (row->curve.busiest_clients > 0)
        line_add(line, "never saturated: %.2f at %s client%s", row->curve.busiest_utilization,
                 figure_whole(clients, true, (double)row->curve.busiest_clients),
                 row->curve.busiest_clients == 1 ? "" : "s");
    else
        line_add(line, "never driven in windows");
}

/* "946 us CPU per fan-out idle, 1.82 ms saturated" */
static void tell_cost(struct line *line, const struct summary *summary, const struct summary_capacity *row)
{
    char idle[FIGURE_BYTES], busy[FIGURE_BYTES], clients[FIGURE_BYTES];
    int64_t least = cell_of(summary, row)->clients;
    line_add(line, "%s CPU per fan-out",
             figure_duration(idle, row->idle_cpu_ns.known, row->idle_cpu_ns.value));
    if (least > 1)
        line_add(line, " with %s clients", figure_whole(clients, true, (double)least));
    else
        line_add(line, " idle");
    if (row->busy_cpu_ns.known)
        line_add(line, ", %s saturated", figure_duration(busy, true, row->busy_cpu_ns.value));
    else if (row->predicted_busy_cpu_ns.known)
        line_add(line, ", %s foretold when busy",
                 figure_duration(busy, true, row->predicted_busy_cpu_ns.value));
}

/* "540/s (549/s foretold)"; "2,410/s as foretold (never saturated: 0.87 at 1,024 clients)" */
static void tell_ceiling(struct line *line, const struct summary_capacity *row)
{
    char measured[FIGURE_BYTES], predicted[FIGURE_BYTES];
    const struct stats_estimate *reached = &row->curve.measured_per_s_core;
    const struct stats_estimate *foretold = &row->curve.predicted_per_s_core;
    if (reached->known) {
        line_add(line, "%s/s", figure_rate(measured, true, reached->value));
        if (foretold->known)
            line_add(line, " (%s/s foretold)", figure_rate(predicted, true, foretold->value));
        return;
    }
    if (foretold->known)
        line_add(line, "%s/s as foretold (", figure_rate(predicted, true, foretold->value));
    else
        line_add(line, "nobody knows how many (");
    tell_busiest(line, row);
    line_add(line, ")");
}

static void tell_crossover(struct line *line, const char *arm, const struct summary_capacity *row)
{
    char clients[FIGURE_BYTES];
    const struct stats_estimate *at = &row->crossover_clients;
    const char *below = row->cheaper_below ? arm : "sequential";
    const char *above = row->cheaper_below ? "sequential" : arm;
    bool foretold = !at->known && row->predicted_crossover_clients.known;
    at = foretold ? &row->predicted_crossover_clients : at;
    if (at->known)
        line_add(line, " Below %s clients %s costs less CPU, above it %s does%s.",
                 figure_whole(clients, true, at->value), below, above, foretold ? " (foretold)" : "");
    else if (at->why &&
             (strcmp(at->why, "first_always_cheaper") == 0 || strcmp(at->why, "second_always_cheaper") == 0))
        line_add(line, " %s costs less CPU at every load.", below);
}

static void tell_latency(struct line *line, const struct summary_capacity *row)
{
    char clients[FIGURE_BYTES], cost[FIGURE_BYTES];
    const struct stats_estimate *in_time = &row->curve.clients_in_time;
    const struct summary_figure *saved = &row->cpu_ns_per_saved_ms;
    if (in_time->known)
        line_add(line, " A core carries %s client%s before latency grows by 10 %%.",
                 figure_whole(clients, true, in_time->value), in_time->value < 1.5 ? "" : "s");
    if (saved->known && saved->value > 0)
        line_add(line, " On a busy core each ms of latency saved costs %s of CPU.",
                 figure_duration(cost, true, saved->value));
    else if (saved->known)
        line_add(line, " It saves latency and CPU on a busy core.");
}

static void tell_row(const struct summary *summary, const struct summary_capacity *row, FILE *out)
{
    struct line line = {.length = 0};
    const struct summary_cell *cell = cell_of(summary, row);
    line_add(&line, "%s of %s on %s: ", cell->arm, row->title, cell->runtime);
    tell_cost(&line, summary, row);
    line_add(&line, "; one core serves ");
    tell_ceiling(&line, row);
    if (row->sequential != SIZE_MAX && &summary->capacity[row->sequential] != row) {
        line_add(&line, ", sequential ");
        tell_ceiling(&line, &summary->capacity[row->sequential]);
    }
    line_add(&line, ".");
    tell_crossover(&line, cell->arm, row);
    tell_latency(&line, row);
    line_print(&line, out);
}

void text_tell_capacity(const struct summary *summary, FILE *out)
{
    for (size_t i = 0; i < summary->capacity_count; i++)
        if (summary->capacity[i].told)
            tell_row(summary, &summary->capacity[i], out);
}

/* ---- as tables ---- */

static const char *interval(char *buf, const struct stats_estimate *estimate)
{
    if (!estimate->known || !estimate->bounded)
        return figure_unknown(buf);
    (void)snprintf(buf, FIGURE_BYTES, "%.2f..%.2f", estimate->ci_lo, estimate->ci_hi);
    return buf;
}

static void print_figures(const struct summary *summary, const struct summary_capacity *row, FILE *out)
{
    char idle[FIGURE_BYTES], busy[FIGURE_BYTES], foretold[FIGURE_BYTES], reached[FIGURE_BYTES],
        ratio[FIGURE_BYTES], bounds[FIGURE_BYTES], knee[FIGURE_BYTES], crossover[FIGURE_BYTES];
    const struct capacity_curve *curve = &row->curve;
    struct line line = {.length = 0};
    line_add(&line, "%-24.24s%9s%9s%11s%11s%7s%13s%7s%9s", cell_of(summary, row)->arm,
             figure_duration(idle, row->idle_cpu_ns.known, row->idle_cpu_ns.value),
             figure_duration(busy, row->busy_cpu_ns.known, row->busy_cpu_ns.value),
             figure_rate(foretold, curve->predicted_per_s_core.known, curve->predicted_per_s_core.value),
             figure_rate(reached, curve->measured_per_s_core.known, curve->measured_per_s_core.value),
             figure_ratio(ratio, curve->error_x.known, curve->error_x.value),
             interval(bounds, &curve->error_x),
             figure_whole(knee, curve->clients_at_knee.known, curve->clients_at_knee.value),
             figure_whole(crossover, row->crossover_clients.known, row->crossover_clients.value));
    (void)fprintf(out, "%s\n", line.text);
}

/* What the fit found, and what it could not. */
static void print_curve(const struct summary *summary, const struct summary_capacity *row, FILE *out)
{
    char work[FIGURE_BYTES], wakeup[FIGURE_BYTES], more[FIGURE_BYTES];
    const struct capacity_curve *curve = &row->curve;
    struct line line = {.length = 0};
    line_add(&line, "  %s: ", cell_of(summary, row)->arm);
    if (curve->fitted && curve->work_ns.known && !curve->wakeup_ns.known) {
        line_add(&line,
                 "work %s, each turn of the loop %s; %zu loads of few clients fitted, missed by %.1f %%",
                 figure_duration(work, true, curve->work_ns.value),
                 figure_duration(wakeup, true, curve->model.wakeup_ns), curve->loads_fitted,
                 row->residual_percent);
    } else if (curve->fitted && curve->work_ns.known) {
        line_add(&line, "work %s, each wake-up %s", figure_duration(work, true, curve->work_ns.value),
                 figure_duration(wakeup, true, curve->wakeup_ns.value));
        if (curve->model.growth_from > 0)
            line_add(&line, ", %s more for what %.0f clients keep alive",
                     figure_duration(more, true, curve->working_set_ns.value), curve->clients_at_knee.value);
        line_add(&line, "; %zu loads fitted, missed by %.1f %%", curve->loads_fitted, row->residual_percent);
    } else if (curve->work_ns.known) {
        line_add(&line, "work %s with the fewest clients", figure_duration(work, true, curve->work_ns.value));
    } else {
        line_add(&line, "no curve (%s)", curve->work_ns.why);
    }
    if (!curve->measured_per_s_core.known) {
        line_add(&line, "; ");
        tell_busiest(&line, row);
    }
    line_print(&line, out);
}

/* Rows of one title and runtime stand together. */
static bool starts_block(const struct summary *summary, size_t index)
{
    if (index == 0)
        return true;
    const struct summary_capacity *row = &summary->capacity[index], *before = row - 1;
    return strcmp(row->title, before->title) != 0 ||
           strcmp(cell_of(summary, row)->runtime, cell_of(summary, before)->runtime) != 0;
}

static void print_block(const struct summary *summary, size_t first, size_t after, FILE *out)
{
    struct line line = {.length = 0};
    if (summary->capacity[first].curve.busiest_clients == 0)
        return; /* driven at rates alone: nothing to fit */
    line_add(&line, "What one core carries: %s on %s", summary->capacity[first].title,
             cell_of(summary, &summary->capacity[first])->runtime);
    (void)fputc('\n', out);
    line_print(&line, out);
    (void)fprintf(out, "%-24s%9s%9s%11s%11s%7s%13s%7s%9s\n", "", "idle CPU", "busy CPU", "foretold/s",
                  "measured/s", "ratio", "interval", "knee", "crosses");
    for (size_t i = first; i < after; i++)
        print_figures(summary, &summary->capacity[i], out);
    for (size_t i = first; i < after; i++)
        print_curve(summary, &summary->capacity[i], out);
}

void text_print_capacity(const struct summary *summary, FILE *out)
{
    for (size_t first = 0, after; first < summary->capacity_count; first = after) {
        after = first + 1;
        while (after < summary->capacity_count && !starts_block(summary, after))
            after++;
        print_block(summary, first, after, out);
    }
}

static void print_law(const struct summary *summary, const struct summary_scalability *row, FILE *out)
{
    const struct summary_cell *cell = &summary->cells[row->cell];
    const struct stats_estimate *contention = &row->law.contention_x, *coherency = &row->law.coherency_x;
    const struct stats_estimate *peak = &row->law.peak_cores;
    char cores[FIGURE_BYTES];
    struct line line = {.length = 0};
    line_add(&line, "  %s on %s, %s: contention %.4f", cell->arm, cell->runtime,
             summary->groups[cell->group].title, contention->value);
    if (contention->bounded)
        line_add(&line, " (%.4f..%.4f)", contention->ci_lo, contention->ci_hi);
    line_add(&line, ", coherency %.6f", coherency->value);
    if (coherency->bounded)
        line_add(&line, " (%.6f..%.6f)", coherency->ci_lo, coherency->ci_hi);
    if (peak->known)
        line_add(&line, "; most at %s cores", figure_whole(cores, true, peak->value));
    else
        line_add(&line, "; no peak is shown");
    line_print(&line, out);
}

void text_print_scalability(const struct summary *summary, FILE *out)
{
    if (summary->scalability_count > 0)
        (void)fputs(
            "Universal Scalability Law, X(n) = n X(1) / (1 + contention (n - 1) + coherency n (n - 1)):\n",
            out);
    for (size_t i = 0; i < summary->scalability_count; i++)
        print_law(summary, &summary->scalability[i], out);
}
