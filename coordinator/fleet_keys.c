#include "coordinator/fleet_keys.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define ZAP_ENDPOINT    "inproc://zeromq.zap.01"
#define FAILED_ENDPOINT "inproc://corefan.door"
#define KEY_BYTES       32
#define TELL_NS         (60 * NS_PER_S)

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

int fleet_keys_draw(struct key_pair *ret, struct error *err)
{
    struct key_pair pair;
    if (!zmq_has("curve") || zmq_curve_keypair(pair.public_key, pair.secret_key) < 0)
        return error_set(err, ERROR_INTERNAL, "cannot make keys: this ZeroMQ has no CURVE");
    *ret = pair;
    return 0;
}

/* ---- the door's thread ---- */

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

/* One frame of a request, cut to size; its true size, or -1. */
static int receive(void *socket, void *buf, size_t size)
{
    int got = zmq_recv(socket, buf, size, 0);
    return got;
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
        int got = receive(zap, i < ZAP_FRAMES ? frames[i] : rest, sizeof rest);
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

/* ---- seen from outside ---- */

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

int door_open(void *context, void *socket, const struct door_config *config, struct door **ret,
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

int64_t door_refused(const struct door *door)
{
    return door ? (int64_t)atomic_load(&door->refused) : 0;
}

void door_close(struct door *door)
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
