#include "base/map.h"

#include "base/memory.h"

#include <string.h>

void map_init(struct map *map, uint64_t seed)
{
    *map = (struct map){.seed = seed};
}

void map_release(struct map *map)
{
    for (size_t i = 0; i < map->capacity; i++)
        free(map->slots[i].key);
    free(map->slots);
    *map = (struct map){0};
}

/* FNV-1a over the bytes, then the finisher of SplitMix64. */
static uint64_t map_hash(const struct map *map, const void *key, size_t key_bytes)
{
    const unsigned char *bytes = key;
    uint64_t hash = map->seed ^ 0xcbf29ce484222325u;
    for (size_t i = 0; i < key_bytes; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    return hash ^ (hash >> 31);
}

/* Where that key is, or the empty slot where it would go.  There is always an empty one. */
static size_t map_find(const struct map *map, const void *key, size_t key_bytes)
{
    size_t mask = map->capacity - 1;
    size_t at = (size_t)map_hash(map, key, key_bytes) & mask;
    while (map->slots[at].key) {
        const struct map_slot *slot = &map->slots[at];
        if (slot->key_bytes == key_bytes && memcmp(slot->key, key, key_bytes) == 0)
            break;
        at = (at + 1) & mask;
    }
    return at;
}

static void map_grow(struct map *map)
{
    struct map old = *map;
    map->capacity = old.capacity ? old.capacity * 2 : 16;
    map->slots = memory_zeroed(map->capacity, sizeof *map->slots);
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].key)
            map->slots[map_find(map, old.slots[i].key, old.slots[i].key_bytes)] = old.slots[i];
    free(old.slots);
}

void *map_get(const struct map *map, const void *key, size_t key_bytes)
{
    return map->count ? map->slots[map_find(map, key, key_bytes)].value : NULL;
}

void map_put(struct map *map, const void *key, size_t key_bytes, void *value)
{
    if ((map->count + 1) * 2 > map->capacity)
        map_grow(map);
    struct map_slot *slot = &map->slots[map_find(map, key, key_bytes)];
    if (!slot->key) {
        slot->key = memory_zeroed(key_bytes ? key_bytes : 1, 1);
        if (key_bytes)
            memcpy(slot->key, key, key_bytes);
        slot->key_bytes = key_bytes;
        map->count++;
    }
    slot->value = value;
}

void map_remove(struct map *map, const void *key, size_t key_bytes)
{
    if (!map->count)
        return;
    size_t mask = map->capacity - 1;
    size_t hole = map_find(map, key, key_bytes);
    if (!map->slots[hole].key)
        return;
    free(map->slots[hole].key);
    map->slots[hole] = (struct map_slot){0};
    map->count--;
    /* close the gap: entries behind it may have been pushed past it */
    for (size_t at = (hole + 1) & mask; map->slots[at].key; at = (at + 1) & mask) {
        struct map_slot moved = map->slots[at];
        map->slots[at] = (struct map_slot){0};
        map->slots[map_find(map, moved.key, moved.key_bytes)] = moved;
    }
}
