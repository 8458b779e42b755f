package rocketline.interop;

/** How long a command waits for anything: what the tests that started this process say. */
final class Patience {
    static final int MS = Integer.getInteger("rocketline.patience.ms");

    private Patience() {
    }
}
