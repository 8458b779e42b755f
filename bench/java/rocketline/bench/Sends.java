package rocketline.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.UUID;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Threads that each send, wait for the answer and send again, through one producer. With a window each has so many
 * asynchronous sends in flight instead.
 *
 * <p>The client's own retries are off: a repeated send would store a message twice and the counts could no
 * longer be compared with the broker's offsets.
 */
final class Sends {
    private final Command command;
    private final String topic;
    private final int bodyBytes;
    private final int batch;
    private final int window;
    private final long measureFrom;
    private final long measureUntil;

    private Sends(Command command) {
        this.command = command;
        topic = command.text("topic");
        bodyBytes = command.whole("body");
        batch = command.whole("batch");
        window = command.whole("window", 0);
        measureFrom = System.nanoTime() + command.nanos("warmup");
        measureUntil = measureFrom + command.nanos("seconds");
    }

    static Result run(Command command) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench_java");
        producer.setNamesrvAddr(command.text("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        try {
            return new Sends(command).with(producer);
        } finally {
            producer.shutdown();
        }
    }

    private Result with(DefaultMQProducer producer) throws InterruptedException {
        List<Sender> senders = new ArrayList<>();
        for (int i = 0; i < command.whole("threads"); i++) {
            senders.add(new Sender(producer));
        }
        senders.forEach(Thread::start);
        Sender total = new Sender(producer);
        for (Sender sender : senders) {
            sender.join();
            total.add(sender);
        }
        double seconds = (measureUntil - measureFrom) / 1e9;
        return new Result()
                .put("mode", window > 0 ? "async" : batch > 1 ? "batch" : "send")
                .put("seconds", seconds)
                .put("messages", total.measured)
                .put("rate", total.measured / seconds)
                .put("sent", total.sent)
                .put("acked", total.acked)
                .put("errors", total.sent - total.acked)
                .latencies(total.latencies)
                .put("first_error", total.firstError);
    }

    private final class Sender extends Thread {
        private final DefaultMQProducer producer;
        private final Histogram latencies = new Histogram();
        private final SplittableRandom random = new SplittableRandom();
        private long sent;
        private long acked;
        private long measured;
        private String firstError = "";

        Sender(DefaultMQProducer producer) {
            this.producer = producer;
        }

        @Override
        public void run() {
            if (window > 0) {
                sendAhead();
                return;
            }
            long began = System.nanoTime();
            while (began - measureUntil < 0) {
                boolean stored = send();
                sent += batch;
                answered(stored, began);
                began = System.nanoTime();
            }
        }

        /** Ends when the last answer has come. */
        private void sendAhead() {
            Semaphore free = new Semaphore(window);
            while (System.nanoTime() - measureUntil < 0) {
                free.acquireUninterruptibly();
                sent++;
                try {
                    producer.send(message(), new Answer(free));
                } catch (Exception error) {
                    failed(error.toString());
                    free.release();
                }
            }
            if (!tryAcquireAll(free)) {
                failed("an asynchronous send was not answered");
            }
        }

        private boolean tryAcquireAll(Semaphore free) {
            try {
                return free.tryAcquire(window, 20, TimeUnit.SECONDS);
            } catch (InterruptedException error) {
                return false;
            }
        }

        private synchronized void answered(boolean stored, long began) {
            long ended = System.nanoTime();
            acked += stored ? batch : 0;
            if (stored && ended - measureFrom >= 0 && ended - measureUntil < 0) {
                measured += batch;
                latencies.add(ended - began);
            }
        }

        private final class Answer implements SendCallback {
            private final long began = System.nanoTime();
            private final Semaphore free;

            Answer(Semaphore free) {
                this.free = free;
            }

            @Override
            public void onSuccess(SendResult result) {
                boolean stored = result.getSendStatus() == SendStatus.SEND_OK;
                if (!stored) {
                    failed(result.getSendStatus().name());
                }
                answered(stored, began);
                free.release();
            }

            @Override
            public void onException(Throwable error) {
                failed(error.toString());
                free.release();
            }
        }

        private boolean send() {
            try {
                SendResult result = batch > 1 ? producer.send(messages()) : producer.send(message());
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    return true;
                }
                failed(result.getSendStatus().name());
            } catch (Exception error) {
                failed(error.toString());
            }
            return false;
        }

        private List<Message> messages() {
            List<Message> messages = new ArrayList<>(batch);
            for (int i = 0; i < batch; i++) {
                messages.add(message());
            }
            return messages;
        }

        /** Half constant, half random, as the raw generator does it. */
        private Message message() {
            byte[] body = new byte[bodyBytes];
            int constant = bodyBytes / 2;
            for (int i = 0; i < constant; i++) {
                body[i] = (byte) ('a' + i % 26);
            }
            for (int i = constant; i < bodyBytes; i++) {
                body[i] = (byte) random.nextInt();
            }
            return new Message(topic, body);
        }

        private synchronized void failed(String why) {
            if (firstError.isEmpty()) {
                firstError = why.substring(0, Math.min(200, why.length()));
            }
        }

        synchronized void add(Sender other) {
            sent += other.sent;
            acked += other.acked;
            measured += other.measured;
            latencies.add(other.latencies);
            failed(other.firstError);
        }
    }
}
