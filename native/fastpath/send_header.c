/* The header of a send, located where it lies: no object is made of it. One that is not written in the plain way takes the
 * general path. */
#include "binary.h"
#include "json.h"
#include "fastpath.h"

#define EACH(byte) (0x0101010101010101u * (byte))

/* Where the next quote, backslash or control character is, or `end`; `seen` gets the bits of what lies before it. */
static const uint8_t *after_plain(const uint8_t *at, const uint8_t *end, uint64_t *seen)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; end - at >= 8; at += 8) {
        uint64_t eight, quote, escape;
        memcpy(&eight, at, 8);
        quote = eight ^ EACH('"'), escape = eight ^ EACH('\\');
        /* The highest bit of each byte that is zero, or less than a blank; bytes behind the first one may be marked wrongly. */
        uint64_t found = (((quote - EACH(1)) & ~quote) | ((escape - EACH(1)) & ~escape) | ((eight - EACH(0x20)) & ~eight)) & EACH(0x80);
        if (found) {
            int before = __builtin_ctzll(found) & ~7;
            *seen |= eight & ((1ull << before) - 1);
            return at + before / 8;
        }
        *seen |= eight;
    }
#endif
    for (; at < end && *at >= 0x20 && *at != '"' && *at != '\\'; at++)
        *seen |= *at;
    return at;
}

/* A JSON string; one with escapes is written to `*room`, which it takes less of than of the header. */
static int take_span(Text *json, uint8_t **room, uint64_t *seen, Span *span)
{
    if (json->at >= json->end || *json->at != '"')
        return 0;
    const uint8_t *start = json->at + 1, *at = after_plain(start, json->end, seen);
    uint8_t *out = NULL;
    while (at < json->end && *at == '\\') {
        if (out == NULL)
            out = put_bytes(*room, start, (size_t)(at - start));
        if ((at = unescape(at, json->end, &out)) == NULL)
            return 0;
        const uint8_t *next = after_plain(at, json->end, seen);
        out = put_bytes(out, at, (size_t)(next - at));
        at = next;
    }
    if (at >= json->end || *at != '"')
        return 0;
    json->at = at + 1;
    *span = out == NULL ? (Span){start, at - start} : (Span){*room, out - *room};
    *room = out == NULL ? *room : out;
    return 1;
}

#define IS(text) (name.size == sizeof(text) - 1 && memcmp(name.at, text, sizeof(text) - 1) == 0)

static void keep_field(SendHeader *header, Span name, Span value)
{
    Span *field = name.size == 1 && *name.at >= 'a' && *name.at < 'a' + SEND_FIELDS ? &header->fields[*name.at - 'a']
        : IS("AccessKey") ? &header->account
        : IS("Signature") ? &header->signature
        : IS("_rl_code")   ? &header->signed_code
        : IS("_rl_fields") ? &header->signed_fields
        : IS("_rl_time")   ? &header->signed_time
                           : NULL;
    if (field == NULL || field->at != NULL)
        header->is_odd = 1;
    if (field != NULL)
        *field = value;
}

static int take_fields(Text *json, uint8_t **room, uint64_t *seen, SendHeader *header)
{
    Span name, value;
    if (!take(json, '{'))
        return 0;
    if (take(json, '}'))
        return 1;
    do {
        if (!take_span(json, room, seen, &name) || !take(json, ':') || !take_span(json, room, seen, &value))
            return 0;
        keep_field(header, name, value);
    } while (take(json, ','));
    return take(json, '}');
}

static int locate_json(const uint8_t *bytes, Py_ssize_t size, uint8_t *room, SendHeader *header)
{
    Text json = {bytes, bytes + size};
    Span name, ignored;
    uint64_t seen = 0;
    int has_code = 0, has_fields = 0, sound = take(&json, '{');
    while (sound) {
        if (!take_span(&json, &room, &seen, &name) || !take(&json, ':'))
            return 0;
        if (IS("extFields"))
            sound = !has_fields++ && take_fields(&json, &room, &seen, header);
        else if (IS("code"))
            sound = has_code = take_number(&json, &header->numbers[CODE]);
        else if (IS("flag"))
            sound = take_number(&json, &header->numbers[FLAG]);
        else if (IS("opaque"))
            sound = take_number(&json, &header->numbers[OPAQUE]);
        else if (IS("version"))
            sound = take_number(&json, &header->numbers[VERSION]);
        else
            sound = (IS("language") || IS("remark") || IS("serializeTypeCurrentRPC")) && take_span(&json, &room, &seen, &ignored);
        if (!sound || !take(&json, ','))
            break;
    }
    if (!sound || !take(&json, '}') || json.at != json.end || !has_code)
        return 0;
    return !(seen & EACH(0x80)) || is_utf8(bytes, size);
}

static int locate_binary(const uint8_t *bytes, Py_ssize_t size, SendHeader *header)
{
    Span remark, fields, name, value;
    if (!split_binary(bytes, size, &remark, &fields))
        return 0;
    header->numbers[CODE] = (int16_t)get16(bytes);
    header->numbers[VERSION] = (int16_t)get16(bytes + 3);
    header->numbers[OPAQUE] = get32(bytes + 5);
    header->numbers[FLAG] = get32(bytes + 9);
    while (fields.size) {
        if (!take_field(&fields, &name, &value) || (name.size == 1 && !is_utf8(value.at, value.size)))
            return 0;
        if (value.size) /* a zero length reads as null in Java, so such an entry does not exist */
            keep_field(header, name, value);
        else
            header->is_odd = 1;
    }
    return 1;
}

int locate_header(const uint8_t *frame, Py_ssize_t header_bytes, uint8_t *room, SendHeader *header)
{
    memset(header, 0, sizeof *header);
    return frame[4] == 0 ? locate_json(frame + 8, header_bytes, room, header)
        : frame[4] == 1 && locate_binary(frame + 8, header_bytes, header);
}

int read_number(const uint8_t *digits, Py_ssize_t size, int64_t low, int64_t high, int64_t *number)
{
    int negative = size > 0 && digits[0] == '-';
    Py_ssize_t at = negative;
    if (size - at < 1 || size - at > 18 || (digits[at] == '0' && size > 1))
        return 0;
    int64_t found = 0;
    for (; at < size; at++) {
        if (digits[at] < '0' || digits[at] > '9')
            return 0;
        found = found * 10 + (digits[at] - '0');
    }
    *number = negative ? -found : found;
    return *number >= low && *number <= high;
}
