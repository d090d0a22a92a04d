/* judge_rounds JOB ARM CPU: flags of rounds, by the rules of the summary, for tests that talk to a worker themselves.
 *
 * Reads one round a line, as words NAME=VALUE with the names of SPEC.md; what a line leaves out is not known.  Prints one
 * line each: the names of its flags.  CPU: what the worker is pinned to. */
#include "coordinator/summary/summary_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int set(struct wire_round *round, const char *name, int64_t value)
{
    static const struct {
        const char *name;
        size_t offset;
    } fields[] = {
#define X(field) {#field, offsetof(struct wire_round, field)},
        WIRE_ROUND_INTEGERS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (strcmp(fields[i].name, name) == 0) {
            *(int64_t *)(void *)((char *)round + fields[i].offset) = value;
            return 0;
        }
    (void)fprintf(stderr, "judge_rounds: no such field '%s'\n", name);
    return -1;
}

static int read_round(char *line, struct wire_round *ret)
{
    char *rest = line;
    wire_round_init(ret);
    for (char *word; (word = strtok_r(rest, " \n", &rest));) {
        char *value = strchr(word, '=');
        if (!value)
            return -1;
        *value++ = '\0';
        if (set(ret, word, strtoll(value, NULL, 10)) < 0)
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    struct store_cell plan = {.spec = {.job = argv[1], .arm = argv[2]}};
    plan.harness = strcmp(argv[2], "empty") == 0;
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        struct wire_round round;
        if (read_round(line, &round) < 0)
            return 1;
        unsigned flags = summary_disturbed(&round, &plan, strtoll(argv[3], NULL, 10));
        for (int flag = 0; flag < SUMMARY_ROUND_FLAGS; flag++)
            if (flags >> flag & 1)
                (void)printf("%s ", summary_flag_name((enum summary_flag)flag));
        (void)putchar('\n');
    }
    return 0;
}
