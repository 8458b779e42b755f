"""Threads that send on sockets of their own: what goes there, what comes back to the event loop, what is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, SILENCE, FakeBroker, FakeCluster
from tests.unit.client.test_blocking import threaded_cluster

from rocketline.client import AutoBatch, ClientOptions, SendReceipt, blocking
from rocketline.client.producer import direct
from rocketline.errors import BrokerError, ClientError, InvalidMessage, SendFailed
from rocketline.message import UNIQ_KEY, Message
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.signing import Credentials
from rocketline.transport import Channel

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with threaded_cluster() as made:
        made.add_topic("T", 2)
        yield made


def producer_of(cluster: FakeCluster, **options: Any) -> blocking.Producer:
    return blocking.Producer(cluster.namesrv, group="shop", **{"options": QUICK_OPTIONS, **options})


def warmed_up(producer: blocking.Producer) -> None:
    """The first send goes by the loop, which learns the route; the second makes the connection."""
    for _ in range(2):
        producer.send(Message("T", b"warm-up"))


def senders(broker: FakeBroker) -> list[Channel]:
    """Remembers the connection of each send from now on, and stores as always."""
    found: list[Channel] = []
    serve = broker._serve

    def noting(channel: Channel, request: Command) -> Any:
        if request.code == SEND:
            found.append(channel)
        return serve(channel, request)

    assert broker._server is not None
    broker._server._router.add(SEND, noting)
    return found


def sends(cluster: FakeCluster, body: bytes) -> list[Command]:
    return [request for request in cluster.broker.requests_of(SEND) if request.body == body]


def unique_id(request: Command) -> str:
    assert request.ext is not None
    return decode_properties(request.ext["i"])[UNIQ_KEY]


def test_a_plain_message_takes_a_connection_that_is_used_again(cluster: FakeCluster) -> None:
    used = senders(cluster.broker)
    with producer_of(cluster) as producer:
        receipts = [producer.send(Message("T", b"%d" % number, tag="t", keys=["k"])) for number in range(6)]
        assert len(cluster.broker.channels) == 2
    assert len({(receipt.queue, receipt.queue_offset) for receipt in receipts}) == 6
    assert used[0] is not used[1] and set(used[1:]) == {used[1]}
    (request,) = sends(cluster, b"5")
    assert unique_id(request) == receipts[5].message_id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, Message("T", b"x", sharding_key="k")),
        ({}, Message("T", b"x" * 5000)),
        ({"options": ClientOptions(namespace="n", timing=QUICK)}, Message("T", b"x")),
        ({"avoid_slow_brokers": True}, Message("T", b"x")),
        ({"max_in_flight": 10}, Message("T", b"x")),
        ({"autobatch": AutoBatch(linger_s=0.001)}, Message("T", b"x")),
    ],
    ids=["ordered", "to compress", "namespace", "watched", "few in flight", "gathered"],
)
def test_everything_else_goes_by_the_loop(cluster: FakeCluster, options: dict[str, Any], message: Message) -> None:
    cluster.add_topic("n%T", 2)
    with producer_of(cluster, **options) as producer:
        for _ in range(3):
            assert isinstance(producer.send(message), SendReceipt)
        assert len(cluster.broker.channels) == 1


def test_a_hook_sees_every_send_from_when_it_was_added(cluster: FakeCluster) -> None:
    seen: list[Any] = []
    with producer_of(cluster) as producer:
        warmed_up(producer)
        producer.add_hook(after=seen.append)
        producer.send(Message("T", b"seen"))
    assert len(seen) == 1


def test_a_lost_connection_is_an_attempt_and_the_loop_makes_the_next(cluster: FakeCluster) -> None:
    with producer_of(cluster) as producer:
        warmed_up(producer)
        _cut_next_send(cluster.broker)
        receipt = producer.send(Message("T", b"x"))
        first, second = sends(cluster, b"x")
        assert unique_id(first) == unique_id(second) == receipt.message_id
        producer.send(Message("T", b"again"))


def _cut_next_send(broker: FakeBroker) -> None:
    serve = broker._serve

    assert broker._server is not None
    router = broker._server._router

    def cutting(channel: Channel, request: Command) -> None:
        serve(channel, request)
        channel.abort()
        router.add(SEND, serve)

    router.add(SEND, cutting)


@pytest.mark.parametrize("retries", [0, 2])
def test_attempts_are_counted_over_both_ways(cluster: FakeCluster, retries: int) -> None:
    with producer_of(cluster, retries=retries) as producer:
        warmed_up(producer)
        cluster.broker.script(SEND, *[ResponseCode.SYSTEM_ERROR] * (retries + 2))
        with pytest.raises(SendFailed) as failed:
            producer.send(Message("T", b"x"))
    assert len(sends(cluster, b"x")) == retries + 1
    assert str(failed.value).count("broker-a@") == retries + 1


def test_a_refusal_that_is_final_is_told_at_once(cluster: FakeCluster) -> None:
    used = senders(cluster.broker)
    with producer_of(cluster) as producer:
        warmed_up(producer)
        cluster.broker.script(SEND, ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(BrokerError):
            producer.send(Message("T", b"x"))
        producer.send(Message("T", b"y"))
    assert len(sends(cluster, b"x")) == 1
    assert used[-1] is used[-2], "nothing is wrong with the connection"


def test_silence_ends_with_the_time_limit_and_the_next_send_does_not_get_its_answer(cluster: FakeCluster) -> None:
    with producer_of(cluster) as producer:
        warmed_up(producer)
        cluster.broker.script(SEND, SILENCE)
        with pytest.raises(SendFailed, match=r"did not answer request 310 within 0\.5 s"):
            producer.send(Message("T", b"x"), timeout=0.5)
        receipt = producer.send(Message("T", b"y"))
    (request,) = sends(cluster, b"y")
    assert unique_id(request) == receipt.message_id


def test_a_connection_closed_while_it_rested_costs_no_attempt(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "UNUSED_S", 0.0)
    with producer_of(cluster, retries=0) as producer:
        warmed_up(producer)
        (connection,) = producer._direct._all  # type: ignore[union-attr]
        connection.end()
        assert isinstance(producer.send(Message("T", b"x")), SendReceipt)
        assert len(sends(cluster, b"x")) == 1
        (other,) = producer._direct._all  # type: ignore[union-attr]
        assert other is not connection


def test_more_threads_than_connections_share_that_of_the_loop(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = senders(cluster.broker)
    with producer_of(cluster) as producer:
        assert producer._direct is not None
        monkeypatch.setattr(producer._direct, "_max_connections", 2)
        warmed_up(producer)
        threads = [
            threading.Thread(target=lambda: [producer.send(Message("T", b"x")) for _ in range(20)]) for _ in "abcd"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert len(sends(cluster, b"x")) == 80
    assert len(set(used)) <= 3


def test_closing_wakes_who_waits_and_leaves_no_connection(cluster: FakeCluster) -> None:
    errors: list[Exception] = []
    asked = threading.Event()

    def waits() -> None:
        try:
            producer.send(Message("T", b"x"), timeout=PATIENCE_S)
        except Exception as error:
            errors.append(error)

    def silent(request: Command) -> None:
        asked.set()

    with producer_of(cluster) as producer:
        warmed_up(producer)
        cluster.broker.on[SEND] = silent
        thread = threading.Thread(target=waits)
        thread.start()
        assert asked.wait(PATIENCE_S)
        sends_of = producer._direct
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert len(errors) == 1 and isinstance(errors[0], ClientError | SendFailed)
    assert sends_of is not None and not sends_of._all and not any(sends_of._free.values())


def test_a_bad_message_costs_no_connection(cluster: FakeCluster) -> None:
    with producer_of(cluster) as producer:
        warmed_up(producer)
        for bad in (Message("T", b"x", properties={"a": "\x01"}), Message("T", b""), Message("T", b"x", keys=["\x02"])):
            with pytest.raises(InvalidMessage):
                producer.send(bad)
        producer.send(Message("T", b"x", properties={"a": "b"}, flag=3))
        assert len(cluster.broker.channels) == 2
    (request,) = sends(cluster, b"x")
    assert request.ext is not None and request.ext["h"] == "3"
    assert decode_properties(request.ext["i"])["a"] == "b"


def test_connections_nobody_used_for_long_go_when_another_is_made(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with producer_of(cluster) as producer:
        warmed_up(producer)
        direct_sends = producer._direct
        assert direct_sends is not None
        monkeypatch.setattr(direct, "OLD_S", -60.0)
        direct_sends._close_old(0.0)
        assert len(direct_sends._all) == 1
        address = cluster.broker.address
        other = direct_sends._connected(address, 1.0)
        assert other is not None and direct_sends._all == {other} and direct_sends._counts[address] == 1
        direct_sends._drop(other)
        assert producer.send(Message("T", b"x")).message_id


def test_direct_requests_are_signed_too(cluster: FakeCluster) -> None:
    with producer_of(
        cluster, options=ClientOptions(credentials=Credentials("key", "a long secret"), timing=QUICK)
    ) as producer:
        warmed_up(producer)
        producer.send(Message("T", b"x"))
        assert len(cluster.broker.channels) == 2
    (request,) = sends(cluster, b"x")
    assert request.ext is not None and request.ext["AccessKey"] == "key" and request.ext["Signature"]
