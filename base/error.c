#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *err, enum error_kind kind, const char *fmt, ...)
{
    if (!err)
        return -1;
    va_list args;
    va_start(args, fmt);
    err->kind = kind;
    (void)vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return -1;
}

int error_prefix(struct error *err, const char *fmt, ...)
{
    if (!err)
        return -1;
    char before[sizeof err->text];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(before, sizeof before, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n + 2 >= sizeof before)
        return -1;
    size_t used = (size_t)n;
    (void)snprintf(before + used, sizeof before - used, ": %.*s", (int)(sizeof before - used - 3), err->text);
    memcpy(err->text, before, sizeof before);
    return -1;
}

int error_exit_code(enum error_kind kind)
{
    static const int codes[] = {
#define X(name, exit_code) [ERROR_##name] = (exit_code),
        ERROR_KINDS(X)
#undef X
    };
    if ((unsigned)kind >= sizeof codes / sizeof codes[0])
        return 1;
    return codes[kind];
}
