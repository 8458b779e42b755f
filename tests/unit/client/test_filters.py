"""Filters of a push consumer: SQL92 expressions, checked before the start, and predicates of its own."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import FakeCluster, until

from rocketline.client import ClientOptions, ClientTiming, ConsumeFrom, Producer, PullConsumer, PushConsumer, Sql
from rocketline.errors import BrokerError, InvalidExpression
from rocketline.message import Message, MessageView
from rocketline.protocol.bodies import decode_body
from rocketline.protocol.bodies.filters import CheckClientBody
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.testing import LocalCluster
from rocketline.transport import Reply


class Inbox:
    def __init__(self) -> None:
        self.bodies: list[str] = []
        self._grown = asyncio.Condition()

    async def __call__(self, message: MessageView) -> None:
        async with self._grown:
            self.bodies.append(message.body.decode())
            self._grown.notify_all()

    async def wait(self, body: str) -> None:
        async with asyncio.timeout(PATIENCE_S), self._grown:
            await self._grown.wait_for(lambda: body in self.bodies)


async def send(namesrv: str, count: int, first: int = 0) -> None:
    """Messages to one queue; the property `n` is their number, `tags` is odd or even."""
    async with Producer(namesrv, group="writers") as producer:
        queues = await producer.queues("orders")
        for number in range(first, first + count):
            tag = ("even", "odd")[number % 2]
            message = Message("orders", str(number).encode(), tag=tag, properties={"n": str(number)})
            await producer.send(message, queue=queues[0])


async def create(cluster: LocalCluster) -> None:
    async with Producer(cluster.namesrv, group="writers") as producer:
        await producer.send(Message("orders", b"first"))


async def test_the_broker_selects_by_properties() -> None:
    inbox = Inbox()
    async with LocalCluster() as cluster:
        await create(cluster)
        await send(cluster.namesrv, 10)
        async with PushConsumer(cluster.namesrv, group="readers", from_where=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe("orders", Sql("n BETWEEN 3 AND 6 OR (TAGS = 'odd' AND n > 8)"), inbox)
            await consumer.start()
            await inbox.wait("9")
            assert inbox.bodies == ["3", "4", "5", "6", "9"]
            await send(cluster.namesrv, 3, first=10)  # while the pull is held
            await inbox.wait("11")
    assert inbox.bodies == ["3", "4", "5", "6", "9", "11"]


@pytest.mark.parametrize(
    ("config", "expression", "code", "named"),
    [
        ({}, "n > 'x'", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "character 3"),
        ({"enablePropertyFilter": False}, "n > 1", ResponseCode.SYSTEM_ERROR, "enablePropertyFilter"),
    ],
)
async def test_an_expression_the_broker_refuses_ends_the_start(
    config: dict[str, object], expression: str, code: int, named: str
) -> None:
    async with LocalCluster(config=config) as cluster:
        await create(cluster)
        async with PushConsumer(cluster.namesrv, group="readers") as consumer:
            consumer.subscribe("orders", Sql(expression), Inbox())
            with pytest.raises(BrokerError, match=named) as caught:
                await consumer.start()
            assert caught.value.code == code
            assert repr(expression) in str(caught.value)
            consumer.subscribe("orders", "*", Inbox())
            await consumer.start()


def test_an_empty_expression_is_refused_at_once() -> None:
    with pytest.raises(InvalidExpression, match="empty"):
        Sql(" \n")


async def test_a_predicate_of_ones_own_chooses_and_the_rest_counts_as_consumed() -> None:
    inbox = Inbox()
    async with LocalCluster() as cluster:
        await create(cluster)
        await send(cluster.namesrv, 10)
        for expected in (["3", "9"], ["3", "9", "13"]):
            async with PushConsumer(cluster.namesrv, group="readers", from_where=ConsumeFrom.FIRST) as consumer:
                consumer.subscribe("orders", "odd", inbox)
                consumer.add_filter(lambda message: message.body.endswith((b"3", b"9")))
                await consumer.start()
                await inbox.wait(expected[-1])
            assert inbox.bodies == expected
            await send(cluster.namesrv, 5, first=10)


async def test_a_predicate_that_fails_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    inbox = Inbox()

    def broken(message: MessageView) -> bool:
        raise KeyError("colour")

    async with LocalCluster() as cluster:
        await create(cluster)
        await send(cluster.namesrv, 1)
        with caplog.at_level(logging.ERROR):
            async with PushConsumer(cluster.namesrv, group="readers", from_where=ConsumeFrom.FIRST) as consumer:
                consumer.subscribe("orders", "even", inbox)
                consumer.add_filter(broken)
                await consumer.start()
                await inbox.wait("0")
    assert "failed; message" in caplog.text
    assert "colour" in caplog.text


async def test_a_pull_consumer_selects_by_properties_too() -> None:
    async with LocalCluster() as cluster:
        await create(cluster)
        await send(cluster.namesrv, 10)
        async with PullConsumer(cluster.namesrv, group="pullers", from_where=ConsumeFrom.FIRST) as consumer:
            await consumer.subscribe("orders", Sql("n > 7"))
            bodies = []
            while len(bodies) < 2:
                bodies += [message.body for message in await consumer.poll(timeout=PATIENCE_S)]
            assert sorted(bodies) == [b"8", b"9"]
            with pytest.raises(BrokerError, match="n >"):
                await consumer.subscribe("orders", Sql("n >"))
        async with PullConsumer(cluster.namesrv, group="readers") as consumer:
            queues = await consumer.queues("orders")
            consumer.assign(queues, Sql("n >"))
            with pytest.raises(BrokerError, match=r"pull of orders@.* with SQL92 'n >': answer 23 from") as caught:
                await consumer.poll(timeout=PATIENCE_S)
            assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            consumer.assign(queues, Sql("n > 8"))
            await consumer.seek(queues[0], 0)
            assert [message.body for message in await consumer.poll(timeout=PATIENCE_S)] == [b"9"]


def allowed(request: Command) -> Reply:
    return request.reply(ResponseCode.SUCCESS)


async def test_the_check_names_client_group_and_expression(cluster: FakeCluster) -> None:
    cluster.add_topic("orders")
    cluster.broker.script(RequestCode.CHECK_CLIENT_CONFIG, allowed)
    async with PushConsumer(cluster.namesrv, group="readers") as consumer:
        consumer.subscribe("orders", Sql("n > 1"), Inbox())
        await consumer.start()
        body = decode_body(CheckClientBody, cluster.broker.requests_of(RequestCode.CHECK_CLIENT_CONFIG)[0].body)
        assert (body.client_id, body.group) == (consumer.client_id, "readers")
        data = body.subscription_data
        assert (data.topic, data.sub_string, data.expression_type) == ("orders", "n > 1", "SQL92")
        pull = await cluster.broker.request(
            RequestCode.PULL_MESSAGE, where=lambda request: request.ext is not None and request.ext["topic"] == "orders"
        )
        assert pull.ext is not None
        assert (pull.ext["expressionType"], "subscription" in pull.ext) == ("SQL92", False)
    codes = [request.code for request in cluster.broker.requests]
    order = (RequestCode.CHECK_CLIENT_CONFIG, RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE)
    assert sorted(order, key=codes.index) == list(order)


async def test_tags_need_no_check(cluster: FakeCluster) -> None:
    cluster.add_topic("orders")
    async with PushConsumer(cluster.namesrv, group="readers") as consumer:
        consumer.subscribe("orders", "a || b", Inbox())
        await consumer.start()
        assert cluster.broker.requests_of(RequestCode.CHECK_CLIENT_CONFIG) == []


async def test_filter_data_that_is_missing_is_brought_by_another_heartbeat(cluster: FakeCluster) -> None:
    cluster.add_topic("orders", queues=1)
    cluster.broker.script(RequestCode.CHECK_CLIENT_CONFIG, allowed)
    cluster.broker.script(RequestCode.PULL_MESSAGE, *[ResponseCode.FILTER_DATA_NOT_EXIST] * 2)
    async with PushConsumer(
        cluster.namesrv, group="readers", options=ClientOptions(timing=ClientTiming(pull_retry_s=0.01))
    ) as consumer:
        consumer.subscribe("orders", Sql("n > 1"), Inbox())
        await consumer.start()
        before = len(cluster.broker.requests_of(RequestCode.HEART_BEAT))
        await cluster.broker.request(RequestCode.PULL_MESSAGE, count=3)
        await until(lambda: len(cluster.broker.requests_of(RequestCode.HEART_BEAT)) >= before + 1, "a heartbeat")


async def test_nothing_is_pulled_from_a_broker_too_old_for_sql(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_topic("orders")
    cluster.broker.script(RequestCode.CHECK_CLIENT_CONFIG, allowed)

    def old_answer(request: Command) -> Reply:
        answer = cluster.broker._heartbeat(request)
        assert isinstance(answer, Command)
        answer.version = 231
        return answer

    cluster.broker.on[RequestCode.HEART_BEAT] = old_answer
    with caplog.at_level(logging.WARNING):
        async with PushConsumer(
            cluster.namesrv, group="readers", options=ClientOptions(timing=ClientTiming(pull_retry_s=0.01))
        ) as consumer:
            consumer.subscribe("orders", Sql("n > 1"), Inbox())
            await consumer.start()
            await until(lambda: "has version 231 and cannot filter by SQL92" in caplog.text, "the refusal")
            pulls = cluster.broker.requests_of(RequestCode.PULL_MESSAGE)
            assert [pull for pull in pulls if pull.ext is not None and pull.ext["topic"] == "orders"] == []
