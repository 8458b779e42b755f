"""Limits the rate of rows of a task, in pieces of a tenth of a second.

This is done where rows are sent: Spark buffers thousands of rows between Python workers, so rows delayed earlier would
arrive all at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from rocketline.clock import SYSTEM_CLOCK, Clock

MOST_ROWS = 100


def paced(
    batches: Iterable[pa.RecordBatch],
    rows_per_second: float,
    clock: Clock = SYSTEM_CLOCK,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """The same rows in smaller batches, each not before it is due; time lost is not made up for."""
    most = max(1, min(MOST_ROWS, int(rows_per_second / 10)))
    due = clock.monotonic()
    for batch in batches:
        for start in range(0, batch.num_rows, most):
            now = clock.monotonic()
            if due > now:
                sleep(due - now)
            piece = batch.slice(start, most)
            due = max(due, now) + piece.num_rows / rows_per_second
            yield piece
