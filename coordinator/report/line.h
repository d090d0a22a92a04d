/* line.h: a line of text for people, put together piece by piece: safe on any terminal, folded at the page's edge.
 *
 * What came from a peer or a file may hold anything, so all but printable ASCII becomes '?'.  A line holds 4,095
 * bytes; what is over is cut.  One owner; nothing to free. */
#ifndef COREFAN_COORDINATOR_REPORT_LINE_H
#define COREFAN_COORDINATOR_REPORT_LINE_H

#include <stddef.h>
#include <stdio.h>

#define LINE_COLUMNS 100 /* of a page */

struct line {
    char text[4096];
    size_t length;
};

/* Appends to a line that was zeroed, or made as {.length = 0}. */
void line_add(struct line *line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Writes it and empties it.  Folds at spaces, but never between a figure and its unit; what follows the first line is
 * set in by two columns. */
void line_print(struct line *line, FILE *out);

#endif
