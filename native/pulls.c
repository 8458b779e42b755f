/* Pulls: the requests of a read, and the records they ask for.
 *
 * A reader asks for the same thing again and again, and only three numbers of its requests change. So the header of a pull
 * is not decoded here: it is walked through as far as it takes to cut the three out, and what is left is looked up among the
 * requests that Python has understood before. */
#include "binary.h"

#define ADDRESS_MAX (-(1LL << 31) - 1) /* codes up to here are addresses of extended units */
#define COPIED_BYTES (64 << 10)
#define MAX_DIGITS 18 /* fit 64 bits, whichever they are */

/* Reading */

typedef struct {
    int64_t start, end;
} Stretch;

/* What a read looks for and where it stops. */
typedef struct {
    int64_t max_messages, max_bytes, oldest, base, end, queue_offset;
    int32_t queue_id;
    int check_crc;
    const int32_t *codes; /* ascending; NULL: everything is wanted */
    Py_ssize_t code_count;
} Wanted;

/* What it found. */
typedef struct {
    int64_t looked, taken, total;
    Stretch *spans;
    Py_ssize_t span_count;
} Found;

static int has_code(const Wanted *wanted, int32_t code)
{
    Py_ssize_t low = 0, high = wanted->code_count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (wanted->codes[middle] < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < wanted->code_count && wanted->codes[low] == code;
}

static int is_there(const Wanted *wanted, const uint8_t *log, int64_t log_offset, int64_t size, int64_t number)
{
    if (size <= 0 || log_offset < wanted->base || wanted->end < size || log_offset > wanted->end - size)
        return 0;
    int64_t queue_offset = (int64_t)((uint64_t)wanted->queue_offset + (uint64_t)number);
    return !wanted->check_crc
        || is_sound(log + (log_offset - wanted->base), size, log_offset, &wanted->queue_id, queue_offset);
}

static void add(Found *found, int64_t log_offset, int64_t size)
{
    if (found->span_count && found->spans[found->span_count - 1].end == log_offset)
        found->spans[found->span_count - 1].end += size;
    else
        found->spans[found->span_count++] = (Stretch){log_offset, log_offset + size};
    found->taken++;
    found->total += size;
}

/* Everything from the first unit on, until it is enough; 0 when a record is odd. */
static int find_all(const uint8_t *units, int64_t count, const uint8_t *log, const Wanted *wanted, Found *found)
{
    for (const uint8_t *unit = units; found->taken < wanted->max_messages && found->taken < count; unit += UNIT_BYTES) {
        int64_t log_offset = get64(unit), size = get32(unit + 8);
        if (found->total && found->total + size > wanted->max_bytes)
            break;
        if (!is_there(wanted, log, log_offset, size, found->taken))
            return 0;
        add(found, log_offset, size);
    }
    found->looked = found->taken;
    return found->taken > 0;
}

/* What has one of the codes. The first record that is too much ends it, so it is looked at like the others. */
static int find_tagged(const uint8_t *units, int64_t count, const uint8_t *log, const Wanted *wanted, Found *found)
{
    int64_t number = 0, log_offset = 0;
    for (const uint8_t *unit = units; number < count; unit += UNIT_BYTES, number++) {
        int64_t code = get64(unit + 12), size = get32(unit + 8);
        log_offset = get64(unit);
        if (code <= ADDRESS_MAX)
            return 0;
        if (!has_code(wanted, (int32_t)(uint32_t)(uint64_t)code)) /* as Java, which casts */
            continue;
        if (log_offset < wanted->oldest || !is_there(wanted, log, log_offset, size, number))
            return 0;
        if (found->taken && (found->taken >= wanted->max_messages || found->total + size > wanted->max_bytes))
            break;
        add(found, log_offset, size);
    }
    found->looked = number;
    return log_offset >= wanted->oldest;
}

/* The records as buffers: slices of the log, or one copy when they lie scattered and are small. */
static PyObject *chunks_of(PyObject *view, const uint8_t *log, int64_t base, const Found *found)
{
    PyObject *chunks = PyList_New(0), *chunk;
    if (found->span_count > 1 && found->total <= COPIED_BYTES) {
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)found->total);
        uint8_t *at = bytes == NULL ? NULL : (uint8_t *)PyBytes_AS_STRING(bytes);
        for (Py_ssize_t number = 0; bytes != NULL && number < found->span_count; number++) {
            const Stretch *span = &found->spans[number];
            at = put_bytes(at, log + (span->start - base), (size_t)(span->end - span->start));
        }
        chunk = bytes == NULL ? NULL : PyMemoryView_FromObject(bytes);
        Py_XDECREF(bytes);
        if (chunks != NULL && (chunk == NULL || PyList_Append(chunks, chunk) < 0))
            Py_CLEAR(chunks);
        Py_XDECREF(chunk);
        return chunks;
    }
    for (Py_ssize_t number = 0; chunks != NULL && number < found->span_count; number++) {
        const Stretch *span = &found->spans[number];
        chunk = PySequence_GetSlice(view, (Py_ssize_t)(span->start - base), (Py_ssize_t)(span->end - base));
        if (chunk == NULL || PyList_Append(chunks, chunk) < 0)
            Py_CLEAR(chunks);
        Py_XDECREF(chunk);
    }
    return chunks;
}

static PyObject *find(const Py_buffer *units, PyObject *view, const Py_buffer *log, const Wanted *wanted)
{
    int64_t count = units->len / UNIT_BYTES;
    Found found = {0};
    PyObject *chunks = NULL;
    if (count && get64(units->buf) < wanted->oldest)
        Py_RETURN_NONE;
    found.spans = PyMem_Malloc((size_t)(count ? count : 1) * sizeof(Stretch));
    if (found.spans == NULL)
        return PyErr_NoMemory();
    int sound = wanted->codes == NULL ? find_all(units->buf, count, log->buf, wanted, &found)
                                      : find_tagged(units->buf, count, log->buf, wanted, &found);
    if (sound)
        chunks = chunks_of(view, log->buf, wanted->base, &found);
    PyMem_Free(found.spans);
    if (!sound)
        Py_RETURN_NONE;
    if (chunks == NULL)
        return NULL;
    return Py_BuildValue("LLLN", (long long)found.looked, (long long)found.taken, (long long)found.total, chunks);
}

/* sound_run(units, max_messages, max_bytes, view, base, end, queue_id, queue_offset, check_crc, codes, oldest)
 *
 * The records that units point at, as many as the limits allow; with `codes`, ascending numbers as int32 in the order of this
 * machine, those that have one of them: (units looked at, records, their bytes, them in buffers). None when one of them is not
 * sound, or not between `base`, where the view of the log begins, and `end`; when the first unit points before `oldest`, or,
 * with codes, a record or the last unit; and when a unit has an address instead of a code. */
EXPORT(sound_run)
{
    Wanted wanted = {0};
    Py_buffer units, log;
    PyObject *found = NULL;
    if (check_count("sound_run", count, 11) || as_int64(args[1], &wanted.max_messages) || as_int64(args[2], &wanted.max_bytes)
        || as_int64(args[4], &wanted.base) || as_int64(args[5], &wanted.end) || as_int32(args[6], &wanted.queue_id)
        || as_int64(args[7], &wanted.queue_offset) || as_int64(args[10], &wanted.oldest))
        return NULL;
    wanted.check_crc = PyObject_IsTrue(args[8]);
    if (args[9] != Py_None) {
        if (!PyBytes_Check(args[9]))
            return PyErr_Format(PyExc_TypeError, "codes are bytes");
        wanted.codes = (const int32_t *)(const void *)PyBytes_AS_STRING(args[9]);
        wanted.code_count = PyBytes_GET_SIZE(args[9]) / (Py_ssize_t)sizeof(int32_t);
    }
    if (read_from(args[0], &units))
        return NULL;
    if (read_from(args[3], &log) == 0) {
        if (wanted.base < 0 || wanted.base > INT64_MAX - log.len)
            wanted.base = wanted.end = 0; /* no log is that long: nothing is there */
        if (wanted.end > wanted.base + log.len)
            wanted.end = wanted.base + log.len;
        found = find(&units, args[3], &log, &wanted);
        PyBuffer_Release(&log);
    }
    PyBuffer_Release(&units);
    return found;
}

/* Requests */

enum { QUEUE_OFFSET, COMMIT_OFFSET, REQUEST_ID, NUMBERS };

/* A stretch of a header that is not the same in the next request. */
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
