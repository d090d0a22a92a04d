/* frame.h: is this frame well-formed?  Answered by walking its bytes, before anything is allocated for them.
 *
 * Five bytes (0xdd ff ff ff ff) make msgpack-c reserve gigabytes, so no frame reaches it that has not passed
 * here. The rules are those of SPEC.md, "Well-formed frames".  Pure: no memory is held, any thread. */
#ifndef COREFAN_PROTO_FRAME_H
#define COREFAN_PROTO_FRAME_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAX_VALUES    (1u << 20) /* in one frame, keys and containers counted too */
#define FRAME_MAX_MAP_KEYS  128u
#define FRAME_MAX_KEY_BYTES 128u

struct frame_head {
    const char *type; /* points into the frame; NULL when the frame has no text under `type` */
    size_t type_bytes;
    bool versioned; /* `v` is [major, minor] */
    int64_t major, minor;
};

/* 0: the whole frame is well-formed and *ret holds its head.  -1: *ret untouched, err says what and at which
 * byte. */
int frame_walk(const void *data, size_t size, struct frame_head *ret, struct error *err);

/* NULL when these bytes may be a text of the protocol, else a clause: "is not UTF-8", "holds NUL", "is too
 * long". */
const char *frame_text_fault(const char *text, size_t bytes, size_t most_bytes);

/* The same for a name, which holds no control characters either, so that it can stand in a line for people.
 */
const char *frame_name_fault(const char *text, size_t bytes, size_t most_bytes);

#endif
