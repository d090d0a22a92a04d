/* session_link.h: the DEALER socket of a session, and whether anybody is at its other end.
 *
 * ZeroMQ reconnects by itself and tells nobody; the socket's monitor does.  ZMQ_IMMEDIATE keeps it from
 * queueing for a coordinator that is not there, so what could not be sent is known.  ZeroMQ's files are edge-
 * triggered: after any call, session_link_pending must be false before the owner may sleep on them.
 *
 * Threads: the session's. */
#ifndef COREFAN_WORKER_SESSION_LINK_H
#define COREFAN_WORKER_SESSION_LINK_H

#include "base/error.h"
#include "proto/wire.h"
#include "worker/session.h"

#include <stdbool.h>
#include <stddef.h>

struct session_link { /* zeroed = closed */
    void *context, *socket, *monitor;
    int socket_file, monitor_file; /* poll them for reading */
};

/* Starts to connect; the other side need not be there.  -1: the endpoint is no endpoint.  keys: NULL, or
 * what both sides must prove to hold (CURVE, ZeroMQ RFC 26). */
int session_link_open(struct session_link *link, const char *endpoint, const struct session_keys *keys,
                      struct error *err);

/* Gives frames on their way up to linger_ms. */
void session_link_close(struct session_link *link, int linger_ms);

/* LINK_REFUSED: our key is not let in. */
enum session_link_change { LINK_SAME, LINK_UP, LINK_DOWN, LINK_REFUSED };

/* The next thing that happened to the connection; call until LINK_SAME. */
enum session_link_change session_link_watch(struct session_link *link);

/* false: nobody is there to take it. */
bool session_link_send(struct session_link *link, const void *data, size_t size);

enum session_link_receipt { LINK_NOTHING, LINK_FRAME, LINK_SEVERAL_FRAMES };

/* LINK_FRAME: *ret is the caller's, free(ret->data).  LINK_SEVERAL_FRAMES: a message that the protocol does
 * not know; it is dropped. */
enum session_link_receipt session_link_receive(struct session_link *link, struct wire_bytes *ret);

/* Whether a frame or a change waits to be taken. */
bool session_link_pending(struct session_link *link);

/* Version of the ZeroMQ library, e.g. "4.3.4". buf has size bytes. */
char *session_link_version(char *buf, size_t size);

#endif
