"""Our producer and consumers on Apache's own broker, judged by what Apache's Java client sees of the same messages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache import ApacheCluster
from tests.support.comparing import CODEC_FLAG, ClusterFacts, assert_same_message
from tests.support.java_client import CLIENT_SIDE_PROPERTIES, JavaClient, Outgoing, Queue, Seen, Sent
from tests.support.patience import PATIENCE_S
from tests.support.reading import await_listed, eventually, read_topic

from rocketline.client import (
    ClientOptions,
    Compression,
    ConsumeFrom,
    MessageModel,
    Producer,
    PullConsumer,
    PushConsumer,
    RetryLater,
    SendReceipt,
    SendStatus,
    blocking,
)
from rocketline.client.timing import ClientTiming
from rocketline.errors import BrokerError, MessageIllegal
from rocketline.message import Message, MessageQueue, MessageView

pytestmark = pytest.mark.interop

FIRST = ConsumeFrom.FIRST
COMMITS_OFTEN = ClientOptions(timing=ClientTiming(persist_s=0.5))


@pytest.fixture
def topic(java: JavaClient, apache: ApacheCluster, name: Callable[[str], str]) -> str:
    made = name("T")
    java.create_topic(apache.namesrv, made)
    return made


class Inbox:
    """A handler that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: list[MessageView] = []
        self._grown = asyncio.Condition()

    async def __call__(self, message: MessageView) -> None:
        async with self._grown:
            self.messages.append(message)
            self._grown.notify_all()

    async def wait(self, count: int) -> list[MessageView]:
        async with asyncio.timeout(PATIENCE_S), self._grown:
            await self._grown.wait_for(lambda: len(self.messages) >= count)
        return self.messages


@asynccontextmanager
async def pushing(
    apache: ApacheCluster, group: str, topic: str, handler: Callable[..., Any], expression: str = "*", **options: Any
) -> AsyncIterator[PushConsumer]:
    async with PushConsumer(apache.namesrv, group=group, **{"from_where": FIRST, **options}) as consumer:
        consumer.subscribe(topic, expression, handler)
        await consumer.start()
        yield consumer


async def pushed(apache: ApacheCluster, group: str, topic: str, count: int, expression: str = "*") -> list[MessageView]:
    inbox = Inbox()
    async with pushing(apache, group, topic, inbox, expression):
        return list(await inbox.wait(count))


async def polled(apache: ApacheCluster, group: str, topic: str, count: int) -> list[MessageView]:
    async with PullConsumer(apache.namesrv, group=group, from_where=FIRST) as consumer:
        consumer.assign(await consumer.queues(topic))
        messages: list[MessageView] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(messages) < count:
                messages += await consumer.poll(max_messages=100)
        return messages


def assert_as_java_sees(ours: Iterable[MessageView], javas: Iterable[Seen]) -> None:
    """Every field of every message, whoever read it."""
    assert [_ours(message) for message in sorted(ours, key=lambda m: m.log_offset)] == [
        _javas(message) for message in sorted(javas, key=lambda m: m.commit_log_offset)
    ]


def _ours(message: MessageView) -> dict[str, object]:
    properties = {key: value for key, value in message.properties.items() if key not in CLIENT_SIDE_PROPERTIES}
    return {
        "place": (message.topic, message.broker_name, message.queue_id, message.queue_offset, message.log_offset),
        "ids": (message.message_id, message.offset_id),
        "body": message.body,
        "marks": (message.tag, " ".join(message.keys) or None, message.flag, message.sys_flag, properties),
        "born": (message.born_ms, message.born_host),
        "stored": (message.store_ms, message.store_host, message.stored_bytes, message.body_crc),
        "history": (message.reconsume_times, message.prepared_log_offset),
    }


def _javas(seen: Seen) -> dict[str, object]:
    return {
        "place": (seen.topic, seen.broker_name, seen.queue_id, seen.queue_offset, seen.commit_log_offset),
        "ids": (seen.msg_id, seen.offset_msg_id),
        "body": seen.body,
        "marks": (seen.tags, seen.keys, seen.flag, seen.sys_flag, seen.stored_properties),
        "born": (seen.born_timestamp, seen.born_host),
        "stored": (seen.store_timestamp, seen.store_host, seen.store_size, seen.body_crc),
        "history": (seen.reconsume_times, seen.prepared_transaction_offset),
    }


def outgoing(message: Message) -> Outgoing:
    return Outgoing(message.topic, message.body, message.tag, message.keys or None, message.flag, message.properties)


def sent(message: Message, receipt: SendReceipt) -> Sent:
    """A receipt of ours as the Java client would have given it."""
    properties = {"UNIQ_KEY": receipt.message_id, "WAIT": "true", **message.properties}
    properties |= {"TAGS": message.tag} if message.tag else {}
    properties |= {"KEYS": " ".join(message.keys)} if message.keys else {}
    return Sent(
        receipt.message_id, properties, receipt.status.value, receipt.offset_id, receipt.queue.broker_name,
        receipt.queue.queue_id, receipt.queue_offset, receipt.transaction_id, receipt.region,
    )  # fmt: skip


async def test_every_way_to_send(
    java: JavaClient, apache: ApacheCluster, topic: str, name: Callable[[str], str]
) -> None:
    awaited = Message(topic, b"awaited", tag="T", keys=["a", "b"], flag=3, properties={"ключ": "值", "emoji": "🚀"})
    many = [Message(topic, b"many %d" % number, keys=[f"k{number}"]) for number in range(200)]
    batch = [Message(topic, b"batch %d" % number, tag="batch", flag=number) for number in range(5)]
    async with Producer(apache.namesrv, group=name("pg")) as producer:
        receipt = await producer.send(awaited)
        receipts = await asyncio.gather(*map(producer.send, many))
        batch_receipts = await producer.send_batch(batch)
        await producer.send_oneway(Message(topic, b"oneway", tag="oneway"))
        chosen = await producer.send(Message(topic, b"chosen"), queue=receipt.queue)
    assert chosen.queue == receipt.queue
    total = 1 + 200 + 5 + 1 + 1

    ours = await pushed(apache, name("push"), topic, total)
    javas = read_topic(java, apache.namesrv, topic)

    assert len(javas) == total
    assert_as_java_sees(ours, javas)
    assert_as_java_sees(await polled(apache, name("pull"), topic, total), javas)
    by_id = {seen.msg_id: seen for seen in javas}
    facts = ClusterFacts.ask(java, apache.namesrv)
    for message, got in zip([awaited, *many], [receipt, *receipts]):
        assert_same_message(by_id[got.message_id], outgoing(message), sent(message, got), facts)
    for message, got in zip(batch, batch_receipts):
        seen = by_id[got.message_id]
        assert (seen.body, seen.tags, seen.flag) == (message.body, "batch", message.flag)
        assert (seen.queue_id, seen.queue_offset, seen.offset_msg_id) == (
            got.queue.queue_id, got.queue_offset, got.offset_id,
        )  # fmt: skip
    spread = Counter(seen.queue_id for seen in javas if seen.body.startswith(b"many"))
    assert set(spread.values()) == {50}


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
async def test_compressed_bodies(
    codec: str, java: JavaClient, apache: ApacheCluster, topic: str, name: Callable[[str], str]
) -> None:
    bodies = [b"rocket" * 1000, b"x" * 300_000, b"small"]
    async with Producer(apache.namesrv, group=name("pg"), compression=codec) as producer:
        for body in bodies:
            assert (await producer.send(Message(topic, body))).status is SendStatus.OK
    javas = read_topic(java, apache.namesrv, topic, len(bodies))
    assert sorted(seen.body for seen in javas) == sorted(bodies)
    for seen in javas:
        assert seen.sys_flag == (CODEC_FLAG[codec.upper()] if len(seen.body) > 4096 else 0)
        assert seen.body == b"small" or seen.store_size < len(seen.body) // 2
    assert_as_java_sees(await pushed(apache, name("push"), topic, 3), javas)


@pytest.mark.parametrize("codec", ["ZLIB", "LZ4", "ZSTD"])
async def test_what_javas_client_sends_reaches_ours(
    codec: str, java: JavaClient, apache: ApacheCluster, topic: str, name: Callable[[str], str]
) -> None:
    with java.producer(apache.namesrv, name("pg"), compress_type=codec) as producer:
        producer.send(topic, b"compressed " * 1000, tags="large")
        producer.send(topic, b"sync", tags="T", keys=["a", "b"], flag=9, properties={"ключ": "值", "emoji": "🚀"})
        producer.send_batch([Outgoing(topic, b"batch %d" % number, keys=[str(number)]) for number in range(3)])
    javas = read_topic(java, apache.namesrv, topic, 5)
    assert_as_java_sees(await pushed(apache, name("push"), topic, 5), javas)
    assert_as_java_sees(await polled(apache, name("pull"), topic, 5), javas)


async def test_tags_select(apache: ApacheCluster, topic: str, name: Callable[[str], str]) -> None:
    async with Producer(apache.namesrv, group=name("pg")) as producer:
        for tag in ("created", "paid", "shipped", None, "Aa", "BB"):  # the last two have the same Java hash
            await producer.send(Message(topic, (tag or "none").encode(), tag=tag))
    some = await pushed(apache, name("some"), topic, 2, "created || paid")
    assert sorted(message.body for message in some) == [b"created", b"paid"]
    collided = await pushed(apache, name("collided"), topic, 1, "BB")
    assert [message.body for message in collided] == [b"BB"]
    everything = await pushed(apache, name("all"), topic, 6)
    assert len(everything) == 6


async def test_failed_messages_come_again_and_then_die(
    java: JavaClient, apache: ApacheCluster, topic: str, name: Callable[[str], str]
) -> None:
    group = name("retry")
    tries: list[MessageView] = []
    good, again = Inbox(), asyncio.Event()

    async def handle(message: MessageView) -> None:
        if message.body == b"good":
            await good(message)
            return
        tries.append(message)
        if message.reconsume_times == 0:
            raise RetryLater("once more", delay_level=1)
        again.set()
        raise RetryLater("never again", delay_level=-1)

    async with pushing(apache, group, topic, handle), Producer(apache.namesrv, group=name("pg")) as producer:
        receipt = await producer.send(Message(topic, b"bad", tag="x", keys=["k"], properties={"mine": "kept"}))
        await producer.send(Message(topic, b"good"))
        await good.wait(1)
        async with asyncio.timeout(PATIENCE_S):
            await again.wait()
    _, second = tries
    assert (second.topic, second.body, second.tag, second.keys) == (topic, b"bad", "x", ("k",))
    assert (second.reconsume_times, second.message_id) == (1, receipt.message_id)
    assert second.properties["ORIGIN_MESSAGE_ID"] == receipt.offset_id
    assert second.properties["mine"] == "kept"
    assert second.queue_id == 0
    (dead,) = await polled(apache, name("undertaker"), f"%DLQ%{group}", 1)
    assert (dead.body, dead.reconsume_times, dead.message_id) == (b"bad", 2, receipt.message_id)
    committed = {
        queue: java.committed(apache.namesrv, group, queue) for queue in java.read_queues(apache.namesrv, topic)
    }
    assert sum(offset for offset in committed.values() if offset and offset > 0) == 2


async def test_a_group_goes_on_where_it_stopped(
    java: JavaClient, apache: ApacheCluster, topic: str, name: Callable[[str], str]
) -> None:
    group = name("resume")
    async with Producer(apache.namesrv, group=name("pg")) as producer:
        for number in range(40):
            await producer.send(Message(topic, b"%d" % number))
        inbox, queues = Inbox(), java.read_queues(apache.namesrv, topic)

        def committed() -> list[int | None]:
            return [java.committed(apache.namesrv, group, queue) for queue in queues]

        async with pushing(apache, group, topic, inbox, options=COMMITS_OFTEN):
            await inbox.wait(40)
            # Before it stops: a pull that waits in Apache's broker may set the offset back that came after it.
            assert await asyncio.to_thread(eventually, committed, [10] * 4) == [10] * 4
        assert len(inbox.messages) == 40
        await producer.send(Message(topic, b"new"))
    assert [message.body for message in await pushed(apache, group, topic, 1)] == [b"new"]


async def test_our_member_and_javas_share_a_group(
    java: JavaClient, apache: ApacheCluster, topic: str, name: Callable[[str], str]
) -> None:
    group, inbox = name("mixed"), Inbox()
    async with pushing(apache, group, topic, inbox) as consumer:
        with await asyncio.to_thread(java.push_consumer, apache.namesrv, group, {topic: "*"}) as javas:
            async with asyncio.timeout(PATIENCE_S):
                while len([queue for queue in consumer.assigned if queue.topic == topic]) != 2:
                    await asyncio.sleep(0.05)
            members = await asyncio.to_thread(java.consumer_connection, apache.namesrv, group)
            mine = [item for item in members["connectionSet"] if item["clientId"] == consumer.client_id]
            assert [item["language"] for item in mine] == ["PYTHON"]
            assert len(members["connectionSet"]) == 2
            async with Producer(apache.namesrv, group=name("pg")) as producer:
                await asyncio.gather(*(producer.send(Message(topic, b"%d" % number)) for number in range(100)))
            seen = await asyncio.to_thread(javas.poll, 50)
            await inbox.wait(50)
        assert {message.queue_id for message in inbox.messages}.isdisjoint({message.queue_id for message in seen})
        bodies = Counter([message.body for message in inbox.messages] + [message.body for message in seen])
        assert bodies == {b"%d" % number: 1 for number in range(100)}


async def test_broadcasting_gives_everybody_everything(
    apache: ApacheCluster, topic: str, name: Callable[[str], str], tmp_path: Path
) -> None:
    group = name("all")
    inboxes = Inbox(), Inbox()
    options = {"model": MessageModel.BROADCASTING, "offsets": tmp_path}
    async with (
        pushing(apache, group, topic, inboxes[0], options=ClientOptions(instance_name="one"), **options),
        pushing(apache, group, topic, inboxes[1], options=ClientOptions(instance_name="two"), **options),
        Producer(apache.namesrv, group=name("pg")) as producer,
    ):
        for number in range(8):
            await producer.send(Message(topic, b"%d" % number))
        for inbox in inboxes:
            messages = await inbox.wait(8)
            assert sorted(message.body for message in messages) == [b"%d" % number for number in range(8)]
    late = Inbox()
    async with (
        pushing(apache, group, topic, late, options=ClientOptions(instance_name="one"), **options),
        Producer(apache.namesrv, group=name("pg")) as producer,
    ):
        await producer.send(Message(topic, b"after a restart"))
        assert [message.body for message in await late.wait(1)] == [b"after a restart"]


async def test_pulling_seeking_and_committing(
    java: JavaClient, apache: ApacheCluster, topic: str, name: Callable[[str], str]
) -> None:
    group = name("pull")
    async with Producer(apache.namesrv, group=name("pg")) as producer:
        queue = (await producer.queues(topic))[1]
        for number in range(10):
            await producer.send(Message(topic, b"%d" % number), queue=queue)
    await asyncio.to_thread(await_listed, java, apache.namesrv, topic, 10)
    theirs = Queue(topic, queue.broker_name, queue.queue_id)
    async with PullConsumer(apache.namesrv, group=group, from_where=FIRST) as consumer:
        assert queue in await consumer.queues(topic)
        consumer.assign([queue])
        first = await consumer.poll(max_messages=4)
        assert [message.body for message in first] == [b"0", b"1", b"2", b"3"][: len(first)]
        assert consumer.position(queue) == len(first)
        await consumer.seek(queue, 7)
        rest: list[MessageView] = []
        while len(rest) < 3:
            rest += await consumer.poll()
        assert [message.queue_offset for message in rest] == [7, 8, 9]
        await consumer.commit()
        assert await consumer.committed(queue) == 10
        assert await asyncio.to_thread(java.committed, apache.namesrv, group, theirs) == 10
        stored = datetime.fromtimestamp(rest[1].store_ms / 1000, UTC)
        offsets = await asyncio.to_thread(java.offsets, apache.namesrv, theirs, rest[1].store_ms)
        assert await consumer.begin_offset(queue) == offsets.min == 0
        assert await consumer.end_offset(queue) == offsets.max == 10
        assert await consumer.offset_at(queue, stored) == offsets.search
        assert await consumer.poll(timeout=0.2) == []
    async with (
        PullConsumer(apache.namesrv, group=group) as consumer,
        Producer(apache.namesrv, group=name("pg")) as producer,
    ):
        consumer.assign([queue])
        waiting = asyncio.create_task(consumer.poll(timeout=PATIENCE_S))
        await producer.send(Message(topic, b"10"), queue=queue)
        assert [message.queue_offset for message in await waiting] == [10]


async def test_unknown_topics_are_created_by_sending(
    java: JavaClient, apache: ApacheCluster, name: Callable[[str], str]
) -> None:
    topic = name("fresh")
    async with Producer(apache.namesrv, group=name("pg")) as producer:
        receipts = [await producer.send(Message(topic, b"%d" % number)) for number in range(8)]
    assert {receipt.queue.queue_id for receipt in receipts} == {0, 1, 2, 3}
    assert len(await asyncio.to_thread(read_topic, java, apache.namesrv, topic, len(receipts))) == len(receipts)


async def test_refusals_carry_the_brokers_reason(apache: ApacheCluster, topic: str, name: Callable[[str], str]) -> None:
    async with Producer(
        apache.namesrv, group=name("pg"), max_message_bytes=6 << 20, compression=Compression(over_bytes=8 << 20)
    ) as producer:
        with pytest.raises(MessageIllegal, match="answer 13") as caught:
            await producer.send(Message(topic, bytes(5 << 20)))
        assert caught.value.address == apache.broker
        nowhere = MessageQueue(topic, apache.broker_name, 99)
        with pytest.raises(BrokerError, match="queueId") as refused:
            await producer.send(Message(topic, b"x"), queue=nowhere)
        assert refused.value.code == 29


def test_the_blocking_clients(apache: ApacheCluster, topic: str, name: Callable[[str], str]) -> None:
    with (
        blocking.Producer(apache.namesrv, group=name("pg")) as producer,
        blocking.PushConsumer(apache.namesrv, group=name("push"), from_where=FIRST) as consumer,
    ):
        receipts = [producer.send(Message(topic, b"%d" % number)) for number in range(5)]
        seen = []
        for message in consumer.messages(topic):
            seen.append(message.message_id)
            if len(seen) == 5:
                consumer.stop()
    assert sorted(seen) == sorted(receipt.message_id for receipt in receipts)
