/* The key index: entries of many messages at once. */
#include "common.h"

#define HEADER_BYTES 40
#define ENTRY_BYTES 20
#define ROLLED_BACK 0xC /* such messages are not filed */

/* An index file while entries are added to it. */
typedef struct {
    uint8_t *bytes;
    int64_t slots, number, begin_ms, fresh;
    PyObject *topic; /* of the row before, borrowed */
    uint32_t topic_hash;
} File;

static void put_entry(File *file, PyObject *prefix, PyObject *key, int64_t log_offset, int64_t store_ms)
{
    uint32_t hash = file->topic_hash;
    if (prefix != NULL)
        hash = java_hash_text(hash, prefix);
    int64_t positive = (int32_t)java_hash_text(hash, key);
    positive = positive < 0 ? -positive : positive;
    if (positive == 0x80000000)
        positive = 0;
    uint8_t *slot = file->bytes + HEADER_BYTES + positive % file->slots * 4;
    int64_t previous = get32(slot);
    if (previous <= 0 || previous >= file->number) {
        previous = 0;
        file->fresh++;
    }
    /* Unsigned: times of a damaged log may lie further apart than an int64_t reaches. */
    uint64_t seconds = store_ms > file->begin_ms ? ((uint64_t)store_ms - (uint64_t)file->begin_ms) / 1000 : 0;
    uint8_t *entry = file->bytes + HEADER_BYTES + file->slots * 4 + file->number * ENTRY_BYTES;
    entry = put32(entry, (uint32_t)positive);
    entry = put64(entry, (uint64_t)log_offset);
    entry = put32(entry, (uint32_t)(seconds > INT32_MAX ? INT32_MAX : seconds));
    put32(entry, (uint32_t)previous);
    put32(slot, (uint32_t)file->number++);
}

/* A property that is there and not empty, borrowed; NULL without one. */
static PyObject *property(PyObject *properties, PyObject *name)
{
    PyObject *value = PyDict_GetItemWithError(properties, name);
    return value != NULL && PyUnicode_Check(value) && PyUnicode_GET_LENGTH(value) ? value : NULL;
}

/* File one row under its unique id, its keys and its tag: 1 if it was, 0 if there is no room for all of them. */
static int put_row(File *file, int64_t limit, PyObject *row, PyObject *tag_mark)
{
    int64_t log_offset, store_ms;
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != 9 || !PyUnicode_Check(PyTuple_GET_ITEM(row, 2))
        || !PyDict_Check(PyTuple_GET_ITEM(row, 8))) {
        PyErr_SetString(PyExc_TypeError, "a row has nine fields, with a topic and properties");
        return -1;
    }
    int64_t sys_flag;
    if (as_int64(PyTuple_GET_ITEM(row, 0), &log_offset) || as_int64(PyTuple_GET_ITEM(row, 6), &store_ms)
        || as_int64(PyTuple_GET_ITEM(row, 7), &sys_flag))
        return -1;
    if ((sys_flag & ROLLED_BACK) == ROLLED_BACK)
        return 1;
    PyObject *properties = PyTuple_GET_ITEM(row, 8), *words = NULL;
    PyObject *unique = property(properties, name_unique), *keys = property(properties, name_keys);
    PyObject *tags = property(properties, name_tags);
    if (PyErr_Occurred() || (keys != NULL && (words = PyUnicode_Split(keys, NULL, -1)) == NULL))
        return -1;
    Py_ssize_t word_count = words == NULL ? 0 : PyList_GET_SIZE(words);
    int fits = file->number + (unique != NULL) + word_count + (tags != NULL) <= limit;
    if (fits) {
        if (PyTuple_GET_ITEM(row, 2) != file->topic) {
            file->topic = PyTuple_GET_ITEM(row, 2);
            file->topic_hash = java_hash_text(0, file->topic) * 31 + '#';
        }
        if (unique != NULL)
            put_entry(file, NULL, unique, log_offset, store_ms);
        for (Py_ssize_t number = 0; number < word_count; number++)
            put_entry(file, NULL, PyList_GET_ITEM(words, number), log_offset, store_ms);
        if (tags != NULL)
            put_entry(file, tag_mark, tags, log_offset, store_ms);
    }
    Py_XDECREF(words);
    return fits;
}

/* file_keys(view, slots, number, limit, begin_ms, rows, start)
 *
 * Adds entries for rows from `start` on as long as the entries of a whole row fit below number `limit`; the first gets
 * `number`. Gives (next row, next number, slots taken that were free, last row that has entries or -1). */
EXPORT(file_keys)
{
    int64_t limit, start, last = -1;
    File file = {0};
    Py_buffer view;
    if (check_count("file_keys", count, 7) || as_int64(args[1], &file.slots) || as_int64(args[2], &file.number)
        || as_int64(args[3], &limit) || as_int64(args[4], &file.begin_ms) || as_int64(args[6], &start))
        return NULL;
    if (!PyList_Check(args[5]) || start < 0 || file.slots < 1 || file.slots > INT32_MAX || file.number < 1 || limit > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "no index file has such numbers");
    if (write_to(args[0], &view))
        return NULL;
    file.bytes = view.buf;
    int fits = 1;
    PyObject *tag_mark = PyUnicode_FromString("T#");
    if (tag_mark == NULL)
        fits = -1;
    else if (limit > 0 && view.len < HEADER_BYTES + file.slots * 4 + limit * ENTRY_BYTES) {
        PyErr_Format(PyExc_ValueError, "an index file of %zd bytes has no room for %lld entries", view.len, (long long)limit);
        fits = -1;
    }
    for (; fits > 0 && start < PyList_GET_SIZE(args[5]); start += fits > 0) {
        int64_t before = file.number;
        fits = put_row(&file, limit, PyList_GET_ITEM(args[5], (Py_ssize_t)start), tag_mark);
        if (file.number != before)
            last = start;
    }
    Py_XDECREF(tag_mark);
    PyBuffer_Release(&view);
    if (fits < 0)
        return NULL;
    return Py_BuildValue("LLLL", (long long)start, (long long)file.number, (long long)file.fresh, (long long)last);
}
