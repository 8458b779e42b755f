"""All sixteen steps of the ladder of retries for real, on brokers whose levels are a second each.

Consumers of three kinds fail for ever, each in a group of its own, on our broker and on Apache's: what each of them sees,
and what is left of the message in the end, is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import pytest
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, server_coordinates
from tests.support.java import require_java
from tests.support.java_client import JavaClient, Seen
from tests.support.patience import PATIENCE_S

from rocketline.client import ConsumeFrom, Producer, PushConsumer
from rocketline.clock import SYSTEM_CLOCK
from rocketline.message import Message, MessageView
from rocketline.testing import LocalCluster

pytestmark = pytest.mark.interop

STEP_MS = 1000
LEVELS = {"messageDelayLevel": " ".join(["1s"] * 18)}
RETRIES = 16
EARLY_MS = 20
"""A broker's and a consumer's clock are read a moment apart, and in whole milliseconds."""


class Cluster(Protocol):
    @property
    def namesrv(self) -> str: ...


@dataclass(frozen=True)
class Call:
    """One delivery, whichever consumer got it."""

    at_ms: int
    topic: str
    message_id: str
    reconsume_times: int
    body: bytes
    properties: Mapping[str, str]

    @classmethod
    def of_java(cls, seen: Seen) -> Call:
        return cls(seen.delivered_ms, seen.topic, seen.msg_id, seen.reconsume_times, seen.body, seen.properties)

    @classmethod
    def of_ours(cls, message: MessageView) -> Call:
        now_ms = SYSTEM_CLOCK.now_ms()
        return cls(
            now_ms, message.topic, message.message_id, message.reconsume_times, message.body, dict(message.properties)
        )


@pytest.fixture(params=["rocketline", "apache"])
def brief_levels(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.param == "rocketline":
        with LocalCluster(config=LEVELS) as ours:
            yield ours
        return
    require_java(*server_coordinates(SERVER_VERSION))
    theirs = ApacheCluster(tmp_path, broker_conf=LEVELS, jvm_options=QUICK_START).start()
    yield theirs
    theirs.kill()


async def walk_with_java(java: JavaClient, namesrv: str, group: str, topic: str) -> list[Call]:
    """Every delivery to a Java consumer whose listener always fails."""
    consumer = await asyncio.to_thread(java.push_consumer, namesrv, group, {topic: "*"}, fail_first=1000)
    calls: list[Call] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(calls) <= RETRIES:  # in small steps: the driver serves one call at a time
            calls += [Call.of_java(item) for item in await asyncio.to_thread(consumer.poll, 1, 0.2)]
            await asyncio.sleep(0.2)
    calls += [Call.of_java(item) for item in await asyncio.to_thread(consumer.stop_and_poll)]
    return calls


async def walk_with_ours(namesrv: str, group: str, topic: str) -> list[Call]:
    calls: list[Call] = []
    enough = asyncio.Event()

    async def fail(message: MessageView) -> None:
        calls.append(Call.of_ours(message))
        if len(calls) > RETRIES:
            enough.set()
        raise ValueError("never")

    async with PushConsumer(namesrv, group=group, from_where=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(topic, "*", fail)
        await consumer.start()
        async with asyncio.timeout(PATIENCE_S):
            await enough.wait()
    return calls


async def dead_letter(namesrv: str, group: str) -> MessageView:
    found: asyncio.Queue[MessageView] = asyncio.Queue()
    async with PushConsumer(namesrv, group=f"{group}_dead", from_where=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(f"%DLQ%{group}", "*", found.put)
        await consumer.start()
        async with asyncio.timeout(PATIENCE_S):
            return await found.get()


def check_walk(calls: Sequence[Call], letter: MessageView, topic: str) -> None:
    assert [call.reconsume_times for call in calls] == list(range(RETRIES + 1))
    assert {(call.topic, call.message_id, call.body) for call in calls} == {(topic, calls[0].message_id, b"bad")}
    early = [after.at_ms - before.at_ms for before, after in pairwise(calls)]
    assert min(early) >= STEP_MS - EARLY_MS, early
    assert [call.properties["DELAY"] for call in calls[1:]] == [str(3 + step) for step in range(RETRIES)]
    assert {call.properties["RETRY_TOPIC"] for call in calls[1:]} == {topic}
    [origin] = {call.properties["ORIGIN_MESSAGE_ID"] for call in calls[1:]}
    assert (letter.body, letter.reconsume_times) == (b"bad", RETRIES + 1)
    kept = {"RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": origin, "UNIQ_KEY": calls[0].message_id, "own": "1"}
    assert kept.items() <= letter.properties.items()


async def test_consumers_of_three_kinds_walk_all_levels_to_the_dead_letters(
    brief_levels: Cluster, java_clients: Callable[[str], JavaClient], name: Callable[[str], str]
) -> None:
    namesrv, topic = brief_levels.namesrv, name("ladder")
    groups = {kind: name("walkers") for kind in ("ours", "5.4.0", "4.9.7")}
    newer, older = await asyncio.to_thread(java_clients, "5.4.0"), await asyncio.to_thread(java_clients, "4.9.7")
    await asyncio.to_thread(newer.create_topic, namesrv, topic, 1)
    async with Producer(namesrv, group=name("senders")) as producer:
        receipt = await producer.send(Message(topic, b"bad", properties={"own": "1"}))
    walks = await asyncio.gather(
        walk_with_ours(namesrv, groups["ours"], topic),
        walk_with_java(newer, namesrv, groups["5.4.0"], topic),
        walk_with_java(older, namesrv, groups["4.9.7"], topic),
    )
    for group, calls in zip(groups.values(), walks):
        assert calls[0].message_id == receipt.message_id
        check_walk(calls, await dead_letter(namesrv, group), topic)
        route = await asyncio.to_thread(newer.route, namesrv, f"%DLQ%{group}")
        [queues] = route["queueDatas"]
        assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (1, 1, 6)
    for java in (newer, older):
        await asyncio.to_thread(java.release, namesrv)
