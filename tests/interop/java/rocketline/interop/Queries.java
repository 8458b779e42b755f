package rocketline.interop;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Questions answered by a DefaultMQPullConsumer: pulls at an offset, offsets of a queue, lookups.
 *
 * <p>One such consumer per name server and group is opened on first use. It joins its group, so the group must not
 * be one whose queues a push consumer shares out.
 */
final class Queries {
    private final Open<DefaultMQPullConsumer> open = new Open<>("pull consumer", DefaultMQPullConsumer::shutdown);

    static MessageQueue queue(Args args) {
        return new MessageQueue(args.string("topic"), args.string("broker"), args.integer("queue_id"));
    }

    static Map<String, Object> plain(MessageQueue queue) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("topic", queue.getTopic());
        map.put("broker", queue.getBrokerName());
        map.put("queue_id", queue.getQueueId());
        return map;
    }

    Object pull(Args args) throws Exception {
        DefaultMQPullConsumer consumer = consumer(args);
        MessageQueue queue = queue(args);
        String expression = args.string("expression", "*");
        long offset = args.number("offset");
        int count = args.integer("count", 32);
        PullResult result = args.flag("block", false)
            ? consumer.pullBlockIfNotFound(queue, expression, offset, count)
            : consumer.pull(queue, expression, offset, count);
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("status", result.getPullStatus().name());
        map.put("nextBeginOffset", result.getNextBeginOffset());
        map.put("minOffset", result.getMinOffset());
        map.put("maxOffset", result.getMaxOffset());
        map.put("messages", result.getMsgFoundList() == null ? null : Messages.seen(result.getMsgFoundList()));
        return map;
    }

    Object offsets(Args args) throws Exception {
        DefaultMQPullConsumer consumer = consumer(args);
        MessageQueue queue = queue(args);
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("min", consumer.minOffset(queue));
        map.put("max", consumer.maxOffset(queue));
        map.put("earliestStoreTime", consumer.earliestMsgStoreTime(queue));
        if (args.has("timestamp")) {
            map.put("search", consumer.searchOffset(queue, args.number("timestamp")));
        }
        return map;
    }

    Object queryMessage(Args args) throws Exception {
        QueryResult result = consumer(args).queryMessage(
            args.string("topic"), args.string("key"), args.integer("count", 64),
            args.number("begin", 0), args.number("end", Long.MAX_VALUE));
        return Messages.seen(result.getMessageList());
    }

    /** By offset message id or by unique id: the client tells them apart. */
    Object viewMessage(Args args) throws Exception {
        return Messages.seen(consumer(args).viewMessage(args.string("topic"), args.string("id")));
    }

    /** The records of a trace message as Apache's own reader understands them. */
    Object decodeTrace(Args args) throws Exception {
        String text = new String(args.bytes("body"), StandardCharsets.UTF_8);
        return Reflect.plain(TraceDataEncoder.decoderFromTraceDataString(text));
    }

    void release(String nameServer) {
        open.closeAll(Open.suffixOf(nameServer));
    }

    private DefaultMQPullConsumer consumer(Args args) throws Exception {
        String group = args.string("group", "interop_queries");
        String name = Open.sharedName("pull-" + group, args.string("namesrv"));
        DefaultMQPullConsumer consumer = open.find(name);
        if (consumer == null) {
            consumer = new DefaultMQPullConsumer(group);
            consumer.setNamesrvAddr(args.string("namesrv"));
            consumer.setInstanceName(name);
            Patience.start(consumer, consumer::start);
            open.add(name, consumer);
        }
        return consumer;
    }
}
