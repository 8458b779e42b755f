/* Reading where nothing is wrong: the records that units of a consume queue point at, each checked. */
#include "common.h"

#define ADDRESS_MAX (-(1LL << 31) - 1) /* codes up to here are addresses of extended units */
#define COPIED_BYTES (64 << 10)

typedef struct {
    int64_t start, end;
} Piece;

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
    Piece *spans;
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
        found->spans[found->span_count++] = (Piece){log_offset, log_offset + size};
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

/* What has one of the codes, until it is enough; 0 when a record is odd. */
static int find_tagged(const uint8_t *units, int64_t count, const uint8_t *log, const Wanted *wanted, Found *found)
{
    int64_t number = 0, last = 0;
    for (const uint8_t *unit = units; number < count; unit += UNIT_BYTES, number++) {
        int64_t log_offset = get64(unit), size = get32(unit + 8), code = get64(unit + 12);
        if (code <= ADDRESS_MAX)
            return 0;
        if (has_code(wanted, (int32_t)(uint32_t)(uint64_t)code)) { /* as Java, which casts */
            if (log_offset < wanted->oldest)
                return 0;
            if (found->taken && (found->taken >= wanted->max_messages || found->total + size > wanted->max_bytes))
                break;
            if (!is_there(wanted, log, log_offset, size, number))
                return 0;
            add(found, log_offset, size);
        }
        last = log_offset;
    }
    found->looked = number;
    return last >= wanted->oldest;
}

/* The records as buffers: slices of the log, or one copy when they lie scattered and are small. */
static PyObject *chunks_of(PyObject *view, const uint8_t *log, int64_t base, const Found *found)
{
    PyObject *chunks = PyList_New(0), *chunk;
    if (found->span_count > 1 && found->total <= COPIED_BYTES) {
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)found->total);
        uint8_t *at = bytes == NULL ? NULL : (uint8_t *)PyBytes_AS_STRING(bytes);
        for (Py_ssize_t number = 0; bytes != NULL && number < found->span_count; number++) {
            const Piece *span = &found->spans[number];
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
        const Piece *span = &found->spans[number];
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
    found.spans = PyMem_Malloc((size_t)(count ? count : 1) * sizeof(Piece));
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

/* verified_run(units, max_messages, max_bytes, view, base, end, queue_id, queue_offset, check_crc, codes, oldest)
 *
 * The records that units point at, as many as the limits allow; with `codes`, ascending numbers as int32 in the order of this
 * machine, those that have one of them: (units looked at, records, their bytes, them in buffers). None when one of them is not
 * sound, or not between `base`, where the view of the log begins, and `end`; when the first unit points before `oldest`, or,
 * with codes, a record or the last unit; and when a unit has an address instead of a code. */
EXPORT(verified_run)
{
    Wanted wanted = {0};
    Py_buffer units, log;
    PyObject *found = NULL;
    if (check_count("verified_run", count, 11) || as_int64(args[1], &wanted.max_messages) || as_int64(args[2], &wanted.max_bytes)
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
