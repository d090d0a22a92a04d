/* text_capacity.h: the part of the text report on what one core carries; text.c calls it. */
#ifndef COREFAN_COORDINATOR_REPORT_TEXT_CAPACITY_H
#define COREFAN_COORDINATOR_REPORT_TEXT_CAPACITY_H

#include "coordinator/summary/summary.h"

#include <stdio.h>

/* The answer in words, above all tables. */
void text_tell_capacity(const struct summary *summary, FILE *out);

/* The arms side by side: idle, busy, foretold, measured. */
void text_print_capacity(const struct summary *summary, FILE *out);

/* The scalability law of each series of core counts that has one. */
void text_print_scalability(const struct summary *summary, FILE *out);

#endif
