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

from rocketline.client import ClientOptions, Producer, Retries
from rocketline.client.producer.attempts import first_attempt
from rocketline.client.route_cache import DOUBT_S
from rocketline.errors import ClientClosed, ConnectFailed, SendFailed, TlsFailed, TransportError
from rocketline.message import Message, MessageQueue
from rocketline.protocol.codes import RequestCode
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
    for host, port in BROKERS:
        assert str(failed.value).count(f"@{host}:{port}") == 1
    again = asked[1:]
    assert len(again) >= 3, "the brokers may be elsewhere"
    assert all(later - earlier >= DOUBT_S for earlier, later in pairwise(again)), "however many sends fail"


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
    ],
)
def test_only_attempts_without_a_connection_do_not_count(error: TransportError, attempts: int | None) -> None:
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


def test_pauses_differ_from_send_to_send() -> None:
    made = first_attempt(Retries(2), 60.0, lambda: 0.0)
    for _ in range(8):
        made.failed(ON_FIRST, "127.0.0.1:10911", ConnectFailed("refused"))
    assert [made.pause_s(ON_FIRST.broker_name, 0.05, chance) for chance in (0.0, 0.5, 1.0)] == [1.0, 0.75, 0.5]
    assert made.failures[0].times == 8 and len(made.failures) == 1
