/* A send on its way: from the header of a frame to the record in the log and the answer. */
#ifndef ROCKETLINE_SENDS_H
#define ROCKETLINE_SENDS_H

#include "common.h"

enum { OPAQUE, FLAG, CODE, VERSION, NUMBERS };

/* What a header says; references are owned. */
typedef struct {
    int32_t numbers[NUMBERS];
    int has_code;
    PyObject *ext, *remark, *language;
} Header;

/* 1 for a header written in the plain way; 0, mostly without an error, for any other. To be forgotten either way. */
int read_header(const uint8_t *frame, Py_ssize_t header_bytes, Header *header);
void forget_header(Header *header);

#define NOT_FOR_CLIENTS 0xCC /* system flags: transactional, or a batch kept as one record */
#define SEND_FIELDS 14 /* named a to n */

/* What the header of a send says, in place. */
typedef struct {
    int32_t numbers[NUMBERS];
    Span fields[SEND_FIELDS];
} SendHeader;

/* 1 for a header written in the plain way; 0, without an error, for any other. `room` has as many bytes as the header. */
int locate_header(const uint8_t *frame, Py_ssize_t header_bytes, uint8_t *room, SendHeader *header);

/* The properties that queues and index look at, and whether there is one that makes a send special. */
typedef struct {
    Span unique, keys, tags, wait;
    int special;
} Properties;

void find_properties(const uint8_t *bytes, Py_ssize_t size, Properties *found);
int is_special(Span name);
/* Java's hash of a text continued with more of it; -1 with an error. */
int hash_span(uint32_t *hash, Span span);
/* Whether a text is a plain number within limits. */
int read_number(const uint8_t *digits, Py_ssize_t size, int64_t low, int64_t high, int64_t *number);

/* What a broker needs of a plain send; topics are borrowed from the header fields. */
typedef struct {
    PyObject *topic, *template;
    int64_t queues, queue_id, sys_flag, born_ms, flag, times;
    int unit_mode;
    PyObject *properties, *stored; /* owned: as a dict, and as bytes, both with what the broker adds */
} PlainSend;

/* 1 for a plain send, which is to be forgotten; 0 for any other; -1 with an error. */
int read_plain_send(PyObject *ext, PyObject *added, PyObject *added_text, PlainSend *send);
void forget_send(PlainSend *send);

/* What the records of a send share, in file order of their fields. */
typedef struct {
    int32_t magic, queue_id, flag, sys_flag, reconsume_times;
    int64_t queue_offset, log_offset, born_ms, store_ms, prepared;
    const char *topic, *born_host, *store_host; /* borrowed from their objects */
    Py_ssize_t topic_bytes;
} Head;

int64_t size_with(const Head *head, int64_t body_bytes, int64_t properties_bytes);
void put_record(uint8_t *start, const Head *head, int32_t size, const void *body, int32_t body_bytes, const void *properties,
                uint16_t properties_bytes);
/* Whether properties could be taken for ones that never reached the disk. */
int looks_lost(const uint8_t *properties, Py_ssize_t size);
/* The LogEntry of a record. */
PyObject *new_entry(PyObject *type, const Head *head, int64_t size, PyObject *topic, PyObject *properties);

/* Whether an id can be put into an answer as it is. */
int is_plain_id(const uint8_t *text, Py_ssize_t size);
/* What an answer says about a send: where its `count` messages begin, one behind the other; an id of none is left out. */
typedef struct {
    int64_t opaque, queue_id, queue_offset;
    Py_ssize_t count;
    const int64_t *log_offsets;
    Span unique;
} Stored;
/* Bytes that a JSON answer to a single send takes at most. */
#define ANSWER_BYTES(head, tail, id) (8 + PyBytes_GET_SIZE(head) + PyBytes_GET_SIZE(tail) + PyUnicode_GET_LENGTH(id) + 256)
/* The JSON answer to a stored send: what stands before its first id, behind its request id, and the host of further ids in hex;
 * returns where it ends. */
uint8_t *put_answer(uint8_t *start, PyObject *head, PyObject *tail, PyObject *host, const Stored *stored);
/* The binary one; `parts`: the header up to the request id, from there to the fields, fields that are always there, and the host
 * of ids in hex, 128 letters at most. */
uint8_t *put_binary_answer(uint8_t *start, PyObject *const *parts, const Stored *stored);

#endif
