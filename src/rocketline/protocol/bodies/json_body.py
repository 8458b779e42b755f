"""Bodies as JSON: a strict writer and a tolerant reader for all body structs.

Writing: keys are quoted; null members are left out, because Java would replace its default by null and fail; a queue that is
a key is written as an object, as Java does (5.x cannot read it as a string); there is never a `$ref`. Reading: a typed
decode directly from the bytes; text that only fastjson accepts goes through the tolerant reader, which also treats nulls as
absent and turns enum ordinals into names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from rocketline.errors import ConfigError, RemoteProtocolError
from rocketline.message import MessageQueue
from rocketline.protocol.command import LANGUAGES
from rocketline.protocol.fastjson import MAX_LOOSE_CHARS, FastJsonError, parse

T = TypeVar("T")

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

ORDINALS: dict[str, tuple[str, ...]] = {
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
    "messageModel": ("BROADCASTING", "CLUSTERING"),
    "consumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
    "topicFilterType": ("SINGLE_TAG", "MULTI_TAG"),
    "language": LANGUAGES,
}
"""Enum members in Java's order: C++ clients send the number instead of the name."""

_encoder = msgspec.json.Encoder()

_QUEUE_KEY_START = rb'"{\"brokerName\":'
_QUEUE_KEY = re.compile(rb'("\{\\"brokerName\\":(?<!\\"\{\\"brokerName\\":)[^"\\]*(?:\\.[^"\\]*)*"):')
"""A key that holds the JSON text of a queue, see `queue_key`. It begins with its literal part, which is found quickly."""


_BARE_QUEUE_START = b'{"brokerName":'
_BARE_QUEUE = re.compile(
    rb'\{"brokerName":"(?<=[{,]\{"brokerName":")[^"\\]*(?:\\.[^"\\]*)*","queueId":-?[0-9]+,'
    rb'"topic":"[^"\\]*(?:\\.[^"\\]*)*"\}(?=:)'
)
"""A queue that is a key, as Java writes it. Inside a string its quotes are escaped, so only keys match."""


class Body(msgspec.Struct, rename="camel"):
    """Base of the body structs: members named as on the wire, in camelCase."""


_decoders: dict[Any, Callable[[bytes], Any]] = {}


def _decoder(kind: type[T]) -> Callable[[bytes], T]:
    return _decoders.get(kind) or _decoders.setdefault(kind, msgspec.json.Decoder(kind).decode)


def encode_body(value: Any) -> bytes:
    """The body's JSON text in UTF-8."""
    data = _encoder.encode(value)
    if b"null" in data:
        data = _encoder.encode(without_nulls(msgspec.to_builtins(value)))
    return _bare_queue_keys(data)


def _bare_queue_keys(data: bytes) -> bytes:
    """JSON text in which queues that are keys are written as objects."""
    if _QUEUE_KEY_START not in data:
        return data
    return _QUEUE_KEY.sub(_bare_queue_key, data)


def _bare_queue_key(key: re.Match[bytes]) -> bytes:
    text = key[1][1:-1].replace(b'\\"', b'"')
    if b"\\" in text:  # a name has quotes or the like
        text = json.loads(key[1]).encode()
    return text + b":"


def _quoted_queue_keys(data: bytes) -> bytes:
    """JSON text in which queues that are keys are written as strings, which makes it standard JSON."""
    return _BARE_QUEUE.sub(_quoted_queue_key, data)


def _quoted_queue_key(key: re.Match[bytes]) -> bytes:
    text = key[0]
    if b"\\" in text or not text.isascii():
        return _encoder.encode(text.decode("utf-8", "replace"))
    return b'"' + text.replace(b'"', b'\\"') + b'"'


def decode_body(kind: type[T], data: bytes) -> T:
    """A body as a `kind`; RemoteProtocolError when it is not JSON or does not fit the struct."""
    return _decode(kind, data, MAX_LOOSE_CHARS)


def decode_file(kind: type[T], data: bytes) -> T:
    """A config file as a `kind`: like a body, but trusted, so of any length; ConfigError when it is not readable."""
    try:
        return _decode(kind, data, len(data))
    except RemoteProtocolError as error:
        raise ConfigError(str(error)) from error


def _decode(kind: type[T], data: bytes, max_loose_chars: int) -> T:
    if b"$ref" not in data:
        # Tables keyed by queue may be large, and the tolerant reader is slow.
        plain = _quoted_queue_keys(data) if _BARE_QUEUE_START in data else data
        try:
            return _decoder(kind)(plain)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    return _decode_tolerant(kind, data, max_loose_chars)


def _decode_tolerant(kind: type[T], data: bytes, max_loose_chars: int) -> T:
    try:
        value = without_nulls(parse(data, max_loose_chars=max_loose_chars))
        return msgspec.convert(value, kind, strict=False, str_keys=True)
    except FastJsonError as error:
        raise RemoteProtocolError(f"{kind.__name__} is not JSON: {error}") from error
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"{kind.__name__} does not fit: {error}") from error


def without_nulls(value: Any) -> Any:
    """Plain data without null members, and with enum ordinals turned into names."""
    if isinstance(value, dict):
        return {name: _named(name, without_nulls(item)) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


def _named(member: Any, value: Any) -> Any:
    if value.__class__ is int and (names := ORDINALS.get(member)) and 0 <= value < len(names):
        return names[value]
    return value


def pretty_json(value: Any) -> bytes:
    """The tab-indented form of RocketMQ's config files; keys are quoted, which every reader accepts."""
    plain = without_nulls(msgspec.to_builtins(value, str_keys=True))
    text = json.dumps(plain, indent="\t", separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    return _bare_queue_keys(text.encode())


def queue_key(queue: MessageQueue) -> str:
    """The key of a queue in a map: its JSON text, members in alphabetical order. `encode_body` writes it as an object.

    >>> queue_key(MessageQueue("T", "b", 1))
    '{"brokerName":"b","queueId":1,"topic":"T"}'
    """
    members = {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
    return _encoder.encode(members).decode()


def parse_queue_key(text: str) -> MessageQueue:
    """The queue of a map's key; RemoteProtocolError when the key is none."""
    return decode_body(QueueBody, text.encode("utf-8", "replace")).queue


class QueueBody(Body):
    """A MessageQueue in a body."""

    broker_name: str
    queue_id: Int32
    topic: str

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @staticmethod
    def of(queue: MessageQueue) -> QueueBody:
        return QueueBody(queue.broker_name, queue.queue_id, queue.topic)
