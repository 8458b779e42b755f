"""A cluster over the network, ours or Apache's: found through name servers, asked by remoting.

What is known of topics and groups is used for `FRESH_S`. Then it is still used, and asked for again meanwhile; after
`KEEP_S` without an answer it is gone. A failed request to a broker has routes asked for at once.

Requests of all clients share one connection to each broker. What says who is connected, heartbeats and goodbyes, goes over
a connection of each client's own, because that is how brokers tell clients apart and reach them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from rocketline.auth.guard import AccessGuard
from rocketline.client.remote_nameserver import RemoteNameServer
from rocketline.errors import RocketlineError, RouteNotFound, TopicNotExist, TransportError
from rocketline.grpc.steps import answered
from rocketline.protocol.bodies import (
    MASTER_ID,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRouteData,
    decode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetTopicConfigHeader
from rocketline.proxy.backend import BrokerQueues, Topic, topic_type
from rocketline.proxy.links import BrokerLink, FrontChannel
from rocketline.transport import Channel, RemotingClient, Router
from rocketline.transport.access import Access

log = logging.getLogger(__name__)

FRESH_S = 20.0
KEEP_S = 300.0
DOUBT_S = 1.0
MAX_KNOWN = 50_000
ASK_S = 3.0
OWN_CODES = frozenset({RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT})
"""Requests that go over a client's own connection."""
ASKED_CODES = (
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
)

T = TypeVar("T")


class Known(Generic[T]):
    """What was asked for, by name; those who want the same at the same time share one question."""

    def __init__(self, ask: Callable[[str], Coroutine[Any, Any, T]], now: Callable[[], float]) -> None:
        self._ask = ask
        self._now = now
        self._found: dict[str, tuple[float, T]] = {}
        self._asking: dict[str, asyncio.Task[T]] = {}
        self._doubted_at = 0.0

    def get(self, name: str) -> T | None:
        """What is known; when it is old, it is asked for again."""
        found = self._found.get(name)
        if found is None:
            return None
        age_s = self._now() - found[0]
        if age_s > KEEP_S:
            del self._found[name]
            return None
        if age_s > FRESH_S:
            self._start(name)
        return found[1]

    async def find(self, name: str) -> T:
        """What is known, or the answer to a question."""
        found = self.get(name)
        return found if found is not None else await asyncio.shield(self._start(name))

    def doubt(self) -> None:
        """Ask again for whatever is wanted next, at most once a second."""
        now = self._now()
        if now - self._doubted_at < DOUBT_S:
            return
        self._doubted_at = now
        old = now - FRESH_S - DOUBT_S
        self._found = {name: (min(at, old), value) for name, (at, value) in self._found.items()}

    def _start(self, name: str) -> asyncio.Task[T]:
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.get_running_loop().create_task(self._ask(name))
            task.add_done_callback(partial(self._asked, name))
        return task

    def _asked(self, name: str, task: asyncio.Task[T]) -> None:
        self._asking.pop(name, None)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.info("%s could not be looked up: %s", name, error)
            return
        if len(self._found) >= MAX_KNOWN:
            self._found.pop(next(iter(self._found)))
        value = task.result()
        if value is None:
            self._found.pop(name, None)
        else:
            self._found[name] = self._now(), value

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()


class RemoteBackend:
    """A cluster behind name servers; an async context manager."""

    def __init__(self, name_servers: Sequence[str], access: Access, guard: AccessGuard | None = None) -> None:
        self.guard = guard
        self._access = access
        self.remoting = RemotingClient(access=access)
        self._name_server = RemoteNameServer(self.remoting, name_servers)
        self._links: dict[str, RemoteLink] = {}
        now = asyncio.get_running_loop().time
        self._topics: Known[Topic | None] = Known(self._ask_topic, now)
        self._groups: Known[SubscriptionGroupConfig | None] = Known(self._ask_group, now)
        self._own: dict[FrontChannel, RemotingClient] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> RemoteBackend:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._topics.close()
        self._groups.close()
        for channel in list(self._own):
            self.forget(channel)
        if self._closing:
            await asyncio.wait(self._closing)
        await self.remoting.close()

    # Topics and groups

    def known_topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    async def topic(self, name: str) -> Topic | None:
        return await self._topics.find(name)

    async def group(self, name: str) -> SubscriptionGroupConfig | None:
        return self._groups.get(name) or await self._groups.find(name)

    async def _ask_topic(self, name: str) -> Topic | None:
        try:
            route = await self._name_server.route(name)
        except RouteNotFound as error:
            if isinstance(error.__cause__, TopicNotExist):
                return None
            raise
        masters = self._learn(route)
        queues = [
            BrokerQueues(self._links[item.broker_name], item.read_queue_nums, item.write_queue_nums, item.perm)
            for item in route.queue_datas
            if item.broker_name in masters
        ]
        kind = await self._type_of(name, [queue.link for queue in queues])
        former = self._topics.get(name)
        topic = Topic(name, kind, queues)
        if former is not None:
            topic.turn = former.turn
        return topic

    def _learn(self, route: TopicRouteData) -> set[str]:
        """Note where brokers are; returns the names of those with a master."""
        found = set()
        for broker in route.broker_datas:
            if address := broker.broker_addrs.get(MASTER_ID):
                found.add(broker.broker_name)
                self._link_to(broker.broker_name, address)
        return found

    def _link_to(self, name: str, address: str) -> None:
        if (link := self._links.get(name)) is None:
            self._links[name] = RemoteLink(self, name, address)
        else:
            link.address = address

    async def _type_of(self, name: str, links: Sequence[BrokerLink]) -> str:
        header = GetTopicConfigHeader(name).encode()
        for link in links:
            assert isinstance(link, RemoteLink)
            answer = await self.remoting.call(link.address, Command(RequestCode.GET_TOPIC_CONFIG, header), ASK_S)
            if answer.code == ResponseCode.SUCCESS:
                return topic_type(decode_body(TopicConfig, answer.body))
        return "NORMAL"

    async def _ask_group(self, name: str) -> SubscriptionGroupConfig | None:
        if not self._links:
            await self._learn_all()
        for link in list(self._links.values()):
            command = Command(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name})
            try:
                answer = await self.remoting.call(link.address, command, ASK_S)
            except TransportError as error:
                log.info("broker %s does not say what group %s is like: %s", link.name, name, error)
                continue
            if answer.code == ResponseCode.SUCCESS and answer.body:
                return decode_body(SubscriptionGroupConfig, answer.body)
        return None

    async def _learn_all(self) -> None:
        info = await self._name_server.cluster_info()
        for name, broker in info.broker_addr_table.items():
            if address := broker.broker_addrs.get(MASTER_ID):
                self._link_to(name, address)

    # Brokers

    async def link(self, broker_name: str) -> BrokerLink | None:
        found = self._links.get(broker_name)
        if found is None:
            await _in_task(self._learn_all())
            found = self._links.get(broker_name)
        return found

    def doubt(self) -> None:
        """A broker failed: it may be elsewhere now."""
        self._topics.doubt()

    async def registrars(self, channel: FrontChannel, topics: Sequence[str]) -> Sequence[BrokerLink]:
        found: dict[str, BrokerLink] = {}
        for name in topics:
            topic = self.known_topic(name) or await self.topic(name)
            if topic is not None:
                found |= {queues.link.name: queues.link for queues in topic.brokers}
        return list(found.values())

    def client_for(self, channel: Channel, code: int) -> RemotingClient:
        """The connections over which a request goes."""
        if code not in OWN_CODES or not isinstance(channel, FrontChannel):
            return self.remoting
        own = self._own.get(channel)
        if own is None:
            router = Router({code: lambda _, request: channel.ask(request) for code in ASKED_CODES})
            own = self._own[channel] = RemotingClient(router, access=self._access)
        return own

    def forget(self, channel: FrontChannel) -> None:
        channel.close()
        if (own := self._own.pop(channel, None)) is not None:
            task = asyncio.get_running_loop().create_task(own.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


class RemoteLink:
    """A broker over the network."""

    def __init__(self, backend: RemoteBackend, name: str, address: str) -> None:
        self._backend = backend
        self.name = name
        self.address = address

    async def call(self, channel: Channel, command: Command, timeout_s: float) -> Command:
        guard = self._backend.guard
        if guard is not None and (refusal := guard.refusal(channel, command)) is not None:
            refused = await answered(refusal)
            assert refused is not None
            return refused
        client = self._backend.client_for(channel, command.code)
        try:
            answer = await asyncio.ensure_future(client.call(self.address, command, timeout_s))
        except TransportError:
            self._backend.doubt()
            raise
        if guard is not None:
            return guard.late_answer(channel, command, answer) or answer
        return answer


async def _in_task(work: Coroutine[Any, Any, T]) -> T | None:
    """Wait for work in a task of its own; its failure is noted, and None."""
    try:
        return await asyncio.ensure_future(work)
    except RocketlineError as error:
        log.info("the brokers of the cluster could not be looked up: %s", error)
        return None
