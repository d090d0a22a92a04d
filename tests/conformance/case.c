#include "tests/conformance/case.h"

#include "base/clock.h"
#include "base/memory.h"

#include <ctype.h>
#include <string.h>

#define MAX_DEPTH   64
#define MAX_NODES   1000000u
#define MAX_TURNS   100000
#define MAX_EVENTS  10000u
#define MAX_CASE_MS 1000000000000LL /* 31 years */
#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

struct word {
    const char *text;
    int value;
};

static const struct word ends[] = {{"ok", LEAF_OK}, {"fail", LEAF_FAIL}, {"cancel_self", LEAF_CANCEL_SELF}};

static const struct word reactions[] = {
    {"propagate", LEAF_PROPAGATE}, {"suppress", LEAF_SUPPRESS},         {"fail", LEAF_CANCEL_FAIL},
    {"cleanup", LEAF_CLEANUP},     {"cleanup_fail", LEAF_CLEANUP_FAIL}, {"ignore", LEAF_IGNORE},
};

static const struct word actions[] = {{"cancel_parent", EVENT_CANCEL_PARENT},
                                      {"cancel_child", EVENT_CANCEL_CHILD},
                                      {"cancel_gather", EVENT_CANCEL_GATHER}};

/* Keys that other hosts of such cases know and this one does not. */
static const char *const foreign_keys[] = {"kind", "same_as", "spawned_by", "spawns", "late_add"};

struct reader {
    struct test_case *test_case;
    size_t nodes;
    struct error *err;
};

static int wrong(struct reader *reader, const char *where, const char *what, const char *key)
{
    return error_set(reader->err, ERROR_USAGE, "case '%s'%s%s: %s '%s'", reader->test_case->id,
                     *where ? " child " : "", where, what, key);
}

static int read_word(struct reader *reader, const char *where, const json_t *object, const char *key,
                     const struct word *words, size_t count, int *ret)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return 0;
    for (size_t i = 0; json_is_string(value) && i < count; i++) {
        if (strcmp(json_string_value(value), words[i].text) == 0) {
            *ret = words[i].value;
            return 0;
        }
    }
    return wrong(reader, where, "unknown value of", key);
}

static int read_integer(struct reader *reader, const char *where, const json_t *object, const char *key,
                        int64_t most, int64_t *ret)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return 0;
    if (!json_is_integer(value))
        return wrong(reader, where, "not an integer:", key);
    int64_t number = json_integer_value(value);
    if (number > most || number < -most)
        return wrong(reader, where, "out of range:", key);
    *ret = number;
    return 0;
}

static bool is_scalar(const json_t *value)
{
    return !json_is_object(value) && !json_is_array(value);
}

static int64_t node_value(const struct node *node, json_t *json, const char *key)
{
    json_t *value = json_object_get(json, key);
    return (int64_t)(intptr_t)(value ? value : node->default_value);
}

static int read_leaf(struct reader *reader, struct node *node, json_t *json)
{
    int end = LEAF_OK, reaction = LEAF_PROPAGATE;
    int64_t delay_ms = -1, cleanup_ms = INT64_MIN;
    if (read_word(reader, node->path, json, "outcome", ends, COUNT_OF(ends), &end) != 0 ||
        read_word(reader, node->path, json, "on_cancel", reactions, COUNT_OF(reactions), &reaction) != 0 ||
        read_integer(reader, node->path, json, "delay_ms", MAX_CASE_MS, &delay_ms) != 0 ||
        read_integer(reader, node->path, json, "cleanup_ms", MAX_CASE_MS, &cleanup_ms) != 0)
        return -1;
    bool cleans_up = reaction == LEAF_CLEANUP || reaction == LEAF_CLEANUP_FAIL;
    if (cleans_up && cleanup_ms == INT64_MIN)
        return wrong(reader, node->path, "lacks", "cleanup_ms");
    if (end == LEAF_FAIL && !is_scalar(json_object_get(json, "value")))
        return wrong(reader, node->path, "an error has a number or a text as", "value");
    bool fails_on_cancel = reaction == LEAF_CANCEL_FAIL || reaction == LEAF_CLEANUP_FAIL;
    if (fails_on_cancel && !is_scalar(json_object_get(json, "cancel_value")))
        return wrong(reader, node->path, "an error has a number or a text as", "cancel_value");
    node->script =
        (struct leaf_script){.delay_ns = delay_ms < 0 ? LEAF_NO_WAIT : delay_ms,
                             .cleanup_ns = !cleans_up || cleanup_ms < 0 ? LEAF_NO_WAIT : cleanup_ms,
                             .end = (enum leaf_end)end,
                             .on_cancel = (enum leaf_on_cancel)reaction,
                             .value = node_value(node, json, "value"),
                             .cancel_value = node_value(node, json, "cancel_value")};
    return 0;
}

static int read_node(struct reader *reader, struct node *node, json_t *json, int depth);

static void list_node(struct node ***list, size_t *count, struct node *node)
{
    *list = memory_resized(*list, *count + 1, sizeof(struct node *));
    (*list)[(*count)++] = node;
}

/* NULL: too deep or too many. */
static int init_node(struct reader *reader, struct node *node, struct node *parent, const char *name)
{
    if (++reader->nodes > MAX_NODES)
        return wrong(reader, parent->path, "too many children:", name);
    bool at_top = !*parent->path;
    node->parent = parent;
    node->path = memory_format("%s%s%s", parent->path, at_top ? "" : ".", name);
    node->default_value = json_string(node->path);
    return 0;
}

static int read_children(struct reader *reader, struct node *node, json_t *list, int depth)
{
    uint32_t count = (uint32_t)json_array_size(list);
    if (reader->nodes + count > MAX_NODES)
        return wrong(reader, node->path, "too many", "children");
    if (fanout_new(count, &node->fanout, reader->err) != 0)
        return -1;
    fanout_bind(node->fanout, node->arm->resume);
    node->children = memory_zeroed(count, sizeof(struct node));
    for (uint32_t i = 0; i < count; i++) {
        struct node *child = &node->children[i];
        char name[16];
        (void)snprintf(name, sizeof(name), "%u", i);
        child->index = i;
        if (init_node(reader, child, node, name) != 0)
            return -1;
        list_node(&reader->test_case->nodes, &reader->test_case->node_count, child);
        if (read_node(reader, child, json_array_get(list, i), depth + 1) != 0)
            return -1;
        node->fanout->bodies[i] = &child->coro;
    }
    return 0;
}

static int read_body(struct reader *reader, struct node *node, json_t *json, int depth)
{
    json_t *body = json_object_get(json, "body");
    if (!body || json_is_null(body))
        return 0;
    node->body = memory_zeroed(1, sizeof(struct node));
    node->body->is_body = true;
    if (init_node(reader, node->body, node, "body") != 0 ||
        read_node(reader, node->body, body, depth + 1) != 0)
        return -1;
    list_node(&reader->test_case->bodies, &reader->test_case->body_count, node->body);
    if (node->arm == arm_find("taskgroup")) /* no other arm looks at it */
        node->fanout->body = &node->body->coro;
    return 0;
}

static int read_arm(struct reader *reader, struct node *node, json_t *json, int depth)
{
    const json_t *name = json_object_get(json, "arm");
    json_t *children = json_object_get(json, "children");
    node->arm = json_is_string(name) ? arm_find(json_string_value(name)) : NULL;
    if (!node->arm || node->arm->harness)
        return wrong(reader, node->path, "unknown value of", "arm");
    if (!json_is_array(children))
        return wrong(reader, node->path, "not a list:", "children");
    if (read_children(reader, node, children, depth) != 0)
        return -1;
    return read_body(reader, node, json, depth);
}

static int read_node(struct reader *reader, struct node *node, json_t *json, int depth)
{
    if (!json_is_object(json))
        return wrong(reader, node->path, "not an object:", *node->path ? "child" : "case");
    if (depth > MAX_DEPTH)
        return wrong(reader, node->path, "nested too deep:", "children");
    for (size_t i = 0; i < COUNT_OF(foreign_keys); i++) {
        if (json_object_get(json, foreign_keys[i]))
            return wrong(reader, node->path, "not supported here:", foreign_keys[i]);
    }
    return json_object_get(json, "arm") ? read_arm(reader, node, json, depth) : read_leaf(reader, node, json);
}

/* "0.1" or 3 -> the node; NULL when there is none. */
static struct node *find_child(const struct test_case *test_case, const json_t *child)
{
    char number[32];
    const char *path = json_string_value(child);
    if (json_is_integer(child)) {
        (void)snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(child));
        path = number;
    }
    for (size_t i = 0; i < test_case->node_count; i++) {
        if (strcmp(test_case->nodes[i]->path, path) == 0)
            return test_case->nodes[i];
    }
    return NULL;
}

static int read_event_time(struct reader *reader, struct event *event, const json_t *json)
{
    event->by_turn = json_object_get(json, "at_turn") != NULL;
    if (!event->by_turn && !json_object_get(json, "at_ms"))
        return wrong(reader, "", "an event lacks", "at_ms");
    if (event->by_turn)
        return read_integer(reader, "", json, "at_turn", MAX_TURNS, &event->turns);
    if (read_integer(reader, "", json, "at_ms", MAX_CASE_MS, &event->at_ms) != 0)
        return -1;
    return read_integer(reader, "", json, "after_turns", MAX_TURNS, &event->turns);
}

static int read_event(struct reader *reader, struct event *event, const json_t *json)
{
    int action = -1;
    if (!json_is_object(json))
        return wrong(reader, "", "not an object:", "event");
    if (read_word(reader, "", json, "action", actions, COUNT_OF(actions), &action) != 0 ||
        read_event_time(reader, event, json) != 0)
        return -1;
    if (action < 0)
        return wrong(reader, "", "an event lacks", "action");
    event->action = (enum event_action)action;
    event->child = json_object_get(json, "child");
    if (event->action == EVENT_CANCEL_CHILD) {
        if (!json_is_integer(event->child) && !json_is_string(event->child))
            return wrong(reader, "", "an event lacks", "child");
        event->target = find_child(reader->test_case, event->child);
    }
    bool has_gather = strncmp(reader->test_case->root.arm->name, "gather", strlen("gather")) == 0;
    if (event->action == EVENT_CANCEL_GATHER && (!has_gather || (event->by_turn && event->turns <= 0)))
        return wrong(reader, "", "there is no gather yet for", "cancel_gather");
    return 0;
}

static int read_events(struct reader *reader, json_t *json)
{
    struct test_case *test_case = reader->test_case;
    const json_t *list = json_object_get(json, "events");
    if (list && !json_is_array(list))
        return wrong(reader, "", "not a list:", "events");
    size_t count = json_array_size(list);
    if (count > MAX_EVENTS)
        return wrong(reader, "", "too many", "events");
    test_case->events = memory_zeroed(count + 1, sizeof(struct event));
    if (json_object_get(json, "parent_cancel_at_ms")) {
        struct event *event = &test_case->events[test_case->event_count++];
        event->action = EVENT_CANCEL_PARENT;
        if (read_integer(reader, "", json, "parent_cancel_at_ms", MAX_CASE_MS, &event->at_ms) != 0)
            return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (read_event(reader, &test_case->events[test_case->event_count++], json_array_get(list, i)) != 0)
            return -1;
    }
    return 0;
}

static int read_case(struct reader *reader, json_t *json)
{
    struct test_case *test_case = reader->test_case;
    struct node *root = &test_case->root;
    root->path = memory_text("");
    if (!json_object_get(json, "arm"))
        return wrong(reader, "", "lacks", "arm");
    if (read_node(reader, root, json, 0) != 0 || read_events(reader, json) != 0)
        return -1;
    test_case->has_timeout = json_object_get(json, "timeout_ms") != NULL;
    return read_integer(reader, "", json, "timeout_ms", MAX_CASE_MS, &test_case->timeout_ms);
}

static bool is_printable(const char *text)
{
    for (; *text; text++) {
        if (iscntrl((unsigned char)*text))
            return false;
    }
    return true;
}

int case_read(json_t *json, size_t number, struct test_case **ret, struct error *err)
{
    const char *id = json_string_value(json_object_get(json, "id"));
    if (!id || !*id || !is_printable(id))
        return error_set(err, ERROR_USAGE, "case %zu lacks an 'id'", number);
    struct test_case *test_case = memory_zeroed(1, sizeof(*test_case));
    test_case->json = json_incref(json);
    test_case->id = id;
    struct reader reader = {.test_case = test_case, .err = err};
    if (read_case(&reader, json) != 0) {
        case_free(test_case);
        return -1;
    }
    *ret = test_case;
    return 0;
}

static void node_release(struct node *node)
{
    for (uint32_t i = 0; node->children && i < node->fanout->count; i++)
        node_release(&node->children[i]);
    if (node->body)
        node_release(node->body);
    free(node->body);
    free(node->children);
    fanout_free(node->fanout);
    free(node->path);
    free(node->record.state_at_return);
    json_decref(node->default_value);
}

void case_free(struct test_case *test_case)
{
    if (!test_case)
        return;
    node_release(&test_case->root);
    free(test_case->events);
    free(test_case->nodes);
    free(test_case->bodies);
    json_decref(test_case->json);
    free(test_case);
}
