#include "worker/session.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "proto/frame.h"
#include "worker/outbox.h"
#include "worker/session_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* As SPEC.md has them: what the worker does with its slice. */
enum slice_state { SLICE_NONE, SLICE_PREPARING, SLICE_READY, SLICE_MEASURING };

static const char *const state_words[] = {"idle", "preparing", "ready", "measuring"};

struct session {
    const struct session_options *options;
    struct engine *engine;
    struct session_link link;
    int signals;
    struct error *err;
    bool ended, failed;
    /* the coordinator */
    bool up;                /* somebody is at the other end */
    bool hello_due;         /* and has not been greeted yet */
    bool welcomed;          /* since the last hello */
    bool met;               /* at least once */
    int64_t alone_since_ns; /* since when there is no welcome that holds */
    char *run;
    int64_t heartbeat_ns, next_heartbeat_ns;
    /* the slice */
    enum slice_state state;
    int64_t group, attempt;
    bool winding_up;         /* its result is the last thing of it */
    struct wire_bytes ready; /* kept until the first go, sent again after a reconnection */
    struct outbox outbox;
    int64_t refused_frames;
};

static void end(struct session *session)
{
    session->ended = true;
}

static void end_badly(struct session *session)
{
    session->ended = session->failed = true;
}

/* ---- sending ---- */

static bool send_message(struct session *session, const struct wire_message *message)
{
    struct error err = {0};
    struct wire_bytes frame;
    if (wire_encode(message, &frame, &err) < 0) {
        log_line(LOG_ERROR, "%s", err.text);
        return false;
    }
    bool sent = session_link_send(&session->link, frame.data, frame.size);
    free(frame.data);
    return sent;
}

static void send_hello(struct session *session)
{
    struct wire_message message = {.type = WIRE_HELLO, .hello = session->options->hello};
    session->hello_due = !send_message(session, &message);
}

static void send_heartbeat(struct session *session)
{
    bool has_slice = session->state != SLICE_NONE;
    struct wire_message message = {
        .type = WIRE_HEARTBEAT,
        .heartbeat = {.group = has_slice ? session->group : WIRE_NULL,
                      .attempt = has_slice ? session->attempt : WIRE_NULL,
                      .rounds_done = engine_rounds_done(session->engine),
                      .state = (char *)(uintptr_t)state_words[session->state]},
    };
    (void)send_message(session, &message);
    session->next_heartbeat_ns = clock_monotonic_ns() + session->heartbeat_ns;
}

static void send_reject(struct session *session, char *reason)
{
    struct wire_message message = {.type = WIRE_REJECT, .reject = {.reason = reason}};
    (void)send_message(session, &message);
}

static void send_bye(struct session *session, char *reason)
{
    struct wire_message message = {.type = WIRE_BYE, .bye = {.reason = reason}};
    (void)send_message(session, &message);
}

/* One part of a result: into the outbox, and out. */
static int send_part(struct session *session, const struct wire_result *result, struct error *err)
{
    struct wire_message message = {.type = WIRE_RESULT, .result = *result};
    struct wire_ack key = {result->group, result->attempt, result->go, result->part};
    struct wire_bytes frame;
    if (wire_encode(&message, &frame, err) < 0)
        return -1;
    (void)session_link_send(&session->link, frame.data, frame.size);
    outbox_add(&session->outbox, &key, frame);
    return 0;
}

static void send_failed_go(struct session *session, const struct wire_result *of, char *why)
{
    struct error err = {0};
    struct wire_result result = {.group = of->group,
                                 .attempt = of->attempt,
                                 .go = of->go,
                                 .part = of->part,
                                 .last = true,
                                 .error = why};
    if (send_part(session, &result, &err) < 0)
        log_line(LOG_ERROR, "%s", err.text);
}

/* How many rounds fit into one part: by number, and by a generous estimate of their bytes. */
static size_t rounds_in_part(const struct wire_round *rounds, size_t left)
{
    const size_t round_bytes = 2048, pair_bytes = 18, most_bytes = WIRE_MAX_FRAME_BYTES - (256u << 10);
    size_t bytes = 0, count = 0;
    for (; count < left && count < WIRE_MAX_ROUNDS; count++) {
        const struct wire_round *round = &rounds[count];
        bytes += round_bytes + pair_bytes * (round->latency.pair_count + round->latency_intended.pair_count);
        if (round->error)
            bytes += strlen(round->error);
        if (count > 0 && bytes > most_bytes)
            break;
    }
    return count;
}

static void send_result(struct session *session, const struct report *report)
{
    struct error err = {0};
    struct wire_result result = {.group = report->group, .attempt = report->attempt, .go = report->go};
    for (size_t sent = 0; !result.last; result.part++) {
        result.rounds = report->rounds + sent;
        result.round_count = rounds_in_part(result.rounds, report->round_count - sent);
        sent += result.round_count;
        result.last = sent == report->round_count;
        result.error = result.last ? report->error : NULL;
        if (send_part(session, &result, &err) < 0) {
            send_failed_go(session, &result, err.text);
            return;
        }
    }
}

/* ---- what the engine reports ---- */

static void drop_ready(struct session *session)
{
    free(session->ready.data);
    session->ready = (struct wire_bytes){0};
}

static void drop_slice(struct session *session)
{
    engine_cancel(session->engine);
    engine_beat_done(session->engine); /* its beat may be stale now */
    drop_ready(session);
    session->state = SLICE_NONE;
    session->winding_up = false;
}

static void on_ready(struct session *session, struct report *report)
{
    struct error err = {0};
    struct wire_message message = {
        .type = WIRE_READY,
        .ready = {.group = report->group,
                  .attempt = report->attempt,
                  .cells = report->prepared,
                  .cell_count = report->prepared_count,
                  .error = report->error},
    };
    session->state = report->error ? SLICE_NONE : SLICE_READY;
    if (report->error)
        log_line(LOG_WARNING, "cannot run group %lld: %s", (long long)report->group, report->error);
    if (wire_encode(&message, &session->ready, &err) < 0) {
        log_line(LOG_ERROR, "%s", err.text);
        return;
    }
    (void)session_link_send(&session->link, session->ready.data, session->ready.size);
}

static void on_result(struct session *session, struct report *report)
{
    session->state = SLICE_READY;
    send_result(session, report);
    if (!session->winding_up)
        return;
    drop_slice(session);
    send_heartbeat(session);
}

static void on_beat(struct session *session, struct report *report)
{
    (void)report;
    if (session->welcomed)
        send_heartbeat(session);
    engine_beat_done(session->engine);
}

static void take_reports(struct session *session)
{
    static void (*const handlers[])(struct session *, struct report *) = {
        [REPORT_READY] = on_ready, [REPORT_RESULT] = on_result, [REPORT_BEAT] = on_beat};
    for (struct report *report = engine_take(session->engine); report;
         report = engine_take(session->engine)) {
        handlers[report->kind](session, report);
        report_free(report);
    }
}

/* ---- what the coordinator says ---- */

static bool is_own_slice(const struct session *session, int64_t group, int64_t attempt)
{
    return session->state != SLICE_NONE && session->group == group && session->attempt == attempt;
}

/* A coordinator that has another run knows nothing of what was done for the last one. */
static void take_run(struct session *session, const char *run)
{
    if (session->run && strcmp(session->run, run) != 0) {
        drop_slice(session);
        outbox_clear(&session->outbox);
    }
    free(session->run);
    session->run = memory_text(run);
}

static void on_welcome(struct session *session, struct wire_message *message)
{
    const struct wire_welcome *welcome = &message->welcome;
    take_run(session, welcome->run);
    session->welcomed = session->met = true;
    session->heartbeat_ns = welcome->heartbeat_ns;
    engine_beat_every(session->engine, session->options->hello.busy_heartbeats ? 0 : welcome->heartbeat_ns);
    log_line(LOG_INFO, "worker %lld of run '%s'", (long long)welcome->worker, welcome->run);
    if (session->ready.data)
        (void)session_link_send(&session->link, session->ready.data, session->ready.size);
    for (struct outbox_part *part = session->outbox.first; part; part = part->next)
        (void)session_link_send(&session->link, part->frame.data, part->frame.size);
    send_heartbeat(session);
}

/* Text of a peer on its way to a terminal. */
static void clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

static void on_reject(struct session *session, struct wire_message *message)
{
    char *reason = message->reject.reason;
    clean(reason);
    if (session->welcomed) {
        log_line(LOG_WARNING, "the coordinator refused a frame: %s", reason);
        return;
    }
    (void)error_set(session->err, ERROR_USAGE, "the coordinator at '%s' refused this worker: %s",
                    session->options->endpoint, reason);
    end_badly(session);
}

static void on_assign(struct session *session, struct wire_message *message)
{
    drop_slice(session);
    session->state = SLICE_PREPARING;
    session->group = message->assign.group;
    session->attempt = message->assign.attempt;
    log_line(LOG_DEBUG, "prepares group %lld, attempt %lld, %zu cells", (long long)session->group,
             (long long)session->attempt, message->assign.cell_count);
    engine_prepare(session->engine, message);
}

static void on_go(struct session *session, struct wire_message *message)
{
    const struct wire_go *go = &message->go;
    struct wire_result of = {.group = go->group, .attempt = go->attempt, .go = go->go};
    char why[] = "no such slice is ready here";
    if (session->state != SLICE_READY || !is_own_slice(session, go->group, go->attempt)) {
        send_failed_go(session, &of, why);
        return;
    }
    drop_ready(session);
    session->state = SLICE_MEASURING;
    engine_go(session->engine, go);
}

static void on_ack(struct session *session, struct wire_message *message)
{
    (void)outbox_acknowledge(&session->outbox, &message->ack);
}

static void on_abort(struct session *session, struct wire_message *message)
{
    const struct wire_abort *abort = &message->abort;
    if (!abort->keep)
        outbox_drop(&session->outbox, abort->group, abort->attempt);
    if (!is_own_slice(session, abort->group, abort->attempt))
        return;
    clean(abort->reason);
    log_line(LOG_DEBUG, "group %lld, attempt %lld is %s: %s", (long long)abort->group,
             (long long)abort->attempt, abort->keep ? "over" : "void", abort->reason);
    if (abort->keep && session->state == SLICE_MEASURING) {
        session->winding_up = true;
        engine_wind_up(session->engine);
        return;
    }
    drop_slice(session);
    send_heartbeat(session);
}

/* Answered, so that the coordinator knows that it may close: a connection cut at once would take its bye along. */
static void on_bye(struct session *session, struct wire_message *message)
{
    char reason[] = "as told";
    if (message->bye.reason)
        clean(message->bye.reason);
    log_line(LOG_DEBUG, "the coordinator says bye: %s", message->bye.reason ? message->bye.reason : "-");
    send_bye(session, reason);
    end(session);
}

static void on_misdirected(struct session *session, struct wire_message *message)
{
    char reason[80];
    (void)snprintf(reason, sizeof reason, "type: a worker takes no '%s'", wire_type_name(message->type));
    send_reject(session, reason);
}

static void on_uninvited(struct session *session, struct wire_message *message)
{
    char reason[80];
    (void)snprintf(reason, sizeof reason, "type: '%s' before welcome", wire_type_name(message->type));
    send_reject(session, reason);
}

typedef void (*message_handler)(struct session *, struct wire_message *);

/* Which message, and what to do with it once welcomed, and before. */
static const struct {
    message_handler welcomed, greeting;
} message_handlers[WIRE_TYPE_COUNT] = {
    [WIRE_WELCOME] = {on_welcome, on_welcome},
    [WIRE_REJECT] = {on_reject, on_reject},
    [WIRE_ASSIGN] = {on_assign, on_uninvited},
    [WIRE_GO] = {on_go, on_uninvited},
    [WIRE_ACK] = {on_ack, on_ack},
    [WIRE_ABORT] = {on_abort, on_abort},
    [WIRE_BYE] = {on_bye, on_bye},
    [WIRE_HELLO] = {on_misdirected, on_misdirected},
    [WIRE_READY] = {on_misdirected, on_misdirected},
    [WIRE_HEARTBEAT] = {on_misdirected, on_misdirected},
    [WIRE_RESULT] = {on_misdirected, on_misdirected},
};

/* A frame of another major while we introduce ourselves: the two programs do not fit. */
static bool is_foreign(struct session *session, const struct wire_bytes *frame)
{
    int64_t major, minor;
    if (session->welcomed || wire_peek_version(frame->data, frame->size, &major, &minor) < 0 ||
        major == WIRE_MAJOR)
        return false;
    (void)error_set(
        session->err, ERROR_USAGE,
        "the coordinator at '%s' speaks protocol %lld.%lld, this worker %d.%d: use the same version",
        session->options->endpoint, (long long)major, (long long)minor, WIRE_MAJOR, WIRE_MINOR);
    return true;
}

static bool says_reject(const struct wire_bytes *frame)
{
    struct frame_head head;
    return frame_walk(frame->data, frame->size, &head, NULL) == 0 && head.type && head.type_bytes == 6 &&
           memcmp(head.type, "reject", 6) == 0;
}

static void refuse_frame(struct session *session, const struct wire_bytes *frame, struct error *why)
{
    bool foreign = frame && is_foreign(session, frame);
    clean(why->text);
    if (session->refused_frames++ == 0 && !foreign)
        log_line(LOG_WARNING, "refused a frame of the coordinator: %s (further ones are counted)", why->text);
    if (!frame || !says_reject(frame)) /* a reject is never answered */
        send_reject(session, why->text);
    if (foreign)
        end_badly(session);
}

static void take_frame(struct session *session, const struct wire_bytes *frame)
{
    struct error err = {0};
    struct wire_message message;
    if (wire_decode(frame->data, frame->size, &message, &err) < 0) {
        refuse_frame(session, frame, &err);
        return;
    }
    message_handler handle =
        session->welcomed ? message_handlers[message.type].welcomed : message_handlers[message.type].greeting;
    handle(session, &message);
    wire_release(&message);
}

static void take_frames(struct session *session)
{
    struct error several = {.text = "a message of several frames"};
    struct wire_bytes frame;
    enum session_link_receipt receipt;
    while (!session->ended && (receipt = session_link_receive(&session->link, &frame)) != LINK_NOTHING) {
        if (receipt == LINK_SEVERAL_FRAMES) {
            refuse_frame(session, NULL, &several);
            continue;
        }
        take_frame(session, &frame);
        free(frame.data);
    }
}

/* ---- the connection, and time ---- */

static void on_link_up(struct session *session)
{
    session->up = session->hello_due = true;
    session->welcomed = false;
}

static void on_link_down(struct session *session)
{
    if (session->welcomed) {
        session->alone_since_ns = clock_monotonic_ns();
        log_line(LOG_WARNING, "lost the coordinator at '%s', waits for it to come back",
                 session->options->endpoint);
    }
    session->up = session->hello_due = session->welcomed = false;
}

static void on_link_refused(struct session *session)
{
    (void)error_set(session->err, ERROR_USAGE,
                    "the coordinator at '%s' does not let this key in: it wants our *.pub among its "
                    "--authorized-keys",
                    session->options->endpoint);
    end_badly(session);
}

static void watch_link(struct session *session)
{
    enum session_link_change change;
    while ((change = session_link_watch(&session->link)) != LINK_SAME) {
        if (change == LINK_UP)
            on_link_up(session);
        else if (change == LINK_REFUSED)
            on_link_refused(session);
        else
            on_link_down(session);
    }
    if (session->hello_due)
        send_hello(session);
}

/* Nothing may stir while the engine works on CPUs that are not apart from ours. */
static bool must_be_quiet(const struct session *session)
{
    return !session->options->hello.busy_heartbeats &&
           (session->state == SLICE_PREPARING || session->state == SLICE_MEASURING);
}

static void keep_time(struct session *session)
{
    int64_t now_ns = clock_monotonic_ns();
    if (session->welcomed && !must_be_quiet(session) && now_ns >= session->next_heartbeat_ns)
        send_heartbeat(session);
    if (session->welcomed || now_ns < session->alone_since_ns + session->options->patience_ns)
        return;
    (void)error_set(session->err, ERROR_INTERNAL, "%s the coordinator at '%s' for %.3g s, gives up",
                    session->met ? "lost" : "waited in vain for", session->options->endpoint,
                    (double)session->options->patience_ns / 1e9);
    end_badly(session);
}

static int milliseconds_to_sleep(const struct session *session)
{
    int64_t until_ns = INT64_MAX;
    if (session->hello_due)
        return 10;
    if (!session->welcomed)
        until_ns = session->alone_since_ns + session->options->patience_ns;
    else if (!must_be_quiet(session))
        until_ns = session->next_heartbeat_ns;
    if (until_ns == INT64_MAX)
        return -1;
    int64_t left_ns = until_ns - clock_monotonic_ns();
    int64_t left_ms = left_ns <= 0 ? 0 : left_ns / NS_PER_MS + 1;
    return left_ms > 60000 ? 60000 : (int)left_ms;
}

static void take_signals(struct session *session)
{
    struct signalfd_siginfo info;
    while (!session->ended && read(session->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        char reason[64];
        (void)snprintf(reason, sizeof reason, "stopped by %s",
                       info.ssi_signo == SIGINT   ? "SIGINT"
                       : info.ssi_signo == SIGHUP ? "SIGHUP"
                                                  : "SIGTERM");
        send_bye(session, reason);
        end(session);
        if (info.ssi_signo != SIGINT)
            continue;
        (void)error_set(session->err, ERROR_INTERRUPTED, "interrupted");
        session->failed = true;
    }
}

static void sleep_until_something(struct session *session)
{
    struct pollfd files[] = {
        {.fd = session->link.socket_file, .events = POLLIN},
        {.fd = session->link.monitor_file, .events = POLLIN},
        {.fd = engine_bell(session->engine), .events = POLLIN},
        {.fd = session->signals, .events = POLLIN},
    };
    if (!session_link_pending(&session->link))
        (void)poll(files, sizeof files / sizeof files[0], milliseconds_to_sleep(session));
}

static void release(struct session *session)
{
    if (session->refused_frames > 1)
        log_line(LOG_WARNING, "refused %lld frames in all", (long long)session->refused_frames);
    session_link_close(&session->link, session->up ? 300 : 0);
    (void)close(session->signals);
    drop_ready(session);
    outbox_clear(&session->outbox);
    free(session->run);
}

void session_signals(sigset_t *ret)
{
    struct sigaction hangup;
    (void)sigemptyset(ret);
    (void)sigaddset(ret, SIGINT);
    (void)sigaddset(ret, SIGTERM);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* nohup wants none of it */
        (void)sigaddset(ret, SIGHUP);
}

int session_run(const struct session_options *options, struct engine *engine, struct error *err)
{
    struct session session = {.options = options, .engine = engine, .err = err};
    sigset_t signals;
    session_signals(&signals);
    session.signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (session.signals < 0)
        return error_set(err, ERROR_INTERNAL, "cannot listen for signals: %s", strerror(errno));
    session.alone_since_ns = clock_monotonic_ns();
    if (session_link_open(&session.link, options->endpoint, options->keys, err) < 0)
        end_badly(&session);
    while (!session.ended) {
        watch_link(&session);
        take_frames(&session);
        take_reports(&session);
        take_signals(&session);
        if (!session.ended)
            keep_time(&session);
        if (!session.ended)
            sleep_until_something(&session);
    }
    release(&session);
    return session.failed ? -1 : 0;
}

/* ---- the endpoint ---- */

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (strcmp(host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/* "[::1]:7000" or "127.0.0.1:7000" -> its host. */
static int split_host(const char *address, char *host, size_t size)
{
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address || colon[1] == '\0')
        return -1;
    size_t length = (size_t)(colon - address);
    if (address[0] == '[' && length > 2 && address[length - 1] == ']') {
        address++;
        length -= 2;
    }
    if (length >= size || strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5 ||
        strtol(colon + 1, NULL, 10) > 65535)
        return -1;
    memcpy(host, address, length);
    host[length] = '\0';
    return 0;
}

int session_check_endpoint(const char *endpoint, bool has_keys, struct error *err)
{
    char host[256];
    if (strncmp(endpoint, "ipc://", 6) == 0 && endpoint[6] != '\0')
        return 0;
    if (strncmp(endpoint, "tcp://", 6) != 0 || split_host(endpoint + 6, host, sizeof host) < 0)
        return error_set(err, ERROR_USAGE,
                         "'%s' is no endpoint (examples: tcp://127.0.0.1:5555, ipc:///tmp/corefan)",
                         endpoint);
    if (!has_keys && !is_loopback(host))
        return error_set(err, ERROR_USAGE,
                         "'%s' lies beyond loopback, where only keys protect the connection: give --key and "
                         "--coordinator-key (corefan keygen)",
                         endpoint);
    return 0;
}
