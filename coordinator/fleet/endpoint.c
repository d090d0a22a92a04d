#include "coordinator/fleet/endpoint.h"

#include "base/memory.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define IPC "ipc://"
#define TCP "tcp://"

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool port_is_fine(const char *port)
{
    long number = 0;
    size_t digits = 0;
    if (strcmp(port, "*") == 0)
        return true;
    for (; digits < 6 && isdigit((unsigned char)port[digits]); digits++)
        number = number * 10 + (port[digits] - '0');
    return digits > 0 && port[digits] == '\0' && number <= 65535;
}

/* host without brackets */
static bool is_loopback(const char *host)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, host, &four) == 1)
        return (ntohl(four.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

static bool is_address(const char *host)
{
    struct in_addr four;
    struct in6_addr six;
    return inet_pton(AF_INET, host, &four) == 1 || inet_pton(AF_INET6, host, &six) == 1;
}

static int check_tcp(const char *text, bool has_keys, char **ret, struct error *err)
{
    scoped_free char *host = memory_text(text + strlen(TCP));
    char *colon = strrchr(host, ':');
    if (!colon || colon == host || !port_is_fine(colon + 1))
        return error_set(err, ERROR_USAGE, "--listen '%s' is not tcp://HOST:PORT", text);
    *colon = '\0';
    const char *port = colon + 1;
    char *bare = host;
    size_t length = strlen(host);
    if (host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = '\0';
        bare = host + 1;
    }
    if (strcmp(bare, "localhost") == 0)
        *ret = memory_format(TCP "127.0.0.1:%s", port);
    else if (is_loopback(bare) || (has_keys && is_address(bare)))
        *ret = memory_text(text);
    else
        return error_set(
            err, ERROR_USAGE,
            has_keys ? "--listen '%s' is no address of this host: give one by number, or 0.0.0.0 for all"
                     : "--listen '%s' can be reached from other hosts, and without keys nothing on this wire "
                       "is encrypted or "
                       "authenticated: give --key and --authorized-keys (corefan keygen), or listen at "
                       "127.0.0.1 or ipc://PATH",
            text);
    return 0;
}

int endpoint_check(const char *text, bool has_keys, char **ret, struct error *err)
{
    if (starts_with(text, TCP))
        return check_tcp(text, has_keys, ret, err);
    if (!starts_with(text, IPC) || text[strlen(IPC)] == '\0' || text[strlen(IPC)] == '@')
        return error_set(err, ERROR_USAGE, "--listen '%s' is neither ipc://PATH nor tcp://127.0.0.1:PORT",
                         text);
    if (strlen(text + strlen(IPC)) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return error_set(err, ERROR_USAGE, "--listen '%s': the path is longer than %zu bytes", text,
                         sizeof((struct sockaddr_un *)0)->sun_path - 1);
    *ret = memory_text(text);
    return 0;
}

static bool somebody_listens(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    bool listens = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN;
    close(fd);
    return listens;
}

int endpoint_claim(const char *endpoint, struct error *err)
{
    struct stat about;
    if (!starts_with(endpoint, IPC))
        return 0;
    const char *path = endpoint + strlen(IPC);
    if (lstat(path, &about) < 0)
        return 0;
    if (!S_ISSOCK(about.st_mode))
        return error_set(err, ERROR_USAGE, "--listen '%s': that path exists and is no socket", endpoint);
    if (somebody_listens(path))
        return error_set(err, ERROR_USAGE, "--listen '%s': address already in use", endpoint);
    return 0;
}
