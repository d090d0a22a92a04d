/* floor: prints what the floor costs per child.  Usage: floor [--json] [CHILDREN] */
#include "base/clock.h"
#include "bench/floor.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    size_t children = argc > 1 + json ? strtoul(argv[1 + json], NULL, 10) : 100;
    if (children < 1 || children > 1000000) {
        (void)fprintf(stderr, "usage: floor [--json] [CHILDREN]\n");
        return 2;
    }
    struct floor *floor = floor_new(children);
    size_t times = 20000000 / children + 1;
    floor_run(floor);
    int64_t start_ns = clock_thread_cpu_ns();
    for (size_t i = 0; i < times; i++)
        floor_run(floor);
    double ns = (double)(clock_thread_cpu_ns() - start_ns) / (double)times / (double)children;
    floor_free(floor);
    printf(json ? "{\"children\": %zu, \"cpu_per_child_ns\": %.3f}\n"
                : "floor of %zu children: %.3f ns each\n",
           children, ns);
    return 0;
}
