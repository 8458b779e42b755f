"""The producer: messages in, receipts out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from rocketline.client.address_server import where_to_ask
from rocketline.client.hooks import HookFunction, SendContext
from rocketline.client.identity import check_group, client_id
from rocketline.client.middleware import Middleware
from rocketline.client.producer.autobatch import Accumulator, Batch, BatchLimits, Ready
from rocketline.client.producer.background import BackgroundSends, SendCallback
from rocketline.client.producer.batching import batch_item, is_batchable, outgoing_batch
from rocketline.client.producer.broker_health import LATENCY_STEPS, BrokerHealth, LatencySteps
from rocketline.client.producer.direct import DirectSends, Unfinished
from rocketline.client.producer.outgoing import (
    MAX_MESSAGE_BYTES,
    Outgoing,
    SendOptions,
    check_message,
    compressed,
    outgoing_message,
)
from rocketline.client.producer.plain_sends import PlainSends
from rocketline.client.producer.queue_choice import QueueSelector, queue_choice
from rocketline.client.producer.receipts import SendReceipt
from rocketline.client.producer.send_hooks import WatchedSends
from rocketline.client.producer.sender import Sender
from rocketline.client.producer.window import Window
from rocketline.client.replies import ask, request_message, send_reply
from rocketline.client.session import ClientSession, open_session, opened_before_fork
from rocketline.client.tasks import OwnedTasks, repeat
from rocketline.client.timing import ClientTiming
from rocketline.client.trace import ProducerTrace, TraceCounts, check_trace_topic
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import (
    ClientError,
    ConfigError,
    InvalidMessage,
    ProducerClosed,
    ProtocolError,
    RouteNotFound,
)
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.namespaces import TRACE_TOPIC, Namespace
from rocketline.protocol.recall import RecallHandle
from rocketline.protocol.signing import Credentials
from rocketline.transport.access import Access, TlsOption

# Compressing this much takes longer than handing it to a thread and back.
THREAD_OVER_BYTES = 64 * 1024

DIRECT_FROM_IN_FLIGHT = 1024
"""Threads that send directly are not counted among those in flight: who allows few means all."""


@dataclass(frozen=True)
class _Member:
    """The producer as brokers know it."""

    group: str


class Producer:
    """Sends messages; an async context manager.

        async with Producer("127.0.0.1:9876", group="shop") as producer:
            receipt = await producer.send(Message("orders", b"...", tag="created", keys=["42"]))

    Any number of tasks may send at once (`asyncio.gather`); at most `max_in_flight` messages wait for their answer, the
    rest wait for their turn. It belongs to the event loop and the process it was opened in; threads use
    `rocketline.client.blocking`.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        group: str,
        timeout: float = 3.0,
        attempt_timeout: float | None = None,
        retries: int = 2,
        retry_not_stored: bool = False,
        compression: str = "zlib",
        compression_level: int = 5,
        compress_over_bytes: int = 4096,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        topic_queue_count: int = 4,
        max_in_flight: int = 10_000,
        autobatch: bool = False,
        linger: float = 0.01,
        batch_bytes: int = 32 * 1024,
        avoid_slow_brokers: bool = False,
        latency_steps: LatencySteps = LATENCY_STEPS,
        probe_brokers: bool = False,
        namespace: str | None = None,
        enable_trace: bool = False,
        trace_topic: str = TRACE_TOPIC,
        unit_mode: bool = False,
        unit_name: str | None = None,
        instance_name: str | None = None,
        client_ip: str | None = None,
        middleware: Middleware | None = None,
        credentials: Credentials | None = None,
        tls: TlsOption = False,
        timing: ClientTiming | None = None,
        clock: Clock = SYSTEM_CLOCK,
        chance: random.Random | None = None,
    ) -> None:
        """`attempt_timeout` limits each attempt that a retry may follow; `timeout` limits all together.

        With `autobatch`, messages sent within `linger` seconds travel together, up to `batch_bytes` (see autobatch.py).
        With `avoid_slow_brokers`, brokers that were slow or failed are left alone for a while, as `latency_steps` say;
        with `probe_brokers` too, those that cannot be reached until they can (see broker_health.py).
        `namespace` goes before topics and the group on the wire and is not seen here. With `enable_trace` every message
        stored is told to `trace_topic`. Every request passes through `middleware`, see client/middleware.py, and is signed
        with `credentials`. `tls` is True, a Tls or an ssl.SSLContext; it holds for name servers and brokers.
        """
        self._namespace = Namespace(namespace)
        self._member = _Member(check_group(self._namespace.wrap(group)))
        self.group = self._namespace.unwrap(group)
        self._name_servers = where_to_ask(name_servers)
        self._options = SendOptions(
            timeout_s=timeout,
            attempt_timeout_s=attempt_timeout,
            retries=retries,
            retry_not_stored=retry_not_stored,
            compression=compression,
            compression_level=compression_level,
            compress_over_bytes=compress_over_bytes,
            max_message_bytes=max_message_bytes,
            topic_queue_count=topic_queue_count,
            unit_mode=unit_mode,
        )
        self.client_id = client_id(instance_name, ip=client_ip, unit=unit_name)
        self._trace_topic = check_trace_topic(trace_topic) if enable_trace else None
        self._watched = WatchedSends(self.group, self._namespace, clock.monotonic)
        self._plain = not self._namespace and not enable_trace
        """Whether nothing has to be done to receipts: asked for every message."""
        if max_in_flight < 1:
            raise ConfigError(f"max_in_flight {max_in_flight}: at least 1 is needed")
        self._background = BackgroundSends(max_in_flight)
        self._batch_limits = BatchLimits(linger, batch_bytes) if autobatch else None
        self._accumulator: Accumulator | None = None
        avoids = avoid_slow_brokers or probe_brokers
        self._health = BrokerHealth(clock.monotonic, latency_steps, probes=probe_brokers) if avoids else None
        self._probes = probe_brokers
        self._tasks = OwnedTasks()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._middleware = middleware
        self._access = Access.of(credentials, tls)
        self._timing = timing
        self._clock = clock
        self._chance = chance
        self._session: ClientSession | None = None
        self._sender: Sender | None = None
        self._plain_sends: PlainSends | None = None
        self._max_in_flight = max_in_flight
        self._turn = Window(max_in_flight)

    async def __aenter__(self) -> Self:
        if self._session is not None:
            raise ProducerClosed(f"producer {self.group!r} is already running")
        session = open_session(
            self.client_id, self._name_servers, self._timing, self._clock, self._middleware, self._access
        )
        try:
            session.add_producer(self._member)
        except BaseException:
            await session.release()
            raise
        self._session = session
        self._loop = asyncio.get_running_loop()
        sender = self._sender = Sender(session, self._options, self._chance, self._health)
        if self._batch_limits is not None:
            self._accumulator = Accumulator(self._send_accumulated, self._batch_limits, self._options.max_message_bytes)
        if self._may_be_quick and self._access.sign is None:
            self._plain_sends = PlainSends(session, sender, self._member.group, self._options, self._turn, self._send)
        if self._probes and self._health is not None:
            probe = partial(self._health.probe, sender.answers)
            self._tasks.start(repeat(session.timing.probe_s, probe, "probe of brokers"), "broker probes")
        if self._trace_topic is not None:
            self._watched.start_trace(ProducerTrace(session, self._member.group, self._trace_topic))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Say goodbye to the brokers and close the connections.

        What was submitted or is gathered in batches is waited for; other messages still in flight fail.
        """
        try:
            if self._session is not None and not self._session.is_inherited:
                if self._accumulator is not None:
                    await self._accumulator.close()
                await self._background.finished()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        session, self._session, self._sender = self._session, None, None
        if self._plain_sends is not None:
            self._plain_sends.is_open = False
            self._plain_sends = None
        if session is None or session.is_inherited:
            return
        try:
            await self._tasks.cancel()
            await self._watched.stop_trace()
            await session.remove_producer(self._member)
        finally:
            await session.release()

    def send(
        self, message: Message, *, queue: MessageQueue | QueueSelector | None = None, timeout: float | None = None
    ) -> Coroutine[Any, Any, SendReceipt]:
        """Send and wait until a broker has stored the message.

        `queue` fixes the queue, or chooses it: a function of (queues, message). `timeout` covers everything, route
        lookup and retries included, from its turn on (see `max_in_flight`).
        """
        plain_sends, limit_s = self._plain_sends, timeout or self._options.timeout_s
        if plain_sends is not None and self._plain and queue is None:
            return plain_sends.send(message, limit_s)
        return self._send(message, queue, limit_s)

    async def _send(self, message: Message, queue: MessageQueue | QueueSelector | None, limit_s: float) -> SendReceipt:
        if self._accumulator is not None and self._may_gather(message):
            return await self._gathered(self._accumulator, message, queue, limit_s)
        outgoing = self._outgoing_now(self._open_session, message) or await self._outgoing_compressed(message)
        fixed, selector = None, None
        if queue is not None or message.sharding_key is not None:
            fixed, selector = queue_choice(message, queue, self._namespace)
        turn = self._turn
        if not turn.has_let_in():
            await turn.enter()
        try:
            if self._plain:
                return await self._running.send(outgoing, limit_s, fixed, selector)
            send = partial(self._running.send, outgoing, limit_s, fixed, selector)
            return (await self._watched.send([message], send))[0]
        finally:
            turn.leave()

    async def submit(
        self,
        message: Message,
        callback: SendCallback | None = None,
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout: float | None = None,
    ) -> asyncio.Task[SendReceipt]:
        """Send in the background: returns as soon as there is room for one more message in flight.

        `callback` gets the receipt or the error, on the event loop; without one, await the task returned.
        """
        if self._session is None:
            raise self._not_running()
        return await self._background.start(self.send(message, queue=queue, timeout=timeout), callback)

    def _may_gather(self, message: Message) -> bool:
        return is_batchable(message) and len(message.body) < self._options.compress_over_bytes

    async def _gathered(
        self,
        accumulator: Accumulator,
        message: Message,
        queue: MessageQueue | QueueSelector | None,
        timeout_s: float,
    ) -> SendReceipt:
        sender, session = self._running, self._open_session
        wire = self._namespace.wrap_message(message)
        check_message(wire, self._options.max_message_bytes)
        item, message_id = batch_item(wire, session.unique_ids.next())
        fixed, selector = queue_choice(message, queue, self._namespace)
        async with self._turn:
            if selector is not None:
                fixed = await sender.select(wire.topic, selector, timeout_s)
            return await accumulator.send(Ready(message, wire, item, message_id), fixed, timeout_s)

    async def _send_accumulated(self, batch: Batch) -> list[SendReceipt]:
        session, ids = self._open_session, batch.ids
        outgoing = batch.outgoing(self._member.group, session.unique_ids.next, session.clock.now_ms(), self._options)
        left_s = max(0.001, batch.deadline - asyncio.get_running_loop().time())
        send = partial(self._running.send, outgoing, left_s, batch.queue)
        messages = [ready.message for ready in batch.ready]
        return await self._watched.send(messages, send, ids if len(ids) > 1 else None)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | QueueSelector | None = None) -> None:
        """Send without waiting for an answer: quick, and may get lost."""
        outgoing = await self._outgoing(message)
        fixed, selector = queue_choice(message, queue, self._namespace)
        send = partial(self._running.send_oneway, outgoing, self._options.timeout_s, fixed, selector)
        await self._watched.send_oneway(message, send)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout: float | None = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic in one request, into one queue; one receipt for each."""
        sender = self._running
        session = self._open_session
        wrapped = [self._namespace.wrap_message(message) for message in messages] if self._namespace else messages
        outgoing, ids = outgoing_batch(
            wrapped, self._member.group, session.unique_ids.next, session.clock.now_ms(), self._options
        )
        fixed, selector = queue_choice(messages[0], queue, self._namespace)
        async with self._turn:
            send = partial(sender.send, outgoing, timeout or self._options.timeout_s, fixed, selector)
            return await self._watched.send(messages, send, ids)

    async def recall(self, handle: str, *, timeout: float | None = None) -> str:
        """Take back a message with a delay or delivery time before it is due; the handle is in its receipt.

        Returns the message's unique id. A message that is due already is refused with a BrokerError (604), and so is every
        recall by a broker without `recallMessageEnable` (16).
        """
        session, limit_s = self._open_session, timeout or self._options.timeout_s
        try:
            taken = RecallHandle.decode(handle)
        except ProtocolError as error:
            raise InvalidMessage(f"{handle!r} is no recall handle: use recall_handle of the receipt") from error
        await session.routes.find_writable(taken.topic, self._options.topic_queue_count)
        broker = session.master_of(taken.broker_name)
        if broker is None:
            raise RouteNotFound(f"{taken.topic!r}: no route names a master of broker {taken.broker_name!r}")
        return await broker.recall(self._member.group, taken.topic, handle, limit_s)

    async def request(
        self, message: Message, *, queue: MessageQueue | QueueSelector | None = None, timeout: float = 3.0
    ) -> MessageView:
        """Send a message and wait for the reply of the consumer that handles it; NoReply when none comes in time."""
        asked = request_message(message, self.client_id, timeout)
        outgoing = await self._outgoing(asked)
        send = partial(self._send_outgoing, asked, outgoing, queue, timeout)
        return await ask(self._open_session, asked, outgoing, send, self._options.topic_queue_count, timeout)

    async def reply(
        self,
        request: MessageView,
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Answer a message that another producer's `request` sent; SendFailed when that one is gone."""
        limit_s = timeout or self._options.timeout_s
        return await send_reply(self._open_session, self._member.group, request, body, properties, limit_s)

    @property
    def late_replies(self) -> int:
        """Replies to this client that came when nobody waited for them any more."""
        return self._open_session.requests.late

    async def _send_outgoing(
        self,
        message: Message,
        outgoing: Outgoing,
        queue: MessageQueue | QueueSelector | None,
        timeout: float | None,
    ) -> SendReceipt:
        fixed, selector = queue_choice(message, queue, self._namespace)
        async with self._turn:
            send = partial(self._running.send, outgoing, timeout or self._options.timeout_s, fixed, selector)
            return (await self._watched.send([message], send))[0]

    def add_hook(
        self, before: HookFunction[SendContext] | None = None, after: HookFunction[SendContext] | None = None
    ) -> None:
        """Have functions called, with a SendContext, before and after every send."""
        self._watched.hooks.add(before, after)
        self._plain = False

    @property
    def trace_counts(self) -> TraceCounts:
        """What became of the traces of this producer."""
        return self._watched.trace_counts

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to now."""
        wire_topic = self._namespace.wrap(topic)
        route = await self._open_session.routes.find_writable(wire_topic, self._options.topic_queue_count)
        return tuple(map(self._namespace.unwrap_queue, route.writable)) if self._namespace else route.writable

    async def _outgoing(self, message: Message) -> Outgoing:
        return self._outgoing_now(self._open_session, message) or await self._outgoing_compressed(message)

    def _outgoing_now(self, session: ClientSession, message: Message) -> Outgoing | None:
        """The request for a message; None for one that must be compressed, which may take a thread."""
        options = self._options
        if self._namespace.name:
            message = self._namespace.wrap_message(message)
        check_message(message, options.max_message_bytes)
        body = message.body
        if len(body) >= options.compress_over_bytes:
            return None
        unique_id = session.unique_ids.next()
        return outgoing_message(message, self._member.group, unique_id, session.clock.now_ms(), options, body, 0)

    async def _outgoing_compressed(self, message: Message) -> Outgoing:
        session, options = self._open_session, self._options
        message = self._namespace.wrap_message(message)
        if len(message.body) >= THREAD_OVER_BYTES:
            body, sys_flag = await asyncio.to_thread(compressed, message.body, options)
        else:
            body, sys_flag = compressed(message.body, options)
        unique_id = session.unique_ids.next()
        return outgoing_message(message, self._member.group, unique_id, session.clock.now_ms(), options, body, sys_flag)

    def _direct_sends(self) -> DirectSends | None:
        """What lets threads send without the loop; None when sends of this producer have to do what only it can."""
        session, few = self._open_session, self._max_in_flight < DIRECT_FROM_IN_FLIGHT
        if few or not self._may_be_quick or self._access.tls is not None:
            return None
        return DirectSends(session, self._running, self._member.group, self._options)

    @property
    def _may_be_quick(self) -> bool:
        """Whether the first attempt of a plain message needs nothing but a request and its answer."""
        options = self._options
        needs_more = options.attempt_timeout_s is not None or options.retry_not_stored or self._health is not None
        return not needs_more and self._accumulator is None and self._middleware is None

    def _send_direct(
        self, direct: DirectSends, message: Message, timeout: float | None
    ) -> SendReceipt | Unfinished | None:
        """Called by any thread; None for a message that the loop must send from the start."""
        if not self._plain or message.sharding_key is not None:
            return None
        options = self._options
        check_message(message, options.max_message_bytes)
        if len(message.body) >= options.compress_over_bytes:
            return None
        return direct.send(message, timeout or options.timeout_s)

    async def _finish(self, sent: Unfinished) -> SendReceipt:
        """Go on with what a thread began."""
        async with self._turn:
            return await self._running.send(sent.outgoing, sent.left_s, failed=sent.failures)

    @property
    def _running(self) -> Sender:
        if self._sender is None:
            raise self._not_running()
        return self._sender

    @property
    def _open_session(self) -> ClientSession:
        session = self._session
        if session is None or session.is_inherited:
            raise self._not_running()
        if self._loop is not asyncio.get_running_loop():
            raise ClientError(
                f"producer {self.group!r} was opened in another event loop: open one in this loop, or use "
                "rocketline.client.blocking.Producer, which any thread may call"
            )
        return session

    def _not_running(self) -> ProducerClosed:
        if self._session is not None:
            return ProducerClosed(opened_before_fork(f"producer {self.group!r}"))
        return ProducerClosed(f"producer {self.group!r} is not running: use it inside 'async with'")
