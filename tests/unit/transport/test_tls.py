"""Signed requests and TLS on the connections of a RemotingClient."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.tls import CA_FILE, CLIENT_CERTIFICATE, TLS_DATA, is_signed_by, server_context, tls_front
from tests.unit.transport.peers import ECHO, Scripted, request

from rocketline.errors import ConfigError, ConnectFailed, ConnectionLost, TlsFailed, TransportError
from rocketline.protocol.command import Command
from rocketline.protocol.signing import Credentials
from rocketline.transport import RemotingClient, RemotingServer, Router
from rocketline.transport.access import Access
from rocketline.transport.tls import Tls, later_problem

ACCOUNT = Credentials("shop", "12345678")
TRUSTING = Tls(ca_file=CA_FILE)


@pytest.fixture
async def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
async def plain(scripted: Scripted) -> AsyncIterator[str]:
    async with RemotingServer(scripted.router, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.port}"


def client(credentials: Credentials | None = None, tls: Any = False, router: Router | None = None) -> RemotingClient:
    return RemotingClient(router, access=Access.of(credentials, tls))


@asynccontextmanager
async def listening(on_bytes: Callable[[asyncio.StreamWriter], None]) -> AsyncIterator[str]:
    """A server that waits for some bytes and does something about them."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        on_bytes(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_requests_are_signed_and_answers_are_not(plain: str, scripted: Scripted) -> None:
    async with client(ACCOUNT, router=scripted.router) as signing:
        answer = await signing.call(plain, Command(ECHO, {"b": "2", "a": "1"}, b"body"), PATIENCE_S)
        assert answer.body == b"body"
        await signing.send_oneway(plain, Command(ECHO, None, b"nobody answers"))
        await signing.call(plain, Command(ECHO), PATIENCE_S)  # has passed the one before
        assert [is_signed_by(served, "shop", "12345678") for served in scripted.served] == [True] * 3
        asked_back = await scripted.channels[0].call(request(ECHO, x="y"), PATIENCE_S)
    assert asked_back.ext == {"x": "y"}


async def test_without_credentials_nothing_is_added(plain: str, scripted: Scripted) -> None:
    async with client() as unsigned:
        await unsigned.call(plain, Command(ECHO, {"a": "1"}), PATIENCE_S)
    assert scripted.served[0].ext == {"a": "1"}


async def test_a_trusted_server_is_talked_to_through_tls(plain: str, scripted: Scripted) -> None:
    body = bytes(range(256)) * 4096
    async with tls_front(plain) as address, client(ACCOUNT, TRUSTING) as secured:
        answers = await asyncio.gather(
            *(secured.call(address, Command(ECHO, {"n": str(n)}, body), PATIENCE_S) for n in range(4))
        )
        by_name = await secured.call(address.replace("127.0.0.1", "localhost"), Command(ECHO), PATIENCE_S)
    assert [answer.body for answer in answers] == [body] * 4
    assert by_name.code == 0
    assert is_signed_by(scripted.served[0], "shop", "12345678")


@pytest.mark.parametrize("tls", [Tls(verify=False), ssl.create_default_context(cafile=CA_FILE)])
async def test_trusting_anybody_and_contexts_of_ones_own(plain: str, tls: Any) -> None:
    async with tls_front(plain) as address, client(tls=tls) as secured:
        assert (await secured.call(address, Command(ECHO, body=b"x"), PATIENCE_S)).body == b"x"


async def test_a_certificate_that_nobody_trusts(plain: str) -> None:
    async with tls_front(plain) as address, client(tls=True) as secured:
        for _ in range(2):  # the second time it is not even tried
            with pytest.raises(
                TlsFailed,
                match=rf"cannot connect to {address}: its certificate is not trusted: .*ca_file=.*verify=False",
            ):
                await secured.call(address, Command(ECHO), PATIENCE_S)


async def test_a_certificate_of_another_host(plain: str) -> None:
    async with tls_front(plain, server_context("elsewhere")) as address:
        async with client(tls=TRUSTING) as secured:
            with pytest.raises(TlsFailed, match=rf"{address}: its certificate is for another host: .*check_host=False"):
                await secured.call(address, Command(ECHO), PATIENCE_S)
        async with client(tls=Tls(ca_file=CA_FILE, check_host=False)) as careless:
            assert (await careless.call(address, Command(ECHO), PATIENCE_S)).code == 0


async def test_a_plain_server_asked_for_tls(plain: str) -> None:
    async with client(tls=TRUSTING) as secured:
        with pytest.raises(
            ConnectFailed, match=rf"{plain}: it closed the connection during the TLS handshake: .*without tls"
        ):
            await secured.call(plain, Command(ECHO), PATIENCE_S)
    answer = b"HTTP/1.0 400 Bad Request\r\n\r\n"
    async with listening(lambda writer: writer.write(answer)) as address, client(tls=TRUSTING) as secured:
        with pytest.raises(TlsFailed, match=rf"{address}: it does not speak TLS .*connect without tls"):
            await secured.call(address, Command(ECHO), PATIENCE_S)


async def test_a_server_that_takes_only_tls_asked_in_plain(plain: str) -> None:
    async with tls_front(plain) as address, client() as unsecured:
        with pytest.raises(ConnectionLost, match=rf"{address} .*connect with tls=True"):
            await unsecured.call(address, Command(ECHO), PATIENCE_S)


async def test_one_that_closes_without_a_word_is_told_apart_from_one_that_was_heard_before() -> None:
    async with listening(lambda writer: None) as address, client() as unsecured:  # as Apache's does when enforcing
        with pytest.raises(ConnectionLost, match=rf"{address} closed .*if it takes only TLS .*tls=True"):
            await unsecured.call(address, Command(ECHO), PATIENCE_S)


async def test_a_server_that_asks_for_a_certificate(plain: str) -> None:
    async with tls_front(plain, server_context(asks_clients=True)) as address:
        async with client(tls=Tls(ca_file=CA_FILE, **CLIENT_CERTIFICATE)) as known:
            assert (await known.call(address, Command(ECHO), PATIENCE_S)).code == 0
        async with client(tls=TRUSTING) as unknown:
            with pytest.raises(TransportError, match=r"does it want a certificate"):
                await unknown.call(address, Command(ECHO), PATIENCE_S)


async def test_a_server_that_never_answers_the_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with RemotingClient(connect_timeout_s=0.05, access=Access(tls=TRUSTING)) as secured:
            with pytest.raises(ConnectFailed, match=f"{address}: no TLS connection in time.*does it take TLS"):
                await secured.call(address, Command(ECHO), PATIENCE_S)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ca_file": "/nowhere/ca.pem"}, "ca_file /nowhere/ca.pem cannot be used: No such file"),
        ({"ca_file": TLS_DATA / "make.sh"}, "make.sh cannot be used: .*PEM"),
        ({"certificate": "/nowhere/me.pem"}, "certificate /nowhere/me.pem cannot be used: No such file"),
        ({**CLIENT_CERTIFICATE, "key_password": "wrong-one"}, "client.pem with key .* cannot be used: .*password"),
        ({**CLIENT_CERTIFICATE, "key_password": None}, "client.pem with key .* cannot be used"),
        ({**CLIENT_CERTIFICATE, "key": TLS_DATA / "server.key"}, "is the key that of the certificate"),
    ],
)
def test_files_that_cannot_be_used_are_named_at_once(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        Access.of(None, Tls(**options)).contexts()
    assert "wrong-one" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Tls(verify="no"), "verify must be True or False"),  # type: ignore[arg-type]
        (lambda: Tls(key="me.key"), "needs the certificate"),
        (lambda: Tls(ca_file=Path("ca.pem"), verify=False), "verify=False"),
        (lambda: Access.of(None, "yes"), "tls: True, a Tls or an ssl.SSLContext expected, not str"),  # type: ignore[arg-type]
        (lambda: Access.of(("shop", "12345678"), False), "credentials: .* expected, not tuple$"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make()


def test_access_is_compared_by_what_it_says() -> None:
    assert Access.of(None, True) == Access.of(None, Tls()) != Access.of(None, False)
    assert Access.of(Credentials("shop", "12345678"), False) == Access.of(ACCOUNT, False) != Access()
    assert "12345678" not in repr(Access.of(ACCOUNT, Tls(certificate="c", key_password="12345678")))


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (None, None),
        (TimeoutError("the network is gone"), None),
        (ConnectionResetError("by peer"), None),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), None),
        (ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert"), "does it want a certificate"),
    ],
)
def test_a_connection_lost_later_is_blamed_on_tls_only_where_it_is_the_reason(
    error: Exception | None, problem: str | None
) -> None:
    found = later_problem(error)
    assert found is None if problem is None else problem in (found or "")
