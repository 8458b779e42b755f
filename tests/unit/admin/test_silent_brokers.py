"""Answers that lack a broker name it; a tail waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.history_parts import listed, make_topic
from tests.support.patience import PATIENCE_S

from rocketline.admin import Admin
from rocketline.admin.dead_letters import count_dead_letters
from rocketline.admin.delayed import level_counts, timer_messages, timer_states
from rocketline.admin.overview import all_producers, group_summaries, topic_summaries
from rocketline.admin.partial import Missing, Partial
from rocketline.admin.progress import all_progress
from rocketline.admin.search import Budget, Wanted, newest
from rocketline.admin.tail import Tail
from rocketline.admin.transactions import open_transactions
from rocketline.client import Producer
from rocketline.errors import BrokerError, RocketlineError, TransportError
from rocketline.message import Message, MessageQueue
from rocketline.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster


async def test_every_answer_names_the_broker_that_is_silent(cluster: LocalCluster) -> None:
    async with Admin(cluster.namesrv) as admin, Producer(cluster.namesrv, group="p") as producer:
        await make_topic(admin, "halves", 1)
        for name in ("broker-a", "broker-b"):
            await producer.send(Message("halves", name.encode()), queue=MessageQueue("halves", name, 0))
        await admin.brokers()
        address = next(broker.address for broker in cluster.brokers if broker.name == "broker-b")
        await asyncio.to_thread(cluster.stop_broker, "broker-b")
        answers: list[Partial[object]] = [
            await all_progress(admin),
            await count_dead_letters(admin),
            await level_counts(admin),
            await timer_states(admin),
            await timer_messages(admin),
            await topic_summaries(admin),
            await group_summaries(admin),
            await all_producers(admin),
            await open_transactions(admin),
        ]
        page = await newest(admin, "halves")
        await asyncio.to_thread(cluster.start_broker, "broker-b")
    assert [message.body for message in page.messages] == [b"broker-a"]
    for missing in (*(answer.missing for answer in answers), page.missing):
        assert [(item.broker, item.address, item.code) for item in missing] == [("broker-b", address, None)]
        assert "connect" in missing[0].problem
    assert all(answer.answered and not answer.complete for answer in answers)


async def test_a_search_of_which_a_broker_fell_silent_can_go_on(cluster: LocalCluster) -> None:
    async with Admin(cluster.namesrv) as admin, Producer(cluster.namesrv, group="p") as producer:
        await make_topic(admin, "later", 1)
        for number in range(20):
            queue = MessageQueue("later", f"broker-{'ab'[number % 2]}", 0)
            await producer.send(Message("later", b"%d" % number), queue=queue)
        await listed(admin, "later", 20)
        first = await newest(admin, "later", Wanted(), Budget(most=4))
        assert len(first.messages) == 4
        await asyncio.to_thread(cluster.stop_broker, "broker-b")
        page = await newest(admin, "later", Wanted(), Budget(most=50), first.next)
        found = [message.body for message in (*first.messages, *page.messages)]
        assert ([item.broker for item in page.missing], page.complete) == (["broker-b"], False)
        await asyncio.to_thread(cluster.start_broker, "broker-b")
        admin.forget()
        async with asyncio.timeout(PATIENCE_S):
            while page.next is not None:
                try:
                    page = await newest(admin, "later", Wanted(), Budget(most=50), page.next)
                except RocketlineError:  # the name server does not know it yet
                    admin.forget()
                    await asyncio.sleep(0.05)
                    continue
                found += [message.body for message in page.messages]
    assert sorted(map(int, found)) == list(range(20))


async def test_a_tail_goes_on_when_its_broker_is_back_with_none_twice_and_none_missing(cluster: LocalCluster) -> None:
    async with Admin(cluster.namesrv) as admin, Producer(cluster.namesrv, group="p") as producer:
        await make_topic(admin, "tailed", 2)
        seen: list[bytes] = []
        silent: set[str] = set()
        async with asyncio.timeout(PATIENCE_S), Tail(admin, "tailed") as tail:
            for number in range(10):
                await producer.send(Message("tailed", b"%d" % number))
            while len(seen) < 10:
                seen += [message.body for message in (await tail.next_batch()).messages]
            await asyncio.to_thread(cluster.stop_broker, "broker-b")
            while not silent:
                silent.update(item.broker for item in (await tail.next_batch(idle_s=0.2)).missing)
            await asyncio.to_thread(cluster.start_broker, "broker-b")
            for number in range(10, 20):
                await producer.send(Message("tailed", b"%d" % number))
            batch = await tail.next_batch()
            seen += [message.body for message in batch.messages]
            while len(seen) < 20 or batch.missing:
                batch = await tail.next_batch(idle_s=0.2)
                seen += [message.body for message in batch.messages]
    assert silent == {"broker-b"}
    assert sorted(map(int, seen)) == list(range(20))


async def test_a_request_that_a_broker_does_not_know_is_said_by_its_number(cluster: LocalCluster) -> None:
    async with Admin(cluster.namesrv) as admin:
        (missing, _) = (await admin.ask_each(await admin.brokers(), lambda broker: broker.clean_up(4711))).missing
    assert (missing.problem, missing.code) == ("this broker does not know request 4711", 3)


def test_nobodys_answer_is_no_answer() -> None:
    silent, refusal = TransportError("cannot connect"), BrokerError(16, "no permission", "127.0.0.1:1")
    missing = (Missing.of("a", "127.0.0.1:1", silent), Missing.of("b", "127.0.0.1:2", refusal))
    with pytest.raises(BrokerError, match="no permission"):
        Partial([], missing, answered=False).some()
    assert Partial([1], missing).some() == [1]
    assert missing[1].problem == "refused with 16: no permission"
    stack = BrokerError(1, "java.lang.X: off\n\tat org.apache.Y(Y.java:1)\n")
    assert Missing.of("a", "", stack).problem == "refused with 1: java.lang.X: off"
