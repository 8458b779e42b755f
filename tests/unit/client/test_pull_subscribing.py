"""Pull consumers as members of a group: shares of queues, hand-over, listeners, broadcasting."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, FakeBroker, FakeCluster, until

from rocketline.client import ClientOptions, ConsumeFrom, MessageModel, PullConsumer, PullSettings
from rocketline.client.consumer_info import ConsumerRunningInfo
from rocketline.errors import ClientError, ConfigError, InvalidMessage, RouteNotFound
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.bodies import decode_body, queue_key
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command

PULL = RequestCode.LITE_PULL_MESSAGE
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
OTHER = "255.255.255.255@other@STREAM"


@pytest.fixture
async def queues(cluster: FakeCluster) -> list[MessageQueue]:
    return cluster.add_topic("T", 4)


def pulling(cluster: FakeCluster, **options: Any) -> PullConsumer:
    given = {"from_where": ConsumeFrom.FIRST, "options": QUICK_OPTIONS, **options}
    return PullConsumer(cluster.namesrv, group="g", **given)


def fill(broker: FakeBroker, queue_id: int, count: int, topic: str = "T") -> None:
    for number in range(count):
        broker.store(topic, queue_id, b"%d-%d" % (queue_id, number), {"TAGS": "even" if number % 2 == 0 else "odd"})


async def polled(consumer: PullConsumer, count: int, **options: Any) -> list[MessageView]:
    messages: list[MessageView] = []
    while len(messages) < count:
        batch = await consumer.poll(timeout=PATIENCE_S, **options)
        assert batch, f"only {len(messages)} of {count} messages came"
        messages += batch
    return messages


async def let_in(cluster: FakeCluster, member: str = OTHER) -> None:
    cluster.broker.extra_members["g"].append(member)
    await cluster.broker.notify_members("g")


async def test_a_subscriber_reads_its_share_as_a_member(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    cluster.broker.extra_members["g"].append(OTHER)
    for queue_id in range(4):
        fill(cluster.broker, queue_id, 2)
    async with pulling(cluster, options=ClientOptions(client_ip="10.0.0.1", timing=QUICK)) as consumer:
        await consumer.subscribe("T", "even")
        assert consumer.assigned == set(queues[:2]), "AVG, ours being the first id"
        assert sorted(message.body for message in await polled(consumer, 2)) == [b"0-0", b"1-0"]
        data = cluster.broker.heartbeats[-1].consumer_data_set[0]
        assert (data.consume_type, data.message_model) == ("CONSUME_ACTIVELY", "CLUSTERING")
        assert [item.topic for item in data.subscription_data_set] == ["T"], "no retry topic"
    assert not cluster.broker.members["g"]


async def test_queues_are_handed_over_with_what_is_done(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    for queue_id in range(4):
        fill(cluster.broker, queue_id, 3)
    told: list[tuple[str, list[int], int | None]] = []

    def note(what: str, changed: list[MessageQueue]) -> None:
        told.append((what, [queue.queue_id for queue in changed], cluster.broker.committed.get(("g", "T", 3))))

    async def added(changed: list[MessageQueue]) -> None:
        note("added", changed)

    async def dropped(changed: list[MessageQueue]) -> None:
        note("dropped", changed)
        assert all(queue in consumer.assigned for queue in changed), "they are still ours"

    async with pulling(
        cluster, on_added=added, on_dropped=dropped, options=ClientOptions(client_ip="10.0.0.1", timing=QUICK)
    ) as consumer:
        await consumer.subscribe("T")
        assert told == [("added", [0, 1, 2, 3], 0)], "where it begins is committed at once"
        await polled(consumer, 12, max_messages=12)
        assert await consumer.poll(timeout=0) == []  # now they are done
        await let_in(cluster)
        await until(lambda: consumer.assigned == set(queues[:2]))
        await until(lambda: cluster.broker.committed["g", "T", 3] == 3)
        assert told[1] == ("dropped", [2, 3], 3), "what is done is committed as soon as members change"
        cluster.broker.extra_members["g"].clear()
        await cluster.broker.notify_members("g")
        await until(lambda: len(told) == 3)
        assert told[2][:2] == ("added", [2, 3])
        assert await consumer.poll(timeout=0) == [], "it goes on where it was"
    assert told[3][:2] == ("dropped", [0, 1, 2, 3])


async def test_what_is_in_the_callers_hands_is_handed_over_when_it_is_done(
    cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster.broker, 3, 4)
    async with pulling(cluster, options=ClientOptions(client_ip="10.0.0.1", timing=QUICK)) as consumer:
        await consumer.subscribe("T")
        await polled(consumer, 2, max_messages=2)
        await let_in(cluster)
        await until(lambda: consumer.assigned == set(queues[:2]))
        assert cluster.broker.committed["g", "T", 3] == 0
        ask = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": consumer.client_id})
        leaving: set[str] = set()
        async with asyncio.timeout(PATIENCE_S):
            while leaving != {queue_key(queues[3])}:  # the other one may take a moment
                shown = decode_body(ConsumerRunningInfo, (await cluster.broker.ask_client(ask)).body).mq_table
                leaving = {key for key, info in shown.items() if info.droped}  # as Java calls it
                assert queue_key(queues[3]) in leaving
        assert await consumer.poll(timeout=0) == [], "and nothing more comes of it"
        await until(lambda: cluster.broker.committed["g", "T", 3] == 2)


async def test_a_listener_may_seek_and_commit(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    for queue_id in range(4):
        fill(cluster.broker, queue_id, 5)

    async def added(changed: list[MessageQueue]) -> None:
        for queue in changed:
            await consumer.seek(queue, 3)

    async def dropped(changed: list[MessageQueue]) -> None:
        await consumer.commit(changed)

    async with pulling(
        cluster,
        on_added=added,
        on_dropped=dropped,
        auto_commit=False,
        options=ClientOptions(client_ip="10.0.0.1", timing=QUICK),
    ) as consumer:
        await consumer.subscribe("T")
        messages = await polled(consumer, 8)
        assert {message.queue_offset for message in messages} == {3, 4}
        await let_in(cluster)
        await until(lambda: consumer.assigned == set(queues[:2]))
        assert {number: cluster.broker.committed["g", "T", number] for number in (2, 3)} == {2: 5, 3: 5}
    assert cluster.broker.committed["g", "T", 0] == 5, "closing gives them away too"


async def test_a_listener_that_fails_is_logged(
    cluster: FakeCluster, queues: list[MessageQueue], caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster.broker, 0, 1)

    def added(changed: list[MessageQueue]) -> None:
        raise RuntimeError("no thanks")

    async with pulling(cluster, on_added=added) as consumer:
        await consumer.subscribe("T")
        assert [message.body for message in await polled(consumer, 1)] == [b"0-0"]
    assert "no thanks" in caplog.text


async def test_two_members_share_and_the_one_that_stays_gets_all(
    cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    async with pulling(cluster, options=ClientOptions(client_ip="10.0.0.1", timing=QUICK)) as first:
        await first.subscribe("T")
        async with pulling(cluster, options=ClientOptions(client_ip="10.0.0.2", timing=QUICK)) as second:
            await second.subscribe("T")
            await cluster.broker.notify_members("g")
            await until(lambda: first.assigned == set(queues[:2]) and second.assigned == set(queues[2:]))
            fill(cluster.broker, 3, 2)
            assert len(await polled(second, 2)) == 2
        await cluster.broker.notify_members("g")
        await until(lambda: first.assigned == set(queues))
        assert await first.poll(timeout=0.05) == [], "what the other had done is not read again"
        assert cluster.broker.committed["g", "T", 3] == 2


async def test_subscribing_to_more_and_less(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    others = cluster.add_topic("U", 2)
    fill(cluster.broker, 0, 4)
    fill(cluster.broker, 1, 1, "U")
    async with pulling(cluster) as consumer:
        await consumer.subscribe("T", "odd")
        await consumer.subscribe("U")
        await until(lambda: consumer.assigned == {*queues, *others})
        assert sorted(message.body for message in await polled(consumer, 3)) == [b"0-1", b"0-3", b"1-0"]
        await consumer.subscribe("T", "even")
        cluster.broker.store("T", 0, b"more", {"TAGS": "even"})
        assert [message.body for message in await polled(consumer, 1)] == [b"more"]
        consumer.unsubscribe("U")
        await until(lambda: consumer.assigned == set(queues))
        assert [item.topic for item in cluster.broker.heartbeats[-1].consumer_data_set[0].subscription_data_set] == [
            "T"
        ]
        consumer.unsubscribe("T")
        with pytest.raises(ClientError, match="reads nothing"):
            await consumer.poll()


async def test_any_strategy_decides(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    async with pulling(cluster, strategy=lambda group, own, all_queues, ids: list(all_queues[1:2])) as consumer:
        await consumer.subscribe("T")
        assert consumer.assigned == {queues[1]}


async def test_broadcasting_reads_all_and_keeps_its_place_in_a_file(
    cluster: FakeCluster, queues: list[MessageQueue], tmp_path: Path
) -> None:
    cluster.broker.extra_members["g"].append(OTHER)
    for queue_id in range(4):
        fill(cluster.broker, queue_id, 2)
    here = ClientOptions(timing=QUICK, client_ip="10.0.0.1")
    options = {"model": MessageModel.BROADCASTING, "offsets": tmp_path, "options": here}
    async with pulling(cluster, **options) as consumer:
        await consumer.subscribe("T")
        assert consumer.assigned == set(queues)
        await polled(consumer, 8)
        await consumer.commit()
        assert await consumer.committed(queues[2]) == 2
    assert not cluster.broker.requests_of(COMMIT, RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    assert (tmp_path / "10.0.0.1@DEFAULT@STREAM" / "g" / "offsets.json").exists()
    fill(cluster.broker, 2, 1)
    async with pulling(cluster, **options) as consumer:
        await consumer.subscribe("T")
        assert [(m.queue_id, m.queue_offset) for m in await polled(consumer, 1)] == [(2, 2)]


async def test_other_queues_of_a_topic_are_told_of(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    heard: asyncio.Queue[tuple[str, list[MessageQueue]]] = asyncio.Queue()

    async def changed(topic: str, now: list[MessageQueue]) -> None:
        heard.put_nowait((topic, now))

    async with pulling(cluster, options=ClientOptions(timing=replace(QUICK, route_refresh_s=0.01))) as consumer:
        await consumer.on_queues_changed("T", changed)
        more = cluster.add_topic("T", 6)
        assert await asyncio.wait_for(heard.get(), PATIENCE_S) == ("T", more)
        asked = len(cluster.name_server.requests)
        await until(lambda: len(cluster.name_server.requests) > asked + 2)
        assert heard.empty()


async def test_a_topic_that_comes_later_is_read_then(cluster: FakeCluster) -> None:
    async with pulling(cluster, options=ClientOptions(timing=replace(QUICK, route_refresh_s=0.01))) as consumer:
        cluster.add_topic("other", 1)
        await consumer.subscribe("other")
        await consumer.subscribe("late")
        cluster.add_topic("late", 1)
        fill(cluster.broker, 0, 1, "late")
        assert [message.topic for message in await polled(consumer, 1)] == ["late"]


async def test_mistakes_are_told(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    async with pulling(cluster) as consumer:
        with pytest.raises(InvalidMessage):
            await consumer.subscribe("no good/topic")
        await consumer.subscribe("T")
        with pytest.raises(ClientError, match="subscribes to topics"):
            consumer.assign(queues)
        with pytest.raises(ClientError, match="not assigned"):
            await consumer.seek(MessageQueue("T", "broker-a", 9), 0)
    async with pulling(cluster) as consumer:
        consumer.assign(queues)
        with pytest.raises(ClientError, match="was assigned queues"):
            await consumer.subscribe("T")
    with pytest.raises(ConfigError, match="max_total_messages"):
        pulling(cluster, pull=PullSettings(max_total_messages=0))
    async with PullConsumer("127.0.0.1:1", group="g", options=QUICK_OPTIONS) as consumer:
        with pytest.raises(RouteNotFound, match="no name server could be reached"):
            await consumer.subscribe("T")


async def test_a_caller_without_patience_still_becomes_a_member(
    cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster.broker, 0, 1)
    answering = asyncio.Event()

    async def late(request: Command) -> Command:
        await answering.wait()
        reply = cluster.broker._query_offset(request)
        assert isinstance(reply, Command)
        return reply

    cluster.broker.on[RequestCode.QUERY_CONSUMER_OFFSET] = late
    async with pulling(cluster) as consumer:
        joining = asyncio.create_task(consumer.subscribe("T"))
        await cluster.broker.request(RequestCode.QUERY_CONSUMER_OFFSET)
        joining.cancel()
        await asyncio.wait([joining])
        answering.set()
        assert [message.body for message in await polled(consumer, 1)] == [b"0-0"]
