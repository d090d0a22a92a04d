/* Nothing is allocated while a fan-out runs: neither by us, nor by libuv. */
#include "base/clock.h"
#include "worker/arms/arm.h"
#include "worker/jobs/job.h"
#include "worker/runtime/repeat.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <uv.h>

#include <cmocka.h>

static volatile size_t allocations; /* volatile: to a compiler, malloc changes nothing that others see */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNT_BY_HOOK 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNT_BY_HOOK 1
#endif

#ifdef COUNT_BY_HOOK
/* of the sanitizers' runtime; gcc does not install the header */
extern int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                                     void (*on_free)(const volatile void *));

static void on_malloc(const volatile void *pointer, size_t size)
{
    (void)pointer;
    (void)size;
    allocations++;
}

static void on_free(const volatile void *pointer)
{
    (void)pointer;
}

static void begin_counting(void)
{
    assert_true(__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) > 0);
}
#else
/* The program's own functions stand before those of the C library, for every library that it loads. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    allocations++;
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    allocations++;
    return __libc_memalign(alignment, size);
}

static void begin_counting(void)
{
}
#endif

static void assert_counting_works(void)
{
    size_t before = allocations;
    void *volatile memory = malloc(10);
    assert_true(allocations > before);
    free(memory);
}

struct variant {
    const char *job;
    struct job_config config;
};

static void run_variant(struct runtime *runtime, const struct arm *arm, const struct variant *variant)
{
    struct fanout *fanout;
    struct job_children *children;
    struct repeat repeat;
    struct outcome outcome;
    struct error err;
    assert_int_equal(fanout_new(50, &fanout, &err), 0);
    fanout_bind(fanout, arm->resume);
    assert_int_equal(job_open(job_find(variant->job), runtime, fanout, &variant->config, &children, &err), 0);
    repeat_init(&repeat, &fanout->coro, 3);
    for (int round = 0; round < 3; round++) {
        size_t before = allocations;
        assert_int_equal(repeat_run(runtime, &repeat, &outcome, &err), 0);
        assert_int_equal(fanout_drain(runtime, fanout, &err), 0);
        /* the first round may make libuv grow its tables, as a first poll of a new handle does */
        if (round > 0)
            assert_int_equal(allocations - before, 0);
    }
    job_close(children);
    fanout_free(fanout);
}

static void test_nothing_is_allocated_in_a_round(void **state)
{
    (void)state;
    static const struct variant variants[] = {
        {"noop", {0}},
        {"cpu", {.delay_ns = 1000}},
        {"sleep", {.delay_ns = 200 * NS_PER_US}},
        {"sleep", {.delay_ns = NS_PER_MS, .source = SLEEP_UV_TIMER}},
        {"sleep",
         {.delay_ns = NS_PER_MS, .failure = {.children = 3, .at_ns = 50 * NS_PER_US, .end = LEAF_FAIL}}},
    };
    struct runtime runtime;
    struct error err;
    uv_loop_t loop;
    begin_counting();
    assert_counting_works();
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(runtime_init(&runtime, &loop, &err), 0);
    for (size_t a = 0; a < arm_count(); a++) {
        for (size_t v = 0; v < sizeof(variants) / sizeof(variants[0]); v++)
            run_variant(&runtime, arm_at(a), &variants[v]);
    }
    runtime_release(&runtime);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_allocated_in_a_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
