/* play.h: runs one case on the runtime, and tells what happened in the words of the case files. */
#ifndef COREFAN_TESTS_CONFORMANCE_PLAY_H
#define COREFAN_TESTS_CONFORMANCE_PLAY_H

#include "tests/conformance/case.h"

/* Runs the case (once; a case cannot be run again) and returns what happened: an object like `expect` of a case file.
 * ns_per_ms is the length of a case's millisecond on this runtime; 1,000,000 on a virtual one, whose time must be 0.
 * NULL: the runtime failed. */
json_t *play_case(struct runtime *runtime, struct test_case *test_case, int64_t ns_per_ms, struct error *err);

#endif
