"""The broker for FastStream: on a real cluster, and with the test broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest
from fastapi import Body, Depends, FastAPI
from faststream import AckPolicy, BaseMiddleware, FastStream
from faststream.exceptions import IncorrectState, NackMessage, RejectMessage, StopConsume, SubscriberNotFound
from faststream.specification import AsyncAPI
from faststream_fastapi import FastStreamAPI
from pydantic import BaseModel
from tests.support.patience import PATIENCE_S

from rocketline import ConsumeFrom
from rocketline.adapters.faststream import RocketBroker, RocketMessage, RocketResponse, RocketRouter, TestRocketBroker
from rocketline.adapters.faststream.publishing import SendAs
from rocketline.admin import Admin
from rocketline.client import PullConsumer, Sql
from rocketline.errors import ConfigError, NoReply
from rocketline.message import MessageView

AT = datetime(2030, 1, 1, tzinfo=UTC)


class Order(BaseModel):
    id: int
    price: float = 1.0


@dataclass
class Invoice:
    order: int
    text: str


def currency() -> str:
    return "EUR"


class Seen(list[Any]):
    """What handlers got, and a wait for so much of it."""

    def __init__(self) -> None:
        super().__init__()
        self._grown = asyncio.Event()

    def append(self, item: Any) -> None:
        super().append(item)
        self._grown.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self) < count:
                self._grown.clear()
                await self._grown.wait()


@asynccontextmanager
async def started(broker: RocketBroker) -> AsyncIterator[RocketBroker]:
    async with broker:
        await broker.start()
        yield broker


async def test_models_travel_through_a_subscriber_and_its_publisher(namesrv: str) -> None:
    broker, seen = RocketBroker(namesrv, logger=None), Seen()
    first = ConsumeFrom.FIRST

    @broker.subscriber("fs-orders", group="fs-billing", tag="created || paid", from_where=first)
    @broker.publisher("fs-invoices", tag="new", headers={"origin": "billing"})
    async def bill(order: Order) -> Invoice:
        return Invoice(order.id, f"{order.price:.2f}")

    @broker.subscriber("fs-invoices", group="fs-post", from_where=first)
    def post(invoice: Invoice, message: RocketMessage) -> None:
        seen.append((invoice, message.view.tag, message.headers["origin"], message.correlation_id))

    async with started(broker):
        assert await broker.ping()
        receipt = await broker.publish(Order(id=1), "fs-orders", tag="cancelled")
        assert receipt.queue.topic == "fs-orders"
        await broker.publish(Order(id=2, price=2.5), "fs-orders", tag="paid", keys=["2"], correlation_id="c2")
        await seen.until(1)
    assert seen == [(Invoice(2, "2.50"), "new", "billing", "c2")]
    assert not await broker.ping()
    with pytest.raises(IncorrectState):
        await broker.publish(b"x", "fs-orders")


@pytest.mark.parametrize(
    ("policy", "error", "runs", "dead"),
    [
        ("nack_on_error", NackMessage(delay_level=1), 2, False),
        ("nack_on_error", RejectMessage(), 1, True),
        ("reject_on_error", ValueError("bad"), 1, True),
        ("ack", ValueError("bad"), 1, False),
        ("manual", None, 2, False),
    ],
    ids=["nack", "reject", "reject on error", "ack on error", "manual"],
)
async def test_acknowledgement(
    namesrv: str, policy: str, error: Exception | None, runs: int, dead: bool, request: pytest.FixtureRequest
) -> None:
    """What fails comes again or goes to the dead letters; a second message shows that the first is settled."""
    broker, seen = RocketBroker(namesrv, logger=None), Seen()
    topic = "fs-ack-" + request.node.callspec.id.replace(" ", "-")

    @broker.subscriber(topic, group=f"{topic}-g", from_where=ConsumeFrom.FIRST, ack_policy=AckPolicy(policy))
    async def handle(body: str, message: RocketMessage) -> None:
        if body == "next":
            await message.ack()
            seen.append("next")
            return
        seen.append(message.view.reconsume_times)
        if policy == "manual":
            await (message.nack(delay_level=1) if message.view.reconsume_times == 0 else message.ack())
        if error is not None and message.view.reconsume_times == 0:
            raise error

    async with started(broker):
        await broker.publish("fails", topic)
        await seen.until(runs)
        await broker.publish("next", topic)
        await seen.until(runs + 1)
    assert seen == [*range(runs), "next"]
    async with Admin(namesrv) as admin:
        (server,) = await admin.brokers()
        assert (f"%DLQ%{topic}-g" in await server.topics()) is dead


async def test_in_order_those_behind_a_failure_wait_for_it(namesrv: str) -> None:
    broker, seen = RocketBroker(namesrv, logger=None), Seen()

    @broker.subscriber("fs-steps", group="fs-steps-g", from_where=ConsumeFrom.FIRST, ordered=True, max_workers=4)
    async def handle(step: int, message: RocketMessage) -> None:
        seen.append((step, message.view.reconsume_times))
        if step == 1 and message.view.reconsume_times == 0:
            raise NackMessage

    async with started(broker):
        for step in range(3):
            await broker.publish(step, "fs-steps", sharding_key="k")
        await seen.until(4)
    assert seen == [(0, 0), (1, 0), (1, 1), (2, 0)]


async def test_a_list_is_acknowledged_as_a_whole_and_never_a_reply(namesrv: str) -> None:
    broker, seen = RocketBroker(namesrv, logger=None), Seen()
    first = ConsumeFrom.FIRST

    @broker.subscriber("fs-lists", group="fs-lists-g", from_where=first, batch=True, max_records=4)
    @broker.publisher("fs-sums")
    async def add(orders: list[Order], message: RocketMessage) -> int:
        assert [view.properties["content-type"] for view in message.views] == ["application/json"] * len(orders)
        assert [headers["region"] for headers in message.batch_headers] == ["eu"] * len(orders)
        if message.view.reconsume_times == 0:
            raise NackMessage(delay_level=1)
        seen.append(len(orders))
        return sum(order.id for order in orders)

    @broker.subscriber("fs-sums", group="fs-sums-g", from_where=first)
    async def total(number: int) -> None:
        seen.append({number})

    def sums() -> list[int]:
        return [number for item in seen if isinstance(item, set) for number in item]

    async with started(broker):
        await broker.publish_batch(
            *(Order(id=number) for number in range(9)), topic="fs-lists", headers={"region": "eu"}
        )
        while sum(sums()) < sum(range(9)):
            await seen.until(len(seen) + 1)
    counts = [item for item in seen if isinstance(item, int)]
    assert sum(counts) == 9
    assert max(counts) <= 4
    assert sum(sums()) == sum(range(9))


async def test_a_returned_list_is_published_one_by_one(namesrv: str) -> None:
    """In as many requests as it needs, into one queue, so in order; nothing for an empty list."""
    broker, seen = RocketBroker(namesrv, logger=None), Seen()
    first, sizes = ConsumeFrom.FIRST, {"empty": 0, "few": 3, "many": 6}

    @broker.subscriber("fs-asked", group="fs-asked-g", from_where=first)
    @broker.publisher("fs-pieces", batch=True, tag="piece", sharding_key="k")
    async def cut(what: str, message: RocketMessage) -> list[str] | RocketResponse:
        pieces = [f"{number} {'x' * 300_000}" for number in range(sizes[what])]
        return RocketResponse(pieces, keys=("few",)) if what == "few" else pieces

    @broker.subscriber("fs-pieces", group="fs-pieces-g", from_where=first, tag="piece", ordered=True)
    async def one(piece: str, message: RocketMessage) -> None:
        seen.append((message.view.keys, int(piece.split()[0])))

    async with started(broker):
        for what in sizes:
            await broker.publish(what, "fs-asked")
            await seen.until(len(seen) + sizes[what])
    assert seen == [*((("few",), number) for number in range(3)), *(((), number) for number in range(6))]


async def test_a_publisher_takes_lists_by_hand() -> None:
    broker = RocketBroker()
    publisher = broker.publisher("mail", headers={"origin": "eu"})

    @broker.subscriber("mail", group="post")
    async def post(body: str, message: RocketMessage) -> None:
        assert message.headers["origin"] == "eu"

    async with TestRocketBroker(broker):
        await publisher.publish_batch("one", "two")
        assert [call.args for call in publisher.mock.call_args_list] == [("one",), ("two",)]


@pytest.mark.parametrize("when", [{"delay_level": 1}, {"delay": timedelta(5)}, {"deliver_at": AT}])
def test_lists_and_delays_do_not_go_together(when: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="delay"):
        RocketBroker().publisher("mail", batch=True, **when)


async def test_request_and_reply(namesrv: str) -> None:
    broker = RocketBroker(namesrv, logger=None)

    @broker.subscriber("fs-double", group="fs-double-g", from_where=ConsumeFrom.FIRST, max_workers=2)
    async def double(number: int) -> RocketResponse | None:
        return RocketResponse(2 * number, headers={"by": "double"}) if number else None

    @broker.subscriber("fs-silent", group="fs-silent-g", no_reply=True)
    async def silent(number: int) -> int:
        return number

    async with started(broker):
        reply = await broker.request(21, "fs-double", timeout=PATIENCE_S)
        assert (await reply.decode(), reply.headers["by"]) == (42, "double")
        assert await (await broker.publisher("fs-double").request(0, timeout=PATIENCE_S)).decode() is None
        with pytest.raises(NoReply):
            await broker.request(1, "fs-silent", timeout=2.0)


@pytest.mark.parametrize(
    ("of_response", "sent"),
    [
        ({}, {"tag": "p", "keys": ("k",), "sharding_key": "s", "delay_level": 3}),
        ({"tag": "r"}, {"tag": "r", "keys": ("k",), "sharding_key": "s", "delay_level": 3}),
        ({"tag": ""}, {"tag": "", "keys": ("k",), "sharding_key": "s", "delay_level": 3}),
        ({"keys": ["r"]}, {"tag": "p", "keys": ["r"], "sharding_key": "s", "delay_level": 3}),
        ({"sharding_key": "r"}, {"tag": "p", "keys": ("k",), "sharding_key": "r", "delay_level": 3}),
        ({"delay_level": 1}, {"tag": "p", "keys": ("k",), "sharding_key": "s", "delay_level": 1}),
        ({"deliver_at": AT}, {"tag": "p", "keys": ("k",), "sharding_key": "s", "deliver_at": AT}),
        ({"delay": timedelta(5)}, {"tag": "p", "keys": ("k",), "sharding_key": "s", "delay": timedelta(5)}),
    ],
)
async def test_a_response_says_more_and_leaves_the_rest_to_the_publisher(
    of_response: dict[str, Any], sent: dict[str, Any]
) -> None:
    broker, seen = RocketBroker(), []

    class Watch(BaseMiddleware):
        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            if cmd.destination == "out":
                seen.append(cmd.send_as)
            return await call_next(cmd)

    broker.add_middleware(Watch)

    @broker.subscriber("in", group="g")
    @broker.publisher("out", tag="p", keys=("k",), sharding_key="s", delay_level=3)
    async def handle(body: str) -> RocketResponse:
        return RocketResponse(body, **of_response)

    async with TestRocketBroker(broker) as tested:
        await tested.publish("x", "in")
    assert seen == [SendAs(**sent)]


async def test_times_tags_and_keys_of_published_messages_are_stored(namesrv: str) -> None:
    broker = RocketBroker(namesrv, logger=None)
    async with started(broker):
        receipt = await broker.publish("later", "fs-later", deliver_at=datetime.now(UTC) + timedelta(hours=1))
        assert receipt.recall_handle
        receipt = await broker.publish("later", "fs-later", delay=timedelta(hours=1))
        assert receipt.recall_handle
        await broker.publish_batch("one", "two", topic="fs-tagged", tag="t", keys=["k1", "k2"])
    async with PullConsumer(namesrv, group="fs-tagged-g", from_where=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe("fs-tagged", "t")
        found: list[MessageView] = []
        while len(found) < 2:
            found += await consumer.poll()
    assert {(message.tag, *message.keys) for message in found} == {("t", "k1", "k2")}


async def test_a_handler_can_stop_its_subscriber(namesrv: str) -> None:
    broker, seen = RocketBroker(namesrv, logger=None), Seen()
    subscriber = broker.subscriber("fs-stop", group="fs-stop-g", from_where=ConsumeFrom.FIRST)

    @subscriber
    async def stop(body: str) -> None:
        seen.append(body)
        raise StopConsume

    async with started(broker):
        await broker.publish("one", "fs-stop")
        await seen.until(1)
    assert not subscriber.running
    assert seen == ["one"]


async def test_reading_by_hand_through_a_router_and_middleware(namesrv: str) -> None:
    sent: list[str] = []

    class Watch(BaseMiddleware):
        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            sent.append(cmd.destination)
            return await call_next(cmd)

    router = RocketRouter("fs-")
    subscriber = router.subscriber("hand", group="fs-hand-g", from_where=ConsumeFrom.FIRST)
    publisher = router.publisher("hand")
    broker = RocketBroker(namesrv, logger=logging.getLogger("fs-tests"), routers=[router], middlewares=[Watch])
    async with started(broker):
        receipts = await broker.publish_batch("one", "two", topic="fs-hand")
        assert len(receipts) == 2
        await publisher.publish("three")
        found = await subscriber.get_one(timeout=PATIENCE_S)
        assert found is not None
        got = [await found.decode()]
        async for message in subscriber:
            got.append(await message.decode())
            if len(got) == 3:
                break
    assert sorted(got) == ["one", "three", "two"]
    assert sent == ["fs-hand", "fs-hand"]


async def test_the_test_broker_selects_as_a_cluster_does() -> None:
    broker = RocketBroker()
    publisher = broker.publisher("mail")

    @broker.subscriber("orders", group="a", tag="paid || sent")
    @publisher
    async def paid(order: Order) -> str:
        return f"paid {order.id}"

    @broker.subscriber("orders", group="b", tag=Sql("region = 'eu'"))
    async def european(order: Order) -> int:
        return order.id

    @broker.subscriber("orders", group="b", tag=Sql("region = 'eu'"))
    async def same_group(order: Order) -> None:
        pass

    @broker.subscriber("fails", group="a")
    async def fails(body: str) -> None:
        raise ValueError(body)

    async with TestRocketBroker(broker) as tested:
        await tested.publish(Order(id=1), "orders", tag="paid")
        paid.mock.assert_called_once_with({"id": 1, "price": 1.0})
        publisher.mock.assert_called_once_with("paid 1")
        await tested.publish_batch(Order(id=2), Order(id=3), topic="orders", headers={"region": "eu"})
        assert european.mock.call_count + same_group.mock.call_count == 2
        assert paid.mock.call_count == 1
        reply = await tested.request(Order(id=4), "orders", tag="sent")
        assert await reply.decode() == "paid 4"
        with pytest.raises(ValueError, match="reaches the test"):
            await tested.publish("reaches the test", "fails")
        with pytest.raises(SubscriberNotFound):
            await tested.request(b"x", "nowhere")


async def test_the_test_broker_gives_lists() -> None:
    broker = RocketBroker()

    @broker.subscriber("orders", group="lists", batch=True, max_records=2)
    async def several(orders: list[Order]) -> None: ...

    @broker.subscriber("orders", group="single")
    async def one(order: Order) -> int:
        return order.id

    async with TestRocketBroker(broker) as tested:
        await tested.publish(Order(id=1), "orders")
        several.mock.assert_called_once_with([{"id": 1, "price": 1.0}])
        await tested.publish_batch(*(Order(id=number) for number in (2, 3, 4)), topic="orders")
        assert [len(call.args[0]) for call in several.mock.call_args_list] == [1, 2, 1]
        assert one.mock.call_count == 4
        reply = await tested.request(Order(id=5), "orders")
        assert await reply.decode() == 5
        assert several.mock.call_count == 3


async def test_a_fastapi_application_starts_the_broker_and_gives_its_dependencies(namesrv: str) -> None:
    """With the package that FastStream names for this: no code of ours."""
    broker, seen = RocketBroker(namesrv, logger=None), Seen()

    @broker.subscriber("fs-web", group="fs-web-g", from_where=ConsumeFrom.FIRST)
    async def bill(order: Annotated[Order, Body()], money: Annotated[str, Depends(currency)]) -> None:
        seen.append((order.id, money))

    application = FastAPI()
    application.dependency_overrides[currency] = lambda: "CNY"
    server = FastStreamAPI(broker, application=application, safe_connection=True)
    asked: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    said: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    scope = {"type": "lifespan", "state": {}}
    running = asyncio.create_task(server(scope, asked.get, said.put))  # type: ignore[arg-type]
    async with asyncio.timeout(PATIENCE_S):
        await asked.put({"type": "lifespan.startup"})
        assert await said.get() == {"type": "lifespan.startup.complete"}
        await broker.publish(Order(id=1), "fs-web")
        await seen.until(1)
        await asked.put({"type": "lifespan.shutdown"})
        assert await said.get() == {"type": "lifespan.shutdown.complete"}
        await running
    assert seen == [(1, "CNY")]
    assert not await broker.ping()


def test_schema() -> None:
    broker = RocketBroker(["a:9876", "b:9876"], description="orders and invoices")

    @broker.subscriber("orders", group="billing", description="bills")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice: ...

    schema = FastStream(broker, specification=AsyncAPI(schema_version="2.6.0")).schema.to_specification().to_jsonable()
    assert {server["url"] for server in schema["servers"].values()} == {"rocketmq://a:9876", "rocketmq://b:9876"}
    assert set(schema["channels"]) == {"orders:Bill", "invoices:Publisher"}
    assert set(schema["components"]["schemas"]) >= {"Order", "Invoice"}


def test_schema_of_asyncapi_3() -> None:
    broker = RocketBroker(["a:9876"], description="orders")

    @broker.subscriber("orders", group="billing")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice: ...

    schema = FastStream(broker, specification=AsyncAPI(schema_version="3.0.0")).schema.to_specification().to_jsonable()
    assert schema["asyncapi"] == "3.0.0"
    assert {(server["host"], server["protocol"]) for server in schema["servers"].values()} == {("a:9876", "rocketmq")}
    assert {channel["address"] for channel in schema["channels"].values()} == {"orders", "invoices"}
    assert {(found["action"], found["channel"]["$ref"].split("/")[2]) for found in schema["operations"].values()} == {
        ("receive", name) if channel["address"] == "orders" else ("send", name)
        for name, channel in schema["channels"].items()
    }
    assert set(schema["components"]["schemas"]) >= {"Order", "Invoice"}
