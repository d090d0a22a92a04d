/* fleet_keys.h: who may connect: CURVE (ZeroMQ RFC 26) with a directory of public keys, asked through ZAP (RFC 27).
 *
 * Every connection must prove that it holds the secret of a key in the directory, or the coordinator's own (its local
 * workers).  The directory is read at each connection, so a key can be added or taken away while a run goes on.  What is
 * refused is counted and told at most once a minute.
 *
 * Threads: a door has one of its own, which sleeps until somebody knocks.  Ownership: door_close. */
#ifndef COREFAN_COORDINATOR_FLEET_KEYS_H
#define COREFAN_COORDINATOR_FLEET_KEYS_H

#include "base/error.h"
#include "base/keys.h"

#include <stdint.h>

struct door;

struct door_config {
    struct key_pair own;
    const char *directory; /* NULL: nobody but our own workers */
};

/* A fresh pair.  -1: ZeroMQ was built without CURVE. */
int fleet_keys_draw(struct key_pair *ret, struct error *err);

/* Locks `socket` (a ROUTER of `context` that is not bound yet) and keeps its door. */
int door_open(void *context, void *socket, const struct door_config *config, struct door **ret,
              struct error *err);

int64_t door_refused(const struct door *door); /* NULL: 0 */

/* The socket is closed already.  Shuts the context down.  NULL is fine. */
void door_close(struct door *door);

#endif
