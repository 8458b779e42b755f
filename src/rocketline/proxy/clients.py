"""The clients that told their settings, and what brokers know of them.

A client is known by its id from its first settings, or the first message that it holds, until it says goodbye or is silent:
`SILENT_S` after its last call, or `GONE_S` after its stream or its connection ended without another call. Brokers see each
as a member of its group, or as a producer of its topics, on a channel of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rocketline.errors import RocketlineError
from rocketline.grpc.calls import StreamCall
from rocketline.grpc.channel import GrpcChannel
from rocketline.protocol.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import LANGUAGES, Command
from rocketline.protocol.headers import UnregisterClientHeader
from rocketline.protocol.versions import UNKNOWN, version_number
from rocketline.proxy.backend import Backend
from rocketline.proxy.links import BrokerLink, FrontChannel
from rocketline.proxy.problems import Problem, problem_of
from rocketline.proxy.proto import ClientType, Code

log = logging.getLogger(__name__)

SILENT_S = 120.0
GONE_S = 15.0
CALL_S = 3.0
AT_ONCE = 256
"""Clients about which brokers are told at the same time that they are gone."""
MAX_ID_CHARS = 255
MAX_RELEASE_CHARS = 64


class Client:
    """A client with settings."""

    def __init__(self, client_id: str, channel: FrontChannel, connection: GrpcChannel) -> None:
        self.id = client_id
        self.channel = channel
        """What stands for it at brokers."""
        self.connection = connection
        """The one of its latest call."""
        self.language = "OTHER"
        self.version = UNKNOWN
        self.release = ""
        """The version as the client writes it."""
        self.settings: Any = None
        """None: it told none to this front, as after a restart of ours, and only holds messages."""
        self.stream: StreamCall | None = None
        """The stream on which it takes commands."""
        self.group = ""
        self.topics: tuple[str, ...] = ()
        """What a producer sends to, or what a consumer subscribes to."""
        self.subscriptions: list[SubscriptionData] = []
        self.seen = 0.0
        self.lost_at: float | None = None
        """When its connection ended."""

    def is_by(self, language: str, release: str) -> None:
        """Note what it is written in, and which release it is."""
        self.language = language if language in LANGUAGES else "OTHER"
        self.release = release[:MAX_RELEASE_CHARS]
        self.version = version_number(release)

    @property
    def is_producer(self) -> bool:
        return not self.group

    def heartbeat(self) -> HeartbeatData:
        """What brokers are told of it."""
        beat = HeartbeatData(client_id=self.id)
        if self.is_producer:
            beat.producer_data_set = [ProducerData(topic) for topic in self.topics]
        else:
            is_push = self.settings.client_type == ClientType.PUSH_CONSUMER
            kind = "CONSUME_PASSIVELY" if is_push else "CONSUME_ACTIVELY"
            beat.consumer_data_set = [
                ConsumerData(self.group, kind, "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", self.subscriptions)
            ]
        return beat


class Clients:
    """All clients by id."""

    def __init__(self, backend: Backend, most: int, now: Callable[[], float]) -> None:
        self._backend = backend
        self._most = most
        self._now = now
        self._clients: dict[str, Client] = {}
        self.on_gone: list[Callable[[Client], None]] = []
        """Told of every client that is gone."""

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._clients.values()))

    def get(self, client_id: str) -> Client | None:
        return self._clients.get(client_id)

    def seen(self, client_id: str, identity: str, connection: GrpcChannel) -> Client | None:
        """Note a call of a client; None when no client of that id and account is known."""
        client = self._clients.get(client_id)
        if client is None or client.channel.identity != identity:
            return None
        client.seen = self._now()
        client.lost_at = None
        client.connection = connection
        return client

    def add(self, client: Client) -> None:
        if client.id not in self._clients and len(self._clients) >= self._most:
            raise Problem(Code.TOO_MANY_REQUESTS, f"{len(self._clients)} clients are connected, the limit")
        client.seen = self._now()
        former = self._clients.get(client.id)
        if former is not None and former.channel.identity != client.channel.identity:
            raise Problem(Code.UNAUTHORIZED, f"client id {client.id[:80]!r} is in use by another account")
        self._clients[client.id] = client
        if former is not None and former is not client:
            for callback in self.on_gone:
                callback(former)
            self._backend.forget(former.channel)

    def stream_lost(self, client: Client, stream: StreamCall) -> None:
        """The stream of a client ended; others of its calls may go on."""
        if client.stream is stream:
            client.stream = None
            client.lost_at = self._now()

    async def register(self, client: Client) -> None:
        """Tell the brokers of a client; Problem when all of them refuse it, or cannot be reached."""
        body = encode_body(client.heartbeat())

        async def tell(link: BrokerLink) -> None:
            command = Command(RequestCode.HEART_BEAT, {}, body, version=client.version, language=client.language)
            answer = await link.call(client.channel, command, CALL_S)
            if answer.code != ResponseCode.SUCCESS:
                raise problem_of(answer)

        links = await self._backend.registrars(client.channel, client.topics)
        if len(links) == 1:
            await tell(links[0])
            return
        told = await asyncio.gather(*(tell(link) for link in links), return_exceptions=True)
        errors = [error for error in told if isinstance(error, BaseException)]
        for link, error in zip(links, told, strict=True):
            if isinstance(error, BaseException):
                log.info("broker %s could not be told of %s: %s", link.name, client.id, error)
        if errors and len(errors) == len(links):
            raise errors[0]

    async def remove(self, client: Client) -> None:
        """Forget a client, and tell the brokers."""
        self._forget(client)
        await self._unregister(client)

    def _forget(self, client: Client) -> None:
        if self._clients.get(client.id) is client:
            del self._clients[client.id]
        for callback in self.on_gone:
            callback(client)

    async def _unregister(self, client: Client) -> None:
        try:
            if client.settings is not None:
                links = await self._backend.registrars(client.channel, client.topics)
                await asyncio.gather(*(self._say_goodbye(client, link) for link in links))
        except RocketlineError as error:
            log.info("brokers could not be told that %s left: %s", client.id, error)
        self._backend.forget(client.channel)

    async def _say_goodbye(self, client: Client, link: BrokerLink) -> None:
        try:
            for group in client.topics if client.is_producer else (None,):
                header = UnregisterClientHeader(client.id, group, client.group or None)
                await link.call(client.channel, Command(RequestCode.UNREGISTER_CLIENT, header.encode()), CALL_S)
        except RocketlineError as error:
            log.info("broker %s could not be told that %s left: %s", link.name, client.id, error)

    async def drop_silent(self) -> None:
        """Remove clients that are gone without a word."""
        now = self._now()
        gone = []
        for client in list(self._clients.values()):
            if client.stream is None and client.lost_at is None and not client.connection.is_open:
                client.lost_at = now
            is_lost = client.lost_at is not None and now - client.lost_at > GONE_S
            if is_lost or now - client.seen > SILENT_S:
                log.info("gRPC client %s is gone", client.id)
                self._forget(client)
                gone.append(client)
        await self._unregister_all(gone)

    async def _unregister_all(self, clients: Sequence[Client]) -> None:
        for start in range(0, len(clients), AT_ONCE):
            await asyncio.gather(*map(self._unregister, clients[start : start + AT_ONCE]))

    async def close(self) -> None:
        """Unregister everybody: the front stops."""
        clients = list(self._clients.values())
        for client in clients:
            self._forget(client)
        await self._unregister_all(clients)
