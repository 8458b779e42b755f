"""Running plain functions as the tasks of a Spark job: for work on files and not on tables.

Tasks and results are JSON, so no data is unpickled, and it works under Spark Connect, which has no RDDs. Spark runs a failed
task again: a task must be able to run twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

TaskT = TypeVar("TaskT", bound=msgspec.Struct)
ResultT = TypeVar("ResultT", bound=msgspec.Struct)
Progress = Callable[[str], None]

EVERY_S = 2.0


def run_tasks(
    spark: SparkSession | None,
    work: Callable[[TaskT], ResultT],
    tasks: Sequence[TaskT],
    result: type[ResultT],
    tell: Progress,
    what: str,
) -> list[ResultT]:
    """The results in the order of the tasks; `work` must be importable where the executors run.

    Without a session they run in this process, one after the other.
    """
    if not tasks:
        return []
    kind = type(tasks[0])
    encoded = [msgspec.json.encode(task) for task in tasks]
    if spark is None:
        answers = [msgspec.json.encode(work(msgspec.json.decode(task, type=kind))) for task in encoded]
        return [msgspec.json.decode(answer, type=result) for answer in answers]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                done = work(msgspec.json.decode(encoded[number], type=kind))
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int64()), pa.array([msgspec.json.encode(done)], pa.binary())],
                    names=["task", "result"],
                )

    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, "task long, result binary")
    with reporting_tasks(spark, tell, what):
        rows = frame.collect()
    ordered = sorted((row["task"], bytes(row["result"])) for row in rows)
    return [msgspec.json.decode(raw, type=result) for _, raw in ordered]


@contextmanager
def reporting_tasks(spark: SparkSession, tell: Progress, what: str) -> Iterator[None]:
    """While the context lasts, report every few seconds how many tasks of the running jobs are done."""
    tracker = _tracker(spark)
    if tracker is None:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        before = ""
        while not ended.wait(EVERY_S):
            text = _done(tracker)
            if text and text != before:
                tell(f"{what}: {text}")
                before = text

    thread = threading.Thread(target=watch, daemon=True, name="pipeline-progress")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _tracker(spark: SparkSession) -> Any:
    """None under Spark Connect, whose client sees no tasks."""
    try:
        return spark.sparkContext.statusTracker()
    except Exception:
        return None


def _done(tracker: Any) -> str:
    stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
    if not stages:
        return ""
    done, whole = sum(info.numCompletedTasks for info in stages), sum(info.numTasks for info in stages)
    return f"{done:,} of {whole:,} tasks"


def parallelism(spark: SparkSession | None) -> int:
    """How many tasks run at the same time; 8 when the session does not tell."""
    if spark is None:
        return 1
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:
        return 8
