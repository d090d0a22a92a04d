#include "coordinator/fleet/fleet_link.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "coordinator/fleet/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#define DIRECTORY_TEMPLATE "corefan-XXXXXX"
#define DIRECTORY_PATTERN  "corefan-??????"
#define NEWBORN_S          2 /* younger ones may be on their way to be held */
#define ZAP_ENDPOINT       "inproc://zeromq.zap.01"
#define FAILED_ENDPOINT    "inproc://corefan.door"
#define KEY_BYTES          32
#define TELL_NS            (60 * NS_PER_S)

struct link {
    void *context, *socket;
    struct door *door; /* NULL: open */
    char *directory;   /* private, ours to remove; or NULL */
    int hold;          /* on it, while we live */
    char *endpoint;
    zmq_msg_t frame;
    bool frame_open;
    int fd;
};

/* -- the door: who is let in; a thread of its own, which sleeps until somebody knocks -- */

enum zap_frame {
    ZAP_VERSION,
    ZAP_REQUEST,
    ZAP_DOMAIN,
    ZAP_ADDRESS,
    ZAP_IDENTITY,
    ZAP_MECHANISM,
    ZAP_KEY,
    ZAP_FRAMES
};

struct door {
    struct door_config config;
    char *directory;
    void *context, *zap, *failures; /* REP that is asked; PAIR that tells of handshakes that failed */
    pthread_t thread;
    bool runs;
    atomic_int_fast64_t refused;
    int64_t told_ns;
};

static void refuse(struct door *door, const char *who, const char *why)
{
    int64_t now_ns = clock_monotonic_ns();
    int64_t refused = (int64_t)atomic_fetch_add(&door->refused, 1) + 1;
    if (door->told_ns && now_ns - door->told_ns < TELL_NS)
        return;
    door->told_ns = now_ns;
    log_line(LOG_WARNING, "a peer%s%s was not let in: %s (%lld so far)", *who ? " at " : "", who, why,
             (long long)refused);
}

static bool is_known(struct door *door, const char *key, const char *address)
{
    struct error err = {0};
    bool known = strcmp(key, door->config.own.public_key) == 0;
    if (known || !door->directory)
        return known;
    if (keys_directory_has(door->directory, key, &known, &err) < 0) {
        refuse(door, address, err.text);
        return false;
    }
    return known;
}

struct question {
    char request[256], address[64], key[KEYS_TEXT_BYTES];
    int request_bytes;
    bool is_curve;
};

static bool has_more(void *socket)
{
    int more = 0;
    size_t size = sizeof more;
    return zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size) == 0 && more;
}

/* false: the context ends. */
static bool read_question(void *zap, struct question *ret)
{
    char frames[ZAP_FRAMES][256];
    int sizes[ZAP_FRAMES] = {0};
    *ret = (struct question){.is_curve = false};
    for (int i = 0; i == 0 || has_more(zap); i++) {
        char rest[256];
        int got = zmq_recv(zap, i < ZAP_FRAMES ? frames[i] : rest, sizeof rest, 0); /* cut to size */
        if (got < 0)
            return false;
        if (i < ZAP_FRAMES)
            sizes[i] = got;
    }
    ret->request_bytes = sizes[ZAP_REQUEST] <= (int)sizeof ret->request ? sizes[ZAP_REQUEST] : 0;
    memcpy(ret->request, frames[ZAP_REQUEST], (size_t)ret->request_bytes);
    if (sizes[ZAP_ADDRESS] > 0 && sizes[ZAP_ADDRESS] < (int)sizeof ret->address)
        memcpy(ret->address, frames[ZAP_ADDRESS], (size_t)sizes[ZAP_ADDRESS]);
    ret->is_curve = sizes[ZAP_MECHANISM] == 5 && memcmp(frames[ZAP_MECHANISM], "CURVE", 5) == 0 &&
                    sizes[ZAP_KEY] == KEY_BYTES &&
                    zmq_z85_encode(ret->key, (const uint8_t *)frames[ZAP_KEY], KEY_BYTES) != NULL;
    return true;
}

static void answer_question(struct door *door)
{
    struct question question;
    if (!read_question(door->zap, &question))
        return;
    bool let_in = question.is_curve && is_known(door, question.key, question.address);
    if (!let_in)
        refuse(door, question.address, "its key is not among the authorised ones");
    const char *code = let_in ? "200" : "400", *text = let_in ? "OK" : "not authorised";
    (void)zmq_send(door->zap, "1.0", 3, ZMQ_SNDMORE);
    (void)zmq_send(door->zap, question.request, (size_t)question.request_bytes, ZMQ_SNDMORE);
    (void)zmq_send(door->zap, code, 3, ZMQ_SNDMORE);
    (void)zmq_send(door->zap, text, strlen(text), ZMQ_SNDMORE);
    (void)zmq_send(door->zap, question.key, let_in ? KEYS_TEXT_BYTES - 1 : 0, ZMQ_SNDMORE); /* the user id */
    (void)zmq_send(door->zap, "", 0, 0);
}

static void take_failure(struct door *door)
{
    char frame[256];
    uint16_t event = 0;
    int got = zmq_recv(door->failures, frame, sizeof frame, 0);
    if (got >= (int)sizeof event)
        memcpy(&event, frame, sizeof event);
    while (got >= 0 && has_more(door->failures))
        got = zmq_recv(door->failures, frame, sizeof frame, 0);
    if (event != ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) /* that one was counted when it was asked */
        refuse(door, "", "it does not speak CURVE, or expects another coordinator's key");
}

static void *door_main(void *argument)
{
    struct door *door = argument;
    zmq_pollitem_t items[] = {{.socket = door->zap, .events = ZMQ_POLLIN},
                              {.socket = door->failures, .events = ZMQ_POLLIN}};
    while (zmq_poll(items, 2, -1) >= 0) {
        if (items[0].revents)
            answer_question(door);
        if (items[1].revents)
            take_failure(door);
    }
    (void)zmq_close(door->zap);
    (void)zmq_close(door->failures);
    return NULL;
}

static int lock_socket(void *socket, const struct key_pair *own)
{
    const int yes = 1;
    return zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &yes, sizeof yes) |
           zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, own->secret_key, KEYS_TEXT_BYTES) |
           zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, "corefan", 7);
}

static int open_sockets(struct door *door, void *socket)
{
    const int none = 0;
    door->zap = zmq_socket(door->context, ZMQ_REP);
    door->failures = zmq_socket(door->context, ZMQ_PAIR);
    if (!door->zap || !door->failures ||
        zmq_socket_monitor(socket, FAILED_ENDPOINT,
                           ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                               ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) < 0)
        return -1;
    (void)zmq_setsockopt(door->zap, ZMQ_LINGER, &none, sizeof none);
    (void)zmq_setsockopt(door->failures, ZMQ_LINGER, &none, sizeof none);
    return zmq_bind(door->zap, ZAP_ENDPOINT) | zmq_connect(door->failures, FAILED_ENDPOINT) |
           lock_socket(socket, &door->config.own);
}

/* The socket is closed already.  Shuts the context down.  NULL is fine. */
static void door_close(struct door *door)
{
    if (!door)
        return;
    if (door->runs) {
        (void)zmq_ctx_shutdown(door->context); /* wakes the thread, which closes its sockets */
        (void)pthread_join(door->thread, NULL);
    } else {
        if (door->zap)
            (void)zmq_close(door->zap);
        if (door->failures)
            (void)zmq_close(door->failures);
    }
    free(door->directory);
    free(door);
}

/* Locks a ROUTER that is not bound yet and keeps its door. */
static int door_open(void *context, void *socket, const struct door_config *config, struct door **ret,
                     struct error *err)
{
    struct door *door = memory_zeroed(1, sizeof *door);
    *door = (struct door){.config = *config, .context = context};
    door->directory = config->directory ? memory_text(config->directory) : NULL;
    if (open_sockets(door, socket) != 0 || pthread_create(&door->thread, NULL, door_main, door) != 0) {
        (void)error_set(err, ERROR_INTERNAL, "cannot lock a ZeroMQ socket: %s", zmq_strerror(zmq_errno()));
        door_close(door);
        return -1;
    }
    door->runs = true;
    *ret = door;
    return 0;
}

int link_draw_keys(struct key_pair *ret, struct error *err)
{
    struct key_pair pair;
    if (!zmq_has("curve") || zmq_curve_keypair(pair.public_key, pair.secret_key) < 0)
        return error_set(err, ERROR_INTERNAL, "cannot make keys: this ZeroMQ has no CURVE");
    *ret = pair;
    return 0;
}

/* -- the private directory -- */

/* A socket per worker: take as many files as we may. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void remove_directory(const char *directory)
{
    scoped_free char *path = memory_format("%s/fleet", directory);
    unlink(path);
    rmdir(directory);
}

/* Holds a directory of ours for as long as the file is open; -1: it is none. */
static int hold_directory(const char *path, int how, struct stat *ret)
{
    int file = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (file >= 0 && flock(file, how) == 0 && fstat(file, ret) == 0 && ret->st_uid == geteuid() &&
        ret->st_nlink > 0)
        return file;
    if (file >= 0)
        (void)close(file);
    return -1;
}

/* Nobody holds it any more, nobody listens in it, and it is no newborn. */
static bool is_left_behind(const char *path, const struct stat *about)
{
    scoped_free char *endpoint = memory_format("ipc://%s/fleet", path);
    struct error err;
    return time(NULL) - about->st_mtime > NEWBORN_S && endpoint_claim(endpoint, &err) == 0;
}

/* A coordinator that was killed could not put its directory away. */
static void tidy_up(const char *base)
{
    glob_t found = {0};
    scoped_free char *pattern = memory_format("%s/" DIRECTORY_PATTERN, base);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) {
            struct stat about;
            int file = hold_directory(found.gl_pathv[i], LOCK_EX | LOCK_NB, &about);
            if (file < 0)
                continue;
            if (is_left_behind(found.gl_pathv[i], &about))
                remove_directory(found.gl_pathv[i]);
            (void)close(file);
        }
    globfree(&found);
}

static int private_directory(struct link *link, struct error *err)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    if (!base || base[0] != '/' || strlen(base) > 64 || access(base, W_OK) < 0)
        base = "/tmp";
    tidy_up(base);
    char *directory = memory_format("%s/" DIRECTORY_TEMPLATE, base);
    struct stat about;
    if (!mkdtemp(directory) ||
        (link->hold = hold_directory(directory, LOCK_EX, &about)) < 0) { /* mode 0700 */
        error_set(err, ERROR_INTERNAL, "cannot make a directory in %s: %s", base, strerror(errno));
        free(directory);
        return -1;
    }
    link->directory = directory;
    return 0;
}

/* -- the socket -- */

static int set_number(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value);
}

static int make_socket(struct link *link, const struct link_config *config, struct error *err)
{
    const int64_t largest = WIRE_MAX_FRAME_BYTES;
    link->context = zmq_ctx_new();
    for (size_t i = 0; link->context && i < config->housekeeping_count; i++)
        zmq_ctx_set(link->context, ZMQ_THREAD_AFFINITY_CPU_ADD, (int)config->housekeeping[i]);
    if (link->context)
        link->socket = zmq_socket(link->context, ZMQ_ROUTER);
    if (!link->socket)
        return error_set(err, ERROR_INTERNAL, "cannot make a ZeroMQ socket: %s", zmq_strerror(errno));
    int failed = set_number(link->socket, ZMQ_ROUTER_MANDATORY, 1) |
                 set_number(link->socket, ZMQ_LINGER, LINK_LINGER_MS) |
                 set_number(link->socket, ZMQ_SNDHWM, LINK_QUEUE_FRAMES) |
                 set_number(link->socket, ZMQ_RCVHWM, LINK_QUEUE_FRAMES) |
                 set_number(link->socket, ZMQ_BACKLOG, 1024) |
                 zmq_setsockopt(link->socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest);
    if (config->listen && strchr(config->listen, '['))
        failed |= set_number(link->socket, ZMQ_IPV6, 1);
    if (failed)
        return error_set(err, ERROR_INTERNAL, "cannot set up a ZeroMQ socket: %s", zmq_strerror(errno));
    return config->door ? door_open(link->context, link->socket, config->door, &link->door, err) : 0;
}

static int bind_socket(struct link *link, const struct link_config *config, struct error *err)
{
    char bound[512];
    size_t size = sizeof bound, fd_size = sizeof link->fd;
    if (!config->listen && private_directory(link, err) < 0)
        return -1;
    scoped_free char *wanted =
        config->listen ? memory_text(config->listen) : memory_format("ipc://%s/fleet", link->directory);
    if (endpoint_claim(wanted, err) < 0)
        return -1;
    if (zmq_bind(link->socket, wanted) < 0)
        return error_set(err, ERROR_USAGE, "cannot listen at '%s': %s", wanted, zmq_strerror(errno));
    if (zmq_getsockopt(link->socket, ZMQ_LAST_ENDPOINT, bound, &size) < 0 ||
        zmq_getsockopt(link->socket, ZMQ_FD, &link->fd, &fd_size) < 0)
        return error_set(err, ERROR_INTERNAL, "cannot ask a ZeroMQ socket: %s", zmq_strerror(errno));
    link->endpoint = memory_text(bound);
    return 0;
}

int link_open(const struct link_config *config, struct link **ret, struct error *err)
{
    struct link *link = memory_zeroed(1, sizeof *link);
    raise_file_limit();
    if (make_socket(link, config, err) < 0 || bind_socket(link, config, err) < 0) {
        link_close(link);
        return -1;
    }
    *ret = link;
    return 0;
}

void link_close(struct link *link)
{
    if (!link)
        return;
    if (link->frame_open)
        zmq_msg_close(&link->frame);
    if (link->socket)
        zmq_close(link->socket);
    door_close(link->door);
    if (link->context)
        zmq_ctx_term(link->context);
    if (link->directory) {
        remove_directory(link->directory);
        (void)close(link->hold);
    }
    free(link->directory);
    free(link->endpoint);
    free(link);
}

const char *link_endpoint(const struct link *link)
{
    return link->endpoint;
}

int link_fd(const struct link *link)
{
    return link->fd;
}

static bool receive_part(struct link *link, zmq_msg_t *part)
{
    zmq_msg_init(part);
    if (zmq_msg_recv(part, link->socket, ZMQ_DONTWAIT) >= 0)
        return true;
    zmq_msg_close(part);
    return false;
}

static void skip_parts(struct link *link)
{
    zmq_msg_t part;
    bool more = true;
    while (more && receive_part(link, &part)) {
        more = zmq_msg_more(&part);
        zmq_msg_close(&part);
    }
}

bool link_receive(struct link *link, struct link_frame *ret)
{
    zmq_msg_t identity;
    if (link->frame_open)
        zmq_msg_close(&link->frame);
    link->frame_open = false;
    if (!receive_part(link, &identity))
        return false;
    size_t bytes = zmq_msg_size(&identity);
    ret->identity_bytes = bytes < sizeof ret->identity ? bytes : sizeof ret->identity;
    memcpy(ret->identity, zmq_msg_data(&identity), ret->identity_bytes);
    zmq_msg_close(&identity);
    if (!receive_part(link, &link->frame))
        return false;
    link->frame_open = true;
    const char *key = link->door ? zmq_msg_gets(&link->frame, "User-Id") : NULL;
    (void)snprintf(ret->key, sizeof ret->key, "%s", key ? key : "");
    ret->data = zmq_msg_data(&link->frame);
    ret->size = zmq_msg_size(&link->frame);
    ret->several = zmq_msg_more(&link->frame);
    if (ret->several)
        skip_parts(link);
    return true;
}

int link_send(struct link *link, const void *identity, size_t identity_bytes, const void *data, size_t size,
              const char **ret_why)
{
    int sent = zmq_send(link->socket, identity, identity_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    if (sent >= 0)
        sent = zmq_send(link->socket, data, size, ZMQ_DONTWAIT);
    if (sent >= 0)
        return 0;
    *ret_why = errno == EAGAIN ? "it does not read what is sent to it" : "its connection is gone";
    return -1;
}
