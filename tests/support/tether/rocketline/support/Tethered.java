package rocketline.support;

import java.io.IOException;
import java.util.Arrays;

/**
 * Runs another main class, and ends the process when standard input ends: so no server outlives the program that
 * started it, however that program dies.
 */
public final class Tethered {
    private Tethered() {
    }

    public static void main(String[] arguments) throws Exception {
        Thread tether = new Thread(Tethered::awaitEndOfInput, "tether");
        tether.setDaemon(true);
        tether.start();
        String[] rest = Arrays.copyOfRange(arguments, 1, arguments.length);
        Class.forName(arguments[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    }

    private static void awaitEndOfInput() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException broken) {
            System.err.println("lost standard input: " + broken);
        }
        Runtime.getRuntime().halt(1);
    }
}
