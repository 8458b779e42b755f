"""SendMessage and RecallMessage."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from typing import Any

from tests.grpc_front.cases import case
from tests.support.grpc_client import calls, defs, message
from tests.support.grpc_front import Front

Code, MessageType = defs.Code, defs.MessageType
DAY_S = 24 * 3600.0


@case
async def c10_a_message_keeps_its_id_and_offsets_rise(front: Front) -> None:
    topic, group = await front.topic(queues=1), await front.group()
    properties = {"colour": "blue", "größe": "ü €"}
    sent = [message(topic, b"%d" % number, properties=properties, tag="t", keys=["a", "b"]) for number in range(3)]
    async with front.consumer(group, topic) as client:
        entries = await client.send_all(sent)
        got = await client.receive_until(group, topic, 3)
    assert [entry.offset for entry in entries] == [0, 1, 2]
    ids = [item.system_properties.message_id for item in sent]
    assert [entry.message_id for entry in entries] == [entry.transaction_id for entry in entries] == ids
    assert [entry.recall_handle for entry in entries] == [""] * 3
    for offset, (before, after) in enumerate(zip(sent, got, strict=True)):
        was, now = before.system_properties, after.system_properties
        assert (after.topic.name, after.body) == (topic, before.body)
        assert (now.message_id, now.tag, list(now.keys)) == (was.message_id, "t", ["a", "b"])
        assert (now.message_type, now.delivery_attempt) == (MessageType.NORMAL, 1)
        assert (now.queue_id, now.queue_offset) == (0, offset)
        assert now.born_timestamp.ToMilliseconds() == was.born_timestamp.ToMilliseconds()
        assert now.born_host == was.born_host
        assert now.store_timestamp.ToMilliseconds() > 0
        assert dict(after.user_properties) == properties


@case
async def c11_messages_of_a_group_lie_in_one_queue_in_order(front: Front) -> None:
    topic, group = await front.topic("FIFO", queues=8), await front.group(orderly=True)
    sent = [message(topic, b"%d" % number, message_group="customer-1") for number in range(10)]
    async with front.consumer(group, topic) as client:
        entries = await client.send_all(sent)
        got: list[Any] = []
        while len(got) < len(sent):  # what is listed late comes in a batch of its own, after those before it
            batch = await client.receive_until(group, topic, 1)
            assert (await client.ack(group, topic, *batch)).status.code == Code.OK
            got += batch
    assert [entry.offset for entry in entries] == list(range(10))
    assert [item.body for item in got] == [item.body for item in sent]
    assert len({item.system_properties.queue_id for item in got}) == 1
    assert {item.system_properties.message_group for item in got} == {"customer-1"}
    assert {item.system_properties.message_type for item in got} == {MessageType.FIFO}


@case
async def c12_a_delayed_message_comes_at_its_time(front: Front) -> None:
    topic, group = await front.topic("DELAY"), await front.group()
    async with front.consumer(group, topic) as client:
        delay_s = 3.0
        while True:
            sent = message(topic, b"later", deliver_in_s=delay_s)
            due_ms = sent.system_properties.delivery_timestamp.ToMilliseconds()
            (entry,) = await client.send_all([sent])
            if time.time() * 1000 < due_ms:
                break
            delay_s *= 2  # the broker may have had it too late to wait for anything
        got = None
        while got is None or got.system_properties.message_id != entry.message_id:
            (got, *_) = await client.receive_until(group, topic, 1, batch=1)
    assert entry.recall_handle
    now = got.system_properties
    assert now.message_id == sent.system_properties.message_id
    assert now.message_type == MessageType.DELAY
    assert now.delivery_timestamp.ToMilliseconds() == due_ms
    assert now.store_timestamp.ToMilliseconds() >= due_ms


@case
async def c13_delays_beyond_the_limit_are_refused_and_the_past_is_now(front: Front) -> None:
    topic, group = await front.topic("DELAY"), await front.group()
    async with front.consumer(group, topic) as client:
        refused = await client.send(message(topic, deliver_in_s=2 * DAY_S))
        assert refused.status.code == Code.ILLEGAL_DELIVERY_TIME
        (entry,) = await client.send_all([message(topic, b"past", deliver_in_s=-60)])
        assert entry.recall_handle == ""
        (got,) = await client.receive_until(group, topic, 1)
    assert got.body == b"past"


@case
async def c14_a_topic_takes_only_messages_of_its_type(front: Front) -> None:
    kinds = {
        "NORMAL": {},
        "FIFO": {"message_group": "g"},
        "DELAY": {"deliver_in_s": 60},
        "TRANSACTION": {"message_type": MessageType.TRANSACTION},
        "PRIORITY": {"priority": 2},
    }
    topics = dict(zip(kinds, await asyncio.gather(*map(front.topic, kinds)), strict=True))
    async with front.client() as client:
        for of_topic, topic in topics.items():
            for of_message, fields in kinds.items():
                answer = await client.send(message(topic, **fields))
                wanted = Code.OK if of_topic == of_message else Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
                assert answer.status.code == wanted, (of_topic, of_message, answer)
        mixed = await front.topic("MIXED")
        (types,) = {tuple(queue.accept_message_types) for queue in (await client.route(mixed)).message_queues}
        assert types == tuple(MessageType.Value(name) for name in ("NORMAL", "FIFO", "DELAY", "TRANSACTION"))
        for fields in kinds.values():  # also one that the route does not name
            assert (await client.send(message(mixed, **fields))).status.code == Code.OK, fields
        unknown = await client.send(message("nobody_made_this_topic"))
        assert unknown.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


@case
async def c14_a_topic_without_a_type_takes_normal_messages(front: Front) -> None:
    """As those are that remoting clients made by a first message."""
    topic = await front.topic(None)
    async with front.client() as client:
        route = await client.route(topic)
        assert {kind for queue in route.message_queues for kind in queue.accept_message_types} == {MessageType.NORMAL}
        assert (await client.send(message(topic))).status.code == Code.OK
        refused = await client.send(message(topic, message_group="g"))
        assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


@case
async def c15_a_body_has_one_byte_to_four_mebibytes(front: Front) -> None:
    topic = await front.topic()
    async with front.client() as client:
        assert (await client.send(message(topic, b""))).status.code == Code.MESSAGE_BODY_EMPTY
        assert (await client.send(message(topic, b"x"))).status.code == Code.OK
        assert (await client.send(message(topic, bytes(4 << 20)))).status.code == Code.OK
        assert (await client.send(message(topic, bytes((4 << 20) + 1)))).status.code == Code.MESSAGE_BODY_TOO_LARGE


@case
async def c16_properties_have_limits_and_reserved_names(front: Front) -> None:
    topic = await front.topic()
    cases = [
        ({str(number): "" for number in range(128)}, Code.OK),
        ({str(number): "" for number in range(129)}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"k": "v" * 16_383}, Code.OK),
        ({"k": "v" * 16_384}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"UNIQ_KEY": "mine"}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"TAGS": "mine"}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"a\x01b": "v"}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"k": "a\nb"}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ]
    async with front.client() as client:
        for properties, wanted in cases:
            answer = await client.send(message(topic, properties=properties))
            assert answer.status.code == wanted, (list(properties.items())[:2], answer)


@case
async def c17_tags_keys_groups_and_ids_have_rules(front: Front) -> None:
    topic, fifo = await front.topic(), await front.topic("FIFO")
    cases = [
        (topic, {"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
        (topic, {"tag": " "}, Code.ILLEGAL_MESSAGE_TAG),
        (topic, {"tag": "a\x01"}, Code.ILLEGAL_MESSAGE_TAG),
        (topic, {"keys": ["a\x02"]}, Code.ILLEGAL_MESSAGE_KEY),
        (topic, {"keys": [" "]}, Code.ILLEGAL_MESSAGE_KEY),
        (topic, {"keys": ["two words"]}, Code.OK),
        (fifo, {"message_group": "g" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
        (fifo, {"message_group": "g" * 63}, Code.OK),
        (fifo, {"message_group": " "}, Code.ILLEGAL_MESSAGE_GROUP),
        (topic, {"message_id": " "}, Code.ILLEGAL_MESSAGE_ID),
        (topic, {"message_id": "abc"}, Code.OK),
        ("bad*topic", {}, Code.ILLEGAL_TOPIC),
        ("rmq_sys_wheel_timer", {}, Code.ILLEGAL_TOPIC),
    ]
    async with front.client() as client:
        for name, fields, wanted in cases:
            answer = await client.send(message(name, **fields))
            assert answer.status.code == wanted, (fields, answer)


@case
async def c18_a_call_has_messages_of_one_topic(front: Front) -> None:
    one, other = await front.topic(), await front.topic()
    async with front.client() as client:
        empty = (await client.send()).status.code
        assert empty == (Code.MESSAGE_CORRUPTED if front.is_ours else Code.UNAUTHORIZED)  # it looks for rights first
        assert (await client.send(message(one), message(other))).status.code == Code.MESSAGE_CORRUPTED


@case
async def c19_each_message_of_a_call_has_its_entry(front: Front) -> None:
    """Apache's proxy answers one entry with an id of its own making, which Java's client refuses."""
    topic, group = await front.topic(), await front.group()
    sent = [message(topic, b"one"), message(topic, b"two")]
    async with front.consumer(group, topic) as client:
        answer = await client.send(*sent)
        got = await client.receive_until(group, topic, 2)
    assert answer.status.code == Code.OK
    if front.is_ours:
        assert [entry.message_id for entry in answer.entries] == [item.system_properties.message_id for item in sent]
        assert {entry.status.code for entry in answer.entries} == {Code.OK}
    else:
        assert len(answer.entries) == 1
    assert sorted(item.body for item in got) == [b"one", b"two"]
    ids = {item.body: item.system_properties.message_id for item in got}
    assert ids == {item.body: item.system_properties.message_id for item in sent}


@case
async def c37_a_delayed_message_can_be_taken_back(front: Front) -> None:
    delayed, normal, group = await front.topic("DELAY"), await front.topic(), await front.group()
    async with front.consumer(group, delayed) as client:
        first, second = await client.send_all(
            [message(delayed, b"taken back", deliver_in_s=10), message(delayed, b"kept", deliver_in_s=11)]
        )
        answer = await client.recall(delayed, first.recall_handle)
        assert (answer.status.code, answer.message_id) == (Code.OK, first.message_id)
        assert (await client.recall(delayed, first.recall_handle)).status.code == Code.OK
        wrong = await client.recall(normal, first.recall_handle)
        assert wrong.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        for garbage in ("", "garbage", "djIgYSBi"):
            assert (await client.recall(delayed, garbage)).status.code != Code.OK, garbage
        (got,) = await client.receive_until(group, delayed, 1)
        assert got.body == b"kept"
        assert got.system_properties.message_id == second.message_id
        assert (await client.receive(group, delayed)).bodies == []


@case
async def c39_a_packed_body_stays_as_it_was_sent(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    packed = gzip.compress(b"much of the same " * 100)
    async with front.consumer(group, topic) as client:
        await client.send_all([message(topic, packed, body_encoding=defs.Encoding.GZIP), message(topic, b"plain")])
        got = await client.receive_until(group, topic, 2)
    encodings = {item.body: item.system_properties.body_encoding for item in got}
    assert encodings == {packed: defs.Encoding.GZIP, b"plain": defs.Encoding.IDENTITY}
    for item in got:
        digest = item.system_properties.body_digest
        assert digest.type == defs.DigestType.MD5
        assert digest.checksum == hashlib.md5(item.body).hexdigest().upper()


@case
async def c39_a_namespace_changes_no_name(front: Front) -> None:
    topic = await front.topic()
    async with front.client() as client:
        sent = message(topic)
        sent.topic.resource_namespace = "ns1"
        assert (await client.send(sent)).status.code == Code.OK
        named = defs.Resource(resource_namespace="ns1", name=topic)
        answer = await client.call("QueryRoute", calls.QueryRouteRequest(topic=named))
    assert answer.status.code == Code.OK
    assert {queue.topic.resource_namespace for queue in answer.message_queues} == {"ns1"}
