package rocketline.interop;

import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;

/** The clients of one kind that are open, by the name the command gave them. */
final class Open<T> {
    private final String kind;
    private final Consumer<T> shutdown;
    private final Map<String, T> clients = new ConcurrentHashMap<>();

    Open(String kind, Consumer<T> shutdown) {
        this.kind = kind;
        this.shutdown = shutdown;
    }

    void add(String name, T client) {
        if (clients.putIfAbsent(name, client) != null) {
            shutdown.accept(client);
            throw new IllegalArgumentException("a " + kind + " named '" + name + "' is open already");
        }
    }

    /** The open client, or null. */
    T find(String name) {
        return clients.get(name);
    }

    T get(String name) {
        T client = clients.get(name);
        if (client == null) {
            throw new IllegalArgumentException("no " + kind + " named '" + name + "' is open");
        }
        return client;
    }

    void close(String name) {
        T client = get(name);
        clients.remove(name);
        shutdown.accept(client);
    }

    /** Close those whose name ends so; a failing shutdown does not keep the rest open. */
    void closeAll(String suffix) {
        for (String name : new ArrayList<>(clients.keySet())) {
            if (!name.endsWith(suffix)) {
                continue;
            }
            try {
                close(name);
            } catch (RuntimeException e) {
                System.err.println("closing " + kind + " " + name + ": " + e);
            }
        }
    }

    /** A name for a client that is opened on first use and kept per name server; unique among processes. */
    static String sharedName(String prefix, String nameServer) {
        return prefix + "-" + ProcessHandle.current().pid() + suffixOf(nameServer);
    }

    static String suffixOf(String nameServer) {
        return "-" + nameServer.replace(':', '-');
    }
}
