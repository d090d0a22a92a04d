#include "base/units.h"
#include "coordinator/report/figure.h"
#include "coordinator/report/line.h"
#include "coordinator/report/report.h"
#include "coordinator/report/text_capacity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_COLUMNS 24 /* "gather-return-exceptions" */

/* ---- the sentences above the tables ---- */

static void start_finding(struct line *line, const struct summary *summary,
                          const struct summary_finding *finding)
{
    if (summary->runtime_count > 1)
        line_add(line, "%s: ", finding->runtime);
    line_add(line, "%s: ", summary->groups[finding->group].title);
}

static void tell_wait(struct line *line, const struct summary *summary, const struct summary_finding *finding)
{
    const struct summary_cell *best = &summary->cells[finding->best],
                              *slow = &summary->cells[finding->sequential];
    char wall[FIGURE_BYTES], slow_wall[FIGURE_BYTES], speedup[FIGURE_BYTES], cpu[FIGURE_BYTES],
        slow_cpu[FIGURE_BYTES];
    bool saves = best->speedup_x.known && best->speedup_x.value > 1;
    line_add(line, "%s %s %s where sequential takes %s (%s), for %s CPU per fan-out against %s.", best->arm,
             saves ? "answers in" : "saves nothing: it takes",
             figure_duration(wall, true, best->wall_ns.p50.value),
             figure_duration(slow_wall, true, slow->wall_ns.p50.value),
             figure_ratio(speedup, best->speedup_x.known, best->speedup_x.value),
             figure_duration(cpu, true, best->cpu_ns.p50.value),
             figure_duration(slow_cpu, true, slow->cpu_ns.p50.value));
}

/* Calls tell for each measured cell of the finding's runtime, with what stands between two of them. */
static void tell_arms(struct line *line, const struct summary *summary, const struct summary_finding *finding,
                      void (*tell)(struct line *line, const struct summary_cell *cell))
{
    const struct summary_group *group = &summary->groups[finding->group];
    const char *between = "";
    for (size_t i = 0; i < group->cell_count; i++) {
        const struct summary_cell *cell = &summary->cells[group->cells[i]];
        if (strcmp(cell->runtime, finding->runtime) != 0 || !cell->wall_ns.p50.known)
            continue;
        line_add(line, "%s%s ", between, cell->arm);
        tell(line, cell);
        between = ", ";
    }
    line_add(line, ".");
}

static void tell_cost(struct line *line, const struct summary_cell *cell)
{
    char cpu[FIGURE_BYTES], times[FIGURE_BYTES];
    line_add(line, "%s", figure_duration(cpu, true, cell->cpu_ns.p50.value));
    if (strcmp(cell->arm, "sequential") != 0 && cell->cpu_over_sequential_x.known)
        line_add(line, " (%s)", figure_ratio(times, true, cell->cpu_over_sequential_x.value));
}

static void tell_no_wait(struct line *line, const struct summary *summary,
                         const struct summary_finding *finding)
{
    line_add(line, "no waiting to save; CPU per fan-out: ");
    tell_arms(line, summary, finding, tell_cost);
}

static void tell_error(struct line *line, const struct summary_cell *cell)
{
    char when[FIGURE_BYTES], running[FIGURE_BYTES];
    bool leaves_some = cell->orphans.known && cell->orphans.value > 0;
    if (!cell->time_to_error_ns.known)
        line_add(line, "not at all (it returns after %s)",
                 figure_duration(when, true, cell->wall_ns.p50.value));
    else
        line_add(line, "after %s (%s still running)",
                 figure_duration(when, true, cell->time_to_error_ns.value),
                 leaves_some ? figure_count(running, &cell->orphans) : "nothing");
}

/* What goes on after the caller was told. */
static void tell_waste(struct line *line, const struct summary *summary,
                       const struct summary_finding *finding)
{
    const struct summary_group *group = &summary->groups[finding->group];
    const char *before = " Thrown away after that: ";
    for (size_t i = 0; i < group->cell_count; i++) {
        const struct summary_cell *cell = &summary->cells[group->cells[i]];
        char cost[FIGURE_BYTES], drain[FIGURE_BYTES];
        if (strcmp(cell->runtime, finding->runtime) != 0 || !cell->orphans.known ||
            !(cell->orphans.value > 0))
            continue;
        line_add(line, "%s%s %s CPU over %s", before, cell->arm,
                 figure_duration(cost, cell->wasted_cpu_ns.known, cell->wasted_cpu_ns.value),
                 figure_duration(drain, cell->drain_ns.known, cell->drain_ns.value));
        before = ", ";
    }
    line_add(line, "%s", *before == ',' ? "." : "");
}

static void tell_failure(struct line *line, const struct summary *summary,
                         const struct summary_finding *finding)
{
    line_add(line, "the caller learns of the error: ");
    tell_arms(line, summary, finding, tell_error);
    tell_waste(line, summary, finding);
}

static void tell_timeout(struct line *line, const struct summary *summary,
                         const struct summary_finding *finding)
{
    line_add(line, "the caller learns that its time is up: ");
    tell_arms(line, summary, finding, tell_error);
    tell_waste(line, summary, finding);
}

static void tell_late(struct line *line, const struct summary_cell *cell)
{
    char late[FIGURE_BYTES];
    line_add(line, "%s late",
             figure_duration(late, cell->stall_overshoot_p50_ns.known, cell->stall_overshoot_p50_ns.value));
}

static void tell_stall(struct line *line, const struct summary *summary,
                       const struct summary_finding *finding)
{
    line_add(line, "some children hold the loop; the sleepers beside them woke: ");
    tell_arms(line, summary, finding, tell_late);
}

static void print_findings(FILE *out, const struct summary *summary)
{
    static void (*const tellers[])(struct line *, const struct summary *, const struct summary_finding *) = {
        [SUMMARY_FOUND_WAIT] = tell_wait,       [SUMMARY_FOUND_NO_WAIT] = tell_no_wait,
        [SUMMARY_FOUND_FAILURE] = tell_failure, [SUMMARY_FOUND_TIMEOUT] = tell_timeout,
        [SUMMARY_FOUND_STALL] = tell_stall,
    };
    struct line line = {.length = 0};
    for (size_t i = 0; i < summary->finding_count; i++) {
        start_finding(&line, summary, &summary->findings[i]);
        tellers[summary->findings[i].kind](&line, summary, &summary->findings[i]);
        line_print(&line, out);
    }
}

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* A run that is not whole says so before all else. */
static void print_status(FILE *out, const struct summary *summary)
{
    struct line line = {.length = 0};
    if (strcmp(summary->status, "complete") == 0)
        return;
    line_add(&line, "This run is %s", summary->status);
    if (summary->cells_incomplete > 0)
        line_add(&line, ": %lld of %zu cells lack%s rounds", (long long)summary->cells_incomplete,
                 summary->cell_count, summary->cells_incomplete == 1 ? "s" : "");
    line_add(&line, ". What follows is what was measured.");
    line_print(&line, out);
}

static void print_imprecise(FILE *out, const struct summary *summary)
{
    char missing[FIGURE_BYTES];
    struct line line = {.length = 0};
    if (summary->imprecise == 0)
        return;
    line_add(&line, "Inconclusive: %zu of %zu group%s did not reach the precision asked for",
             summary->imprecise, summary->precision_count, plural((int64_t)summary->precision_count));
    if (summary->missing_ns > 0)
        line_add(&line, "; about %s more of measuring is missing",
                 figure_duration(missing, true, summary->missing_ns));
    line_add(&line, ".");
    line_print(&line, out);
}

static void print_places(FILE *out, const struct summary *summary)
{
    struct line line = {.length = 0};
    line_add(&line, "Measured on %lld core%s", (long long)summary->cores_measured,
             plural(summary->cores_measured));
    if (summary->host_count > 1)
        line_add(&line, " of %lld hosts", (long long)summary->host_count);
    else if (summary->worker_count > 0)
        line_add(&line, " of %s", summary->workers[0].host);
    if (summary->host_count == 1 && summary->measured_cpu_count > 0) {
        line_add(&line, " (cpu");
        for (size_t i = 0; i < summary->measured_cpu_count; i++)
            line_add(&line, "%s%lld", i ? "," : " ", (long long)summary->measured_cpus[i]);
        line_add(&line, ")");
    }
    if (summary->reserved_cpus && *summary->reserved_cpus)
        line_add(&line, "; cpu %s reserved for corefan itself", summary->reserved_cpus);
    else if (summary->reserved_cpus)
        line_add(&line, "; none reserved for corefan itself, so it works between rounds only");
    if (summary->fill_idle)
        line_add(&line, "; idle ones kept busy (--fill-idle)");
    line_add(&line, ".");
    line_print(&line, out);
}

#define MOST_DISTURBERS 3 /* beyond notes, a line each */

/* The names of those that are notes, or of those that are none. */
static void name_disturbers(FILE *out, const struct summary *summary, bool notes, const char *heading)
{
    const char *between = " ";
    struct line line = {.length = 0};
    line_add(&line, "%s", heading);
    for (size_t i = 0; i < summary->disturber_count; i++) {
        const struct summary_disturber *disturber = &summary->disturbers[i];
        if (disturber->note != notes)
            continue;
        line_add(&line, "%s%s%s", between, disturber->id, disturber->severe ? " (severe)" : "");
        between = ", ";
    }
    line_add(&line, ".");
    line_print(&line, out);
}

/* What the host was like, before any of its figures. */
static void print_disturbers(FILE *out, const struct summary *summary)
{
    size_t many = summary->disturber_count - summary->disturber_notes;
    struct line line = {.length = 0};
    for (size_t i = 0; many <= MOST_DISTURBERS && i < summary->disturber_count; i++) {
        const struct summary_disturber *disturber = &summary->disturbers[i];
        if (disturber->note)
            continue;
        line_add(&line, "Disturbs here%s: %s. Remedy: %s.", disturber->severe ? ", severely" : "",
                 disturber->what, disturber->remedy);
        line_print(&line, out);
    }
    if (many > MOST_DISTURBERS)
        name_disturbers(out, summary, false, "Disturb here (`corefan doctor` tells the remedies):");
    if (summary->disturber_notes > 0)
        name_disturbers(out, summary, true, "To bear in mind (`corefan doctor` explains):");
}

static void print_disturbance(FILE *out, const struct summary *summary)
{
    static const char *const names[SUMMARY_ROUND_FLAGS] = {
        [SUMMARY_FLAG_RUNQ_DELAY] = "run-queue delay",
        [SUMMARY_FLAG_MIGRATION] = "migration",
        [SUMMARY_FLAG_FAULTS] = "page faults",
        [SUMMARY_FLAG_THROTTLED] = "throttled",
        [SUMMARY_FLAG_STEAL] = "steal",
        [SUMMARY_FLAG_FREQUENCY] = "frequency",
        [SUMMARY_FLAG_GAP] = "gap",
    };
    struct line line = {.length = 0};
    if (summary->rounds_flagged == 0) {
        line_add(&line, "None of %lld rounds was disturbed", (long long)summary->rounds);
    } else {
        line_add(&line, "%lld of %lld rounds %s disturbed (", (long long)summary->rounds_flagged,
                 (long long)summary->rounds, summary->rounds_flagged == 1 ? "was" : "were");
        const char *between = "";
        for (int flag = 0; flag < SUMMARY_ROUND_FLAGS; flag++)
            if (summary->flagged_by[flag] > 0) {
                line_add(&line, "%s%s %lld", between, names[flag], (long long)summary->flagged_by[flag]);
                between = ", ";
            }
        line_add(&line, "): flagged, and counted all the same");
    }
    if (summary->rounds_broken > 0)
        line_add(&line, "; %lld more %s no number and left out", (long long)summary->rounds_broken,
                 summary->rounds_broken == 1 ? "is" : "are");
    line_add(&line, ". Verdicts of %zu cells:", summary->cell_count);
    const char *between = "";
    for (int verdict = 0; verdict < SUMMARY_VERDICT_COUNT; verdict++)
        if (summary->verdicts[verdict] > 0) {
            line_add(&line, "%s %lld %s", between, (long long)summary->verdicts[verdict],
                     summary_verdict_name((enum summary_verdict)verdict));
            between = ",";
        }
    line_add(&line, ".");
    line_print(&line, out);
}

/* ---- tables ---- */

struct column {
    const char *title;
    int width;
    const char *(*print)(char *buf, const struct summary_cell *cell);
};

static const char *p50_wall(char *buf, const struct summary_cell *cell)
{
    return figure_duration(buf, cell->wall_ns.p50.known, cell->wall_ns.p50.value);
}

static const char *interval(char *buf, const struct summary_cell *cell)
{
    const struct stats_estimate *p50 = &cell->wall_ns.p50;
    char lo[FIGURE_BYTES], hi[FIGURE_BYTES];
    if (!p50->known || !p50->bounded)
        return figure_unknown(buf);
    (void)snprintf(buf, FIGURE_BYTES, "%.16s..%.16s", figure_duration(lo, true, p50->ci_lo),
                   figure_duration(hi, true, p50->ci_hi));
    return buf;
}

static const char *times_ideal(char *buf, const struct summary_cell *cell)
{
    if (cell->over_ideal_x.known && cell->over_ideal_x.value < 9.9995) {
        (void)snprintf(buf, FIGURE_BYTES, "%.3f", cell->over_ideal_x.value);
        return buf;
    }
    return figure_ratio(buf, cell->over_ideal_x.known, cell->over_ideal_x.value);
}

static const char *speedup(char *buf, const struct summary_cell *cell)
{
    return figure_ratio(buf, cell->speedup_x.known, cell->speedup_x.value);
}

static const char *cpu(char *buf, const struct summary_cell *cell)
{
    return figure_duration(buf, cell->cpu_ns.p50.known, cell->cpu_ns.p50.value);
}

static const char *net_cpu(char *buf, const struct summary_cell *cell)
{
    return figure_duration(buf, cell->cpu_net_ns.known, cell->cpu_net_ns.value);
}

static const char *cpu_times_sequential(char *buf, const struct summary_cell *cell)
{
    return figure_ratio(buf, cell->cpu_over_sequential_x.known, cell->cpu_over_sequential_x.value);
}

static const char *wakeups(char *buf, const struct summary_cell *cell)
{
    return figure_count(buf, &cell->wakeups_per_fanout);
}

static const char *verdict(char *buf, const struct summary_cell *cell)
{
    (void)snprintf(buf, FIGURE_BYTES, "%s", summary_verdict_name(cell->verdict));
    return buf;
}

static const char *caller_learns(char *buf, const struct summary_cell *cell)
{
    return figure_duration(buf, cell->time_to_error_ns.known, cell->time_to_error_ns.value);
}

static const char *still_running(char *buf, const struct summary_cell *cell)
{
    return figure_count(buf, &cell->orphans);
}

static const char *thrown_away(char *buf, const struct summary_cell *cell)
{
    return figure_duration(buf, cell->wasted_cpu_ns.known, cell->wasted_cpu_ns.value);
}

static const char *drains_in(char *buf, const struct summary_cell *cell)
{
    return figure_duration(buf, cell->drain_ns.known, cell->drain_ns.value);
}

static const char *errors_seen(char *buf, const struct summary_cell *cell)
{
    return figure_count(buf, &cell->errors_seen);
}

static const char *errors_lost(char *buf, const struct summary_cell *cell)
{
    return figure_count(buf, &cell->errors_lost);
}

static const char *woke_late(char *buf, const struct summary_cell *cell)
{
    return figure_duration(buf, cell->stall_overshoot_p50_ns.known, cell->stall_overshoot_p50_ns.value);
}

/* ---- of windows ---- */

static const char *p99_wall(char *buf, const struct summary_cell *cell)
{
    return figure_duration(buf, cell->wall_ns.p99.known, cell->wall_ns.p99.value);
}

static const char *longest(char *buf, const struct summary_cell *cell)
{
    return figure_duration(buf, cell->wall_ns.max.known, cell->wall_ns.max.value);
}

static const char *p50_due(char *buf, const struct summary_cell *cell)
{
    return figure_duration(buf, cell->intended_ns.p50.known, cell->intended_ns.p50.value);
}

static const char *p99_due(char *buf, const struct summary_cell *cell)
{
    return figure_duration(buf, cell->intended_ns.p99.known, cell->intended_ns.p99.value);
}

static const char *worst_lag(char *buf, const struct summary_cell *cell)
{
    return figure_duration(buf, cell->lag_max_ns.known, cell->lag_max_ns.value);
}

static const char *percent(char *buf, bool known, double value)
{
    if (!known)
        return figure_unknown(buf);
    (void)snprintf(buf, FIGURE_BYTES, "%.1f%%", value * 100);
    return buf;
}

static const char *achieved(char *buf, const struct summary_cell *cell)
{
    return percent(buf, cell->achieved_x.known, cell->achieved_x.value);
}

static const char *used(char *buf, const struct summary_cell *cell)
{
    return percent(buf, cell->utilization.known, cell->utilization.value);
}

static const char *per_core(char *buf, const struct summary_cell *cell)
{
    return figure_rate(buf, cell->throughput_per_s_core.known, cell->throughput_per_s_core.value);
}

static const char *offered(char *buf, const struct summary_cell *cell)
{
    return figure_rate(buf, cell->offered_per_s_core.known, cell->offered_per_s_core.value);
}

static const struct column closed_columns[] = {
    {"p50 wall", 10, p50_wall},
    {"p99", 8, p99_wall},
    {"max", 8, longest},
    {"CPU", 8, cpu},
    {"wake-ups", 9, wakeups},
    {"per s", 12, per_core},
    {"used", 7, used},
    {"verdict", 12, verdict},
    {NULL, 0, NULL},
};
static const struct column open_columns[] = {
    {"offered", 11, offered}, {"achieved", 9, achieved}, {"p50 due", 9, p50_due},
    {"p99 due", 9, p99_due},  {"p99", 8, p99_wall},      {"worst lag", 10, worst_lag},
    {"used", 7, used},        {"verdict", 12, verdict},  {NULL, 0, NULL},
};
static const struct column wait_columns[] = {
    {"p50 wall", 10, p50_wall},
    {"interval", 20, interval},
    {"x ideal", 8, times_ideal},
    {"speedup", 8, speedup},
    {"CPU", 9, cpu},
    {"wake-ups", 9, wakeups},
    {"verdict", 12, verdict},
    {NULL, 0, NULL},
};
static const struct column stall_columns[] = {
    {"p50 wall", 10, p50_wall},
    {"interval", 20, interval},
    {"woke late", 11, woke_late},
    {"speedup", 8, speedup},
    {"CPU", 9, cpu},
    {"verdict", 12, verdict},
    {NULL, 0, NULL},
};
static const struct column no_wait_columns[] = {
    {"p50 wall", 10, p50_wall},
    {"interval", 20, interval},
    {"CPU", 9, cpu},
    {"net CPU", 10, net_cpu},
    {"CPU x seq", 11, cpu_times_sequential},
    {"verdict", 12, verdict},
    {NULL, 0, NULL},
};
static const struct column failure_columns[] = {
    {"caller learns", 14, caller_learns},
    {"still running", 15, still_running},
    {"thrown away", 13, thrown_away},
    {"drains in", 11, drains_in},
    {"errors seen", 13, errors_seen},
    {"lost", 7, errors_lost},
    {NULL, 0, NULL},
};

static void print_header(FILE *out, const struct column *columns)
{
    (void)fprintf(out, "%-*s", LABEL_COLUMNS, "");
    for (; columns->title; columns++)
        (void)fprintf(out, "%*s", columns->width, columns->title);
    (void)fputc('\n', out);
}

static void print_row(FILE *out, const struct column *columns, const struct summary_cell *cell)
{
    struct line line = {.length = 0};
    char buf[FIGURE_BYTES];
    line_add(&line, "%-*.*s", LABEL_COLUMNS, LABEL_COLUMNS, cell->arm);
    for (; columns->title; columns++)
        line_add(&line, "%*s", columns->width, columns->print(buf, cell));
    (void)fprintf(out, "%s\n", line.text);
}

static void print_rows(FILE *out, const struct summary *summary, const struct summary_group *group,
                       const struct column *columns)
{
    const char *runtime = NULL;
    print_header(out, columns);
    for (size_t i = 0; i < group->cell_count; i++) {
        const struct summary_cell *cell = &summary->cells[group->cells[i]];
        if (summary->runtime_count > 1 && (!runtime || strcmp(runtime, cell->runtime) != 0)) {
            struct line line = {.length = 0};
            line_add(&line, "%s:", cell->runtime);
            line_print(&line, out);
        }
        runtime = cell->runtime;
        print_row(out, columns, cell);
    }
}

static void print_reason(FILE *out, const struct summary *summary, const struct summary_cell *cell)
{
    struct line line = {.length = 0};
    char clean[FIGURE_BYTES];
    bool named = summary->runtime_count > 1;
    line_add(&line, "  %s%s%s, %s: %s", named ? cell->runtime : "", named ? " " : "", cell->arm,
             summary_verdict_name(cell->verdict), cell->verdict_reason);
    if (cell->rounds_flagged > 0 && cell->wall_ns.clean_p50.known)
        line_add(&line, "; p50 wall of the %lld clean ones %s", (long long)cell->wall_ns.clean_p50.n,
                 figure_duration(clean, true, cell->wall_ns.clean_p50.value));
    line_print(&line, out);
}

/* Why verdicts are not ok, with the clean p50 beside the headline, and why there was more than one attempt. */
static void print_reasons(FILE *out, const struct summary *summary, const struct summary_group *group)
{
    struct line line = {.length = 0};
    for (size_t i = 0; i < group->cell_count; i++)
        if (summary->cells[group->cells[i]].verdict_reason)
            print_reason(out, summary, &summary->cells[group->cells[i]]);
    if (group->attempts > 1 && group->reason) {
        line_add(&line, "  attempt %lld counts; the one before: %s", (long long)group->attempts,
                 group->reason);
        line_print(&line, out);
    }
}

/* Flags of cells whose verdict does not tell of them: "note: cpu_resolution (gather, taskgroup)". */
static void note_cell(struct line *line, const struct summary *summary, const struct summary_cell *cell,
                      int flag)
{
    if (summary->runtime_count > 1)
        line_add(line, "%s ", cell->runtime);
    line_add(line, "%s", cell->arm);
    if (flag == SUMMARY_FLAG_EARLY_TIMERS)
        line_add(line, " %.0f", cell->early_waits.value);
}

/* "flag (arm, arm)", when some cell of the group has it */
static void note_flag(struct line *line, const struct summary *summary, const struct summary_group *group,
                      int flag)
{
    const char *between = NULL;
    for (size_t i = 0; i < group->cell_count; i++) {
        const struct summary_cell *cell = &summary->cells[group->cells[i]];
        if (!(cell->flags >> flag & 1))
            continue;
        if (between)
            line_add(line, "%s", between);
        else
            line_add(line, "%s%s (",
                     line->length ? "; " : "  note: ", summary_flag_name((enum summary_flag)flag));
        note_cell(line, summary, cell, flag);
        between = ", ";
    }
    line_add(line, "%s", between ? ")" : "");
}

static void print_notes(FILE *out, const struct summary *summary, const struct summary_group *group)
{
    struct line line = {.length = 0};
    note_flag(&line, summary, group, SUMMARY_FLAG_SATURATED);
    note_flag(&line, summary, group, SUMMARY_FLAG_GENERATOR_LIMITED);
    note_flag(&line, summary, group, SUMMARY_FLAG_CEILING_NOT_REACHED);
    for (int flag = SUMMARY_FLAG_CALIBRATION_UNSTABLE; flag <= SUMMARY_FLAG_SPEEDUP_BEYOND_FANOUT; flag++)
        note_flag(&line, summary, group, flag);
    if (line.length)
        line_print(&line, out);
}

static void print_not_measured(FILE *out, const struct summary_group *group)
{
    struct line line = {.length = 0};
    line_add(&line, "  not measured%s%s", group->reason ? ": " : "", group->reason ? group->reason : "");
    line_print(&line, out);
}

/* Some rounds, but not all. */
static void print_lack(FILE *out, const struct summary *summary, const struct summary_group *group)
{
    struct line line = {.length = 0};
    size_t lacking = 0;
    while (lacking < group->cell_count &&
           !(summary->cells[group->cells[lacking]].flags >> SUMMARY_FLAG_INCOMPLETE & 1))
        lacking++;
    if (lacking == group->cell_count)
        return;
    const struct summary_cell *cell = &summary->cells[group->cells[lacking]];
    long long there = cell->rounds, broken = cell->rounds_broken;
    line_add(&line, "  incomplete: %s has %lld of %lld rounds", cell->arm, there + broken,
             (long long)cell->rounds_planned);
    line_print(&line, out);
}

static void print_precision(FILE *out, const struct summary *summary, const struct summary_group *group)
{
    char missing[FIGURE_BYTES];
    struct line line = {.length = 0};
    size_t index = 0;
    while (index < summary->precision_count && &summary->groups[summary->precisions[index].group] != group)
        index++;
    if (index == summary->precision_count)
        return;
    const struct summary_precision *row = &summary->precisions[index];
    const struct summary_cell *cell = &summary->cells[row->cell];
    line_add(&line, "  precision: ");
    if (row->achieved_x.known)
        line_add(&line, "%.2g %% of p50 at most (%s of %s%s%s), ", row->achieved_x.value * 100,
                 row->is_cpu ? "CPU" : "wall", summary->runtime_count > 1 ? cell->runtime : "",
                 summary->runtime_count > 1 ? " " : "", cell->arm);
    line_add(&line, "%.3g %% asked: %s", row->target_x * 100, row->reached ? "reached" : "not reached");
    if (!row->reached && row->missing_ns.known)
        line_add(&line, ", about %s more of measuring is missing",
                 figure_duration(missing, true, row->missing_ns.value));
    if (!row->reached && row->rounds >= row->most)
        line_add(&line, "; %lld rounds are the most", (long long)row->most);
    line_print(&line, out);
}

static const struct column *columns_for(const struct summary_group *group)
{
    if (group->windows)
        return group->rate_per_s > 0 ? open_columns : closed_columns;
    return group->stalls ? stall_columns : group->waits ? wait_columns : no_wait_columns;
}

static void print_arms_left_out(FILE *out, const struct summary *summary, const struct summary_group *group)
{
    for (size_t i = 0; i < summary->left_out_count; i++) {
        const struct summary_left_out *cell = &summary->left_out[i];
        struct line line = {.length = 0};
        if (&summary->groups[cell->group] != group)
            continue;
        line_add(&line, "  %s on %s: left out, %s", cell->arm, cell->runtime, cell->reason);
        line_print(&line, out);
    }
}

static void print_group(FILE *out, const struct summary *summary, const struct summary_group *group)
{
    struct line line = {.length = 0};
    char length[FIGURE_BYTES];
    line_add(&line, "%s: %lld %s%s", group->title, (long long)group->rounds,
             group->windows ? "window" : "round", plural(group->rounds));
    if (group->windows && !strstr(group->title, ", duration "))
        line_add(&line, " of %s", figure_duration(length, true, (double)group->window_ns));
    line_add(&line, " per core");
    if (group->processes > 1)
        line_add(&line, " in each of %lld processes", (long long)group->processes);
    if (group->ci_level > 0)
        line_add(&line, ", intervals at %.1f %%", group->ci_level * 100);
    (void)fputc('\n', out);
    line_print(&line, out);
    if (!group->measured) {
        print_not_measured(out, group);
        return;
    }
    print_rows(out, summary, group, columns_for(group));
    if (group->may_fail) {
        (void)fputs(group->fails ? "when children fail:\n" : "when the time is up:\n", out);
        print_rows(out, summary, group, failure_columns);
    }
    print_arms_left_out(out, summary, group);
    print_reasons(out, summary, group);
    print_lack(out, summary, group);
    print_precision(out, summary, group);
    print_notes(out, summary, group);
}

/* Rungs beyond saturation, a line each. */
static void print_left_out(FILE *out, const struct summary *summary, size_t index)
{
    const struct summary_group *group = &summary->groups[index];
    struct line line = {.length = 0};
    if (index == 0 || !summary->groups[index - 1].left_out)
        (void)fputc('\n', out);
    line_add(&line, "%s: left out, %s", group->title, group->reason ? group->reason : "no need for it");
    line_print(&line, out);
}

/* ---- several cores ---- */

/* "40 x 10ms sleep, 2 cores, clients 4" in a table that has a column for the 2. */
static void add_without_cores(struct line *line, const char *title, int64_t count)
{
    char cores[48];
    (void)snprintf(cores, sizeof cores, ", %lld cores", (long long)count);
    const char *at = strstr(title, cores);
    if (at)
        line_add(line, "%.*s%s", (int)(at - title), title, at + strlen(cores));
    else
        line_add(line, "%s", title);
}

#define SCALING_LABEL 46 /* what is longer has a line of its own */

static void print_scaling(FILE *out, const struct summary *summary)
{
    char efficiency[FIGURE_BYTES], skew[FIGURE_BYTES], overlap[FIGURE_BYTES], rate[FIGURE_BYTES];
    bool siblings = false;
    if (summary->scaling_count == 0)
        return;
    (void)fprintf(out, "\nSeveral cores against one\n%-*s%6s%16s%12s%10s%8s\n", SCALING_LABEL, "", "cores",
                  "per s", "efficiency", "skew", "overlap");
    for (size_t i = 0; i < summary->scaling_count; i++) {
        const struct summary_scaling *row = &summary->scaling[i];
        const struct summary_cell *cell = &summary->cells[row->cell];
        struct line line = {.length = 0}, label = {.length = 0};
        line_add(&label, "%s%s%s, ", summary->runtime_count > 1 ? cell->runtime : "",
                 summary->runtime_count > 1 ? " " : "", cell->arm);
        add_without_cores(&label, summary->groups[cell->group].title, cell->cores);
        siblings |= row->siblings > 0;
        if (label.length > SCALING_LABEL) {
            line_print(&label, out);
            label = (struct line){.length = 0};
        }
        line_add(&line, "%-*s%6lld%16s%12s%10s%8s", SCALING_LABEL, label.text, (long long)cell->cores,
                 figure_count(rate, &cell->throughput_per_s),
                 figure_ratio(efficiency, row->efficiency_x.known, row->efficiency_x.value),
                 figure_duration(skew, row->start_skew_ns.known, row->start_skew_ns.value),
                 figure_ratio(overlap, row->overlap_x.known, row->overlap_x.value));
        (void)fprintf(out, "%s%s\n", line.text, row->siblings > 0 ? " *" : "");
    }
    if (siblings)
        (void)fprintf(out, "  *: some of them share a physical core: a series of their own.\n");
}

/* ---- runtimes side by side ---- */

static void print_against(FILE *out, const struct summary_cell *cell)
{
    char wall[FIGURE_BYTES], cpu[FIGURE_BYTES], wall_x[FIGURE_BYTES], cpu_x[FIGURE_BYTES];
    const struct summary_figure *wall_over = &cell->wall_over_first_x, *cpu_over = &cell->cpu_over_first_x;
    struct line line = {.length = 0};
    line_add(&line, "%-24.24s %-24.24s%12s%10s%14s%10s", cell->first_of_arm ? cell->arm : "", cell->runtime,
             figure_duration(wall, cell->wall_ns.p50.known, cell->wall_ns.p50.value),
             figure_ratio(wall_x, wall_over->known, wall_over->value),
             figure_duration(cpu, cell->cpu_ns.p50.known, cell->cpu_ns.p50.value),
             figure_ratio(cpu_x, cpu_over->known, cpu_over->value));
    (void)fprintf(out, "%s\n", line.text);
}

static void print_side_by_side(FILE *out, const struct summary *summary, const struct summary_group *group)
{
    struct line line = {.length = 0};
    line_add(&line, "%s: runtimes side by side, each arm against its first runtime", group->title);
    (void)fputc('\n', out);
    line_print(&line, out);
    (void)fprintf(out, "%-24s %-24s%12s%10s%14s%10s\n", "arm", "runtime", "p50 wall", "x", "CPU", "x");
    for (size_t i = 0; i < group->cell_count; i++) {
        const struct summary_cell *first = &summary->cells[group->cells[i]];
        for (size_t j = i; j < group->cell_count && first->first_of_arm; j++)
            if (strcmp(summary->cells[group->cells[j]].arm, first->arm) == 0)
                print_against(out, &summary->cells[group->cells[j]]);
    }
}

/* "asyncio needs 12.3x (sequential) to 16.0x (gather) the CPU time that libuv needs." */
static void tell_contrast(FILE *out, const struct summary *summary, const struct summary_contrast *contrast)
{
    const struct summary_cell *lowest = &summary->cells[contrast->lowest],
                              *highest = &summary->cells[contrast->highest];
    char least[FIGURE_BYTES], most[FIGURE_BYTES];
    struct line line = {.length = 0};
    line_add(&line, "%s needs %s (%s)", lowest->runtime,
             figure_ratio(least, true, lowest->cpu_over_first_x.value), lowest->arm);
    if (lowest != highest)
        line_add(&line, " to %s (%s)", figure_ratio(most, true, highest->cpu_over_first_x.value),
                 highest->arm);
    line_add(&line, " the CPU time per fan-out that %s needs.", summary->cells[contrast->first].runtime);
    line_print(&line, out);
}

/* Groups of one runtime have no contrast. */
static void print_runtimes(FILE *out, const struct summary *summary)
{
    for (size_t i = 0; i < summary->contrast_count; i++) {
        size_t group = summary->contrasts[i].group;
        if (i == 0 || summary->contrasts[i - 1].group != group)
            print_side_by_side(out, summary, &summary->groups[group]);
        tell_contrast(out, summary, &summary->contrasts[i]);
    }
}

/* ---- the lab ---- */

static void print_lab_row(FILE *out, const struct summary *summary, const struct summary_lab_row *row)
{
    char measured[FIGURE_BYTES], against[FIGURE_BYTES];
    const struct summary_cell *cell = &summary->cells[row->cell];
    struct line line = {.length = 0}, label = {.length = 0};
    bool is_ratio = strcmp(row->metric, "speedup_x") == 0;
    bool is_cpu = strcmp(row->metric, "cpu_ns") == 0;
    line_add(&label, "%s, %s", cell->arm, summary->groups[cell->group].title);
    line_add(&line, "%-36.36s%-16.16s%-8s%16s%12s%8s", label.text, cell->runtime,
             is_ratio ? "speedup"
             : is_cpu ? "CPU"
                      : "wall",
             row->published,
             is_ratio ? figure_ratio(measured, true, row->measured)
                      : figure_duration(measured, true, row->measured),
             figure_ratio(against, true, row->ratio_x));
    (void)fprintf(out, "%s\n", line.text);
}

static void print_lab(FILE *out, const struct summary *summary)
{
    if (summary->lab_count > 0 && summary->lab_verdict_count > 0)
        (void)fprintf(out, "\nThe published lab and this run\n%-36s%-16s%-8s%16s%12s%8s\n", "", "runtime", "",
                      "published", "here", "ratio");
    for (size_t i = 0; i < summary->lab_count && summary->lab_verdict_count > 0; i++)
        print_lab_row(out, summary, &summary->lab[i]);
    for (size_t i = 0; i < summary->lab_verdict_count; i++) {
        const struct summary_lab_verdict *verdict = &summary->lab_verdicts[i];
        struct line line = {.length = 0};
        line_add(&line, "Experiment %s, %s on %s: %s.", verdict->experiment,
                 verdict->reproduces ? "reproduces" : "does not reproduce", verdict->runtime,
                 verdict->reason);
        line_print(&line, out);
    }
}

/* ---- thresholds ---- */

#define MOST_TOLD 20 /* cells per threshold */

/* A figure by the unit that its name ends in, in six digits: what a bound cuts may differ in the fourth. */
static const char *metric_value(char *buf, const char *metric, double value)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{" s", 1e9}, {" ms", 1e6}, {" us", 1e3}, {" ns", 1}};
    size_t unit = 0;
    if (!strstr(metric, "_ns")) {
        (void)snprintf(buf, FIGURE_BYTES, "%.6g", value);
        return buf;
    }
    while (unit < 3 && fabs(value) < units[unit].ns)
        unit++;
    (void)snprintf(buf, FIGURE_BYTES, "%.6g%s", value / units[unit].ns, units[unit].unit);
    return buf;
}

static void tell_threshold(FILE *out, const struct summary *summary, const struct summary_threshold *row)
{
    struct line line = {.length = 0};
    char value[FIGURE_BYTES], lo[FIGURE_BYTES], hi[FIGURE_BYTES];
    bool failed = row->outcome == THRESHOLD_FAILED;
    line_add(&line, "  %s, %s", summary->cells[row->cell].id, failed ? "failed" : "undecided");
    if (!failed)
        line_add(&line, " (%s)", row->why);
    if (row->figure.known)
        line_add(&line, ": %s", metric_value(value, row->metric, row->figure.value));
    if (row->figure.known && row->figure.bounded)
        line_add(&line, ", interval %s to %s at %.1f %%", metric_value(lo, row->metric, row->figure.ci_lo),
                 metric_value(hi, row->metric, row->figure.ci_hi), row->figure.ci_level * 100);
    line_print(&line, out);
}

static void print_condition(FILE *out, const struct summary *summary, size_t index)
{
    const struct summary_condition *condition = &summary->conditions[index];
    const int64_t *outcomes = condition->outcomes;
    int64_t cells = outcomes[THRESHOLD_PASSED] + outcomes[THRESHOLD_FAILED] + outcomes[THRESHOLD_UNDECIDED];
    int64_t told = 0;
    struct line line = {.length = 0};
    line_add(&line, "%s: %lld of %lld cell%s passed", condition->text, (long long)outcomes[THRESHOLD_PASSED],
             (long long)cells, plural(cells));
    line_print(&line, out);
    for (size_t i = 0; i < summary->threshold_count; i++) {
        const struct summary_threshold *row = &summary->thresholds[i];
        if (row->condition == index && row->outcome != THRESHOLD_PASSED && told++ < MOST_TOLD)
            tell_threshold(out, summary, row);
    }
    if (told > MOST_TOLD)
        (void)fprintf(out, "  and %lld cells more\n", (long long)(told - MOST_TOLD));
}

static void print_thresholds(FILE *out, const struct summary *summary)
{
    if (summary->condition_count > 0)
        (void)fputs("\nThresholds\n", out);
    for (size_t i = 0; i < summary->condition_count; i++)
        print_condition(out, summary, i);
}

/* "4m12s" */
static void add_elapsed(struct line *line, const struct summary_figure *elapsed_ns)
{
    if (!elapsed_ns->known)
        return;
    long long seconds = llround(elapsed_ns->value / 1e9), minutes = seconds / 60, hours = minutes / 60;
    if (hours > 0)
        line_add(line, ", %lldh%02lldm%02llds", hours, minutes % 60, seconds % 60);
    else if (minutes > 0)
        line_add(line, ", %lldm%02llds", minutes, seconds % 60);
    else
        line_add(line, ", %llds", seconds);
}

/* One line for a gate: "PASS 44 cells, 3 thresholds, 4m12s". */
static void print_outcome(FILE *out, const struct summary *summary)
{
    static const struct {
        enum error_kind kind;
        const char *word;
    } words[] = {
        {ERROR_NONE, "PASS"},
        {ERROR_INCOMPLETE, "INCOMPLETE"},
        {ERROR_FAILED, "FAIL"},
        {ERROR_INCONCLUSIVE, "INCONCLUSIVE"},
        {ERROR_INTERRUPTED, "INTERRUPTED"},
    };
    struct line line = {.length = 0};
    if (summary->condition_count == 0)
        return;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].kind == summary_exit_kind(summary))
            line_add(&line, "%s", words[i].word);
    line_add(&line, " %zu cell%s, %zu threshold%s", summary->cell_count, plural((int64_t)summary->cell_count),
             summary->condition_count, plural((int64_t)summary->condition_count));
    if (summary->conditions_failed > 0)
        line_add(&line, ", %zu failed", summary->conditions_failed);
    if (summary->conditions_undecided > 0)
        line_add(&line, ", %zu undecided", summary->conditions_undecided);
    if (summary->imprecise > 0)
        line_add(&line, ", %zu not precise enough", summary->imprecise);
    add_elapsed(&line, &summary->elapsed_ns);
    line_print(&line, out);
}

/* ---- the whole ---- */

static void print_identity(FILE *out, const struct summary *summary)
{
    struct line line = {.length = 0};
    line_add(&line, "Run %s, %s, seed %s, corefan %s.", summary->run_id, summary->status, summary->seed,
             summary->tool_version);
    (void)fputc('\n', out);
    line_print(&line, out);
}

int report_text(const struct summary *summary, FILE *out)
{
    print_status(out, summary);
    print_imprecise(out, summary);
    print_findings(out, summary);
    text_tell_capacity(summary, out);
    print_places(out, summary);
    print_disturbers(out, summary);
    print_disturbance(out, summary);
    for (size_t i = 0; i < summary->group_count; i++)
        if (summary->groups[i].left_out)
            print_left_out(out, summary, i);
        else
            print_group(out, summary, &summary->groups[i]);
    print_runtimes(out, summary);
    text_print_capacity(summary, out);
    print_scaling(out, summary);
    text_print_scalability(summary, out);
    print_lab(out, summary);
    print_thresholds(out, summary);
    print_identity(out, summary);
    print_outcome(out, summary);
    return ferror(out) ? -1 : 0;
}
