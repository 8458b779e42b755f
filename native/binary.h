/* Headers in the binary encoding: where their parts lie. */
#ifndef ROCKETLINE_BINARY_H
#define ROCKETLINE_BINARY_H

#include "common.h"

/* code 2, language 1, version 2, request id 4, flag 4, remark 4 + n, fields 4 + n */
#define BINARY_BYTES 21

/* 0 for lengths that do not fit. */
static inline int split_binary(const uint8_t *bytes, Py_ssize_t size, Span *remark, Span *fields)
{
    if (size < BINARY_BYTES)
        return 0;
    *remark = (Span){bytes + 17, get32(bytes + 13)};
    if (remark->size < 0 || size - BINARY_BYTES < remark->size)
        return 0;
    const uint8_t *start = bytes + BINARY_BYTES + remark->size;
    *fields = (Span){start, get32(start - 4)};
    return fields->size >= 0 && bytes + size - start >= fields->size;
}

/* Take the next field, a name of 2 + n and a value of 4 + n; 0 for lengths that do not fit. */
static inline int take_field(Span *fields, Span *name, Span *value)
{
    if (fields->size < 6)
        return 0;
    *name = (Span){fields->at + 2, (int16_t)get16(fields->at)};
    if (name->size < 0 || fields->size - 6 < name->size)
        return 0;
    const uint8_t *start = name->at + name->size + 4;
    Py_ssize_t left = fields->size - 6 - name->size;
    *value = (Span){start, get32(start - 4)};
    if (value->size < 0 || left < value->size)
        return 0;
    *fields = (Span){start + value->size, left - value->size};
    return 1;
}

#endif
