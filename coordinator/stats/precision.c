#include "coordinator/stats/precision.h"

#include <math.h>

#define LARGEST_COUNT 9e15 /* whole numbers that a double holds */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

double precision_of(const struct stats_estimate *p50)
{
    if (!p50->known || !p50->bounded || !(p50->value > 0))
        return INFINITY;
    return (p50->ci_hi - p50->ci_lo) / 2 / p50->value;
}

int64_t precision_needed(int64_t n, double achieved, double target)
{
    double times = achieved / target, needed = ceil((double)n * times * times);
    if (!(needed < LARGEST_COUNT))
        return INT64_MAX;
    return most(n, (int64_t)needed);
}

/* Blocks that fit into a time. */
static int64_t blocks_within(int64_t left_ns, int64_t block_ns)
{
    if (left_ns <= 0)
        return 0;
    return left_ns / most(block_ns, 1);
}

int64_t precision_next(const struct precision_state *state)
{
    int64_t blocks = state->blocks;
    if (state->achieved <= state->target || blocks >= state->most)
        return blocks;
    int64_t wanted = precision_needed(blocks, state->achieved, state->target);
    wanted = most(wanted, blocks + most(1, blocks / 4));
    wanted = least(least(wanted, 2 * blocks), state->most);
    return blocks + least(wanted - blocks, blocks_within(state->left_ns, state->block_ns));
}

int64_t precision_first(int64_t most_blocks, int64_t block_ns, int64_t left_ns)
{
    int64_t blocks = least(PRECISION_FIRST_BLOCKS, blocks_within(left_ns, block_ns));
    return least(most(blocks, PRECISION_LEAST_BLOCKS), most_blocks);
}
