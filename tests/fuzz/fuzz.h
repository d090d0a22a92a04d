/* fuzz.h: what a fuzz target is: one function over any bytes that aborts when something does not hold. */
#ifndef COREFAN_TESTS_FUZZ_H
#define COREFAN_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
