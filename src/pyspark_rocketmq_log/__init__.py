"""Registers the data source `rocketmq-log`: Spark looks for modules called `pyspark_*`, one source in each."""

from rocketline.spark.log.source import LogSource as DefaultSource

__all__ = ["DefaultSource"]
