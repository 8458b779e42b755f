"""Automatic batches: messages that are sent one by one within a short time go in one request.

A message joins the open batch of its topic (and queue, when it has one) and waits for it. A batch is sent when it has waited
`linger_s`, or is large enough; with a linger of 0 it holds what was sent in one turn of the event loop. Each message gets
its own receipt, or the error of its batch.

Every message is checked and made ready before it joins, so that a bad message never fails the others. The message of a
caller that is cancelled before its batch was sent is taken out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rocketline.client.producer.batching import item_bytes, outgoing_items
from rocketline.client.producer.outgoing import RequestMaker, SendRequest
from rocketline.client.producer.receipts import SendReceipt
from rocketline.client.tasks import OwnedTasks
from rocketline.errors import ConfigError, ProducerClosed
from rocketline.message import Message, MessageQueue
from rocketline.protocol.records import BatchItem


@dataclass(frozen=True)
class AutoBatch:
    """When an automatic batch is sent."""

    linger_s: float = 0.01
    """Longest wait of its first message for others; 0: those sent in one turn of the event loop."""
    max_bytes: int = 32 * 1024
    max_messages: int = 4096

    def __post_init__(self) -> None:
        if self.linger_s < 0 or self.max_bytes < 1 or self.max_messages < 1:
            limits = f"linger_s {self.linger_s}, max_bytes {self.max_bytes}, max_messages {self.max_messages}"
            raise ConfigError(f"{limits}: at least 0, 1 and 1 are needed")


@dataclass(frozen=True)
class ReadyMessage:
    """A message made ready: as its sender gave it, as it travels, and its unique id."""

    message: Message
    wire: Message
    item: BatchItem
    message_id: str


@dataclass
class Batch:
    """Messages that will be sent together."""

    queue: MessageQueue | None
    deadline: float
    """When the time of a message is first over, in the loop's time."""
    ready: list[ReadyMessage] = field(default_factory=list)
    waiting: list[asyncio.Future[SendReceipt]] = field(default_factory=list)
    bytes: int = 0
    timer: asyncio.Handle | None = None

    @property
    def ids(self) -> list[str]:
        return [ready.message_id for ready in self.ready]

    def outgoing(self, maker: RequestMaker) -> SendRequest:
        """The request for all of them; one alone goes as an ordinary message."""
        first = self.ready[0]
        if len(self.ready) == 1:
            return maker.make(first.wire, unique_id=first.message_id)
        return outgoing_items(first.wire, [ready.item for ready in self.ready], maker)

    def drop_cancelled(self) -> None:
        kept = [(ready, future) for ready, future in zip(self.ready, self.waiting) if not future.cancelled()]
        self.ready = [ready for ready, _ in kept]
        self.waiting = [future for _, future in kept]


SendBatch = Callable[[Batch], Awaitable[list[SendReceipt]]]
_Key = tuple[str, MessageQueue | None, bool, float]


class Accumulator:
    """The open batches of one producer."""

    def __init__(self, send: SendBatch, limits: AutoBatch, max_request_bytes: int) -> None:
        self._send = send
        self._limits = limits
        self._max_bytes = min(limits.max_bytes, max_request_bytes)
        self._open: dict[_Key, Batch] = {}
        self._sending = OwnedTasks()
        self._loop = asyncio.get_running_loop()

    async def send(
        self, ready: ReadyMessage, queue: MessageQueue | None, timeout_s: float, deadline: float
    ) -> SendReceipt:
        """Add a message to the open batch and wait for its receipt; some of its time may be over already."""
        wire = ready.wire
        key = (wire.topic, queue, wire.wait_stored, timeout_s)
        size = item_bytes(ready.item)
        batch = self._open.get(key)
        if batch is not None and batch.bytes + size > self._max_bytes:
            self._send_open(key)
            batch = None
        if batch is None:
            batch = self._opened(key, queue, deadline)
        batch.deadline = min(batch.deadline, deadline)
        future: asyncio.Future[SendReceipt] = self._loop.create_future()
        batch.ready.append(ready)
        batch.waiting.append(future)
        batch.bytes += size
        if batch.bytes >= self._max_bytes or len(batch.ready) >= self._limits.max_messages:
            self._send_open(key)
        return await future

    def _opened(self, key: _Key, queue: MessageQueue | None, deadline: float) -> Batch:
        batch = self._open[key] = Batch(queue, deadline)
        linger_s = self._limits.linger_s
        batch.timer = (
            self._loop.call_later(linger_s, self._send_open, key)
            if linger_s
            else self._loop.call_soon(self._send_open, key)
        )
        return batch

    def _send_open(self, key: _Key) -> None:
        batch = self._open.pop(key)
        if batch.timer is not None:
            batch.timer.cancel()
        self._sending.start(self._sent(batch), f"batch for {key[0]}")

    async def _sent(self, batch: Batch) -> None:
        batch.drop_cancelled()
        if not batch.ready:
            return
        try:
            receipts = await self._send(batch)
            for future, receipt in zip(batch.waiting, receipts, strict=True):
                if not future.done():
                    future.set_result(receipt)
        except Exception as error:
            _fail(batch, error)
        finally:
            _fail(batch, ProducerClosed("the producer was closed before its batch was acknowledged"))

    async def close(self) -> None:
        """Send every open batch, and wait for all of them."""
        for key in list(self._open):
            self._send_open(key)
        await self._sending.finished()


def _fail(batch: Batch, error: Exception) -> None:
    for future in batch.waiting:
        if not future.done():
            future.set_exception(error)
