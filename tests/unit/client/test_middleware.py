"""A function round every request of a client."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, FakeCluster, until

from rocketline.client import ClientOptions, ConsumeFrom, Producer, PullConsumer, PushConsumer
from rocketline.client.middleware import Proceed
from rocketline.errors import ClientError, ConfigError, RocketlineError, SendFailed
from rocketline.message import Message, MessageView
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.transport import RemotingClient

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
BEAT = RequestCode.HEART_BEAT
SEND = RequestCode.SEND_MESSAGE_V2
PULL = RequestCode.PULL_MESSAGE
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


class Recorder:
    """Passes everything on and remembers it."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str, int | None]] = []

    async def __call__(self, address: str, request: Command, proceed: Proceed) -> Command | None:
        answer = await proceed(request)
        self.seen.append((request.code, address, answer.code if answer is not None else None))
        return answer


async def test_every_request_to_name_servers_and_brokers_passes_through_it(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    recorder, got = Recorder(), asyncio.Event()

    async def handle(message: MessageView) -> None:
        got.set()

    options = ClientOptions(instance_name="i", timing=QUICK, middleware=recorder)
    async with (
        Producer(cluster.namesrv, group="p", options=options) as producer,
        PushConsumer(cluster.namesrv, group="c", from_where=ConsumeFrom.FIRST, options=options) as consumer,
    ):
        await producer.send(Message("T", b"x"))
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        await got.wait()
        await producer.send_oneway(Message("T", b"y"))
    assert (ROUTE, cluster.namesrv, 0) in recorder.seen
    assert {(BEAT, cluster.broker.address, 0), (PULL, cluster.broker.address, 0)} <= set(recorder.seen)
    assert (SEND, cluster.broker.address, None) in recorder.seen, "a one-way request has no answer"
    assert (SEND, cluster.broker.address, 0) in recorder.seen


async def test_it_may_change_a_request_and_ask_again(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.script(SEND, 1)

    async def signed(address: str, request: Command, proceed: Proceed) -> Command | None:
        request.ext = {**(request.ext or {}), "Signature": "s"}
        answer = await proceed(request)
        return await proceed(request) if answer is not None and answer.code == 1 else answer

    async with Producer(
        cluster.namesrv, group="p", retries=0, options=ClientOptions(timing=QUICK, middleware=signed)
    ) as producer:
        await producer.send(Message("T", b"x"))
    sends = cluster.broker.requests_of(SEND)
    assert [(request.ext or {})["Signature"] for request in sends] == ["s", "s"]
    assert len({request.opaque for request in sends}) == 2


async def test_it_may_refuse(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)

    async def closed(address: str, request: Command, proceed: Proceed) -> Command | None:
        if request.code == SEND:
            raise ClientError("not after midnight")
        return await proceed(request)

    async with Producer(
        cluster.namesrv, group="p", retries=0, options=ClientOptions(timing=QUICK, middleware=closed)
    ) as producer:
        with pytest.raises(RocketlineError, match="not after midnight"):
            await producer.send(Message("T", b"x"))
    assert not cluster.broker.requests_of(SEND)


@pytest.mark.parametrize("fault", ["raises", "returns nothing"])
async def test_a_broken_one_is_named_and_hurts_only_its_own_client(cluster: FakeCluster, fault: str) -> None:
    cluster.add_topic("T", 1)

    async def broken(address: str, request: Command, proceed: Proceed) -> Command | None:
        if request.code == SEND and fault == "raises":
            raise ZeroDivisionError("a bug")
        answer = await proceed(request)
        return None if request.code == SEND else answer

    async with (
        Producer(
            cluster.namesrv, group="p", retries=0, options=ClientOptions(timing=QUICK, middleware=broken)
        ) as producer,
        Producer(cluster.namesrv, group="q", options=QUICK_OPTIONS) as other,
    ):
        with pytest.raises((ClientError, SendFailed), match=r"middleware .*broken"):
            await producer.send(Message("T", b"x"))
        await other.send(Message("T", b"y"))


async def test_clients_of_one_id_have_the_same(cluster: FakeCluster) -> None:
    first, second = Recorder(), Recorder()
    async with PullConsumer(
        cluster.namesrv, group="a", options=ClientOptions(instance_name="i", timing=QUICK, middleware=first)
    ):
        with pytest.raises(ConfigError, match="own instance_name"):
            async with PullConsumer(
                cluster.namesrv, group="b", options=ClientOptions(instance_name="i", timing=QUICK, middleware=second)
            ):
                pass
    with pytest.raises(TypeError, match="must be an async function"):
        async with Producer(cluster.namesrv, group="p", options=ClientOptions(timing=QUICK, middleware="x")):  # type: ignore[arg-type]
            pass


async def test_without_one_nothing_stands_between(cluster: FakeCluster) -> None:
    async with Producer(cluster.namesrv, group="p", options=QUICK_OPTIONS) as producer:
        assert type(producer._open_session.remoting) is RemotingClient


async def test_a_consumer_goes_on_when_its_middleware_fails_now_and_then(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    got: list[bytes] = []
    failures = 2

    async def shaky(address: str, request: Command, proceed: Proceed) -> Command | None:
        nonlocal failures
        if request.code == PULL and failures:
            failures -= 1
            raise OSError("no signature today")
        return await proceed(request)

    async def handle(message: MessageView) -> None:
        got.append(message.body)

    cluster.broker.store("T", 0, b"x")
    async with PushConsumer(
        cluster.namesrv, group="c", from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=QUICK, middleware=shaky)
    ) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        await until(lambda: got == [b"x"])
