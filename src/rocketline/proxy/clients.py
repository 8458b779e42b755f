"""The clients that told their settings, and what brokers know of them.

A client is known by its id from its first settings until it says goodbye, or until it is silent: `SILENT_S` after its last
call, or `GONE_S` after its connection ended without another call. Brokers see each as a member of its group, or as a
producer of its topics, on a channel of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

from rocketline.errors import RocketlineError
from rocketline.grpc.calls import StreamCall
from rocketline.protocol.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import LANGUAGES, Command
from rocketline.protocol.headers import UnregisterClientHeader
from rocketline.protocol.versions import version_number
from rocketline.proxy.backend import Backend
from rocketline.proxy.links import FrontChannel
from rocketline.proxy.problems import Problem, problem_of
from rocketline.proxy.proto import ClientType, Code

log = logging.getLogger(__name__)

SILENT_S = 120.0
GONE_S = 15.0
CALL_S = 3.0
MAX_ID_CHARS = 255


class Client:
    """A client with settings."""

    def __init__(self, client_id: str, channel: FrontChannel, language: str, version: str) -> None:
        self.id = client_id
        self.channel = channel
        self.language = language if language in LANGUAGES else "OTHER"
        self.version = version_number(version)
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

    @staticmethod
    def without_settings(client_id: str, channel: FrontChannel) -> Client:
        """One that is only known by what it calls."""
        return Client(client_id, channel, "", "")

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

    def seen(self, client_id: str, identity: str) -> Client | None:
        """Note a call of a client; None when no client of that id and account is known."""
        client = self._clients.get(client_id)
        if client is None or client.channel.identity != identity:
            return None
        client.seen = self._now()
        client.lost_at = None
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
        """Tell the brokers of a client; Problem when one refuses it."""
        body = encode_body(client.heartbeat())
        for link in await self._backend.registrars(client.channel, client.topics):
            command = Command(RequestCode.HEART_BEAT, {}, body, version=client.version, language=client.language)
            answer = await link.call(client.channel, command, CALL_S)
            if answer.code != ResponseCode.SUCCESS:
                raise problem_of(answer)

    async def remove(self, client: Client) -> None:
        """Forget a client, and tell the brokers."""
        if self._clients.get(client.id) is client:
            del self._clients[client.id]
        for callback in self.on_gone:
            callback(client)
        try:
            await self._unregister(client)
        except RocketlineError as error:
            log.info("brokers could not be told that %s left: %s", client.id, error)
        self._backend.forget(client.channel)

    async def _unregister(self, client: Client) -> None:
        if client.settings is None:
            return
        producer_groups = client.topics if client.is_producer else (None,)
        for link in await self._backend.registrars(client.channel, client.topics):
            for group in producer_groups:
                header = UnregisterClientHeader(client.id, group, client.group or None)
                await link.call(client.channel, Command(RequestCode.UNREGISTER_CLIENT, header.encode()), CALL_S)

    async def drop_silent(self) -> None:
        """Remove clients that are gone without a word."""
        now = self._now()
        for client in list(self._clients.values()):
            is_lost = client.lost_at is not None and now - client.lost_at > GONE_S
            if is_lost or now - client.seen > SILENT_S:
                log.info("gRPC client %s is gone", client.id)
                await self.remove(client)

    async def close(self) -> None:
        """Unregister everybody: the front stops."""
        await asyncio.gather(*(self.remove(client) for client in list(self._clients.values())))
