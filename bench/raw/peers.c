/* The sends of load.c for other servers: XADD to a redis stream, or PUB to a NATS stream with its acknowledgement.
 *
 *     peers --peer redis --port 6379 --topic bench --connections 64 --seconds 10
 *
 * Each connection keeps `--window` sends in flight. Both servers answer the sends of a connection in their order; an answer
 * that is an error counts as one. Prints a JSON line with the keys of load.c. */
#define _GNU_SOURCE
#include "bodies.h"
#include "histogram.h"
#include "options.h"
#include "sockets.h"

#define SILENCE_NS (20 * 1000000000LL)

struct waiting { /* when the sends in flight of a connection began: a ring */
    int64_t *since;
    int first;
};

static struct waiting *waiting;
static struct histogram latencies;
static int64_t started, measure_from, measure_until, last_answer;
static uint64_t in_flight, sent, acked, measured, errors;
static char first_error[160];
static bool issuing = true;

static void failed(uint64_t count, const char *what, size_t size) {
    errors += count;
    if (first_error[0])
        return;
    snprintf(first_error, sizeof first_error, "%.*s", (int)(size < 150 ? size : 150), what);
    for (char *c = first_error; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < 32 || (unsigned char)*c > 126)
            *c = '\'';
}

static void put_text(struct connection *c, const char *text) { memcpy(out_room(c, strlen(text)), text, strlen(text)); }

static void queue_send(struct connection *c, int64_t now) {
    char head[256];
    int number = (int)(c - connections);
    struct waiting *w = &waiting[number];
    if (opt.peer == REDIS)
        snprintf(head, sizeof head, "*5\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$4\r\nbody\r\n$%d\r\n",
                 strlen(opt.topic), opt.topic, opt.body);
    else
        snprintf(head, sizeof head, "PUB %s _I.%d.%d %d\r\n", opt.topic, getpid(), number, opt.body);
    put_text(c, head);
    put_body(out_room(c, (size_t)opt.body));
    put_text(c, "\r\n");
    w->since[(w->first + c->in_flight++) % opt.window] = now;
    in_flight++;
    sent++;
}

static void refill(struct connection *c, int64_t now) {
    while (issuing && c->in_flight < opt.window)
        queue_send(c, now);
}

static void lost(struct connection *c, const char *why) {
    failed((uint64_t)c->in_flight, why, strlen(why));
    in_flight -= (uint64_t)c->in_flight;
    c->in_flight = 0;
}

static void answered(struct connection *c, const char *text, size_t size, bool is_sound) {
    struct waiting *w = &waiting[c - connections];
    if (c->in_flight == 0)
        return failed(1, "an answer to nothing asked", 26);
    int64_t since = w->since[w->first];
    w->first = (w->first + 1) % opt.window;
    c->in_flight--;
    in_flight--;
    if (!is_sound)
        return failed(1, text, size);
    acked++;
    if (last_answer >= measure_from && last_answer <= measure_until) {
        measured++;
        histogram_add(&latencies, (uint64_t)(last_answer - since));
    }
}

/* Deals with what starts with a line of `size` bytes; returns how much that was, 0 if it is not all there. */
static size_t redis_in(struct connection *c, const char *at, size_t size, size_t there) {
    if (*at != '$') {
        answered(c, at, size, false);
        return size;
    }
    size_t whole = size + (size_t)atoi(at + 1) + 2;
    if (whole > there)
        return 0;
    answered(c, at, size, true);
    return whole;
}

static size_t nats_in(struct connection *c, const char *at, size_t size, size_t there) {
    if (strncmp(at, "PING", 4) == 0)
        put_text(c, "PONG\r\n");
    if (*at == '-')
        failed(1, at, size);
    if (strncmp(at, "MSG ", 4) != 0)
        return size;
    const char *last = memrchr(at, ' ', size);
    size_t body = (size_t)atoi(last + 1), whole = size + body + 2;
    if (whole > there)
        return 0;
    bool is_sound = memmem(at + size, body, "\"seq\":", 6) != NULL && memmem(at + size, body, "\"error\"", 7) == NULL;
    answered(c, at + size, body, is_sound);
    return whole;
}

static void frames_in(struct connection *c) {
    size_t done = 0;
    last_answer = now_ns();
    while (done < c->in_size) {
        const char *at = (const char *)c->in + done;
        size_t there = c->in_size - done;
        const char *end = memmem(at, there, "\r\n", 2);
        if (end == NULL)
            break;
        size_t taken = (opt.peer == REDIS ? redis_in : nats_in)(c, at, (size_t)(end + 2 - at), there);
        if (taken == 0)
            break;
        done += taken;
    }
    take_in(c, done);
    refill(c, last_answer);
    flush_out(c);
}

static void greet(struct connection *c) {
    char text[128];
    snprintf(text, sizeof text, "CONNECT {\"verbose\":false}\r\nSUB _I.%d.%d 1\r\n", getpid(), (int)(c - connections));
    if (opt.peer == NATS)
        put_text(c, text);
}

static void run(void) {
    started = last_answer = now_ns();
    measure_from = started + (int64_t)(opt.warmup * 1e9);
    measure_until = measure_from + (int64_t)(opt.seconds * 1e9);
    for (int i = 0; i < opt.connections; i++) {
        greet(&connections[i]);
        refill(&connections[i], started);
        flush_out(&connections[i]);
    }
    while (open_connections > 0 && in_flight > 0 && now_ns() - last_answer < SILENCE_NS) {
        if (now_ns() >= measure_until)
            issuing = false;
        wait_once(50);
    }
    if (in_flight > 0)
        failed(in_flight, "no answer for 20 s", 18);
}

static void report(void) {
    printf("{\"messages\":%llu,\"rate\":%.1f,\"sent\":%llu,\"acked\":%llu,\"errors\":%llu,\"p50_us\":%.1f,"
           "\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f,\"load_cpu_s\":%.3f,\"first_error\":\"%s\"}\n",
           (unsigned long long)measured, (double)measured / opt.seconds, (unsigned long long)sent,
           (unsigned long long)acked, (unsigned long long)errors, (double)histogram_at(&latencies, 0.5) / 1e3,
           (double)histogram_at(&latencies, 0.99) / 1e3, (double)histogram_at(&latencies, 0.999) / 1e3,
           (double)latencies.max / 1e3, cpu_seconds(), first_error);
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    if (opt.core >= 0)
        pin(opt.core);
    fill_random_pool();
    waiting = room(sizeof *waiting * (size_t)opt.connections);
    for (int i = 0; i < opt.connections; i++)
        waiting[i].since = room(sizeof *waiting[i].since * (size_t)opt.window);
    connect_all(opt.connections);
    run();
    report();
    return 0;
}
