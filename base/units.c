#include "base/units.h"

#include "base/clock.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    int64_t ns;
};

/* smallest first */
static const struct unit duration_units[] = {
    {"ns", 1},       {"us", NS_PER_US},    {"ms", NS_PER_MS},
    {"s", NS_PER_S}, {"m", 60 * NS_PER_S}, {"h", 3600 * NS_PER_S},
};
#define DURATION_UNITS (sizeof duration_units / sizeof duration_units[0])

static int refuse(const char **ret_why, const char *why)
{
    if (ret_why)
        *ret_why = why;
    return -1;
}

struct decimal {
    int64_t whole;
    int64_t fraction; /* in units of 1 / scale */
    int64_t scale;    /* a power of ten, at most 10^12 */
};

/* Reads digits[.digits]; returns the first character after them or NULL. */
static const char *read_decimal(const char *text, struct decimal *ret)
{
    struct decimal d = {.scale = 1};
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(d.whole, 10, &d.whole) ||
            __builtin_add_overflow(d.whole, *p - '0', &d.whole))
            return NULL;
    }
    if (p == text)
        return NULL;
    if (*p == '.') {
        const char *dot = p++;
        for (; *p >= '0' && *p <= '9'; p++) {
            if (d.scale >= 1000000000000LL)
                return NULL;
            d.fraction = d.fraction * 10 + (*p - '0');
            d.scale *= 10;
        }
        if (p == dot + 1)
            return NULL;
    }
    *ret = d;
    return p;
}

static bool scaled(const struct decimal *d, int64_t unit, int64_t *ret)
{
    __extension__ typedef __int128 wide;
    wide part = (wide)d->fraction * unit;
    if (part % d->scale != 0)
        return false;
    wide total = (wide)d->whole * unit + part / d->scale;
    if (total > INT64_MAX)
        return false;
    *ret = (int64_t)total;
    return true;
}

int units_parse_duration(const char *text, int64_t *ret_ns, const char **ret_why)
{
    struct decimal d;
    if (*text == '-')
        return refuse(ret_why, "a duration cannot be negative");
    const char *rest = read_decimal(text, &d);
    if (!rest)
        return refuse(ret_why, "not a duration (write it like 5ms)");
    if (*rest == '\0')
        return refuse(ret_why, "missing unit (ns, us, ms, s, m, h)");
    for (size_t i = 0; i < DURATION_UNITS; i++) {
        if (strcmp(rest, duration_units[i].name) != 0)
            continue;
        int64_t ns;
        if (!scaled(&d, duration_units[i].ns, &ns))
            return refuse(ret_why, "not a whole number of ns, or too long");
        *ret_ns = ns;
        return 0;
    }
    return refuse(ret_why, "unknown unit (ns, us, ms, s, m, h)");
}

int units_parse_count(const char *text, int64_t *ret_count, const char **ret_why)
{
    struct decimal d;
    int64_t unit = 1;
    int64_t count;
    const char *rest = read_decimal(text, &d);
    if (!rest)
        return refuse(ret_why, "not a whole number");
    if (*rest == 'k' || *rest == 'M')
        unit = *rest++ == 'k' ? 1000 : 1000000;
    if (*rest != '\0' || !scaled(&d, unit, &count))
        return refuse(ret_why, "not a whole number");
    *ret_count = count;
    return 0;
}

int units_parse_rate(const char *text, double *ret_per_s, const char **ret_why)
{
    struct decimal d;
    double unit = 1;
    const char *rest = read_decimal(text, &d);
    if (!rest)
        return refuse(ret_why, "not a rate (write it like 1000/s)");
    if (*rest == 'k' || *rest == 'M')
        unit = *rest++ == 'k' ? 1e3 : 1e6;
    if (strcmp(rest, "/s") != 0 && strstr(rest, "/s"))
        return refuse(ret_why, "not a rate (write it like 1000/s or 50k/s)");
    if (strcmp(rest, "/s") != 0)
        return refuse(ret_why, "a rate ends in /s (write it like 1000/s)");
    double rate = ((double)d.whole + (double)d.fraction / (double)d.scale) * unit;
    if (!(rate > 0) || !isfinite(rate))
        return refuse(ret_why, "a rate is above 0");
    *ret_per_s = rate;
    return 0;
}

char *units_format_duration(char *buf, size_t size, double ns)
{
    double magnitude = fabs(ns);
    const char *unit = "ns";
    double scale = 1;
    /* 999.5 would print as 1000 in three digits: it belongs to the next unit */
    for (size_t i = 1; i < 4; i++) {
        if (magnitude < 999.5 * scale)
            break;
        scale = (double)duration_units[i].ns;
        unit = duration_units[i].name;
    }
    double shown = ns / scale;
    int decimals = fabs(shown) >= 99.95 ? 0 : fabs(shown) >= 9.995 ? 1 : 2;
    if (shown == 0)
        decimals = 0;
    (void)snprintf(buf, size, "%.*f %s", decimals, shown, unit);
    return buf;
}

char *units_exact_duration(char *buf, size_t size, int64_t ns)
{
    size_t best = 0;
    for (size_t i = 1; ns != 0 && i < 4; i++)
        if (ns % duration_units[i].ns == 0)
            best = i;
    (void)snprintf(buf, size, "%lld%s", (long long)(ns / duration_units[best].ns), duration_units[best].name);
    return buf;
}

char *units_format_count(char *buf, size_t size, int64_t count)
{
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)count);
    size_t out = 0;
    for (int i = 0; i < n && out + 2 < size; i++) {
        int left = n - i;
        if (i > 0 && left % 3 == 0 && digits[i - 1] != '-')
            buf[out++] = ',';
        buf[out++] = digits[i];
    }
    buf[out] = '\0';
    return buf;
}
