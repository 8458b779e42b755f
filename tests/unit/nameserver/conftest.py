from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.clock import ManualClock
from rocketline.nameserver import NameServer, NameServerConfig
from rocketline.protocol.bodies import RegisterBrokerBody, encode_registration
from rocketline.protocol.command import Command
from rocketline.protocol.headers import RegisterBrokerHeader
from rocketline.transport import RemotingClient


class Visitor:
    """Someone who talks to a name server over connections of their own."""

    def __init__(self, server: NameServer) -> None:
        self.server = server
        self.client = RemotingClient()

    async def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", **options: int) -> Command:
        return await self.client.call(self.server.address, Command(code, ext or {}, body, **options), PATIENCE_S)

    async def register(
        self, header: RegisterBrokerHeader, body: RegisterBrokerBody, *, compressed: bool = False, **options: int
    ) -> Command:
        return await self.ask(103, header.encode(), encode_registration(body, compressed), **options)

    async def leave(self) -> None:
        await self.client.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def config() -> NameServerConfig:
    return NameServerConfig(host="127.0.0.1", port=0)


@pytest.fixture
async def server(config: NameServerConfig, clock: ManualClock) -> AsyncIterator[NameServer]:
    async with NameServer(config, clock=clock) as name_server:
        yield name_server


@pytest.fixture
async def visitor(server: NameServer) -> AsyncIterator[Visitor]:
    one = Visitor(server)
    yield one
    await one.leave()


@pytest.fixture
async def broker(server: NameServer) -> AsyncIterator[Visitor]:
    one = Visitor(server)
    yield one
    await one.leave()
