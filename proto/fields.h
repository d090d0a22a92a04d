/* fields.h: every message as a table of its fields, read by the encoder and by the decoder alike.
 *
 * A field says under which key it travels, where it lies in its struct, what it may hold, and what stands for
 * it when its key is absent.  Private to proto/; const data, any thread. */
#ifndef COREFAN_PROTO_FIELDS_H
#define COREFAN_PROTO_FIELDS_H

#include "proto/wire.h"

enum field_kind {
    FIELD_INTEGER, /* int64_t; low..high; WIRE_NULL <-> nil */
    FIELD_BITS,    /* int64_t in C, 0..2^64-1 on the wire */
    FIELD_REAL,    /* double; low..high; integers are read too */
    FIELD_FLAG,    /* bool */
    FIELD_TEXT,    /* char *; low..high bytes; one of words when there are some */
    FIELD_TEXTS,   /* struct wire_texts: low..high names */
    FIELD_PAIRS,   /* struct wire_pairs: low..high pairs, a map on the wire */
    FIELD_MAP,     /* a nested struct whose first member is `bool present`; absent <-> nil */
    FIELD_MAPS,    /* pointer and count: low..high nested structs */
    FIELD_COUNTS,  /* pointer and count of pairs: low..high pairs of integers, flat on the wire */
    FIELD_KIND_COUNT
};

struct shape;

struct field {
    const char *key;
    enum field_kind kind;
    bool required; /* else absent and nil both mean the fallback */
    size_t offset;
    size_t count_offset; /* MAPS, COUNTS */
    int64_t low, high;
    int64_t fallback;           /* INTEGER, REAL, FLAG */
    const char *fallback_text;  /* TEXT; NULL = nil */
    const char *const *words;   /* TEXT: NULL-terminated, or NULL for any text */
    const struct shape *nested; /* MAP, MAPS */
};

struct shape {
    const struct field *fields;
    size_t field_count;
    size_t size;                                     /* of the struct */
    int (*check)(const void *of, struct error *err); /* what ties fields together; may be NULL */
};

struct message_rule {
    struct shape shape;
    size_t most_bytes; /* of a frame of this type */
};

extern const struct message_rule message_rules[WIRE_TYPE_COUNT];

#endif
