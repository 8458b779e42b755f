/* The fast path: plain sends and pulls, from the bytes of a read to the bytes of the answers. */
#ifndef ROCKETLINE_FASTPATH_H
#define ROCKETLINE_FASTPATH_H

#include "hmac.h"
#include "records.h"

#define NOT_FOR_CLIENTS 0xCC /* system flags: transactional, or a batch kept as one record */
#define SEND_FIELDS 14 /* named a to n */

/* What the header of a send says, in place. */
typedef struct {
    int32_t numbers[NUMBERS];
    Span fields[SEND_FIELDS];
    Span account, signature, signed_code, signed_fields, signed_time;
    int is_odd; /* it has another field, one twice, or one without a value */
} SendHeader;

/* 1 for a header written in the plain way; 0, without an error, for any other. `room` has as many bytes as the header. */
int locate_header(const uint8_t *frame, Py_ssize_t header_bytes, uint8_t *room, SendHeader *header);

typedef struct {
    uint8_t *bytes;
    size_t used, capacity;
} Room;

/* A frame with a header that was located. */
typedef struct {
    const uint8_t *start;
    int64_t header_bytes, body_bytes;
    Py_ssize_t read; /* the number of the read it is in */
    PyObject *grant; /* borrowed from that read; NULL: there is no guard */
    SendHeader header;
    Room texts; /* of the header, without escapes; then what is signed, or the properties to store */
    int is_admitted;
} Frame;

/* Fields of a Grant. */
enum { GRANT_ACCOUNT, GRANT_KEY, GRANT_IS_DATED, GRANT_SENDS, GRANT_BATCHES, GRANT_SINCE, GRANT_FIELDS };

int is_grant(PyObject *grant);
/* How many bytes `admit` needs behind the texts of a frame. */
size_t signed_room(int64_t header_bytes, int64_t body_bytes);
/* Find out which of up to HMAC_LANES frames are sent by those to whom their grants were given. `times`: from when to when signatures
 * may be that say when they were made. */
void admit(Frame *frames, int count, const int64_t *times);

/* Whether a text is a plain number within limits. */
int read_number(const uint8_t *digits, Py_ssize_t size, int64_t low, int64_t high, int64_t *number);

/* Whether an id can be put into an answer as it is. */
int is_plain_id(const uint8_t *text, Py_ssize_t size);
/* What an answer says about a send: where its `count` messages begin, one behind the other; an id of none is left out. */
typedef struct {
    int64_t opaque, queue_id, queue_offset;
    Py_ssize_t count;
    const int64_t *log_offsets;
    Span unique;
} Stored;
/* The JSON answer to a stored send: what stands before its first id, behind its request id, and the host of further ids in hex;
 * returns where it ends. */
uint8_t *put_answer(uint8_t *start, PyObject *head, PyObject *tail, PyObject *host, const Stored *stored);
/* The binary one; `parts`: the header up to the request id, from there to the fields, fields that are always there, and the host
 * of ids in hex, 128 letters at most. */
uint8_t *put_binary_answer(uint8_t *start, PyObject *const *parts, const Stored *stored);

#endif
