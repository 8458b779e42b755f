"""A name server that only listens: a real server on loopback which notes what brokers tell it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from rocketline.protocol.bodies import decode_registration
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport import Channel, RemotingServer, Router


class FakeNameServer:
    """Notes what brokers tell it; `code` is what it answers, `hangs` lets it never answer."""

    def __init__(self, port: int = 0) -> None:
        router = Router({RequestCode.REGISTER_BROKER: self._note, RequestCode.UNREGISTER_BROKER: self._note})
        self._server = RemotingServer(router, "127.0.0.1", port)
        self.told: list[Command] = []
        self.code: int = ResponseCode.SUCCESS
        self.hangs = False

    def _note(self, channel: Channel, request: Command) -> Command | Awaitable[Command | None]:
        self.told.append(request)
        if self.hangs:
            return asyncio.get_running_loop().create_future()
        return request.reply(self.code, remark=None if self.code == 0 else "go away")

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    @property
    def connection_count(self) -> int:
        return len(self._server.channels)

    def topics(self, number: int = -1) -> set[str]:
        """Names in one of the registrations it got."""
        request = self.told[number]
        assert request.code == RequestCode.REGISTER_BROKER
        wrapper = decode_registration(request.body, False, request.version).topic_config_serialize_wrapper
        return set(wrapper.topic_config_table)

    async def __aenter__(self) -> FakeNameServer:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close(grace_s=0)
