"""Sends whose broker is away for a while, in virtual time: they go on until their time is over, with pauses that grow."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from tests.support.virtual import LoopClock, VirtualLoop
from tests.unit.client.test_flat_memory import BROKERS, NAMESRV, loop_with_servers, route

from rocketline.client import ClientOptions, Producer, Retries, Transaction, TransactionalProducer, by_hash
from rocketline.client.producer.attempts import first_attempt
from rocketline.client.route_cache import DOUBT_S
from rocketline.errors import (
    BrokerError,
    ClientClosed,
    ConnectFailed,
    NoMaster,
    NoNameServer,
    RouteNotFound,
    SendFailed,
    TlsFailed,
    TransportError,
)
from rocketline.message import Message, MessageQueue
from rocketline.protocol.bodies import BrokerData, QueueData, TopicRouteData, encode_route
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport import Channel, Router

LIMIT_S = 3.0
ON_FIRST = MessageQueue("T", f"broker-{BROKERS[0][1]}", 0)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = loop_with_servers()
    yield made
    made.close()


async def sent_while_away(loop: VirtualLoop, away_s: float, queue: MessageQueue | None, **options: Any) -> float:
    """How long single messages and batches took that began when the brokers had just gone, and that none failed."""
    client = ClientOptions(clock=LoopClock(loop))
    async with Producer("127.0.0.1:9876", group="g", timeout=LIMIT_S, options=client, **options) as producer:
        await asyncio.gather(*(producer.send(Message("T", b"warm-up")) for _ in range(8)))
        absent = {address: loop.servers.pop(address) for address in BROKERS}
        loop.cut_all()
        loop.call_later(away_s, loop.servers.update, absent)
        started = loop.time()
        singles = [producer.send(Message("T", b"x"), queue=queue) for _ in range(20)]
        batches = [producer.send_batch([Message("T", b"x")] * 3, queue=queue) for _ in range(20)]
        await asyncio.gather(*singles, *batches)
        return loop.time() - started


@pytest.mark.parametrize("queue", [None, ON_FIRST], ids=["any queue", "one queue"])
@pytest.mark.parametrize("options", [{}, {"retries": 0}, {"autobatch": True}], ids=["usual", "no retries", "gathered"])
@pytest.mark.parametrize("away_s", [0.3, 1.9])
def test_a_broker_that_comes_back_in_time_gets_all(
    loop: VirtualLoop, away_s: float, queue: MessageQueue | None, options: dict[str, Any]
) -> None:
    took_s = loop.run_until_complete(sent_while_away(loop, away_s, queue, **options))
    assert away_s <= took_s < LIMIT_S


def test_one_that_stays_away_is_told_when_the_time_is_over_after_few_attempts(loop: VirtualLoop) -> None:
    started = loop.time()
    asked: list[float] = []

    def counted_route(channel: Channel, request: Command) -> Command:
        asked.append(loop.time())
        return route(channel, request)

    loop.servers[NAMESRV] = Router({RequestCode.GET_ROUTEINFO_BY_TOPIC: counted_route})
    with pytest.raises(SendFailed) as failed:
        loop.run_until_complete(sent_while_away(loop, 60.0, None))
    assert loop.time() - started == pytest.approx(LIMIT_S, abs=0.1)
    attempts = re.search(r"after (\d+) attempts", str(failed.value))
    assert attempts is not None and 8 <= int(attempts[1]) <= 40
    assert "next attempt" not in str(failed.value)
    for host, port in BROKERS:
        assert str(failed.value).count(f"@{host}:{port}") == 1
    again = asked[1:]
    assert len(again) >= 3, "the brokers may be elsewhere"
    assert all(later - earlier >= DOUBT_S for earlier, later in pairwise(again)), "however many sends fail"


def route_of(**brokers: dict[int, str]) -> TopicRouteData:
    """The route of a topic on brokers with these addresses by id; all may be written to."""
    datas = [BrokerData("c", name, ids) for name, ids in brokers.items()]
    return TopicRouteData(datas, [QueueData(name, 4, 4, 6) for name in brokers])


ADDRESSES = [f"{host}:{port}" for host, port in BROKERS]
LED = route_of(a={0: ADDRESSES[0], 1: ADDRESSES[1]})
LEADERLESS = route_of(a={1: ADDRESSES[1]})
LED_AGAIN = route_of(a={0: ADDRESSES[1]})
ACTED_FOR = TopicRouteData([BrokerData("c", "a", {0: ADDRESSES[1]}, True)], [QueueData("a", 4, 4, 4)])
"""A replica that acts as master, for readers."""
ANOTHER_IS_LED = route_of(a={1: ADDRESSES[1]}, b={0: ADDRESSES[0]})
READ_ONLY = TopicRouteData([BrokerData("c", "a", {0: ADDRESSES[0]})], [QueueData("a", 4, 4, 4)])
ON_A = MessageQueue("T", "a", 2)


class NameServerSays:
    """Routes one after the other, as somebody tells it; None is a topic that does not exist."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.now: TopicRouteData | None = LED
        self.asked: list[float] = []
        self._time = loop.time
        loop.servers[NAMESRV] = Router({RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route})

    def _route(self, channel: Channel, request: Command) -> Command:
        self.asked.append(self._time())
        if self.now is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark="no topic route info")
        return request.reply(ResponseCode.SUCCESS, body=encode_route(self.now, standard=True))


async def send_singly(producer: Producer, queue: Any) -> None:
    await producer.send(Message("T", b"x"), queue=queue)


async def send_batch(producer: Producer, queue: Any) -> None:
    await producer.send_batch([Message("T", b"x")] * 3, queue=queue)


async def send_in_transaction(producer: Producer, queue: Any) -> None:
    async def execute(message: Message) -> Transaction:
        return Transaction.COMMIT

    assert isinstance(producer, TransactionalProducer)
    receipt = await producer.send_in_transaction(Message("T", b"x"), execute, queue=queue)
    assert receipt.outcome is Transaction.COMMIT


async def sent_without_master(loop: VirtualLoop, during: list[tuple[float, TopicRouteData | None]], queue: Any,
                              send: Any = send_singly, limit_s: float = 120.0, **options: Any) -> float:  # fmt: skip
    """How long sends took that began when the first of these routes was there; each of the others comes after some time."""
    says = NameServerSays(loop)
    client = ClientOptions(clock=LoopClock(loop))
    made = TransactionalProducer if send is send_in_transaction else Producer
    arguments = {"check": lambda _: Transaction.UNKNOWN} if made is TransactionalProducer else {}
    async with made("127.0.0.1:9876", group="g", timeout=limit_s, options=client, **arguments, **options) as producer:
        await send_singly(producer, None)
        (_, says.now), *rest = during
        await producer._open_session._refresh_routes()
        await producer._open_session._tick()
        for after_s, route in rest:
            loop.call_later(after_s, setattr, says, "now", route)
        started = loop.time()
        asked_before = len(says.asked)
        try:
            await asyncio.gather(*(send(producer, queue) for _ in range(20)))
        finally:
            took_s = loop.time() - started
            first_looks = 1  # what all share
            assert len(says.asked) - asked_before <= first_looks + took_s / DOUBT_S + took_s / 30 + 1
        return took_s


@pytest.mark.parametrize("missing", [LEADERLESS, ACTED_FOR], ids=["no master", "an acting master"])
@pytest.mark.parametrize(
    ("send", "options"),
    [
        (send_singly, {}),
        (send_singly, {"retries": 0}),
        (send_singly, {"autobatch": True}),
        (send_batch, {}),
        (send_in_transaction, {}),
    ],
    ids=["usual", "no retries", "gathered", "batches", "transactions"],
)
@pytest.mark.parametrize("queue", [None, ON_A, by_hash("key")], ids=["any queue", "one queue", "a selector"])
def test_a_group_without_master_is_waited_for(
    loop: VirtualLoop, missing: TopicRouteData, send: Any, options: dict[str, Any], queue: Any
) -> None:
    took_s = loop.run_until_complete(
        sent_without_master(loop, [(0.0, missing), (70.0, LED_AGAIN)], queue, send, **options)
    )
    assert 70.0 <= took_s < 73.0


def test_a_topic_that_no_name_server_knows_for_a_while_is_waited_for(loop: VirtualLoop) -> None:
    course = [(0.0, LEADERLESS), (1.0, None), (20.0, LED_AGAIN)]
    assert 20.0 <= loop.run_until_complete(sent_without_master(loop, course, None)) < 23.0


async def first_send(loop: VirtualLoop, send: Any, **options: Any) -> float:
    """How long the first sends of a new producer took."""
    started = loop.time()
    client = ClientOptions(clock=LoopClock(loop))
    async with Producer("127.0.0.1:9876", group="g", timeout=LIMIT_S, options=client, **options) as producer:
        await asyncio.gather(*(send(producer, None) for _ in range(20)))
    return loop.time() - started


async def send_oneway(producer: Producer, queue: Any) -> None:
    await producer.send_oneway(Message("T", b"x"))


@pytest.mark.parametrize("send", [send_singly, send_batch, send_oneway])
@pytest.mark.parametrize("registered_s", [1.2, 2.0], ids=["with it", "after it"])
def test_a_new_producer_waits_for_a_name_server_and_its_brokers(
    loop: VirtualLoop, send: Any, registered_s: float
) -> None:
    says = NameServerSays(loop)
    says.now = None
    back = loop.servers.pop(NAMESRV)
    loop.call_later(1.2, loop.servers.update, {NAMESRV: back})
    loop.call_later(registered_s, setattr, says, "now", LED)
    assert registered_s <= loop.run_until_complete(first_send(loop, send)) < LIMIT_S
    assert len(says.asked) <= 2 * (1 + (registered_s - 1.2) / DOUBT_S), "the topic's and the template's route"


def test_a_name_server_that_stays_away_is_told_when_the_time_is_over(loop: VirtualLoop) -> None:
    del loop.servers[NAMESRV]
    started = loop.time()
    with pytest.raises(NoNameServer, match=r"127\.0\.0\.1:9876 said.*no name server could be reached"):
        loop.run_until_complete(first_send(loop, send_singly))
    assert loop.time() - started == pytest.approx(LIMIT_S, abs=0.2)


def test_a_topic_that_does_not_exist_is_told_at_once(loop: VirtualLoop) -> None:
    NameServerSays(loop).now = None
    with pytest.raises(RouteNotFound, match="does not exist"):
        loop.run_until_complete(first_send(loop, send_singly))
    assert loop.time() < 1.0


def test_another_broker_with_a_master_is_used_at_once_and_a_chosen_one_waited_for(loop: VirtualLoop) -> None:
    course = [(0.0, ANOTHER_IS_LED), (40.0, LED)]
    assert loop.run_until_complete(sent_without_master(loop, course, None)) < 1.0
    assert 40.0 <= loop.run_until_complete(sent_without_master(loop, course, ON_A)) < 43.0


@pytest.mark.parametrize("queue", [None, ON_A])
def test_a_master_that_does_not_come_is_told_when_the_time_is_over(
    loop: VirtualLoop, queue: MessageQueue | None
) -> None:
    started = loop.time()
    with pytest.raises(SendFailed, match=r"no master|no route names a master") as failed:
        loop.run_until_complete(sent_without_master(loop, [(0.0, LEADERLESS)], queue, limit_s=10.0))
    assert loop.time() - started == pytest.approx(10.0, abs=0.2)
    assert isinstance(failed.value.__cause__, NoMaster)


def test_a_topic_that_may_only_be_read_is_refused_at_once(loop: VirtualLoop) -> None:
    started = loop.time()
    with pytest.raises(RouteNotFound, match="write permission"):
        loop.run_until_complete(sent_without_master(loop, [(0.0, READ_ONLY)], None))
    course = [(0.0, LEADERLESS), (5.0, READ_ONLY)]
    with pytest.raises(RouteNotFound, match="write permission"):
        loop.run_until_complete(sent_without_master(loop, course, None))
    assert loop.time() - started < 8.0


def test_a_one_way_send_waits_for_a_master_too(loop: VirtualLoop) -> None:
    course = [(0.0, LEADERLESS), (2.0, LED_AGAIN)]
    assert 2.0 <= loop.run_until_complete(sent_without_master(loop, course, None, send_oneway)) < 4.0


def test_closing_a_producer_ends_its_sends(loop: VirtualLoop) -> None:
    async def closed_meanwhile() -> float:
        client = ClientOptions(clock=LoopClock(loop))
        async with Producer("127.0.0.1:9876", group="g", timeout=3600.0, options=client) as producer:
            await producer.send(Message("T", b"warm-up"))
            for address in BROKERS:
                del loop.servers[address]
            loop.cut_all()
            waiting = asyncio.ensure_future(producer.send(Message("T", b"x")))
            await asyncio.sleep(60.0)
        started = loop.time()
        with pytest.raises(SendFailed, match="this client is closed"):
            await waiting
        return loop.time() - started

    assert loop.run_until_complete(closed_meanwhile()) < 10.0


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (ConnectFailed("refused"), None),
        (TlsFailed("certificate"), 3),
        (ClientClosed("closed"), 3),
        (TransportError("lost"), 3),
        (BrokerError.of(14, "this broker is not the master of its group"), None),
        (
            BrokerError.of(14, "service not available now: the broker's disk is full, messages are put to the slave"),
            None,
        ),
        (BrokerError.of(14, "the disk is full"), 3),
        (BrokerError.of(2, "[REJECTREQUEST]system busy, start flow control for a while"), None),
        (BrokerError.of(2, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while"), 3),
    ],
)
def test_only_attempts_without_a_connection_or_a_master_do_not_count(
    error: TransportError | BrokerError, attempts: int | None
) -> None:
    now = [0.0]
    made = first_attempt(Retries(2), LIMIT_S, lambda: now[0])
    pauses: list[float] = []
    while made.left_s > 0:
        made.failed(ON_FIRST, "127.0.0.1:10911", error)
        pauses.append(made.pause_s(ON_FIRST.broker_name, 0.05, 0.0))
        now[0] += pauses[-1]
        if made.left_s:
            made.look_at_clock()
    if attempts is not None:
        assert len(pauses) == attempts
    else:
        assert pauses[:5] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8]) and max(pauses) <= 1.0 and len(pauses) < 20
    assert made.pause_s("another", 0.05, 0.0) == 0.0


@pytest.mark.parametrize("send", [send_singly, send_batch, send_in_transaction])
@pytest.mark.parametrize("told_after_s", [0.01, 0.9, 30.0])
def test_a_master_that_leads_no_more_is_left_as_soon_as_the_route_says_so(
    loop: VirtualLoop, send: Any, told_after_s: float
) -> None:
    def refused(channel: Channel, request: Command) -> Command:
        return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark="this broker is not the master of its group")

    async def sent() -> float:
        says = NameServerSays(loop)
        client = ClientOptions(clock=LoopClock(loop))
        async with TransactionalProducer(
            "127.0.0.1:9876", group="g", timeout=60.0, options=client, check=lambda _: Transaction.UNKNOWN
        ) as producer:
            await send_singly(producer, None)
            codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.END_TRANSACTION)
            loop.servers[BROKERS[0]] = Router(dict.fromkeys(codes, refused))
            loop.cut_all()
            loop.call_later(told_after_s, setattr, says, "now", LED_AGAIN)
            started, asked = loop.time(), len(says.asked)
            await asyncio.gather(*(send(producer, None) for _ in range(20)))
            took_s = loop.time() - started
            assert len(says.asked) - asked <= 2 + took_s / DOUBT_S, "however many sends wait"
            return took_s

    took_s = loop.run_until_complete(sent())
    assert told_after_s <= took_s < told_after_s + (0.5 if told_after_s < 10 else 1.5)


def test_pauses_differ_from_send_to_send() -> None:
    made = first_attempt(Retries(2), 60.0, lambda: 0.0)
    for _ in range(8):
        made.failed(ON_FIRST, "127.0.0.1:10911", ConnectFailed("refused"))
    assert [made.pause_s(ON_FIRST.broker_name, 0.05, chance) for chance in (0.0, 0.5, 1.0)] == [1.0, 0.75, 0.5]
    assert made.failures[0].times == 8 and len(made.failures) == 1
