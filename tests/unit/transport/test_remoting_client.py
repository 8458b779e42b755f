"""Calls by address: shared connections, what happens when there is none, and how they come back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.transport.peers import BLOAT, ECHO, HOLD, Scripted, eventually, request, serving

from rocketline.errors import ConnectFailed, ConnectionLost, RequestTimeout
from rocketline.protocol.command import Command
from rocketline.transport import Limits, RemotingClient, RemotingServer, Router
from rocketline.transport import client as client_module
from rocketline.transport.client import split_address


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _address(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.port}"


async def test_many_calls_share_one_connection_and_each_gets_its_own_answer():
    script = Scripted()
    async with serving(script.router) as server, RemotingClient() as client:
        calls = [client.call(_address(server), request(ECHO, n=str(number)), PATIENCE_S) for number in range(200)]
        answers = await asyncio.gather(*calls)
        assert [answer.ext for answer in answers] == [{"n": str(number)} for number in range(200)]
        assert len(server.channels) == 1


async def test_answers_out_of_order_find_their_calls():
    script = Scripted()
    async with serving(script.router) as server, RemotingClient() as client:
        held = asyncio.ensure_future(client.call(_address(server), request(HOLD), PATIENCE_S))
        await script.wait_held()
        assert (await client.call(_address(server), request(ECHO, n="quick"), PATIENCE_S)).ext == {"n": "quick"}
        assert not held.done()
        script.release.set()
        assert (await held).remark == "late"


async def test_oneway_requests_arrive():
    script = Scripted()
    async with serving(script.router) as server, RemotingClient() as client:
        await client.send_oneway(_address(server), request(ECHO, n="first"))
        await client.send_oneway(_address(server), request(ECHO, n="second"))
        await eventually(lambda: len(script.served) == 2)
        assert [command.ext for command in script.served] == [{"n": "first"}, {"n": "second"}]
        assert all(command.is_oneway for command in script.served)


async def test_the_server_may_ask_the_client():
    asked: list[Command] = []

    def serve(channel, command: Command) -> Command:
        asked.append(command)
        return command.reply(0, body=b"from the client")

    script = Scripted()
    async with serving(script.router) as server, RemotingClient(Router({40: serve})) as client:
        await client.call(_address(server), request(ECHO), PATIENCE_S)
        (channel,) = server.channels
        assert (await channel.call(Command(40), PATIENCE_S)).body == b"from the client"
        assert (await channel.call(Command(41), PATIENCE_S)).code == 3
        channel.send_oneway(Command(40))
        await eventually(lambda: len(asked) == 2)


async def test_a_call_that_is_not_answered_in_time_fails_and_the_next_one_works():
    script = Scripted()
    async with serving(script.router) as server, RemotingClient() as client:
        await client.call(_address(server), request(ECHO), PATIENCE_S)  # makes the connection, which takes its time
        with pytest.raises(RequestTimeout, match="did not answer request 2"):
            await client.call(_address(server), request(HOLD), 0.05)
        assert (await client.call(_address(server), request(ECHO), PATIENCE_S)).code == 0


async def test_a_lost_connection_fails_its_calls_and_is_made_anew():
    script = Scripted()
    async with serving(script.router) as server, RemotingClient() as client:
        call = asyncio.ensure_future(client.call(_address(server), request(HOLD), PATIENCE_S))
        await script.wait_held()
        for channel in list(server.channels):
            channel.abort()
        with pytest.raises(ConnectionLost):
            await call
        assert (await client.call(_address(server), request(ECHO), PATIENCE_S)).code == 0


async def test_refused_connections_name_the_address_and_the_reason():
    async with RemotingClient() as client:
        address = f"127.0.0.1:{_free_port()}"
        with pytest.raises(ConnectFailed, match=f"cannot connect to {address}: .*refused"):
            await client.call(address, request(ECHO), PATIENCE_S)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1", ":1", "127.0.0.1:port", "127.0.0.1:99999", "h:-1", ""])
async def test_an_address_that_is_none_says_so(address: str):
    async with RemotingClient() as client:
        with pytest.raises(ConnectFailed, match="is not an address: host:port expected"):
            await client.call(address, request(ECHO), PATIENCE_S)


async def test_a_host_that_cannot_exist_is_a_failure_to_connect():
    address = "x" * 64 + ":9876"
    async with RemotingClient() as client:
        with pytest.raises(ConnectFailed, match=f"cannot connect to {address}"):
            await client.send_oneway(address, request(ECHO), 10)


async def test_after_a_failure_calls_fail_at_once_until_the_next_attempt_is_due(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "FIRST_BACKOFF_S", 60.0)
    monkeypatch.setattr(client_module, "LAST_BACKOFF_S", 60.0)
    port = _free_port()
    async with RemotingClient() as client:
        with pytest.raises(ConnectFailed, match="refused"):
            await client.call(f"127.0.0.1:{port}", request(ECHO), PATIENCE_S)
        async with RemotingServer(Scripted().router, "127.0.0.1", port):
            with pytest.raises(ConnectFailed, match=r"refused.*; next attempt in \d+\.\d s"):
                await client.call(f"127.0.0.1:{port}", request(ECHO), PATIENCE_S)


async def test_pauses_between_attempts_double_up_to_a_cap_and_end_with_success(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "FIRST_BACKOFF_S", 0.001)
    monkeypatch.setattr(client_module, "LAST_BACKOFF_S", 0.005)
    port = _free_port()
    address = f"127.0.0.1:{port}"
    pauses = []
    async with RemotingClient() as client:

        async def attempt_fails() -> None:
            link = client._links.get(address)
            await eventually(lambda: link is None or link.retry_at <= asyncio.get_running_loop().time())
            with pytest.raises(ConnectFailed):
                await client.call(address, request(ECHO), PATIENCE_S)
            pauses.append(client._links[address].backoff_s)

        for _ in range(5):
            await attempt_fails()
        assert pauses == [0.001, 0.002, 0.004, 0.005, 0.005]
        server = RemotingServer(Scripted().router, "127.0.0.1", port)
        await server.start()
        await eventually(lambda: client._links[address].retry_at <= asyncio.get_running_loop().time())
        assert (await client.call(address, request(ECHO), PATIENCE_S)).code == 0
        await server.close()
        await eventually(lambda: client.connected(address) is None)
        await attempt_fails()
        assert pauses[-1] == 0.001


async def test_callers_of_one_address_share_one_attempt():
    script = Scripted()
    async with serving(script.router) as server, RemotingClient() as client:
        await asyncio.gather(*(client.call(_address(server), request(ECHO), PATIENCE_S) for _ in range(20)))
        assert len({id(channel) for channel in script.channels}) == 1


@pytest.fixture
def deaf_address() -> Iterator[str]:
    """The address of a listener that completes no handshake: its queue is full and nobody accepts."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(("timeout", "connect_timeout"), [(0.05, 30.0), (30.0, 0.05)])
async def test_connecting_is_covered_by_the_calls_time_and_by_its_own(
    deaf_address: str, timeout: float, connect_timeout: float
):
    async with RemotingClient(connect_timeout_s=connect_timeout) as client:
        with pytest.raises((RequestTimeout, ConnectFailed), match=rf"{deaf_address}.*within 0\.05 s"):
            await client.call(deaf_address, request(ECHO), timeout)


@pytest.mark.parametrize("ending", ["close", "drop"])
async def test_a_call_that_is_connecting_fails_cleanly_when_the_client_lets_go(deaf_address: str, ending: str):
    client = RemotingClient(connect_timeout_s=30)
    call = asyncio.ensure_future(client.call(deaf_address, request(ECHO), PATIENCE_S))
    await eventually(lambda: deaf_address in client._links)
    await asyncio.sleep(0)
    if ending == "close":
        await client.close()
    else:
        client.drop(deaf_address)
    with pytest.raises(ConnectFailed, match=f"{deaf_address}.*was dropped"):
        await call
    await client.close()


async def test_a_callers_own_cancellation_stays_one(deaf_address: str):
    async with RemotingClient(connect_timeout_s=30) as client:
        call = asyncio.ensure_future(client.call(deaf_address, request(ECHO), PATIENCE_S))
        await eventually(lambda: deaf_address in client._links)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_dropping_an_address_closes_its_connection_and_the_next_call_makes_another():
    script = Scripted()
    async with serving(script.router) as server, RemotingClient() as client:
        await client.call(_address(server), request(ECHO), PATIENCE_S)
        client.drop(_address(server))
        client.drop(_address(server))
        await eventually(lambda: not server.channels)
        assert client.connected(_address(server)) is None
        assert (await client.call(_address(server), request(ECHO), PATIENCE_S)).code == 0


async def test_a_closed_client_refuses_calls_and_leaves_no_connection():
    script = Scripted()
    async with serving(script.router) as server:
        async with RemotingClient() as client:
            await client.call(_address(server), request(ECHO), PATIENCE_S)
        await eventually(lambda: not server.channels)
        with pytest.raises(ConnectFailed, match="this client is closed"):
            await client.call(_address(server), request(ECHO), PATIENCE_S)


async def test_oneway_senders_are_held_back_while_the_server_does_not_read():
    """The server stops reading because we do not read its answers; our own buffer must not grow instead."""
    script = Scripted()
    small = Limits(write_high_water_bytes=64 * 1024)
    async with serving(script.router, small) as server, RemotingClient(limits=small) as client:
        await client.call(_address(server), request(ECHO), PATIENCE_S)
        channel = client.connected(_address(server))
        assert channel is not None
        channel._transport.pause_reading()
        for _ in range(20):
            channel._send(request(BLOAT, size=str(1024 * 1024)))
        with pytest.raises(RequestTimeout, match="does not read"):
            for _ in range(100):
                await client.send_oneway(_address(server), request(ECHO, body=bytes(1024 * 1024)), 0.05)
        assert channel._transport.get_write_buffer_size() < 4 * 1024 * 1024
        channel._transport.resume_reading()
        await client.send_oneway(_address(server), request(ECHO, n="last"), PATIENCE_S)
        await eventually(lambda: script.served[-1].ext == {"n": "last"})


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("a:1", ("a", 1)),
        ("[::1]:9876", ("::1", 9876)),
        ("::1:9876", ("::1", 9876)),
        ("h.example:65535", ("h.example", 65535)),
    ],
)
def test_addresses_are_split_at_their_last_colon(address: str, parts: tuple[str, int]):
    assert split_address(address) == parts
