package rocketline.interop;

import java.io.BufferedReader;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Apache's Java client for gRPC, driven from outside: one JSON object per line in, {"cmd": ..., "args": {...}}, and one per
 * line out, {"result": ...} or {"error": text}.
 */
public final class FiveDriver {
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Map<String, Closeable> clients = new HashMap<>();
    private final Map<String, List<Object>> seen = new HashMap<>();
    private final Map<String, MessageView> held = new HashMap<>();
    private final Map<String, Command> commands = new TreeMap<>();

    private interface Command {
        Object run(Args args) throws Exception;
    }

    private FiveDriver() {
        commands.put("ping", args -> "pong");
        commands.put("start_producer", this::startProducer);
        commands.put("send", this::send);
        commands.put("send_in_transaction", this::sendInTransaction);
        commands.put("recall", this::recall);
        commands.put("start_simple", this::startSimple);
        commands.put("receive", this::receive);
        commands.put("ack", this::ack);
        commands.put("change", this::change);
        commands.put("start_push", this::startPush);
        commands.put("seen", args -> new ArrayList<>(seen.get(args.string("name"))));
        commands.put("stop", this::stop);
    }

    public static void main(String[] arguments) throws IOException {
        // Standard output is the wire: whatever else prints goes to standard error.
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        FiveDriver driver = new FiveDriver();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<?, ?> request = (Map<?, ?>) Json.read(line);
            boolean quits = "quit".equals(request.get("cmd"));
            out.print(Json.write(quits ? result(null) : driver.answer(request)) + "\n");
            out.flush();
            if (quits) {
                break;
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> answer(Map<?, ?> request) {
        try {
            return result(commands.get((String) request.get("cmd")).run(new Args((Map<?, ?>) request.get("args"))));
        } catch (Throwable e) {
            Map<String, Object> reply = new LinkedHashMap<>();
            reply.put("error", String.valueOf(e));
            return reply;
        }
    }

    private static Map<String, Object> result(Object value) {
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("result", value);
        return reply;
    }

    private static ClientConfiguration configuration(Args args) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(args.string("endpoint"))
            .setRequestTimeout(Duration.ofSeconds(Long.parseLong(System.getenv("REQUEST_S"))));
        if (args.has("access_key")) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(args.string("access_key"), args.string("secret_key")));
        }
        return builder.build();
    }

    private Object startProducer(Args args) throws Exception {
        List<Object> asked = watch(args);
        TransactionResolution outcome = TransactionResolution.valueOf(args.string("check", "UNKNOWN"));
        Producer producer = provider.newProducerBuilder()
            .setClientConfiguration(configuration(args))
            .setTopics(args.names("topics").toArray(new String[0]))
            .setTransactionChecker(message -> {
                asked.add(message.getMessageId().toString());
                return outcome;
            })
            .build();
        clients.put(args.string("name"), producer);
        return null;
    }

    private Object send(Args args) throws Exception {
        SendReceipt receipt = producer(args).send(message(args));
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("id", receipt.getMessageId().toString());
        reply.put("recall_handle", receipt.getRecallHandle());
        return reply;
    }

    private Object sendInTransaction(Args args) throws Exception {
        Transaction transaction = producer(args).beginTransaction();
        SendReceipt receipt = producer(args).send(message(args), transaction);
        switch (args.string("outcome")) {
            case "COMMIT" -> transaction.commit();
            case "ROLLBACK" -> transaction.rollback();
            default -> { }
        }
        return Map.of("id", receipt.getMessageId().toString());
    }

    private Object recall(Args args) throws Exception {
        return producer(args).recallMessage(args.string("topic"), args.string("handle")).getMessageId().toString();
    }

    private Object startSimple(Args args) throws Exception {
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration(args))
            .setConsumerGroup(args.string("group"))
            .setSubscriptionExpressions(subscription(args))
            .setAwaitDuration(Duration.ofSeconds(5))
            .build();
        clients.put(args.string("name"), consumer);
        return null;
    }

    private Object receive(Args args) throws Exception {
        List<Object> found = new ArrayList<>();
        for (MessageView view : simple(args).receive(args.integer("count"), Duration.ofSeconds(args.number("invisible_s")))) {
            held.put(view.getMessageId().toString(), view);
            found.add(shown(view));
        }
        return found;
    }

    private Object ack(Args args) throws Exception {
        simple(args).ack(held.get(args.string("id")));
        return null;
    }

    private Object change(Args args) throws Exception {
        simple(args).changeInvisibleDuration(held.get(args.string("id")), Duration.ofSeconds(args.number("invisible_s")));
        return null;
    }

    private Object startPush(Args args) throws Exception {
        List<Object> delivered = watch(args);
        int failFirst = args.integer("fail_first", 0);
        Map<String, Integer> times = new ConcurrentHashMap<>();
        clients.put(args.string("name"), provider.newPushConsumerBuilder()
            .setClientConfiguration(configuration(args))
            .setConsumerGroup(args.string("group"))
            .setSubscriptionExpressions(subscription(args))
            .setMessageListener(view -> {
                delivered.add(shown(view));
                int time = times.merge(view.getMessageId().toString(), 1, Integer::sum);
                return time <= failFirst ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            .build());
        return null;
    }

    private Object stop(Args args) throws Exception {
        clients.remove(args.string("name")).close();
        return null;
    }

    private List<Object> watch(Args args) {
        List<Object> list = new CopyOnWriteArrayList<>();
        seen.put(args.string("name"), list);
        return list;
    }

    private Producer producer(Args args) {
        return (Producer) clients.get(args.string("name"));
    }

    private SimpleConsumer simple(Args args) {
        return (SimpleConsumer) clients.get(args.string("name"));
    }

    private static Map<String, FilterExpression> subscription(Args args) {
        return Map.of(args.string("topic"), new FilterExpression(args.string("expression", "*")));
    }

    private Message message(Args args) {
        MessageBuilder builder = provider.newMessageBuilder()
            .setTopic(args.string("topic"))
            .setBody(args.string("body").getBytes(StandardCharsets.UTF_8));
        if (args.has("tag")) {
            builder.setTag(args.string("tag"));
        }
        if (args.has("keys")) {
            builder.setKeys(args.names("keys").toArray(new String[0]));
        }
        if (args.has("group")) {
            builder.setMessageGroup(args.string("group"));
        }
        if (args.has("deliver_ms")) {
            builder.setDeliveryTimestamp(args.number("deliver_ms"));
        }
        args.strings("properties").forEach(builder::addProperty);
        return builder.build();
    }

    private static Map<String, Object> shown(MessageView view) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("id", view.getMessageId().toString());
        map.put("topic", view.getTopic());
        map.put("body", StandardCharsets.UTF_8.decode(view.getBody()).toString());
        map.put("tag", view.getTag().orElse(null));
        map.put("keys", view.getKeys().stream().sorted().toList());
        map.put("properties", view.getProperties());
        map.put("group", view.getMessageGroup().orElse(null));
        map.put("attempt", view.getDeliveryAttempt());
        return map;
    }
}
