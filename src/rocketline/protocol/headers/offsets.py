"""Offsets of groups (14, 15) and of queues (29, 30, 31, 32)."""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.headers.base import ConsumerOffset64, Header, Int32, Int64


class QueryConsumerOffsetHeader(Header):
    """14; answered by OffsetResponseHeader, or code 22 when the group has none."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None
    broker_name: str | None = field(default=None, name="bname")


class UpdateConsumerOffsetHeader(Header):
    """15; clients send it one-way."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: ConsumerOffset64
    broker_name: str | None = field(default=None, name="bname")


class SearchOffsetHeader(Header):
    """29; the boundary is "LOWER" unless it says "UPPER", in any case."""

    topic: str
    queue_id: Int32
    timestamp_ms: Int64 = field(name="timestamp")
    boundary_type: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class GetMaxOffsetHeader(Header):
    """30."""

    topic: str
    queue_id: Int32
    committed: bool | None = None
    broker_name: str | None = field(default=None, name="bname")


class GetMinOffsetHeader(Header):
    """31."""

    topic: str
    queue_id: Int32
    broker_name: str | None = field(default=None, name="bname")


class GetEarliestStoreTimeHeader(Header):
    """32."""

    topic: str
    queue_id: Int32
    broker_name: str | None = field(default=None, name="bname")


class OffsetResponseHeader(Header):
    """The answer to 14, 29, 30 and 31."""

    offset: Int64


class EarliestStoreTimeResponseHeader(Header):
    """The answer to 32; -1 when the queue is empty."""

    timestamp_ms: Int64 = field(name="timestamp")
