"""Sending: codes 10, 310, 320, 324, 325 and their answer, a reply on its way (326), handing a message back (36) and taking
one back (370).

One struct serves both spellings of a send. Java's clients use the short one (V2, one letter per field) and so do we; code
10 and 324, the same for replies, spell the same fields out.
"""

from __future__ import annotations

from typing import Self

import msgspec
from msgspec import field

from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers.base import Header, Int32, Int64, LogOffset64, QueueOffset64, refused_field, wire_text

_LETTERS = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_ms": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "batch": "m",
    "broker_name": "n",
}

_LETTER_OF_LONG_NAME = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "bname": "n",
}
_LONG_NAME_OF_LETTER = {letter: name for name, letter in _LETTER_OF_LONG_NAME.items()}
_LONG_CODES = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})


class SendMessageHeader(Header, rename=_LETTERS):
    """A send of one message, or of a batch when `batch` is set *and* the code is 320 (or 310)."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_ms: Int64
    flag: Int32
    properties: str = ""
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False
    broker_name: str | None = None

    @classmethod
    def decode(cls, command: Command) -> Self:
        ext = command.ext or {}
        if command.code in _LONG_CODES:
            return cls._decode_long(command, ext)
        try:
            return msgspec.convert(ext, cls, strict=False)
        except msgspec.ValidationError as error:
            raise refused_field(command, error) from error

    @classmethod
    def _decode_long(cls, command: Command, ext: dict[str, str]) -> Self:
        letters = {_LETTER_OF_LONG_NAME[name]: value for name, value in ext.items() if name in _LETTER_OF_LONG_NAME}
        try:
            return msgspec.convert(letters, cls, strict=False)
        except msgspec.ValidationError as error:
            raise refused_field(command, error, _LONG_NAME_OF_LETTER) from error

    def encode(self) -> dict[str, str]:
        """Fields in the short spelling of 310, 320 and 325."""
        ext = {
            "a": self.producer_group,
            "b": self.topic,
            "c": self.default_topic,
            "d": str(self.default_topic_queue_nums),
            "e": str(self.queue_id),
            "f": str(self.sys_flag),
            "g": str(self.born_ms),
            "h": str(self.flag),
            "i": self.properties,
            "j": str(self.reconsume_times),
            "k": "true" if self.unit_mode else "false",
            "m": "true" if self.batch else "false",
        }
        if self.max_reconsume_times is not None:
            ext["l"] = str(self.max_reconsume_times)
        if self.broker_name is not None:
            ext["n"] = self.broker_name
        return ext

    def encode_long(self) -> dict[str, str]:
        """Fields in the long spelling of 10 and 324."""
        return {_LONG_NAME_OF_LETTER[letter]: value for letter, value in self.encode().items()}


class SendMessageResponseHeader(Header):
    """Where the message went, complete in answers 0, 10, 11 and 12. Without region or trace switch the defaults hold."""

    msg_id: str
    queue_id: Int32
    queue_offset: QueueOffset64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region: str = field(default="DefaultRegion", name="MSG_REGION")
    trace_on: bool = field(default=True, name="TRACE_ON")

    def encode(self) -> dict[str, str]:
        ext = {
            "msgId": self.msg_id,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
            "MSG_REGION": self.region,
            "TRACE_ON": wire_text(self.trace_on),
        }
        if self.transaction_id is not None:
            ext["transactionId"] = self.transaction_id
        if self.batch_uniq_id is not None:
            ext["batchUniqId"] = self.batch_uniq_id
        if self.recall_handle is not None:
            ext["recallHandle"] = self.recall_handle
        return ext


class PushReplyHeader(Header):
    """326, broker to client: a reply and what a stored record would tell of it; its body is the body."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_ms: Int64 = field(name="bornTimestamp")
    flag: Int32
    properties: str = ""
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    born_host: str = ""
    store_host: str = ""
    store_ms: Int64 = field(default=0, name="storeTimestamp")


class ConsumerSendMsgBackHeader(Header):
    """36: redeliver later. Delay level 0 leaves the delay to the broker, one below 0 means straight to the dead letters."""

    log_offset: LogOffset64 = field(name="offset")
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = field(default=None, name="bname")


class RecallMessageHeader(Header):
    """370: do not deliver a timer message; the handle came with the answer to its send."""

    topic: str
    recall_handle: str
    producer_group: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class RecallMessageResponseHeader(Header):
    msg_id: str
    region: str = field(default="DefaultRegion", name="MSG_REGION")
