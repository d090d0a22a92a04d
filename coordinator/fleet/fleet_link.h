/* fleet_link.h: the coordinator's ROUTER socket, and nothing of what is said over it.
 *
 * Its file descriptor is edge-triggered: after it was readable, and after every send, receive until there is
 * nothing left.  Sends never block: a peer that does not drain its queue, or is gone, is reported as unreachable.
 * Limits: frames of WIRE_MAX_FRAME_BYTES, LINK_QUEUE_FRAMES queued per peer and direction, a bounded linger.
 * Threads: one, beside the door's own.  Ownership: link_close frees it. */
#ifndef COREFAN_COORDINATOR_FLEET_LINK_H
#define COREFAN_COORDINATOR_FLEET_LINK_H

#include "base/error.h"
#include "base/keys.h"
#include "proto/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINK_QUEUE_FRAMES 64
#define LINK_LINGER_MS    200

struct link;

/* Who may connect: CURVE (ZeroMQ RFC 26) with a directory of public keys, asked through ZAP (RFC 27).  Every connection must
 * prove that it holds the secret of a key in the directory, or our own (local workers).  The directory is read at each
 * connection, so a key can be added or taken away while a run goes on.  What is refused is counted and told at most once a
 * minute. */
struct door_config {
    struct key_pair own;
    const char *directory; /* NULL: nobody but our own workers */
};

/* A fresh pair.  -1: ZeroMQ was built without CURVE. */
int link_draw_keys(struct key_pair *ret, struct error *err);

struct link_config {
    const struct door_config *door; /* NULL: whoever can reach the address is let in */
    const char *listen;             /* checked by endpoint_check; NULL: an ipc socket in a private directory;
                                    those of coordinators that were killed are removed then */
    const int64_t *housekeeping;    /* CPUs of ZeroMQ's own thread; none: it runs anywhere */
    size_t housekeeping_count;
};

/* -1: ERROR_USAGE when the address cannot be had. */
int link_open(const struct link_config *config, struct link **ret, struct error *err);

/* Sends what is queued for up to LINK_LINGER_MS, removes the private directory.  NULL is fine. */
void link_close(struct link *link);

/* Where to connect to, as it was bound: with the port that was chosen. */
const char *link_endpoint(const struct link *link);

int link_fd(const struct link *link);

struct link_frame {
    unsigned char identity[255];
    size_t identity_bytes;
    char key[KEYS_TEXT_BYTES]; /* that the peer has proved to hold; "" without a door */
    const void *data;          /* until the next call */
    size_t size;
    bool several; /* the message had more frames than one; data is the first */
};

/* false: nothing there now. */
bool link_receive(struct link *link, struct link_frame *ret);

/* 0, or -1 when the peer cannot be reached; *ret_why is a constant clause. */
int link_send(struct link *link, const void *identity, size_t identity_bytes, const void *data, size_t size,
              const char **ret_why);

#endif
