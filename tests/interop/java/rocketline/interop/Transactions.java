package rocketline.interop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** The commands of transactional producers: each answers every check with one state and remembers what it was asked. */
final class Transactions {
    private final Open<Checked> open = new Open<>("transactional producer", checked -> checked.client.shutdown());

    Object start(Args args) throws Exception {
        String name = args.string("name");
        Checked checked = new Checked(args);
        Patience.start(checked.client, checked.client::start);
        open.add(name, checked);
        // A producer greets brokers only when it knows a route; one that never sends must still be found by checks.
        if (args.has("topic")) {
            Object factory = checked.client.getDefaultMQProducerImpl().getMqClientFactory();
            Reflect.call(factory, "updateTopicRouteInfoFromNameServer", args.string("topic"));
            Reflect.call(factory, "sendHeartbeatToAllBrokerWithLock");
        }
        return null;
    }

    /** Send a message whose local transaction ends in the state `outcome`. */
    Object send(Args args) throws Exception {
        Message message = Messages.from(args);
        LocalTransactionState outcome = LocalTransactionState.valueOf(args.string("outcome"));
        TransactionSendResult result =
            open.get(args.string("name")).client.sendMessageInTransaction(message, outcome);
        Map<String, Object> reply = new LinkedHashMap<>(Messages.sent(message, result));
        reply.put("localTransactionState", result.getLocalTransactionState().name());
        return reply;
    }

    /** Wait until `count` checks have come or the time is over; hands out, and forgets, all there are. */
    Object checks(Args args) throws Exception {
        return open.get(args.string("name")).drain(args.integer("count"), args.number("timeout_ms"));
    }

    Object stop(Args args) throws Exception {
        open.close(args.string("name"));
        return null;
    }

    private static final class Checked implements TransactionListener {
        final TransactionMQProducer client;
        private final LocalTransactionState answer;
        private List<Map<String, Object>> asked = new ArrayList<>();

        Checked(Args args) {
            client = new TransactionMQProducer(args.string("group"), Signing.hook());
            client.setNamesrvAddr(args.string("namesrv"));
            client.setInstanceName(args.string("name"));
            client.setHeartbeatBrokerInterval(2000);
            client.setTransactionListener(this);
            answer = LocalTransactionState.valueOf(args.string("check"));
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
            return (LocalTransactionState) outcome;
        }

        @Override
        public synchronized LocalTransactionState checkLocalTransaction(MessageExt message) {
            asked.add(Messages.seen(message));
            notifyAll();
            return answer;
        }

        synchronized List<Map<String, Object>> drain(int count, long timeoutMs) throws InterruptedException {
            long deadline = System.nanoTime() + timeoutMs * 1_000_000L;
            for (long left = timeoutMs; asked.size() < count && left > 0;
                    left = (deadline - System.nanoTime()) / 1_000_000L) {
                wait(left);
            }
            List<Map<String, Object>> drained = asked;
            asked = new ArrayList<>();
            return drained;
        }
    }
}
