/* The answer to a stored send or batch, as a ready frame. */
#include "fastpath.h"

static uint8_t *put_number(uint8_t *at, int64_t number)
{
    uint8_t digits[20];
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    int used = 0;
    do
        digits[used++] = (uint8_t)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        *at++ = '-';
    while (used)
        *at++ = digits[--used];
    return at;
}

int is_plain_id(const uint8_t *text, Py_ssize_t size)
{
    for (Py_ssize_t at = 0; at < size; at++)
        if (!Py_ISALNUM(text[at]))
            return 0;
    return size > 0;
}

#define PUT(text) at = put_bytes(at, text, sizeof(text) - 1)

/* The ids of a batch but for the host of the first. */
static uint8_t *put_ids(uint8_t *at, PyObject *host, const Stored *stored)
{
    at = put_offset_id(at, stored->log_offsets[0]);
    for (Py_ssize_t number = 1; number < stored->count; number++) {
        *at++ = ',';
        at = put_bytes(at, PyBytes_AS_STRING(host), (size_t)PyBytes_GET_SIZE(host));
        at = put_offset_id(at, stored->log_offsets[number]);
    }
    return at;
}

uint8_t *put_answer(uint8_t *start, PyObject *head, PyObject *tail, PyObject *host, const Stored *stored)
{
    uint8_t *at = put_bytes(start + 8, PyBytes_AS_STRING(head), (size_t)PyBytes_GET_SIZE(head));
    at = put_ids(at, host, stored);
    PUT("\",\"queueId\":\"");
    at = put_number(at, stored->queue_id);
    PUT("\",\"queueOffset\":\"");
    at = put_number(at, stored->queue_offset);
    if (stored->unique.at != NULL) {
        PUT("\",\"transactionId\":\"");
        at = put_bytes(at, stored->unique.at, (size_t)stored->unique.size);
    }
    PUT("\"},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":");
    at = put_number(at, stored->opaque);
    at = put_bytes(at, PyBytes_AS_STRING(tail), (size_t)PyBytes_GET_SIZE(tail));
    put32(start, (uint32_t)(at - start - 4));
    put32(start + 4, (uint32_t)(at - start - 8));
    return at;
}

static uint8_t *put_field(uint8_t *at, const char *name, const uint8_t *value, size_t size)
{
    at = put16(at, (uint16_t)strlen(name));
    at = put_bytes(at, name, strlen(name));
    at = put32(at, (uint32_t)size);
    return size ? put_bytes(at, value, size) : at;
}

uint8_t *put_binary_answer(uint8_t *start, PyObject *const *parts, const Stored *stored)
{
    uint8_t text[32], *at = start + 8, *fields, *ids;
    at = put_bytes(at, PyBytes_AS_STRING(parts[0]), (size_t)PyBytes_GET_SIZE(parts[0]));
    at = put32(at, (uint32_t)stored->opaque);
    at = put_bytes(at, PyBytes_AS_STRING(parts[1]), (size_t)PyBytes_GET_SIZE(parts[1]));
    fields = at += 4;
    at = put_bytes(at, PyBytes_AS_STRING(parts[2]), (size_t)PyBytes_GET_SIZE(parts[2]));
    ids = at = put_field(at, "msgId", NULL, 0);
    at = put_bytes(at, PyBytes_AS_STRING(parts[3]), (size_t)PyBytes_GET_SIZE(parts[3]));
    at = put_ids(at, parts[3], stored);
    put32(ids - 4, (uint32_t)(at - ids));
    at = put_field(at, "queueId", text, (size_t)(put_number(text, stored->queue_id) - text));
    at = put_field(at, "queueOffset", text, (size_t)(put_number(text, stored->queue_offset) - text));
    if (stored->unique.at != NULL)
        at = put_field(at, "transactionId", stored->unique.at, (size_t)stored->unique.size);
    put32(fields - 4, (uint32_t)(at - fields));
    put32(start, (uint32_t)(at - start - 4));
    put32(start + 4, 1u << 24 | (uint32_t)(at - start - 8));
    return at;
}
