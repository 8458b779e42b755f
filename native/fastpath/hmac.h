/* HMAC-SHA1, of several messages at a time. */
#ifndef ROCKETLINE_HMAC_H
#define ROCKETLINE_HMAC_H

#include "common.h"

#define HMAC_LANES 8
#define HMAC_KEY_BYTES 40 /* a prepared key: the hash behind the inner and behind the outer padded key */
#define HMAC_SPARE_BYTES 72 /* room that a message needs behind it */
#define DIGEST_BYTES 20

typedef struct {
    const uint8_t *key;
    uint8_t *bytes; /* the message; what pads it is written behind it */
    size_t size;
    uint8_t digest[DIGEST_BYTES];
} Hmac;

/* Fill in the digests of up to HMAC_LANES messages. */
void hmac_all(Hmac *messages, int count);

#endif
