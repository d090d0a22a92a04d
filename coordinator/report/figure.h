/* figure.h: a figure as people read it.  Each writes at most FIGURE_BYTES with the 0 into buf and returns it; what is not
 * known is "-".  Any thread. */
#ifndef COREFAN_COORDINATOR_REPORT_FIGURE_H
#define COREFAN_COORDINATOR_REPORT_FIGURE_H

#include "coordinator/summary/summary.h"

#include <stdbool.h>

#define FIGURE_BYTES 48

const char *figure_unknown(char *buf);
const char *figure_duration(char *buf, bool known, double ns); /* "61.6 us" */
const char *figure_ratio(char *buf, bool known, double value); /* "39.8x" */
const char *figure_count(char *buf, const struct summary_figure *figure);
const char *figure_rate(char *buf, bool known,
                        double value); /* "2,048", "96.4", "0.52": three digits at least */
const char *figure_whole(char *buf, bool known, double value); /* "1,024": clients */

#endif
