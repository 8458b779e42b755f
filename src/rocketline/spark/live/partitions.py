"""Partitions of the source `rocketmq`, which the driver sends to tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from rocketline.spark.live.options import LiveOptions
from rocketline.spark.live.planner import QueueRange, joined_ranges, split_ranges


@dataclass
class LivePartition(InputPartition):
    """The ranges of queues that one task reads, one after the other."""

    parts: tuple[QueueRange, ...]


def partitions_of(ranges: Sequence[QueueRange], options: LiveOptions) -> list[InputPartition]:
    """Who asks for a number of tasks with `minPartitions` gets small ones too."""
    parts = split_ranges(ranges, options.min_partitions, options.max_records)
    if options.min_partitions is not None:
        return [LivePartition((part,)) for part in parts]
    return [LivePartition(task) for task in joined_ranges(parts, max_records=options.max_records)]
