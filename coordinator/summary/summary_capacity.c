/* What one core can carry: cells that differ only in how they are driven become one cost curve. */
#include "coordinator/summary/summary_internal.h"

#include "base/map.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/units.h"

#include <string.h>

#define NS_PER_S 1e9

/* ---- windows ---- */

static struct capacity_window of_window(const struct summary_window *from)
{
    return (struct capacity_window){.cpu_ns = from->cpu_ns,
                                    .wakeups = from->wakeups.known ? from->wakeups.value : 0,
                                    .thread_utilization = from->thread_utilization,
                                    .utilization = from->utilization,
                                    .throughput_per_s = from->throughput_per_s,
                                    .latency_p50_ns = from->latency_p50_ns,
                                    .latency_p99_ns =
                                        from->latency_p99_ns.known ? from->latency_p99_ns.value : 0};
}

/* A plain round of one client.  more_ns: what the harness of a window costs beyond that of such a round. */
static struct capacity_window of_round(const struct summary_cell *cell, const struct summary_round *from,
                                       double more_ns)
{
    double wakeups = cell->wakeups_per_fanout.known ? cell->wakeups_per_fanout.value : 0;
    return (struct capacity_window){.cpu_ns = from->cpu_ns + more_ns,
                                    .wakeups = wakeups,
                                    .thread_utilization = from->cpu_ns / from->wall_ns,
                                    .utilization = from->cpu_ns / from->wall_ns,
                                    .throughput_per_s = NS_PER_S / from->wall_ns,
                                    .latency_p50_ns = from->wall_ns};
}

/* free() it. */
static struct capacity_window *windows_of(const struct summary_cell *cell, double more_ns, size_t *ret_count)
{
    size_t count = cell->is_window ? cell->window_count : cell->value_count;
    struct capacity_window *windows = memory_zeroed(count + 1, sizeof *windows);
    *ret_count = 0;
    for (size_t i = 0; i < count; i++)
        if (cell->is_window)
            windows[(*ret_count)++] = of_window(&cell->windows[i]);
        else if (cell->values[i].wall_ns > 0)
            windows[(*ret_count)++] = of_round(cell, &cell->values[i], more_ns);
    return windows;
}

/* ---- families: one runtime, one arm, driven in several ways ---- */

struct family {
    char *key; /* the id's further parts without those that say how it is driven */
    size_t *cells;
    size_t count;
    struct capacity_load *loads; /* of closed loops: its own, then what it borrows */
    size_t own_loads;
    struct capacity_loads input;
};

struct families {
    struct family *at;
    size_t count;
    struct map by_name; /* runtime, arm and key -> 1 + index */
};

static bool is_part(const char *part, size_t length, const char *name)
{
    return length >= strlen(name) && memcmp(part, name, strlen(name)) == 0;
}

static bool says_how_driven(const char *part, size_t length)
{
    static const char *const names[] = {"clients=", "phase=", "rate=", "arrivals=", "duration=", "cores="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_part(part, length, names[i]))
            return true;
    return false;
}

/* The id after runtime and arm, "sleep/n=40/delay=10ms/cores=1/clients=4" without what says how it is driven. */
static char *family_key(const struct summary_cell *cell)
{
    size_t head = strlen(cell->runtime) + strlen(cell->arm) + 2;
    const char *part = strlen(cell->id) > head ? cell->id + head : "";
    char *key = memory_zeroed(strlen(part) + 2, 1), *end = key;
    for (size_t length; *part; part += length + (part[length] == '/')) {
        length = strcspn(part, "/");
        if (says_how_driven(part, length))
            continue;
        if (end > key)
            *end++ = '/';
        memcpy(end, part, length);
        end += length;
    }
    return key;
}

static bool is_open(const struct summary_cell *cell)
{
    return cell->rate_per_s > 0 || cell->rate_factor > 0;
}

static bool belongs(const struct summary_cell *cell)
{
    return cell->value_count > 0 && !cell->may_fail && !cell->stalls;
}

static void add_to_family(const struct summary *summary, size_t index, struct families *families)
{
    const struct summary_cell *cell = &summary->cells[index];
    char *key = family_key(cell);
    scoped_free char *name = memory_format("%s/%s/%s", cell->runtime, cell->arm, key);
    uintptr_t number = (uintptr_t)map_get(&families->by_name, name, strlen(name));
    if (number == 0) {
        number = ++families->count;
        families->at[number - 1] = (struct family){.key = key};
        map_put(&families->by_name, name, strlen(name), (void *)number); // NOLINT
    } else {
        free(key);
    }
    struct family *family = &families->at[number - 1];
    family->cells = memory_resized(family->cells, family->count + 1, sizeof *family->cells);
    family->cells[family->count++] = index;
}

/* Loads of one core alone, or of as few as there are: what cores do to each other is told by scaling. */
static void keep_least_cores(const struct summary *summary, struct family *family)
{
    int64_t least = INT64_MAX;
    size_t kept = 0;
    for (size_t i = 0; i < family->count; i++) {
        int64_t cores = summary->cells[family->cells[i]].cores;
        least = cores < least ? cores : least;
    }
    for (size_t i = 0; i < family->count; i++)
        if (summary->cells[family->cells[i]].cores == least)
            family->cells[kept++] = family->cells[i];
    family->count = kept;
}

/* Where a fan-out takes nanoseconds, clock reads and histogram of a window weigh more than the loop of a calibrated round:
 * how much more, as the empty arm tells of both.  0 where it does not, or where waits dwarf it. */
static double harness_gap(const struct summary *summary, const struct family *family,
                          const struct summary_cell *plain)
{
    if (plain->is_window || plain->job_waits || !plain->harness_ns.known)
        return 0;
    for (size_t i = 0; i < family->count; i++) {
        const struct summary_cell *cell = &summary->cells[family->cells[i]];
        if (cell->is_window && !is_open(cell) && cell->harness_ns.known)
            return cell->harness_ns.value - plain->harness_ns.value;
    }
    return 0;
}

static void make_loads(const struct summary *summary, struct family *family)
{
    keep_least_cores(summary, family);
    size_t count = 0;
    family->loads = memory_zeroed(family->count, sizeof *family->loads);
    for (size_t i = 0; i < family->count; i++) {
        const struct summary_cell *cell = &summary->cells[family->cells[i]];
        if (is_open(cell))
            continue;
        struct capacity_load *load = &family->loads[count++];
        load->clients = cell->clients;
        load->together = cell->phase && strcmp(cell->phase, "together") == 0;
        load->timed = cell->is_window;
        load->windows = windows_of(cell, harness_gap(summary, family, cell), &load->count);
    }
    family->own_loads = count;
}

/* Do two keys differ in nothing but the delay? */
static bool same_but_for_delay(const char *a, const char *b)
{
    while (*a && *b) {
        size_t a_length = strcspn(a, "/"), b_length = strcspn(b, "/");
        bool delays = is_part(a, a_length, "delay=") && is_part(b, b_length, "delay=");
        if (!delays && (a_length != b_length || memcmp(a, b, a_length) != 0))
            return false;
        a += a_length + (a[a_length] == '/');
        b += b_length + (b[b_length] == '/');
    }
    return !*a && !*b;
}

static bool may_lend(const struct summary *summary, const struct family *lender,
                     const struct family *borrower)
{
    const struct summary_cell *from = &summary->cells[lender->cells[0]];
    const struct summary_cell *to = &summary->cells[borrower->cells[0]];
    return to->job_waits && from->delay_ns > to->delay_ns && from->cores == to->cores &&
           strcmp(from->runtime, to->runtime) == 0 && strcmp(from->arm, to->arm) == 0 &&
           same_but_for_delay(lender->key, borrower->key);
}

/* Own loads, then those of longer waits, whose windows stay their owner's. */
static void borrow_loads(const struct summary *summary, const struct families *families,
                         struct family *family)
{
    size_t count = family->own_loads;
    for (size_t i = 0; i < families->count; i++) {
        const struct family *lender = &families->at[i];
        if (!may_lend(summary, lender, family))
            continue;
        family->loads = memory_resized(family->loads, count + lender->own_loads, sizeof *family->loads);
        for (size_t j = 0; j < lender->own_loads; j++) {
            family->loads[count] = lender->loads[j];
            family->loads[count++].borrowed = true;
        }
    }
    bool waits = summary->cells[family->cells[0]].job_waits;
    family->input = (struct capacity_loads){family->loads, count, waits};
}

static bool has_window(const struct summary *summary, const struct family *family)
{
    for (size_t i = 0; i < family->count; i++)
        if (summary->cells[family->cells[i]].is_window)
            return true;
    return false;
}

/* Families without a window were never driven: no curve is asked for. */
static struct families find_families(const struct summary *summary)
{
    struct families families = {.at = memory_zeroed(summary->cell_count + 1, sizeof *families.at)};
    size_t kept = 0;
    map_init(&families.by_name, 1);
    for (size_t i = 0; i < summary->cell_count; i++)
        if (belongs(&summary->cells[i]))
            add_to_family(summary, i, &families);
    for (size_t i = 0; i < families.count; i++) {
        struct family *family = &families.at[i];
        if (has_window(summary, family)) {
            make_loads(summary, family);
            families.at[kept++] = *family;
            continue;
        }
        free(family->key);
        free(family->cells);
    }
    families.count = kept;
    for (size_t i = 0; i < kept; i++)
        borrow_loads(summary, &families, &families.at[i]);
    return families;
}

static void release_families(struct families *families)
{
    for (size_t i = 0; i < families->count; i++) {
        for (size_t j = 0; j < families->at[i].own_loads; j++)
            free((void *)(uintptr_t)families->at[i].loads[j].windows);
        free(families->at[i].key);
        free(families->at[i].loads);
    }
    free(families->at);
    map_release(&families->by_name);
}

/* ---- rows ---- */

/* "40 x 10ms sleep", then further keys: ", gc off". */
static char *make_title(const struct summary_cell *cell, const char *key)
{
    char delay[32] = "", fanout[32];
    if (cell->delay_ns > 0)
        (void)units_exact_duration(delay, sizeof delay, cell->delay_ns);
    (void)units_format_count(fanout, sizeof fanout, cell->fanout);
    char *title = memory_format("%s x %s%s%s", fanout, delay, delay[0] ? " " : "", cell->job);
    for (const char *part = key + strcspn(key, "/"); *part; part += strcspn(part, "/")) {
        part++;
        size_t length = strcspn(part, "/"), name = strcspn(part, "=");
        if (strncmp(part, "n=", 2) == 0 || strncmp(part, "delay=", 6) == 0 || name >= length)
            continue;
        scoped_free char *shorter = title;
        title = memory_format("%s, %.*s %.*s", shorter, (int)name, part, (int)(length - name - 1),
                              part + name + 1);
    }
    return title;
}

/* By clients, closed loops first. */
static int64_t rank_of(const struct summary_cell *cell)
{
    return is_open(cell) ? INT64_MAX : cell->clients;
}

static size_t find_least_clients(const struct summary *summary, const struct family *family)
{
    size_t least = family->cells[0];
    for (size_t i = 1; i < family->count; i++)
        if (rank_of(&summary->cells[family->cells[i]]) < rank_of(&summary->cells[least]))
            least = family->cells[i];
    return least;
}

static uint64_t seed_of(const struct summary *summary, size_t row)
{
    struct rng rng = rng_stream(strtoull(summary->seed, NULL, 10), (1ULL << 40) + row);
    return rng_next(&rng);
}

static struct summary_figure p50_of(const struct stats_estimate *p50)
{
    return p50->known ? figure(p50->value) : no_figure(p50->why);
}

/* The cell whose windows gave the measured ceiling. */
static struct summary_figure busy_cpu(const struct summary *summary, const struct family *family,
                                      const struct capacity_curve *curve)
{
    const struct summary_cell *best = NULL;
    for (size_t i = 0; i < family->count && curve->measured_per_s_core.known; i++) {
        const struct summary_cell *cell = &summary->cells[family->cells[i]];
        if (cell->is_window && !is_open(cell) && cell->clients == curve->ceiling_clients)
            best = cell;
    }
    return best ? p50_of(&best->cpu_ns.p50) : no_figure(curve->measured_per_s_core.why);
}

static void fill_row(const struct summary *summary, const struct family *family, size_t index,
                     struct summary_capacity *row)
{
    size_t least = find_least_clients(summary, family);
    *row = (struct summary_capacity){.title = make_title(&summary->cells[least], family->key),
                                     .cell = least,
                                     .cells = family->cells,
                                     .cell_count = family->count,
                                     .sequential = SIZE_MAX,
                                     .idle_cpu_ns = p50_of(&summary->cells[least].cpu_ns.p50),
                                     .idle_wall_ns = p50_of(&summary->cells[least].wall_ns.p50)};
    capacity_fit(&family->input, seed_of(summary, index), &row->curve);
    const struct stats_estimate *predicted = &row->curve.predicted_per_s_core;
    row->busy_cpu_ns = busy_cpu(summary, family, &row->curve);
    row->predicted_busy_cpu_ns =
        predicted->known ? figure(NS_PER_S / predicted->value) : no_figure(predicted->why);
    row->residual_percent = row->curve.residual_x * 100;
}

static bool is_sequential(const struct summary_cell *cell)
{
    return strcmp(cell->arm, "sequential") == 0;
}

/* The row of the same runtime and job whose arm is sequential; SIZE_MAX without. */
static size_t find_sequential(const struct summary *summary, const struct families *families, size_t index)
{
    const struct summary_cell *own = &summary->cells[summary->capacity[index].cell];
    for (size_t i = 0; i < families->count; i++) {
        const struct summary_cell *cell = &summary->cells[summary->capacity[i].cell];
        if (is_sequential(cell) && strcmp(cell->runtime, own->runtime) == 0 &&
            strcmp(families->at[i].key, families->at[index].key) == 0)
            return i;
    }
    return SIZE_MAX;
}

static void fill_alone(struct summary_capacity *row, const char *why)
{
    row->crossover_clients = row->predicted_crossover_clients = stats_unknown(why);
    row->crossover_error_x = no_figure(why);
    row->cpu_ns_per_saved_ms = no_figure(why);
}

static void fill_against_sequential(struct summary *summary, const struct families *families, size_t index)
{
    struct summary_capacity *row = &summary->capacity[index];
    row->sequential = find_sequential(summary, families, index);
    if (row->sequential == SIZE_MAX || row->sequential == index) {
        fill_alone(row, row->sequential == index ? "is_sequential" : "no_sequential_arm");
        return;
    }
    const struct capacity_loads *own = &families->at[index].input;
    const struct capacity_loads *sequential = &families->at[row->sequential].input;
    struct capacity_crossover cross;
    capacity_cross(own, sequential, seed_of(summary, index), &cross);
    row->crossover_clients = cross.measured;
    row->predicted_crossover_clients = cross.predicted;
    row->cheaper_below = cross.first_cheaper_below;
    if (cross.measured.known && cross.predicted.known)
        row->crossover_error_x = figure(cross.measured.value / cross.predicted.value);
    else
        row->crossover_error_x = no_figure(cross.measured.known ? cross.predicted.why : cross.measured.why);
    struct stats_estimate cost =
        capacity_cost_per_saved_ms(own, &row->curve, sequential, &summary->capacity[row->sequential].curve);
    row->cpu_ns_per_saved_ms = p50_of(&cost);
}

static bool same_block(const struct summary *summary, const struct families *families, size_t a, size_t b)
{
    return strcmp(families->at[a].key, families->at[b].key) == 0 &&
           strcmp(summary->cells[summary->capacity[a].cell].runtime,
                  summary->cells[summary->capacity[b].cell].runtime) == 0;
}

/* Of each runtime and job one arm is told in words. */
static void choose_told(struct summary *summary, const struct families *families, size_t index)
{
    struct summary_capacity *row = &summary->capacity[index];
    const char *arm = summary->cells[row->cell].arm;
    bool driven =
        row->curve.busiest_clients > 0 && families->at[index].own_loads > 1; /* one load is no curve */
    row->told = driven && strcmp(arm, "gather") == 0;
    if (!driven || row->told || is_sequential(&summary->cells[row->cell]))
        return;
    for (size_t i = 0; i < families->count; i++) {
        const char *other = summary->cells[summary->capacity[i].cell].arm;
        bool first = i < index && strcmp(other, "sequential") != 0;
        if (i != index && same_block(summary, families, i, index) && (first || strcmp(other, "gather") == 0))
            return;
    }
    row->told = true;
}

void summary_fill_capacity(struct summary *summary)
{
    struct families families = find_families(summary);
    summary->capacity = memory_zeroed(families.count + 1, sizeof *summary->capacity);
    summary->capacity_count = families.count;
    for (size_t i = 0; i < families.count; i++)
        fill_row(summary, &families.at[i], i, &summary->capacity[i]);
    for (size_t i = 0; i < families.count; i++)
        fill_against_sequential(summary, &families, i);
    for (size_t i = 0; i < families.count; i++)
        choose_told(summary, &families, i);
    release_families(&families);
}
