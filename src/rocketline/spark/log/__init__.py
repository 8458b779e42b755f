"""The data source `rocketmq-log`: commit-log folders, without a broker."""
