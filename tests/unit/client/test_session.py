from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, SILENCE, FakeCluster, fake_cluster, own_tasks, until

from rocketline.client import ClientOptions
from rocketline.client.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo
from rocketline.client.session import ClientSession, open_session
from rocketline.errors import ClientError, ConfigError, RouteNotFound
from rocketline.message import ConsumerOffset, MessageQueue, MessageView
from rocketline.protocol.bodies import (
    BrokerData,
    ConsumerData,
    ConsumerStatus,
    QueueData,
    ResetOffsetBody,
    TopicRouteData,
    decode_body,
    encode_body,
    queue_key,
)
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
BEAT = RequestCode.HEART_BEAT


class Member:
    """A consumer that only remembers what was asked of it."""

    def __init__(self, group: str = "g") -> None:
        self.group = group
        self.topics = {"T"}
        self.rebalances = 0
        self.changed: list[str] = []
        self.persisted = asyncio.Event()
        self.fails = False
        self.reset: dict[MessageQueue, ConsumerOffset] = {}
        self.consumed: list[bytes] = []

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(self.group)

    def route_changed(self, topic: str) -> None:
        self.changed.append(topic)

    def members_changed(self) -> None:
        self.rebalances += 1

    async def persist_offsets(self) -> None:
        self.persisted.set()
        if self.fails:
            raise RuntimeError("persisting fails")

    async def reset_offsets(self, offsets: Mapping[MessageQueue, ConsumerOffset]) -> None:
        self.reset.update(offsets)

    def positions(self, topic: str) -> Mapping[MessageQueue, ConsumerOffset]:
        return {MessageQueue(topic, "broker-a", 0): ConsumerOffset(5)}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo({"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"})

    async def consume_directly(self, message: MessageView) -> ConsumeDirectlyResult:
        self.consumed.append(message.body)
        return ConsumeDirectlyResult("CR_SUCCESS", 1)


@pytest.fixture
async def session(cluster: FakeCluster) -> AsyncIterator[ClientSession]:
    cluster.add_topic("T")
    made = open_session("10.0.0.1@test", [cluster.namesrv], QUICK_OPTIONS)
    yield made
    await made.release()


async def test_clients_with_one_id_share_one_session(cluster: FakeCluster) -> None:
    first = open_session("127.0.0.1@one", [cluster.namesrv], QUICK_OPTIONS)
    second = open_session("127.0.0.1@one", [cluster.namesrv], QUICK_OPTIONS)
    other = open_session("127.0.0.1@two", [cluster.namesrv], QUICK_OPTIONS)
    assert first is second
    assert first is not other
    await first.release()
    assert open_session("127.0.0.1@one", [cluster.namesrv], QUICK_OPTIONS) is second
    for one in (second, second, other):
        await one.release()
    fresh = open_session("127.0.0.1@one", [cluster.namesrv], QUICK_OPTIONS)
    assert fresh is not first
    await fresh.release()


async def test_the_same_id_for_other_name_servers_is_refused(session: ClientSession) -> None:
    with pytest.raises(ConfigError, match="instance_name"):
        open_session("10.0.0.1@test", ["127.0.0.1:1"], QUICK_OPTIONS)


async def test_a_released_session_leaves_no_task_and_no_connection(cluster: FakeCluster) -> None:
    before = own_tasks()
    cluster.add_topic("T")
    session = open_session("127.0.0.1@x", [cluster.namesrv], QUICK_OPTIONS)
    session.add_consumer(Member())
    await session.routes.find("T")
    await session.heartbeat()
    await session.release()
    await until(lambda: not cluster.broker.channels and not cluster.name_server.channels, "closing")
    await until(lambda: own_tasks() <= before, "the end of all tasks")


async def test_a_release_that_is_cancelled_still_closes_the_connections(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    session = open_session("127.0.0.1@hurried", [cluster.namesrv], QUICK_OPTIONS)
    await session.routes.find("T")

    may_end = asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()

    task = session._tasks.start(slow_to_end(), "slow to end")
    await asyncio.sleep(0)
    release = asyncio.ensure_future(session.release())
    await asyncio.sleep(0)
    release.cancel()
    with pytest.raises(asyncio.CancelledError):
        await release
    await until(lambda: not cluster.name_server.channels, "closing")
    may_end.set()
    await asyncio.wait([task])


async def test_callers_share_one_fetch_of_a_route(session: ClientSession, cluster: FakeCluster) -> None:
    routes = await asyncio.gather(*(session.routes.find("T") for _ in range(50)))
    assert len(cluster.name_server.requests_of(ROUTE)) == 1
    assert all(route is routes[0] for route in routes)


async def test_a_failing_fetch_keeps_the_old_route(session: ClientSession, cluster: FakeCluster) -> None:
    before = await session.routes.find("T")
    del cluster.name_server.routes["T"]
    await session.routes.refresh_all()
    assert session.routes.get("T") is before


async def test_one_caller_giving_up_does_not_take_the_route_from_the_others(
    session: ClientSession, cluster: FakeCluster
) -> None:
    answer = asyncio.Event()

    async def later(request: Command) -> Command:
        await answer.wait()
        reply = cluster.name_server.habit(next(iter(cluster.name_server.channels)), request)
        assert isinstance(reply, Command)
        return reply

    cluster.name_server.script(ROUTE, later)
    impatient = asyncio.create_task(session.routes.find("T"))
    patient = asyncio.create_task(session.routes.find("T"))
    await cluster.name_server.request(ROUTE)
    impatient.cancel()
    answer.set()
    assert (await patient).topic == "T"
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_closing_while_a_route_is_asked_for_is_an_error_not_a_cancellation(cluster: FakeCluster) -> None:
    cluster.name_server.script(ROUTE, SILENCE)
    session = open_session("127.0.0.1@closing", [cluster.namesrv], QUICK_OPTIONS)
    lookup = asyncio.create_task(session.routes.find("T"))
    await cluster.name_server.request(ROUTE)
    await session.release()
    with pytest.raises(ClientError, match="closed"):
        await lookup
    with pytest.raises(ClientError, match="closed"):
        await session.routes.find("T")


async def test_a_missing_topic_borrows_the_templates_route_for_writing_only(
    session: ClientSession, cluster: FakeCluster
) -> None:
    cluster.add_template(queues=8)
    route = await session.routes.find_writable("new", 4)
    assert len(route.writable) == 4
    assert session.routes.get("new") is None
    with pytest.raises(RouteNotFound):
        await session.routes.find("new")
    cluster.add_topic("new", 2)
    await session.routes.refresh_all()
    assert len((await session.routes.find_writable("new", 4)).writable) == 2


async def test_without_template_the_missing_topic_is_the_error(session: ClientSession, cluster: FakeCluster) -> None:
    with pytest.raises(RouteNotFound, match="'new'"):
        await session.routes.find_writable("new", 4)


async def test_retry_topics_borrow_nothing(session: ClientSession, cluster: FakeCluster) -> None:
    cluster.add_template()
    with pytest.raises(RouteNotFound):
        await session.routes.find_writable("%RETRY%g", 4)


async def test_a_topic_that_cannot_be_written_says_so(session: ClientSession, cluster: FakeCluster) -> None:
    cluster.add_topic("readonly", perm=4)
    with pytest.raises(RouteNotFound, match="write permission"):
        await session.routes.find_writable("readonly", 4)


async def test_a_new_broker_gets_a_heartbeat_at_once(session: ClientSession, cluster: FakeCluster) -> None:
    session.add_producer("shop")
    session.add_consumer(Member("g"))
    await session.routes.find("T")
    await cluster.broker.request(BEAT)
    beat = cluster.broker.heartbeats[-1]
    assert beat.client_id == "10.0.0.1@test"
    assert [producer.group_name for producer in beat.producer_data_set] == ["shop"]
    assert [consumer.group_name for consumer in beat.consumer_data_set] == ["g"]


async def test_without_groups_there_is_nothing_to_tell(session: ClientSession, cluster: FakeCluster) -> None:
    await session.routes.find("T")
    await session.heartbeat()
    assert not cluster.broker.requests


async def test_heartbeats_never_overlap(session: ClientSession, cluster: FakeCluster) -> None:
    running = most = 0

    async def slow(request: Command) -> Command:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return request.reply(0)

    cluster.broker.on[BEAT] = slow
    session.add_consumer(Member())
    await session.routes.find("T")
    await asyncio.gather(*(session.heartbeat() for _ in range(5)))
    assert most == 1


async def test_slaves_hear_only_of_consumers(session: ClientSession, cluster: FakeCluster) -> None:
    slave = await cluster.add_slave()
    cluster.add_topic("T")
    await session.routes.find("T")
    session.add_producer("shop")
    await session.heartbeat()
    assert cluster.broker.heartbeats
    assert not slave.heartbeats
    session.add_consumer(Member())
    await session.heartbeat()
    assert slave.heartbeats


async def test_a_group_lives_once_in_a_session(session: ClientSession) -> None:
    first, second = Member("g"), Member("g")
    session.add_consumer(first)
    with pytest.raises(ClientError, match="instance_name"):
        session.add_consumer(second)
    await session.remove_consumer(second)
    assert session.consumers["g"] is first
    await session.remove_consumer(first)
    session.add_consumer(second)


async def test_goodbye_goes_to_connected_brokers(session: ClientSession, cluster: FakeCluster) -> None:
    member = Member("g")
    session.add_consumer(member)
    session.add_producer("shop")
    await session.routes.find("T")
    await session.heartbeat()
    await session.remove_consumer(member)
    await session.remove_producer("shop")
    goodbyes = [request.ext for request in cluster.broker.requests_of(RequestCode.UNREGISTER_CLIENT)]
    assert goodbyes == [
        {"clientID": "10.0.0.1@test", "consumerGroup": "g"},
        {"clientID": "10.0.0.1@test", "producerGroup": "shop"},
    ]


async def test_timers_go_on_after_failures(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    timing = replace(QUICK, route_refresh_s=0.01, heartbeat_s=0.01, persist_s=0.01)
    session = open_session("127.0.0.1@timers", [cluster.namesrv], ClientOptions(timing=timing))
    member = Member()
    member.fails = True
    session.add_consumer(member)
    cluster.name_server.script(ROUTE, 1, 1)
    cluster.broker.script(BEAT, 1, 1)
    await cluster.name_server.request(ROUTE, 5)
    await cluster.broker.request(BEAT, 5)
    for _ in range(3):
        member.persisted.clear()
        async with asyncio.timeout(PATIENCE_S):
            await member.persisted.wait()
    await session.release()


async def test_a_changed_route_wakes_consumers_and_a_same_one_does_not(
    session: ClientSession, cluster: FakeCluster
) -> None:
    member = Member()
    session.add_consumer(member)
    await session.routes.find("T")
    await session.routes.refresh("T")
    assert member.changed == ["T"]
    cluster.add_topic("T", 8)
    await session.routes.refresh("T")
    assert member.changed == ["T", "T"]


async def test_a_broker_that_left_all_routes_is_forgotten() -> None:
    async with fake_cluster(2) as cluster:
        cluster.add_topic("T")
        session = open_session(
            "127.0.0.1@offline", [cluster.namesrv], ClientOptions(timing=replace(QUICK, heartbeat_s=0.01))
        )
        session.add_consumer(Member())
        await session.routes.find("T")
        await cluster.brokers[1].request(BEAT)
        cluster.brokers[1].script(BEAT, *[1] * 100)
        session.connection_failed(cluster.brokers[1].address, "T")
        await until(lambda: cluster.brokers[1].address in session._silent, "a heartbeat that fails")
        cluster.add_topic("T", brokers=cluster.brokers[:1])
        await session.routes.refresh("T")
        await until(lambda: not cluster.brokers[1].channels, "the connection being closed")
        assert session.routes.addresses() == {cluster.brokers[0].address}
        assert session.master_of("broker-b") is None
        assert cluster.brokers[1].address not in session._silent | session._lost
        await session.release()


async def test_reading_prefers_the_suggested_broker_then_the_master(
    session: ClientSession, cluster: FakeCluster
) -> None:
    cluster.name_server.routes["T"] = TopicRouteData(
        [BrokerData("c", "broker-a", {0: cluster.broker.address, 1: "127.0.0.1:1"})], [QueueData("broker-a", 1, 1, 6)]
    )
    await session.routes.find("T")

    def chosen(broker_id: int) -> tuple[str, int]:
        found = session.reader_of("broker-a", broker_id)
        assert found is not None
        return found[0].address, found[1]

    assert chosen(0) == (cluster.broker.address, 0)
    assert chosen(1) == ("127.0.0.1:1", 1)
    assert chosen(7) == (cluster.broker.address, 0)
    assert session.reader_of("ghost", 0) is None
    with pytest.raises(RouteNotFound, match="'ghost'"):
        await session.broker_of(MessageQueue("T", "ghost", 0))


@pytest.fixture
async def member(session: ClientSession, cluster: FakeCluster) -> Member:
    member = Member("g")
    session.add_consumer(member)
    await session.routes.find("T")
    await session.heartbeat()
    return member


async def test_brokers_can_ask_for_a_rebalance(member: Member, cluster: FakeCluster) -> None:
    await cluster.broker.notify_members("g")
    await cluster.broker.notify_members("unknown")
    await until(lambda: member.rebalances == 1)


async def test_brokers_can_reset_offsets(member: Member, cluster: FakeCluster) -> None:
    queue = MessageQueue("T", "broker-a", 3)
    fields = {"group": "g", "topic": "T", "timestamp": "0", "isForce": "true"}
    body = encode_body(ResetOffsetBody({queue_key(queue): 42}))
    answer = await cluster.broker.ask_client(Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body))
    assert answer.code == 0
    assert member.reset == {queue: 42}


async def test_brokers_can_ask_where_a_consumer_is(member: Member, cluster: FakeCluster) -> None:
    request = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "g"})
    answer = await cluster.broker.ask_client(request)
    table = decode_body(ConsumerStatus, answer.body).message_queue_table
    assert table == {queue_key(MessageQueue("T", "broker-a", 0)): 5}


async def test_brokers_can_ask_how_a_consumer_is(member: Member, cluster: FakeCluster) -> None:
    request = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": "x"})
    answer = await cluster.broker.ask_client(request)
    info = decode_body(ConsumerRunningInfo, answer.body)
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.jstack is None


async def test_brokers_can_ask_what_a_client_is_doing(member: Member, cluster: FakeCluster) -> None:
    fields = {"consumerGroup": "g", "clientId": "x", "jstackEnable": "true"}
    answer = await cluster.broker.ask_client(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields))
    stacks = decode_body(ConsumerRunningInfo, answer.body).jstack or ""
    assert "thread MainThread" in stacks
    assert "test_brokers_can_ask_what_a_client_is_doing" in stacks


async def test_brokers_can_have_one_message_consumed(member: Member, cluster: FakeCluster) -> None:
    cluster.broker.store("T", 0, b"this one")
    record = cluster.broker.queues["T", 0].records[0]
    fields = {"consumerGroup": "g", "brokerName": "broker-a"}
    answer = await cluster.broker.ask_client(Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, record))
    assert decode_body(ConsumeDirectlyResult, answer.body).consume_result == "CR_SUCCESS"
    assert member.consumed == [b"this one"]
    broken = await cluster.broker.ask_client(Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, b"junk"))
    assert (broken.code, member.consumed) == (1, [b"this one"])


async def test_other_requests_are_refused_politely(member: Member, cluster: FakeCluster) -> None:
    answer = await cluster.broker.ask_client(Command(RequestCode.PULL_MESSAGE, {}))
    assert answer.code == 3
    missing = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "other", "clientId": "x"})
    answer = await cluster.broker.ask_client(missing)
    assert (answer.code, "other" in (answer.remark or "")) == (1, True)
    answer = await cluster.broker.ask_client(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {}))
    assert answer.code == 1
