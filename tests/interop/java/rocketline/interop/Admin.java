package rocketline.interop;

import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The commands of an operator, through the admin tool of the client's own version. */
final class Admin {
    private static final int READ_AND_WRITE = 6;

    private final Open<DefaultMQAdminExt> open = new Open<>("admin", DefaultMQAdminExt::shutdown);

    /** Create or change a topic on every master, and wait until the name server shows it. */
    Object createTopic(Args args) throws Exception {
        DefaultMQAdminExt admin = admin(args);
        int queues = args.integer("queues", 4);
        TopicConfig topic = new TopicConfig(args.string("topic"), queues, queues, args.integer("perm", READ_AND_WRITE));
        Map<String, String> masters = masters(admin);
        for (String address : masters.values()) {
            admin.createAndUpdateTopicConfig(address, topic);
        }
        awaitRoute(admin, topic.getTopicName(), queues, masters.keySet(), Patience.MS);
        return null;
    }

    Object deleteTopic(Args args) throws Exception {
        DefaultMQAdminExt admin = admin(args);
        String topic = args.string("topic");
        admin.deleteTopicInBroker(new LinkedHashSet<>(masters(admin).values()), topic);
        Set<String> nameServers = Set.of(args.string("namesrv").split(";"));
        try {
            Reflect.call(admin, "deleteTopicInNameServer", nameServers, topic);
        } catch (NoSuchMethodException e) {
            // 4.9.7 has only the one with a cluster name, last; 5.x puts it before the topic.
            Reflect.call(admin, "deleteTopicInNameServer", nameServers, topic, null);
        }
        return null;
    }

    Object createGroup(Args args) throws Exception {
        DefaultMQAdminExt admin = admin(args);
        Object group = Reflect.create("subscription.SubscriptionGroupConfig");
        Reflect.call(group, "setGroupName", args.string("group"));
        Reflect.call(group, "setRetryMaxTimes", args.integer("retry_max_times", 16));
        Reflect.call(group, "setConsumeEnable", args.flag("consume_enable", true));
        for (String address : masters(admin).values()) {
            Reflect.call(admin, "createAndUpdateSubscriptionGroupConfig", address, group);
        }
        return null;
    }

    /** How a group reads a topic: "PULL" or "POP", with so many members sharing a queue. */
    Object setRequestMode(Args args) throws Exception {
        DefaultMQAdminExt admin = admin(args);
        Object mode = Reflect.constant("message.MessageRequestMode", args.string("mode"));
        for (String address : masters(admin).values()) {
            Reflect.call(admin, "setMessageRequestMode", address, args.string("topic"), args.string("group"), mode,
                args.integer("share", 0), (long) Patience.MS);
        }
        return null;
    }

    Object route(Args args) throws Exception {
        return ask(args, "examineTopicRouteInfo", args.string("topic"));
    }

    Object clusterInfo(Args args) throws Exception {
        return ask(args, "examineBrokerClusterInfo");
    }

    Object topicStats(Args args) throws Exception {
        return ask(args, "examineTopicStats", args.string("topic"));
    }

    Object topicList(Args args) throws Exception {
        return ask(args, "fetchAllTopicList");
    }

    /** Any method of MQAdminExt by its name: whole numbers are longs, "{broker}" is the only master's address. */
    Object ask(Args args) throws Exception {
        Object[] parameters = args.list("params").toArray();
        for (int i = 0; i < parameters.length; i++) {
            if (parameters[i] instanceof Number number) {
                parameters[i] = number.longValue();
            } else if ("{broker}".equals(parameters[i])) {
                parameters[i] = masters(admin(args)).values().iterator().next();
            }
        }
        return ask(args, args.string("method"), parameters);
    }

    Object consumerConnection(Args args) throws Exception {
        return ask(args, "examineConsumerConnectionInfo", args.string("group"));
    }

    /**
     * The group's offset as the broker has it, without joining the group: that needs the request itself
     * (QUERY_CONSUMER_OFFSET), which no public class of the client sends for a stranger. Null when there is none.
     */
    Object committed(Args args) throws Exception {
        DefaultMQAdminExt admin = admin(args);
        Object header = Reflect.create("header.QueryConsumerOffsetRequestHeader");
        Reflect.call(header, "setConsumerGroup", args.string("group"));
        Reflect.call(header, "setTopic", args.string("topic"));
        Reflect.call(header, "setQueueId", args.integer("queue_id"));
        String address = masters(admin).get(args.string("broker"));
        try {
            return Reflect.call(clientApi(args), "queryConsumerOffset", address, header, (long) Patience.MS);
        } catch (Exception e) {
            Integer code = Driver.responseCode(e);
            if (code != null && code == 22) {
                return null;
            }
            throw e;
        }
    }

    /** What Apache's clients send their requests with. */
    Object clientApi(Args args) throws Exception {
        Object instance = Reflect.field(Reflect.field(admin(args), "defaultMQAdminExtImpl"), "mqClientInstance");
        return Reflect.call(instance, "getMQClientAPIImpl");
    }

    /** Name and address of the only master. */
    Map.Entry<String, String> master(Args args) throws Exception {
        return masters(admin(args)).entrySet().iterator().next();
    }

    void release(String nameServer) {
        open.closeAll(Open.suffixOf(nameServer));
    }

    private Object ask(Args args, String method, Object... parameters) throws Exception {
        return Reflect.plain(Reflect.call(admin(args), method, parameters));
    }

    /** Master addresses by broker name. */
    private static Map<String, String> masters(DefaultMQAdminExt admin) throws Exception {
        Object cluster = Reflect.call(admin, "examineBrokerClusterInfo");
        Map<?, ?> brokers = (Map<?, ?>) Reflect.call(cluster, "getBrokerAddrTable");
        Map<String, String> masters = new LinkedHashMap<>();
        for (Map.Entry<?, ?> entry : brokers.entrySet()) {
            Map<?, ?> addresses = (Map<?, ?>) Reflect.call(entry.getValue(), "getBrokerAddrs");
            if (addresses.containsKey(0L)) {
                masters.put((String) entry.getKey(), (String) addresses.get(0L));
            }
        }
        if (masters.isEmpty()) {
            throw new IllegalStateException("the name server knows no master broker");
        }
        return masters;
    }

    private static void awaitRoute(
            DefaultMQAdminExt admin, String topic, int queues, Set<String> brokers, long timeoutMs) throws Exception {
        long deadline = System.nanoTime() + timeoutMs * 1_000_000L;
        while (!brokersServing(admin, topic, queues).containsAll(brokers)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the route of " + topic + " did not appear in " + timeoutMs + " ms");
            }
            Thread.sleep(20);
        }
    }

    private static Set<String> brokersServing(DefaultMQAdminExt admin, String topic, int queues) throws Exception {
        Set<String> brokers = new LinkedHashSet<>();
        Object route;
        try {
            route = Reflect.call(admin, "examineTopicRouteInfo", topic);
        } catch (Exception e) {
            Integer code = Driver.responseCode(e);
            if (code != null && code == 17) {
                return brokers;
            }
            throw e;
        }
        for (Object data : (Collection<?>) Reflect.call(route, "getQueueDatas")) {
            if (Integer.valueOf(queues).equals(Reflect.call(data, "getWriteQueueNums"))) {
                brokers.add((String) Reflect.call(data, "getBrokerName"));
            }
        }
        return brokers;
    }

    private DefaultMQAdminExt admin(Args args) throws Exception {
        String name = Open.sharedName("admin" + Signing.account(), args.string("namesrv"));
        DefaultMQAdminExt admin = open.find(name);
        if (admin == null) {
            admin = new DefaultMQAdminExt(Signing.hook(), (long) Patience.MS);
            admin.setNamesrvAddr(args.string("namesrv"));
            admin.setInstanceName(name);
            Patience.start(admin, admin::start);
            open.add(name, admin);
        }
        return admin;
    }
}
