/* Any bytes: a sweep is read or refused with a line per mistake, and what is read can be planned, has one canonical
 * form, and ids that differ.
 *
 *     cmake --preset fuzz && cmake --build build/fuzz --target fuzz_sweep
 *     build/fuzz/bin/fuzz_sweep -max_len=4096 -dict=tests/fuzz/sweep.dict NEW tests/fuzz/corpus/sweep examples */
#include "base/map.h"
#include "base/memory.h"
#include "coordinator/plan/plan.h"
#include "coordinator/sweep/sweep.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds, const char *what, const char *text)
{
    if (holds)
        return;
    (void)fprintf(stderr, "fuzz_sweep: %s: %s\n", what, text);
    abort();
}

static void check_lines(struct sweep_mistakes *mistakes)
{
    char *lines = sweep_mistakes_text(mistakes);
    require(lines[0] != '\0', "refused without a word", "");
    for (const char *line = lines; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        require(strncmp(line, "f.yaml", 6) == 0 || strstr(line, " more mistakes"), "a line without a place",
                lines);
        for (const char *p = line; *p && *p != '\n'; p++)
            require((unsigned char)*p >= ' ', "a control character", lines);
    }
    free(lines);
}

static void check_ids(const struct plan *plan)
{
    struct map seen;
    map_init(&seen, 1);
    for (int64_t i = 0; i < plan->cell_count; i++) {
        const char *id = plan->cells[i].id;
        require(!map_get(&seen, id, strlen(id)), "two cells of one id", id);
        map_put(&seen, id, strlen(id), plan->cells[i].id);
    }
    map_release(&seen);
}

static void check_canonical(const struct sweep *sweep)
{
    struct sweep *again = NULL;
    struct sweep_mistakes mistakes = {0};
    int rc = sweep_parse("f.yaml", sweep->canonical, strlen(sweep->canonical), (struct sweep_settings){0},
                         &again, &mistakes);
    if (rc != 0) {
        char *lines = sweep_mistakes_text(&mistakes);
        require(strstr(lines, "too large") || strstr(lines, "too many"), "the canonical form is refused",
                lines);
        free(lines);
    } else {
        require(strcmp(again->canonical, sweep->canonical) == 0, "the canonical form has another one",
                sweep->canonical);
    }
    sweep_mistakes_release(&mistakes);
    sweep_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sweep *sweep = NULL;
    struct plan *plan = NULL;
    struct error err = {0};
    struct sweep_mistakes mistakes = {0};
    if (sweep_parse("f.yaml", (const char *)data, size, (struct sweep_settings){0}, &sweep, &mistakes) != 0) {
        check_lines(&mistakes);
        sweep_mistakes_release(&mistakes);
        return 0;
    }
    check_canonical(sweep);
    if (plan_make(sweep, 8, &plan, &err) == 0)
        check_ids(plan);
    else
        require(err.text[0] != '\0', "not planned without a word", sweep->canonical);
    plan_free(plan);
    sweep_free(sweep);
    return 0;
}
