package rocketline.bench;

/** Latencies in nanoseconds in log-linear buckets, 64 per power of two: a figure is off by less than 1.6 %. */
final class Histogram {
    private static final int SUB_BITS = 6;
    private static final int SUB_COUNT = 1 << SUB_BITS;

    private final long[] buckets = new long[(64 - SUB_BITS) * SUB_COUNT];
    private long count;
    private long max;

    void add(long nanos) {
        buckets[bucketOf(nanos)]++;
        count++;
        max = Math.max(max, nanos);
    }

    void add(Histogram other) {
        for (int i = 0; i < buckets.length; i++) {
            buckets[i] += other.buckets[i];
        }
        count += other.count;
        max = Math.max(max, other.max);
    }

    double maxMicros() {
        return max / 1e3;
    }

    double micros(double quantile) {
        long wanted = Math.max(1, Math.round(quantile * count));
        long seen = 0;
        for (int bucket = 0; bucket < buckets.length; bucket++) {
            seen += buckets[bucket];
            if (seen >= wanted) {
                return Math.min(topOf(bucket), max) / 1e3;
            }
        }
        return max / 1e3;
    }

    private static int bucketOf(long nanos) {
        if (nanos < SUB_COUNT) {
            return (int) Math.max(0, nanos);
        }
        int shift = 63 - Long.numberOfLeadingZeros(nanos) - SUB_BITS;
        return (shift + 1) * SUB_COUNT + (int) ((nanos >> shift) & (SUB_COUNT - 1));
    }

    private static long topOf(int bucket) {
        if (bucket < SUB_COUNT) {
            return bucket;
        }
        int shift = bucket / SUB_COUNT - 1;
        return ((long) (bucket % SUB_COUNT + SUB_COUNT + 1) << shift) - 1;
    }
}
