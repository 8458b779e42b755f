"""The sink `rocketmq`: rows sent to topics."""
