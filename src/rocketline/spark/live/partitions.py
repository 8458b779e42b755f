"""Partitions of the source `rocketmq`, which the driver sends to tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from rocketline.spark.live.options import LiveOptions
from rocketline.spark.live.planner import QueueRange, split_ranges


@dataclass
class LivePartition(InputPartition):
    """The range of a queue that one task reads."""

    part: QueueRange


def partitions_of(ranges: Sequence[QueueRange], options: LiveOptions) -> list[InputPartition]:
    parts = split_ranges(ranges, options.min_partitions, options.max_records)
    return [LivePartition(part) for part in parts]
