"""The router that takes the time of requests, and the log of slow ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.clock import ManualClock
from rocketline.errors import RequestRejected
from rocketline.metrics.families import Distribution
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import ONEWAY, Command
from rocketline.protocol.connection import frame_bytes
from rocketline.transport import AtReadEnd, Channel, Limits, RemotingClient, RemotingServer, Reply
from rocketline.transport.request_families import request_family
from rocketline.transport.timed_router import TimedChannel, TimedRouter

SEND, OLD_SEND = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_MESSAGE
PULL, ASK, WAIT = RequestCode.PULL_MESSAGE, RequestCode.GET_MAX_OFFSET, RequestCode.END_TRANSACTION


class Peer:
    """As much of a channel as a router sees."""

    remote = "192.0.2.7:5000"


class Handlers:
    """Each takes as long as it is told."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.takes_s = 0.0
        self.held: asyncio.Future[Command | None] = asyncio.get_running_loop().create_future()

    def at_once(self, channel: Channel, request: Command) -> Reply:
        self.clock.advance(self.takes_s)
        return request.reply(ResponseCode.SUCCESS)

    def answer(self, channel: Channel, request: Command) -> Reply:
        self.clock.advance(self.takes_s)
        return request.reply(ResponseCode.QUERY_NOT_FOUND)

    def refuse(self, channel: Channel, request: Command) -> Reply:
        raise RequestRejected(ResponseCode.NO_PERMISSION, "not you")

    def hold(self, channel: Channel, request: Command) -> Reply:
        return self.held


class Timed:
    def __init__(self, slow_ms: int = 0) -> None:
        self.clock = ManualClock()
        self.handlers = Handlers(self.clock)
        self.router = TimedRouter(self.clock.monotonic, slow_ms)
        self.router.add(SEND, self.handlers.at_once)
        self.router.add(OLD_SEND, self.handlers.at_once)
        self.router.add(ASK, self.handlers.answer)
        self.router.add(PULL, self.handlers.hold)
        self.router.add(WAIT, self.handlers.hold)
        self.peer = Peer()

    def serve(self, code: int, takes_s: float = 0.0, flag: int = 0) -> Reply:
        """As the only request of a read."""
        self.handlers.takes_s = takes_s
        self.router.began = self.clock.monotonic()
        return self.router.serve(self.peer, Command(code, flag=flag))  # type: ignore[arg-type]

    def times(self) -> dict[tuple[str, str, str], Distribution]:
        return {(kind.request_name, kind.response_name, kind.result): found for kind, found in self.router.times()}


@pytest.fixture
async def timed() -> Timed:
    return Timed()


async def test_quick_requests_are_counted_and_slower_ones_timed(timed: Timed) -> None:
    for takes_s in (0.0, 0.0005, 0.002, 0.012, 5.0):
        timed.serve(OLD_SEND, takes_s)
    assert timed.times() == {
        ("send_message", "success", "success"): Distribution((2, 1, 0, 0, 0, 1, 0, 0, 0, 1), 0 + 0 + 2 + 12 + 5000)
    }


async def test_requests_of_one_read_are_timed_from_when_it_came(timed: Timed) -> None:
    channel = TimedChannel(timed.router, Limits())
    timed.handlers.takes_s = 0.002
    channel.data_received(frame_bytes(Command(SEND)) * 3)
    timed.handlers.takes_s = 0.0001
    channel.data_received(frame_bytes(Command(SEND)) * 3)
    channel.data_received(frame_bytes(Command(ASK)))
    assert timed.times() == {
        ("send_message_v2", "success", "success"): Distribution((3, 1, 1, 1, 0, 0, 0, 0, 0, 0), 2 + 4 + 6),
        ("get_max_offset", "query_not_found", "success"): Distribution((1, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0),
    }


async def test_requests_of_a_fast_path_are_timed_together(timed: Timed) -> None:
    began = timed.clock.monotonic()
    timed.clock.advance(0.007)
    timed.router.note_served(timed.peer, SEND, ResponseCode.FLUSH_DISK_TIMEOUT, 3, began)  # type: ignore[arg-type]
    timed.router.note_held(timed.peer, PULL, ResponseCode.SUCCESS, "success", began)  # type: ignore[arg-type]
    assert timed.times() == {
        ("send_message_v2", "flush_disk_timeout", "success"): Distribution((0, 0, 0, 3, *[0] * 6), 21),
        ("pull_message", "success", "success"): Distribution((0, 0, 0, 1, *[0] * 6), 7),
    }


async def test_answers_are_told_apart(timed: Timed) -> None:
    timed.router.add(RequestCode.HEART_BEAT, timed.handlers.refuse)
    timed.serve(ASK)
    timed.serve(RequestCode.HEART_BEAT)
    timed.serve(SEND, flag=ONEWAY)
    assert set(timed.times()) == {
        ("get_max_offset", "query_not_found", "success"),
        ("heart_beat", "no_permission", "success"),
        ("send_message_v2", "success", "oneway"),
    }


class Finishing(AtReadEnd):
    def __init__(self, clock: ManualClock, request: Command) -> None:
        self.clock = clock
        self.request = request

    def finish(self) -> Command:
        self.clock.advance(0.004)
        if self.request.flag & ONEWAY:
            raise RequestRejected(ResponseCode.NO_PERMISSION, "not you")
        return self.request.reply(ResponseCode.SUCCESS)


async def test_answers_made_at_the_end_of_their_read_are_timed_too(timed: Timed) -> None:
    timed.router.add(RequestCode.ACK_MESSAGE, lambda _, request: Finishing(timed.clock, request))
    channel = TimedChannel(timed.router, Limits())
    channel.data_received(frame_bytes(Command(RequestCode.ACK_MESSAGE)) * 2)
    channel.data_received(frame_bytes(Command(RequestCode.ACK_MESSAGE, flag=ONEWAY)))
    assert timed.times() == {
        ("ack_message", "success", "success"): Distribution((0, 0, 1, 0, 1, 0, 0, 0, 0, 0), 4 + 8),
        ("ack_message", "no_permission", "oneway"): Distribution((0, 0, 1, 0, 0, 0, 0, 0, 0, 0), 4),
    }


async def test_codes_that_nobody_serves_share_a_series(timed: Timed) -> None:
    for code in range(100_000, 100_050):
        reply = timed.serve(code)
        assert isinstance(reply, Command)
        assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert {key: sum(found.counts) for key, found in timed.times().items()} == {
        ("unsupported", "request_code_not_supported", "success"): 50
    }


async def test_a_held_request_is_timed_until_its_answer(timed: Timed) -> None:
    reply = timed.serve(PULL)
    assert timed.times() == {}
    timed.clock.advance(1.5)
    timed.handlers.held.set_result(Command(ResponseCode.PULL_NOT_FOUND))
    assert reply is timed.handlers.held
    await asyncio.sleep(0)
    assert timed.times() == {
        ("pull_message", "pull_not_found", "success"): Distribution((0, 0, 0, 0, 0, 0, 0, 1, 0, 0), 1500)
    }
    (labels,) = request_family(timed.router).distributions
    assert dict(labels)["is_long_polling"] == "true"


async def test_a_request_that_ends_badly(timed: Timed) -> None:
    timed.serve(WAIT)
    timed.handlers.held.set_exception(RequestRejected(ResponseCode.SERVICE_NOT_AVAILABLE, "no"))
    await asyncio.sleep(0)
    timed.handlers.held = asyncio.get_running_loop().create_future()
    timed.serve(WAIT)
    timed.handlers.held.cancel()
    await asyncio.sleep(0)
    assert set(timed.times()) == {
        ("end_transaction", "service_not_available", "process_request_failed"),
        ("end_transaction", "system_error", "cancelled"),
    }


async def test_slow_requests_are_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    timed = Timed(slow_ms=100)
    with caplog.at_level(logging.WARNING, "rocketline.slow"):
        timed.serve(OLD_SEND, 0.0625)
        for _ in range(4):
            timed.serve(OLD_SEND, 0.25)
        timed.serve(ASK, 1.0)
    assert [record.getMessage() for record in caplog.records] == [
        "send_message from 192.0.2.7:5000 took 250 ms: success",
        "get_max_offset from 192.0.2.7:5000 took 1000 ms: query_not_found; 3 more since the last such line",
    ]


async def test_held_requests_are_not_slow(caplog: pytest.LogCaptureFixture) -> None:
    timed = Timed(slow_ms=100)
    timed.serve(PULL)
    timed.clock.advance(30)
    timed.handlers.held.set_result(Command(ResponseCode.SUCCESS))
    await asyncio.sleep(0)
    assert caplog.records == []


@pytest.fixture
async def server() -> AsyncIterator[tuple[RemotingServer, TimedRouter]]:
    from rocketline.clock import SYSTEM_CLOCK

    router = TimedRouter(SYSTEM_CLOCK.monotonic)
    router.add(ASK, lambda channel, request: request.reply(ResponseCode.SUCCESS))

    async def later(request: Command) -> Command:
        await asyncio.sleep(0.005)
        return request.reply(ResponseCode.SUCCESS)

    router.add(WAIT, lambda channel, request: later(request))
    async with RemotingServer(router, "127.0.0.1", 0, channel_type=TimedChannel) as server:
        yield server, router


async def test_on_a_real_connection(server: tuple[RemotingServer, TimedRouter]) -> None:
    listening, router = server
    async with RemotingClient() as client:
        for code in (ASK, WAIT, ASK):
            answer = await client.call(f"127.0.0.1:{listening.port}", Command(code), PATIENCE_S)
            assert answer.code == ResponseCode.SUCCESS
    times = {kind.request_name: found for kind, found in router.times()}
    assert sum(times["get_max_offset"].counts) == 2
    assert times["end_transaction"].counts[0] == 0, "it waited for milliseconds"
    assert times["end_transaction"].total >= 4
