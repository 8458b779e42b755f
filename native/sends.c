/* A send of one message in the spelling of 310, checked and completed as a broker does it, when nothing about it is special. */
#include "common.h"

static const char *const special_names[] = {
    "POP_CK", "CLUSTER", "MSG_REGION", "TRACE_ON", "DELAY", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TRAN_MSG",
};
#define SPECIAL_COUNT (sizeof special_names / sizeof *special_names)
#define NOT_FOR_CLIENTS 0xCC /* transactional, or a batch kept as one record */

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

/* A field as text, borrowed; NULL when it is not there. */
static PyObject *field(PyObject *ext, char letter)
{
    PyObject *value = PyDict_GetItemWithError(ext, letters[letter - 'a']);
    return value != NULL && PyUnicode_Check(value) ? value : NULL;
}

/* Whether a field is a plain number within limits; one that is not there is `*number` already, if it may be missing. */
static int number_field(PyObject *ext, char letter, int optional, int64_t low, int64_t high, int64_t *number)
{
    PyObject *value = field(ext, letter);
    if (value == NULL)
        return optional;
    Py_ssize_t size = PyUnicode_GET_LENGTH(value), at = 0;
    if (!PyUnicode_IS_ASCII(value))
        return 0;
    const uint8_t *digits = PyUnicode_1BYTE_DATA(value);
    int negative = size > 0 && digits[0] == '-';
    at = negative;
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

/* plain_send(ext, added, added_text): the fields a broker needs of a send, None when it is not a plain one.
 *
 * (topic, default topic, its queues, queue id, system flag, born ms, flag, reconsume times, unit mode, properties as a dict and
 * as they are stored, both with what the broker adds) */
EXPORT(plain_send)
{
    if (check_count("plain_send", count, 3) || ready())
        return NULL;
    PyObject *ext = args[0];
    if (!PyDict_Check(ext))
        Py_RETURN_NONE;
    if (!PyDict_Check(args[1]) || !PyBytes_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "what is added is a dict, and bytes");
    PyObject *topic = field(ext, 'b'), *template = field(ext, 'c'), *encoded = field(ext, 'i');
    int64_t queues, queue_id, sys_flag, born_ms, flag, times = 0, limit;
    int unit_mode, batch;
    if (field(ext, 'a') == NULL || topic == NULL || template == NULL || encoded == NULL
        || !number_field(ext, 'd', 0, INT32_MIN, INT32_MAX, &queues) || !number_field(ext, 'e', 0, INT32_MIN, INT32_MAX, &queue_id)
        || !number_field(ext, 'f', 0, INT32_MIN, INT32_MAX, &sys_flag) || !number_field(ext, 'g', 0, INT64_MIN, INT64_MAX, &born_ms)
        || !number_field(ext, 'h', 0, INT32_MIN, INT32_MAX, &flag) || !number_field(ext, 'j', 1, INT32_MIN, INT32_MAX, &times)
        || !number_field(ext, 'l', 1, INT32_MIN, INT32_MAX, &limit) || !switch_field(ext, 'k', &unit_mode)
        || !switch_field(ext, 'm', &batch) || batch || sys_flag & NOT_FOR_CLIENTS
        || (PyUnicode_GET_LENGTH(topic) && PyUnicode_READ_CHAR(topic, 0) == '%')) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(encoded, &size);
    PyObject *properties = text == NULL ? NULL : plain_properties(text, size, args[1]);
    PyObject *stored = properties == NULL ? NULL : stored_properties(text, size, args[2]);
    if (stored == NULL) {
        Py_XDECREF(properties);
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_UnicodeError))
            return NULL;
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return Py_BuildValue("OOLLLLLLONN", topic, template, (long long)queues, (long long)queue_id, (long long)sys_flag,
                         (long long)born_ms, (long long)flag, (long long)times, unit_mode ? Py_True : Py_False, properties, stored);
}
