package rocketline.interop;

import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.impl.MQClientManager;

/** How long a command waits for anything: what the tests that started this process say. */
final class Patience {
    static final int MS = Integer.getInteger("rocketline.patience.ms");

    private Patience() {
    }

    interface Start {
        void start() throws Exception;
    }

    /** Start a client that waits as long for routes, heartbeats, members and offsets as for anything else. */
    static void start(ClientConfig client, Start start) throws Exception {
        client.setMqClientApiTimeout(MS);
        start.start();
        MQClientManager.getInstance().getOrCreateMQClientInstance(client).getMQAdminImpl().setTimeoutMillis(MS);
    }
}
