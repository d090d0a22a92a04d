#include "proto/frame.h"

#include "proto/wire.h"

#include <math.h>
#include <string.h>

enum token_kind {
    TOKEN_REFUSED, /* 0xc1, binary, extension */
    TOKEN_NIL,
    TOKEN_FLAG,
    TOKEN_INTEGER,
    TOKEN_REAL,
    TOKEN_TEXT,
    TOKEN_ARRAY,
    TOKEN_MAP
};

struct token {
    enum token_kind kind;
    bool negative;   /* integers below 0: number is the two's complement */
    uint64_t number; /* value of an integer, length of a text, entries of a container, bits of a real */
    size_t bytes;    /* of a real: 4 or 8 */
    const uint8_t *text;
};

struct walk {
    const uint8_t *start, *at, *end;
    uint32_t values;
    const uint8_t *type, *version; /* where the values of these keys of the outermost map start */
    struct error *err;
};

struct key {
    const uint8_t *text;
    size_t bytes;
};

/* What follows a first byte of 0xc0..0xdf: a big-endian number of this many bytes. */
struct head {
    enum token_kind kind;
    uint8_t bytes;
    bool negative;
};

static const struct head heads[32] = {
    [0x00] = {.kind = TOKEN_NIL},
    [0x02] = {.kind = TOKEN_FLAG},
    [0x03] = {.kind = TOKEN_FLAG},
    [0x0a] = {.kind = TOKEN_REAL, .bytes = 4},
    [0x0b] = {.kind = TOKEN_REAL, .bytes = 8},
    [0x0c] = {.kind = TOKEN_INTEGER, .bytes = 1},
    [0x0d] = {.kind = TOKEN_INTEGER, .bytes = 2},
    [0x0e] = {.kind = TOKEN_INTEGER, .bytes = 4},
    [0x0f] = {.kind = TOKEN_INTEGER, .bytes = 8},
    [0x10] = {.kind = TOKEN_INTEGER, .bytes = 1, .negative = true},
    [0x11] = {.kind = TOKEN_INTEGER, .bytes = 2, .negative = true},
    [0x12] = {.kind = TOKEN_INTEGER, .bytes = 4, .negative = true},
    [0x13] = {.kind = TOKEN_INTEGER, .bytes = 8, .negative = true},
    [0x19] = {.kind = TOKEN_TEXT, .bytes = 1},
    [0x1a] = {.kind = TOKEN_TEXT, .bytes = 2},
    [0x1b] = {.kind = TOKEN_TEXT, .bytes = 4},
    [0x1c] = {.kind = TOKEN_ARRAY, .bytes = 2},
    [0x1d] = {.kind = TOKEN_ARRAY, .bytes = 4},
    [0x1e] = {.kind = TOKEN_MAP, .bytes = 2},
    [0x1f] = {.kind = TOKEN_MAP, .bytes = 4},
};

static size_t left(const struct walk *walk)
{
    return (size_t)(walk->end - walk->at);
}

static size_t offset(const struct walk *walk)
{
    return (size_t)(walk->at - walk->start);
}

static int refuse(const struct walk *walk, const char *what)
{
    (void)error_set(walk->err, ERROR_INTERNAL, "byte %zu: %s", offset(walk), what);
    return -1;
}

/* The bytes of a UTF-8 sequence that starts with this byte; 0 for a byte that starts none. */
static size_t sequence_bytes(uint8_t first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* Second bytes that would make an overlong form, a surrogate or a number above 0x10ffff. */
static bool second_byte_fits(uint8_t first, uint8_t second)
{
    switch (first) {
    case 0xe0:
        return second >= 0xa0;
    case 0xed:
        return second < 0xa0;
    case 0xf0:
        return second >= 0x90;
    case 0xf4:
        return second < 0x90;
    default:
        return true;
    }
}

static bool is_utf8(const uint8_t *at, size_t bytes)
{
    const uint8_t *end = at + bytes;
    while (at < end) {
        size_t n = sequence_bytes(*at);
        if (n == 0 || n > (size_t)(end - at))
            return false;
        for (size_t i = 1; i < n; i++)
            if ((at[i] & 0xc0) != 0x80)
                return false;
        if (n > 2 && !second_byte_fits(at[0], at[1]))
            return false;
        at += n;
    }
    return true;
}

const char *frame_text_fault(const char *text, size_t bytes, size_t most_bytes)
{
    if (bytes > most_bytes)
        return "is too long";
    if (bytes > 0 && memchr(text, 0, bytes))
        return "holds NUL";
    return is_utf8((const uint8_t *)text, bytes) ? NULL : "is not UTF-8";
}

/* U+0000..U+001F, U+007F..U+009F, in valid UTF-8. */
static bool holds_control(const uint8_t *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] < 0x20 || at[i] == 0x7f || (at[i] == 0xc2 && at[i + 1] < 0xa0))
            return true;
    return false;
}

const char *frame_name_fault(const char *text, size_t bytes, size_t most_bytes)
{
    const char *fault = frame_text_fault(text, bytes, most_bytes);
    if (!fault && holds_control((const uint8_t *)text, bytes))
        return "holds a control character";
    return fault;
}

static struct head head_of(uint8_t first)
{
    static const struct head small = {.kind = TOKEN_INTEGER};
    if (first < 0x80 || first >= 0xe0)
        return small;
    if (first < 0x90)
        return (struct head){.kind = TOKEN_MAP};
    if (first < 0xa0)
        return (struct head){.kind = TOKEN_ARRAY};
    if (first < 0xc0)
        return (struct head){.kind = TOKEN_TEXT};
    return heads[first - 0xc0];
}

/* The number that the first byte itself holds, for heads without further bytes. */
static uint64_t number_within(uint8_t first)
{
    if (first < 0x80)
        return first;
    if (first < 0xa0)
        return first & 0x0f;
    if (first < 0xc0)
        return first & 0x1f;
    return first < 0xe0 ? first & 1 : (uint64_t)(int64_t)(int8_t)first;
}

static uint64_t big_endian(const uint8_t *at, size_t bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; i++)
        number = number << 8 | at[i];
    return number;
}

/* Reads one head, and the text that belongs to it. */
static int read_token(struct walk *walk, struct token *ret)
{
    if (left(walk) == 0)
        return refuse(walk, "truncated");
    uint8_t first = *walk->at;
    struct head head = head_of(first);
    if (head.kind == TOKEN_REFUSED)
        return refuse(walk, "a binary, extension or reserved type");
    if (left(walk) - 1 < head.bytes)
        return refuse(walk, "truncated");

    struct token token = {.kind = head.kind, .bytes = head.bytes};
    token.number = head.bytes ? big_endian(walk->at + 1, head.bytes) : number_within(first);
    if (head.negative) {
        unsigned unused_bits = 64 - 8u * head.bytes;
        token.number = (uint64_t)((int64_t)(token.number << unused_bits) >> unused_bits);
        token.negative = (int64_t)token.number < 0;
    } else if (first >= 0xe0) {
        token.negative = true;
    }
    walk->at += 1 + head.bytes;
    if (token.kind == TOKEN_TEXT) {
        if (token.number > left(walk))
            return refuse(walk, "truncated");
        token.text = walk->at;
        walk->at += token.number;
    }
    *ret = token;
    return 0;
}

static bool is_finite(const struct token *token)
{
    if (token->bytes == 4) {
        float real;
        uint32_t bits = (uint32_t)token->number;
        memcpy(&real, &bits, sizeof real);
        return isfinite(real);
    }
    double real;
    memcpy(&real, &token->number, sizeof real);
    return isfinite(real);
}

static int check_text(const struct walk *walk, const struct token *token, const char *fault)
{
    if (fault)
        return error_set(walk->err, ERROR_INTERNAL, "byte %zu: text %s", (size_t)(token->text - walk->start),
                         fault);
    return 0;
}

/* Every entry takes at least one byte, an entry of a map two: more than what is left cannot be there. */
static int check_count(struct walk *walk, const struct token *token, uint64_t bytes_each)
{
    if (token->number > left(walk) / bytes_each)
        return error_set(walk->err, ERROR_INTERNAL, "byte %zu: %llu entries declared with %zu bytes left",
                         offset(walk), (unsigned long long)token->number, left(walk));
    return 0;
}

static int read_key(struct walk *walk, struct key *ret)
{
    struct token token = {0};
    if (read_token(walk, &token) < 0)
        return -1;
    if (token.kind != TOKEN_TEXT)
        return refuse(walk, "a map key is not text");
    if (check_text(walk, &token,
                   frame_name_fault((const char *)token.text, token.number, FRAME_MAX_KEY_BYTES)) < 0)
        return -1;
    *ret = (struct key){.text = token.text, .bytes = token.number};
    walk->values++;
    return 0;
}

/* Linear in the keys before it, of which there are 127 at most. */
static int check_new(const struct walk *walk, const struct key *keys, size_t known, const struct key *key)
{
    for (size_t i = 0; i < known; i++)
        if (keys[i].bytes == key->bytes && memcmp(keys[i].text, key->text, key->bytes) == 0)
            return error_set(walk->err, ERROR_INTERNAL, "byte %zu: key '%.*s' appears twice",
                             (size_t)(key->text - walk->start), (int)key->bytes, (const char *)key->text);
    return 0;
}

static bool key_is(const struct key *key, const char *name)
{
    return key->bytes == strlen(name) && memcmp(key->text, name, key->bytes) == 0;
}

static int walk_value(struct walk *walk, unsigned depth);

static int walk_map(struct walk *walk, const struct token *map, unsigned depth)
{
    struct key keys[FRAME_MAX_MAP_KEYS];
    if (check_count(walk, map, 2) < 0)
        return -1;
    if (map->number > FRAME_MAX_MAP_KEYS)
        return refuse(walk, "a map of more than 128 keys");
    for (size_t i = 0; i < map->number; i++) {
        struct key key = {0};
        if (read_key(walk, &key) < 0 || check_new(walk, keys, i, &key) < 0)
            return -1;
        keys[i] = key;
        if (depth == 1 && key_is(&key, "type"))
            walk->type = walk->at;
        if (depth == 1 && key_is(&key, "v"))
            walk->version = walk->at;
        if (walk_value(walk, depth + 1) < 0)
            return -1;
    }
    return 0;
}

static int walk_array(struct walk *walk, const struct token *array, unsigned depth)
{
    if (check_count(walk, array, 1) < 0)
        return -1;
    for (size_t i = 0; i < array->number; i++)
        if (walk_value(walk, depth + 1) < 0)
            return -1;
    return 0;
}

/* Containers count as levels, the outermost map being level 1. */
static int walk_value(struct walk *walk, unsigned depth)
{
    struct token token = {0};
    if (read_token(walk, &token) < 0)
        return -1;
    if (++walk->values > FRAME_MAX_VALUES)
        return refuse(walk, "more than 1048576 values in a frame");
    bool container = token.kind == TOKEN_ARRAY || token.kind == TOKEN_MAP;
    if (container && depth > WIRE_MAX_DEPTH)
        return refuse(walk, "nested deeper than 8 levels");
    switch (token.kind) {
    case TOKEN_REAL:
        return is_finite(&token) ? 0 : refuse(walk, "a number is not finite");
    case TOKEN_TEXT:
        return check_text(walk, &token,
                          frame_text_fault((const char *)token.text, token.number, WIRE_MAX_TEXT_BYTES));
    case TOKEN_ARRAY:
        return walk_array(walk, &token, depth);
    case TOKEN_MAP:
        return walk_map(walk, &token, depth);
    default:
        return 0;
    }
}

/* Rereads a value that the walk has passed. */
static struct token token_at(const struct walk *walk, const uint8_t *at)
{
    struct token token = {0};
    struct walk again = {.start = walk->start, .at = at, .end = walk->end};
    (void)read_token(&again, &token);
    return token;
}

static bool version_number(struct walk *walk, int64_t *ret)
{
    struct token token = {0};
    if (read_token(walk, &token) < 0 || token.kind != TOKEN_INTEGER || token.negative ||
        token.number > UINT16_MAX)
        return false;
    *ret = (int64_t)token.number;
    return true;
}

static void read_head(const struct walk *walk, struct frame_head *head)
{
    if (walk->type) {
        struct token type = token_at(walk, walk->type);
        if (type.kind == TOKEN_TEXT) {
            head->type = (const char *)type.text;
            head->type_bytes = type.number;
        }
    }
    if (!walk->version)
        return;
    struct walk again = {.start = walk->start, .at = walk->version, .end = walk->end};
    struct token pair = {0};
    if (read_token(&again, &pair) < 0 || pair.kind != TOKEN_ARRAY || pair.number != 2)
        return;
    head->versioned = version_number(&again, &head->major) && version_number(&again, &head->minor);
}

int frame_walk(const void *data, size_t size, struct frame_head *ret, struct error *err)
{
    struct walk walk = {.start = data, .at = data, .err = err};
    if (size == 0)
        return error_set(err, ERROR_INTERNAL, "the frame is empty");
    if (size > WIRE_MAX_FRAME_BYTES)
        return error_set(err, ERROR_INTERNAL, "a frame of %zu bytes is over the limit of %u", size,
                         WIRE_MAX_FRAME_BYTES);
    walk.end = walk.start + size;
    if (head_of(*walk.start).kind != TOKEN_MAP)
        return error_set(err, ERROR_INTERNAL, "the frame is not a map");
    if (walk_value(&walk, 1) < 0)
        return -1;
    if (left(&walk) > 0)
        return error_set(err, ERROR_INTERNAL, "byte %zu: the frame goes on after its end", offset(&walk));
    struct frame_head head = {0};
    read_head(&walk, &head);
    *ret = head;
    return 0;
}
