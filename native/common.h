/* What the compiled functions share: numbers in file order, buffers, arguments, and what they offer each other.
 *
 * Rules of every file here: a length from a peer or a disk is compared before it is used, never added to a pointer first;
 * positions are int64_t, so that no sum of two 32-bit lengths overflows; whatever looks odd is left to Python, which
 * decides and words the error. */
#ifndef ROCKETLINE_COMMON_H
#define ROCKETLINE_COMMON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "layout.h"

#define EXPORT(name) PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t count)

#define MAX_PROPERTIES_BYTES 32767
#define UNIT_BYTES 20
#define SECTOR_BYTES 512

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BE16(x) __builtin_bswap16(x)
#define BE32(x) __builtin_bswap32(x)
#define BE64(x) __builtin_bswap64(x)
#else
#define BE16(x) (x)
#define BE32(x) (x)
#define BE64(x) (x)
#endif

static inline uint16_t get16(const uint8_t *p) { uint16_t x; memcpy(&x, p, 2); return BE16(x); }
static inline int32_t get32(const uint8_t *p) { uint32_t x; memcpy(&x, p, 4); return (int32_t)BE32(x); }
static inline int64_t get64(const uint8_t *p) { uint64_t x; memcpy(&x, p, 8); return (int64_t)BE64(x); }
static inline uint8_t *put16(uint8_t *p, uint16_t x) { x = BE16(x); memcpy(p, &x, 2); return p + 2; }
static inline uint8_t *put32(uint8_t *p, uint32_t x) { x = BE32(x); memcpy(p, &x, 4); return p + 4; }
static inline uint8_t *put64(uint8_t *p, uint64_t x) { x = BE64(x); memcpy(p, &x, 8); return p + 8; }
static inline uint8_t *put_bytes(uint8_t *p, const void *from, size_t size) { memcpy(p, from, size); return p + size; }

static inline int head_bytes(int32_t sys_flag)
{
    return BODY_AT + (sys_flag & BORN_IPV6 ? IPV6_EXTRA_BYTES : 0) + (sys_flag & STORE_IPV6 ? IPV6_EXTRA_BYTES : 0);
}

/* Some bytes where they lie; `at` is NULL for what is not there. */
typedef struct {
    const uint8_t *at;
    Py_ssize_t size;
} Span;

/* Names of properties and what else is needed again and again; made once by `names_ready`. */
extern PyObject *name_unique, *name_keys, *name_tags;

int check_count(const char *name, Py_ssize_t count, Py_ssize_t wanted);
int as_int64(PyObject *number, int64_t *value);
int as_int32(PyObject *number, int32_t *value);
/* A contiguous buffer of bytes, to be released by the caller. */
int read_from(PyObject *object, Py_buffer *view);
int write_to(PyObject *object, Py_buffer *view);
/* A new instance of a NamedTuple, without its Python-level constructor; its items are still to be set. */
PyObject *new_row(PyObject *type, Py_ssize_t size);

uint32_t crc32_of(const uint8_t *bytes, size_t size);
void crc32_ready(void);

/* The hash of a text continued behind another one: Java's, over UTF-16 code units. */
uint32_t java_hash_text(uint32_t hash, PyObject *text);
/* UTF-8 to text; NULL without an error set when the bytes are no UTF-8. */
PyObject *plain_text(const uint8_t *bytes, Py_ssize_t size);
/* Whether bytes are UTF-8, without an error when they are not. */
int is_utf8(const uint8_t *bytes, Py_ssize_t size);
/* The same with replacement characters where the bytes are no UTF-8, as Java does. */
PyObject *replaced_text(const uint8_t *bytes, Py_ssize_t size);
/* Encoded properties as a dict; with `only_used` those that queues and index look at. */
PyObject *properties_dict(const uint8_t *bytes, Py_ssize_t size, int only_used);
/* The second half of an offset id: a log offset in hex. */
uint8_t *put_offset_id(uint8_t *at, int64_t log_offset);
/* The tags code of a message with these properties. */
int tags_code_of(PyObject *properties, int64_t *code);
/* Whether some sector that begins inside topic or properties is nothing but zeros; `bytes` begins with a sector. */
int lacks_sector(const uint8_t *bytes, int64_t text_at, int64_t end, int64_t properties_bytes);

/* Whether `size` bytes are a record that names this place (and this queue, unless NULL), with lengths that fit and a body that
 * matches its checksum. */
int is_sound(const uint8_t *record, int64_t size, int64_t log_offset, const int32_t *queue_id, int64_t queue_offset);
/* The size of a frame that is complete and within the limits, and of its header; 0 for any other. */
int64_t frame_bytes(const uint8_t *frame, int64_t available, int64_t max_frame, int64_t max_header, int64_t *header_bytes);

/* Every function that Python sees: its name and what it is for. */
#define EXPORTED(X) \
    X(crc32, "CRC-32 of a buffer.") \
    X(take_frames, "The commands of complete, plain frames, and where the rest begins.") \
    X(offset_ids, "The ids of a batch.") \
    X(decode_properties, "Encoded properties as a dict.") \
    X(java_string_hash, "Java's String.hashCode.") \
    X(index_key_hash, "The hash of topic#key in the key index.") \
    X(write_record, "Write a record into a buffer.") \
    X(is_sound_record, "Whether bytes are the record that belongs there.") \
    X(split_batch, "The messages of a batch send.") \
    X(measure_batch, "What the messages of a batch take.") \
    X(write_batch, "Write the records of a batch into a buffer.") \
    X(read_run, "Rows of plainly sound records.") \
    X(verified_run, "The records that units point at, when all are sound.") \
    X(by_queue, "Rows by queue.") \
    X(pack_run, "Units of a consume queue.") \
    X(index_rows, "Entries of a key index for rows.") \
    X(index_range, "Entries of a key index for records in the log.") \
    X(range_runs, "Units of records in the log, by queue.") \
    X(range_entries, "Entries of records in the log.") \
    X(locate_run, "Where sound records and their parts are.") \
    X(wrong_bodies, "Bodies that do not match their checksums.") \
    X(lay_out, "Slices of a buffer laid end to end.") \
    X(take_properties, "Properties of many records as columns.") \
    X(encode_rows, "Rows of a table as the messages of a batch.") \
    X(text_hashes, "Java's String.hashCode of a column of texts.") \
    X(take_indexed, "Fields of a header block that are entries of its tables.") \
    X(read_plain_send, "A SendMessage of one plain message, as it goes to a broker.") \
    X(hmac_key, "A secret as a prepared key of HMAC-SHA1: the fast path.") \
    X(serve_sends, "Plain sends of some reads, stored and answered: the fast path.") \
    X(take_pulls, "Pulls of a read that are known but for their numbers: the fast path.")

#define DECLARE(name, text) EXPORT(name);
EXPORTED(DECLARE)
#undef DECLARE

#endif
