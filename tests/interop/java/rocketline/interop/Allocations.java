package rocketline.interop;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** The allocation strategies themselves, without a cluster: what each of many cases gives. */
final class Allocations {
    private Allocations() {
    }

    /** Per case the queues allotted, or the class of the exception. */
    static Object allocate(Args args) {
        List<Object> results = new ArrayList<>();
        for (Args one : args.objects("cases")) {
            try {
                List<Object> share = new ArrayList<>();
                for (MessageQueue queue : strategy(one).allocate(one.string("group"), one.string("client_id"),
                        queues(one, "queues"), one.names("client_ids"))) {
                    share.add(List.of(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()));
                }
                results.add(share);
            } catch (RuntimeException e) {
                results.add(e.getClass().getSimpleName());
            }
        }
        return results;
    }

    static AllocateMessageQueueStrategy strategy(Args args) {
        String name = args.string("strategy", "AVG");
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(args.integer("virtual_nodes", 10));
            case "CONFIG":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues(args, "fixed"));
                return config;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
                room.setConsumeridcs(new HashSet<>(args.names("rooms")));
                return room;
            case "MACHINE_ROOM_NEARBY":
                Map<String, Object> inner = new LinkedHashMap<>(Map.of("strategy", args.string("inner")));
                return new AllocateMachineRoomNearby(strategy(new Args(inner)), new PrefixRooms());
            default:
                throw new IllegalArgumentException("unknown strategy " + name);
        }
    }

    private static List<MessageQueue> queues(Args args, String name) {
        List<MessageQueue> queues = new ArrayList<>();
        for (Args queue : args.objects(name)) {
            queues.add(new MessageQueue(queue.string("topic"), queue.string("broker"), queue.integer("queue_id")));
        }
        return queues;
    }

    /** The room is what stands before the first hyphen of a broker's name or a client id. */
    private static final class PrefixRooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return consumerDeployIn(queue.getBrokerName());
        }

        @Override
        public String consumerDeployIn(String name) {
            return name.substring(0, Math.max(0, name.indexOf('-')));
        }
    }
}
