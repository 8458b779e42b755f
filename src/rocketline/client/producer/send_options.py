"""How a producer sends: time limit, retries, compression, sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rocketline.client.serializers import Serializer, encoder
from rocketline.errors import ConfigError, InvalidMessage
from rocketline.message import Message
from rocketline.protocol.compression import TYPES, compress
from rocketline.protocol.record_layout import COMPRESSED

MAX_MESSAGE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Retries:
    """How a producer repeats a send that failed."""

    count: int = 2
    """Attempts after the first one; those that found no connection do not count and go on until the time is over."""
    attempt_timeout_s: float | None = None
    """Time limit of each attempt that another may follow; the producer's `timeout` limits all together."""
    not_stored: bool = False
    """Also repeat a send that a broker stored less safely than it is set up for (a status other than OK)."""

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ConfigError(f"retries {self.count}: a count from 0 is needed")
        if self.attempt_timeout_s is not None and self.attempt_timeout_s <= 0:
            raise ConfigError(f"attempt_timeout_s {self.attempt_timeout_s}: a time above 0, or None, is needed")


@dataclass(frozen=True)
class Compression:
    """Which bodies are compressed, and how."""

    kind: str = "zlib"
    """zlib, lz4 or zstd."""
    level: int = 5
    over_bytes: int = 4096
    """Shorter bodies travel as they are."""

    def __post_init__(self) -> None:
        if self.kind not in TYPES:
            raise ConfigError(f"compression {self.kind!r}: one of {', '.join(TYPES)} expected")

    def compress(self, body: bytes) -> tuple[bytes, int]:
        """(body as it travels, system flag); a short body, or one that does not shrink, stays as it is."""
        if len(body) < self.over_bytes:
            return body, 0
        kind = TYPES[self.kind]
        packed = compress(body, kind, self.level)
        return (packed, kind | COMPRESSED) if len(packed) < len(body) else (body, 0)


@dataclass(frozen=True)
class SendOptions:
    """What all sends of one client have in common."""

    timeout_s: float = 3.0
    retries: Retries = Retries()
    compression: Compression = Compression()
    max_message_bytes: int = MAX_MESSAGE_BYTES
    topic_queue_count: int = 4
    """Queues of a topic that its first message creates."""
    unit_mode: bool = False
    serializer: Serializer | None = None
    as_text: tuple[str, str] = field(init=False, repr=False, compare=False)
    """`topic_queue_count` and `unit_mode` as every header has them."""
    _encoded: Callable[[Message], Message] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_encoded", encoder(self.serializer))
        object.__setattr__(self, "as_text", (str(self.topic_queue_count), "true" if self.unit_mode else "false"))
        if self.timeout_s <= 0 or self.topic_queue_count < 1:
            raise ConfigError(
                f"timeout {self.timeout_s}, topic_queue_count {self.topic_queue_count}: a time above 0 and a count from 1 "
                "are needed"
            )

    def with_bytes(self, message: Message) -> Message:
        """The message with a body of bytes; InvalidBody says why there is none, InvalidMessage that it is no message."""
        try:
            body = message.body
        except AttributeError:
            raise InvalidMessage(f"{message!r:.60} is no message: send Message(topic, body)") from None
        return message if body.__class__ is bytes else self._encoded(message)
