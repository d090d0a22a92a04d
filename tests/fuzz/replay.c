/* replay [--raw|--hex] DIR...: runs a fuzz target over every file of these directories, without libFuzzer.
 *
 * --hex: files are hex digits and line ends, others than *.hex are left out.  --raw (default): files are the bytes
 * themselves.  Each input lies in memory of its exact size, so that a sanitizer sees one byte too many. */
#include "base/memory.h"
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct input {
    uint8_t *data;
    size_t size;
};

static void append(struct input *input, uint8_t byte)
{
    input->data = memory_resized(input->data, input->size + 1, 1);
    input->data[input->size++] = byte;
}

static void read_bytes(FILE *file, struct input *input)
{
    for (int byte = fgetc(file); byte != EOF; byte = fgetc(file))
        append(input, (uint8_t)byte);
}

static void read_hex(FILE *file, struct input *input)
{
    unsigned byte;
    while (fscanf(file, " %2x", &byte) == 1)
        append(input, (uint8_t)byte);
}

static int replay_file(const char *path, bool hex)
{
    FILE *file = fopen(path, "re");
    struct input input = {0};
    if (!file)
        return -1;
    (hex ? read_hex : read_bytes)(file, &input);
    bool whole = feof(file) && !ferror(file);
    (void)fclose(file);
    if (whole)
        (void)LLVMFuzzerTestOneInput(input.data, input.size);
    free(input.data);
    return whole ? 0 : -1;
}

static bool wanted(const struct dirent *entry, bool hex)
{
    const char *dot = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && (!hex || (dot && strcmp(dot, ".hex") == 0));
}

/* Files replayed, or -1. */
static long replay_directory(const char *path, bool hex)
{
    DIR *dir = opendir(path);
    long replayed = 0;
    if (!dir)
        return -1;
    for (struct dirent *entry = readdir(dir); entry && replayed >= 0; entry = readdir(dir)) {
        if (!wanted(entry, hex))
            continue;
        scoped_free char *file = memory_format("%s/%s", path, entry->d_name);
        replayed = replay_file(file, hex) < 0 ? -1 : replayed + 1;
    }
    (void)closedir(dir);
    return replayed;
}

int main(int argc, char **argv)
{
    bool hex = false;
    long total = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--hex") == 0 || strcmp(argv[i], "--raw") == 0) {
            hex = strcmp(argv[i], "--hex") == 0;
            continue;
        }
        long replayed = replay_directory(argv[i], hex);
        if (replayed <= 0) {
            (void)fprintf(stderr, "replay: nothing could be read in '%s'\n", argv[i]);
            return 2;
        }
        total += replayed;
    }
    (void)printf("%ld inputs replayed\n", total);
    return total > 0 ? 0 : 2;
}
