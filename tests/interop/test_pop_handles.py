"""Receipt handles are strings that travel: what Java popped is settled by our consumer and the other way round, on our
broker and on Apache's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.support.java_client import JavaClient
from tests.support.patience import PATIENCE_S
from tests.support.reading import await_listed

from rocketline import ConsumeFrom, Message, MessageView, PopConsumer, Producer

pytestmark = pytest.mark.interop

INVISIBLE_S = 12.0
QUIET_S = INVISIBLE_S + 6.0
"""Long enough for anything to come again that was not settled."""


@pytest.fixture(params=["rocketline", "apache"])
def namesrv(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param).namesrv
    return found


class Site:
    """A topic with three messages, and a group of it."""

    def __init__(self, java: JavaClient, namesrv: str, topic: str, group: str) -> None:
        self._java = java
        self.namesrv, self.topic, self.group = namesrv, topic, group
        java.create_topic(namesrv, topic, queues=1)

    async def java(self, method: str, *arguments: Any, **options: Any) -> Any:
        """A call of the Java client, in a thread: our consumer goes on meanwhile."""
        call = partial(getattr(self._java, method), self.namesrv, self.topic, self.group, *arguments, **options)
        return await asyncio.to_thread(call)

    async def send(self) -> None:
        async with Producer(self.namesrv, group="senders") as producer:
            for number in range(3):
                await producer.send(Message(self.topic, b"%d" % number))
        await asyncio.to_thread(await_listed, self._java, self.namesrv, self.topic, 3)

    def consumer(self) -> PopConsumer:
        return PopConsumer(self.namesrv, group=self.group, from_where=ConsumeFrom.FIRST, invisible=INVISIBLE_S)


@pytest.fixture
def site(java: JavaClient, namesrv: str, name: Callable[[str], str]) -> Site:
    return Site(java, namesrv, name("handles"), name("G"))


async def receive(consumer: PopConsumer, count: int) -> list[MessageView]:
    got: list[MessageView] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(got) < count:
            got += await consumer.receive(wait=5.0)
    return got


async def test_what_java_popped_is_settled_by_our_consumer(site: Site) -> None:
    await site.send()
    popped = await site.java("pop", invisible_ms=round(INVISIBLE_S * 1000), poll_ms=10_000)
    assert [message.body for message in popped] == [b"0", b"1", b"2"]
    acked, extended, given_back = (message.properties["POP_CK"] for message in popped)
    async with site.consumer() as consumer:
        await consumer.subscribe(site.topic)
        await consumer.ack(acked)
        new = await consumer.extend(extended, PATIENCE_S)
        await consumer.nack(given_back, delay=1.0)
        [again] = await receive(consumer, 1)
        assert (again.body, again.reconsume_times) == (b"2", 1)
        await consumer.ack(again)
        assert await site.java("ack", new) == "OK"
        assert await consumer.receive(wait=QUIET_S) == []


async def test_what_our_consumer_popped_is_settled_by_java(site: Site) -> None:
    await site.send()
    async with site.consumer() as consumer:
        await consumer.subscribe(site.topic)
        handles = [message.receipt_handle for message in await receive(consumer, 3)]
        assert await site.java("ack", handles[0]) == "OK"
        assert await site.java("change_invisible", handles[1], 1000) != handles[1]
        [again] = await receive(consumer, 1)
        assert (again.body, again.reconsume_times) == (b"1", 1)
        # Of the topic that was popped, though one of them lies on its retry topic.
        assert await site.java("ack_batch", [handles[2], again.receipt_handle]) == "OK"
        assert await consumer.receive(wait=QUIET_S) == []
