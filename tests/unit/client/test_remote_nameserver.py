from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import SILENCE, FakeNameServer

from rocketline.client.remote_nameserver import RemoteNameServer
from rocketline.errors import RouteNotFound, TopicNotExist, TransportError
from rocketline.protocol.bodies import BrokerData, QueueData, TopicRouteData
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.transport import RemotingClient

ROUTE = TopicRouteData([BrokerData("c", "a", {0: "a:1"})], [QueueData("a", 4, 4, 6)])
GET_ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
NOBODY = "127.0.0.1:1"


@pytest.fixture
async def servers() -> AsyncIterator[list[FakeNameServer]]:
    made = [FakeNameServer(), FakeNameServer()]
    for server in made:
        await server.start()
    yield made
    for server in made:
        await server.close()


@pytest.fixture
async def remoting() -> AsyncIterator[RemotingClient]:
    async with RemotingClient() as client:
        yield client


def asking(remoting: RemotingClient, *addresses: str, timeout_s: float = PATIENCE_S) -> RemoteNameServer:
    return RemoteNameServer(remoting, addresses, timeout_s=timeout_s, next_server_s=0.02)


async def test_the_first_server_that_answers_is_kept(servers: list[FakeNameServer], remoting: RemotingClient) -> None:
    servers[1].routes["T"] = ROUTE
    remote = asking(remoting, NOBODY, servers[1].address)
    assert await remote.route("T") == ROUTE
    assert await remote.route("T") == ROUTE
    assert len(servers[1].requests) == 2


async def test_a_silent_server_does_not_block(servers: list[FakeNameServer], remoting: RemotingClient) -> None:
    servers[0].script(GET_ROUTE, SILENCE)
    servers[1].routes["T"] = ROUTE
    remote = asking(remoting, servers[0].address, servers[1].address)
    assert await remote.route("T") == ROUTE
    servers[0].routes["T"] = ROUTE
    remote._next_server_s = PATIENCE_S
    await remote.route("T")
    assert len(servers[0].requests) == 1, "the one that answered is asked first now"


async def test_a_slow_answer_still_counts(servers: list[FakeNameServer], remoting: RemotingClient) -> None:
    asked = asyncio.Event()

    async def after_the_other(request: Command) -> Command:
        await asked.wait()
        reply = servers[0].habit(next(iter(servers[0].channels)), request)
        assert isinstance(reply, Command)
        return reply

    def note(request: Command) -> None:
        asked.set()

    servers[0].routes["T"] = ROUTE
    servers[0].script(GET_ROUTE, after_the_other)
    servers[1].script(GET_ROUTE, note)
    remote = asking(remoting, servers[0].address, servers[1].address)
    assert await remote.route("T") == ROUTE


async def test_one_server_not_knowing_a_topic_is_not_the_last_word(
    servers: list[FakeNameServer], remoting: RemotingClient
) -> None:
    servers[1].routes["T"] = ROUTE
    assert await asking(remoting, servers[0].address, servers[1].address).route("T") == ROUTE


async def test_a_silent_server_does_not_keep_a_topic_from_being_new(
    servers: list[FakeNameServer], remoting: RemotingClient
) -> None:
    """Or nobody could make one while a name server hangs."""
    servers[0].script(GET_ROUTE, SILENCE)
    addresses = [server.address for server in servers]
    with pytest.raises(RouteNotFound) as caught:
        await asking(remoting, *addresses).route("T")
    assert isinstance(caught.value.__cause__, TopicNotExist)
    assert all(f"{address} said: " in str(caught.value) for address in addresses)


async def test_a_missing_topic_names_everybody_asked(servers: list[FakeNameServer], remoting: RemotingClient) -> None:
    addresses = [server.address for server in servers]
    with pytest.raises(RouteNotFound) as caught:
        await asking(remoting, *addresses).route("orders")
    text = str(caught.value)
    assert "'orders'" in text
    assert all(f"{address} said: code 17" in text for address in addresses)
    assert "autoCreateTopicEnable" in text
    assert isinstance(caught.value.__cause__, TopicNotExist)


async def test_unreachable_servers_are_told_apart_from_a_missing_topic(remoting: RemotingClient) -> None:
    with pytest.raises(RouteNotFound, match="could be reached") as caught:
        await asking(remoting, NOBODY).route("orders")
    assert isinstance(caught.value.__cause__, TransportError)
    assert NOBODY in str(caught.value)


async def test_a_broken_answer_is_reported(servers: list[FakeNameServer], remoting: RemotingClient) -> None:
    servers[0].script(GET_ROUTE, lambda request: request.reply(0, body=b"{not json"))
    with pytest.raises(Exception, match="TopicRouteData"):
        await asking(remoting, servers[0].address).route("T")


async def test_cancelling_leaves_no_call_behind(servers: list[FakeNameServer], remoting: RemotingClient) -> None:
    servers[0].script(GET_ROUTE, SILENCE)
    servers[1].script(GET_ROUTE, SILENCE)
    lookup = asyncio.create_task(asking(remoting, servers[0].address, servers[1].address).route("T"))
    await servers[1].request(GET_ROUTE)
    lookup.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lookup
    for server in servers:
        channel = remoting.connected(server.address)
        assert channel is not None
        assert channel.pending_count == 0
