"""The sink `rocketmq`: sends rows to topics."""
