/* Many records as columns, for the data sources: where they and their parts are, bodies checked, texts laid end to end, and
 * properties taken apart. What comes back are the bytes of numpy and Arrow arrays, in the processor's order. */
#include "common.h"

enum { HEAD_FIELDS = 48, TAIL_FIELDS = 16, MAX_PAIRS = 64, MAX_NAMES = 8 };

/* An array that grows to its end and is then cut to what it holds. There is room for a `WORD` more than it will hold. */
typedef struct {
    PyObject *object;
    uint8_t *at;
} Array;

enum { WORD = 16 };

static int array_ready(Array *array, int64_t most_bytes)
{
    array->object = PyBytes_FromStringAndSize(NULL, most_bytes + WORD);
    array->at = array->object == NULL ? NULL : (uint8_t *)PyBytes_AS_STRING(array->object);
    return array->object == NULL ? -1 : 0;
}

static inline void add_bytes(Array *array, const void *from, int64_t size)
{
    memcpy(array->at, from, (size_t)size);
    array->at += size;
}

static inline void add_int64(Array *array, int64_t value) { add_bytes(array, &value, 8); }
static inline void add_int32(Array *array, int32_t value) { add_bytes(array, &value, 4); }

static int64_t array_bytes(const Array *array) { return array->at - (uint8_t *)PyBytes_AS_STRING(array->object); }

static int array_done(Array *array)
{
    return _PyBytes_Resize(&array->object, (Py_ssize_t)array_bytes(array));
}

static PyObject *arrays_done(Array *arrays, int number)
{
    int failed = 0;
    for (int each = 0; each < number; each++)
        failed |= arrays[each].object == NULL || array_done(&arrays[each]);
    PyObject *found = failed ? NULL : PyTuple_New(number);
    for (int each = 0; each < number; each++) {
        if (found == NULL)
            Py_XDECREF(arrays[each].object);
        else
            PyTuple_SET_ITEM(found, each, arrays[each].object);
    }
    return found;
}

/* Places in a buffer: arrays of begins and ends, as many of both. */
typedef struct {
    Py_buffer buffer, begins, ends;
    Py_ssize_t count;
    int64_t total;
} Stretches;

static inline int64_t begin_of(const Stretches *all, Py_ssize_t row)
{
    int64_t value;
    memcpy(&value, (const uint8_t *)all->begins.buf + row * 8, 8);
    return value;
}

static inline int64_t end_of(const Stretches *all, Py_ssize_t row)
{
    int64_t value;
    memcpy(&value, (const uint8_t *)all->ends.buf + row * 8, 8);
    return value;
}

static void release_stretches(Stretches *all)
{
    PyBuffer_Release(&all->buffer);
    PyBuffer_Release(&all->begins);
    PyBuffer_Release(&all->ends);
}

static int check_stretches(Stretches *all)
{
    all->count = all->begins.len / 8;
    all->total = 0;
    int wrong = all->begins.len % 8 || all->ends.len != all->begins.len;
    for (Py_ssize_t row = 0; !wrong && row < all->count; row++) {
        int64_t begin = begin_of(all, row), end = end_of(all, row);
        wrong = begin < 0 || begin > end || end > all->buffer.len || end - begin > INT32_MAX - all->total;
        all->total += wrong ? 0 : end - begin;
    }
    if (!wrong)
        return 0;
    PyErr_SetString(PyExc_ValueError, "stretches lie in their buffer and hold less than 2 GiB");
    release_stretches(all);
    return -1;
}

static int read_stretches(PyObject *const *args, Stretches *all)
{
    if (read_from(args[0], &all->buffer))
        return -1;
    if (read_from(args[1], &all->begins)) {
        PyBuffer_Release(&all->buffer);
        return -1;
    }
    if (read_from(args[2], &all->ends)) {
        PyBuffer_Release(&all->buffer);
        PyBuffer_Release(&all->begins);
        return -1;
    }
    return check_stretches(all);
}

typedef struct {
    int32_t sys_flag;
    int64_t store_host_at, body_at, topic_at, topic_end, end;
} Parts;

/* Whether a sound record begins at `start`, and where its parts are. */
static int find_parts(const uint8_t *bytes, int64_t length, int64_t start, const int64_t *log_offset, Parts *parts)
{
    if (start > length - MIN_RECORD_BYTES)
        return 0;
    const uint8_t *record = bytes + start;
    int32_t size = get32(record), magic = get32(record + MAGIC_AT);
    if (size < MIN_RECORD_BYTES || size > length - start || (magic != MAGIC_V1 && magic != MAGIC_V2))
        return 0;
    if (log_offset != NULL && (uint64_t)get64(record + LOG_OFFSET_AT) != (uint64_t)*log_offset + (uint64_t)start)
        return 0;
    int64_t end = start + size;
    parts->sys_flag = get32(record + SYS_FLAG_AT);
    parts->store_host_at = start + (parts->sys_flag & BORN_IPV6 ? 76 : 64);
    parts->body_at = start + head_bytes(parts->sys_flag);
    if (parts->body_at > end - 3)
        return 0;
    int64_t body_bytes = get32(bytes + parts->body_at - 4);
    if (body_bytes < 0 || body_bytes > end - 3 - parts->body_at)
        return 0;
    int64_t size_at = parts->body_at + body_bytes;
    int is_v1 = magic == MAGIC_V1;
    int64_t topic_bytes = is_v1 ? bytes[size_at] : (int16_t)get16(bytes + size_at);
    parts->topic_at = size_at + (is_v1 ? 1 : 2);
    parts->topic_end = parts->topic_at + topic_bytes;
    parts->end = end;
    if (topic_bytes < 0 || parts->topic_end > end - 2)
        return 0;
    return (int16_t)get16(bytes + parts->topic_end) == end - parts->topic_end - 2;
}

enum { STARTS, HEADS, STORE_TIMES, TAILS, SYS_FLAGS, STORE_HOSTS, BODIES, TOPICS, TOPIC_ENDS, ENDS, LOCATED };

static const int located_bytes[LOCATED] = {8, HEAD_FIELDS, 8, TAIL_FIELDS, 4, 8, 8, 8, 8, 8};

static void add_located(Array *arrays, const uint8_t *bytes, int64_t start, const Parts *parts)
{
    add_int64(&arrays[STARTS], start);
    add_bytes(&arrays[HEADS], bytes + start, HEAD_FIELDS);
    add_bytes(&arrays[STORE_TIMES], bytes + parts->store_host_at - 8, 8);
    add_bytes(&arrays[TAILS], bytes + parts->body_at - TAIL_FIELDS, TAIL_FIELDS);
    add_int32(&arrays[SYS_FLAGS], parts->sys_flag);
    add_int64(&arrays[STORE_HOSTS], parts->store_host_at);
    add_int64(&arrays[BODIES], parts->body_at);
    add_int64(&arrays[TOPICS], parts->topic_at);
    add_int64(&arrays[TOPIC_ENDS], parts->topic_end);
    add_int64(&arrays[ENDS], parts->end);
}

/* locate_run(buffer, log_offset): the arrays of a RecordTable for the sound records the buffer begins with; `log_offset` is that
 * of its first byte, or None. */
EXPORT(locate_run)
{
    int64_t log_offset = 0, start = 0;
    Py_buffer buffer;
    if (check_count("locate_run", count, 2) || (args[1] != Py_None && as_int64(args[1], &log_offset))
        || read_from(args[0], &buffer))
        return NULL;
    Array arrays[LOCATED] = {{NULL, NULL}};
    int failed = 0;
    for (int each = 0; each < LOCATED; each++)
        failed |= array_ready(&arrays[each], buffer.len / MIN_RECORD_BYTES * located_bytes[each]);
    Parts parts;
    while (!failed && find_parts(buffer.buf, buffer.len, start, args[1] == Py_None ? NULL : &log_offset, &parts)) {
        add_located(arrays, buffer.buf, start, &parts);
        start = parts.end;
    }
    PyBuffer_Release(&buffer);
    return arrays_done(arrays, LOCATED);
}

/* wrong_bodies(buffer, begins, ends, checksums): the numbers of the bodies that do not match theirs. */
EXPORT(wrong_bodies)
{
    Stretches bodies;
    Py_buffer checksums;
    if (check_count("wrong_bodies", count, 4) || read_from(args[3], &checksums))
        return NULL;
    if (read_stretches(args, &bodies)) {
        PyBuffer_Release(&checksums);
        return NULL;
    }
    PyObject *wrong = NULL;
    if (checksums.len != bodies.count * 4)
        PyErr_SetString(PyExc_ValueError, "every body has a checksum");
    else
        wrong = PyList_New(0);
    for (Py_ssize_t row = 0; wrong != NULL && row < bodies.count; row++) {
        uint32_t expected;
        int64_t begin = begin_of(&bodies, row);
        memcpy(&expected, (const uint8_t *)checksums.buf + row * 4, 4);
        uint32_t found = crc32_of((const uint8_t *)bodies.buffer.buf + begin, (size_t)(end_of(&bodies, row) - begin));
        if ((found & 0x7FFFFFFF) == expected)
            continue;
        PyObject *number = PyLong_FromSsize_t(row);
        if (number == NULL || PyList_Append(wrong, number) < 0)
            Py_CLEAR(wrong);
        Py_XDECREF(number);
    }
    release_stretches(&bodies);
    PyBuffer_Release(&checksums);
    return wrong;
}

/* Texts laid end to end, as Arrow has them: 32-bit offsets and bytes. */
typedef struct {
    Array offsets, bytes;
    int64_t count;
} Texts;

static int texts_ready(Texts *texts, int64_t most, int64_t most_bytes)
{
    texts->count = 0;
    if (array_ready(&texts->offsets, (most + 1) * 4) || array_ready(&texts->bytes, most_bytes))
        return -1;
    add_int32(&texts->offsets, 0);
    return 0;
}

/* A text of a buffer that goes on to `limit`: most are short, and copying a whole word is quicker than counting bytes. */
static inline void add_text(Texts *texts, const uint8_t *from, int64_t size, const uint8_t *limit)
{
    if (size <= WORD && limit - from >= WORD) {
        memcpy(texts->bytes.at, from, WORD);
        texts->bytes.at += size;
    } else {
        add_bytes(&texts->bytes, from, size);
    }
    add_int32(&texts->offsets, (int32_t)array_bytes(&texts->bytes));
    texts->count++;
}

static PyObject *texts_done(Texts *texts)
{
    Array both[2] = {texts->offsets, texts->bytes};
    return arrays_done(both, 2);
}

/* lay_out(buffer, begins, ends): the stretches laid end to end: (offsets, bytes). */
EXPORT(lay_out)
{
    Stretches all;
    Texts texts = {{NULL, NULL}, {NULL, NULL}, 0};
    if (check_count("lay_out", count, 3) || read_stretches(args, &all))
        return NULL;
    const uint8_t *limit = (const uint8_t *)all.buffer.buf + all.buffer.len;
    if (texts_ready(&texts, all.count, all.total) == 0) {
        for (Py_ssize_t row = 0; row < all.count; row++) {
            int64_t begin = begin_of(&all, row);
            add_text(&texts, (const uint8_t *)all.buffer.buf + begin, end_of(&all, row) - begin, limit);
        }
    }
    release_stretches(&all);
    return texts_done(&texts);
}

typedef struct {
    const uint8_t *name, *value;
    int64_t name_bytes, value_bytes;
    int column; /* which of the wanted names it is, or -1 */
} Pair;

/* The pairs of a text; and, while the next one is read, its names, which are mostly the same. */
typedef struct {
    Pair pairs[MAX_PAIRS];
    int count;
} Row;

typedef struct {
    const uint8_t *names[MAX_NAMES];
    Py_ssize_t sizes[MAX_NAMES];
    Texts texts[MAX_NAMES];
    Array present[MAX_NAMES];
    int count;
} Wanted;

static inline const uint8_t *separator_from(const uint8_t *at, const uint8_t *end)
{
    while (at < end && (uint8_t)(*at - 1) > 1)
        at++;
    return at;
}

static int is_same_name(const Pair *pair, const uint8_t *at, const uint8_t *end)
{
    return pair->name_bytes < end - at && at[pair->name_bytes] == 1 && memcmp(at, pair->name, (size_t)pair->name_bytes) == 0;
}

/* 1 when names are those of the row before, 0 when they are others, -1 when the text is not even. */
static int split_text(Row *row, const uint8_t *at, const uint8_t *end)
{
    int number = 0, same = 1;
    for (; at < end; number++) {
        if (number == MAX_PAIRS)
            return -1;
        Pair *pair = &row->pairs[number];
        if (!same || number >= row->count || !is_same_name(pair, at, end)) {
            const uint8_t *name_end = separator_from(at, end);
            if (name_end == at || name_end == end || *name_end != 1)
                return -1;
            pair->name_bytes = name_end - at;
            same = 0;
        }
        pair->name = at;
        pair->value = at + pair->name_bytes + 1;
        at = separator_from(pair->value, end);
        if (at == pair->value || at == end || *at != 2)
            return -1;
        pair->value_bytes = at - pair->value;
        at++;
    }
    same = same && number == row->count;
    row->count = number;
    return same;
}

/* Find the wanted names in a row of others than before; -1 when one is there twice. */
static int know_names(Row *row, const Wanted *wanted)
{
    for (int number = 0; number < row->count; number++) {
        Pair *pair = &row->pairs[number];
        for (int other = 0; other < number; other++)
            if (row->pairs[other].name_bytes == pair->name_bytes
                && memcmp(row->pairs[other].name, pair->name, (size_t)pair->name_bytes) == 0)
                return -1;
        pair->column = -1;
        for (int column = 0; column < wanted->count; column++)
            if (wanted->sizes[column] == pair->name_bytes
                && memcmp(wanted->names[column], pair->name, (size_t)pair->name_bytes) == 0)
                pair->column = column;
    }
    return 0;
}

/* Whether a text is even: pairs with both separators, no name twice, UTF-8. */
static int read_even(Row *row, const uint8_t *text, int64_t size, const Wanted *wanted)
{
    int same = split_text(row, text, text + size);
    if (same < 0 || (same == 0 && know_names(row, wanted) < 0) || !is_utf8(text, size)) {
        row->count = 0;
        return 0;
    }
    return 1;
}

static void add_wanted(Wanted *wanted, const Row *row, const uint8_t *limit)
{
    int64_t before = wanted->count ? wanted->texts[0].count : 0;
    for (int number = 0; number < row->count; number++) {
        const Pair *pair = &row->pairs[number];
        if (pair->column < 0)
            continue;
        add_text(&wanted->texts[pair->column], pair->value, pair->value_bytes, limit);
        *wanted->present[pair->column].at++ = 1;
    }
    for (int column = 0; column < wanted->count; column++) {
        if (wanted->texts[column].count > before)
            continue;
        add_text(&wanted->texts[column], limit, 0, limit);
        *wanted->present[column].at++ = 0;
    }
}

typedef struct {
    int wanted;
    Array firsts;
    Texts names, values;
} Maps;

static void add_map(Maps *maps, const Row *row, const uint8_t *limit)
{
    for (int number = 0; number < row->count; number++) {
        const Pair *pair = &row->pairs[number];
        add_text(&maps->names, pair->name, pair->name_bytes, limit);
        add_text(&maps->values, pair->value, pair->value_bytes, limit);
    }
    add_int32(&maps->firsts, (int32_t)maps->names.count);
}

static int maps_ready(Maps *maps, const Stretches *texts)
{
    int64_t most = maps->wanted ? texts->total / 4 : 0, bytes = maps->wanted ? texts->total : 0;
    if (array_ready(&maps->firsts, (maps->wanted ? texts->count + 1 : 1) * 4) || texts_ready(&maps->names, most, bytes)
        || texts_ready(&maps->values, most, bytes))
        return -1;
    add_int32(&maps->firsts, 0);
    return 0;
}

static int wanted_ready(Wanted *wanted, PyObject *names, const Stretches *texts)
{
    for (int column = 0; column < PyTuple_GET_SIZE(names); column++) {
        PyObject *name = PyTuple_GET_ITEM(names, column);
        wanted->names[column] = (const uint8_t *)PyBytes_AS_STRING(name);
        wanted->sizes[column] = PyBytes_GET_SIZE(name);
        wanted->count = column + 1;
        if (texts_ready(&wanted->texts[column], texts->count, texts->total)
            || array_ready(&wanted->present[column], texts->count))
            return -1;
    }
    return 0;
}

static PyObject *wanted_done(Wanted *wanted)
{
    PyObject *found = PyList_New(0);
    for (int column = 0; column < wanted->count; column++) {
        Array three[3] = {wanted->texts[column].offsets, wanted->texts[column].bytes, wanted->present[column]};
        PyObject *one = arrays_done(three, 3);
        if (one == NULL || found == NULL || PyList_Append(found, one) < 0)
            Py_CLEAR(found);
        Py_XDECREF(one);
    }
    return found;
}

static PyObject *maps_done(Maps *maps)
{
    Array five[5] = {maps->firsts, maps->names.offsets, maps->names.bytes, maps->values.offsets, maps->values.bytes};
    return arrays_done(five, 5);
}

static PyObject *add_odd(PyObject *odd, Py_ssize_t row)
{
    PyObject *number = PyLong_FromSsize_t(row);
    if (number == NULL || PyList_Append(odd, number) < 0)
        Py_CLEAR(odd);
    Py_XDECREF(number);
    return odd;
}

/* take_properties(buffer, begins, ends, names, with_maps): of the texts that are even
 * (numbers of the others, arrays of the maps, arrays of a column for each name). */
EXPORT(take_properties)
{
    Stretches texts;
    int with_maps;
    if (check_count("take_properties", count, 5) || (with_maps = PyObject_IsTrue(args[4])) < 0)
        return NULL;
    int fits = PyTuple_Check(args[3]) && PyTuple_GET_SIZE(args[3]) <= MAX_NAMES;
    for (Py_ssize_t column = 0; fits && column < PyTuple_GET_SIZE(args[3]); column++)
        fits = PyBytes_Check(PyTuple_GET_ITEM(args[3], column));
    if (!fits)
        return PyErr_Format(PyExc_TypeError, "names are a tuple of at most %d bytes objects", MAX_NAMES);
    if (read_stretches(args, &texts))
        return NULL;
    Wanted wanted = {.count = 0};
    Maps maps = {.wanted = with_maps};
    Row row = {.count = 0};
    const uint8_t *limit = (const uint8_t *)texts.buffer.buf + texts.buffer.len;
    PyObject *odd = PyList_New(0);
    if (maps_ready(&maps, &texts) || wanted_ready(&wanted, args[3], &texts))
        Py_CLEAR(odd);
    for (Py_ssize_t number = 0; odd != NULL && number < texts.count; number++) {
        int64_t begin = begin_of(&texts, number), size = end_of(&texts, number) - begin;
        if (!read_even(&row, (const uint8_t *)texts.buffer.buf + begin, size, &wanted)) {
            odd = PyErr_Occurred() ? (Py_DECREF(odd), NULL) : add_odd(odd, number);
            continue;
        }
        add_wanted(&wanted, &row, limit);
        if (maps.wanted)
            add_map(&maps, &row, limit);
    }
    release_stretches(&texts);
    PyObject *of_maps = maps_done(&maps), *of_names = wanted_done(&wanted);
    if (odd != NULL && of_maps != NULL && of_names != NULL)
        return Py_BuildValue("NNN", odd, of_maps, of_names);
    Py_XDECREF(odd);
    Py_XDECREF(of_maps);
    Py_XDECREF(of_names);
    return NULL;
}
