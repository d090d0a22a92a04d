/* rng.h: the seeded random numbers of a sweep, the same in every language that speaks the protocol.
 *
 * The generator is SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA
 * 2014): state += 0x9e3779b97f4a7c15; z = state; z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9; z = (z ^ (z >>
 * 27)) * 0x94d049bb133111eb; result = z ^ (z >> 31). Not for secrets.  A struct rng belongs to one thread. */
#ifndef COREFAN_BASE_RNG_H
#define COREFAN_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

struct rng rng_seeded(uint64_t seed);

/* A stream of its own for (seed, stream): seeded with the first output of seed ^ (stream *
 * 0x9e3779b97f4a7c15). */
struct rng rng_stream(uint64_t seed, uint64_t stream);

uint64_t rng_next(struct rng *rng);

/* 0 .. bound-1 without bias worth naming: the high 64 bits of next * bound.  bound > 0. */
uint64_t rng_below(struct rng *rng, uint64_t bound);

/* [0, 1): the top 53 bits. */
double rng_unit(struct rng *rng);

/* Fisher-Yates from the end: for i = n-1 .. 1 swap items[i] with items[rng_below(i + 1)]. */
void rng_shuffle(struct rng *rng, uint32_t *items, size_t n);

#endif
