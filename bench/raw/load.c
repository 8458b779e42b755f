/* Raw load for a RocketMQ broker: prebuilt frames over sockets, so that the broker is measured and not a client.
 *
 *     load --port 10911 --topic bench --queues 8 --connections 64 --seconds 10      (sends)
 *     load --mode pull --port 10911 --topic bench --queues 8 --connections 1        (reads everything once)
 *     load --mode flow --port 10911 --topic bench --rate 5000 --groups 10 --offsets 0,0,0,0,0,0,0,0 --seconds 10
 *
 * One thread, one epoll set. Each connection keeps `--window` sends in flight; in pull mode each queue keeps one
 * pull in flight, and the queues share the connections. Every answer is checked: response flag, opaque, code, and
 * what pulls.h says of pulled records.
 *
 * With --rate the load is open: sends are due at even distances whether or not the broker keeps up, and a latency
 * is counted from the moment the send was due. Without it the load is closed (next send upon an answer).
 *
 * In flow mode every body starts with the time at which its send was due. Groups, with a connection each beside those
 * of the senders, hold a pull at every queue; a latency is the time from due to received, and each group must get
 * every acknowledged message once.
 *
 * Prints one JSON line. "rate" and the latencies are of the measured window, after --warmup; "acked" and "sent"
 * count the whole run, so that they can be compared with the broker's offsets. */
#define _GNU_SOURCE
#include "histogram.h"
#include "options.h"
#include "pulls.h"
#include "sends.h"
#include "sockets.h"

#define SLOTS 1000000u /* divides OPAQUE_COUNT, so a slot is the same before and after the opaque wraps */
#define FRAME_MAX (16u << 20)
#define SILENCE_NS (20 * 1000000000LL)

struct slot { /* one request in flight, found again by its opaque */
    int64_t since;
    int connection;
    struct reader *reader; /* of a pull */
    bool used;
};

static struct slot *slots;
static struct histogram latencies, ack_latencies; /* the second one only in flow mode */
static int64_t started, measure_from, measure_until, last_answer;
static uint64_t sequence, in_flight, sends_in_flight, sent, acked, measured, errors, requests_measured, delivered;
static uint64_t stamps_acked, *stamps_delivered; /* sums, by group: equal if each group got just what was acknowledged */
static char first_error[240];
static bool issuing = true;

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

static uint32_t take_opaque(struct connection *c, struct reader *reader, int64_t since) {
    uint32_t opaque = OPAQUE_FIRST + (uint32_t)(sequence++ % OPAQUE_COUNT);
    struct slot *slot = &slots[(opaque - OPAQUE_FIRST) % SLOTS];
    while (slot->used && slot->reader != NULL && opt.mode == FLOW) { /* a pull may be held for long */
        opaque = OPAQUE_FIRST + (uint32_t)(sequence++ % OPAQUE_COUNT);
        slot = &slots[(opaque - OPAQUE_FIRST) % SLOTS];
    }
    if (slot->used) {
        fprintf(stderr, "load: a request stayed unanswered while %u others were sent\n", SLOTS);
        exit(1);
    }
    *slot = (struct slot){.since = since, .connection = (int)(c - connections), .reader = reader, .used = true};
    c->in_flight++;
    in_flight++;
    return opaque;
}

static void queue_send(struct connection *c, int64_t since, int64_t now) {
    put_send(c, take_opaque(c, NULL, since), now, opt.mode == FLOW ? since : 0);
    sends_in_flight++;
    sent += (uint64_t)opt.batch;
    if (opt.count && sent >= (uint64_t)opt.count)
        issuing = false;
}

static void queue_pull(struct reader *r, int64_t now) {
    bool flows = opt.mode == FLOW;
    struct connection *c = &connections[flows ? opt.connections + r->group : r->queue % opt.connections];
    if (c->fd >= 0)
        put_pull(c, r, take_opaque(c, r, now));
}

static void record_in(const struct reader *r, const uint8_t *record, size_t size) {
    if (opt.mode != FLOW)
        return;
    char digits[STAMP_DIGITS + 1] = {0};
    if (size < RECORD_MIN + STAMP_DIGITS || get_int32(record + 36) & SYS_FLAG_IPV6)
        return error_seen(1, "a record without a stamp", NULL);
    memcpy(digits, record + RECORD_BODY_AT, STAMP_DIGITS);
    int64_t due = (int64_t)strtoull(digits, NULL, 16);
    stamps_delivered[r->group] += (uint64_t)due;
    delivered++;
    if (last_answer >= measure_from && last_answer <= measure_until) { /* by when it came: a broker may be far behind */
        measured++;
        histogram_add(&latencies, (uint64_t)(last_answer - due));
    }
}

static void refill(struct connection *c, int64_t now) {
    while (issuing && opt.mode == SEND && opt.rate == 0 && c->in_flight < opt.window)
        queue_send(c, now, now);
}

static void lost(struct connection *c, const char *why) {
    error_seen((uint64_t)c->in_flight * (uint64_t)opt.batch, why, NULL);
    in_flight -= (uint64_t)c->in_flight;
    if (opt.mode != PULL && c - connections < opt.connections)
        sends_in_flight -= (uint64_t)c->in_flight;
    c->in_flight = 0;
}

static void send_answered(const struct slot *slot, const struct answer *a, int64_t now) {
    sends_in_flight--;
    if (a->code != 0)
        return error_seen((uint64_t)opt.batch, "wrong answer:", a);
    acked += (uint64_t)opt.batch;
    stamps_acked += (uint64_t)slot->since;
    if (now < measure_from || now > measure_until)
        return;
    requests_measured++;
    histogram_add(opt.mode == FLOW ? &ack_latencies : &latencies, (uint64_t)(now - slot->since));
    if (opt.mode == SEND)
        measured += (uint64_t)opt.batch;
}

static void pull_answered(const struct slot *slot, const struct answer *a, int64_t now) {
    struct reader *reader = slot->reader;
    long long messages = pulled(a, reader, opt.mode == FLOW);
    if (messages < 0) {
        reader->done = true;
        return error_seen(1, "wrong answer:", a);
    }
    if (opt.mode == PULL) {
        acked += (uint64_t)messages;
        if (now >= measure_from && now <= measure_until) {
            measured += (uint64_t)messages;
            requests_measured++;
            histogram_add(&latencies, (uint64_t)(now - slot->since));
        }
    }
    if (!reader->done && (issuing || opt.mode == FLOW))
        queue_pull(reader, now);
}

static void answered(struct connection *c, const struct answer *a, int64_t now) {
    uint32_t index = a->opaque - OPAQUE_FIRST;
    struct slot *slot = index < OPAQUE_COUNT ? &slots[index % SLOTS] : NULL;
    if (slot == NULL || !slot->used || slot->connection != c - connections || !(a->flag & 1))
        return error_seen(1, "answer to nothing asked:", a);
    slot->used = false;
    c->in_flight--;
    in_flight--;
    if (slot->reader == NULL)
        send_answered(slot, a, now);
    else
        pull_answered(slot, a, now);
}

static void frames_in(struct connection *c) {
    size_t at = 0;
    int64_t now = now_ns();
    last_answer = now;
    while (c->in_size - at >= 8) {
        size_t size = 4 + (size_t)get_int32(c->in + at);
        struct answer a;
        if (size > FRAME_MAX || size < 8)
            return close_connection(c, "a frame of impossible length");
        if (c->in_size - at < size)
            break;
        if (!read_answer(c->in + at, size, &a))
            return close_connection(c, "a frame that is no answer");
        answered(c, &a, now);
        at += size;
    }
    take_in(c, at);
    refill(c, now);
    flush_out(c);
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

static void prime(void) {
    started = last_answer = now_ns();
    measure_from = started + (int64_t)(opt.warmup * 1e9);
    measure_until = opt.seconds > 0 ? measure_from + (int64_t)(opt.seconds * 1e9) : INT64_MAX;
    for (int i = 0; i < reader_count; i++)
        queue_pull(&readers[i], started);
    for (int i = 0; i < open_connections; i++) {
        refill(&connections[i], started);
        flush_out(&connections[i]);
    }
}

static uint64_t undelivered(void) {
    uint64_t wanted = opt.mode == FLOW ? acked * (uint64_t)opt.groups : 0;
    return wanted > delivered ? wanted - delivered : 0;
}

static bool is_working(void) {
    if (opt.mode == PULL)
        return in_flight > 0;
    return issuing || sends_in_flight > 0 || (undelivered() > 0 && errors == 0);
}

static void check_delivered(void) {
    if (undelivered() > 0)
        error_seen(undelivered(), "not delivered within 20 s", NULL);
    for (int group = 0; opt.mode == FLOW && group < opt.groups; group++)
        if (stamps_delivered[group] != stamps_acked)
            error_seen(1, "a group got other messages than were acknowledged", NULL);
}

static void run(void) {
    prime();
    while (open_connections > 0 && is_working()) {
        int64_t now = now_ns();
        if (now >= measure_until)
            issuing = false;
        if (now - last_answer > SILENCE_NS)
            break;
        wait_once(opt.rate > 0 && issuing ? pace(now) : 50);
    }
    uint64_t unanswered = opt.mode == PULL ? in_flight : sends_in_flight;
    if (unanswered > 0)
        error_seen(unanswered * (uint64_t)opt.batch, "no answer for 20 s", NULL);
    check_delivered();
}

static double micros(const struct histogram *h, double quantile) { return (double)histogram_at(h, quantile) / 1e3; }

static void report_flow(void) {
    printf("\"groups\":%d,\"delivered\":%llu,\"ack_p50_us\":%.1f,\"ack_p99_us\":%.1f,", opt.groups,
           (unsigned long long)delivered, micros(&ack_latencies, 0.5), micros(&ack_latencies, 0.99));
}

static void report(void) {
    int64_t until = last_answer < measure_until ? last_answer : measure_until;
    double window = (double)(until - measure_from) / 1e9;
    double mean = latencies.count ? (double)latencies.sum / (double)latencies.count / 1e3 : 0;
    printf("{\"mode\":\"%s\",\"headers\":\"%s\",\"connections\":%d,\"window\":%d,\"batch\":%d,\"body\":%d,"
           "\"queues\":%d,\"topics\":%d,\"target_rate\":%.0f,\"seconds\":%.3f,\"messages\":%llu,\"requests\":%llu,"
           "\"rate\":%.1f,\"sent\":%llu,\"acked\":%llu,\"errors\":%llu,\"passes\":%llu,\"bytes_in\":%llu,",
           mode_names[opt.mode], opt.binary ? "binary" : "json", opt.connections, opt.window, opt.batch,
           opt.body, opt.queues, opt.topics, opt.rate, window, (unsigned long long)measured,
           (unsigned long long)requests_measured, window > 0 ? (double)measured / window : 0,
           (unsigned long long)sent, (unsigned long long)acked, (unsigned long long)errors,
           (unsigned long long)passes, (unsigned long long)bytes_in);
    if (opt.mode == FLOW)
        report_flow();
    if (is_filtered())
        printf("\"selected_per_pass\":%lld,", selected_per_pass());
    printf("\"mean_us\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f,"
           "\"load_cpu_s\":%.3f,\"run_s\":%.3f,\"first_error\":\"%s\"}\n",
           mean, micros(&latencies, 0.5), micros(&latencies, 0.99), micros(&latencies, 0.999),
           (double)latencies.max / 1e3, cpu_seconds(), (double)(last_answer - started) / 1e9, first_error);
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    if (opt.core >= 0)
        pin(opt.core);
    slots = room(sizeof *slots * SLOTS);
    stamps_delivered = room(sizeof *stamps_delivered * (size_t)opt.groups);
    if (opt.mode != SEND)
        make_readers(opt.mode == FLOW ? opt.groups : 1);
    if (opt.mode != PULL)
        build_templates();
    connect_all(opt.connections + (opt.mode == FLOW ? opt.groups : 0));
    run();
    report();
    return 0;
}
