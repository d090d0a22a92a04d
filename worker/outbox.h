/* outbox.h: encoded result parts that the coordinator has not acknowledged, in the order in which they were
 * made.
 *
 * A part stays here until its ack, whatever happens to the connection, and is sent again after each new one.
 * Threads: the session's. */
#ifndef COREFAN_WORKER_OUTBOX_H
#define COREFAN_WORKER_OUTBOX_H

#include "proto/wire.h"

#include <stdbool.h>
#include <stddef.h>

struct outbox_part {
    struct outbox_part *next;
    struct wire_ack key; /* the ack that it waits for */
    struct wire_bytes frame;
};

struct outbox { /* zeroed = empty */
    struct outbox_part *first;
    size_t count;
};

/* Takes over the frame. */
void outbox_add(struct outbox *outbox, const struct wire_ack *key, struct wire_bytes frame);

/* false: no such part, which is fine: acks may come twice. */
bool outbox_acknowledge(struct outbox *outbox, const struct wire_ack *key);

/* Forgets the parts of this attempt. */
void outbox_drop(struct outbox *outbox, int64_t group, int64_t attempt);

void outbox_clear(struct outbox *outbox);

#endif
