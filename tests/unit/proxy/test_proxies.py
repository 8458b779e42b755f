"""Two fronts in processes of their own, as they would be, before two brokers: what one began the other goes on with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.support.grpc_wire import METHODS, GrpcWire
from tests.support.patience import PATIENCE_S
from tests.unit.proxy.test_front_calls import (
    ack_request,
    message,
    publish,
    receive_request,
    send,
    subscribe,
)

from rocketline.admin import Admin
from rocketline.broker.grpc_config import GrpcConfig
from rocketline.errors import RouteNotFound
from rocketline.protocol.bodies import TopicConfig
from rocketline.protocol.pop_info import ReceiptHandle
from rocketline.proxy import clients as front_clients
from rocketline.proxy.config import ProxyConfig
from rocketline.proxy.front import GrpcFront
from rocketline.proxy.proto import ClientType, Code, pb
from rocketline.proxy.server import Proxy
from rocketline.testing import LocalCluster

HOUR_S = 3600
POLL_MS = 100
"""How long a receive waits that is for any broker: it may have asked the wrong one."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as running:
        asyncio.run(create_topics(running))
        yield running


async def create_topics(cluster: LocalCluster) -> None:
    async with Admin(cluster.namesrv, timeout=PATIENCE_S) as admin:
        for broker in await admin.brokers():
            await broker.put_topics([TopicConfig(name, 2, 2, attributes={"+message.type": "NORMAL"}) for name in "TU"])
        async with asyncio.timeout(PATIENCE_S):
            while not await are_known(admin):
                await asyncio.sleep(0.05)


async def are_known(admin: Admin) -> bool:
    try:
        return all([len((await admin.route(name)).queue_datas) == 2 for name in "TU"])
    except RouteNotFound:
        return False


@asynccontextmanager
async def proxy_before(cluster: LocalCluster) -> AsyncIterator[Proxy]:
    grpc = GrpcConfig(port=0, min_poll_ms=POLL_MS)
    async with Proxy(ProxyConfig(namesrv=cluster.namesrv, grpc=grpc)) as proxy:
        yield proxy


@pytest.fixture
async def proxies(brokers: LocalCluster) -> AsyncIterator[tuple[Proxy, Proxy]]:
    async with proxy_before(brokers) as one, proxy_before(brokers) as other:
        yield one, other


@pytest.fixture
async def wires(proxies: tuple[Proxy, Proxy]) -> AsyncIterator[tuple[GrpcWire, GrpcWire]]:
    async with GrpcWire(proxies[0].address) as one, GrpcWire(proxies[1].address) as other:
        one.metadata["x-mq-client-id"], other.metadata["x-mq-client-id"] = "one", "other"
        yield one, other


def front_of(proxy: Proxy) -> GrpcFront:
    assert proxy._front is not None
    return proxy._front


def short_poll(topic: str, group: str, tag: str, *, auto_renew: bool = False) -> pb.ReceiveMessageRequest:
    request = receive_request(topic, group, tag, auto_renew=auto_renew)
    request.long_polling_timeout.nanos = POLL_MS * 1_000_000
    return request


async def receive_all(
    wire: GrpcWire, topic: str, group: str, count: int, tag: str = "*", *, auto_renew: bool = False
) -> list[pb.Message]:
    found: list[pb.Message] = []
    while len(found) < count:
        frames = await wire.call("ReceiveMessage", short_poll(topic, group, tag, auto_renew=auto_renew))
        found += [frame.message for frame in frames if frame.HasField("message")]
    return found


async def test_a_route_has_the_queues_of_both_brokers_and_the_address_of_the_front_that_was_asked(
    proxies: tuple[Proxy, Proxy], wires: tuple[GrpcWire, GrpcWire]
) -> None:
    for proxy, wire in zip(proxies, wires):
        request = pb.QueryRouteRequest()
        request.topic.name = "T"
        answer = await wire.call("QueryRoute", request)
        places = sorted((queue.broker.name, queue.id) for queue in answer.message_queues)
        assert places == [(name, queue_id) for name in ("broker-a", "broker-b") for queue_id in (0, 1)]
        ports = {queue.broker.endpoints.addresses[0].port for queue in answer.message_queues}
        assert ports == {int(proxy.address.rpartition(":")[2])}


async def test_what_one_front_took_and_gave_the_other_settles(wires: tuple[GrpcWire, GrpcWire]) -> None:
    one, other = wires
    for number in range(8):
        assert (await send(one, message("T", b"%d" % number, tag="both"))).status.code == Code.OK
    got = await receive_all(other, "T", "both-group", 8, tag="both")
    handles = [item.system_properties.receipt_handle for item in got]
    assert {ReceiptHandle.parse(text).broker_name for text in handles} == {"broker-a", "broker-b"}
    answer = await one.call("AckMessage", ack_request("T", "both-group", *handles))
    assert {entry.status.code for entry in answer.entries} == {Code.OK}


async def test_brokers_know_the_clients_of_both(brokers: LocalCluster, wires: tuple[GrpcWire, GrpcWire]) -> None:
    for wire, version in zip(wires, ("5.0.8", "5.1.4")):
        wire.metadata["x-mq-client-version"] = version
        await subscribe(wire, "known-group", "T", kind=ClientType.PUSH_CONSUMER)
    async with Admin(brokers.namesrv, timeout=PATIENCE_S) as admin:
        for broker in await admin.brokers():
            members = (await broker.consumers("known-group")).connection_set
            assert sorted(member.client_id for member in members) == ["one", "other"]


async def test_a_message_popped_for_a_call_that_was_given_up_comes_to_somebody_else(
    wires: tuple[GrpcWire, GrpcWire],
) -> None:
    one, other = wires
    request = receive_request("U", "given-up", tag="given-up")
    request.invisible_duration.seconds = HOUR_S
    for broker in ("broker-a", "broker-b"):
        request.message_queue.broker.name = broker
        stream = one.start(METHODS["ReceiveMessage"].path)
        one.send(stream, request, ends=True)
        # Whatever is sent now finds a poll at this broker: the pop before has been answered by then.
        await receive_nothing(one, broker)
        one.cancel(stream)
    for number in range(4):
        await send(other, message("U", b"%d" % number, tag="given-up"))
    missing = {b"0", b"1", b"2", b"3"}
    async with asyncio.timeout(PATIENCE_S):
        while missing:
            missing -= {item.body for item in await receive_all(other, "U", "given-up", 1, tag="given-up")}


async def receive_nothing(wire: GrpcWire, broker: str) -> None:
    request = short_poll("U", "nobody", "none")
    request.message_queue.broker.name = broker
    (status, _) = await wire.call("ReceiveMessage", request)
    assert status.status.code == Code.MESSAGE_NOT_FOUND


async def test_a_handle_that_was_made_up_gets_nobody_a_strangers_message(wires: tuple[GrpcWire, GrpcWire]) -> None:
    """The broker sees the account of the front, which may read everything."""
    thief, owner = wires
    await send(owner, message("U", b"secret", tag="secret"))
    (secret,) = await receive_all(owner, "U", "owners", 1, tag="secret")
    place = ReceiptHandle.parse(secret.system_properties.receipt_handle)
    await send(thief, message("T", b"mine", tag="mine"))
    (mine,) = await receive_all(thief, "T", "thieves", 1, tag="mine")
    handle = ReceiptHandle.parse(mine.system_properties.receipt_handle)
    made_up = handle._replace(log_offset=place.log_offset, broker_name=place.broker_name)
    for forged in (made_up, made_up._replace(queue_id=place.queue_id, queue_offset=place.queue_offset)):
        answer = await thief.call("ForwardMessageToDeadLetterQueue", forward_request("T", "thieves", str(forged)))
        assert answer.status.code == Code.INVALID_RECEIPT_HANDLE
    answer = await thief.call("ForwardMessageToDeadLetterQueue", forward_request("T", "thieves", str(handle)))
    assert answer.status.code == Code.OK
    (dead,) = await receive_all(thief, "%DLQ%thieves", "undertaker", 1)
    assert dead.body == b"mine"


def forward_request(topic: str, group: str, handle: str) -> pb.ForwardMessageToDeadLetterQueueRequest:
    request = pb.ForwardMessageToDeadLetterQueueRequest(receipt_handle=handle)
    request.group.name, request.topic.name = group, topic
    return request


async def test_a_consumer_keeps_what_it_holds_when_its_front_is_started_again(brokers: LocalCluster) -> None:
    """It receives before it tells its settings again; its messages are kept hidden from then on, and not given back."""
    async with proxy_before(brokers) as proxy, GrpcWire(proxy.address) as wire:
        wire.metadata |= {"x-mq-client-id": "stays", "x-mq-language": "JAVA"}
        await send(wire, message("T", b"held", tag="held"))
        (got,) = await receive_all(wire, "T", "stays-group", 1, "held", auto_renew=True)
        front = front_of(proxy)
        await subscribe(wire, "stays-group", "T", kind=ClientType.PUSH_CONSUMER)
        client = front.clients.get("stays")
        assert client is not None
        assert (client.language, client.group, len(front.renewals)) == ("JAVA", "stays-group", 1)
        acked = await wire.call("AckMessage", ack_request("T", "stays-group", got.system_properties.receipt_handle))
        assert acked.status.code == Code.OK


async def test_a_consumer_that_told_no_settings_and_is_gone_gives_back_what_it_held(
    brokers: LocalCluster, wires: tuple[GrpcWire, GrpcWire], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_before(brokers) as proxy:
        front = front_of(proxy)
        async with GrpcWire(proxy.address) as wire:
            wire.metadata["x-mq-client-id"] = "silent"
            await send(wire, message("T", b"left", tag="left"))
            await receive_all(wire, "T", "silent-group", 1, "left", auto_renew=True)
        while front.server.channels:
            await asyncio.sleep(0.01)
        await front.clients.drop_silent()
        assert len(front.clients) == 1  # it may come back
        monkeypatch.setattr(front_clients, "GONE_S", -1.0)
        await front.clients.drop_silent()
        assert (len(front.clients), len(front.renewals)) == (0, 0)
        (got,) = await receive_all(wires[0], "T", "silent-group", 1, tag="left")
        assert (got.body, got.system_properties.delivery_attempt) == (b"left", 2)


async def test_clients_are_told_that_a_front_ends_before_it_does(brokers: LocalCluster) -> None:
    async with proxy_before(brokers) as proxy, GrpcWire(proxy.address) as wire:
        await publish(wire, "T")
        stream = wire.start(METHODS["ReceiveMessage"].path)
        wire.send(stream, receive_request("T", "goodbye", tag="none"), ends=True)
        await receive_nothing(wire, "broker-a")
        closing = asyncio.create_task(front_of(proxy).close())
        await wire.until(lambda: wire.goaway is not None)
        assert not wire.is_closed
        await closing


async def test_a_proxy_takes_what_its_cluster_takes() -> None:
    longest = 6 << 20
    with LocalCluster(config={"maxMessageSize": longest}) as cluster:
        async with Admin(cluster.namesrv, timeout=PATIENCE_S) as admin:
            await (await admin.brokers())[0].put_topics(
                [TopicConfig("T", 2, 2, attributes={"+message.type": "NORMAL"})]
            )
        config = ProxyConfig(namesrv=cluster.namesrv, grpc=GrpcConfig(port=0), max_message_bytes=longest)
        async with Proxy(config) as proxy, GrpcWire(proxy.address) as wire:
            stream = await publish(wire, "T")
            (told,) = wire.answer(stream).messages(pb.TelemetryCommand)
            assert told.settings.publishing.max_body_size == longest
            assert (await send(wire, message("T", bytes(longest)))).status.code == Code.OK
            assert (await send(wire, message("T", bytes(longest + 1)))).status.code == Code.MESSAGE_BODY_TOO_LARGE
