/* streams.h: standard streams that may be closed, full or gone.
 *
 * Call streams_begin first thing in main.  A standard file that is closed is filled with one that can be neither read nor
 * written, so that nothing opened later takes its number by accident.  When the program ends by exit, output that could
 * not be written is told in one line on stderr, and the exit code is 1. */
#ifndef COREFAN_BASE_STREAMS_H
#define COREFAN_BASE_STREAMS_H

/* program: what the line begins with; kept, not copied. */
void streams_begin(const char *program);

/* What was lost has been told already. */
void streams_told(void);

#endif
