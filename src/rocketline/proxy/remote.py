"""A cluster over the network, ours or Apache's: found through name servers, asked by remoting.

What is known of topics and groups is kept for a while (`known.py`). A failed request to a broker has routes asked for at
once, and the broker is avoided for some seconds where there is a choice. One that refuses, as a replica does, has the name
servers asked at once who leads now.

Requests of all clients share one connection to each broker. What says who is connected, heartbeats and goodbyes, goes over
a connection of each client's own, because that is how brokers tell clients apart and reach them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from rocketline.auth.guard import AccessGuard
from rocketline.client.producer.broker_health import BrokerHealth
from rocketline.client.remote_nameserver import RemoteNameServer
from rocketline.errors import (
    ConnectionLost,
    CorruptRecord,
    RocketlineError,
    RouteNotFound,
    TopicNotExist,
    TransportError,
)
from rocketline.grpc.steps import answered
from rocketline.message import LogOffset
from rocketline.protocol.bodies import (
    MASTER_ID,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRouteData,
    decode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetTopicConfigHeader, ViewMessageByIdHeader
from rocketline.protocol.records import decode_message
from rocketline.proxy.backend import BrokerQueues, Topic, topic_type
from rocketline.proxy.known import NOTHING_S, Known
from rocketline.proxy.links import BrokerLink, FrontChannel, Late
from rocketline.proxy.problems import Problem, problem_of
from rocketline.proxy.proto import Code
from rocketline.transport import Channel, RemotingClient, Router
from rocketline.transport.access import Access

log = logging.getLogger(__name__)

ASK_S = 3.0
OWN_CODES = frozenset({RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT})
"""Requests that go over a client's own connection."""
_LEADS_NOT = frozenset({
    ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE,
})  # fmt: skip
"""Refusals that a broker also gives that was master a moment ago."""
ASKED_CODES = (
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
)


class RemoteBackend:
    """A cluster behind name servers; an async context manager."""

    def __init__(self, name_servers: Sequence[str], access: Access, guard: AccessGuard | None = None) -> None:
        self.guard = guard
        self._access = access
        self.remoting = RemotingClient(access=access)
        self._name_server = RemoteNameServer(self.remoting, name_servers)
        self._links: dict[str, RemoteLink] = {}
        self._now = now = asyncio.get_running_loop().time
        self.health = BrokerHealth(now)
        self._topics: Known[Topic] = Known(self._ask_topic, now)
        self._groups: Known[SubscriptionGroupConfig] = Known(self._ask_group, now)
        self._learning: asyncio.Task[None] | None = None
        self._learned_at = -NOTHING_S
        self._own: dict[FrontChannel, RemotingClient] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> RemoteBackend:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._topics.close()
        self._groups.close()
        if self._learning is not None:
            self._learning.cancel()
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
        """The type of a topic, from the first of its brokers that says it."""
        header = GetTopicConfigHeader(name).encode()
        error: Exception = Problem(Code.FORBIDDEN, f"no broker of topic {name} has a master now")
        for link in sorted(links, key=lambda link: not link.is_available):
            assert isinstance(link, RemoteLink)
            try:
                answer = await link.ask(Command(RequestCode.GET_TOPIC_CONFIG, header))
            except TransportError as failed:
                log.info("broker %s does not say which type topic %s has: %s", link.name, name, failed)
                error = failed
                continue
            if answer.code == ResponseCode.SUCCESS:
                return topic_type(decode_body(TopicConfig, answer.body))
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return topic_type(TopicConfig(name))  # RocketMQ 4, which knows no types
            error = _not_told(link, name, answer)
        raise error

    async def _ask_group(self, name: str) -> SubscriptionGroupConfig | None:
        if not self._links:
            await self._learn_all()
        links = sorted(self._links.values(), key=lambda link: not link.is_available)
        for link in links:
            command = Command(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name})
            try:
                answer = await link.ask(command)
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
        if found is None and (learning := self.look_for_masters()) is not None:
            await asyncio.shield(learning)
            found = self._links.get(broker_name)
        return found

    def look_for_masters(self) -> asyncio.Task[None] | None:
        """Look for all brokers, at most once a second: handles with names made up must not have us ask for each."""
        if self._learning is None and self._now() - self._learned_at >= NOTHING_S:
            self._learning = asyncio.get_running_loop().create_task(self._learn_now())
        return self._learning

    async def _learn_now(self) -> None:
        try:
            await self._learn_all()
        except RocketlineError as error:
            log.info("the brokers of the cluster could not be looked up: %s", error)
        finally:
            self._learned_at, self._learning = self._now(), None

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
            if not channel.is_open:  # nobody would take it away again
                raise ConnectionLost(f"{channel.remote} is gone")
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

    @property
    def is_available(self) -> bool:
        return self._backend.health.is_available(self.name)

    async def call(self, channel: Channel, command: Command, timeout_s: float, late: Late | None = None) -> Command:
        guard = self._backend.guard
        if guard is not None and (refusal := guard.refusal(channel, command)) is not None:
            refused = await answered(refusal)
            assert refused is not None
            return refused
        client = self._backend.client_for(channel, command.code)
        asking = asyncio.ensure_future(self._asked(client, command, timeout_s))
        try:
            # A broker takes messages away for a pop, whoever waits for it: its answer must not be lost.
            answer = await (asking if late is None else asyncio.shield(asking))
        except asyncio.CancelledError:
            if late is not None:
                asking.add_done_callback(partial(_tell, late))
            raise
        if guard is not None:
            return guard.late_answer(channel, command, answer) or answer
        return answer

    async def ask(self, command: Command) -> Command:
        """The answer to a request of the front itself, with its own account."""
        return await self._asked(self._backend.remoting, command, ASK_S)

    async def _asked(self, client: RemotingClient, command: Command, timeout_s: float) -> Command:
        try:
            answer = await client.call(self.address, command, timeout_s)
        except TransportError as error:
            self._backend.health.failed(self.name, error)
            self._backend.doubt()
            raise
        if answer.code in _LEADS_NOT:
            self._backend.look_for_masters()
        return answer

    async def is_there(self, log_offset: int, topic: str, queue_id: int, queue_offset: int) -> bool:
        """The broker sees the account of this front, which may read everything: a handle that was made up must not get a
        client what is not its own."""
        header = ViewMessageByIdHeader(LogOffset(log_offset)).encode()
        answer = await asyncio.ensure_future(self.ask(Command(RequestCode.VIEW_MESSAGE_BY_ID, header)))
        if answer.code != ResponseCode.SUCCESS:
            return False
        try:
            message = decode_message(answer.body, 0, len(answer.body), inflates=False)
        except CorruptRecord:
            return False
        return (message.topic, message.queue_id, message.queue_offset) == (topic, queue_id, queue_offset)


def _tell(late: Late, asking: asyncio.Future[Command]) -> None:
    if not asking.cancelled() and asking.exception() is None:
        late(asking.result())


def _not_told(link: BrokerLink, topic: str, answer: Command) -> Problem:
    """Why the type of a topic is not known; the account is that of this front, so no client can help it."""
    problem = problem_of(answer)
    if answer.code == ResponseCode.NO_PERMISSION:
        hint = "give the account of this proxy (innerClientAuthenticationCredentials) the right to read topics"
        problem = Problem(Code.INTERNAL_SERVER_ERROR, f"{problem.text}; {hint}")
    return Problem(problem.code, f"broker {link.name} does not say which type topic {topic} has: {problem.text}")
