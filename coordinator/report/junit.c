#include "coordinator/report/report.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- text in XML ---- */

/* Length of the UTF-8 character that starts here, or 0 for bytes that XML 1.0 cannot hold: broken or overlong forms,
 * surrogates, U+FFFE, U+FFFF, and control characters. */
static size_t character_length(const unsigned char *at)
{
    static const struct {
        unsigned char lead, mask;
        uint32_t least;
    } forms[] = {{0x00, 0x80, 0}, {0xc0, 0xe0, 0x80}, {0xe0, 0xf0, 0x800}, {0xf0, 0xf8, 0x10000}};
    for (size_t length = 1; length <= 4; length++) {
        if ((at[0] & forms[length - 1].mask) != forms[length - 1].lead)
            continue;
        uint32_t code = at[0] & (unsigned char)~forms[length - 1].mask;
        for (size_t i = 1; i < length; i++) {
            if ((at[i] & 0xc0) != 0x80) /* also at the end of the text */
                return 0;
            code = code << 6 | (at[i] & 0x3f);
        }
        bool forbidden = code < ' ' || code == 0x7f || (code >= 0x80 && code < 0xa0) || code == 0xfffe ||
                         code == 0xffff || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff;
        return code < forms[length - 1].least || forbidden ? 0 : length;
    }
    return 0;
}

/* What XML cannot hold, and control characters, become '?'. */
static void put_text(FILE *out, const char *text)
{
    static const struct {
        char character;
        const char *entity;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&apos;"}};
    while (*text) {
        size_t length = character_length((const unsigned char *)text), entity = 0;
        while (entity < sizeof entities / sizeof *entities && entities[entity].character != *text)
            entity++;
        if (length == 0)
            (void)fputc('?', out);
        else if (entity < sizeof entities / sizeof *entities)
            (void)fputs(entities[entity].entity, out);
        else
            (void)fwrite(text, 1, length, out);
        text += length ? length : 1;
    }
}

static void put_attribute(FILE *out, const char *name, const char *value)
{
    (void)fprintf(out, " %s=\"", name);
    put_text(out, value);
    (void)fputc('"', out);
}

/* ---- what a case comes to ---- */

enum result { PASSED, SKIPPED, FAILED, BROKEN, RESULT_COUNT }; /* worst last */

static bool is_broken(const struct summary_cell *cell)
{
    return cell->verdict == SUMMARY_INVALID || (cell->flags >> SUMMARY_FLAG_INCOMPLETE & 1);
}

static void note_thresholds(const struct summary *summary, enum result *results)
{
    static const enum result by_outcome[] = {
        [THRESHOLD_PASSED] = PASSED, [THRESHOLD_FAILED] = FAILED, [THRESHOLD_UNDECIDED] = SKIPPED};
    for (size_t i = 0; i < summary->threshold_count; i++) {
        const struct summary_threshold *row = &summary->thresholds[i];
        if (by_outcome[row->outcome] > results[row->cell])
            results[row->cell] = by_outcome[row->outcome];
    }
}

/* free() it. */
static enum result *judge_cells(const struct summary *summary, size_t counts[RESULT_COUNT])
{
    enum result *results = calloc(summary->cell_count + 1, sizeof *results);
    if (!results)
        return NULL;
    note_thresholds(summary, results);
    for (size_t i = 0; i < summary->cell_count; i++) {
        if (is_broken(&summary->cells[i]))
            results[i] = BROKEN;
        counts[results[i]]++;
    }
    return results;
}

/* ---- elements ---- */

/* The conditions that this cell fails, or that it leaves open, one after another. */
static void put_conditions(FILE *out, const struct summary *summary, size_t cell,
                           enum threshold_outcome outcome)
{
    const char *between = "";
    for (size_t i = 0; i < summary->threshold_count; i++) {
        const struct summary_threshold *row = &summary->thresholds[i];
        if (row->cell != cell || row->outcome != outcome)
            continue;
        (void)fputs(between, out);
        put_text(out, summary->conditions[row->condition].text);
        if (row->figure.known)
            (void)fprintf(out, ": %.9g", row->figure.value);
        if (row->figure.known && row->figure.bounded)
            (void)fprintf(out, " (%.9g to %.9g)", row->figure.ci_lo, row->figure.ci_hi);
        if (row->why)
            (void)fprintf(out, ", %s", row->why);
        between = "; ";
    }
}

static void put_element(FILE *out, const struct summary *summary, size_t index, enum result result)
{
    const struct summary_cell *cell = &summary->cells[index];
    static const char *const names[RESULT_COUNT] = {
        [SKIPPED] = "skipped", [FAILED] = "failure", [BROKEN] = "error"};
    if (result == PASSED)
        return;
    (void)fprintf(out, "      <%s message=\"", names[result]);
    if (result == BROKEN)
        put_text(out, cell->verdict_reason ? cell->verdict_reason : "incomplete");
    else
        put_conditions(out, summary, index, result == FAILED ? THRESHOLD_FAILED : THRESHOLD_UNDECIDED);
    (void)fputs("\"/>\n", out);
}

static void put_estimate(FILE *out, const char *name, const struct stats_estimate *p50)
{
    if (!p50->known)
        return;
    (void)fprintf(out, "%s p50 %.3f ns", name, p50->value);
    if (p50->bounded)
        (void)fprintf(out, " (%.3f to %.3f)", p50->ci_lo, p50->ci_hi);
    (void)fputc('\n', out);
}

/* time: what one fan-out takes, since a case has no other time of its own. */
static void put_case(FILE *out, const struct summary *summary, size_t index, enum result result)
{
    const struct summary_cell *cell = &summary->cells[index];
    (void)fputs("    <testcase", out);
    put_attribute(out, "classname", cell->runtime);
    put_attribute(out, "name", cell->id);
    (void)fprintf(out, " time=\"%.9f\">\n", cell->wall_ns.p50.known ? cell->wall_ns.p50.value / 1e9 : 0.0);
    put_element(out, summary, index, result);
    (void)fputs("      <system-out>", out);
    put_estimate(out, "wall", &cell->wall_ns.p50);
    put_estimate(out, "CPU", &cell->cpu_ns.p50);
    (void)fprintf(out, "verdict %s</system-out>\n    </testcase>\n", summary_verdict_name(cell->verdict));
}

static void put_counts(FILE *out, const struct summary *summary, const size_t counts[RESULT_COUNT])
{
    (void)fprintf(out, " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\"", summary->cell_count,
                  counts[FAILED], counts[BROKEN], counts[SKIPPED]);
    if (summary->elapsed_ns.known)
        (void)fprintf(out, " time=\"%.3f\"", summary->elapsed_ns.value / 1e9);
}

int report_junit(const struct summary *summary, FILE *out)
{
    size_t counts[RESULT_COUNT] = {0};
    enum result *results = judge_cells(summary, counts);
    if (!results)
        return -1;
    (void)fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites", out);
    put_counts(out, summary, counts);
    (void)fputs(">\n  <testsuite", out);
    put_attribute(out, "name", summary->name);
    put_counts(out, summary, counts);
    if (*summary->started_at)
        put_attribute(out, "timestamp", summary->started_at);
    if (summary->host_count == 1)
        put_attribute(out, "hostname", summary->workers[0].host);
    (void)fputs(">\n", out);
    for (size_t i = 0; i < summary->cell_count; i++)
        put_case(out, summary, i, results[i]);
    (void)fputs("  </testsuite>\n</testsuites>\n", out);
    free(results);
    return ferror(out) ? -1 : 0;
}
