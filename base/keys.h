/* keys.h: CURVE keys in files: one pair per coordinator or worker, and a directory of public ones that are let in.
 *
 * A key is 32 bytes, written as 40 characters of Z85 (ZeroMQ RFC 32).  Files are lines of "WORD KEY"; lines that start with
 * '#' are comments.  A pair's file holds `public` and `secret` and must be readable by its owner alone; FILE.pub beside it
 * holds `public` only.  Errors are ERROR_USAGE, one line.  Any thread. */
#ifndef COREFAN_BASE_KEYS_H
#define COREFAN_BASE_KEYS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define KEYS_TEXT_BYTES 41 /* with the end */

struct key_pair {
    char public_key[KEYS_TEXT_BYTES], secret_key[KEYS_TEXT_BYTES];
};

/* Writes PATH (mode 0600) and PATH.pub; refuses to overwrite either. */
int keys_write(const char *path, const struct key_pair *pair, struct error *err);

/* Refuses a file that others can read. */
int keys_read_pair(const char *path, struct key_pair *ret, struct error *err);

/* Of PATH.pub, or of a pair's file. */
int keys_read_public(const char *path, char ret[KEYS_TEXT_BYTES], struct error *err);

/* Whether a file *.pub of the directory holds that key.  -1: the directory or one of its files cannot be read. */
int keys_directory_has(const char *directory, const char *public_key, bool *ret, struct error *err);

#endif
