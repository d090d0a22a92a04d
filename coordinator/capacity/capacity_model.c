/* The cost curve itself: its coefficients, and where its third term begins. */
#include "coordinator/capacity/capacity_internal.h"

#include "base/memory.h"

#include <math.h>

#define GROWTH_LEAST_LOADS 5   /* fewer cannot tell a third term from noise */
#define GROWTH_MUST_SAVE   0.5 /* of the squared error of what is foretold */

static double growth_of(double clients, double growth_from, bool misses)
{
    if (!(growth_from > 0 && clients > growth_from))
        return 0;
    return misses ? 1 - growth_from / clients : log2(clients / growth_from);
}

double capacity_busy_ns(const struct capacity_model *model, double clients)
{
    return model->work_ns + model->growth_ns * growth_of(clients, model->growth_from, model->misses);
}

double capacity_cost_ns(const struct capacity_model *model, double clients)
{
    double wakeups = model->wakeups_of_one * pow(clients, model->wakeups_power);
    return capacity_busy_ns(model, clients) + model->wakeup_ns * wakeups;
}

/* Of a point that was measured, by the wake-ups that the model goes by. */
static double cost_at(const struct capacity_model *model, const struct capacity_point *point)
{
    double wakeups = model->by_burst ? model->wakeups_of_one / point->clients : point->wakeups;
    return capacity_busy_ns(model, point->clients) + model->wakeup_ns * wakeups;
}

struct capacity_shape capacity_shape_of(const struct capacity_model *model)
{
    return (struct capacity_shape){model->growth_from, model->misses, model->by_burst};
}

/* Wake-ups of one client, by the least load that fits. */
static double least_wakeups(const struct capacity_point *at, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (at[i].fits)
            return at[i].wakeups * at[i].clients;
    return 0;
}

/* ---- Coefficients ---- */

/* Rows of relative errors: terms / cpu against 1. */
static size_t fill_rows(const struct capacity_point *at, size_t count, struct capacity_shape shape,
                        unsigned terms, double *design, double *ones)
{
    size_t rows = 0, cell = 0;
    double of_one = least_wakeups(at, count);
    for (size_t i = 0; i < count; i++) {
        if (!at[i].fits)
            continue;
        double wakeups = shape.by_burst ? of_one / at[i].clients : at[i].wakeups;
        const double columns[CAPACITY_TERMS] = {1, wakeups,
                                                growth_of(at[i].clients, shape.growth_from, shape.misses)};
        for (unsigned term = 0; term < CAPACITY_TERMS; term++)
            if (terms & 1u << term)
                design[cell++] = columns[term] / at[i].cpu_ns;
        ones[rows++] = 1;
    }
    return rows;
}

/* Least squares with these terms alone; their squared error, or -1 when there is none or a coefficient is negative. */
static double fit_terms(const struct capacity_point *at, size_t count, struct capacity_shape shape,
                        unsigned terms, double *ret_coefficients)
{
    scoped_free double *design = memory_zeroed(count * CAPACITY_TERMS + 1, sizeof *design);
    scoped_free double *ones = memory_zeroed(count + 1, sizeof *ones);
    size_t rows = fill_rows(at, count, shape, terms, design, ones), used = 0;
    struct stats_fit fit;
    if (stats_least_squares(design, ones, rows, (size_t)__builtin_popcount(terms), &fit, NULL) < 0)
        return -1;
    for (size_t i = 0; i < fit.terms; i++)
        if (fit.coefficient[i] < 0)
            return -1;
    for (unsigned term = 0; term < CAPACITY_TERMS; term++)
        ret_coefficients[term] = terms & 1u << term ? fit.coefficient[used++] : 0;
    return fit.residual_stddev * fit.residual_stddev * fit.degrees;
}

/* Wake-ups as a power of clients: a straight line in logarithms. */
static void fit_wakeups(const struct capacity_point *at, size_t count, struct capacity_model *model)
{
    scoped_free double *design = memory_zeroed(2 * count + 1, sizeof *design);
    scoped_free double *logs = memory_zeroed(count + 1, sizeof *logs);
    size_t rows = 0;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (!at[i].fits || !(at[i].wakeups > 0))
            continue;
        design[2 * rows] = 1;
        design[2 * rows + 1] = log(at[i].clients);
        logs[rows++] = log(at[i].wakeups);
        sum += at[i].wakeups;
    }
    struct stats_fit fit;
    bool line = stats_least_squares(design, logs, rows, 2, &fit, NULL) == 0;
    double mean = rows > 0 ? sum / (double)rows : 0;
    model->wakeups_of_one = line ? exp(fit.coefficient[0]) : mean;
    model->wakeups_power = line ? fit.coefficient[1] : 0;
}

/* Squared error of the best fit of that shape, -1 without one. */
static double fit_best(const struct capacity_point *at, size_t count, struct capacity_shape shape,
                       double *ret_best)
{
    unsigned all = 1u << (shape.growth_from > 0 ? CAPACITY_TERMS : CAPACITY_TERMS - 1);
    double least = -1;
    /* with so few terms, all subsets are the whole of nonnegative least squares (Lawson, Hanson, ch. 23) */
    for (unsigned terms = 1; terms < all; terms++) {
        double coefficients[CAPACITY_TERMS] = {0};
        double error = fit_terms(at, count, shape, terms, coefficients);
        if (error < 0 || (least >= 0 && error >= least))
            continue;
        least = error;
        for (size_t i = 0; i < CAPACITY_TERMS; i++)
            ret_best[i] = coefficients[i];
    }
    return least;
}

bool capacity_model_fit(const struct capacity_point *at, size_t count, struct capacity_shape shape,
                        struct capacity_model *ret)
{
    double best[CAPACITY_TERMS] = {0};
    if (fit_best(at, count, shape, best) < 0)
        return false;
    struct capacity_model model = {.work_ns = best[0],
                                   .wakeup_ns = best[1],
                                   .growth_ns = best[2],
                                   .growth_from = best[2] > 0 ? shape.growth_from : 0,
                                   .misses = best[2] > 0 && shape.misses,
                                   .wakeups_of_one = least_wakeups(at, count),
                                   .wakeups_power = -1,
                                   .by_burst = shape.by_burst};
    if (!shape.by_burst)
        fit_wakeups(at, count, &model);
    *ret = model;
    return true;
}

size_t capacity_residuals(const struct capacity_model *model, const struct capacity_point *at, size_t count,
                          double *ret)
{
    size_t used = 0;
    double terms = (model->work_ns > 0) + (model->wakeup_ns > 0) + (model->growth_ns > 0);
    for (size_t i = 0; i < count; i++)
        if (at[i].fits)
            ret[used++] = at[i].cpu_ns / cost_at(model, &at[i]) - 1;
    if (!((double)used > terms))
        return 0;
    double scale = sqrt((double)used / ((double)used - terms));
    for (size_t i = 0; i < used; i++)
        ret[i] *= scale;
    return used;
}

/* ---- The third term ---- */

/* Squared relative errors of foretelling each fitting point from those of fewer clients; -1 when one cannot be. */
static double foretelling_error(const struct capacity_point *at, size_t count, struct capacity_shape shape)
{
    double sum = 0;
    size_t before = 0;
    for (size_t i = 0; i < count; i++) {
        if (!at[i].fits)
            continue;
        struct capacity_model model;
        if (before++ < GROWTH_LEAST_LOADS - 1)
            continue;
        if (!capacity_model_fit(at, i, shape, &model))
            return -1;
        double miss = cost_at(&model, &at[i]) / at[i].cpu_ns - 1;
        sum += miss * miss;
    }
    return sum;
}

static struct capacity_shape choose_growth(const struct capacity_point *at, size_t count, bool by_burst)
{
    struct capacity_shape chosen = {.by_burst = by_burst};
    size_t fitting = 0;
    for (size_t i = 0; i < count; i++)
        fitting += at[i].fits;
    if (fitting < GROWTH_LEAST_LOADS)
        return chosen;
    double least = GROWTH_MUST_SAVE * foretelling_error(at, count, chosen);
    for (size_t i = 0, seen = 0; i < count && seen + 2 < fitting; i++) {
        if (!at[i].fits)
            continue;
        seen++;
        /* misses fall with 1 / K, as shared wake-ups do: low down the two cannot be told apart */
        int forms = 2 * seen >= fitting ? 2 : 1;
        for (int form = 0; form < forms; form++) {
            struct capacity_shape shape = {at[i].clients, form == 1, by_burst};
            double error = foretelling_error(at, count, shape);
            if (error < 0 || error >= least)
                continue;
            least = error;
            chosen = shape;
        }
    }
    return chosen;
}

struct capacity_shape capacity_shape_choose(const struct capacity_point *at, size_t count)
{
    double errors[2], best[CAPACITY_TERMS];
    struct capacity_shape shapes[2];
    for (int by_burst = 0; by_burst < 2; by_burst++) {
        shapes[by_burst] = choose_growth(at, count, by_burst);
        errors[by_burst] = fit_best(at, count, shapes[by_burst], best);
    }
    return shapes[errors[1] >= 0 && errors[1] < errors[0]];
}

/* ---- The knee ---- */

double capacity_knee(const struct capacity_model *model, double latency_of_one_ns)
{
    double lo = 1,
           hi = latency_of_one_ns / capacity_busy_ns(model, 1); /* the cost never falls: K is no more */
    if (!(hi > 1))
        return 1;
    for (int i = 0; i < 100; i++) {
        double middle = sqrt(lo * hi);
        if (middle * capacity_busy_ns(model, middle) < latency_of_one_ns)
            lo = middle;
        else
            hi = middle;
    }
    return hi;
}
