#include "coordinator/report/line.h"

#include <stdarg.h>
#include <string.h>

void line_add(struct line *line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int wanted = vsnprintf(line->text + line->length, sizeof line->text - line->length, fmt, args);
    va_end(args);
    size_t room = sizeof line->text - line->length - 1, before = line->length;
    line->length += wanted < 0 ? 0 : (size_t)wanted < room ? (size_t)wanted : room;
    for (size_t i = before; i < line->length; i++)
        if (line->text[i] < ' ' || line->text[i] > '~')
            line->text[i] = '?';
}

/* Where a line of at most `room` columns ends. */
static size_t find_break(const char *text, size_t room)
{
    for (size_t end = room; end > 1; end--)
        if (text[end] == ' ' && !(text[end - 1] >= '0' && text[end - 1] <= '9'))
            return end;
    return room;
}

void line_print(struct line *line, FILE *out)
{
    const char *rest = line->text;
    size_t indent = 0;
    for (;;) {
        size_t room = LINE_COLUMNS - indent, left = strlen(rest);
        size_t end = left > room ? find_break(rest, room) : left;
        (void)fprintf(out, "%*s%.*s\n", (int)indent, "", (int)end, rest);
        rest += end + strspn(rest + end, " ");
        if (!*rest)
            break;
        indent = 2;
    }
    *line = (struct line){.length = 0};
}
