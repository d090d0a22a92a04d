/* wire_print FILE.hex...: reads each frame as wire.c does and says what it read, a line per file:
 *
 *     NAME<tab>{json}            decoded, encoded and decoded again with the same bytes
 *     NAME<tab>refused: why      not a frame of this protocol
 *
 * The JSON is printed from the bytes that wire_encode made, so it shows what went through the structs. */
#include "base/error.h"
#include "base/memory.h"
#include "proto/wire.h"

#include <msgpack.h>
#include <stdio.h>
#include <string.h>

static void print_text(const char *text, size_t bytes)
{
    (void)putchar('"');
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < 0x20 || byte == '"' || byte == '\\')
            (void)printf("\\u%04x", byte);
        else
            (void)putchar(byte);
    }
    (void)putchar('"');
}

static void print_value(const msgpack_object *value);

static void print_array(const msgpack_object_array *array)
{
    (void)putchar('[');
    for (uint32_t i = 0; i < array->size; i++) {
        if (i > 0)
            (void)putchar(',');
        print_value(&array->ptr[i]);
    }
    (void)putchar(']');
}

static void print_map(const msgpack_object_map *map)
{
    (void)putchar('{');
    for (uint32_t i = 0; i < map->size; i++) {
        if (i > 0)
            (void)putchar(',');
        print_value(&map->ptr[i].key);
        (void)putchar(':');
        print_value(&map->ptr[i].val);
    }
    (void)putchar('}');
}

static void print_value(const msgpack_object *value)
{
    switch (value->type) {
    case MSGPACK_OBJECT_BOOLEAN:
        (void)fputs(value->via.boolean ? "true" : "false", stdout);
        break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        (void)printf("%llu", (unsigned long long)value->via.u64);
        break;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        (void)printf("%lld", (long long)value->via.i64);
        break;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        (void)printf("%.17g", value->via.f64);
        break;
    case MSGPACK_OBJECT_STR:
        print_text(value->via.str.ptr, value->via.str.size);
        break;
    case MSGPACK_OBJECT_ARRAY:
        print_array(&value->via.array);
        break;
    case MSGPACK_OBJECT_MAP:
        print_map(&value->via.map);
        break;
    default:
        (void)fputs("null", stdout);
        break;
    }
}

static int print_bytes(const struct wire_bytes *bytes)
{
    msgpack_unpacked unpacked;
    size_t offset = 0;
    msgpack_unpacked_init(&unpacked);
    int result = -1;
    if (msgpack_unpack_next(&unpacked, bytes->data, bytes->size, &offset) == MSGPACK_UNPACK_SUCCESS) {
        print_value(&unpacked.data);
        result = 0;
    }
    msgpack_unpacked_destroy(&unpacked);
    return result;
}

/* Decodes, encodes; *ret is to be freed. */
static int through_structs(const void *data, size_t size, struct wire_bytes *ret, struct error *err)
{
    struct wire_message message;
    if (wire_decode(data, size, &message, err) < 0)
        return -1;
    int result = wire_encode(&message, ret, err);
    wire_release(&message);
    return result < 0 ? error_prefix(err, "not encoded again") : 0;
}

static int print_frame(const void *data, size_t size)
{
    struct error err;
    struct wire_bytes once;
    struct wire_bytes twice;
    if (through_structs(data, size, &once, &err) < 0) {
        (void)printf("refused: %s", err.text);
        return 0;
    }
    int result = -1;
    if (through_structs(once.data, once.size, &twice, &err) < 0) {
        (void)printf("not read again: %s", err.text);
    } else {
        if (once.size == twice.size && memcmp(once.data, twice.data, once.size) == 0)
            result = print_bytes(&once);
        else
            (void)fputs("other bytes the second time", stdout);
        free(twice.data);
    }
    free(once.data);
    return result;
}

/* Hex digits and line ends.  The bytes are to be freed; each frame lies in memory of its exact size. */
static int read_hex(const char *path, struct wire_bytes *ret)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    struct wire_bytes bytes = {0};
    unsigned byte;
    while (fscanf(file, " %2x", &byte) == 1) {
        bytes.data = memory_resized(bytes.data, bytes.size + 1, 1);
        bytes.data[bytes.size++] = (char)byte;
    }
    bool whole = feof(file) && !ferror(file);
    (void)fclose(file);
    if (!whole) {
        free(bytes.data);
        return -1;
    }
    *ret = bytes;
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        struct wire_bytes bytes;
        if (read_hex(argv[i], &bytes) < 0) {
            (void)fprintf(stderr, "wire_print: cannot read '%s'\n", argv[i]);
            return 2;
        }
        const char *slash = strrchr(argv[i], '/');
        (void)printf("%s\t", slash ? slash + 1 : argv[i]);
        if (print_frame(bytes.data, bytes.size) < 0)
            failed = 1;
        (void)putchar('\n');
        free(bytes.data);
    }
    return failed;
}
