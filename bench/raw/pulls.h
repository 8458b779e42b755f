/* Pulls: a reader is a queue of a group and keeps one pull in flight, as a push consumer does.
 *
 * The header of a reader's pulls is built once; only the offset and the opaque differ from pull to pull.
 *
 * Every body is walked record by record. Without a filter the queue offsets must have no hole; with a tag they must
 * grow, each record must have the tag, and every pass over a queue must select equally many. */
#ifndef PULLS_H
#define PULLS_H

#include "frames.h"
#include "sockets.h"

#define CODE_FOUND 0
#define CODE_NOTHING_YET 19
#define CODE_NONE_MATCHED 20
#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu
#define RECORD_BODY_AT 88 /* with addresses of IP version 4 */
#define RECORD_MIN 91
#define SYS_FLAG_IPV6 0x30u

struct reader {
    int group, queue;
    long long offset;
    long long selected, selected_before; /* with a filter: in this pass, and in each one before (-1: none yet) */
    bool done;
    struct header pull; /* without the digits of the offset, which belong at `offset_at` */
    size_t offset_at, opaque_at;
};

static struct reader *readers;
static int reader_count;
static uint64_t passes;

static void record_in(const struct reader *r, const uint8_t *record, size_t size); /* told of every sound record */

static void build_pull(struct reader *r, bool waits);

static void make_readers(int groups) {
    const char *offsets = opt.offsets;
    reader_count = groups * opt.queues;
    readers = room(sizeof *readers * (size_t)reader_count);
    for (int i = 0; i < reader_count; i++) {
        readers[i] = (struct reader){.group = i / opt.queues, .queue = i % opt.queues, .selected_before = -1};
        build_pull(&readers[i], opt.mode == FLOW);
        if (readers[i].queue == 0)
            offsets = opt.offsets;
        if (offsets == NULL)
            continue;
        char *end;
        readers[i].offset = strtoll(offsets, &end, 10);
        offsets = *end == ',' ? end + 1 : NULL;
    }
}

/* Java writes these fields in this order in binary headers, and in the order of a hash map in JSON. */
static void build_pull(struct reader *r, bool waits) {
    char group[160], queue_text[24], most_text[24];
    const char *fields[][2] = {
        {"consumerGroup", group}, {"topic", opt.topic}, {"queueId", queue_text}, {"queueOffset", ""},
        {"maxMsgNums", most_text}, {"sysFlag", waits ? "6" : "4" /* with the subscription; 2: may be held */},
        {"commitOffset", "0"}, {"suspendTimeoutMillis", "20000"}, {"subscription", opt.subscription},
        {"subVersion", "0"}, {"expressionType", "TAG"}, {"maxMsgBytes", "2147483647"}, {"bname", opt.broker},
        {"ReqT", "0"},
    };
    static const int json_order[] = {2, 6, 8, 7, 12, 5, 10, 13, 1, 0, 4, 3, 9, 11};
    snprintf(group, sizeof group, opt.groups == 1 ? "%s" : "%s-%d", opt.group, r->group);
    snprintf(queue_text, sizeof queue_text, "%d", r->queue);
    snprintf(most_text, sizeof most_text, "%d", opt.max_messages);
    header_begin(&r->pull, opt.binary, CODE_PULL);
    for (int i = 0; i < (int)(sizeof fields / sizeof *fields); i++) {
        int field = opt.binary ? i : json_order[i];
        size_t at = header_field(&r->pull, fields[field][0], fields[field][1]);
        if (field == 3)
            r->offset_at = at;
    }
    r->opaque_at = header_end(&r->pull, 0);
}

static void put_pull(struct connection *c, const struct reader *r, uint32_t opaque) {
    const struct header *h = &r->pull;
    uint8_t digits[20];
    size_t width = put_decimal(digits, (uint64_t)r->offset), size = h->size + width;
    uint8_t *at = out_room(c, size);
    memcpy(at, h->bytes, r->offset_at);
    memcpy(at + r->offset_at, digits, width);
    memcpy(at + r->offset_at + width, h->bytes + r->offset_at, h->size - r->offset_at);
    put_int32(at, (uint32_t)(size - 4));
    put_int32(at + 4, (uint32_t)(size - 8) | (opt.binary ? 1u << 24 : 0));
    if (opt.binary) {
        put_int32(at + r->offset_at - 4, (uint32_t)width);
        put_int32(at + h->ext_at, (uint32_t)(size - h->ext_at - 4));
    }
    patch_opaque(at + r->opaque_at + (r->opaque_at > r->offset_at ? width : 0), opt.binary, opaque);
}

static bool is_filtered(void) { return strcmp(opt.subscription, "*") != 0; }

static bool has_tag(const uint8_t *record, size_t size) {
    static char property[80];
    static size_t property_size;
    if (property_size == 0)
        property_size = (size_t)snprintf(property, sizeof property, "TAGS\1%s\2", opt.subscription);
    return memmem(record, size, property, property_size) != NULL;
}

/* Counts the records of a pulled body; -1 unless they are whole and are what was asked for. */
static long long walk_records(const struct answer *a, const struct reader *r) {
    long long found = 0, wanted = r->offset;
    for (size_t at = 0; at < a->body_bytes; found++, wanted++) {
        const uint8_t *record = a->body + at;
        if (a->body_bytes - at < RECORD_MIN)
            return -1;
        uint32_t size = get_int32(record), magic = get_int32(record + 4);
        if (size < RECORD_MIN || size > a->body_bytes - at || (magic != MAGIC_V1 && magic != MAGIC_V2))
            return -1;
        long long offset = (long long)get_int64(record + 20);
        if (get_int32(record + 12) != (uint32_t)r->queue || offset < wanted)
            return -1;
        if (is_filtered() ? !has_tag(record, size) : offset != wanted)
            return -1;
        wanted = offset;
        record_in(r, record, size);
        at += size;
    }
    return found;
}

/* A queue that is read again and again starts anew at its end; false if this pass selected other messages. */
static bool end_pass(struct reader *r) {
    bool same = r->selected_before < 0 || r->selected_before == r->selected;
    r->selected_before = r->selected;
    r->selected = r->offset = 0;
    passes++;
    return same;
}

/* Whether an answer without messages may say that the reader goes on at `next`. */
static bool is_sound_end(int code, long long before, long long next, long long max, bool follows) {
    if (code == CODE_NONE_MATCHED && is_filtered())
        return next > before;
    return code == CODE_NOTHING_YET && (follows ? next == before : next >= max);
}

/* Moves the reader on; returns how many messages it passed, or -1 if the answer was wrong. */
static long long pulled(const struct answer *a, struct reader *r, bool follows) {
    long long next, max, found = 0, before = r->offset;
    if (!ext_number(a, "nextBeginOffset", &next) || !ext_number(a, "maxOffset", &max))
        return -1;
    if (a->code == CODE_FOUND) {
        found = walk_records(a, r);
        if (found <= 0 || next < before + found || (!is_filtered() && next != before + found))
            return -1;
    } else if (!is_sound_end(a->code, before, next, max, follows)) {
        return -1;
    }
    r->offset = next;
    r->selected += found;
    if (!follows && next >= max) {
        if (!end_pass(r))
            return -1;
        r->done = opt.seconds == 0 || max == 0;
    }
    return is_filtered() ? next - before : found;
}

/* With a filter: how many messages one pass over all queues selects, -1 before there was a whole one. */
static long long selected_per_pass(void) {
    long long total = 0;
    for (int i = 0; i < reader_count; i++) {
        if (readers[i].selected_before < 0)
            return -1;
        total += readers[i].selected_before;
    }
    return total;
}

#endif
