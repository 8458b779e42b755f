package rocketline.interop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON as plain maps, lists, strings, Long, Double, Boolean and null.
 *
 * <p>Our own because the client's JSON library changes between its versions. The output is ASCII, so that
 * lone surrogates and any console encoding survive the pipe.
 */
final class Json {
    private static final int MAX_DEPTH = 64;

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value(0);
        json.skipSpace();
        if (json.at != text.length()) {
            throw json.broken("nothing more");
        }
        return value;
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private Object value(int depth) {
        if (depth > MAX_DEPTH) {
            throw broken("less nesting");
        }
        skipSpace();
        if (at >= text.length()) {
            throw broken("a value");
        }
        return switch (text.charAt(at)) {
            case '{' -> object(depth);
            case '[' -> array(depth);
            case '"' -> string();
            case 't' -> word("true", Boolean.TRUE);
            case 'f' -> word("false", Boolean.FALSE);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Map<String, Object> object(int depth) {
        Map<String, Object> members = new LinkedHashMap<>();
        expect('{');
        if (!accept('}')) {
            do {
                skipSpace();
                String name = string();
                expect(':');
                members.put(name, value(depth + 1));
            } while (accept(','));
            expect('}');
        }
        return members;
    }

    private List<Object> array(int depth) {
        List<Object> items = new ArrayList<>();
        expect('[');
        if (!accept(']')) {
            do {
                items.add(value(depth + 1));
            } while (accept(','));
            expect(']');
        }
        return items;
    }

    private String string() {
        expect('"');
        StringBuilder out = new StringBuilder();
        while (true) {
            if (at >= text.length()) {
                throw broken("a closing quote");
            }
            char c = text.charAt(at++);
            if (c == '"') {
                return out.toString();
            }
            out.append(c == '\\' ? escaped() : c);
        }
    }

    private char escaped() {
        if (at >= text.length()) {
            throw broken("an escape");
        }
        char c = text.charAt(at++);
        switch (c) {
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'u':
                if (at + 4 > text.length()) {
                    throw broken("four hex digits");
                }
                at += 4;
                return (char) Integer.parseInt(text.substring(at - 4, at), 16);
            default:
                return c;
        }
    }

    private Object word(String word, Object meaning) {
        if (!text.startsWith(word, at)) {
            throw broken(word);
        }
        at += word.length();
        return meaning;
    }

    private Object number() {
        int start = at;
        while (at < text.length() && "+-.0123456789eE".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String digits = text.substring(start, at);
        try {
            if (digits.matches("-?[0-9]+")) {
                return Long.valueOf(digits);
            }
            return Double.valueOf(digits);
        } catch (NumberFormatException e) {
            at = start;
            throw broken("a value");
        }
    }

    private void skipSpace() {
        while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
            at++;
        }
    }

    private boolean accept(char wanted) {
        skipSpace();
        boolean found = at < text.length() && text.charAt(at) == wanted;
        if (found) {
            at++;
        }
        return found;
    }

    private void expect(char wanted) {
        if (!accept(wanted)) {
            throw broken("'" + wanted + "'");
        }
    }

    private IllegalArgumentException broken(String wanted) {
        return new IllegalArgumentException("not JSON: expected " + wanted + " at character " + at);
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map<?, ?> map) {
            writeObject(map, out);
        } else if (value instanceof Iterable<?> items) {
            out.append('[');
            String separator = "";
            for (Object item : items) {
                out.append(separator);
                write(item, out);
                separator = ",";
            }
            out.append(']');
        } else if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else {
            writeString(value.toString(), out);
        }
    }

    private static void writeObject(Map<?, ?> map, StringBuilder out) {
        out.append('{');
        String separator = "";
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            out.append(separator);
            writeString(String.valueOf(entry.getKey()), out);
            out.append(':');
            write(entry.getValue(), out);
            separator = ",";
        }
        out.append('}');
    }

    private static void writeString(String string, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < string.length(); i++) {
            char c = string.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c >= ' ' && c < 127) {
                out.append(c);
            } else {
                out.append(String.format("\\u%04x", (int) c));
            }
        }
        out.append('"');
    }
}
