/* map.h: bytes -> pointer, for looking peers up by what they call themselves.
 *
 * Open addressing with linear probing, at most half full.  Keys are copied; values are the caller's and are never
 * freed here.  The hash is seeded, so that a peer that picks its own keys cannot aim for one chain.  One thread
 * at a time. */
#ifndef COREFAN_BASE_MAP_H
#define COREFAN_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_slot {
    void *key; /* NULL: never used, or removed */
    size_t key_bytes;
    void *value;
};

struct map {
    struct map_slot *slots;
    size_t capacity; /* 0 or a power of two */
    size_t count;
    uint64_t seed;
};

void map_init(struct map *map, uint64_t seed);
void map_release(struct map *map);

/* The value of that key, or NULL. */
void *map_get(const struct map *map, const void *key, size_t key_bytes);

/* Sets the value of that key, replacing an older one.  value is not NULL. */
void map_put(struct map *map, const void *key, size_t key_bytes, void *value);

/* Forgets that key; fine when it is not there. */
void map_remove(struct map *map, const void *key, size_t key_bytes);

#endif
