#include "coordinator/sweep/sweep_mistakes.h"

#include "base/memory.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void without_controls(char *text)
{
    for (; *text; text++)
        if (iscntrl((unsigned char)*text))
            *text = '?';
}

static size_t number_of_source(struct sweep_mistakes *list, const char *source)
{
    if (!source)
        return 0;
    scoped_free char *shown = memory_text(source);
    without_controls(shown);
    for (size_t i = 0; i < list->source_count; i++)
        if (strcmp(list->sources[i], shown) == 0)
            return i + 1;
    list->sources = memory_resized(list->sources, list->source_count + 1, sizeof *list->sources);
    list->sources[list->source_count++] = shown;
    shown = NULL;
    return list->source_count;
}

bool sweep_mistakes_full(const struct sweep_mistakes *list)
{
    return list->kept >= SWEEP_MAX_MISTAKES;
}

static bool is_known(const struct sweep_mistakes *list, const struct sweep_mistake *mistake)
{
    for (size_t i = 0; i < list->kept; i++) {
        const struct sweep_mistake *other = &list->at[i];
        if (other->line == mistake->line && other->column == mistake->column &&
            other->source == mistake->source && strcmp(other->text, mistake->text) == 0)
            return true;
    }
    return false;
}

void sweep_mistake(struct sweep_mistakes *list, struct sweep_mark mark, const char *fmt, ...)
{
    list->count++;
    if (sweep_mistakes_full(list)) {
        list->dropped++;
        return;
    }
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    without_controls(text);
    struct sweep_mistake mistake = {.source = number_of_source(list, mark.source),
                                    .line = mark.line,
                                    .column = mark.column,
                                    .text = text};
    if (is_known(list, &mistake)) /* a default at the top that is wrong for several entries */
        return;
    mistake.text = memory_text(text);
    list->at = memory_resized(list->at, list->kept + 1, sizeof *list->at);
    list->at[list->kept++] = mistake;
}

static int by_place(const void *left, const void *right, void *context)
{
    const struct sweep_mistake *at = context;
    size_t i = *(const size_t *)left;
    size_t j = *(const size_t *)right;
    size_t keys[][2] = {
        {at[i].source, at[j].source}, {at[i].line, at[j].line}, {at[i].column, at[j].column}, {i, j}};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
        if (keys[k][0] != keys[k][1])
            return keys[k][0] < keys[k][1] ? -1 : 1;
    return 0;
}

static void print_mistake(FILE *out, const struct sweep_mistakes *list, const struct sweep_mistake *mistake)
{
    if (mistake->source > 0)
        (void)fputs(list->sources[mistake->source - 1], out);
    if (mistake->source > 0 && mistake->line > 0)
        (void)fprintf(out, ":%zu:%zu", mistake->line, mistake->column);
    (void)fprintf(out, "%s%s", mistake->source > 0 ? ": " : "", mistake->text);
}

char *sweep_mistakes_text(struct sweep_mistakes *list)
{
    scoped_free size_t *order = memory_zeroed(list->kept, sizeof *order);
    for (size_t i = 0; i < list->kept; i++)
        order[i] = i;
    qsort_r(order, list->kept, sizeof *order, by_place, list->at);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return memory_text("out of memory");
    for (size_t i = 0; i < list->kept; i++) {
        if (i > 0)
            (void)fputc('\n', out);
        print_mistake(out, list, &list->at[order[i]]);
    }
    if (list->dropped > 0)
        (void)fprintf(out, "\n%zu more mistakes", list->dropped);
    (void)fclose(out);
    return text;
}

void sweep_mistakes_release(struct sweep_mistakes *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->kept; i++)
        free(list->at[i].text);
    for (size_t i = 0; i < list->source_count; i++)
        free(list->sources[i]);
    free(list->sources);
    free(list->at);
    *list = (struct sweep_mistakes){0};
}
