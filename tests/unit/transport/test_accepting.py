"""New connections: what they begin they must finish, in time; TLS and plain on one port; load balancers; limits."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.tls import CA_FILE, TLS_DATA
from tests.unit.transport.peers import ECHO, RawPeer, Scripted, eventually, request, serving

from rocketline.errors import TlsFailed, TransportError
from rocketline.protocol.command import ONEWAY, Command
from rocketline.protocol.connection import frame_bytes
from rocketline.system.event_loop import loop_factory
from rocketline.transport import Limits, RemotingClient, RemotingServer, accepting
from rocketline.transport.accepting import Admission
from rocketline.transport.access import Access
from rocketline.transport.server import TLS_REQUIRED
from rocketline.transport.server_config import ConnectionsConfig, TlsConfig
from rocketline.transport.server_tls import ServerTls
from rocketline.transport.tls import Tls

TRUSTING = Access(tls=Tls(ca_file=CA_FILE))
FRAME = frame_bytes(request(ECHO, opaque=7))
HTTP = b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
MODES = ("disabled", "permissive", "enforcing")


def server_tls(mode: str = "permissive") -> ServerTls | None:
    config = TlsConfig(mode=mode, cert_path=str(TLS_DATA / "server.pem"), key_path=str(TLS_DATA / "server.key"))
    return ServerTls.of(config, "127.0.0.1")


def client_hello(context: ssl.SSLContext | None = None) -> bytes:
    outgoing = ssl.MemoryBIO()
    connection = (context or ssl.create_default_context()).wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def old_client_hello() -> bytes:
    context = ssl.create_default_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return client_hello(context)


async def echoed(server: RemotingServer, access: Access) -> Command:
    async with RemotingClient(access=access) as client:
        return await client.call(f"127.0.0.1:{server.port}", Command(ECHO, body=b"x" * 100_000), PATIENCE_S)


# Modes


@pytest.mark.parametrize("mode", MODES)
async def test_plain_and_tls_clients(mode: str) -> None:
    async with serving(Scripted().router, tls=server_tls(mode)) as server:
        if mode == "disabled":
            with pytest.raises(TransportError, match="does not take TLS"):
                await echoed(server, TRUSTING)
        else:
            assert len((await echoed(server, TRUSTING)).body) == 100_000
        plain = await echoed(server, Access())
        if mode == "enforcing":
            assert (plain.code, plain.remark) == (16, TLS_REQUIRED)
        else:
            assert (plain.code, len(plain.body)) == (0, 100_000)
        await eventually(lambda: not server.channels)


def test_the_event_loop_of_servers_does_the_same() -> None:
    async def both() -> tuple[int, int]:
        async with serving(Scripted().router, tls=server_tls()) as server:
            return (await echoed(server, TRUSTING)).code, (await echoed(server, Access())).code

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert runner.run(both()) == (0, 0)


async def test_a_server_that_takes_only_tls_tells_so_once_and_closes() -> None:
    scripted = Scripted()
    async with serving(scripted.router, tls=server_tls("enforcing")) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send_commands(request(ECHO, opaque=7))
        answer = await peer.receive()
        assert (answer.code, answer.opaque) == (16, 7)
        assert await peer.read_until_closed() == b""
        await peer.close()
        oneway = await RawPeer.connect(server.port)
        await oneway.send_commands(request(ECHO, flag=ONEWAY))
        assert await oneway.read_until_closed() == b""
        await oneway.close()
    assert not scripted.served


# Peers that are slow, silent or hostile


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(b"\x16", id="first byte of TLS"),
        pytest.param(client_hello()[:40], id="half a ClientHello"),
        pytest.param(client_hello(), id="a ClientHello and no more"),
        pytest.param(old_client_hello(), id="TLS 1.1"),
        pytest.param(b"\x16\x03\x01\x00\x05rubbish", id="rubbish as TLS"),
        pytest.param(FRAME[:-1], id="a frame without its end"),
        pytest.param(b"\x00", id="first byte of a frame"),
        pytest.param(HTTP, id="HTTP"),
        pytest.param(b"PROXY TCP4 10.9.8.7 10.0.0.1 1 2\r\n" + FRAME, id="a forged PROXY header"),
    ],
)
async def test_what_is_not_finished_or_makes_no_sense_is_closed(
    mode: str, attack: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "FIRST_FRAME_S", 0.05)
    monkeypatch.setattr(accepting, "HANDSHAKE_S", 0.05)
    scripted = Scripted()
    async with serving(scripted.router, tls=server_tls(mode)) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send(attack)
        await peer.read_until_closed()
        await peer.close()
        await eventually(lambda: not server.channels)
    assert not scripted.served


@pytest.mark.parametrize("mode", MODES)
async def test_a_drip_is_closed_and_silence_is_not(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "FIRST_FRAME_S", 0.2)
    monkeypatch.setattr(accepting, "HANDSHAKE_S", 0.2)
    async with serving(Scripted().router, tls=server_tls(mode)) as server:
        silent, dripping = await RawPeer.connect(server.port), await RawPeer.connect(server.port)
        closed = asyncio.create_task(dripping.read_until_closed())
        with pytest.raises(ConnectionError):
            for _ in range(10_000):
                await dripping.send(b"\x00\x00\x40\x00" if mode == "enforcing" else b"\x00")
                await asyncio.sleep(0.01)
        await closed
        await silent.send(FRAME)
        assert (await silent.receive()).opaque == 7
        silent.abort()
        dripping.abort()


async def test_the_limit_is_for_the_first_frame_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "FIRST_FRAME_S", 1.0)
    async with serving(Scripted().router) as server:
        peer = await RawPeer.connect(server.port)
        await peer.send(FRAME + FRAME[:10])  # a large second frame on a slow line
        assert (await peer.receive()).opaque == 7
        await asyncio.sleep(1.2)
        await peer.send(FRAME[10:])
        assert (await peer.receive()).opaque == 7
        await peer.close()


@pytest.mark.parametrize("mode", MODES)
async def test_silence_is_closed_when_it_is_idle_for_too_long(mode: str) -> None:
    async with serving(Scripted().router, Limits(idle_s=0.1), tls=server_tls(mode)) as server:
        peer = await RawPeer.connect(server.port)
        assert await peer.read_until_closed() == b""
        await peer.close()


@pytest.fixture
async def unfinished() -> AsyncIterator[Callable[[int, int], Awaitable[list[RawPeer]]]]:
    """Opens connections that send a ClientHello and no more."""
    peers: list[RawPeer] = []
    hello = client_hello()

    async def open_some(port: int, count: int) -> list[RawPeer]:
        for _ in range(count):
            peers.append(await RawPeer.connect(port))
            await peers[-1].send(hello)
        return peers

    yield open_some
    for peer in peers:
        peer.abort()


async def test_others_are_served_while_many_handshakes_are_not_finished(
    unfinished: Callable[[int, int], Awaitable[list[RawPeer]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "MAX_HANDSHAKES", 100)
    tls = server_tls()
    async with serving(Scripted().router, tls=tls, max_connections=1000) as server:
        async with RemotingClient(access=TRUSTING) as loyal:
            address = f"127.0.0.1:{server.port}"
            await loyal.call(address, Command(ECHO), PATIENCE_S)
            peers = await unfinished(server.port, 600)
            assert (await loyal.call(address, Command(ECHO), PATIENCE_S)).code == 0
            assert (await echoed(server, TRUSTING)).code == 0
        for peer in peers[:500]:  # the oldest had to make room
            assert (await peer.read_until_closed())[:1] == b"\x16"
        assert tls is not None
        await eventually(lambda: tls.handshake_failures >= 500)


# Load balancers


PROXIED = b"PROXY TCP4 10.9.8.7 10.0.0.1 4711 10911\r\n"


@pytest.mark.parametrize("mode", ["disabled", "permissive"])
async def test_a_load_balancer_names_the_client(mode: str) -> None:
    scripted = Scripted()
    balancers = ConnectionsConfig(proxy_from="192.0.2.0/24, 127.0.0.0/8")
    async with serving(scripted.router, tls=server_tls(mode), connections=balancers) as server:
        for pieces in ([PROXIED + FRAME], [PROXIED[:9], PROXIED[9:] + FRAME[:3], FRAME[3:]]):
            peer = await RawPeer.connect(server.port)
            for piece in pieces:
                await peer.send(piece)
                await asyncio.sleep(0)
            assert (await peer.receive()).opaque == 7
            await peer.close()
        without = await RawPeer.connect(server.port)
        await without.send(FRAME)
        assert await without.read_until_closed() == b""
        await without.close()
    assert [(channel.remote, channel.remote_ip) for channel in scripted.channels] == [("10.9.8.7:4711", "10.9.8.7")] * 2


async def test_tls_behind_a_load_balancer() -> None:
    scripted = Scripted()
    balancers = ConnectionsConfig(proxy_from="127.0.0.1")
    async with serving(scripted.router, tls=server_tls("enforcing"), connections=balancers) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(PROXIED)
        async with asyncio.timeout(PATIENCE_S):
            await writer.start_tls(ssl.create_default_context(cafile=CA_FILE), server_hostname="localhost")
            writer.write(FRAME)
            assert await reader.readexactly(4)
        assert scripted.channels[0].remote_ip == "10.9.8.7"
        assert scripted.channels[0].is_encrypted
        writer.transport.abort()


# Limits


def test_connections_are_limited_by_address_except_those_of_this_machine() -> None:
    admission = Admission(6, 2)
    assert [bool(admission.admit(ip)) for ip in ("10.0.0.1", "10.0.0.1", "10.0.0.1")] == [False, False, True]
    assert "10.0.0.1 has 2 connections already" in admission.admit("10.0.0.1")
    admission.release("10.0.0.1")
    assert not admission.admit("10.0.0.1")
    assert [bool(admission.admit(ip)) for ip in ("127.0.0.1", "::1", "127.0.0.1", "10.0.0.2")] == [False] * 4
    assert "6 connections are open" in admission.admit("10.0.0.3")
    assert not any(Admission(9, 0).admit(ip) for ip in ["10.0.0.1"] * 5)


async def test_connections_without_a_frame_count_too() -> None:
    async with serving(Scripted().router, tls=server_tls(), max_connections=2) as server:
        peers = [await RawPeer.connect(server.port) for _ in range(3)]
        assert await peers[2].read_until_closed() == b""
        with pytest.raises(TransportError):
            await echoed(server, TRUSTING)
        await peers[0].close()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await echoed(server, TRUSTING)
                    break
                except (TransportError, TlsFailed):
                    await asyncio.sleep(0.01)
        for peer in peers[1:]:
            await peer.close()
