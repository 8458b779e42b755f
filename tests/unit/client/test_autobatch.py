"""Automatic batches: what travels together, what does not, and that each message keeps its own result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, SILENCE, FakeCluster, own_tasks

from rocketline.client import AutoBatch, ClientOptions, Producer, SendContext, by_hash
from rocketline.errors import ConfigError, InvalidMessage, MessageIllegal, ProducerClosed, SendFailed
from rocketline.message import Message, MessageQueue
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.records import BatchItem, decode_batch

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


@pytest.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[Producer]:
    """Gathers what is sent in one turn of the loop."""
    cluster.add_topic("T")
    cluster.add_topic("U")
    async with Producer(cluster.namesrv, group="shop", autobatch=AutoBatch(linger_s=0), options=QUICK_OPTIONS) as made:
        yield made


def items(request: Command) -> list[BatchItem]:
    return decode_batch(request.body)


def ids(request: Command) -> list[str]:
    return [decode_properties(bytes(item.properties).decode())["UNIQ_KEY"] for item in items(request)]


async def test_what_is_sent_together_travels_together(producer: Producer, cluster: FakeCluster) -> None:
    receipts = await asyncio.gather(
        *(
            producer.send(Message("T", b"%d" % number, tag=f"t{number % 2}", keys=[f"k{number}"]))
            for number in range(50)
        )
    )
    (request,) = cluster.broker.requests_of(SEND, BATCH)
    assert [bytes(item.body) for item in items(request)] == [b"%d" % number for number in range(50)]
    assert ids(request) == [receipt.message_id for receipt in receipts]
    properties = [decode_properties(bytes(item.properties).decode()) for item in items(request)]
    assert [(found["TAGS"], found["KEYS"]) for found in properties] == [(f"t{n % 2}", f"k{n}") for n in range(50)]
    assert [receipt.queue_offset for receipt in receipts] == list(range(50))
    assert len({receipt.offset_id for receipt in receipts}) == 50
    assert len({receipt.queue for receipt in receipts}) == 1


async def test_a_message_alone_goes_as_an_ordinary_one(producer: Producer, cluster: FakeCluster) -> None:
    receipt = await producer.send(Message("T", b"x"))
    (request,) = cluster.broker.requests_of(SEND, BATCH)
    assert request.code == SEND
    assert decode_properties(SendMessageHeader.decode(request).properties)["UNIQ_KEY"] == receipt.message_id


async def test_topics_queues_and_waits_do_not_mix(producer: Producer, cluster: FakeCluster) -> None:
    queue = MessageQueue("T", "broker-a", 3)
    sends = [
        *(producer.send(Message("T", b"t")) for _ in range(2)),
        *(producer.send(Message("U", b"u")) for _ in range(2)),
        *(producer.send(Message("T", b"q"), queue=queue) for _ in range(2)),
        *(producer.send(Message("T", b"w", wait_stored=False)) for _ in range(2)),
    ]
    receipts = await asyncio.gather(*sends)
    found = sorted((SendMessageHeader.decode(r).topic, *(bytes(i.body) for i in items(r)))
                   for r in cluster.broker.requests_of(BATCH))  # fmt: skip
    assert found == [("T", b"q", b"q"), ("T", b"t", b"t"), ("T", b"w", b"w"), ("U", b"u", b"u")]
    assert [receipt.queue for receipt in receipts[4:6]] == [queue, queue]


async def test_keys_and_selectors_choose_queues_in_batches_too(producer: Producer, cluster: FakeCluster) -> None:
    first = await asyncio.gather(*(producer.send(Message("T", b"x", sharding_key="hello")) for _ in range(4)))
    second = await asyncio.gather(*(producer.send(Message("T", b"x"), queue=by_hash("hello")) for _ in range(4)))
    assert {receipt.queue.queue_id for receipt in first + second} == {99162322 % 4}
    assert len(cluster.broker.requests_of(BATCH)) == 2


async def test_a_batch_leaves_when_it_is_large_enough(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    limits = AutoBatch(linger_s=3600.0, max_bytes=4000)
    async with Producer(
        cluster.namesrv, group="g", timeout=3700.0, autobatch=limits, options=QUICK_OPTIONS
    ) as producer:
        sends = [asyncio.create_task(producer.send(Message("T", b"x" * 1000))) for _ in range(10)]
        await cluster.broker.request(BATCH, 3)
        sizes = [len(request.body) for request in cluster.broker.requests_of(BATCH)]
        assert max(sizes) <= 4000
        assert [len(items(request)) for request in cluster.broker.requests_of(BATCH)] == [3, 3, 3]
        assert not sends[9].done(), "it lingers"
    assert len({(await send).message_id for send in sends}) == 10, "closing lets the last batch leave"


async def test_a_batch_leaves_when_it_has_waited(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    async with Producer(
        cluster.namesrv, group="g", autobatch=AutoBatch(linger_s=0.01), options=QUICK_OPTIONS
    ) as producer:
        first = asyncio.create_task(producer.send(Message("T", b"a")))
        await asyncio.sleep(0)
        second = asyncio.create_task(producer.send(Message("T", b"b")))
        assert {(await first).queue_offset, (await second).queue_offset} == {0, 1}
    assert len(cluster.broker.requests_of(BATCH)) == 1


@pytest.mark.parametrize(
    "message",
    [Message("T", b"x", delay_level=3), Message("T", b"x" * 4096), Message("%RETRY%g", b"x")],
    ids=["delayed", "compressible", "retry topic"],
)
async def test_what_cannot_travel_with_others_goes_alone(
    producer: Producer, cluster: FakeCluster, message: Message
) -> None:
    cluster.add_topic("%RETRY%g")
    await asyncio.gather(producer.send(message), producer.send(message))
    assert [request.code for request in cluster.broker.requests_of(SEND, BATCH)] == [SEND, SEND]


async def test_a_bad_message_costs_its_neighbours_nothing(producer: Producer, cluster: FakeCluster) -> None:
    good, bad, late = await asyncio.gather(
        producer.send(Message("T", b"a")),
        producer.send(Message("T", b"b", properties={"k": "\x01"})),
        producer.send(Message("T", b"c")),
        return_exceptions=True,
    )
    assert isinstance(bad, InvalidMessage)
    assert not isinstance(good, BaseException) and not isinstance(late, BaseException)
    (request,) = cluster.broker.requests_of(BATCH)
    assert ids(request) == [good.message_id, late.message_id]


async def test_a_batch_that_is_refused_fails_each_of_its_messages(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.script(BATCH, 13)
    results = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [MessageIllegal] * 3


async def test_a_retried_batch_keeps_the_ids_of_its_messages(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.script(BATCH, 2)
    receipts = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(3)))
    first, second = cluster.broker.requests_of(BATCH)
    assert ids(first) == ids(second) == [receipt.message_id for receipt in receipts]


async def test_the_time_limit_holds_in_batches(producer: Producer, cluster: FakeCluster) -> None:
    await producer.send(Message("T", b"so that the route is known"))
    cluster.broker.script(BATCH, SILENCE)
    results = await asyncio.gather(
        *(producer.send(Message("T", b"x"), timeout=0.05) for _ in range(3)), return_exceptions=True
    )
    assert [type(result) for result in results] == [SendFailed] * 3


async def test_a_cancelled_send_leaves_its_batch(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    async with Producer(
        cluster.namesrv, group="g", autobatch=AutoBatch(linger_s=3600.0), options=QUICK_OPTIONS
    ) as producer:
        kept, dropped = (
            asyncio.create_task(producer.send(Message("T", body), timeout=3700.0)) for body in (b"k", b"d")
        )
        await asyncio.sleep(0)
        dropped.cancel()
        await asyncio.wait([dropped])
    assert (await kept).queue_offset == 0
    (request,) = cluster.broker.requests_of(SEND, BATCH)
    assert (request.code, bytes(request.body)) == (SEND, b"k")


async def test_hooks_see_a_batch_as_one_send(producer: Producer) -> None:
    seen: list[SendContext] = []
    producer.add_hook(after=seen.append)
    await asyncio.gather(*(producer.send(Message("T", b"%d" % number)) for number in range(3)))
    (context,) = seen
    assert [message.body for message in context.messages] == [b"0", b"1", b"2"]
    assert len(context.receipts) == 3


async def test_names_of_a_namespace_are_wrapped_in_batches(cluster: FakeCluster) -> None:
    cluster.add_topic("NS%T")
    async with Producer(
        cluster.namesrv, group="g", autobatch=AutoBatch(linger_s=0), options=ClientOptions(timing=QUICK, namespace="NS")
    ) as producer:
        receipts = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(2)))
    assert {receipt.queue.topic for receipt in receipts} == {"T"}
    assert SendMessageHeader.decode(cluster.broker.requests_of(BATCH)[0]).topic == "NS%T"


async def test_closing_leaves_nothing_behind(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    before = own_tasks()
    producer = Producer(cluster.namesrv, group="g", autobatch=AutoBatch(linger_s=0.001), options=QUICK_OPTIONS)
    async with producer:
        await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(100)))
    assert own_tasks() == before
    with pytest.raises(ProducerClosed):
        await producer.send(Message("T", b"x"))


@pytest.mark.parametrize("limits", [{"linger_s": -1.0}, {"max_bytes": 0}, {"max_messages": 0}])
def test_limits_that_make_no_sense_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="linger"):
        AutoBatch(**limits)
