"""Parts of a history that any cluster can be given: topics, sent, delayed and half messages, dead letters, traces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import TypeVar

from tests.support.patience import PATIENCE_S

from rocketline.admin import Admin
from rocketline.client import ClientOptions, ConsumeFrom, Producer, PushConsumer, RetryLater, TransactionalProducer
from rocketline.client.producer.receipts import SendReceipt
from rocketline.client.timing import ClientTiming
from rocketline.errors import RocketlineError, RouteNotFound
from rocketline.message import Message, MessageView
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from rocketline.protocol.transactions import Transaction

T = TypeVar("T")
QUICK = ClientTiming(persist_s=0.1, heartbeat_s=1.0, trace_s=0.1)


async def eventually(probe: Callable[[], Awaitable[T]], wanted: Callable[[T], bool]) -> T:
    """What a probe gives once it is as wanted; errors of a cluster that is not ready yet count as not wanted."""
    last: object = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    last = value = await probe()
                    if wanted(value):
                        return value
                except RocketlineError as error:
                    last = error
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE_S:g} s; the last was {last!r}") from None


async def make_topic(admin: Admin, name: str, queues: int = 4) -> None:
    """A topic on all brokers, which the name server knows."""
    brokers = await admin.brokers()
    for broker in brokers:
        await broker.put_topic(TopicConfig(name, queues, queues))

    async def known() -> int:
        admin.forget_route(name)
        return len(await admin.brokers_of(name))

    await eventually(known, lambda count: count == len(brokers))


async def delete_topic(admin: Admin, name: str) -> None:
    for broker in await admin.brokers():
        await broker.delete_topic(name)
    await admin.ask_name_servers(lambda server: server.delete_topic(name))
    admin.forget_route(name)


async def listed(admin: Admin, topic: str, count: int) -> None:
    """Until consumers can read so many messages: Apache's broker lists them after it acknowledged them."""

    async def ends() -> int:
        try:
            stats = await admin.ask_brokers(await admin.brokers_of(topic), lambda broker: broker.topic_stats(topic))
        except RouteNotFound:
            admin.forget_route(topic)
            return 0
        return sum(item.max_offset for _, table in stats for item in table.offset_table.values())

    await eventually(ends, lambda found: found >= count)


async def send_all(namesrv: str, messages: Iterable[Message], *, trace: bool = False) -> list[SendReceipt]:
    options = ClientOptions(timing=QUICK, trace=trace)
    async with Producer(namesrv, group="history_shop", options=options) as producer:
        return [await producer.send(message) for message in messages]


async def consume(
    namesrv: str,
    group: str,
    topic: str,
    count: int,
    *,
    failures: int = 0,
    max_retries: int = -1,
    trace: bool | str = False,
) -> None:
    """A group reads `count` messages; each attempt at one fails as often as said, and is repeated after a second."""
    handled: dict[str, int] = {}
    done: set[str] = set()
    complete = asyncio.Event()

    async def handle(message: MessageView) -> None:
        handled[message.message_id] = attempt = handled.get(message.message_id, 0) + 1
        is_last = attempt > failures or attempt > max_retries >= 0
        if is_last:
            done.add(message.message_id)
        if len(done) >= count:
            complete.set()
        if attempt <= failures:
            raise RetryLater(delay_level=1)

    async with PushConsumer(
        namesrv,
        group=group,
        from_where=ConsumeFrom.FIRST,
        max_reconsume_times=max_retries,
        options=ClientOptions(timing=QUICK, trace=trace),
    ) as consumer:
        consumer.subscribe(topic, "*", handle)
        await consumer.start()
        async with asyncio.timeout(PATIENCE_S):
            await complete.wait()


async def make_dead_letters(admin: Admin, group: str, topic: str, count: int) -> None:
    """A group that fails to handle the messages of a topic; they are among its dead letters then."""
    for broker in await admin.brokers():
        await broker.put_group(SubscriptionGroupConfig(group, retry_max_times=0))
    await consume(admin.namesrv, group, topic, count, failures=1, max_retries=0)
    await listed(admin, f"%DLQ%{group}", count)


async def leave_half_open(stack: AsyncExitStack, namesrv: str, group: str, message: Message) -> TransactionalProducer:
    """A transaction that nobody decides; its producer is online as long as the stack."""

    async def undecided(message: object) -> Transaction:
        return Transaction.UNKNOWN

    async def place(message: Message) -> Transaction:
        return Transaction.UNKNOWN

    producer = await stack.enter_async_context(
        TransactionalProducer(namesrv, group=group, check=undecided, options=ClientOptions(timing=QUICK))
    )
    await producer.send_in_transaction(message, place)
    return producer
