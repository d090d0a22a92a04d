/* log.h: lines for people on stderr, one per event: "corefan: worker 3 lost: ...".
 *
 * Only programs' main files and the two loops that they drive (fleet, session) log; pure modules return
 * errors. Lines are written with one write(2) each, so lines of several processes do not mix.  Any thread. */
#ifndef COREFAN_BASE_LOG_H
#define COREFAN_BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

/* Program name before each line, and the highest level that is shown.  Call once, before threads start.  The
 * name is kept, not copied. */
void log_setup(const char *program, enum log_level most);

/* What to call before and after a line is written (a progress bar steps aside); NULL for nothing. */
void log_hooks(void (*before)(void *), void (*after)(void *), void *context);

void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
