"""The command `demo`: sends and consumes messages on a real cluster, and checks every one."""
