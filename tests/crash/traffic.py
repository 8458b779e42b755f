"""Messages sent all the while by our own producer, with the books of who got them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Self

from tests.support.patience import PATIENCE_S

from rocketline.cli.demo.ledger import Ledger
from rocketline.client import ClientOptions, ClientTiming, ConsumeFrom, Producer, PushConsumer
from rocketline.errors import RocketlineError
from rocketline.message import Message, MessageView

from .outcome import Outcome

MOST_MESSAGES = 100_000
PAUSE_S = 0.005
QUICK = ClientTiming(route_refresh_s=0.3, heartbeat_s=0.5, persist_s=0.3, rebalance_s=1.0, rebalance_soon_s=0.2)
"""The clients' timers, thirty times as quick as their users'."""


class Traffic:
    """A producer that never stops, and a consumer of a group of its own; an async context manager."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self.ledger = Ledger(MOST_MESSAGES)
        self.topic = topic
        self.failures: list[str] = []
        """Sends that nobody acknowledged, by their reasons."""
        options = ClientOptions(timing=QUICK)
        self._producer = Producer(namesrv, group="senders", timeout=PATIENCE_S, options=options)
        self._consumer = PushConsumer(namesrv, group="observers", from_where=ConsumeFrom.FIRST, options=options)
        self._undo = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with self._undo:
            await self._undo.enter_async_context(self._producer)
            await self._send_one(0)  # makes the topic
            consumer = await self._undo.enter_async_context(self._consumer)
            consumer.subscribe(self.topic, "*", self._arrived, in_thread=False)
            await consumer.start()
            self._sending = asyncio.create_task(self._send_on())
            self._undo.push_async_callback(self.pause)
            self._undo = self._undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._undo.aclose()

    def _arrived(self, message: MessageView) -> None:
        self.ledger.arrive(message.body)

    async def _send_on(self) -> None:
        for number in range(1, MOST_MESSAGES):
            await self._send_one(number)
            await asyncio.sleep(PAUSE_S)

    async def _send_one(self, number: int) -> None:
        try:
            receipt = await self._producer.send(Message(self.topic, self.ledger.send(number)))
        except RocketlineError as error:
            self.failures.append(f"{type(error).__name__}: {error}")
        else:
            self.ledger.acknowledge(number, receipt.queue, receipt.queue_offset)

    async def pause(self) -> None:
        """Send nothing more."""
        self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)

    async def flow(self, count: int) -> None:
        """Wait until so many more messages were acknowledged, and everything acknowledged until then was consumed."""
        ledger = self.ledger
        wanted = ledger.acknowledged + count
        try:
            await until(lambda: ledger.acknowledged >= wanted, f"{count} more messages acknowledged")
            await until(lambda: ledger.consumed >= wanted, f"{wanted} messages consumed")
        except NeverHappened as error:
            raise NeverHappened(
                f"{error}, but {ledger.acknowledged} acknowledged, {ledger.consumed} consumed, "
                f"{len(self.failures)} sends failed: {self.failures[-1:]}"
            ) from None

    async def settle(self, outcome: Outcome) -> None:
        """End sending, and hold the books against each other."""
        await self.pause()
        ledger = self.ledger
        await until(lambda: not ledger.lost(), "consumption of everything acknowledged")
        outcome.require(ledger.invented == 0, f"{outcome.scenario}: {ledger.invented} messages that nobody sent")
        outcome.acked += ledger.acknowledged
        outcome.duplicates += ledger.duplicates


class NeverHappened(Exception):
    """What was waited for did not come; the text says what."""


async def until(condition: Callable[[], bool], what: str, limit_s: float = PATIENCE_S) -> None:
    """Wait until something holds that no event tells."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    while not condition():
        if loop.time() - started > limit_s:
            raise NeverHappened(f"not within {limit_s:g} s: {what}")
        await asyncio.sleep(0.01)
