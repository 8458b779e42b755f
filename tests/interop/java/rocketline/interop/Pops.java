package rocketline.interop;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Pops, acknowledgements and changes of the invisible time as single requests, by the class that Apache's consumers send
 * theirs with. By name only: 4.9.7 has none of it.
 */
final class Pops {
    private static final long TIMEOUT_MS = Patience.MS;
    private static final int QUEUE_ID = 6;
    private static final int QUEUE_OFFSET = 7;

    private final Admin admin;

    Pops(Admin admin) {
        this.admin = admin;
    }

    /** The messages, each with its receipt handle as the property POP_CK. */
    Object pop(Args args) throws Exception {
        Map.Entry<String, String> broker = admin.master(args);
        Object header = Reflect.create("header.PopMessageRequestHeader");
        Reflect.call(header, "setConsumerGroup", args.string("group"));
        Reflect.call(header, "setTopic", args.string("topic"));
        Reflect.call(header, "setQueueId", -1);
        Reflect.call(header, "setMaxMsgNums", args.integer("count", 32));
        Reflect.call(header, "setInvisibleTime", args.number("invisible_ms"));
        Reflect.call(header, "setPollTime", args.number("poll_ms", 0));
        Reflect.call(header, "setBornTime", System.currentTimeMillis());
        Reflect.call(header, "setInitMode", 0);
        Reflect.call(header, "setOrder", false);
        CompletableFuture<Object> answer = new CompletableFuture<>();
        Reflect.call(admin.clientApi(args), "popMessageAsync", broker.getKey(), broker.getValue(), header,
            args.number("poll_ms", 0) + TIMEOUT_MS, callback("PopCallback", answer));
        Object found = Reflect.call(await(answer, args), "getMsgFoundList");
        return found == null ? new ArrayList<>() : Reflect.plain(found);
    }

    Object ack(Args args) throws Exception {
        CompletableFuture<Object> answer = new CompletableFuture<>();
        Reflect.call(admin.clientApi(args), "ackMessageAsync", admin.master(args).getValue(), TIMEOUT_MS,
            callback("AckCallback", answer), header("header.AckMessageRequestHeader", args));
        return status(await(answer, args));
    }

    Object ackBatch(Args args) throws Exception {
        CompletableFuture<Object> answer = new CompletableFuture<>();
        List<String> handles = new ArrayList<>();
        args.list("handles").forEach(handle -> handles.add((String) handle));
        Reflect.call(admin.clientApi(args), "batchAckMessageAsync", admin.master(args).getValue(), TIMEOUT_MS,
            callback("AckCallback", answer), args.string("topic"), args.string("group"), handles);
        return status(await(answer, args));
    }

    /** The handle that counts from now on. */
    Object change(Args args) throws Exception {
        Map.Entry<String, String> broker = admin.master(args);
        CompletableFuture<Object> answer = new CompletableFuture<>();
        Object header = header("header.ChangeInvisibleTimeRequestHeader", args);
        Reflect.call(header, "setInvisibleTime", args.number("invisible_ms"));
        Reflect.call(admin.clientApi(args), "changeInvisibleTimeAsync", broker.getKey(), broker.getValue(), header,
            TIMEOUT_MS, callback("AckCallback", answer));
        return Reflect.call(await(answer, args), "getExtraInfo");
    }

    private static Object header(String name, Args args) throws Exception {
        String[] handle = args.string("handle").split(" ");
        Object header = Reflect.create(name);
        Reflect.call(header, "setConsumerGroup", args.string("group"));
        Reflect.call(header, "setTopic", args.string("topic"));
        Reflect.call(header, "setQueueId", Integer.valueOf(handle[QUEUE_ID]));
        Reflect.call(header, "setOffset", Long.valueOf(handle[QUEUE_OFFSET]));
        Reflect.call(header, "setExtraInfo", args.string("handle"));
        return header;
    }

    private static Object callback(String name, CompletableFuture<Object> answer) throws Exception {
        Class<?> type = Class.forName("org.apache.rocketmq.client.consumer." + name);
        return Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, parameters) -> {
            switch (method.getName()) {
                case "onSuccess" -> answer.complete(parameters[0]);
                case "onException" -> answer.completeExceptionally((Throwable) parameters[0]);
                default -> throw new UnsupportedOperationException(method.getName());
            }
            return null;
        });
    }

    private static Object await(CompletableFuture<Object> answer, Args args) throws Exception {
        return answer.get(args.number("poll_ms", 0) + 2 * TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    private static Object status(Object result) throws Exception {
        return Reflect.plain(Reflect.call(result, "getStatus"));
    }
}
