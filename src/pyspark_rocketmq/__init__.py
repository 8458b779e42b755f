"""Registers the data source `rocketmq`: Spark looks for modules called `pyspark_*`, one source in each."""

try:
    from rocketline.spark.live.source import LiveSource as DefaultSource
except ImportError as error:
    from rocketline.spark.unavailable import unavailable_source

    DefaultSource = unavailable_source("rocketmq", error)  # type: ignore[assignment, misc]

__all__ = ["DefaultSource"]
