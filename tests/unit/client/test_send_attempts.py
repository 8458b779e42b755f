"""Attempts of a send: their number, brokers and time limit; and which are written as a frame from a template."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK_OPTIONS, SILENCE, FakeBroker, FakeCluster, until

from rocketline.client import ClientOptions, Producer
from rocketline.client.middleware import Proceed
from rocketline.errors import BrokerError, InvalidMessage, ProducerClosed, SendFailed
from rocketline.message import UNIQ_KEY, Message
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.signing import Credentials
from rocketline.transport import Channel

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[Producer]:
    cluster.add_topic("T")
    async with Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as made:
        await warm_up(made, cluster)
        yield made


async def warm_up(producer: Producer, cluster: FakeCluster) -> None:
    """The first message learns the route and makes the connection."""
    await producer.send(Message("T", b"warm-up"))
    for broker in cluster.brokers:
        broker.requests.clear()


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Frames that were made from a template."""
    found: list[bytes] = []
    call_ready = Channel.call_ready

    def noting(channel: Channel, frame: bytes, *args: Any) -> asyncio.Future[Command]:
        found.append(frame)
        return call_ready(channel, frame, *args)

    monkeypatch.setattr(Channel, "call_ready", noting)
    return found


def sends(broker: FakeBroker) -> list[Command]:
    return broker.requests_of(SEND)


def fields(request: Command) -> dict[str, str]:
    assert request.ext is not None
    return request.ext


def unique_id(request: Command) -> str:
    return decode_properties(fields(request)["i"])[UNIQ_KEY]


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x" * 100, tag="t", keys=["k1", "k2"], wait_stored=False),
        Message("T", b"x", properties={"a": "ключ"}, sharding_key="k", delay_level=2),
    ],
    ids=["tag and keys", "properties"],
)
async def test_a_frame_from_a_template_is_the_same_request(
    producer: Producer, cluster: FakeCluster, message: Message, ready: list[bytes]
) -> None:
    receipt = await producer.send(message)
    assert len(ready) == 1
    async with Producer(cluster.namesrv, group="shop", options=ClientOptions(middleware=unchanged)) as other:
        await other.send(message)
    assert len(ready) == 1
    framed, encoded = sends(cluster.broker)
    assert unique_id(framed) == receipt.message_id
    changing = dict.fromkeys("egi", "")
    assert fields(framed) | changing == fields(encoded) | changing
    assert (framed.body, framed.version, framed.language, framed.flag) == (
        encoded.body,
        encoded.version,
        encoded.language,
        encoded.flag,
    )


async def unchanged(address: str, request: Command, proceed: Proceed) -> Command | None:
    return await proceed(request)


@pytest.mark.parametrize("message", [Message("T", b"x", flag=3), Message("T", b"x" * 5000)], ids=["flag", "compressed"])
async def test_messages_with_flags_are_encoded(producer: Producer, message: Message, ready: list[bytes]) -> None:
    assert (await producer.send(message)).message_id
    assert not ready


@pytest.mark.parametrize(
    "options",
    [ClientOptions(credentials=Credentials("key", "a long secret")), ClientOptions(middleware=unchanged)],
    ids=["signed", "middleware"],
)
async def test_what_signs_or_looks_at_requests_needs_their_fields(
    cluster: FakeCluster, options: ClientOptions, ready: list[bytes]
) -> None:
    cluster.add_topic("T")
    async with Producer(cluster.namesrv, group="shop", options=options) as producer:
        for _ in range(2):
            assert (await producer.send(Message("T", b"x"))).message_id
    assert not ready


async def test_a_retry_knows_of_the_first_attempt(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.script(SEND, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY)
    receipt = await producer.send(Message("T", b"x"))
    assert [unique_id(request) for request in sends(cluster.broker)] == [receipt.message_id] * 3


async def test_a_retry_goes_to_the_other_broker(two_brokers: FakeCluster) -> None:
    two_brokers.add_topic("T")
    async with Producer(two_brokers.namesrv, group="shop", options=QUICK_OPTIONS) as producer:
        for _ in range(8):  # the loop is connected to both then
            await producer.send(Message("T", b"warm-up"))
        first, second = two_brokers.brokers
        first.on[SEND] = lambda request: request.reply(ResponseCode.SYSTEM_BUSY)
        receipts = [await producer.send(Message("T", b"x")) for _ in range(8)]
        assert {receipt.queue.broker_name for receipt in receipts} == {second.name}


async def test_after_the_last_attempt_the_error_tells_of_all(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.script(SEND, *[ResponseCode.SYSTEM_ERROR] * 4)
    with pytest.raises(SendFailed, match=r"after 3 attempts in .*\(limit 60 s\)") as failed:
        await producer.send(Message("T", b"x"), timeout=60.0)
    assert str(failed.value).count("broker-a@") == len(sends(cluster.broker)) == 3


async def test_the_time_limit_covers_all_attempts(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.script(SEND, SILENCE)
    with pytest.raises(SendFailed, match=r"after 1 attempt in .*\(limit 0\.5 s\).*within 0\.5 s"):
        await producer.send(Message("T", b"x"), timeout=0.5)
    assert (await producer.send(Message("T", b"y"))).message_id


async def test_no_time_at_all_sends_nothing(producer: Producer, cluster: FakeCluster) -> None:
    with pytest.raises(SendFailed):
        await producer.send(Message("T", b"x"), timeout=-1.0)
    assert not sends(cluster.broker)


async def test_a_final_refusal_is_told_at_once(producer: Producer, cluster: FakeCluster) -> None:
    cluster.broker.script(SEND, ResponseCode.MESSAGE_ILLEGAL)
    with pytest.raises(BrokerError):
        await producer.send(Message("T", b"x"))
    assert len(sends(cluster.broker)) == 1


async def test_a_connection_lost_meanwhile_is_made_anew(
    producer: Producer, cluster: FakeCluster, ready: list[bytes]
) -> None:
    for channel in list(cluster.broker.channels):
        channel.abort()
    session = producer._session
    assert session is not None
    await until(lambda: session.remoting.connected(cluster.broker.address) is None)
    assert (await producer.send(Message("T", b"x"))).message_id
    assert not ready and len(sends(cluster.broker)) == 1


async def test_queues_are_used_in_turn_whichever_way_the_request_goes(
    producer: Producer, cluster: FakeCluster, ready: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert producer._session is not None
    remoting = producer._session.remoting
    connected = remoting.connected
    # Every second message finds no connection; it is looked for again on the way to the broker, twice.
    is_there = iter([False, False, True, True] * 2)
    monkeypatch.setattr(remoting, "connected", lambda address: connected(address) if next(is_there) else None)
    for _ in range(4):
        await producer.send(Message("T", b"x"))
    assert Counter(fields(request)["e"] for request in sends(cluster.broker)) == dict.fromkeys("0123", 1)
    assert len(ready) == 2


async def test_messages_in_flight_are_bounded(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    async with Producer(cluster.namesrv, group="shop", max_in_flight=2, options=QUICK_OPTIONS) as producer:
        await warm_up(producer, cluster)
        cluster.broker.on[SEND] = lambda request: None
        waiting = [asyncio.ensure_future(producer.send(Message("T", b"x"), timeout=PATIENCE_S)) for _ in range(4)]
        await until(lambda: len(sends(cluster.broker)) == 2)
        del cluster.broker.on[SEND]
        waiting[0].cancel()
        await waiting[2]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (await producer.send(Message("T", b"y"))).message_id, "all have left"
        assert producer._window._room == 2


async def test_bad_messages_and_closed_producers_are_told(producer: Producer, cluster: FakeCluster) -> None:
    with pytest.raises(InvalidMessage):
        await producer.send(Message("T", b""))
    with pytest.raises(InvalidMessage):
        await producer.send(Message("T", b"x", keys=["\x02"]))
    late = producer.send(Message("T", b"x"))
    await producer.close()
    with pytest.raises(ProducerClosed):
        await producer.send(Message("T", b"x"))
    with pytest.raises(ProducerClosed):
        await late
    assert not sends(cluster.broker)
