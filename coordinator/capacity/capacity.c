/* What a curve foretells, what was measured, and how sure both are. */
#include "coordinator/capacity/capacity_internal.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

#define NS_PER_S 1e9

/* ---- Points ---- */

enum column { CPU, WAKEUPS, THREAD, UTILIZATION, THROUGHPUT, LATENCY, COLUMNS };

static double column_of(const struct capacity_window *window, enum column column)
{
    const double columns[COLUMNS] = {
        window->cpu_ns,      window->wakeups,          window->thread_utilization,
        window->utilization, window->throughput_per_s, window->latency_p50_ns};
    return columns[column];
}

/* Medians of the load's windows, or of as many drawn ones. */
static void fill_medians(struct capacity_point *point, bool waits, struct rng *rng)
{
    const struct capacity_load *load = point->load;
    scoped_free double *values = memory_zeroed(COLUMNS * load->count, sizeof *values);
    for (size_t i = 0; i < load->count; i++) {
        const struct capacity_window *window = &load->windows[rng ? rng_below(rng, load->count) : i];
        for (enum column column = 0; column < COLUMNS; column++)
            values[column * load->count + i] = column_of(window, column);
    }
    double medians[COLUMNS];
    for (enum column column = 0; column < COLUMNS; column++)
        medians[column] = stats_median_in_place(values + column * load->count, load->count);
    point->cpu_ns = medians[CPU];
    point->wakeups = waits ? medians[WAKEUPS] : 1 / point->clients; /* a turn of the loop, shared */
    point->thread_utilization = medians[THREAD];
    point->utilization = medians[UTILIZATION];
    point->throughput_per_s = medians[THROUGHPUT];
    point->latency_p50_ns = medians[LATENCY];
}

static int compare_points(const void *a, const void *b)
{
    const struct capacity_point *x = a, *y = b;
    int order = (x->clients > y->clients) - (x->clients < y->clients);
    if (order == 0)
        order = (int)y->in_phase - (int)x->in_phase;
    return order ? order : (x->load > y->load) - (x->load < y->load);
}

static bool has_windows_of(const struct capacity_loads *loads, int64_t clients)
{
    for (size_t i = 0; i < loads->count; i++)
        if (loads->at[i].timed && !loads->at[i].borrowed && loads->at[i].clients == clients)
            return true;
    return false;
}

/* Three numbers of clients, each few: what can tell the work of a job that does not wait from turns of the loop. */
static bool has_few(const struct capacity_loads *loads)
{
    size_t distinct = 0;
    for (int64_t clients = 1; clients <= CAPACITY_FEW; clients++)
        distinct += has_windows_of(loads, clients);
    return distinct >= 3;
}

static bool may_fit(const struct capacity_point *point, bool waits, bool few)
{
    if (!point->in_phase || !(point->cpu_ns > 0))
        return false;
    if (waits)
        return point->thread_utilization <= CAPACITY_FIT_UTILIZATION;
    return few && point->load->timed && point->load->clients <= CAPACITY_FEW;
}

static struct capacity_point point_of(const struct capacity_load *load, bool waits, bool few)
{
    struct capacity_point point = {
        .clients = (double)load->clients, .load = load, .in_phase = load->together || load->clients == 1};
    fill_medians(&point, waits, NULL);
    point.fits = may_fit(&point, waits, few);
    return point;
}

static void add_point(struct capacity_points *points, const struct capacity_point *point)
{
    points->at[points->count++] = *point;
    points->fitting += point->fits;
    points->windows += (int64_t)point->load->count;
}

/* The fit may go on where its own loads end; without any of its own there is nothing to go on from. */
static void borrow_points(const struct capacity_loads *loads, struct capacity_points *points)
{
    double most = INFINITY;
    for (size_t i = 0; i < points->count; i++)
        if (points->at[i].fits && (points->at[i].clients > most || isinf(most)))
            most = points->at[i].clients;
    for (size_t i = 0; i < loads->count && loads->waits; i++) {
        const struct capacity_load *load = &loads->at[i];
        if (!load->borrowed || !load->timed || load->count == 0 || !((double)load->clients > most))
            continue;
        struct capacity_point point = point_of(load, true, false);
        point.in_phase = false; /* of no curve but the fit's: its latency is another */
        if (point.fits)
            add_point(points, &point);
    }
}

struct capacity_points capacity_points_of(const struct capacity_loads *loads)
{
    struct capacity_points points = {.waits = loads->waits};
    points.at = memory_zeroed(loads->count + 1, sizeof *points.at);
    bool few = has_few(loads);
    for (size_t i = 0; i < loads->count; i++) {
        const struct capacity_load *load = &loads->at[i];
        if (load->borrowed || load->count == 0 ||
            (loads->waits && !load->timed && has_windows_of(loads, load->clients)))
            continue;
        struct capacity_point point = point_of(load, loads->waits, few);
        add_point(&points, &point);
    }
    borrow_points(loads, &points);
    qsort(points.at, points.count, sizeof *points.at, compare_points);
    return points;
}

void capacity_points_release(struct capacity_points *points)
{
    free(points->at);
}

void capacity_points_draw(const struct capacity_points *points, struct rng *rng, struct capacity_point *ret)
{
    if (points->count > 0)
        memcpy(ret, points->at, points->count * sizeof *ret);
    for (size_t i = 0; i < points->count; i++)
        fill_medians(&ret[i], points->waits, rng);
}

/* ---- Figures of one picture of all loads ---- */

/* NAN: not defined in this picture. */
enum figure { WORK, WAKEUP, WORKING_SET, PREDICTED, MEASURED, ERROR, KNEE, IN_TIME, FIGURES };

static bool is_saturated(const struct capacity_point *point)
{
    return point->utilization >= CAPACITY_SATURATED && point->thread_utilization >= CAPACITY_OWN_SHARE;
}

/* Of a job that does not wait, the least load tells the work; plain rounds first. */
static const struct capacity_point *find_least(const struct capacity_point *at, size_t count)
{
    const struct capacity_point *least = NULL;
    for (size_t i = 0; i < count; i++)
        if (!least || (at[i].clients <= least->clients && !at[i].load->timed && least->load->timed))
            least = &at[i];
    return least;
}

/* What is foretold does not stand on this load. */
static bool may_prove(const struct capacity_points *points, const struct capacity_point *point)
{
    bool alone = !points->waits && points->fitting == 0; /* the least load is all that is known */
    return point->load->timed && !point->fits && !(alone && point == find_least(points->at, points->count));
}

/* The load whose throughput is the ceiling: the highest among those that kept their core busy; -1: none did. */
static ptrdiff_t find_ceiling(const struct capacity_points *points)
{
    ptrdiff_t found = -1;
    for (size_t i = 0; i < points->count; i++) {
        const struct capacity_point *point = &points->at[i];
        if (may_prove(points, point) && is_saturated(point) &&
            (found < 0 || point->throughput_per_s > points->at[found].throughput_per_s))
            found = (ptrdiff_t)i;
    }
    return found;
}

/* The clients at which latency has grown by CAPACITY_LATENCY_GROWTH over the least load's. */
static double find_in_time(const struct capacity_point *at, size_t count)
{
    const struct capacity_point *least = NULL, *before = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!at[i].in_phase || !(at[i].latency_p50_ns > 0))
            continue;
        least = least ? least : &at[i];
        double most = CAPACITY_LATENCY_GROWTH * least->latency_p50_ns;
        if (before && at[i].latency_p50_ns > most) {
            double part =
                log(most / before->latency_p50_ns) / log(at[i].latency_p50_ns / before->latency_p50_ns);
            return before->clients * pow(at[i].clients / before->clients, part);
        }
        before = &at[i];
    }
    return NAN;
}

static double latency_of_least(const struct capacity_point *at, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (at[i].fits)
            return at[i].latency_p50_ns;
    return NAN;
}

static void figures_of_waiting(const struct capacity_model *model, const struct capacity_point *at,
                               size_t count, double *figures)
{
    if (!model || !(model->work_ns > 0))
        return;
    double knee = capacity_knee(model, latency_of_least(at, count));
    figures[WORK] = model->work_ns;
    figures[WAKEUP] = model->wakeup_ns;
    if (model->growth_from > 0)
        figures[WORKING_SET] = capacity_busy_ns(model, knee) - model->work_ns;
    figures[PREDICTED] = NS_PER_S / capacity_busy_ns(model, knee);
    figures[KNEE] = knee;
    figures[IN_TIME] = find_in_time(at, count);
}

/* model: NULL when there is none.  ceiling: index of the load, or -1. */
static void figures_of(const struct capacity_points *points, const struct capacity_point *at,
                       const struct capacity_model *model, ptrdiff_t ceiling, double *figures)
{
    for (enum figure i = 0; i < FIGURES; i++)
        figures[i] = NAN;
    if (points->waits)
        figures_of_waiting(model, at, points->count, figures);
    else
        figures[WORK] = model && model->work_ns > 0 ? model->work_ns : find_least(at, points->count)->cpu_ns;
    if (!points->waits)
        figures[PREDICTED] = NS_PER_S / figures[WORK];
    if (ceiling >= 0)
        figures[MEASURED] = at[ceiling].throughput_per_s;
    figures[ERROR] = figures[MEASURED] / figures[PREDICTED];
}

/* ---- Intervals ---- */

void capacity_bound(struct stats_estimate *estimate, double *draws, size_t count, const char *uncertain)
{
    const double tail = (1 - STATS_LEVEL) / 2;
    size_t known = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(draws[i]))
            draws[known++] = draws[i];
    if ((double)(count - known) > tail * (double)count) {
        estimate->why = uncertain;
        return;
    }
    scoped_free double *sorted = stats_sorted(draws, known);
    estimate->bounded = true;
    estimate->why = NULL;
    estimate->ci_lo = fmin(stats_quantile(sorted, known, tail), estimate->value);
    estimate->ci_hi = fmax(stats_quantile(sorted, known, 1 - tail), estimate->value);
    estimate->ci_level = STATS_LEVEL;
    estimate->ci_method = "bootstrap";
}

struct fit {
    const struct capacity_points *points;
    const struct capacity_model *model; /* NULL: none */
    ptrdiff_t ceiling;
    double *residuals;
    size_t residual_count;
};

/* One draw: windows within loads, then what the fit misses; all figures of it. */
static void draw_figures(const struct fit *fit, struct rng *rng, struct capacity_point *at, double *figures)
{
    const struct capacity_points *points = fit->points;
    struct capacity_model model;
    capacity_points_draw(points, rng, at);
    for (size_t i = 0; i < points->count && fit->residual_count > 0; i++)
        if (at[i].fits)
            at[i].cpu_ns *= fmax(1e-3, 1 + fit->residuals[rng_below(rng, fit->residual_count)]);
    bool fitted = fit->model && capacity_model_fit(at, points->count, capacity_shape_of(fit->model), &model);
    figures_of(points, at, fitted ? &model : NULL, fit->ceiling, figures);
}

/* Nothing was repeated and nothing was missed: draws would all be the same. */
static bool nothing_varies(const struct fit *fit)
{
    const struct capacity_points *points = fit->points;
    return fit->residual_count == 0 && points->windows == (int64_t)points->count;
}

static void bound_figures(const struct fit *fit, uint64_t seed, struct stats_estimate *const *estimates)
{
    scoped_free double *draws = memory_zeroed((size_t)FIGURES * CAPACITY_DRAWS, sizeof *draws);
    scoped_free struct capacity_point *at = memory_zeroed(fit->points->count + 1, sizeof *at);
    struct rng rng = rng_seeded(seed);
    for (size_t draw = 0; draw < CAPACITY_DRAWS; draw++) {
        double figures[FIGURES];
        draw_figures(fit, &rng, at, figures);
        for (size_t i = 0; i < FIGURES; i++)
            draws[i * CAPACITY_DRAWS + draw] = figures[i];
    }
    for (size_t i = 0; i < FIGURES; i++)
        if (estimates[i]->known && !estimates[i]->bounded)
            capacity_bound(estimates[i], draws + i * CAPACITY_DRAWS, CAPACITY_DRAWS, "fit_uncertain");
}

/* ---- The whole ---- */

static struct stats_estimate estimate_of(double value, int64_t n, const char *why)
{
    if (!isfinite(value))
        return stats_unknown(why);
    return (struct stats_estimate){.known = true, .value = value, .n = n, .why = "one_window"};
}

static const char *why_not_predicted(const struct capacity_points *points, const struct capacity_curve *curve)
{
    if (points->count == 0)
        return "no_loads";
    if (!points->waits)
        return "does_not_wait";
    return curve->fitted ? "work_not_separable" : "too_few_loads";
}

static void find_busiest(const struct capacity_points *points, struct capacity_curve *curve)
{
    for (size_t i = 0; i < points->count; i++) {
        const struct capacity_point *point = &points->at[i];
        if (point->load->timed && !point->load->borrowed &&
            point->thread_utilization > curve->busiest_utilization) {
            curve->busiest_utilization = point->thread_utilization;
            curve->busiest_clients = point->load->clients;
        }
    }
}

/* A curve of two terms needs more than two distinct loads to say how well it fits; one is no curve at all. */
static bool fit_points(const struct capacity_points *points, struct capacity_curve *curve)
{
    double first = 0;
    bool several = false;
    for (size_t i = 0; i < points->count; i++) {
        if (!points->at[i].fits)
            continue;
        several |= first > 0 && points->at[i].clients > first;
        first = first > 0 ? first : points->at[i].clients;
    }
    curve->loads_fitted = points->fitting;
    struct capacity_shape shape = capacity_shape_choose(points->at, points->count);
    return several && capacity_model_fit(points->at, points->count, shape, &curve->model);
}

/* Clients that share nothing foretell no more than one alone does. */
static void forget_fit(struct capacity_points *points, struct capacity_curve *curve)
{
    for (size_t i = 0; i < points->count; i++)
        points->at[i].fits = false;
    points->fitting = curve->loads_fitted = 0;
    curve->fitted = false;
    curve->model = (struct capacity_model){0};
}

static double root_mean_square(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return count > 0 ? sqrt(sum / (double)count) : 0;
}

/* The hardest load found no time left on its core, having taken more than half of it, but not all, itself. */
static bool hardest_is_shared(const struct capacity_points *points)
{
    const struct capacity_point *hardest = NULL;
    for (size_t i = 0; i < points->count; i++)
        if (points->at[i].load->timed && !points->at[i].load->borrowed)
            hardest = &points->at[i];
    return hardest && hardest->utilization >= CAPACITY_SATURATED && !is_saturated(hardest) &&
           hardest->thread_utilization > CAPACITY_FIT_UTILIZATION;
}

/* Some load could have been the ceiling. */
static bool has_harder(const struct capacity_points *points)
{
    for (size_t i = 0; i < points->count; i++)
        if (points->waits || may_prove(points, &points->at[i]))
            return true;
    return false;
}

/* The figures by value, and why those are not known that are not. */
static void set_figures(const struct capacity_points *points, const double *figures, ptrdiff_t ceiling,
                        struct capacity_curve *curve, struct stats_estimate *const *estimates)
{
    const char *unpredicted = why_not_predicted(points, curve);
    const char *unmeasured = curve->busiest_clients == 0 ? "no_windows"
                             : hardest_is_shared(points) ? "core_shared"
                             : has_harder(points)        ? "never_saturated"
                                                         : "no_harder_load";
    const char *whys[FIGURES] = {
        [WORK] = unpredicted,
        [WAKEUP] = unpredicted,
        [WORKING_SET] = isfinite(figures[WORK]) && points->waits ? "no_third_term" : unpredicted,
        [PREDICTED] = unpredicted,
        [MEASURED] = unmeasured,
        [ERROR] = isfinite(figures[PREDICTED]) ? unmeasured : unpredicted,
        [KNEE] = unpredicted,
        [IN_TIME] = points->waits ? "latency_not_reached" : "does_not_wait",
    };
    for (size_t i = 0; i < FIGURES; i++)
        *estimates[i] = estimate_of(figures[i], points->windows, whys[i]);
    if (ceiling < 0)
        return;
    const struct capacity_load *load = points->at[ceiling].load;
    scoped_free double *values = memory_zeroed(load->count, sizeof *values);
    for (size_t i = 0; i < load->count; i++)
        values[i] = load->windows[i].throughput_per_s;
    curve->measured_per_s_core = stats_median(values, load->count);
    curve->ceiling_clients = load->clients;
}

void capacity_fit(const struct capacity_loads *loads, uint64_t seed, struct capacity_curve *ret)
{
    struct capacity_points points = capacity_points_of(loads);
    struct capacity_curve curve = {0};
    struct stats_estimate *const estimates[FIGURES] = {
        [WORK] = &curve.work_ns,
        [WAKEUP] = &curve.wakeup_ns,
        [WORKING_SET] = &curve.working_set_ns,
        [PREDICTED] = &curve.predicted_per_s_core,
        [MEASURED] = &curve.measured_per_s_core,
        [ERROR] = &curve.error_x,
        [KNEE] = &curve.clients_at_knee,
        [IN_TIME] = &curve.clients_in_time,
    };
    scoped_free double *residuals = memory_zeroed(points.count + 1, sizeof *residuals);
    double figures[FIGURES];
    for (size_t i = 0; i < FIGURES; i++)
        figures[i] = NAN;
    find_busiest(&points, &curve);
    curve.fitted = fit_points(&points, &curve);
    if (curve.fitted && !loads->waits && !(curve.model.wakeup_ns > 0))
        forget_fit(&points, &curve);
    struct fit fit = {.points = &points,
                      .model = curve.fitted ? &curve.model : NULL,
                      .ceiling = find_ceiling(&points),
                      .residuals = residuals};
    if (curve.fitted)
        fit.residual_count = capacity_residuals(&curve.model, points.at, points.count, residuals);
    curve.residual_x = root_mean_square(residuals, fit.residual_count);
    if (points.count > 0)
        figures_of(&points, points.at, fit.model, fit.ceiling, figures);
    set_figures(&points, figures, fit.ceiling, &curve, estimates);
    if (points.count > 0 && !nothing_varies(&fit))
        bound_figures(&fit, seed, estimates);
    capacity_points_release(&points);
    *ret = curve;
}
