/* endpoint.h: where a coordinator may listen, checked before a socket is made.
 *
 * Nothing on the wire is encrypted or authenticated without keys, so without them only this host can be let in: ipc
 * sockets and loopback addresses.  Pure but for endpoint_claim, which looks at a socket's path.  Any thread. */
#ifndef COREFAN_COORDINATOR_ENDPOINT_H
#define COREFAN_COORDINATOR_ENDPOINT_H

#include "base/error.h"

#include <stdbool.h>

/* Checks what the user gave to --listen: ipc://PATH, or tcp://HOST:PORT with a loopback HOST (127.0.0.0/8, ::1,
 * localhost; with keys any address of this host) and PORT 0..65535 or *.  *ret: what to bind, free() it.  -1 and ERROR_USAGE: one line. */
int endpoint_check(const char *text, bool has_keys, char **ret, struct error *err);

/* For ipc: refuses a path that something else listens at, or that is no socket: binding would remove it. */
int endpoint_claim(const char *endpoint, struct error *err);

#endif
