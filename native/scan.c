/* Reading a log back, and filing what was read or appended in consume queues and key index, many records at a time. */
#include "common.h"

int lacks_sector(const uint8_t *bytes, int64_t text_at, int64_t end, int64_t properties_bytes)
{
    /* Without properties the last two bytes are zeros by right. */
    int64_t last = properties_bytes ? end : end - 2;
    int64_t sector = (text_at + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES;
    for (; sector < last; sector += SECTOR_BYTES) {
        int64_t at = sector, stop = sector + SECTOR_BYTES < end ? sector + SECTOR_BYTES : end;
        while (at < stop && bytes[at] == 0)
            at++;
        if (at == stop)
            return 1;
    }
    return 0;
}

/* The topic of the record before, which is mostly that of the next one too. */
typedef struct {
    PyObject *text;
    const uint8_t *bytes;
    Py_ssize_t size;
} Topic;

static int know_topic(Topic *topic, const uint8_t *bytes, Py_ssize_t size)
{
    if (topic->text != NULL && topic->size == size && memcmp(topic->bytes, bytes, (size_t)size) == 0)
        return 0;
    Py_XSETREF(topic->text, plain_text(bytes, size));
    topic->bytes = bytes;
    topic->size = size;
    return topic->text == NULL ? -1 : 0;
}

static PyObject *new_log_row(const uint8_t *record, int32_t sys_flag, PyObject *topic, PyObject *properties)
{
    int64_t tags_code;
    PyObject *row = tags_code_of(properties, &tags_code) ? NULL : PyTuple_New(9);
    if (row == NULL)
        return NULL;
    PyTuple_SET_ITEM(row, 0, PyLong_FromLongLong(get64(record + 28)));
    PyTuple_SET_ITEM(row, 1, PyLong_FromLong(get32(record)));
    PyTuple_SET_ITEM(row, 2, Py_NewRef(topic));
    PyTuple_SET_ITEM(row, 3, PyLong_FromLong(get32(record + 12)));
    PyTuple_SET_ITEM(row, 4, PyLong_FromLongLong(get64(record + 20)));
    PyTuple_SET_ITEM(row, 5, PyLong_FromLongLong(tags_code));
    PyTuple_SET_ITEM(row, 6, PyLong_FromLongLong(get64(record + (sys_flag & BORN_IPV6 ? 68 : 56))));
    PyTuple_SET_ITEM(row, 7, PyLong_FromLong(sys_flag));
    PyTuple_SET_ITEM(row, 8, Py_NewRef(properties));
    if (PyErr_Occurred())
        Py_CLEAR(row);
    return row;
}

/* The row of the record at `position`; NULL, mostly without an error, when it is not plainly sound. */
static PyObject *read_row(const uint8_t *chunk, int64_t position, int64_t length, int64_t chunk_at, int check_crc, Topic *topic)
{
    const uint8_t *record = chunk + position;
    int32_t sys_flag = get32(record + 36);
    int64_t end = position + get32(record), body_at = position + head_bytes(sys_flag);
    if (get32(record + 4) != MAGIC_V1 || chunk_at > INT64_MAX - position || get64(record + 28) != chunk_at + position
        || body_at > length)
        return NULL;
    int64_t body_bytes = get32(chunk + body_at - 4), topic_at = body_at + body_bytes;
    if (body_bytes < 0 || topic_at >= end || end > length)
        return NULL;
    if (check_crc && (crc32_of(chunk + body_at, (size_t)body_bytes) & 0x7FFFFFFF) != (uint32_t)get32(record + 8))
        return NULL;
    int64_t properties_at = topic_at + chunk[topic_at] + 3, properties_bytes = end - properties_at;
    if (properties_bytes < 0 || properties_bytes > MAX_PROPERTIES_BYTES || get16(chunk + properties_at - 2) != properties_bytes)
        return NULL;
    /* Neither a topic nor a property list ends in a zero, unless the record was cut short. */
    if (!chunk[properties_bytes ? end - 1 : end - 3] || lacks_sector(chunk, topic_at + 1, end, properties_bytes))
        return NULL;
    if (know_topic(topic, chunk + topic_at + 1, chunk[topic_at]))
        return NULL;
    PyObject *properties = properties_dict(chunk + properties_at, (Py_ssize_t)properties_bytes, 1);
    if (properties == NULL)
        return NULL;
    PyObject *row = new_log_row(record, sys_flag, topic->text, properties);
    Py_DECREF(properties);
    return row;
}

/* read_run(chunk, position, chunk_at, rows, check_crc): adds the plainly sound records; where the next one begins. */
EXPORT(read_run)
{
    int64_t position, chunk_at;
    Py_buffer chunk;
    if (check_count("read_run", count, 5) || as_int64(args[1], &position) || as_int64(args[2], &chunk_at))
        return NULL;
    if (!PyList_Check(args[3]) || position < 0) {
        PyErr_SetString(PyExc_TypeError, "read_run needs a list of rows and a position in the chunk");
        return NULL;
    }
    if (read_from(args[0], &chunk))
        return NULL;
    int check_crc = PyObject_IsTrue(args[4]);
    Topic topic = {NULL, NULL, 0};
    while (position <= chunk.len - MIN_RECORD_BYTES) {
        PyObject *row = read_row(chunk.buf, position, chunk.len, chunk_at, check_crc, &topic);
        if (row == NULL)
            break;
        position += get32((const uint8_t *)chunk.buf + position);
        int failed = PyList_Append(args[3], row);
        Py_DECREF(row);
        if (failed)
            break;
    }
    Py_XDECREF(topic.text);
    PyBuffer_Release(&chunk);
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(position);
}

static PyObject *checked_row(PyObject *row)
{
    if (PyTuple_Check(row) && PyTuple_GET_SIZE(row) == 9)
        return row;
    PyErr_SetString(PyExc_TypeError, "a row has nine fields");
    return NULL;
}

/* by_queue(rows): those that belong into consume queues, by (topic, queue id). */
EXPORT(by_queue)
{
    int64_t sys_flag;
    if (check_count("by_queue", count, 1))
        return NULL;
    PyObject *rows = PySequence_Fast(args[0], "rows can be iterated over");
    if (rows == NULL)
        return NULL;
    PyObject *found = PyDict_New(), *group = NULL, *topic = NULL, *queue_id = NULL; /* the last three are borrowed */
    for (Py_ssize_t number = 0; found != NULL && number < PySequence_Fast_GET_SIZE(rows); number++) {
        PyObject *row = checked_row(PySequence_Fast_GET_ITEM(rows, number));
        if (row == NULL || as_int64(PyTuple_GET_ITEM(row, 7), &sys_flag)) {
            Py_CLEAR(found);
            break;
        }
        if (sys_flag & NOT_QUEUED)
            continue;
        if (group == NULL || PyTuple_GET_ITEM(row, 2) != topic || PyTuple_GET_ITEM(row, 3) != queue_id) {
            topic = PyTuple_GET_ITEM(row, 2);
            queue_id = PyTuple_GET_ITEM(row, 3);
            PyObject *key = PyTuple_Pack(2, topic, queue_id), *fresh = PyList_New(0);
            group = key == NULL || fresh == NULL ? NULL : PyDict_SetDefault(found, key, fresh);
            Py_XDECREF(key);
            Py_XDECREF(fresh);
        }
        if (group == NULL || PyList_Append(group, row) < 0)
            Py_CLEAR(found);
    }
    Py_DECREF(rows);
    return found;
}

/* pack_units(rows, start, next_log_offset): their units, when they are numbered densely from `start` on and lie behind what is
 * listed already; else None. */
EXPORT(pack_units)
{
    int64_t expected, behind;
    if (check_count("pack_units", count, 3) || as_int64(args[1], &expected) || as_int64(args[2], &behind))
        return NULL;
    if (!PyList_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "pack_units needs a list of rows");
    if (expected > INT64_MAX - PyList_GET_SIZE(args[0]))
        Py_RETURN_NONE;
    PyObject *units = PyBytes_FromStringAndSize(NULL, PyList_GET_SIZE(args[0]) * UNIT_BYTES);
    if (units == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(units);
    for (Py_ssize_t number = 0; number < PyList_GET_SIZE(args[0]); number++, expected++) {
        int64_t log_offset, queue_offset, tags_code;
        int32_t size;
        PyObject *row = checked_row(PyList_GET_ITEM(args[0], number));
        if (row == NULL || as_int64(PyTuple_GET_ITEM(row, 0), &log_offset) || as_int32(PyTuple_GET_ITEM(row, 1), &size)
            || as_int64(PyTuple_GET_ITEM(row, 4), &queue_offset) || as_int64(PyTuple_GET_ITEM(row, 5), &tags_code)) {
            Py_DECREF(units);
            return NULL;
        }
        if (queue_offset != expected || (number == 0 && log_offset < behind)) {
            Py_DECREF(units);
            Py_RETURN_NONE;
        }
        at = put64(at, (uint64_t)log_offset);
        at = put32(at, (uint32_t)size);
        at = put64(at, (uint64_t)tags_code);
    }
    return units;
}
