package rocketline.interop;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The account that clients sign their requests with: those that are made while it is set. */
final class Signing {
    private static volatile String accessKey = "";
    private static volatile String secretKey = "";

    private Signing() {
    }

    /** Sign as an account from now on; without one nothing is signed. */
    static Object use(Args args) {
        accessKey = args.string("access_key", "");
        secretKey = args.string("secret_key", "");
        return null;
    }

    static String account() {
        return accessKey;
    }

    /** What a new client is given; null when it signs nothing. */
    static RPCHook hook() {
        return accessKey.isEmpty() ? null : new AclClientRPCHook(new SessionCredentials(accessKey, secretKey));
    }
}
