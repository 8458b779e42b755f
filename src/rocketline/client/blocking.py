"""The clients for code without an event loop: the same names, the same arguments, no `await`.

    with blocking.Producer("127.0.0.1:9876", group="shop") as producer:
        producer.send(Message("orders", b"..."))

Every method hands its work to one background thread for all clients and waits (see loop_thread.py); any thread may call it.
Only `send` of a plain message does not need that thread (see producer/direct.py).

A forked child has neither that thread nor connections of its own. There a client that was opened before the fork refuses
every call; a newly opened one works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, overload

from rocketline import client as async_client
from rocketline.client.consumer.group.subscription import Sql
from rocketline.client.consumer.pull.listeners import TopicListener
from rocketline.client.consumer.push.handlers import HandlerFunction, ObjectHandler
from rocketline.client.consumer_info import ConsumeStatus
from rocketline.client.hooks import ConsumeContext, HookFunction, PrepareFunction, SendContext
from rocketline.client.loop_thread import OnLoopThread, arguments_of, running_loop
from rocketline.client.producer.background import SendCallback
from rocketline.client.producer.direct import DirectSends
from rocketline.client.producer.queue_choice import QueueSelector
from rocketline.client.producer.receipts import SendReceipt
from rocketline.client.producer.transactional import ExecuteFunction, TransactionReceipt
from rocketline.client.serializers import Deserializer
from rocketline.client.signals import stop_on_signals
from rocketline.message import ConsumerOffset, Message, MessageQueue, MessageView, QueueOffset

T = TypeVar("T")
ProducerT = TypeVar("ProducerT", bound=async_client.Producer)


async def _awaited(task: asyncio.Task[T]) -> T:
    return await task


class _BlockingProducer(OnLoopThread[ProducerT]):
    """The methods of both producers."""

    _direct: DirectSends | None = None

    async def _opened(self) -> ProducerT:
        client = await super()._opened()
        self._direct = client.direct_sends()
        return client

    def __exit__(self, *exc_info: Any) -> None:
        self._check_thread()
        direct, self._direct = self._direct, None
        if direct is not None:
            direct.close()
        super().__exit__(*exc_info)

    def send(
        self, message: Message, *, queue: MessageQueue | QueueSelector | None = None, timeout: float | None = None
    ) -> SendReceipt:
        """Send and wait until a broker has stored the message; the calling thread does it all itself if it can."""
        client, direct = self._open, self._direct
        if direct is None or queue is not None or running_loop() is self._loop:
            return self._wait(client.send(message, queue=queue, timeout=timeout))
        sent = direct.send(message, timeout)
        return sent if isinstance(sent, SendReceipt) else self._wait(sent)

    def submit(
        self,
        message: Message,
        callback: SendCallback | None = None,
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout: float | None = None,
    ) -> Future[SendReceipt]:
        """Send in the background: returns as soon as there is room for one more message in flight.

        `callback` runs on the background thread of all blocking clients: it must not call back into one.
        """
        client = self._open
        task = self._wait(client.submit(message, callback, queue=queue, timeout=timeout))
        return self._start(_awaited(task))

    def send_oneway(self, message: Message, *, queue: MessageQueue | QueueSelector | None = None) -> None:
        self._wait(self._open.send_oneway(message, queue=queue))

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout: float | None = None,
    ) -> list[SendReceipt]:
        return self._wait(self._open.send_batch(messages, queue=queue, timeout=timeout))

    def recall(self, handle: str, *, timeout: float | None = None) -> str:
        return self._wait(self._open.recall(handle, timeout=timeout))

    def request(
        self, message: Message, *, queue: MessageQueue | QueueSelector | None = None, timeout: float = 3.0
    ) -> MessageView:
        return self._wait(self._open.request(message, queue=queue, timeout=timeout))

    def reply(
        self,
        request: MessageView,
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> SendReceipt:
        return self._wait(self._open.reply(request, body, properties=properties, timeout=timeout))

    @property
    def late_replies(self) -> int:
        client = self._open
        return self._do(lambda: client.late_replies)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._wait(self._open.queues(topic))

    def create_topic(
        self,
        name: str,
        queues: int = 8,
        *,
        message_type: str | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> bool:
        return self._wait(
            self._open.create_topic(name, queues, message_type=message_type, cluster=cluster, timeout=timeout)
        )

    def add_hook(
        self,
        before: HookFunction[SendContext] | None = None,
        after: HookFunction[SendContext] | None = None,
        *,
        prepare: PrepareFunction | None = None,
    ) -> None:
        """Hooks run on the background thread of all blocking clients: they must not call back into one. `prepare` may
        also run on the thread that sends."""
        client = self._open
        self._do(lambda: client.add_hook(before, after, prepare=prepare))


class Producer(_BlockingProducer[async_client.Producer]):
    """See rocketline.client.Producer for the arguments."""

    @arguments_of(async_client.Producer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(partial(async_client.Producer, *args, **kwargs))


class TransactionalProducer(_BlockingProducer[async_client.TransactionalProducer]):
    """See rocketline.client.TransactionalProducer for the arguments. Plain functions run in threads, as there."""

    @arguments_of(async_client.TransactionalProducer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(partial(async_client.TransactionalProducer, *args, **kwargs))

    def send_in_transaction(
        self,
        message: Message,
        execute: ExecuteFunction,
        *args: Any,
        queue: MessageQueue | QueueSelector | None = None,
        check_after: float | None = None,
        timeout: float | None = None,
    ) -> TransactionReceipt:
        return self._wait(
            self._open.send_in_transaction(
                message, execute, *args, queue=queue, check_after=check_after, timeout=timeout
            )
        )


class PushConsumer(OnLoopThread[async_client.PushConsumer]):
    """See rocketline.client.PushConsumer for the arguments. Plain handlers run in threads, as there."""

    @arguments_of(async_client.PushConsumer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(partial(async_client.PushConsumer, *args, **kwargs))

    @overload
    def subscribe(self, topic: str, handler: HandlerFunction, /) -> None: ...

    @overload
    def subscribe(self, topic: str, expression: str | Sql, handler: HandlerFunction) -> None: ...

    @overload
    def subscribe(self, topic: str, handler: ObjectHandler[T], /, *, deserializer: Deserializer[T]) -> None: ...

    @overload
    def subscribe(
        self, topic: str, expression: str | Sql, handler: ObjectHandler[T], *, deserializer: Deserializer[T]
    ) -> None: ...

    def subscribe(self, topic: str, expression: Any = "*", handler: Any = None, *, deserializer: Any = None) -> None:
        client = self._open
        self._do(lambda: client.subscribe(topic, expression, handler, deserializer=deserializer))

    def unsubscribe(self, topic: str) -> None:
        client = self._open
        self._do(lambda: client.unsubscribe(topic))

    def add_hook(
        self, before: HookFunction[ConsumeContext] | None = None, after: HookFunction[ConsumeContext] | None = None
    ) -> None:
        """Hooks run on the background thread of all blocking clients: they must not call back into one."""
        client = self._open
        self._do(lambda: client.add_hook(before, after))

    @property
    def concurrency(self) -> int:
        client = self._open
        return self._do(lambda: client.concurrency)

    @concurrency.setter
    def concurrency(self, count: int) -> None:
        client = self._open
        self._do(lambda: setattr(client, "concurrency", count))

    @property
    def stats(self) -> dict[str, ConsumeStatus]:
        client = self._open
        return self._do(lambda: client.stats)

    def reply(
        self, request: MessageView, body: bytes, *, properties: Mapping[str, str] | None = None, timeout: float = 3.0
    ) -> SendReceipt:
        return self._wait(self._open.reply(request, body, properties=properties, timeout=timeout))

    def start(self) -> None:
        """Begin to consume and return."""
        self._wait(self._open.start())

    def run(self) -> None:
        """Consume until another thread calls `stop`; in the main thread, SIGINT (Ctrl-C) and SIGTERM end it too."""
        client, loop = self._open, self._loop
        assert loop is not None
        with stop_on_signals(client.stop, loop):
            self._wait(client.run())

    def stop(self) -> None:
        self._do(self._open.stop)

    def messages(self, topic: str, expression: str | Sql = "*") -> Iterator[MessageView]:
        """Messages of a topic for `for`; asking for the next one acknowledges the one before. In the main thread, SIGINT
        and SIGTERM end the loop after its message."""
        client = self._open
        stream = self._do(lambda: client.messages(topic, expression))
        yield from self._each(stream, client.stop)


class PullConsumer(OnLoopThread[async_client.PullConsumer]):
    """See rocketline.client.PullConsumer for the arguments. Plain listeners run in threads, so they may call this."""

    @arguments_of(async_client.PullConsumer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(partial(async_client.PullConsumer, *args, **kwargs))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._wait(self._open.queues(topic))

    def assign(self, queues: Iterable[MessageQueue], expression: str | Sql = "*") -> None:
        client = self._open
        self._do(lambda: client.assign(queues, expression))

    def subscribe(self, topic: str, expression: str | Sql = "*") -> None:
        self._wait(self._open.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        client = self._open
        self._do(lambda: client.unsubscribe(topic))

    @property
    def assigned(self) -> set[MessageQueue]:
        client = self._open
        return self._do(lambda: client.assigned)

    def on_queues_changed(self, topic: str, listener: TopicListener) -> None:
        self._wait(self._open.on_queues_changed(topic, listener))

    def poll(self, max_messages: int = 32, timeout: float = 5.0) -> list[MessageView]:
        return self._wait(self._open.poll(max_messages, timeout))

    def __iter__(self) -> Iterator[MessageView]:
        """Message after message until the consumer is closed; one is done when the next is asked for."""
        while self._client is not None:
            yield from self.poll(1)

    def seek(self, queue: MessageQueue, to: int | async_client.SeekTo | datetime) -> None:
        self._wait(self._open.seek(queue, to))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        client = self._open
        self._do(lambda: client.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        client = self._open
        self._do(lambda: client.resume(queues))

    @property
    def paused(self) -> set[MessageQueue]:
        client = self._open
        return self._do(lambda: client.paused)

    @property
    def problems(self) -> list[str]:
        client = self._open
        return self._do(lambda: client.problems)

    def position(self, queue: MessageQueue) -> QueueOffset | None:
        client = self._open
        return self._do(lambda: client.position(queue))

    def commit(self, queues: Iterable[MessageQueue] | Mapping[MessageQueue, int] | None = None) -> None:
        self._wait(self._open.commit(queues))

    def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        self._wait(self._open.commit_offset(queue, offset))

    def committed(self, queue: MessageQueue) -> ConsumerOffset | None:
        return self._wait(self._open.committed(queue))

    def begin_offset(self, queue: MessageQueue) -> QueueOffset:
        return self._wait(self._open.begin_offset(queue))

    def end_offset(self, queue: MessageQueue) -> QueueOffset:
        return self._wait(self._open.end_offset(queue))

    def offset_at(self, queue: MessageQueue, when: datetime) -> QueueOffset:
        return self._wait(self._open.offset_at(queue, when))

    def send_back(self, message: MessageView, *, delay_level: int = 0) -> None:
        self._wait(self._open.send_back(message, delay_level=delay_level))


class PopConsumer(OnLoopThread[async_client.PopConsumer]):
    """See rocketline.client.PopConsumer for the arguments."""

    @arguments_of(async_client.PopConsumer)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(partial(async_client.PopConsumer, *args, **kwargs))

    def subscribe(self, topic: str, expression: str | Sql = "*") -> None:
        self._wait(self._open.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        self._wait(self._open.unsubscribe(topic))

    def receive(
        self, max_messages: int = 32, *, invisible: float | None = None, wait: float = 15.0
    ) -> list[MessageView]:
        return self._wait(self._open.receive(max_messages, invisible=invisible, wait=wait))

    def ack(self, receipt: MessageView | str, *, topic: str | None = None) -> None:
        self._wait(self._open.ack(receipt, topic=topic))

    def ack_batch(self, receipts: Sequence[MessageView | str], *, topic: str | None = None) -> None:
        self._wait(self._open.ack_batch(receipts, topic=topic))

    def extend(self, receipt: MessageView | str, seconds: float, *, topic: str | None = None) -> str:
        return self._wait(self._open.extend(receipt, seconds, topic=topic))

    def nack(self, receipt: MessageView | str, *, delay: float | None = None, topic: str | None = None) -> None:
        self._wait(self._open.nack(receipt, delay=delay, topic=topic))

    def messages(
        self, *, batch: int = 16, invisible: float | None = None, hold: float = 15 * 60.0
    ) -> Iterator[MessageView]:
        """Messages for `for`; asking for the next one acknowledges the one before, and they are extended meanwhile. In the
        main thread, SIGINT and SIGTERM end the loop after its message."""
        client = self._open
        stream = self._do(lambda: client.messages(batch=batch, invisible=invisible, hold=hold))
        yield from self._each(stream, stream.stop)

    def __iter__(self) -> Iterator[MessageView]:
        return self.messages()
