/* HMAC-SHA1 of several messages side by side.
 *
 * SHA-1 is one long chain: each step needs the one before, so a processor works on one message with a fraction of its units.
 * Eight messages in the lanes of vectors take less than twice the time of one. The vectors are those of the compiler, which makes of them what
 * the processor has; on x86 a version for AVX2 and one for AVX-512 are chosen when the program runs. */
#include "hmac.h"

#define BLOCK_BYTES 64
#define STATE_WORDS 5

typedef uint32_t Words __attribute__((vector_size(4 * HMAC_LANES)));
typedef uint32_t Lanes[HMAC_LANES];

static const uint32_t FIRST_STATE[STATE_WORDS] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};

#define INLINE static inline __attribute__((always_inline))
#define ROTATED(x, by) ((x) << (by) | (x) >> (32 - (by)))
#define CHOSEN(b, c, d) ((d) ^ ((b) & ((c) ^ (d))))
#define PARITY(b, c, d) ((b) ^ (c) ^ (d))
#define MAJORITY(b, c, d) (((b) & (c)) | ((d) & ((b) | (c))))

#define WORD(t) words[(t) & 15]
#define NEXT_WORD(t) (WORD(t) = ROTATED(WORD((t) + 13) ^ WORD((t) + 8) ^ WORD((t) + 2) ^ WORD(t), 1))
#define ROUND(f, constant, word, a, b, c, d, e) (e += ROTATED(a, 5) + f(b, c, d) + (constant) + (word), b = ROTATED(b, 30))
/* Five rounds, after which each letter has its place again. Loops would cost a third more. */
#define FIVE(f, constant, word, t) \
    ROUND(f, constant, word(t), a, b, c, d, e), ROUND(f, constant, word((t) + 1), e, a, b, c, d), \
        ROUND(f, constant, word((t) + 2), d, e, a, b, c), ROUND(f, constant, word((t) + 3), c, d, e, a, b), \
        ROUND(f, constant, word((t) + 4), b, c, d, e, a)
#define TWENTY(f, constant, t) \
    FIVE(f, constant, NEXT_WORD, t), FIVE(f, constant, NEXT_WORD, (t) + 5), FIVE(f, constant, NEXT_WORD, (t) + 10), \
        FIVE(f, constant, NEXT_WORD, (t) + 15)

/* One block of each lane, read by `words`, which are used up. */
INLINE void compress(Words *state, Words *words)
{
    Words a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    FIVE(CHOSEN, 0x5A827999u, WORD, 0), FIVE(CHOSEN, 0x5A827999u, WORD, 5), FIVE(CHOSEN, 0x5A827999u, WORD, 10);
    ROUND(CHOSEN, 0x5A827999u, WORD(15), a, b, c, d, e), ROUND(CHOSEN, 0x5A827999u, NEXT_WORD(16), e, a, b, c, d);
    ROUND(CHOSEN, 0x5A827999u, NEXT_WORD(17), d, e, a, b, c), ROUND(CHOSEN, 0x5A827999u, NEXT_WORD(18), c, d, e, a, b);
    ROUND(CHOSEN, 0x5A827999u, NEXT_WORD(19), b, c, d, e, a);
    TWENTY(PARITY, 0x6ED9EBA1u, 20);
    TWENTY(MAJORITY, 0x8F1BBCDCu, 40);
    TWENTY(PARITY, 0xCA62C1D6u, 60);
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

/* Pad a message behind the block that its key took; how many blocks it has now. */
static size_t pad(Hmac *message)
{
    size_t blocks = (message->size + 9 + BLOCK_BYTES - 1) / BLOCK_BYTES;
    uint8_t *end = message->bytes + blocks * BLOCK_BYTES;
    message->bytes[message->size] = 0x80;
    memset(message->bytes + message->size + 1, 0, (size_t)(end - message->bytes) - message->size - 1);
    put64(end - 8, (uint64_t)(BLOCK_BYTES + message->size) * 8);
    return blocks;
}

INLINE void read_states(Words *state, const Hmac *messages, int count, int key_at)
{
    for (int word = 0; word < STATE_WORDS; word++) {
        Lanes lanes = {0};
        for (int lane = 0; lane < count; lane++)
            lanes[lane] = (uint32_t)get32(messages[lane].key + key_at + 4 * word);
        memcpy(&state[word], lanes, sizeof lanes);
    }
}

INLINE void hash_all(Hmac *messages, int count)
{
    Words state[STATE_WORDS], words[16], before[STATE_WORDS];
    Lanes lanes[16], inner[STATE_WORDS];
    size_t blocks[HMAC_LANES], most = 0;
    for (int lane = 0; lane < count; lane++) {
        blocks[lane] = pad(&messages[lane]);
        most = blocks[lane] > most ? blocks[lane] : most;
    }
    memset(lanes, 0, sizeof lanes);
    read_states(state, messages, count, 0);
    for (size_t block = 0; block < most; block++) {
        Lanes goes_on = {0}; /* a shorter message keeps the state it ended with */
        Words mask;
        for (int lane = 0; lane < count; lane++) {
            if (block >= blocks[lane])
                continue;
            goes_on[lane] = UINT32_MAX;
            for (int word = 0; word < 16; word++)
                lanes[word][lane] = (uint32_t)get32(messages[lane].bytes + block * BLOCK_BYTES + 4 * word);
        }
        memcpy(words, lanes, sizeof words);
        memcpy(&mask, goes_on, sizeof mask);
        memcpy(before, state, sizeof state);
        compress(state, words);
        for (int word = 0; word < STATE_WORDS; word++)
            state[word] = (state[word] & mask) | (before[word] & ~mask);
    }
    /* The outer hash: one block with the inner digest. */
    memset(words, 0, sizeof words);
    memcpy(words, state, sizeof state);
    words[5] += 0x80000000u;
    words[15] += (BLOCK_BYTES + DIGEST_BYTES) * 8;
    read_states(state, messages, count, DIGEST_BYTES);
    compress(state, words);
    memcpy(inner, state, sizeof inner);
    for (int lane = 0; lane < count; lane++)
        for (int word = 0; word < STATE_WORDS; word++)
            put32(messages[lane].digest + 4 * word, inner[word][lane]);
}

static void hash_plainly(Hmac *messages, int count) { hash_all(messages, count); }

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) static void hash_avx2(Hmac *messages, int count) { hash_all(messages, count); }
__attribute__((target("avx512f,avx512vl"))) static void hash_avx512(Hmac *messages, int count) { hash_all(messages, count); }
#endif

void hmac_all(Hmac *messages, int count)
{
    static void (*chosen)(Hmac *, int);
    if (chosen == NULL) {
        chosen = hash_plainly;
#if defined(__x86_64__) && defined(__GNUC__)
        __builtin_cpu_init();
        chosen = __builtin_cpu_supports("avx512vl") ? hash_avx512 : __builtin_cpu_supports("avx2") ? hash_avx2 : hash_plainly;
#endif
    }
    chosen(messages, count);
}

/* hmac_key(secret): a secret of at most one block as a prepared key. */
EXPORT(hmac_key)
{
    Py_buffer secret;
    if (check_count("hmac_key", count, 1) || read_from(args[0], &secret))
        return NULL;
    if (secret.len > BLOCK_BYTES) {
        PyBuffer_Release(&secret);
        return PyErr_Format(PyExc_ValueError, "a key has at most %d bytes", BLOCK_BYTES);
    }
    static const uint8_t pads[] = {0x36, 0x5C};
    uint8_t key[HMAC_KEY_BYTES];
    for (int half = 0; half < 2; half++) {
        Words state[STATE_WORDS], words[16];
        uint8_t block[BLOCK_BYTES];
        for (int at = 0; at < BLOCK_BYTES; at++)
            block[at] = pads[half] ^ (at < secret.len ? ((const uint8_t *)secret.buf)[at] : 0);
        for (int word = 0; word < 16; word++)
            words[word] = (Words){0} + (uint32_t)get32(block + 4 * word);
        for (int word = 0; word < STATE_WORDS; word++)
            state[word] = (Words){0} + FIRST_STATE[word];
        compress(state, words);
        for (int word = 0; word < STATE_WORDS; word++)
            put32(key + half * DIGEST_BYTES + 4 * word, state[word][0]);
    }
    PyBuffer_Release(&secret);
    return PyBytes_FromStringAndSize((const char *)key, sizeof key);
}
