"""Headers of pop mode: pop, peek and acknowledge messages, change their invisible time, wait for some (200050 to 200055).

These codes do not fit the binary header: they are sent in JSON only.
"""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.headers.base import Header, Int32, Int64, QueueOffset64

ANY_QUEUE = -1
INIT_MIN = 0
INIT_MAX = 1
"""Where a group starts that never popped a queue: at its oldest message, or at its end."""


class PopMessageHeader(Header):
    """200050; `queue_id` -1 means any."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_ms: Int64 = field(name="invisibleTime")
    poll_ms: Int64 = field(name="pollTime")
    born_ms: Int64 = field(default=0, name="bornTime")
    init_mode: Int32 = INIT_MIN
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class PopMessageResponseHeader(Header):
    """The answer to 200050 and 200052; refusals carry it too, with zeros."""

    pop_ms: Int64 = field(name="popTime")
    invisible_ms: Int64 = field(name="invisibleTime")
    revive_queue_id: Int32 = field(name="reviveQid")
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageHeader(Header):
    """200051; `topic` is the one the message is stored on, which may be a retry topic."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: QueueOffset64
    broker_name: str | None = field(default=None, name="bname")


class ChangeInvisibleTimeHeader(Header):
    """200053."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: QueueOffset64
    invisible_ms: Int64 = field(name="invisibleTime")
    broker_name: str | None = field(default=None, name="bname")


class ChangeInvisibleTimeResponseHeader(Header):
    """Values for the new handle; all zeros when a message popped in order was acknowledged before."""

    pop_ms: Int64 = field(name="popTime")
    invisible_ms: Int64 = field(name="invisibleTime")
    revive_queue_id: Int32 = field(name="reviveQid")


class NotificationHeader(Header):
    """200054: ask to be told when a pop would find something."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_ms: Int64 = field(name="pollTime")
    born_ms: Int64 = field(default=0, name="bornTime")
    order: bool | None = None
    attempt_id: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class NotificationResponseHeader(Header):
    has_msg: bool
    polling_full: bool = False


class PollingInfoHeader(Header):
    """200055: ask how many requests wait."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponseHeader(Header):
    polling_num: Int32


class PeekMessageHeader(Header):
    """200052: read what a pop would return, without popping."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str
    broker_name: str | None = field(default=None, name="bname")
