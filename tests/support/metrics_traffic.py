"""Traffic of every kind that metrics tell of: sends, retries, dead letters, delays, timers, transactions and pops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from tests.support.patience import PATIENCE_S
from tests.support.scraping import Scraped, scrape

from rocketline import ConsumeFrom, Message, Producer, PushConsumer
from rocketline.client import PopConsumer, Transaction, TransactionalProducer
from rocketline.message import MessageView

SETTINGS: dict[str, str | int | bool] = {
    "metricsExporterType": "PROM",
    "metricsPromExporterPort": 0,
    "messageDelayLevel": "0s " * 18,
    "timerPrecisionMs": 100,
}


@asynccontextmanager
async def traffic(namesrv: str) -> AsyncIterator[None]:
    """Clients that have sent and consumed something, and are still there."""
    async with (
        Producer(namesrv, group="shop") as producer,
        PushConsumer(namesrv, group="billing", from_where=ConsumeFrom.FIRST, max_reconsume_times=0) as consumer,
        PopConsumer(namesrv, group="popper", from_where=ConsumeFrom.FIRST) as popper,
    ):
        for _ in range(5):
            await producer.send(Message("orders", b"x" * 100))
        await producer.send(Message("orders", bytes(range(256)) * 10, sharding_key="order-1"))
        await producer.send(Message("orders", b"later", delay_level=1))
        await producer.send(Message("later", b"later", delay=timedelta(seconds=0.2)))
        await producer.send(Message("later", b"much later", delay=timedelta(hours=2)))
        await _transactions(namesrv)
        consumer.subscribe("orders", "*", _fail_once())
        running = asyncio.create_task(consumer.run())
        await popper.subscribe("orders")
        messages = await popper.receive(4, invisible=1.0, wait=5.0)
        await popper.ack(messages[0])
        yield
        consumer.stop()
        await running


def _fail_once() -> Callable[[MessageView], Awaitable[None]]:
    failed = False

    async def handle(message: MessageView) -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise RuntimeError("the one message that fails")

    return handle


async def _transactions(namesrv: str) -> None:
    outcomes = {b"c": Transaction.COMMIT, b"r": Transaction.ROLLBACK, b"u": Transaction.UNKNOWN}

    async def decide(message: Message) -> Transaction:
        return outcomes[message.body]

    async with TransactionalProducer(namesrv, group="tx", check=lambda _: Transaction.UNKNOWN) as producer:
        for body in outcomes:
            await producer.send_in_transaction(Message("paid", body), decide)


async def scrape_until(address: str, is_enough: Callable[[dict[str, Scraped]], bool]) -> dict[str, Scraped]:
    """Pages until one is as wanted."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_enough(page := await scrape(address)):
            await asyncio.sleep(0.05)
        return page
