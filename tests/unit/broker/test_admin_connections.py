"""Who is connected, as operators see it."""

from __future__ import annotations

from tests.unit.broker.parts import Parts, heartbeat

from rocketline.protocol.bodies import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    decode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command


async def test_the_members_of_a_consumer_group(parts: Parts) -> None:
    beat = heartbeat("me@1", subscriptions={"orders": "a"}, model="BROADCASTING")
    beat.language, beat.version = "GO", 400
    parts.peer(("192.0.2.7", 5000)).ask(beat)
    answer = parts.peer().ask(Command(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "readers"}))
    body = decode_body(ConsumerConnection, answer.body)
    assert body.connection_set == [ClientConnection("me@1", "192.0.2.7:5000", "GO", 400)]
    assert (body.consume_type, body.message_model) == ("CONSUME_PASSIVELY", "BROADCASTING")
    assert body.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    assert {topic: item.sub_string for topic, item in body.subscription_table.items()} == {"orders": "a"}


async def test_a_group_without_members(parts: Parts) -> None:
    answer = parts.peer().ask(Command(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "readers"}))
    assert (answer.code, answer.remark) == (
        ResponseCode.CONSUMER_NOT_ONLINE,
        "the consumer group[readers] not online",
    )
    answer = parts.peer().ask(Command(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "makers"}))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the producer group[makers] not exist")


async def test_producers_of_one_group_and_of_all(parts: Parts) -> None:
    parts.peer(("192.0.2.7", 5000)).ask(heartbeat("me@1", None, producers=("makers", "others")))
    seen_ms = parts.clock.now_ms()
    parts.clock.advance(7)
    peer = parts.peer()
    answer = peer.ask(Command(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "makers"}))
    (connection,) = decode_body(ProducerConnection, answer.body).connection_set
    assert (connection.client_id, connection.client_addr) == ("me@1", "192.0.2.7:5000")
    table = decode_body(ProducerTable, peer.ask(Command(RequestCode.GET_ALL_PRODUCER_INFO)).body).data
    assert set(table) == {"makers", "others"}
    assert table["makers"] == [ProducerInfo("me@1", "/192.0.2.7:5000", "PYTHON", 493, seen_ms)]
