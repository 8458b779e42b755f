package rocketline.interop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The arguments of one command. A missing or mistyped one is named in the exception. */
final class Args {
    private final Map<?, ?> values;

    Args(Map<?, ?> values) {
        this.values = values;
    }

    boolean has(String name) {
        return values.get(name) != null;
    }

    String string(String name) {
        return required(name, String.class);
    }

    String string(String name, String otherwise) {
        return has(name) ? string(name) : otherwise;
    }

    long number(String name) {
        return required(name, Number.class).longValue();
    }

    long number(String name, long otherwise) {
        return has(name) ? number(name) : otherwise;
    }

    int integer(String name) {
        return Math.toIntExact(number(name));
    }

    int integer(String name, int otherwise) {
        return Math.toIntExact(number(name, otherwise));
    }

    boolean flag(String name, boolean otherwise) {
        return has(name) ? required(name, Boolean.class) : otherwise;
    }

    byte[] bytes(String name) {
        return Hex.decode(string(name));
    }

    /** A map of strings; empty when absent. */
    Map<String, String> strings(String name) {
        Map<String, String> copy = new LinkedHashMap<>();
        if (has(name)) {
            required(name, Map.class).forEach((key, value) -> copy.put((String) key, (String) value));
        }
        return copy;
    }

    /** A list of strings; empty when absent. */
    List<String> names(String name) {
        List<String> copy = new ArrayList<>();
        if (has(name)) {
            for (Object item : required(name, List.class)) {
                copy.add((String) item);
            }
        }
        return copy;
    }

    /** A list of anything; empty when absent. */
    List<Object> list(String name) {
        return has(name) ? new ArrayList<Object>(required(name, List.class)) : new ArrayList<>();
    }

    /** A list of objects; empty when absent. */
    List<Args> objects(String name) {
        List<Args> copy = new ArrayList<>();
        if (has(name)) {
            for (Object item : required(name, List.class)) {
                copy.add(new Args((Map<?, ?>) item));
            }
        }
        return copy;
    }

    private <T> T required(String name, Class<T> type) {
        Object value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("argument '" + name + "' is missing");
        }
        if (!type.isInstance(value)) {
            throw new IllegalArgumentException("argument '" + name + "' must be a " + type.getSimpleName());
        }
        return type.cast(value);
    }
}
