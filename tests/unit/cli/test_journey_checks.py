"""The check of a journey must itself be able to fail."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from rocketline.cli.demo.journey import JourneyPlan, _check_stored, problems_in, read_back, run_journey, send_all
from rocketline.cli.demo.ledger import Ledger
from rocketline.cli.servers.cluster import Cluster
from rocketline.client import Producer
from rocketline.message import LogOffset, Message, MessageQueue, MessageView, QueueOffset
from rocketline.testing import LocalCluster

PLAN = JourneyPlan(messages=30, producers=2, consumers=2, in_flight=2, queues=2, patience_s=0.5)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with LocalCluster() as running:
        yield running


async def test_a_message_that_never_arrives_is_lost(cluster: Cluster) -> None:
    ledger = Ledger(31)
    ledger.acknowledge(30, MessageQueue(PLAN.topic, "broker-a", 0), 999)
    events: list[str] = []
    report = await run_journey(cluster.namesrv, PLAN, ledger, events.append)
    assert report.problems == ["1 acknowledged messages were never consumed, the first is number 30"]
    assert events[-1] == "nothing arrived for 0.5 s, giving up"


async def test_a_message_that_is_not_where_its_producer_was_told(cluster: Cluster) -> None:
    ledger = Ledger(PLAN.messages)
    await run_journey(cluster.namesrv, PLAN, ledger)
    assert await read_back(cluster.namesrv, PLAN.topic, ledger) == (30, [])
    queue, _ = ledger.place_of(3) or pytest.fail("message 3 was not acknowledged")
    ledger.acknowledge(3, queue, 999)
    _, problems = await read_back(cluster.namesrv, PLAN.topic, ledger)
    assert problems == [f"message 3 is not at {queue} offset 999, as acknowledged"]


async def test_a_message_that_nobody_sent(cluster: Cluster) -> None:
    ledger = Ledger(PLAN.messages)
    async with Producer(cluster.namesrv, group="stranger", topic_queue_count=2) as producer:
        receipt = await producer.send(Message(PLAN.topic, b"not of this journey"))
    report = await run_journey(cluster.namesrv, PLAN, ledger)
    (problem,) = report.problems
    assert re.fullmatch(r"\d+ messages were consumed that were not sent", problem)  # at least once, so maybe twice
    stored, problems = await read_back(cluster.namesrv, PLAN.topic, ledger)
    assert stored == 30
    assert problems == [f"{receipt.queue}: the message at offset {receipt.queue_offset} was not sent"]


async def test_sends_that_fail_are_reported(cluster: Cluster) -> None:
    changed = asyncio.Event()
    changed.set()
    ledger = Ledger(3)
    plan = JourneyPlan(messages=3, producers=1, in_flight=1, topic="not a topic")
    problems = await send_all(cluster.namesrv, plan, ledger, changed)
    assert len(problems) == 2
    assert "not a topic" in problems[0]
    assert ledger.acknowledged == 0


@pytest.mark.parametrize(("messages", "twice", "is_said"), [(10_000, 50, False), (10_000, 51, True), (100, 20, False)])
def test_more_than_a_few_messages_that_come_twice_are_a_problem(messages: int, twice: int, is_said: bool) -> None:
    ledger = Ledger(messages)
    for number in range(messages):
        body = ledger.send(number)
        ledger.acknowledge(number, MessageQueue("T", "b", 0), number)
        for _ in range(2 if number < twice else 1):
            ledger.arrive(body)
    said = [f"{twice} of {messages} messages came twice while the group changed"]
    assert problems_in(ledger) == (said if is_said else [])


def test_a_hole_in_a_queue_is_found() -> None:
    ledger = Ledger(1)
    message = MessageView("T", ledger.send(0), {}, 0, QueueOffset(5), LogOffset(0), 0, "", 0, "", broker_name="b")
    queue = MessageQueue("T", "b", 0)
    expected, found = {queue: 4}, {}
    assert _check_stored(message, expected, ledger, found) == ["T@b:0: offset 5 came where 4 was expected"]
    assert (expected, found) == ({queue: 6}, {(queue, 5): 0})
    assert _check_stored(message, {queue: 5}, ledger, found) == []
