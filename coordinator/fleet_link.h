/* fleet_link.h: the coordinator's ROUTER socket, and nothing of what is said over it.
 *
 * Its file descriptor is edge-triggered: after it was readable, and after every send, receive until there is
 * nothing left.  Sends never block: a peer that does not drain its queue, or is gone, is reported as unreachable.
 * Limits: frames of WIRE_MAX_FRAME_BYTES, LINK_QUEUE_FRAMES queued per peer and direction, a bounded linger.
 * Threads: one.  Ownership: link_close frees it. */
#ifndef COREFAN_COORDINATOR_FLEET_LINK_H
#define COREFAN_COORDINATOR_FLEET_LINK_H

#include "base/error.h"
#include "coordinator/fleet_keys.h"
#include "proto/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINK_QUEUE_FRAMES 64
#define LINK_LINGER_MS    200

struct link;

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
