"""Metrics of a broker under the names of RocketMQ 5, computed on request from counters that exist anyway."""
