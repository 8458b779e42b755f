/* The lane of plain sends: all at the start of a read go from their frames into the log, and to their answers, in one go.
 *
 * What it does for a send is what the general road does (handlers/send.py, commit_log.py), and only where nothing is special about
 * it: a topic that is known, a queue it has, properties that ask for nothing, room in what is reserved of the file. The first
 * frame of any other kind ends the run. Nothing of a message counts before everything that can fail has succeeded. */
#include "sends.h"

#define SEND_V2 310
#define SMALL_BYTES 1024 /* larger ones are counted one by one */

enum {
    MAX_FRAME, MAX_HEADER, ENTRY_TYPE, PLACES, QUEUE_OFFSETS, ADDED, ADDED_TEXT, STORE_HOST, MAX_BODY, MAX_RECORD, ANSWER_HEAD,
    ANSWER_TAIL, BINARY_PARTS, LANE_FIELDS = BINARY_PARTS + 4,
};

/* What is the same for all sends of a call, and what has been made so far. */
typedef struct {
    PyObject *lane, *born_host;
    uint8_t *log; /* memory of the file that begins at `base` */
    int64_t base, limit, wrote, store_ms, max_body, max_record;
    PyObject *entries, *runs; /* owned */
    uint8_t *answers;
    size_t used, capacity, answer_bytes; /* of one answer at most, without its unique id */
    PyObject *run_topic; /* borrowed from the places */
    int64_t run_count, run_bytes;
} Lane;

static PyObject *name_sharding;

static PyObject *of(const Lane *lane, int number) { return PyTuple_GET_ITEM(lane->lane, number); }

/* Room for one more answer. */
static int reserve(Lane *lane, size_t size)
{
    if (lane->capacity - lane->used >= size)
        return 1;
    size_t wanted = lane->capacity * 2 > lane->used + size ? lane->capacity * 2 : lane->used + size;
    uint8_t *grown = PyMem_Realloc(lane->answers, wanted);
    if (grown == NULL)
        return 0;
    lane->answers = grown;
    lane->capacity = wanted;
    return 1;
}

static int end_run(Lane *lane)
{
    if (!lane->run_count)
        return 1;
    PyObject *run = Py_BuildValue("OLL", lane->run_topic, (long long)lane->run_count, (long long)lane->run_bytes);
    int kept = run != NULL && PyList_Append(lane->runs, run) == 0;
    Py_XDECREF(run);
    lane->run_count = lane->run_bytes = 0;
    return kept;
}

/* Count a message for the statistics: neighbours of one topic together. */
static int counted(Lane *lane, PyObject *topic, int64_t size)
{
    if ((lane->run_topic != topic || size > SMALL_BYTES || lane->run_bytes > SMALL_BYTES * lane->run_count) && !end_run(lane))
        return 0;
    lane->run_topic = topic;
    lane->run_count++;
    lane->run_bytes += size;
    return 1;
}

/* The place of a send: (topic, the same as records have it, keys of its queues); NULL when there is none. */
static PyObject *place_of(const Lane *lane, const PlainSend *send)
{
    PyObject *place = PyDict_GetItemWithError(of(lane, PLACES), send->topic);
    if (place == NULL || !PyTuple_Check(place) || PyTuple_GET_SIZE(place) != 3 || !PyBytes_Check(PyTuple_GET_ITEM(place, 1))
        || !PyTuple_Check(PyTuple_GET_ITEM(place, 2)))
        return NULL;
    return send->queue_id >= 0 && send->queue_id < PyTuple_GET_SIZE(PyTuple_GET_ITEM(place, 2)) ? place : NULL;
}

static int read_head(const Lane *lane, const PlainSend *send, PyObject *place, PyObject *queue_key, Head *head)
{
    PyObject *next = PyDict_GetItemWithError(of(lane, QUEUE_OFFSETS), queue_key);
    if ((next == NULL && PyErr_Occurred()) || (next != NULL && as_int64(next, &head->queue_offset)))
        return 0;
    if (next == NULL)
        head->queue_offset = 0;
    int born_v6 = PyBytes_GET_SIZE(lane->born_host) > 8, store_v6 = PyBytes_GET_SIZE(of(lane, STORE_HOST)) > 8;
    head->magic = MAGIC_V1;
    head->queue_id = (int32_t)send->queue_id;
    head->flag = (int32_t)send->flag;
    head->sys_flag = ((int32_t)send->sys_flag & ~(BORN_IPV6 | STORE_IPV6)) | (born_v6 ? BORN_IPV6 : 0) | (store_v6 ? STORE_IPV6 : 0);
    head->reconsume_times = (int32_t)send->times;
    head->log_offset = lane->wrote;
    head->born_ms = send->born_ms;
    head->store_ms = lane->store_ms;
    head->prepared = 0;
    head->topic = PyBytes_AS_STRING(PyTuple_GET_ITEM(place, 1));
    head->topic_bytes = PyBytes_GET_SIZE(PyTuple_GET_ITEM(place, 1));
    head->born_host = PyBytes_AS_STRING(lane->born_host);
    head->store_host = PyBytes_AS_STRING(of(lane, STORE_HOST));
    return 1;
}

/* List and write a message that has a place; 0 leaves everything as it was. */
static int store(Lane *lane, const Head *head, const PlainSend *send, PyObject *place, PyObject *queue_key, const uint8_t *body,
                 int64_t body_bytes, int64_t size)
{
    PyObject *topic = PyTuple_GET_ITEM(place, 0);
    PyObject *entry = new_entry(of(lane, ENTRY_TYPE), head, size, topic, send->properties);
    PyObject *next = PyLong_FromLongLong(head->queue_offset + 1);
    int stored = entry != NULL && next != NULL && PyList_Append(lane->entries, entry) == 0;
    if (stored && PyDict_SetItem(of(lane, QUEUE_OFFSETS), queue_key, next) < 0) {
        PyList_SetSlice(lane->entries, PyList_GET_SIZE(lane->entries) - 1, PyList_GET_SIZE(lane->entries), NULL);
        stored = 0;
    }
    if (stored) {
        put_record(lane->log + (lane->wrote - lane->base), head, (int32_t)size, body, (int32_t)body_bytes,
                   PyBytes_AS_STRING(send->stored), (uint16_t)PyBytes_GET_SIZE(send->stored));
        lane->wrote += size;
        if (!counted(lane, topic, size))
            PyErr_Clear(); /* it is stored: that a figure is missing must not end it */
    }
    Py_XDECREF(entry);
    Py_XDECREF(next);
    return stored;
}

static int serve(Lane *lane, const Header *header, int binary, const PlainSend *send, const uint8_t *body, int64_t body_bytes)
{
    PyObject *place = place_of(lane, send), *unique = PyDict_GetItemWithError(send->properties, name_unique);
    if (place == NULL || unique == NULL || !is_plain_id(unique) || PyDict_Contains(send->properties, name_sharding))
        return 0;
    PyObject *queue_key = PyTuple_GET_ITEM(PyTuple_GET_ITEM(place, 2), (Py_ssize_t)send->queue_id);
    Head head;
    if (!read_head(lane, send, place, queue_key, &head))
        return 0;
    Py_ssize_t properties_bytes = PyBytes_GET_SIZE(send->stored);
    int64_t size = size_with(&head, body_bytes, properties_bytes);
    if (body_bytes > lane->max_body || properties_bytes > MAX_PROPERTIES_BYTES || size > lane->max_record
        || size > lane->limit - lane->wrote || looks_lost((const uint8_t *)PyBytes_AS_STRING(send->stored), properties_bytes)
        || !reserve(lane, lane->answer_bytes + (size_t)PyUnicode_GET_LENGTH(unique)))
        return 0;
    if (!store(lane, &head, send, place, queue_key, body, body_bytes, size))
        return 0;
    uint8_t *start = lane->answers + lane->used, *end;
    if (binary)
        end = put_binary_answer(start, &PyTuple_GET_ITEM(lane->lane, BINARY_PARTS), header->numbers[OPAQUE], head.log_offset,
                                send->queue_id, head.queue_offset, unique);
    else
        end = put_answer(start, of(lane, ANSWER_HEAD), of(lane, ANSWER_TAIL), header->numbers[OPAQUE], head.log_offset,
                         send->queue_id, head.queue_offset, unique);
    lane->used += (size_t)(end - start);
    return 1;
}

/* 1 when the frame was a plain send and is stored and answered. */
static int serve_frame(Lane *lane, const uint8_t *frame, int64_t header_bytes, int64_t body_bytes)
{
    Header header;
    PlainSend send;
    int served = 0;
    if (read_header(frame, (Py_ssize_t)header_bytes, &header) && header.numbers[CODE] == SEND_V2 && header.numbers[FLAG] == 0
        && read_plain_send(header.ext, of(lane, ADDED), of(lane, ADDED_TEXT), &send) > 0) {
        served = serve(lane, &header, frame[4], &send, frame + 8 + header_bytes, body_bytes);
        forget_send(&send);
    }
    forget_header(&header);
    return served;
}

static int is_host(PyObject *host)
{
    return PyBytes_Check(host) && (PyBytes_GET_SIZE(host) == 8 || PyBytes_GET_SIZE(host) == 20);
}

static int is_lane(PyObject *lane, PyObject *born_host)
{
    if (name_sharding == NULL && (name_sharding = PyUnicode_InternFromString("__SHARDINGKEY")) == NULL)
        return 0;
    int sound = PyTuple_Check(lane) && PyTuple_GET_SIZE(lane) == LANE_FIELDS && PyDict_Check(PyTuple_GET_ITEM(lane, PLACES))
        && PyDict_Check(PyTuple_GET_ITEM(lane, QUEUE_OFFSETS)) && is_host(PyTuple_GET_ITEM(lane, STORE_HOST)) && is_host(born_host);
    for (int number = ANSWER_HEAD; sound && number < LANE_FIELDS; number++)
        sound = PyBytes_Check(PyTuple_GET_ITEM(lane, number));
    if (sound && PyBytes_GET_SIZE(PyTuple_GET_ITEM(lane, LANE_FIELDS - 1)) <= 128)
        return 1;
    PyErr_SetString(PyExc_TypeError, "that is no lane");
    return 0;
}

/* (where the rest begins, answers, entries, how far the log is written, what to count); None when no send was served. */
static PyObject *result(Lane *lane, int64_t position)
{
    PyObject *made = NULL;
    if (lane->entries != NULL && PyList_GET_SIZE(lane->entries) == 0) {
        Py_CLEAR(lane->entries);
        Py_CLEAR(lane->runs);
        if (!PyErr_Occurred())
            made = Py_NewRef(Py_None);
    } else if (lane->entries != NULL && lane->runs != NULL) {
        PyErr_Clear(); /* what ended the run is met again on the general road */
        end_run(lane);
        made = Py_BuildValue("Ly#OLO", (long long)position, (const char *)lane->answers, (Py_ssize_t)lane->used, lane->entries,
                             (long long)lane->wrote, lane->runs);
        Py_CLEAR(lane->entries);
        Py_CLEAR(lane->runs);
    }
    PyMem_Free(lane->answers);
    return made;
}

/* serve_sends(data, born_host, lane, view, base, limit, wrote, store_ms)
 *
 * `view` is the memory of the file of the log that begins at `base`; up to `limit` it may be written without further ado. */
EXPORT(serve_sends)
{
    Lane lane = {0};
    Py_buffer data, view;
    int64_t max_frame, max_header, position = 0, size, header_bytes;
    if (check_count("serve_sends", count, 8) || !is_lane(args[2], args[1]) || as_int64(args[4], &lane.base)
        || as_int64(args[5], &lane.limit) || as_int64(args[6], &lane.wrote) || as_int64(args[7], &lane.store_ms)
        || as_int64(PyTuple_GET_ITEM(args[2], MAX_FRAME), &max_frame)
        || as_int64(PyTuple_GET_ITEM(args[2], MAX_HEADER), &max_header)
        || as_int64(PyTuple_GET_ITEM(args[2], MAX_BODY), &lane.max_body)
        || as_int64(PyTuple_GET_ITEM(args[2], MAX_RECORD), &lane.max_record) || read_from(args[0], &data))
        return NULL;
    if (write_to(args[3], &view)) {
        PyBuffer_Release(&data);
        return NULL;
    }
    lane.lane = args[2];
    lane.answer_bytes = 512;
    for (int number = ANSWER_HEAD; number < LANE_FIELDS; number++)
        lane.answer_bytes += (size_t)PyBytes_GET_SIZE(PyTuple_GET_ITEM(args[2], number));
    lane.born_host = args[1];
    lane.log = view.buf;
    lane.entries = PyList_New(0);
    lane.runs = PyList_New(0);
    if (lane.limit > lane.base + view.len)
        lane.limit = lane.base + view.len;
    int open = lane.entries != NULL && lane.runs != NULL && lane.wrote >= lane.base;
    while (open && (size = frame_bytes((const uint8_t *)data.buf + position, data.len - position, max_frame, max_header,
                                       &header_bytes)) > 0) {
        open = serve_frame(&lane, (const uint8_t *)data.buf + position, header_bytes, size - 8 - header_bytes);
        position += open ? size : 0;
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&data);
    return result(&lane, position);
}
