/* The answer to a stored send, and the ids in the one to a batch. */
#include "sends.h"

static uint8_t *put_number(uint8_t *at, int64_t number)
{
    uint8_t digits[20];
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    int used = 0;
    do
        digits[used++] = (uint8_t)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        *at++ = '-';
    while (used)
        *at++ = digits[--used];
    return at;
}

int is_plain_id(const uint8_t *text, Py_ssize_t size)
{
    for (Py_ssize_t at = 0; at < size; at++)
        if (!Py_ISALNUM(text[at]))
            return 0;
    return size > 0;
}

#define PUT(text) at = put_bytes(at, text, sizeof(text) - 1)

static uint8_t *put_offset_id(uint8_t *at, int64_t log_offset)
{
    static const char digits[] = "0123456789ABCDEF";
    for (int shift = 60; shift >= 0; shift -= 4)
        *at++ = (uint8_t)digits[(uint64_t)log_offset >> shift & 15];
    return at;
}

/* offset_ids(host, log_offsets): the ids of a batch, separated by commas; `host` is their first part in hex. */
EXPORT(offset_ids)
{
    if (check_count("offset_ids", count, 2))
        return NULL;
    if (!PyUnicode_Check(args[0]) || !PyUnicode_IS_ASCII(args[0]) || !PyTuple_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "a host in hex and a tuple of log offsets are needed");
    Py_ssize_t host_size = PyUnicode_GET_LENGTH(args[0]), size = PyTuple_GET_SIZE(args[1]);
    if (!size)
        return PyUnicode_New(0, 0);
    if (size > (PY_SSIZE_T_MAX >> 8) || host_size > 128)
        return PyErr_Format(PyExc_ValueError, "%zd ids do not fit a text", size);
    PyObject *ids = PyUnicode_New(size * (host_size + 17) - 1, 127);
    if (ids == NULL)
        return NULL;
    uint8_t *at = PyUnicode_1BYTE_DATA(ids);
    for (Py_ssize_t number = 0; number < size; number++) {
        int64_t log_offset;
        if (as_int64(PyTuple_GET_ITEM(args[1], number), &log_offset)) {
            Py_DECREF(ids);
            return NULL;
        }
        if (number)
            *at++ = ',';
        at = put_bytes(at, PyUnicode_1BYTE_DATA(args[0]), (size_t)host_size);
        at = put_offset_id(at, log_offset);
    }
    return ids;
}

/* The ids of a batch but for the host of the first. */
static uint8_t *put_ids(uint8_t *at, PyObject *host, const Stored *stored)
{
    at = put_offset_id(at, stored->log_offsets[0]);
    for (Py_ssize_t number = 1; number < stored->count; number++) {
        *at++ = ',';
        at = put_bytes(at, PyBytes_AS_STRING(host), (size_t)PyBytes_GET_SIZE(host));
        at = put_offset_id(at, stored->log_offsets[number]);
    }
    return at;
}

uint8_t *put_answer(uint8_t *start, PyObject *head, PyObject *tail, PyObject *host, const Stored *stored)
{
    uint8_t *at = put_bytes(start + 8, PyBytes_AS_STRING(head), (size_t)PyBytes_GET_SIZE(head));
    at = put_ids(at, host, stored);
    PUT("\",\"queueId\":\"");
    at = put_number(at, stored->queue_id);
    PUT("\",\"queueOffset\":\"");
    at = put_number(at, stored->queue_offset);
    if (stored->unique.at != NULL) {
        PUT("\",\"transactionId\":\"");
        at = put_bytes(at, stored->unique.at, (size_t)stored->unique.size);
    }
    PUT("\"},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":");
    at = put_number(at, stored->opaque);
    at = put_bytes(at, PyBytes_AS_STRING(tail), (size_t)PyBytes_GET_SIZE(tail));
    put32(start, (uint32_t)(at - start - 4));
    put32(start + 4, (uint32_t)(at - start - 8));
    return at;
}

static uint8_t *put_field(uint8_t *at, const char *name, const uint8_t *value, size_t size)
{
    at = put16(at, (uint16_t)strlen(name));
    at = put_bytes(at, name, strlen(name));
    at = put32(at, (uint32_t)size);
    return size ? put_bytes(at, value, size) : at;
}

uint8_t *put_binary_answer(uint8_t *start, PyObject *const *parts, const Stored *stored)
{
    uint8_t text[32], *at = start + 8, *fields, *ids;
    at = put_bytes(at, PyBytes_AS_STRING(parts[0]), (size_t)PyBytes_GET_SIZE(parts[0]));
    at = put32(at, (uint32_t)stored->opaque);
    at = put_bytes(at, PyBytes_AS_STRING(parts[1]), (size_t)PyBytes_GET_SIZE(parts[1]));
    fields = at += 4;
    at = put_bytes(at, PyBytes_AS_STRING(parts[2]), (size_t)PyBytes_GET_SIZE(parts[2]));
    ids = at = put_field(at, "msgId", NULL, 0);
    at = put_bytes(at, PyBytes_AS_STRING(parts[3]), (size_t)PyBytes_GET_SIZE(parts[3]));
    at = put_ids(at, parts[3], stored);
    put32(ids - 4, (uint32_t)(at - ids));
    at = put_field(at, "queueId", text, (size_t)(put_number(text, stored->queue_id) - text));
    at = put_field(at, "queueOffset", text, (size_t)(put_number(text, stored->queue_offset) - text));
    if (stored->unique.at != NULL)
        at = put_field(at, "transactionId", stored->unique.at, (size_t)stored->unique.size);
    put32(fields - 4, (uint32_t)(at - fields));
    put32(start, (uint32_t)(at - start - 4));
    put32(start + 4, 1u << 24 | (uint32_t)(at - start - 8));
    return at;
}

/* stored_frame(head, tail, opaque, log_offset, queue_id, queue_offset, unique_id): the JSON answer to a stored send, with all
 * that is always the same in `head` and `tail`; None when the id is not plain. */
EXPORT(stored_frame)
{
    int64_t opaque, log_offset, queue_id, queue_offset;
    if (check_count("stored_frame", count, 7) || as_int64(args[2], &opaque) || as_int64(args[3], &log_offset)
        || as_int64(args[4], &queue_id) || as_int64(args[5], &queue_offset))
        return NULL;
    if (!PyBytes_Check(args[0]) || !PyBytes_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "head and tail are bytes");
        return NULL;
    }
    if (!PyUnicode_Check(args[6]) || !PyUnicode_IS_ASCII(args[6]) || log_offset < 0
        || !is_plain_id(PyUnicode_1BYTE_DATA(args[6]), PyUnicode_GET_LENGTH(args[6])))
        Py_RETURN_NONE;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, ANSWER_BYTES(args[0], args[1], args[6]));
    if (frame == NULL)
        return NULL;
    Span unique = {PyUnicode_1BYTE_DATA(args[6]), PyUnicode_GET_LENGTH(args[6])};
    Stored stored = {opaque, queue_id, queue_offset, 1, &log_offset, unique};
    uint8_t *start = (uint8_t *)PyBytes_AS_STRING(frame);
    uint8_t *end = put_answer(start, args[0], args[1], NULL, &stored);
    _PyBytes_Resize(&frame, end - start);
    return frame;
}
