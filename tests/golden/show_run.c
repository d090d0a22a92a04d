/* show_run DIR FORMAT: a report of a run, from its store alone. */
#include "coordinator/report/report.h"
#include "coordinator/store.h"

#include <stdio.h>

static int show(const char *dir, const struct report_format *format, struct error *err)
{
    struct store *store;
    struct summary *summary;
    if (store_open(dir, STORE_READ, &store, err) < 0)
        return -1;
    int result = summary_build(store, &summary, err);
    if (result == 0) {
        result = format->render(summary, stdout);
        summary_free(summary);
    }
    store_close(store);
    return result;
}

int main(int argc, char **argv)
{
    struct error err = {.text = "usage: show_run DIR FORMAT"};
    const struct report_format *format = argc == 3 ? report_find(argv[2]) : NULL;
    if (format && show(argv[1], format, &err) == 0)
        return 0;
    (void)fprintf(stderr, "show_run: %s\n", err.text);
    return 1;
}
