/* session.h: the worker's side of the protocol (proto/SPEC.md), and the only place of the worker that knows
 * ZeroMQ.
 *
 * The session owns a DEALER socket and sleeps in poll(2) on four files: the socket's, its monitor's, the
 * engine's bell and a signalfd.  It greets, hands slices and goes to the engine, sends back what the engine
 * reports, and keeps every result part until it is acknowledged, over reconnections too.  It never looks at a
 * round's figures.
 *
 * While a slice is prepared or measured nothing may take CPU from the measured thread.  With housekeeping
 * CPUs of its own the session sends heartbeats all along; without, it sleeps until the engine reports, and
 * heartbeats go out between rounds, when the engine holds still.
 *
 * Threads: session_run on the thread that is to be the session; session_signals must be blocked in all
 * threads.  ZeroMQ's own thread inherits the CPUs of the calling one. */
#ifndef COREFAN_WORKER_SESSION_H
#define COREFAN_WORKER_SESSION_H

#include "base/error.h"
#include "base/keys.h"
#include "proto/wire.h"
#include "worker/engine.h"

#include <signal.h>
#include <stdint.h>

struct session_keys {
    struct key_pair own;
    char coordinator[KEYS_TEXT_BYTES]; /* its public key */
};

struct session_options {
    const char *endpoint;            /* where the coordinator listens */
    const struct session_keys *keys; /* NULL: in the clear */
    int64_t patience_ns;             /* how long to wait for a coordinator that is not there, or is lost */
    struct wire_hello hello;         /* what to say of this worker; texts stay the caller's */
};

/* Without keys loopback and ipc only: nothing on the wire is encrypted then.  0, or -1 with what is wrong. */
int session_check_endpoint(const char *endpoint, bool has_keys, struct error *err);

/* The signals that end a session.  To be blocked in all threads, before there are any. */
void session_signals(sigset_t *ret);

/* Until the coordinator says bye, or SIGTERM (both 0), or -1: ERROR_INTERRUPTED after SIGINT; ERROR_USAGE
 * when the coordinator refuses this worker; ERROR_INTERNAL when it stays away for longer than patience_ns.
 * The engine is left as it is, perhaps at work. */
int session_run(const struct session_options *options, struct engine *engine, struct error *err);

#endif
