#include "coordinator/fleet/fleet.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "coordinator/fleet/fleet_link.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define TICK_NS          (250 * NS_PER_MS)
#define TICK_ALONE_NS    NS_PER_S /* when the loop shares the CPUs with what is measured */
#define FRAMES_PER_TURN  256
#define FAREWELL_NS      (300 * NS_PER_MS)
#define BY_HAND_NS       (2 * NS_PER_S) /* SPEC 5.2: how long their goodbye is awaited */
#define FAREWELL_STEP_MS 10

/* A peer that a send did not reach; told to the schedule once the actions at hand are carried out. */
struct unreachable {
    unsigned char identity[SCHEDULE_MAX_IDENTITY];
    size_t identity_bytes;
    const char *why;
    struct unreachable *next;
};

struct fleet {
    struct fleet_config config;
    struct link *link;
    struct schedule *schedule;
    struct launch *launch;
    struct store *store; /* once the plan runs */
    sigset_t old_mask;
    bool masked;
    int signal_fd;
    int64_t tick_ns, next_tick_ns;
    int64_t start_base_ns; /* of the gang whose goes are being sent; 0: none */
    struct unreachable *unreachable;
    char *slot_failure; /* why a local worker was given up */
    bool slot_refused;  /* for want of something that the user can put right */
    int interrupts;
    int64_t stop_by_ns;
    bool closing;        /* workers were told to end: their ends are no news */
    struct error broken; /* kind NONE: nothing is */
};

/* -- actions ------------------------------------------------------------------------------------------------ */

static void do_send(struct fleet *fleet, const struct schedule_action *action)
{
    struct wire_message message = action->message;
    struct wire_bytes bytes;
    struct error err;
    const char *why = NULL;
    if (action->start_in_ns > 0) { /* one instant for the whole gang, taken as late as can be */
        if (!fleet->start_base_ns)
            fleet->start_base_ns = clock_monotonic_ns();
        message.go.start_at_ns = fleet->start_base_ns + action->start_in_ns;
    }
    if (wire_encode(&message, &bytes, &err) < 0) {
        if (fleet->broken.kind == ERROR_NONE)
            error_set(&fleet->broken, ERROR_INTERNAL, "cannot write a message '%s': %s",
                      wire_type_name(message.type), err.text);
        return;
    }
    int sent = link_send(fleet->link, action->identity, action->identity_bytes, bytes.data, bytes.size, &why);
    free(bytes.data);
    if (sent == 0)
        return;
    struct unreachable *lost = memory_zeroed(1, sizeof *lost);
    memcpy(lost->identity, action->identity, action->identity_bytes);
    lost->identity_bytes = action->identity_bytes;
    lost->why = why;
    lost->next = fleet->unreachable;
    fleet->unreachable = lost;
}

static int do_store_result(struct fleet *fleet, const struct schedule_action *action, struct error *err)
{
    bool is_new = true;
    int status = store_put_result(fleet->store, action->number, action->result, &is_new, err);
    if (status == 0 && !is_new)
        log_line(LOG_WARNING, "a result of group %lld was in the store already",
                 (long long)action->result->group);
    return status;
}

static int do_store(struct fleet *fleet, const struct schedule_action *action, struct error *err)
{
    struct store *store = fleet->store;
    switch (action->kind) {
    case SCHEDULE_STORE_WORKER:
        return store_put_worker(store, action->number, action->hello, err);
    case SCHEDULE_STORE_READY:
        return store_put_ready(store, action->number, action->ready, err);
    case SCHEDULE_STORE_RESULT:
        return do_store_result(fleet, action, err);
    case SCHEDULE_STORE_FINISH:
        return store_finish_group(store, action->group, action->attempt, err);
    case SCHEDULE_STORE_KEEP:
        return store_keep_group(store, action->group, action->attempt, "interrupted", err);
    case SCHEDULE_STORE_VOID:
        return store_void_attempt(store, action->group, action->attempt, action->text, err);
    case SCHEDULE_STORE_FAIL:
        return store_fail_group(store, action->group, action->text, err);
    case SCHEDULE_STORE_LEAVE_OUT:
        return store_leave_out_group(store, action->group, action->text, err);
    case SCHEDULE_STORE_DROP_CELL:
        return store_leave_out_cell(store, action->number, action->text, err);
    case SCHEDULE_STORE_RATE:
        return store_put_rate(store, action->number, action->rate_per_s, err);
    default:
        return store_put_event(store, action->word, action->text, err);
    }
}

static void act(struct fleet *fleet, const struct schedule_action *action)
{
    switch (action->kind) {
    case SCHEDULE_SEND:
        do_send(fleet, action);
        break;
    case SCHEDULE_REGISTERED:
        if (fleet->launch)
            launch_registered(fleet->launch, action->slot);
        break;
    case SCHEDULE_KILL:
        if (fleet->launch)
            launch_kill(fleet->launch, action->slot);
        break;
    case SCHEDULE_RENEW:
        if (fleet->launch)
            launch_renew(fleet->launch, action->slot, clock_monotonic_ns());
        break;
    case SCHEDULE_OCCUPY:
    case SCHEDULE_VACATE: /* for on_action alone */
        break;
    case SCHEDULE_LOG:
        log_line((enum log_level)action->level, "%s", action->text);
        break;
    default:
        if (fleet->store && do_store(fleet, action, &fleet->broken) < 0)
            error_prefix(&fleet->broken, "the run stops, what is stored is kept");
        break;
    }
}

static void carry_out_one(struct fleet *fleet, const struct schedule_action *action)
{
    act(fleet, action);
    if (fleet->config.on_action && fleet->broken.kind == ERROR_NONE)
        fleet->config.on_action(fleet->config.context, action);
}

/* What is not stored must not be acknowledged: a store that fails stops everything behind it. */
static void carry_out(struct fleet *fleet)
{
    const struct schedule_action *action;
    fleet->start_base_ns = 0;
    while (fleet->broken.kind == ERROR_NONE && (action = schedule_next(fleet->schedule)))
        carry_out_one(fleet, action);
}

static void feed(struct fleet *fleet, struct schedule_event event)
{
    event.now_ns = clock_monotonic_ns();
    schedule_feed(fleet->schedule, &event);
    carry_out(fleet);
    while (fleet->unreachable) {
        struct unreachable *lost = fleet->unreachable;
        fleet->unreachable = lost->next;
        struct schedule_event gone = {.kind = SCHEDULE_GONE,
                                      .now_ns = clock_monotonic_ns(),
                                      .identity = lost->identity,
                                      .identity_bytes = lost->identity_bytes,
                                      .text = lost->why};
        schedule_feed(fleet->schedule, &gone);
        carry_out(fleet);
        free(lost);
    }
}

/* -- events ------------------------------------------------------------------------------------------------- */

/* Why a frame is none, both versions named where it is of another one. */
static char *refusal_of(const struct link_frame *frame, const char *decoder_says)
{
    int64_t major, minor;
    if (frame->several)
        return memory_text("a message of several frames");
    if (wire_peek_version(frame->data, frame->size, &major, &minor) == 0 && major != WIRE_MAJOR)
        return memory_format("protocol %lld.%lld of the worker is not %d.x of this coordinator (corefan %s)",
                             (long long)major, (long long)minor, WIRE_MAJOR, COREFAN_VERSION);
    return memory_text(decoder_says);
}

static void take_frame(struct fleet *fleet, const struct link_frame *frame)
{
    struct wire_message message;
    struct error err = {0};
    struct schedule_event event = {
        .identity = frame->identity, .identity_bytes = frame->identity_bytes, .key = frame->key};
    if (!frame->several && wire_decode(frame->data, frame->size, &message, &err) == 0) {
        event.kind = SCHEDULE_MESSAGE;
        event.message = &message;
        feed(fleet, event);
        wire_release(&message);
        return;
    }
    scoped_free char *text = refusal_of(frame, err.text);
    event.kind = SCHEDULE_MALFORMED;
    event.text = text;
    feed(fleet, event);
}

/* true: there may be more. */
static bool take_frames(struct fleet *fleet)
{
    struct link_frame frame;
    for (int i = 0; i < FRAMES_PER_TURN; i++) {
        if (fleet->broken.kind != ERROR_NONE || !link_receive(fleet->link, &frame))
            return false;
        take_frame(fleet, &frame);
    }
    return true;
}

static void take_deaths(struct fleet *fleet)
{
    struct launch_event event;
    if (!fleet->launch)
        return;
    launch_reap(fleet->launch, clock_monotonic_ns());
    while (launch_next_event(fleet->launch, &event)) {
        if (fleet->closing) {
            free(event.text);
            continue;
        }
        log_line(LOG_INFO, "slot %lld: %s%s", (long long)event.slot, event.text,
                 event.over ? "; given up" : "; it is started again");
        feed(fleet, (struct schedule_event){.kind = event.over ? SCHEDULE_SLOT_OVER : SCHEDULE_SLOT_LOST,
                                            .slot = event.slot,
                                            .text = event.text});
        if (event.over && !fleet->slot_failure) {
            fleet->slot_failure = memory_text(event.text);
            fleet->slot_refused = event.refused;
        }
        free(event.text);
    }
}

static void take_interrupt(struct fleet *fleet)
{
    if (++fleet->interrupts > 1)
        return;
    log_line(LOG_WARNING, "stopping after the rounds that run now; once more stops at once");
    fleet->stop_by_ns = clock_monotonic_ns() + FLEET_STOP_NS + 2 * schedule_round_ns(fleet->schedule);
    if (fleet->launch)
        launch_no_more(fleet->launch);
    feed(fleet, (struct schedule_event){.kind = SCHEDULE_STOP});
}

static void take_signals(struct fleet *fleet)
{
    struct signalfd_siginfo info;
    while (read(fleet->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            take_deaths(fleet);
        else
            take_interrupt(fleet);
    }
}

static void start_workers(struct fleet *fleet, int64_t now_ns)
{
    struct error err = {0};
    if (!fleet->launch || launch_next_due_ns(fleet->launch) > now_ns)
        return;
    if (launch_due(fleet->launch, now_ns, &err) < 0 && fleet->broken.kind == ERROR_NONE)
        fleet->broken = err;
}

static void tick(struct fleet *fleet, int64_t now_ns)
{
    struct schedule_progress progress;
    if (now_ns < fleet->next_tick_ns)
        return;
    fleet->next_tick_ns = now_ns + fleet->tick_ns;
    feed(fleet, (struct schedule_event){.kind = SCHEDULE_TICK});
    if (!fleet->config.on_progress)
        return;
    schedule_progress(fleet->schedule, &progress);
    fleet->config.on_progress(fleet->config.context, &progress);
}

/* -- the loop ----------------------------------------------------------------------------------------------- */

static int wait_ms(const struct fleet *fleet, int64_t until_ns)
{
    int64_t now_ns = clock_monotonic_ns(), next_ns = fleet->next_tick_ns;
    int64_t due_ns = fleet->launch ? launch_next_due_ns(fleet->launch) : INT64_MAX;
    if (due_ns < next_ns)
        next_ns = due_ns;
    if (until_ns < next_ns)
        next_ns = until_ns;
    return next_ns <= now_ns ? 0 : (int)((next_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS);
}

/* Sleeps until something happens or until_ns comes, and takes in all that has happened. */
static void turn(struct fleet *fleet, int64_t until_ns)
{
    struct pollfd files[] = {
        {.fd = link_fd(fleet->link), .events = POLLIN},
        {.fd = fleet->signal_fd, .events = POLLIN},
        {.fd = fleet->launch ? launch_fd(fleet->launch) : -1, .events = POLLIN},
    };
    start_workers(fleet, clock_monotonic_ns());
    bool more = take_frames(fleet);
    if (fleet->broken.kind != ERROR_NONE)
        return;
    poll(files, sizeof files / sizeof *files, more ? 0 : wait_ms(fleet, until_ns));
    if (files[2].revents)
        launch_read(fleet->launch);
    if (files[1].revents)
        take_signals(fleet);
    while (take_frames(fleet) && clock_monotonic_ns() < fleet->next_tick_ns)
        ;
    tick(fleet, clock_monotonic_ns());
}

/* -- life --------------------------------------------------------------------------------------------------- */

static int open_signals(struct fleet *fleet, struct error *err)
{
    struct sigaction hangup;
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* nohup wants none of it */
        sigaddset(&mask, SIGHUP);
    sigaddset(&mask, SIGCHLD);
    fleet->masked = sigprocmask(SIG_BLOCK, &mask, &fleet->old_mask) == 0;
    fleet->signal_fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fleet->signal_fd < 0)
        return error_set(err, ERROR_INTERNAL, "cannot make a signalfd: %s", strerror(errno));
    return 0;
}

static void read_boot_id(char *buf, size_t size)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    buf[0] = '\0';
    if (!file)
        return;
    if (fgets(buf, (int)size, file))
        buf[strcspn(buf, "\n")] = '\0';
    (void)fclose(file);
}

static struct schedule *make_schedule(const struct fleet_config *config)
{
    char boot_id[64], host[256] = "";
    uint64_t seed = 0;
    scoped_free const char **labels = memory_zeroed((size_t)config->runtime_count, sizeof *labels);
    for (int64_t i = 0; i < config->runtime_count; i++)
        labels[i] = config->runtimes[i].label;
    read_boot_id(boot_id, sizeof boot_id);
    gethostname(host, sizeof host - 1);
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = (uint64_t)clock_monotonic_ns();
    return schedule_new(&(struct schedule_config){.run = config->run,
                                                  .labels = labels,
                                                  .label_count = (size_t)config->runtime_count,
                                                  .boot_id = boot_id,
                                                  .host = host,
                                                  .heartbeat_ns = FLEET_HEARTBEAT_NS,
                                                  .rejoin_ns = config->rejoin_ns,
                                                  .slot_count = config->slot_count,
                                                  .budget_ns = config->budget_ns,
                                                  .first_worker = config->first_worker,
                                                  .seed = seed});
}

int fleet_open(const struct fleet_config *config, struct fleet **ret, struct error *err)
{
    struct fleet *fleet = memory_zeroed(1, sizeof *fleet);
    fleet->config = *config;
    fleet->signal_fd = -1;
    fleet->tick_ns = config->housekeeping_count ? TICK_NS : TICK_ALONE_NS;
    struct link_config link = {.door = config->door,
                               .listen = config->listen,
                               .housekeeping = config->housekeeping,
                               .housekeeping_count = config->housekeeping_count};
    if (open_signals(fleet, err) < 0 || link_open(&link, &fleet->link, err) < 0) {
        fleet_close(fleet);
        return -1;
    }
    fleet->schedule = make_schedule(config);
    *ret = fleet;
    return 0;
}

const char *fleet_endpoint(const struct fleet *fleet)
{
    return link_endpoint(fleet->link);
}

void fleet_watch(struct fleet *fleet, struct launch *launch)
{
    fleet->launch = launch;
}

static bool somebody_stays(const struct fleet *fleet, int64_t since_ns)
{
    int64_t passed_ns = clock_monotonic_ns() - since_ns;
    return (passed_ns < FAREWELL_NS && fleet->launch && launch_running(fleet->launch) > 0) ||
           (passed_ns < (fleet->interrupts > 1 ? FAREWELL_NS : BY_HAND_NS) &&
            schedule_by_hand(fleet->schedule) > 0);
}

/* Workers get a moment to end by themselves, so that they can put away what they hold; and those that we cannot
 * end must have heard it before the connection goes. */
static void farewell(struct fleet *fleet)
{
    int64_t since_ns = clock_monotonic_ns();
    schedule_farewell(fleet->schedule, "the run is over");
    fleet->closing = true;
    fleet->broken = (struct error){0};
    fleet->store = NULL;
    carry_out(fleet);
    feed(fleet, (struct schedule_event){.kind = SCHEDULE_TICK}); /* who was not reached is gone */
    if (fleet->launch)
        launch_no_more(fleet->launch);
    while (somebody_stays(fleet, since_ns)) {
        struct pollfd files[] = {{.fd = fleet->signal_fd, .events = POLLIN},
                                 {.fd = link_fd(fleet->link), .events = POLLIN}};
        poll(files, sizeof files / sizeof *files, FAREWELL_STEP_MS);
        if (fleet->launch)
            launch_read(fleet->launch);
        take_signals(fleet);
        take_frames(fleet);
    }
}

void fleet_close(struct fleet *fleet)
{
    if (!fleet)
        return;
    if (fleet->schedule)
        farewell(fleet);
    link_close(fleet->link);
    schedule_free(fleet->schedule);
    while (fleet->unreachable) {
        struct unreachable *lost = fleet->unreachable;
        fleet->unreachable = lost->next;
        free(lost);
    }
    if (fleet->signal_fd >= 0)
        close(fleet->signal_fd);
    if (fleet->masked)
        sigprocmask(SIG_SETMASK, &fleet->old_mask, NULL);
    free(fleet->slot_failure);
    free(fleet);
}

/* -- gathering and running ---------------------------------------------------------------------------------- */

/* "3 of libuv, 0 of asyncio": who is there. */
static char *who_is_there(const struct fleet *fleet)
{
    char *text = memory_text("");
    for (int64_t i = 0; i < fleet->config.runtime_count; i++) {
        const char *label = fleet->config.runtimes[i].label;
        char *longer = memory_format("%s%s%lld of %s", text, i ? ", " : "",
                                     (long long)schedule_live(fleet->schedule, label), label);
        free(text);
        text = longer;
    }
    return text;
}

static int too_late(const struct fleet *fleet, int64_t wanted, int64_t timeout_ns, struct error *err)
{
    struct schedule_progress progress;
    schedule_progress(fleet->schedule, &progress);
    scoped_free char *there = who_is_there(fleet);
    return error_set(
        err, ERROR_INCOMPLETE,
        "%lld of %lld workers have not come to %s within %.3g s (there: %s; refused frames: %lld)",
        (long long)(wanted - progress.workers_live), (long long)wanted, fleet_endpoint(fleet),
        (double)timeout_ns / (double)NS_PER_S, there, (long long)progress.malformed);
}

int fleet_gather(struct fleet *fleet, int64_t expect, int64_t timeout_ns, struct error *err)
{
    int64_t until_ns = clock_monotonic_ns() + timeout_ns;
    int64_t wanted = (int64_t)fleet->config.slot_count + expect;
    struct schedule_progress progress;
    for (;;) {
        schedule_progress(fleet->schedule, &progress);
        if (progress.workers_live >= wanted && schedule_slots_coming(fleet->schedule) == 0)
            return 0;
        if (fleet->interrupts)
            return error_set(err, ERROR_INTERRUPTED, "interrupted before all workers were there");
        if (fleet->slot_failure)
            return error_set(err, fleet->slot_refused ? ERROR_USAGE : ERROR_INTERNAL,
                             "a worker cannot start: %s", fleet->slot_failure);
        if (clock_monotonic_ns() >= until_ns)
            return too_late(fleet, wanted, timeout_ns, err);
        turn(fleet, until_ns);
        if (fleet->broken.kind != ERROR_NONE) {
            *err = fleet->broken;
            return -1;
        }
    }
}

int64_t fleet_workers_per_runtime(const struct fleet *fleet)
{
    return schedule_live(fleet->schedule, NULL);
}

int fleet_check(const struct fleet *fleet, const struct plan *plan, const struct schedule_past *past,
                struct error *err)
{
    scoped_free char *lacking = schedule_lacking(fleet->schedule, plan, past);
    return lacking ? error_set(err, ERROR_INCOMPLETE, "%s", lacking) : 0;
}

static bool run_is_over(const struct fleet *fleet)
{
    struct schedule_progress progress;
    if (fleet->broken.kind != ERROR_NONE || fleet->interrupts > 1)
        return true;
    if (fleet->interrupts && clock_monotonic_ns() >= fleet->stop_by_ns)
        return true;
    schedule_progress(fleet->schedule, &progress);
    return progress.phase == SCHEDULE_OVER;
}

int fleet_run(struct fleet *fleet, const struct plan *plan, struct store *store,
              const struct schedule_past *past, const struct schedule_load *loads, struct error *err)
{
    fleet->store = store;
    schedule_begin(fleet->schedule, plan, past, loads, clock_monotonic_ns());
    carry_out(fleet);
    while (!run_is_over(fleet))
        turn(fleet, fleet->interrupts ? fleet->stop_by_ns : INT64_MAX);
    if (fleet->broken.kind != ERROR_NONE) {
        *err = fleet->broken;
        return -1;
    }
    return fleet->interrupts ? error_set(err, ERROR_INTERRUPTED, "interrupted") : 0;
}

void fleet_progress(const struct fleet *fleet, struct schedule_progress *ret)
{
    schedule_progress(fleet->schedule, ret);
}
