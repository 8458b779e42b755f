/* Headers of frames, properties of messages and records of the log, as the C files share them. */
#ifndef ROCKETLINE_RECORDS_H
#define ROCKETLINE_RECORDS_H

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

/* The properties that queues and index look at, and whether there is one that makes a send special. */
typedef struct {
    Span unique, keys, tags, wait;
    int special;
} Properties;

void find_properties(const uint8_t *bytes, Py_ssize_t size, Properties *found);
/* Java's hash of a text continued with more of it; -1 with an error. */
int hash_span(uint32_t *hash, Span span);

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

#endif
