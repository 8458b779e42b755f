/* Sends, from headers that are built once per topic and queue and then only patched. */
#ifndef SENDS_H
#define SENDS_H

#include "bodies.h"
#include "frames.h"
#include "signing.h"

#define SIGNED_POOL 4096 /* sends that are signed before the load begins */
#define TAG_PROPERTY_BYTES 10
#define STAMP_DIGITS 16 /* of a stamped body: when it was due, in hex */

struct template {
    uint8_t *bytes;
    size_t size, opaque_at, born_at, unique_at, tag_at, signature_at;
    const char *topic;
    int queue;
};

static struct template *templates;
static int64_t realtime_shift;
static uint64_t next_unique, next_tag;
static uint32_t next_template;
static char unique_prefix[UNIQUE_ID_FIXED + 1];

static size_t properties_bytes(void) { return PROPERTIES_BYTES + (opt.tags ? TAG_PROPERTY_BYTES : 0); }

static size_t body_bytes(void) {
    size_t record = BATCH_RECORD_FIXED + (size_t)opt.body + properties_bytes();
    return opt.batch == 1 ? (size_t)opt.body : record * (size_t)opt.batch;
}

static void properties_text(char *text) {
    sprintf(text, "UNIQ_KEY\1%s000000000000\2WAIT\1true\2%s", unique_prefix, opt.tags ? "TAGS\1t000\2" : "");
}

static void put_tag(uint8_t *at) { put_digits(at, 3, next_tag++ % (uint64_t)opt.tags); }

static void build_template(struct template *t, const char *topic, int queue) {
    struct header h;
    char properties[PROPERTIES_BYTES + TAG_PROPERTY_BYTES + 1], queue_text[12];
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
    if (opt.account != NULL) {
        header_field(&h, "AccessKey", opt.account);
        t->signature_at = header_field(&h, "Signature", "0123456789012345678901234567");
    }
    t->topic = topic;
    t->queue = queue;
    t->opaque_at = header_end(&h, body_bytes());
    size_t separator = opt.binary ? 1 : 6; /* JSON has 0x01 as six characters */
    t->unique_at = properties_at + 8 + separator + UNIQUE_ID_FIXED;
    t->tag_at = t->unique_at + 12 + strlen("WAITtrueTAGSt") + 4 * separator;
    t->size = h.size;
    t->bytes = room(h.size);
    memcpy(t->bytes, h.bytes, h.size);
}

static void put_batch(uint8_t *at) {
    char properties[PROPERTIES_BYTES + TAG_PROPERTY_BYTES + 1];
    properties_text(properties);
    size_t extra = properties_bytes();
    for (int i = 0; i < opt.batch; i++) {
        uint32_t size = BATCH_RECORD_FIXED + (uint32_t)opt.body + (uint32_t)extra;
        put_int32(at, size);
        memset(at + 4, 0, 12); /* magic, CRC and flag: the broker works them out */
        put_int32(at + 16, (uint32_t)opt.body);
        put_body(at + 20);
        uint8_t *after = at + 20 + opt.body;
        after[0] = 0, after[1] = (uint8_t)extra;
        memcpy(after + 2, properties, extra);
        put_hex(after + 2 + 9 + UNIQUE_ID_FIXED, 12, next_unique++);
        if (opt.tags)
            put_tag(after + 2 + extra - 4);
        at += size;
    }
}

static struct template *take_template(void) {
    struct template *t = &templates[next_template];
    next_template = (next_template + 1) % (uint32_t)(opt.topics * opt.queues);
    return t;
}

/* Writes a send, but for its opaque; a `stamp` other than 0 goes to the front of its body. */
static void put_made(uint8_t *at, const struct template *t, int64_t now, int64_t stamp) {
    memcpy(at, t->bytes, t->size);
    put_digits(at + t->born_at, 13, (uint64_t)((now + realtime_shift) / 1000000));
    put_hex(at + t->unique_at, 12, next_unique++);
    if (opt.batch > 1) {
        put_batch(at + t->size);
        return;
    }
    if (opt.tags)
        put_tag(at + t->tag_at);
    put_body(at + t->size);
    if (stamp)
        put_hex(at + t->size, STAMP_DIGITS, (uint64_t)stamp);
}

/* Signs a send: values in the order of their names, then the body. */
static void sign_send(uint8_t *at, const struct template *t) {
    char properties[PROPERTIES_BYTES + TAG_PROPERTY_BYTES + 1];
    uint8_t *text = room(t->size + body_bytes());
    properties_text(properties);
    memcpy(properties + 9 + UNIQUE_ID_FIXED, at + t->unique_at, 12);
    if (opt.tags)
        memcpy(properties + PROPERTIES_BYTES + TAG_PROPERTY_BYTES - 4, at + t->tag_at, 3);
    size_t size = (size_t)sprintf((char *)text, "%s%s%sTBW1024%d0%.13s0%s0false%s%s", opt.account, opt.group, t->topic, t->queue,
                                  (const char *)at + t->born_at, properties, opt.batch == 1 ? "false" : "true", opt.broker);
    memcpy(text + size, at + t->size, body_bytes());
    put_signature(at + t->signature_at, opt.secret, text, size + body_bytes());
    free(text);
}

static struct made {
    const struct template *t;
    uint8_t *bytes;
} signed_sends[SIGNED_POOL];

static void sign_pool(void) {
    for (int i = 0; i < SIGNED_POOL; i++) {
        struct made *made = &signed_sends[i];
        made->t = take_template();
        made->bytes = room(made->t->size + body_bytes());
        put_made(made->bytes, made->t, now_ns(), 0);
        sign_send(made->bytes, made->t);
    }
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
        char *name = room(160);
        snprintf(name, 160, opt.topics == 1 ? "%s" : "%s-%d", opt.topic, topic);
        for (int queue = 0; queue < opt.queues; queue++)
            build_template(&templates[queue * opt.topics + topic], name, queue);
    }
    fill_random_pool();
    if (opt.account != NULL)
        sign_pool();
}

/* Puts the next send into the connection's buffer. */
static void put_send(struct connection *c, uint32_t opaque, int64_t now, int64_t stamp) {
    static uint32_t next_signed;
    const struct made *made = opt.account == NULL ? NULL : &signed_sends[next_signed++ % SIGNED_POOL];
    const struct template *t = made == NULL ? take_template() : made->t;
    uint8_t *at = out_room(c, t->size + body_bytes());
    if (made == NULL)
        put_made(at, t, now, stamp);
    else
        memcpy(at, made->bytes, t->size + body_bytes());
    patch_opaque(at + t->opaque_at, opt.binary, opaque);
}

#endif
