"""Objects as bodies: what is sent, what handlers get, and what becomes of messages that cannot be read."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest
from tests.unit.client.fakes import QUICK_OPTIONS, FakeCluster, until

from rocketline.client import ConsumeFrom, Producer, PushConsumer, blocking, decode
from rocketline.client.consumer.push.handlers import Handler, RetryLater
from rocketline.client.serializers import encoder
from rocketline.errors import ConfigError, InvalidBody, UnreadableBody
from rocketline.message import Message, MessageView
from rocketline.protocol.codes import RequestCode
from rocketline.testing import LocalCluster

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


@dataclass
class Order:
    id: int


class Paid(msgspec.Struct):
    id: int


class Line(TypedDict):
    id: int


def shout(text: str) -> bytes:
    return text.upper().encode()


def view(body: bytes) -> MessageView:
    return MessageView("T", body, {"UNIQ_KEY": "ID7"}, 0, 0, 0, 0, "", 0, "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("serializer", "body", "sent"),
    [
        (None, b"x", b"x"),
        (None, bytearray(b"x"), b"x"),
        (None, memoryview(b"xyz")[::2], b"xz"),
        ("json", b"as it is", b"as it is"),
        ("json", {"id": 1, "name": "ü"}, '{"id":1,"name":"ü"}'.encode()),
        ("json", "text", b'"text"'),
        ("json", Order(1), b'{"id":1}'),
        (Order, Order(1), b'{"id":1}'),
        (Paid, Paid(1), b'{"id":1}'),
        (shout, "text", b"TEXT"),
    ],
)
def test_bodies_become_bytes(serializer: Any, body: Any, sent: bytes) -> None:
    message = encoder(serializer)(Message("T", body, tag="t", properties={"a": "b"}))
    assert message == Message("T", sent, tag="t", properties={"a": "b"})
    assert type(message.body) is bytes


@pytest.mark.parametrize(
    ("serializer", "body", "error"),
    [
        (None, "text", r"topic 'T' is of type str: encode it, text\.encode\(\), or give the producer a serializer"),
        (None, {}, "topic 'T' is of type dict: bytes are needed"),
        ("json", object(), "topic 'T' with keys k1 k2, of type object, cannot be written as JSON: TypeError"),
        (Order, Paid(1), "of type Paid, cannot be written as Order: TypeError: Order is needed"),
        (shout, 5, "of type int, cannot be written as shout: AttributeError"),
        (str.upper, "x", "was written by str.upper as str: bytes are needed"),
    ],
)
def test_what_cannot_be_written_is_named(serializer: Any, body: Any, error: str) -> None:
    with pytest.raises(InvalidBody, match=error) as caught:
        encoder(serializer)(Message("T", body, keys=["k1", "k2"]))
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("deserializer", "body", "value"),
    [
        ("json", b'{"id":1}', {"id": 1}),
        (Order, b'{"id":1}', Order(1)),
        (Paid, b'{"id":1}', Paid(1)),
        (Line, b'{"id":1}', {"id": 1}),
        (list[Order], b'[{"id":1}]', [Order(1)]),
        (json.loads, b"[1]", [1]),
        (bytes.decode, b"text", "text"),
    ],
)
def test_bodies_become_objects(deserializer: Any, body: bytes, value: object) -> None:
    assert decode(view(body), deserializer) == value


@pytest.mark.parametrize(
    ("deserializer", "name"), [("json", "JSON"), (Order, "Order"), (list[Order], "list"), (json.loads, "loads")]
)
def test_what_cannot_be_read_is_named(deserializer: Any, name: str) -> None:
    with pytest.raises(UnreadableBody, match=rf"message ID7 of topic 'T' cannot be read as {name}.*Error"):
        decode(view(b"{"), deserializer)


@pytest.mark.parametrize("wrong", ["xml", 5])
def test_other_serializers_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="'json', a class or a function is needed"):
        Producer("127.0.0.1:1", group="g", serializer=wrong)
    with pytest.raises(ConfigError, match="'json', a type or a function is needed"):
        decode(view(b"{}"), wrong)


async def test_every_way_to_send_takes_objects(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    for options in ({}, {"autobatch": True}):
        made = Producer(cluster.namesrv, group="shop", serializer="json", options=QUICK_OPTIONS, **options)  # type: ignore[arg-type]
        async with made as producer:
            await producer.send(Message("T", Order(1)))
            await producer.send(Message("T", Order(1), sharding_key="k"))
            await producer.send_oneway(Message("T", Order(1)))
            await (await producer.submit(Message("T", Order(1))))
            await producer.send_batch([Message("T", Order(1))])
            await until(lambda: len(cluster.broker.requests_of(*SENDS)) == 5)
        assert all(b'{"id":1}' in request.body for request in cluster.broker.requests_of(*SENDS))
        cluster.broker.requests.clear()


def test_the_blocking_producer_takes_objects() -> None:
    with LocalCluster() as cluster, blocking.Producer(cluster.namesrv, group="shop", serializer=Order) as producer:
        for _ in range(3):  # the first by the loop, the others by the calling thread
            receipt = producer.send(Message("orders", Order(7)))
        with pytest.raises(InvalidBody, match="Order is needed"):
            producer.send(Message("orders", {"id": 7}))
        with blocking.PullConsumer(cluster.namesrv, group="g") as consumer:
            consumer.assign([receipt.queue])
            consumer.seek(receipt.queue, receipt.queue_offset)
            (message,) = consumer.poll(1, timeout=60.0)
        assert decode(message, Order) == Order(7)


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("in_thread", [True, False])
async def test_a_message_that_cannot_be_read_fails_alone(
    cluster: FakeCluster, batch_size: int, in_thread: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_topic("T", 1)
    for number, body in enumerate((b'{"id":1}', b"not JSON", b'{"id":3}'), 1):
        cluster.broker.store("T", 0, body, {"UNIQ_KEY": f"ID{number}"})
    got: list[tuple[Any, Any]] = []

    def plain(orders: Any, messages: Any) -> None:
        got.extend(zip(orders, messages, strict=True) if batch_size > 1 else [(orders, messages)])

    async def on_loop(orders: Any, messages: Any) -> None:
        plain(orders, messages)

    async with PushConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, batch_size=batch_size, options=QUICK_OPTIONS
    ) as consumer:
        consumer.subscribe("T", plain if in_thread else on_loop, deserializer=Order)
        await consumer.start()
        await until(lambda: len(cluster.broker.sent_back) == 1 and len(got) == 2)
    assert [(order, json.loads(message.body)["id"]) for order, message in sorted(got, key=lambda item: item[0].id)] == [
        (Order(1), 1),
        (Order(3), 3),
    ]
    assert cluster.broker.sent_back[0].origin_msg_id == "ID2"
    (line,) = [record for record in caplog.records if "cannot be read as Order" in record.getMessage()]
    assert line.levelname == "WARNING" and line.exc_info is None


async def test_what_cannot_be_read_comes_again_when_a_handler_names_others_that_failed() -> None:
    later = RetryLater("soon", delay_level=5, messages=[])

    def handle(orders: list[Order], messages: list[MessageView]) -> None:
        later.messages = tuple(messages[1:])
        raise later

    handler = Handler(handle, takes_list=True, deserializer=Order, in_order=False)
    batch = [view(b'{"id":1}'), view(b"not JSON"), view(b'{"id":2}')]
    with ThreadPoolExecutor(1) as executor, pytest.raises(RetryLater) as raised:
        await handler(batch, executor)
    assert {message.body for message in raised.value.messages or ()} == {b"not JSON", b'{"id":2}'}
    assert raised.value.delay_level == 5
    assert later.messages == (batch[2],), "it is the handler's own, and may be raised again"


async def test_in_order_nothing_of_a_list_is_handled_before_all_can_be_read() -> None:
    got: list[list[Order]] = []

    def handle(orders: list[Order], messages: list[MessageView]) -> None:
        got.append(orders)

    handler = Handler(handle, takes_list=True, deserializer=Order, in_order=True)
    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(UnreadableBody, match="ID7"):
            await handler([view(b'{"id":1}'), view(b"not JSON")], executor)
        assert not got
        await handler([view(b'{"id":1}'), view(b'{"id":2}')], executor)
    assert got == [[Order(1), Order(2)]]
