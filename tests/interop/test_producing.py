"""What our producer gathers, shards and packs full, on our broker and on Apache's, as Apache's Java client sees it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

import pytest
from tests.interop.conftest import Cluster
from tests.support.java_client import JavaClient, Outgoing
from tests.support.java_driver import JavaCallError
from tests.support.patience import PATIENCE_S
from tests.support.reading import read_topic

from rocketline.client import AutoBatch, Producer, SendReceipt
from rocketline.errors import MessageTooLarge
from rocketline.message import SHARDING_KEY, Message
from rocketline.protocol.hashing import java_string_hash

pytestmark = pytest.mark.interop

FOUR_MIB = 4 * 1024 * 1024
PARTS_OF_A_BATCHED_MESSAGE = 22
"""Its size, magic, checksum, flag, body length and properties length."""


@pytest.fixture(params=["rocketline", "apache"])
def either(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def topic(java: JavaClient, either: Cluster, name: Callable[[str], str]) -> str:
    made = name("T")
    java.create_topic(either.namesrv, made)
    return made


async def test_gathered_messages_are_each_their_own(
    java: JavaClient, either: Cluster, topic: str, name: Callable[[str], str]
) -> None:
    async with Producer(either.namesrv, group=name("pg"), autobatch=AutoBatch(linger_s=0.005)) as producer:
        messages = [
            Message(
                topic,
                b"%d" % number,
                tag=f"t{number % 3}",
                keys=[f"k{number}"],
                properties={"n": str(number)},
                flag=number,
            )
            for number in range(300)
        ]
        receipts = await asyncio.gather(*map(producer.send, messages))
    seen = {found.msg_id: found for found in read_topic(java, either.namesrv, topic, len(messages))}
    assert len(seen) == len(messages)
    for message, receipt in zip(messages, receipts):
        found = seen[receipt.message_id]
        assert (found.body, found.tags, found.flag) == (message.body, message.tag, message.flag)
        assert (found.properties["n"], found.properties["KEYS"]) == (message.properties["n"], message.keys[0])
        assert (found.queue_id, found.queue_offset, found.offset_msg_id) == (
            receipt.queue.queue_id, receipt.queue_offset, receipt.offset_id,
        )  # fmt: skip
    assert java.query_message(either.namesrv, topic, "k7")[0].body == b"7", "each has its place in the index"


@pytest.mark.parametrize("autobatch", [False, True])
async def test_a_sharding_key_has_one_queue_and_keeps_its_order(
    java: JavaClient, either: Cluster, topic: str, name: Callable[[str], str], autobatch: bool
) -> None:
    async with Producer(either.namesrv, group=name("pg"), autobatch=AutoBatch(linger_s=0)) as producer:

        async def one_after_another(key: str) -> list[SendReceipt]:
            return [await producer.send(Message(topic, b"%d" % step, sharding_key=key)) for step in range(5)]

        await asyncio.gather(*(one_after_another(f"order-{number}") for number in range(30)))
    by_key = defaultdict(list)
    for found in read_topic(java, either.namesrv, topic, 30 * 5):
        by_key[found.properties[SHARDING_KEY]].append(found)
    assert len(by_key) == 30
    for key, found in by_key.items():
        assert {one.queue_id for one in found} == {abs(java_string_hash(key)) % 4}
        in_order = sorted(found, key=lambda one: one.queue_offset)
        assert [one.body for one in in_order] == [b"%d" % step for step in range(5)]


async def test_a_batch_of_exactly_four_mebibytes(
    java: JavaClient, either: Cluster, topic: str, name: Callable[[str], str]
) -> None:
    async with Producer(either.namesrv, group=name("pg"), timeout=PATIENCE_S) as producer:
        parts = [Message(topic, b"a" * (1 << 20)) for _ in range(3)]
        with pytest.raises(MessageTooLarge) as caught:
            await producer.send_batch([*parts, Message(topic, b"a" * (1 << 20))])
        over = int(str(caught.value).split(" has ")[1].split()[0]) - FOUR_MIB
        full = [*parts, Message(topic, b"a" * ((1 << 20) - over))]
        receipts = await producer.send_batch(full)
        with pytest.raises(MessageTooLarge, match=f"has {FOUR_MIB + 1} bytes"):
            await producer.send_batch([*parts, Message(topic, b"a" * ((1 << 20) - over + 1))])
    seen = {found.msg_id: len(found.body) for found in read_topic(java, either.namesrv, topic, len(full))}
    assert seen == {receipt.message_id: len(message.body) for receipt, message in zip(receipts, full)}


def test_javas_batch_of_exactly_four_mebibytes(
    java: JavaClient, either: Cluster, topic: str, name: Callable[[str], str]
) -> None:
    """Its client counts what we count: the messages as they travel, each with its properties."""
    with java.producer(either.namesrv, name("pg")) as producer:
        [small] = producer.send_batch([Outgoing(topic, b"a")]).messages
        properties = sum(len(key) + len(value) + 2 for key, value in small.properties.items())
        parts = [Outgoing(topic, b"a" * (1 << 20)) for _ in range(3)]
        left = FOUR_MIB - 4 * (PARTS_OF_A_BATCHED_MESSAGE + properties) - 3 * (1 << 20)
        sent = producer.send_batch([*parts, Outgoing(topic, b"a" * left)])
        with pytest.raises(JavaCallError, match=str(FOUR_MIB)):
            producer.send_batch([*parts, Outgoing(topic, b"a" * (left + 1))])
    assert sent.receipt.status == "SEND_OK"
    seen = {found.msg_id: len(found.body) for found in read_topic(java, either.namesrv, topic, 5)}
    assert seen == dict(zip([small.msg_id, *(each.msg_id for each in sent.messages)], [1] + [1 << 20] * 3 + [left]))
