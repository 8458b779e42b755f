package rocketline.interop;

import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages from a command's arguments, and messages and send results as maps with every field. */
final class Messages {
    private Messages() {
    }

    static Message from(Args args) {
        Message message = new Message(args.string("topic"), args.bytes("body"));
        message.setFlag(args.integer("flag", 0));
        message.setWaitStoreMsgOK(args.flag("wait_store", true));
        if (args.has("tags")) {
            message.setTags(args.string("tags"));
        }
        if (args.has("keys")) {
            message.setKeys(args.names("keys"));
        }
        if (args.has("delay_level")) {
            message.setDelayTimeLevel(args.integer("delay_level"));
        }
        if (args.has("delay_ms")) {
            set(message, "setDelayTimeMs", args.number("delay_ms"));
        }
        if (args.has("deliver_ms")) {
            set(message, "setDeliverTimeMs", args.number("deliver_ms"));
        }
        args.strings("properties").forEach(message::putUserProperty);
        return message;
    }

    /** 4.9.7 has no timer messages. */
    private static void set(Message message, String setter, long value) {
        try {
            Reflect.call(message, setter, value);
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    /** What the producer knows after a send; `result` is null for a one-way send. */
    static Map<String, Object> sent(Message message, SendResult result) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("properties", new TreeMap<>(message.getProperties()));
        if (result == null) {
            map.put("msgId", message.getProperty("UNIQ_KEY"));
            return map;
        }
        map.putAll(receipt(result));
        return map;
    }

    static Map<String, Object> receipt(SendResult result) {
        MessageQueue queue = result.getMessageQueue();
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("status", result.getSendStatus().name());
        map.put("msgId", result.getMsgId());
        map.put("offsetMsgId", result.getOffsetMsgId());
        map.put("topic", queue.getTopic());
        map.put("brokerName", queue.getBrokerName());
        map.put("queueId", queue.getQueueId());
        map.put("queueOffset", result.getQueueOffset());
        map.put("transactionId", result.getTransactionId());
        map.put("regionId", result.getRegionId());
        try {
            map.put("recallHandle", Reflect.call(result, "getRecallHandle"));
        } catch (Exception e) {
            map.put("recallHandle", null); // a client before 5.3.2
        }
        return map;
    }

    static Map<String, Object> seen(MessageExt message) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("topic", message.getTopic());
        map.put("brokerName", message.getBrokerName());
        map.put("queueId", message.getQueueId());
        map.put("queueOffset", message.getQueueOffset());
        map.put("msgId", message.getMsgId());
        map.put("offsetMsgId", message instanceof MessageClientExt client ? client.getOffsetMsgId() : null);
        map.put("body", Hex.encode(message.getBody()));
        map.put("tags", message.getTags());
        map.put("keys", message.getKeys());
        map.put("flag", message.getFlag());
        map.put("sysFlag", message.getSysFlag());
        map.put("properties", new TreeMap<>(message.getProperties()));
        map.put("bornTimestamp", message.getBornTimestamp());
        map.put("bornHost", address(message.getBornHost()));
        map.put("storeTimestamp", message.getStoreTimestamp());
        map.put("storeHost", address(message.getStoreHost()));
        map.put("storeSize", message.getStoreSize());
        map.put("reconsumeTimes", message.getReconsumeTimes());
        map.put("bodyCRC", message.getBodyCRC());
        map.put("commitLogOffset", message.getCommitLogOffset());
        map.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        return map;
    }

    static List<Map<String, Object>> seen(List<? extends MessageExt> messages) {
        return messages.stream().map(Messages::seen).toList();
    }

    private static String address(SocketAddress address) {
        return address instanceof InetSocketAddress inet
            ? inet.getAddress().getHostAddress() + ":" + inet.getPort()
            : String.valueOf(address);
    }
}
