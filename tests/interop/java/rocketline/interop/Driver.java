package rocketline.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;

/**
 * Apache's client, driven from outside: one JSON object per line in, {"cmd": ..., "args": {...}}, and one per line
 * out, {"result": ...} or {"error": {class, code, message, cause}}.
 *
 * <p>A failing or unknown command is answered, never fatal. The process ends with "quit" or the end of its input.
 */
public final class Driver {
    private static final int MAX_CAUSES = 5;

    private final Producers producers = new Producers();
    private final PushConsumers pushConsumers = new PushConsumers();
    private final LitePullConsumers litePullConsumers = new LitePullConsumers();
    private final Transactions transactions = new Transactions();
    private final Requests requests = new Requests();
    private final Queries queries = new Queries();
    private final Admin admin = new Admin();
    private final Pops pops = new Pops(admin);
    private final Filters filters = new Filters();
    private final Map<String, Command> commands = new TreeMap<>();

    private interface Command {
        Object run(Args args) throws Exception;
    }

    private Driver() {
        commands.put("ping", args -> "pong");
        commands.put("sign_as", Signing::use);
        commands.put("start_producer", producers::start);
        commands.put("send", producers::send);
        commands.put("recall", producers::recall);
        commands.put("send_batch", producers::sendBatch);
        commands.put("send_many", producers::sendMany);
        commands.put("stop_producer", producers::stop);
        commands.put("request", producers::request);
        commands.put("start_replier", requests::start);
        commands.put("stop_replier", requests::stop);
        commands.put("start_transactional", transactions::start);
        commands.put("send_in_transaction", transactions::send);
        commands.put("poll_checks", transactions::checks);
        commands.put("stop_transactional", transactions::stop);
        commands.put("start_push", pushConsumers::start);
        commands.put("poll_push", pushConsumers::poll);
        commands.put("persist_push", pushConsumers::persist);
        commands.put("push_queues", pushConsumers::queues);
        commands.put("stop_push", pushConsumers::stop);
        commands.put("allocate", Allocations::allocate);
        commands.put("start_lite_pull", litePullConsumers::start);
        commands.put("lite_pull_assign", litePullConsumers::assign);
        commands.put("lite_pull_seek", litePullConsumers::seek);
        commands.put("lite_pull_poll", litePullConsumers::poll);
        commands.put("lite_pull_commit", litePullConsumers::commit);
        commands.put("lite_pull_committed", litePullConsumers::committed);
        commands.put("lite_pull_queues", litePullConsumers::queues);
        commands.put("stop_lite_pull", litePullConsumers::stop);
        commands.put("pull", queries::pull);
        commands.put("offsets", queries::offsets);
        commands.put("query_message", queries::queryMessage);
        commands.put("view_message", queries::viewMessage);
        commands.put("decode_trace", queries::decodeTrace);
        commands.put("create_topic", admin::createTopic);
        commands.put("delete_topic", admin::deleteTopic);
        commands.put("create_group", admin::createGroup);
        commands.put("set_request_mode", admin::setRequestMode);
        commands.put("pop", pops::pop);
        commands.put("ack", pops::ack);
        commands.put("ack_batch", pops::ackBatch);
        commands.put("change_invisible", pops::change);
        commands.put("route", admin::route);
        commands.put("cluster_info", admin::clusterInfo);
        commands.put("topic_stats", admin::topicStats);
        commands.put("topic_list", admin::topicList);
        commands.put("consumer_connection", admin::consumerConnection);
        commands.put("committed", admin::committed);
        commands.put("admin", admin::ask);
        commands.put("evaluate_sql", filters::evaluate);
        commands.put("release", this::release);
    }

    public static void main(String[] arguments) throws IOException {
        // Standard output is the wire: whatever else prints goes to standard error.
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Driver driver = new Driver();
        boolean open = true;
        while (open) {
            String line = in.readLine();
            Map<String, Object> reply = new LinkedHashMap<>();
            open = line != null && driver.answer(line, reply);
            out.print(Json.write(reply) + "\n");
            out.flush();
        }
        // Whoever wanted a client's orderly end has stopped it; shutting down the rest takes the newer ones seconds.
        Runtime.getRuntime().halt(0);
    }

    /** Fill in the reply to one line; false after "quit". */
    private boolean answer(String line, Map<String, Object> reply) {
        try {
            if (!(Json.read(line) instanceof Map<?, ?> request)) {
                throw new IllegalArgumentException("a command is a JSON object");
            }
            Args call = new Args(request);
            String name = call.string("cmd");
            if (name.equals("quit")) {
                reply.put("result", null);
                return false;
            }
            Command command = commands.get(name);
            if (command == null) {
                throw new IllegalArgumentException("unknown command '" + name + "'; there are " + commands.keySet());
            }
            Object args = request.get("args");
            reply.put("result", command.run(new Args(args instanceof Map<?, ?> map ? map : Map.of())));
        } catch (Throwable e) {
            reply.put("error", describe(e));
        }
        return true;
    }

    /** Close what queries and operator commands keep open towards a name server that goes away. */
    private Object release(Args args) {
        queries.release(args.string("namesrv"));
        admin.release(args.string("namesrv"));
        return null;
    }

    static Map<String, Object> describe(Throwable error) {
        return describe(error, 0);
    }

    private static Map<String, Object> describe(Throwable error, int depth) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("class", error.getClass().getName());
        map.put("code", responseCode(error));
        map.put("message", error.getMessage());
        boolean more = error.getCause() != null && error.getCause() != error && depth < MAX_CAUSES;
        map.put("cause", more ? describe(error.getCause(), depth + 1) : null);
        return map;
    }

    /** The response code an exception of the client carries, or null. */
    static Integer responseCode(Throwable error) {
        try {
            return (Integer) error.getClass().getMethod("getResponseCode").invoke(error);
        } catch (ReflectiveOperationException none) {
            return null;
        }
    }
}
