/* The key index: entries of many messages at once. */
#include "dispatch.h"

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

static void put_hash(File *file, uint32_t hash, int64_t log_offset, int64_t store_ms)
{
    int64_t positive = (int32_t)hash;
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

static void put_entry(File *file, PyObject *prefix, PyObject *key, int64_t log_offset, int64_t store_ms)
{
    uint32_t hash = file->topic_hash;
    if (prefix != NULL)
        hash = java_hash_text(hash, prefix);
    put_hash(file, java_hash_text(hash, key), log_offset, store_ms);
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

/* From an IndexState: (view, slots, number, limit, begin_ms); -1 with an error. The view is to be released. */
static int open_file(PyObject *state, File *file, int64_t *limit, Py_buffer *view)
{
    if (!PyTuple_Check(state) || PyTuple_GET_SIZE(state) != 5) {
        PyErr_SetString(PyExc_TypeError, "the state of an index file is an IndexState");
        return -1;
    }
    PyObject *const *of = &PyTuple_GET_ITEM(state, 0);
    if (as_int64(of[1], &file->slots) || as_int64(of[2], &file->number) || as_int64(of[3], limit)
        || as_int64(of[4], &file->begin_ms))
        return -1;
    if (file->slots < 1 || file->slots > INT32_MAX || file->number < 1 || file->number > INT32_MAX || *limit > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "no index file has such numbers");
        return -1;
    }
    if (write_to(of[0], view))
        return -1;
    file->bytes = view->buf;
    if (*limit <= 0 || view->len >= HEADER_BYTES + file->slots * 4 + *limit * ENTRY_BYTES)
        return 0;
    PyErr_Format(PyExc_ValueError, "an index file of %zd bytes has no room for %lld entries", view->len, (long long)*limit);
    PyBuffer_Release(view);
    return -1;
}

/* index_rows(state, rows, start)
 *
 * Adds entries for rows from `start` on as long as the entries of a whole row fit. Gives (next row, next number, slots taken that
 * were free, last row that has entries or -1). */
EXPORT(index_rows)
{
    int64_t limit, start, last = -1;
    File file = {0};
    Py_buffer view;
    if (check_count("index_rows", count, 3) || as_int64(args[2], &start))
        return NULL;
    if (!PyList_Check(args[1]) || start < 0)
        return PyErr_Format(PyExc_ValueError, "index_rows needs a list of rows and a place in it");
    if (open_file(args[0], &file, &limit, &view))
        return NULL;
    PyObject *tag_mark = PyUnicode_FromString("T#");
    int fits = tag_mark == NULL ? -1 : 1;
    for (; fits > 0 && start < PyList_GET_SIZE(args[1]); start += fits > 0) {
        int64_t before = file.number;
        fits = put_row(&file, limit, PyList_GET_ITEM(args[1], (Py_ssize_t)start), tag_mark);
        if (file.number != before)
            last = start;
    }
    Py_XDECREF(tag_mark);
    PyBuffer_Release(&view);
    if (fits < 0)
        return NULL;
    return Py_BuildValue("LLLL", (long long)start, (long long)file.number, (long long)file.fresh, (long long)last);
}

/* The words of a property; NULL with an error. */
static PyObject *words_of(Span text)
{
    PyObject *whole = replaced_text(text.at, text.size);
    PyObject *words = whole == NULL ? NULL : PyUnicode_Split(whole, NULL, -1);
    Py_XDECREF(whole);
    return words;
}

/* File one record of a range as `put_row` does: 1 if it was, 0 if there is no room for all of its entries. */
static int put_listed(File *file, int64_t limit, const Listed *listed)
{
    Properties found;
    uint32_t topic = 0, unique, tag;
    find_properties(listed->properties.at, listed->properties.size, &found);
    PyObject *words = found.keys.at == NULL ? NULL : words_of(found.keys);
    if ((found.keys.at != NULL && words == NULL) || hash_span(&topic, listed->topic)) {
        Py_XDECREF(words);
        return -1;
    }
    topic = unique = topic * 31 + '#';
    tag = (topic * 31 + 'T') * 31 + '#';
    Py_ssize_t word_count = words == NULL ? 0 : PyList_GET_SIZE(words);
    int fits = file->number + (found.unique.at != NULL) + word_count + (found.tags.at != NULL) <= limit;
    if (fits && (hash_span(&unique, found.unique) || hash_span(&tag, found.tags)))
        fits = -1;
    if (fits > 0) {
        if (found.unique.at != NULL)
            put_hash(file, unique, listed->log_offset, listed->store_ms);
        for (Py_ssize_t number = 0; number < word_count; number++)
            put_hash(file, java_hash_text(topic, PyList_GET_ITEM(words, number)), listed->log_offset, listed->store_ms);
        if (found.tags.at != NULL)
            put_hash(file, tag, listed->log_offset, listed->store_ms);
    }
    Py_XDECREF(words);
    return fits;
}

/* index_range(state, log, base, start, end)
 *
 * As `index_rows`, for records of the log from `start` to `end`. Gives (where it stopped, next number, slots taken that were free,
 * offset and store time of the last record that has entries or -1). */
EXPORT(index_range)
{
    int64_t limit, last = -1, last_ms = 0;
    File file = {0};
    Py_buffer view;
    Range range;
    Listed listed;
    if (check_count("index_range", count, 5) || open_range(args + 1, &range))
        return NULL;
    if (open_file(args[0], &file, &limit, &view)) {
        PyBuffer_Release(&range.view);
        return NULL;
    }
    int64_t position = range.start;
    int fits = 1;
    while (fits > 0 && next_listed(&range, position, &listed)) {
        int64_t before = file.number;
        fits = put_listed(&file, limit, &listed);
        if (file.number != before) {
            last = listed.log_offset;
            last_ms = listed.store_ms;
        }
        position += fits > 0 ? listed.size : 0;
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&range.view);
    if (fits < 0)
        return NULL;
    return Py_BuildValue("LLLLL", (long long)position, (long long)file.number, (long long)file.fresh, (long long)last,
                         (long long)last_ms);
}
