"""A listening socket whose connections share one router."""

from __future__ import annotations

import asyncio

from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport.channel import Channel
from rocketline.transport.limits import DEFAULT_LIMITS, Limits, Strangers
from rocketline.transport.listening import ListeningServer
from rocketline.transport.router import Reply, Router
from rocketline.transport.server_config import ConnectionsConfig
from rocketline.transport.server_tls import ServerTls

FRAME_START = 0x00
"""The first byte of a frame of less than 16 MiB."""

TLS_REQUIRED = "TLS required: this server takes only TLS (tls.server.mode=enforcing); connect with tls=True"


class RemotingServer(ListeningServer[Channel]):
    """Serves a router on one address; an async context manager."""

    def __init__(
        self,
        router: Router,
        host: str,
        port: int,
        *,
        limits: Limits | None = None,
        max_connections: int = 10_000,
        channel_type: type[Channel] = Channel,
        connections: ConnectionsConfig | None = None,
        tls: ServerTls | None = None,
        strangers: Strangers | None = None,
    ) -> None:
        """`strangers`: what connections may do before a request of theirs has passed the guard; None: as much as later."""
        self._router = router
        self._strangers = strangers
        self.limits = limits or DEFAULT_LIMITS
        self._channel_type = channel_type
        self._refusing = Router()
        self._refusing.guard = TlsRequired()
        super().__init__(
            host,
            port,
            self._new_channel,
            self._refuse_plain,
            idle_s=self.limits.idle_s,
            max_connections=max_connections,
            connections=connections,
            tls=tls,
        )

    def _new_channel(self) -> Channel:
        return self._channel_type(
            self._router, self.limits, on_open=self.opened, on_close=self.closed, strangers=self._strangers
        )

    def _refuse_plain(self, first: int) -> Channel | None:
        if first != FRAME_START:
            return None
        return Channel(self._refusing, self.limits, on_open=self.opened, on_close=self.closed)


class TlsRequired:
    """The guard of plain connections to a server that takes only TLS: it tells so once, and closes."""

    def refusal(self, channel: Channel, request: Command) -> Reply:
        asyncio.get_running_loop().call_soon(channel.close)  # after the answer is written
        return request.reply(ResponseCode.NO_PERMISSION, remark=TLS_REQUIRED)

    def late_answer(self, channel: Channel, request: Command, answer: Command | None) -> Command | None:
        return answer
