#include "coordinator/sweep/sweep_tree.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

struct reader {
    yaml_parser_t yaml;
    const char *source;
    const char *text;
    struct sweep_mistakes *mistakes;
    size_t nodes;
    bool stopped; /* the rest of the text cannot be read; the mistake is told */
};

static struct sweep_node *read_node(struct reader *reader, const yaml_event_t *event, size_t depth);

static struct sweep_mark mark_at(const struct reader *reader, yaml_mark_t at)
{
    return (struct sweep_mark){.source = reader->source, .line = at.line + 1, .column = at.column + 1};
}

/* libyaml gives no line for text that is no text, only how many bytes came before. */
static struct sweep_mark mark_of_offset(const struct reader *reader, size_t offset)
{
    struct sweep_mark mark = {.source = reader->source, .line = 1, .column = 1};
    for (size_t i = 0; i < offset; i++) {
        if (reader->text[i] == '\n') {
            mark.line++;
            mark.column = 1;
        } else if (((unsigned char)reader->text[i] & 0xc0) != 0x80) {
            mark.column++;
        }
    }
    return mark;
}

static void stop_at_syntax(struct reader *reader)
{
    const yaml_parser_t *yaml = &reader->yaml;
    const char *problem = yaml->problem ? yaml->problem : "cannot be read";
    reader->stopped = true;
    if (yaml->error == YAML_READER_ERROR)
        sweep_mistake(reader->mistakes, mark_of_offset(reader, yaml->problem_offset), "not UTF-8 text: %s",
                      problem);
    else if (yaml->context && yaml->context_mark.line != yaml->problem_mark.line)
        sweep_mistake(reader->mistakes, mark_at(reader, yaml->problem_mark), "not YAML: %s %s at line %zu",
                      problem, yaml->context, yaml->context_mark.line + 1);
    else
        sweep_mistake(reader->mistakes, mark_at(reader, yaml->problem_mark), "not YAML: %s", problem);
}

static void stop_at(struct reader *reader, yaml_mark_t at, const char *what, unsigned limit)
{
    if (!reader->stopped)
        sweep_mistake(reader->mistakes, mark_at(reader, at), "%s %u", what, limit);
    reader->stopped = true;
}

static bool next_event(struct reader *reader, yaml_event_t *ret)
{
    if (reader->stopped)
        return false;
    if (!yaml_parser_parse(&reader->yaml, ret)) {
        stop_at_syntax(reader);
        return false;
    }
    return true;
}

static struct sweep_node *new_node(const struct reader *reader, enum sweep_node_kind kind, yaml_mark_t at)
{
    struct sweep_node *node = memory_zeroed(1, sizeof *node);
    node->kind = kind;
    node->mark = mark_at(reader, at);
    return node;
}

static void add_item(struct sweep_node *node, struct sweep_item item)
{
    if ((node->count & (node->count - 1)) == 0) /* room doubles at every power of two */
        node->items = memory_resized(node->items, node->count ? 2 * node->count : 1, sizeof *node->items);
    node->items[node->count++] = item;
}

static struct sweep_node *read_scalar(struct reader *reader, const yaml_event_t *event)
{
    const char *value = (const char *)event->data.scalar.value;
    if (strlen(value) != event->data.scalar.length) {
        sweep_mistake(reader->mistakes, mark_at(reader, event->start_mark), "text with a NUL character");
        return new_node(reader, SWEEP_NODE_BAD, event->start_mark);
    }
    struct sweep_node *node = new_node(reader, SWEEP_NODE_SCALAR, event->start_mark);
    node->text = memory_text(value);
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return node;
}

static struct sweep_node *read_list(struct reader *reader, yaml_mark_t start, size_t depth)
{
    struct sweep_node *list = new_node(reader, SWEEP_NODE_LIST, start);
    yaml_event_t event;
    while (next_event(reader, &event)) {
        bool end = event.type == YAML_SEQUENCE_END_EVENT;
        if (!end)
            add_item(list, (struct sweep_item){.value = read_node(reader, &event, depth + 1)});
        yaml_event_delete(&event);
        if (end)
            break;
    }
    return list;
}

static void read_pair(struct reader *reader, struct sweep_node *map, const yaml_event_t *key_event,
                      size_t depth)
{
    struct sweep_node *key = read_node(reader, key_event, depth);
    yaml_event_t event;
    if (!next_event(reader, &event)) {
        sweep_tree_free(key);
        return;
    }
    struct sweep_node *value = read_node(reader, &event, depth);
    yaml_event_delete(&event);
    if (key->kind == SWEEP_NODE_SCALAR) {
        add_item(map, (struct sweep_item){.key = key->text, .key_mark = key->mark, .value = value});
        key->text = NULL;
    } else {
        if (key->kind != SWEEP_NODE_BAD)
            sweep_mistake(reader->mistakes, key->mark, "a key must be text");
        sweep_tree_free(value);
    }
    sweep_tree_free(key);
}

static struct sweep_node *read_map(struct reader *reader, yaml_mark_t start, size_t depth)
{
    struct sweep_node *map = new_node(reader, SWEEP_NODE_MAP, start);
    yaml_event_t event;
    while (next_event(reader, &event)) {
        bool end = event.type == YAML_MAPPING_END_EVENT;
        if (!end)
            read_pair(reader, map, &event, depth + 1);
        yaml_event_delete(&event);
        if (end)
            break;
    }
    return map;
}

/* Anchor and tag of an event that can carry them. */
static void refuse_decoration(struct reader *reader, const yaml_event_t *event)
{
    const yaml_char_t *anchor = NULL;
    const yaml_char_t *tag = NULL;
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    }
    if (anchor)
        sweep_mistake(reader->mistakes, mark_at(reader, event->start_mark),
                      "anchor '&%.40s': anchors and aliases are not supported, write the value out",
                      (const char *)anchor);
    if (tag)
        sweep_mistake(reader->mistakes, mark_at(reader, event->start_mark),
                      "tag '%.60s': tags are not supported", (const char *)tag);
}

static struct sweep_node *read_node(struct reader *reader, const yaml_event_t *event, size_t depth)
{
    if (++reader->nodes > SWEEP_MAX_NODES)
        stop_at(reader, event->start_mark, "too many values: at most", SWEEP_MAX_NODES);
    if (depth > SWEEP_MAX_DEPTH)
        stop_at(reader, event->start_mark, "nested too deeply: at most", SWEEP_MAX_DEPTH);
    if (reader->stopped)
        return new_node(reader, SWEEP_NODE_BAD, event->start_mark);
    refuse_decoration(reader, event);
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return read_scalar(reader, event);
    case YAML_SEQUENCE_START_EVENT:
        return read_list(reader, event->start_mark, depth);
    case YAML_MAPPING_START_EVENT:
        return read_map(reader, event->start_mark, depth);
    default: /* an alias: nothing else can stand here */
        sweep_mistake(reader->mistakes, mark_at(reader, event->start_mark),
                      "alias '*%.40s': anchors and aliases are not supported, write the value out",
                      (const char *)event->data.alias.anchor);
        return new_node(reader, SWEEP_NODE_BAD, event->start_mark);
    }
}

/* The stream from its start to its end; the root of its first document. */
static struct sweep_node *read_stream(struct reader *reader)
{
    struct sweep_node *root = NULL;
    size_t documents = 0;
    yaml_event_t event;
    bool end = false;
    while (!end && next_event(reader, &event)) {
        end = event.type == YAML_STREAM_END_EVENT;
        if (event.type == YAML_DOCUMENT_START_EVENT) {
            if (++documents > 1) {
                sweep_mistake(reader->mistakes, mark_at(reader, event.start_mark),
                              "a second document: one sweep is one document");
                end = true;
            }
        } else if (!end && event.type != YAML_STREAM_START_EVENT && event.type != YAML_DOCUMENT_END_EVENT) {
            root = read_node(reader, &event, 0);
        }
        yaml_event_delete(&event);
    }
    return root;
}

static bool is_blank(const struct sweep_node *root)
{
    return !root || (root->kind == SWEEP_NODE_SCALAR && !root->quoted && root->text[0] == '\0');
}

struct sweep_node *sweep_tree_parse(const char *source, const char *text, size_t size,
                                    struct sweep_mistakes *mistakes)
{
    struct sweep_mark whole = {.source = source};
    struct reader reader = {.source = source, .text = text, .mistakes = mistakes};
    if (size > SWEEP_MAX_BYTES) {
        sweep_mistake(mistakes, whole, "too large: at most %u bytes", SWEEP_MAX_BYTES);
        return NULL;
    }
    const char *nul = memchr(text, '\0', size);
    if (nul) {
        sweep_mistake(mistakes, mark_of_offset(&reader, (size_t)(nul - text)), "not UTF-8 text: a NUL byte");
        return NULL;
    }
    if (!yaml_parser_initialize(&reader.yaml)) {
        sweep_mistake(mistakes, whole, "out of memory");
        return NULL;
    }
    yaml_parser_set_encoding(&reader.yaml, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.yaml, (const unsigned char *)text, size);
    struct sweep_node *root = read_stream(&reader);
    yaml_parser_delete(&reader.yaml);
    if (!reader.stopped && is_blank(root))
        sweep_mistake(mistakes, whole, "empty");
    if (reader.stopped || is_blank(root)) {
        sweep_tree_free(root);
        return NULL;
    }
    return root;
}

struct sweep_item *sweep_tree_find(struct sweep_node *map, const char *key)
{
    for (size_t i = map->count; map->kind == SWEEP_NODE_MAP && i > 0; i--)
        if (strcmp(map->items[i - 1].key, key) == 0)
            return &map->items[i - 1];
    return NULL;
}

void sweep_tree_put(struct sweep_node *map, const char *key, struct sweep_mark mark, struct sweep_node *value)
{
    sweep_tree_remove(map, key);
    add_item(map, (struct sweep_item){.key = memory_text(key), .key_mark = mark, .value = value});
}

void sweep_tree_remove(struct sweep_node *map, const char *key)
{
    if (map->kind != SWEEP_NODE_MAP || !sweep_tree_find(map, key))
        return;
    struct sweep_item *old = map->items;
    size_t count = map->count;
    map->items = NULL;
    map->count = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(old[i].key, key) != 0) {
            add_item(map, old[i]);
            continue;
        }
        free(old[i].key);
        sweep_tree_free(old[i].value);
    }
    free(old);
}

struct sweep_node *sweep_tree_copy(const struct sweep_node *node)
{
    struct sweep_node *copy = memory_zeroed(1, sizeof *copy);
    *copy = (struct sweep_node){
        .kind = node->kind, .mark = node->mark, .text = memory_text(node->text), .quoted = node->quoted};
    for (size_t i = 0; i < node->count; i++)
        add_item(copy, (struct sweep_item){.key = memory_text(node->items[i].key),
                                           .key_mark = node->items[i].key_mark,
                                           .value = sweep_tree_copy(node->items[i].value)});
    return copy;
}

void sweep_tree_free(struct sweep_node *node)
{
    if (!node)
        return;
    for (size_t i = 0; i < node->count; i++) {
        free(node->items[i].key);
        sweep_tree_free(node->items[i].value);
    }
    free(node->items);
    free(node->text);
    free(node);
}
