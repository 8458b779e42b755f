package rocketline.bench;

import java.util.HashMap;
import java.util.Map;

/** One line of input: a verb and its settings, {@code send threads=64 seconds=10 ...}. */
record Command(String verb, Map<String, String> settings) {
    static Command parse(String line) {
        String[] words = line.trim().split("\\s+");
        Map<String, String> settings = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            if (equals < 1) {
                throw new IllegalArgumentException("not key=value: " + words[i]);
            }
            settings.put(words[i].substring(0, equals), words[i].substring(equals + 1));
        }
        return new Command(words[0], settings);
    }

    String text(String key) {
        String value = settings.get(key);
        if (value == null) {
            throw new IllegalArgumentException(verb + " needs " + key + "=");
        }
        return value;
    }

    int whole(String key) {
        return Integer.parseInt(text(key));
    }

    int whole(String key, int fallback) {
        return settings.containsKey(key) ? whole(key) : fallback;
    }

    double number(String key) {
        return Double.parseDouble(text(key));
    }

    long nanos(String key) {
        return (long) (number(key) * 1e9);
    }
}
