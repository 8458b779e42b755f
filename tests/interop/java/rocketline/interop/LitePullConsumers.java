package rocketline.interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The commands of lite pull consumers. A queue is given as {topic, broker, queue_id}. */
final class LitePullConsumers {
    private final Open<DefaultLitePullConsumer> open =
        new Open<>("lite pull consumer", DefaultLitePullConsumer::shutdown);

    /** Subscribes to `subscriptions`, or is assigned every queue of the topics in `assign`. */
    Object start(Args args) throws Exception {
        String name = args.string("name");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args.string("group"));
        consumer.setNamesrvAddr(args.string("namesrv"));
        consumer.setInstanceName(name);
        consumer.setAutoCommit(args.flag("auto_commit", false));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(args.string("from", "CONSUME_FROM_FIRST_OFFSET")));
        consumer.setPollNameServerInterval(args.integer("route_interval_ms", 1000));
        consumer.setHeartbeatBrokerInterval(args.integer("heartbeat_interval_ms", 2000));
        for (Map.Entry<String, String> entry : args.strings("subscriptions").entrySet()) {
            consumer.subscribe(entry.getKey(), entry.getValue());
        }
        Patience.start(consumer, consumer::start);
        open.add(name, consumer);
        if (args.has("assign")) {
            List<MessageQueue> queues = new ArrayList<>();
            for (String topic : args.names("assign")) {
                queues.addAll(consumer.fetchMessageQueues(topic));
            }
            consumer.assign(queues);
        }
        return null;
    }

    Object assign(Args args) throws Exception {
        open.get(args.string("name")).assign(args.objects("queues").stream().map(Queries::queue).toList());
        return null;
    }

    Object seek(Args args) throws Exception {
        open.get(args.string("name")).seek(Queries.queue(args), args.number("offset"));
        return null;
    }

    /** Poll until at least `count` messages came or the time is over. */
    Object poll(Args args) throws Exception {
        DefaultLitePullConsumer consumer = open.get(args.string("name"));
        int count = args.integer("count");
        long deadline = System.nanoTime() + args.number("timeout_ms") * 1_000_000L;
        List<MessageExt> messages = new ArrayList<>();
        for (long left = args.number("timeout_ms"); messages.size() < count && left > 0;
                left = (deadline - System.nanoTime()) / 1_000_000L) {
            messages.addAll(consumer.poll(Math.min(left, 200)));
        }
        return Messages.seen(messages);
    }

    Object commit(Args args) throws Exception {
        open.get(args.string("name")).commitSync();
        return null;
    }

    Object committed(Args args) throws Exception {
        return open.get(args.string("name")).committed(Queries.queue(args));
    }

    Object queues(Args args) throws Exception {
        Collection<MessageQueue> queues = open.get(args.string("name")).fetchMessageQueues(args.string("topic"));
        return queues.stream().sorted().map(Queries::plain).toList();
    }

    Object stop(Args args) throws Exception {
        open.close(args.string("name"));
        return null;
    }
}
