"""Rules of remoting: limits that can be set, answers in any order, silence."""

from __future__ import annotations

import asyncio
import struct
from functools import partial

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.transport.peers import ECHO, RawPeer, Scripted, eventually, request, serving

from rocketline.errors import RequestTimeout
from rocketline.protocol.command import Command
from rocketline.protocol.connection import frame_bytes
from rocketline.transport import Channel, Limits, RemotingClient, RemotingServer, Router

SILENT = 7


def _address(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.port}"


def _silent(channel: Channel, command: Command) -> None:
    return None


async def test_the_frame_limit_can_be_set_and_counts_the_length_field() -> None:
    frame = frame_bytes(request(ECHO, body=bytes(5000)))
    for limit, is_served in ((len(frame), True), (len(frame) - 1, False)):
        async with serving(Scripted().router, Limits(max_frame_bytes=limit)) as server:
            peer = await RawPeer.connect(server.port)
            await peer.send(frame)
            if is_served:
                assert len((await peer.receive()).body) == 5000
            else:
                assert await peer.read_until_closed() == b""
            await peer.close()


async def test_a_connection_closed_for_bad_bytes_is_logged_with_its_address(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Scripted().router) as server:
        loop = asyncio.get_running_loop()
        _, bad = await loop.create_connection(lambda: Channel(Router(), Limits()), "127.0.0.1", server.port)
        bad.write_all([struct.pack(">II", 12, 0x0900_0008) + bytes(8)])
        await bad.wait_closed()
        await eventually(lambda: not server.channels)
        assert f"closing {bad.local}: " in caplog.text


async def test_ten_calls_answered_in_reverse_each_get_their_own_answer() -> None:
    waiting: list[asyncio.Future[Command]] = []
    requests: list[Command] = []

    def hold(channel: Channel, command: Command) -> asyncio.Future[Command]:
        requests.append(command)
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    async with serving(Router({1: hold})) as server, RemotingClient() as client:
        calls = [
            asyncio.ensure_future(client.call(_address(server), request(1, n=str(n)), PATIENCE_S)) for n in range(10)
        ]
        await eventually(lambda: len(waiting) == 10)
        for command, answer in reversed(list(zip(requests, waiting))):
            answer.set_result(command.reply(0, dict(command.ext or {})))
        assert [answer.ext for answer in await asyncio.gather(*calls)] == [{"n": str(n)} for n in range(10)]


async def test_calls_that_time_out_end_on_their_own_whatever_the_caller_of_another_does() -> None:
    ended: list[str] = []
    complaints: list[BaseException | None] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context.get("exception")))

    def note(name: str, call: asyncio.Future[Command]) -> None:
        assert isinstance(call.exception(), RequestTimeout)
        ended.append(name)
        if name == "first":
            raise ZeroDivisionError("a bug in the first caller")

    async with serving(Router({SILENT: _silent})) as server, RemotingClient() as client:
        await client.send_oneway(_address(server), request(SILENT))  # makes the connection
        for name in ("first", "second"):
            call = asyncio.ensure_future(client.call(_address(server), request(SILENT), 0.02))
            call.add_done_callback(partial(note, name))
        await eventually(lambda: sorted(ended) == ["first", "second"])
        channel = client.connected(_address(server))
        assert channel is not None
        assert channel.pending_count == 0
    assert [type(error) for error in complaints] == [ZeroDivisionError]


async def test_waiting_not_waiting_and_oneway_against_a_server_that_never_answers() -> None:
    served: list[Command] = []

    def silent(channel: Channel, command: Command) -> None:
        served.append(command)

    async with serving(Router({SILENT: silent})) as server, RemotingClient() as client:
        address = _address(server)
        await client.send_oneway(address, request(SILENT))  # makes the connection
        with pytest.raises(RequestTimeout):
            await client.call(address, request(SILENT), 0.02)
        later = asyncio.ensure_future(client.call(address, request(SILENT), PATIENCE_S))
        await eventually(lambda: len(served) == 3)
        assert not later.done()
        assert sorted(command.is_oneway for command in served) == [False, False, True]
        later.cancel()


async def test_a_client_that_does_not_answer_the_server_costs_it_only_that_call() -> None:
    script = Scripted()
    client_router = Router({SILENT: _silent, ECHO: lambda channel, command: command.reply(0, body=b"here")})
    async with serving(script.router) as server, RemotingClient(client_router) as client:
        await client.call(_address(server), request(ECHO), PATIENCE_S)
        (channel,) = server.channels
        with pytest.raises(RequestTimeout, match=f"did not answer request {SILENT}"):
            await channel.call(request(SILENT), 0.02)
        assert channel.pending_count == 0
        assert (await channel.call(request(ECHO), PATIENCE_S)).body == b"here"
        assert (await client.call(_address(server), request(ECHO), PATIENCE_S)).code == 0
