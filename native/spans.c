/* The header of a send and the properties of a message, located where they lie: no object is made of them.
 *
 * What is not written in the plain way is not located, and goes the general road. */
#include "binary.h"
#include "json.h"
#include "sends.h"

/* A JSON string; one with escapes is written to `*room`, which it takes less of than of the header. */
static int take_span(Text *json, uint8_t **room, uint8_t *seen, Span *span)
{
    if (json->at >= json->end || *json->at != '"')
        return 0;
    const uint8_t *start = json->at + 1, *at = start;
    uint8_t *out = NULL;
    while (at < json->end && *at != '"') {
        if (*at < 0x20)
            return 0;
        if (*at == '\\') {
            if (out == NULL)
                out = put_bytes(*room, start, (size_t)(at - start));
            if ((at = unescape(at, json->end, &out)) == NULL)
                return 0;
            continue;
        }
        *seen |= *at;
        if (out != NULL)
            *out++ = *at;
        at++;
    }
    if (at >= json->end)
        return 0;
    json->at = at + 1;
    *span = out == NULL ? (Span){start, at - start} : (Span){*room, out - *room};
    *room = out == NULL ? *room : out;
    return 1;
}

static void keep_field(SendHeader *header, Span name, Span value)
{
    if (name.size == 1 && *name.at >= 'a' && *name.at < 'a' + SEND_FIELDS)
        header->fields[*name.at - 'a'] = value;
}

static int take_fields(Text *json, uint8_t **room, uint8_t *seen, SendHeader *header)
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

#define IS(text) (name.size == sizeof(text) - 1 && memcmp(name.at, text, sizeof(text) - 1) == 0)

static int locate_json(const uint8_t *bytes, Py_ssize_t size, uint8_t *room, SendHeader *header)
{
    Text json = {bytes, bytes + size};
    Span name, ignored;
    uint8_t seen = 0;
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
    return seen < 0x80 || is_utf8(bytes, size);
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
    }
    return 1;
}

int locate_header(const uint8_t *frame, Py_ssize_t header_bytes, uint8_t *room, SendHeader *header)
{
    *header = (SendHeader){{0}, {{NULL, 0}}};
    return frame[4] == 0 ? locate_json(frame + 8, header_bytes, room, header)
        : frame[4] == 1 && locate_binary(frame + 8, header_bytes, header);
}

void find_properties(const uint8_t *bytes, Py_ssize_t size, Properties *found)
{
    const uint8_t *end = bytes + size;
    *found = (Properties){{NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, 0};
    while (bytes < end) {
        const uint8_t *item_end = memchr(bytes, 2, (size_t)(end - bytes));
        if (item_end == NULL)
            item_end = end;
        const uint8_t *name_end = memchr(bytes, 1, (size_t)(item_end - bytes));
        if (name_end != NULL && name_end > bytes && name_end + 1 < item_end) {
            Span name = {bytes, name_end - bytes}, value = {name_end + 1, item_end - name_end - 1};
            if (IS("UNIQ_KEY"))
                found->unique = value;
            else if (IS("KEYS"))
                found->keys = value;
            else if (IS("TAGS"))
                found->tags = value;
            else if (IS("WAIT"))
                found->wait = value;
            else
                found->special |= is_special(name);
        }
        bytes = item_end + 1;
    }
}

int hash_span(uint32_t *hash, Span span)
{
    uint32_t plain = *hash;
    uint8_t seen = 0;
    for (Py_ssize_t at = 0; at < span.size; at++) {
        seen |= span.at[at];
        plain = plain * 31 + span.at[at];
    }
    if (seen < 0x80) {
        *hash = plain;
        return 0;
    }
    PyObject *text = replaced_text(span.at, span.size);
    if (text == NULL)
        return -1;
    *hash = java_hash_text(*hash, text);
    Py_DECREF(text);
    return 0;
}
