#include "base/keys.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES 4096 /* of a key file */

static const char z85[] =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

static bool is_key(const char *text)
{
    return strlen(text) == KEYS_TEXT_BYTES - 1 && strspn(text, z85) == KEYS_TEXT_BYTES - 1;
}

/* ---- writing ---- */

static int write_new(const char *path, mode_t mode, const char *text, struct error *err)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file < 0)
        return error_set(err, ERROR_USAGE, "cannot write '%s': %s", path,
                         errno == EEXIST ? "it exists, and keys are never overwritten" : strerror(errno));
    size_t size = strlen(text);
    bool written = write(file, text, size) == (ssize_t)size && fsync(file) == 0;
    int why = errno;
    (void)close(file);
    if (written)
        return 0;
    (void)unlink(path);
    return error_set(err, ERROR_INTERNAL, "cannot write '%s': %s", path, strerror(why));
}

int keys_write(const char *path, const struct key_pair *pair, struct error *err)
{
    scoped_free char *public_path = memory_format("%s.pub", path);
    scoped_free char *secret_text = memory_format(
        "# corefan: keep this file to yourself\npublic %s\nsecret %s\n", pair->public_key, pair->secret_key);
    scoped_free char *public_text = memory_format("public %s\n", pair->public_key);
    if (access(public_path, F_OK) == 0)
        return error_set(err, ERROR_USAGE, "cannot write '%s': it exists, and keys are never overwritten",
                         public_path);
    if (write_new(path, 0600, secret_text, err) < 0)
        return -1;
    if (write_new(public_path, 0644, public_text, err) == 0)
        return 0;
    (void)unlink(path);
    return -1;
}

/* ---- reading ---- */

static int read_text(const char *path, bool is_secret, char *buf, struct error *err)
{
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return error_set(err, ERROR_USAGE, "cannot read key file '%s': %s", path, strerror(errno));
    ssize_t got = -1;
    const char *why = "it is no file";
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode)) {
        why = "others can read it: chmod 600 it, or make a new one";
        if (!is_secret || (about.st_mode & 077) == 0) {
            why = "it is no key file";
            got = read(file, buf, MOST_BYTES);
        }
    }
    (void)close(file);
    if (got < 0 || got == MOST_BYTES || memchr(buf, '\0', (size_t)got))
        return error_set(err, ERROR_USAGE, "cannot use key file '%s': %s", path, why);
    buf[got] = '\0';
    return 0;
}

/* The key behind a word; false when there is none. */
static bool find(char *text, const char *word, char ret[KEYS_TEXT_BYTES])
{
    char *rest = NULL, *inner = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *name = line[0] == '#' ? NULL : strtok_r(line, " \t\r", &inner);
        const char *key = name ? strtok_r(NULL, " \t\r", &inner) : NULL;
        if (!key || strcmp(name, word) != 0 || !is_key(key) || strtok_r(NULL, " \t\r", &inner))
            continue;
        memcpy(ret, key, KEYS_TEXT_BYTES);
        return true;
    }
    return false;
}

static int read_key(const char *path, const char *word, bool is_secret, char ret[KEYS_TEXT_BYTES],
                    struct error *err)
{
    char text[MOST_BYTES];
    if (read_text(path, is_secret, text, err) < 0)
        return -1;
    if (find(text, word, ret))
        return 0;
    return error_set(err, ERROR_USAGE,
                     "cannot use key file '%s': it holds no '%s' key (corefan keygen makes one)", path, word);
}

int keys_read_pair(const char *path, struct key_pair *ret, struct error *err)
{
    struct key_pair pair = {.public_key = ""};
    if (read_key(path, "public", true, pair.public_key, err) < 0 ||
        read_key(path, "secret", true, pair.secret_key, err) < 0)
        return -1;
    *ret = pair;
    return 0;
}

int keys_read_public(const char *path, char ret[KEYS_TEXT_BYTES], struct error *err)
{
    return read_key(path, "public", false, ret, err);
}

static bool is_public(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && name[0] != '.' && strcmp(name + length - 4, ".pub") == 0;
}

int keys_directory_has(const char *directory, const char *public_key, bool *ret, struct error *err)
{
    DIR *entries = opendir(directory);
    const struct dirent *entry;
    int status = 0;
    bool found = false;
    if (!entries)
        return error_set(err, ERROR_USAGE, "cannot read key directory '%s': %s", directory, strerror(errno));
    while (status == 0 && !found && (entry = readdir(entries))) {
        char key[KEYS_TEXT_BYTES];
        if (!is_public(entry->d_name))
            continue;
        scoped_free char *path = memory_format("%s/%s", directory, entry->d_name);
        status = keys_read_public(path, key, err);
        found = status == 0 && strcmp(key, public_key) == 0;
    }
    (void)closedir(entries);
    if (status == 0)
        *ret = found;
    return status;
}
