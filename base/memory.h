/* memory.h: allocation that cannot fail half-way, and clean-up at the end of a scope.
 *
 * A program of this size does not survive a failed small allocation in any useful way: these end it with one
 * line and exit code 1.  Large, user-sized allocations (slabs of children) use calloc and report an error
 * instead. */
#ifndef COREFAN_BASE_MEMORY_H
#define COREFAN_BASE_MEMORY_H

#include <stddef.h>
#include <stdlib.h>

#define never_null __attribute__((returns_nonnull))

never_null void *memory_zeroed(size_t count, size_t size);             /* free() it */
never_null void *memory_resized(void *old, size_t count, size_t size); /* realloc; new bytes are not set */
char *memory_text(const char *text);                                   /* strdup; NULL stays NULL */
char *memory_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static inline void memory_free_pointer(void *where)
{
    free(*(void **)where);
}
#define scoped_free __attribute__((cleanup(memory_free_pointer)))

#endif
