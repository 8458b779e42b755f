"""A message made ready for the wire: checked, numbered, its properties joined.

Everything a broker would refuse is refused here, before a byte is sent and with the reason in words. This runs for
every message sent, so checks work on the joined text and known topics are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

from rocketline.client.producer.send_headers import SendHeaders
from rocketline.client.producer.send_options import SendOptions
from rocketline.errors import InvalidMessage, MessageTooLarge
from rocketline.message import (
    DELAY,
    KEYS,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    WAIT,
    Message,
    MessageQueue,
)
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.names import NOT_SENDABLE, topic_problem
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, encode_properties, property_problem

LAST_DELAY_LEVEL = 18

_SEND = int(RequestCode.SEND_MESSAGE_V2)
_INT32 = range(-(1 << 31), 1 << 31)
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SendRequest(msgspec.Struct, gc=False):
    """One request to send a message or a batch. Only queue and broker change from attempt to attempt."""

    headers: SendHeaders
    topic: str
    message_id: str
    now_ms: int
    properties: str
    body: bytes
    code: int = _SEND
    is_plain: bool = True
    """Whether its header fields are unchanged, so that its frame can be made from a template."""
    _ext: dict[str, str] | None = None

    @property
    def ext(self) -> dict[str, str]:
        """The header fields; they may be changed."""
        self.is_plain = False
        if self._ext is None:
            self._ext = self.headers.fields(self.topic, self.properties, self.now_ms)
        return self._ext

    def command(self, queue: MessageQueue) -> Command:
        """The request that puts the message into a queue."""
        ext = self.ext
        ext["e"] = str(queue.queue_id)
        ext["n"] = queue.broker_name
        return Command(self.code, ext, self.body)

    def frame(self, queue: MessageQueue, opaque: int) -> bytes:
        """The same as bytes, for a plain message."""
        return self.headers.frame(queue, opaque, self.now_ms, self.properties, self.body)


class RequestMaker:
    """Makes the requests of one sender: unique ids, compression, header fields. Messages were checked before."""

    def __init__(
        self, group: str, options: SendOptions, next_id: Callable[[int], str], now_ms: Callable[[], int]
    ) -> None:
        self.options = options
        self.next_id = next_id
        self.now_ms = now_ms
        self.headers = SendHeaders(group, options)

    def make(
        self, message: Message, body: bytes | None = None, sys_flag: int = 0, unique_id: str | None = None
    ) -> SendRequest:
        """The request for a message as it is; `body` and `sys_flag` are those of a compressed one."""
        now_ms = self.now_ms()
        if unique_id is None:
            unique_id = self.next_id(now_ms)
        joined = tag_and_keys(message, unique_id)
        if joined is None:
            properties = message_properties(message, unique_id)
            joined, unique_id = joined_properties(properties), properties[UNIQ_KEY]
        if body is None:
            body = message.body
        outgoing = SendRequest(self.headers, message.topic, unique_id, now_ms, joined, body)
        if message.flag or sys_flag:
            outgoing.ext.update(f=str(sys_flag), h=str(message.flag))
        return outgoing

    def pack(self, message: Message) -> SendRequest:
        """The request for a message, compressed if it is large."""
        return self.make(message, *self.options.compression.compress(message.body))


def check_message(message: Message, max_bytes: int) -> None:
    """InvalidMessage or MessageTooLarge when no broker would take this message; its body is bytes."""
    problem = unsendable(message.topic)
    if problem is not None:
        raise InvalidMessage(problem)
    body = message.body
    if not body:
        raise InvalidMessage(f"the body for topic {message.topic!r} is empty, which RocketMQ does not store")
    if len(body) > max_bytes:
        raise MessageTooLarge(
            f"the body for topic {message.topic!r} has {len(body)} bytes, the limit is {max_bytes}: split it, or raise "
            "max_message_bytes here and maxMessageSize on the broker"
        )
    if message.flag and message.flag not in _INT32:
        raise InvalidMessage(f"flag {message.flag} does not fit 32 bits")
    if message.delay_level and not 0 <= message.delay_level <= LAST_DELAY_LEVEL:
        raise InvalidMessage(f"delay level {message.delay_level}: 0 (none) to {LAST_DELAY_LEVEL} expected")
    if message.delay is not None or message.deliver_at is not None:
        _check_time(message)
    key = message.sharding_key
    if key is not None and (key.__class__ is not str or not key):
        raise InvalidMessage(
            f"sharding_key {key!r} for topic {message.topic!r}: text is needed, for example str(order.id)"
        )


def _check_time(message: Message) -> None:
    if (message.delay is not None) + (message.deliver_at is not None) + (message.delay_level > 0) > 1:
        raise InvalidMessage(
            f"the message for topic {message.topic!r} has more than one of delay, deliver_at, delay_level"
        )
    if message.delay is not None and message.delay < timedelta():
        raise InvalidMessage(f"delay {message.delay} for topic {message.topic!r} is below zero")
    if message.deliver_at is not None and message.deliver_at.utcoffset() is None:
        raise InvalidMessage(f"deliver_at {message.deliver_at} has no time zone: give it one, for example datetime.UTC")


@lru_cache(maxsize=4096)
def unsendable(topic: str) -> str | None:
    """Why nobody can send to a topic of this name, or None."""
    if topic in NOT_SENDABLE:
        return f"topic {topic!r} belongs to the broker: clients cannot send to it"
    return topic_problem(topic)


def tag_and_keys(message: Message, unique_id: str) -> str | None:
    """The joined properties of a message that has nothing but these; None when it has more, or odd ones."""
    if (
        message.properties
        or message.delay_level
        or message.sharding_key is not None
        or message.delay is not None
        or message.deliver_at is not None
    ):
        return None
    text, count = f"{UNIQ_KEY}\x01{unique_id}\x02{WAIT}\x01{'true' if message.wait_stored else 'false'}\x02", 2
    if not message.keys and not message.tag:
        return text
    try:
        if message.keys:
            text, count = f"{text}{KEYS}\x01{' '.join(message.keys)}\x02", 3
        if message.tag:
            text, count = "".join((text, TAGS, "\x01", message.tag, "\x02")), count + 1
    except TypeError:
        return None
    return text if _can_travel(text, count) and _is_short_ascii(text) else None


def message_properties(message: Message, unique_id: str) -> dict[str, str]:
    """All properties of a message; a unique id the caller set is kept."""
    properties = {UNIQ_KEY: unique_id, WAIT: "true" if message.wait_stored else "false"}
    if message.properties:
        properties.update(message.properties)
        for name, value in message.properties.items():
            if value.__class__ is not str or name.__class__ is not str:
                raise InvalidMessage(f"property {name!r} is {value!r}: names and values are text")
    if message.keys:
        try:
            properties[KEYS] = " ".join(message.keys)
        except TypeError as error:
            raise InvalidMessage(f"keys are {message.keys!r}: text is needed, for example keys=['42']") from error
    if message.tag:
        properties[TAGS] = message.tag
    if message.sharding_key is not None:
        properties[SHARDING_KEY] = message.sharding_key
    if message.delay_level:
        properties[DELAY] = str(message.delay_level)
    if message.delay is not None:
        properties[TIMER_DELAY_MS] = str(-(-message.delay // _MILLISECOND))
    elif message.deliver_at is not None:
        properties[TIMER_DELIVER_MS] = str(-(-(message.deliver_at - _EPOCH) // _MILLISECOND))
    return properties


def joined_properties(properties: Mapping[str, str]) -> str:
    """The properties as one string; InvalidMessage when one of them cannot travel."""
    text = encode_properties(properties)
    if not _can_travel(text, len(properties)):
        raise InvalidMessage(_first_problem(properties))
    if not _is_short_ascii(text):
        _check_encoded(text)
    return text


def _can_travel(text: str, count: int) -> bool:
    """Whether so many properties can be told apart: a separator inside a name or value adds to those between them, and two
    in a row stand round an empty name or value."""
    return (
        text.count("\x01") == count
        and text.count("\x02") == count
        and "\x01\x02" not in text
        and "\x02\x01" not in text
        and text[0] != "\x01"
    )


def _is_short_ascii(text: str) -> bool:
    return len(text) <= MAX_PROPERTIES_BYTES // 4 and text.isascii()


def _first_problem(properties: Mapping[str, str]) -> str:
    problems = (property_problem(name, value) for name, value in properties.items())
    return next((problem for problem in problems if problem), "the properties cannot be told apart once joined")


def _check_encoded(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"the properties hold text that is not Unicode: {error.reason}") from error
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidMessage(f"the properties have {size} bytes in all, the limit is {MAX_PROPERTIES_BYTES}")
