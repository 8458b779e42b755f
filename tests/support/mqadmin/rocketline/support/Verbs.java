package rocketline.support;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache's mqadmin, verb after verb in one JVM: arguments a line in, with tabs between, what it printed a line out.
 * A line that begins with ~ is a verb that goes on for ever: it is interrupted when it has printed a second line.
 */
public final class Verbs {
    private static final PrintStream ANSWERS = System.out;
    private static final long ENDLESS_LIMIT_MS = 10_000;
    private static volatile Thread running = Thread.currentThread();

    public static void main(String[] args) throws Exception {
        hurryShutdowns();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            if (line.startsWith("~")) {
                runUntilItPrinted(line.substring(1), out);
            } else {
                runVerb(line);
            }
            ANSWERS.println(encoded(out) + " " + encoded(err));
            ANSWERS.flush();
        }
        System.exit(0);
    }

    /** A client that ends waits for a thread of its own that looks up every three seconds only: it is woken. */
    private static void hurryShutdowns() {
        Thread hurrying = new Thread(() -> {
            while (true) {
                for (StackTraceElement frame : running.getStackTrace()) {
                    if (frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown")) {
                        wakeEventThreads();
                        break;
                    }
                }
                LockSupport.parkNanos(10_000_000);
            }
        });
        hurrying.setDaemon(true);
        hurrying.start();
    }

    private static void wakeEventThreads() {
        Thread[] threads = new Thread[2 * Thread.activeCount() + 100];
        int count = Thread.enumerate(threads);
        for (int i = 0; i < count; i++) {
            if (threads[i].getName().startsWith("NettyEventExecutor")) {
                threads[i].interrupt();
            }
        }
    }

    private static void runVerb(String line) {
        running = Thread.currentThread();
        Tools.forget();
        try {
            MQAdminStartup.main0(line.isEmpty() ? new String[0] : line.split("\t", -1), null);
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
    }

    private static void runUntilItPrinted(String line, ByteArrayOutputStream out) throws InterruptedException {
        Thread verb = new Thread(() -> runVerb(line));
        verb.start();
        long deadline = System.currentTimeMillis() + ENDLESS_LIMIT_MS;
        while (verb.isAlive() && System.currentTimeMillis() < deadline && out.toString().lines().count() < 2) {
            Thread.sleep(10);
        }
        verb.interrupt();
        verb.join(ENDLESS_LIMIT_MS);
    }

    /** Some verbs keep a client that they have closed: each run gets new ones. */
    private static final class Tools extends MQAdminStartup {
        static void forget() {
            SUB_COMMANDS.clear();
        }
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
