from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.client.fakes import FakeNameServer

from rocketline.client import Producer
from rocketline.client.address_server import MAX_ANSWER_BYTES, ask_address_server, checked_servers
from rocketline.client.remote_nameserver import RemoteNameServer
from rocketline.errors import ConfigError, TransportError
from rocketline.message import Message
from rocketline.protocol.bodies import BrokerData, QueueData, TopicRouteData
from rocketline.transport import RemotingClient

ROUTE = TopicRouteData([BrokerData("c", "a", {0: "127.0.0.1:1"})], [QueueData("a", 4, 4, 6)])


class AddressServer:
    """Answers every question with the same bytes; none: it stays silent."""

    def __init__(self) -> None:
        self.answer: bytes | None = None
        self.questions: list[str] = []
        self.url = ""
        self.served: list[asyncio.StreamWriter] = []

    def say(self, page: str) -> None:
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + page.encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.served.append(writer)
        self.questions.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self.answer is None:
            await reader.read()
        else:
            writer.write(self.answer)
        writer.close()


@asynccontextmanager
async def address_server() -> AsyncIterator[AddressServer]:
    served = AddressServer()
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    async with server:
        served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/rocketmq/nsaddr?unit=a"
        yield served
        for writer in served.served:
            await writer.wait_closed()


async def test_the_name_servers_of_its_page_are_asked() -> None:
    name_server = FakeNameServer()
    await name_server.start()
    name_server.routes["T"] = ROUTE
    async with address_server() as addresses, RemotingClient() as remoting:
        addresses.say(f"{name_server.address}\n")
        remote = RemoteNameServer(remoting, [addresses.url])
        assert await remote.route("T") == ROUTE
        assert await remote.route("T") == ROUTE
        assert len(addresses.questions) == 1, "it is asked again by the clock only"
        assert addresses.questions[0].startswith("GET /rocketmq/nsaddr?unit=a HTTP/1.0\r\nHost: 127.0.0.1:")
        addresses.answer = b"HTTP/1.1 500 Oops\r\n\r\n"
        with pytest.raises(TransportError, match="500 Oops"):
            await remote.refresh_addresses()
        assert list(remote.addresses) == [name_server.address], "what was known stays"
        addresses.say("127.0.0.1:1;127.0.0.1:2")
        await remote.refresh_addresses()
        assert list(remote.addresses) == ["127.0.0.1:1", "127.0.0.1:2"]
    await name_server.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\nnothing", "404 Not Found"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "no name server given"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "<html>"),
        (b"SSH-2.0-x\r\n", "SSH-2.0-x"),
        (b"", "answered 'nothing'"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(MAX_ANSWER_BYTES + 1), "more than"),
    ],
)
async def test_another_answer_is_an_error_that_names_it(answer: bytes, words: str) -> None:
    async with address_server() as addresses:
        addresses.answer = answer
        with pytest.raises(TransportError, match=words) as caught:
            await ask_address_server(addresses.url, 30.0)
        assert addresses.url in str(caught.value)


async def test_silence_ends() -> None:
    async with address_server() as addresses:
        with pytest.raises(TransportError, match=r"did not answer within 0\.05 s"):
            await ask_address_server(addresses.url, 0.05)


async def test_a_send_says_which_address_server_failed_and_says_it_again() -> None:
    async with Producer("http://127.0.0.1:1/nsaddr", group="g") as producer:
        for _ in range(2):
            with pytest.raises(TransportError, match=r"address server http://127\.0\.0\.1:1/nsaddr"):
                await producer.send(Message("T", b"x"))


@pytest.mark.parametrize("url", ["http://", "http://host:port/", "http://host:99999/", "https://ho st/", "http://hö/"])
def test_wrong_addresses_are_named(url: str) -> None:
    with pytest.raises(ConfigError, match=r"address server 'https?://"):
        checked_servers(url)


def test_plain_name_servers_stay_what_they_are() -> None:
    assert checked_servers("a:1;b:2") == ("a:1", "b:2")
    assert checked_servers("https://addresses.example/x") == ("https://addresses.example/x",)
