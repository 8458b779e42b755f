"""One connection served by a real server on a loopback socket, the other end played by hand."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.transport.peers import BLOAT, ECHO, FAIL, HOLD, REJECT, RawPeer, Scripted, eventually, request, serving

from rocketline.errors import ConnectionLost, RequestRejected, RequestTimeout, TransportError
from rocketline.protocol.command import JSON, ONEWAY, RESPONSE, ROCKETMQ, Command
from rocketline.protocol.connection import frame_bytes
from rocketline.transport import AtReadEnd, Channel, Limits, Router
from rocketline.transport.channel import READ_BYTES


async def test_several_requests_in_one_write_are_all_answered_in_order():
    script = Scripted()
    async with serving(script.router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(*(request(ECHO, opaque=number, n=str(number)) for number in range(500)))
        answers = await peer.receive_all(500)
        assert [answer.opaque for answer in answers] == list(range(500))
        assert [answer.ext for answer in answers] == [{"n": str(number)} for number in range(500)]
        assert all(answer.flag & RESPONSE for answer in answers)
        await peer.close()


async def test_a_request_that_arrives_byte_by_byte_is_answered_once():
    script = Scripted()
    async with serving(script.router) as server:
        peer = await RawPeer.connect(server.port)
        for byte in frame_bytes(request(ECHO, opaque=7, body=b"slow")) * 2:
            await peer.send(bytes([byte]))
        assert [(answer.opaque, answer.body) for answer in await peer.receive_all(2)] == [(7, b"slow"), (7, b"slow")]
        await peer.close()
    assert len(script.served) == 2


@pytest.mark.parametrize("encoding", [JSON, ROCKETMQ])
async def test_the_answer_comes_in_the_encoding_of_the_request(encoding: int):
    async with serving(Scripted().router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(Command(ECHO, {"a": "1"}, encoding=encoding))
        answer = await peer.receive()
        assert answer.encoding == encoding
        assert answer.ext == {"a": "1"}
        await peer.close()


async def test_answers_overtake_a_request_that_waits():
    script = Scripted()
    async with serving(script.router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(request(HOLD, opaque=1), request(ECHO, opaque=2))
        assert (await peer.receive()).opaque == 2
        script.release.set()
        late = await peer.receive()
        assert (late.opaque, late.remark) == (1, "late")
        await peer.close()


@pytest.mark.parametrize("code", [ECHO, HOLD, FAIL, REJECT, 4711])
async def test_a_oneway_request_is_never_answered(code: int):
    script = Scripted()
    script.release.set()
    async with serving(script.router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(request(code, opaque=1, flag=ONEWAY))
        assert await peer.is_silent()
        assert await peer.is_silent()
        await peer.close()


async def test_an_unknown_code_is_answered_with_3():
    async with serving(Scripted().router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(request(4711, opaque=5))
        answer = await peer.receive()
        assert (answer.code, answer.opaque) == (3, 5)
        assert "4711" in (answer.remark or "")
        await peer.close()


async def test_a_failing_handler_is_answered_with_1_and_harms_nobody(caplog: pytest.LogCaptureFixture):
    async with serving(Scripted().router) as server:
        peer, bystander = await RawPeer.connect(server.port), await RawPeer.connect(server.port)
        await peer.send_commands(request(ECHO, opaque=1), request(FAIL, opaque=2), request(ECHO, opaque=3))
        await bystander.send_commands(request(ECHO, opaque=4))
        answers = await peer.receive_all(3)
        assert [(answer.opaque, answer.code) for answer in answers] == [(1, 0), (2, 1), (3, 0)]
        assert answers[1].remark == "ZeroDivisionError: a bug in a handler"
        assert (await bystander.receive()).code == 0
        await peer.close()
        await bystander.close()
    assert any(record.levelno == logging.ERROR and record.exc_info for record in caplog.records)


async def test_a_rejection_is_answered_with_its_code_and_remark():
    async with serving(Scripted().router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(request(REJECT))
        answer = await peer.receive()
        assert (answer.code, answer.remark) == (16, "not for you")
        await peer.close()


async def test_a_waiting_handler_that_fails_or_rejects_is_answered_too():
    async def fail(command: Command) -> Command:
        await asyncio.sleep(0)
        raise KeyError("gone")

    router = Router({1: lambda channel, command: fail(command)})
    async with serving(router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(request(1, opaque=8))
        answer = await peer.receive()
        assert (answer.opaque, answer.code, answer.remark) == (8, 1, "KeyError: 'gone'")
        await peer.close()


async def _ready(command: Command) -> Command:
    return command.reply(0, remark="lone surrogate \udc80")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda command: command.reply(200_050), id="code too large for the encoding"),
        pytest.param(lambda command: command.reply(0, remark="lone surrogate \udc80"), id="text that is not unicode"),
        pytest.param(_ready, id="a later answer that cannot be written"),
        pytest.param(lambda command: 42, id="not an answer at all"),
    ],
)
async def test_an_answer_that_cannot_be_written_becomes_a_failure_and_harms_no_other(answer):
    router = Router({1: lambda channel, command: answer(command), 2: lambda channel, command: command.reply(0)})
    async with serving(router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(
            *(Command(code, opaque=code, encoding=ROCKETMQ) for code in (2, 1)), Command(2, opaque=3)
        )
        answers = {answer.opaque: answer.code for answer in await peer.receive_all(3)}
        assert answers == {2: 0, 1: 1, 3: 0}
        await peer.close()


class Together(AtReadEnd):
    """Answers with how many there were of its kind."""

    def __init__(self, all_of_them: list[Command], request: Command) -> None:
        self._all = all_of_them
        self._request = request
        all_of_them.append(request)

    def finish(self) -> Command | Awaitable[Command | None]:
        if self._request.ext and "fail" in self._request.ext:
            raise RequestRejected(13, "not this one")
        answer = self._request.reply(0, {"n": str(len(self._all))})
        if not (self._request.ext and "later" in self._request.ext):
            return answer
        later: asyncio.Future[Command | None] = asyncio.get_running_loop().create_future()
        later.get_loop().call_soon(later.set_result, answer)
        return later


async def test_requests_of_one_read_may_be_answered_together_at_its_end():
    seen: list[Command] = []
    script = Scripted()
    script.router.add(5000, lambda _, request: Together(seen, request))
    async with serving(script.router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(
            request(5000, opaque=1), request(ECHO, opaque=2), request(5000, opaque=3, fail="1"),
            request(5000, opaque=4, flag=ONEWAY), request(5000, opaque=5, later="1"),
        )  # fmt: skip
        answers = {answer.opaque: answer for answer in await peer.receive_all(4)}
        assert answers[1].ext == answers[5].ext == {"n": "4"}
        assert (answers[3].code, answers[3].remark) == (13, "not this one")
        assert answers[2].code == 0
        await peer.send_commands(request(5000, opaque=6))
        assert (await peer.receive()).ext == {"n": "5"}
        await peer.close()


async def test_garbage_behind_requests_that_wait_for_the_end_of_the_read_leaves_them_answered():
    seen: list[Command] = []
    async with serving(Router({5000: lambda _, request: Together(seen, request)})) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send(frame_bytes(request(5000, opaque=1)) + b"\xff" * 64)
        assert (await peer.receive()).opaque == 1
        await peer.close()


async def test_a_handler_may_decide_not_to_answer():
    async def nothing() -> None:
        return None

    router = Router({1: lambda channel, command: None, 2: lambda channel, command: nothing(), ECHO + 2: _echo})
    async with serving(router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(request(1, opaque=1), request(2, opaque=2), request(3, opaque=3))
        assert (await peer.receive()).opaque == 3
        await peer.close()


def _echo(channel: Channel, command: Command) -> Command:
    return command.reply(0)


async def test_too_many_waiting_requests_are_refused_as_busy():
    script = Scripted()
    async with serving(script.router, Limits(max_waiting=2)) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(*(request(HOLD, opaque=number) for number in range(4)))
        refused = await peer.receive_all(2)
        assert [(answer.opaque, answer.code) for answer in refused] == [(2, 2), (3, 2)]
        assert "2 requests waiting" in (refused[0].remark or "")
        script.release.set()
        assert {answer.opaque for answer in await peer.receive_all(2)} == {0, 1}
        await peer.send_commands(request(HOLD, opaque=9))
        assert (await peer.receive()).opaque == 9
        await peer.close()


async def test_waiting_requests_are_given_up_when_their_connection_closes():
    cancelled = asyncio.Event()

    async def hold() -> Command | None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return None

    async with serving(Router({1: lambda channel, command: hold()})) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(request(1))
        await eventually(lambda: any(channel.waiting_count for channel in server.channels))
        peer.abort()
        await asyncio.wait_for(cancelled.wait(), PATIENCE_S)
        await eventually(lambda: not server.channels)


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", id="another protocol"),
        pytest.param(b"\xff" * 64, id="4 GiB announced"),
        pytest.param(struct.pack(">II", 20, 0x0000_0040) + bytes(16), id="header longer than its frame"),
        pytest.param(struct.pack(">II", 0, 0), id="frame shorter than its prefix"),
        pytest.param(struct.pack(">II", 12, 0x0900_0008) + bytes(8), id="unknown encoding"),
        pytest.param(struct.pack(">II", 12, 8) + b"{not js}", id="not JSON"),
        pytest.param(struct.pack(">II", 4 + 100_000, 100_000) + b"[" * 100_000, id="deep nesting"),
    ],
)
async def test_garbage_closes_its_own_connection_only(garbage: bytes):
    async with serving(Scripted().router) as server:
        good, bad = await RawPeer.connect(server.port), await RawPeer.connect(server.port)
        await bad.send(frame_bytes(request(ECHO, opaque=1)) + garbage)
        assert (await bad.receive()).opaque == 1
        assert await bad.read_until_closed() == b""
        await good.send_commands(request(ECHO, opaque=2))
        assert (await good.receive()).opaque == 2
        await good.close()
        await bad.close()


async def test_an_announced_length_closes_or_waits_but_never_allocates():
    async with serving(Scripted().router) as server:
        hostile = await RawPeer.connect(server.port)
        await hostile.send(struct.pack(">I", 0xFFFF_FFFF))
        assert await hostile.read_until_closed() == b""
        patient = await RawPeer.connect(server.port)
        await patient.send(struct.pack(">II", 16 * 1024 * 1024 - 4, 100))
        await eventually(lambda: len(server.channels) == 1)
        (channel,) = server.channels
        await eventually(lambda: channel._connection.buffered_bytes == 8)
        assert channel._connection.partial.__sizeof__() < 4096
        await hostile.close()
        await patient.close()


async def test_half_a_frame_before_the_end_is_no_failure(caplog: pytest.LogCaptureFixture):
    async with serving(Scripted().router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send(frame_bytes(request(ECHO))[:-3])
        await eventually(lambda: len(server.channels) == 1)
        await peer.close()
        await eventually(lambda: not server.channels)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_both_ends_ask_and_answer_at_once_on_the_same_ids():
    script = Scripted()
    client_router = Router({ECHO: lambda channel, command: command.reply(0, body=b"client " + command.body)})
    async with serving(script.router) as server:
        loop = asyncio.get_running_loop()
        _, near = await loop.create_connection(lambda: Channel(client_router, Limits()), "127.0.0.1", server.port)
        await near.call(request(ECHO), PATIENCE_S)
        (far,) = server.channels
        calls = [near.call(request(ECHO, body=b"%d" % number), PATIENCE_S) for number in range(100)]
        calls += [far.call(request(ECHO, body=b"%d" % number), PATIENCE_S) for number in range(100)]
        bodies = [answer.body for answer in await asyncio.gather(*calls)]
        assert bodies == [b"%d" % number for number in range(100)] + [b"client %d" % number for number in range(100)]
        assert near.pending_count == far.pending_count == 0
        near.close()
        await near.wait_closed()


async def test_an_answer_nobody_waits_for_is_dropped():
    async with serving(Scripted().router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(Command(0, opaque=3, flag=RESPONSE), request(ECHO, opaque=4))
        assert (await peer.receive()).opaque == 4
        await peer.close()


async def _connected(port: int, limits: Limits | None = None) -> Channel:
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_connection(lambda: Channel(Router(), limits or Limits()), "127.0.0.1", port)
    return channel


async def test_a_call_ends_with_its_timeout_and_a_late_answer_goes_nowhere():
    script = Scripted()
    async with serving(script.router) as server:
        channel = await _connected(server.port)
        with pytest.raises(RequestTimeout, match=r"127\.0\.0\.1:\d+ did not answer request 2 within 0\.05 s"):
            await channel.call(request(HOLD), 0.05)
        assert channel.pending_count == 0
        script.release.set()
        assert (await channel.call(request(ECHO, body=b"fine"), PATIENCE_S)).body == b"fine"
        channel.close()
        await channel.wait_closed()


async def test_a_cancelled_call_leaves_nothing_behind():
    script = Scripted()
    async with serving(script.router) as server:
        channel = await _connected(server.port)
        call = asyncio.ensure_future(channel.call(request(HOLD), PATIENCE_S))
        await script.wait_held()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert channel.pending_count == 0
        script.release.set()
        assert (await channel.call(request(ECHO), PATIENCE_S)).code == 0
        channel.close()
        await channel.wait_closed()


async def test_calls_fail_when_their_connection_is_lost():
    script = Scripted()
    async with serving(script.router) as server:
        channel = await _connected(server.port)
        calls = [asyncio.ensure_future(channel.call(request(HOLD), PATIENCE_S)) for _ in range(3)]
        await script.wait_held(3)
        for far in list(server.channels):
            far.abort()
        for call in calls:
            with pytest.raises(ConnectionLost, match="closed the connection before answering"):
                await call
        with pytest.raises(ConnectionLost, match="is closed"):
            await channel.call(request(ECHO), PATIENCE_S)
        with pytest.raises(ConnectionLost, match="is closed"):
            channel.send_oneway(request(ECHO))


async def test_a_ready_frame_is_a_call_like_any_other():
    async with serving(Scripted().router) as server:
        channel = await _connected(server.port, Limits(max_calls=2))
        opaque = channel.take_opaque()
        frame = frame_bytes(request(ECHO, opaque=opaque, n="1"))
        answer, other = await asyncio.gather(
            channel.call_ready(frame, opaque, ECHO, PATIENCE_S), channel.call(request(ECHO), PATIENCE_S)
        )
        assert answer.ext == {"n": "1"} and answer.opaque == opaque != other.opaque
        held = [channel.take_opaque() for _ in range(2)]
        calls = [channel.call_ready(frame_bytes(request(HOLD, opaque=number)), number, HOLD, 0.02) for number in held]
        with pytest.raises(TransportError, match=r"2 requests to .* already waiting"):
            channel.call_ready(frame, opaque, ECHO, PATIENCE_S)
        for call in calls:
            with pytest.raises(RequestTimeout, match=f"request {HOLD} within 0.02 s"):
                await call
        channel.close()
        await channel.wait_closed()
        with pytest.raises(ConnectionLost, match="is closed"):
            channel.call_ready(frame, opaque, ECHO, PATIENCE_S)
        assert channel.pending_count == 0


async def test_a_read_makes_little_room():
    async with serving(Scripted().router) as server:
        channel = await _connected(server.port)
        assert getattr(channel._transport, "max_size", READ_BYTES) == READ_BYTES  # uvloop has none
        body = b"x" * (3 * READ_BYTES)
        assert (await channel.call(request(ECHO, body=body), PATIENCE_S)).body == body
        channel.close()
        await channel.wait_closed()


async def test_calls_beyond_the_limit_fail_at_once():
    script = Scripted()
    async with serving(script.router) as server:
        channel = await _connected(server.port, Limits(max_calls=2))
        calls = [asyncio.ensure_future(channel.call(request(HOLD), PATIENCE_S)) for _ in range(2)]
        await script.wait_held(2)
        with pytest.raises(TransportError, match=r"2 requests to .* already waiting"):
            await channel.call(request(ECHO), PATIENCE_S)
        script.release.set()
        assert [answer.remark for answer in await asyncio.gather(*calls)] == ["late", "late"]
        channel.close()
        await channel.wait_closed()


async def test_calls_that_were_given_up_do_not_count():
    async with serving(Scripted().router) as server:
        channel = await _connected(server.port, Limits(max_calls=2))
        for _ in range(5):
            channel.call(request(HOLD), PATIENCE_S).cancel()
        assert (await channel.call(request(ECHO), PATIENCE_S)).code == 0
        assert channel.pending_count == 0
        channel.close()
        await channel.wait_closed()


SMALL = Limits(write_high_water_bytes=64 * 1024, write_stall_s=30)
MEGABYTE = str(1024 * 1024)


async def test_a_peer_that_does_not_read_is_not_served_further_until_it_reads():
    script = Scripted()
    async with serving(script.router, SMALL) as server:
        peer = await RawPeer.connect(server.port, receive_buffer=4096)
        await peer.send_commands(request(BLOAT, size=str(8 * 1024 * 1024)))
        await eventually(lambda: bool(script.served))
        (channel,) = server.channels
        await eventually(lambda: not channel._transport.is_reading())
        await peer.send_commands(request(ECHO, opaque=2))
        bystander = await RawPeer.connect(server.port)
        assert await bystander.is_silent()
        assert [command.code for command in script.served] == [BLOAT, ECHO]
        assert len((await peer.receive()).body) == 8 * 1024 * 1024
        assert (await peer.receive()).opaque == 2
        await peer.close()
        await bystander.close()


async def test_answers_to_one_read_do_not_pile_up_beyond_the_high_water_mark():
    script = Scripted()
    async with serving(script.router, SMALL) as server:
        peer = await RawPeer.connect(server.port, receive_buffer=64 * 1024)
        await peer.send_commands(*(request(BLOAT, opaque=number, size=MEGABYTE) for number in range(48)))
        await eventually(lambda: bool(server.channels) and not next(iter(server.channels))._transport.is_reading())
        (channel,) = server.channels
        assert channel._transport.get_write_buffer_size() < 10 * 1024 * 1024
        answers = await peer.receive_all(48)
        assert [answer.opaque for answer in answers] == list(range(48))
        await peer.close()


async def test_a_peer_that_never_reads_is_dropped():
    script = Scripted()
    limits = Limits(write_high_water_bytes=64 * 1024, write_stall_s=0.1)
    async with serving(script.router, limits) as server:
        peer = await RawPeer.connect(server.port, receive_buffer=4096)
        await peer.send_commands(request(BLOAT, size=str(16 * 1024 * 1024)))
        await eventually(lambda: bool(script.served))
        await eventually(lambda: not server.channels)
        assert len(await peer.read_until_closed()) < 16 * 1024 * 1024
        await peer.close()


async def test_bad_bytes_after_large_answers_still_close_the_connection():
    script = Scripted()
    async with serving(script.router, SMALL) as server:
        peer = await RawPeer.connect(server.port, receive_buffer=4096)
        await peer.send(frame_bytes(request(BLOAT, size=str(4 * 1024 * 1024))) + b"\xff" * 16)
        await eventually(lambda: bool(script.served))
        assert len(await peer.read_until_closed()) > 4 * 1024 * 1024
        await eventually(lambda: not server.channels)
        await peer.close()


async def test_a_flood_of_oneway_requests_waits_for_the_peer_to_read():
    """The writer is held back instead of filling memory."""
    accepted: asyncio.Queue[RawPeer] = asyncio.Queue()
    listener = await asyncio.start_server(lambda *streams: accepted.put_nowait(RawPeer(*streams)), "127.0.0.1", 0)
    channel = await _connected(listener.sockets[0].getsockname()[1], SMALL)
    sent = 0

    async def flood() -> None:
        nonlocal sent
        for _ in range(64):
            await channel.drained()
            channel.send_oneway(request(ECHO, body=bytes(1024 * 1024)))
            sent += 1

    flooding = asyncio.ensure_future(flood())
    await eventually(lambda: channel._transport.get_write_buffer_size() > SMALL.write_high_water_bytes)
    assert sent < 64
    peer = await accepted.get()
    assert len(await peer.receive_all(64)) == 64
    await flooding
    channel.close()
    await peer.close()
    await channel.wait_closed()
    listener.close()
    await listener.wait_closed()


async def test_waiting_for_a_lost_peer_to_read_fails():
    async with serving(Scripted().router) as server:
        channel = await _connected(server.port)
        await channel.drained()
        channel.abort()
        await channel.wait_closed()
        with pytest.raises(ConnectionLost):
            await channel.drained()


async def test_addresses_are_known_at_both_ends():
    script = Scripted()
    async with serving(script.router) as server:
        channel = await _connected(server.port)
        await channel.call(request(ECHO), PATIENCE_S)
        (far,) = server.channels
        assert channel.remote == far.local == f"127.0.0.1:{server.port}"
        assert channel.local == far.remote
        assert far.remote_host[:4] == b"\x7f\0\0\1"
        channel.close()
        await channel.wait_closed()
