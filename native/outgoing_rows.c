/* Rows of a table as the messages of batches, for the sink of Spark: columns in as Arrow has them, bytes of a batch out, no object
 * for a row. A row with anything odd is left to Python, which sends it or says what is wrong with it. */
#include "records.h"

enum { ITEM_BYTES = 22, ID_PREFIX = 22, ID_NUMBER = 10, ID_BYTES = ID_PREFIX + ID_NUMBER, MAX_PAIRS = 32 };

static const char id_name[] = "UNIQ_KEY\1", wait_pair[] = "WAIT\1true\2", key_name[] = "__SHARDINGKEY\1", keys_name[] = "KEYS\1",
                  tags_name[] = "TAGS\1", wait_name[] = "WAIT\1";

#define LENGTH(text) ((Py_ssize_t)sizeof(text) - 1)

/* A column of texts or bytes: whether a row has one, int32 offsets, one more than rows, and the bytes. */
typedef struct {
    Py_buffer valid, offsets, data;
    int is_there;
    Py_ssize_t rows;
} Texts;

typedef struct {
    Texts lists, names, values; /* `lists` has no data: its offsets count pairs */
} Maps;

enum { BODY, TAGS, KEYS, SHARDING_KEY, TEXT_COLUMNS };

typedef struct {
    Texts texts[TEXT_COLUMNS];
    Maps maps;
    Py_buffer flags, chosen;
} Columns;

static void release(Py_buffer *buffer)
{
    if (buffer->obj != NULL)
        PyBuffer_Release(buffer);
}

static void release_texts(Texts *texts)
{
    release(&texts->valid);
    release(&texts->offsets);
    release(&texts->data);
}

static int not_a_column(void)
{
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the buffers are no columns of as many rows");
    return -1;
}

/* A tuple (valid or None, offsets, data). */
static int read_texts(PyObject *column, Texts *texts)
{
    if (!PyTuple_Check(column) || PyTuple_GET_SIZE(column) != 3)
        return not_a_column();
    PyObject *valid = PyTuple_GET_ITEM(column, 0);
    if ((valid != Py_None && read_from(valid, &texts->valid)) || read_from(PyTuple_GET_ITEM(column, 1), &texts->offsets)
        || read_from(PyTuple_GET_ITEM(column, 2), &texts->data))
        return -1;
    texts->rows = texts->offsets.len / 4 - 1;
    texts->is_there = 1;
    return texts->rows < 0 || texts->offsets.len % 4 || (valid != Py_None && texts->valid.len != texts->rows) ? not_a_column() : 0;
}

/* A tuple (lists, names, values), or None. */
static int read_maps(PyObject *column, Maps *maps)
{
    if (column == Py_None)
        return 0;
    if (!PyTuple_Check(column) || PyTuple_GET_SIZE(column) != 3)
        return not_a_column();
    if (read_texts(PyTuple_GET_ITEM(column, 0), &maps->lists) || read_texts(PyTuple_GET_ITEM(column, 1), &maps->names)
        || read_texts(PyTuple_GET_ITEM(column, 2), &maps->values))
        return -1;
    return maps->names.rows != maps->values.rows ? not_a_column() : 0;
}

static void release_columns(Columns *columns)
{
    for (int each = 0; each < TEXT_COLUMNS; each++)
        release_texts(&columns->texts[each]);
    release_texts(&columns->maps.lists);
    release_texts(&columns->maps.names);
    release_texts(&columns->maps.values);
    release(&columns->flags);
    release(&columns->chosen);
}

/* A tuple (body, tags, keys, sharding key, properties, flags); all but the body may be None. */
static int read_columns(PyObject *given, PyObject *chosen, Columns *columns)
{
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != TEXT_COLUMNS + 2 || PyTuple_GET_ITEM(given, BODY) == Py_None)
        return not_a_column();
    for (int each = 0; each < TEXT_COLUMNS; each++) {
        PyObject *column = PyTuple_GET_ITEM(given, each);
        if (column != Py_None && read_texts(column, &columns->texts[each]))
            return -1;
    }
    PyObject *flags = PyTuple_GET_ITEM(given, TEXT_COLUMNS + 1);
    if (read_maps(PyTuple_GET_ITEM(given, TEXT_COLUMNS), &columns->maps) || (flags != Py_None && read_from(flags, &columns->flags))
        || read_from(chosen, &columns->chosen))
        return -1;
    Py_ssize_t rows = columns->texts[BODY].rows;
    int wrong = (columns->maps.lists.is_there && columns->maps.lists.rows != rows) || columns->chosen.len % 4
        || (columns->flags.obj != NULL && columns->flags.len != rows * 4);
    for (int each = 0; each < TEXT_COLUMNS; each++)
        wrong |= columns->texts[each].is_there && columns->texts[each].rows != rows;
    return wrong ? not_a_column() : 0;
}

static inline int32_t number_at(const Py_buffer *numbers, Py_ssize_t row)
{
    int32_t value;
    memcpy(&value, (const uint8_t *)numbers->buf + row * 4, 4);
    return value;
}

/* Where a row's pairs begin and end; -1 when that is not inside the other columns. */
static int list_at(const Texts *texts, Py_ssize_t row, Py_ssize_t limit, Py_ssize_t *begin, Py_ssize_t *end)
{
    *begin = *end = 0;
    if (!texts->is_there || (texts->valid.obj != NULL && !((const uint8_t *)texts->valid.buf)[row]))
        return 0;
    *begin = number_at(&texts->offsets, row), *end = number_at(&texts->offsets, row + 1);
    return *begin < 0 || *begin > *end || *end > limit ? not_a_column() : 1;
}

/* 1 and the bytes of a row, 0 when it has none. */
static int span_at(const Texts *texts, Py_ssize_t row, Span *span)
{
    Py_ssize_t begin, end;
    int found = list_at(texts, row, texts->data.len, &begin, &end);
    *span = found > 0 ? (Span){(const uint8_t *)texts->data.buf + begin, end - begin} : (Span){NULL, 0};
    return found;
}

/* Whether a text can be the name or value of a property. */
static int can_travel(Span span)
{
    uint8_t odd = 0;
    for (Py_ssize_t at = 0; at < span.size; at++)
        odd |= span.at[at] == 1 || span.at[at] == 2;
    return span.size > 0 && span.size <= MAX_PROPERTIES_BYTES && !odd && is_utf8(span.at, span.size);
}

static int is_named(Span span, const char *name, Py_ssize_t size)
{
    return span.size == size && memcmp(span.at, name, (size_t)size) == 0;
}

#define IS(span, name) is_named(span, name, LENGTH(name) - 1)

/* A row's message; `id` is that of its properties, if they have one. */
typedef struct {
    Span body, tags, keys, sharding_key, id;
    Span names[MAX_PAIRS + 3], values[MAX_PAIRS + 3]; /* with those that columns set */
    int pairs, waits;
    int64_t properties_bytes;
} Row;

/* The last value of a name counts, at the place of the first: as in a dict. */
static void set_pair(Row *row, Span name, Span value)
{
    int pair = 0;
    while (pair < row->pairs && !is_named(name, (const char *)row->names[pair].at, row->names[pair].size))
        pair++;
    row->names[pair] = name, row->values[pair] = value;
    row->pairs += pair == row->pairs;
}

/* 1 for pairs that can travel, 0 for odd ones. */
static int read_pairs(const Maps *maps, Py_ssize_t at, Row *row)
{
    Py_ssize_t begin, end;
    int found = list_at(&maps->lists, at, maps->names.rows, &begin, &end);
    if (found <= 0)
        return found < 0 ? -1 : 1;
    if (end - begin > MAX_PAIRS)
        return 0;
    for (Py_ssize_t pair = begin; pair < end; pair++) {
        Span name, value;
        int has_name = span_at(&maps->names, pair, &name), has_value = span_at(&maps->values, pair, &value);
        if (has_name < 0 || has_value < 0)
            return -1;
        if (!has_name || !has_value || !can_travel(name) || !can_travel(value))
            return 0;
        if (IS(name, id_name))
            row->id = value;
        else if (IS(name, wait_name))
            row->waits = is_named(value, "true", 4);
        else
            set_pair(row, name, value);
    }
    return row->waits;
}

static Span name_of(const char *name)
{
    return (Span){(const uint8_t *)name, (Py_ssize_t)strlen(name) - 1};
}

/* 1 for a plain row, 0 for an odd one, -1 with an error. */
static int read_row(const Columns *columns, Py_ssize_t at, Row *row)
{
    int has_body = span_at(&columns->texts[BODY], at, &row->body), has_tags = span_at(&columns->texts[TAGS], at, &row->tags),
        has_keys = span_at(&columns->texts[KEYS], at, &row->keys),
        has_key = span_at(&columns->texts[SHARDING_KEY], at, &row->sharding_key);
    if (has_body < 0 || has_tags < 0 || has_keys < 0 || has_key < 0)
        return -1;
    row->id = (Span){NULL, 0};
    row->pairs = 0;
    row->waits = 1;
    if (row->body.size == 0 || (row->tags.size > 0 && !can_travel(row->tags)) || (row->keys.size > 0 && !can_travel(row->keys))
        || (has_key && !can_travel(row->sharding_key)))
        return 0;
    int plain = read_pairs(&columns->maps, at, row);
    if (plain <= 0)
        return plain;
    if (has_key)
        set_pair(row, name_of(key_name), row->sharding_key);
    if (row->keys.size > 0)
        set_pair(row, name_of(keys_name), row->keys);
    if (row->tags.size > 0)
        set_pair(row, name_of(tags_name), row->tags);
    row->properties_bytes = LENGTH(id_name) + 1 + LENGTH(wait_pair) + (row->id.at == NULL ? ID_BYTES : row->id.size);
    for (int pair = 0; pair < row->pairs; pair++)
        row->properties_bytes += row->names[pair].size + row->values[pair].size + 2;
    return row->properties_bytes <= MAX_PROPERTIES_BYTES;
}

static uint8_t *put_property(uint8_t *at, const void *name, Py_ssize_t name_bytes, Span value)
{
    at = put_bytes(put_bytes(at, name, (size_t)name_bytes), value.at, (size_t)value.size);
    *at = 2;
    return at + 1;
}

static uint8_t *put_properties(uint8_t *at, const Row *row, const char *prefix, uint64_t number)
{
    uint8_t made[ID_BYTES];
    memcpy(made, prefix, ID_PREFIX);
    for (int digit = ID_BYTES - 1; digit >= ID_PREFIX; digit--, number >>= 4)
        made[digit] = (uint8_t)"0123456789ABCDEF"[number & 15];
    at = put_property(at, id_name, LENGTH(id_name), row->id.at == NULL ? (Span){made, ID_BYTES} : row->id);
    at = put_bytes(at, wait_pair, sizeof wait_pair - 1);
    for (int pair = 0; pair < row->pairs; pair++) {
        at = put_bytes(at, row->names[pair].at, (size_t)row->names[pair].size);
        at = put_property(at, "\1", 1, row->values[pair]);
    }
    return at;
}

static uint8_t *put_item(uint8_t *at, const Row *row, int32_t flag, const char *prefix, uint64_t number)
{
    at = put32(put32(put32(at, (uint32_t)(ITEM_BYTES + row->body.size + row->properties_bytes)), 0), 0);
    at = put32(put32(at, (uint32_t)flag), (uint32_t)row->body.size);
    at = put_bytes(at, row->body.at, (size_t)row->body.size);
    return put_properties(put16(at, (uint16_t)row->properties_bytes), row, prefix, number);
}

/* What to write: the chosen rows from one on, how much of them, and what their ids are made of. */
typedef struct {
    int64_t from, most_rows, most_bytes, first_number;
    const char *prefix;
} Order;

static PyObject *encode_chosen(const Columns *columns, const Order *order)
{
    PyObject *items = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)order->most_bytes);
    if (items == NULL)
        return NULL;
    uint8_t *start = (uint8_t *)PyBytes_AS_STRING(items), *at = start;
    int64_t rows = columns->chosen.len / 4, done = 0, bodies = 0;
    for (; order->from + done < rows && done < order->most_rows; done++) {
        Py_ssize_t number = number_at(&columns->chosen, (Py_ssize_t)(order->from + done));
        Row row;
        int plain = number < 0 || number >= columns->texts[BODY].rows ? not_a_column() : read_row(columns, number, &row);
        if (plain < 0) {
            Py_DECREF(items);
            return NULL;
        }
        if (!plain || ITEM_BYTES + row.body.size + row.properties_bytes > order->most_bytes - (at - start))
            break;
        int32_t flag = columns->flags.obj == NULL ? 0 : number_at(&columns->flags, number);
        at = put_item(at, &row, flag, order->prefix, (uint64_t)(order->first_number + number));
        bodies += row.body.size;
    }
    if (_PyBytes_Resize(&items, at - start))
        return NULL;
    return Py_BuildValue("NLL", items, (long long)done, (long long)bodies);
}

EXPORT(encode_rows)
{
    Columns columns = {0};
    Order order;
    Py_ssize_t prefix_bytes;
    if (check_count("encode_rows", count, 7) || as_int64(args[2], &order.from) || as_int64(args[3], &order.most_rows)
        || as_int64(args[4], &order.most_bytes) || (order.prefix = PyUnicode_AsUTF8AndSize(args[5], &prefix_bytes)) == NULL
        || as_int64(args[6], &order.first_number))
        return NULL;
    PyObject *done = NULL;
    order.most_bytes = order.most_bytes < 0 ? 0 : order.most_bytes;
    if (prefix_bytes != ID_PREFIX || order.from < 0 || order.most_bytes > INT32_MAX || order.first_number < 0
        || order.first_number >> 39)
        PyErr_SetString(PyExc_ValueError, "the numbers of rows and bytes are out of range");
    else if (read_columns(args[0], args[1], &columns) == 0)
        done = encode_chosen(&columns, &order);
    release_columns(&columns);
    return done;
}

EXPORT(text_hashes)
{
    Texts texts = {0};
    if (check_count("text_hashes", count, 1))
        return NULL;
    PyObject *hashes = read_texts(args[0], &texts) ? NULL : PyBytes_FromStringAndSize(NULL, texts.rows * 4);
    for (Py_ssize_t row = 0; hashes != NULL && row < texts.rows; row++) {
        Span span;
        uint32_t hash = 0;
        if (span_at(&texts, row, &span) < 0 || hash_span(&hash, span))
            Py_CLEAR(hashes);
        else
            memcpy(PyBytes_AS_STRING(hashes) + row * 4, &hash, 4);
    }
    release_texts(&texts);
    return hashes;
}
