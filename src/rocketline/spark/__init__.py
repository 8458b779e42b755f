"""RocketMQ data in Spark: stored records as Arrow batches, and the data sources that use them. Needs the extra `spark`."""
