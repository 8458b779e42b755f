/* Plain sends: all at the start of a read go from their frames into the log, and to their answers, in one go.
 *
 * What it does for a send is what the general path does (broker/handlers/send.py, store/log/commit_log.py), and only where nothing
 * is special about it: a topic that is known, a queue it has, properties that ask for nothing, room in what is reserved of the
 * file. The first frame of any other kind ends the run. Nothing of a message counts before everything that can fail has
 * succeeded; the messages of a batch count together. */
#include "fastpath.h"

#define SEND_V2 310
#define SEND_BATCH 320
#define SMALL_BYTES 1024 /* larger ones are counted one by one */
#define MAX_BATCH 8192 /* messages; more are left to the general path */
#define ITEM_BYTES 22 /* of a message of a batch without its body and properties */

/* Fields of a FastSendContext. */
enum {
    MAX_FRAME, MAX_HEADER, PLACES, WAITS, ADDED_TEXT, STORE_HOST, MAX_BODY, MAX_RECORD, ANSWER_HEAD, ANSWER_TAIL, BINARY_PARTS,
    HOST = BINARY_PARTS + 3, CONTEXT_FIELDS,
};

/* Fields of a Room. */
enum { ROOM_VIEW, ROOM_BASE, ROOM_START, ROOM_LIMIT, ROOM_STORE_MS, ROOM_QUEUE_OFFSETS, ROOM_FIELDS };

/* What is the same for all sends of a call, and what has been made so far. */
typedef struct {
    PyObject *context, *queue_offsets, *born_host;
    uint8_t *log; /* memory of the file that begins at `base` */
    int64_t base, limit, wrote, store_ms, max_frame, max_header, max_body, max_record;
    int64_t times[2]; /* of signatures */
    PyObject *reads, *runs; /* `runs` is owned */
    Frame ahead[HMAC_LANES]; /* frames that were looked at before it is their turn, so that signatures are checked together */
    int ahead_at, ahead_count;
    Room answers;
    size_t answer_bytes; /* of one answer at most, without its unique id and further offset ids */
    long long sends, batches; /* requests served, by their codes */
    PyObject *run_topic; /* borrowed from the places */
    int64_t run_count, run_bytes, run_times;
} Serving;

/* A send that was found to be plain. */
typedef struct {
    Span topic, unique;
    int64_t queue_id, sys_flag, born_ms, flag, times;
    const uint8_t *properties;
    Py_ssize_t properties_bytes;
    int batch, binary;
    int32_t opaque;
} Send;

static PyObject *of(const Serving *serving, int number) { return PyTuple_GET_ITEM(serving->context, number); }

/* Room for so many more bytes. */
static int reserve(Room *room, size_t size)
{
    if (room->capacity - room->used >= size)
        return 1;
    size_t wanted = room->capacity * 2 > room->used + size ? room->capacity * 2 : room->used + size;
    uint8_t *grown = PyMem_Realloc(room->bytes, wanted);
    if (grown == NULL)
        return 0;
    room->bytes = grown;
    room->capacity = wanted;
    return 1;
}

static int end_run(Serving *serving)
{
    if (!serving->run_count)
        return 1;
    PyObject *run = Py_BuildValue("OLLL", serving->run_topic, (long long)serving->run_count, (long long)serving->run_bytes,
                                  (long long)serving->run_times);
    int kept = run != NULL && PyList_Append(serving->runs, run) == 0;
    Py_XDECREF(run);
    serving->run_count = serving->run_bytes = serving->run_times = 0;
    return kept;
}

/* Count messages for the statistics: neighbours of one topic together, unless they are large on the average. */
static void counted(Serving *serving, PyObject *topic, int64_t messages, int64_t size)
{
    if ((serving->run_topic != topic || size > SMALL_BYTES * messages || serving->run_bytes > SMALL_BYTES * serving->run_count)
        && !end_run(serving))
        PyErr_Clear(); /* it is stored: that a figure is missing must not end it */
    serving->run_topic = topic;
    serving->run_count += messages;
    serving->run_bytes += size;
    serving->run_times++;
}

static int number_field(const SendHeader *header, char letter, int64_t low, int64_t high, int64_t *number)
{
    Span field = header->fields[letter - 'a'];
    return read_number(field.at, field.size, low, high, number);
}

/* As `number_field`, for one that may be missing: then `*number` stays as it is. */
static int number_or_none(const SendHeader *header, char letter, int64_t *number)
{
    return header->fields[letter - 'a'].at == NULL || number_field(header, letter, INT32_MIN, INT32_MAX, number);
}

/* Whether a field is "true" or "false"; false when it is not there. */
static int switch_field(const SendHeader *header, char letter, int *on)
{
    Span field = header->fields[letter - 'a'];
    *on = field.size == 4 && memcmp(field.at, "true", 4) == 0;
    return *on || field.at == NULL || (field.size == 5 && memcmp(field.at, "false", 5) == 0);
}

/* Whether a send is plain, by its header. */
static int read_send(const Serving *serving, const SendHeader *header, Send *send)
{
    int64_t ignored;
    int unit_mode;
    Span properties = header->fields['i' - 'a'];
    send->topic = header->fields['b' - 'a'];
    send->times = 0;
    if (header->fields[0].at == NULL || header->fields['c' - 'a'].at == NULL || send->topic.size < 1 || *send->topic.at == '%'
        || properties.at == NULL || !number_field(header, 'd', INT32_MIN, INT32_MAX, &ignored)
        || !number_field(header, 'e', 0, INT32_MAX, &send->queue_id)
        || !number_field(header, 'f', INT32_MIN, INT32_MAX, &send->sys_flag)
        || !number_field(header, 'g', INT64_MIN, INT64_MAX, &send->born_ms)
        || !number_field(header, 'h', INT32_MIN, INT32_MAX, &send->flag) || !number_or_none(header, 'j', &send->times)
        || !number_or_none(header, 'l', &ignored) || !switch_field(header, 'k', &unit_mode)
        || !switch_field(header, 'm', &send->batch) || send->sys_flag & NOT_FOR_CLIENTS)
        return 0;
    if (header->numbers[FLAG] != 0 || (header->numbers[CODE] != SEND_V2 && (header->numbers[CODE] != SEND_BATCH || !send->batch)))
        return 0;
    Properties found;
    find_properties(properties.at, properties.size, &found);
    send->unique = found.unique;
    send->properties = properties.at;
    send->properties_bytes = properties.size;
    send->opaque = header->numbers[OPAQUE];
    /* Where answers wait for the disk, there may be senders who do not want to. */
    if (of(serving, WAITS) == Py_True && found.wait.at != NULL && (found.wait.size != 4 || memcmp(found.wait.at, "true", 4) != 0))
        return 0;
    /* A message must have an id, or the broker makes one; a batch has none, its messages do. */
    return !found.special && (found.unique.at != NULL ? is_plain_id(found.unique.at, found.unique.size) : send->batch);
}

/* Put what the broker adds behind the properties. */
static int complete_properties(const Serving *serving, const Frame *frame, Send *send)
{
    PyObject *added = of(serving, ADDED_TEXT);
    size_t size = (size_t)send->properties_bytes;
    int open = size && send->properties[size - 1] != 2;
    if (size > MAX_PROPERTIES_BYTES)
        return 0;
    uint8_t *start = frame->texts.bytes + frame->header_bytes, *at = put_bytes(start, send->properties, size);
    if (open)
        *at++ = 2;
    at = put_bytes(at, PyBytes_AS_STRING(added), (size_t)PyBytes_GET_SIZE(added));
    send->properties = start;
    send->properties_bytes = at - start;
    return send->properties_bytes <= MAX_PROPERTIES_BYTES && !looks_lost(start, send->properties_bytes);
}

/* The place of a send: (topic, the same as records have it, keys of its queues); NULL when there is none, or none for its sender. */
static PyObject *place_of(const Serving *serving, const Frame *frame, const Send *send)
{
    int granted = frame->header.numbers[CODE] == SEND_V2 ? GRANT_SENDS : GRANT_BATCHES;
    PyObject *places = frame->grant == NULL ? of(serving, PLACES) : PyTuple_GET_ITEM(frame->grant, granted);
    PyObject *topic = plain_text(send->topic.at, send->topic.size);
    PyObject *place = topic == NULL ? NULL : PyDict_GetItemWithError(places, topic);
    Py_XDECREF(topic);
    if (place == NULL || !PyTuple_Check(place) || PyTuple_GET_SIZE(place) != 3 || !PyBytes_Check(PyTuple_GET_ITEM(place, 1))
        || !PyTuple_Check(PyTuple_GET_ITEM(place, 2)))
        return NULL;
    return send->queue_id < PyTuple_GET_SIZE(PyTuple_GET_ITEM(place, 2)) ? place : NULL;
}

static int read_head(const Serving *serving, const Send *send, PyObject *place, PyObject *queue_key, Head *head)
{
    PyObject *next = PyDict_GetItemWithError(serving->queue_offsets, queue_key);
    if ((next == NULL && PyErr_Occurred()) || (next != NULL && as_int64(next, &head->queue_offset)))
        return 0;
    if (next == NULL)
        head->queue_offset = 0;
    if (head->queue_offset < 0 || head->queue_offset > INT64_MAX - MAX_BATCH)
        return 0; /* the general path says what is wrong with such a number */
    int born_v6 = PyBytes_GET_SIZE(serving->born_host) > 8, store_v6 = PyBytes_GET_SIZE(of(serving, STORE_HOST)) > 8;
    head->magic = MAGIC_V1;
    head->queue_id = (int32_t)send->queue_id;
    head->flag = (int32_t)send->flag;
    head->sys_flag = ((int32_t)send->sys_flag & ~(BORN_IPV6 | STORE_IPV6)) | (born_v6 ? BORN_IPV6 : 0) | (store_v6 ? STORE_IPV6 : 0);
    head->reconsume_times = (int32_t)send->times;
    head->log_offset = serving->wrote;
    head->born_ms = send->born_ms;
    head->store_ms = serving->store_ms;
    head->prepared = 0;
    head->topic = PyBytes_AS_STRING(PyTuple_GET_ITEM(place, 1));
    head->topic_bytes = PyBytes_GET_SIZE(PyTuple_GET_ITEM(place, 1));
    head->born_host = PyBytes_AS_STRING(serving->born_host);
    head->store_host = PyBytes_AS_STRING(of(serving, STORE_HOST));
    return 1;
}

/* Take numbers of a queue; 0 leaves everything as it was. */
static int take_numbers(const Serving *serving, PyObject *queue_key, int64_t next_offset)
{
    PyObject *next = PyLong_FromLongLong(next_offset);
    int taken = next != NULL && PyDict_SetItem(serving->queue_offsets, queue_key, next) == 0;
    Py_XDECREF(next);
    return taken;
}

/* Tell the sender, and the statistics; room for the answer is there. */
static void answer(Serving *serving, const Send *send, PyObject *topic, int64_t size, const Stored *stored)
{
    uint8_t *start = serving->answers.bytes + serving->answers.used, *end;
    if (send->binary)
        end = put_binary_answer(start, &PyTuple_GET_ITEM(serving->context, BINARY_PARTS), stored);
    else
        end = put_answer(start, of(serving, ANSWER_HEAD), of(serving, ANSWER_TAIL), of(serving, HOST), stored);
    serving->answers.used += (size_t)(end - start);
    counted(serving, topic, stored->count, size);
}

static const uint8_t *body_of(const Frame *frame) { return frame->start + 8 + frame->header_bytes; }

static int serve_one(Serving *serving, const Frame *frame, Send *send, PyObject *place, PyObject *queue_key, Head *head)
{
    const uint8_t *body = body_of(frame);
    int64_t body_bytes = frame->body_bytes;
    if (body_bytes > serving->max_body || !complete_properties(serving, frame, send))
        return 0;
    int64_t size = size_with(head, body_bytes, send->properties_bytes);
    if (size > serving->max_record || size > serving->limit - serving->wrote
        || !reserve(&serving->answers, serving->answer_bytes + (size_t)send->unique.size)
        || !take_numbers(serving, queue_key, head->queue_offset + 1))
        return 0;
    Stored stored = {send->opaque, send->queue_id, head->queue_offset, 1, &head->log_offset, send->unique};
    put_record(serving->log + (serving->wrote - serving->base), head, (int32_t)size, body, (int32_t)body_bytes, send->properties,
               (uint16_t)send->properties_bytes);
    serving->wrote += size;
    answer(serving, send, PyTuple_GET_ITEM(place, 0), size, &stored);
    return 1;
}

/* How many messages a batch has that are to be stored as they are, and what their records take; 0 for any other body. */
static Py_ssize_t measure(const Serving *serving, const Head *head, const uint8_t *at, int64_t left, int64_t *total)
{
    int64_t bodies = 0;
    Py_ssize_t count = 0;
    for (*total = 0; left > 0; count++) {
        int64_t size = left < ITEM_BYTES ? -1 : get32(at), body_bytes = left < ITEM_BYTES ? -1 : get32(at + 16);
        int64_t properties_bytes = size - ITEM_BYTES - body_bytes;
        if (count == MAX_BATCH || body_bytes < 0 || size > left || properties_bytes < 0
            || (int16_t)get16(at + 20 + body_bytes) != properties_bytes
            || looks_lost(at + ITEM_BYTES + body_bytes, (Py_ssize_t)properties_bytes))
            return 0;
        bodies += body_bytes;
        *total += size_with(head, body_bytes, properties_bytes);
        at += size;
        left -= size;
    }
    return bodies > serving->max_body || *total > serving->limit - serving->wrote ? 0 : count;
}

static int serve_batch(Serving *serving, const Frame *frame, Send *send, PyObject *place, PyObject *queue_key, Head *head)
{
    const uint8_t *body = body_of(frame);
    int64_t log_offsets[MAX_BATCH], total, first = head->queue_offset;
    Py_ssize_t count = measure(serving, head, body, frame->body_bytes, &total);
    size_t ids_bytes = (size_t)count * (size_t)(17 + PyBytes_GET_SIZE(of(serving, HOST)));
    if (!count || !reserve(&serving->answers, serving->answer_bytes + (size_t)send->unique.size + ids_bytes)
        || !take_numbers(serving, queue_key, first + count))
        return 0;
    for (Py_ssize_t number = 0; number < count; number++, head->queue_offset++) {
        int32_t item_bytes = get32(body), stored_bytes = get32(body + 16), properties_bytes = item_bytes - ITEM_BYTES - stored_bytes;
        int64_t size = size_with(head, stored_bytes, properties_bytes);
        head->flag = get32(body + 12);
        head->log_offset = log_offsets[number] = serving->wrote;
        put_record(serving->log + (serving->wrote - serving->base), head, (int32_t)size, body + 20, stored_bytes,
                   body + ITEM_BYTES + stored_bytes, (uint16_t)properties_bytes);
        serving->wrote += size;
        body += item_bytes;
    }
    Stored stored = {send->opaque, send->queue_id, first, count, log_offsets, send->unique};
    answer(serving, send, PyTuple_GET_ITEM(place, 0), total, &stored);
    return 1;
}

/* 1 when the frame was a plain send and is stored and answered. */
static int serve_frame(Serving *serving, const Frame *frame)
{
    Send send;
    Head head;
    if (!frame->is_admitted || !read_send(serving, &frame->header, &send))
        return 0;
    send.binary = frame->start[4];
    PyObject *place = place_of(serving, frame, &send);
    if (place == NULL)
        return 0;
    PyObject *queue_key = PyTuple_GET_ITEM(PyTuple_GET_ITEM(place, 2), (Py_ssize_t)send.queue_id);
    if (!read_head(serving, &send, place, queue_key, &head)
        || !(send.batch ? serve_batch : serve_one)(serving, frame, &send, place, queue_key, &head))
        return 0;
    *(frame->header.numbers[CODE] == SEND_V2 ? &serving->sends : &serving->batches) += 1;
    return 1;
}

static int is_host(PyObject *host)
{
    return PyBytes_Check(host) && (PyBytes_GET_SIZE(host) == 8 || PyBytes_GET_SIZE(host) == 20);
}

static int is_context(PyObject *context)
{
    int sound = PyTuple_Check(context) && PyTuple_GET_SIZE(context) == CONTEXT_FIELDS
        && (PyTuple_GET_ITEM(context, PLACES) == Py_None || PyDict_Check(PyTuple_GET_ITEM(context, PLACES))) && PyBytes_Check(PyTuple_GET_ITEM(context, ADDED_TEXT))
        && is_host(PyTuple_GET_ITEM(context, STORE_HOST));
    for (int number = ANSWER_HEAD; sound && number < CONTEXT_FIELDS; number++)
        sound = PyBytes_Check(PyTuple_GET_ITEM(context, number));
    if (sound && PyBytes_GET_SIZE(PyTuple_GET_ITEM(context, HOST)) <= 128)
        return 1;
    PyErr_SetString(PyExc_TypeError, "that is no FastSendContext");
    return 0;
}

static int is_room(PyObject *room)
{
    if (PyTuple_Check(room) && PyTuple_GET_SIZE(room) == ROOM_FIELDS && PyDict_Check(PyTuple_GET_ITEM(room, ROOM_QUEUE_OFFSETS)))
        return 1;
    PyErr_SetString(PyExc_TypeError, "that is no Room");
    return 0;
}

/* A read is (bytes, host, connection), or with a guard (bytes, host, connection, grant or None). */
static int is_read(const Serving *serving, PyObject *read)
{
    int guarded = of(serving, PLACES) == Py_None;
    return PyTuple_Check(read) && PyTuple_GET_SIZE(read) == 3 + guarded && PyBytes_Check(PyTuple_GET_ITEM(read, 0))
        && is_host(PyTuple_GET_ITEM(read, 1))
        && (!guarded || PyTuple_GET_ITEM(read, 3) == Py_None || is_grant(PyTuple_GET_ITEM(read, 3)));
}

static int are_reads(const Serving *serving, PyObject *reads)
{
    int sound = PyList_Check(reads);
    for (Py_ssize_t number = 0; sound && number < PyList_GET_SIZE(reads); number++)
        sound = is_read(serving, PyList_GET_ITEM(reads, number));
    if (!sound)
        PyErr_SetString(PyExc_TypeError, "reads are a list; each has bytes, a host, a connection, and a grant where there is a guard");
    return sound;
}

/* Locate the frame at a position of a read; 0 for one that is not plain or not complete, and where nothing is granted. */
static int locate(Serving *serving, Py_ssize_t number, int64_t position, Frame *frame)
{
    PyObject *read = PyList_GET_ITEM(serving->reads, number), *data = PyTuple_GET_ITEM(read, 0);
    frame->grant = of(serving, PLACES) == Py_None ? PyTuple_GET_ITEM(read, 3) : NULL;
    if (frame->grant == Py_None)
        return 0;
    frame->read = number;
    frame->start = (const uint8_t *)PyBytes_AS_STRING(data) + position;
    int64_t size = frame_bytes(frame->start, PyBytes_GET_SIZE(data) - position, serving->max_frame, serving->max_header,
                               &frame->header_bytes);
    if (size == 0)
        return 0;
    frame->body_bytes = size - 8 - frame->header_bytes;
    size_t kept = (size_t)frame->header_bytes + 1 + (size_t)PyBytes_GET_SIZE(of(serving, ADDED_TEXT));
    size_t hashed = frame->grant == NULL ? 0 : signed_room(frame->header_bytes, frame->body_bytes);
    frame->texts.used = 0;
    /* Escapes take more than what they stand for. */
    return reserve(&frame->texts, (size_t)frame->header_bytes + (kept > hashed ? kept : hashed))
        && locate_header(frame->start, (Py_ssize_t)frame->header_bytes, frame->texts.bytes, &frame->header);
}

/* Look at the next frames, of this read and of those behind it. Without a guard there is nothing to be gained by it. */
static void look_ahead(Serving *serving, Py_ssize_t number, int64_t position)
{
    int count = 0, most = of(serving, PLACES) == Py_None ? HMAC_LANES : 1;
    Py_ssize_t last = most == 1 ? number : PyList_GET_SIZE(serving->reads) - 1;
    while (count < most && number <= last) {
        Frame *frame = &serving->ahead[count];
        if (locate(serving, number, position, frame)) {
            position += 8 + frame->header_bytes + frame->body_bytes;
            count++;
        } else {
            position = 0;
            number++;
        }
    }
    admit(serving->ahead, count, serving->times);
    serving->ahead_at = 0;
    serving->ahead_count = count;
}

/* The frame at a position of a read, or NULL. Those of reads before it are over. */
static const Frame *next_frame(Serving *serving, Py_ssize_t number, int64_t position)
{
    while (serving->ahead_at < serving->ahead_count && serving->ahead[serving->ahead_at].read < number)
        serving->ahead_at++;
    if (serving->ahead_at == serving->ahead_count)
        look_ahead(serving, number, position);
    if (serving->ahead_at == serving->ahead_count || serving->ahead[serving->ahead_at].read != number)
        return NULL;
    return &serving->ahead[serving->ahead_at++];
}

/* Serve the sends that a read begins with; where the rest begins. */
static int64_t serve_read(Serving *serving, Py_ssize_t number)
{
    int64_t position = 0;
    const Frame *frame;
    while ((frame = next_frame(serving, number, position)) != NULL && serve_frame(serving, frame))
        position += 8 + frame->header_bytes + frame->body_bytes;
    PyErr_Clear(); /* what ended the run is met again on the general path */
    return position;
}

/* One read: its answers, and whether there is more in it, are noted; 0 with an error. */
static int take_read(Serving *serving, Py_ssize_t number, PyObject *answers, PyObject *rests)
{
    PyObject *read = PyList_GET_ITEM(serving->reads, number);
    serving->born_host = PyTuple_GET_ITEM(read, 1);
    serving->answers.used = 0;
    int64_t position = serve_read(serving, number);
    PyObject *answer = position ? PyBytes_FromStringAndSize((const char *)serving->answers.bytes, (Py_ssize_t)serving->answers.used)
                                : Py_NewRef(Py_None);
    PyObject *rest = position < PyBytes_GET_SIZE(PyTuple_GET_ITEM(read, 0)) ? Py_BuildValue("nL", number, (long long)position) : NULL;
    int noted = answer != NULL && PyList_Append(answers, answer) == 0 && !PyErr_Occurred()
        && (rest == NULL || PyList_Append(rests, rest) == 0);
    Py_XDECREF(answer);
    Py_XDECREF(rest);
    return noted;
}

static int are_times(PyObject *times)
{
    if (PyTuple_Check(times) && PyTuple_GET_SIZE(times) == 2)
        return 1;
    PyErr_SetString(PyExc_TypeError, "times are a first and a last one");
    return 0;
}

/* serve_sends(reads, context, room, times of signatures)
 *
 * Gives, when some send was served, for each read its answers or None,
 * (number, position) where there is more in one, how far the log is written, requests by code, and what to count. */
EXPORT(serve_sends)
{
    Serving serving = {0};
    Py_buffer view;
    if (check_count("serve_sends", count, 4) || !is_context(args[1]) || !is_room(args[2])
        || as_int64(PyTuple_GET_ITEM(args[2], ROOM_BASE), &serving.base)
        || as_int64(PyTuple_GET_ITEM(args[2], ROOM_START), &serving.wrote)
        || as_int64(PyTuple_GET_ITEM(args[2], ROOM_LIMIT), &serving.limit)
        || as_int64(PyTuple_GET_ITEM(args[2], ROOM_STORE_MS), &serving.store_ms)
        || as_int64(PyTuple_GET_ITEM(args[1], MAX_FRAME), &serving.max_frame)
        || as_int64(PyTuple_GET_ITEM(args[1], MAX_HEADER), &serving.max_header)
        || as_int64(PyTuple_GET_ITEM(args[1], MAX_BODY), &serving.max_body)
        || as_int64(PyTuple_GET_ITEM(args[1], MAX_RECORD), &serving.max_record) || !are_times(args[3])
        || as_int64(PyTuple_GET_ITEM(args[3], 0), &serving.times[0]) || as_int64(PyTuple_GET_ITEM(args[3], 1), &serving.times[1]))
        return NULL;
    serving.reads = args[0];
    serving.context = args[1];
    if (!are_reads(&serving, args[0]))
        return NULL;
    if (serving.base < 0 || serving.wrote < serving.base)
        return PyErr_Format(PyExc_ValueError, "serve_sends needs a file that can be written to");
    if (write_to(PyTuple_GET_ITEM(args[2], ROOM_VIEW), &view))
        return NULL;
    serving.queue_offsets = PyTuple_GET_ITEM(args[2], ROOM_QUEUE_OFFSETS);
    serving.answer_bytes = 512;
    for (int number = ANSWER_HEAD; number < CONTEXT_FIELDS; number++)
        serving.answer_bytes += (size_t)PyBytes_GET_SIZE(PyTuple_GET_ITEM(args[1], number));
    serving.log = view.buf;
    if (serving.limit < serving.wrote)
        serving.limit = serving.wrote;
    if (serving.limit - serving.base > view.len)
        serving.limit = serving.base + view.len;
    PyObject *answers = PyList_New(0), *rests = PyList_New(0), *made = NULL;
    serving.runs = PyList_New(0);
    int open = answers != NULL && rests != NULL && serving.runs != NULL;
    for (Py_ssize_t number = 0; open && number < PyList_GET_SIZE(args[0]); number++)
        open = take_read(&serving, number, answers, rests);
    PyBuffer_Release(&view);
    if (open && serving.sends + serving.batches == 0)
        made = Py_NewRef(Py_None);
    else if (open && end_run(&serving))
        made = Py_BuildValue("OOLLLO", answers, rests, (long long)serving.wrote, serving.sends, serving.batches, serving.runs);
    Py_XDECREF(answers);
    Py_XDECREF(rests);
    Py_XDECREF(serving.runs);
    PyMem_Free(serving.answers.bytes);
    for (int number = 0; number < HMAC_LANES; number++)
        PyMem_Free(serving.ahead[number].texts.bytes);
    return made;
}
