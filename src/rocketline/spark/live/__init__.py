"""The data source `rocketmq`: topics of a running cluster."""
