"""The front for RocketMQ 5.x clients: gRPC on one side, brokers on the other."""
