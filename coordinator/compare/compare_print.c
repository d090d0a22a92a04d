#include "coordinator/compare/compare_internal.h"
#include "coordinator/report/line.h"

#include "base/memory.h"
#include "base/units.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define FIGURE_BYTES 48
#define MOST_NAMED   20 /* cells of one side only */

static const char *verdict_word(const struct comparison *comparison)
{
    enum error_kind kind = compare_exit_kind(comparison);
    return kind == ERROR_FAILED ? "FAIL" : kind == ERROR_INCONCLUSIVE ? "INCONCLUSIVE" : "PASS";
}

/* ---- text ---- */

/* "+10.2 %" of a ratio */
static const char *change(char *buf, double ratio)
{
    double percent = (ratio - 1) * 100;
    if (fabs(percent) < 0.05)
        percent = 0;
    (void)snprintf(buf, FIGURE_BYTES, fabs(percent) < 99.95 ? "%+.1f %%" : "%+.3g %%", percent);
    return buf;
}

static const char *p50(char *buf, const struct compare_figure *figure)
{
    if (!figure->p50.known)
        return "-";
    return units_format_duration(buf, FIGURE_BYTES, figure->p50.value);
}

static const char *interval(char *buf, const struct stats_estimate *ratio)
{
    char lo[FIGURE_BYTES], hi[FIGURE_BYTES];
    if (!ratio->known || !ratio->bounded)
        return "-";
    (void)snprintf(buf, FIGURE_BYTES, "%.16s .. %.16s", change(lo, ratio->ci_lo), change(hi, ratio->ci_hi));
    return buf;
}

static void print_row(const struct compare_row *row, FILE *out)
{
    char base[FIGURE_BYTES], changed[FIGURE_BYTES], by[FIGURE_BYTES], bounds[FIGURE_BYTES];
    const struct stats_estimate *ratio = &row->effect.ratio;
    struct line line = {.length = 0};
    line_add(&line, "  %-5s%9s%9s%10s%21s  %s%s%s", compare_metric_name(row->metric),
             p50(base, &row->base->figures[row->metric]), p50(changed, &row->changed->figures[row->metric]),
             ratio->known ? change(by, ratio->value) : "-", interval(bounds, ratio),
             compare_outcome_name(row->outcome), row->why ? ": " : "", row->why ? row->why : "");
    (void)fprintf(out, "%s\n", line.text);
}

static void print_cell_name(const struct compare_row *row, FILE *out)
{
    struct line line = {.length = 0};
    bool same = strcmp(row->base->id, row->changed->id) == 0;
    line_add(&line, "%s%s%s", row->base->id, same ? "" : " -> ", same ? "" : row->changed->id);
    line_print(&line, out);
}

static void print_table(const struct comparison *comparison, FILE *out)
{
    (void)fprintf(out, "\n  %-5s%9s%9s%10s%21s  %s\n", "", "base", "new", "change", "interval", "outcome");
    for (size_t i = 0; i < comparison->row_count; i++) {
        const struct compare_row *row = &comparison->rows[i];
        if (i == 0 || row->base != comparison->rows[i - 1].base)
            print_cell_name(row, out);
        print_row(row, out);
    }
}

static void print_side(const struct comparison *comparison, int index, FILE *out)
{
    const struct compare_side *side = &comparison->sides[index];
    struct line line = {.length = 0};
    line_add(&line, "%s: %s", index == 0 ? "Base" : "New", side->path);
    if (*side->run_id)
        line_add(&line, " (%s)", side->run_id);
    if (*side->status && strcmp(side->status, "complete") != 0)
        line_add(&line, ", which is %s", side->status);
    line_print(&line, out);
}

static void print_difference(const char *what, const char *base, const char *changed, FILE *out)
{
    struct line line = {.length = 0};
    if (!*base || !*changed || strcmp(base, changed) == 0)
        return;
    line_add(&line, "The two ran on different %s: %s and %s.", what, base, changed);
    line_print(&line, out);
}

static void print_head(const struct comparison *comparison, FILE *out)
{
    const struct compare_side *base = &comparison->sides[0], *changed = &comparison->sides[1];
    bool values = base->has_values && changed->has_values;
    struct line line = {.length = 0};
    print_side(comparison, 0, out);
    print_side(comparison, 1, out);
    print_difference("hosts", base->host, changed->host, out);
    print_difference("versions of corefan", base->tool_version, changed->tool_version, out);
    line_add(
        &line,
        "p50 per fan-out, new / base; intervals at 95 %% %s; a regression is more than +%g %%, sure over all "
        "rows.",
        values ? "from the rounds of both" : "from the intervals of both", comparison->threshold * 100);
    line_print(&line, out);
}

static void print_only(const struct comparison *comparison, int side, FILE *out)
{
    struct line line = {.length = 0};
    size_t count = comparison->only_count[side];
    if (count == 0)
        return;
    (void)fprintf(out, "\nOnly in %s, %zu cell%s:\n", side == 0 ? "base" : "new", count,
                  count == 1 ? "" : "s");
    for (size_t i = 0; i < count && i < MOST_NAMED; i++) {
        line_add(&line, "  %s", comparison->only[side][i]->id);
        line_print(&line, out);
    }
    if (count > MOST_NAMED)
        (void)fprintf(out, "  and %zu more\n", count - MOST_NAMED);
}

static void print_verdict(const struct comparison *comparison, FILE *out)
{
    const size_t *outcomes = comparison->outcomes;
    struct line line = {.length = 0};
    line_add(&line, "%s %zu cell%s, %zu regression%s", verdict_word(comparison), comparison->common_count,
             comparison->common_count == 1 ? "" : "s", outcomes[COMPARE_REGRESSION],
             outcomes[COMPARE_REGRESSION] == 1 ? "" : "s");
    if (outcomes[COMPARE_INCONCLUSIVE] > 0)
        line_add(&line, ", %zu undecided", outcomes[COMPARE_INCONCLUSIVE]);
    if (outcomes[COMPARE_IMPROVEMENT] > 0)
        line_add(&line, ", %zu improvement%s", outcomes[COMPARE_IMPROVEMENT],
                 outcomes[COMPARE_IMPROVEMENT] == 1 ? "" : "s");
    (void)fputc('\n', out);
    line_print(&line, out);
}

int compare_print_text(const struct comparison *comparison, FILE *out)
{
    print_head(comparison, out);
    print_table(comparison, out);
    print_only(comparison, 0, out);
    print_only(comparison, 1, out);
    print_verdict(comparison, out);
    return ferror(out) ? -1 : 0;
}

/* ---- JSON ---- */

static json_t *text_json(const char *value)
{
    json_t *string = json_string(value);
    return string ? string : json_string("?");
}

/* Numbers that JSON cannot hold do not get here: estimates are finite. */
static void put_number(json_t *object, const char *name, bool known, double value, const char *why)
{
    char reason[64];
    (void)snprintf(reason, sizeof reason, "%s_null_reason", name);
    (void)json_object_set_new(object, name, known ? json_real(value) : json_null());
    if (!known)
        (void)json_object_set_new(object, reason, json_string(why ? why : "not_known"));
}

static json_t *effect_json(const struct compare_row *row)
{
    const struct stats_estimate *ratio = &row->effect.ratio;
    json_t *object = json_object();
    (void)json_object_set_new(object, "value", json_real(ratio->value));
    (void)json_object_set_new(object, "n", json_integer(ratio->n));
    put_number(object, "ci_lo", ratio->bounded, ratio->ci_lo, ratio->why);
    put_number(object, "ci_hi", ratio->bounded, ratio->ci_hi, ratio->why);
    put_number(object, "ci_level", ratio->bounded, ratio->ci_level, ratio->why);
    (void)json_object_set_new(object, "ci_method",
                              ratio->bounded ? json_string(ratio->ci_method) : json_null());
    if (!ratio->bounded)
        (void)json_object_set_new(object, "ci_method_null_reason", json_string(ratio->why));
    return object;
}

static json_t *row_json(const struct compare_row *row)
{
    const struct stats_estimate *ratio = &row->effect.ratio, *base = &row->base->figures[row->metric].p50,
                                *changed = &row->changed->figures[row->metric].p50;
    json_t *object = json_object();
    (void)json_object_set_new(object, "id", text_json(row->base->id));
    (void)json_object_set_new(object, "new_id", text_json(row->changed->id));
    (void)json_object_set_new(object, "metric", json_string(compare_metric_name(row->metric)));
    put_number(object, "base_p50_ns", base->known, base->value, base->why);
    put_number(object, "new_p50_ns", changed->known, changed->value, changed->why);
    (void)json_object_set_new(object, "effect_x", ratio->known ? effect_json(row) : json_null());
    if (!ratio->known)
        (void)json_object_set_new(object, "effect_x_null_reason", json_string(ratio->why));
    put_number(object, "p_regression", ratio->bounded, row->p_regression, ratio->why);
    put_number(object, "p_improvement", ratio->bounded, row->p_improvement, ratio->why);
    (void)json_object_set_new(object, "outcome", json_string(compare_outcome_name(row->outcome)));
    if (row->why)
        (void)json_object_set_new(object, "reason", json_string(row->why));
    return object;
}

static json_t *side_json(const struct comparison *comparison, int index)
{
    const struct compare_side *side = &comparison->sides[index];
    json_t *object = json_object(), *only = json_array();
    for (size_t i = 0; i < comparison->only_count[index]; i++)
        (void)json_array_append_new(only, text_json(comparison->only[index][i]->id));
    (void)json_object_set_new(object, "path", text_json(side->path));
    (void)json_object_set_new(object, "run_id", text_json(side->run_id));
    (void)json_object_set_new(object, "status", text_json(side->status));
    (void)json_object_set_new(object, "host", text_json(side->host));
    (void)json_object_set_new(object, "corefan", text_json(side->tool_version));
    (void)json_object_set_new(object, "only_here", only);
    return object;
}

static json_t *verdict_json(const struct comparison *comparison)
{
    json_t *object = json_object();
    (void)json_object_set_new(object, "verdict", json_string(verdict_word(comparison)));
    (void)json_object_set_new(object, "cells", json_integer((json_int_t)comparison->common_count));
    for (int outcome = 0; outcome < COMPARE_OUTCOME_COUNT; outcome++)
        (void)json_object_set_new(object, compare_outcome_name((enum compare_outcome)outcome),
                                  json_integer((json_int_t)comparison->outcomes[outcome]));
    return object;
}

static void dump(json_t *value, FILE *out)
{
    (void)json_dumpf(value, out, JSON_REAL_PRECISION(9));
    json_decref(value);
}

int compare_print_json(const struct comparison *comparison, FILE *out)
{
    (void)fprintf(out, "{\n\"schema_version\": 1,\n\"threshold\": %.9g,\n\"base\": ", comparison->threshold);
    dump(side_json(comparison, 0), out);
    (void)fputs(",\n\"new\": ", out);
    dump(side_json(comparison, 1), out);
    (void)fputs(",\n\"rows\": [", out);
    for (size_t i = 0; i < comparison->row_count; i++) {
        (void)fputs(i ? ",\n  " : "\n  ", out);
        dump(row_json(&comparison->rows[i]), out);
    }
    (void)fputs("\n],\n\"result\": ", out);
    dump(verdict_json(comparison), out);
    (void)fputs("\n}\n", out);
    return ferror(out) ? -1 : 0;
}
