"""What a read or a query found: slices of the mapped log, or one copy of small records that lie scattered there."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from rocketline.message import LogOffset


class ReadStatus(Enum):
    """Outcome of a read; the names are those RocketMQ puts into the remark of a pull answer."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class QueueUnit(NamedTuple):
    """One entry of a consume queue."""

    log_offset: LogOffset
    size: int
    tags_code: int


class ReadResult(NamedTuple):
    """Records of one queue, laid back to back in `chunks`, and where to read on."""

    status: ReadStatus
    next_queue_offset: int
    min_offset: int
    max_offset: int
    chunks: list[memoryview]
    message_count: int
    total_bytes: int
    lagging: bool
    """Whether the reader is so far behind the log end that memory can no longer hold what it reads next."""


class QueryResult(NamedTuple):
    """Records found by key, oldest first, and how far the index had come."""

    records: list[memoryview]
    index_updated_ms: int
    index_updated_log_offset: int
