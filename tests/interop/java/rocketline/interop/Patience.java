package rocketline.interop;

import org.apache.rocketmq.client.ClientConfig;

/** How long a command waits for anything: what the tests that started this process say. */
final class Patience {
    static final int MS = Integer.getInteger("rocketline.patience.ms");

    private Patience() {
    }

    /** The same client, which waits as long for routes, heartbeats and members as for anything else. */
    static <C extends ClientConfig> C with(C client) {
        client.setMqClientApiTimeout(MS);
        return client;
    }
}
