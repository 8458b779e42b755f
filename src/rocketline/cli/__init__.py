"""The `rocketline` command: start servers, send and read messages, watch a demonstration."""
