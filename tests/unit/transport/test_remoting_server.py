"""A listening server: limits, idle connections, closing, and ports it cannot have."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.transport.peers import BLOAT, ECHO, HOLD, RawPeer, Scripted, eventually, request, serving

from rocketline.errors import ConfigError
from rocketline.protocol.command import Command
from rocketline.transport import Limits, RemotingServer, Router


def _refuses(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) != 0


async def test_port_0_takes_a_free_port_and_says_which():
    async with serving(Router()) as first, serving(Router()) as second:
        assert first.port != second.port
        assert 0 < first.port < 65536


@pytest.mark.parametrize("port", [70_000, -1])
async def test_a_port_that_cannot_exist_is_refused(port: int):
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
        await RemotingServer(Router(), "127.0.0.1", port).start()


async def test_a_port_in_use_is_refused_with_the_port_and_a_way_out():
    async with serving(Router()) as server:
        with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{server.port}: .*in use.*another port"):
            await RemotingServer(Router(), "127.0.0.1", server.port).start()


async def test_an_address_that_is_not_ours_is_refused():
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0"):
        await RemotingServer(Router(), "192.0.2.1", 0).start()


async def test_connections_beyond_the_limit_are_closed_and_the_others_served():
    async with serving(Scripted().router, max_connections=2) as server:
        peers = [await RawPeer.connect(server.port) for _ in range(2)]
        for peer in peers:
            assert await peer.is_silent()
        refused = await RawPeer.connect(server.port)
        assert await refused.read_until_closed() == b""
        assert await peers[0].is_silent()
        await peers.pop().close()
        await eventually(lambda: len(server.channels) == 1)
        admitted = await RawPeer.connect(server.port)
        assert await admitted.is_silent()
        for peer in (*peers, refused, admitted):
            await peer.close()


async def test_an_idle_connection_is_closed_and_a_waiting_one_kept():
    script = Scripted()
    async with serving(script.router, Limits(idle_s=0.1)) as server:
        idle, waiting = await RawPeer.connect(server.port), await RawPeer.connect(server.port)
        await waiting.send_commands(request(HOLD, opaque=1))
        await script.wait_held()
        assert await idle.read_until_closed() == b""
        script.release.set()
        assert (await waiting.receive()).opaque == 1
        await idle.close()
        await waiting.close()


async def test_an_idle_connection_goes_even_when_it_never_reads_what_it_was_sent():
    script = Scripted()
    async with serving(script.router, Limits(idle_s=0.1, write_high_water_bytes=1 << 30)) as server:
        peer = await RawPeer.connect(server.port, receive_buffer=4096)
        await peer.send_commands(request(BLOAT, size=str(16 * 1024 * 1024)))
        await eventually(lambda: bool(script.served))
        await eventually(lambda: not server.channels)
        await peer.close()


async def test_closing_waits_for_answers_that_are_still_due():
    script = Scripted()
    server = RemotingServer(script.router, "127.0.0.1", 0)
    await server.start()
    peer = await RawPeer.connect(server.port)
    await peer.send_commands(request(HOLD, opaque=6))
    await script.wait_held()
    closing = asyncio.ensure_future(server.close(grace_s=10))
    await eventually(lambda: _refuses(server.port))
    assert not closing.done()
    script.release.set()
    assert (await peer.receive()).opaque == 6
    assert await peer.read_until_closed() == b""
    await closing
    await peer.close()


async def test_closing_gives_up_on_answers_that_do_not_come_within_the_grace():
    script = Scripted()
    server = RemotingServer(script.router, "127.0.0.1", 0)
    await server.start()
    peer = await RawPeer.connect(server.port)
    await peer.send_commands(request(HOLD))
    await script.wait_held()
    await server.close(grace_s=0.05)
    assert not server.channels
    assert await peer.read_until_closed() == b""
    await peer.close()


async def test_closing_ends_a_peer_that_does_not_read():
    script = Scripted()
    server = RemotingServer(script.router, "127.0.0.1", 0)
    await server.start()
    peer = await RawPeer.connect(server.port, receive_buffer=4096)
    await peer.send_commands(request(BLOAT, size=str(16 * 1024 * 1024)))
    await eventually(lambda: bool(script.served))
    await server.close(grace_s=0.05)
    await eventually(lambda: not server.channels)
    await peer.close()


async def test_a_closed_server_accepts_nobody_and_its_port_is_free_again():
    async with serving(Router()) as server:
        port = server.port
    with pytest.raises(ConnectionRefusedError):
        await RawPeer.connect(port)
    async with RemotingServer(Router(), "127.0.0.1", port) as again:
        assert again.port == port
    await server.close()


async def test_a_connection_tells_those_who_watch_it_that_it_closed():
    closed = asyncio.Event()

    def watch(channel, command: Command) -> Command:
        channel.on_close.append(lambda gone: closed.set())
        return command.reply(0)

    async with serving(Router({ECHO: watch})) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(request(ECHO))
        await peer.receive()
        assert not closed.is_set()
        await peer.close()
        await asyncio.wait_for(closed.wait(), PATIENCE_S)


async def test_a_watcher_that_fails_does_not_keep_the_others_from_hearing():
    told = asyncio.Event()

    def watch(channel, command: Command) -> Command:
        channel.on_close.insert(0, lambda gone: 1 / 0)
        channel.on_close.append(lambda gone: told.set())
        return command.reply(0)

    async with serving(Router({ECHO: watch})) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(request(ECHO))
        await peer.receive()
        await peer.close()
        await asyncio.wait_for(told.wait(), PATIENCE_S)
        await eventually(lambda: not server.channels)


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
async def test_ipv6_loopback_works():
    script = Scripted()
    try:
        server = RemotingServer(script.router, "::1", 0)
        await server.start()
    except ConfigError:
        pytest.skip("no IPv6 loopback here")
    reader, writer = await asyncio.open_connection("::1", server.port)
    peer = RawPeer(reader, writer)
    await peer.send_commands(request(ECHO, opaque=3))
    assert (await peer.receive()).opaque == 3
    assert script.channels[0].remote.startswith("[::1]:")
    assert len(script.channels[0].remote_host) == 20
    await peer.close()
    await server.close()
