"""Remoting and gRPC clients share topics and groups: what one sends the other receives, with everything in it equal."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.support.grpc_client import GrpcClient, consumer_settings, defs, message, producer_settings
from tests.support.grpc_front import Address, Front
from tests.support.java import require_java
from tests.support.java_client import JavaClient
from tests.support.java_driver import client_coordinates
from tests.support.patience import PATIENCE_S
from tests.support.reading import push_all

from rocketline.client import ConsumeFrom, PopConsumer, Producer, PullConsumer
from rocketline.message import Message
from rocketline.testing import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("grpc faults")]

Code = defs.Code
SENT = {"tag": "created", "keys": ["k1", "k2"], "properties": {"colour": "blue", "größe": "ü €"}}


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    with LocalCluster(grpc=True) as cluster:
        yield Address(cluster.grpc_address, cluster.namesrv, is_ours=True, has_our_broker=True)


@pytest.fixture(scope="module", params=["5.4.0", "4.9.7"])
def java(request: pytest.FixtureRequest) -> Iterator[JavaClient]:
    require_java(*client_coordinates(request.param))
    with JavaClient(request.param) as client:
        yield client


def popping(address: Address, group: str) -> PopConsumer:
    return PopConsumer(address.namesrv, group=group, from_where=ConsumeFrom.FIRST)


async def popped(consumer: PopConsumer, wanted: int) -> list:
    found: list = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < wanted:
            found += await consumer.receive(16, wait=5.0)
    return found


def assert_equal(grpc_side, message_id: str, topic: str, body: bytes) -> None:
    """A message as a gRPC client sees it, with what was sent."""
    system = grpc_side.system_properties
    assert (grpc_side.topic.name, grpc_side.body, system.message_id) == (topic, body, message_id)
    assert (system.tag, list(system.keys)) == (SENT["tag"], SENT["keys"])
    assert dict(grpc_side.user_properties) == SENT["properties"]


async def test_what_our_remoting_producer_sends(address):
    async with Front(address) as front, Producer(address.namesrv, group="p") as producer:
        topic, group = await front.topic(), await front.group()
        receipt = await producer.send(Message(topic, b"remoting", **SENT))
        async with front.consumer(group, topic) as client:
            (got,) = await client.receive_until(group, topic, 1)
    assert_equal(got, receipt.message_id, topic, b"remoting")
    assert got.system_properties.message_type == defs.MessageType.NORMAL


async def test_a_packed_body_of_a_remoting_producer(address):
    body = b"much of the same " * 1000
    async with Front(address) as front, Producer(address.namesrv, group="p") as producer:
        topic, group = await front.topic(), await front.group()
        await producer.send(Message(topic, body))
        async with front.consumer(group, topic) as client:
            (got,) = await client.receive_until(group, topic, 1)
    assert got.system_properties.body_encoding == defs.Encoding.GZIP
    assert zlib.decompress(got.body) == body


async def test_what_a_grpc_client_sends_comes_to_our_remoting_consumers(address):
    async with Front(address) as front:
        topic, group = await front.topic(queues=1), await front.group()
        async with front.client() as client:
            (entry,) = await client.send_all([message(topic, b"grpc", **SENT)])
        async with popping(address, group) as consumer:
            await consumer.subscribe(topic)
            (by_pop,) = await popped(consumer, 1)
        async with PullConsumer(address.namesrv, group=await front.group(), from_where=ConsumeFrom.FIRST) as consumer:
            consumer.assign(await consumer.queues(topic))
            async with asyncio.timeout(PATIENCE_S):
                while not (pulled := await consumer.poll(timeout=1.0)):
                    pass
    for got in (by_pop, pulled[0]):
        assert (got.topic, got.body, got.message_id) == (topic, b"grpc", entry.message_id)
        assert (got.tag, list(got.keys)) == (SENT["tag"], SENT["keys"])
        assert {name: got.properties[name] for name in SENT["properties"]} == SENT["properties"]
        assert got.reconsume_times == 0


def test_java_remoting_clients_and_grpc(java, address):
    """Messages of Apache's remoting client come to gRPC, and the other way round."""

    async def make() -> tuple[str, str, str, str]:
        async with Front(address) as front:
            return await front.topic(), await front.group(), await front.topic(), await front.group()

    async def receive(topic: str, group: str):
        async with Front(address) as front, front.consumer(group, topic) as client:
            return await client.receive_until(group, topic, 1)

    async def send(topic: str):
        async with GrpcClient(address.grpc) as client:
            return await client.send_all([message(topic, b"to java", **SENT)])

    to_grpc, group, to_java, java_group = asyncio.run(make())
    with java.producer(address.namesrv, "java_producers") as producer:
        sent = producer.send(to_grpc, b"from java", tags=SENT["tag"], keys=SENT["keys"], properties=SENT["properties"])
    (got,) = asyncio.run(receive(to_grpc, group))
    assert_equal(got, sent.msg_id, to_grpc, b"from java")
    (entry,) = asyncio.run(send(to_java))
    (seen,) = push_all(java, address.namesrv, java_group, to_java, 1)
    assert (seen.body, seen.msg_id, seen.tags, seen.keys) == (b"to java", entry.message_id, "created", "k1 k2")
    assert {name: seen.properties[name] for name in SENT["properties"]} == SENT["properties"]


async def test_members_of_one_group_share_messages_and_count_attempts_alike(address):
    """A gRPC client and a popping remoting client: each message comes to one of them, and what one gives back to either."""
    async with Front(address) as front, popping(address, group := await front.group()) as remoting:
        topic = await front.topic(queues=4)
        await remoting.subscribe(topic)
        async with front.consumer(group, topic) as client:
            ids = [entry.message_id for entry in await client.send_all(message(topic) for _ in range(40))]
            seen: Counter[str] = Counter()
            async with asyncio.timeout(PATIENCE_S):
                while seen.total() < 40:
                    for got in await remoting.receive(3, wait=1.0):
                        seen[got.message_id] += 1
                        await remoting.ack(got)
                    received = await client.receive(group, topic, batch=3)
                    seen.update(item.system_properties.message_id for item in received.messages)
                    if received.messages:
                        await client.ack(group, topic, *received.messages)
            assert seen == Counter(ids)

            (entry,) = await client.send_all([message(topic, b"tossed about")])
            (first,) = await client.receive_until(group, topic, 1)
            assert first.system_properties.delivery_attempt == 1
            await client.change(group, topic, first, 1)
            (second,) = await popped(remoting, 1)
            assert (second.message_id, second.reconsume_times) == (entry.message_id, 1)
            await remoting.nack(second, delay=1.0)
            (third,) = await client.receive_until(group, topic, 1)
            assert third.system_properties.message_id == entry.message_id
            assert third.system_properties.delivery_attempt == 3
            assert third.topic.name == topic
            assert (await client.ack(group, topic, third)).status.code == Code.OK


async def test_dead_letters_are_the_same_for_both(address):
    async with Front(address) as front:
        topic, group, reader = await front.topic(), await front.group(), await front.group()
        dead = f"%DLQ%{group}"
        async with front.consumer(group, topic) as client:
            (entry,) = await client.send_all([message(topic, b"dead", **SENT)])
            (got,) = await client.receive_until(group, topic, 1)
            assert (await client.dead_letter(group, topic, got)).status.code == Code.OK
        async with popping(address, reader) as consumer:
            await consumer.subscribe(dead)
            (letter,) = await popped(consumer, 1)
        assert (letter.body, letter.message_id, letter.tag) == (b"dead", entry.message_id, SENT["tag"])
        async with front.consumer(other := await front.group(), dead) as client:
            (same,) = await client.receive_until(other, dead, 1)
        assert same.system_properties.message_id == entry.message_id
        assert {name: same.user_properties[name] for name in SENT["properties"]} == SENT["properties"]


async def test_operators_see_grpc_clients(address):
    async with Front(address) as front:
        topic, group = await front.topic(), await front.group()
        broker = await front.broker()
        headers = {"x-mq-language": "HTTP", "x-mq-client-version": "5.1.4"}
        async with front.client("a producer", headers=headers) as producer, front.client("a consumer") as consumer:
            settings = producer_settings(topic)
            settings.user_agent.language = defs.Language.GOLANG
            await producer.introduce(settings)
            await consumer.introduce(consumer_settings(group, topic))
            producers = await broker.producers(topic)
            consumers = await broker.consumers(group)
    assert [item.client_id for item in producers.connection_set] == ["a producer"]
    assert [item.client_id for item in consumers.connection_set] == ["a consumer"]
    assert {item.language for item in producers.connection_set} == {"GO"}
    assert {item.language for item in consumers.connection_set} == {"PYTHON"}
