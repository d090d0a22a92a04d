#include "coordinator/report/report.h"

#include <string.h>

const struct report_format report_formats[] = {
    {"text", "summary.txt", "findings in words, then a table per group", report_text},
    {"json", "summary.json", "every figure, for programs", report_json},
    {"csv", NULL, "a row per cell", report_csv},
    {"junit", NULL, "a test case per cell, for CI: failure, skipped or error by the thresholds",
     report_junit},
    {"pyperf", NULL, "every value, for pyperf compare_to, hist and stats", report_pyperf},
};
const size_t report_format_count = sizeof report_formats / sizeof *report_formats;

const struct report_format *report_find(const char *name)
{
    for (size_t i = 0; i < report_format_count; i++)
        if (strcmp(report_formats[i].name, name) == 0)
            return &report_formats[i];
    return NULL;
}
