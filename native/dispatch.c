/* Dispatch straight from the log: the units of consume queues, and what the index needs of a record.
 *
 * A range is some records one behind the other in one file. A record that is not plain, and the fast path writes only plain
 * ones, ends it: Python then reads all of them. */
#include "dispatch.h"

static int read_listed(const uint8_t *log, int64_t size, int64_t base, int64_t position, Listed *listed)
{
    const uint8_t *record = log + (position - base);
    int64_t room = base + size - position;
    if (room < MIN_RECORD_BYTES)
        return 0;
    listed->size = get32(record);
    listed->sys_flag = get32(record + SYS_FLAG_AT);
    int64_t body_at = head_bytes(listed->sys_flag);
    if (listed->size > room || listed->size < body_at + 3 || get32(record + MAGIC_AT) != MAGIC_V1 || get64(record + LOG_OFFSET_AT) != position
        || listed->sys_flag & NOT_QUEUED)
        return 0;
    int64_t body_bytes = get32(record + body_at - 4), topic_at = body_at + body_bytes;
    if (body_bytes < 0 || topic_at + 3 > listed->size)
        return 0;
    int64_t properties_at = topic_at + 3 + record[topic_at];
    if (properties_at > listed->size || get16(record + properties_at - 2) != listed->size - properties_at)
        return 0;
    listed->queue_id = get32(record + QUEUE_ID_AT);
    listed->queue_offset = get64(record + QUEUE_OFFSET_AT);
    listed->log_offset = position;
    listed->store_ms = get64(record + STORE_MS_AT + (listed->sys_flag & BORN_IPV6 ? IPV6_EXTRA_BYTES : 0));
    listed->topic = (Span){record + topic_at + 1, record[topic_at]};
    listed->properties = (Span){record + properties_at, (Py_ssize_t)(listed->size - properties_at)};
    return listed->queue_id >= 0 && is_utf8(listed->topic.at, listed->topic.size);
}

int open_range(PyObject *const *args, Range *range)
{
    if (as_int64(args[1], &range->base) || as_int64(args[2], &range->start) || as_int64(args[3], &range->end)
        || read_from(args[0], &range->view))
        return -1;
    if (range->base <= range->start && range->start <= range->end
        && (uint64_t)range->end - (uint64_t)range->base <= (uint64_t)range->view.len)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the range is not in that file");
    PyBuffer_Release(&range->view);
    return -1;
}

int next_listed(const Range *range, int64_t position, Listed *listed)
{
    return position < range->end && read_listed(range->view.buf, range->end - range->base, range->base, position, listed);
}

/* The units of one queue, in the order of the log. */
typedef struct {
    Listed first;
    int64_t next_log_offset;
    Py_ssize_t count, next; /* of the same hash, -1 when it is the last */
    uint8_t *units;
    size_t capacity;
} Group;

#define HEADS 256

typedef struct {
    Group *groups;
    Py_ssize_t count, capacity;
    Py_ssize_t heads[HEADS];
} Groups;

static Group *group_of(Groups *groups, const Listed *listed)
{
    uint32_t hash = (uint32_t)listed->queue_id * 31 + (uint32_t)listed->topic.size;
    for (Py_ssize_t at = 0; at < listed->topic.size; at++)
        hash = hash * 31 + listed->topic.at[at];
    Py_ssize_t *head = &groups->heads[hash % HEADS];
    for (Py_ssize_t number = *head; number >= 0; number = groups->groups[number].next) {
        Group *group = &groups->groups[number];
        if (group->first.queue_id == listed->queue_id && group->first.topic.size == listed->topic.size
            && memcmp(group->first.topic.at, listed->topic.at, (size_t)listed->topic.size) == 0)
            return group;
    }
    if (groups->count == groups->capacity) {
        Py_ssize_t wanted = groups->capacity ? 2 * groups->capacity : 16;
        Group *grown = PyMem_Realloc(groups->groups, (size_t)wanted * sizeof *grown);
        if (grown == NULL)
            return NULL;
        groups->groups = grown;
        groups->capacity = wanted;
    }
    Group *fresh = &groups->groups[groups->count];
    *fresh = (Group){*listed, listed->log_offset, 0, *head, NULL, 0};
    *head = groups->count++;
    return fresh;
}

/* 1 when the record got its unit; 0 when its number is not the next; -1 with an error. */
static int put_unit(Groups *groups, const Listed *listed)
{
    Properties found;
    uint32_t tags = 0;
    Group *group = group_of(groups, listed);
    find_properties(listed->properties.at, listed->properties.size, &found);
    if (group != NULL && (size_t)(group->count + 1) * UNIT_BYTES > group->capacity) {
        size_t wanted = group->capacity ? 2 * group->capacity : 8 * UNIT_BYTES;
        uint8_t *grown = PyMem_Realloc(group->units, wanted);
        if (grown == NULL)
            group = NULL;
        else {
            group->units = grown;
            group->capacity = wanted;
        }
    }
    if (group == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    /* As a distance, for the number behind the last one there is does not fit. */
    int64_t first = group->first.queue_offset;
    if (listed->queue_offset < first || (uint64_t)listed->queue_offset - (uint64_t)first != (uint64_t)group->count)
        return 0;
    if (found.tags.at != NULL && hash_span(&tags, found.tags))
        return -1;
    uint8_t *unit = put64(group->units + group->count++ * UNIT_BYTES, (uint64_t)listed->log_offset);
    unit = put32(unit, (uint32_t)listed->size);
    put64(unit, (uint64_t)(int64_t)(int32_t)tags);
    group->next_log_offset = listed->log_offset + listed->size;
    return 1;
}

/* (topic, queue id, run of units) */
static PyObject *group_row(const Group *group, PyObject *run_type)
{
    PyObject *topic = plain_text(group->first.topic.at, group->first.topic.size), *run = new_row(run_type, 4);
    if (topic == NULL || run == NULL) {
        Py_XDECREF(topic);
        Py_XDECREF(run);
        return NULL;
    }
    PyTuple_SET_ITEM(run, 0, PyLong_FromLongLong(group->first.queue_offset));
    PyTuple_SET_ITEM(run, 1, PyLong_FromLongLong(group->first.log_offset));
    PyTuple_SET_ITEM(run, 2, PyBytes_FromStringAndSize((const char *)group->units, group->count * UNIT_BYTES));
    PyTuple_SET_ITEM(run, 3, PyLong_FromLongLong(group->next_log_offset));
    PyObject *row = PyErr_Occurred() ? NULL : Py_BuildValue("OlO", topic, (long)group->first.queue_id, run);
    Py_DECREF(topic);
    Py_DECREF(run);
    return row;
}

static PyObject *group_rows(const Groups *groups, PyObject *run_type)
{
    PyObject *rows = PyList_New(groups->count);
    for (Py_ssize_t number = 0; rows != NULL && number < groups->count; number++) {
        PyObject *row = group_row(&groups->groups[number], run_type);
        if (row == NULL)
            Py_CLEAR(rows);
        else
            PyList_SET_ITEM(rows, number, row);
    }
    return rows;
}

static PyObject *last_row(const Listed *listed, PyObject *type)
{
    PyObject *last = new_row(type, 3);
    if (last == NULL)
        return NULL;
    PyTuple_SET_ITEM(last, 0, PyLong_FromLongLong(listed->log_offset));
    PyTuple_SET_ITEM(last, 1, PyLong_FromLongLong(listed->size));
    PyTuple_SET_ITEM(last, 2, PyLong_FromLongLong(listed->store_ms));
    if (PyErr_Occurred())
        Py_CLEAR(last);
    return last;
}

/* range_runs(view, base, start, end, run_type, last_type): (rows by queue, how many records, the last one: its offset, size and
 * store time); None when a record is not plain, or not numbered after the one before it. */
EXPORT(range_runs)
{
    Range range;
    Listed listed;
    Groups groups = {NULL, 0, 0, {0}};
    PyObject *rows = NULL, *last = NULL, *found = NULL;
    if (check_count("range_runs", count, 6) || open_range(args, &range))
        return NULL;
    memset(groups.heads, 0xFF, sizeof groups.heads);
    int64_t position = range.start, records = 0;
    int plain = 1;
    for (; plain > 0 && position < range.end; position += listed.size, records++)
        plain = next_listed(&range, position, &listed) ? put_unit(&groups, &listed) : 0;
    if (plain > 0 && records && (rows = group_rows(&groups, args[4])) != NULL && (last = last_row(&listed, args[5])) != NULL)
        found = Py_BuildValue("OLO", rows, (long long)records, last);
    Py_XDECREF(rows);
    Py_XDECREF(last);
    for (Py_ssize_t number = 0; number < groups.count; number++)
        PyMem_Free(groups.groups[number].units);
    PyMem_Free(groups.groups);
    PyBuffer_Release(&range.view);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

static PyObject *read_entry(PyObject *type, const Listed *listed, PyObject *topic)
{
    Head head = {0};
    head.log_offset = listed->log_offset;
    head.queue_id = listed->queue_id;
    head.queue_offset = listed->queue_offset;
    head.store_ms = listed->store_ms;
    head.sys_flag = listed->sys_flag;
    PyObject *properties = properties_dict(listed->properties.at, listed->properties.size, 0);
    PyObject *entry = properties == NULL ? NULL : new_entry(type, &head, listed->size, topic, properties);
    Py_XDECREF(properties);
    return entry;
}

/* range_entries(view, base, start, end, entry_type): the records as entries; None when one is not plain. */
EXPORT(range_entries)
{
    Range range;
    Listed listed;
    if (check_count("range_entries", count, 5) || open_range(args, &range))
        return NULL;
    PyObject *entries = PyList_New(0);
    int plain = 1;
    for (int64_t position = range.start; entries != NULL && plain && position < range.end; position += listed.size) {
        PyObject *topic = NULL, *entry = NULL;
        plain = next_listed(&range, position, &listed) && (topic = plain_text(listed.topic.at, listed.topic.size)) != NULL;
        if (!plain)
            break;
        entry = read_entry(args[4], &listed, topic);
        if (entry == NULL || PyList_Append(entries, entry) < 0)
            Py_CLEAR(entries);
        Py_XDECREF(entry);
        Py_XDECREF(topic);
    }
    PyBuffer_Release(&range.view);
    if (plain || entries == NULL || PyErr_Occurred())
        return PyErr_Occurred() ? (Py_XDECREF(entries), NULL) : entries;
    Py_DECREF(entries);
    Py_RETURN_NONE;
}
