#include "coordinator/summary/threshold.h"

struct threshold_result threshold_judge(const struct threshold *threshold,
                                        const struct stats_estimate *figure)
{
    if (!figure->known || (!figure->bounded && figure->why))
        return (struct threshold_result){THRESHOLD_UNDECIDED, figure->why ? figure->why : "not_known"};
    double lo = figure->bounded ? figure->ci_lo : figure->value;
    double hi = figure->bounded ? figure->ci_hi : figure->value;
    if ((threshold->has_max && lo > threshold->max) || (threshold->has_min && hi < threshold->min))
        return (struct threshold_result){.outcome = THRESHOLD_FAILED};
    if ((threshold->has_max && hi > threshold->max) || (threshold->has_min && lo < threshold->min))
        return (struct threshold_result){THRESHOLD_UNDECIDED, "interval_spans_the_bound"};
    return (struct threshold_result){.outcome = THRESHOLD_PASSED};
}
