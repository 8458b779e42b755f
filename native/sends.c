/* A send of one message in the spelling of 310, checked and completed as a broker does it, when nothing about it is special. */
#include "sends.h"

static const char *const special_names[] = {
    "POP_CK", "CLUSTER", "MSG_REGION", "TRACE_ON", "DELAY", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TRAN_MSG",
};
#define SPECIAL_COUNT (sizeof special_names / sizeof *special_names)
#define SHARDING_KEY "__SHARDINGKEY" /* counts as another kind of message */

static PyObject *specials[SPECIAL_COUNT], *letters[14], *true_text, *false_text;

static int ready(void)
{
    if (false_text != NULL)
        return 0;
    for (size_t number = 0; number < SPECIAL_COUNT; number++)
        if ((specials[number] = PyUnicode_InternFromString(special_names[number])) == NULL)
            return -1;
    for (int number = 0; number < 14; number++)
        if ((letters[number] = PyUnicode_FromOrdinal('a' + number)) == NULL)
            return -1;
    true_text = PyUnicode_InternFromString("true");
    false_text = PyUnicode_InternFromString("false");
    return true_text == NULL || false_text == NULL ? -1 : 0;
}

int is_special(Span name)
{
    for (size_t number = 0; number <= SPECIAL_COUNT; number++) {
        const char *special = number < SPECIAL_COUNT ? special_names[number] : SHARDING_KEY;
        if (*special == *name.at && strlen(special) == (size_t)name.size && memcmp(special, name.at, (size_t)name.size) == 0)
            return 1;
    }
    return 0;
}

/* A field as text, borrowed; NULL when it is not there. */
static PyObject *field(PyObject *ext, char letter)
{
    PyObject *value = PyDict_GetItemWithError(ext, letters[letter - 'a']);
    return value != NULL && PyUnicode_Check(value) ? value : NULL;
}

int read_number(const uint8_t *digits, Py_ssize_t size, int64_t low, int64_t high, int64_t *number)
{
    int negative = size > 0 && digits[0] == '-';
    Py_ssize_t at = negative;
    if (size - at < 1 || size - at > 18 || (digits[at] == '0' && size > 1))
        return 0;
    int64_t found = 0;
    for (; at < size; at++) {
        if (digits[at] < '0' || digits[at] > '9')
            return 0;
        found = found * 10 + (digits[at] - '0');
    }
    *number = negative ? -found : found;
    return *number >= low && *number <= high;
}

/* Whether a field is a plain number within limits; one that is not there is `*number` already, if it may be missing. */
static int number_field(PyObject *ext, char letter, int optional, int64_t low, int64_t high, int64_t *number)
{
    PyObject *value = field(ext, letter);
    if (value == NULL)
        return optional;
    return PyUnicode_IS_ASCII(value)
        && read_number(PyUnicode_1BYTE_DATA(value), PyUnicode_GET_LENGTH(value), low, high, number);
}

/* Whether a field is "true" or "false"; false when it is not there. */
static int switch_field(PyObject *ext, char letter, int *on)
{
    PyObject *value = field(ext, letter);
    *on = value != NULL && PyUnicode_Compare(value, true_text) == 0;
    return value == NULL || *on || PyUnicode_Compare(value, false_text) == 0;
}

/* The properties with what the broker adds; NULL, mostly without an error, when one of them makes the message special. */
static PyObject *plain_properties(const char *text, Py_ssize_t size, PyObject *added)
{
    PyObject *properties = properties_dict((const uint8_t *)text, size, 0);
    if (properties == NULL)
        return NULL;
    int plain = PyDict_Contains(properties, name_unique);
    for (size_t number = 0; plain > 0 && number < SPECIAL_COUNT; number++) {
        int found = PyDict_Contains(properties, specials[number]);
        plain = found < 0 ? -1 : !found;
    }
    if (plain <= 0 || PyDict_Update(properties, added) < 0)
        Py_CLEAR(properties);
    return properties;
}

static PyObject *stored_properties(const char *text, Py_ssize_t size, PyObject *added)
{
    int open = size && text[size - 1] != 2;
    PyObject *stored = PyBytes_FromStringAndSize(NULL, size + open + PyBytes_GET_SIZE(added));
    if (stored == NULL)
        return NULL;
    uint8_t *at = put_bytes((uint8_t *)PyBytes_AS_STRING(stored), text, (size_t)size);
    if (open)
        *at++ = 2;
    put_bytes(at, PyBytes_AS_STRING(added), (size_t)PyBytes_GET_SIZE(added));
    return stored;
}

int read_plain_send(PyObject *ext, PyObject *added, PyObject *added_text, PlainSend *send)
{
    int64_t limit;
    int batch;
    *send = (PlainSend){0};
    if (ready())
        return -1;
    if (ext == NULL || !PyDict_Check(ext))
        return 0;
    if (!PyDict_Check(added) || !PyBytes_Check(added_text)) {
        PyErr_SetString(PyExc_TypeError, "what is added is a dict, and bytes");
        return -1;
    }
    PyObject *encoded = field(ext, 'i');
    send->topic = field(ext, 'b');
    send->template = field(ext, 'c');
    if (field(ext, 'a') == NULL || send->topic == NULL || send->template == NULL || encoded == NULL
        || !number_field(ext, 'd', 0, INT32_MIN, INT32_MAX, &send->queues)
        || !number_field(ext, 'e', 0, INT32_MIN, INT32_MAX, &send->queue_id)
        || !number_field(ext, 'f', 0, INT32_MIN, INT32_MAX, &send->sys_flag)
        || !number_field(ext, 'g', 0, INT64_MIN, INT64_MAX, &send->born_ms)
        || !number_field(ext, 'h', 0, INT32_MIN, INT32_MAX, &send->flag)
        || !number_field(ext, 'j', 1, INT32_MIN, INT32_MAX, &send->times)
        || !number_field(ext, 'l', 1, INT32_MIN, INT32_MAX, &limit) || !switch_field(ext, 'k', &send->unit_mode)
        || !switch_field(ext, 'm', &batch) || batch || send->sys_flag & NOT_FOR_CLIENTS
        || (PyUnicode_GET_LENGTH(send->topic) && PyUnicode_READ_CHAR(send->topic, 0) == '%'))
        return PyErr_Occurred() ? -1 : 0;
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(encoded, &size);
    send->properties = text == NULL ? NULL : plain_properties(text, size, added);
    send->stored = send->properties == NULL ? NULL : stored_properties(text, size, added_text);
    if (send->stored != NULL)
        return 1;
    forget_send(send);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_UnicodeError))
        return -1;
    PyErr_Clear();
    return 0;
}

void forget_send(PlainSend *send)
{
    Py_CLEAR(send->properties);
    Py_CLEAR(send->stored);
}

/* plain_send(ext, added, added_text): the fields a broker needs of a send, None when it is not a plain one.
 *
 * (topic, default topic, its queues, queue id, system flag, born ms, flag, reconsume times, unit mode, properties as a dict and
 * as they are stored, both with what the broker adds) */
EXPORT(plain_send)
{
    PlainSend send;
    if (check_count("plain_send", count, 3))
        return NULL;
    int plain = read_plain_send(args[0], args[1], args[2], &send);
    if (plain < 0)
        return NULL;
    if (!plain)
        Py_RETURN_NONE;
    return Py_BuildValue("OOLLLLLLONN", send.topic, send.template, (long long)send.queues, (long long)send.queue_id,
                         (long long)send.sys_flag, (long long)send.born_ms, (long long)send.flag, (long long)send.times,
                         send.unit_mode ? Py_True : Py_False, send.properties, send.stored);
}
