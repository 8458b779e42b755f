"""A message to append, what became of it, and what the log does not take.

Bad messages are refused by value, with the reason in words: a client gets to read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from rocketline.message import LogOffset, QueueOffset
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, encode_properties
from rocketline.protocol.record_layout import BLANK_BYTES
from rocketline.protocol.records import BatchItem, Buffer, Record
from rocketline.store.config import StoreConfig
from rocketline.store.log.batch_records import looks_lost, measure_batch

PROPERTIES_ALLOWANCE_BYTES = 64 << 10
MAX_TOPIC_BYTES = 255

_LOOKS_LOST = "the properties end in a zero byte or hold 512 of them, as a disk sector that was never written"


class StoreMessage(msgspec.Struct, gc=False):
    """A message to append: `properties` and `properties_raw` say the same, decoded and as stored."""

    topic: str
    queue_id: int
    body: Buffer
    properties: dict[str, str]
    properties_raw: bytes
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_log_offset: int = 0


def copy_of(record: Record, topic: str, queue_id: int, properties: dict[str, str]) -> StoreMessage:
    """A stored message for another place, with other properties; whoever makes it may change more of it."""
    return StoreMessage(
        topic=topic,
        queue_id=queue_id,
        body=record.body,
        properties=properties,
        properties_raw=encode_properties(properties).encode(),
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_ms=record.born_ms,
        born_host=record.born_host,
        reconsume_times=record.reconsume_times,
        prepared_log_offset=record.prepared_log_offset,
    )


class AppendStatus(Enum):
    OK = "stored"
    MESSAGE_ILLEGAL = "refused: too large or badly named"
    PROPERTIES_TOO_LARGE = "refused: properties too large"
    NOT_AVAILABLE = "the store takes no messages now"
    BUSY = "no buffer is free now"
    TOO_FEW_REPLICAS = "too few replicas are in sync"


class AppendResult(NamedTuple):
    """Where a message, or the first one of a batch, was put."""

    status: AppendStatus
    log_offset: LogOffset
    queue_offset: QueueOffset
    size: int
    store_ms: int
    next_log_offset: LogOffset
    log_offsets: tuple[LogOffset, ...] = ()
    """Of every message of a batch; empty for a single message."""
    reason: str = ""
    """Why nothing was stored."""


def refused(status: AppendStatus, reason: str) -> AppendResult:
    return AppendResult(status, LogOffset(-1), QueueOffset(-1), 0, 0, LogOffset(-1), (), reason)


def badly_placed(topic: str, queue_id: int) -> AppendResult:
    if queue_id < 0:
        return refused(AppendStatus.MESSAGE_ILLEGAL, f"queue {queue_id} of topic {topic[:300]!r} cannot exist")
    return refused(
        AppendStatus.MESSAGE_ILLEGAL,
        f"the topic {topic[:300]!r} cannot be stored: 1 to {MAX_TOPIC_BYTES} bytes without '/' are needed",
    )


def lost_properties() -> AppendResult:
    return refused(AppendStatus.MESSAGE_ILLEGAL, _LOOKS_LOST)


class RecordLimits(NamedTuple):
    """How much the log takes at once."""

    body_bytes: int
    record_bytes: int
    batch_bytes: int
    """Of all records of a batch together: they go into one file."""

    @classmethod
    def of(cls, config: StoreConfig) -> RecordLimits:
        whole_file = config.log_segment_bytes - BLANK_BYTES
        record_bytes = min(config.max_message_bytes + PROPERTIES_ALLOWANCE_BYTES, whole_file)
        return cls(config.max_message_bytes, record_bytes, whole_file)

    def too_large(self, body_bytes: int, properties_bytes: int, size: int) -> AppendResult:
        if properties_bytes > MAX_PROPERTIES_BYTES:
            return refused(
                AppendStatus.PROPERTIES_TOO_LARGE,
                f"the properties take {properties_bytes} bytes, the limit is {MAX_PROPERTIES_BYTES}",
            )
        if body_bytes > self.body_bytes:
            return refused(
                AppendStatus.MESSAGE_ILLEGAL, f"the body has {body_bytes} bytes, the limit is {self.body_bytes}"
            )
        return refused(
            AppendStatus.MESSAGE_ILLEGAL, f"{size} bytes to store are more than the limit of {self.record_bytes}"
        )

    def measured(self, items: Sequence[BatchItem], shared_bytes: int) -> int | AppendResult:
        """What the records of a batch take, or why they cannot be stored."""
        if items and (sizes := measure_batch(items, shared_bytes)) is not None:
            body_bytes, total = sizes
            if body_bytes <= self.body_bytes and total <= self.batch_bytes:
                return total
        total = sum([shared_bytes + len(item.body) + len(item.properties) for item in items])
        return self._batch_problem(items, total) or total

    def _batch_problem(self, items: Sequence[BatchItem], total: int) -> AppendResult | None:
        if not items:
            return refused(AppendStatus.MESSAGE_ILLEGAL, "the batch is empty")
        for item in items:
            if len(item.properties) > MAX_PROPERTIES_BYTES:
                return self.too_large(len(item.body), len(item.properties), total)
            if looks_lost(item.properties):
                return lost_properties()
        body_bytes = sum(len(item.body) for item in items)
        if body_bytes > self.body_bytes or total > self.batch_bytes:
            return self.too_large(body_bytes, 0, total)
        return None


def is_storable_topic(topic: str) -> bool:
    """Whether a topic can be the name of a folder: the last line of defence, names are checked long before."""
    try:
        raw = topic.encode()
    except UnicodeEncodeError:
        return False
    return 0 < len(raw) <= MAX_TOPIC_BYTES and topic not in (".", "..") and "/" not in topic and "\0" not in topic
