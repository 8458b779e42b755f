package rocketline.interop;

import java.util.HexFormat;

/** Bytes as hexadecimal digits; no bytes at all (null) stay null. */
final class Hex {
    private static final HexFormat FORMAT = HexFormat.of();

    private Hex() {
    }

    static String encode(byte[] bytes) {
        return bytes == null ? null : FORMAT.formatHex(bytes);
    }

    static byte[] decode(String digits) {
        return FORMAT.parseHex(digits);
    }
}
