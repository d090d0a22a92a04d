/* wire.h: bytes <-> structs of the corefan protocol.  proto/SPEC.md is the law; this is its C form.
 *
 * One ZeroMQ frame = one msgpack map with string keys, among them `type` (text) and `v` ([major, minor]).
 * This module knows no sockets, no clocks and no policy.  It is pure: any thread, each message one owner.
 *
 * Units: every *_ns is ns as a signed 64-bit integer.  WIRE_NULL in an integer field is msgpack nil: "not
 * known here". Text is UTF-8 without NUL, owned by the message; NULL text is nil.
 *
 * Decoding walks the frame before it is unpacked: declared counts must fit the bytes that are left, depth <=
 * 8, size limits per type.  Unknown keys are ignored; a missing or mistyped required key is an error that
 * names it. */
#ifndef COREFAN_PROTO_WIRE_H
#define COREFAN_PROTO_WIRE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAJOR 1
#define WIRE_MINOR 0
#define WIRE_NULL  INT64_MIN

#define WIRE_MAX_DEPTH       8
#define WIRE_MAX_FRAME_BYTES (4u << 20) /* result; every other type is at most 1 MiB, hello 64 KiB */
#define WIRE_MAX_TEXT_BYTES  4096u
#define WIRE_MAX_ROUNDS      1024u /* rounds in one result frame; more go in further parts */
#define WIRE_MAX_CELLS       1024u /* in one slice */

#define WIRE_TYPES(X)                                                                                        \
    X(HELLO, hello)                                                                                          \
    X(WELCOME, welcome)                                                                                      \
    X(REJECT, reject)                                                                                        \
    X(ASSIGN, assign)                                                                                        \
    X(READY, ready)                                                                                          \
    X(GO, go)                                                                                                \
    X(HEARTBEAT, heartbeat)                                                                                  \
    X(RESULT, result)                                                                                        \
    X(ACK, ack)                                                                                              \
    X(ABORT, abort)                                                                                          \
    X(BYE, bye)

enum wire_type {
#define X(upper, lower) WIRE_##upper,
    WIRE_TYPES(X)
#undef X
        WIRE_TYPE_COUNT
};

struct wire_texts { /* an array of text */
    char **at;
    size_t count;
};

struct wire_pair { /* name -> value, both text */
    char *name;
    char *value;
};

struct wire_pairs {
    struct wire_pair *at;
    size_t count;
};

/* worker -> coordinator, first frame and again after every reconnection */
struct wire_hello {
    char *instance; /* 32 hex digits drawn at random at start: who this process is, for its whole life */
    char *runtime;  /* "libuv", "asyncio", "uvloop", or another kind */
    char *label;    /* what the report calls it; equals runtime unless told otherwise */
    char *host;
    char *boot_id; /* /proc/sys/kernel/random/boot_id: workers with the same one share a monotonic clock */
    int64_t pid;
    int64_t slot; /* the launcher's number for this place, nil when started by hand */
    int64_t cpu;  /* logical CPU that the measured thread is pinned to, nil when it is not */
    int64_t package, numa, core, l3; /* topology of that CPU, os indexes, nil when not known */
    struct wire_pairs versions;      /* "corefan": ..., "libuv": ..., "kernel": ... */
    struct wire_texts arms;
    struct wire_texts jobs;
    int64_t wall_clock_cost_ps, cpu_clock_cost_ps; /* one read, in ps */
    int64_t timer_overshoot_p50_ns; /* noise floor: bare timerfd waits of 1 ms; nil if not probed */
    int64_t timer_overshoot_max_ns;
    int64_t spin_gap_max_ns; /* noise floor: largest gap seen by a 10 ms spin; nil if not probed */
    bool busy_heartbeats;    /* true: heartbeats come also while a slice is measured (a housekeeping CPU is
                                there) */
};

struct wire_welcome {
    int64_t worker;       /* number of this worker in the run */
    char *run;            /* id of the run */
    int64_t heartbeat_ns; /* how often to send one */
};

struct wire_reject {
    char *reason;
};

/* `fail` of a sweep: which children do not end well */
struct wire_fail {
    bool present;
    int64_t children; /* the first k in input order; 0 when fraction decides */
    double fraction;  /* of children, drawn per round from the seed */
    int64_t at_ns;    /* when they end, from their own start */
    char *outcome;    /* "fail" | "cancel" */
    char *on_cancel;  /* of every child: "propagate" | "suppress" | "cleanup" */
    int64_t cleanup_ns;
};

/* `stall` of a sweep: children that hold the loop with CPU before they wait */
struct wire_stall {
    bool present;
    int64_t children;
    int64_t cpu_ns;
};

/* One cell as a worker sees it */
struct wire_cell {
    int64_t cell; /* number in the plan; rounds name it */
    char *arm;    /* "sequential" ... or "empty": the harness alone */
    char *job;    /* kind */
    int64_t fanout;
    int64_t delay_ns;    /* wait of a child; for cpu: the burn; 0 for noop */
    char *wait;          /* "timerfd" | "uv_timer" */
    int64_t clients;     /* concurrent fan-outs */
    char *phase;         /* "together" | "staggered" */
    double rate_per_s;   /* open loop; 0 = closed */
    char *arrivals;      /* "poisson" | "fixed": of an open loop */
    int64_t duration_ns; /* of a window; 0 = one fan-out (or L no-wait ones) per round */
    int64_t warmup;      /* rounds at least */
    int64_t timeout_ns;  /* per fan-out; 0 = none */
    bool calibrated;     /* too short to time alone: the worker finds L and times L fan-outs a round */
    char *gc;            /* "on" | "off" | "freeze" | nil; runtimes without a collector ignore it */
    struct wire_fail fail;
    struct wire_stall stall;
    struct wire_pairs params; /* further keys of the job by name (tcp: target, size ...) */
};

/* coordinator -> worker: one runtime's slice of a group.  The worker prepares (slabs, calibration, warm-up),
 * then answers with ready.  A new assign replaces an older one. */
struct wire_assign {
    int64_t group;
    int64_t attempt;
    int64_t lease_ns; /* longest time from assign to ready, and from a go to the last part of its result */
    int64_t seed; /* order of cells in block b: shuffle with stream b of this seed (SPEC.md); any 64 bits */
    int64_t blocks;
    int64_t gang; /* workers that run it at the same time */
    struct wire_cell *cells;
    size_t cell_count;
};

struct wire_prepared {
    int64_t cell;
    int64_t loops;           /* L, 1 when not calibrated */
    int64_t warmups;         /* rounds thrown away */
    int64_t warmup_ns;       /* wall time of them */
    int64_t calibration_ns;  /* wall time of calibration */
    struct wire_texts flags; /* "calibration_unstable", "warmup_unconverged" */
};

struct wire_ready {
    int64_t group, attempt;
    struct wire_prepared *cells;
    size_t cell_count;
    char *error; /* the slice cannot be run here: why; nil otherwise */
};

struct wire_go {
    int64_t group, attempt;
    int64_t go;          /* number of this turn within the attempt, from 0 */
    int64_t first_block; /* from 0 */
    int64_t blocks;
    int64_t cell;        /* one cell only, or nil for all in shuffled order */
    int64_t start_at_ns; /* CLOCK_MONOTONIC of the host with boot_id; nil = at once */
};

struct wire_heartbeat {
    int64_t group, attempt; /* nil when idle */
    int64_t rounds_done;    /* within the go in progress */
    char *state;            /* "idle" | "preparing" | "ready" | "measuring" */
};

/* log-linear histogram of ns: see SPEC.md for the bucket rule */
struct wire_histogram {
    bool present;
    int64_t significant_digits, lowest_ns, highest_ns;
    int64_t overflow;
    int64_t *counts; /* pairs: bucket index, count; ascending */
    size_t pair_count;
};

/* One round, every raw value.  Totals are over the `fanouts` fan-outs of the round.  start, wall, cpu and fanouts
 * are nil only where `error` says why. */
#define WIRE_ROUND_INTEGERS(X)                                                                               \
    X(cell)                                                                                                  \
    X(block)                                                                                                 \
    X(position)          /* order within the block, from 0 */                                                \
    X(intended_start_ns) /* nil unless a start was set */                                                    \
    X(start_ns)          /* CLOCK_MONOTONIC */                                                               \
    X(wall_ns)                                                                                               \
    X(cpu_ns)           /* thread CPU of the measured thread */                                              \
    X(fanouts)          /* L, 1, or the completions of a window */                                           \
    X(wakeups)          /* returns from a poll that could block */                                           \
    X(max_in_flight)    /* per fan-out: children created and not done */                                     \
    X(early)            /* waits that ended before their deadline */                                         \
    X(overshoot_min_ns) /* per wait, signed; nil without waits */                                            \
    X(overshoot_p50_ns)                                                                                      \
    X(overshoot_max_ns)                                                                                      \
    X(switches_voluntary)                                                                                    \
    X(switches_involuntary)                                                                                  \
    X(faults_minor)                                                                                          \
    X(faults_major)                                                                                          \
    X(runq_ns)   /* run-queue delay from schedstat; nil where it cannot be read */                           \
    X(cpu_start) /* logical CPU at start and end */                                                          \
    X(cpu_end)                                                                                               \
    X(throttles) /* periods in which the control group's quota ran out; nil without a quota */               \
    X(throttled_ns)                                                                                          \
    X(steal_ticks)         /* of the measured CPU, over the rounds of this block in this go */               \
    X(frequency_start_khz) /* of the measured CPU; nil without cpufreq */                                    \
    X(frequency_end_khz)                                                                                     \
    X(cycles) /* nil without a PMU */                                                                        \
    X(instructions)                                                                                          \
    X(gc_runs)                /* nil without a collector */                                                  \
    X(time_to_error_ns)       /* nil unless the arm returned an error */                                     \
    X(wasted_cpu_ns)          /* CPU spent on the fan-out after its arm returned; nil unless failures ran */ \
    X(drain_ns)               /* from the arm's return to the end of its last child */                       \
    X(orphans)                /* children not done when the arm returned */                                  \
    X(errors_seen)            /* errors that reached the caller */                                           \
    X(errors_lost)            /* errors that nobody was given */                                             \
    X(stall_overshoot_p50_ns) /* overshoot of the sleepers beside stalling children */                       \
    X(launch_ns)  /* windows: when the first fan-out was launched; nil else, like what follows */            \
    X(children)   /* that ended in the window */                                                             \
    X(busy_ticks) /* of the measured CPU */                                                                  \
    X(offered)    /* open loop: starts that were intended */                                                 \
    X(skipped)    /* for want of room */                                                                     \
    X(unfinished)                                                                                            \
    X(lag_p50_ns) /* actual minus intended start */                                                          \
    X(lag_max_ns)

struct wire_round {
#define X(name) int64_t name;
    WIRE_ROUND_INTEGERS(X)
#undef X
    char *error; /* why this round is not a number (broken proof, early wait); nil when it is fine */
    struct wire_histogram latency;          /* windows: per fan-out from the actual start */
    struct wire_histogram latency_intended; /* open loop: from the intended start */
};

struct wire_result {
    int64_t group, attempt, go;
    int64_t part; /* from 0; all parts of a go are acknowledged after the last one came */
    bool last;    /* the go is done with this part */
    struct wire_round *rounds;
    size_t round_count;
    char *error; /* the go could not be finished: why; nil otherwise.  In the last part only */
};

struct wire_ack {
    int64_t group, attempt, go, part;
};

struct wire_abort {
    int64_t group, attempt;
    char *reason;
    bool keep; /* what was measured still counts */
};

struct wire_bye {
    char *reason;
};

struct wire_message {
    enum wire_type type;
    int64_t major, minor; /* of the sender; wire_encode writes ours */
    union {
#define X(upper, lower) struct wire_##lower lower;
        WIRE_TYPES(X)
#undef X
    };
    void *arena; /* owns all text and arrays of a decoded message; NULL for one that was built by hand */
};

struct wire_bytes {
    char *data;
    size_t size;
};

/* "hello" for WIRE_HELLO; NULL for no type. */
const char *wire_type_name(enum wire_type type);

/* Sets every integer of a round to WIRE_NULL and all else to absent. */
void wire_round_init(struct wire_round *round);

/* Message -> bytes.  *ret is owned by the caller: free(ret->data).  -1: a text too long or too many entries.
 */
int wire_encode(const struct wire_message *message, struct wire_bytes *ret, struct error *err);

/* Bytes -> message.  0: *ret is owned by the caller, wire_release it.  -1: *ret untouched, err names what and
 * where. A frame of another major version decodes only as far as `type` and `v` and fails with the text
 * "protocol 2.0 of the peer is not 1.x"; wire_peek_version tells the two numbers apart from damage. */
int wire_decode(const void *data, size_t size, struct wire_message *ret, struct error *err);

/* The version that a well-formed frame carries, whatever else is in it.  -1 when there is none. */
int wire_peek_version(const void *data, size_t size, int64_t *ret_major, int64_t *ret_minor);

/* The bucket that a value belongs to, for 0 <= ns <= highest_ns (above it is overflow, below 0 counts as 0),
 * and the smallest ns of a bucket.  Reads only significant_digits (1..5) and lowest_ns (>= 1).  SPEC.md,
 * "Histograms". */
int64_t wire_histogram_index(const struct wire_histogram *histogram, int64_t ns);
int64_t wire_histogram_lower_ns(const struct wire_histogram *histogram, int64_t index);

/* Frees what decoding allocated; fine on a zeroed message and twice. */
void wire_release(struct wire_message *message);

#endif
