/* sweep_tree.h: YAML text -> a tree of scalars, lists and maps that know where they stand.
 *
 * The only place that knows libyaml.  It knows YAML and limits, and nothing of sweeps.  One document, UTF-8.
 * Refused with a line each: anchors, aliases, tags, keys that are not text, a second document, text beyond
 * SWEEP_MAX_BYTES, more than SWEEP_MAX_NODES values, nesting beyond SWEEP_MAX_DEPTH.  So the work and the
 * memory are bounded by the size of the text.  Threads: one owner. */
#ifndef COREFAN_COORDINATOR_SWEEP_TREE_H
#define COREFAN_COORDINATOR_SWEEP_TREE_H

#include "coordinator/sweep/sweep_mistakes.h"

#include <stdbool.h>
#include <stddef.h>

#define SWEEP_MAX_BYTES (1u << 20)
#define SWEEP_MAX_NODES 100000u
#define SWEEP_MAX_DEPTH 16u

enum sweep_node_kind {
    SWEEP_NODE_SCALAR,
    SWEEP_NODE_LIST,
    SWEEP_NODE_MAP,
    SWEEP_NODE_BAD, /* already complained of: readers pass it by in silence */
};

struct sweep_node {
    enum sweep_node_kind kind;
    struct sweep_mark mark;
    char *text;  /* scalar: as written, without quotes */
    bool quoted; /* scalar: was written in quotes, so it is no null */
    struct sweep_item *items;
    size_t count;
};

struct sweep_item {
    char *key; /* map: its key; list: NULL */
    struct sweep_mark key_mark;
    struct sweep_node *value;
};

/* The tree of the text, or NULL when there is none to look at; mistakes tells why.  Small mistakes leave bad
 * nodes in a tree.  source is kept in marks. */
struct sweep_node *sweep_tree_parse(const char *source, const char *text, size_t size,
                                    struct sweep_mistakes *mistakes);

/* Last item of this key, or NULL. */
struct sweep_item *sweep_tree_find(struct sweep_node *map, const char *key);

/* Puts a value into a map, in place of an older one (which is freed) or at the end.  Takes the value. */
void sweep_tree_put(struct sweep_node *map, const char *key, struct sweep_mark mark,
                    struct sweep_node *value);

void sweep_tree_remove(struct sweep_node *map, const char *key);

/* A copy of its own. */
struct sweep_node *sweep_tree_copy(const struct sweep_node *node);

void sweep_tree_free(struct sweep_node *node); /* NULL is fine */

#endif
