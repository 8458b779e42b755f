"""Texts of pop mode that name popped messages: receipt handles, and the offsets in an answer.

    receipt handle   ckStartOffset popTime invisibleTime reviveQid flag brokerName queueId queueOffset [logOffset]
    startOffsetInfo  flag queueId startOffset;...
    msgOffsetInfo    flag queueId o1,o2,o3;...
    orderCountInfo   flag queueId count;...  and  flag qo<queueId>%<queueOffset> count;...

Parts are separated by exactly one space. The flag says where a message is stored: on the topic asked for (0) or on one of
the group's two retry topics for it (1, 2). A handle names neither topic nor group: who acknowledges it has to know both.
Readers refuse what would fail in Java: a wrong number of parts, text that is no number, the same queue twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from rocketline.errors import InvalidReceipt, RemoteProtocolError
from rocketline.message import RETRY_PREFIX, LogOffset, QueueOffset
from rocketline.protocol.numbers import MAX_INT32, MAX_INT64, read_number

T = TypeVar("T")

FIRST_POP_TIME = "1ST_POP_TIME"

NORMAL: Final = 0
RETRY_V1: Final = 1
RETRY_V2: Final = 2

ORDER_REVIVE_QUEUE = 999
"""The revive queue in handles of messages popped in order, which have no check point."""
MAX_POP_MESSAGES = 32

_SEPARATORS = {RETRY_V1: "_", RETRY_V2: "+"}
_HANDLE_PARTS = (8, 9)
_MAX_HANDLE_CHARS = 1024
_HANDLE = re.compile(
    r"(\d{1,19}) (\d{1,19}) (\d{1,19}) (\d{1,10}) ([012]) ([^ ]{1,900}) (\d{1,10}) (\d{1,19})(?: (\d{1,19}))?", re.ASCII
)

QueueKey = tuple[int, int]
"""(flag, queue id)"""


def pop_retry_topic(group: str, topic: str, flag: int = RETRY_V1) -> str:
    """The retry topic of a group for a topic.

    >>> pop_retry_topic("billing", "orders"), pop_retry_topic("billing", "orders", RETRY_V2)
    ('%RETRY%billing_orders', '%RETRY%billing+orders')
    """
    return f"{RETRY_PREFIX}{group}{_SEPARATORS[flag]}{topic}"


def real_topic(group: str, topic: str, flag: int) -> str:
    """The topic on which a message popped for `topic` is stored."""
    return topic if flag == NORMAL else pop_retry_topic(group, topic, flag)


def topic_flag(topic: str) -> int:
    """The flag of a topic.

    >>> topic_flag("orders"), topic_flag("%RETRY%billing_orders"), topic_flag("%RETRY%billing+orders")
    (0, 1, 2)
    """
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


class ReceiptHandle(NamedTuple):
    """One delivery of one message: needed to acknowledge it or to change its invisible time."""

    ck_start_offset: int
    """The first offset of its batch, by which the broker finds its check point."""
    pop_ms: int
    invisible_ms: int
    revive_queue_id: int
    flag: int
    broker_name: str
    queue_id: int
    queue_offset: QueueOffset
    log_offset: LogOffset | None = None
    """Only in the handles of the gRPC proxy."""

    @classmethod
    def parse(cls, text: str) -> ReceiptHandle:
        """The handle of a text; InvalidReceipt when the text is none."""
        found = _HANDLE.fullmatch(text) if len(text) <= _MAX_HANDLE_CHARS else None
        if found is None:
            raise InvalidReceipt(_why_not(text))
        start, pop_ms, invisible_ms, revive_queue_id, flag, broker_name, queue_id, offset, log_offset = found.groups()
        handle = cls(
            int(start), int(pop_ms), int(invisible_ms), int(revive_queue_id), int(flag), broker_name, int(queue_id),
            QueueOffset(int(offset)), LogOffset(int(log_offset)) if log_offset is not None else None,
        )  # fmt: skip
        if (
            max(handle.ck_start_offset, handle.pop_ms, handle.invisible_ms, handle.queue_offset) > MAX_INT64
            or max(handle.revive_queue_id, handle.queue_id) > MAX_INT32
        ):
            raise InvalidReceipt(f"{text[:80]!r} is no receipt handle: a part is out of its range")
        return handle

    def __str__(self) -> str:
        text = (
            f"{self.ck_start_offset} {self.pop_ms} {self.invisible_ms} {self.revive_queue_id} {self.flag} "
            f"{self.broker_name} {self.queue_id} {self.queue_offset}"
        )
        return text if self.log_offset is None else f"{text} {self.log_offset}"

    @property
    def next_visible_ms(self) -> int:
        """When the message becomes visible to other consumers, by the broker's clock."""
        return self.pop_ms + self.invisible_ms

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    def changed(self, pop_ms: int, invisible_ms: int, revive_queue_id: int) -> ReceiptHandle:
        """The new handle after a change of the invisible time: the message then has its own check point."""
        return self._replace(
            ck_start_offset=self.queue_offset,
            pop_ms=pop_ms,
            invisible_ms=invisible_ms,
            revive_queue_id=revive_queue_id,
        )


def _why_not(text: str) -> str:
    """Why a text is no handle."""
    parts = text.split(" ") if len(text) <= _MAX_HANDLE_CHARS else []
    shown = f"{text[:80]!r} is no receipt handle"
    if len(parts) not in _HANDLE_PARTS or not parts[5]:
        return f"{shown}: 8 or 9 parts with single spaces expected"
    try:
        for part in parts[:5] + parts[6:]:
            _number(part)
    except ValueError as error:
        return f"{shown}: {error}"
    return f"{shown}: a part is out of its range"


def _number(text: str) -> int:
    number = read_number(text, lowest=-MAX_INT64)
    if number is None:
        raise ValueError(f"{text[:24]!r} is no number of 64 bits")
    return number


def encode_start_offsets(offsets: Mapping[QueueKey, int]) -> str:
    """
    >>> encode_start_offsets({(0, 0): 10, (1, 1): 20})
    '0 0 10;1 1 20'
    """
    return ";".join(f"{flag} {queue_id} {offset}" for (flag, queue_id), offset in offsets.items())


def parse_start_offsets(text: str | None) -> dict[QueueKey, int]:
    return _parse("startOffsetInfo", text, _number)


def encode_message_offsets(offsets: Mapping[QueueKey, Sequence[int]]) -> str:
    """
    >>> encode_message_offsets({(0, 0): [10, 11, 13], (1, 1): [20]})
    '0 0 10,11,13;1 1 20'
    """
    return ";".join(
        f"{flag} {queue_id} {','.join(map(str, queue_offsets))}" for (flag, queue_id), queue_offsets in offsets.items()
    )


def parse_message_offsets(text: str | None) -> dict[QueueKey, list[int]]:
    return _parse("msgOffsetInfo", text, lambda value: [_number(part) for part in value.split(",")])


def encode_order_counts(counts: Iterable[tuple[int, int, QueueOffset | None, int]]) -> str:
    """Redeliveries as (flag, queue id, offset or None for the whole queue, count).

    >>> encode_order_counts([(0, 0, None, 2), (0, 0, QueueOffset(11), 1)])
    '0 0 2;0 qo0%11 1'
    """
    return ";".join(
        f"{flag} {queue_id} {count}" if offset is None else f"{flag} qo{queue_id}%{offset} {count}"
        for flag, queue_id, offset, count in counts
    )


def parse_order_counts(text: str | None) -> dict[tuple[int, int, QueueOffset | None], int]:
    """Redeliveries by (flag, queue id, offset or None for the whole queue)."""
    counts: dict[tuple[int, int, QueueOffset | None], int] = {}
    for flag, key, value in _items("orderCountInfo", text):
        try:
            queue, _, offset = key.removeprefix("qo").partition("%")
            place = (_number(flag), _number(queue), QueueOffset(_number(offset)) if key.startswith("qo") else None)
            count = _number(value)
        except ValueError as error:
            raise RemoteProtocolError(f"orderCountInfo {text!r:.200}: {error}") from error
        if place in counts:
            raise RemoteProtocolError(f"orderCountInfo {text!r:.200} has {key} twice")
        counts[place] = count
    return counts


def _parse(name: str, text: str | None, read: Callable[[str], T]) -> dict[QueueKey, T]:
    found: dict[QueueKey, T] = {}
    for flag, queue_id, value in _items(name, text):
        try:
            key = (_number(flag), _number(queue_id))
            item = read(value)
        except ValueError as error:
            raise RemoteProtocolError(f"{name} {text!r:.200}: {error}") from error
        if key in found:
            raise RemoteProtocolError(f"{name} {text!r:.200} has queue {key[1]} (flag {key[0]}) twice")
        found[key] = item
    return found


def _items(name: str, text: str | None) -> list[list[str]]:
    if not text:
        return []
    items = [item.split(" ") for item in text.removesuffix(";").split(";")]
    if any(len(item) != 3 for item in items):
        raise RemoteProtocolError(f"{name} {text!r:.200}: three parts with single spaces expected in every item")
    return items
