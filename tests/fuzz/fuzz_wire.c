/* Any bytes: wire_decode takes or refuses them, and what it takes comes back the same.
 *
 *     cmake --preset fuzz && cmake --build build/fuzz --target fuzz_wire
 *     build/fuzz/bin/fuzz_wire -max_len=65536 CORPUS      (tests/fuzz/seeds makes a corpus from the vectors) */
#include "proto/wire.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds, const char *what, const struct error *err)
{
    if (holds)
        return;
    (void)fprintf(stderr, "fuzz_wire: %s: %s\n", what, err->text);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = {0};
    struct wire_message first;
    int64_t major = -1;
    int64_t minor = -1;
    int versioned = wire_peek_version(data, size, &major, &minor);
    if (wire_decode(data, size, &first, &err) < 0) {
        require(err.text[0] != '\0', "refused without a word", &err);
        return 0;
    }
    require(versioned == 0 && major == first.major && minor == first.minor, "two versions in one frame",
            &err);

    struct wire_message second;
    struct wire_bytes once;
    struct wire_bytes twice;
    require(wire_encode(&first, &once, &err) == 0, "decoded but not encoded", &err);
    require(wire_decode(once.data, once.size, &second, &err) == 0, "encoded but not decoded", &err);
    require(wire_encode(&second, &twice, &err) == 0, "decoded twice but not encoded", &err);
    require(once.size == twice.size && memcmp(once.data, twice.data, once.size) == 0, "other bytes", &err);
    free(once.data);
    free(twice.data);
    wire_release(&first);
    wire_release(&second);
    return 0;
}
