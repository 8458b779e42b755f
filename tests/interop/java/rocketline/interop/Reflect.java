package rocketline.interop;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Calls and beans by name, for the API that moved: 5.0 took org.apache.rocketmq.common.protocol (and its
 * neighbours) to org.apache.rocketmq.remoting.protocol, so no compiled reference fits both.
 */
final class Reflect {
    private static final String[] PACKAGES = {
        "org.apache.rocketmq.common.protocol.", "org.apache.rocketmq.common.", "org.apache.rocketmq.remoting.protocol.",
    };
    private static final int MAX_DEPTH = 12;

    private Reflect() {
    }

    /** A class by the part of its name that did not move, such as "heartbeat.MessageModel". */
    static Class<?> type(String name) throws ClassNotFoundException {
        for (String prefix : PACKAGES) {
            try {
                return Class.forName(prefix + name);
            } catch (ClassNotFoundException next) {
                continue;
            }
        }
        throw new ClassNotFoundException(name + " in none of " + String.join(", ", PACKAGES));
    }

    static Object create(String name) throws Exception {
        return type(name).getConstructor().newInstance();
    }

    static Object constant(String enumName, String constant) throws Exception {
        return type(enumName).getField(constant).get(null);
    }

    /** Call the public method of this name that takes these arguments; exceptions come out as they were thrown. */
    static Object call(Object target, String name, Object... args) throws Exception {
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equals(name) && !method.isBridge() && accepts(method.getParameterTypes(), args)) {
                try {
                    return method.invoke(target, args);
                } catch (InvocationTargetException e) {
                    throw e.getCause() instanceof Exception cause ? cause : e;
                }
            }
        }
        throw new NoSuchMethodException(target.getClass().getName() + "." + name + " with " + args.length + " arguments");
    }

    static Object field(Object target, String name) throws Exception {
        Field field = target.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(target);
    }

    /** Anything as maps, lists and plain values; an object becomes the map of its getters. */
    static Object plain(Object value) throws Exception {
        return plain(value, 0);
    }

    private static Object plain(Object value, int depth) throws Exception {
        if (value == null || value instanceof String || value instanceof Number || value instanceof Boolean) {
            return value;
        }
        if (value instanceof Enum<?> constant) {
            return constant.name();
        }
        if (value instanceof byte[] bytes) {
            return Hex.encode(bytes);
        }
        if (value instanceof MessageExt message) {
            return Messages.seen(message);
        }
        if (depth > MAX_DEPTH) {
            return value.toString();
        }
        if (value instanceof Map<?, ?> map) {
            return plainMap(map, depth);
        }
        if (value instanceof Collection<?> items) {
            List<Object> copy = new ArrayList<>();
            for (Object item : items) {
                copy.add(plain(item, depth + 1));
            }
            return copy;
        }
        return value.getClass().getName().startsWith("org.apache.rocketmq.") ? getters(value, depth) : value.toString();
    }

    private static Map<String, Object> plainMap(Map<?, ?> map, int depth) throws Exception {
        Map<String, Object> copy = new LinkedHashMap<>();
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            Object key = entry.getKey();
            String name = key instanceof MessageQueue queue
                ? queue.getTopic() + "@" + queue.getBrokerName() + ":" + queue.getQueueId()
                : String.valueOf(key);
            copy.put(name, plain(entry.getValue(), depth + 1));
        }
        return copy;
    }

    private static Map<String, Object> getters(Object bean, int depth) throws Exception {
        Map<String, Object> members = new TreeMap<>();
        for (Method method : bean.getClass().getMethods()) {
            String name = method.getName();
            int prefix = name.startsWith("get") ? 3 : name.startsWith("is") ? 2 : 0;
            boolean getter = prefix > 0 && name.length() > prefix && method.getParameterCount() == 0
                && !Modifier.isStatic(method.getModifiers()) && method.getDeclaringClass() != Object.class;
            if (getter) {
                String member = Character.toLowerCase(name.charAt(prefix)) + name.substring(prefix + 1);
                members.put(member, plain(call(bean, name), depth + 1));
            }
        }
        return members;
    }

    private static boolean accepts(Class<?>[] types, Object[] args) {
        if (types.length != args.length) {
            return false;
        }
        for (int i = 0; i < types.length; i++) {
            if (args[i] != null && !boxed(types[i]).isInstance(args[i])) {
                return false;
            }
        }
        return true;
    }

    private static Class<?> boxed(Class<?> type) {
        if (type == int.class) {
            return Integer.class;
        }
        if (type == long.class) {
            return Long.class;
        }
        return type == boolean.class ? Boolean.class : type;
    }
}
