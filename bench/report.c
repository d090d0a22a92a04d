#include "bench/report.h"

#include <stdio.h>
#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double report_median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void report_line(struct report *report, const char *name, double value, const char *unit, double limit)
{
    const char *verdict = limit <= 0 ? "" : value <= limit ? "PASS" : "MISS";
    if (report->json) {
        printf("%s{\"name\": \"%s\", \"value\": %.4f, \"unit\": \"%s\"", report->lines++ ? ",\n" : "[\n",
               name, value, unit);
        if (limit > 0)
            printf(", \"goal\": %.4f, \"reached\": %s", limit, value <= limit ? "true" : "false");
        printf("}");
        return;
    }
    printf("%-66s %10.3f %-3s", name, value, unit);
    if (limit > 0)
        printf("  goal <= %8.3f  %s", limit, verdict);
    printf("\n");
}

void report_end(const struct report *report)
{
    if (report->json)
        printf("%s]\n", report->lines ? "\n" : "[");
}
