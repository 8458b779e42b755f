/* The layout of a stored record, as rocketline/protocol/record_layout.py has it: a test compares both. */
#ifndef ROCKETLINE_LAYOUT_H
#define ROCKETLINE_LAYOUT_H

#define MAGIC_V1 ((int32_t)0xDAA320A7u)
#define MAGIC_V2 ((int32_t)0xDAA320ABu)
#define BORN_IPV6 0x10
#define STORE_IPV6 0x20
#define NOT_QUEUED 0x84 /* prepared or rolled back, or a batch kept as one record */

/* X(name, value): where fields begin in a record with two IPv4 hosts, and sizes. */
#define RECORD_LAYOUT(X) \
    X(SIZE_AT, 0) X(MAGIC_AT, 4) X(BODY_CRC_AT, 8) X(QUEUE_ID_AT, 12) X(FLAG_AT, 16) X(QUEUE_OFFSET_AT, 20) \
    X(LOG_OFFSET_AT, 28) X(SYS_FLAG_AT, 36) X(BORN_MS_AT, 40) X(BORN_HOST_AT, 48) X(STORE_MS_AT, 56) X(STORE_HOST_AT, 64) \
    X(RECONSUME_TIMES_AT, 72) X(PREPARED_OFFSET_AT, 76) X(BODY_BYTES_AT, 84) X(BODY_AT, 88) X(IPV6_EXTRA_BYTES, 12) \
    X(MIN_RECORD_BYTES, 91)

#define LAYOUT_CONSTANT(name, value) name = value,
enum { RECORD_LAYOUT(LAYOUT_CONSTANT) };
#undef LAYOUT_CONSTANT

#endif
