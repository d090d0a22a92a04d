#include "coordinator/size/size_internal.h"

#include "base/memory.h"
#include "coordinator/store/store.h"

#include <stdlib.h>
#include <string.h>

/* ---- offers of one row ---- */

static struct capacity_window of_window(const struct summary_window *from)
{
    return (struct capacity_window){.cpu_ns = from->cpu_ns,
                                    .thread_utilization = from->thread_utilization,
                                    .utilization = from->utilization,
                                    .throughput_per_s = from->throughput_per_s,
                                    .latency_p50_ns = from->latency_p50_ns,
                                    .latency_p99_ns =
                                        from->latency_p99_ns.known ? from->latency_p99_ns.value : 0};
}

static bool is_open(const struct summary_cell *cell)
{
    return cell->rate_per_s > 0 || cell->rate_factor > 0;
}

/* free() ret->load.windows. */
static struct capacity_offer offer_of(const struct summary_cell *cell)
{
    struct capacity_window *windows = memory_zeroed(cell->window_count + 1, sizeof *windows);
    const struct summary_figure *p99 = is_open(cell) ? &cell->intended_ns.p99 : &cell->wall_ns.p99;
    for (size_t i = 0; i < cell->window_count; i++)
        windows[i] = of_window(&cell->windows[i]);
    return (struct capacity_offer){
        .load = {cell->clients, true, true, windows, cell->window_count},
        .p99_ns = p99->known ? p99->value : 0,
    };
}

static bool has_open(const struct summary *summary, const struct summary_capacity *row)
{
    for (size_t i = 0; i < row->cell_count; i++) {
        const struct summary_cell *cell = &summary->cells[row->cells[i]];
        if (is_open(cell) && cell->window_count > 0 && cell->intended_ns.p99.known)
            return true;
    }
    return false;
}

static void fill_row(const struct summary *summary, size_t index, const struct size_options *options,
                     struct size_row *ret)
{
    const struct summary_capacity *capacity = &summary->capacity[index];
    const struct summary_cell *cell = &summary->cells[capacity->cell];
    scoped_free struct capacity_offer *offers = memory_zeroed(capacity->cell_count + 1, sizeof *offers);
    const struct capacity_demand demand = {options->rate_per_s, options->p99_ns};
    size_t count = 0;
    *ret = (struct size_row){.capacity = capacity, .runtime = cell->runtime, .arm = cell->arm};
    ret->open_loop = has_open(summary, capacity);
    for (size_t i = 0; i < capacity->cell_count; i++) {
        const struct summary_cell *load = &summary->cells[capacity->cells[i]];
        if (load->window_count > 0 && is_open(load) == ret->open_loop)
            offers[count++] = offer_of(load);
    }
    capacity_size_for(offers, count, &demand, index + 1, &ret->size);
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)offers[i].load.windows);
}

/* ---- the whole ---- */

/* Jobs stay in the order of the run, and within them: fewest cores first, then those that cannot do it. */
static int compare_rows(const void *a, const void *b)
{
    const struct size_row *x = a, *y = b;
    int order = strcmp(x->capacity->title, y->capacity->title) == 0
                    ? 0
                    : (x->capacity > y->capacity) - (x->capacity < y->capacity);
    if (order == 0)
        order = (int)y->size.cores.known - (int)x->size.cores.known;
    if (order == 0)
        order = (x->size.cores.value > y->size.cores.value) - (x->size.cores.value < y->size.cores.value);
    return order ? order : (x->capacity > y->capacity) - (x->capacity < y->capacity);
}

int size_make(const struct size_options *options, struct sizing **ret, struct error *err)
{
    struct store *store;
    struct summary *summary;
    if (store_open(options->run, STORE_READ, &store, err) < 0)
        return -1;
    int status = summary_build(store, &summary, err);
    store_close(store);
    if (status < 0)
        return -1;
    if (summary->capacity_count == 0) {
        summary_free(summary);
        return error_set(err, ERROR_USAGE,
                         "'%s' has no windows to size from: measure with 'clients' or 'rate'", options->run);
    }
    struct sizing *sizing = memory_zeroed(1, sizeof *sizing);
    *sizing = (struct sizing){.options = *options, .summary = summary, .row_count = summary->capacity_count};
    sizing->rows = memory_zeroed(sizing->row_count, sizeof *sizing->rows);
    for (size_t i = 0; i < sizing->row_count; i++) {
        fill_row(summary, i, options, &sizing->rows[i]);
        sizing->possible += sizing->rows[i].size.cores.known;
    }
    qsort(sizing->rows, sizing->row_count, sizeof *sizing->rows, compare_rows);
    *ret = sizing;
    return 0;
}

void size_free(struct sizing *sizing)
{
    if (!sizing)
        return;
    summary_free(sizing->summary);
    free(sizing->rows);
    free(sizing);
}

enum error_kind size_exit_kind(const struct sizing *sizing)
{
    return sizing->possible > 0 ? ERROR_NONE : ERROR_FAILED;
}
