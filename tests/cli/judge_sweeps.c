/* What the parser says of sweeps: reads pairs of a length in bytes (a line) and a text of that length, answers a line
 * for each: "good", or "bad: " and its mistakes. */
#include "base/memory.h"
#include "coordinator/sweep/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void judge(const char *text, size_t size)
{
    struct sweep *sweep = NULL;
    struct sweep_mistakes mistakes = {0};
    if (sweep_parse("sweep", text, size, (struct sweep_settings){0}, &sweep, &mistakes) == 0) {
        (void)puts("good");
    } else {
        scoped_free char *lines = sweep_mistakes_text(&mistakes);
        for (char *p = lines; *p; p++)
            *p = *p == '\n' ? '|' : *p;
        (void)printf("bad: %s\n", lines);
    }
    sweep_mistakes_release(&mistakes);
    sweep_free(sweep);
}

int main(void)
{
    char line[32];
    while (fgets(line, sizeof line, stdin)) {
        size_t size = strtoul(line, NULL, 10);
        scoped_free char *text = memory_zeroed(size + 1, 1);
        if (fread(text, 1, size, stdin) != size)
            return 1;
        judge(text, size);
    }
    return 0;
}
