/* size_internal.h: what size.c makes and size_print.c shows. */
#ifndef COREFAN_COORDINATOR_SIZE_INTERNAL_H
#define COREFAN_COORDINATOR_SIZE_INTERNAL_H

#include "coordinator/size/size.h"
#include "coordinator/summary/summary.h"

struct size_row {
    const struct summary_capacity *capacity;
    const char *runtime, *arm;
    bool open_loop;
    struct capacity_size size;
};

struct sizing {
    struct size_options options;
    struct summary *summary; /* owner of the texts */
    struct size_row
        *rows; /* as the run has them by title and runtime, then those that can do it, fewest cores first */
    size_t row_count, possible;
};

#endif
