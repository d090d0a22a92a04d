#include "tests/conformance/play.h"

#include "base/memory.h"
#include "worker/runtime/timeout.h"

#include <string.h>

struct supervisor {
    struct call call;
    bool queued, over;
    size_t waited, done;
};

/* The task that awaits the case's arm, and what is written down meanwhile. */
struct play {
    struct coro coro;
    struct task task;
    struct supervisor supervisor;
    struct runtime *runtime;
    struct test_case *test_case;
    struct timeout timeout;
    int64_t ns_per_ms, base_ns;
    uint64_t base_turn;
    json_t *notes, *finish_order;
    struct node **bodies; /* in the order in which they started */
    size_t body_count;
    /* at the arm's return */
    bool returned;
    struct outcome outcome;
    int64_t return_ms;
    uint64_t return_turn;
    uint16_t parent_cancelling;
    const char *next_await;
};

static int64_t now_ms(struct play *play)
{
    return (runtime_now(play->runtime) - play->base_ns) / play->ns_per_ms;
}

static uint64_t turn(const struct play *play)
{
    return play->runtime->turns - play->base_turn;
}

/* Words for outcomes */

static char *error_text(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return memory_format("E:%s", json_string_value(value));
    case JSON_INTEGER:
        return memory_format("E:%" JSON_INTEGER_FORMAT, json_integer_value(value));
    case JSON_REAL:
        return memory_format("E:%.17g", json_real_value(value));
    case JSON_TRUE:
        return memory_text("E:True");
    case JSON_FALSE:
        return memory_text("E:False");
    default:
        return memory_text("E:None");
    }
}

static json_t *error_name(struct outcome outcome);

static json_t *group_members(const struct fanout *fanout)
{
    json_t *members = json_array();
    for (uint32_t i = 0; i < fanout->error_count; i++)
        (void)json_array_append_new(members, error_name(fanout->errors[i]));
    return members;
}

static const struct fanout *group_of(struct outcome outcome)
{
    return (const struct fanout *)(intptr_t)outcome.value;
}

/* How the case files name an exception. */
static json_t *error_name(struct outcome outcome)
{
    if (outcome.kind == OUTCOME_GROUP)
        return json_pack("{s:s, s:o}", "group", "ExceptionGroup", "members",
                         group_members(group_of(outcome)));
    if (outcome.kind == OUTCOME_CANCELLED)
        return json_string("Cancelled");
    if (outcome.kind == OUTCOME_TIMEOUT)
        return json_string("Timeout");
    scoped_free char *text = error_text((const json_t *)(intptr_t)outcome.value);
    return json_string(text);
}

/* What a node that ended well returned. */
static json_t *node_result(const struct node *node, struct outcome outcome)
{
    if (!node->arm)
        return json_incref((json_t *)(intptr_t)outcome.value);
    json_t *list = json_array();
    for (uint32_t i = 0; i < node->fanout->count; i++) {
        struct outcome child = task_outcome(&node->fanout->tasks[i]);
        (void)json_array_append_new(list, child.kind == OUTCOME_OK
                                              ? node_result(&node->children[i], child)
                                              : json_pack("{s:o}", "exc", error_name(child)));
    }
    return list;
}

static json_t *outcome_json(const struct node *root, struct outcome outcome)
{
    switch (outcome.kind) {
    case OUTCOME_OK:
        return json_pack("{s:s, s:o}", "kind", "ok", "value", node_result(root, outcome));
    case OUTCOME_FAIL:
        return json_pack("{s:s, s:o}", "kind", "fail", "exc", error_name(outcome));
    case OUTCOME_CANCELLED:
        return json_pack("{s:s}", "kind", "cancelled");
    case OUTCOME_TIMEOUT:
        return json_pack("{s:s}", "kind", "timeout");
    case OUTCOME_GROUP:
        break;
    }
    return json_pack("{s:s, s:s, s:o}", "kind", "group", "group", "ExceptionGroup", "members",
                     group_members(group_of(outcome)));
}

/* Nodes: a frame around each leaf and nested arm */

static void node_ended(struct node *node, struct outcome outcome)
{
    node->record.ended = true;
    node->record.end = outcome;
    node->record.end_ms = now_ms(node->play);
    (void)json_array_append_new(node->play->finish_order, json_string(node->path));
}

static void node_started(struct node *node)
{
    struct play *play = node->play;
    node->record.started = true;
    node->record.start_ms = now_ms(play);
    node->record.start_turn = turn(play);
    if (node->is_body)
        play->bodies[play->body_count++] = node;
}

static enum step node_resume(struct coro *coro, struct activation *activation)
{
    struct node *node = (struct node *)(void *)coro;
    if (activation->wake == WAKE_START) {
        node_started(node);
        return coro_await(activation, node->arm ? &node->fanout->coro : &node->leaf.coro);
    }
    node_ended(node, activation->outcome);
    return STEP_DONE;
}

static int64_t scaled(const struct play *play, int64_t ms)
{
    return ms <= 0 ? ms : ms * play->ns_per_ms;
}

static void prepare_node(struct play *play, struct node *node)
{
    node->play = play;
    node->coro.resume = node_resume;
    if (node->arm)
        return;
    node->script.delay_ns = scaled(play, node->script.delay_ns);
    node->script.cleanup_ns = scaled(play, node->script.cleanup_ns);
    leaf_init(&node->leaf, &node->script, NULL);
}

/* The task that a node runs in, once that task is made; NULL for one that is awaited inline. */
static struct task *node_task(const struct node *node)
{
    if (node->is_body || !node->parent->arm->concurrent)
        return NULL;
    struct task *task = &node->parent->fanout->tasks[node->index];
    return task->state == TASK_IDLE ? NULL : task;
}

static const char *task_word(const struct task *task)
{
    if (task->state != TASK_DONE)
        return "pending";
    if (task->kind == OUTCOME_OK)
        return "ok";
    return task->kind == OUTCOME_CANCELLED ? "cancelled" : "fail";
}

/* An inline node's own word; the error is named for leaves only. */
static char *end_word(const struct node *node, bool with_error)
{
    struct outcome end = node->record.end;
    if (end.kind == OUTCOME_OK || end.kind == OUTCOME_CANCELLED)
        return memory_text(end.kind == OUTCOME_OK ? "ok" : "cancelled");
    if (node->arm || !with_error)
        return memory_text("fail");
    scoped_free char *text = error_text((const json_t *)(intptr_t)end.value);
    return memory_format("fail:%s", text);
}

static char *state_at_return(const struct node *node)
{
    const struct task *task = node_task(node);
    if (task)
        return memory_text(task_word(task));
    if (!node->record.started)
        return memory_text("not_started");
    return node->record.ended ? end_word(node, true) : memory_text("running");
}

static char *state_final(const struct node *node)
{
    const struct task *task = node_task(node);
    if (task)
        return memory_text(task_word(task));
    return node->record.ended ? end_word(node, false) : memory_text("not_started");
}

/* Events */

static const char *act_on(struct event *event)
{
    struct play *play = event->play;
    struct task *task = NULL;
    if (event->action == EVENT_CANCEL_GATHER) {
        struct fanout *fanout = play->test_case->root.fanout;
        return fanout->waitable.cancel(play->runtime, &fanout->waitable) ? "True" : "False";
    }
    if (event->action == EVENT_CANCEL_PARENT)
        task = &play->task;
    else if (event->target)
        task = node_task(event->target);
    if (!task)
        return "None";
    return task_cancel(play->runtime, task) ? "True" : "False";
}

static void act(struct event *event)
{
    static const char *const names[] = {"cancel_parent", "cancel_child", "cancel_gather"};
    long long ms = (long long)now_ms(event->play);
    const char *answer = act_on(event);
    scoped_free char *child = NULL;
    if (json_is_string(event->child))
        child = memory_text(json_string_value(event->child));
    else if (event->child)
        child = json_dumps(event->child, JSON_ENCODE_ANY);
    scoped_free char *note =
        memory_format("%s%s@%lld -> %s", names[event->action], child ? child : "", ms, answer);
    (void)json_array_append_new(event->play->notes, json_string(note));
}

static void event_turn(struct runtime *runtime, struct call *call)
{
    struct event *event = (struct event *)(void *)call;
    if (event->turns-- <= 0)
        act(event);
    else
        runtime_call_soon(runtime, call);
}

static void event_due(struct runtime *runtime, struct call *call)
{
    struct event *event = (struct event *)(void *)call;
    (void)runtime_timer_fired(&event->timer);
    call->run = event_turn;
    event_turn(runtime, call);
}

static void register_event(struct play *play, struct event *event)
{
    event->play = play;
    event->timer.call.run = event->by_turn ? event_turn : event_due;
    if (!event->by_turn)
        runtime_timer_start_at(play->runtime, &event->timer, play->base_ns + event->at_ms * play->ns_per_ms);
    else
        event_turn(play->runtime, &event->timer.call);
}

/* The parent */

static void begin(struct play *play)
{
    play->base_turn = play->runtime->turns;
    play->base_ns = runtime_now(play->runtime);
    for (size_t i = 0; i < play->test_case->event_count; i++)
        register_event(play, &play->test_case->events[i]);
}

static void note_return(struct play *play, struct outcome outcome)
{
    play->returned = true;
    play->outcome = outcome;
    play->return_ms = now_ms(play);
    play->return_turn = turn(play);
    play->parent_cancelling = play->task.cancels;
    for (size_t i = 0; i < play->test_case->node_count; i++) {
        struct node *node = play->test_case->nodes[i];
        node->record.state_at_return = state_at_return(node);
    }
    for (size_t i = 0; i < play->body_count; i++)
        play->bodies[i]->record.state_at_return = state_at_return(play->bodies[i]);
}

static enum step parent_resume(struct coro *coro, struct activation *activation)
{
    struct play *play = (struct play *)(void *)coro;
    switch (activation->wake) {
    case WAKE_START:
        begin(play);
        return coro_await(activation, play->test_case->has_timeout ? &play->timeout.coro
                                                                   : &play->test_case->root.fanout->coro);
    case WAKE_RETURN:
        note_return(play, activation->outcome);
        return coro_yield(activation);
    case WAKE_READY:
        play->next_await = "ok";
        break;
    case WAKE_CANCEL:
        play->next_await = "cancelled";
        break;
    }
    return coro_return(activation, OUTCOME_OK, 0);
}

/* The supervisor: asyncio's host waits, in rounds, for all tasks that it finds, with a callback on each and in a task of its own.
 * That takes turns of the ready queue in which time stands still; they are taken here too, by calls that do nothing else, so that turns
 * are counted alike. */

static void queue_supervisor(struct play *play, void (*run)(struct runtime *, struct call *))
{
    play->supervisor.call.run = run;
    play->supervisor.queued = true;
    runtime_call_soon(play->runtime, &play->supervisor.call);
}

static struct play *play_of_call(struct call *call)
{
    return (struct play *)(void *)((char *)call - offsetof(struct play, supervisor.call));
}

/* The supervisor's own task steps: is there anybody left to wait for? */
static void supervisor_step(struct runtime *runtime, struct call *call)
{
    (void)runtime;
    struct play *play = play_of_call(call);
    struct supervisor *supervisor = &play->supervisor;
    supervisor->queued = false;
    supervisor->waited = supervisor->done = 0;
    for (size_t i = 0; i < play->test_case->node_count; i++) {
        struct node *node = play->test_case->nodes[i];
        const struct task *task = node_task(node);
        node->waited = task && task->state != TASK_DONE;
        supervisor->waited += node->waited;
    }
    supervisor->over = supervisor->waited == 0;
}

static void supervisor_callback(struct runtime *runtime, struct call *call)
{
    (void)runtime;
    struct play *play = play_of_call(call);
    play->supervisor.queued = false;
    if (play->supervisor.done == play->supervisor.waited)
        queue_supervisor(play, supervisor_step);
}

/* The first round waits for the parent alone. */
static void parent_done(struct runtime *runtime, struct call *call)
{
    (void)runtime;
    queue_supervisor((struct play *)(void *)((char *)call - offsetof(struct play, task.ready)),
                     supervisor_step);
}

static void supervisor_stop(struct runtime *runtime, struct call *call)
{
    (void)runtime;
    play_of_call(call)->supervisor.queued = false;
}

static size_t waited_and_done(const struct play *play)
{
    size_t done = 0;
    for (size_t i = 0; i < play->test_case->node_count; i++) {
        const struct node *node = play->test_case->nodes[i];
        done += node->waited && node_task(node)->state == TASK_DONE;
    }
    return done;
}

/* After each turn: tasks that ended in it have queued their callbacks. */
static void supervise(struct play *play)
{
    struct supervisor *supervisor = &play->supervisor;
    if (supervisor->queued)
        return;
    size_t done = waited_and_done(play);
    if (done == supervisor->done)
        return;
    supervisor->done = done;
    queue_supervisor(play, supervisor_callback);
}

/* Timers that the host set and nobody waits for any more. */
static void cancel_events(struct play *play)
{
    for (size_t i = 0; i < play->test_case->event_count; i++)
        runtime_timer_cancel(play->runtime, &play->test_case->events[i].timer);
}

static int run_to_end(struct play *play, int64_t *ret_drain_ms, struct error *err)
{
    while (!play->supervisor.over) {
        if (runtime_turn(play->runtime, true, err) < 0)
            return -1;
        supervise(play);
    }
    *ret_drain_ms = now_ms(play);
    queue_supervisor(play, supervisor_stop);
    if (runtime_turn(play->runtime, false, err) < 0)
        return -1;
    cancel_events(play);
    return 0;
}

/* What happened */

static json_t *time_or_null(bool known, int64_t value)
{
    return known ? json_integer(value) : json_null();
}

static json_t *record_json(const struct node *node)
{
    const struct record *record = &node->record;
    scoped_free char *final = state_final(node);
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:i}", "state_at_return",
                     record->state_at_return ? json_string(record->state_at_return) : json_null(),
                     "state_final", final, "start_ms", time_or_null(record->started, record->start_ms),
                     "start_turn", time_or_null(record->started, (int64_t)record->start_turn), "end_ms",
                     time_or_null(record->ended, record->end_ms), "cancels_delivered",
                     (int)node->leaf.cancels);
}

static bool is_orphan(const struct node *node)
{
    const char *state = node->record.state_at_return;
    return state && (strcmp(state, "pending") == 0 || strcmp(state, "running") == 0);
}

static void add_node(const struct node *node, json_t *children, json_t *orphans, json_t *unretrieved)
{
    (void)json_object_set_new(children, node->path, record_json(node));
    if (is_orphan(node))
        (void)json_array_append_new(orphans, json_string(node->path));
    const struct task *task = node_task(node);
    if (task && strcmp(task_word(task), "fail") == 0 && !task->retrieved)
        (void)json_array_append_new(unretrieved, error_name(task_outcome(task)));
}

static json_t *report(const struct play *play, int64_t drain_ms)
{
    const struct test_case *test_case = play->test_case;
    json_t *children = json_object(), *orphans = json_array(), *unretrieved = json_array();
    for (size_t i = 0; i < test_case->node_count; i++)
        add_node(test_case->nodes[i], children, orphans, unretrieved);
    for (size_t i = 0; i < play->body_count; i++)
        add_node(play->bodies[i], children, orphans, unretrieved);
    json_t *report = json_pack(
        "{s:o, s:I, s:I, s:i, s:s, s:I, s:O, s:o, s:o, s:o}", "outcome",
        outcome_json(&test_case->root, play->outcome), "t_ms", (json_int_t)play->return_ms, "turns",
        (json_int_t)play->return_turn, "parent_cancelling", (int)play->parent_cancelling, "next_await",
        play->next_await, "drain_ms", (json_int_t)drain_ms, "finish_order", play->finish_order, "children",
        children, "orphans", orphans, "unretrieved_logged", unretrieved);
    if (report && json_array_size(play->notes) > 0)
        (void)json_object_set(report, "notes", play->notes);
    return report;
}

static void prepare(struct play *play)
{
    struct test_case *test_case = play->test_case;
    for (size_t i = 0; i < test_case->node_count; i++)
        prepare_node(play, test_case->nodes[i]);
    for (size_t i = 0; i < test_case->body_count; i++)
        prepare_node(play, test_case->bodies[i]);
    timeout_init(&play->timeout, &test_case->root.fanout->coro, scaled(play, test_case->timeout_ms));
    play->coro.resume = parent_resume;
    play->notes = json_array();
    play->finish_order = json_array();
    play->bodies = memory_zeroed(test_case->body_count + 1, sizeof(*play->bodies));
}

json_t *play_case(struct runtime *runtime, struct test_case *test_case, int64_t ns_per_ms, struct error *err)
{
    struct play play = {.runtime = runtime, .test_case = test_case, .ns_per_ms = ns_per_ms};
    json_t *happened = NULL;
    int64_t drain_ms;
    prepare(&play);
    task_start(runtime, &play.task, &play.coro, &runtime->roots, parent_done);
    if (run_to_end(&play, &drain_ms, err) == 0)
        happened = report(&play, drain_ms);
    json_decref(play.notes);
    json_decref(play.finish_order);
    free(play.bodies);
    return happened;
}
