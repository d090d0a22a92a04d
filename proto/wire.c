#include "proto/wire.h"

#include "base/memory.h"
#include "proto/fields.h"
#include "proto/frame.h"

#include <msgpack.h>
#include <string.h>

#define NAME_BYTES 128 /* of an entry of a list of names, and of a pair's name */

/* Memory of one decoded message: chunks that are freed together. */
struct chunk {
    struct chunk *next;
    size_t used, size;
    _Alignas(max_align_t) char bytes[];
};

struct arena {
    struct chunk *newest;
};

/* Zeroed. */
static void *arena_take(struct arena *arena, size_t count, size_t size)
{
    enum { chunk_bytes = 4096, step = _Alignof(max_align_t) };
    size_t bytes = (count * size + step - 1) / step * step; /* count is below 2^20, size a struct's */
    struct chunk *chunk = arena->newest;
    if (!chunk || chunk->size - chunk->used < bytes) {
        size_t room = bytes > chunk_bytes ? bytes : chunk_bytes;
        chunk = memory_zeroed(1, sizeof *chunk + room);
        chunk->size = room;
        chunk->next = arena->newest;
        arena->newest = chunk;
    }
    void *taken = chunk->bytes + chunk->used;
    chunk->used += bytes;
    return taken;
}

static void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    for (struct chunk *chunk = arena->newest; chunk;) {
        struct chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    free(arena);
}

/* Field of a struct as its kind sees it. */
struct place {
    const struct field *field;
    char *at;
    size_t *count; /* MAPS, COUNTS */
};

static struct place place_of(const struct field *field, void *record)
{
    struct place place = {.field = field, .at = (char *)record + field->offset};
    if (field->count_offset)
        place.count = (size_t *)(void *)((char *)record + field->count_offset);
    return place;
}

static int refuse(const struct place *place, struct error *err, const char *what)
{
    return error_set(err, ERROR_INTERNAL, "'%s' %s", place->field->key, what);
}

static int refuse_entry(const struct place *place, struct error *err, size_t index, const char *what)
{
    return error_set(err, ERROR_INTERNAL, "'%s' entry %zu %s", place->field->key, index, what);
}

/* What one kind of field does; `check` holds for both directions, on the value as C has it. */
struct kind {
    const char *noun; /* "'cell' is not <noun>" */
    bool (*matches)(const msgpack_object *from);
    int (*read)(struct arena *arena, const struct place *to, const msgpack_object *from, struct error *err);
    bool (*absent)(const struct place *of);
    int (*check)(const struct place *of, struct error *err);
    int (*write)(msgpack_packer *packer, const struct place *from, struct error *err);
};

static int read_shape(struct arena *arena, const struct shape *shape, const msgpack_object_map *map, void *to,
                      struct error *err);
static int write_shape(msgpack_packer *packer, const struct shape *shape, void *from, struct error *err);

/* ---- integers ---- */

static bool matches_integer(const msgpack_object *from)
{
    return from->type == MSGPACK_OBJECT_POSITIVE_INTEGER || from->type == MSGPACK_OBJECT_NEGATIVE_INTEGER;
}

static int64_t *integer_at(const struct place *place)
{
    return (int64_t *)(void *)place->at;
}

static int refuse_range(const struct place *place, struct error *err, const char *shown)
{
    return error_set(err, ERROR_INTERNAL, "'%s' is %s, not %lld..%lld", place->field->key, shown,
                     (long long)place->field->low, (long long)place->field->high);
}

static int read_integer(struct arena *arena, const struct place *to, const msgpack_object *from,
                        struct error *err)
{
    (void)arena;
    if (from->type == MSGPACK_OBJECT_POSITIVE_INTEGER && from->via.u64 > INT64_MAX)
        return refuse_range(to, err, "above 2^63-1");
    *integer_at(to) = from->via.i64;
    return 0;
}

static bool absent_integer(const struct place *of)
{
    return *integer_at(of) == WIRE_NULL;
}

static int check_integer(const struct place *of, struct error *err)
{
    int64_t value = *integer_at(of);
    if (value >= of->field->low && value <= of->field->high)
        return 0;
    char shown[32];
    (void)snprintf(shown, sizeof shown, "%lld", (long long)value);
    return refuse_range(of, err, shown);
}

static int write_integer(msgpack_packer *packer, const struct place *from, struct error *err)
{
    (void)err;
    return msgpack_pack_int64(packer, *integer_at(from));
}

/* ---- bits ---- */

static bool matches_bits(const msgpack_object *from)
{
    return from->type == MSGPACK_OBJECT_POSITIVE_INTEGER;
}

static int read_bits(struct arena *arena, const struct place *to, const msgpack_object *from,
                     struct error *err)
{
    (void)arena;
    (void)err;
    *integer_at(to) = (int64_t)from->via.u64;
    return 0;
}

static int write_bits(msgpack_packer *packer, const struct place *from, struct error *err)
{
    (void)err;
    return msgpack_pack_uint64(packer, (uint64_t)*integer_at(from));
}

/* ---- reals ---- */

static bool matches_real(const msgpack_object *from)
{
    return from->type == MSGPACK_OBJECT_FLOAT32 || from->type == MSGPACK_OBJECT_FLOAT64 ||
           matches_integer(from);
}

static double *real_at(const struct place *place)
{
    return (double *)(void *)place->at;
}

static int read_real(struct arena *arena, const struct place *to, const msgpack_object *from,
                     struct error *err)
{
    (void)arena;
    (void)err;
    if (from->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
        *real_at(to) = (double)from->via.u64;
    else if (from->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
        *real_at(to) = (double)from->via.i64;
    else
        *real_at(to) = from->via.f64;
    return 0;
}

static int check_real(const struct place *of, struct error *err)
{
    double value = *real_at(of);
    if (value >= (double)of->field->low && value <= (double)of->field->high) /* false for NaN too */
        return 0;
    char shown[32];
    (void)snprintf(shown, sizeof shown, "%.6g", value);
    return refuse_range(of, err, shown);
}

static int write_real(msgpack_packer *packer, const struct place *from, struct error *err)
{
    (void)err;
    return msgpack_pack_double(packer, *real_at(from));
}

/* ---- flags ---- */

static bool matches_flag(const msgpack_object *from)
{
    return from->type == MSGPACK_OBJECT_BOOLEAN;
}

static bool *flag_at(const struct place *place)
{
    return (bool *)(void *)place->at;
}

static int read_flag(struct arena *arena, const struct place *to, const msgpack_object *from,
                     struct error *err)
{
    (void)arena;
    (void)err;
    *flag_at(to) = from->via.boolean;
    return 0;
}

static int write_flag(msgpack_packer *packer, const struct place *from, struct error *err)
{
    (void)err;
    return *flag_at(from) ? msgpack_pack_true(packer) : msgpack_pack_false(packer);
}

/* ---- text ---- */

static bool matches_text(const msgpack_object *from)
{
    return from->type == MSGPACK_OBJECT_STR;
}

static char **text_at(const struct place *place)
{
    return (char **)(void *)place->at;
}

static char *copy_text(struct arena *arena, const msgpack_object *from)
{
    char *text = arena_take(arena, from->via.str.size + 1u, 1);
    if (from->via.str.size > 0)
        memcpy(text, from->via.str.ptr, from->via.str.size);
    return text;
}

static int read_text(struct arena *arena, const struct place *to, const msgpack_object *from,
                     struct error *err)
{
    (void)err;
    *text_at(to) = copy_text(arena, from);
    return 0;
}

/* What is shorter than the longest text is a name. */
static const char *text_fault(const char *text, size_t bytes, size_t most)
{
    return most < WIRE_MAX_TEXT_BYTES ? frame_name_fault(text, bytes, most)
                                      : frame_text_fault(text, bytes, most);
}

static bool absent_text(const struct place *of)
{
    return !*text_at(of);
}

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

static int refuse_word(const struct place *of, struct error *err)
{
    char list[256] = "";
    size_t used = 0;
    for (const char *const *word = of->field->words; *word && used < sizeof list; word++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", *word);
    return error_set(err, ERROR_INTERNAL, "'%s' is '%s', not one of %s", of->field->key, *text_at(of), list);
}

static int check_text(const struct place *of, struct error *err)
{
    const char *text = *text_at(of);
    size_t bytes = strlen(text);
    const char *fault = text_fault(text, bytes, (size_t)of->field->high);
    if (fault)
        return refuse(of, err, fault);
    if (of->field->words)
        return is_one_of(text, of->field->words) ? 0 : refuse_word(of, err);
    return bytes < (size_t)of->field->low ? refuse(of, err, bytes ? "is too short" : "is empty") : 0;
}

static int pack_text(msgpack_packer *packer, const char *text)
{
    return msgpack_pack_str_with_body(packer, text, strlen(text));
}

static int write_text(msgpack_packer *packer, const struct place *from, struct error *err)
{
    (void)err;
    return pack_text(packer, *text_at(from));
}

/* ---- lists of names, maps of text ---- */

static int check_count(const struct place *of, size_t count, struct error *err)
{
    if (count >= (size_t)of->field->low && count <= (size_t)of->field->high)
        return 0;
    return error_set(err, ERROR_INTERNAL, "'%s' has %zu entries, not %lld..%lld", of->field->key, count,
                     (long long)of->field->low, (long long)of->field->high);
}

static int check_entry(const struct place *of, size_t index, const char *text, size_t least, size_t most,
                       struct error *err)
{
    if (!text)
        return refuse_entry(of, err, index, "is missing");
    size_t bytes = strlen(text);
    const char *fault = text_fault(text, bytes, most);
    if (!fault && bytes < least)
        fault = "is empty";
    return fault ? refuse_entry(of, err, index, fault) : 0;
}

static bool matches_array(const msgpack_object *from)
{
    return from->type == MSGPACK_OBJECT_ARRAY;
}

static bool matches_map(const msgpack_object *from)
{
    return from->type == MSGPACK_OBJECT_MAP;
}

static int read_texts(struct arena *arena, const struct place *to, const msgpack_object *from,
                      struct error *err)
{
    struct wire_texts *texts = (struct wire_texts *)(void *)to->at;
    const msgpack_object_array *array = &from->via.array;
    if (check_count(to, array->size, err) < 0)
        return -1;
    texts->at = arena_take(arena, array->size, sizeof *texts->at);
    for (size_t i = 0; i < array->size; i++) {
        if (!matches_text(&array->ptr[i]))
            return refuse_entry(to, err, i, "is not text");
        texts->at[i] = copy_text(arena, &array->ptr[i]);
    }
    texts->count = array->size;
    return 0;
}

static int check_texts(const struct place *of, struct error *err)
{
    const struct wire_texts *texts = (const struct wire_texts *)(const void *)of->at;
    if (check_count(of, texts->count, err) < 0)
        return -1;
    for (size_t i = 0; i < texts->count; i++)
        if (check_entry(of, i, texts->at[i], 1, NAME_BYTES, err) < 0)
            return -1;
    return 0;
}

static int write_texts(msgpack_packer *packer, const struct place *from, struct error *err)
{
    (void)err;
    const struct wire_texts *texts = (const struct wire_texts *)(const void *)from->at;
    if (msgpack_pack_array(packer, texts->count) < 0)
        return -1;
    for (size_t i = 0; i < texts->count; i++)
        if (pack_text(packer, texts->at[i]) < 0)
            return -1;
    return 0;
}

static int read_pairs(struct arena *arena, const struct place *to, const msgpack_object *from,
                      struct error *err)
{
    struct wire_pairs *pairs = (struct wire_pairs *)(void *)to->at;
    const msgpack_object_map *map = &from->via.map;
    if (check_count(to, map->size, err) < 0)
        return -1;
    pairs->at = arena_take(arena, map->size, sizeof *pairs->at);
    for (size_t i = 0; i < map->size; i++) {
        if (!matches_text(&map->ptr[i].val))
            return refuse_entry(to, err, i, "is not text");
        pairs->at[i].name = copy_text(arena, &map->ptr[i].key);
        pairs->at[i].value = copy_text(arena, &map->ptr[i].val);
    }
    pairs->count = map->size;
    return 0;
}

/* The name of entry i stands among those before it. */
static bool is_repeated(const struct wire_pairs *pairs, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (strcmp(pairs->at[i].name, pairs->at[j].name) == 0)
            return true;
    return false;
}

static int check_pairs(const struct place *of, struct error *err)
{
    const struct wire_pairs *pairs = (const struct wire_pairs *)(const void *)of->at;
    if (check_count(of, pairs->count, err) < 0)
        return -1;
    for (size_t i = 0; i < pairs->count; i++) {
        if (check_entry(of, i, pairs->at[i].name, 1, NAME_BYTES, err) < 0 ||
            check_entry(of, i, pairs->at[i].value, 0, WIRE_MAX_TEXT_BYTES, err) < 0)
            return -1;
        if (is_repeated(pairs, i))
            return refuse_entry(of, err, i, "appears twice");
    }
    return 0;
}

static int write_pairs(msgpack_packer *packer, const struct place *from, struct error *err)
{
    (void)err;
    const struct wire_pairs *pairs = (const struct wire_pairs *)(const void *)from->at;
    if (msgpack_pack_map(packer, pairs->count) < 0)
        return -1;
    for (size_t i = 0; i < pairs->count; i++)
        if (pack_text(packer, pairs->at[i].name) < 0 || pack_text(packer, pairs->at[i].value) < 0)
            return -1;
    return 0;
}

/* ---- nested structs ---- */

_Static_assert(offsetof(struct wire_fail, present) == 0 && offsetof(struct wire_stall, present) == 0 &&
                   offsetof(struct wire_histogram, present) == 0,
               "a struct that may be nil starts with its presence");

static int read_map(struct arena *arena, const struct place *to, const msgpack_object *from,
                    struct error *err)
{
    *flag_at(to) = true;
    if (read_shape(arena, to->field->nested, &from->via.map, to->at, err) < 0)
        return error_prefix(err, "%s", to->field->key);
    return 0;
}

static bool absent_map(const struct place *of)
{
    return !*flag_at(of);
}

static int write_map(msgpack_packer *packer, const struct place *from, struct error *err)
{
    if (write_shape(packer, from->field->nested, from->at, err) < 0)
        return error_prefix(err, "%s", from->field->key);
    return 0;
}

static char **rows_at(const struct place *place)
{
    return (char **)(void *)place->at;
}

static int read_maps(struct arena *arena, const struct place *to, const msgpack_object *from,
                     struct error *err)
{
    const struct shape *shape = to->field->nested;
    const msgpack_object_array *array = &from->via.array;
    if (check_count(to, array->size, err) < 0)
        return -1;
    char *rows = arena_take(arena, array->size, shape->size);
    for (size_t i = 0; i < array->size; i++) {
        if (!matches_map(&array->ptr[i]))
            return refuse_entry(to, err, i, "is not a map");
        if (read_shape(arena, shape, &array->ptr[i].via.map, rows + i * shape->size, err) < 0)
            return error_prefix(err, "%s[%zu]", to->field->key, i);
    }
    *rows_at(to) = rows;
    *to->count = array->size;
    return 0;
}

static int check_maps(const struct place *of, struct error *err)
{
    return check_count(of, *of->count, err);
}

static int write_maps(msgpack_packer *packer, const struct place *from, struct error *err)
{
    const struct shape *shape = from->field->nested;
    if (msgpack_pack_array(packer, *from->count) < 0)
        return -1;
    for (size_t i = 0; i < *from->count; i++)
        if (write_shape(packer, shape, *rows_at(from) + i * shape->size, err) < 0)
            return error_prefix(err, "%s[%zu]", from->field->key, i);
    return 0;
}

/* ---- counts of a histogram ---- */

static int64_t **counts_at(const struct place *place)
{
    return (int64_t **)(void *)place->at;
}

static int read_counts(struct arena *arena, const struct place *to, const msgpack_object *from,
                       struct error *err)
{
    const msgpack_object_array *array = &from->via.array;
    if (array->size % 2 != 0)
        return refuse(to, err, "is not pairs of bucket and count");
    int64_t *counts = arena_take(arena, array->size, sizeof *counts);
    for (size_t i = 0; i < array->size; i++) {
        const msgpack_object *entry = &array->ptr[i];
        if (entry->type != MSGPACK_OBJECT_POSITIVE_INTEGER || entry->via.u64 > INT64_MAX)
            return refuse_entry(to, err, i, "is not an integer from 0 to 2^63-1");
        counts[i] = entry->via.i64;
    }
    *counts_at(to) = counts;
    *to->count = array->size / 2;
    return 0;
}

static int write_counts(msgpack_packer *packer, const struct place *from, struct error *err)
{
    (void)err;
    if (msgpack_pack_array(packer, 2 * *from->count) < 0)
        return -1;
    for (size_t i = 0; i < 2 * *from->count; i++)
        if (msgpack_pack_int64(packer, (*counts_at(from))[i]) < 0)
            return -1;
    return 0;
}

static bool never_absent(const struct place *of)
{
    (void)of;
    return false;
}

static int no_check(const struct place *of, struct error *err)
{
    (void)of;
    (void)err;
    return 0;
}

static const struct kind kinds[FIELD_KIND_COUNT] = {
    [FIELD_INTEGER] = {"an integer", matches_integer, read_integer, absent_integer, check_integer,
                       write_integer},
    [FIELD_BITS] = {"an integer from 0 to 2^64-1", matches_bits, read_bits, never_absent, no_check,
                    write_bits},
    [FIELD_REAL] = {"a number", matches_real, read_real, never_absent, check_real, write_real},
    [FIELD_FLAG] = {"true or false", matches_flag, read_flag, never_absent, no_check, write_flag},
    [FIELD_TEXT] = {"text", matches_text, read_text, absent_text, check_text, write_text},
    [FIELD_TEXTS] = {"an array", matches_array, read_texts, never_absent, check_texts, write_texts},
    [FIELD_PAIRS] = {"a map", matches_map, read_pairs, never_absent, check_pairs, write_pairs},
    [FIELD_MAP] = {"a map", matches_map, read_map, absent_map, no_check, write_map},
    [FIELD_MAPS] = {"an array", matches_array, read_maps, never_absent, check_maps, write_maps},
    [FIELD_COUNTS] = {"an array", matches_array, read_counts, never_absent, check_maps, write_counts},
};

/* ---- records ---- */

/* Senders keep the order of the tables, so the search starts after the last hit. */
static const msgpack_object *find_value(const msgpack_object_map *map, const char *key, uint32_t *hint)
{
    size_t bytes = strlen(key);
    for (uint32_t tried = 0; tried < map->size; tried++) {
        uint32_t i = (*hint + tried) % map->size;
        const msgpack_object_str *name = &map->ptr[i].key.via.str;
        if (name->size != bytes || memcmp(name->ptr, key, bytes) != 0)
            continue;
        *hint = i + 1;
        return &map->ptr[i].val;
    }
    return NULL;
}

static void set_fallback(struct arena *arena, const struct place *place)
{
    const struct field *field = place->field;
    switch (field->kind) {
    case FIELD_INTEGER:
        *integer_at(place) = field->fallback;
        break;
    case FIELD_REAL:
        *real_at(place) = (double)field->fallback;
        break;
    case FIELD_TEXT:
        if (field->fallback_text) {
            size_t bytes = strlen(field->fallback_text) + 1;
            *text_at(place) = memcpy(arena_take(arena, bytes, 1), field->fallback_text, bytes);
        }
        break;
    default: /* all else is zeroed: false, empty, not present */
        break;
    }
}

static int read_field(struct arena *arena, const struct place *to, const msgpack_object *from,
                      struct error *err)
{
    const struct kind *kind = &kinds[to->field->kind];
    if (!from || from->type == MSGPACK_OBJECT_NIL) {
        if (to->field->required)
            return refuse(to, err, from ? "is nil" : "is missing");
        set_fallback(arena, to);
        return 0;
    }
    if (!kind->matches(from))
        return error_set(err, ERROR_INTERNAL, "'%s' is not %s", to->field->key, kind->noun);
    if (kind->read(arena, to, from, err) < 0)
        return -1;
    return kind->check(to, err);
}

static int read_shape(struct arena *arena, const struct shape *shape, const msgpack_object_map *map, void *to,
                      struct error *err)
{
    uint32_t hint = 0;
    for (size_t i = 0; i < shape->field_count; i++) {
        struct place place = place_of(&shape->fields[i], to);
        if (read_field(arena, &place, find_value(map, shape->fields[i].key, &hint), err) < 0)
            return -1;
    }
    return shape->check ? shape->check(to, err) : 0;
}

static int write_field(msgpack_packer *packer, const struct place *from, struct error *err)
{
    const struct kind *kind = &kinds[from->field->kind];
    (void)pack_text(packer, from->field->key); /* into memory: fails only with it, which ends the program */
    if (kind->absent(from)) {
        if (from->field->required)
            return refuse(from, err, "is missing");
        return msgpack_pack_nil(packer);
    }
    if (kind->check(from, err) < 0)
        return -1;
    return kind->write(packer, from, err);
}

static int write_fields(msgpack_packer *packer, const struct shape *shape, void *from, struct error *err)
{
    for (size_t i = 0; i < shape->field_count; i++) {
        struct place place = place_of(&shape->fields[i], from);
        if (write_field(packer, &place, err) < 0)
            return -1;
    }
    return shape->check ? shape->check(from, err) : 0;
}

static int write_shape(msgpack_packer *packer, const struct shape *shape, void *from, struct error *err)
{
    (void)msgpack_pack_map(packer, shape->field_count);
    return write_fields(packer, shape, from, err);
}

/* ---- messages ---- */

static const char *const type_names[WIRE_TYPE_COUNT] = {
#define X(upper, lower) [WIRE_##upper] = #lower,
    WIRE_TYPES(X)
#undef X
};

const char *wire_type_name(enum wire_type type)
{
    return (unsigned)type < WIRE_TYPE_COUNT ? type_names[type] : NULL;
}

void wire_round_init(struct wire_round *round)
{
    *round = (struct wire_round){
#define X(name) .name = WIRE_NULL,
        WIRE_ROUND_INTEGERS(X)
#undef X
    };
}

/* All messages share one address: that of the union. */
static void *body_of(struct wire_message *message)
{
    return &message->hello;
}

static void write_head(msgpack_packer *packer, const char *name, size_t field_count)
{
    (void)msgpack_pack_map(packer, field_count + 2);
    (void)pack_text(packer, "type");
    (void)pack_text(packer, name);
    (void)pack_text(packer, "v");
    (void)msgpack_pack_array(packer, 2);
    (void)msgpack_pack_int(packer, WIRE_MAJOR);
    (void)msgpack_pack_int(packer, WIRE_MINOR);
}

static int check_size(const struct message_rule *rule, size_t bytes, struct error *err)
{
    if (bytes <= rule->most_bytes)
        return 0;
    return error_set(err, ERROR_INTERNAL, "%zu bytes are over the limit of %zu", bytes, rule->most_bytes);
}

int wire_encode(const struct wire_message *message, struct wire_bytes *ret, struct error *err)
{
    const char *name = wire_type_name(message->type);
    if (!name)
        return error_set(err, ERROR_INTERNAL, "%d is no type of message", (int)message->type);
    const struct message_rule *rule = &message_rules[message->type];
    struct wire_message copy = *message; /* shallow: the tables hold no const pointers, nothing is written */
    msgpack_sbuffer buffer;
    msgpack_packer packer;
    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    write_head(&packer, name, rule->shape.field_count);
    if (write_fields(&packer, &rule->shape, body_of(&copy), err) < 0 ||
        check_size(rule, buffer.size, err) < 0) {
        msgpack_sbuffer_destroy(&buffer);
        return error_prefix(err, "%s", name);
    }
    ret->size = buffer.size;
    ret->data = msgpack_sbuffer_release(&buffer);
    return 0;
}

static int find_type(const struct frame_head *head, enum wire_type *ret, struct error *err)
{
    if (!head->type)
        return error_set(err, ERROR_INTERNAL, "'type' is missing or not text");
    for (unsigned i = 0; i < WIRE_TYPE_COUNT; i++) {
        if (strlen(type_names[i]) != head->type_bytes ||
            memcmp(type_names[i], head->type, head->type_bytes) != 0)
            continue;
        *ret = (enum wire_type)i;
        return 0;
    }
    if (frame_name_fault(head->type, head->type_bytes, NAME_BYTES))
        return error_set(err, ERROR_INTERNAL, "unknown type");
    return error_set(err, ERROR_INTERNAL, "unknown type '%.*s'", (int)head->type_bytes, head->type);
}

static int check_version(const struct frame_head *head, struct error *err)
{
    if (!head->versioned)
        return error_set(err, ERROR_INTERNAL, "'v' is missing or not [major, minor]");
    if (head->major != WIRE_MAJOR)
        return error_set(err, ERROR_USAGE, "protocol %lld.%lld of the peer is not %d.x",
                         (long long)head->major, (long long)head->minor, WIRE_MAJOR);
    return 0;
}

/* The frame has been walked: what msgpack-c reserves is bounded by its values. */
static int read_body(const void *data, size_t size, struct wire_message *message, struct error *err)
{
    msgpack_unpacked unpacked;
    msgpack_unpacked_init(&unpacked);
    size_t offset = 0;
    int result = -1;
    if (msgpack_unpack_next(&unpacked, data, size, &offset) != MSGPACK_UNPACK_SUCCESS || offset != size)
        (void)error_set(err, ERROR_INTERNAL, "msgpack cannot unpack the frame");
    else
        result = read_shape(message->arena, &message_rules[message->type].shape, &unpacked.data.via.map,
                            body_of(message), err);
    msgpack_unpacked_destroy(&unpacked);
    return result;
}

int wire_decode(const void *data, size_t size, struct wire_message *ret, struct error *err)
{
    struct frame_head head;
    struct wire_message message = {0};
    if (frame_walk(data, size, &head, err) < 0 || check_version(&head, err) < 0 ||
        find_type(&head, &message.type, err) < 0)
        return -1;
    message.major = head.major;
    message.minor = head.minor;
    message.arena = memory_zeroed(1, sizeof(struct arena));
    if (check_size(&message_rules[message.type], size, err) < 0 || read_body(data, size, &message, err) < 0) {
        wire_release(&message);
        return error_prefix(err, "%s", type_names[message.type]);
    }
    *ret = message;
    return 0;
}

int wire_peek_version(const void *data, size_t size, int64_t *ret_major, int64_t *ret_minor)
{
    struct frame_head head;
    if (frame_walk(data, size, &head, NULL) < 0 || !head.versioned)
        return -1;
    *ret_major = head.major;
    *ret_minor = head.minor;
    return 0;
}

void wire_release(struct wire_message *message)
{
    arena_free(message->arena);
    *message = (struct wire_message){.type = message->type};
}

/* ---- histograms ---- */

/* Values below 2^bits units have a bucket each; above, every octave has 2^(bits-1). */
static int half_bits(const struct wire_histogram *histogram)
{
    static const int bits[] = {0, 4, 7, 10, 14, 17}; /* smallest b with 2^b >= 10^digits */
    return bits[histogram->significant_digits];
}

int64_t wire_histogram_index(const struct wire_histogram *histogram, int64_t ns)
{
    int bits = half_bits(histogram);
    int64_t units = ns > 0 ? ns / histogram->lowest_ns : 0;
    if (units < (int64_t)1 << bits)
        return units;
    int octave = 63 - __builtin_clzll((unsigned long long)units) - bits;
    return ((int64_t)octave << bits) + (units >> octave);
}

int64_t wire_histogram_lower_ns(const struct wire_histogram *histogram, int64_t index)
{
    int bits = half_bits(histogram);
    int64_t octave = (index >> bits) - 1;
    if (octave <= 0)
        return index * histogram->lowest_ns;
    return ((index - (octave << bits)) << octave) * histogram->lowest_ns;
}
