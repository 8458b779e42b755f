/* Signatures of an account: Base64 of HMAC-SHA1. Written for the load generator alone, so that it proves the broker's. */
#ifndef SIGNING_H
#define SIGNING_H

#include "frames.h"

#define SIGNATURE_BYTES 28
#define SHA1_BLOCK 64
#define SHA1_BYTES 20

static inline uint32_t rotated(uint32_t x, int by) { return x << by | x >> (32 - by); }

static inline void sha1_block(uint32_t *state, const uint8_t *block) {
    static const uint32_t constants[] = {0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6};
    uint32_t words[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int t = 0; t < 80; t++) {
        words[t] = t < 16 ? get_int32(block + 4 * t) : rotated(words[t - 3] ^ words[t - 8] ^ words[t - 14] ^ words[t - 16], 1);
        uint32_t f = t < 20 ? (b & c) | (~b & d) : t < 40 || t >= 60 ? b ^ c ^ d : (b & c) | (b & d) | (c & d);
        uint32_t next = rotated(a, 5) + f + e + constants[t / 20] + words[t];
        e = d, d = c, c = rotated(b, 30), b = a, a = next;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

/* The digest of one block, which is a padded key, and a text behind it. */
static inline void keyed_sha1(const uint8_t *key, const uint8_t *text, size_t size, uint8_t *digest) {
    uint32_t state[] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
    uint8_t last[2 * SHA1_BLOCK] = {0};
    sha1_block(state, key);
    size_t whole = size / SHA1_BLOCK * SHA1_BLOCK, left = size - whole, end = left < 56 ? SHA1_BLOCK : 2 * SHA1_BLOCK;
    for (size_t at = 0; at < whole; at += SHA1_BLOCK)
        sha1_block(state, text + at);
    memcpy(last, text + whole, left);
    last[left] = 0x80;
    put_int32(last + end - 4, (uint32_t)(SHA1_BLOCK + size) * 8);
    put_int32(last + end - 8, (uint32_t)((SHA1_BLOCK + size) >> 29));
    for (size_t at = 0; at < end; at += SHA1_BLOCK)
        sha1_block(state, last + at);
    for (int word = 0; word < 5; word++)
        put_int32(digest + 4 * word, state[word]);
}

/* `secret` has at most SHA1_BLOCK characters. */
static inline void put_signature(uint8_t *at, const char *secret, const uint8_t *text, size_t size) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t inner[SHA1_BLOCK], outer[SHA1_BLOCK], digest[SHA1_BYTES + 1] = {0};
    size_t length = strlen(secret);
    for (size_t i = 0; i < SHA1_BLOCK; i++) {
        uint8_t letter = i < length ? (uint8_t)secret[i] : 0;
        inner[i] = letter ^ 0x36, outer[i] = letter ^ 0x5C;
    }
    keyed_sha1(inner, text, size, digest);
    keyed_sha1(outer, digest, SHA1_BYTES, digest);
    for (int i = 0; i < SIGNATURE_BYTES - 1; i++) {
        const uint8_t *three = digest + i / 4 * 3;
        uint32_t bits = (uint32_t)three[0] << 16 | (uint32_t)three[1] << 8 | three[2];
        at[i] = (uint8_t)letters[bits >> (18 - 6 * (i & 3)) & 63];
    }
    at[SIGNATURE_BYTES - 1] = '=';
}

#endif
