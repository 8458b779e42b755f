"""A thousand topics and two thousand groups: lists and progress take a request per broker, not one per topic or group; what
must ask for each asks for each once, a few hundred at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.admin import Admin
from rocketline.admin.cluster import MAX_AT_ONCE
from rocketline.admin.progress import all_progress
from rocketline.cli import verbs
from rocketline.cli.verb import VERBS, find_verb, parser_of
from rocketline.client import Producer
from rocketline.client.middleware import Proceed
from rocketline.message import Message
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.testing import LocalCluster

TOPICS, GROUPS = 1000, 2000


class Watched:
    """An operator whose requests are counted."""

    def __init__(self, namesrv: str) -> None:
        self.asked: Counter[int] = Counter()
        self.admin = Admin(namesrv, middleware=self._count, timeout=PATIENCE_S)

    async def _count(self, address: str, request: Command, proceed: Proceed) -> Command | None:
        self.asked[request.code] += 1
        return await proceed(request)

    async def rows(self, name: str, *arguments: str) -> int:
        """How many rows a verb shows."""
        assert verbs.__all__
        found = find_verb(name)
        assert found is VERBS[name]
        self.asked.clear()
        self.admin.forget()
        args = parser_of(found).parse_args(arguments)
        return sum([len(table.rows) async for table in found.run(self.admin, args)])


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    async with LocalCluster() as cluster:
        (broker,) = cluster.brokers
        watched = Watched(cluster.namesrv)
        async with watched.admin as admin:
            (remote,) = await admin.brokers()
            await remote.put_topics([TopicConfig(f"topic{number:04}", 2, 2) for number in range(TOPICS)])
            await remote.put_groups([SubscriptionGroupConfig(f"group{number:04}") for number in range(GROUPS)])
            for number in range(GROUPS):
                for queue_id in range(2):
                    broker.parts.offsets.commit("test", f"group{number:04}", f"topic{number // 2:04}", queue_id, 0)
            yield watched


async def test_lists_and_progress_take_a_handful_of_requests(watched: Watched) -> None:
    assert await watched.rows("consumerProgress") == GROUPS
    assert watched.asked == {RequestCode.GET_BROKER_CLUSTER_INFO: 1, RequestCode.GET_BROKER_CONSUME_STATS: 1}

    assert await watched.rows("groupList") >= GROUPS
    assert watched.asked == {RequestCode.GET_BROKER_CLUSTER_INFO: 1, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: 1}

    assert await watched.rows("topicList") >= TOPICS
    assert watched.asked == {
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: 1,
        RequestCode.GET_BROKER_CLUSTER_INFO: 1,
    }

    assert await watched.rows("topicList", "-c") >= GROUPS
    assert sum(watched.asked.values()) == 4

    assert await watched.rows("topicSummary") == TOPICS
    assert watched.asked == {
        RequestCode.GET_BROKER_CLUSTER_INFO: 1,
        RequestCode.GET_ALL_TOPIC_CONFIG: 1,
        RequestCode.GET_BROKER_CONSUME_STATS: 1,
    }

    assert await watched.rows("groupSummary") >= GROUPS
    assert sum(watched.asked.values()) == 3

    assert await watched.rows("whoConsumes", "-t", "topic0500") == 2
    assert sum(watched.asked.values()) == 4

    await watched.rows("doctor", "--pause", "0")
    members = watched.asked.pop(RequestCode.GET_CONSUMER_CONNECTION_LIST)
    assert GROUPS <= members < GROUPS + 20
    assert max(watched.asked.values()) <= 2


async def test_dead_letters_of_more_groups_than_are_asked_for_at_once(watched: Watched) -> None:
    (broker,) = await watched.admin.brokers()
    names = [f"%DLQ%group{number:04}" for number in range(MAX_AT_ONCE + 50)]
    await broker.put_topics([TopicConfig(name, 1, 1) for name in names])
    async with Producer(watched.admin.namesrv, group="shop") as producer:
        for name in (names[0], names[-1]):
            await producer.send(Message(name, b"x"))
    assert await watched.rows("dlqList") == 2
    assert watched.asked == {
        RequestCode.GET_BROKER_CLUSTER_INFO: 1,
        RequestCode.GET_ALL_TOPIC_CONFIG: 1,
        RequestCode.GET_TOPIC_STATS_INFO: len(names),
    }


async def test_calls_that_gather_answers_themselves_do_not_wait_for_each_other(watched: Watched) -> None:
    async def nested(number: int) -> int:
        return sum(await watched.admin.gather(_same(number) for _ in range(2)))

    async def _same(number: int) -> int:
        return number

    async with asyncio.timeout(PATIENCE_S):
        found = await watched.admin.gather(nested(number) for number in range(2 * MAX_AT_ONCE))
    assert found == [2 * number for number in range(2 * MAX_AT_ONCE)]


async def test_progress_says_where_each_group_is(watched: Watched) -> None:
    found = {item.group: item for item in (await all_progress(watched.admin)).value}
    assert found["group1999"].topics == ["topic0999"]
    assert len(found["group1999"].queues) == 2
