"""Sending many messages from a plain thread: batched, a bounded number of requests in flight, no event loop.

    with BulkWriter("127.0.0.1:9876", group="import") as writer:
        for message in messages:
            writer.send(message)
        writer.flush()
        print(writer.counts)

Messages are collected per queue and sent as batches; those with a delay, and those of retry topics, which brokers do not
take in batches, go one by one. Without a queue a batch goes to the next one in turn. `send` waits when too many requests
are in flight, `flush` until all of them are answered. `send_items` takes messages that were encoded before.

Failures: a request without answer, or with an error that may pass, is sent again until `timeout` seconds have passed; if
the caller chose no queue, to another broker. So a message may be stored twice, each time with the same unique id.
Any other error is raised, and the writer cannot be used any more. Messages for one queue with `ordered` are stored in the
order they were given: only one of their requests is in flight at any time.

A writer belongs to one thread and one process.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from rocketline.client.bulk.channel import BulkChannel
from rocketline.client.bulk.cluster import PAUSE_S, BulkCluster
from rocketline.client.identity import check_group, local_ip
from rocketline.client.producer.batching import batch_item, batch_request, is_batchable
from rocketline.client.producer.outgoing import RequestMaker, SendRequest, check_message
from rocketline.client.producer.queue_choice import QueuesInTurn
from rocketline.client.producer.receipts import SendStatus, read_receipt
from rocketline.client.producer.send_options import MAX_MESSAGE_BYTES, SendOptions
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import (
    BrokerError,
    ConfigError,
    InvalidMessage,
    NoPermission,
    RocketlineError,
    RouteNotFound,
    SendFailed,
    TlsFailed,
    TransportError,
)
from rocketline.message import Message, MessageQueue
from rocketline.protocol.message_ids import UniqueIds
from rocketline.protocol.records import encode_batch
from rocketline.transport.access import Access, TlsOption
from rocketline.transport.credentials import CredentialsOption

BATCH_MESSAGES = 4000
"""Most messages of a batch: the answer has an id of 33 bytes for each, and headers are limited."""

MAX_BATCH_BYTES = MAX_MESSAGE_BYTES // 2
"""Brokers count what they add to messages too."""

COLLECTED_BATCHES = 32
"""So many batches of messages are collected at most, of all queues and topics; then the oldest one is sent."""

_Key = tuple[str, MessageQueue | None, bool, bool]
"""Topic, queue if one was chosen, whether its order is kept, whether the broker answers when it is stored: messages of one
key travel together."""


@dataclass
class WriteCounts:
    """Counts of a writer so far."""

    messages: int = 0
    """Acknowledged."""
    body_bytes: int = 0
    requests: int = 0
    sent_again: int = 0
    less_durable: int = 0
    """Stored, but not flushed or replicated in time: see `SendStatus`."""


@dataclass
class _Collected:
    """Messages that will travel together, encoded."""

    items: list[bytes] = field(default_factory=list)
    size: int = 0
    messages: int = 0
    body_bytes: int = 0
    only: Message | None = None
    """The message, while there is no other."""

    def add(self, items: bytes, messages: int, body_bytes: int, only: Message | None) -> None:
        self.only = only if not self.items else None
        self.items.append(items)
        self.size += len(items)
        self.messages += messages
        self.body_bytes += body_bytes


@dataclass
class _Request:
    """A request in flight, or about to be sent."""

    outgoing: SendRequest
    messages: int
    body_bytes: int
    queue: MessageQueue | None
    """The queue the caller chose."""
    ordered: bool
    deadline: float
    sent_to: MessageQueue | None = None
    channel: BulkChannel | None = None
    opaque: int = 0
    failures: list[RocketlineError] = field(default_factory=list)


class BulkWriter:
    """Sends messages; a context manager."""

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        group: str,
        batch_bytes: int = 256 << 10,
        in_flight: int = 8,
        timeout: float = 30.0,
        options: SendOptions | None = None,
        first_queue: int = 0,
        credentials: CredentialsOption = None,
        tls: TlsOption = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`in_flight` requests may wait for their answers; `first_queue` is where taking turns begins."""
        if batch_bytes < 1 or in_flight < 1:
            raise ConfigError(f"batch_bytes {batch_bytes}, in_flight {in_flight}: 1 or more is needed")
        self.counts = WriteCounts()
        self._options = options or SendOptions()
        most = self._options.max_message_bytes // 2
        if batch_bytes > most:
            raise ConfigError(
                f"batch_bytes {batch_bytes}: at most {most}, half of what a message may have (max_message_bytes)"
            )
        self._batch_bytes = batch_bytes
        self._in_flight = in_flight
        self._cluster = BulkCluster(name_servers, timeout, clock, Access.of(credentials, tls))
        ids = UniqueIds(local_ip(), clock)
        self._maker = RequestMaker(check_group(group), self._options, ids.next, clock.now_ms)
        self._first_queue = first_queue
        self._turns: dict[str, QueuesInTurn] = {}
        self._collected: dict[_Key, _Collected] = {}
        self._collected_bytes = 0
        self._pending: deque[_Request] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; what was not flushed may or may not be stored."""
        self._collected.clear()
        self._pending.clear()
        self._cluster.close()

    def begin_anew(self, first_queue: int) -> None:
        """Be as a new writer after a `flush`, with the connections that are there."""
        self.counts = WriteCounts()
        self._first_queue = first_queue
        self._turns.clear()
        self._cluster.forget_routes()

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to, or will be when its first message creates it."""
        queues = self._cluster.writable_route(topic, self._options.topic_queue_count).writable
        if not queues:
            self._cluster.doubt(topic)
            raise RouteNotFound(
                f"topic {topic!r} has no queue that can be written to: read-only, or no master is there"
            )
        return queues

    def send(self, message: Message, queue: MessageQueue | None = None, *, ordered: bool = False) -> None:
        """Have a message sent; it is stored for sure when `flush` has returned."""
        if queue is not None and queue.topic != message.topic:
            raise InvalidMessage(f"the message is for topic {message.topic!r}, the queue is {queue}")
        message = self._options.with_bytes(message)
        check_message(message, self._options.max_message_bytes)
        if not is_batchable(message):
            self._start(self._single(message, queue, ordered))
            return
        item, _ = batch_item(message, self._maker.next_id(self._maker.now_ms()))
        key = (message.topic, queue, ordered, message.wait_stored)
        self._collect(key, encode_batch([item]), 1, len(item.body), message)

    def room(self, topic: str, queue: MessageQueue | None = None, *, ordered: bool = False) -> tuple[int, int]:
        """(messages, bytes of items) that the next batch still has room for."""
        collected = self._collected.get((topic, queue, ordered, True)) or _Collected()
        return max(0, BATCH_MESSAGES - collected.messages), max(0, self._batch_bytes - collected.size)

    def send_items(
        self, topic: str, items: bytes, messages: int, body_bytes: int, queue: MessageQueue | None = None, *,
        ordered: bool = False,
    ) -> None:  # fmt: skip
        """Have messages sent that were checked and encoded as items of a batch; the topic takes batches."""
        self._collect((topic, queue, ordered, True), items, messages, body_bytes, None)

    def flush(self) -> None:
        """Send what was collected, and wait until everything is stored."""
        for key in list(self._collected):
            self._send_collected(key)
        while self._pending:
            self._finish_oldest()

    def _collect(self, key: _Key, items: bytes, messages: int, body_bytes: int, only: Message | None) -> None:
        topic, queue, ordered, wait_stored = key
        if ordered and (earlier := (topic, queue, ordered, not wait_stored)) in self._collected:
            self._send_collected(earlier)
        collected = self._collected.get(key)
        if collected is not None and collected.size + len(items) > self._batch_bytes:
            self._send_collected(key)
            collected = None
        if collected is None:
            collected = self._collected[key] = _Collected()
        collected.add(items, messages, body_bytes, only)
        self._collected_bytes += len(items)
        if collected.messages >= BATCH_MESSAGES or collected.size >= self._batch_bytes:
            self._send_collected(key)
        elif self._collected_bytes > COLLECTED_BATCHES * self._batch_bytes:
            self._send_collected(next(iter(self._collected)))

    def _send_collected(self, key: _Key) -> None:
        topic, queue, ordered, wait_stored = key
        collected = self._collected.pop(key)
        self._collected_bytes -= collected.size
        if collected.only is not None:
            self._start(self._single(collected.only, queue, ordered))
            return
        outgoing = batch_request(topic, b"".join(collected.items), self._maker, wait_stored)
        self._start(
            _Request(outgoing, collected.messages, collected.body_bytes, queue, ordered, self._cluster.deadline())
        )

    def _single(self, message: Message, queue: MessageQueue | None, ordered: bool) -> _Request:
        return _Request(self._maker.make(message), 1, len(message.body), queue, ordered, self._cluster.deadline())

    def _start(self, request: _Request) -> None:
        while len(self._pending) >= self._in_flight or (request.ordered and self._is_busy(request.queue)):
            self._finish_oldest()
        request.deadline = self._cluster.deadline()  # what it waited for its turn does not count
        self._send(request)
        self._pending.append(request)

    def _is_busy(self, queue: MessageQueue | None) -> bool:
        return any(request.ordered and request.queue == queue for request in self._pending)

    def _send(self, request: _Request) -> None:
        """Hand a request to a socket; it is tried again until that works or its time is over."""
        while True:
            try:
                queue = request.queue or self._next_queue(request)
                channel = self._cluster.channel(self._cluster.address_of(queue, master=True))
                request.sent_to, request.channel = queue, channel
                request.opaque = channel.send(request.outgoing.command(queue), request.deadline)
                return
            except (TransportError, RouteNotFound) as error:
                self._failed(request, error)

    def _finish_oldest(self) -> None:
        request = self._pending.popleft()
        while True:
            assert request.channel is not None
            assert request.sent_to is not None
            try:
                answer = request.channel.receive(request.opaque, request.deadline).command
                receipt = read_receipt(answer, "", request.sent_to, request.channel.address)
            except (TransportError, BrokerError) as error:
                self._failed(request, error)
                self.counts.sent_again += 1
                self._send(request)
                continue
            counts = self.counts
            counts.messages += request.messages
            counts.body_bytes += request.body_bytes
            counts.requests += 1
            counts.less_durable += request.messages if receipt.status is not SendStatus.OK else 0
            return

    def _failed(self, request: _Request, error: RocketlineError) -> None:
        """Return when the request may be sent again."""
        if isinstance(error, BrokerError) and not error.retryable:
            raise error
        if isinstance(error, TlsFailed) or (isinstance(error, NoPermission) and error.concerns_account):
            raise error  # a producer tries other brokers; here the whole time would be spent on trying
        request.failures.append(error)
        if not isinstance(error, BrokerError) or error.may_lack_role:
            self._cluster.doubt(request.outgoing.topic)
        if self._cluster.clock.monotonic() + PAUSE_S >= request.deadline:
            reasons = "; ".join(dict.fromkeys(map(str, request.failures[-3:])))
            raise SendFailed(
                f"{request.messages} messages for topic {request.outgoing.topic!r} were not acknowledged after "
                f"{len(request.failures)} attempts: {reasons}"
            ) from error
        time.sleep(PAUSE_S)

    def _next_queue(self, request: _Request) -> MessageQueue:
        topic = request.outgoing.topic
        turns = self._turns.get(topic)
        if turns is None:
            turns = self._turns[topic] = QueuesInTurn(self._first_queue)
        avoid = request.sent_to.broker_name if request.sent_to is not None else None
        return turns.choose(self.queues(topic), avoid)
