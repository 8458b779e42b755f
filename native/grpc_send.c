/* A SendMessage of gRPC clients with one plain message, read from its bytes (protobuf).
 *
 * Plain is a message with a topic, a body, an id, a birth, and maybe a tag, keys and a message group, each once and in
 * printable ASCII without spaces, within its limit. Anything else is left to Python, which knows all fields, checks and refuses. What
 * comes out is what `check_message` and `to_broker` (proxy/) make of such a message. */
#include "common.h"

#define MAX_TEXT_BYTES 255 /* of an id or a host; tag and keys, and message groups, have limits of their own */
#define MAX_SECONDS (1LL << 40)

typedef struct {
    Span topic, body, tag, message_id, born_host, group;
    int64_t born_ms;
    Py_ssize_t keys_bytes;
    Span system;
} Plain;

typedef struct {
    Py_ssize_t body, words, group;
} Limits;

static int take_varint(Span *rest, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; rest->size && shift < 63; shift += 7) {
        uint8_t byte = *rest->at;
        rest->at++, rest->size--;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return 1;
    }
    return 0;
}

/* The next field, which is a number (`*number`) or bytes (`*bytes`); its key is `number << 3 | kind`. */
static int take_protobuf(Span *rest, uint64_t *key, uint64_t *number, Span *bytes)
{
    if (!take_varint(rest, key))
        return 0;
    if ((*key & 7) == 0)
        return take_varint(rest, number);
    if ((*key & 7) != 2 || !take_varint(rest, number) || *number > (uint64_t)rest->size)
        return 0;
    *bytes = (Span){rest->at, (Py_ssize_t)*number};
    rest->at += bytes->size, rest->size -= bytes->size;
    return 1;
}

#define BYTES(number) ((number) << 3 | 2)
#define NUMBER(number) ((number) << 3)

static int once(Span *known, Span found)
{
    int is_first = known->at == NULL;
    *known = found;
    return is_first;
}

static int is_plain_text(Span text, Py_ssize_t most)
{
    if (text.size <= 0 || text.size > most)
        return 0;
    for (Py_ssize_t at = 0; at < text.size; at++)
        if (text.at[at] < 0x21 || text.at[at] > 0x7E)
            return 0;
    return 1;
}

static int read_topic(Span rest, Plain *found)
{
    uint64_t key, number;
    Span bytes, space = {NULL, 0};
    while (rest.size) {
        if (!take_protobuf(&rest, &key, &number, &bytes))
            return 0;
        if (key == BYTES(1) ? !once(&space, bytes) || (bytes.size && !is_plain_text(bytes, MAX_TEXT_BYTES))
                            : key != BYTES(2) || !once(&found->topic, bytes))
            return 0;
    }
    return is_plain_text(found->topic, MAX_TEXT_BYTES);
}

static int read_born(Span rest, Plain *found)
{
    uint64_t key, number, seconds = 0, nanos = 0;
    Span bytes;
    if (found->born_ms)
        return 0;
    while (rest.size) {
        if (!take_protobuf(&rest, &key, &number, &bytes))
            return 0;
        if (key == NUMBER(1) && !seconds)
            seconds = number;
        else if (key == NUMBER(2) && !nanos)
            nanos = number;
        else
            return 0;
    }
    found->born_ms = (int64_t)(seconds * 1000 + nanos / 1000000);
    return seconds > 0 && seconds < MAX_SECONDS && nanos < 1000000000;
}

static int has_bar(Span text)
{
    return memchr(text.at, '|', (size_t)text.size) != NULL;
}

static int read_system(Span rest, Plain *found, const Limits *limits)
{
    uint64_t key, number, seen = 0;
    Span bytes;
    found->system = rest;
    while (rest.size) {
        if (!take_protobuf(&rest, &key, &number, &bytes))
            return 0;
        int is_sound = 0;
        switch (key) {
        case BYTES(1):
            is_sound = once(&found->tag, bytes) && is_plain_text(bytes, limits->words) && !has_bar(bytes);
            break;
        case BYTES(2):
            is_sound = is_plain_text(bytes, limits->words);
            found->keys_bytes += bytes.size + 1;
            break;
        case BYTES(3):
            is_sound = once(&found->message_id, bytes);
            break;
        case NUMBER(5): /* the encoding: none */
            is_sound = number <= 1 && !(seen & 1);
            seen |= 1;
            break;
        case NUMBER(6): /* the type, which says something only of transactions */
            is_sound = number <= 3 && !(seen & 2);
            seen |= 2;
            break;
        case BYTES(7):
            is_sound = read_born(bytes, found);
            break;
        case BYTES(8):
            is_sound = once(&found->born_host, bytes);
            break;
        case NUMBER(13): /* the queue, which is chosen by the server */
            is_sound = number <= INT32_MAX;
            break;
        case BYTES(17):
            is_sound = once(&found->group, bytes) && is_plain_text(bytes, limits->group);
            break;
        }
        if (!is_sound)
            return 0;
    }
    Py_ssize_t words = found->keys_bytes + found->tag.size;
    return found->born_ms && words <= limits->words && is_plain_text(found->message_id, MAX_TEXT_BYTES) &&
           is_plain_text(found->born_host, MAX_TEXT_BYTES);
}

static int read_message(Span rest, Plain *found, const Limits *limits)
{
    uint64_t key, number;
    Span bytes, topic = {NULL, 0}, system = {NULL, 0};
    while (rest.size) {
        if (!take_protobuf(&rest, &key, &number, &bytes))
            return 0;
        if (key == BYTES(1) ? !once(&topic, bytes)
                            : key == BYTES(3) ? !once(&system, bytes) : key != BYTES(4) || !once(&found->body, bytes))
            return 0;
    }
    return topic.at != NULL && system.at != NULL && read_topic(topic, found) && read_system(system, found, limits) &&
           found->body.size > 0 && found->body.size <= limits->body;
}

static uint8_t *put_property(uint8_t *at, const char *name, Span value)
{
    at = put_bytes(at, name, strlen(name));
    *at++ = 1;
    at = put_bytes(at, value.at, (size_t)value.size);
    *at++ = 2;
    return at;
}

static uint8_t *put_keys(uint8_t *at, Span rest)
{
    uint64_t key, number;
    Span bytes;
    at = put_bytes(at, "KEYS\1", 5);
    while (rest.size && take_protobuf(&rest, &key, &number, &bytes))
        if (key == BYTES(2)) {
            at = put_bytes(at, bytes.at, (size_t)bytes.size);
            *at++ = ' ';
        }
    at[-1] = 2;
    return at;
}

/* The properties in the order in which Python puts them. */
static PyObject *properties_of(const Plain *found)
{
    char born[24];
    int born_bytes = snprintf(born, sizeof born, "%lld", (long long)found->born_ms);
    Py_ssize_t most = 128 + found->tag.size + found->keys_bytes + found->message_id.size + found->group.size +
                      found->born_host.size + born_bytes + found->topic.size;
    uint8_t small[1024], *bytes = most <= (Py_ssize_t)sizeof small ? small : PyMem_Malloc((size_t)most), *at = bytes;
    if (bytes == NULL)
        return PyErr_NoMemory();
    if (found->tag.size)
        at = put_property(at, "TAGS", found->tag);
    if (found->keys_bytes)
        at = put_keys(at, found->system);
    at = put_property(at, "UNIQ_KEY", found->message_id);
    if (found->group.size)
        at = put_property(at, "__SHARDINGKEY", found->group);
    at = put_property(at, "__BORNHOST", found->born_host);
    at = put_property(at, "BORN_TIMESTAMP", (Span){(const uint8_t *)born, born_bytes});
    at = put_property(at, "RECONSUME_TIME", (Span){(const uint8_t *)"0", 1});
    at = put_property(at, "PGROUP", found->topic);
    PyObject *text = PyUnicode_DecodeASCII((const char *)bytes, at - bytes, NULL);
    if (bytes != small)
        PyMem_Free(bytes);
    return text;
}

static PyObject *text_or_none(Span text)
{
    return text.size ? PyUnicode_DecodeASCII((const char *)text.at, text.size, NULL) : Py_NewRef(Py_None);
}

/* read_plain_send(data, type, max_body_bytes, max_words_bytes, max_group_bytes): a row (topic, message_id, group, properties,
 * born_ms, body) of a NamedTuple `type`; None: it is not plain. */
EXPORT(read_plain_send)
{
    if (check_count("read_plain_send", count, 5))
        return NULL;
    int64_t most[3];
    for (int number = 0; number < 3; number++)
        if (as_int64(args[2 + number], &most[number]))
            return NULL;
    Limits limits = {(Py_ssize_t)most[0], (Py_ssize_t)most[1], (Py_ssize_t)most[2]};
    Py_buffer data;
    if (read_from(args[0], &data))
        return NULL;
    Span rest = {data.buf, data.len}, message;
    Plain found = {0};
    uint64_t key, number;
    PyObject *row = NULL;
    if (!take_protobuf(&rest, &key, &number, &message) || key != BYTES(1) || rest.size || !read_message(message, &found, &limits)) {
        row = Py_NewRef(Py_None);
    } else if ((row = new_row(args[1], 6)) != NULL) {
        PyObject *items[] = {
            text_or_none(found.topic),
            text_or_none(found.message_id),
            text_or_none(found.group),
            properties_of(&found),
            PyLong_FromLongLong(found.born_ms),
            PyBytes_FromStringAndSize((const char *)found.body.at, found.body.size),
        };
        int is_whole = 1;
        for (int item = 0; item < 6; item++) {
            PyTuple_SET_ITEM(row, item, items[item]);
            is_whole &= items[item] != NULL;
        }
        if (!is_whole)
            Py_CLEAR(row);
    }
    PyBuffer_Release(&data);
    return row;
}
