/* Clients of one group that pop a backlog and acknowledge it, with the frames of Apache's Java client 5.4.0.
 *
 *     pop --port 10911 --topic bench --queues 8 --count 200000 --clients 4 [--batch]
 *
 * Each client pops up to --take messages of any queue, acknowledges them, and pops again: with one request for each
 * message, all of them on their way at once, or (--batch) with one BATCH_ACK. The topic must hold exactly --count
 * messages and the group must be new; every message must come exactly once. Prints one JSON line. */
#define _GNU_SOURCE
#include "frames.h"
#include "workers.h"

#define CODE_POP 200050
#define CODE_ACK 200051
#define CODE_BATCH_ACK 200151
#define POLLING_FULL 209
#define POLLING_TIMEOUT 210
#define NOTHING_FOUND 19
#define MAX_GAP 64

struct popped { /* of an answer: what the handles of its messages have in common, and the messages */
    long long pop_ms, invisible_ms, revive_queue;
    const char *starts;
    int count, queues[32];
    long long offsets[32], first[32];
};

static atomic_uint next_opaque;

static void queue_request(struct client *c, struct header *h, const char *body) {
    size_t size = strlen(body), opaque_at = header_end(h, size);
    patch_opaque(h->bytes + opaque_at, false, OPAQUE_FIRST + atomic_fetch_add(&next_opaque, 1) % OPAQUE_COUNT);
    uint8_t *at = out_room(c, h->size + size);
    memcpy(at, h->bytes, h->size);
    memcpy(at + h->size, body, size);
}

static void number_field(struct header *h, const char *key, long long value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", value);
    header_field(h, key, text);
}

/* The next frame; it stays in the buffer until the caller takes it in. */
static size_t read_frame(struct client *c, struct answer *a) {
    size_t size = 4 + (size_t)get_int32(need(c, 4));
    if (size < 8 || size > (16u << 20) || !read_answer(need(c, size), size, a) || !(a->flag & 1))
        die("a frame that is no answer", "", 0);
    return size;
}

static void queue_pop(struct client *c) {
    struct header h;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    header_begin(&h, false, CODE_POP);
    header_field(&h, "consumerGroup", opt.group);
    header_field(&h, "topic", opt.topic);
    header_field(&h, "queueId", "-1");
    number_field(&h, "maxMsgNums", opt.take);
    number_field(&h, "invisibleTime", opt.invisible_ms);
    header_field(&h, "pollTime", "0");
    number_field(&h, "bornTime", wall.tv_sec * 1000LL + wall.tv_nsec / 1000000);
    header_field(&h, "initMode", "0");
    header_field(&h, "expType", "TAG");
    header_field(&h, "exp", "*");
    header_field(&h, "order", "false");
    header_field(&h, "bname", opt.broker);
    queue_request(c, &h, "");
}

static long long start_of(const struct popped *p, int queue) {
    char item[24]; /* "0 queue start;...": 0 is the topic itself, and a healthy run has nothing else */
    size_t size = (size_t)snprintf(item, sizeof item, "0 %d ", queue);
    for (const char *at = p->starts; *at && *at != '"'; at++)
        if ((at == p->starts || at[-1] == ';') && strncmp(at, item, size) == 0)
            return atoll(at + size);
    die("a queue without its start offset:", p->starts, 100);
    return -1;
}

static void read_popped(const struct answer *a, struct popped *p) {
    static const char starts[] = "\"startOffsetInfo\":\"";
    const char *at = memmem(a->header, a->header_bytes, starts, sizeof starts - 1);
    if (at == NULL || !ext_number(a, "popTime", &p->pop_ms) || !ext_number(a, "invisibleTime", &p->invisible_ms) ||
        !ext_number(a, "reviveQid", &p->revive_queue))
        die("a pop without its fields:", (const char *)a->header, a->header_bytes);
    p->starts = at + sizeof starts - 1;
    p->count = 0;
    for (size_t record = 0; record < a->body_bytes; p->count++) {
        const uint8_t *bytes = a->body + record;
        uint32_t size = a->body_bytes - record < 91 ? 0 : get_int32(bytes);
        if (size < 91 || size > a->body_bytes - record || p->count == 32)
            die("popped records that are not whole", "", 0);
        p->queues[p->count] = (int)get_int32(bytes + 12);
        p->offsets[p->count] = (long long)get_int64(bytes + 20);
        p->first[p->count] = start_of(p, p->queues[p->count]);
        seen_now(p->queues[p->count] * opt.count + p->offsets[p->count]);
        record += size;
    }
}

static int queue_acks(struct client *c, const struct popped *p) {
    for (int i = 0; i < p->count; i++) {
        struct header h;
        char handle[160];
        snprintf(handle, sizeof handle, "%lld %lld %lld %lld 0 %s %d %lld", p->first[i], p->pop_ms, p->invisible_ms,
                 p->revive_queue, opt.broker, p->queues[i], p->offsets[i]);
        header_begin(&h, false, CODE_ACK);
        header_field(&h, "consumerGroup", opt.group);
        header_field(&h, "topic", opt.topic);
        number_field(&h, "queueId", p->queues[i]);
        header_field(&h, "extraInfo", handle);
        number_field(&h, "offset", p->offsets[i]);
        header_field(&h, "bname", opt.broker);
        queue_request(c, &h, "");
    }
    return p->count;
}

/* Bits as Java's BitSet writes them, in base64: little-endian, without zero bytes at the end. */
static void bits_text(uint64_t bits, char *text) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    int bytes = bits ? (71 - __builtin_clzll(bits)) / 8 : 0, at = 0;
    for (int i = 0; i < bytes; i += 3) {
        uint32_t three = 0;
        for (int j = 0; j < 3; j++)
            three = three << 8 | (i + j < bytes ? bits >> 8 * (i + j) & 255 : 0);
        for (int j = 0; j < 4; j++)
            text[at++] = i + j <= bytes ? letters[three >> (18 - 6 * j) & 63] : '=';
    }
    text[at] = 0;
}

static int queue_batch_ack(struct client *c, const struct popped *p) {
    struct header h;
    char body[16384], bits[16];
    int size = snprintf(body, sizeof body, "{\"acks\":[");
    for (int i = 0; i < p->count;) {
        int queue = p->queues[i];
        uint64_t set = 0;
        long long first = p->first[i];
        for (; i < p->count && p->queues[i] == queue; i++) {
            if (p->offsets[i] - first >= MAX_GAP)
                die("offsets of one pop lie too far apart", "", 0);
            set |= 1ull << (p->offsets[i] - first);
        }
        bits_text(set, bits);
        size += snprintf(body + size, sizeof body - (size_t)size,
                         "%s{\"b\":\"%s\",\"c\":\"%s\",\"it\":%lld,\"pt\":%lld,\"q\":%d,\"r\":\"0\",\"rq\":%lld,"
                         "\"so\":%lld,\"t\":\"%s\"}",
                         size > 9 ? "," : "", bits, opt.group, p->invisible_ms, p->pop_ms, queue, p->revive_queue,
                         first, opt.topic);
    }
    snprintf(body + size, sizeof body - (size_t)size, "],\"brokerName\":\"%s\"}", opt.broker);
    header_begin(&h, false, CODE_BATCH_ACK);
    header_field(&h, "bname", opt.broker);
    queue_request(c, &h, body);
    return 1;
}

static int work_once(struct client *c) {
    struct answer a;
    struct popped p;
    int64_t began = now_ns();
    queue_pop(c);
    send_out(c);
    size_t size = read_frame(c, &a);
    if (a.code == POLLING_TIMEOUT || a.code == POLLING_FULL || a.code == NOTHING_FOUND) {
        take_in(c, size);
        return 0;
    }
    if (a.code != 0)
        die("a pop was refused:", (const char *)a.header, a.header_bytes);
    read_popped(&a, &p);
    int64_t popped_at = now_ns();
    histogram_add(&c->takes, (uint64_t)(popped_at - began));
    int waiting = opt.batch ? queue_batch_ack(c, &p) : queue_acks(c, &p);
    take_in(c, size);
    send_out(c);
    while (waiting-- > 0) {
        size = read_frame(c, &a);
        if (a.code != 0)
            die("an acknowledgement was refused:", (const char *)a.header, a.header_bytes);
        take_in(c, size);
    }
    histogram_add(&c->acks, (uint64_t)(now_ns() - popped_at));
    return p.count;
}

int main(int argc, char **argv) { return run_workers(argc, argv, opt.batch ? "pop, batch ack" : "pop"); }
