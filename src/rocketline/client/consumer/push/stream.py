"""Messages of a subscription as an async iterator.

Asking for the next message says that the previous one is done. A loop that is left, by `break` or by an exception,
leaves its last message unacknowledged: it is delivered again. SIGINT and SIGTERM end the loop after its message, from the
first that is asked for until the stream is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from rocketline.client.consumer.push.handlers import NotDone
from rocketline.client.signals import stop_on_signals
from rocketline.message import MessageView

_Offer = tuple[MessageView, "asyncio.Future[None]"]


class MessageStream:
    """What `async for` runs over; made by `PushConsumer.messages`."""

    def __init__(self, start: Callable[[], Awaitable[None]], stop: Callable[[], None]) -> None:
        """`start` begins to consume, with the first message that is asked for; `stop` is for a signal to call."""
        self._start: Callable[[], Awaitable[None]] | None = start
        self._stop = stop
        self._signals = ExitStack()
        self._offers: asyncio.Queue[_Offer | None] = asyncio.Queue()
        self._taken: asyncio.Future[None] | None = None
        self._closed = False

    async def handle(self, message: MessageView) -> None:
        """The handler of the subscription: offers a message and waits until the loop has moved past it."""
        if self._closed:
            raise NotDone
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._offers.put_nowait((message, done))
        await done

    def close(self) -> None:
        """End the iteration after the current message; what waits behind it stays undone."""
        self._closed = True
        self._signals.close()
        while not self._offers.empty():
            offer = self._offers.get_nowait()
            if offer is not None:
                _undo(offer[1])
        self._offers.put_nowait(None)

    def abandon(self) -> None:
        """The loop was left: the current message stays undone too."""
        self.close()
        if self._taken is not None:
            _undo(self._taken)

    def __aiter__(self) -> MessageStream:
        return self

    async def __anext__(self) -> MessageView:
        if self._start is not None:
            start, self._start = self._start, None
            if not self._closed:
                self._signals.enter_context(stop_on_signals(self._stop, asyncio.get_running_loop()))
            await start()
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)
        self._taken = None
        while not self._closed:
            offer = await self._offers.get()
            if offer is None:
                break
            message, done = offer
            if not done.done():  # its worker may have been cancelled while it waited here
                self._taken = done
                return message
        raise StopAsyncIteration


def _undo(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_exception(NotDone())
