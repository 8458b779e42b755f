package rocketline.support;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Apache's mqadmin, verb after verb in one JVM: arguments a line in, with tabs between, what it printed a line out. */
public final class Verbs {
    private static final PrintStream ANSWERS = System.out;

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            try {
                MQAdminStartup.main0(line.split("\t", -1), null);
            } catch (Throwable failure) {
                failure.printStackTrace();
            }
            ANSWERS.println(encoded(out) + " " + encoded(err));
            ANSWERS.flush();
        }
        System.exit(0);
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
