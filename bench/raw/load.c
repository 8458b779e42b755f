/* Raw load for a RocketMQ broker: prebuilt frames over sockets, so that the broker is measured and not a client.
 *
 *     load --port 10911 --topic bench --queues 8 --connections 64 --seconds 10      (sends)
 *     load --mode pull --port 10911 --topic bench --queues 8 --connections 1        (reads everything once)
 *
 * One thread, one epoll set. Each connection keeps `--window` sends in flight; in pull mode each queue keeps one
 * pull in flight, as a push consumer does, and the queues share the connections. Every answer is checked: response
 * flag, opaque, code; a pulled body is walked record by record and its queue offsets must have no hole.
 *
 * With --rate the load is open: sends are due at even distances whether or not the broker keeps up, and a latency
 * is counted from the moment the send was due. Without it the load is closed (next send upon an answer).
 *
 * Prints one JSON line. "rate" and the latencies are of the measured window, after --warmup; "acked" and "sent"
 * count the whole run, so that they can be compared with the broker's offsets. */
#define _GNU_SOURCE
#include "frames.h"
#include "histogram.h"
#include "options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 1000000u /* divides OPAQUE_COUNT, so a slot is the same before and after the opaque wraps */
#define FRAME_MAX (16u << 20)
#define RANDOM_POOL (1u << 20)
#define SILENCE_NS (20 * 1000000000LL)
#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu
#define RECORD_MIN 91

struct connection {
    int fd, in_flight;
    bool wants_write;
    uint8_t *in, *out;
    size_t in_size, in_room, out_size, out_sent, out_room;
};

struct slot { /* one request in flight, found again by its opaque */
    int64_t since;
    int connection, queue;
    bool used;
};

struct template {
    uint8_t *bytes;
    size_t size, opaque_at, born_at, unique_at;
};

struct queue_state {
    long long offset;
    bool done;
};

static struct connection *connections;
static struct slot *slots;
static struct template *templates;
static struct queue_state *queue_states;
static struct histogram latencies;
static uint8_t *random_pool;
static int poll_fd, open_connections;
static int64_t started, measure_from, measure_until, realtime_shift, last_answer;
static uint64_t sequence, next_unique, in_flight, sent, acked, measured, errors, requests_measured, passes, bytes_in;
static uint32_t next_template, random_at;
static char unique_prefix[UNIQUE_ID_FIXED + 1];
static char first_error[240];
static bool issuing = true;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "load: %s (%s:%d): %s\n", what, opt.host, opt.port, strerror(errno));
    exit(1);
}

static void *room(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        die("out of memory");
    return memory;
}

static void error_seen(uint64_t messages, const char *what, const struct answer *a) {
    errors += messages;
    if (first_error[0])
        return;
    int size = a == NULL ? 0 : (int)(a->header_bytes < 160 ? a->header_bytes : 160);
    snprintf(first_error, sizeof first_error, "%s %.*s", what, size, a == NULL ? "" : (const char *)a->header);
    for (char *c = first_error; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < 32 || (unsigned char)*c > 126)
            *c = '\'';
}

static size_t body_bytes(void) {
    size_t record = BATCH_RECORD_FIXED + (size_t)opt.body + PROPERTIES_BYTES;
    return opt.batch == 1 ? (size_t)opt.body : record * (size_t)opt.batch;
}

static void properties_text(char *text) {
    sprintf(text, "UNIQ_KEY\1%s000000000000\2WAIT\1true\2", unique_prefix);
}

static void build_template(struct template *t, const char *topic, int queue) {
    struct header h;
    char properties[PROPERTIES_BYTES + 1], queue_text[12];
    properties_text(properties);
    snprintf(queue_text, sizeof queue_text, "%d", queue);
    header_begin(&h, opt.binary, opt.batch == 1 ? CODE_SEND_V2 : CODE_SEND_BATCH);
    header_field(&h, "a", opt.group);
    header_field(&h, "b", topic);
    header_field(&h, "c", "TBW102");
    header_field(&h, "d", "4");
    header_field(&h, "e", queue_text);
    header_field(&h, "f", "0");
    t->born_at = header_field(&h, "g", "1700000000000");
    header_field(&h, "h", "0");
    size_t properties_at = header_field(&h, "i", properties);
    header_field(&h, "j", "0");
    header_field(&h, "k", "false");
    header_field(&h, "m", opt.batch == 1 ? "false" : "true");
    header_field(&h, "n", opt.broker);
    t->opaque_at = header_end(&h, body_bytes());
    t->unique_at = properties_at + 8 + (opt.binary ? 1 : 6) + UNIQUE_ID_FIXED;
    t->size = h.size;
    t->bytes = room(h.size);
    memcpy(t->bytes, h.bytes, h.size);
}

static void build_templates(void) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    realtime_shift = wall.tv_sec * 1000000000LL + wall.tv_nsec - now_ns();
    uint64_t month_ms = (uint64_t)(wall.tv_sec % (28 * 86400)) * 1000 + (uint64_t)wall.tv_nsec / 1000000;
    next_unique = month_ms << 16;
    snprintf(unique_prefix, sizeof unique_prefix, "7F000001%04X%08X", getpid() & 0xFFFF, (unsigned)wall.tv_nsec);
    templates = room(sizeof *templates * (size_t)(opt.topics * opt.queues));
    for (int topic = 0; topic < opt.topics; topic++) {
        char name[160];
        snprintf(name, sizeof name, opt.topics == 1 ? "%s" : "%s-%d", opt.topic, topic);
        for (int queue = 0; queue < opt.queues; queue++)
            build_template(&templates[queue * opt.topics + topic], name, queue);
    }
    uint64_t state = (uint64_t)wall.tv_nsec | 1;
    random_pool = room(RANDOM_POOL + (size_t)opt.body);
    for (size_t i = 0; i < RANDOM_POOL + (size_t)opt.body; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        random_pool[i] = (uint8_t)state;
    }
}

/* Half constant, half random and different in each message: neither all noise nor a gift to caches. */
static void put_body(uint8_t *at) {
    size_t constant = (size_t)opt.body / 2;
    for (size_t i = 0; i < constant; i++)
        at[i] = (uint8_t)('a' + i % 26);
    memcpy(at + constant, random_pool + random_at, (size_t)opt.body - constant);
    random_at = (random_at + (uint32_t)opt.body) % RANDOM_POOL;
}

static void put_batch(uint8_t *at) {
    char properties[PROPERTIES_BYTES + 1];
    properties_text(properties);
    for (int i = 0; i < opt.batch; i++) {
        uint32_t size = BATCH_RECORD_FIXED + (uint32_t)opt.body + PROPERTIES_BYTES;
        put_int32(at, size);
        memset(at + 4, 0, 12); /* magic, CRC and flag: the broker works them out */
        put_int32(at + 16, (uint32_t)opt.body);
        put_body(at + 20);
        uint8_t *after = at + 20 + opt.body;
        after[0] = 0, after[1] = PROPERTIES_BYTES;
        memcpy(after + 2, properties, PROPERTIES_BYTES);
        put_hex(after + 2 + 9 + UNIQUE_ID_FIXED, 12, next_unique++);
        at += size;
    }
}

static uint8_t *out_room(struct connection *c, size_t size) {
    if (c->out_size + size > c->out_room) {
        c->out_room = (c->out_size + size) * 2;
        c->out = realloc(c->out, c->out_room);
        if (c->out == NULL)
            die("out of memory");
    }
    uint8_t *at = c->out + c->out_size;
    c->out_size += size;
    return at;
}

static uint32_t take_opaque(struct connection *c, int queue, int64_t since) {
    uint32_t opaque = OPAQUE_FIRST + (uint32_t)(sequence++ % OPAQUE_COUNT);
    struct slot *slot = &slots[(opaque - OPAQUE_FIRST) % SLOTS];
    if (slot->used) {
        fprintf(stderr, "load: a request stayed unanswered while %u others were sent\n", SLOTS);
        exit(1);
    }
    *slot = (struct slot){.since = since, .connection = (int)(c - connections), .queue = queue, .used = true};
    c->in_flight++;
    in_flight++;
    return opaque;
}

static void queue_send(struct connection *c, int64_t since, int64_t now) {
    struct template *t = &templates[next_template];
    next_template = (next_template + 1) % (uint32_t)(opt.topics * opt.queues);
    uint8_t *at = out_room(c, t->size + body_bytes());
    memcpy(at, t->bytes, t->size);
    put_digits(at + t->born_at, 13, (uint64_t)((now + realtime_shift) / 1000000));
    put_hex(at + t->unique_at, 12, next_unique++);
    patch_opaque(at + t->opaque_at, opt.binary, take_opaque(c, -1, since));
    if (opt.batch == 1)
        put_body(at + t->size);
    else
        put_batch(at + t->size);
    sent += (uint64_t)opt.batch;
    if (opt.count && sent >= (uint64_t)opt.count)
        issuing = false;
}

/* Java writes these fields in this order in binary headers, and in the order of a hash map in JSON. */
static void pull_fields(struct header *h, int queue) {
    char queue_text[24], offset_text[24], most_text[24];
    const char *fields[][2] = {
        {"consumerGroup", opt.group}, {"topic", opt.topic}, {"queueId", queue_text}, {"queueOffset", offset_text},
        {"maxMsgNums", most_text}, {"sysFlag", "4" /* the subscription is in this request */}, {"commitOffset", "0"},
        {"suspendTimeoutMillis", "20000"}, {"subscription", "*"}, {"subVersion", "0"}, {"expressionType", "TAG"},
        {"maxMsgBytes", "2147483647"}, {"bname", opt.broker}, {"ReqT", "0"},
    };
    static const int json_order[] = {2, 6, 8, 7, 12, 5, 10, 13, 1, 0, 4, 3, 9, 11};
    snprintf(queue_text, sizeof queue_text, "%d", queue);
    snprintf(offset_text, sizeof offset_text, "%lld", queue_states[queue].offset);
    snprintf(most_text, sizeof most_text, "%d", opt.max_messages);
    for (int i = 0; i < (int)(sizeof fields / sizeof *fields); i++) {
        int field = opt.binary ? i : json_order[i];
        header_field(h, fields[field][0], fields[field][1]);
    }
}

static void queue_pull(int queue, int64_t now) {
    struct connection *c = &connections[queue % opt.connections];
    struct header h;
    header_begin(&h, opt.binary, CODE_PULL);
    pull_fields(&h, queue);
    size_t opaque_at = header_end(&h, 0);
    patch_opaque(h.bytes + opaque_at, opt.binary, take_opaque(c, queue, now));
    memcpy(out_room(c, h.size), h.bytes, h.size);
}

/* Counts the records of a pulled body; -1 unless they are whole and follow each other from `offset` on. */
static long long walk_records(const struct answer *a, int queue, long long offset) {
    long long found = 0;
    for (size_t at = 0; at < a->body_bytes; found++) {
        const uint8_t *record = a->body + at;
        if (a->body_bytes - at < RECORD_MIN)
            return -1;
        uint32_t size = get_int32(record), magic = get_int32(record + 4);
        if (size < RECORD_MIN || size > a->body_bytes - at || (magic != MAGIC_V1 && magic != MAGIC_V2))
            return -1;
        if (get_int32(record + 12) != (uint32_t)queue || get_int64(record + 20) != (uint64_t)(offset + found))
            return -1;
        at += size;
    }
    return found;
}

/* Moves the queue on; returns the number of messages the answer held, or -1 if it was wrong. */
static long long pulled(const struct answer *a, int queue) {
    struct queue_state *state = &queue_states[queue];
    long long next, max, found = 0;
    if (!ext_number(a, "nextBeginOffset", &next) || !ext_number(a, "maxOffset", &max))
        return -1;
    if (a->code == 0) {
        found = walk_records(a, queue, state->offset);
        if (found <= 0 || next != state->offset + found)
            return -1;
    } else if (a->code != 19 || next < max) { /* 19: nothing there (yet) */
        return -1;
    }
    state->offset = next;
    if (next >= max) {
        passes++;
        state->offset = 0;
        state->done = opt.seconds == 0 || max == 0;
    }
    return found;
}

static void flush_out(struct connection *c) {
    while (c->out_sent < c->out_size) {
        ssize_t n = write(c->fd, c->out + c->out_sent, c->out_size - c->out_sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break; /* full: epoll tells when to go on; broken: the next read tells */
        c->out_sent += (size_t)n;
    }
    if (c->out_sent == c->out_size)
        c->out_sent = c->out_size = 0;
    bool wants_write = c->out_size > 0;
    if (wants_write != c->wants_write) {
        struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = c};
        epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event);
        c->wants_write = wants_write;
    }
}

static void refill(struct connection *c, int64_t now) {
    while (issuing && opt.rate == 0 && c->in_flight < opt.window)
        queue_send(c, now, now);
}

static void close_connection(struct connection *c, const char *why) {
    error_seen((uint64_t)c->in_flight * (uint64_t)opt.batch, why, NULL);
    in_flight -= (uint64_t)c->in_flight;
    c->in_flight = 0;
    close(c->fd);
    c->fd = -1;
    open_connections--;
}

static void answered(struct connection *c, const struct answer *a, int64_t now) {
    uint32_t index = a->opaque - OPAQUE_FIRST;
    struct slot *slot = index < OPAQUE_COUNT ? &slots[index % SLOTS] : NULL;
    if (slot == NULL || !slot->used || slot->connection != c - connections || !(a->flag & 1)) {
        error_seen(1, "answer to nothing asked:", a);
        return;
    }
    slot->used = false;
    c->in_flight--;
    in_flight--;
    long long messages = opt.pull ? pulled(a, slot->queue) : a->code == 0 ? opt.batch : -1;
    if (messages < 0) {
        error_seen((uint64_t)opt.batch, "wrong answer:", a);
        if (opt.pull)
            queue_states[slot->queue].done = true;
    } else {
        acked += (uint64_t)messages;
        if (now >= measure_from && now <= measure_until) {
            measured += (uint64_t)messages;
            requests_measured++;
            histogram_add(&latencies, (uint64_t)(now - slot->since));
        }
    }
    if (opt.pull && issuing && !queue_states[slot->queue].done)
        queue_pull(slot->queue, now);
}

static void parse_in(struct connection *c) {
    size_t at = 0;
    int64_t now = now_ns();
    last_answer = now;
    while (c->in_size - at >= 8) {
        size_t size = 4 + (size_t)get_int32(c->in + at);
        struct answer a;
        if (size > FRAME_MAX || size < 8) {
            close_connection(c, "a frame of impossible length");
            return;
        }
        if (c->in_size - at < size)
            break;
        if (!read_answer(c->in + at, size, &a)) {
            close_connection(c, "a frame that is no answer");
            return;
        }
        answered(c, &a, now);
        at += size;
    }
    c->in_size -= at;
    memmove(c->in, c->in + at, c->in_size);
    if (!opt.pull)
        refill(c, now);
    flush_out(c);
}

static void read_in(struct connection *c) {
    if (c->in_room - c->in_size < 16384) {
        c->in_room *= 2;
        c->in = realloc(c->in, c->in_room);
        if (c->in == NULL)
            die("out of memory");
    }
    ssize_t n = read(c->fd, c->in + c->in_size, c->in_room - c->in_size);
    if (n > 0) {
        c->in_size += (size_t)n;
        bytes_in += (uint64_t)n;
        parse_in(c);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close_connection(c, n == 0 ? "connection closed by the broker" : strerror(errno));
    }
}

/* Open load: hand out every send that is due, to whichever connection has room. Returns the wait in ms. */
static int pace(int64_t now) {
    static int64_t due;
    static int turn;
    int64_t step = (int64_t)(1e9 * opt.batch / opt.rate);
    if (due == 0)
        due = now;
    while (issuing && due <= now) {
        int tried = 0;
        struct connection *c;
        do {
            c = &connections[turn];
            turn = (turn + 1) % opt.connections;
        } while ((c->fd < 0 || c->in_flight >= opt.window) && ++tried < opt.connections);
        if (tried == opt.connections)
            return 1; /* the broker is behind: the lateness shows in the latencies */
        queue_send(c, due, now);
        flush_out(c);
        due += step;
    }
    return due - now > 2000000 ? 1 : 0;
}

static void connect_all(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    int yes = 1;
    if (inet_pton(AF_INET, opt.host, &address.sin_addr) != 1)
        die("--host must be an IPv4 address");
    poll_fd = epoll_create1(0);
    connections = room(sizeof *connections * (size_t)opt.connections);
    for (int i = 0; i < opt.connections; i++) {
        struct connection *c = &connections[i];
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
            die("cannot connect");
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        c->in_room = 1 << 16;
        c->in = room(c->in_room);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &event);
    }
    open_connections = opt.connections;
}

static void prime(void) {
    started = last_answer = now_ns();
    measure_from = started + (int64_t)(opt.warmup * 1e9);
    measure_until = opt.seconds > 0 ? measure_from + (int64_t)(opt.seconds * 1e9) : INT64_MAX;
    for (int queue = 0; opt.pull && queue < opt.queues; queue++)
        queue_pull(queue, started);
    for (int i = 0; i < opt.connections; i++) {
        if (!opt.pull)
            refill(&connections[i], started);
        flush_out(&connections[i]);
    }
}

static void run(void) {
    struct epoll_event events[256];
    prime();
    while (open_connections > 0 && (in_flight > 0 || (issuing && !opt.pull))) {
        int64_t now = now_ns();
        if (now >= measure_until)
            issuing = false;
        if (now - last_answer > SILENCE_NS)
            break;
        int wait = opt.rate > 0 && issuing ? pace(now) : 50;
        int ready = epoll_wait(poll_fd, events, 256, wait);
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (c->fd >= 0 && events[i].events & EPOLLOUT)
                flush_out(c);
            if (c->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                read_in(c);
        }
    }
    if (in_flight > 0)
        error_seen(in_flight * (uint64_t)opt.batch, "no answer for 20 s", NULL);
}

static void report(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    int64_t until = last_answer < measure_until ? last_answer : measure_until;
    double window = (double)(until - measure_from) / 1e9;
    double mean = latencies.count ? (double)latencies.sum / (double)latencies.count / 1e3 : 0;
    printf("{\"mode\":\"%s\",\"headers\":\"%s\",\"connections\":%d,\"window\":%d,\"batch\":%d,\"body\":%d,"
           "\"queues\":%d,\"topics\":%d,\"target_rate\":%.0f,\"seconds\":%.3f,\"messages\":%llu,\"requests\":%llu,"
           "\"rate\":%.1f,\"sent\":%llu,\"acked\":%llu,\"errors\":%llu,\"passes\":%llu,\"bytes_in\":%llu,",
           opt.pull ? "pull" : "send", opt.binary ? "binary" : "json", opt.connections, opt.window, opt.batch,
           opt.body, opt.queues, opt.topics, opt.rate, window, (unsigned long long)measured,
           (unsigned long long)requests_measured, window > 0 ? (double)measured / window : 0,
           (unsigned long long)sent, (unsigned long long)acked, (unsigned long long)errors,
           (unsigned long long)passes, (unsigned long long)bytes_in);
    printf("\"mean_us\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f,"
           "\"load_cpu_s\":%.3f,\"run_s\":%.3f,\"first_error\":\"%s\"}\n",
           mean, (double)histogram_at(&latencies, 0.5) / 1e3, (double)histogram_at(&latencies, 0.99) / 1e3,
           (double)histogram_at(&latencies, 0.999) / 1e3, (double)latencies.max / 1e3, cpu,
           (double)(last_answer - started) / 1e9, first_error);
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    if (opt.core >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(opt.core, &set);
        if (sched_setaffinity(0, sizeof set, &set) < 0)
            die("cannot pin to --core");
    }
    signal(SIGPIPE, SIG_IGN);
    slots = room(sizeof *slots * SLOTS);
    queue_states = room(sizeof *queue_states * (size_t)opt.queues);
    if (!opt.pull)
        build_templates();
    connect_all();
    run();
    report();
    return 0;
}
