package rocketline.interop;

import java.io.ByteArrayOutputStream;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests, and consumers that reply "re " and the body they got. */
final class Requests {
    private final Open<Replier> open = new Open<>("replier", Replier::shutdown);

    Object start(Args args) throws Exception {
        Replier replier = new Replier(args);
        replier.start();
        open.add(args.string("name"), replier);
        return null;
    }

    Object stop(Args args) throws Exception {
        open.close(args.string("name"));
        return null;
    }

    static Object request(DefaultMQProducer producer, Args args) throws Exception {
        Message reply = producer.request(Messages.from(args), args.number("timeout_ms"));
        return Map.of(
            "topic", reply.getTopic(),
            "body", Hex.encode(reply.getBody()),
            "properties", new TreeMap<>(reply.getProperties()));
    }

    private static final class Replier {
        private final DefaultMQPushConsumer consumer;
        private final DefaultMQProducer producer;

        Replier(Args args) throws Exception {
            producer = new DefaultMQProducer(args.string("group") + "_reply");
            producer.setNamesrvAddr(args.string("namesrv"));
            producer.setInstanceName(args.string("name") + "_reply");
            consumer = new DefaultMQPushConsumer(args.string("group"));
            consumer.setNamesrvAddr(args.string("namesrv"));
            consumer.setInstanceName(args.string("name"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(args.string("topic"), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) this::consume);
        }

        void start() throws Exception {
            Patience.start(producer, producer::start);
            Patience.start(consumer, consumer::start);
        }

        void shutdown() {
            consumer.shutdown();
            producer.shutdown();
        }

        private ConsumeConcurrentlyStatus consume(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            for (MessageExt message : messages) {
                try {
                    ByteArrayOutputStream body = new ByteArrayOutputStream();
                    body.write("re ".getBytes(java.nio.charset.StandardCharsets.UTF_8));
                    body.write(message.getBody());
                    producer.send(MessageUtil.createReplyMessage(message, body.toByteArray()), Patience.MS);
                } catch (Exception e) {
                    // What is no request, or whose sender is gone: nobody waits.
                    System.err.println("no reply to " + message.getMsgId() + ": " + e);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
    }
}
