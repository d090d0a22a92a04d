/* progress.h: how far a run is, on stderr: a line that is rewritten on a terminal, a line now and then elsewhere.
 *
 * The ETA starts from the plan's expected cost and is corrected by what the part that is done really took.
 * Honours NO_COLOR by never using colour.  A log line makes the bar step aside (log_hooks).
 * Threads: one.  Ownership: the caller's struct; progress_end puts the terminal back. */
#ifndef COREFAN_COORDINATOR_PROGRESS_H
#define COREFAN_COORDINATOR_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum progress_mode { PROGRESS_AUTO, PROGRESS_BAR, PROGRESS_PLAIN, PROGRESS_NONE };

struct progress_state {
    int64_t group_count, groups_done;
    int64_t expected_ns, done_ns; /* of the plan */
    const char *title;            /* of a group that runs, or NULL */
};

struct progress {
    enum progress_mode mode; /* never AUTO once begun */
    int64_t began_ns, last_line_ns;
    bool drawn; /* the bar stands on the terminal's line */
    char line[256];
};

/* 0, or -1 for a word that is no mode. */
int progress_parse_mode(const char *text, enum progress_mode *ret);

/* AUTO: bar when stderr is a terminal, else plain.  Takes the log's hooks. */
void progress_begin(struct progress *progress, enum progress_mode mode);

void progress_show(struct progress *progress, const struct progress_state *state);

/* Clears the bar.  Fine twice. */
void progress_end(struct progress *progress);

/* What is left, in ns: the expected rest, scaled by how long the done part took.  Pure. */
int64_t progress_eta_ns(int64_t expected_ns, int64_t done_ns, int64_t elapsed_ns);

#endif
