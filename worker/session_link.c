#include "worker/session_link.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

static const char monitor_endpoint[] = "inproc://monitor";

struct socket_option {
    int name, value;
};

static const struct socket_option dealer_options[] = {
    {ZMQ_IMMEDIATE, 1}, {ZMQ_LINGER, 0},          {ZMQ_SNDHWM, 0},
    {ZMQ_RCVHWM, 0},    {ZMQ_RECONNECT_IVL, 100}, {ZMQ_RECONNECT_IVL_MAX, 1000},
    {ZMQ_IPV6, 1},      {ZMQ_SNDTIMEO, 0},
};

static int set_options(void *socket)
{
    /* ZeroMQ cuts the connection at a longer frame, and does not mend it then.  So what is merely too long for
     * the protocol comes through and is refused there, by name. */
    int64_t most_bytes = 16 * (int64_t)WIRE_MAX_FRAME_BYTES;
    for (size_t i = 0; i < sizeof dealer_options / sizeof dealer_options[0]; i++)
        if (zmq_setsockopt(socket, dealer_options[i].name, &dealer_options[i].value, sizeof(int)) < 0)
            return -1;
    return zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most_bytes, sizeof most_bytes);
}

static int file_of(void *socket)
{
    int file = -1;
    size_t size = sizeof file;
    (void)zmq_getsockopt(socket, ZMQ_FD, &file, &size);
    return file;
}

static int lock_socket(void *socket, const struct session_keys *keys)
{
    return zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, keys->coordinator, KEYS_TEXT_BYTES) |
           zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, keys->own.public_key, KEYS_TEXT_BYTES) |
           zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keys->own.secret_key, KEYS_TEXT_BYTES);
}

static int open_sockets(struct session_link *link, const struct session_keys *keys)
{
    if (!(link->context = zmq_ctx_new()) || !(link->socket = zmq_socket(link->context, ZMQ_DEALER)) ||
        !(link->monitor = zmq_socket(link->context, ZMQ_PAIR)) || set_options(link->socket) < 0 ||
        (keys && lock_socket(link->socket, keys) != 0) ||
        zmq_socket_monitor(link->socket, monitor_endpoint,
                           ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                               ZMQ_EVENT_DISCONNECTED) < 0)
        return -1;
    link->socket_file = file_of(link->socket);
    link->monitor_file = file_of(link->monitor);
    return zmq_connect(link->monitor, monitor_endpoint);
}

int session_link_open(struct session_link *link, const char *endpoint, const struct session_keys *keys,
                      struct error *err)
{
    *link = (struct session_link){0};
    if (open_sockets(link, keys) < 0)
        (void)error_set(err, ERROR_INTERNAL, "cannot make a ZeroMQ socket: %s", zmq_strerror(errno));
    else if (zmq_connect(link->socket, endpoint) < 0)
        (void)error_set(err, ERROR_USAGE, "cannot connect to '%s': %s", endpoint, zmq_strerror(errno));
    else
        return 0;
    session_link_close(link, 0);
    return -1;
}

void session_link_close(struct session_link *link, int linger_ms)
{
    if (link->monitor)
        (void)zmq_close(link->monitor);
    if (link->socket) {
        (void)zmq_setsockopt(link->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
        (void)zmq_close(link->socket);
    }
    if (link->context)
        (void)zmq_ctx_term(link->context);
    *link = (struct session_link){0};
}

/* Receives one frame; false when none waits.  *ret_more: another one of the same message follows. */
static bool take_frame(void *socket, struct wire_bytes *ret, bool *ret_more)
{
    zmq_msg_t message;
    (void)zmq_msg_init(&message);
    int got = zmq_msg_recv(&message, socket, ZMQ_DONTWAIT);
    if (got >= 0) {
        size_t size = zmq_msg_size(&message);
        ret->data = memory_zeroed(size, 1);
        ret->size = size;
        if (size > 0)
            memcpy(ret->data, zmq_msg_data(&message), size);
        *ret_more = zmq_msg_more(&message);
    }
    (void)zmq_msg_close(&message);
    return got >= 0;
}

/* The first frame of a message; what follows it is dropped.  *ret_several: something did. */
static bool take_message(void *socket, struct wire_bytes *ret, bool *ret_several)
{
    struct wire_bytes rest;
    bool more = false;
    if (!take_frame(socket, ret, &more))
        return false;
    *ret_several = more;
    while (more && take_frame(socket, &rest, &more))
        free(rest.data);
    return true;
}

enum session_link_change session_link_watch(struct session_link *link)
{
    struct wire_bytes event;
    uint16_t number;
    bool several;
    for (;;) {
        if (!take_message(link->monitor, &event, &several))
            return LINK_SAME;
        number = 0;
        if (event.size >= sizeof number)
            memcpy(&number, event.data, sizeof number);
        free(event.data);
        if (number == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
            return LINK_UP;
        if (number == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
            return LINK_REFUSED;
        if (number == ZMQ_EVENT_DISCONNECTED)
            return LINK_DOWN;
    }
}

static int events_of(void *socket)
{
    int events = 0;
    size_t size = sizeof events;
    (void)zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size);
    return events;
}

bool session_link_send(struct session_link *link, const void *data, size_t size)
{
    /* Asking for events makes ZeroMQ take note of a connection that came up a moment ago. */
    return (events_of(link->socket) & ZMQ_POLLOUT) &&
           zmq_send(link->socket, data, size, ZMQ_DONTWAIT) == (int)size;
}

enum session_link_receipt session_link_receive(struct session_link *link, struct wire_bytes *ret)
{
    struct wire_bytes frame;
    bool several = false;
    if (!take_message(link->socket, &frame, &several))
        return LINK_NOTHING;
    if (several) {
        free(frame.data);
        return LINK_SEVERAL_FRAMES;
    }
    *ret = frame;
    return LINK_FRAME;
}

bool session_link_pending(struct session_link *link)
{
    return (events_of(link->socket) & ZMQ_POLLIN) || (events_of(link->monitor) & ZMQ_POLLIN);
}

char *session_link_version(char *buf, size_t size)
{
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    (void)snprintf(buf, size, "%d.%d.%d", major, minor, patch);
    return buf;
}
