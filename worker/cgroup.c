#include "worker/cgroup.h"

#include "base/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Is word one of the parts of "cpu,cpuacct"? */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}

/* "1:cpu,cpuacct:/a/b" is version 1's, "0::/a/b" version 2's.  NULL, or free() it. */
static char *group_of(const char *cgroups, int version)
{
    scoped_free char *text = memory_text(cgroups);
    char *rest = text;
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/')
            continue;
        *group++ = '\0';
        controllers++;
        if (version == 1 ? has_word(controllers, "cpu") : *controllers == '\0')
            return memory_text(group);
    }
    return NULL;
}

/* "\040" -> " ", in place. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at; to++) {
        unsigned code;
        if (*at == '\\' && strspn(at + 1, "01234567") >= 3 && sscanf(at + 1, "%3o", &code) == 1) {
            *to = (char)code;
            at += 4;
        } else {
            *to = *at++;
        }
    }
    *to = '\0';
}

/* One line of mountinfo: the root and the mount point are its 4th and 5th word; after " - " come type, origin and
 * options. */
static bool is_mount_of(char *line, int version, char **ret_root, char **ret_point)
{
    char *tail = strstr(line, " - "), *words[5], *rest = line;
    if (!tail)
        return false;
    char *type = strtok_r(tail + 3, " ", &tail), *origin = strtok_r(NULL, " ", &tail),
         *options = strtok_r(NULL, " ", &tail);
    if (!type || !origin || !options || strcmp(type, version == 1 ? "cgroup" : "cgroup2") != 0 ||
        (version == 1 && !has_word(options, "cpu")))
        return false;
    for (int i = 0; i < 5; i++)
        if (!(words[i] = strtok_r(rest, " ", &rest)))
            return false;
    unescape(words[3]);
    unescape(words[4]);
    *ret_root = words[3];
    *ret_point = words[4];
    return true;
}

/* The group's directory; its path counts from the root of the mount. */
static char *join(const char *group, const char *root, const char *point)
{
    size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(group, root, length) != 0 || (group[length] != '/' && group[length] != '\0') ||
        strncmp(group, "/..", 3) == 0)
        return NULL;
    const char *inside = strcmp(group + length, "/") == 0 ? "" : group + length;
    return memory_format("%s%s/cpu.stat", point, inside);
}

static char *path_of_version(const char *cgroups, const char *mountinfo, int version)
{
    scoped_free char *group = group_of(cgroups, version), *text = memory_text(mountinfo);
    char *rest = text, *root, *point, *path = NULL;
    for (char *line; group && !path && (line = strtok_r(rest, "\n", &rest));)
        if (is_mount_of(line, version, &root, &point))
            path = join(group, root, point);
    return path;
}

char *cgroup_cpu_stat_path(const char *cgroups, const char *mountinfo)
{
    char *path = path_of_version(cgroups, mountinfo, 1);
    return path ? path : path_of_version(cgroups, mountinfo, 2);
}

/* The number behind a key at the start of a line, times scale; INT64_MIN without. */
static int64_t number_of(const char *text, const char *key, int64_t scale)
{
    size_t length = strlen(key);
    long long number;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && sscanf(line + length, " %lld", &number) == 1)
            return number < 0 || number > INT64_MAX / scale ? INT64_MIN : number * scale;
    }
    return INT64_MIN;
}

void cgroup_parse_throttling(const char *cpu_stat, struct cgroup_throttling *ret)
{
    ret->periods = number_of(cpu_stat, "nr_throttled ", 1);
    ret->held_ns = number_of(cpu_stat, "throttled_time ", 1);
    if (ret->held_ns == INT64_MIN)
        ret->held_ns = number_of(cpu_stat, "throttled_usec ", 1000);
}
