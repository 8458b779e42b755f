"""A message made ready for the wire: checked, numbered, its properties joined.

Everything a broker would refuse is refused here, before a byte is sent and with the reason in words. This runs for
every message sent, so checks work on the joined text and known topics are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from rocketline.errors import ConfigError, InvalidMessage, MessageTooLarge
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
)
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.compression import TYPES, compress
from rocketline.protocol.names import DEFAULT_TOPIC, NOT_SENDABLE, topic_problem
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, encode_properties, property_problem
from rocketline.protocol.record_layout import COMPRESSED

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
LAST_DELAY_LEVEL = 18

_INT32 = range(-(1 << 31), 1 << 31)
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class SendOptions:
    """How a producer sends."""

    timeout_s: float = 3.0
    attempt_timeout_s: float | None = None
    retries: int = 2
    retry_not_stored: bool = False
    compression: str = "zlib"
    compression_level: int = 5
    compress_over_bytes: int = 4096
    max_message_bytes: int = MAX_MESSAGE_BYTES
    topic_queue_count: int = 4
    unit_mode: bool = False
    as_text: tuple[str, str] = field(init=False, repr=False, compare=False)
    """The last two as every header has them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "as_text", (str(self.topic_queue_count), "true" if self.unit_mode else "false"))
        if self.compression not in TYPES:
            raise ConfigError(f"compression {self.compression!r}: one of {', '.join(TYPES)} expected")
        if self.timeout_s <= 0 or self.retries < 0 or self.topic_queue_count < 1:
            raise ConfigError(
                f"timeout {self.timeout_s}, retries {self.retries}, topic_queue_count {self.topic_queue_count}: "
                "a time above 0, a count from 0 and a count from 1 are needed"
            )
        if self.attempt_timeout_s is not None and self.attempt_timeout_s <= 0:
            raise ConfigError(f"attempt_timeout {self.attempt_timeout_s}: a time above 0, or None, is needed")


class Outgoing:
    """One request to send. Only the queue (`e`) and the broker (`n`) change from attempt to attempt."""

    __slots__ = ("body", "code", "ext", "message_id", "topic")

    def __init__(self, topic: str, message_id: str, code: int, ext: dict[str, str], body: bytes) -> None:
        self.topic = topic
        self.message_id = message_id
        self.code = code
        self.ext = ext
        self.body = body


def outgoing_message(
    message: Message, group: str, unique_id: str, now_ms: int, options: SendOptions, body: bytes, sys_flag: int
) -> Outgoing:
    """The request for one message; `body` and `sys_flag` tell how it travels (see `compressed`)."""
    joined = tag_and_keys(message, unique_id)
    if joined is None:
        properties = message_properties(message, unique_id)
        joined, unique_id = joined_properties(properties), properties[UNIQ_KEY]
    ext = send_fields(group, message.topic, joined, now_ms, options, flag=message.flag, sys_flag=sys_flag)
    return Outgoing(message.topic, unique_id, RequestCode.SEND_MESSAGE_V2, ext, body)


def send_fields(
    group: str,
    topic: str,
    properties: str,
    now_ms: int,
    options: SendOptions,
    *,
    flag: int = 0,
    sys_flag: int = 0,
    batch: bool = False,
) -> dict[str, str]:
    """Header fields of a send, in the short spelling; built by hand because it is done for every message."""
    queue_count, unit_mode = options.as_text
    return {
        "a": group,
        "b": topic,
        "c": DEFAULT_TOPIC,
        "d": queue_count,
        "e": "0",
        "f": str(sys_flag) if sys_flag else "0",
        "g": str(now_ms),
        "h": str(flag) if flag else "0",
        "i": properties,
        "j": "0",
        "k": unit_mode,
        "m": "true" if batch else "false",
    }


def check_message(message: Message, max_bytes: int) -> None:
    """InvalidMessage or MessageTooLarge when no broker would take this message."""
    problem = _unsendable(message.topic)
    if problem is not None:
        raise InvalidMessage(problem)
    body = message.body
    if body.__class__ is not bytes:
        raise InvalidMessage(f"the body for topic {message.topic!r} is a {type(body).__name__}: bytes are needed")
    if not body:
        raise InvalidMessage(f"the body for topic {message.topic!r} is empty, which RocketMQ does not store")
    if len(body) > max_bytes:
        raise MessageTooLarge(
            f"the body for topic {message.topic!r} has {len(body)} bytes, the limit is {max_bytes}: split it, or raise "
            "max_message_bytes here and maxMessageSize on the broker"
        )
    if message.flag not in _INT32:
        raise InvalidMessage(f"flag {message.flag} does not fit 32 bits")
    if not 0 <= message.delay_level <= LAST_DELAY_LEVEL:
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
def _unsendable(topic: str) -> str | None:
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


def compressed(body: bytes, options: SendOptions) -> tuple[bytes, int]:
    """(body as it travels, system flag); a body that does not shrink travels as it is."""
    kind = TYPES[options.compression]
    packed = compress(body, kind, options.compression_level)
    if len(packed) >= len(body):
        return body, 0
    return packed, kind | COMPRESSED
