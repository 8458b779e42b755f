package rocketline.interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** The commands of producers. */
final class Producers {
    private static final int FAILURES_SHOWN = 20;

    private final Open<DefaultMQProducer> open = new Open<>("producer", DefaultMQProducer::shutdown);

    Object start(Args args) throws Exception {
        String name = args.string("name");
        DefaultMQProducer producer = create(args);
        if (args.has("namespace")) {
            producer.setNamespace(args.string("namespace"));
        }
        producer.setUnitName(args.string("unit_name", null));
        producer.setUnitMode(args.has("unit_name"));
        producer.setNamesrvAddr(args.string("namesrv"));
        producer.setInstanceName(name);
        producer.setSendMsgTimeout(args.integer("timeout_ms", Patience.MS));
        producer.setRetryTimesWhenSendFailed(args.integer("retries", 2));
        producer.setRetryTimesWhenSendAsyncFailed(args.integer("retries", 2));
        producer.setCompressMsgBodyOverHowmuch(args.integer("compress_over", 4096));
        producer.setDefaultTopicQueueNums(args.integer("default_queues", 4));
        producer.setMaxMessageSize(args.integer("max_message_size", 4 << 20));
        Patience.start(producer, producer::start);
        open.add(name, producer);
        return null;
    }

    /** 4.9.7 fixes its compressor on construction, from this property; newer ones read it as their default. */
    private static DefaultMQProducer create(Args args) {
        String property = "rocketmq.message.compressType";
        System.setProperty(property, args.string("compress_type", "ZLIB"));
        try {
            return new DefaultMQProducer(
                args.string("group"), Signing.hook(), args.flag("trace", false), args.string("trace_topic", null));
        } finally {
            System.clearProperty(property);
        }
    }

    Object send(Args args) throws Exception {
        DefaultMQProducer producer = open.get(args.string("name"));
        Message message = Messages.from(args);
        MessageQueue queue = queue(producer, args);
        SendResult result = switch (args.string("mode", "sync")) {
            case "sync" -> queue == null ? producer.send(message) : producer.send(message, queue);
            case "async" -> sendAsync(producer, message, queue);
            case "oneway" -> sendOneway(producer, message, queue);
            default -> throw new IllegalArgumentException("mode must be sync, async or oneway");
        };
        return Messages.sent(message, result);
    }

    Object recall(Args args) throws Exception {
        DefaultMQProducer producer = open.get(args.string("name"));
        return Reflect.call(producer, "recallMessage", args.string("topic"), args.string("handle"));
    }

    Object request(Args args) throws Exception {
        return Requests.request(open.get(args.string("name")), args);
    }

    Object sendBatch(Args args) throws Exception {
        DefaultMQProducer producer = open.get(args.string("name"));
        Collection<Message> batch = new ArrayList<>(args.objects("messages").stream().map(Messages::from).toList());
        MessageQueue queue = args.has("queue_id") ? queue(producer, args) : null;
        SendResult result = queue == null ? producer.send(batch) : producer.send(batch, queue);
        Map<String, Object> reply = new LinkedHashMap<>(Messages.receipt(result));
        reply.put("messages", batch.stream().map(message -> Messages.sent(message, null)).toList());
        return reply;
    }

    /** `count` messages from `threads` threads; the i-th body is the prefix and i, padded with '.' to `size`. */
    Object sendMany(Args args) throws Exception {
        DefaultMQProducer producer = open.get(args.string("name"));
        String topic = args.string("topic");
        String prefix = args.string("prefix", "");
        int count = args.integer("count");
        int size = args.integer("size", 0);
        AtomicInteger next = new AtomicInteger();
        AtomicInteger acknowledged = new AtomicInteger();
        ConcurrentLinkedQueue<Map<String, Object>> failures = new ConcurrentLinkedQueue<>();
        Runnable sender = () -> {
            for (int i = next.getAndIncrement(); i < count; i = next.getAndIncrement()) {
                String body = prefix + i;
                Message message = new Message(topic, args.string("tags", null), padded(body, size));
                try {
                    SendStatus status = producer.send(message).getSendStatus();
                    if (status != SendStatus.SEND_OK) {
                        throw new IllegalStateException(status.name());
                    }
                    acknowledged.incrementAndGet();
                } catch (Exception e) {
                    failures.add(Map.of("index", i, "error", Driver.describe(e)));
                }
            }
        };
        long started = System.nanoTime();
        runInThreads(sender, args.integer("threads", 1));
        return Map.of(
            "acknowledged", acknowledged.get(),
            "failed", failures.size(),
            "failures", failures.stream().limit(FAILURES_SHOWN).toList(),
            "elapsedMs", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - started));
    }

    Object stop(Args args) throws Exception {
        open.close(args.string("name"));
        return null;
    }

    private static SendResult sendAsync(DefaultMQProducer producer, Message message, MessageQueue queue)
            throws Exception {
        CompletableFuture<SendResult> outcome = new CompletableFuture<>();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                outcome.complete(result);
            }

            @Override
            public void onException(Throwable e) {
                outcome.completeExceptionally(e);
            }
        };
        if (queue == null) {
            producer.send(message, callback);
        } else {
            producer.send(message, queue, callback);
        }
        return outcome.get(60, TimeUnit.SECONDS);
    }

    private static SendResult sendOneway(DefaultMQProducer producer, Message message, MessageQueue queue)
            throws Exception {
        if (queue == null) {
            producer.sendOneway(message);
        } else {
            producer.sendOneway(message, queue);
        }
        return null;
    }

    /** The queue that was asked for, or null for the producer's own choice. */
    private static MessageQueue queue(DefaultMQProducer producer, Args args) throws MQClientException {
        if (!args.has("queue_id")) {
            return null;
        }
        int id = args.integer("queue_id");
        String broker = args.string("broker", null);
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(args.string("topic"));
        return queues.stream()
            .filter(queue -> queue.getQueueId() == id && (broker == null || broker.equals(queue.getBrokerName())))
            .findFirst()
            .orElseThrow(() -> new IllegalArgumentException("no queue " + id + " among " + queues));
    }

    private static byte[] padded(String body, int size) {
        String padding = ".".repeat(Math.max(0, size - body.length()));
        return (body + padding).getBytes(java.nio.charset.StandardCharsets.UTF_8);
    }

    private static void runInThreads(Runnable work, int count) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            threads.add(new Thread(work, "send-many-" + i));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
    }
}
