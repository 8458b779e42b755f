"""Running a streaming query from the command line: to the end of the existing messages, or until it is stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketline.pipelines.runs import note_batch
from rocketline.pipelines.tasks import Progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EVERY_S = 2
FOLLOW_EVERY = "2 seconds"


def finish(writer: DataStreamWriter, follow: bool, tell: Progress) -> None:
    """Run a query and report each batch; with `follow` it runs until it is interrupted."""
    trigger = writer.trigger(processingTime=FOLLOW_EVERY) if follow else writer.trigger(availableNow=True)
    query = trigger.start()
    try:
        _watch(query, tell)
    except KeyboardInterrupt:
        tell("stopping after the batch that is under way")
    finally:
        if query.isActive:
            query.stop()


def _watch(query: StreamingQuery, tell: Progress) -> None:
    seen = -1
    while True:
        ended = query.awaitTermination(EVERY_S)
        for progress in query.recentProgress:
            if progress.batchId > seen and progress.numInputRows:
                tell(f"{query.name} batch {progress.batchId}: {progress.numInputRows:,} messages")
                note_batch(progress)
                seen = progress.batchId
        if ended:
            return
