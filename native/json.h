/* JSON, as far as headers written in the plain way need it. */
#ifndef ROCKETLINE_JSON_H
#define ROCKETLINE_JSON_H

#include "common.h"

typedef struct {
    const uint8_t *at, *end;
} Text;

static inline void skip_blanks(Text *json)
{
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
        json->at++;
}

/* Take one letter, with blanks around it. */
static inline int take(Text *json, char letter)
{
    skip_blanks(json);
    if (json->at >= json->end || *json->at != letter)
        return 0;
    json->at++;
    skip_blanks(json);
    return 1;
}

static inline int take_number(Text *json, int32_t *number)
{
    int negative = json->at < json->end && *json->at == '-';
    const uint8_t *start = json->at += negative;
    int64_t value = 0;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9' && json->at - start < 11)
        value = value * 10 + (*json->at++ - '0');
    if (json->at == start || (*start == '0' && (negative || json->at - start > 1)))
        return 0;
    value = negative ? -value : value;
    if (value < INT32_MIN || value > INT32_MAX)
        return 0;
    *number = (int32_t)value;
    return 1;
}

static inline int hex4(const uint8_t *at)
{
    int value = 0;
    for (int digit = 0; digit < 4; digit++) {
        int letter = at[digit] | 0x20;
        if (at[digit] >= '0' && at[digit] <= '9')
            value = value << 4 | (at[digit] - '0');
        else if (letter >= 'a' && letter <= 'f')
            value = value << 4 | (letter - 'a' + 10);
        else
            return -1;
    }
    return value;
}

/* One escape that begins at `at` with a backslash, as UTF-8; how far it reaches, or NULL for one that is not plain. */
static inline const uint8_t *unescape(const uint8_t *at, const uint8_t *end, uint8_t **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (end - at < 2)
        return NULL;
    if (at[1] != 'u') {
        const char *found = memchr(from, at[1], sizeof from - 1);
        if (found == NULL)
            return NULL;
        *(*out)++ = (uint8_t)to[found - from];
        return at + 2;
    }
    int letter = end - at < 6 ? -1 : hex4(at + 2);
    if (letter < 0 || (letter >= 0xD800 && letter <= 0xDFFF))
        return NULL;
    if (letter < 0x80) {
        *(*out)++ = (uint8_t)letter;
    } else if (letter < 0x800) {
        *(*out)++ = (uint8_t)(0xC0 | letter >> 6);
        *(*out)++ = (uint8_t)(0x80 | (letter & 0x3F));
    } else {
        *(*out)++ = (uint8_t)(0xE0 | letter >> 12);
        *(*out)++ = (uint8_t)(0x80 | (letter >> 6 & 0x3F));
        *(*out)++ = (uint8_t)(0x80 | (letter & 0x3F));
    }
    return at + 6;
}

#endif
