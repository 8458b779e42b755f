package rocketline.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Load on Apache's own client: reads a command per line, answers each with a JSON line, ends with its input.
 *
 * <p>One process serves every run on both brokers, so that its JIT is equally warm for all of them; producers
 * and consumers are made anew for each run.
 *
 * <pre>
 * send namesrv=HOST:PORT topic=T threads=64 batch=1 body=128 warmup=2 seconds=10
 * send namesrv=HOST:PORT topic=T threads=1 batch=1 window=256 body=128 warmup=2 seconds=10
 * push namesrv=HOST:PORT topic=T group=G threads=20 expected=1000000 skip=100000 timeout=60
 * pull namesrv=HOST:PORT topic=T group=G threads=20 expected=1000000 skip=100000 timeout=60
 * </pre>
 */
public final class Load {
    private Load() {
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line));
            System.out.flush();
        }
        System.exit(0);
    }

    private static Result answer(String line) {
        try {
            Command command = Command.parse(line);
            return switch (command.verb()) {
                case "send" -> Sends.run(command);
                case "push" -> Drain.push(command);
                case "pull" -> Drain.pull(command);
                default -> throw new IllegalArgumentException("unknown command " + command.verb());
            };
        } catch (Exception error) {
            return new Result().put("failed", error.toString());
        }
    }
}
