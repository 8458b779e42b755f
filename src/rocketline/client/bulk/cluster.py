"""Routes and connections of bulk readers and writers: routes from the name servers, one connection per address.

No event loop and no thread; belongs to one thread and one process. Every wait has a limit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from rocketline.client.bulk.channel import BulkAnswer, BulkChannel
from rocketline.client.identity import parse_name_servers
from rocketline.client.remote_nameserver import route_not_found
from rocketline.client.route_cache import DOUBT_S
from rocketline.client.routes import TopicRoute, borrowed_route, topic_route
from rocketline.clock import Clock
from rocketline.errors import (
    BrokerError,
    ConfigError,
    ConnectionLost,
    FlowControl,
    RocketlineError,
    RouteNotFound,
    ServiceNotAvailable,
    SystemBusy,
    TlsFailed,
    TopicNotExist,
    TransportError,
)
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import TopicList, TopicRouteData, decode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetRouteHeader
from rocketline.protocol.names import DEFAULT_TOPIC
from rocketline.transport.access import OPEN, Access

log = logging.getLogger(__name__)

NAME_SERVER_S = 3.0
PAUSE_S = 0.02


def may_pass(kind: type[BaseException]) -> bool:
    """Whether an error of this class may be over when the same is tried again."""
    # A master that is none any more, or not sure of it, says that it is not available.
    passing = (TransportError, RouteNotFound, SystemBusy, FlowControl, ServiceNotAvailable)
    return issubclass(kind, passing) and not issubclass(kind, TlsFailed)


class BulkCluster:
    """Routes and connections, kept until doubted or closed."""

    def __init__(
        self, name_servers: str | Sequence[str], timeout_s: float, clock: Clock, access: Access = OPEN
    ) -> None:
        if timeout_s <= 0:
            raise ConfigError(f"timeout {timeout_s}: a time above 0 is needed")
        self.clock = clock
        self._name_servers = parse_name_servers(name_servers)
        self._timeout_s = timeout_s
        self._sign, self._contexts = access.sign, access.contexts()
        self._routes: dict[str, TopicRoute] = {}
        self._doubted: set[str] = set()
        self._asked_at: dict[str, float] = {}
        self._channels: dict[str, BulkChannel] = {}

    def close(self) -> None:
        """Close the connections; the next call would make new ones."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def deadline(self) -> float:
        """When a wait that begins now has to end."""
        return self.clock.monotonic() + self._timeout_s

    def is_over(self, deadline: float) -> bool:
        return self.clock.monotonic() >= deadline

    def route(self, topic: str) -> TopicRoute:
        """The route last seen, asked for again when it is in doubt."""
        route = self._routes.get(topic)
        if route is not None and (topic not in self._doubted or self._was_asked_now(topic)):
            return route
        try:
            return self.fetch_route(topic)
        except RouteNotFound:
            if route is None:
                raise
            return route

    def fetch_route(self, topic: str) -> TopicRoute:
        """The route as the name servers have it now; RouteNotFound says what each of them answered."""
        self._asked_at[topic] = self.clock.monotonic()
        route = topic_route(topic, self._route_data(topic))
        self._keep(topic, route)
        return route

    def _was_asked_now(self, topic: str) -> bool:
        """Whether the name servers were asked a moment ago: whoever tries again and again must not flood them."""
        asked_at = self._asked_at.get(topic)
        return asked_at is not None and self.clock.monotonic() - asked_at < DOUBT_S

    def writable_route(self, topic: str, queue_count: int) -> TopicRoute:
        """The route of a topic that may not exist yet: then that of the template topic, as producers do it."""
        try:
            return self.route(topic)
        except RouteNotFound as error:
            if not isinstance(error.__cause__, TopicNotExist):
                raise
            try:
                template = self._route_data(DEFAULT_TOPIC)
            except RouteNotFound:
                raise error from None
        route = borrowed_route(topic, template, queue_count)
        self._keep(topic, route)
        return route

    def topics(self) -> list[str]:
        """All topics that the name server which answers first knows."""
        failures: dict[str, RocketlineError] = {}
        command = Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        answer = self._ask_name_servers(command, "list of topics", failures)
        if answer is None:
            said = "; ".join(f"{address}: {error}" for address, error in failures.items())
            raise RouteNotFound(f"no name server gives its list of topics: {said}")
        return sorted(decode_body(TopicList, bytes(answer.body)).topic_list)

    def address_of(self, queue: MessageQueue, *, master: bool = False) -> str:
        """The address of a queue's broker: the master, or in its absence a slave."""
        ids = self.route(queue.topic).brokers.get(queue.broker_name)
        if not ids or (master and 0 not in ids):
            self.doubt(queue.topic)
            what = "master of broker" if ids else "broker"
            raise RouteNotFound(f"the route of topic {queue.topic!r} names no {what} {queue.broker_name!r}")
        return ids[min(ids)]

    def doubt(self, topic: str) -> None:
        """Ask for the route of a topic again before it is used the next time, unless that was done a moment ago."""
        self._doubted.add(topic)

    def forget_routes(self) -> None:
        """Know no topic, as in the beginning; connections stay."""
        self._routes.clear()
        self._doubted.clear()

    def channel(self, address: str) -> BulkChannel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = BulkChannel(
                address, self.clock, sign=self._sign, contexts=self._contexts
            )
        return channel

    def wait_after(self, error: RocketlineError, queue: MessageQueue, deadline: float) -> None:
        """A failure that may pass: pause and ask for the route again, or raise it when the time is over."""
        if not may_pass(type(error)) or self.clock.monotonic() + PAUSE_S >= deadline:
            raise error
        log.debug("%s is tried again: %s", queue, error)
        if not isinstance(error, FlowControl):
            self.doubt(queue.topic)
        time.sleep(PAUSE_S)

    def _keep(self, topic: str, route: TopicRoute) -> None:
        self._routes[topic] = route
        self._doubted.discard(topic)

    def _route_data(self, topic: str) -> TopicRouteData:
        header = GetRouteHeader(topic, accept_standard_json_only=True).encode()
        failures: dict[str, RocketlineError] = {}
        command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        answer = self._ask_name_servers(command, f"route of {topic}", failures)
        if answer is None:
            raise route_not_found(topic, failures)
        return decode_body(TopicRouteData, bytes(answer.body))

    def _call_again(self, channel: BulkChannel, command: Command, deadline: float) -> BulkAnswer:
        """Call, and once more over a new connection if the old one was closed in the meantime: servers close idle ones."""
        was_open = channel.is_open
        try:
            return channel.call(command, deadline)
        except ConnectionLost:
            if not was_open:
                raise
            return channel.call(command, deadline)

    def _ask_name_servers(
        self, command: Command, doing: str, failures: dict[str, RocketlineError]
    ) -> BulkAnswer | None:
        """The first success; None when every server failed, with the reasons left in `failures`."""
        for address in self._name_servers:
            deadline = self.clock.monotonic() + min(NAME_SERVER_S, self._timeout_s)
            try:
                answer = self._call_again(self.channel(address), command, deadline)
                if answer.command.code == ResponseCode.SUCCESS:
                    return answer
                failures[address] = BrokerError.of(answer.command.code, answer.command.remark, address, doing)
            except RocketlineError as error:
                failures[address] = error
        return None
