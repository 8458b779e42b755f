package rocketline.interop;

import java.io.FileWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The commands of push consumers: each collects every delivery until it is polled for them. */
final class PushConsumers {
    private final Open<Collecting> open = new Open<>("push consumer", consumer -> consumer.client.shutdown());

    Object start(Args args) throws Exception {
        String name = args.string("name");
        Collecting consumer = new Collecting(args);
        Patience.start(consumer.client, consumer.client::start);
        open.add(name, consumer);
        return null;
    }

    /** Wait until `count` deliveries are there or the time is over; hands out, and forgets, all there are. */
    Object poll(Args args) throws Exception {
        Collecting consumer = open.get(args.string("name"));
        return consumer.drain(args.integer("count"), args.number("timeout_ms"));
    }

    /** Tell the broker the offsets now; of its own accord the client waits ten seconds before it first does. */
    Object persist(Args args) throws Exception {
        open.get(args.string("name")).client.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        return null;
    }

    /** Who the consumer is, and the queues of a topic that it owns at the moment. */
    Object queues(Args args) throws Exception {
        DefaultMQPushConsumer client = open.get(args.string("name")).client;
        List<Object> owned = new ArrayList<>();
        for (MessageQueue queue : client.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(args.string("topic"))) {
                owned.add(List.of(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()));
            }
        }
        return Map.of("clientId", client.buildMQClientId(), "queues", owned);
    }

    /** End a consumer; hands out what it took since it was last polled. */
    Object stop(Args args) throws Exception {
        Collecting consumer = open.get(args.string("name"));
        open.close(args.string("name"));
        return consumer.drain(0, 0);
    }

    private static final class Collecting {
        final DefaultMQPushConsumer client;
        private final int failFirst;
        private final int retryLevel;
        private final int workMs;
        private final Map<String, Integer> failures = new ConcurrentHashMap<>();
        private List<Map<String, Object>> deliveries = new ArrayList<>();
        /** Where every delivery is told before it counts as consumed, for those who kill us; or null. */
        private final Writer journal;

        Collecting(Args args) throws Exception {
            journal = args.has("journal") ? new FileWriter(args.string("journal"), true) : null;
            failFirst = args.integer("fail_first", 0);
            retryLevel = args.integer("retry_level", 0);
            workMs = args.integer("work_ms", 0);
            client = new DefaultMQPushConsumer(args.string("group"), Signing.hook(), Allocations.strategy(args),
                args.flag("trace", false), args.string("trace_topic", null));
            if (args.has("namespace")) {
                client.setNamespace(args.string("namespace"));
            }
            client.setUnitName(args.string("unit_name", null));
            client.setUnitMode(args.has("unit_name"));
            client.setNamesrvAddr(args.string("namesrv"));
            if (args.flag("heartbeat_v2", false)) {
                Reflect.call(client, "setUseHeartbeatV2", true);
            }
            if (args.has("pop_invisible_ms")) {
                // Only a client that lets the broker share the queues out learns that its group pops.
                Reflect.call(client, "setClientRebalance", false);
                Reflect.call(client, "setPopInvisibleTime", args.number("pop_invisible_ms"));
            }
            client.setInstanceName(args.string("name"));
            client.setConsumeFromWhere(ConsumeFromWhere.valueOf(args.string("from", "CONSUME_FROM_FIRST_OFFSET")));
            client.setConsumeTimestamp(args.string("from_timestamp", client.getConsumeTimestamp()));
            client.setPollNameServerInterval(args.integer("route_interval_ms", 1000));
            client.setHeartbeatBrokerInterval(args.integer("heartbeat_interval_ms", 2000));
            client.setConsumeThreadMin(args.integer("threads", 4));
            client.setConsumeThreadMax(args.integer("threads", 4));
            // What the listener has taken counts as consumed even if the consumer is stopped at once.
            client.setAwaitTerminationMillisWhenShutdown(5000);
            client.setMaxReconsumeTimes(args.integer("max_reconsume_times", -1));
            Object model = Reflect.constant("heartbeat.MessageModel", args.string("model", "CLUSTERING"));
            Reflect.call(client, "setMessageModel", model);
            for (Map.Entry<String, String> entry : args.strings("subscriptions").entrySet()) {
                client.subscribe(entry.getKey(), entry.getValue());
            }
            for (Map.Entry<String, String> entry : args.strings("sql").entrySet()) {
                client.subscribe(entry.getKey(), MessageSelector.bySql(entry.getValue()));
            }
            if (args.flag("orderly", false)) {
                client.registerMessageListener((MessageListenerOrderly) this::consumeOrderly);
            } else {
                client.registerMessageListener((MessageListenerConcurrently) this::consume);
            }
        }

        private ConsumeConcurrentlyStatus consume(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            context.setDelayLevelWhenNextConsume(retryLevel);
            work();
            boolean accepted = collect(messages);
            return accepted ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }

        private ConsumeOrderlyStatus consumeOrderly(List<MessageExt> messages, ConsumeOrderlyContext context) {
            boolean accepted = collect(messages);
            return accepted ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        }

        private void work() {
            try {
                Thread.sleep(workMs);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }

        /** Record the deliveries; false when this one is to fail. */
        private boolean collect(List<MessageExt> messages) {
            boolean accepted = true;
            for (MessageExt message : messages) {
                accepted &= failures.merge(message.getMsgId(), 1, Integer::sum) > failFirst;
            }
            synchronized (this) {
                for (MessageExt message : messages) {
                    Map<String, Object> delivery = new LinkedHashMap<>(Messages.seen(message));
                    delivery.put("accepted", accepted);
                    delivery.put("deliveredAt", System.currentTimeMillis());
                    deliveries.add(delivery);
                    tell(message);
                }
                notifyAll();
            }
            return accepted;
        }

        private void tell(MessageExt message) {
            if (journal == null) {
                return;
            }
            try {
                journal.write(String.format("[%d, %d, %d, \"%s\"]%n", System.currentTimeMillis(),
                    message.getQueueId(), message.getQueueOffset(), Hex.encode(message.getBody())));
                journal.flush();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        synchronized List<Map<String, Object>> drain(int count, long timeoutMs) throws InterruptedException {
            long deadline = System.nanoTime() + timeoutMs * 1_000_000L;
            for (long left = timeoutMs; deliveries.size() < count && left > 0;
                    left = (deadline - System.nanoTime()) / 1_000_000L) {
                wait(left);
            }
            List<Map<String, Object>> drained = deliveries;
            deliveries = new ArrayList<>();
            return drained;
        }
    }
}
