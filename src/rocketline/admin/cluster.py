"""A cluster as an operator sees it, found through its name servers.

Queries go to the first name server that answers, changes to all of them. Requests to many brokers are sent concurrently, at
most `MAX_AT_ONCE` of a list at a time. Routes and the list of brokers are fetched once and used again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Self, TypeVar

from rocketline.admin.partial import Missing, Partial
from rocketline.admin.remote import AdminBroker, AdminNameServer
from rocketline.client import ClientOptions
from rocketline.client.identity import parse_name_servers
from rocketline.client.middleware import Middleware, MiddlewareClient
from rocketline.client.topics import brokers_in
from rocketline.errors import ClientError, RocketlineError, RouteNotFound, TopicNotExist, TransportError
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import MASTER_ID, PERM_READ, ClusterInfo, TopicRouteData
from rocketline.protocol.names import retry_topic
from rocketline.transport import RemotingClient, Router
from rocketline.transport.access import Access, TlsOption
from rocketline.transport.credentials import CredentialsOption

T = TypeVar("T")
R = TypeVar("R")

MAX_AT_ONCE = 256
PRODUCER_GROUP = "rocketline_admin_producer"
"""The group of producers that tools send with."""


class Admin:
    """Requests of an operator; an async context manager."""

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        timeout: float = 5.0,
        middleware: Middleware | None = None,
        credentials: CredentialsOption = None,
        tls: TlsOption = False,
        reads: Counter[str] | None = None,
    ) -> None:
        """`reads` counts the messages that are pulled, by broker."""
        access = Access.of(credentials, tls)
        self._remoting = (
            RemotingClient(connect_timeout_s=min(3.0, timeout), access=access)
            if middleware is None
            else MiddlewareClient(Router(), middleware, access)
        )
        self.timeout_s = timeout
        self.reads: Counter[str] = Counter() if reads is None else reads
        self.name_servers = [self.name_server_at(address) for address in parse_name_servers(name_servers)]
        self.client_options = ClientOptions(middleware=middleware, credentials=credentials, tls=tls)
        """For clients of the same cluster."""
        self._info: ClusterInfo | None = None
        self._routes: dict[str, TopicRouteData] = {}
        self.unreachable: dict[str, str] = {}
        """Brokers that did not answer, with the reason: their part is missing in combined answers."""

    def signed_by(self, credentials: CredentialsOption) -> Admin:
        """Requests to the same cluster from another account."""
        options = self.client_options
        addresses = [server.address for server in self.name_servers]
        return Admin(
            addresses, timeout=self.timeout_s, middleware=options.middleware, credentials=credentials, tls=options.tls
        )

    @property
    def namesrv(self) -> str:
        return ";".join(server.address for server in self.name_servers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._remoting.close()

    @property
    def no_broker_text(self) -> str:
        """What to say of a cluster without brokers."""
        return f"no broker is registered with name server {self.namesrv}: start one, or check its namesrvAddr"

    def name_server_at(self, address: str) -> AdminNameServer:
        return AdminNameServer(self._remoting, address, self.timeout_s)

    def forget(self) -> None:
        """Forget routes, brokers and failures, so that they are looked up again."""
        self._info = None
        self._routes.clear()
        self.unreachable.clear()

    def forget_route(self, topic: str) -> None:
        self._routes.pop(topic, None)

    async def ask_name_server(self, ask: Callable[[AdminNameServer], Awaitable[T]]) -> T:
        """The answer of the first name server that can be reached."""
        failures: list[RocketlineError] = []
        for server in self.name_servers:
            try:
                return await ask(server)
            except TransportError as error:
                failures.append(error)
        raise ClientError(f"no name server answers: {'; '.join(map(str, failures))}") from failures[0]

    async def ask_name_servers(self, ask: Callable[[AdminNameServer], Awaitable[T]]) -> list[tuple[str, T]]:
        """The answers of all name servers, with their addresses; raises the first failure."""
        answers = await self.gather(ask(server) for server in self.name_servers)
        return list(zip((server.address for server in self.name_servers), answers))

    @staticmethod
    async def gather(calls: Iterable[Awaitable[T]]) -> list[T]:
        """All answers in order; at most `MAX_AT_ONCE` calls run at a time."""
        return await _all_of(calls, _itself)

    async def gather_or_errors(self, calls: Iterable[Awaitable[T]]) -> list[T | RocketlineError]:
        """All answers in order, with the errors of failed calls in their places."""
        return await _all_of(calls, _or_error)

    async def cluster_info(self) -> ClusterInfo:
        if self._info is None:
            self._info = await self.ask_name_server(lambda server: server.cluster_info())
        return self._info

    async def clusters(self) -> list[str]:
        return sorted((await self.cluster_info()).cluster_addr_table)

    def broker_at(self, address: str, name: str = "") -> AdminBroker:
        return AdminBroker(self._remoting, address, name, self.timeout_s, self.reads)

    async def named_broker_at(self, address: str) -> AdminBroker:
        """The broker at an address, with its name if a name server knows it."""
        try:
            table = (await self.cluster_info()).broker_addr_table
        except RocketlineError:
            return self.broker_at(address)
        names = (name for name, group in table.items() if address in group.broker_addrs.values())
        return self.broker_at(address, next(names, ""))

    async def brokers(self, cluster: str | None = None, *, slaves: bool = False) -> list[AdminBroker]:
        """The masters of a cluster, or of all; with `slaves` those too. ClientError when there is no broker at all."""
        info = await self.cluster_info()
        if not info.broker_addr_table:
            raise ClientError(self.no_broker_text)
        return [self.broker_at(address, name) for name, address in brokers_in(info, cluster, slaves=slaves)]

    async def master(self, broker_name: str) -> AdminBroker:
        group = (await self.cluster_info()).broker_addr_table.get(broker_name)
        if group is None or MASTER_ID not in group.broker_addrs:
            known = ", ".join(sorted((await self.cluster_info()).broker_addr_table)) or "none"
            raise ClientError(f"there is no broker {broker_name!r} with a master; the name server knows: {known}")
        return self.broker_at(group.broker_addrs[MASTER_ID], broker_name)

    async def route(self, topic: str) -> TopicRouteData:
        """RouteNotFound when no name server has one."""
        if topic not in self._routes:
            try:
                self._routes[topic] = await self.ask_name_server(lambda server: server.route(topic))
            except TopicNotExist as error:
                raise RouteNotFound(f"topic {topic!r} has no route: no registered broker has it") from error
        return self._routes[topic]

    async def brokers_of(self, topic: str) -> list[AdminBroker]:
        """The brokers that have a topic: of each group the master, or else the lowest id."""
        route = await self.route(topic)
        return [
            self.broker_at(group.broker_addrs[min(group.broker_addrs)], group.broker_name)
            for group in sorted(route.broker_datas, key=lambda item: item.broker_name)
            if group.broker_addrs
        ]

    async def brokers_of_group(self, group: str) -> list[AdminBroker]:
        """The brokers where a consumer of this group was ever online; RouteNotFound when there is none."""
        try:
            # Each of them has the group's retry topic.
            return await self.brokers_of(retry_topic(group))
        except RouteNotFound as error:
            raise RouteNotFound(f"group {group!r} is unknown: no consumer of it was online on any broker") from error

    async def queues_of(self, topic: str) -> list[tuple[AdminBroker, MessageQueue]]:
        """Every readable queue of a topic, with its broker."""
        brokers = {broker.name: broker for broker in await self.brokers_of(topic)}
        return [
            (brokers[item.broker_name], MessageQueue(topic, item.broker_name, queue_id))
            for item in sorted((await self.route(topic)).queue_datas, key=lambda item: item.broker_name)
            if item.broker_name in brokers and item.perm & PERM_READ
            for queue_id in range(item.read_queue_nums)
        ]

    async def ask_each(
        self, brokers: Iterable[AdminBroker], ask: Callable[[AdminBroker], Awaitable[R]]
    ) -> Partial[list[tuple[AdminBroker, R]]]:
        """The answers of the brokers that gave one, and which gave none."""
        answers = await self._answers(brokers, ask)
        self.note(answers.missing)
        return answers

    async def _answers(
        self, brokers: Iterable[AdminBroker], ask: Callable[[AdminBroker], Awaitable[R]]
    ) -> Partial[list[tuple[AdminBroker, R]]]:
        asked = list(brokers)
        answers = await self.gather_or_errors(ask(broker) for broker in asked)
        found: list[tuple[AdminBroker, R]] = []
        missing: list[Missing] = []
        for broker, answer in zip(asked, answers):
            if isinstance(answer, RocketlineError):
                missing.append(Missing.of(broker.name, broker.address, answer))
            else:
                found.append((broker, answer))
        return Partial(found, tuple(missing), bool(found) or not asked)

    def note(self, missing: Iterable[Missing]) -> None:
        """Remember whose part is missing."""
        self.unreachable.update((item.where, item.problem) for item in missing)

    async def ask_brokers(
        self, brokers: Iterable[AdminBroker], ask: Callable[[AdminBroker], Awaitable[R]]
    ) -> list[tuple[AdminBroker, R]]:
        """The answers of the brokers that gave one; raises the first refusal when none did. Silent ones go to
        `unreachable`."""
        answers = await self._answers(brokers, ask)
        self.note(item for item in answers.missing if item.code is None)
        return answers.some()


async def _all_of(calls: Iterable[Awaitable[T]], answer: Callable[[Awaitable[T]], Awaitable[R]]) -> list[R]:
    waiting = list(calls)
    # Each list has its own limit: a call may itself gather answers, and with a shared limit it could wait for itself.
    at_once = asyncio.Semaphore(MAX_AT_ONCE)

    async def one(call: Awaitable[T]) -> R:
        async with at_once:
            return await answer(call)

    try:
        return await asyncio.gather(*map(one, waiting))
    except asyncio.CancelledError:
        for call in waiting:
            if inspect.iscoroutine(call) and inspect.getcoroutinestate(call) == inspect.CORO_CREATED:
                call.close()  # Python would warn that nobody awaited it
        raise


async def _itself(call: Awaitable[T]) -> T:
    return await call


async def _or_error(call: Awaitable[T]) -> T | RocketlineError:
    try:
        return await call
    except RocketlineError as error:
        return error
