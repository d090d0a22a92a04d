#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char *log_program = "corefan";
static enum log_level log_most = LOG_WARNING;
static void (*log_before)(void *);
static void (*log_after)(void *);
static void *log_context;

void log_setup(const char *program, enum log_level most)
{
    log_program = program;
    log_most = most;
}

void log_hooks(void (*before)(void *), void (*after)(void *), void *context)
{
    log_before = before;
    log_after = after;
    log_context = context;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    static const char *const words[] = {"error: ", "warning: ", "", "debug: "};
    char line[1400];
    if (level > log_most)
        return;
    int used = snprintf(line, sizeof line, "%s: %s", log_program, words[level]);
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, fmt, args);
    va_end(args);
    size_t length = (size_t)used + (more < 0 ? 0 : (size_t)more);
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    if (log_before)
        log_before(log_context);
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written;
    if (log_after)
        log_after(log_context);
}
