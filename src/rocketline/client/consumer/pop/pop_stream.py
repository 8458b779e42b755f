"""Popped messages for `async for`, kept hidden from others for as long as they are worked on.

Asking for the next message says that the previous one is done; acknowledgements travel in the background, as many at once
as have gathered. A message that is out, or waits here for its turn, is extended when half of its invisible time is over,
for at most `hold_s` after it came: a handler that hangs must not keep it for ever. A loop that is left, by `break` or by an
exception, gives its last message back when the consumer is closed. SIGINT and SIGTERM end the loop after its message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from rocketline.client.consumer.pop.pop_receipts import UNSEEN_DELAY_S, Receipts, retry_delay_s
from rocketline.client.signals import stop_on_signals
from rocketline.client.tasks import OwnedTasks
from rocketline.clock import Clock
from rocketline.errors import InvalidReceipt, RocketlineError, RouteNotFound, TransportError
from rocketline.message import MessageView
from rocketline.protocol.pop_info import ReceiptHandle

log = logging.getLogger(__name__)

SWEEPS = 4
"""How often in an invisible time held messages are looked at."""

Receive = Callable[[int], Awaitable[list[MessageView]]]


class _Held:
    """One message that is ours for now."""

    __slots__ = ("changing", "message", "since_s")

    def __init__(self, message: MessageView, since_s: float) -> None:
        self.message = message
        self.since_s = since_s
        self.changing: asyncio.Task[None] | None = None


class PopStream:
    """What `async for` runs over; made by `PopConsumer.messages`."""

    def __init__(
        self,
        group: str,
        receive: Receive,
        receipts: Receipts,
        clock: Clock,
        *,
        batch: int,
        invisible_s: float,
        hold_s: float,
        retry_s: float,
    ) -> None:
        """`receive` waits for up to so many messages; `retry_s` is the pause after a call that failed."""
        self._group = group
        self._receive = receive
        self._receipts = receipts
        self._clock = clock
        self._batch = batch
        self._invisible_s = invisible_s
        self._hold_s = hold_s
        self._retry_s = retry_s
        self._waiting: deque[_Held] = deque()
        self._out: _Held | None = None
        self._done: list[_Held] = []
        self._acking: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._signals = ExitStack()
        self._tasks = OwnedTasks()
        self._closed = False

    def __aiter__(self) -> PopStream:
        return self

    async def __anext__(self) -> MessageView:
        if self._out is not None:
            self._done.append(self._out)
            self._out = None
            if self._acking is None:
                self._acking = self._tasks.start(self._acknowledge(), f"ack {self._group}")
        if self._sweeping is None and not self._closed:
            self._sweeping = self._tasks.start(self._sweep(), f"extend {self._group}")
            self._signals.enter_context(stop_on_signals(self.stop, asyncio.get_running_loop()))
        while not self._waiting and not self._closed:
            await self._fetch_until_stopped()
        if self._closed:
            raise StopAsyncIteration
        self._out = self._waiting.popleft()
        return self._out.message

    async def _fetch_until_stopped(self) -> None:
        fetching = self._fetching = asyncio.get_running_loop().create_task(self._fetch(), name=f"fetch {self._group}")
        try:
            await asyncio.wait([fetching])
        finally:
            self._fetching = None
            fetching.cancel()
        if not fetching.cancelled():
            fetching.result()

    async def _fetch(self) -> None:
        try:
            messages = await self._receive(self._batch)
        except (TransportError, RouteNotFound) as error:
            if self._closed:
                return
            log.warning("group %s cannot pop, and tries again: %s", self._group, error)
            await asyncio.sleep(self._retry_s)
            return
        now = self._clock.monotonic()
        self._waiting.extend(_Held(message, now) for message in messages)

    def stop(self) -> None:
        """End the iteration after the current message, or the wait for the next one."""
        self._closed = True
        self._signals.close()
        if self._fetching is not None:
            self._fetching.cancel()

    async def close(self) -> None:
        """Acknowledge what is done, give the rest back."""
        self.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._acking is not None:
            await asyncio.wait([self._acking])
        unseen = [*self._waiting]
        self._waiting.clear()
        out, self._out = self._out, None
        if out is not None:
            await self._give_back(out, retry_delay_s(out.message.reconsume_times))
        await asyncio.gather(*(self._give_back(held, UNSEEN_DELAY_S) for held in unseen))
        await self._tasks.cancel()

    async def _give_back(self, held: _Held, delay_s: float) -> None:
        await _settled(held)
        try:
            await self._receipts.give_back(held.message, delay_s)
        except RocketlineError as error:
            log.info("group %s: message %s was not given back, it comes when its time is over: %s", self._group,
                     held.message.message_id, error)  # fmt: skip

    async def _acknowledge(self) -> None:
        try:
            while self._done:
                done, self._done = self._done, []
                for held in done:
                    await _settled(held)
                try:
                    await self._receipts.ack_batch([held.message for held in done])
                except RocketlineError as error:
                    log.warning("group %s: messages may come again: %s", self._group, error)
        finally:
            self._acking = None

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._invisible_s / SWEEPS)
            now = self._clock.monotonic()
            out = [self._out] if self._out is not None else []
            for held in [*out, *self._waiting]:
                if held.changing is None and now - held.since_s < self._hold_s and self._is_due(held):
                    held.changing = self._tasks.start(self._extend(held), f"extend {self._group}")

    def _is_due(self, held: _Held) -> bool:
        text = held.message.receipt_handle
        return text is not None and self._receipts.left_s(ReceiptHandle.parse(text)) <= self._invisible_s / 2

    async def _extend(self, held: _Held) -> None:
        message = held.message
        try:
            await self._receipts.change(message, self._invisible_s)
        except InvalidReceipt as error:
            log.warning("group %s: message %s is lost to somebody else: %s", self._group, message.message_id, error)
            if held in self._waiting:
                self._waiting.remove(held)
        except RocketlineError as error:
            log.warning("group %s: message %s was not extended: %s", self._group, message.message_id, error)
        finally:
            held.changing = None


async def _settled(held: _Held) -> None:
    """A running extension changes the handle: wait for it before the handle is used."""
    if held.changing is not None:
        await asyncio.wait([held.changing])
