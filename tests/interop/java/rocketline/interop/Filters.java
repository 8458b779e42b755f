package rocketline.interop;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Apache's SQL92 filter, by name: only a broker's class path has it. */
final class Filters {
    private static final String PACKAGE = "org.apache.rocketmq.filter.";

    /** For each expression null when it does not compile, else a value or "error" for each map of properties. */
    Object evaluate(Args args) throws Exception {
        List<Object> results = new ArrayList<>();
        Object factory = Class.forName(PACKAGE + "FilterFactory").getField("INSTANCE").get(null);
        Object language = Reflect.call(factory, "get", "SQL92");
        for (Args item : args.objects("cases")) {
            results.add(values(language, item));
        }
        return results;
    }

    private static Object values(Object language, Args item) throws Exception {
        Object expression;
        try {
            expression = Reflect.call(language, "compile", item.string("expression"));
        } catch (Exception refused) {
            return null;
        }
        List<Object> values = new ArrayList<>();
        for (Args message : item.objects("messages")) {
            values.add(value(expression, message.strings("properties")));
        }
        return values;
    }

    private static Object value(Object expression, Map<String, String> properties) throws Exception {
        Class<?> type = Class.forName(PACKAGE + "expression.EvaluationContext");
        Object context = Proxy.newProxyInstance(
            type.getClassLoader(), new Class<?>[] {type}, (proxy, method, given) -> properties.get((String) given[0]));
        try {
            var method = Class.forName(PACKAGE + "expression.Expression").getMethod("evaluate", type);
            return method.invoke(expression, context);
        } catch (InvocationTargetException failed) {
            return "error";
        }
    }
}
