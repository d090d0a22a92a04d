/* show_run DIR FORMAT: a report of a run, from its store alone; `rounds` is the CSV with a row per round. */
#include "coordinator/report/report.h"
#include "coordinator/store/rounds_csv.h"
#include "coordinator/store/store.h"

#include <stdio.h>
#include <string.h>

static int render(struct store *store, const struct report_format *format, struct error *err)
{
    struct summary *summary;
    if (summary_build(store, &summary, err) < 0)
        return -1;
    int result = format->render(summary, stdout);
    summary_free(summary);
    return result;
}

static int show(const char *dir, const char *name, struct error *err)
{
    struct store *store;
    const struct report_format *format = report_find(name);
    bool rounds = strcmp(name, "rounds") == 0;
    if ((!format && !rounds) || store_open(dir, STORE_READ, &store, err) < 0)
        return -1;
    int result = rounds ? rounds_csv_write(store, stdout, err) : render(store, format, err);
    store_close(store);
    return result;
}

int main(int argc, char **argv)
{
    struct error err = {.text = "usage: show_run DIR FORMAT"};
    if (argc == 3 && show(argv[1], argv[2], &err) == 0)
        return 0;
    (void)fprintf(stderr, "show_run: %s\n", err.text);
    return 1;
}
