#include "coordinator/report/figure.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>

const char *figure_unknown(char *buf)
{
    buf[0] = '-';
    buf[1] = '\0';
    return buf;
}

const char *figure_duration(char *buf, bool known, double ns)
{
    if (!known)
        return figure_unknown(buf);
    return units_format_duration(buf, FIGURE_BYTES, ns);
}

const char *figure_ratio(char *buf, bool known, double value)
{
    double size = fabs(value);
    int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.01 || !(size > 0) ? 2 : 4;
    if (known)
        (void)snprintf(buf, FIGURE_BYTES, "%.*fx", decimals, value);
    return known ? buf : figure_unknown(buf);
}

const char *figure_count(char *buf, const struct summary_figure *figure)
{
    double whole = round(figure->value);
    if (!figure->known)
        return figure_unknown(buf);
    if ((fabs(figure->value - whole) < 0.005 || fabs(whole) >= 1000) && fabs(whole) < 1e15)
        return units_format_count(buf, FIGURE_BYTES, (int64_t)whole);
    (void)snprintf(buf, FIGURE_BYTES, "%.2f", figure->value);
    return buf;
}

const char *figure_whole(char *buf, bool known, double value)
{
    if (known && fabs(value) < 1e15)
        return units_format_count(buf, FIGURE_BYTES, (int64_t)llround(value));
    if (known)
        (void)snprintf(buf, FIGURE_BYTES, "%.3g", value);
    return known ? buf : figure_unknown(buf);
}

const char *figure_rate(char *buf, bool known, double value)
{
    if (!known || fabs(value) >= 99.95)
        return figure_whole(buf, known, value);
    (void)snprintf(buf, FIGURE_BYTES, "%.*f", fabs(value) >= 9.995 ? 1 : 2, value);
    return buf;
}
