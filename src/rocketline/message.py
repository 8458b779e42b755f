"""A message to send, a message received, and a queue: the types that all parts share.

Three kinds of offset exist and never mix: a `LogOffset` is a byte position in a broker's commit log, a `QueueOffset` is the
number of an entry in one queue, a `ConsumerOffset` is the queue offset a group will read next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NewType, cast

import msgspec
from msgspec.structs import force_setattr

LogOffset = NewType("LogOffset", int)
QueueOffset = NewType("QueueOffset", int)
ConsumerOffset = NewType("ConsumerOffset", int)

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TRANSACTION_ID = "__transactionId__"
POP_CK = "POP_CK"
SHARDING_KEY = "__SHARDINGKEY"

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker; its order is the one that all members of a consumer group use."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


class Message(msgspec.Struct, frozen=True):
    """A message to send; `delay` or `deliver_at` make it a timer message, `delay_level` one of the broker's levels.

    Messages with the same `sharding_key` go to the same queue, so that they stay in order.

    >>> Message("orders", b"hello", tag="created", keys=["42"]).keys
    ('42',)
    """

    topic: str
    body: Any
    """Bytes, a bytearray or a memoryview; or an object, if the producer has a serializer."""
    tag: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    wait_stored: bool = True
    delay: timedelta | None = None
    deliver_at: datetime | None = None
    sharding_key: str | None = None

    def __post_init__(self) -> None:
        if self.keys.__class__ is not tuple:
            force_setattr(self, "keys", (self.keys,) if isinstance(self.keys, str) else tuple(self.keys))

    @property
    def transaction_id(self) -> str | None:
        """The id of its transaction; set while the local transaction runs."""
        return self.properties.get(TRANSACTION_ID)


UNREAD: Any = object()
"""The value of a field that is decoded when it is first read."""


class _FromRecord:
    """Base of `MessageView` with the slot for what is not decoded yet.

    It holds bytes and no memoryview, so that a message that is kept does not keep the whole answer it came in.
    """

    __slots__ = ("_record",)

    _record: list[Any]
    """[decoding function, its arguments ...]; not set in a message that was made from its fields."""


@dataclass(slots=True)
class MessageView(_FromRecord):
    """A message as a consumer sees it: everything the broker stored, with the body already inflated.

    Only a body that nobody can inflate is as it was stored; `body_problem` says so.
    """

    topic: str
    body: bytes
    properties: dict[str, str]
    queue_id: int
    queue_offset: QueueOffset
    log_offset: LogOffset
    born_ms: int
    born_host: str
    store_ms: int
    store_host: str
    reconsume_times: int = 0
    flag: int = 0
    sys_flag: int = 0
    body_crc: int = 0
    prepared_log_offset: int = 0
    stored_bytes: int = 0
    broker_name: str = ""
    offset_id: str = ""
    body_problem: str | None = None
    """Why the body could not be inflated: it is no stream of the kind that its sender named, or would be too large."""

    @property
    def message_id(self) -> str:
        """The producer's unique id, or the broker's offset id when the producer gave none."""
        return self.properties.get(UNIQ_KEY) or self.offset_id

    @property
    def tag(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(KEYS, "").split())

    @property
    def sharding_key(self) -> str | None:
        return self.properties.get(SHARDING_KEY)

    @property
    def transaction_id(self) -> str | None:
        """The id of the transaction it was sent in, if any."""
        return self.properties.get(TRANSACTION_ID)

    @property
    def receipt_handle(self) -> str | None:
        """The receipt handle that acknowledges this delivery, if the message was popped."""
        return self.properties.get(POP_CK)

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    def __getstate__(self) -> object:
        """All fields, decoded: for copies and pickles."""
        others, fields = cast(tuple[Any, dict[str, Any]], object.__getstate__(self))
        fields.pop("_record", None)
        return others, fields


def _decode_at_first_use(name: str) -> None:
    """Make reading a field decode it, if that was not done yet; `_NAME` is the plain slot.

    These are properties because with `__getattr__` Python 3.11 takes three times as long to read any field.
    """
    slot = MessageView.__dict__[name]
    read, write = slot.__get__, slot.__set__

    def get(message: MessageView) -> Any:
        value = read(message)
        if value is UNREAD:
            record = message._record
            value = record[0](record, name)
            write(message, value)
        return value

    setattr(MessageView, f"_{name}", slot)
    setattr(MessageView, name, property(get, write, slot.__delete__))


for _name in ("properties", "born_host", "store_host", "offset_id"):
    _decode_at_first_use(_name)
