#include "base/memory.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void *or_die(void *got)
{
    if (got)
        return got;
    (void)fputs("corefan: out of memory\n", stderr);
    exit(1);
}

void *memory_zeroed(size_t count, size_t size)
{
    return or_die(calloc(count ? count : 1, size ? size : 1));
}

void *memory_resized(void *old, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        return or_die(NULL);
    size_t bytes = count * size;
    return or_die(realloc(old, bytes > 0 ? bytes : 1));
}

char *memory_text(const char *text)
{
    return text ? or_die(strdup(text)) : NULL;
}

char *memory_format(const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    return or_die(n < 0 ? NULL : text);
}
