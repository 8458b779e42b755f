/* Pulls that are known but for their numbers.
 *
 * A reader asks for the same thing again and again, and only three numbers of its requests change. So the header of a pull
 * is not decoded here: it is walked through as far as it takes to cut the three out, and what is left is looked up among the
 * requests that Python has understood before. */
#include "binary.h"

#define MAX_DIGITS 18 /* fit 64 bits, whichever they are */

enum { QUEUE_OFFSET, COMMIT_OFFSET, REQUEST_ID, NUMBERS };

/* A part of a header that is not the same in the next request. */
typedef struct {
    const uint8_t *start, *end;
} Cut;

typedef struct {
    int64_t numbers[NUMBERS];
    Cut cuts[NUMBERS + 1]; /* the last one is of binary headers only: the length of all fields */
} Pull;

#define IS(name, size, text) ((size) == sizeof(text) - 1 && memcmp(name, text, sizeof(text) - 1) == 0)

/* Note a number that is written plainly, and that it is cut out from `start` on; 0 for any other, and for one more of a kind. */
static int note(Pull *pull, int kind, const uint8_t *start, const uint8_t *digits, const uint8_t *end)
{
    int negative = digits < end && *digits == '-';
    int64_t value = 0;
    digits += negative;
    if (pull->cuts[kind].start != NULL || digits == end || end - digits > MAX_DIGITS
        || (*digits == '0' && (negative || end - digits > 1)))
        return 0;
    for (; digits < end; digits++) {
        if (*digits < '0' || *digits > '9')
            return 0;
        value = value * 10 + (*digits - '0');
    }
    pull->numbers[kind] = negative ? -value : value;
    pull->cuts[kind] = (Cut){start, end};
    return kind != REQUEST_ID || value <= INT32_MAX;
}

/* The number a field of the request is, or -1. */
static int kind_of(const uint8_t *name, Py_ssize_t size)
{
    return IS(name, size, "queueOffset") ? QUEUE_OFFSET : IS(name, size, "commitOffset") ? COMMIT_OFFSET : -1;
}

/* A header as every client writes it: no blanks, no escapes, fields that are strings, and no object but the one of the fields. */
static int walk_json(const uint8_t *at, const uint8_t *end, Pull *pull)
{
    int inside = 0, has_fields = 0;
    if (at >= end || *at != '{' || memchr(at, '\\', (size_t)(end - at)) != NULL)
        return 0;
    while (end - ++at > 4 && *at == '"') {
        const uint8_t *name = at + 1, *close = memchr(name, '"', (size_t)(end - name));
        if (close == NULL || end - close < 4 || close[1] != ':')
            return 0;
        Py_ssize_t size = close - name;
        at = close + 2;
        if (*at == '{') {
            if (has_fields++ || !IS(name, size, "extFields"))
                return 0;
            inside = 1;
            continue;
        }
        const uint8_t *value = at + 1;
        int kind = inside ? kind_of(name, size) : IS(name, size, "opaque") ? REQUEST_ID : -1;
        if (*at == '"') {
            if ((close = memchr(value, '"', (size_t)(end - value))) == NULL || kind == REQUEST_ID
                || (kind >= 0 && !note(pull, kind, value, value, close)))
                return 0;
            at = close + 1;
        } else {
            while (at < end && ((*at >= '0' && *at <= '9') || *at == '-'))
                at++;
            if (inside || at < value || (kind >= 0 && !note(pull, kind, value - 1, value - 1, at)))
                return 0;
        }
        if (inside && at < end && *at == '}') {
            inside = 0;
            at++;
        }
        if (!inside && at < end && *at == '}')
            return at + 1 == end;
        if (at >= end || *at != ',')
            return 0;
    }
    return 0;
}

static int walk_binary(const uint8_t *start, const uint8_t *end, Pull *pull)
{
    Span remark, fields, name, value;
    if (!split_binary(start, end - start, &remark, &fields) || remark.size || fields.at + fields.size != end)
        return 0;
    pull->numbers[REQUEST_ID] = get32(start + 5);
    pull->cuts[REQUEST_ID] = (Cut){start + 5, start + 9};
    pull->cuts[NUMBERS] = (Cut){fields.at - 4, fields.at};
    while (fields.size) {
        if (!take_field(&fields, &name, &value))
            return 0;
        int kind = kind_of(name.at, name.size);
        if (kind >= 0 && !note(pull, kind, value.at - 4, value.at, value.at + value.size))
            return 0;
    }
    return 1;
}

/* What is left of a header without what is cut out; NULL, mostly without an error, when it is no plain pull. */
static PyObject *key_of(const uint8_t *frame, int64_t header_bytes, Pull *pull)
{
    const uint8_t *start = frame + 8, *end = start + header_bytes;
    int binary = frame[4] == 1, cut_count = NUMBERS + binary;
    if (frame[4] > 1 || !(binary ? walk_binary(start, end, pull) : walk_json(start, end, pull)))
        return NULL;
    int64_t size = header_bytes;
    for (int number = 0; number < cut_count; number++) {
        if (pull->cuts[number].start == NULL)
            return NULL;
        size -= pull->cuts[number].end - pull->cuts[number].start;
    }
    PyObject *key = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    uint8_t *at = key == NULL ? NULL : (uint8_t *)PyBytes_AS_STRING(key);
    while (key != NULL && start < end) {
        const Cut *next = NULL; /* the cuts may come in any order */
        for (int number = 0; number < cut_count; number++)
            if (pull->cuts[number].start >= start && (next == NULL || pull->cuts[number].start < next->start))
                next = &pull->cuts[number];
        at = put_bytes(at, start, (size_t)((next == NULL ? end : next->start) - start));
        start = next == NULL ? end : next->end;
    }
    return key;
}

/* (plan, request id, queue offset, commit offset, where the frame ends) */
static int add_pull(PyObject *pulls, PyObject *plan, const Pull *pull, int64_t end)
{
    PyObject *row = PyTuple_New(5);
    if (row == NULL)
        return 0;
    PyTuple_SET_ITEM(row, 0, Py_NewRef(plan));
    PyTuple_SET_ITEM(row, 1, PyLong_FromLongLong(pull->numbers[REQUEST_ID]));
    PyTuple_SET_ITEM(row, 2, PyLong_FromLongLong(pull->numbers[QUEUE_OFFSET]));
    PyTuple_SET_ITEM(row, 3, PyLong_FromLongLong(pull->numbers[COMMIT_OFFSET]));
    PyTuple_SET_ITEM(row, 4, PyLong_FromLongLong(end));
    int added = !PyErr_Occurred() && PyList_Append(pulls, row) == 0;
    Py_DECREF(row);
    return added;
}

/* take_pulls(data, max_frame_bytes, max_header_bytes, plans)
 *
 * Of the pulls that a read begins with, those that are among the plans, and the key of the first one that is not: None when
 * what follows is no plain pull, or no whole one. */
EXPORT(take_pulls)
{
    int64_t max_frame, max_header, header_bytes, position = 0, size;
    Py_buffer data;
    if (check_count("take_pulls", count, 4) || as_int64(args[1], &max_frame) || as_int64(args[2], &max_header))
        return NULL;
    if (!PyDict_Check(args[3]))
        return PyErr_Format(PyExc_TypeError, "plans are a dict");
    if (read_from(args[0], &data))
        return NULL;
    PyObject *pulls = PyList_New(0), *key = NULL;
    while (pulls != NULL) {
        const uint8_t *frame = (const uint8_t *)data.buf + position;
        Pull pull = {0};
        size = frame_bytes(frame, data.len - position, max_frame, max_header, &header_bytes);
        if (size == 0 || size != 8 + header_bytes || (key = key_of(frame, header_bytes, &pull)) == NULL)
            break;
        PyObject *plan = PyDict_GetItemWithError(args[3], key);
        if (plan == NULL)
            break;
        position += size;
        if (!add_pull(pulls, plan, &pull, position))
            Py_CLEAR(pulls);
        Py_CLEAR(key);
    }
    PyBuffer_Release(&data);
    if (pulls == NULL || PyErr_Occurred()) {
        Py_XDECREF(pulls);
        Py_XDECREF(key);
        return NULL;
    }
    return Py_BuildValue("NN", pulls, key == NULL ? Py_NewRef(Py_None) : key);
}
