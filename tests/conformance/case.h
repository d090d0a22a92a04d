/* case.h: a conformance case, read from JSON into a tree of fan-outs and leaves; see README.md here for the format.
 *
 * Ownership: a case owns its nodes and fan-outs, and holds a reference to the JSON it was read from; case_free.  One thread. */
#ifndef COREFAN_TESTS_CONFORMANCE_CASE_H
#define COREFAN_TESTS_CONFORMANCE_CASE_H

#include "worker/arms/arm.h"
#include "worker/jobs/leaf.h"

#include <jansson.h>

struct play;

/* What a node did; written by play.c. */
struct record {
    bool started, ended;
    int64_t start_ms, end_ms;
    uint64_t start_turn;
    struct outcome end;
    char *state_at_return; /* NULL: there was no such node yet */
};

struct node {
    struct coro coro; /* a frame around the leaf or the nested arm that keeps the record */
    struct play *play;
    char *path; /* "0.1", "body"; "" for the case itself */
    bool is_body;
    struct node *parent; /* NULL for the case itself */
    uint32_t index;      /* among its parent's children */
    struct record record;
    bool waited; /* by the supervisor of play.c, in this round */

    const struct arm *arm; /* NULL: a leaf */
    struct fanout *fanout;
    struct node *children;
    struct node *body; /* or NULL */

    struct leaf leaf;
    struct leaf_script script; /* values are json_t * */
    json_t *default_value;     /* the path, as a value */
};

enum event_action { EVENT_CANCEL_PARENT, EVENT_CANCEL_CHILD, EVENT_CANCEL_GATHER };

struct event {
    struct timer timer; /* its call serves the turns after it, too */
    struct play *play;
    enum event_action action;
    bool by_turn;
    int64_t at_ms;
    int64_t turns; /* at_turn, or after_turns */
    json_t *child; /* as written; borrowed */
    struct node *target;
};

struct test_case {
    json_t *json;
    const char *id;
    struct node root;
    struct event *events;
    size_t event_count;
    bool has_timeout;
    int64_t timeout_ms;
    struct node *
        *nodes; /* every node but the root and bodies, in the order in which asyncio's host lists them */
    size_t node_count;
    struct node **bodies;
    size_t body_count;
};

/* 0: *ret is the caller's.  -1: err says which case and what is wrong with it. */
int case_read(json_t *json, size_t number, struct test_case **ret, struct error *err);
void case_free(struct test_case *test_case);

#endif
