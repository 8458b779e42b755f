"""Nothing is left of a send: memory, tasks, descriptors and tables are as before after many of them, and after an hour of
connections that end twice a minute (in virtual time).

The counting is done in a process of its own: threads of other tests, of a broker or a Spark session say, would be counted
too. `ROCKETLINE_SENDS=1000000` (and `-o timeout=0`) makes the quick check a long one.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import pytest
from tests.support.capabilities import open_descriptors
from tests.support.virtual import LoopClock, VirtualLoop

from rocketline.client import ClientOptions, Producer, SlowBrokers
from rocketline.errors import SendFailed
from rocketline.message import Message
from rocketline.protocol.bodies import BrokerData, QueueData, TopicRouteData, encode_route
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import SendMessageHeader, SendMessageResponseHeader
from rocketline.protocol.message_ids import encode_host, offset_id
from rocketline.protocol.records import decode_batch
from rocketline.transport import Channel, Router

NAMESRV, BROKERS = ("127.0.0.1", 9876), [("127.0.0.1", 10911), ("127.0.0.1", 20911)]
ROUTE = TopicRouteData(
    [BrokerData("c", f"broker-{port}", {0: f"{host}:{port}"}) for host, port in BROKERS],
    [QueueData(f"broker-{port}", 4, 4, 6) for _, port in BROKERS],
)
ID = offset_id(encode_host("127.0.0.1", 10911), 0)
SENDS = int(os.environ.get("ROCKETLINE_SENDS", "4000"))
ALLOWED_BYTES = 60_000
"""Of growth: free lists and the like. One object more per send would be some times that in the shortest run."""


def route(channel: Channel, request: Command) -> Command:
    return request.reply(ResponseCode.SUCCESS, body=encode_route(ROUTE, standard=True))


def store(channel: Channel, request: Command) -> Command:
    header = SendMessageHeader.decode(request)
    count = len(decode_batch(request.body)) if header.batch else 1
    return request.reply(0, SendMessageResponseHeader(",".join([ID] * count), header.queue_id, 0).encode())  # type: ignore[arg-type]


def well(channel: Channel, request: Command) -> Command:
    return request.reply(ResponseCode.SUCCESS)


@dataclass(frozen=True)
class Held:
    bytes: int
    tasks: int
    descriptors: int


def held() -> Held:
    encode_host.cache_clear()  # remembers the address of every connection, up to a bound
    gc.collect()
    traced, _ = tracemalloc.get_traced_memory()
    return Held(traced, len(asyncio.all_tasks()), open_descriptors())


def loop_with_servers() -> VirtualLoop:
    loop = VirtualLoop()
    loop.servers[NAMESRV] = Router({RequestCode.GET_ROUTEINFO_BY_TOPIC: route})
    answers: dict[int, Any] = dict.fromkeys((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE), store)
    answers |= dict.fromkeys((RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.GET_MAX_OFFSET), well)
    for address in BROKERS:
        loop.servers[address] = Router(answers)
    return loop


@contextmanager
def virtual_loop() -> Iterator[VirtualLoop]:
    loop = loop_with_servers()
    logging.disable(logging.CRITICAL)
    tracemalloc.start()
    try:
        yield loop
    finally:
        logging.disable(logging.NOTSET)
        tracemalloc.stop()
        loop.close()


def producer_on(loop: VirtualLoop, **options: Any) -> Producer:
    return Producer("127.0.0.1:9876", group="g", options=ClientOptions(clock=LoopClock(loop)), **options)


async def send(producer: Producer, count: int, at_once: int = 250) -> int:
    """Messages, some at a time; how many failed."""
    failed = 0
    for _ in range(count // at_once):
        sends = (producer.send(Message("T", b"x" * 100, keys=["k"])) for _ in range(at_once))
        results = await asyncio.gather(*sends, return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        assert [error for error in errors if not isinstance(error, SendFailed)] == []
        failed += len(errors)
    return failed


Span = tuple[Held, Held]


async def many_sends(loop: VirtualLoop, options: dict[str, Any]) -> Span:
    async with producer_on(loop, **options) as producer:
        await send(producer, SENDS // 2)
        before = held()
        assert await send(producer, SENDS) == 0
        return before, held()


async def an_hour(loop: VirtualLoop, options: dict[str, Any]) -> Span:
    async def a_while(producer: Producer, minutes: int) -> None:
        for turn in range(minutes * 2):
            await asyncio.sleep(15)
            absent = loop.servers.pop(BROKERS[turn % 2])  # one broker is away for a while as well
            loop.cut_all()
            assert await send(producer, 20, 20) == 0
            await asyncio.sleep(15)
            loop.servers[BROKERS[turn % 2]] = absent

    async with producer_on(loop, **options) as producer:
        await a_while(producer, 10)
        before = held()
        await a_while(producer, 60)
        return before, held()


def counted(work: Callable[[VirtualLoop, dict[str, Any]], Coroutine[Any, Any, Span]], options: dict[str, Any]) -> Span:
    with virtual_loop() as loop:
        return loop.run_until_complete(work(loop, options))


@pytest.mark.parametrize(
    ("work", "options"),
    [
        pytest.param(many_sends, {}, id="single"),
        pytest.param(many_sends, {"autobatch": True, "avoid_slow_brokers": SlowBrokers(probe=True)}, id="gathered"),
        pytest.param(an_hour, {"avoid_slow_brokers": SlowBrokers(probe=True)}, id="an hour of lost connections"),
    ],
)
def test_sends_leave_nothing(work: Any, options: dict[str, Any]) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        before, after = alone.submit(counted, work, options).result()
    assert after.bytes - before.bytes < ALLOWED_BYTES
    assert (after.tasks, after.descriptors) == (before.tasks, before.descriptors)
