#include "base/rng.h"

#define GOLDEN_GAMMA 0x9e3779b97f4a7c15ULL

struct rng rng_seeded(uint64_t seed)
{
    return (struct rng){.state = seed};
}

struct rng rng_stream(uint64_t seed, uint64_t stream)
{
    struct rng mix = rng_seeded(seed ^ (stream * GOLDEN_GAMMA));
    return rng_seeded(rng_next(&mix));
}

uint64_t rng_next(struct rng *rng)
{
    rng->state += GOLDEN_GAMMA;
    uint64_t z = rng->state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)rng_next(rng) * bound) >> 64);
}

double rng_unit(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1.0p-53;
}

void rng_shuffle(struct rng *rng, uint32_t *items, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)rng_below(rng, i);
        uint32_t swap = items[i - 1];
        items[i - 1] = items[j];
        items[j] = swap;
    }
}
