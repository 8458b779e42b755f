package rocketline.bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.BitSet;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A consumer of a new group, push or lite pull, reads a backlog of known size from its start.
 *
 * <p>The first {@code skip} messages are warm-up (rebalance, first pulls); the rate is that of the rest. Each
 * (queue, offset) is remembered, so a message that comes twice does not hide one that never came. {@code busy} is the
 * share of a core that this process used meanwhile.
 */
final class Drain {
    private static final OperatingSystemMXBean SYSTEM =
            ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);

    private final long expected;
    private final long skip;
    private final Map<Integer, BitSet> seen = new ConcurrentHashMap<>();
    private final AtomicLong distinct = new AtomicLong();
    private final AtomicLong duplicates = new AtomicLong();
    private final CountDownLatch finished = new CountDownLatch(1);
    private volatile long measureFrom;
    private volatile long measureUntil;
    private volatile long cpuFrom;
    private volatile long cpuUntil;

    private Drain(Command command) {
        expected = command.whole("expected");
        skip = command.whole("skip");
    }

    static Result push(Command command) throws Exception {
        Drain drain = new Drain(command);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.text("group"));
        consumer.setNamesrvAddr(command.text("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(command.whole("threads"));
        consumer.setConsumeThreadMax(command.whole("threads"));
        consumer.subscribe(command.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(drain::take);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        long began = System.nanoTime();
        consumer.start();
        try {
            boolean whole = drain.finished.await(command.nanos("timeout"), TimeUnit.NANOSECONDS);
            return drain.result("push", whole, began);
        } finally {
            consumer.shutdown();
        }
    }

    static Result pull(Command command) throws Exception {
        Drain drain = new Drain(command);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(command.text("group"));
        consumer.setNamesrvAddr(command.text("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullThreadNums(command.whole("threads"));
        consumer.setPullBatchSize(32);
        consumer.subscribe(command.text("topic"), "*");
        long began = System.nanoTime();
        consumer.start();
        try {
            while (drain.finished.getCount() > 0 && System.nanoTime() - began < command.nanos("timeout")) {
                consumer.poll(1000).forEach(drain::take);
            }
            return drain.result("pull", drain.finished.getCount() == 0, began);
        } finally {
            consumer.shutdown();
        }
    }

    private void take(MessageExt message) {
        BitSet queue = seen.computeIfAbsent(message.getQueueId(), id -> new BitSet());
        boolean known;
        synchronized (queue) {
            known = queue.get((int) message.getQueueOffset());
            queue.set((int) message.getQueueOffset());
        }
        if (known) {
            duplicates.incrementAndGet();
            return;
        }
        long number = distinct.incrementAndGet();
        if (number == Math.max(1, skip)) {
            cpuFrom = SYSTEM.getProcessCpuTime();
            measureFrom = System.nanoTime();
        }
        if (number == expected) {
            measureUntil = System.nanoTime();
            cpuUntil = SYSTEM.getProcessCpuTime();
            finished.countDown();
        }
    }

    private Result result(String mode, boolean whole, long began) {
        double seconds = whole ? (measureUntil - measureFrom) / 1e9 : 0;
        return new Result()
                .put("mode", mode)
                .put("seconds", seconds)
                .put("messages", whole ? expected - skip : 0)
                .put("rate", whole ? (expected - skip) / seconds : 0)
                .put("busy", whole ? (cpuUntil - cpuFrom) / 1e9 / seconds : 0)
                .put("acked", distinct.get())
                .put("errors", expected - distinct.get())
                .put("duplicates", duplicates.get())
                .put("until_measured_s", (measureFrom - began) / 1e9)
                .put("first_error", whole ? "" : "the backlog was not consumed in time");
    }
}
