/* Frames of the remoting protocol, cut and decoded in one pass.
 *
 * take_frames(data, position, max_frame_bytes, max_header_bytes, received, command) gives the commands of all complete
 * and plain frames from `position` on, and where the first other byte is. A frame that is cut short, too large, or whose header
 * is not written in the plain way every client does, ends the run: Python reads it, leniently or with an error. */
#include "binary.h"
#include "json.h"
#include "records.h"

static PyObject *languages[14];
static PyObject *other_language;
static PyObject *zero, *one;
#define COMMON_LANGUAGES "JAVA\0CPP\0DOTNET\0PYTHON\0DELPHI\0ERLANG\0RUBY\0OTHER\0HTTP\0GO\0PHP\0OMS\0RUST\0NODE_JS\0"

static int ready(void)
{
    if (zero != NULL)
        return 0;
    const char *name = COMMON_LANGUAGES;
    for (int number = 0; number < 14; number++, name += strlen(name) + 1)
        if ((languages[number] = PyUnicode_InternFromString(name)) == NULL)
            return -1;
    other_language = languages[7];
    one = PyLong_FromLong(1);
    zero = PyLong_FromLong(0);
    return zero == NULL || one == NULL ? -1 : 0;
}

void forget_header(Header *header)
{
    Py_CLEAR(header->ext);
    Py_CLEAR(header->remark);
    Py_CLEAR(header->language);
}

static PyObject *text_of(const uint8_t *bytes, Py_ssize_t size, uint8_t seen)
{
    if (seen & 0x80)
        return plain_text(bytes, size);
    if (size == 1)
        return PyUnicode_FromOrdinal(*bytes); /* one that exists already: the fields of a send have such names */
    PyObject *text = PyUnicode_New(size, 127);
    if (text != NULL && size)
        memcpy(PyUnicode_1BYTE_DATA(text), bytes, (size_t)size);
    return text;
}

/* A string with escapes, of which the closing quote is still to be found. */
static PyObject *take_escaped(Text *json, const uint8_t *start)
{
    uint8_t small[512];
    const uint8_t *at = start, *close = start;
    while (close < json->end && *close != '"')
        close += *close == '\\' ? 2 : 1;
    if (close >= json->end)
        return NULL;
    uint8_t *bytes = close - start <= (Py_ssize_t)sizeof small ? small : PyMem_Malloc((size_t)(close - start));
    if (bytes == NULL)
        return PyErr_NoMemory();
    uint8_t *out = bytes, seen = 0;
    PyObject *text = NULL;
    while (at < close) {
        if (*at == '\\') {
            uint8_t *before = out;
            at = unescape(at, close, &out);
            if (at == NULL)
                break;
            seen |= *before;
        } else if (*at < 0x20) {
            break;
        } else {
            seen |= *at;
            *out++ = *at++;
        }
    }
    if (at == close)
        text = text_of(bytes, out - bytes, seen);
    json->at = close + 1;
    if (bytes != small)
        PyMem_Free(bytes);
    return text;
}

/* A JSON string; NULL, mostly without an error, when it is not a plain one. */
static PyObject *take_string(Text *json)
{
    if (json->at >= json->end || *json->at != '"')
        return NULL;
    const uint8_t *start = json->at + 1, *at = start;
    uint8_t seen = 0;
    while (at < json->end && *at != '"') {
        if (*at == '\\')
            return take_escaped(json, start);
        if (*at < 0x20)
            return NULL;
        seen |= *at++;
    }
    if (at >= json->end)
        return NULL;
    json->at = at + 1;
    return text_of(start, at - start, seen);
}

static PyObject *take_fields(Text *json)
{
    if (!take(json, '{'))
        return NULL;
    PyObject *fields = PyDict_New();
    if (fields == NULL || take(json, '}'))
        return fields;
    do {
        PyObject *name = take_string(json), *value = NULL;
        if (name != NULL && take(json, ':'))
            value = take_string(json);
        int failed = value == NULL || PyDict_SetItem(fields, name, value) < 0;
        Py_XDECREF(name);
        Py_XDECREF(value);
        if (failed) {
            Py_DECREF(fields);
            return NULL;
        }
    } while (take(json, ','));
    if (!take(json, '}'))
        Py_CLEAR(fields);
    return fields;
}

#define IS(text) (size == sizeof(text) - 1 && memcmp(name, text, sizeof(text) - 1) == 0)

static int replace(PyObject **place, PyObject *value)
{
    Py_XSETREF(*place, value);
    return value != NULL;
}

/* The value of one member of a JSON header; 0 when it is not plain, or one that no client of ours sends. */
static int take_member(Text *json, Header *header, const uint8_t *name, Py_ssize_t size)
{
    if (IS("code"))
        return header->has_code = take_number(json, &header->numbers[CODE]);
    if (IS("flag"))
        return take_number(json, &header->numbers[FLAG]);
    if (IS("opaque"))
        return take_number(json, &header->numbers[OPAQUE]);
    if (IS("version"))
        return take_number(json, &header->numbers[VERSION]);
    if (IS("extFields"))
        return replace(&header->ext, take_fields(json));
    if (IS("remark"))
        return replace(&header->remark, take_string(json));
    if (IS("language") && json->end - json->at > 6 && memcmp(json->at, "\"JAVA\"", 6) == 0) {
        json->at += 6;
        return replace(&header->language, Py_NewRef(languages[0]));
    }
    if (IS("language"))
        return replace(&header->language, take_string(json));
    if (IS("serializeTypeCurrentRPC")) {
        PyObject *ignored = take_string(json);
        Py_XDECREF(ignored);
        return ignored != NULL;
    }
    return 0;
}

static int read_json(const uint8_t *bytes, Py_ssize_t size, Header *header)
{
    Text json = {bytes, bytes + size};
    if (!take(&json, '{'))
        return 0;
    do {
        if (json.at >= json.end || *json.at != '"')
            return 0;
        const uint8_t *name = ++json.at;
        while (json.at < json.end && *json.at != '"' && *json.at != '\\')
            json.at++;
        Py_ssize_t name_bytes = json.at - name;
        if (!take(&json, '"') || !take(&json, ':') || !take_member(&json, header, name, name_bytes))
            return 0;
    } while (take(&json, ','));
    if (!take(&json, '}') || json.at != json.end || !header->has_code)
        return 0;
    if (header->language == NULL)
        header->language = Py_NewRef(languages[0]);
    return 1;
}

static int read_fields(Span fields, PyObject *read)
{
    Span name, value;
    while (fields.size) {
        if (!take_field(&fields, &name, &value))
            return 0;
        if (!name.size)
            continue; /* a zero length reads as null in Java, so such an entry does not exist */
        if (!value.size)
            return 0; /* Python notes fields without a value, for signatures */
        PyObject *name_text = replaced_text(name.at, name.size);
        PyObject *value_text = replaced_text(value.at, value.size);
        int failed = name_text == NULL || value_text == NULL || PyDict_SetItem(read, name_text, value_text) < 0;
        Py_XDECREF(name_text);
        Py_XDECREF(value_text);
        if (failed)
            return 0;
    }
    return 1;
}

static int read_binary(const uint8_t *bytes, Py_ssize_t size, Header *header)
{
    Span remark, fields;
    if (!split_binary(bytes, size, &remark, &fields))
        return 0;
    header->numbers[CODE] = (int16_t)get16(bytes);
    header->language = Py_NewRef(bytes[2] < 14 ? languages[bytes[2]] : other_language);
    header->numbers[VERSION] = (int16_t)get16(bytes + 3);
    header->numbers[OPAQUE] = get32(bytes + 5);
    header->numbers[FLAG] = get32(bytes + 9);
    if (remark.size && (header->remark = replaced_text(remark.at, remark.size)) == NULL)
        return 0;
    return (header->ext = PyDict_New()) != NULL && read_fields(fields, header->ext);
}

/* type(code, ext, body, opaque, flag, remark, version, language, encoding) */
static PyObject *make_command(PyObject *type, Header *header, const uint8_t *body, Py_ssize_t body_bytes, PyObject *encoding)
{
    PyObject *numbers[NUMBERS] = {NULL}, *made = NULL;
    PyObject *stored = PyBytes_FromStringAndSize((const char *)body, body_bytes);
    int complete = stored != NULL;
    for (int number = 0; number < NUMBERS; number++)
        complete &= (numbers[number] = PyLong_FromLong(header->numbers[number])) != NULL;
    if (complete) {
        PyObject *fields[] = {
            numbers[CODE], header->ext ? header->ext : Py_None, stored, numbers[OPAQUE], numbers[FLAG],
            header->remark ? header->remark : Py_None, numbers[VERSION], header->language, encoding,
        };
        made = PyObject_Vectorcall(type, fields, 9, NULL);
    }
    for (int number = 0; number < NUMBERS; number++)
        Py_XDECREF(numbers[number]);
    Py_XDECREF(stored);
    return made;
}

int read_header(const uint8_t *frame, Py_ssize_t header_bytes, Header *header)
{
    *header = (Header){{0}, 0, NULL, NULL, NULL};
    if (ready())
        return 0;
    return frame[4] == 0 ? read_json(frame + 8, header_bytes, header)
        : frame[4] == 1 && read_binary(frame + 8, header_bytes, header);
}

int64_t frame_bytes(const uint8_t *frame, int64_t available, int64_t max_frame, int64_t max_header, int64_t *header_bytes)
{
    if (available < 8)
        return 0;
    int64_t length = (uint32_t)get32(frame);
    *header_bytes = get32(frame + 4) & 0xFFFFFF;
    if (length + 4 > max_frame || *header_bytes > length - 4 || *header_bytes > max_header || length > available - 4)
        return 0;
    return length + 4;
}

/* The command of a complete frame; NULL, mostly without an error, when its header is not plain. */
static PyObject *read_frame(const uint8_t *frame, Py_ssize_t header_bytes, int64_t body_bytes, PyObject *received,
                            PyObject *command)
{
    Header header;
    PyObject *made = NULL;
    if (read_header(frame, header_bytes, &header))
        made = make_command(frame[4] ? command : received, &header, frame + 8 + header_bytes, (Py_ssize_t)body_bytes,
                            frame[4] ? one : zero);
    forget_header(&header);
    return made;
}

EXPORT(take_frames)
{
    int64_t position, max_frame, max_header;
    Py_buffer data;
    if (check_count("take_frames", count, 6) || ready() || as_int64(args[1], &position) || as_int64(args[2], &max_frame)
        || as_int64(args[3], &max_header) || read_from(args[0], &data))
        return NULL;
    PyObject *commands = PyList_New(0);
    int64_t size, header_bytes;
    while (commands != NULL && position >= 0 && position <= data.len) {
        const uint8_t *frame = (const uint8_t *)data.buf + position;
        if ((size = frame_bytes(frame, data.len - position, max_frame, max_header, &header_bytes)) == 0)
            break;
        PyObject *made = read_frame(frame, (Py_ssize_t)header_bytes, size - 8 - header_bytes, args[4], args[5]);
        if (made == NULL)
            break;
        if (PyList_Append(commands, made) < 0)
            Py_CLEAR(commands);
        Py_DECREF(made);
        position += size;
    }
    PyBuffer_Release(&data);
    if (commands == NULL || PyErr_Occurred()) {
        Py_XDECREF(commands);
        return NULL;
    }
    return Py_BuildValue("NL", commands, (long long)position);
}
