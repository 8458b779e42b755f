/* The bodies of messages: half constant, half random and different in each, neither all noise nor a gift to caches. */
#ifndef BODIES_H
#define BODIES_H

#include "options.h"
#include "sockets.h"

#define RANDOM_POOL (1u << 20)

static uint8_t *random_pool;
static uint32_t random_at;

static void fill_random_pool(void) {
    uint64_t state = (uint64_t)now_ns() | 1;
    random_pool = room(RANDOM_POOL + (size_t)opt.body);
    for (size_t i = 0; i < RANDOM_POOL + (size_t)opt.body; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        random_pool[i] = (uint8_t)state;
    }
}

static void put_body(uint8_t *at) {
    size_t constant = (size_t)opt.body / 2;
    for (size_t i = 0; i < constant; i++)
        at[i] = (uint8_t)('a' + i % 26);
    memcpy(at + constant, random_pool + random_at, (size_t)opt.body - constant);
    random_at = (random_at + (uint32_t)opt.body) % RANDOM_POOL;
}

#endif
