"""RocketMQ data in Spark: stored records as Arrow batches, and data sources on top of that. Needs the extra `spark`."""
