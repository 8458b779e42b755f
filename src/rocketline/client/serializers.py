"""Objects as bodies: from an object to the bytes of a message, and back. Bytes stay as they are.

    @dataclass
    class Order:
        id: int

    async with Producer("127.0.0.1:9876", group="shop", serializer="json") as producer:
        await producer.send(Message("orders", Order(42)))

    async def handle(order: Order, message: MessageView) -> None: ...

    consumer.subscribe("orders", handle, deserializer=Order)

`"json"` is any JSON. A type, such as a dataclass, a TypedDict or a msgspec.Struct, is JSON that must fit it. A function
makes bytes of an object, or an object of bytes: `deserializer=Order.model_validate_json` reads a model of Pydantic.
Consumers without handlers call `decode`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast, get_origin, is_typeddict

import msgspec

from rocketline.errors import ConfigError, InvalidBody, UnreadableBody
from rocketline.message import Message, MessageQueue, MessageView

T = TypeVar("T")
Serializer = Literal["json"] | type[Any] | Callable[[Any], bytes]
Deserializer = Literal["json"] | type[T] | Callable[[bytes], T]

JSON = "json"


def decode(message: MessageView, deserializer: Deserializer[T]) -> T:
    """The object in a message; UnreadableBody names the message when it cannot be read.

    >>> view = MessageView("orders", b'{"id": 42}', {}, 0, 0, 0, 0, "", 0, "")
    >>> decode(view, dict[str, int])
    {'id': 42}
    """
    return decoder(deserializer)(message)


def decoder(deserializer: Deserializer[T]) -> Callable[[MessageView], T]:
    """`decode` with one deserializer, for many messages."""
    name = _name(deserializer)
    read: Callable[[bytes], T]
    if deserializer == JSON:
        read = msgspec.json.Decoder().decode
    elif _is_type(deserializer):
        read = msgspec.json.Decoder(cast(type[T], deserializer)).decode
    elif callable(deserializer):
        read = cast(Callable[[bytes], T], deserializer)
    else:
        raise ConfigError(f"deserializer {deserializer!r}: 'json', a type or a function is needed")

    def decoded(message: MessageView) -> T:
        if message.body_problem is not None:
            raise unreadable(message)
        try:
            return read(message.body)
        except Exception as error:
            raise UnreadableBody(
                f"the body of message {message.message_id} of topic {message.topic!r} cannot be read as {name}: "
                f"{type(error).__name__}: {error}"
            ) from error

    return decoded


def unreadable(message: MessageView, queue: MessageQueue | None = None) -> UnreadableBody:
    """What is wrong with a message whose `body_problem` is set; `queue` is where it was found, if that is a retry topic."""
    return UnreadableBody(
        f"the body of message {message.message_id}, offset {message.queue_offset} of {queue or message.queue}, cannot be "
        f"read: {message.body_problem}"
    )


def encoder(serializer: Serializer | None) -> Callable[[Message], Message]:
    """Gives a message a body of bytes; InvalidBody says why there is none."""
    name = _name(serializer)
    write = _writer(serializer)

    def encoded(message: Message) -> Message:
        body = message.body
        if isinstance(body, bytes | bytearray | memoryview):
            return msgspec.structs.replace(message, body=bytes(body))
        kind = type(body).__name__
        if write is None:
            hint = "encode it, text.encode()" if isinstance(body, str) else "bytes are needed"
            raise InvalidBody(
                f"the body for topic {message.topic!r} is of type {kind}: {hint}, or give the producer a serializer"
            )
        keys = f" with keys {' '.join(map(str, message.keys))}" if message.keys else ""
        what = f"the body for topic {message.topic!r}{keys}, of type {kind},"
        try:
            made = write(body)
        except Exception as error:
            raise InvalidBody(f"{what} cannot be written as {name}: {type(error).__name__}: {error}") from error
        if not isinstance(made, bytes):
            raise InvalidBody(f"{what} was written by {name} as {type(made).__name__}: bytes are needed")
        return msgspec.structs.replace(message, body=made)

    return encoded


def _writer(serializer: Serializer | None) -> Callable[[Any], bytes] | None:
    if serializer is None:
        return None
    if serializer == JSON:
        return msgspec.json.encode
    if isinstance(serializer, type) and not is_typeddict(serializer):
        return _instances_of(serializer)
    if callable(serializer) and not _is_type(serializer):
        return serializer
    raise ConfigError(f"serializer {serializer!r}: 'json', a class or a function is needed")


def _instances_of(kind: type[Any]) -> Callable[[Any], bytes]:
    def write(body: Any) -> bytes:
        if not isinstance(body, kind):
            raise TypeError(f"{kind.__qualname__} is needed")
        return msgspec.json.encode(body)

    return write


def _is_type(thing: object) -> bool:
    return isinstance(thing, type) or get_origin(thing) is not None


def _name(thing: object) -> str:
    return "JSON" if thing == JSON else getattr(thing, "__qualname__", None) or str(thing)
