"""The push consumer: messages come to your function.

Underneath it pulls: the rebalancer decides which queues are ours, a pull loop per queue keeps one long poll open,
delivery runs the handlers, and progress is committed with the pulls and every 5 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Self

from rocketline.client.address_server import where_to_ask
from rocketline.client.consumer.group.assignment import Strategy, find_strategy
from rocketline.client.consumer.group.consume_observer import ConsumeWatch, MessageFilter
from rocketline.client.consumer.group.offsets import OffsetStore
from rocketline.client.consumer.group.start_offset import ConsumeFrom, StartFrom
from rocketline.client.consumer.group.subscription import Sql, Subscription
from rocketline.client.consumer.pop.pop_loop import PopSettings
from rocketline.client.consumer.push.handlers import Handler, HandlerFunction
from rocketline.client.consumer.push.pull_loop import PullSettings
from rocketline.client.consumer.push.push_member import MessageModel, PushOptions, RunningConsumer
from rocketline.client.consumer.push.queue_buffer import BufferLimits
from rocketline.client.consumer.push.retries import INNER_GROUP
from rocketline.client.consumer.push.stream import MessageStream
from rocketline.client.consumer_info import ConsumeStatus
from rocketline.client.hooks import ConsumeContext, HookFunction
from rocketline.client.identity import DEFAULT_INSTANCE, check_group, client_id
from rocketline.client.middleware import Middleware
from rocketline.client.producer.receipts import SendReceipt
from rocketline.client.replies import send_reply
from rocketline.client.session import ClientSession, open_session, opened_before_fork
from rocketline.client.timing import ClientTiming
from rocketline.client.trace import ConsumerTrace, TraceCounts, check_trace_topic
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import ClientError, ConfigError, ConsumerClosed
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.headers.pop import INIT_MAX, INIT_MIN
from rocketline.protocol.names import retry_topic
from rocketline.protocol.namespaces import TRACE_TOPIC, Namespace
from rocketline.protocol.signing import Credentials
from rocketline.transport.access import Access, TlsOption


class PushConsumer:
    """Calls a function for every message of the subscribed topics; an async context manager.

        async with PushConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("orders", "created || paid", handle)
            await consumer.run()

    The function may be plain (it then runs in a thread) or async, and takes a MessageView, or a list of them when
    `batch_size` is above 1. Returning means consumed; raising means "later", and the message comes again. Delivery is
    at least once: after a crash or a rebalance a message may come twice.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        group: str,
        model: MessageModel = MessageModel.CLUSTERING,
        from_where: ConsumeFrom | datetime = ConsumeFrom.LAST,
        concurrency: int = 20,
        batch_size: int = 1,
        ordered: bool = False,
        suspend_queue: float = 1.0,
        auto_commit: bool = True,
        max_reconsume_times: int = -1,
        consume_timeout: float = 15 * 60.0,
        stop_timeout: float = 10.0,
        pull_batch: int = 32,
        pull_interval: float = 0.0,
        pull_timeout: float = 30.0,
        suspend: float = 15.0,
        max_cached_messages: int = 1000,
        max_cached_mib: int = 100,
        max_span: int = 2000,
        max_topic_messages: int | None = None,
        max_topic_mib: int | None = None,
        post_subscription_when_pull: bool = False,
        strategy: Strategy | str = "AVG",
        client_rebalance: bool = True,
        pop_invisible: float = 60.0,
        pop_batch: int = 32,
        max_unacked: int = 96,
        offsets: OffsetStore | None = None,
        offsets_folder: Path | None = None,
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
    ) -> None:
        """`concurrency` handlers run at once. `suspend` is how long a broker may hold a pull that finds nothing.
        `max_cached_messages`, `max_cached_mib` and `max_span` pause a queue whose messages are not consumed fast
        enough; `max_topic_messages` and `max_topic_mib` limit all owned queues together instead. With
        `post_subscription_when_pull` every pull carries its expression instead of relying on heartbeats. A message that
        failed `max_reconsume_times` goes to the dead letters; -1 means 16 times, with `ordered` never. `strategy` shares
        the queues out: AVG, AVG_BY_CIRCLE, CONSISTENT_HASH or a function, the same for all members of the group. With
        `client_rebalance=False` brokers do it, and say whether queues are pulled or popped; popped messages that are not
        consumed within `pop_invisible` seconds come again, `pop_batch` come at once, and no more are popped while more
        than `max_unacked` of a queue, or of a broker, wait to be acknowledged. A broadcasting consumer keeps its offsets in
        `offsets_folder`. `namespace` goes before topics and the group on the wire and is not seen here. With `enable_trace`
        every delivery is told to `trace_topic`. Every request passes through `middleware` and is signed with
        `credentials`; `tls` is True, a Tls or an ssl.SSLContext and holds for name servers and brokers. Clients of one
        `instance_name` have the same of all three.

        `ordered` delivers each queue's messages one after the other; brokers lock the queues, so that no two members of
        the group work on the same one. It holds for all subscriptions of a consumer, and every member of a group should
        do the same. A handler that raises blocks its queue for `suspend_queue` seconds, then gets the message again
        (see SuspendQueue). With `auto_commit=False` the handler says when: see OrderedResult and Rollback."""
        self._namespace = Namespace(namespace)
        limits = BufferLimits(max_cached_messages, max_cached_mib, max_span)
        self._options = PushOptions(
            group=check_group(self._namespace.wrap(group)),
            model=model,
            start_from=StartFrom(from_where),
            concurrency=concurrency,
            batch_size=batch_size,
            ordered=ordered,
            suspend_queue_s=suspend_queue,
            auto_commit=auto_commit,
            max_reconsume_times=max_reconsume_times,
            consume_timeout_s=consume_timeout,
            stop_timeout_s=stop_timeout,
            pull=PullSettings(
                pull_batch, suspend, pull_timeout, pull_interval, limits, post_subscription=post_subscription_when_pull
            ),
            max_topic_messages=max_topic_messages,
            max_topic_mib=max_topic_mib,
            strategy=find_strategy(strategy),
            client_rebalance=client_rebalance,
            pop=PopSettings(
                pop_batch,
                pop_invisible,
                max_unacked,
                init_mode=INIT_MIN if from_where is ConsumeFrom.FIRST else INIT_MAX,
            ),
            offsets=offsets,
            offsets_folder=offsets_folder or Path.home() / ".rocketmq_offsets",
            unit_mode=unit_mode,
        )
        self.group = self._namespace.unwrap(group)
        self._watch = ConsumeWatch(self.group, clock, namespace=self._namespace, consume_timeout_s=consume_timeout)
        self._trace_topic = check_trace_topic(trace_topic) if enable_trace else None
        self._trace: ConsumerTrace | None = None
        if self._options.is_broadcasting and instance_name is None:
            instance_name = DEFAULT_INSTANCE
        self.client_id = client_id(instance_name, ip=client_ip, unit=unit_name)
        self._name_servers = where_to_ask(name_servers)
        self._middleware = middleware
        self._access = Access.of(credentials, tls)
        self._timing = timing
        self._clock = clock
        self._subscriptions: dict[str, Subscription] = {}
        self._handlers: dict[str, Handler] = {}
        self._streams: dict[str, MessageStream] = {}
        self._session: ClientSession | None = None
        self._running: RunningConsumer | None = None
        self._stopped = asyncio.Event()

    async def __aenter__(self) -> Self:
        if self._session is not None or self._stopped.is_set():
            raise ConsumerClosed(f"consumer {self.group!r} was used before: make a new one")
        self._session = open_session(
            self.client_id, self._name_servers, self._timing, self._clock, self._middleware, self._access
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def subscribe(
        self, topic: str, expression: str | Sql, handler: HandlerFunction, *, in_thread: bool | None = None
    ) -> None:
        """Have `handler` called for messages of a topic whose tag fits: `*` for all, else tags joined by `||`; or, with
        `Sql`, whose properties fit.

        `in_thread=False` runs a plain function on the event loop: quicker, if it never blocks.
        """
        made = Handler(handler, takes_list=self._options.batch_size > 1, in_thread=in_thread)
        wire_topic = self._namespace.wrap(topic)
        self._subscriptions[wire_topic] = self._subscription(wire_topic, expression)
        self._handlers[self._namespace.unwrap(topic)] = made
        if self._running is not None:
            self._running.subscriptions_changed(wire_topic)

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic; messages that are here and were not handled yet stay unacknowledged."""
        wire_topic, topic = self._namespace.wrap(topic), self._namespace.unwrap(topic)
        if self._subscriptions.pop(wire_topic, None) is None:
            return
        self._handlers.pop(topic, None)
        if (stream := self._streams.pop(topic, None)) is not None:
            stream.abandon()
        if self._running is not None:
            self._running.subscriptions_changed(wire_topic)

    def _subscription(self, topic: str, expression: str | Sql) -> Subscription:
        known = self._subscriptions.get(topic)
        version = self._clock.now_ms()
        if known is not None:
            version = max(version, known.data.sub_version + 1)
        return Subscription(topic, expression, version)

    def messages(self, topic: str, expression: str | Sql = "*") -> MessageStream:
        """Messages of a topic for `async for`; asking for the next one acknowledges the one before."""
        if self._options.batch_size > 1:
            raise ConfigError("messages() hands out one message at a time: batch_size must be 1")
        topic = self._namespace.unwrap(topic)
        if topic in self._handlers:
            raise ClientError(f"topic {topic!r} already has a handler in group {self.group!r}")
        stream = MessageStream(self._ensure_started)
        self.subscribe(topic, expression, stream.handle)
        self._streams[topic] = stream
        return stream

    async def run(self) -> None:
        """Consume until `stop` is called or this is cancelled."""
        await self._ensure_started()
        await self._stopped.wait()

    def stop(self) -> None:
        """End `run` and all `messages` loops; leaving the `async with` block then closes the consumer."""
        self._stopped.set()
        for stream in self._streams.values():
            stream.close()

    async def _ensure_started(self) -> None:
        if self._running is None:
            await self.start()

    async def start(self) -> None:
        """Join the group: routes, heartbeat, first share of queues. `run` and `messages` do this by themselves."""
        session = self._session
        if session is None or self._stopped.is_set():
            raise ConsumerClosed(f"consumer {self.group!r} is not open: use it inside 'async with'")
        if session.is_inherited:
            raise ConsumerClosed(opened_before_fork(f"consumer {self.group!r}"))
        if self._running is not None:
            raise ClientError(f"consumer {self.group!r} was started already")
        if not self._subscriptions:
            raise ClientError(f"consumer {self.group!r} subscribes to nothing: call subscribe() first")
        if not self._options.is_broadcasting:
            topic = retry_topic(self._options.group)
            self._subscriptions[topic] = self._subscription(topic, "*")
        running = self._running = RunningConsumer(
            session, self._options, self._subscriptions, self._handlers, self._watch
        )
        self._start_trace(session)
        try:
            await running.start()
        except BaseException:
            self._running = None
            await running.stop()
            raise

    def _start_trace(self, session: ClientSession) -> None:
        if self._trace_topic is not None and self._trace is None:
            trace = self._trace = ConsumerTrace(session, self._options.group, self._trace_topic)
            self._watch.hooks.add(trace.before, trace.after)
            trace.start()

    async def close(self) -> None:
        """Stop: no new pulls, running handlers get `stop_timeout`, offsets are committed, brokers told."""
        self.stop()
        for stream in self._streams.values():
            stream.abandon()
        session, self._session = self._session, None
        running, self._running = self._running, None
        if session is None or session.is_inherited:
            return
        async with AsyncExitStack() as ending:  # whatever fails on the way, the rest still ends; in reverse order
            ending.push_async_callback(session.release)
            if self._trace is not None:
                ending.push_async_callback(self._trace.stop)
            if running is not None:
                ending.push_async_callback(running.stop)

    async def reply(
        self, request: MessageView, body: bytes, *, properties: Mapping[str, str] | None = None, timeout: float = 3.0
    ) -> SendReceipt:
        """Answer a message that a producer's `request` sent; SendFailed when that producer is gone."""
        if self._session is None:
            raise ConsumerClosed(f"consumer {self.group!r} is not open: use it inside 'async with'")
        return await send_reply(self._session, INNER_GROUP, request, body, properties, timeout)

    @property
    def concurrency(self) -> int:
        """How many handlers may run at once; may be set at any time, and running ones are left alone."""
        return self._options.concurrency

    @concurrency.setter
    def concurrency(self, count: int) -> None:
        self._options = replace(self._options, concurrency=count)
        if self._running is not None:
            self._running.resize(self._options)

    def pause(self) -> None:
        """Pull nothing new until `resume`; what is already here is still delivered."""
        self._started.queues.gate.clear()

    def resume(self) -> None:
        """Pull again; the group may have changed meanwhile, so the queues are shared out anew at once."""
        self._started.queues.gate.set()
        self._started.rebalance_now()

    @property
    def assigned(self) -> set[MessageQueue]:
        """The queues this consumer reads at the moment, its retry queue included; -1 is all queues of a broker."""
        owned = self._running.owned if self._running is not None else set()
        return {self._namespace.unwrap_queue(queue) for queue in owned}

    def add_hook(
        self, before: HookFunction[ConsumeContext] | None = None, after: HookFunction[ConsumeContext] | None = None
    ) -> None:
        """Have functions called, with a ConsumeContext, before and after every run of a handler."""
        self._watch.hooks.add(before, after)

    def add_filter(self, keep: MessageFilter) -> None:
        """Have a plain function asked for every message pulled; those it says no to count as consumed."""
        self._watch.filters.append(keep)

    @property
    def stats(self) -> dict[str, ConsumeStatus]:
        """Rates and times by topic, over the last minute; failures over the last hour."""
        stats = self._watch.stats
        return {self._namespace.unwrap(topic): stats.status(topic) for topic in stats.topics()}

    @property
    def trace_counts(self) -> TraceCounts:
        """What became of the traces of this consumer."""
        return self._trace.counts if self._trace is not None else TraceCounts()

    @property
    def problems(self) -> list[str]:
        """Queues that stand still at a message nobody can read."""
        loops = self._running.queues.loops() if self._running is not None else []
        return [loop.stuck_at for loop in loops if loop.stuck_at is not None]

    @property
    def _started(self) -> RunningConsumer:
        if self._running is None:
            raise ConsumerClosed(f"consumer {self.group!r} is not running")
        return self._running
