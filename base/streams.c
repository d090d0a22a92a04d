#include "base/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *name = "corefan";

static void check_stdout(void)
{
    bool pending = __fpending(stdout) > 0, broken = ferror(stdout) != 0;
    errno = 0;
    bool lost = fflush(stdout) != 0;
    if (!broken && !(lost && pending))
        return;
    (void)fprintf(stderr, "%s: cannot write to stdout: %s\n", name,
                  errno ? strerror(errno) : "output was lost");
    _exit(1);
}

void streams_told(void)
{
    __fpurge(stdout);
    clearerr(stdout);
}

void streams_begin(const char *program)
{
    name = program;
    for (int file = 0; file <= STDERR_FILENO; file++)
        if (fcntl(file, F_GETFD) < 0 && errno == EBADF) /* the lowest free number is this one */
            (void)open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    (void)atexit(check_stdout);
}
