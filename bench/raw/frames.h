/* Request frames as Apache's Java client 5.4.0 sends them (field order included), and what is read from answers.
 *
 *     length int32 | type int8, header length int24 | header | body
 *
 * Every field that differs from message to message has a fixed width (opaque 7 digits, born time 13, the last
 * 12 hex digits of the unique id), so a header is built once per topic and queue and then only patched. */
#ifndef FRAMES_H
#define FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CODE_PULL 11
#define CODE_SEND_V2 310
#define CODE_SEND_BATCH 320
#define CLIENT_VERSION 493
#define HEADER_ROOM 1536
#define OPAQUE_FIRST 1000000u /* always 7 digits */
#define OPAQUE_COUNT 9000000u
#define UNIQUE_ID_BYTES 32
#define UNIQUE_ID_FIXED 20 /* ip 8, process 4, class loader 8; then time and counter, 12 */
#define PROPERTIES_BYTES 52
#define BATCH_RECORD_FIXED 22

static inline void put_int32(uint8_t *at, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(at, &value, 4);
}

static inline uint32_t get_int32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}

static inline uint64_t get_int64(const uint8_t *at) {
    return ((uint64_t)get_int32(at) << 32) | get_int32(at + 4);
}

static inline void put_digits(uint8_t *at, int width, uint64_t value) {
    while (width-- > 0) {
        at[width] = (uint8_t)('0' + value % 10);
        value /= 10;
    }
}

/* Writes a number without leading zeros and returns how many digits it has: at most 20. */
static inline size_t put_decimal(uint8_t *at, uint64_t value) {
    size_t width = 1;
    for (uint64_t rest = value / 10; rest > 0; rest /= 10)
        width++;
    put_digits(at, (int)width, value);
    return width;
}

static inline void put_hex(uint8_t *at, int width, uint64_t value) {
    while (width-- > 0) {
        at[width] = (uint8_t)"0123456789ABCDEF"[value & 15];
        value >>= 4;
    }
}

/* A header under construction, in either encoding. */
struct header {
    uint8_t bytes[HEADER_ROOM];
    size_t size;
    bool binary;
    bool first_field;
    size_t ext_at; /* binary: where the length of the field block goes */
};

static inline void header_text(struct header *h, const char *text, size_t size) {
    if (h->size + size > HEADER_ROOM) {
        fprintf(stderr, "load: a request header passes %d bytes: shorten topic and group names\n", HEADER_ROOM);
        exit(1);
    }
    memcpy(h->bytes + h->size, text, size);
    h->size += size;
}

static inline void header_int(struct header *h, int width, uint32_t value) {
    uint8_t big[4];
    put_int32(big, value);
    header_text(h, (const char *)big + 4 - width, (size_t)width);
}

static inline void header_begin(struct header *h, bool binary, int code) {
    char text[64];
    h->size = 8; /* length and header word, filled in by header_end */
    h->binary = binary;
    h->first_field = true;
    if (!binary) {
        header_text(h, text, (size_t)snprintf(text, sizeof text, "{\"code\":%d,\"extFields\":{", code));
        return;
    }
    header_int(h, 2, (uint32_t)code);
    header_int(h, 1, 0); /* language JAVA */
    header_int(h, 2, CLIENT_VERSION);
    header_int(h, 4, 0); /* opaque */
    header_int(h, 4, 0); /* flag */
    header_int(h, 4, 0); /* no remark */
    h->ext_at = h->size;
    header_int(h, 4, 0);
}

/* Adds a field and returns where its value starts. 0x01 and 0x02 are written as Java's JSON writer does. */
static inline size_t header_field(struct header *h, const char *key, const char *value) {
    if (h->binary) {
        header_int(h, 2, (uint32_t)strlen(key));
        header_text(h, key, strlen(key));
        header_int(h, 4, (uint32_t)strlen(value));
        size_t at = h->size;
        header_text(h, value, strlen(value));
        return at;
    }
    if (!h->first_field)
        header_text(h, ",", 1);
    header_text(h, "\"", 1);
    header_text(h, key, strlen(key));
    header_text(h, "\":\"", 3);
    h->first_field = false;
    size_t at = h->size;
    for (const char *c = value; *c; c++) {
        if (*c == 1 || *c == 2)
            header_text(h, *c == 1 ? "\\u0001" : "\\u0002", 6);
        else
            header_text(h, c, 1);
    }
    header_text(h, "\"", 1);
    return at;
}

/* Closes the header for a body of `body_bytes` and returns where the opaque is. */
static inline size_t header_end(struct header *h, size_t body_bytes) {
    static const char before[] = "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":";
    size_t opaque_at = 8 + 5;
    if (h->binary) {
        put_int32(h->bytes + h->ext_at, (uint32_t)(h->size - h->ext_at - 4));
    } else {
        char after[64];
        header_text(h, before, sizeof before - 1);
        opaque_at = h->size;
        header_text(h, "1000000", 7);
        header_text(h, after, (size_t)snprintf(after, sizeof after,
                    ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":%d}", CLIENT_VERSION));
    }
    put_int32(h->bytes, (uint32_t)(h->size - 4 + body_bytes));
    put_int32(h->bytes + 4, (uint32_t)(h->size - 8) | (h->binary ? 1u << 24 : 0));
    return opaque_at;
}

static inline void patch_opaque(uint8_t *at, bool binary, uint32_t opaque) {
    if (binary)
        put_int32(at, opaque);
    else
        put_digits(at, 7, opaque);
}

/* What the generator needs of an answer. `header` and `body` point into the receive buffer. */
struct answer {
    int code;
    int flag;
    uint32_t opaque;
    bool binary;
    const uint8_t *header, *body;
    size_t header_bytes, body_bytes;
};

static inline bool json_number(const uint8_t *text, size_t size, const char *key, long long *value) {
    char quoted[48] = "\"";
    size_t key_size = strlen(key), quoted_size = key_size + 3;
    memcpy(quoted + 1, key, key_size);
    memcpy(quoted + 1 + key_size, "\":", 2);
    const uint8_t *at = memmem(text, size, quoted, quoted_size), *end = text + size;
    if (at == NULL)
        return false;
    at += quoted_size;
    while (at < end && (*at == ' ' || *at == '"'))
        at++;
    bool negative = at < end && *at == '-', any = false;
    long long number = 0;
    for (at += negative; at < end && *at >= '0' && *at <= '9' && number < (1LL << 58); at++, any = true)
        number = number * 10 + (*at - '0');
    *value = negative ? -number : number;
    return any;
}

static inline bool ext_number(const struct answer *a, const char *key, long long *value) {
    if (!a->binary)
        return json_number(a->header, a->header_bytes, key, value);
    if (a->header_bytes < 21)
        return false;
    size_t at = 21 + get_int32(a->header + 13);
    while (at + 6 <= a->header_bytes) {
        size_t key_bytes = (size_t)a->header[at] << 8 | a->header[at + 1];
        size_t value_at = at + 2 + key_bytes + 4;
        if (value_at > a->header_bytes)
            return false;
        size_t value_bytes = get_int32(a->header + value_at - 4);
        if (value_at + value_bytes > a->header_bytes)
            return false;
        if (key_bytes == strlen(key) && memcmp(a->header + at + 2, key, key_bytes) == 0) {
            char text[24] = {0}, *end;
            memcpy(text, a->header + value_at, value_bytes < 23 ? value_bytes : 23);
            *value = strtoll(text, &end, 10);
            return end != text && *end == 0;
        }
        at = value_at + value_bytes;
    }
    return false;
}

/* Reads one whole frame of `size` bytes, the length field included; false if it is not a sound answer. */
static inline bool read_answer(const uint8_t *frame, size_t size, struct answer *a) {
    uint32_t word = get_int32(frame + 4);
    a->binary = word >> 24 == 1;
    a->header = frame + 8;
    a->header_bytes = word & 0xFFFFFF;
    if (word >> 24 > 1 || a->header_bytes > size - 8)
        return false;
    a->body = a->header + a->header_bytes;
    a->body_bytes = size - 8 - a->header_bytes;
    if (a->binary) {
        if (a->header_bytes < 21)
            return false;
        a->code = (int16_t)(a->header[0] << 8 | a->header[1]);
        a->opaque = get_int32(a->header + 5);
        a->flag = (int)get_int32(a->header + 9);
        return true;
    }
    long long code, flag, opaque;
    if (!json_number(a->header, a->header_bytes, "code", &code) ||
        !json_number(a->header, a->header_bytes, "flag", &flag) ||
        !json_number(a->header, a->header_bytes, "opaque", &opaque))
        return false;
    a->code = (int)code;
    a->flag = (int)flag;
    a->opaque = (uint32_t)opaque;
    return true;
}

#endif
