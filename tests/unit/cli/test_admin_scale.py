"""A thousand topics and two thousand groups: lists and progress take a request per broker, not one per topic or group."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from rocketline.admin import Admin
from rocketline.admin.progress import all_progress
from rocketline.cli import verbs
from rocketline.cli.verb import VERBS, find_verb, parser_of
from rocketline.client.middleware import Proceed
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.testing import LocalCluster

TOPICS, GROUPS = 1000, 2000


class Watched:
    """An operator whose requests are counted."""

    def __init__(self, namesrv: str) -> None:
        self.asked: Counter[int] = Counter()
        self.admin = Admin(namesrv, middleware=self._count, timeout=30.0)

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
                    broker._offsets.commit("test", f"group{number:04}", f"topic{number // 2:04}", queue_id, 0)
            yield watched


async def test_lists_and_progress_take_a_handful_of_requests(watched: Watched) -> None:
    assert await watched.rows("consumerProgress") == GROUPS
    assert watched.asked == {RequestCode.GET_BROKER_CLUSTER_INFO: 1, RequestCode.GET_BROKER_CONSUME_STATS: 1}

    assert await watched.rows("groupList") >= GROUPS
    assert watched.asked == {RequestCode.GET_BROKER_CLUSTER_INFO: 1, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: 1}

    assert await watched.rows("topicList") >= TOPICS
    assert watched.asked == {RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: 1}

    assert await watched.rows("topicList", "-c") >= GROUPS
    assert sum(watched.asked.values()) == 4


async def test_progress_says_where_each_group_is(watched: Watched) -> None:
    found = {item.group: item for item in await all_progress(watched.admin)}
    assert found["group1999"].topics == ["topic0999"]
    assert len(found["group1999"].queues) == 2
