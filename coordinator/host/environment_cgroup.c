/* What the control groups of this process allow it, in both versions.
 *
 * /proc/self/cgroup names the group of each hierarchy, /proc/self/mountinfo where that hierarchy is mounted and which of
 * its groups is the root of the mount.  A limit binds all groups below, so the tightest on the way up counts.  See
 * cgroups(7), proc(5), and the kernel's admin-guide/cgroup-v1 and cgroup-v2. */
#include "coordinator/host/environment_facts.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#define UNLIMITED_BYTES (INT64_MAX / 2) /* version 1 says so with the largest number of pages */

/* A group's directory, from the mount point down. */
struct place {
    int version;  /* 1 or 2; 0: not found */
    char *mount;  /* directory of the mount point */
    char *inside; /* of the group below it: "" or "/a/b" */
    const char *why;
};

static void place_release(struct place *place)
{
    free(place->mount);
    free(place->inside);
}

/* Is word one of the parts of the list? */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
        if (*at == '\0')
            break;
    }
    return false;
}

/* "4:cpu,cpuacct:/a/b": the group in version 1's hierarchy of the controller, or else in version 2's.  NULL, or
 * free() it. */
static char *group_of(const char *cgroups, const char *controller, int *ret_version)
{
    scoped_free char *text = memory_text(cgroups);
    char *unified = NULL, *rest = text;
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/')
            continue;
        *group++ = '\0';
        if (has_word(controllers + 1, controller)) {
            free(unified);
            *ret_version = 1;
            return memory_text(group);
        }
        if (controllers[1] == '\0' && !unified)
            unified = memory_text(group);
    }
    *ret_version = 2;
    return unified;
}

/* "\040" -> " ", in place. */
static char *unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at; to++) {
        unsigned code;
        if (*at == '\\' && sscanf(at + 1, "%3o", &code) == 1 && strspn(at + 1, "01234567") >= 3) {
            *to = (char)code;
            at += 4;
        } else {
            *to = *at++;
        }
    }
    *to = '\0';
    return text;
}

/* The 4th and 5th word of a line of mountinfo whose type and options, after " - ", are those wanted. */
static bool parse_mount(char *line, int version, const char *controller, char **ret_root, char **ret_point)
{
    char *tail = strstr(line, " - "), *words[5], *rest = line;
    if (!tail)
        return false;
    char *type = strtok_r(tail + 3, " ", &tail), *origin = strtok_r(NULL, " ", &tail),
         *options = strtok_r(NULL, " ", &tail);
    if (!type || !origin || strcmp(type, version == 1 ? "cgroup" : "cgroup2") != 0)
        return false;
    if (version == 1 && (!options || !has_word(options, controller)))
        return false;
    for (int i = 0; i < 5; i++)
        if (!(words[i] = strtok_r(rest, " ", &rest)))
            return false;
    *ret_root = memory_text(unescape(words[3]));
    *ret_point = memory_text(unescape(words[4]));
    return true;
}

static bool find_mount(const char *mounts, int version, const char *controller, char **ret_root,
                       char **ret_point)
{
    scoped_free char *text = memory_text(mounts);
    char *rest = text;
    for (char *line; (line = strtok_r(rest, "\n", &rest));)
        if (parse_mount(line, version, controller, ret_root, ret_point))
            return true;
    return false;
}

/* The directory of a mount point: those below /sys lie below the root that stands for it. */
static char *map_directory(const struct environment_source *source, const char *point)
{
    return strncmp(point, "/sys/", 5) == 0 ? memory_format("%s/%s", source->sys, point + 5)
                                           : memory_text(point);
}

/* What is left of the group's path below the root of the mount; NULL: it is outside of what we see. */
static char *path_inside(const char *group, const char *root)
{
    size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(group, root, length) != 0 || (group[length] != '/' && group[length] != '\0'))
        return NULL;
    if (strncmp(group, "/..", 3) == 0)
        return NULL;
    return memory_text(strcmp(group + length, "/") == 0 ? "" : group + length);
}

static struct place find_place(const struct environment_source *source, const char *controller)
{
    struct place place = {.why = "no_cgroup"};
    scoped_free char *cgroups = environment_text(source->proc, "self/cgroup", &place.why);
    scoped_free char *mounts = cgroups ? environment_text(source->proc, "self/mountinfo", &place.why) : NULL;
    if (!mounts)
        return place;
    int version = 0;
    scoped_free char *group = group_of(cgroups, controller, &version), *root = NULL, *point = NULL;
    place.why = "no_cgroup";
    if (!group || !find_mount(mounts, version, controller, &root, &point))
        return place;
    place.inside = path_inside(group, root);
    if (!place.inside)
        return place;
    place.mount = map_directory(source, point);
    place.version = version;
    return place;
}

/* ---- limits on the way up ---- */

struct limit {
    double value;
    int64_t quota_us, period_us; /* of a CPU quota */
    char *where;                 /* the group's path inside the mount; NULL: no limit */
    const char *why;             /* there is none */
};

/* How one directory limits: true and value (and quota), or false and why ("no_limit" included). */
typedef bool limit_read(const char *directory, int version, struct limit *ret);

static bool read_pair(const char *text, int64_t *ret_first, int64_t *ret_second)
{
    scoped_free char *copy = memory_text(text);
    char *rest = copy, *first = strtok_r(rest, " ", &rest), *second = strtok_r(NULL, " ", &rest);
    return first && second && environment_integer(first, ret_first) &&
           environment_integer(second, ret_second);
}

/* "50000 100000", version 1's two files alike; "max 100000" or -1: none. */
static bool read_quota(const char *directory, int version, struct limit *ret)
{
    scoped_free char *quota =
        environment_text(directory, version == 1 ? "cpu.cfs_quota_us" : "cpu.max", &ret->why);
    scoped_free char *period =
        quota && version == 1 ? environment_text(directory, "cpu.cfs_period_us", &ret->why) : NULL;
    if (!quota || (version == 1 && !period))
        return false;
    scoped_free char *both = version == 1 ? memory_format("%s %s", quota, period) : memory_text(quota);
    ret->why = "no_limit";
    if (strncmp(both, "max ", 4) == 0 || strncmp(both, "-1 ", 3) == 0)
        return false;
    ret->why = "unexpected_content";
    if (!read_pair(both, &ret->quota_us, &ret->period_us) || ret->quota_us <= 0 || ret->period_us <= 0)
        return false;
    ret->value = (double)ret->quota_us / (double)ret->period_us;
    return true;
}

static bool read_memory(const char *directory, int version, struct limit *ret)
{
    int64_t bytes = 0;
    scoped_free char *text =
        environment_text(directory, version == 1 ? "memory.limit_in_bytes" : "memory.max", &ret->why);
    if (!text)
        return false;
    bool known = environment_integer(text, &bytes);
    ret->why =
        strcmp(text, "max") == 0 || (known && bytes > UNLIMITED_BYTES) ? "no_limit" : "unexpected_content";
    ret->value = (double)bytes;
    return known && bytes >= 0 && bytes <= UNLIMITED_BYTES;
}

/* A reason tells more than that a file is missing or says "max". */
static bool is_worse(const char *why)
{
    return strcmp(why, "missing") != 0 && strcmp(why, "no_limit") != 0;
}

/* The tightest limit from the group up to the mount point.  A group without the file is not limited by it. */
static struct limit find_limit(const struct place *place, limit_read *read)
{
    struct limit tightest = {.why = place->version ? "no_limit" : place->why};
    scoped_free char *inside = memory_text(place->version ? place->inside : NULL);
    while (inside) {
        struct limit here = {.why = "missing"};
        scoped_free char *directory = memory_format("%s%s", place->mount, inside);
        if (read(directory, place->version, &here) && (!tightest.where || here.value < tightest.value)) {
            free(tightest.where);
            tightest = here;
            tightest.where = memory_text(inside);
        } else if (is_worse(here.why) && !tightest.where) {
            tightest.why = here.why;
        }
        char *slash = strrchr(inside, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
    return tightest;
}

/* ---- throttling ---- */

/* In the group that limits, or else in ours: only a group with a quota counts. */
static void put_throttling(json_t *host, const struct place *place, const char *inside)
{
    static const struct {
        const char *fact, *key[2]; /* key by version */
        int64_t scale[2];
    } counters[] = {{"cgroup_periods", {"nr_periods", "nr_periods"}, {1, 1}},
                    {"cgroup_throttled_periods", {"nr_throttled", "nr_throttled"}, {1, 1}},
                    {"cgroup_throttled_ns", {"throttled_time", "throttled_usec"}, {1, 1000}}};
    const char *why = place->why;
    scoped_free char *directory = place->version ? memory_format("%s%s", place->mount, inside) : NULL;
    scoped_free char *text = directory ? environment_text(directory, "cpu.stat", &why) : NULL;
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        int version = place->version == 2;
        scoped_free char *value = text ? environment_field(text, counters[i].key[version]) : NULL;
        int64_t number, scale = counters[i].scale[version];
        bool known =
            value && environment_integer(value, &number) && number >= 0 && number <= INT64_MAX / scale;
        if (text)
            why = value ? "unexpected_content" : "no_limit";
        environment_put(host, counters[i].fact, known ? json_integer(number * scale) : NULL, why);
    }
}

static void put_cpu(json_t *host, const struct environment_source *source)
{
    struct place place = find_place(source, "cpu");
    struct limit limit = find_limit(&place, read_quota);
    const char *why = limit.why, *inside = place.inside && *place.inside ? place.inside : "/";
    json_t *path = place.version ? environment_value(FACT_TEXT, inside, &why) : NULL;
    environment_put(host, "cgroup_version", place.version ? json_integer(place.version) : NULL, place.why);
    environment_put(host, "cgroup_path", path, why);
    environment_put(host, "cgroup_quota_cpus", limit.where ? environment_real(limit.value) : NULL, limit.why);
    environment_put(host, "cgroup_quota_us", limit.where ? json_integer(limit.quota_us) : NULL, limit.why);
    environment_put(host, "cgroup_period_us", limit.where ? json_integer(limit.period_us) : NULL, limit.why);
    put_throttling(host, &place, limit.where ? limit.where : place.inside);
    free(limit.where);
    place_release(&place);
}

static void put_memory(json_t *host, const struct environment_source *source)
{
    struct place place = find_place(source, "memory");
    struct limit limit = find_limit(&place, read_memory);
    environment_put(host, "cgroup_memory_bytes", limit.where ? json_integer((json_int_t)limit.value) : NULL,
                    limit.why);
    free(limit.where);
    place_release(&place);
}

static void put_cpuset(json_t *host, const struct environment_source *source)
{
    struct place place = find_place(source, "cpuset");
    const char *why = place.why,
               *file = place.version == 1 ? "cpuset.effective_cpus" : "cpuset.cpus.effective";
    scoped_free char *directory = place.version ? memory_format("%s%s", place.mount, place.inside) : NULL;
    json_t *cpus = directory ? environment_file(FACT_CPUS, directory, file, &why) : NULL;
    if (!cpus && why && strcmp(why, "missing") == 0)
        why = "no_limit";
    environment_put(host, "cgroup_cpus", cpus, why);
    place_release(&place);
}

void environment_put_cgroup(json_t *host, const struct environment_source *source)
{
    put_cpu(host, source);
    put_memory(host, source);
    put_cpuset(host, source);
}
