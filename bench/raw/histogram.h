/* Latencies in nanoseconds, kept in log-linear buckets: 64 per power of two, so a figure is off by < 1.6 %. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

#define SUB_BITS 6
#define SUB_COUNT (1 << SUB_BITS)
#define BUCKETS ((64 - SUB_BITS) * SUB_COUNT)

struct histogram {
    uint64_t buckets[BUCKETS];
    uint64_t count;
    uint64_t sum;
    uint64_t max;
};

static inline unsigned bucket_of(uint64_t value) {
    if (value < SUB_COUNT)
        return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - SUB_BITS;
    return (shift + 1) * SUB_COUNT + (unsigned)((value >> shift) & (SUB_COUNT - 1));
}

static inline uint64_t bucket_top(unsigned bucket) {
    if (bucket < SUB_COUNT)
        return bucket;
    unsigned shift = bucket / SUB_COUNT - 1;
    return (((uint64_t)(bucket % SUB_COUNT) + SUB_COUNT + 1) << shift) - 1;
}

static inline void histogram_add(struct histogram *h, uint64_t value) {
    h->buckets[bucket_of(value)]++;
    h->count++;
    h->sum += value;
    if (value > h->max)
        h->max = value;
}

static inline uint64_t histogram_at(const struct histogram *h, double quantile) {
    uint64_t wanted = (uint64_t)(quantile * (double)h->count + 0.5), seen = 0;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        seen += h->buckets[bucket];
        if (seen >= wanted && seen > 0)
            return bucket_top(bucket) < h->max ? bucket_top(bucket) : h->max;
    }
    return h->max;
}

#endif
