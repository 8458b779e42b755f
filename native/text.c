/* Texts: UTF-8 to str, property strings to dicts, Java's hash. */
#include "common.h"

PyObject *plain_text(const uint8_t *bytes, Py_ssize_t size)
{
    PyObject *text = PyUnicode_DecodeUTF8((const char *)bytes, size, NULL);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    return text;
}

int is_utf8(const uint8_t *bytes, Py_ssize_t size)
{
    uint64_t all = 0, word;
    Py_ssize_t at = 0;
    for (; at + 8 <= size; at += 8) {
        memcpy(&word, bytes + at, 8);
        all |= word;
    }
    for (; at < size; at++)
        all |= bytes[at];
    if (!(all & 0x8080808080808080u))
        return 1;
    PyObject *text = plain_text(bytes, size);
    PyErr_Clear(); /* without memory for it, too, somebody else decides */
    Py_XDECREF(text);
    return text != NULL;
}

PyObject *replaced_text(const uint8_t *bytes, Py_ssize_t size)
{
    return PyUnicode_DecodeUTF8((const char *)bytes, size, "replace");
}

uint32_t java_hash_text(uint32_t hash, PyObject *text)
{
    Py_ssize_t size = PyUnicode_GET_LENGTH(text);
    if (PyUnicode_KIND(text) == PyUnicode_1BYTE_KIND) {
        const uint8_t *units = PyUnicode_1BYTE_DATA(text);
        while (size--)
            hash = hash * 31 + *units++;
        return hash;
    }
    for (Py_ssize_t at = 0; at < size; at++) {
        uint32_t letter = PyUnicode_READ_CHAR(text, at);
        if (letter > 0xFFFF) {
            hash = hash * 31 + (0xD800 + ((letter - 0x10000) >> 10));
            letter = 0xDC00 + (letter & 0x3FF);
        }
        hash = hash * 31 + letter;
    }
    return hash;
}

static int is_text(PyObject *object)
{
    if (PyUnicode_Check(object))
        return 1;
    PyErr_Format(PyExc_TypeError, "a text is needed, not %.100s", Py_TYPE(object)->tp_name);
    return 0;
}

EXPORT(java_string_hash)
{
    if (check_count("java_string_hash", count, 1) || !is_text(args[0]))
        return NULL;
    return PyLong_FromLong((int32_t)java_hash_text(0, args[0]));
}

EXPORT(index_key_hash)
{
    if (check_count("index_key_hash", count, 2) || !is_text(args[0]) || !is_text(args[1]))
        return NULL;
    int64_t hash = (int32_t)java_hash_text(java_hash_text(0, args[0]) * 31 + '#', args[1]);
    hash = hash < 0 ? -hash : hash;
    return PyLong_FromLongLong(hash == 0x80000000 ? 0 : hash);
}

static PyObject *used_name(const uint8_t *name, Py_ssize_t size)
{
    if (size == 8 && memcmp(name, "UNIQ_KEY", 8) == 0)
        return name_unique;
    if (size == 4 && memcmp(name, "KEYS", 4) == 0)
        return name_keys;
    if (size == 4 && memcmp(name, "TAGS", 4) == 0)
        return name_tags;
    return NULL;
}

PyObject *properties_dict(const uint8_t *bytes, Py_ssize_t size, int only_used)
{
    PyObject *properties = PyDict_New();
    const uint8_t *end = bytes + size;
    while (properties != NULL && bytes < end) {
        const uint8_t *item_end = memchr(bytes, 2, (size_t)(end - bytes));
        if (item_end == NULL)
            item_end = end;
        const uint8_t *name_end = memchr(bytes, 1, (size_t)(item_end - bytes));
        if (name_end != NULL && name_end > bytes && name_end + 1 < item_end) {
            PyObject *name = used_name(bytes, name_end - bytes);
            if (name != NULL || !only_used) {
                PyObject *value = replaced_text(name_end + 1, item_end - name_end - 1);
                name = name != NULL ? Py_NewRef(name) : replaced_text(bytes, name_end - bytes);
                if (name == NULL || value == NULL || PyDict_SetItem(properties, name, value) < 0)
                    Py_CLEAR(properties);
                Py_XDECREF(name);
                Py_XDECREF(value);
            }
        }
        bytes = item_end + 1;
    }
    return properties;
}

int tags_code_of(PyObject *properties, int64_t *code)
{
    PyObject *tags = PyDict_GetItemWithError(properties, name_tags);
    if (tags == NULL && PyErr_Occurred())
        return -1;
    *code = tags != NULL && PyUnicode_Check(tags) ? (int32_t)java_hash_text(0, tags) : 0;
    return 0;
}

/* The same for any text, letter by letter. */
static PyObject *wide_properties(PyObject *text)
{
    PyObject *properties = PyDict_New();
    Py_ssize_t end = PyUnicode_GET_LENGTH(text), start = 0;
    while (properties != NULL && start < end) {
        Py_ssize_t stop = PyUnicode_FindChar(text, 2, start, end, 1);
        if (stop < 0)
            stop = end;
        Py_ssize_t split = PyUnicode_FindChar(text, 1, start, stop, 1);
        if (split > start && split + 1 < stop) {
            PyObject *name = PyUnicode_Substring(text, start, split);
            PyObject *value = PyUnicode_Substring(text, split + 1, stop);
            if (name == NULL || value == NULL || PyDict_SetItem(properties, name, value) < 0)
                Py_CLEAR(properties);
            Py_XDECREF(name);
            Py_XDECREF(value);
        }
        start = stop + 1;
    }
    return properties;
}

EXPORT(decode_properties)
{
    if (check_count("decode_properties", count, 1) || !is_text(args[0]))
        return NULL;
    if (!PyUnicode_IS_ASCII(args[0]))
        return wide_properties(args[0]);
    return properties_dict(PyUnicode_1BYTE_DATA(args[0]), PyUnicode_GET_LENGTH(args[0]), 0);
}

uint8_t *put_offset_id(uint8_t *at, int64_t log_offset)
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
