"""A worker keeps the memory it will need again, and needs no more of it for a larger range."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.testing import LocalCluster

PROGRAM = """
import resource, sys
from rocketline.spark.memory import keep_memory

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        pieces = [bytes(1 << 20), bytes(3 << 20), bytes(1 << 19)]
        pieces = [bytearray(piece) for piece in pieces]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_memory()
keep_memory()
faults(3)
print(faults(20))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a matter of glibc")
def test_memory_that_was_used_once_is_used_again_without_a_fault() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    # Twenty times nine megabytes would be tens of thousands.
    assert int(done.stdout) < 2000


@pytest.mark.parametrize(("environment", "passed_over"), [({"SPARK_REUSE_WORKER": "1"}, True), ({}, False)])
def test_workers_that_run_many_tasks_do_not_look_through_what_is_loaded_after_each(
    environment: dict[str, str], passed_over: bool
) -> None:
    program = "import gc; from rocketline.spark.memory import spare_collections as f; f(); print(gc.get_freeze_count())"
    kept = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True, env={**kept, **environment},
    )  # fmt: skip
    assert (int(done.stdout) > 1000) is passed_over


TASKS = """
import resource, sys
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from rocketline.spark.columns import COLUMNS
from rocketline.spark.live.source import LiveSource
from rocketline.spark.sink.sink import SinkOptions, send_rows

task, namesrv, topic, count = *sys.argv[1:4], int(sys.argv[4])

def batches():
    for start in range(0, count, 1000):
        yield pa.RecordBatch.from_pydict({"body": [b"%01000d" % number for number in range(start, start + 1000)]})

if task == "send":
    given = SinkOptions.parse({"namesrv": namesrv, "topic": topic}, from_arrow_schema(next(batches()).schema))
    rows = send_rows(given, "w", 0, batches()).rows
else:
    options = {"namesrv": namesrv, "subscribe": topic, "minPartitions": "1"}
    reader = LiveSource(options).reader(from_arrow_schema(COLUMNS))
    rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
assert rows == count, rows
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""
SMALL, LARGE = 20_000, 200_000
MORE_MB = 40
"""Ten times the rows are 180 MB more."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the unit of ru_maxrss differs")
def test_a_task_needs_no_more_memory_for_a_range_ten_times_as_large() -> None:
    with LocalCluster() as cluster:
        for task in ("send", "read"):
            peaks = [megabytes(task, cluster.namesrv, count) for count in (SMALL, LARGE)]
            assert peaks[1] <= peaks[0] + MORE_MB, (task, peaks)


def megabytes(task: str, namesrv: str, count: int) -> int:
    """The most memory that a process with one task had."""
    command = [sys.executable, "-c", TASKS, task, namesrv, f"T{count}", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
