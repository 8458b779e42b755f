/* Whether sends come from those to whom the guard of a broker gave a grant: signed by the account, or, where the certificate of the
 * connection names the account, without a signature. Who may do what is decided by the guard, on the general path; a frame that is not
 * plain or not right is left to it. */
#include "fastpath.h"

#define SIGNATURE_BYTES 28
#define MAX_SIGNED_BYTES (16 << 10) /* the library that the general path uses hashes one long message faster than this code */

int is_grant(PyObject *grant)
{
    if (!PyTuple_Check(grant) || PyTuple_GET_SIZE(grant) != GRANT_FIELDS || !PyDict_Check(PyTuple_GET_ITEM(grant, GRANT_SENDS))
        || !PyDict_Check(PyTuple_GET_ITEM(grant, GRANT_BATCHES)))
        return 0;
    PyObject *account = PyTuple_GET_ITEM(grant, GRANT_ACCOUNT), *key = PyTuple_GET_ITEM(grant, GRANT_KEY);
    return account == Py_None || (PyBytes_Check(account) && PyBytes_Check(key) && PyBytes_GET_SIZE(key) == HMAC_KEY_BYTES);
}

size_t signed_room(int64_t header_bytes, int64_t body_bytes)
{
    return body_bytes > MAX_SIGNED_BYTES ? 0 : (size_t)(header_bytes + body_bytes) + HMAC_SPARE_BYTES;
}

static uint8_t *put_listed(uint8_t *at, const char *name, size_t name_size, Span value)
{
    uint8_t digits[20], *first = digits + sizeof digits;
    Py_ssize_t left = value.size;
    if (value.at == NULL)
        return at;
    at = put_bytes(at, name, name_size);
    *at++ = ':';
    do
        *--first = (uint8_t)('0' + left % 10);
    while (left /= 10);
    at = put_bytes(at, first, (size_t)(digits + sizeof digits - first));
    *at++ = ',';
    return at;
}

/* Whether the signed list of fields is that of the fields that are there: `field_list` in protocol/signing.py. */
static int lists_fields(const SendHeader *header)
{
    uint8_t text[40 + 24 * (3 + SEND_FIELDS)], *at = text;
    at = put_listed(at, "AccessKey", 9, header->account);
    at = put_listed(at, "_rl_code", 8, header->signed_code);
    at = put_listed(at, "_rl_time", 8, header->signed_time);
    for (int field = 0; field < SEND_FIELDS; field++) {
        char name = (char)('a' + field);
        at = put_listed(at, &name, 1, header->fields[field]);
    }
    return header->signed_fields.size == at - text && memcmp(header->signed_fields.at, text, (size_t)(at - text)) == 0;
}

/* Whether what a signature says about its request, its fields and its time is so; it may say nothing unless it must. */
static int is_fresh(const SendHeader *header, const int64_t *times, int must)
{
    int64_t found, code = header->numbers[CODE];
    Span as = header->signed_code, at = header->signed_time;
    if (must && (as.at == NULL || at.at == NULL))
        return 0;
    if ((as.at != NULL || at.at != NULL || header->signed_fields.at != NULL)
        && (header->signed_fields.at == NULL || !lists_fields(header)))
        return 0;
    return (as.at == NULL || read_number(as.at, as.size, code, code, &found))
        && (at.at == NULL || read_number(at.at, at.size, times[0], times[1], &found));
}

static uint8_t *put_span(uint8_t *at, Span span) { return span.size ? put_bytes(at, span.at, (size_t)span.size) : at; }

/* What is signed of a frame: its fields in the order of their names, then its body. */
static void put_signed(const Frame *frame, Hmac *message)
{
    const SendHeader *header = &frame->header;
    uint8_t *at = message->bytes = frame->texts.bytes + frame->header_bytes;
    at = put_span(at, header->account);
    at = put_span(at, header->signed_code);
    at = put_span(at, header->signed_fields);
    at = put_span(at, header->signed_time);
    for (int field = 0; field < SEND_FIELDS; field++)
        at = put_span(at, header->fields[field]);
    at = put_span(at, (Span){frame->start + 8 + frame->header_bytes, (Py_ssize_t)frame->body_bytes});
    message->size = (size_t)(at - message->bytes);
}

/* Whether a signature is the digest in Base64. The time this takes does not tell how much of it is right. */
static int is_signature(const uint8_t *text, const uint8_t *digest)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t padded[DIGEST_BYTES + 1] = {0};
    unsigned wrong = text[SIGNATURE_BYTES - 1] ^ '=';
    memcpy(padded, digest, DIGEST_BYTES);
    for (int number = 0; number < SIGNATURE_BYTES - 1; number++) {
        const uint8_t *three = padded + number / 4 * 3;
        unsigned bits = (unsigned)three[0] << 16 | (unsigned)three[1] << 8 | three[2];
        wrong |= text[number] ^ (uint8_t)letters[bits >> (18 - 6 * (number & 3)) & 63];
    }
    return !wrong;
}

/* Whether a frame has all that the account of its grant must say, but for the signature itself. */
static int names_account(const Frame *frame, PyObject *account, const int64_t *times)
{
    const SendHeader *header = &frame->header;
    return !header->is_odd && header->signature.size == SIGNATURE_BYTES && frame->body_bytes <= MAX_SIGNED_BYTES
        && header->account.size == PyBytes_GET_SIZE(account)
        && memcmp(header->account.at, PyBytes_AS_STRING(account), (size_t)header->account.size) == 0
        && is_fresh(header, times, PyTuple_GET_ITEM(frame->grant, GRANT_IS_DATED) == Py_True);
}

static int says_nothing(const SendHeader *header)
{
    return !header->is_odd && header->account.at == NULL && header->signature.at == NULL && header->signed_code.at == NULL
        && header->signed_fields.at == NULL && header->signed_time.at == NULL;
}

void admit(Frame *frames, int count, const int64_t *times)
{
    Hmac messages[HMAC_LANES];
    Frame *asked[HMAC_LANES];
    int signed_count = 0;
    for (Frame *frame = frames; frame < frames + count; frame++) {
        PyObject *account = frame->grant == NULL ? NULL : PyTuple_GET_ITEM(frame->grant, GRANT_ACCOUNT);
        frame->is_admitted = account == NULL || (account == Py_None && says_nothing(&frame->header));
        if (account == NULL || account == Py_None || !names_account(frame, account, times))
            continue;
        messages[signed_count].key = (const uint8_t *)PyBytes_AS_STRING(PyTuple_GET_ITEM(frame->grant, GRANT_KEY));
        put_signed(frame, &messages[signed_count]);
        asked[signed_count++] = frame;
    }
    if (signed_count)
        hmac_all(messages, signed_count);
    for (int number = 0; number < signed_count; number++)
        asked[number]->is_admitted = is_signature(asked[number]->header.signature.at, messages[number].digest);
}
