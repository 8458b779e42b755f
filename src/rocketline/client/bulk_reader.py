"""Reading ranges of queues as fast as a broker gives them: no event loop, no decoding, no group membership.

    with BulkReader("127.0.0.1:9876", group="export") as reader:
        for queue in reader.queues("orders"):
            for reply in reader.read(queue, *reader.bounds(queue)):
                decode(reply.records)  # stored messages back to back, as in the commit log

One connection per broker. Pulls carry their own subscription and are never held by the broker; nothing is committed.

Failures: a lost connection, a broker that moved and a busy one are tried again until `timeout` seconds brought no
progress. A range that the queue does not have, at either end, raises RangeNotAvailable; nothing is skipped in silence.

A reader belongs to one thread and one process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Self

from rocketline.client.bulk_channel import BulkChannel
from rocketline.client.bulk_range import PAUSE_S, BulkReply, RangeReading
from rocketline.client.identity import check_group, parse_name_servers
from rocketline.client.remote_nameserver import route_not_found
from rocketline.client.routes import TopicRoute, topic_route
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import (
    BrokerError,
    ConfigError,
    FlowControl,
    InvalidMessage,
    RocketlineError,
    RouteNotFound,
    SystemBusy,
    TransportError,
)
from rocketline.message import MessageQueue, QueueOffset
from rocketline.protocol.bodies import TopicRouteData, decode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    GetMaxOffsetHeader,
    GetMinOffsetHeader,
    GetRouteHeader,
    Header,
    OffsetResponseHeader,
    SearchOffsetHeader,
)

log = logging.getLogger(__name__)

MAX_ASKED = 65_536
NAME_SERVER_S = 3.0


class BulkReader:
    """Reads ranges of queues; a context manager."""

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        group: str,
        batch: int = 2048,
        timeout: float = 30.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`batch` messages are asked for at once; a broker may give fewer (Apache's 32 and 256 KiB, unless configured
        otherwise). `timeout` limits every wait, and how long failures may last."""
        if not 1 <= batch <= MAX_ASKED:
            raise ConfigError(f"batch {batch}: 1 to {MAX_ASKED} messages expected")
        if timeout <= 0:
            raise ConfigError(f"timeout {timeout}: a time above 0 is needed")
        self.group = check_group(group)
        self.batch = batch
        self._name_servers = parse_name_servers(name_servers)
        self._timeout_s = timeout
        self._clock = clock
        self._routes: dict[str, TopicRoute] = {}
        self._doubted: set[str] = set()
        self._channels: dict[str, BulkChannel] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next call would make new ones."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read."""
        return self._fetch_route(topic).readable

    def bounds(self, queue: MessageQueue) -> tuple[QueueOffset, QueueOffset]:
        """(the offset of the oldest message kept, the offset the next message will get)."""
        first = GetMinOffsetHeader(queue.topic, queue.queue_id, broker_name=queue.broker_name)
        end = GetMaxOffsetHeader(queue.topic, queue.queue_id, broker_name=queue.broker_name)
        return (
            self._offset(queue, RequestCode.GET_MIN_OFFSET, first),
            self._offset(queue, RequestCode.GET_MAX_OFFSET, end),
        )

    def offset_at(self, queue: MessageQueue, when: datetime) -> QueueOffset:
        """The offset of the first message stored at or after a time; the end when there is none."""
        at_ms = round(when.timestamp() * 1000)
        header = SearchOffsetHeader(queue.topic, queue.queue_id, at_ms, broker_name=queue.broker_name)
        return self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    def read(
        self, queue: MessageQueue, start: int, end: int, expression: str = "*", *, skip_gone: bool = False
    ) -> Iterator[BulkReply]:
        """The messages of [start, end) in order. `expression` selects tags by their hash on the broker: compare them
        again. With `skip_gone`, messages that the broker has deleted are passed over with a warning."""
        if not 0 <= start <= end:
            raise InvalidMessage(f"{queue}: [{start}, {end}) is not a range of offsets")
        return RangeReading(self, queue, start, end, expression, skip_gone).replies()

    # For the readings

    def deadline(self) -> float:
        return self._clock.monotonic() + self._timeout_s

    def channel_of(self, queue: MessageQueue) -> BulkChannel:
        """The connection to a queue's broker: the master, or in its absence a slave."""
        route = self._routes.get(queue.topic)
        if route is None or queue.topic in self._doubted:
            try:
                route = self._fetch_route(queue.topic)
            except RouteNotFound:
                if route is None:
                    raise
        ids = route.brokers.get(queue.broker_name)
        if not ids:
            self._doubted.add(queue.topic)
            raise RouteNotFound(f"the route of topic {queue.topic!r} names no broker {queue.broker_name!r}")
        return self._channel(ids[min(ids)])

    def wait_after(self, error: RocketlineError, queue: MessageQueue, deadline: float) -> None:
        """A failure that may pass: pause and ask for the route again, or raise it when the time is over."""
        retryable = isinstance(error, TransportError | RouteNotFound | SystemBusy | FlowControl)
        if not retryable or self._clock.monotonic() + PAUSE_S >= deadline:
            raise error
        log.debug("reading %s is tried again: %s", queue, error)
        if not isinstance(error, BrokerError):
            self._doubted.add(queue.topic)
        time.sleep(PAUSE_S)

    def is_over(self, deadline: float) -> bool:
        return self._clock.monotonic() >= deadline

    def _offset(self, queue: MessageQueue, code: int, header: Header) -> QueueOffset:
        deadline = self.deadline()
        while True:
            try:
                channel = self.channel_of(queue)
                answer = channel.call(Command(code, header.encode()), deadline).command
                if answer.code != ResponseCode.SUCCESS:
                    raise BrokerError.of(answer.code, answer.remark, channel.address, f"an offset of {queue}")
                return QueueOffset(OffsetResponseHeader.decode(answer).offset)
            except RocketlineError as error:
                self.wait_after(error, queue, deadline)

    def _fetch_route(self, topic: str) -> TopicRoute:
        failures: dict[str, RocketlineError] = {}
        request = GetRouteHeader(topic, accept_standard_json_only=True).encode()
        for address in self._name_servers:
            deadline = self._clock.monotonic() + min(NAME_SERVER_S, self._timeout_s)
            try:
                answer = self._channel(address).call(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, request), deadline)
                if answer.command.code == ResponseCode.SUCCESS:
                    route = topic_route(topic, decode_body(TopicRouteData, bytes(answer.body)))
                    self._routes[topic] = route
                    self._doubted.discard(topic)
                    return route
                failures[address] = BrokerError.of(
                    answer.command.code, answer.command.remark, address, f"route of {topic}"
                )
            except RocketlineError as error:
                failures[address] = error
        raise route_not_found(topic, failures)

    def _channel(self, address: str) -> BulkChannel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = BulkChannel(address, self._clock)
        return channel
