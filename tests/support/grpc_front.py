"""A gRPC front under test, ours or Apache's: where it is, and what a test makes on it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from tests.support.grpc_client import Account, GrpcClient, consumer_settings, defs
from tests.support.patience import PATIENCE_S

from rocketline.admin.cluster import Admin
from rocketline.admin.remote import AdminBroker
from rocketline.errors import RouteNotFound
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from rocketline.protocol.signing import Credentials


@dataclass(frozen=True)
class Address:
    """Where a front is, and whose. `account` is an administrator, where the broker asks for accounts."""

    grpc: str
    namesrv: str
    is_ours: bool
    has_our_broker: bool
    asks_for_accounts: bool = False
    account: Account | None = None

    @property
    def credentials(self) -> Credentials | None:
        return Credentials(self.account.name, self.account.secret) if self.account else None


def new_name(prefix: str) -> str:
    """A name no other test uses."""
    return f"{prefix}_{uuid.uuid4().hex[:8]}"


class Front:
    """A front, with an operator's connection to its broker; an async context manager."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_ours = address.is_ours
        self.has_our_broker = address.has_our_broker
        self.admin = Admin(address.namesrv, credentials=address.credentials, timeout=PATIENCE_S)
        self._undo = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._undo.enter_async_context(self.admin)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._undo.aclose()

    async def broker(self) -> AdminBroker:
        (broker,) = await self.admin.brokers()
        return broker

    def client(self, client_id: str | None = None, **more: Any) -> GrpcClient:
        """A client that signs as the administrator, unless `account` or `headers` say otherwise."""
        return GrpcClient(self.address.grpc, client_id, **{"account": self.address.account, **more})

    @asynccontextmanager
    async def consumer(
        self, group: str, *topics: str, kind: str = "SIMPLE_CONSUMER", **more: Any
    ) -> AsyncIterator[GrpcClient]:
        """A client that has told its settings, and keeps its telemetry open."""
        async with self.client(**more) as client:
            answer = await client.introduce(consumer_settings(group, *topics, kind=kind))
            assert answer.status.code == defs.Code.OK, answer
            yield client

    async def topic(self, kind: str | None = "NORMAL", queues: int = 2, prefix: str | None = None) -> str:
        """A new topic of this message type, None: without one; returns when it is known everywhere."""
        name = new_name(prefix or (kind or "untyped").lower())
        config = TopicConfig(name, queues, queues, attributes={"+message.type": kind} if kind else {})
        for broker in await self.admin.brokers():
            await broker.put_topics([config])
        async with asyncio.timeout(PATIENCE_S):
            while await self._broker_count(name) < len(await self.admin.brokers()):
                await asyncio.sleep(0.05)
        return name

    async def group(self, *, orderly: bool = False, retry_max_times: int = 16, prefix: str = "group") -> str:
        name = new_name(prefix)
        config = SubscriptionGroupConfig(name, consume_message_orderly=orderly, retry_max_times=retry_max_times)
        for broker in await self.admin.brokers():
            await broker.put_group(config)
        return name

    async def listed(self, topic: str, count: int) -> None:
        """Wait until so many messages can be received: Apache's broker lists them after it acknowledged them."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                queues = (await (await self.broker()).topic_stats(topic)).offset_table.values()
                if sum(queue.max_offset - queue.min_offset for queue in queues) >= count:
                    return
                await asyncio.sleep(0.05)

    async def _broker_count(self, topic: str) -> int:
        """At how many brokers a topic is."""
        try:
            return len((await self.admin.route(topic)).queue_datas)
        except RouteNotFound:
            return 0
