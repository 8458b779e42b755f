/* Records of the commit log: written in place, and looked at before they are served. */
#include "records.h"

/* Size and magic are written last: a process killed half way leaves no record, rather than one with a part missing that no
 * checksum covers. */
void put_record(uint8_t *start, const Head *head, int32_t size, const void *body, int32_t body_bytes, const void *properties,
                uint16_t properties_bytes)
{
    uint8_t *at = put32(start + BODY_CRC_AT, crc32_of(body, (size_t)body_bytes) & 0x7FFFFFFF);
    at = put32(at, (uint32_t)head->queue_id);
    at = put32(at, (uint32_t)head->flag);
    at = put64(at, (uint64_t)head->queue_offset);
    at = put64(at, (uint64_t)head->log_offset);
    at = put32(at, (uint32_t)head->sys_flag);
    at = put64(at, (uint64_t)head->born_ms);
    at = put_bytes(at, head->born_host, head->sys_flag & BORN_IPV6 ? 20 : 8);
    at = put64(at, (uint64_t)head->store_ms);
    at = put_bytes(at, head->store_host, head->sys_flag & STORE_IPV6 ? 20 : 8);
    at = put32(at, (uint32_t)head->reconsume_times);
    at = put64(at, (uint64_t)head->prepared);
    at = put32(at, (uint32_t)body_bytes);
    at = put_bytes(at, body, (size_t)body_bytes);
    at = put_bytes(at, head->topic, (size_t)head->topic_bytes);
    at = put16(at, properties_bytes);
    put_bytes(at, properties, properties_bytes);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    put64(start, (uint64_t)(uint32_t)size << 32 | (uint32_t)head->magic);
}

#define PREPARED 0x4 /* system flag of a half message */

/* Fields of a RecordHead. */
enum {
    HEAD_MAGIC, HEAD_TOPIC, HEAD_QUEUE_ID, HEAD_QUEUE_OFFSET, HEAD_LOG_OFFSET, HEAD_FLAG, HEAD_SYS_FLAG, HEAD_BORN_MS,
    HEAD_BORN_HOST, HEAD_STORE_MS, HEAD_STORE_HOST, HEAD_TIMES, HEAD_PREPARED, HEAD_FIELDS,
};

static int read_head(PyObject *fields, Head *head)
{
    if (!PyTuple_Check(fields) || PyTuple_GET_SIZE(fields) != HEAD_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "the head of a record is a RecordHead");
        return -1;
    }
    PyObject *const *of = &PyTuple_GET_ITEM(fields, 0);
    if (as_int32(of[HEAD_MAGIC], &head->magic) || as_int32(of[HEAD_QUEUE_ID], &head->queue_id)
        || as_int64(of[HEAD_QUEUE_OFFSET], &head->queue_offset) || as_int64(of[HEAD_LOG_OFFSET], &head->log_offset)
        || as_int32(of[HEAD_FLAG], &head->flag) || as_int32(of[HEAD_SYS_FLAG], &head->sys_flag)
        || as_int64(of[HEAD_BORN_MS], &head->born_ms) || as_int64(of[HEAD_STORE_MS], &head->store_ms)
        || as_int32(of[HEAD_TIMES], &head->reconsume_times) || as_int64(of[HEAD_PREPARED], &head->prepared))
        return -1;
    PyObject *topic = of[HEAD_TOPIC], *born = of[HEAD_BORN_HOST], *store = of[HEAD_STORE_HOST];
    if (!PyBytes_Check(topic) || !PyBytes_Check(born) || !PyBytes_Check(store)) {
        PyErr_SetString(PyExc_TypeError, "the topic and the hosts of a record are bytes");
        return -1;
    }
    if (PyBytes_GET_SIZE(born) != (head->sys_flag & BORN_IPV6 ? 20 : 8)
        || PyBytes_GET_SIZE(store) != (head->sys_flag & STORE_IPV6 ? 20 : 8)) {
        PyErr_SetString(PyExc_ValueError, "the hosts of a record do not have the sizes its system flag says");
        return -1;
    }
    head->topic = PyBytes_AS_STRING(topic);
    head->topic_bytes = PyBytes_GET_SIZE(topic);
    head->born_host = PyBytes_AS_STRING(born);
    head->store_host = PyBytes_AS_STRING(store);
    return 0;
}

/* The place for `size` bytes in a buffer, or NULL with an error. */
static uint8_t *place(Py_buffer *view, int64_t position, int64_t size)
{
    if (position < 0 || size > INT32_MAX || position > view->len - size) {
        PyErr_Format(PyExc_ValueError, "%lld bytes do not fit at %lld of %zd", (long long)size, (long long)position, view->len);
        return NULL;
    }
    return (uint8_t *)view->buf + position;
}

int64_t size_with(const Head *head, int64_t body_bytes, int64_t properties_bytes)
{
    return head_bytes(head->sys_flag) + body_bytes + head->topic_bytes + 2 + properties_bytes;
}

/* write_record(view, position, head, body, properties): how many bytes it took. */
EXPORT(write_record)
{
    int64_t position, size = -1;
    Head head;
    Py_buffer view, body;
    if (check_count("write_record", count, 5) || as_int64(args[1], &position) || read_head(args[2], &head))
        return NULL;
    if (!PyBytes_Check(args[4]) || PyBytes_GET_SIZE(args[4]) > MAX_PROPERTIES_BYTES) {
        PyErr_SetString(PyExc_ValueError, "the properties of a record are up to 32767 bytes");
        return NULL;
    }
    if (read_from(args[3], &body))
        return NULL;
    if (write_to(args[0], &view) == 0) {
        Py_ssize_t properties_bytes = PyBytes_GET_SIZE(args[4]);
        size = size_with(&head, body.len, properties_bytes);
        uint8_t *at = place(&view, position, size);
        if (at != NULL)
            put_record(at, &head, (int32_t)size, body.buf, (int32_t)body.len, PyBytes_AS_STRING(args[4]),
                       (uint16_t)properties_bytes);
        else
            size = -1;
        PyBuffer_Release(&view);
    }
    PyBuffer_Release(&body);
    return size < 0 ? NULL : PyLong_FromLongLong(size);
}

int is_sound(const uint8_t *record, int64_t size, int64_t log_offset, const int32_t *queue_id, int64_t queue_offset)
{
    if (size < MIN_RECORD_BYTES || get32(record) != size || get64(record + LOG_OFFSET_AT) != log_offset)
        return 0;
    int32_t magic = get32(record + MAGIC_AT), sys_flag = get32(record + SYS_FLAG_AT);
    if (magic != MAGIC_V1 && magic != MAGIC_V2)
        return 0;
    if (queue_id != NULL && (get32(record + QUEUE_ID_AT) != *queue_id || get64(record + QUEUE_OFFSET_AT) != queue_offset))
        return 0;
    int64_t body_at = head_bytes(sys_flag);
    if (size < body_at + 3)
        return 0;
    int64_t body_bytes = get32(record + body_at - 4), end = body_at + body_bytes;
    if (body_bytes < 0 || end + 4 > size)
        return 0;
    int64_t properties_at = magic == MAGIC_V1 ? end + 3 + record[end] : end + 4 + get16(record + end);
    if (properties_at > size || properties_at + get16(record + properties_at - 2) != size)
        return 0;
    return (crc32_of(record + body_at, (size_t)body_bytes) & 0x7FFFFFFF) == (uint32_t)get32(record + BODY_CRC_AT);
}

/* is_sound_record(buffer, position, size, log_offset, queue_id=None, queue_offset=0) */
EXPORT(is_sound_record)
{
    int64_t position, size, log_offset, queue_offset = 0;
    int32_t queue_id = 0;
    Py_buffer view;
    if (count < 4 || count > 6)
        return PyErr_Format(PyExc_TypeError, "is_sound_record takes 4 to 6 arguments, not %zd", count);
    int placed = count > 4 && args[4] != Py_None;
    if (as_int64(args[1], &position) || as_int64(args[2], &size) || as_int64(args[3], &log_offset)
        || (placed && as_int32(args[4], &queue_id)) || (count > 5 && as_int64(args[5], &queue_offset))
        || read_from(args[0], &view))
        return NULL;
    int sound = position >= 0 && size >= 0 && size <= view.len && position <= view.len - size
        && is_sound((const uint8_t *)view.buf + position, size, log_offset, placed ? &queue_id : NULL, queue_offset);
    PyBuffer_Release(&view);
    return PyBool_FromLong(sound);
}

/* split_batch(body, item_type): the messages of a batch send; None when the lengths do not add up. */
EXPORT(split_batch)
{
    if (check_count("split_batch", count, 2))
        return NULL;
    if (!PyBytes_Check(args[0]))
        Py_RETURN_NONE;
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(args[0]), *limit = at + PyBytes_GET_SIZE(args[0]);
    PyObject *items = PyList_New(0);
    while (items != NULL && at < limit) {
        int64_t left = limit - at;
        int64_t size = left < 22 ? -1 : get32(at), body_bytes = left < 22 ? -1 : get32(at + 16);
        if (body_bytes < 0 || size > left || 22 + body_bytes > size
            || (int16_t)get16(at + 20 + body_bytes) != size - 22 - body_bytes) {
            Py_DECREF(items);
            Py_RETURN_NONE;
        }
        PyObject *item = new_row(args[1], 3);
        if (item != NULL) {
            PyTuple_SET_ITEM(item, 0, PyLong_FromLong(get32(at + 12)));
            PyTuple_SET_ITEM(item, 1, PyBytes_FromStringAndSize((const char *)at + 20, (Py_ssize_t)body_bytes));
            PyTuple_SET_ITEM(item, 2, PyBytes_FromStringAndSize((const char *)at + 22 + body_bytes,
                                                              (Py_ssize_t)(size - 22 - body_bytes)));
        }
        if (item == NULL || PyErr_Occurred() || PyList_Append(items, item) < 0)
            Py_CLEAR(items);
        Py_XDECREF(item);
        at += size;
    }
    return items;
}

int looks_lost(const uint8_t *properties, Py_ssize_t size)
{
    if (!size || memchr(properties, 0, (size_t)size) == NULL)
        return 0;
    if (properties[size - 1] == 0)
        return 1;
    int zeros = 0;
    for (Py_ssize_t at = 0; at < size; at++) {
        zeros = properties[at] ? 0 : zeros + 1;
        if (zeros == SECTOR_BYTES)
            return 1;
    }
    return 0;
}

/* Flag, body and properties of one message of a batch; the body is to be released. */
typedef struct {
    int32_t flag;
    Py_buffer body;
    PyObject *properties;
} Item;

static int read_item(PyObject *items, Py_ssize_t number, Item *item)
{
    PyObject *parts = PySequence_Fast_GET_ITEM(items, number);
    if (!PyTuple_Check(parts) || PyTuple_GET_SIZE(parts) != 3 || !PyBytes_Check(PyTuple_GET_ITEM(parts, 2))) {
        PyErr_SetString(PyExc_TypeError, "a message of a batch has a flag, a body and properties in bytes");
        return -1;
    }
    item->properties = PyTuple_GET_ITEM(parts, 2);
    return as_int32(PyTuple_GET_ITEM(parts, 0), &item->flag) || read_from(PyTuple_GET_ITEM(parts, 1), &item->body) ? -1 : 0;
}

/* measure_batch(items, shared_bytes): (bytes of all bodies, bytes of all records); None when the properties of one cannot be
 * stored. `shared_bytes` is what each record has besides body and properties. */
EXPORT(measure_batch)
{
    int64_t shared_bytes, bodies = 0, total = 0;
    if (check_count("measure_batch", count, 2) || as_int64(args[1], &shared_bytes))
        return NULL;
    if (shared_bytes < 0 || shared_bytes > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "no record has %lld bytes", (long long)shared_bytes);
    PyObject *items = PySequence_Fast(args[0], "a batch is a sequence");
    if (items == NULL)
        return NULL;
    int storable = 1;
    for (Py_ssize_t number = 0; storable && number < PySequence_Fast_GET_SIZE(items); number++) {
        Item item;
        if (read_item(items, number, &item)) {
            Py_DECREF(items);
            return NULL;
        }
        Py_ssize_t size = PyBytes_GET_SIZE(item.properties);
        storable = size <= MAX_PROPERTIES_BYTES && !looks_lost((const uint8_t *)PyBytes_AS_STRING(item.properties), size);
        bodies += item.body.len;
        total += shared_bytes + item.body.len + size;
        PyBuffer_Release(&item.body);
    }
    Py_DECREF(items);
    if (!storable)
        Py_RETURN_NONE;
    return Py_BuildValue("LL", (long long)bodies, (long long)total);
}

PyObject *new_entry(PyObject *type, const Head *head, int64_t size, PyObject *topic, PyObject *properties)
{
    int64_t tags_code;
    if (tags_code_of(properties, &tags_code))
        return NULL;
    PyObject *entry = new_row(type, 9);
    if (entry == NULL)
        return NULL;
    PyTuple_SET_ITEM(entry, 0, PyLong_FromLongLong(head->log_offset));
    PyTuple_SET_ITEM(entry, 1, PyLong_FromLongLong(size));
    PyTuple_SET_ITEM(entry, 2, Py_NewRef(topic));
    PyTuple_SET_ITEM(entry, 3, PyLong_FromLong(head->queue_id));
    PyTuple_SET_ITEM(entry, 4, PyLong_FromLongLong(head->queue_offset));
    PyTuple_SET_ITEM(entry, 5, PyLong_FromLongLong(tags_code));
    PyTuple_SET_ITEM(entry, 6, PyLong_FromLongLong(head->store_ms));
    PyTuple_SET_ITEM(entry, 7, PyLong_FromLong(head->sys_flag));
    PyTuple_SET_ITEM(entry, 8, Py_NewRef(properties));
    if (PyErr_Occurred())
        Py_CLEAR(entry);
    return entry;
}

/* Write one message of a batch at `at`; its entry. */
static PyObject *put_item(uint8_t *at, int64_t room, Head *head, const Item *item, PyObject *type, PyObject *topic)
{
    Py_ssize_t properties_bytes = PyBytes_GET_SIZE(item->properties);
    int64_t size = size_with(head, item->body.len, properties_bytes);
    if (properties_bytes > MAX_PROPERTIES_BYTES || size > room) {
        PyErr_SetString(PyExc_ValueError, "the records of a batch do not fit into their place");
        return NULL;
    }
    PyObject *properties = properties_dict((const uint8_t *)PyBytes_AS_STRING(item->properties), properties_bytes, 0);
    PyObject *entry = properties == NULL ? NULL : new_entry(type, head, size, topic, properties);
    Py_XDECREF(properties);
    if (entry != NULL) {
        head->flag = item->flag;
        put_record(at, head, (int32_t)size, item->body.buf, (int32_t)item->body.len, PyBytes_AS_STRING(item->properties),
                   (uint16_t)properties_bytes);
        head->log_offset += size;
    }
    return entry;
}

static PyObject *put_items(uint8_t *at, int64_t room, Head *head, PyObject *items, int numbered, PyObject *type, PyObject *topic)
{
    PyObject *entries = PyList_New(0);
    int64_t first = head->log_offset;
    for (Py_ssize_t number = 0; entries != NULL && number < PySequence_Fast_GET_SIZE(items); number++) {
        Item item;
        if (read_item(items, number, &item)) {
            Py_CLEAR(entries);
            break;
        }
        int64_t done = head->log_offset - first;
        PyObject *entry = NULL;
        if (number && numbered && head->queue_offset == INT64_MAX)
            PyErr_SetString(PyExc_ValueError, "the queue has no numbers for all messages of the batch");
        else {
            head->queue_offset += number && numbered;
            entry = put_item(at + done, room - done, head, &item, type, topic);
        }
        PyBuffer_Release(&item.body);
        if (entry == NULL || PyList_Append(entries, entry) < 0)
            Py_CLEAR(entries);
        Py_XDECREF(entry);
    }
    return entries;
}

/* write_batch(view, head, items, topic, entry_type): the entries of the records written, which fill the view. `head` is that of
 * the first; prepared messages have no numbers. */
EXPORT(write_batch)
{
    Head head;
    Py_buffer view;
    if (check_count("write_batch", count, 5) || read_head(args[1], &head))
        return NULL;
    if (!PyUnicode_Check(args[3]))
        return PyErr_Format(PyExc_TypeError, "write_batch needs a topic");
    PyObject *items = PySequence_Fast(args[2], "a batch is a sequence"), *entries = NULL;
    if (items == NULL)
        return NULL;
    if (write_to(args[0], &view) == 0) {
        if (head.log_offset > INT64_MAX - view.len)
            PyErr_SetString(PyExc_ValueError, "no log is so long");
        else
            entries = put_items(view.buf, view.len, &head, items, !(head.sys_flag & PREPARED), args[4], args[3]);
        PyBuffer_Release(&view);
    }
    Py_DECREF(items);
    return entries;
}
