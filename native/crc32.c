/* CRC-32 as zlib has it, eight bytes at a time, or sixteen with the processor's carry-less multiplication. */
#include "common.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_FOLDING 1
#endif

#define POLYNOMIAL 0xEDB88320u

static uint32_t tables[8][256];
static int can_fold;

void crc32_ready(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++)
            tables[table][byte] = tables[table - 1][byte] >> 8 ^ tables[0][tables[table - 1][byte] & 0xFF];
#ifdef HAS_FOLDING
    __builtin_cpu_init();
    can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static uint32_t by_table(uint32_t crc, const uint8_t *bytes, size_t size)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; size >= 8; bytes += 8, size -= 8) {
        uint32_t low, high;
        memcpy(&low, bytes, 4);
        memcpy(&high, bytes + 4, 4);
        low ^= crc;
        crc = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^ tables[4][low >> 24]
            ^ tables[3][high & 0xFF] ^ tables[2][high >> 8 & 0xFF] ^ tables[1][high >> 16 & 0xFF] ^ tables[0][high >> 24];
    }
#endif
    while (size--)
        crc = crc >> 8 ^ tables[0][(crc ^ *bytes++) & 0xFF];
    return crc;
}

#ifdef HAS_FOLDING
#define FOLD(x, with, next) \
    _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, with, 0x00), _mm_clmulepi64_si128(x, with, 0x11)), next)
#define LOAD(at) _mm_loadu_si128((const __m128i *)(at))

/* Four lanes of 16 bytes are folded forward over each other, then into one, and that one is reduced (Barrett). The numbers
 * are powers of x modulo the polynomial, bits reversed. `size` is a multiple of 16, at least 64. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t by_folding(uint32_t crc, const uint8_t *bytes, size_t size)
{
    const __m128i over_64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i over_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i over_8 = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i low_halves = _mm_set_epi32(0, -1, 0, -1);
    __m128i a = _mm_xor_si128(LOAD(bytes), _mm_cvtsi32_si128((int)crc));
    __m128i b = LOAD(bytes + 16), c = LOAD(bytes + 32), d = LOAD(bytes + 48);
    for (bytes += 64, size -= 64; size >= 64; bytes += 64, size -= 64) {
        a = FOLD(a, over_64, LOAD(bytes));
        b = FOLD(b, over_64, LOAD(bytes + 16));
        c = FOLD(c, over_64, LOAD(bytes + 32));
        d = FOLD(d, over_64, LOAD(bytes + 48));
    }
    a = FOLD(a, over_16, b);
    a = FOLD(a, over_16, c);
    a = FOLD(a, over_16, d);
    for (; size >= 16; bytes += 16, size -= 16)
        a = FOLD(a, over_16, LOAD(bytes));
    b = _mm_clmulepi64_si128(a, over_16, 0x10);
    a = _mm_xor_si128(_mm_srli_si128(a, 8), b);
    b = _mm_srli_si128(a, 4);
    a = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low_halves), over_8, 0x00), b);
    b = _mm_clmulepi64_si128(_mm_and_si128(a, low_halves), barrett, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, low_halves), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, b), 1);
}
#endif

uint32_t crc32_of(const uint8_t *bytes, size_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
#ifdef HAS_FOLDING
    if (can_fold && size >= 64) {
        size_t folded = size & ~(size_t)15;
        crc = by_folding(crc, bytes, folded);
        bytes += folded;
        size -= folded;
    }
#endif
    return ~by_table(crc, bytes, size);
}

EXPORT(crc32)
{
    Py_buffer view;
    if (check_count("crc32", count, 1) || read_from(args[0], &view))
        return NULL;
    uint32_t crc = crc32_of(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}
