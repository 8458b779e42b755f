package rocketline.bench;

import java.util.Locale;

/** One line of output: a JSON object of numbers and short texts. */
final class Result {
    private final StringBuilder json = new StringBuilder("{");

    Result put(String key, long value) {
        return raw(key, Long.toString(value));
    }

    Result put(String key, double value) {
        return raw(key, String.format(Locale.ROOT, "%.3f", value));
    }

    Result put(String key, String value) {
        return raw(key, '"' + value.replaceAll("[^ !#-\\[\\]-~]", "'") + '"');
    }

    Result latencies(Histogram histogram) {
        put("p50_us", histogram.micros(0.5));
        put("p99_us", histogram.micros(0.99));
        put("p999_us", histogram.micros(0.999));
        return put("max_us", histogram.maxMicros());
    }

    private Result raw(String key, String value) {
        json.append(json.length() > 1 ? "," : "").append('"').append(key).append("\":").append(value);
        return this;
    }

    @Override
    public String toString() {
        return json + "}";
    }
}
