#include "coordinator/host/environment_facts.h"

#include "base/memory.h"
#include "coordinator/host/topology.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void environment_put(json_t *object, const char *name, json_t *value, const char *why)
{
    if (value) {
        (void)json_object_set_new(object, name, value);
        return;
    }
    scoped_free char *reason = memory_format("%s_null_reason", name);
    (void)json_object_set_new(object, name, json_null());
    (void)json_object_set_new(object, reason, json_string(why ? why : "unreadable"));
}

const char *environment_why(int number)
{
    switch (number) {
    case ENOENT:
    case ENOTDIR:
        return "missing";
    case EACCES:
    case EPERM:
        return "forbidden";
    default:
        return "unreadable";
    }
}

/* At most ENVIRONMENT_MAX_BYTES; a pipe or a device that has nothing to say does not keep us. */
static char *read_bytes(int fd, size_t *ret_bytes)
{
    size_t room = 4096, used = 0;
    char *bytes = memory_resized(NULL, room, 1);
    for (;;) {
        ssize_t got = read(fd, bytes + used, room - used - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int number = errno;
            free(bytes);
            errno = number;
            return NULL;
        }
        used += (size_t)got;
        if (got == 0 || used + 1 >= ENVIRONMENT_MAX_BYTES)
            break;
        if (used + 1 == room)
            bytes = memory_resized(bytes, room *= 2, 1);
    }
    *ret_bytes = used;
    return bytes;
}

static char *trim(char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] == '\0')
            bytes[i] = '?';
    while (count > 0 && isspace((unsigned char)bytes[count - 1]))
        count--;
    bytes[count] = '\0';
    size_t lead = strspn(bytes, " \t\r\n");
    memmove(bytes, bytes + lead, count - lead + 1);
    return bytes;
}

char *environment_text(const char *root, const char *path, const char **ret_why)
{
    scoped_free char *name = memory_format("%s/%s", root, path);
    size_t count = 0;
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    char *bytes = fd < 0 ? NULL : read_bytes(fd, &count);
    if (!bytes)
        *ret_why = environment_why(errno);
    if (fd >= 0)
        (void)close(fd);
    return bytes ? trim(bytes, count) : NULL;
}

bool environment_integer(const char *text, int64_t *ret)
{
    char *end = NULL;
    if (!isdigit((unsigned char)text[*text == '-']))
        return false;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno || *end)
        return false;
    *ret = number;
    return true;
}

bool environment_decimal(const char *text, double *ret)
{
    char *end = NULL;
    size_t length = strlen(text);
    if (length == 0 || length > 32 || strspn(text, "0123456789.") != length || *text == '.')
        return false;
    double number = strtod(text, &end);
    if (*end)
        return false;
    *ret = number;
    return true;
}

json_t *environment_count(const char *list)
{
    int64_t *cpus = NULL;
    size_t count = 0;
    if (topology_parse_list("", list, &cpus, &count, NULL) < 0)
        return NULL;
    free(cpus);
    return json_integer((json_int_t)count);
}

json_t *environment_real(double value)
{
    return json_real(round(value * 1e6) / 1e6);
}

static json_t *text_value(const char *text)
{
    scoped_free char *clean = memory_text(text);
    for (char *at = clean; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    return json_string(clean);
}

static json_t *integer_value(const char *text)
{
    int64_t number;
    return environment_integer(text, &number) ? json_integer(number) : NULL;
}

static json_t *flag_value(const char *text)
{
    bool known = strcmp(text, "0") == 0 || strcmp(text, "1") == 0;
    return known ? json_boolean(*text == '1') : NULL;
}

static json_t *cpus_value(const char *text)
{
    int64_t *cpus = NULL;
    size_t count = 0;
    if (topology_parse_list("", text, &cpus, &count, NULL) < 0)
        return NULL;
    free(cpus);
    return json_string(text);
}

static json_t *cpus_any_value(const char *text)
{
    return *text == '\0' || strcmp(text, "(null)") == 0 ? json_string("") : cpus_value(text);
}

json_t *environment_value(enum environment_kind kind, const char *text, const char **ret_why)
{
    static json_t *(*const makers[])(const char *) = {
        [FACT_TEXT] = text_value, [FACT_INTEGER] = integer_value,   [FACT_FLAG] = flag_value,
        [FACT_CPUS] = cpus_value, [FACT_CPUS_ANY] = cpus_any_value,
    };
    if (!text)
        return NULL;
    if (*text == '\0' && kind != FACT_CPUS_ANY) {
        *ret_why = "empty";
        return NULL;
    }
    json_t *value = makers[kind](text);
    if (!value)
        *ret_why = "unexpected_content";
    return value;
}

json_t *environment_file(enum environment_kind kind, const char *root, const char *path, const char **ret_why)
{
    scoped_free char *text = environment_text(root, path, ret_why);
    return environment_value(kind, text, ret_why);
}

char *environment_field(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t gap = strncmp(line, key, length) == 0 ? strspn(line + length, " \t:") : 0;
        if (gap == 0)
            continue;
        const char *value = line + length + gap;
        return memory_format("%.*s", (int)strcspn(value, "\n"), value);
    }
    return NULL;
}
