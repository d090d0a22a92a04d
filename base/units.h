/* units.h: durations, rates and counts as people write and read them.
 *
 * Parsing is strict: a number, then a unit; no sign, no exponent, no spaces, no NaN.  ret_ values are
 * untouched on failure.  Any thread. */
#ifndef COREFAN_BASE_UNITS_H
#define COREFAN_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* "5ms", "1.5s", "250us", "40ns", "2m" -> ns.  Digits below one ns are refused, so is anything over 292
 * years. 0 or -1.  *ret_why (may be NULL) then points at a constant clause such as "missing unit (ns, us, ms,
 * s, m, h)". */
int units_parse_duration(const char *text, int64_t *ret_ns, const char **ret_why);

/* "1000/s", "50k/s", "2M/s" -> events per second, > 0 and finite. */
int units_parse_rate(const char *text, double *ret_per_s, const char **ret_why);

/* Whole number with optional k or M: "10k" -> 10000. */
int units_parse_count(const char *text, int64_t *ret_count, const char **ret_why);

/* Three significant digits and a unit: "415 ms", "8.87 us", "20.7 us", "478 ns", "0.31 ns", "2.40 s".
 * Negative values keep their sign.  Writes at most size bytes with the 0 and returns buf. */
char *units_format_duration(char *buf, size_t size, double ns);

/* The shortest exact form that units_parse_duration reads back: "5ms", "1500us", "0ns". */
char *units_exact_duration(char *buf, size_t size, int64_t ns);

/* Thousands set apart for people: 1234567 -> "1,234,567". */
char *units_format_count(char *buf, size_t size, int64_t count);

#endif
