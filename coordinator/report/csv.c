#include "coordinator/report/report.h"

#include <inttypes.h>
#include <string.h>

/* ---- values ---- */

/* Control characters become '?': a row is one line, and safe on a terminal. */
static void put_text(FILE *out, const char *value)
{
    if (!value)
        return;
    bool quoted = value[strcspn(value, ",\"")] != '\0';
    if (quoted)
        (void)fputc('"', out);
    for (; *value; value++) {
        unsigned char byte = (unsigned char)*value;
        if (byte == '"')
            (void)fputc('"', out);
        (void)fputc(byte < ' ' || byte == 0x7f ? '?' : byte, out);
    }
    if (quoted)
        (void)fputc('"', out);
}

/* At most three decimals, or six for ratios; no zeros at the end. */
static void put_number(FILE *out, double value, int decimals)
{
    char digits[400];
    int length = snprintf(digits, sizeof digits, "%.*f", decimals, value);
    while (length > 1 && digits[length - 1] == '0')
        length--;
    if (digits[length - 1] == '.')
        length--;
    digits[length] = '\0';
    (void)fputs(strcmp(digits, "-0") == 0 ? "0" : digits, out);
}

/* ---- columns ---- */

enum column_kind { TEXT, INTEGER, REAL, FIGURE, VALUE, LOW, HIGH, VERDICT, FLAGS };

struct column {
    const char *name;
    enum column_kind kind;
    size_t offset;
    int decimals;
};

#define AT(member) offsetof(struct summary_cell, member)
#define ESTIMATE(name, member, decimals)                                                                     \
    {name, VALUE, AT(member), decimals}, {name "_ci_lo", LOW, AT(member), decimals},                         \
    {                                                                                                        \
        name "_ci_hi", HIGH, AT(member), decimals                                                            \
    }

static const struct column columns[] = {
    {"id", TEXT, AT(id), 0},
    {"runtime", TEXT, AT(runtime), 0},
    {"arm", TEXT, AT(arm), 0},
    {"job", TEXT, AT(job), 0},
    {"fanout", INTEGER, AT(fanout), 0},
    {"delay_ns", INTEGER, AT(delay_ns), 0},
    {"clients", INTEGER, AT(clients), 0},
    {"phase", TEXT, AT(phase), 0},
    {"cores", INTEGER, AT(cores), 0},
    {"rate_per_s", REAL, AT(rate_per_s), 3},
    {"duration_ns", INTEGER, AT(duration_ns), 0},
    {"rounds", INTEGER, AT(rounds), 0},
    {"rounds_planned", INTEGER, AT(rounds_planned), 0},
    {"rounds_flagged", INTEGER, AT(rounds_flagged), 0},
    {"attempts", INTEGER, AT(attempts), 0},
    {"processes", INTEGER, AT(processes), 0},
    {"verdict", VERDICT, AT(verdict), 0},
    {"flags", FLAGS, AT(flags), 0},
    ESTIMATE("wall_p50_ns", wall_ns.p50, 3),
    {"wall_clean_p50_ns", VALUE, AT(wall_ns.clean_p50), 3},
    {"wall_min_ns", FIGURE, AT(wall_ns.min), 3},
    {"wall_max_ns", FIGURE, AT(wall_ns.max), 3},
    {"wall_mean_ns", FIGURE, AT(wall_ns.mean), 3},
    {"wall_stddev_ns", FIGURE, AT(wall_ns.stddev), 3},
    {"wall_p90_ns", FIGURE, AT(wall_ns.p90), 3},
    {"wall_p99_ns", FIGURE, AT(wall_ns.p99), 3},
    ESTIMATE("cpu_p50_ns", cpu_ns.p50, 3),
    {"cpu_min_ns", FIGURE, AT(cpu_ns.min), 3},
    {"cpu_max_ns", FIGURE, AT(cpu_ns.max), 3},
    {"cpu_mean_ns", FIGURE, AT(cpu_ns.mean), 3},
    {"cpu_stddev_ns", FIGURE, AT(cpu_ns.stddev), 3},
    {"harness_ns", FIGURE, AT(harness_ns), 3},
    ESTIMATE("cpu_net_ns", cpu_net_ns, 3),
    {"ideal_wall_ns", FIGURE, AT(ideal_wall_ns), 3},
    {"over_ideal_x", FIGURE, AT(over_ideal_x), 6},
    ESTIMATE("speedup_x", speedup_x, 6),
    ESTIMATE("speedup_block_x", speedup_block_x, 6),
    ESTIMATE("cpu_over_sequential_x", cpu_over_sequential_x, 6),
    {"max_in_flight", FIGURE, AT(max_in_flight), 3},
    {"wakeups_per_fanout", FIGURE, AT(wakeups_per_fanout), 3},
    {"fanouts_per_round", FIGURE, AT(fanouts_per_round), 3},
    {"throughput_per_s", FIGURE, AT(throughput_per_s), 3},
    {"throughput_per_s_core", FIGURE, AT(throughput_per_s_core), 3},
    {"utilization", FIGURE, AT(utilization), 6},
    ESTIMATE("ceiling_per_s_core", ceiling_per_s_core, 3),
    {"overshoot_min_ns", FIGURE, AT(overshoot_min_ns), 3},
    {"overshoot_p50_ns", FIGURE, AT(overshoot_p50_ns), 3},
    {"overshoot_max_ns", FIGURE, AT(overshoot_max_ns), 3},
    {"time_to_error_ns", FIGURE, AT(time_to_error_ns), 3},
    {"wasted_cpu_ns", FIGURE, AT(wasted_cpu_ns), 3},
    {"drain_ns", FIGURE, AT(drain_ns), 3},
    {"orphans", FIGURE, AT(orphans), 3},
    {"errors_seen", FIGURE, AT(errors_seen), 3},
    {"errors_lost", FIGURE, AT(errors_lost), 3},
    {"stall_overshoot_p50_ns", FIGURE, AT(stall_overshoot_p50_ns), 3},
    {"arrivals", TEXT, AT(arrivals), 0},
    {"rate_factor_x", REAL, AT(rate_factor), 6},
    {"core_utilization", FIGURE, AT(core_utilization), 6},
    {"offered_per_s_core", FIGURE, AT(offered_per_s_core), 3},
    {"achieved_x", FIGURE, AT(achieved_x), 6},
    {"skipped", FIGURE, AT(skipped), 3},
    {"unfinished", FIGURE, AT(unfinished), 3},
    {"lag_p50_ns", FIGURE, AT(lag_p50_ns), 3},
    {"lag_max_ns", FIGURE, AT(lag_max_ns), 3},
    {"intended_wall_p50_ns", VALUE, AT(intended_ns.p50), 3},
    {"intended_wall_p99_ns", FIGURE, AT(intended_ns.p99), 3},
    {"intended_wall_max_ns", FIGURE, AT(intended_ns.max), 3},
};
#define COLUMN_COUNT (sizeof columns / sizeof *columns)

static void put_flags(FILE *out, unsigned flags)
{
    const char *between = "";
    for (int flag = 0; flag < SUMMARY_FLAG_COUNT; flag++)
        if (flags >> flag & 1) {
            (void)fprintf(out, "%s%s", between, summary_flag_name((enum summary_flag)flag));
            between = " ";
        }
}

static void put_estimate(FILE *out, const struct stats_estimate *estimate, const struct column *column)
{
    if (column->kind == VALUE && estimate->known)
        put_number(out, estimate->value, column->decimals);
    if (column->kind != VALUE && estimate->known && estimate->bounded)
        put_number(out, column->kind == LOW ? estimate->ci_lo : estimate->ci_hi, column->decimals);
}

static void put_field(FILE *out, const struct summary_cell *cell, const struct column *column)
{
    const void *at = (const char *)cell + column->offset;
    const struct summary_figure *figure = at;
    switch (column->kind) {
    case TEXT:
        put_text(out, *(const char *const *)at);
        break;
    case INTEGER:
        (void)fprintf(out, "%" PRId64, *(const int64_t *)at);
        break;
    case REAL:
        put_number(out, *(const double *)at, column->decimals);
        break;
    case FIGURE:
        if (figure->known)
            put_number(out, figure->value, column->decimals);
        break;
    case VALUE:
    case LOW:
    case HIGH:
        put_estimate(out, at, column);
        break;
    case VERDICT:
        put_text(out, summary_verdict_name(cell->verdict));
        break;
    case FLAGS:
        put_flags(out, cell->flags);
        break;
    }
}

int report_csv(const struct summary *summary, FILE *out)
{
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        (void)fprintf(out, "%s%s", i ? "," : "", columns[i].name);
    (void)fputc('\n', out);
    for (size_t row = 0; row < summary->cell_count; row++) {
        for (size_t i = 0; i < COLUMN_COUNT; i++) {
            if (i)
                (void)fputc(',', out);
            put_field(out, &summary->cells[row], &columns[i]);
        }
        (void)fputc('\n', out);
    }
    return ferror(out) ? -1 : 0;
}
