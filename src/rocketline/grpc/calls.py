"""One call of a client, as the methods of a service see it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rocketline.grpc.framing import MessageReader
from rocketline.grpc.schema import Method
from rocketline.grpc.status import Status
from rocketline.http2 import Headers, Stream

if TYPE_CHECKING:
    from rocketline.grpc.channel import GrpcChannel
    from rocketline.grpc.steps import Steps

Message = Any
"""An object of a class that protobuf made."""


class Call:
    """A call: its metadata, its time limit, and the connection it came on."""

    __slots__ = (
        "began", "channel", "deadline", "granted", "has_answered", "headers", "is_over", "on_lost", "reader", "served",
        "steps", "stream", "streaming", "timer",
    )  # fmt: skip

    def __init__(self, channel: GrpcChannel, stream: Stream, headers: Headers, served: Served, began: float) -> None:
        self.channel = channel
        self.stream = stream
        self.headers = headers
        self.served = served
        self.began = began
        """When its headers came, or in a two-way stream the beginning of the latest message."""
        self.deadline: float | None = None
        """By the clock of the event loop; None: the client waits for ever."""
        self.reader: MessageReader | None = None
        self.granted = 0
        """Room that the stream was given for a long message."""
        self.has_answered = False
        """Whether the headers of the answer are sent."""
        self.steps: Steps | None = None
        self.streaming: Streaming | None = None
        self.timer: Any = None
        self.is_over = False
        """Whether nobody waits for the answer any more."""
        self.on_lost: Callable[[int], None] | None = None
        """Told when the client went away before it was sent the whole answer, and how many bytes at its end were not."""

    def header(self, name: bytes) -> str:
        """A field of the metadata as text; "" when it was not sent."""
        value = self.headers.get(name)
        return "" if value is None else value.decode("utf-8", "replace")

    def remaining_s(self) -> float | None:
        """Seconds that the client still waits; None: for ever."""
        return None if self.deadline is None else self.deadline - self.channel.now()


class Streaming(Protocol):
    """The server's side of a call whose messages go both ways."""

    def received(self, message: Message) -> None:
        """A message came. What it raises ends the call."""

    def ended(self) -> None:
        """The client sends nothing more."""

    def lost(self) -> None:
        """The call is over."""


Unary = Callable[[Call, Message], Coroutine[Any, Any, Message]]
ServerStream = Callable[[Call, Message], Coroutine[Any, Any, Sequence[Message]]]
Bidirectional = Callable[["StreamCall"], Streaming]


class Served(NamedTuple):
    """A method and what serves it: one of the three."""

    method: Method
    unary: Unary | None = None
    server_stream: ServerStream | None = None
    bidirectional: Bidirectional | None = None
    read: Callable[[bytes], Message] | None = None
    """Reads requests instead of protobuf."""


class StreamCall:
    """What a `Streaming` answers with."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def call(self) -> Call:
        return self._call

    @property
    def is_open(self) -> bool:
        return not self._call.is_over

    def send(self, message: Message) -> None:
        """Send a message; nothing happens when the call is over."""
        if not self._call.is_over:
            self._call.channel.send_message(self._call, message)

    def finish(self, status: Status = Status.OK, text: str = "") -> None:
        """End the call."""
        if not self._call.is_over:
            self._call.channel.finish(self._call, status, text)
