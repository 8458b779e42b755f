/* Header blocks of HTTP/2: fields that are entries of a table. Those are nearly all fields of nearly all requests. */
#include "common.h"

#define ENTRY_BYTES 32
#define MAX_INDEX (1 << 24)

/* The index of an entry at `*at`, which is moved behind it; 0 for what is none. */
static Py_ssize_t take_index(const uint8_t **at, const uint8_t *end)
{
    Py_ssize_t index = *(*at)++ & 0x7F;
    if (index < 0x7F)
        return index;
    for (int shift = 0; *at < end && shift <= 28; shift += 7) {
        uint8_t byte = *(*at)++;
        index += (Py_ssize_t)(byte & 0x7F) << shift;
        if (index > MAX_INDEX)
            return 0;
        if (byte < 0x80)
            return index;
    }
    return 0; /* it is cut off, or longer than any that is right */
}

/* What a field counts; -1 with an error for what is no field. */
static Py_ssize_t counted(PyObject *field)
{
    if (!PyTuple_Check(field) || PyTuple_GET_SIZE(field) != 2 || !PyBytes_Check(PyTuple_GET_ITEM(field, 0)) ||
        !PyBytes_Check(PyTuple_GET_ITEM(field, 1))) {
        PyErr_SetString(PyExc_TypeError, "fields are pairs of bytes");
        return -1;
    }
    return PyBytes_GET_SIZE(PyTuple_GET_ITEM(field, 0)) + PyBytes_GET_SIZE(PyTuple_GET_ITEM(field, 1)) + ENTRY_BYTES;
}

/* take_indexed(block, position, static, table, fields, room) */
EXPORT(take_indexed)
{
    if (check_count("take_indexed", count, 6))
        return NULL;
    PyObject *block = args[0], *fixed = args[2], *table = args[3], *fields = args[4];
    if (!PyBytes_Check(block) || !PyTuple_Check(fixed) || !PySequence_Check(table) || !PyList_Check(fields)) {
        PyErr_SetString(PyExc_TypeError, "bytes, a tuple, a sequence and a list are expected");
        return NULL;
    }
    int64_t position, room;
    if (as_int64(args[1], &position) || as_int64(args[5], &room))
        return NULL;
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(block), *end = start + PyBytes_GET_SIZE(block);
    if (position < 0 || position > end - start) {
        PyErr_SetString(PyExc_ValueError, "the position is not in the block");
        return NULL;
    }
    const uint8_t *at = start + position;
    Py_ssize_t fixed_count = PyTuple_GET_SIZE(fixed), table_count = PySequence_Size(table);
    if (table_count < 0)
        return NULL;
    while (at < end && *at & 0x80) {
        const uint8_t *following = at;
        Py_ssize_t index = take_index(&following, end) - 1;
        if (index < 0 || index - fixed_count >= table_count)
            break;
        PyObject *field = index < fixed_count ? Py_NewRef(PyTuple_GET_ITEM(fixed, index))
                                              : PySequence_GetItem(table, index - fixed_count);
        Py_ssize_t size = field == NULL ? -1 : counted(field);
        room -= size;
        int failed = size < 0 || (room >= 0 && PyList_Append(fields, field));
        Py_XDECREF(field);
        if (failed)
            return NULL;
        at = following;
    }
    return Py_BuildValue("(nL)", (Py_ssize_t)(at - start), (long long)room);
}
