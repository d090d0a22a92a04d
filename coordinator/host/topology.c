#include "coordinator/host/topology.h"

#include "base/memory.h"

#include <ctype.h>
#include <hwloc.h>
#include <limits.h>
#include <string.h>

/* -- lists -------------------------------------------------------------------------------------------------- */

struct list {
    int64_t *at;
    size_t count;
};

static void list_add(struct list *list, int64_t cpu)
{
    if ((list->count & (list->count - 1)) == 0) /* room is the next power of two */
        list->at = memory_resized(list->at, list->count ? list->count * 2 : 1, sizeof *list->at);
    list->at[list->count++] = cpu;
}

static bool list_has(const struct list *list, int64_t cpu)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->at[i] == cpu)
            return true;
    return false;
}

/* Which CPUs a list has named. */
struct seen {
    unsigned char bits[TOPOLOGY_MAX_CPU / 8 + 1];
};

static bool seen_before(struct seen *seen, int64_t cpu)
{
    unsigned char bit = (unsigned char)(1u << (cpu % 8));
    bool before = seen->bits[cpu / 8] & bit;
    seen->bits[cpu / 8] |= bit;
    return before;
}

/* Digits at *text, which moves behind them; -1 when there are none or they are too large. */
static int64_t parse_number(const char **text)
{
    int64_t number = -1;
    for (; isdigit((unsigned char)**text); (*text)++) {
        number = (number < 0 ? 0 : number) * 10 + (**text - '0');
        if (number > TOPOLOGY_MAX_CPU)
            return -1;
    }
    return number;
}

static int parse_part(const char *option, const char *text, const char **at, struct seen *seen,
                      struct list *list, struct error *err)
{
    int64_t first = parse_number(at), last = first;
    if (first >= 0 && **at == '-') {
        (*at)++;
        last = parse_number(at);
    }
    if (first < 0 || last < 0 || (**at != ',' && **at != '\0') || (**at == ',' && (*at)[1] == '\0'))
        return error_set(err, ERROR_USAGE, "%s '%s' is not a list of CPUs such as 0,2-5", option, text);
    if (last < first)
        return error_set(err, ERROR_USAGE, "%s '%s': the range %lld-%lld runs backwards", option, text,
                         (long long)first, (long long)last);
    for (int64_t cpu = first; cpu <= last; cpu++) {
        if (seen_before(seen, cpu))
            return error_set(err, ERROR_USAGE, "%s '%s': cpu %lld appears twice", option, text,
                             (long long)cpu);
        list_add(list, cpu);
    }
    return 0;
}

int topology_parse_list(const char *option, const char *text, int64_t **ret, size_t *ret_count,
                        struct error *err)
{
    struct seen seen = {0};
    struct list list = {0};
    const char *at = text;
    do {
        if (parse_part(option, text, &at, &seen, &list, err) < 0) {
            free(list.at);
            return -1;
        }
    } while (*at++ == ',');
    *ret = list.at;
    *ret_count = list.count;
    return 0;
}

char *topology_list_text(const int64_t *cpus, size_t count)
{
    char *text = memory_text("");
    for (size_t i = 0; i < count;) {
        size_t end = i + 1;
        while (end < count && cpus[end] == cpus[end - 1] + 1)
            end++;
        const char *comma = i ? "," : "";
        char *longer = end - i > 1 ? memory_format("%s%s%lld-%lld", text, comma, (long long)cpus[i],
                                                   (long long)cpus[end - 1])
                                   : memory_format("%s%s%lld", text, comma, (long long)cpus[i]);
        free(text);
        text = longer;
        i = end;
    }
    return text;
}

/* -- the host ----------------------------------------------------------------------------------------------- */

/* Everything that a choice needs to know. */
struct host {
    hwloc_topology_t hwloc;
    hwloc_cpuset_t allowed;    /* online, in the cpuset, in the affinity mask */
    struct topology_cpu *cpus; /* allowed ones, in order of choice */
    size_t cpu_count;
};

static void host_release(struct host *host)
{
    if (host->allowed)
        hwloc_bitmap_free(host->allowed);
    if (host->hwloc)
        hwloc_topology_destroy(host->hwloc);
    free(host->cpus);
}

static int host_load(const struct topology_request *request, struct host *host, struct error *err)
{
    const char *source = request->recorded_xml ? request->recorded_xml : request->synthetic;
    if (hwloc_topology_init(&host->hwloc) < 0)
        return error_set(err, ERROR_INTERNAL, "hwloc cannot be initialised");
    int status = hwloc_topology_set_flags(host->hwloc, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    if (status == 0 && request->recorded_xml)
        status = hwloc_topology_set_xml(host->hwloc, request->recorded_xml);
    if (status == 0 && request->synthetic)
        status = hwloc_topology_set_synthetic(host->hwloc, request->synthetic);
    if (status == 0)
        status = hwloc_topology_load(host->hwloc);
    if (status < 0)
        return error_set(err, ERROR_INTERNAL, "cannot read the topology of %s",
                         source ? source : "this host");
    return 0;
}

static void keep_only(struct host *host, const struct list *list)
{
    hwloc_cpuset_t set = hwloc_bitmap_alloc();
    for (size_t i = 0; i < list->count; i++)
        hwloc_bitmap_set(set, (unsigned)list->at[i]);
    hwloc_bitmap_and(host->allowed, host->allowed, set);
    hwloc_bitmap_free(set);
}

static int host_allow(const struct topology_request *request, struct host *host, struct error *err)
{
    host->allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(host->hwloc));
    hwloc_bitmap_and(host->allowed, host->allowed, hwloc_topology_get_topology_cpuset(host->hwloc));
    if (request->affinity) {
        struct list list;
        if (topology_parse_list("affinity", request->affinity, &list.at, &list.count, err) < 0)
            return -1;
        keep_only(host, &list);
        free(list.at);
    } else if (!request->recorded_xml && !request->synthetic) {
        hwloc_cpuset_t bound = hwloc_bitmap_alloc();
        if (hwloc_get_cpubind(host->hwloc, bound, HWLOC_CPUBIND_THREAD) == 0)
            hwloc_bitmap_and(host->allowed, host->allowed, bound);
        hwloc_bitmap_free(bound);
    }
    if (hwloc_bitmap_iszero(host->allowed))
        return error_set(err, ERROR_USAGE, "no CPU of this host may be used");
    return 0;
}

static int64_t index_of(const struct host *host, hwloc_obj_t unit, hwloc_obj_type_t type)
{
    hwloc_obj_t object = hwloc_get_ancestor_obj_by_type(host->hwloc, type, unit);
    return object ? (object->os_index == HWLOC_UNKNOWN_INDEX ? (int64_t)object->logical_index
                                                             : (int64_t)object->os_index)
                  : -1;
}

static struct topology_cpu describe(const struct host *host, hwloc_obj_t unit, int64_t thread)
{
    struct topology_cpu cpu = {.cpu = unit->os_index, .numa = -1, .thread = thread};
    cpu.package = index_of(host, unit, HWLOC_OBJ_PACKAGE);
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(host->hwloc, HWLOC_OBJ_CORE, unit);
    cpu.core = core ? (int64_t)core->logical_index : (int64_t)unit->logical_index;
    hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(host->hwloc, HWLOC_OBJ_L3CACHE, unit);
    cpu.l3 = cache ? (int64_t)cache->logical_index : -1;
    int node = hwloc_bitmap_first(unit->nodeset);
    if (node >= 0 && hwloc_bitmap_weight(unit->nodeset) == 1)
        cpu.numa = node;
    return cpu;
}

/* Allowed CPUs by core (a unit without a core is one of its own), each with its rank within it. */
static void collect_units(struct host *host)
{
    int64_t core = INT64_MIN, thread = 0;
    for (hwloc_obj_t unit = NULL; (unit = hwloc_get_next_obj_by_type(host->hwloc, HWLOC_OBJ_PU, unit));) {
        if (!hwloc_bitmap_isset(host->allowed, unit->os_index))
            continue;
        struct topology_cpu cpu = describe(host, unit, 0);
        thread = cpu.core == core ? thread + 1 : 0;
        core = cpu.core;
        cpu.thread = thread;
        host->cpus[host->cpu_count++] = cpu;
    }
}

/* Stable by thread: first threads of all cores, then second ones. */
static void order_by_thread(struct host *host)
{
    struct topology_cpu *ordered = memory_zeroed(host->cpu_count, sizeof *ordered);
    size_t used = 0;
    for (int64_t thread = 0; used < host->cpu_count; thread++)
        for (size_t i = 0; i < host->cpu_count; i++)
            if (host->cpus[i].thread == thread)
                ordered[used++] = host->cpus[i];
    free(host->cpus);
    host->cpus = ordered;
}

static int host_open(const struct topology_request *request, struct host *host, struct error *err)
{
    if (host_load(request, host, err) < 0 || host_allow(request, host, err) < 0)
        return -1;
    host->cpus = memory_zeroed((size_t)hwloc_bitmap_weight(host->allowed), sizeof *host->cpus);
    collect_units(host);
    order_by_thread(host);
    return 0;
}

static int64_t physical_cores(const struct host *host)
{
    int64_t cores = 0;
    for (size_t i = 0; i < host->cpu_count; i++)
        cores += host->cpus[i].thread == 0;
    return cores;
}

static const struct topology_cpu *host_cpu(const struct host *host, int64_t number)
{
    for (size_t i = 0; i < host->cpu_count; i++)
        if (host->cpus[i].cpu == number)
            return &host->cpus[i];
    return NULL;
}

/* -- what the user named ------------------------------------------------------------------------------------ */

static char *set_text(hwloc_const_bitmap_t set)
{
    char text[512];
    hwloc_bitmap_list_snprintf(text, sizeof text, set);
    return memory_text(text);
}

/* Why that CPU cannot be used here. */
static int refuse_cpu(const struct host *host, const char *option, const char *text, int64_t cpu,
                      struct error *err)
{
    hwloc_const_cpuset_t known = hwloc_topology_get_complete_cpuset(host->hwloc);
    hwloc_const_cpuset_t online = hwloc_topology_get_topology_cpuset(host->hwloc);
    scoped_free char *known_text = set_text(known);
    scoped_free char *allowed_text = set_text(host->allowed);
    if (!hwloc_bitmap_isset(known, (unsigned)cpu))
        return error_set(err, ERROR_USAGE, "%s '%s': cpu %lld does not exist (this host has %s)", option,
                         text, (long long)cpu, known_text);
    if (!hwloc_bitmap_isset(online, (unsigned)cpu))
        return error_set(err, ERROR_USAGE, "%s '%s': cpu %lld is offline (usable: %s)", option, text,
                         (long long)cpu, allowed_text);
    return error_set(err, ERROR_USAGE, "%s '%s': cpu %lld is not allowed for this process (usable: %s)",
                     option, text, (long long)cpu, allowed_text);
}

static int parse_usable(const struct host *host, const char *option, const char *text, struct list *ret,
                        struct error *err)
{
    struct list list;
    if (topology_parse_list(option, text, &list.at, &list.count, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++)
        if (!host_cpu(host, list.at[i])) {
            int64_t cpu = list.at[i];
            free(list.at);
            return refuse_cpu(host, option, text, cpu, err);
        }
    *ret = list;
    return 0;
}

/* -- the choice --------------------------------------------------------------------------------------------- */

struct choice {
    const struct topology_request *request;
    const char *cpus,
        *cpus_option; /* the list that names what may be measured, and who gave it; NULL: none */
    bool spread;
    struct host host;
    struct list named;    /* --cpus */
    struct list reserved; /* --housekeeping LIST, or what auto keeps back */
    bool listed;          /* reserved was named by the user */
};

static bool core_is_reserved(const struct choice *choice, int64_t core)
{
    for (size_t i = 0; i < choice->reserved.count; i++)
        if (host_cpu(&choice->host, choice->reserved.at[i])->core == core)
            return true;
    return false;
}

static void reserve_core(struct choice *choice)
{
    const struct host *host = &choice->host;
    int64_t core = host_cpu(host, hwloc_bitmap_first(host->allowed))->core;
    for (size_t i = 0; i < host->cpu_count; i++)
        if (host->cpus[i].core == core)
            list_add(&choice->reserved, host->cpus[i].cpu);
}

static int choose_reserved(struct choice *choice, struct error *err)
{
    const char *wanted = choice->request->housekeeping ? choice->request->housekeeping : "auto";
    if (strcmp(wanted, "none") == 0)
        return 0;
    if (strcmp(wanted, "auto") == 0) {
        if (!choice->cpus && physical_cores(&choice->host) >= 4)
            reserve_core(choice);
        return 0;
    }
    choice->listed = true;
    if (parse_usable(&choice->host, "--housekeeping", wanted, &choice->reserved, err) < 0)
        return -1;
    for (size_t i = 0; i < choice->named.count; i++)
        if (list_has(&choice->reserved, choice->named.at[i]))
            return error_set(err, ERROR_USAGE, "cpu %lld is in both %s and --housekeeping",
                             (long long)choice->named.at[i], choice->cpus_option);
    return 0;
}

/* How much of what a CPU belongs to is taken by the first ones of the list. */
struct crowding {
    int64_t thread, package, numa, l3;
};

static struct crowding crowding_of(const struct host *host, const struct list *taken,
                                   const struct topology_cpu *cpu)
{
    struct crowding crowding = {.thread = cpu->thread};
    for (size_t i = 0; i < taken->count; i++) {
        const struct topology_cpu *other = host_cpu(host, taken->at[i]);
        if (other->thread != cpu->thread)
            continue;
        crowding.package += other->package == cpu->package;
        crowding.numa += other->numa == cpu->numa;
        crowding.l3 += other->l3 == cpu->l3;
    }
    return crowding;
}

static bool is_less_crowded(struct crowding a, struct crowding b)
{
    if (a.thread != b.thread)
        return a.thread < b.thread;
    if (a.package != b.package)
        return a.package < b.package;
    return a.numa != b.numa ? a.numa < b.numa : a.l3 < b.l3;
}

/* Each next one is the first of those that are least crowded. */
static void spread(const struct host *host, struct list *list)
{
    for (struct list taken = {list->at, 0}; taken.count < list->count; taken.count++) {
        size_t best = taken.count;
        struct crowding least = crowding_of(host, &taken, host_cpu(host, list->at[best]));
        for (size_t i = best + 1; i < list->count; i++) {
            struct crowding crowding = crowding_of(host, &taken, host_cpu(host, list->at[i]));
            if (!is_less_crowded(crowding, least))
                continue;
            least = crowding;
            best = i;
        }
        int64_t cpu = list->at[best];
        memmove(&list->at[taken.count + 1], &list->at[taken.count], (best - taken.count) * sizeof *list->at);
        list->at[taken.count] = cpu;
    }
}

/* CPUs that may be measured, in order.  A core that is kept back is kept back whole. */
static struct list candidates(const struct choice *choice)
{
    struct list list = {0};
    for (size_t i = 0; i < choice->named.count; i++)
        list_add(&list, choice->named.at[i]);
    for (size_t i = 0; !choice->cpus && i < choice->host.cpu_count; i++)
        if (!core_is_reserved(choice, choice->host.cpus[i].core))
            list_add(&list, choice->host.cpus[i].cpu);
    if (choice->spread)
        spread(&choice->host, &list);
    return list;
}

static int64_t first_threads(const struct choice *choice, const struct list *list)
{
    int64_t count = 0;
    for (size_t i = 0; i < list->count; i++)
        count += host_cpu(&choice->host, list->at[i])->thread == 0;
    return count;
}

static int refuse_workers(const struct choice *choice, int64_t wanted, size_t usable, struct error *err)
{
    const char *kept = choice->reserved.count ? " (the rest is kept for housekeeping)" : "";
    return error_set(err, ERROR_USAGE, "%lld worker%s a CPU each, and %zu of %zu can be measured%s%s",
                     (long long)wanted, wanted == 1 ? " wants" : "s want", usable, choice->host.cpu_count,
                     kept, usable > 0 ? ": fewer --workers, or --oversubscribe" : "");
}

static int choose_measured(const struct choice *choice, struct topology *topology, struct error *err)
{
    struct list list = candidates(choice);
    int64_t wanted = choice->request->workers;
    if (wanted == TOPOLOGY_AUTO)
        wanted = choice->cpus ? (int64_t)list.count : first_threads(choice, &list);
    bool fits = wanted <= (int64_t)list.count || (choice->request->oversubscribe && list.count > 0);
    if ((wanted == 0 && choice->request->workers != 0) || !fits) {
        size_t usable = list.count;
        free(list.at);
        return refuse_workers(choice, wanted ? wanted : 1, usable, err);
    }
    topology->measured = memory_zeroed((size_t)wanted, sizeof *topology->measured);
    for (int64_t i = 0; i < wanted; i++)
        topology->measured[topology->measured_count++] =
            *host_cpu(&choice->host, list.at[(size_t)i % list.count]);
    free(list.at);
    return 0;
}

static bool is_measured(const struct topology *topology, int64_t cpu)
{
    for (size_t i = 0; i < topology->measured_count; i++)
        if (topology->measured[i].cpu == cpu)
            return true;
    return false;
}

static bool core_is_measured(const struct topology *topology, int64_t core)
{
    for (size_t i = 0; i < topology->measured_count; i++)
        if (topology->measured[i].core == core)
            return true;
    return false;
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Idle CPUs: on cores of their own (apart), or siblings of measured ones. */
static struct list idle_cpus(const struct choice *choice, const struct topology *topology, bool apart)
{
    struct list list = {0};
    for (size_t i = 0; i < choice->host.cpu_count; i++) {
        const struct topology_cpu *cpu = &choice->host.cpus[i];
        if (!is_measured(topology, cpu->cpu) && core_is_measured(topology, cpu->core) != apart)
            list_add(&list, cpu->cpu);
    }
    return list;
}

static void choose_housekeeping(const struct choice *choice, struct topology *topology)
{
    struct list list = {0};
    if (choice->listed) {
        for (size_t i = 0; i < choice->reserved.count; i++)
            list_add(&list, choice->reserved.at[i]);
    } else if (!choice->request->housekeeping || strcmp(choice->request->housekeeping, "none") != 0) {
        list = idle_cpus(choice, topology, true);
        if (list.count == 0) {
            list = idle_cpus(choice, topology, false);
            topology->housekeeping_shares_cores = list.count > 0;
        }
    }
    if (list.count)
        qsort(list.at, list.count, sizeof *list.at, by_number);
    topology->housekeeping = list.at;
    topology->housekeeping_count = list.count;
}

static int64_t count_of(const struct host *host, hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_inside_cpuset_by_type(host->hwloc, host->allowed, type);
    return count > 0 ? count : 0;
}

static int64_t count_touched(const struct host *host, hwloc_obj_type_t type)
{
    int64_t count = 0;
    for (hwloc_obj_t object = NULL; (object = hwloc_get_next_obj_by_type(host->hwloc, type, object));)
        count += hwloc_bitmap_intersects(object->cpuset, host->allowed);
    return count ? count : count_of(host, type);
}

static void describe_host(const struct host *host, struct topology *topology)
{
    topology->physical_cores = physical_cores(host);
    topology->packages = count_touched(host, HWLOC_OBJ_PACKAGE);
    topology->numa_nodes = count_touched(host, HWLOC_OBJ_NUMANODE);
    topology->l3_groups = count_touched(host, HWLOC_OBJ_L3CACHE);
    topology->allowed = memory_zeroed(host->cpu_count, sizeof *topology->allowed);
    for (size_t i = 0; i < host->cpu_count; i++)
        topology->allowed[topology->allowed_count++] = host->cpus[i].cpu;
    qsort(topology->allowed, topology->allowed_count, sizeof *topology->allowed, by_number);
}

static int choose(struct choice *choice, struct topology *topology, struct error *err)
{
    const struct topology_request *request = choice->request;
    if (host_open(request, &choice->host, err) < 0)
        return -1;
    if (choice->cpus &&
        parse_usable(&choice->host, choice->cpus_option, choice->cpus, &choice->named, err) < 0)
        return -1;
    if (choose_reserved(choice, err) < 0 || choose_measured(choice, topology, err) < 0)
        return -1;
    choose_housekeeping(choice, topology);
    describe_host(&choice->host, topology);
    return 0;
}

int topology_choose(const struct topology_request *request, struct topology **ret, struct error *err)
{
    struct choice choice = {.request = request, .cpus = request->cpus, .cpus_option = "--cpus"};
    choice.spread = request->placement && strcmp(request->placement, "spread") == 0;
    if (request->placement && !choice.spread) {
        if (request->cpus)
            return error_set(err, ERROR_USAGE,
                             "'placement' names CPUs, and so does --cpus: leave one of them out");
        choice.cpus = request->placement;
        choice.cpus_option = "placement";
    }
    struct topology *topology = memory_zeroed(1, sizeof *topology);
    int status = choose(&choice, topology, err);
    host_release(&choice.host);
    free(choice.named.at);
    free(choice.reserved.at);
    if (status < 0)
        topology_free(topology);
    else
        *ret = topology;
    return status;
}

void topology_free(struct topology *topology)
{
    if (!topology)
        return;
    free(topology->measured);
    free(topology->housekeeping);
    free(topology->allowed);
    free(topology);
}
