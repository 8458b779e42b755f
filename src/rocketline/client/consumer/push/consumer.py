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
from typing import Any, Self, TypeVar, overload

from rocketline.client.base import GroupClient
from rocketline.client.consumer.group.assignment import Strategy, find_strategy
from rocketline.client.consumer.group.consume_observer import ConsumeObserver, MessageFilter
from rocketline.client.consumer.group.offsets import OffsetStore
from rocketline.client.consumer.group.start_offset import ConsumeFrom, StartFrom
from rocketline.client.consumer.group.subscription import Sql, Subscription
from rocketline.client.consumer.pop.pop_loop import ByBrokers
from rocketline.client.consumer.push.handlers import Handler, HandlerFunction, ObjectHandler
from rocketline.client.consumer.push.orderly import Ordering
from rocketline.client.consumer.push.pull_loop import PullSettings
from rocketline.client.consumer.push.push_member import MessageModel, PushMember, PushOptions
from rocketline.client.consumer.push.retries import INNER_GROUP
from rocketline.client.consumer.push.stream import MessageStream
from rocketline.client.consumer_info import ConsumeStatus
from rocketline.client.hooks import ConsumeContext, HookFunction
from rocketline.client.identity import DEFAULT_INSTANCE
from rocketline.client.options import ClientOptions
from rocketline.client.producer.receipts import SendReceipt
from rocketline.client.replies import send_reply
from rocketline.client.serializers import Deserializer
from rocketline.client.session import ClientSession, opened_before_fork
from rocketline.client.signals import stop_on_signals
from rocketline.client.trace import ConsumerTrace, TraceCounts
from rocketline.errors import ClientError, ConfigError, ConsumerClosed
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.headers.pop import INIT_MAX, INIT_MIN
from rocketline.protocol.names import retry_topic

T = TypeVar("T")


class PushConsumer(GroupClient):
    """Calls a function for every message of the subscribed topics; an async context manager.

        async with PushConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("orders", "created || paid", handle)
            await consumer.run()

    The function may be plain (it then runs in a thread) or async, and takes a MessageView, or a list of them when
    `batch_size` is above 1. Returning means consumed; raising means "later", and the message comes again. Delivery is
    at least once: after a crash, or a rebalance while handlers take long, a message may come twice.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str,
        model: MessageModel = MessageModel.CLUSTERING,
        from_where: ConsumeFrom | datetime = ConsumeFrom.LAST,
        concurrency: int = 20,
        batch_size: int = 1,
        ordered: bool | Ordering = False,
        max_reconsume_times: int = -1,
        strategy: Strategy | str | ByBrokers = "AVG",
        pull: PullSettings = PullSettings(),
        offsets: OffsetStore | Path | None = None,
        options: ClientOptions = ClientOptions(),
    ) -> None:
        """`from_where` is where a group begins in a queue in which it has committed nothing. `concurrency` handlers run at
        once. A message that failed `max_reconsume_times` goes to the dead letters; -1 means 16 times, with `ordered`
        never. `strategy` shares the queues out: AVG, AVG_BY_CIRCLE, CONSISTENT_HASH or a function, the same for all
        members of the group; or `ByBrokers`. `pull` says how far queues are read ahead. `offsets` is another store of the
        group's progress, or the folder in which a broadcasting consumer keeps its own.

        `ordered` delivers each queue's messages one after the other; brokers lock the queues, so that no two members of
        the group work on the same one. It holds for all subscriptions of a consumer, and every member of a group should
        do the same. A handler that raises blocks its queue for a second, then gets the message again (see SuspendQueue);
        `Ordering` sets that time, and lets the handler say when to commit."""
        broadcasting = model is MessageModel.BROADCASTING
        super().__init__(name_servers, group, options, default_instance=DEFAULT_INSTANCE if broadcasting else None)
        timing = options.timing
        by_brokers = strategy if isinstance(strategy, ByBrokers) else None
        init_mode = INIT_MIN if from_where is ConsumeFrom.FIRST else INIT_MAX
        self._options = PushOptions(
            group=self._wire_group,
            model=model,
            start_from=StartFrom(from_where),
            concurrency=concurrency,
            batch_size=batch_size,
            ordering=Ordering() if ordered is True else ordered or None,
            max_reconsume_times=max_reconsume_times,
            consume_timeout_s=timing.consume_timeout_s,
            stop_s=timing.stop_s,
            pull=pull,
            strategy=find_strategy(strategy.strategy if isinstance(strategy, ByBrokers) else strategy),
            pop=replace(by_brokers.pop, init_mode=init_mode) if by_brokers is not None else None,
            offsets=offsets,
            unit_mode=options.unit_mode,
        )
        self._observer = ConsumeObserver(
            self.group, options.clock, namespace=self._namespace, consume_timeout_s=timing.consume_timeout_s
        )
        self._trace: ConsumerTrace | None = None
        self._subscriptions: dict[str, Subscription] = {}
        self._handlers: dict[str, Handler] = {}
        self._streams: dict[str, MessageStream] = {}
        self._running: PushMember | None = None
        self._stopped = asyncio.Event()

    async def __aenter__(self) -> Self:
        if self._session is not None or self._stopped.is_set():
            raise ConsumerClosed(f"consumer {self.group!r} was used before: make a new one")
        self._session = self._new_session()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @overload
    def subscribe(self, topic: str, handler: HandlerFunction, /, *, in_thread: bool | None = None) -> None: ...

    @overload
    def subscribe(
        self, topic: str, expression: str | Sql, handler: HandlerFunction, *, in_thread: bool | None = None
    ) -> None: ...

    @overload
    def subscribe(
        self, topic: str, handler: ObjectHandler[T], /, *, deserializer: Deserializer[T], in_thread: bool | None = None
    ) -> None: ...

    @overload
    def subscribe(
        self,
        topic: str,
        expression: str | Sql,
        handler: ObjectHandler[T],
        *,
        deserializer: Deserializer[T],
        in_thread: bool | None = None,
    ) -> None: ...

    def subscribe(
        self,
        topic: str,
        expression: Any = "*",
        handler: Any = None,
        *,
        deserializer: Any = None,
        in_thread: bool | None = None,
    ) -> None:
        """Have `handler` called for messages of a topic whose tag fits: `*`, or no expression, for all, else tags joined by
        `||`; or, with `Sql`, whose properties fit.

            consumer.subscribe("orders", handle)
            consumer.subscribe("orders", "created || paid", handle)

        With a `deserializer` it is called with an object and the message; a message that cannot be read counts as failed.
        See client/serializers.py. `in_thread=False` runs a plain function on the event loop: quicker, if it never blocks.
        """
        if handler is None:
            expression, handler = "*", expression
        made = Handler(
            handler,
            takes_list=self._options.batch_size > 1,
            in_thread=in_thread,
            deserializer=deserializer,
            in_order=self._options.ordering is not None,
        )
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
        version = self._client_options.clock.now_ms()
        if known is not None:
            version = max(version, known.data.sub_version + 1)
        return Subscription(topic, expression, version)

    def messages(self, topic: str, expression: str | Sql = "*") -> MessageStream:
        """Messages of a topic for `async for`; asking for the next one acknowledges the one before.

        The loop ends after its message when `stop` is called, or when SIGINT or SIGTERM comes and nobody else handles it.
        """
        if self._options.batch_size > 1:
            raise ConfigError("messages() hands out one message at a time: batch_size must be 1")
        topic = self._namespace.unwrap(topic)
        if topic in self._handlers:
            raise ClientError(f"topic {topic!r} already has a handler in group {self.group!r}")
        stream = MessageStream(self._ensure_started, self.stop)
        self.subscribe(topic, expression, stream.handle)
        self._streams[topic] = stream
        return stream

    async def run(self) -> None:
        """Consume until `stop` is called, this is cancelled, or SIGINT (Ctrl-C) or SIGTERM comes and nobody else handles
        it. Leaving the `async with` block then waits for running handlers, commits, and leaves the group."""
        with stop_on_signals(self.stop, asyncio.get_running_loop()):
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
            topic = retry_topic(self._wire_group)
            self._subscriptions[topic] = self._subscription(topic, "*")
        running = self._running = PushMember(
            session, self._options, self._subscriptions, self._handlers, self._observer
        )
        self._start_trace(session)
        try:
            await running.start()
        except BaseException:
            self._running = None
            await running.stop()
            raise

    def _start_trace(self, session: ClientSession) -> None:
        topic = self._client_options.trace_topic
        if topic is not None and self._trace is None:
            trace = self._trace = ConsumerTrace(session, self._wire_group, topic)
            self._observer.hooks.add(trace.before, trace.after)
            trace.start()

    async def close(self) -> None:
        """Stop: no new pulls, running handlers get the time `ClientTiming.stop_s`, offsets are committed, brokers told."""
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
        self._observer.hooks.add(before, after)

    def add_filter(self, keep: MessageFilter) -> None:
        """Have a plain function asked for every message pulled; those it says no to count as consumed."""
        self._observer.filters.append(keep)

    @property
    def stats(self) -> dict[str, ConsumeStatus]:
        """Rates and times by topic, over the last minute; failures over the last hour."""
        stats = self._observer.stats
        return {self._namespace.unwrap(topic): stats.status(topic) for topic in stats.topics()}

    @property
    def trace_counts(self) -> TraceCounts:
        """What became of the traces of this consumer."""
        return self._trace.counts if self._trace is not None else TraceCounts()

    @property
    def problems(self) -> list[str]:
        """Queues that stand still at a message nobody can read, and brokers that refuse this consumer's account."""
        loops = self._running.queues.loops() if self._running is not None else []
        refusals = self._session.refusals.values() if self._session is not None else ()
        return [*(loop.stuck_at for loop in loops if loop.stuck_at is not None), *map(str, refusals)]

    @property
    def _started(self) -> PushMember:
        if self._running is None:
            raise ConsumerClosed(f"consumer {self.group!r} is not running")
        return self._running
