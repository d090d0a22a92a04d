#include "coordinator/progress.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PLAIN_EVERY_NS (5 * NS_PER_S)
#define BAR_CELLS      24

int progress_parse_mode(const char *text, enum progress_mode *ret)
{
    static const char *const names[] = {[PROGRESS_AUTO] = "auto",
                                        [PROGRESS_BAR] = "bar",
                                        [PROGRESS_PLAIN] = "plain",
                                        [PROGRESS_NONE] = "none"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum progress_mode)i;
            return 0;
        }
    }
    return -1;
}

static void put(const char *text)
{
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

static void step_aside(void *context)
{
    struct progress *progress = context;
    if (progress->drawn)
        put("\r\033[K");
}

static void come_back(void *context)
{
    struct progress *progress = context;
    if (progress->drawn)
        put(progress->line);
}

void progress_begin(struct progress *progress, enum progress_mode mode)
{
    if (mode == PROGRESS_AUTO)
        mode = isatty(STDERR_FILENO) ? PROGRESS_BAR : PROGRESS_PLAIN;
    *progress = (struct progress){.mode = mode, .began_ns = clock_monotonic_ns()};
    progress->last_line_ns = progress->began_ns;
    log_hooks(step_aside, come_back, progress);
}

int64_t progress_eta_ns(int64_t expected_ns, int64_t done_ns, int64_t elapsed_ns)
{
    int64_t rest_ns = expected_ns > done_ns ? expected_ns - done_ns : 0;
    if (done_ns <= 0)
        return rest_ns;
    double pace = (double)elapsed_ns / (double)done_ns;
    /* the first second of a run is start-up: trust the plan until a twentieth is done */
    if (done_ns < expected_ns / 20)
        pace = pace > 1 ? 1 + (pace - 1) * (double)done_ns / ((double)expected_ns / 20) : 1;
    return (int64_t)((double)rest_ns * pace);
}

static char *clock_text(char *buf, size_t size, int64_t ns)
{
    long long seconds = (ns + NS_PER_S / 2) / NS_PER_S;
    if (seconds < 60)
        (void)snprintf(buf, size, "%llds", seconds);
    else if (seconds < 3600)
        (void)snprintf(buf, size, "%lldm%02llds", seconds / 60, seconds % 60);
    else
        (void)snprintf(buf, size, "%lldh%02lldm", seconds / 3600, seconds / 60 % 60);
    return buf;
}

static int terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

static void draw(struct progress *progress, const char *text, int percent)
{
    char bar[BAR_CELLS + 1];
    int columns = terminal_columns() - 1;
    int filled = percent * BAR_CELLS / 100;
    for (int i = 0; i < BAR_CELLS; i++)
        bar[i] = i < filled ? '#' : '-';
    bar[BAR_CELLS] = '\0';
    char plain[200];
    (void)snprintf(plain, sizeof plain, "[%s] %3d%% %s", bar, percent, text);
    if (columns < 10)
        columns = 10;
    (void)snprintf(progress->line, sizeof progress->line, "\r%.*s\033[K", columns, plain);
    progress->drawn = true;
    put(progress->line);
}

void progress_show(struct progress *progress, const struct progress_state *state)
{
    char left[32], text[160];
    int64_t now_ns = clock_monotonic_ns();
    if (progress->mode == PROGRESS_NONE)
        return;
    int64_t eta_ns = progress_eta_ns(state->expected_ns, state->done_ns, now_ns - progress->began_ns);
    int percent =
        state->expected_ns > 0 ? (int)(100.0 * (double)state->done_ns / (double)state->expected_ns) : 0;
    if (percent > 100)
        percent = 100;
    (void)snprintf(text, sizeof text, "group %lld of %lld, %s left%s%s", (long long)state->groups_done,
                   (long long)state->group_count, clock_text(left, sizeof left, eta_ns),
                   state->title ? ": " : "", state->title ? state->title : "");
    if (progress->mode == PROGRESS_BAR) {
        draw(progress, text, percent);
    } else if (now_ns - progress->last_line_ns >= PLAIN_EVERY_NS) {
        progress->last_line_ns = now_ns;
        log_line(LOG_INFO, "%d%%, %s", percent, text);
    }
}

void progress_end(struct progress *progress)
{
    step_aside(progress);
    progress->drawn = false;
    log_hooks(NULL, NULL, NULL);
}
