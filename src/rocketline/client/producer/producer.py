"""The producer: messages in, receipts out."""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypedDict

from rocketline.client.base import GroupClient
from rocketline.client.hooks import HookFunction, PrepareFunction, SendContext
from rocketline.client.options import ClientOptions
from rocketline.client.producer.attempts import Attempts
from rocketline.client.producer.autobatch import Accumulator, AutoBatch, Batch, ReadyMessage
from rocketline.client.producer.background import BackgroundSends, SendCallback
from rocketline.client.producer.batching import batch_item, is_batchable, outgoing_batch
from rocketline.client.producer.broker_health import BrokerHealth, SlowBrokers
from rocketline.client.producer.direct import DirectSends
from rocketline.client.producer.outgoing import RequestMaker, SendRequest, check_message
from rocketline.client.producer.queue_choice import QueueSelector, queue_choice
from rocketline.client.producer.receipts import SendReceipt
from rocketline.client.producer.send_hooks import SendHooks
from rocketline.client.producer.send_options import MAX_MESSAGE_BYTES, Compression, Retries, SendOptions
from rocketline.client.producer.sender import Sender
from rocketline.client.producer.window import SendWindow
from rocketline.client.replies import ask, request_message, send_reply
from rocketline.client.serializers import Serializer
from rocketline.client.session import ClientSession, opened_before_fork
from rocketline.client.tasks import OwnedTasks, repeat
from rocketline.client.topics import create_topic, topic_config
from rocketline.client.trace import ProducerTrace, TraceCounts
from rocketline.errors import (
    ClientError,
    ConfigError,
    InvalidMessage,
    ProducerClosed,
    ProtocolError,
)
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.recall import RecallHandle

# Compressing this much takes longer than handing it to a thread and back.
THREAD_OVER_BYTES = 64 * 1024

DIRECT_FROM_IN_FLIGHT = 1024
"""Direct sends of threads are not counted as in flight, so they are used only when this many or more may be."""


class ProducerArguments(TypedDict, total=False):
    """The optional arguments of a producer."""

    timeout: float
    retries: int | Retries
    compression: str | Compression
    max_message_bytes: int
    topic_queue_count: int
    max_in_flight: int
    autobatch: bool | AutoBatch
    avoid_slow_brokers: bool | SlowBrokers
    serializer: Serializer | None
    options: ClientOptions


class Producer(GroupClient):
    """Sends messages; an async context manager.

        async with Producer("127.0.0.1:9876", group="shop") as producer:
            receipt = await producer.send(Message("orders", b"...", tag="created", keys=["42"]))

    Any number of tasks may send at once (`asyncio.gather`); at most `max_in_flight` messages wait for their answer, the
    rest wait for their turn. It belongs to the event loop and the process it was opened in; threads use
    `rocketline.client.blocking`.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str,
        timeout: float = 3.0,
        retries: int | Retries = 2,
        compression: str | Compression = "zlib",
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        topic_queue_count: int = 4,
        max_in_flight: int = 10_000,
        autobatch: bool | AutoBatch = False,
        avoid_slow_brokers: bool | SlowBrokers = False,
        serializer: Serializer | None = None,
        options: ClientOptions = ClientOptions(),
    ) -> None:
        """`timeout` is the time limit of a send in seconds, over all attempts: a broker or a name server that is away may
        come back within it. `retries` is how often an attempt is repeated that failed on a broker; `Retries` says more
        about it. With `autobatch`, messages sent within 10 ms travel together, up to 32 KiB; `AutoBatch` sets both. With
        `avoid_slow_brokers`, brokers that were slow or failed are not used for a while; `SlowBrokers` says how long. A
        topic that its first message creates gets `topic_queue_count` queues. `serializer` makes bytes of bodies that are
        none: see client/serializers.py.
        """
        super().__init__(name_servers, group, options)
        self._options = SendOptions(
            timeout,
            retries if isinstance(retries, Retries) else Retries(retries),
            compression if isinstance(compression, Compression) else Compression(compression),
            max_message_bytes,
            topic_queue_count,
            options.unit_mode,
            serializer,
        )
        if max_in_flight < 1:
            raise ConfigError(f"max_in_flight {max_in_flight}: at least 1 is needed")
        self._max_in_flight = max_in_flight
        self._window = SendWindow(max_in_flight)
        self._background = BackgroundSends(max_in_flight)
        self._batch_limits = AutoBatch() if autobatch is True else autobatch or None
        self._accumulator: Accumulator | None = None
        slow = SlowBrokers() if avoid_slow_brokers is True else avoid_slow_brokers
        self._health = BrokerHealth(options.clock.monotonic, slow) if slow else None
        self._hooks = SendHooks(self.group, self._namespace, options.clock.monotonic)
        self._tasks = OwnedTasks()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sender: Sender | None = None
        self._maker: RequestMaker

    async def __aenter__(self) -> Self:
        if self._session is not None:
            raise ProducerClosed(f"producer {self.group!r} is already running")
        session = self._new_session()
        try:
            session.add_producer(self._wire_group)
            self._session = session
            await session.check_account(self._wire_group)
        except BaseException:
            await self._leave() if self._session is not None else await session.release()
            raise
        self._loop = asyncio.get_running_loop()
        sender = self._sender = Sender(session, self._options, self._client_options.chance, self._health)
        self._maker = RequestMaker(self._wire_group, self._options, session.unique_ids.next, session.clock.now_ms)
        if self._batch_limits is not None:
            self._accumulator = Accumulator(self._send_accumulated, self._batch_limits, self._options.max_message_bytes)
        if self._health is not None and self._health.probes:
            probe = partial(self._health.probe, sender.answers)
            self._tasks.start(repeat(session.timing.probe_s, probe, "probe of brokers"), "broker probes")
        trace_topic = self._client_options.trace_topic
        if trace_topic is not None:
            self._hooks.start_trace(ProducerTrace(session, self._wire_group, trace_topic))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Unregister from the brokers and close the connections.

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
        if session is None or session.is_inherited:
            return
        try:
            await self._tasks.cancel()
            await self._hooks.stop_trace()
            await session.remove_producer(self._wire_group)
        finally:
            await session.release()

    def send(
        self, message: Message, *, queue: MessageQueue | QueueSelector | None = None, timeout: float | None = None
    ) -> Coroutine[Any, Any, SendReceipt]:
        """Send and wait until a broker has stored the message.

        `queue` fixes the queue, or chooses it: a function of (queues, message). `timeout` covers everything, route
        lookup and retries included, from its turn on (see `max_in_flight`).
        """
        if self._hooks.are_needed:
            message = self._prepared(message)
        return self._send(message, queue, timeout or self._options.timeout_s)

    def _prepared(self, message: Message) -> Message:
        """With a body of bytes, and as the hooks want it sent."""
        return self._hooks.prepared(self._options.with_bytes(message))

    async def _send(
        self,
        message: Message,
        queue: MessageQueue | QueueSelector | None,
        limit_s: float,
        outgoing: SendRequest | None = None,
    ) -> SendReceipt:
        """`outgoing` is the request for the message, if it was made before."""
        if outgoing is None:
            message = self._options.with_bytes(message)
            if self._accumulator is not None and self._may_gather(message):
                return await self._gathered(self._accumulator, message, queue, limit_s)
            outgoing = self._small(message) or await self._large(message)
        choice = None
        if queue is not None or message.sharding_key is not None:
            choice = queue_choice(message, queue, self._namespace)
        window = self._window
        if not window.try_enter():
            await window.enter()
        try:
            sender = self._sender or self._running
            if not self._hooks.are_needed:
                return await sender.send(outgoing, limit_s, choice)
            return (await self._hooks.send([message], partial(sender.send, outgoing, limit_s, choice)))[0]
        finally:
            window.leave()

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
        return is_batchable(message) and len(message.body) < self._options.compression.over_bytes

    async def _gathered(
        self,
        accumulator: Accumulator,
        message: Message,
        queue: MessageQueue | QueueSelector | None,
        limit_s: float,
    ) -> SendReceipt:
        sender, session = self._running, self._open_session
        wire = self._namespace.wrap_message(message)
        check_message(wire, self._options.max_message_bytes)
        item, message_id = batch_item(wire, session.unique_ids.next())
        deadline = get_running_loop().time() + limit_s
        choice = queue_choice(message, queue, self._namespace)
        async with self._window:
            if choice is not None and not isinstance(choice, MessageQueue):
                choice = await sender.select(wire.topic, choice, limit_s)
            ready = ReadyMessage(message, wire, item, message_id)
            return await accumulator.send(ready, choice, limit_s, deadline)

    async def _send_accumulated(self, batch: Batch) -> list[SendReceipt]:
        sender, ids = self._running, batch.ids
        outgoing = batch.outgoing(self._maker)
        left_s = max(0.001, batch.deadline - asyncio.get_running_loop().time())
        send = partial(sender.send, outgoing, left_s, batch.queue)
        messages = [ready.message for ready in batch.ready]
        return await self._hooks.send(messages, send, ids if len(ids) > 1 else None)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | QueueSelector | None = None) -> None:
        """Send without waiting for an answer: quick, and may get lost."""
        message = self._prepared(message)
        outgoing, sender = self._small(message) or await self._large(message), self._running
        choice = queue_choice(message, queue, self._namespace)
        send = partial(sender.send_oneway, outgoing, self._options.timeout_s, choice)
        await self._hooks.send_oneway(message, send)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout: float | None = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic in one request, into one queue; one receipt for each."""
        sender = self._running
        self._check_open()
        messages = [self._prepared(message) for message in messages]
        wrapped = [self._namespace.wrap_message(message) for message in messages] if self._namespace else messages
        outgoing, ids = outgoing_batch(wrapped, self._maker)
        choice = queue_choice(messages[0], queue, self._namespace)
        async with self._window:
            send = partial(sender.send, outgoing, timeout or self._options.timeout_s, choice)
            return await self._hooks.send(messages, send, ids)

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
        queue = MessageQueue(taken.topic, taken.broker_name, 0)
        return await self._running.ask_master(
            queue, lambda broker: broker.recall(self._wire_group, taken.topic, handle, limit_s), limit_s
        )

    async def request(
        self, message: Message, *, queue: MessageQueue | QueueSelector | None = None, timeout: float = 3.0
    ) -> MessageView:
        """Send a message and wait for the reply of the consumer that handles it; NoReply when none comes in time."""
        asked = request_message(self._prepared(message), self.client_id, timeout)
        outgoing = self._small(asked) or await self._large(asked)
        send = partial(self._send, asked, queue, timeout, outgoing)
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
        return await send_reply(self._open_session, self._wire_group, request, body, properties, limit_s)

    @property
    def late_replies(self) -> int:
        """Replies to this client that came when nobody waited for them any more."""
        return self._open_session.requests.late

    def add_hook(
        self,
        before: HookFunction[SendContext] | None = None,
        after: HookFunction[SendContext] | None = None,
        *,
        prepare: PrepareFunction | None = None,
    ) -> None:
        """Have functions called, with a SendContext, before and after every send. `prepare` gets every message first,
        and returns the one to send: the same, or one with other properties say."""
        self._hooks.add(before, after, prepare)

    @property
    def trace_counts(self) -> TraceCounts:
        """What became of the traces of this producer."""
        return self._hooks.trace_counts

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to now."""
        wire_topic = self._namespace.wrap(topic)
        route = await self._open_session.routes.find_writable(wire_topic, self._options.topic_queue_count)
        return tuple(map(self._namespace.unwrap_queue, route.writable)) if self._namespace else route.writable

    async def create_topic(
        self,
        name: str,
        queues: int = 8,
        *,
        message_type: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> bool:
        """Create a topic on all masters of a cluster, or of all clusters; returns whether there was none on some of them.

            await producer.create_topic("orders", queues=16)

        It has `queues` queues on each broker. Where it exists it is left as it is, so a program may do this at every
        start. `message_type` is NORMAL, FIFO, DELAY or TRANSACTION; brokers keep it, RocketMQ's proxy checks it.
        """
        session = self._open_session
        topic = topic_config(self._namespace.wrap(name), queues, message_type)
        return await create_topic(session, topic, cluster, timeout or self._options.timeout_s)

    def _small(self, message: Message) -> SendRequest | None:
        """The request for a message; None for one that must be compressed, which may take a thread."""
        session = self._session
        if session is None or session.is_inherited or self._loop is not get_running_loop():
            self._check_open()
        if self._namespace.name:
            message = self._namespace.wrap_message(message)
        options = self._options
        check_message(message, options.max_message_bytes)
        return self._maker.make(message) if len(message.body) < options.compression.over_bytes else None

    async def _large(self, message: Message) -> SendRequest:
        message, compression = self._namespace.wrap_message(message), self._options.compression
        if len(message.body) < THREAD_OVER_BYTES:
            return self._maker.pack(message)
        return self._maker.make(message, *await asyncio.to_thread(compression.compress, message.body))

    def direct_sends(self) -> DirectSends | None:
        """A sender for threads, without the event loop; None when sends of this producer need the loop."""
        needs_loop = (
            self._namespace
            or self._accumulator is not None
            or self._health is not None
            or self._client_options.middleware is not None
            or self._client_options.access.tls is not None
            or self._max_in_flight < DIRECT_FROM_IN_FLIGHT
        )
        return None if needs_loop else DirectSends(self._open_session, self._running, self._maker, self._hooks, self)

    async def finish(self, outgoing: SendRequest, attempts: Attempts) -> SendReceipt:
        """Go on with a send that a thread began."""
        async with self._window:
            return await self._running.send(outgoing, attempts.left_s, attempts=attempts)

    @property
    def _running(self) -> Sender:
        if self._sender is None:
            raise self._not_running()
        return self._sender

    @property
    def _open_session(self) -> ClientSession:
        self._check_open()
        assert self._session is not None
        return self._session

    def _check_open(self) -> None:
        session = self._session
        if session is None or session.is_inherited:
            raise self._not_running()
        if self._loop is not asyncio.get_running_loop():
            raise ClientError(
                f"producer {self.group!r} was opened in another event loop: open one in this loop, or use "
                "rocketline.client.blocking.Producer, which any thread may call"
            )

    def _not_running(self) -> ProducerClosed:
        if self._session is not None:
            return ProducerClosed(opened_before_fork(f"producer {self.group!r}"))
        return ProducerClosed(f"producer {self.group!r} is not running: use it inside 'async with'")
